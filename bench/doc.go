// Bench compares Reprise with the clients of event streams that a Go program would
// pick instead, each through its public API, on the same bytes and in one run. It
// prints tables in Markdown: run make bench-compare.
//
// A figure is a ratio of CPU times, or a number of bytes more than bare net/http holds,
// so that figures of different machines can be compared. CPU time is that of the whole
// process, with all its goroutines and the garbage collector. Every row has its turn in
// each round, and the median of the rounds is printed with their spread.
//
// Before anything is measured, every client must bring the events of every workload,
// byte for byte.
package main

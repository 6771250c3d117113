// Package clock is the time that event streams live by.
//
// A [Clock] tells the time and sets timers; that is all a stream needs. Leave
// the Clock of a client nil, and it is [System], the clock of the time package.
// There are two ways to test a program that waits, without waiting:
//
//   - Inside a testing/synctest bubble the system clock is already a fake one.
//     Leave the clock nil. It does not work with real sockets.
//   - A [Fake] stands still until [Fake.Advance] moves it. It works with real
//     sockets, where one goroutine of the test waits for the program to set its
//     timer ([Fake.Wait]) and then moves the time past it.
//
// Use one or the other for a client, never both.
package clock

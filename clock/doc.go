// Package clock provides the clocks that event streams use, a real one and a fake one.
//
// A [Clock] tells the time and sets timers; that is all a stream needs. If the Clock
// of a client is nil, the client uses [System], the clock of the time package. There
// are two ways to test a program that waits without waiting for it:
//
//   - Inside a testing/synctest bubble the system clock is already a fake one, so
//     leave the client's Clock nil. A bubble does not work with real sockets.
//   - A [Fake] stands still until [Fake.Advance] moves it. It works with real
//     sockets: the test waits for the program to set its timer ([Fake.Wait]) and
//     then moves the time past it.
//
// Use one or the other for a client, never both.
package clock

package clock

import "time"

// A Clock tells the time and sets timers. An event stream takes all times from it,
// except for its context's deadline. A date in a Retry-After header counts from the
// response's own Date header or, without one, from the Clock's time.
//
// Implementations must be safe for use from several goroutines, and the times
// that Now returns must never go backwards. Most programs never need one: the
// default, [System], is right everywhere but in tests.
type Clock interface {
	// Now returns the current time. Only differences between its results are
	// used.
	Now() time.Time

	// AfterFunc calls f once, d after the call, on a goroutine of the clock's
	// choosing; a d of zero or less is due at once. The functions that
	// eventsource hands over return promptly and never call the clock.
	AfterFunc(d time.Duration, f func()) Timer
}

// A Timer is a pending call made by [Clock.AfterFunc]. *time.Timer is one.
type Timer interface {
	// Stop prevents the call. It reports false if the call has been made, or
	// stopped, before; it does not wait for a call that is running.
	Stop() bool

	// Reset makes the call due d from now, whether or not it has been made or
	// stopped before. It reports whether the timer was pending.
	Reset(d time.Duration) bool
}

var _ Timer = (*time.Timer)(nil)

// System returns the clock of the time package. Inside a testing/synctest
// bubble that is the bubble's time.
func System() Clock { return system{} }

type system struct{}

func (system) Now() time.Time { return time.Now() }

func (system) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

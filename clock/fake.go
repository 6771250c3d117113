package clock

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"
)

// A Fake is a [Clock] for tests. Its time stands still until [Fake.Advance]
// moves it, and the timers that fall due on the way fire inside that call.
//
// A test repeats three steps: it calls [Fake.Wait] until the program under test has
// set its timer, looks at [Fake.Next] to see how far off the timer is, and calls
// Advance to fire it. Without the first step the time may move before the timer
// exists, and the timer is then late by that much.
//
// All methods may be called from several goroutines. Make one with [NewFake]; it
// must not be copied.
type Fake struct {
	// turn is held for the whole of an Advance, so that concurrent ones follow
	// each other. It is taken before mu.
	turn sync.Mutex

	mu        sync.Mutex // guards what follows; never held while a function of the caller's runs
	now       time.Time
	pending   []*fakeTimer  // by deadline, and in order of setting where that is equal; no deadline is before now
	advancing bool          // an Advance is running and will look at pending again
	added     chan struct{} // closed when a timer is added; nil while nobody waits
}

var _ Clock = (*Fake)(nil)

// NewFake returns a Fake whose time is start. The zero Time stands for midnight
// UTC on 1 January 2000, where a testing/synctest bubble starts too, because many
// programs, including this module, give the zero Time a special meaning.
func NewFake(start time.Time) *Fake {
	if start.IsZero() {
		start = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return &Fake{now: start.Round(0)} // without the monotonic reading, which is real time
}

// Now returns the time that the clock has been moved to. While a timer's
// function runs inside [Fake.Advance], that is the timer's deadline.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// AfterFunc sets a timer that calls fn when the clock has been moved by d. The
// call is made by [Fake.Advance], on the goroutine that called it.
//
// With a d of zero or less fn does not wait for the next Advance. If one is
// running, it makes this call too, before it returns. Otherwise fn is called at
// once, on a goroutine of its own, as time.AfterFunc does; Wait and Next never
// see such a timer.
//
// It panics if fn is nil.
func (f *Fake) AfterFunc(d time.Duration, fn func()) Timer {
	if fn == nil {
		panic("clock: Fake.AfterFunc: nil function")
	}
	t := &fakeTimer{clock: f, fn: fn}
	t.Reset(d)
	return t
}

// Advance moves the time forward by d and calls the functions of the timers that
// fall due, in order of their deadlines and, where those are equal, in the order
// in which they were set. Before each call the time is set to the timer's
// deadline. Timers set in the meantime, by these functions too, fire as well if
// they fall due within d. When Advance returns, all these calls have returned
// and the time is exactly d later. An Advance of zero fires nothing that is not
// due already.
//
// The functions run one after the other on the calling goroutine. They may use
// the clock and its timers, but neither Advance nor [Fake.Wait], which would
// wait for themselves. If one panics, the panic goes through Advance: the time
// stays at that timer's deadline, and later timers stay pending.
//
// Concurrent calls follow each other, each moving the time by its own d. Advance
// panics if d is negative.
func (f *Fake) Advance(d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("clock: Fake.Advance: negative duration %v", d))
	}
	f.turn.Lock()
	defer f.turn.Unlock()

	f.mu.Lock()
	f.advancing = true
	defer func() { // also when a function panics, or ends its test with FailNow
		f.advancing = false
		f.mu.Unlock()
	}()

	target := f.now.Add(d)
	for len(f.pending) > 0 && !f.pending[0].deadline.After(target) {
		t := f.pending[0]
		f.pending = slices.Delete(f.pending, 0, 1)
		f.now = t.deadline
		f.callUnlocked(t.fn)
	}
	f.now = target
}

// callUnlocked calls fn with mu released, and takes mu again on every way out.
func (f *Fake) callUnlocked(fn func()) {
	f.mu.Unlock()
	defer f.mu.Lock()
	fn()
}

// Next returns the time from now to the earliest pending timer, never negative.
// It reports false if no timer is pending.
func (f *Fake) Next() (d time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) == 0 {
		return 0, false
	}
	return f.pending[0].deadline.Sub(f.now), true
}

// Wait returns nil as soon as at least n timers are pending; at once, if they
// are already or if n is not positive. If ctx is done before that, it returns
// context.Cause(ctx).
//
// A timer that was set and stopped again before Wait looked does not count.
func (f *Fake) Wait(ctx context.Context, n int) error {
	for {
		f.mu.Lock()
		if len(f.pending) >= n {
			f.mu.Unlock()
			return nil
		}
		if f.added == nil {
			f.added = make(chan struct{})
		}
		added := f.added // taken under the lock: a timer added from here on closes it
		f.mu.Unlock()

		select {
		case <-added:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A fakeTimer is a timer of a Fake. Its clock's mu guards deadline. The timer is
// pending if it is in the clock's list.
type fakeTimer struct {
	clock    *Fake
	fn       func()
	deadline time.Time
}

// Stop implements [Timer].
func (t *fakeTimer) Stop() bool {
	f := t.clock
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.remove(t)
}

// Reset implements [Timer].
func (t *fakeTimer) Reset(d time.Duration) bool {
	f := t.clock
	f.mu.Lock()
	defer f.mu.Unlock()
	wasPending := f.remove(t)
	if d <= 0 && !f.advancing {
		go t.fn()
		return wasPending
	}
	t.deadline = f.now.Add(max(d, 0))
	f.add(t)
	return wasPending
}

// remove takes t off the list, if it is on it. mu is held.
func (f *Fake) remove(t *fakeTimer) bool {
	i := slices.Index(f.pending, t)
	if i < 0 {
		return false
	}
	f.pending = slices.Delete(f.pending, i, i+1)
	return true
}

// add puts t on the list, behind those with the same deadline, and wakes the callers
// of Wait. mu is held.
func (f *Fake) add(t *fakeTimer) {
	i := sort.Search(len(f.pending), func(i int) bool { return f.pending[i].deadline.After(t.deadline) })
	f.pending = slices.Insert(f.pending, i, t)
	if f.added != nil {
		close(f.added)
		f.added = nil
	}
}

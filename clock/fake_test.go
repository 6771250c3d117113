package clock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
)

var start = time.Date(2024, time.February, 29, 23, 59, 58, 0, time.UTC)

// A journal notes what fires, and when by the clock.
type journal struct {
	clock *clock.Fake
	lines []string
}

func (j *journal) note(name string) {
	j.lines = append(j.lines, fmt.Sprintf("%s at %v", name, j.clock.Now().Sub(start)))
}

// set sets a timer that notes its name.
func (j *journal) set(d time.Duration, name string) clock.Timer {
	return j.clock.AfterFunc(d, func() { j.note(name) })
}

func (j *journal) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, j.lines); diff != "" {
		t.Errorf("fired (-want +got):\n%s", diff)
	}
	j.lines = nil
}

func newJournal() (*clock.Fake, *journal) {
	f := clock.NewFake(start)
	return f, &journal{clock: f}
}

func TestNewFake(t *testing.T) {
	if got := clock.NewFake(start).Now(); got != start {
		t.Errorf("Now is %v, want %v", got, start)
	}
	wall := time.Now() // has a monotonic reading
	if got := clock.NewFake(wall).Now(); got != wall.Round(0) {
		t.Errorf("Now is %v, want the same without the monotonic reading", got)
	}
	want := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	if got := clock.NewFake(time.Time{}).Now(); got != want {
		t.Errorf("for the zero Time, Now is %v, want %v", got, want)
	}
}

func TestAdvanceFiresInOrderAtEachDeadline(t *testing.T) {
	f, j := newJournal()
	j.set(3*time.Second, "c")
	j.set(time.Second, "a")
	j.set(2*time.Second, "b")
	j.set(3*time.Second+1, "late")

	f.Advance(3 * time.Second)
	j.want(t, "a at 1s", "b at 2s", "c at 3s")
	if got := f.Now().Sub(start); got != 3*time.Second {
		t.Errorf("the time moved by %v, want 3s", got)
	}

	f.Advance(time.Hour)
	j.want(t, "late at 3.000000001s")
	if got := f.Now().Sub(start); got != 3*time.Second+time.Hour {
		t.Errorf("the time moved by %v, want 1h0m3s", got)
	}
}

func TestTiesFireInOrderOfSetting(t *testing.T) {
	f, j := newJournal()
	first := j.set(time.Second, "first")
	j.set(time.Second, "second")
	f.Advance(500 * time.Millisecond)
	j.set(500*time.Millisecond, "third") // the same deadline by another way
	j.set(400*time.Millisecond, "earlier")
	first.Reset(500 * time.Millisecond) // set anew, so the last

	f.Advance(time.Second)
	j.want(t, "earlier at 900ms", "second at 1s", "third at 1s", "first at 1s")
}

func TestFunctionsMayUseTheClock(t *testing.T) {
	f, j := newJournal()
	var again clock.Timer
	victim := j.set(4*time.Second, "victim")
	f.AfterFunc(time.Second, func() {
		j.note("a")
		j.set(time.Second, "b")
		j.set(time.Second-1, "before b")
		j.set(0, "zero")
		j.set(-time.Hour, "negative")
		j.set(10*time.Second, "beyond")
		if !victim.Stop() {
			t.Error("Stop of a pending timer reports false")
		}
		if d, ok := f.Next(); d != 0 || !ok {
			t.Errorf("Next is %v, %v; want the timer that is due", d, ok)
		}
	})
	rounds := 0
	again = f.AfterFunc(2*time.Second, func() {
		j.note("again")
		if rounds++; rounds < 3 {
			if again.Reset(0) {
				t.Error("Reset of a timer that has fired reports true")
			}
		}
	})

	f.Advance(5 * time.Second)
	j.want(t,
		"a at 1s", "zero at 1s", "negative at 1s", "before b at 1.999999999s",
		"again at 2s", "b at 2s", "again at 2s", "again at 2s")
	if d, ok := f.Next(); d != 6*time.Second || !ok {
		t.Errorf("Next is %v, %v; want 6s to the timer beyond", d, ok)
	}
}

func TestAdvanceOfZero(t *testing.T) {
	f, j := newJournal()
	j.set(1, "a nanosecond on")
	f.Advance(0)
	j.want(t)
	f.Advance(1)
	j.want(t, "a nanosecond on at 1ns")
}

// A timer of zero or less must not wait for an Advance that nobody has a reason
// to make.
func TestZeroOrLessIsDueAtOnce(t *testing.T) {
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		f := clock.NewFake(start)
		fired := make(chan time.Time)
		timer := f.AfterFunc(d, func() { fired <- f.Now() })
		if _, ok := f.Next(); ok {
			t.Errorf("%v: the timer is pending", d)
		}
		if timer.Stop() {
			t.Errorf("%v: Stop reports true", d)
		}
		if got := <-fired; got != start {
			t.Errorf("%v: fired at %v, want %v", d, got, start)
		}

		timer.Reset(time.Hour)
		if !timer.Reset(d) {
			t.Errorf("%v: Reset of a pending timer reports false", d)
		}
		<-fired
		f.Advance(2 * time.Hour) // nothing of the hour is left: the send would block
	}
}

func TestStopAndReset(t *testing.T) {
	f, j := newJournal()
	timer := j.set(time.Second, "timer")
	step := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s reports %v", what, got)
		}
	}

	step("Reset of a pending timer", timer.Reset(2*time.Second), true)
	f.Advance(2*time.Second - 1)
	j.want(t)
	f.Advance(1)
	j.want(t, "timer at 2s")
	step("Stop after the call", timer.Stop(), false)
	step("Reset after the call", timer.Reset(time.Second), false)
	step("Stop of a pending timer", timer.Stop(), true)
	step("second Stop", timer.Stop(), false)
	f.Advance(time.Minute)
	j.want(t)
	step("Reset of a stopped timer", timer.Reset(time.Second), false)
	f.Advance(time.Second)
	j.want(t, "timer at 1m3s")
}

func TestStopLeavesTheOthers(t *testing.T) {
	f, j := newJournal()
	var timers []clock.Timer
	for i := range 5 {
		timers = append(timers, j.set(time.Duration(i+1)*time.Second, fmt.Sprint(i)))
	}
	timers[2].Stop()
	timers[0].Stop()
	timers[4].Reset(time.Second)
	f.Advance(time.Minute)
	j.want(t, "4 at 1s", "1 at 2s", "3 at 4s")
}

func TestNext(t *testing.T) {
	f, j := newJournal()
	if d, ok := f.Next(); d != 0 || ok {
		t.Errorf("without timers Next is %v, %v", d, ok)
	}
	j.set(5*time.Second, "b")
	a := j.set(2*time.Second, "a")
	f.Advance(time.Second)
	if d, ok := f.Next(); d != time.Second || !ok {
		t.Errorf("Next is %v, %v; want 1s", d, ok)
	}
	a.Stop()
	if d, ok := f.Next(); d != 4*time.Second || !ok {
		t.Errorf("after Stop, Next is %v, %v; want 4s", d, ok)
	}
}

func TestMisuseOfTheFakePanics(t *testing.T) {
	tests := []struct {
		name string
		do   func(*clock.Fake)
		want string
	}{
		{"negative Advance", func(f *clock.Fake) { f.Advance(-time.Second) }, "negative duration -1s"},
		{"nil function", func(f *clock.Fake) { f.AfterFunc(time.Second, nil) }, "nil function"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, j := newJournal()
			j.set(time.Second, "a")
			func() {
				defer func() {
					if got := fmt.Sprint(recover()); !strings.Contains(got, tt.want) {
						t.Errorf("panic %q, want one with %q", got, tt.want)
					}
				}()
				tt.do(f)
			}()
			if got := f.Now(); got != start {
				t.Errorf("the time has moved to %v", got)
			}
			f.Advance(time.Second) // and the clock still works
			j.want(t, "a at 1s")
		})
	}
}

// A test that fails inside a timer's function leaves through panic or Goexit;
// neither may leave a lock behind, or the test's clean-up would hang.
func TestAdvanceSurvivesItsFunctions(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic":  func() { panic("boom") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			f, j := newJournal()
			f.AfterFunc(time.Second, leave)
			j.set(2*time.Second, "later")
			var recovered any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recovered = recover() }()
				f.Advance(time.Minute)
				t.Error("Advance returned")
			}()
			<-done
			if name == "panic" && recovered != "boom" {
				t.Errorf("recovered %v, want the panic of the function", recovered)
			}
			if got := f.Now().Sub(start); got != time.Second {
				t.Errorf("the time stands at %v, want 1s", got)
			}

			fired := make(chan struct{})
			f.AfterFunc(0, func() { close(fired) }) // no Advance is running any more
			<-fired
			f.Advance(time.Second)
			j.want(t, "later at 2s")
		})
	}
}

func TestHugeDurations(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	f := clock.NewFake(start)
	f.Advance(longest)
	fired := 0
	f.AfterFunc(longest, func() { fired++ })
	if d, ok := f.Next(); d != longest || !ok {
		t.Errorf("Next is %v, %v; want %v", d, ok, longest)
	}
	f.Advance(longest - 1)
	if fired != 0 {
		t.Error("fired before its time")
	}
	f.AfterFunc(longest, func() { fired++ })
	f.Advance(1)
	if fired != 1 {
		t.Errorf("%d timers fired, want the first", fired)
	}
	f.Advance(longest)
	if fired != 2 {
		t.Errorf("%d timers fired, want both", fired)
	}
	if want := start.Add(longest).Add(longest).Add(longest); !f.Now().Equal(want) {
		t.Errorf("the time is %v, want %v", f.Now(), want)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := clock.NewFake(start)
		returned := make(map[int]bool)
		var mu sync.Mutex
		for _, n := range []int{-1, 0, 1, 2, 3} {
			go func() {
				if err := f.Wait(t.Context(), n); err != nil {
					t.Errorf("Wait for %d: %v", n, err)
				}
				mu.Lock()
				defer mu.Unlock()
				returned[n] = true
			}()
		}
		want := map[int]bool{-1: true, 0: true}
		check := func(when string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, returned); diff != "" {
				t.Errorf("%s, Wait returned (-want +got):\n%s", when, diff)
			}
		}

		check("without timers")
		first := f.AfterFunc(time.Second, func() {})
		want[1] = true
		check("with one timer")
		first.Reset(time.Minute)
		check("with one timer, reset")
		first.Stop()
		second := f.AfterFunc(time.Second, func() {})
		check("with one stopped and one new")
		first.Reset(time.Second)
		want[2] = true
		check("with the stopped one set again")
		f.Advance(time.Second)
		f.AfterFunc(time.Second, func() {})
		second.Reset(time.Second)
		check("with two fired and two new")
		f.AfterFunc(time.Second, func() {})
		want[3] = true
		check("with three")
		if err := f.Wait(t.Context(), 3); err != nil {
			t.Errorf("Wait for timers that are there: %v", err)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := clock.NewFake(start)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 1)
		go func() { got <- f.Wait(ctx, 1) }()
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatalf("Wait returned %v without a timer", err)
		default:
		}
		cancel(cause)
		if err := <-got; err != cause {
			t.Errorf("Wait returned %v, want the context's cause", err)
		}
		f.AfterFunc(time.Second, func() {})
		if err := f.Wait(ctx, 1); err != nil {
			t.Errorf("Wait for a timer that is there returned %v", err)
		}
	})
}

// The usual way to drive a program: no wake-up may be lost between its goroutine
// that sets timers and the test's that waits for them.
func TestWaitMissesNoTimer(t *testing.T) {
	const rounds = 2000
	f := clock.NewFake(start)
	done := make(chan struct{})
	go func() {
		defer close(done)
		fired := make(chan struct{})
		for range rounds {
			f.AfterFunc(time.Second, func() { fired <- struct{}{} })
			<-fired
		}
	}()
	for range rounds {
		if err := f.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		d, ok := f.Next()
		if d != time.Second || !ok {
			t.Fatalf("Next is %v, %v; want 1s", d, ok)
		}
		f.Advance(d)
	}
	<-done
	if got := f.Now().Sub(start); got != rounds*time.Second {
		t.Errorf("the time moved by %v, want %v", got, rounds*time.Second)
	}
}

func TestConcurrentAdvancesFollowEachOther(t *testing.T) {
	const goroutines, rounds = 8, 50
	f := clock.NewFake(start)
	var running, fired atomic.Int32
	for i := range goroutines * rounds {
		at := start.Add(time.Duration(i+1) * time.Millisecond)
		f.AfterFunc(time.Duration(i+1)*time.Millisecond, func() {
			if running.Add(1) != 1 {
				t.Error("two functions run at the same time")
			}
			if now := f.Now(); now != at {
				t.Errorf("Now is %v, want the deadline %v", now, at)
			}
			fired.Add(1)
			running.Add(-1)
		})
	}
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range rounds {
				f.Advance(time.Millisecond)
			}
		})
	}
	group.Wait()
	if got := f.Now().Sub(start); got != goroutines*rounds*time.Millisecond {
		t.Errorf("the time moved by %v, want %v", got, goroutines*rounds*time.Millisecond)
	}
	if got := fired.Load(); got != goroutines*rounds {
		t.Errorf("%d timers fired, want %d", got, goroutines*rounds)
	}
}

func TestAdvanceWaitsForItsTurn(t *testing.T) {
	f := clock.NewFake(start)
	var group sync.WaitGroup
	f.AfterFunc(time.Second, func() {
		group.Go(func() { f.Advance(time.Minute) })
		for range 1000 {
			runtime.Gosched() // every chance for the other to go first
		}
		if got := f.Now().Sub(start); got != time.Second {
			t.Errorf("another Advance has moved the time to %v while this one fires a timer", got)
		}
	})
	f.Advance(time.Hour)
	group.Wait()
	if got := f.Now().Sub(start); got != time.Hour+time.Minute {
		t.Errorf("the time moved by %v, want 1h1m0s", got)
	}
}

// Everything at once, for the race detector. What can be counted must add up:
// each setting of a timer either fires once or is taken back once.
func TestFakeUnderConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := clock.NewFake(start)
		var set, fired, takenBack atomic.Int64
		stop := make(chan struct{})
		var movers sync.WaitGroup
		for range 2 {
			movers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						f.Advance(time.Millisecond)
					}
				}
			})
		}
		var users sync.WaitGroup
		for seed := range uint64(6) {
			users.Go(func() {
				random := rand.New(rand.NewPCG(seed, 0))
				var timers []clock.Timer
				for range 300 {
					d := time.Duration(random.IntN(3000)-200) * time.Microsecond
					switch action := random.IntN(4); {
					case action < 2 || len(timers) == 0:
						set.Add(1)
						timers = append(timers, f.AfterFunc(d, func() { fired.Add(1) }))
					case action == 2:
						if timers[random.IntN(len(timers))].Stop() {
							takenBack.Add(1)
						}
					default:
						set.Add(1)
						if timers[random.IntN(len(timers))].Reset(d) {
							takenBack.Add(1)
						}
					}
					if d, ok := f.Next(); ok && d < 0 {
						t.Errorf("seed %d: Next is %v", seed, d)
					}
				}
			})
		}
		users.Wait()
		close(stop)
		movers.Wait()
		f.Advance(time.Second)
		synctest.Wait() // for the timers of zero or less, which run on goroutines of their own
		if set.Load() != fired.Load()+takenBack.Load() {
			t.Errorf("%d set, %d fired, %d taken back", set.Load(), fired.Load(), takenBack.Load())
		}
		if _, ok := f.Next(); ok {
			t.Error("a timer is left")
		}
	})
}

// A naive clock: a list of settings, searched anew for each call.
type naiveTimer struct {
	name     int
	deadline time.Duration
	order    int
}

func TestFakeAgreesWithANaiveClock(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		f := clock.NewFake(start)
		var got, want []string
		var now time.Duration
		var naive []naiveTimer
		var timers []clock.Timer
		order := 0

		remove := func(name int) bool {
			i := slices.IndexFunc(naive, func(n naiveTimer) bool { return n.name == name })
			if i < 0 {
				return false
			}
			naive = append(naive[:i:i], naive[i+1:]...)
			return true
		}
		add := func(name int, d time.Duration) {
			order++
			naive = append(naive, naiveTimer{name, now + d, order})
		}
		earliest := func() (naiveTimer, bool) {
			best, found := naiveTimer{}, false
			for _, n := range naive {
				if !found || n.deadline < best.deadline || n.deadline == best.deadline && n.order < best.order {
					best, found = n, true
				}
			}
			return best, found
		}

		for range 60 {
			d := time.Duration(1 + random.IntN(5)) // few values, so many ties
			switch random.IntN(5) {
			case 0, 1:
				name := len(timers)
				add(name, d)
				timers = append(timers, f.AfterFunc(d, func() {
					got = append(got, fmt.Sprint(name, " at ", f.Now().Sub(start)))
				}))
			case 2:
				if len(timers) > 0 {
					name := random.IntN(len(timers))
					want = append(want, fmt.Sprint("stop ", remove(name)))
					got = append(got, fmt.Sprint("stop ", timers[name].Stop()))
				}
			case 3:
				if len(timers) > 0 {
					name := random.IntN(len(timers))
					want = append(want, fmt.Sprint("reset ", remove(name)))
					add(name, d)
					got = append(got, fmt.Sprint("reset ", timers[name].Reset(d)))
				}
			case 4:
				d -= 1
				target := now + d
				for n, ok := earliest(); ok && n.deadline <= target; n, ok = earliest() {
					remove(n.name)
					now = n.deadline
					want = append(want, fmt.Sprint(n.name, " at ", now))
				}
				now = target
				f.Advance(d)
			}
			n, ok := earliest()
			if d, gotOK := f.Next(); gotOK != ok || ok && d != n.deadline-now {
				t.Fatalf("seed %d: Next is %v, %v; want %v, %v", seed, d, gotOK, n.deadline-now, ok)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-naive +fake):\n%s", seed, diff)
		}
	}
}

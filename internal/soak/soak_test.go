package soak_test

import (
	"context"
	"flag"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/internal/soak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	duration = flag.Duration("soak", 0, "how long to run in real time; 0: a few rounds on a fake clock")
	streams  = flag.Int("streams", 400, "how many streams at once")
)

// TestSoak runs hundreds of streams through restarts of their server on a fake
// clock, or with -soak as many as -streams says for that long in real time: every
// stream comes back, no event is lost or comes twice, waits are spread, and what the
// process holds does not grow.
func TestSoak(t *testing.T) {
	before, descriptors := runtime.NumGoroutine(), soak.Descriptors()
	c := soak.Config{Streams: *streams, Rounds: 6, Pause: 5 * time.Second, Every: time.Second, Print: func(s string) { t.Log(s) }}
	var pumping sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), *duration+5*time.Minute)
	defer cancel()
	if *duration == 0 {
		fake := clock.NewFake(time.Time{})
		c.Clock = fake
		pumping.Go(func() {
			for fake.Wait(ctx, 1) == nil {
				if d, ok := fake.Next(); ok {
					fake.Advance(d)
				}
			}
		})
	} else {
		c.Duration, c.Pause, c.Every = *duration, 15*time.Second, 1500*time.Millisecond
	}
	rounds, err := soak.Run(ctx, c)
	cancel()
	pumping.Wait()
	if err == nil {
		err = soak.Check(rounds)
	}
	if err != nil {
		t.Error(err)
	}

	// Connections take a moment to close down.
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) && (runtime.NumGoroutine() > before || soak.Descriptors() > descriptors+5) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines are left, %d were there before", n, before)
	}
	if n := soak.Descriptors(); n > descriptors+5 {
		t.Errorf("%d descriptors are left, %d were there before", n, descriptors)
	}
}

// TestCheck spoils the measurements of a good run, one by one.
func TestCheck(t *testing.T) {
	good := func() []soak.Round {
		rounds := make([]soak.Round, 8)
		for i := range rounds {
			rounds[i] = soak.Round{Heap: 100 << 20, Goroutines: 10_000, Descriptors: 8_000, Busiest: 0.1}
		}
		rounds[0].Heap = 50 << 20 // warming up
		return rounds
	}
	if err := soak.Check(good()); err != nil {
		t.Errorf("nothing is wrong, but: %v", err)
	}
	for want, spoil := range map[string]func([]soak.Round) []soak.Round{
		"too few":       func(r []soak.Round) []soak.Round { return r[:3] },
		"lost":          func(r []soak.Round) []soak.Round { r[7].Lost = 1; return r },
		"came twice":    func(r []soak.Round) []soak.Round { r[7].Duplicated = 1; return r },
		"within 100 ms": func(r []soak.Round) []soak.Round { r[3].Busiest = 0.3; return r },
		"goroutines": func(r []soak.Round) []soak.Round {
			for i := range r {
				r[i].Goroutines += 50 * i
			}
			return r
		},
		"descriptors": func(r []soak.Round) []soak.Round {
			for i := range r {
				r[i].Descriptors += 50 * i
			}
			return r
		},
		"heap": func(r []soak.Round) []soak.Round {
			for i := range r {
				r[i].Heap += i << 21
			}
			return r
		},
	} {
		if err := soak.Check(spoil(good())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got: %v", want, err)
		}
	}
}

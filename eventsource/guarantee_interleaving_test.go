package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// errInterleaved is what the streams of this file are cancelled with.
var errInterleaved = errors.New("cancelled by another goroutine")

// anyServer does something with a request, by chance.
func anyServer(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	open := func(text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, text)
		out.Flush()
	}
	switch rand.IntN(8) {
	case 0:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	case 1:
		panic(http.ErrAbortHandler)
	case 2:
		open("retry: 500\nid: 1\ndata: half")
		panic(http.ErrAbortHandler)
	case 3:
		open("id: 2\ndata: m\n\n")
	case 4:
		open(": hello\n\nretry: 0\n\n")
	case 5:
		for r.Context().Err() == nil {
			open("data: m\n\n")
		}
	case 6:
		open("data: m\n\n")
		<-r.Context().Done()
	default:
		<-r.Context().Done()
	}
}

// Over real sockets, with goroutines that advance the clock, call Reconnect and
// cancel as it comes: a tenth of the runs of a property.
func TestG7Interleavings(t *testing.T) {
	before := goleak.IgnoreCurrent()
	var arrivals atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrivals.Add(1)
		anyServer(w, r)
	}))
	transport := &http.Transport{}
	seed := *propertySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	calls := int32(0)
	for i := range max(runs(t)/10, 1) {
		counter := &bodyCounter{base: transport}
		if text := interleave(rand.New(rand.NewPCG(seed, uint64(i))), srv.URL, counter); text != "" {
			t.Fatalf("seed %d, run %d: %s", seed, i, text)
		}
		calls += counter.requests.Load()
	}
	transport.CloseIdleConnections()
	srv.Close()
	if n := arrivals.Load(); n > calls {
		t.Errorf("%d requests were made, and %d arrived", calls, n)
	}
	goleak.VerifyNone(t, before)
}

// interleave runs one stream, and returns what was wrong with its end.
func interleave(rng *rand.Rand, url string, counter *bodyCounter) (wrong string) {
	fake := clock.NewFake(time.Time{})
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	var dones []error
	waits := rng.Uint64()
	c := eventsource.Client{
		HTTPClient:  &http.Client{Transport: counter},
		Clock:       fake,
		IdleTimeout: time.Minute,
		Policy: func() policy.Reconnector {
			rng := rand.New(rand.NewPCG(waits, 0))
			return policy.Func(func(policy.Attempt) policy.Decision {
				return policy.After(time.Duration(rng.IntN(1000)) * time.Millisecond).Within(time.Minute)
			})
		},
		Trace: &eventsource.Trace{Done: func(err error) { dones = append(dones, err) }},
	}
	s := c.Stream(req)

	// Two goroutines do something, each in its own order; then one ends it all.
	var others sync.WaitGroup
	for last := range 2 {
		deeds := make([]int, rng.IntN(6))
		for n := range deeds {
			deeds[n] = rng.IntN(200)
		}
		others.Go(func() {
			for _, deed := range deeds {
				switch {
				case deed < 20:
					s.Reconnect()
				case deed < 100:
					fake.Advance(time.Duration(deed) * 10 * time.Millisecond)
				default:
					for range deed {
						runtime.Gosched()
					}
				}
			}
			if last == 1 {
				cancel(errInterleaved)
			}
		})
	}
	leaveAfter, panics := 1+rng.IntN(20), rng.IntN(2) == 0
	var errs []error
	left := false
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() { left = left || recover() != nil }()
		events := 0
		for _, err := range s.Events() {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			switch events++; {
			case events < leaveAfter:
			case panics:
				panic("leaving")
			default:
				left = true
			}
			if left {
				break
			}
		}
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		return "it does not end"
	}
	counter.over.Store(true)
	if d, ok := fake.Next(); ok {
		wrong += fmt.Sprintf("a timer is left, for %v; ", d)
	}
	if n := counter.open.Load(); n != 0 {
		wrong += fmt.Sprintf("%d bodies are open; ", n)
	}
	others.Wait()
	s.Reconnect()
	fake.Advance(24 * time.Hour)
	if n := counter.late.Load(); n != 0 {
		wrong += fmt.Sprintf("%d requests after the end; ", n)
	}
	want := []error{errInterleaved}
	if left {
		want = nil
	}
	if len(dones) != 1 || len(errs) != len(want) || len(want) == 1 && (errs[0] != want[0] || dones[0] != want[0]) {
		wrong += fmt.Sprintf("Done was told %v, and the loop %v; ", dones, errs)
	}
	return wrong
}

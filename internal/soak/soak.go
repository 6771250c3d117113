// Package soak runs many streams through restarts of their server, in one process and
// over sockets, and measures what the process holds meanwhile. Its test is this module's
// load test; with a duration it is the soak test that make soak runs.
package soak

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// A Config says how much to run, and for how long.
type Config struct {
	// Streams is the number of streams at once. Each takes two descriptors, one for
	// itself and one for the server.
	Streams int

	// Rounds is the smallest number of rounds, at least 4. In each round some events
	// are published, the process is measured, and the server is restarted.
	Rounds int

	// Duration is the time in which further rounds begin, on the clock.
	Duration time.Duration

	// Pause is how long a round publishes events, one each Every. Both must be more
	// than zero.
	Pause, Every time.Duration

	// Clock is used for all waits; nil means clock.System. A clock.Fake must be advanced
	// from timer to timer. Since connecting takes none of its time, it runs ahead of the
	// streams, and the measured times mean little.
	Clock clock.Clock

	// Print, if not nil, is called with each line of a table: a heading, and then one
	// line for each round.
	Print func(string)
}

// The server is down for these times in turn. Some are shorter than the streams' first
// wait, and some are longer, so that attempts are refused and waits grow.
var downtimes = [...]time.Duration{delay / 4, 3 * delay}

const delay = 2 * time.Second // the streams' Rules.Delay

// A Round is what was measured in one round: while all streams were open and had
// received everything, unless noted.
type Round struct {
	At          time.Duration // since the start
	Heap        int           // bytes live
	Goroutines  int
	Descriptors int // 0 if the system does not tell

	Attempts   int // of all streams since the start
	Events     int // received, likewise
	Lost       int // missing in what a stream has received
	Duplicated int // received again

	Down    time.Duration // how long the server was down then
	Back    time.Duration // how long after it was up again all streams were open
	Busiest float64       // largest share of the streams' waits after the drop that end within the same 100 ms
}

const heading = "    time  heap MiB  goroutines  descriptors  attempts     events  lost  twice  down  all back  busiest 100 ms"

func (r Round) String() string {
	return fmt.Sprintf("%8v  %8.1f  %10d  %11d  %8d  %9d  %4d  %5d  %4v  %8v  %13.1f%%",
		r.At.Round(time.Second), float64(r.Heap)/(1<<20), r.Goroutines, r.Descriptors, r.Attempts, r.Events,
		r.Lost, r.Duplicated, r.Down, r.Back.Round(time.Millisecond), 100*r.Busiest)
}

// Run runs the streams and returns the measurements when all of them have ended. The
// error is about the run itself: a stream that has ended, a server that could not
// listen, or ctx. Check judges the measurements.
func Run(ctx context.Context, c Config) ([]Round, error) {
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	if c.Print == nil {
		c.Print = func(string) {}
	}
	s, err := startServer()
	if err != nil {
		return nil, err
	}
	defer s.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	r := &run{config: c, server: s, cancel: cancel, last: make([]int, c.Streams)}
	r.changed = sync.NewCond(&r.mu)
	defer context.AfterFunc(ctx, r.wake)()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &eventsource.Client{
		HTTPClient:     &http.Client{Transport: transport},
		Policy:         policy.Rules{Delay: delay},
		Clock:          c.Clock,
		ConnectTimeout: -1, // its timers must not be among those of a Fake
		Trace:          func(*http.Request) *eventsource.Trace { return r.trace() },
	}
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel(nil)
	for i := range c.Streams {
		streams.Go(func() { r.follow(ctx, client, i) })
	}

	c.Print(heading)
	var rounds []Round
	for start := c.Clock.Now(); len(rounds) < c.Rounds || c.Clock.Now().Sub(start) < c.Duration; {
		round, err := r.round(ctx, downtimes[len(rounds)%len(downtimes)])
		if err != nil {
			return rounds, err
		}
		round.At = c.Clock.Now().Sub(start)
		rounds = append(rounds, round)
		c.Print(round.String())
	}
	return rounds, nil
}

// A run is the state of Run.
type run struct {
	config Config
	server *server
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	changed *sync.Cond
	open    int             // streams that have an open response
	latest  int             // number of the newest event published
	current int             // streams that have received it
	last    []int           // number of the last event of each stream
	waits   []time.Duration // of the streams since the last restart
	total   Round           // the counts
	lastErr error           // of an attempt
}

func (r *run) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed.Broadcast()
}

// trace counts for all streams. The attempt before a stream's first wait after a restart
// was open.
func (r *run) trace() *eventsource.Trace {
	locked := func(f func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
		r.changed.Broadcast()
	}
	return &eventsource.Trace{
		Connect: func(eventsource.ConnectInfo) { locked(func() { r.total.Attempts++ }) },
		Open:    func(eventsource.OpenInfo) { locked(func() { r.open++ }) },
		End: func(a policy.Attempt) {
			locked(func() {
				if !a.Open.IsZero() {
					r.open--
				}
				r.lastErr = a.Err
			})
		},
		Wait: func(i eventsource.WaitInfo) { locked(func() { r.waits = append(r.waits, i.Waited) }) },
	}
}

// follow runs one stream and checks the numbers of its events.
func (r *run) follow(ctx context.Context, client *eventsource.Client, stream int) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.server.url, nil)
	if err != nil {
		r.cancel(err)
		return
	}
	for ev, err := range client.Stream(req).Events() {
		if err != nil {
			r.cancel(fmt.Errorf("stream %d has ended: %w", stream, err))
			return
		}
		n, err := strconv.Atoi(ev.Data)
		if err != nil || ev.LastEventID != ev.Data {
			r.cancel(fmt.Errorf("stream %d received %+v", stream, ev))
			return
		}
		r.received(stream, n)
	}
}

func (r *run) received(stream, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Events++
	switch last := r.last[stream]; {
	case last == 0 || n == last+1: // the first event of a stream is the newest
	case n <= last:
		r.total.Duplicated++
		return
	default:
		r.total.Lost += n - last - 1
	}
	r.last[stream] = n
	if n == r.latest {
		r.current++
		r.changed.Broadcast()
	}
}

// await waits until the condition holds. It calls the condition under the lock.
func (r *run) await(ctx context.Context, what string, condition func() bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !condition() {
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for %s: %d of %d streams are open and %d have received the newest event; the last failure is: %v: %w",
				what, r.open, r.config.Streams, r.current, r.lastErr, context.Cause(ctx))
		}
		r.changed.Wait()
	}
	return nil
}

// publish publishes a new event and waits until all streams have it.
func (r *run) publish(ctx context.Context) error {
	r.mu.Lock()
	r.latest++
	r.current = 0
	n := r.latest
	r.mu.Unlock()
	r.server.publish(n)
	return r.await(ctx, "an event", func() bool { return r.current == r.config.Streams })
}

// pause waits on the clock.
func (r *run) pause(ctx context.Context, d time.Duration) error {
	over := make(chan struct{})
	timer := r.config.Clock.AfterFunc(d, func() { close(over) })
	defer timer.Stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) round(ctx context.Context, down time.Duration) (Round, error) {
	all := func() bool { return r.open == r.config.Streams }
	if err := r.await(ctx, "all streams", all); err != nil {
		return Round{}, err
	}
	for rest := r.config.Pause; rest > 0; rest -= r.config.Every {
		if err := r.publish(ctx); err != nil {
			return Round{}, err
		}
		if err := r.pause(ctx, min(rest, r.config.Every)); err != nil {
			return Round{}, err
		}
	}
	round := r.measure()
	round.Down = down

	r.server.down()
	if err := r.await(ctx, "the drop of all streams", func() bool { return r.open == 0 && len(r.waits) >= r.config.Streams }); err != nil {
		return Round{}, err
	}
	r.mu.Lock()
	round.Busiest = busiest(r.waits)
	r.mu.Unlock()
	if err := r.pause(ctx, down); err != nil {
		return Round{}, err
	}
	// What is published while nobody is listening must not be lost.
	r.mu.Lock()
	r.latest++
	r.current = 0
	n := r.latest
	r.mu.Unlock()
	r.server.publish(n)
	up := r.config.Clock.Now()
	if err := r.server.up(); err != nil {
		return Round{}, err
	}
	if err := r.await(ctx, "all streams to come back", func() bool { return all() && r.current == r.config.Streams }); err != nil {
		return Round{}, err
	}
	round.Back = r.config.Clock.Now().Sub(up)
	return round, nil
}

func (r *run) measure() Round {
	r.mu.Lock()
	round := r.total
	r.waits = r.waits[:0]
	r.mu.Unlock()
	runtime.GC()
	runtime.GC() // pools are emptied by the second collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	round.Heap, round.Goroutines, round.Descriptors = int(m.HeapAlloc), runtime.NumGoroutine(), Descriptors()
	return round
}

// Descriptors returns how many file descriptors the process has open, or 0 if the
// system does not tell.
func Descriptors() int {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			return len(entries)
		}
	}
	return 0
}

// busiest returns the largest share of the waits that end within the same 100 ms.
func busiest(waits []time.Duration) float64 {
	sorted := slices.Sorted(slices.Values(waits))
	most := 0
	for i, j := 0, 0; i < len(sorted); i++ {
		for sorted[i]-sorted[j] >= 100*time.Millisecond {
			j++
		}
		most = max(most, i-j+1)
	}
	return float64(most) / float64(max(1, len(sorted)))
}

// maxBusiest is the limit on Round.Busiest. The waits spread over half the delay, so a
// tenth of them is expected.
const maxBusiest = 2 * float64(100*time.Millisecond) / float64(delay/2)

// Check returns what is wrong with the measurements: events lost or duplicated, waits
// that do not spread, or a process that grows. It compares the rounds of the first half
// with those of the second. It leaves out the very first round, in which the process is
// still warming up.
func Check(rounds []Round) error {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if len(rounds) < 4 {
		return fmt.Errorf("soak: %d rounds are too few to tell anything", len(rounds))
	}
	if last := rounds[len(rounds)-1]; last.Lost != 0 || last.Duplicated != 0 {
		say("%d events were lost and %d came twice", last.Lost, last.Duplicated)
	}
	for i, r := range rounds {
		if r.Busiest > maxBusiest {
			say("round %d: %.0f%% of the streams come back within 100 ms", i+1, 100*r.Busiest)
		}
	}
	first, second := rounds[1:(len(rounds)+1)/2], rounds[(len(rounds)+1)/2:]
	for _, held := range []struct {
		what  string
		value func(Round) int
		share float64 // that it may grow by
		fixed int     // and this
	}{
		{"goroutines", func(r Round) int { return r.Goroutines }, 0.01, 10},
		{"descriptors", func(r Round) int { return r.Descriptors }, 0.01, 10},
		{"bytes of heap", func(r Round) int { return r.Heap }, 0.03, 1 << 20},
	} {
		before, after := median(first, held.value), median(second, held.value)
		if after > before+int(held.share*float64(before))+held.fixed {
			say("the median of %s has grown from %d to %d", held.what, before, after)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("soak: %s", strings.Join(wrong, "; "))
	}
	return nil
}

func median(rounds []Round, value func(Round) int) int {
	var values []int
	for _, r := range rounds {
		values = append(values, value(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

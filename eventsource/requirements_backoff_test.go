package eventsource_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// R057: the wait grows while attempts fail, up to its cap.
func TestR057WaitGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, repeated(7, Refuse)...)
		rules := policy.Rules{Delay: time.Second, Factor: 2, MaxDelay: 30 * time.Second}
		play(t, srv, eventsource.Client{Policy: exact(rules)})
		if diff := cmp.Diff(seconds(1, 2, 4, 8, 16, 30, 30), gaps(srv)); diff != "" {
			t.Errorf("gaps (-want +got):\n%s", diff)
		}
	})
}

// A crowd is many streams, each with a policy of its own seed, that lose their
// connections in the same moment. It answers their requests by number; the answer
// after the last is 204.
type crowd struct {
	answers []crowdAnswer

	mu   sync.Mutex
	made map[string]int
	at   [][]time.Duration // of the n-th requests, since start
}

// A crowdAnswer is an event stream that ends at once, or a failure to connect.
type crowdAnswer struct {
	body string
	err  error
}

// RoundTrip implements http.RoundTripper, where a network for a thousand streams
// would be too many goroutines for the race detector.
func (c *crowd) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	n := c.made[req.URL.Path]
	c.made[req.URL.Path]++
	if n == len(c.at) {
		c.at = append(c.at, nil)
	}
	c.at[n] = append(c.at[n], time.Since(bubbleStart))
	c.mu.Unlock()
	switch {
	case n >= len(c.answers):
		return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}, nil
	case c.answers[n].err != nil:
		return nil, c.answers[n].err
	}
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     typed("text/event-stream"),
		Body:       io.NopCloser(strings.NewReader(c.answers[n].body)),
	}, nil
}

// run runs so many streams and returns when their n-th requests were made.
func (c *crowd) run(t *testing.T, size int, rules policy.Rules) {
	t.Helper()
	c.made = make(map[string]int)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var all sync.WaitGroup
	for i := range size {
		rules := rules
		rules.Rand = rand.New(rand.NewPCG(seed, uint64(i))).Float64
		client := eventsource.Client{HTTPClient: &http.Client{Transport: c}, Policy: rules.New}
		all.Go(func() {
			stream := client.Stream(request(t.Context(), t, "http://server.test/"+strconv.Itoa(i)))
			for _, err := range stream.Events() {
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}

// spread returns the first and the last of the n-th requests, and the most that
// came within any second.
func (c *crowd) spread(n int) (first, last time.Duration, most int) {
	at := slices.Sorted(slices.Values(c.at[n]))
	for i, j := 0, 0; i < len(at); i++ {
		for at[i]-at[j] >= time.Second {
			j++
		}
		most = max(most, i-j+1)
	}
	return at[0], at[len(at)-1], most
}

// R058: many streams do not come back in the same moment where the client chose
// the wait; what the server chose is obeyed, and the streams spread from the second
// fruitless attempt on.
func TestR058NoStampede(t *testing.T) {
	const size = 1000
	refused := crowdAnswer{err: syscall.ECONNREFUSED}
	t.Run("the client's wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{answers: []crowdAnswer{{body: "data: x\n\n"}, refused}}
			c.run(t, size, policy.Rules{Delay: 4 * time.Second})
			first, last, most := c.spread(1)
			if first < 4*time.Second || last-first < 1500*time.Millisecond || last >= 6*time.Second {
				t.Errorf("the attempts came between %v and %v", first, last)
			}
			if most > size*6/10 { // even would be half
				t.Errorf("%d of %d attempts came within a second", most, size)
			}
		})
	})
	t.Run("the server's wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{answers: []crowdAnswer{{body: "retry: 4000\ndata: x\n\n"}, refused, refused}}
			c.run(t, size, policy.Rules{Delay: time.Second})
			for n, want := range map[int]time.Duration{1: 4 * time.Second, 2: 8 * time.Second} {
				if first, last, _ := c.spread(n); first != want || last != want {
					t.Errorf("the attempts number %d came between %v and %v, want %v", n+1, first, last, want)
				}
			}
			first, last, most := c.spread(3) // 8 s to 12 s after the one before
			if first < 16*time.Second || last-first < 3*time.Second || most > size*4/10 {
				t.Errorf("the attempts number 4 came between %v and %v, %d within a second", first, last, most)
			}
		})
	})
}

// R059: a server that accepts, sends one event and closes is asked again after the
// base wait each time, not in a hot loop.
func TestR059AcceptThenClose(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(repeated(50, Event{Data: "x"}, End)...)
		s := play(t, srv, eventsource.Client{})
		for _, gap := range gaps(srv) {
			if gap < 3*time.Second || gap >= 4500*time.Millisecond {
				t.Errorf("a gap of %v, want 3 s and up to half of it as jitter", gap)
			}
		}
		if len(s.events) != 50 {
			t.Errorf("%d events", len(s.events))
		}
	})
}

// R060: the wait stays within its bounds for ever, and a number of attempts can be
// set.
func TestR060WaitStaysWithinBounds(t *testing.T) {
	const failures = 10_000
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		refusing := roundTripperFunc(func(*http.Request) (*http.Response, error) {
			attempts++
			return nil, syscall.ECONNREFUSED
		})
		var w watcher
		client := eventsource.Client{
			HTTPClient: &http.Client{Transport: refusing},
			Policy:     policy.Rules{MaxFruitless: failures}.New,
			Trace:      w.trace(),
		}
		for _, err := range client.Stream(request(t.Context(), t, "http://server.test")).Events() {
			if !errors.Is(err, policy.ErrExhausted) || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("the error is %v", err)
			}
		}
		if attempts != failures+1 {
			t.Errorf("%d attempts, want the first and %d reconnections", attempts, failures)
		}
		for i, wait := range w.waits {
			if wait < 3*time.Second || wait > 45*time.Second {
				t.Fatalf("wait %d is %v", i+1, wait)
			}
			if i > 10 && wait < 30*time.Second {
				t.Fatalf("wait %d is %v, below what it had grown to", i+1, wait)
			}
		}
	})
}

// R061: a healthy connection resets the wait, also if it was silent.
func TestR061HealthyConnectionResets(t *testing.T) {
	for name, healthy := range map[string][]Step{
		"ten minutes":         {Event{Data: "x"}, Wait(10 * time.Minute), Cut},
		"ten silent minutes":  {Open, Wait(10 * time.Minute), Cut},
		"a message":           {Event{Data: "x"}, Cut},
		"only the first half": {Event{Data: "x"}, Wait(time.Hour), Send("data: y"), Reset},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t, append(repeated(5, Refuse), healthy, []Step{Refuse})...)
				play(t, srv, eventsource.Client{Policy: strict})
				if diff := cmp.Diff(seconds(3, 6, 12, 24, 30, 3, 3), gaps(srv)); diff != "" {
					t.Errorf("gaps (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// R062: a connection that dies at once does not reset the wait, whatever it was
// that it brought, if it was no message.
func TestR062DeadConnectionDoesNotReset(t *testing.T) {
	for _, sent := range []string{
		`{"message":"x"}`, // no event, though the content type says so
		"",
		": hello\n\n",
		"id: 1\ndata:\n\n", // a priming event
		"id: 1\n\n",
		"event: ping\n\n",
		"data: unfinished\n",
	} {
		for _, end := range []Step{End, Cut} {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t, repeated(7, Send(sent), Wait(100*time.Millisecond), end)...)
				play(t, srv, eventsource.Client{Policy: strict})
				if diff := cmp.Diff(seconds(3, 6, 12, 24, 30, 30, 30), gaps(srv)); diff != "" {
					t.Errorf("%q, %v: gaps (-want +got):\n%s", sent, end, diff)
				}
			})
		}
	}
}

// R063: a policy can ride out temporary refusals, with growing waits and the ID
// kept. The default is strict and ends at the first.
func TestR063TemporaryRefusals(t *testing.T) {
	for _, code := range []int{429, 502, 503, 504} {
		script := [][]Step{
			{Event{ID: "1", Data: "a"}, Cut}, {Status{Code: code}}, {Status{Code: code}}, {Event{ID: "2", Data: "b"}, End},
		}
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t, script...)
			s := play(t, srv, eventsource.Client{})
			var resp *eventsource.ResponseError
			if !errors.As(s.err, &resp) || resp.StatusCode != code || len(srv.Requests()) != 2 {
				t.Errorf("%d, strict: %d requests and %v", code, len(srv.Requests()), s.err)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t, script...)
			s := play(t, srv, eventsource.Client{Policy: resilient})
			if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" || s.err != nil {
				t.Errorf("%d, resilient: error %v, events (-want +got):\n%s", code, s.err, diff)
			}
			if diff := cmp.Diff(seconds(3, 3, 6, 3), gaps(srv)); diff != "" {
				t.Errorf("%d, resilient: gaps (-want +got):\n%s", code, diff)
			}
			if diff := cmp.Diff([]string{"none", "1", "1", "1", "2"}, sentIDs(srv)); diff != "" {
				t.Errorf("%d, resilient: Last-Event-ID (-want +got):\n%s", code, diff)
			}
		})
	}
}

// R064: Retry-After is waited for, and counts for one wait only.
func TestR064RetryAfter(t *testing.T) {
	const date = "Sat, 01 Jan 2000 00:02:00 GMT"
	for name, c := range map[string]struct {
		header http.Header
		want   time.Duration
	}{
		"seconds":                {http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		"less than the policy's": {http.Header{"Retry-After": {"1"}}, 3 * time.Second},
		"zero":                   {http.Header{"Retry-After": {"0"}}, 3 * time.Second},
		"the longest of several": {http.Header{"Retry-After": {"5", "60", "7"}}, time.Minute},
		"none":                   {nil, 3 * time.Second},
		"not a number":           {http.Header{"Retry-After": {"soon"}}, 3 * time.Second},
		"negative":               {http.Header{"Retry-After": {"-7"}}, 3 * time.Second},
		"a fraction":             {http.Header{"Retry-After": {"7.5"}}, 3 * time.Second},
		// A date is relative to the server's own, here the bubble's start.
		"a date":          {http.Header{"Retry-After": {date}}, 2 * time.Minute},
		"of a fast clock": {http.Header{"Retry-After": {date}, "Date": {"Sat, 01 Jan 2000 00:01:30 GMT"}}, 30 * time.Second},
		"a date gone by":  {http.Header{"Retry-After": {"Fri, 31 Dec 1999 23:00:00 GMT"}}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t,
					[]Step{Status{Code: 503, Header: c.header}},
					[]Step{Event{Data: "a"}, Cut},
					[]Step{Event{Data: "b"}, Cut},
				)
				s := play(t, srv, eventsource.Client{Policy: resilient})
				if diff := cmp.Diff([]time.Duration{c.want, 3 * time.Second, 3 * time.Second}, gaps(srv)); diff != "" {
					t.Errorf("gaps (-want +got):\n%s", diff)
				}
				if len(s.events) != 2 || s.err != nil {
					t.Errorf("%d events and %v", len(s.events), s.err)
				}
			})
		})
	}
}

// R064: it cannot be undercut: not by a policy, nor by asking to reconnect. One so
// long that it does not fit into a Duration is not wrapped into a short one.
func TestR064RetryAfterIsNotUndercut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t,
			[]Step{Status{Code: 503, Header: http.Header{"Retry-After": {"99999999999999999999999"}}}},
			[]Step{Event{Data: "never"}},
		)
		ctx, cancel := context.WithCancelCause(t.Context())
		eager := func() policy.Reconnector {
			return policy.Func(func(policy.Attempt) policy.Decision { return policy.After(0) })
		}
		client := eventsource.Client{HTTPClient: srv.Client(), Policy: eager}
		stream := client.Stream(request(ctx, t, srv.URL))
		for _, d := range []time.Duration{time.Second, time.Hour, 24 * 365 * time.Hour} {
			time.AfterFunc(d, stream.Reconnect)
		}
		time.AfterFunc(200*365*24*time.Hour, func() { cancel(errEnough) })
		for _, err := range stream.Events() {
			if err != errEnough {
				t.Errorf("the error is %v", err)
			}
		}
		if n := len(srv.Requests()); n != 1 {
			t.Errorf("%d requests in 200 years", n)
		}
	})
}

// R065: every failed attempt is seen with its cause and the wait that follows.
func TestR065FailuresAreVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t,
			[]Step{Refuse},
			[]Step{Status{Code: 503}},
			[]Step{Event{Data: "a"}, Reset},
			[]Step{Send("data: a\n\ndata: b"), End},
		)
		s := play(t, srv, eventsource.Client{Policy: resilient})
		want := []string{
			"connect 1", "end 1: failed", "wait 2: 3s",
			"connect 2", "end 2: rejected 503", "wait 3: 6s",
			"connect 3", "open 3: 200", "end 3: dropped 200", "wait 4: 3s",
			"connect 4", "open 4: 200", "end 4: ended 200", "wait 5: 3s",
			"connect 5", "end 5: rejected 204", "done: <nil>",
		}
		if diff := cmp.Diff(want, s.log); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
		var resp *eventsource.ResponseError
		if !errors.As(s.ends[1].Err, &resp) || resp.StatusCode != 503 || s.ends[1].Status != 503 {
			t.Errorf("attempt 2: %v", s.ends[1].Err)
		}
		for i, want := range map[int]error{0: syscall.ECONNREFUSED, 2: syscall.ECONNRESET, 3: eventsource.ErrTruncated} {
			if !errors.Is(s.ends[i].Err, want) {
				t.Errorf("attempt %d: %v is not %v", i+1, s.ends[i].Err, want)
			}
		}
	})
}

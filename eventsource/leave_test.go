package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/memnet"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

func TestG7NothingLeft(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.NothingLeft}}
	// Every state that a stream can be in, with every timer that it can have, and
	// every way to end it from outside.
	limits := scenario.Caller{ConnectTimeout: time.Hour, IdleTimeout: time.Hour}
	limited := scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(2 * time.Hour), After: time.Second}, {After: 24 * time.Hour}}}
	states := []struct {
		name   string
		server []scenario.Answer
		after  time.Duration
	}{
		{"connecting", []scenario.Answer{{Failure: scenario.NeverAnswers}}, time.Minute},
		{"open and silent", []scenario.Answer{answerSilent}, time.Minute},
		{"inside an event", []scenario.Answer{openAnswer(answerStream("data: half"))}, time.Minute},
		{"reading a refusal", []scenario.Answer{openAnswer(answerUnavailable(""))}, time.Second / 2},
		{"reading a body that heeds no context", []scenario.Answer{{End: scenario.Hold, Deaf: true}}, time.Minute},
		{"waiting", []scenario.Answer{answerMessage}, time.Second / 2},
		{"connecting again", []scenario.Answer{answerMessage, {Failure: scenario.NeverAnswers}}, time.Minute},
		{"open again", []scenario.Answer{answerMessage, answerSilent}, time.Minute},
		{"waiting for what the server asked", []scenario.Answer{answerStream("retry: 86400000\n\n"), answerSilent}, time.Hour},
		{"waiting for ever", []scenario.Answer{answerStream("retry: 99999999999999999999\n\n"), answerSilent}, time.Hour},
	}
	p.holdsIn(t, []scenarioCase{
		{
			name: "an adopted response that is not read any more",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerSilent},
				Caller: scenario.Caller{Adopt: scenario.Resume, Actions: []scenario.Action{{Do: scenario.Cancel}}},
			},
			want: []string{"0s done: scenario: cancelled by the caller"},
		},
		{
			name: "a body that is not sent any more",
			scenario: scenario.Scenario{
				Caller: scenario.Caller{Post: true, Payload: scenario.Repeated, Actions: []scenario.Action{{Do: scenario.Cancel}}},
			},
			want: []string{"0s done: scenario: cancelled by the caller"},
		},
		{
			name: "a body that is made and not sent",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{Failure: scenario.Unprepared}},
				Caller: scenario.Caller{Post: true, Payload: scenario.Repeated},
			},
			want: []string{"0s failed", "0s done: scenario: the policy's script has ended"},
		},
	})
	for _, state := range states {
		for _, how := range []string{"cancel", "deadline", "restart and cancel"} {
			t.Run(how+" while "+state.name, func(t *testing.T) {
				s := scenario.Scenario{Server: state.server, Policy: limited, Caller: limits}
				switch how {
				case "cancel":
					s.Caller.Actions = []scenario.Action{{After: state.after, Do: scenario.Cancel}}
				case "restart and cancel":
					s.Caller.Actions = []scenario.Action{{After: state.after, Do: scenario.Restart}, {After: state.after, Do: scenario.Cancel}}
				case "deadline":
					s.Caller.Deadline = state.after
				}
				records, broken := p.run(t, s)
				r := records[0]
				for _, text := range broken {
					t.Error(text)
				}
				early := how == "deadline" && strings.HasPrefix(state.name, "waiting") // refused
				if r.DoneAt != state.after && !early {
					t.Errorf("it ends at %v, not at %v", r.DoneAt, state.after)
				}
				if t.Failed() {
					t.Log(r.Text())
				}
			})
		}
	}
	p.holds(t)
}

// A stream that is never ranged over holds nothing, and an adopted body is still
// the caller's then.
func TestG7NeverRangedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := answers(body(errHold, "data: m\n\n"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := rt.RoundTrip(get(ctx))
		if err != nil {
			t.Fatal(err)
		}
		s := rt.client(eventsource.Client{IdleTimeout: time.Second}).Adopt(resp, get(ctx))
		s.Reconnect()
		time.Sleep(time.Hour)
		if n, err := resp.Body.Read(make([]byte, 9)); n != 9 || err != nil {
			t.Errorf("the adopted body gave %d bytes and %v", n, err)
		}
		if len(rt.requests) != 1 {
			t.Errorf("%d requests", len(rt.requests))
		}
	})
}

// A hastyClock moves on as soon as a timer is set: the timer fires before AfterFunc
// has returned.
type hastyClock struct{ *clock.Fake }

func (c hastyClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := c.Fake.AfterFunc(d, f)
	c.Fake.Advance(d)
	return t
}

// A timer may fire before the goroutine that has set it gets any further, and
// Reconnect may have been called before.
func TestG7TimerThatFiresAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := answers(refuse(errCut), status(204))
		c := rt.client(eventsource.Client{Clock: hastyClock{clock.NewFake(time.Time{})}, ConnectTimeout: -1})
		var s *eventsource.Stream
		c.Trace = traceOf(&eventsource.Trace{End: func(policy.Attempt) { s.Reconnect() }})
		s = c.Stream(get(t.Context()))
		if _, err := collect(s); err != nil || len(rt.requests) != 2 {
			t.Errorf("%d requests, then %v", len(rt.requests), err)
		}
	})
}

// errInterleaved is the cause with which interleave cancels its stream.
var errInterleaved = errors.New("cancelled by another goroutine")

// anyServer answers a request in a way that chance chooses.
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

// Over real sockets, other goroutines advance the clock, call Reconnect and cancel at
// random moments. There are a tenth as many runs as of a property.
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
		Policy: policy.Constructor(func() policy.Reconnector {
			rng := rand.New(rand.NewPCG(waits, 0))
			return policy.Func(func(policy.Attempt) policy.Decision {
				return policy.After(time.Duration(rng.IntN(1000)) * time.Millisecond).Within(time.Minute)
			})
		}),
		Trace: traceOf(&eventsource.Trace{Done: func(err error) { dones = append(dones, err) }}),
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
					s.LastEventID()
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

// Cancelling breaks off whatever the stream is blocked in, at once, and the server sees
// the client leave.
func TestCancellingBreaksOffABlockedRead(t *testing.T) {
	for name, steps := range map[string][]Step{
		"before the header": {Stall},
		"before an event":   {Open, Stall},
		"after an event":    {Event{Data: "a"}, Stall},
		"inside an event":   {Send("data: a\n"), Stall},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(steps)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				from := time.Now()
				_, err := collect((&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(ctx, t, srv.URL)))
				if took := time.Since(from); took != time.Second || err != context.Canceled {
					t.Errorf("it ended after %v with %v", took, err)
				}
				synctest.Wait()
				if r := srv.Requests()[0]; !r.ClientLeft || r.Ended.Sub(r.Arrived) != time.Second {
					t.Errorf("the server saw the client leave: %v, after %v", r.ClientLeft, r.Ended.Sub(r.Arrived))
				}
			})
		})
	}
}

// A body whose Close reads the rest, as some transports do to keep a connection, does
// not hold up a caller who leaves.
func TestLeavingABodyThatDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, []Step{Event{Data: "a"}, Stall})
		client := &http.Client{Transport: wrapBodies(srv.Client().Transport, func(body io.ReadCloser) io.ReadCloser {
			return &spiedBody{ReadCloser: body, close: func() error {
				io.Copy(io.Discard, body)
				return body.Close()
			}}
		})}
		for range (&eventsource.Client{HTTPClient: client}).Stream(request(t.Context(), t, srv.URL)).Events() {
			break
		}
		synctest.Wait()
		if !srv.Requests()[0].ClientLeft {
			t.Error("the client is still there")
		}
	})
}

// HTML §9.2.2, close(): nothing happens after it, wherever in the stream it is called.
func TestCloseIsFinal(t *testing.T) {
	for _, when := range []string{"connect", "open", "comment", "retry", "event", "wait"} {
		left := errors.New("left " + when)
		server := newWireServer(t, func(int, wireRequest) wireAnswer {
			return eventStream(":\nretry: 1\nid: 1\ndata: x\n\ndata: y\n\n")
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		leave := func(at string) {
			if at == when {
				cancel(left)
			}
		}
		client := eventsource.Client{
			HTTPClient: &http.Client{Transport: server}, Clock: server.clock,
			Trace: traceOf(&eventsource.Trace{
				Connect: func(eventsource.ConnectInfo) { leave("connect") },
				Open:    func(eventsource.OpenInfo) { leave("open") },
				Comment: func(string) { leave("comment") },
				Retry:   func(time.Duration) { leave("retry") },
				Wait: func(w eventsource.WaitInfo) {
					leave("wait")
					server.clock.Advance(w.Waited)
				},
			}),
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin1+"/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		events := 0
		var end error
		stream := client.Stream(req)
		for _, err := range stream.Events() {
			if err != nil {
				end = err
				break
			}
			events++
			leave("event")
		}
		server.close()
		want := map[string]int{"event": 1, "wait": 2}[when]
		// Who resumes must be sent what was not delivered.
		if id := stream.LastEventID(); (id != "") != (want > 0) {
			t.Errorf("%s: the last event ID is %q after %d events", when, id, events)
		}
		if end != left || events != want || len(server.log()) > 1 {
			t.Errorf("%s: %d events, %d requests, %v; want %d events, and at most one request", when, events, len(server.log()), end, want)
		}
		cancel(nil)
	}
}

// Once a hook has cancelled the context, no other is called for what the same read has
// brought: what follows is Done.
func TestNoHookAfterCancelling(t *testing.T) {
	for cancelling, want := range map[string][]string{
		"comment 1": {"comment 1", "done"},
		"retry 2ms": {"comment 1", "retry 2ms", "done"},
		"comment 3": {"comment 1", "retry 2ms", "comment 3", "done"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var log []string
		say := func(what string) {
			log = append(log, what)
			if what == cancelling {
				cancel()
			}
		}
		client := answers(body(nil, ": 1\nretry: 2\n: 3\n: 4\nretry: 5\n: 6\ndata: m\n\n")).client(eventsource.Client{
			Trace: traceOf(&eventsource.Trace{
				Comment: func(text string) { say("comment " + text) },
				Retry:   func(d time.Duration) { say("retry " + d.String()) },
				End:     func(policy.Attempt) { say("end") },
				Done:    func(error) { say("done") },
			}),
		})
		if data, err := collect(client.Stream(get(ctx))); data != nil || err != context.Canceled {
			t.Errorf("%s: the loop is given %q and %v", cancelling, data, err)
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cancelling, diff)
		}
		cancel()
	}
}

// The body of an adopted response may be closed by the caller, too, so that it is closed
// if the loop is never entered. If that is so, the connection is let go.
func TestAdoptedBodyIsClosedTwice(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		for _, enters := range []bool{true, false} {
			srv := serve([]Step{Event{Data: "a"}, Event{Data: "b"}, Stall})
			func() {
				req := request(t.Context(), t, srv.URL)
				resp, err := srv.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				s := (&eventsource.Client{HTTPClient: srv.Client()}).Adopt(resp, req)
				if !enters {
					return
				}
				for event, err := range s.Events() {
					if err != nil {
						t.Error(err)
					}
					if event.Data == "b" {
						break
					}
				}
			}()
			synctest.Wait()
			if requests := srv.Requests(); len(requests) != 1 || !requests[0].ClientLeft {
				t.Errorf("entered: %v; %d requests, the server saw the client leave: %v", enters, len(requests), requests[0].ClientLeft)
			}
		}
	})
}

// lingering leaves the loop at the event [DONE], and returns how long that took.
func lingering(t *testing.T, client *eventsource.Client, url string) time.Duration {
	t.Helper()
	var from time.Time
	for event, err := range client.Stream(request(t.Context(), t, url)).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if from = time.Now(); event.Data == "[DONE]" {
			break
		}
	}
	return time.Since(from)
}

// A response that ends soon after the event at which the loop is left keeps its connection
// if the client lingers: over TLS too, where a new one costs most.
func TestLingerKeepsTheConnection(t *testing.T) {
	const streams, late = 100, 50 * time.Millisecond
	for linger, most := range map[time.Duration]int{0: streams, late - 1: streams, time.Second: 1} {
		t.Run(linger.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var connections atomic.Int32
				l := memnet.Listen()
				srv := &httptest.Server{Listener: l, Config: &http.Server{
					Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", "text/event-stream")
						io.WriteString(w, "data: token\n\ndata: [DONE]\n\n")
						http.NewResponseController(w).Flush()
						time.Sleep(late)
					}),
					ConnState: func(_ net.Conn, state http.ConnState) {
						if state == http.StateNew {
							connections.Add(1)
						}
					},
				}}
				srv.StartTLS()
				defer srv.Close()
				transport := srv.Client().Transport.(*http.Transport).Clone()
				transport.DialContext = l.DialContext
				defer transport.CloseIdleConnections()
				bodies := &bodyCounter{base: transport}
				client := &eventsource.Client{HTTPClient: &http.Client{Transport: bodies}, Linger: linger}
				for range streams {
					if took := lingering(t, client, "https://example.com/"); took != min(linger, late) {
						t.Fatalf("leaving took %v", took)
					}
				}
				if n := int(connections.Load()); n != most {
					t.Errorf("%d streams made %d connections, want %d", streams, n, most)
				}
				if open := bodies.open.Load(); open != 0 {
					t.Errorf("%d bodies are open", open)
				}
			})
		})
	}
}

// What does not end is not read for longer than Linger, nor beyond a size, nor when the
// stream has ended in another way.
func TestLingerIsBounded(t *testing.T) {
	const linger = 3 * time.Second
	done := Event{Data: "[DONE]"}
	endless := Do(func(c *Conn) {
		for piece := Send(strings.Repeat(":", 64<<10)); c.Play(piece); {
		}
	})
	dripping := Do(func(c *Conn) {
		for c.Play(Wait(time.Second), Send(":\n")) {
		}
	})
	for name, c := range map[string]struct {
		rest []Step
		want time.Duration
	}{
		"silence":    {[]Step{Stall}, linger},
		"a drip":     {[]Step{dripping}, linger},
		"no end":     {[]Step{endless}, 0},
		"the end":    {[]Step{Wait(time.Second), End}, time.Second},
		"a break":    {[]Step{Wait(time.Second), Cut}, time.Second},
		"the end, 0": {[]Step{End}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(append([]Step{done}, c.rest...))
				bodies := &bodyCounter{base: srv.Client().Transport}
				client := &eventsource.Client{HTTPClient: &http.Client{Transport: bodies}, Linger: linger}
				if took := lingering(t, client, srv.URL); took != c.want {
					t.Errorf("leaving took %v, want %v", took, c.want)
				}
				synctest.Wait()
				if open := bodies.open.Load(); open != 0 {
					t.Error("the body is open")
				}
				if requests := srv.Requests(); len(requests) != 1 || requests[0].Ended.IsZero() {
					t.Errorf("%d requests, of which the first ended at %v", len(requests), requests[0].Ended)
				}
			})
		})
	}
}

// Whatever ends a stream ends its lingering at once, and a loop that ends by panic or
// through the context does not linger at all.
func TestLingerEndsWithTheStream(t *testing.T) {
	for _, tt := range []struct {
		name   string
		leave  bool // by break; by panic if it is false
		aside  func(cancel func(), s *eventsource.Stream)
		within func(cancel func()) // the loop body
		want   time.Duration
	}{
		{"cancelled while it lingers", true, func(cancel func(), _ *eventsource.Stream) { cancel() }, nil, time.Second},
		{"restarted while it lingers", true, func(_ func(), s *eventsource.Stream) { s.Reconnect() }, nil, time.Second},
		{"cancelled before", true, nil, func(cancel func()) { cancel() }, 0},
		{"panic", false, nil, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve([]Step{Event{Data: "a"}, Stall})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var done []error
				client := &eventsource.Client{
					HTTPClient: srv.Client(), Linger: time.Hour, IdleTimeout: time.Minute,
					Trace: traceOf(&eventsource.Trace{Done: func(err error) { done = append(done, err) }}),
				}
				s := client.Stream(request(ctx, t, srv.URL))
				if tt.aside != nil {
					time.AfterFunc(time.Second, func() { tt.aside(cancel, s) })
				}
				from := time.Now()
				func() {
					defer func() { recover() }()
					for range s.Events() {
						if tt.within != nil {
							tt.within(cancel)
						}
						if !tt.leave {
							panic("leaving")
						}
						break
					}
				}()
				if took := time.Since(from); took != tt.want {
					t.Errorf("leaving took %v, want %v", took, tt.want)
				}
				if len(done) != 1 || done[0] != nil {
					t.Errorf("Done was told %v", done)
				}
				synctest.Wait()
				if requests := srv.Requests(); len(requests) != 1 || !requests[0].ClientLeft {
					t.Errorf("%d requests; the server saw the client leave: %v", len(requests), requests[0].ClientLeft)
				}
			})
		})
	}
}

// TestG7NoBufferLeft holds that a stream that is over holds nothing of what it has
// read, however it ended.
func TestG7NoBufferLeft(t *testing.T) {
	const size = 4 << 20
	event := "data: " + strings.Repeat("x", size) + "\n\n"
	for name, leave := range map[string]bool{"left": true, "cancelled": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			transport := roundTripperFunc(func(*http.Request) (*http.Response, error) {
				return response(200, "text/event-stream", io.NopCloser(strings.NewReader(event+event))), nil
			})
			s := (&eventsource.Client{HTTPClient: &http.Client{Transport: transport}}).Stream(get(ctx))
			before := liveHeap()
			for range s.Events() {
				if leave {
					break
				}
				cancel()
			}
			if held := int(liveHeap()) - int(before); held > size/2 {
				t.Errorf("it holds %d KiB", held>>10)
			}
			runtime.KeepAlive(s)
		})
	}
}

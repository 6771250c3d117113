package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// R068: leaving the loop and cancelling are no failures: no attempt is reported to
// have failed, and the end is nil, or the context's own cause.
func TestR068OwnLeavingIsNoFailure(t *testing.T) {
	errMine := errors.New("the user has closed the window")
	for name, c := range map[string]struct {
		leave func(cancel context.CancelCauseFunc) (again bool)
		want  error
	}{
		"break":         {func(context.CancelCauseFunc) bool { return false }, nil},
		"cancel":        {func(cancel context.CancelCauseFunc) bool { cancel(nil); return true }, context.Canceled},
		"with a cause":  {func(cancel context.CancelCauseFunc) bool { cancel(errMine); return true }, errMine},
		"cancel, break": {func(cancel context.CancelCauseFunc) bool { cancel(nil); return false }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve([]Step{Event{Data: "a"}, Event{Data: "b"}, Stall})
				var w watcher
				client := eventsource.Client{HTTPClient: srv.Client(), Trace: w.trace()}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var end error
				events := 0
				for _, err := range client.Stream(request(ctx, t, srv.URL)).Events() {
					if err != nil {
						end = err
						continue
					}
					events++
					if !c.leave(cancel) {
						break
					}
				}
				if end != c.want || events != 1 {
					t.Errorf("the loop got %d events and %v", events, end)
				}
				want := []string{"connect 1", "open 1: 200", fmt.Sprintf("done: %v", c.want)}
				if diff := cmp.Diff(want, w.log); diff != "" {
					t.Errorf("trace (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// R078: closing during the wait is final.
func TestR078CloseDuringTheWait(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Event{Data: "a"}, Cut}, []Step{Event{Data: "not asked for"}, End})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var w watcher
		client := eventsource.Client{HTTPClient: srv.Client(), Policy: strict, Trace: w.trace()}
		inWait := client.Trace.Wait
		client.Trace.Wait = func(i eventsource.WaitInfo) {
			inWait(i)
			time.AfterFunc(time.Second, cancel)
		}
		from := time.Now()
		data, err := collect(client.Stream(request(ctx, t, srv.URL)))
		if took := time.Since(from); took != time.Second || err != context.Canceled {
			t.Errorf("it ended after %v with %v", took, err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a"}, data); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if n := len(srv.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// sockets runs f for each kind of network over the loopback interface.
func sockets(t *testing.T, f func(t *testing.T, serve func(...[]Step) *Server)) {
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			f(t, func(script ...[]Step) *Server {
				return start(t, &Server{Loopback: true, HTTP2: http2, Script: script})
			})
		})
	}
}

// left waits until the server has seen the client of its n-th request leave.
func left(t *testing.T, srv *Server, n int) time.Duration {
	t.Helper()
	from := time.Now()
	err := srv.Await(t.Context(), func(rs []Request) bool { return len(rs) >= n && !rs[n-1].Ended.IsZero() })
	if err != nil {
		t.Fatal(err)
	}
	if !srv.Requests()[n-1].ClientLeft {
		t.Error("the response did not end because the client left")
	}
	return time.Since(from)
}

// R079, R080: cancelling breaks off a blocked read at once, leaving the loop
// returns at once, and the server sees the client leave, over sockets. The bounds
// are many times what a user should see, for a busy machine.
//
// Requirements: R079, R080
func TestR079BlockedReadIsBrokenOff(t *testing.T) {
	const prompt = 2 * time.Second
	sockets(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Event{Data: "a"}, Stall}, []Step{Event{Data: "a"}, Stall}, []Step{Open, Stall}, []Step{Stall})

		// Left by break, with the read not begun again.
		var from time.Time
		for range (&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(t.Context(), t, srv.URL)).Events() {
			from = time.Now()
			break
		}
		if took := time.Since(from); took > prompt {
			t.Errorf("leaving took %v", took)
		}
		if took := left(t, srv, 1); took > 10*time.Second {
			t.Errorf("the server saw it after %v", took)
		}

		// Cancelled while blocked: after an event, before the first, before the header.
		for n, blocked := range []string{"after an event", "before an event", "before the header"} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				_, err := collect((&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(ctx, t, srv.URL)))
				ended <- err
			}()
			if err := srv.Await(t.Context(), func(rs []Request) bool { return len(rs) == n+2 }); err != nil {
				t.Fatal(err)
			}
			from := time.Now()
			cancel()
			if err := <-ended; err != context.Canceled {
				t.Errorf("%s: the error is %v", blocked, err)
			}
			if took := time.Since(from); took > prompt {
				t.Errorf("%s: it took %v", blocked, took)
			}
			if took := left(t, srv, n+2); took > 10*time.Second {
				t.Errorf("%s: the server saw it after %v", blocked, took)
			}
		}
	})
}

// R079: a body whose Close reads the rest, as some transports do to keep a
// connection, does not hold up who leaves.
func TestR079BodyThatDrains(t *testing.T) {
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

// R081: a stream may be closed from anywhere: its loop, its hooks, its Prepare, its
// policy, its round tripper, and after it is over. There is no deadlock and no
// further request.
func TestR081CloseFromAnywhere(t *testing.T) {
	type place func(c *eventsource.Client, close func())
	for name, c := range map[string]struct {
		place    place
		requests int
	}{
		"Connect": {func(c *eventsource.Client, close func()) { c.Trace.Connect = func(eventsource.ConnectInfo) { close() } }, 0},
		"Open":    {func(c *eventsource.Client, close func()) { c.Trace.Open = func(eventsource.OpenInfo) { close() } }, 1},
		"Comment": {func(c *eventsource.Client, close func()) { c.Trace.Comment = func(string) { close() } }, 1},
		"Retry":   {func(c *eventsource.Client, close func()) { c.Trace.Retry = func(time.Duration) { close() } }, 1},
		"End":     {func(c *eventsource.Client, close func()) { c.Trace.End = func(policy.Attempt) { close() } }, 1},
		"Wait":    {func(c *eventsource.Client, close func()) { c.Trace.Wait = func(eventsource.WaitInfo) { close() } }, 1},
		"Done":    {func(c *eventsource.Client, close func()) { c.Trace.Done = func(error) { close() } }, 3},
		"Prepare": {func(c *eventsource.Client, close func()) {
			c.Prepare = func(*http.Request) error { close(); return nil }
		}, 0},
		"policy": {func(c *eventsource.Client, close func()) {
			c.Policy = func() policy.Reconnector {
				return policy.Func(func(policy.Attempt) policy.Decision { close(); return policy.After(0) })
			}
		}, 1},
		"round tripper": {func(c *eventsource.Client, close func()) {
			base := c.HTTPClient.Transport
			c.HTTPClient = &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				close()
				return base.RoundTrip(req)
			})}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				script := []Step{Comment("c"), Retry(time.Second), Event{Data: "a"}, End}
				srv := serve(script, script)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				client := &eventsource.Client{HTTPClient: srv.Client(), Trace: &eventsource.Trace{}}
				c.place(client, cancel)
				_, err := collect(client.Stream(request(ctx, t, srv.URL)))
				if want := context.Canceled; name != "Done" && err != want || name == "Done" && err != nil {
					t.Errorf("the error is %v", err)
				}
				cancel() // after it is over: nothing
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := len(srv.Requests()); n != c.requests {
					t.Errorf("%d requests, want %d", n, c.requests)
				}
			})
		})
	}
}

// R082: closing does not wait for a consumer that has stopped reading: with what
// was sent but not taken, neither an unread loop nor one that is pulled hangs.
func TestR082CloseWithUnreadEvents(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		burst := Send(strings.Repeat("data: x\n\n", 10))
		srv := serve([]Step{burst, Stall}, []Step{burst, Stall})
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client := eventsource.Client{HTTPClient: srv.Client()}
			next, stop := iter.Pull2(client.Stream(request(ctx, t, srv.URL)).Events())
			if ev, err, ok := next(); !ok || err != nil || ev.Data != "x" {
				t.Fatal(ev, err, ok)
			}
			synctest.Wait() // the others have arrived
			cancel()
			synctest.Wait()
			drained := 0
			for {
				_, err, ok := next()
				if !ok {
					break
				}
				if drained++; err != context.Canceled {
					t.Errorf("drained an event, or %v", err)
				}
			}
			if drained != 1 {
				t.Errorf("drained %d pairs, want the error alone", drained)
			}
			stop()
		}
		synctest.Wait()
		for _, r := range srv.Requests() {
			if !r.ClientLeft {
				t.Errorf("request %d: the client is still there", r.Number)
			}
		}
		if n := len(srv.Requests()); n != 2 {
			t.Errorf("%d requests", n)
		}
	})
}

// R082: a consumer that takes none at all and stops leaves nothing either.
func TestR082CloseWithNothingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t)
		next, stop := iter.Pull2((&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(t.Context(), t, srv.URL)).Events())
		stop()
		if _, _, ok := next(); ok {
			t.Error("there was something after the stop")
		}
		if n := len(srv.Requests()); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// R083: refused responses do not leak connections: with a small body the
// connection is used again, and every body is closed.
func TestR083RefusalsDoNotLeak(t *testing.T) {
	refusal := Status{Code: http.StatusServiceUnavailable, Body: strings.Repeat("x", 1<<10)}
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(repeated(100, refusal)...)
		bodies := &bodyCounter{base: srv.Client().Transport}
		s := play(t, srv, eventsource.Client{HTTPClient: &http.Client{Transport: bodies}, Policy: policy.Resilient})
		if n := len(s.ends); n != 101 || s.err != nil {
			t.Errorf("%d attempts and %v", n, s.err)
		}
		if n, all := bodies.open.Load(), bodies.opened.Load(); n != 0 || all != 101 {
			t.Errorf("%d of %d bodies are open", n, all)
		}
		for _, r := range srv.Requests() {
			if r.Connection != 1 {
				t.Fatalf("request %d came on connection %d", r.Number, r.Connection)
			}
		}
	})
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		// A body too large to read to its end costs the connection, and no more.
		huge := Status{Code: http.StatusServiceUnavailable, Body: strings.Repeat("x", 100<<10)}
		srv := serve(repeated(20, huge)...)
		bodies := &bodyCounter{base: srv.Client().Transport}
		play(t, srv, eventsource.Client{HTTPClient: &http.Client{Transport: bodies}, Policy: policy.Resilient})
		if n := bodies.open.Load(); n != 0 {
			t.Errorf("%d bodies are open", n)
		}
		synctest.Wait()
		for _, r := range srv.Requests()[:20] {
			if r.Ended.IsZero() {
				t.Errorf("the server is still sending the response to request %d", r.Number)
			}
		}
	})
}

// R083: an adopted response is let go as well, whatever becomes of the stream, once
// it is ranged over; before that it is the caller's.
func TestR083AdoptedBodyIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		cancelled, ranged bool
		open              int
	}{
		"ranged":           {ranged: true},
		"cancelled before": {ranged: true, cancelled: true},
		"not ranged":       {open: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t, []Step{Event{Data: "a"}, Stall})
				bodies := &bodyCounter{base: srv.Client().Transport}
				resp, err := (&http.Client{Transport: bodies}).Get(srv.URL)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancelled {
					cancel()
				}
				stream := (&eventsource.Client{HTTPClient: srv.Client()}).Adopt(resp, request(ctx, t, srv.URL))
				if c.ranged {
					for range stream.Events() {
						break
					}
				}
				if n := bodies.open.Load(); int(n) != c.open {
					t.Errorf("%d bodies are open, want %d", n, c.open)
				}
			})
		})
	}
}

// settled waits until the number of goroutines is down to want, and returns it.
// Those of net/http and of the server end a little after their connection.
func settled(want int) int {
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > want && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	return runtime.NumGoroutine()
}

// R084: no goroutine is left behind: after a thousand streams that were opened and
// left, and after one that has lost a thousand connections. Over sockets.
func TestR084NoGoroutineIsLeft(t *testing.T) {
	const times = 1000
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name+"/left", func(t *testing.T) {
			before := runtime.NumGoroutine()
			srv := start(t, &Server{Loopback: true, HTTP2: http2, Rest: []Step{Event{Data: "a"}, Stall}})
			client := eventsource.Client{HTTPClient: srv.Client(), IdleTimeout: time.Hour}
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range times / 4 {
						ctx, cancel := context.WithCancel(t.Context())
						for _, err := range client.Stream(request(ctx, t, srv.URL)).Events() {
							if err == nil {
								cancel()
							}
						}
						cancel()
					}
				})
			}
			all.Wait()
			if n := len(srv.Requests()); n != times {
				t.Errorf("%d requests", n)
			}
			srv.Close()
			if n := settled(before); n > before {
				t.Errorf("%d goroutines, %d before", n, before)
			}
		})
		t.Run(name+"/dropped", func(t *testing.T) {
			before := runtime.NumGoroutine()
			srv := start(t, &Server{Loopback: true, HTTP2: http2, Script: repeated(times, Event{Data: "a"}, Reset)})
			fake := clock.NewFake(time.Time{})
			client := eventsource.Client{
				HTTPClient: srv.Client(), Clock: fake, IdleTimeout: time.Hour,
				Trace: &eventsource.Trace{Wait: func(i eventsource.WaitInfo) {
					if i.Number == times/2 && runtime.NumGoroutine() > before+20 {
						t.Errorf("%d goroutines in the middle, %d before", runtime.NumGoroutine(), before)
					}
					fake.Advance(i.Waited)
				}},
			}
			// The reset may overtake the event, so their number is not told.
			if _, err := collect(client.Stream(request(t.Context(), t, srv.URL))); err != nil {
				t.Error(err)
			}
			if _, pending := fake.Next(); pending {
				t.Error("a timer is left")
			}
			srv.Close()
			if n := settled(before); n > before {
				t.Errorf("%d goroutines, %d before", n, before)
			}
		})
	}
}

// R085: closing at a random moment of a burst does not panic, nor race.
func TestR085CloseDuringABurst(t *testing.T) {
	const runs = 1000
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	burst := Send(strings.Repeat("id: 1\ndata: x\n\n", 200))
	for _, http2 := range []bool{false, true} {
		srv := start(t, &Server{Loopback: true, HTTP2: http2, Rest: []Step{burst, burst, Retry(0), End}})
		for range runs / 2 {
			ctx, cancel := context.WithCancel(t.Context())
			client := eventsource.Client{HTTPClient: srv.Client(), Policy: policy.Rules{Floor: -1}.New, IdleTimeout: time.Hour}
			stream := client.Stream(request(ctx, t, srv.URL))
			after, other, leave := random.IntN(500), random.IntN(500), random.IntN(2) == 0
			var others sync.WaitGroup
			n := 0
			for _, err := range stream.Events() {
				if err != nil {
					if err != context.Canceled {
						t.Errorf("seed %d: %v", seed, err)
					}
					break
				}
				if n == other {
					others.Go(stream.Reconnect)
					others.Go(func() { stream.LastEventID() })
				}
				if n == after && leave {
					break
				}
				if n == after {
					others.Go(cancel)
				}
				n++
			}
			cancel()
			others.Wait()
		}
	}
}

// R086: a transport that reports a drop twice, as an error of the read and one of
// the close, makes one new request.
func TestR086OneDropOneReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, []Step{Event{ID: "1", Data: "a"}, Reset}, []Step{Event{ID: "2", Data: "b"}, End})
		client := &http.Client{Transport: wrapBodies(srv.Client().Transport, func(body io.ReadCloser) io.ReadCloser {
			return &spiedBody{ReadCloser: body, close: func() error {
				body.Close()
				return errors.New("close: the connection is broken")
			}}
		})}
		s := play(t, srv, eventsource.Client{HTTPClient: client, Policy: strict})
		if diff := cmp.Diff([]string{"none", "1", "2"}, sentIDs(srv)); diff != "" {
			t.Errorf("Last-Event-ID of the requests (-want +got):\n%s", diff)
		}
		want := []string{
			"connect 1", "open 1: 200", "end 1: dropped 200", "wait 2: 3s",
			"connect 2", "open 2: 200", "end 2: ended 200", "wait 3: 3s",
			"connect 3", "end 3: rejected 204", "done: <nil>",
		}
		if diff := cmp.Diff(want, s.log); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
		for _, r := range srv.Requests() {
			if r.InFlight != 1 {
				t.Errorf("%d requests at once", r.InFlight)
			}
		}
	})
}

// R087: three drops are three reports, in step with them.
func TestR087OneReportPerDrop(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Event{Data: "1"}, Reset}, []Step{Event{Data: "2"}, Reset}, []Step{Event{Data: "3"}, Reset})
		var log []string
		client := eventsource.Client{HTTPClient: srv.Client(), Trace: &eventsource.Trace{
			End: func(a policy.Attempt) { log = append(log, fmt.Sprint(a.Number, " ", a.Kind)) },
		}}
		for ev, err := range client.Stream(request(t.Context(), t, srv.URL)).Events() {
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, "event "+ev.Data)
		}
		want := []string{"event 1", "1 dropped", "event 2", "2 dropped", "event 3", "3 dropped", "4 rejected"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// R094: a loop body that fails is no network failure: it ends the stream, as
// leaving it does, and there is no new connection. A panic goes through.
func TestR094FailingHandler(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		five := []Step{numbered(1), numbered(2), numbered(3), numbered(4), numbered(5), Stall}
		srv := serve(five, five)
		errHandler := errors.New("the handler has failed")
		var w watcher
		client := eventsource.Client{HTTPClient: srv.Client(), Trace: w.trace()}
		handle := func(fail func() error) (handled []string, err error) {
			for ev, err := range client.Stream(request(t.Context(), t, srv.URL)).Events() {
				if err != nil {
					return handled, err
				}
				handled = append(handled, ev.Data)
				if ev.Data == "2" {
					if err := fail(); err != nil {
						return handled, err
					}
				}
			}
			return handled, nil
		}

		handled, err := handle(func() error { return errHandler })
		if err != errHandler || !slices.Equal(handled, []string{"1", "2"}) {
			t.Errorf("handled %q, error %v", handled, err)
		}
		func() {
			defer func() {
				if r := recover(); r != errHandler {
					t.Errorf("recovered %v", r)
				}
			}()
			handle(func() error { panic(errHandler) })
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		requests := srv.Requests()
		if len(requests) != 2 {
			t.Fatalf("%d requests, want one for each stream", len(requests))
		}
		for _, r := range requests {
			if !r.ClientLeft {
				t.Errorf("request %d: the client is still there", r.Number)
			}
		}
		want := []string{"connect 1", "open 1: 200", "done: <nil>"}
		if diff := cmp.Diff(append(want, want...), w.log); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
	})
}

package mcptransport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/examples/mcp/mcptransport"
	"github.com/reprise-sse/reprise/policy"
)

// checkStandby checks the times between the connections of the standby stream.
func (s *server) checkStandby(t *testing.T, wantGaps ...time.Duration) {
	t.Helper()
	if diff := cmp.Diff(wantGaps, gaps(s.of("standby"))); diff != "" {
		t.Errorf("waits of the standby stream (-want +got):\n%s", diff)
	}
}

// endedOnce checks that the one end of a standby stream was told, and what it was.
func (c *client) endedOnce(want error) {
	c.t.Helper()
	synctest.Wait()
	ends := c.standbyEnds()
	if len(ends) != 1 || !errors.Is(ends[0], want) {
		c.t.Errorf("ends of the standby stream: %v; want one, which is %v", ends, want)
	}
}

// One GET a second for the life of the process: each connection counted as success.
func TestIdleClosedStandbySlowsDownAndStops(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Wait(50 * ms), End}}
	play(t, s, func(c *client) {
		time.Sleep(60 * second)
		growing := []time.Duration{1000 * ms, 1500 * ms, 2250 * ms, 3375 * ms, 5062500 * time.Microsecond}
		s.checkStandby(t, growing...)
		c.endedOnce(policy.ErrExhausted)

		time.Sleep(60 * second)
		if n := len(s.of("standby")); n != 6 {
			t.Errorf("%d GETs a minute later, want the same 6", n)
		}
		c.ping() // works, and shows that the server is alive
		time.Sleep(second)
		if n := len(s.of("standby")); n != 7 {
			t.Errorf("%d GETs after a message was accepted, want 7", n)
		}
	})
}

func TestALongLivedStandbyGoesOnForEver(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Wait(15 * second), End}}
	play(t, s, func(c *client) {
		time.Sleep(10 * time.Minute)
		for i, gap := range gaps(s.of("standby")) {
			if gap != second {
				t.Fatalf("wait %d is %v, want 1 s", i, gap)
			}
		}
		if n := len(s.of("standby")); n != 38 {
			t.Errorf("%d GETs in 10 minutes of 16 s each, want 38", n)
		}
		if ends := c.standbyEnds(); len(ends) != 0 {
			t.Errorf("the stream was given up: %v", ends)
		}
	})
}

// A keep-alive event without an ID was no progress, and exhaustion ended the
// session: 427 reconnections per server in 36 h.
func TestKeepAlivesWithoutID(t *testing.T) {
	ping := Send("event: ping\ndata:\n\n")
	t.Run("closed each minute", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{ping, Wait(60 * second), End}}
		s.calls = [][]Step{{s.R("")}}
		play(t, s, func(c *client) {
			for range 360 {
				c.call().done(t)
				time.Sleep(10 * second)
			}
			if ends := c.standbyEnds(); len(ends) != 0 {
				t.Errorf("the stream was given up: %v", ends)
			}
			if n := len(s.of("standby")); n != 60 {
				t.Errorf("%d GETs in an hour of 61 s each, want 60", n)
			}
		})
	})
	t.Run("closed at once", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{ping, Wait(100 * ms), End}}
		s.calls = [][]Step{{s.R("")}}
		play(t, s, func(c *client) {
			for range 60 {
				c.call().done(t)
				time.Sleep(10 * second)
			}
			time.Sleep(60 * second)
			n := len(s.of("standby"))
			time.Sleep(time.Hour)
			if len(s.of("standby")) != n {
				t.Errorf("%d GETs, then %d without any message; want it to have stopped", n, len(s.of("standby")))
			}
			for _, err := range c.standbyEnds() {
				if !errors.Is(err, policy.ErrExhausted) {
					t.Errorf("the stream ended with %v, want ErrExhausted", err)
				}
			}
		})
	})
}

// A standby stream without IDs was not opened again.
func TestStandbyWithoutIDs(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Wait(30 * second), Cut}, {Open, Stall}}
	play(t, s, func(c *client) {
		time.Sleep(60 * second)
		s.checkStandby(t, second)
		if diff := cmp.Diff([]string{"–", "–"}, ids(s.of("standby"))); diff != "" {
			t.Error(diff)
		}
	})
}

// A server without a standby stream broke the session, or was asked again and again.
func TestStandbyNotOffered(t *testing.T) {
	for name, answer := range map[string]Status{
		"405": {Code: 405}, "400": {Code: 400}, "404": {Code: 404}, "406": {Code: 406}, "410": {Code: 410}, "501": {Code: 501}, "204": {Code: 204},
		"200 JSON": {Header: http.Header{"Content-Type": {"application/json"}}, Body: `{}`},
		"200 text": {Header: http.Header{"Content-Type": {"text/plain"}}, Body: "see docs"},
		"200":      {},
	} {
		for _, session := range []string{"", "-"} {
			t.Run(name+" session "+session, func(t *testing.T) {
				s := &server{session: session}
				s.standby = [][]Step{{answer}}
				play(t, s, func(c *client) {
					time.Sleep(60 * second)
					c.endedOnce(mcptransport.ErrNotOffered)
					c.ping()
					time.Sleep(60 * second)
					if n := len(s.of("standby")); n != 1 {
						t.Errorf("%d GETs, want 1", n)
					}
				})
			})
		}
	}
}

// Who may not have the stream should know; who is told to come back later may.
func TestRefusalsThatAreNoAbsence(t *testing.T) {
	for _, status := range []int{401, 403} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := &server{}
			s.standby = [][]Step{{Status{Code: status}}}
			play(t, s, func(c *client) {
				time.Sleep(60 * second)
				var refusal *eventsource.ResponseError
				if ends := c.standbyEnds(); len(ends) != 1 || errors.Is(ends[0], mcptransport.ErrNotOffered) || !errors.As(ends[0], &refusal) || refusal.StatusCode != status {
					t.Errorf("ends of the standby stream: %v; want one with the status", ends)
				}
				c.ping()
				time.Sleep(60 * second)
				if n := len(s.of("standby")); n != 1 {
					t.Errorf("%d GETs, want 1", n)
				}
			})
		})
	}
	t.Run("503", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Status{Code: 503}}}
		play(t, s, func(c *client) {
			time.Sleep(60 * second)
			c.endedOnce(policy.ErrExhausted)
			if errors.Is(c.standbyEnds()[0], mcptransport.ErrNotOffered) {
				t.Errorf("the stream ended with %v", c.standbyEnds()[0])
			}
			n := len(s.of("standby"))
			c.ping()
			synctest.Wait()
			if len(s.of("standby")) != n+1 {
				t.Error("the stream was not opened again")
			}
		})
	})
}

// A server may negotiate a version that has no standby stream.
func TestNoStandbyInTheNewEra(t *testing.T) {
	s := &server{version: newVersion, session: "-"}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		c := dial(t, s)
		c.handshake()
		time.Sleep(60 * second)
		if n := len(s.of("standby")); n != 0 {
			t.Errorf("%d GETs, want none", n)
		}
		c.conn.Close()
		<-c.over
	})
}

// The session is not ready before the client has said so.
func TestTheStandbyStreamAwaitsTheHandshake(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Stall}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		c := dial(t, s)
		if o := c.begin(t.Context(), "initialize", `{}`)(); o.err != nil {
			t.Fatal(o.err)
		}
		for i, method := range []string{"notifications/progress", "notifications/initialized", "notifications/progress"} {
			if err := c.notify(method, `{}`); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := len(s.of("standby")); n != min(i, 1) {
				t.Errorf("%d GETs after message %d, want %d", n, i, min(i, 1))
			}
		}
		c.conn.Close()
		<-c.over
	})
}

// Where the standby stream has got to is told like for calls.
func TestPositionsOfTheStandbyStream(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{M("s1", 1), M("", 2), M("s2", 3), Stall}}
	play(t, s, func(c *client) {
		synctest.Wait()
		want := []mcptransport.Position{
			{SessionID: "session-1", ProtocolVersion: "2025-11-25", LastEventID: "s1"},
			{SessionID: "session-1", ProtocolVersion: "2025-11-25", LastEventID: "s2"},
		}
		c.note(func() {
			if diff := cmp.Diff(want, c.positions, cmp.Comparer(func(a, b jsonrpc.ID) bool { return a == b })); diff != "" {
				t.Errorf("positions (-want +got):\n%s", diff)
			}
		})
	})
}

// The handshake waits for the GET to be on its way, but not for ever, and not for
// its answer.
func TestTheHandshakeIsNotHeldUp(t *testing.T) {
	t.Run("no connection", func(t *testing.T) {
		s := &server{}
		synctest.Test(t, func(t *testing.T) {
			s.start(t)
			c := dial(t, s, func(tr *mcptransport.Transport) {
				next := tr.Client.HTTPClient.Transport
				tr.Client.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodGet {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return next.RoundTrip(r)
				})}
			})
			if o := c.begin(t.Context(), "initialize", `{}`)(); o.err != nil {
				t.Fatal(o.err)
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 3*second)
			defer cancel()
			if err := c.conn.Write(ctx, &jsonrpc.Request{Method: "notifications/initialized"}); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != 3*second {
				t.Errorf("it took %v, want the context's 3 s", took)
			}
			c.conn.Close()
			<-c.over
		})
	})
	t.Run("a transport without httptrace", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Open, Wait(time.Hour)}}
		start := time.Now()
		var opened atomic.Int32
		play(t, s, func(c *client) {
			if took := time.Since(start); took > time.Minute {
				t.Errorf("it took %v", took)
			}
			synctest.Wait()
			if n := opened.Load(); n != 1 {
				t.Errorf("the caller's trace was told %d times, want 1", n)
			}
		}, func(tr *mcptransport.Transport) {
			start = time.Now()
			tr.Client.Trace = func(*http.Request) *eventsource.Trace {
				return &eventsource.Trace{Open: func(eventsource.OpenInfo) { opened.Add(1) }}
			}
			next := tr.Client.HTTPClient.Transport
			tr.Client.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				ctx, cancel := context.WithCancel(context.Background())
				context.AfterFunc(r.Context(), cancel)
				return next.RoundTrip(r.Clone(ctx))
			})}
		})
	})
}

// A page was taken for a stream: 30,000 GETs in 11 h.
func TestTheTypeIsCheckedOnEveryConnection(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Wait(20 * second), End}, {Status{Header: http.Header{"Content-Type": {"text/plain"}}, Body: "see docs"}}}
	play(t, s, func(c *client) {
		time.Sleep(60 * second)
		var refusal *eventsource.ResponseError
		if ends := c.standbyEnds(); len(ends) != 1 || !errors.As(ends[0], &refusal) || errors.Is(ends[0], mcptransport.ErrNotOffered) {
			t.Errorf("ends of the standby stream: %v; want one with the response", ends)
		}
		c.ping()
		time.Sleep(60 * second)
		if n := len(s.of("standby")); n != 2 {
			t.Errorf("%d GETs, want 2", n)
		}
	})
}

// 14,598 reconnections in 3 s.
func TestRetryZeroHasAFloor(t *testing.T) {
	for name, choose := range map[string]func(string, mcptransport.Role) policy.Policy{
		"MCPListen": exactly,
		"without growth": func(string, mcptransport.Role) policy.Policy {
			rules := policy.MCPListen()
			rules.Factor, rules.Jitter, rules.MaxFruitless = 1, -1, 0
			return rules
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			s.standby = [][]Step{{Retry(0)}}
			play(t, s, func(c *client) {
				time.Sleep(second - ms)
				if n := len(s.of("standby")); n > 10 {
					t.Errorf("%d GETs in the first second, want at most 10", n)
				}
				if gap := gaps(s.of("standby"))[0]; gap != 100*ms {
					t.Errorf("the first wait is %v, want 100 ms", gap)
				}
			}, func(tr *mcptransport.Transport) { tr.Policy = choose })
		})
	}
	t.Run("the floor is no default", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Retry(500 * ms)}, {Open, Stall}}
		play(t, s, func(c *client) {
			time.Sleep(5 * second)
			s.checkStandby(t, 500*ms)
		})
	})
}

// A standby stream that was given up was silent about it, and calls that it was to
// answer hung.
func TestTheEndOfTheStandbyStreamIsTold(t *testing.T) {
	t.Run("it comes back with the server", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Event{ID: "s1"}, Cut}, {s.R("s2"), Stall}}
		s.calls = [][]Step{{Status{Code: http.StatusAccepted}}}
		var down atomic.Bool
		play(t, s, func(c *client) {
			down.Store(true)
			time.Sleep(60 * second)
			c.endedOnce(policy.ErrExhausted)
			down.Store(false)
			c.call().done(t) // by the new standby stream
			if diff := cmp.Diff([]string{"–", "s1"}, ids(s.of("standby"))); diff != "" {
				t.Errorf("Last-Event-IDs of the standby stream (-want +got):\n%s", diff)
			}
		}, refuseGETs(func(*http.Request) bool { return down.Load() }))
	})
	t.Run("it ends while calls wait for it", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Open, Wait(20 * second), End}, {Status{Code: http.StatusMethodNotAllowed}}}
		s.calls = [][]Step{{Status{Code: http.StatusAccepted}}}
		play(t, s, func(c *client) {
			first := c.begin(context.Background(), "tools/call", `{}`)
			second := c.begin(context.Background(), "tools/call", `{}`)
			for _, wait := range []func() outcome{first, second} {
				o := wait()
				o.failed(t, 21*time.Second, mcptransport.ErrLost)
				o.refused(t, http.StatusMethodNotAllowed)
			}
			c.ping()
		})
	})
	t.Run("it asks to stop while a call waits for it", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Open, Wait(20 * second), End}, {Status{Code: http.StatusNoContent}}}
		s.calls = [][]Step{{Status{Code: http.StatusAccepted}}}
		play(t, s, func(c *client) {
			c.call().failed(t, 21*time.Second, mcptransport.ErrLost)
			c.endedOnce(nil)
		})
	})
	t.Run("there is none", func(t *testing.T) {
		s := &server{}
		s.calls = [][]Step{{Status{Code: http.StatusAccepted}}}
		play(t, s, func(c *client) {
			synctest.Wait()
			c.call().failed(t, 0, mcptransport.ErrLost)
		})
	})
	t.Run("the caller leaves", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Open, Stall}}
		s.calls = [][]Step{{Status{Code: http.StatusAccepted}}}
		play(t, s, func(c *client) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*second)
			defer cancel()
			c.callWith(ctx).failed(t, 3*second, context.DeadlineExceeded)
		})
	})
}

// A session that was gone was asked for for ever: 18 requests a second from 145
// deployments.
func TestSessionGoneOnStandby(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Wait(20 * second), End}, {Status{Code: http.StatusNotFound}}}
	play(t, s, func(c *client) {
		wait := c.begin(context.Background(), "tools/call", `{}`)
		o := wait()
		o.failed(t, 21*second, mcp.ErrSessionMissing)
		c.endedOnce(mcp.ErrSessionMissing)
		if !errors.Is(c.readErr, mcp.ErrSessionMissing) {
			t.Errorf("Read ended with %v, want ErrSessionMissing", c.readErr)
		}
		if err := c.notify("notifications/progress", `{}`); !errors.Is(err, mcp.ErrSessionMissing) {
			t.Errorf("Write after the end: %v, want ErrSessionMissing", err)
		}
		time.Sleep(60 * second)
		c.conn.Close()
		if n := len(s.of("standby")); n != 2 {
			t.Errorf("%d GETs, want 2", n)
		}
		if n := len(s.of("DELETE")); n != 0 {
			t.Errorf("%d DELETEs for a session that is gone", n)
		}
	}, func(tr *mcptransport.Transport) { /* calls wait */ s.calls = [][]Step{{Open, Stall}} })
}

// The token was not sent with the GETs, or an old one.
func TestEveryRequestIsPrepared(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Wait(20 * second), End}, {Open, Wait(20 * second), Cut}, {Open, Stall}}
	tokens := 0
	play(t, s, func(c *client) {
		time.Sleep(60 * second)
		if n := len(s.of("standby")); n != 3 {
			t.Fatalf("%d GETs, want 3", n)
		}
		seen := map[string]bool{}
		for _, r := range s.Requests() {
			token := r.Header.Get("Authorization")
			if token == "" || seen[token] {
				t.Errorf("%s %s has the token %q, want a fresh one", r.Method, kindOf(r), token)
			}
			seen[token] = true
		}
	}, func(tr *mcptransport.Transport) {
		tr.Client.Prepare = func(r *http.Request) error {
			tokens++
			r.Header.Set("Authorization", fmt.Sprint("Bearer ", tokens))
			return nil
		}
	})
}

// The stream ended with the context of Connect.
func TestTheContextOfConnectDoesNotEndTheStreams(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Wait(8 * second), M("s1", 1), Stall}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		c := dial(t, s)
		c.conn.Close()
		<-c.over

		ctx, cancel := context.WithTimeout(t.Context(), 5*second)
		defer cancel()
		conn, err := c.transport.Connect(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c.conn, c.over = conn, make(chan struct{})
		go c.read()
		c.handshake()
		time.Sleep(10 * second)
		if diff := cmp.Diff([]int{1}, c.progressed()); diff != "" {
			t.Error(diff)
		}
		c.conn.Close()
		<-c.over
	})
}

// Everything waited for the headers of the standby stream.
func TestHeadersThatNeverCome(t *testing.T) {
	t.Run("late", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Wait(20 * second), M("s1", 1), Stall}}
		s.calls = [][]Step{{s.R("")}}
		play(t, s, func(c *client) {
			if o := c.call(); o.after != 0 {
				t.Errorf("the call took %v beside a GET without an answer", o.after)
			}
			time.Sleep(20 * second)
			synctest.Wait()
			if diff := cmp.Diff([]int{1}, c.progressed()); diff != "" {
				t.Error(diff)
			}
			if n := len(s.of("standby")); n != 1 {
				t.Errorf("%d GETs, want 1", n)
			}
		})
	})
	t.Run("never", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Wait(time.Hour)}}
		play(t, s, func(c *client) {
			time.Sleep(40 * second)
			s.checkStandby(t, second)
			if r := s.of("standby")[0]; r.Ended.Sub(r.Arrived) != 30*second {
				t.Errorf("the first attempt took %v, want 30 s", r.Ended.Sub(r.Arrived))
			}
		})
	})
}

// A 409 while the server still held the connection before was a failure of the
// session.
func TestConflictOfTheStandbyStream(t *testing.T) {
	t.Run("passes", func(t *testing.T) {
		s := &server{}
		conflict := []Step{Status{Code: http.StatusConflict}}
		s.standby = [][]Step{{Open, Wait(second), Cut}, conflict, conflict, {Open, Stall}}
		play(t, s, func(c *client) {
			time.Sleep(60 * second)
			s.checkStandby(t, 1000*ms, 1500*ms, 2250*ms)
			if ends := c.standbyEnds(); len(ends) != 0 {
				t.Errorf("the stream was given up: %v", ends)
			}
			c.ping()
		})
	})
	t.Run("stays", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Open, Wait(second), Cut}, {Status{Code: http.StatusConflict}}}
		play(t, s, func(c *client) {
			time.Sleep(60 * second)
			c.endedOnce(policy.ErrExhausted)
			var refusal *eventsource.ResponseError
			if !errors.As(c.standbyEnds()[0], &refusal) || refusal.StatusCode != http.StatusConflict {
				t.Errorf("the stream ended with %v; want the 409 in it", c.standbyEnds()[0])
			}
			if n := len(s.of("standby")); n != 6 {
				t.Errorf("%d GETs, want 6", n)
			}
			c.ping()
		})
	})
}

package mcptransport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
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

// The tests TestScript… replay faults of MCP clients that were reported in public.
// A comment says what went wrong there.

const (
	ms     = time.Millisecond
	second = time.Second
)

// checkResumes checks the Last-Event-IDs of the GETs that resumed the one call of
// the test, and the time from each end to the next of them.
func (s *server) checkResumes(t *testing.T, wantIDs []string, wantGaps []time.Duration) {
	t.Helper()
	if diff := cmp.Diff(wantIDs, ids(s.of("resume"))); diff != "" {
		t.Errorf("Last-Event-IDs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantGaps, gaps(s.of("tools/call", "resume"))); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

// refused checks that a call failed because of a response with this status, and
// that this took no time from the end of the attempt before.
func (o outcome) refused(t *testing.T, status int) {
	t.Helper()
	var refusal *eventsource.ResponseError
	if !errors.As(o.err, &refusal) || refusal.StatusCode != status {
		t.Errorf("the call came to %q, %v; want a refusal with status %d", o.result, o.err, status)
	}
}

// A polling loop at 5 Hz that only the caller's own timeout ended, though messages
// kept coming would have been a reason to go on.
func TestMessagesKeepACallAlive(t *testing.T) {
	const connections = 2000
	var n atomic.Int32
	s := &server{}
	s.calls = [][]Step{{P("p0", 200*ms)}}
	s.resumes = [][]Step{{Do(func(c *Conn) {
		if n := int(n.Add(1)); n < connections {
			c.Play(M(fmt.Sprint("m", n), n))
		} else {
			c.Play(s.R("r"))
		}
	})}}
	play(t, s, func(c *client) {
		o := c.call()
		o.done(t)
		if want := connections * 200 * ms; o.after != want {
			t.Errorf("answered after %v, want %v", o.after, want)
		}
		for i, got := range c.progressed() {
			if got != i+1 {
				t.Fatalf("progress %d is number %d", got, i+1)
			}
		}
		if got := len(c.progressed()); got != connections-1 {
			t.Errorf("%d progress notifications, want %d", got, connections-1)
		}
	})
}

// Progress was taken for any successful connection, then for an ID that moved.
func TestExhaustionNamesItsCountAndPosition(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{M("a1", 1)}}
	s.resumes = [][]Step{{Open}}
	play(t, s, func(c *client) {
		o := c.call()
		o.failed(t, 9125*ms, mcptransport.ErrLost, policy.ErrExhausted)
		s.checkResumes(t,
			[]string{"a1", "a1", "a1", "a1", "a1"},
			[]time.Duration{1000 * ms, 1000 * ms, 1500 * ms, 2250 * ms, 3375 * ms})
		var stop *eventsource.StopError
		if !errors.As(o.err, &stop) || stop.Attempt.LastEventID != "a1" || !strings.Contains(o.err.Error(), "5") {
			t.Errorf("the error does not tell the count and the position: %v", o.err)
		}
		c.ping()
	})
}

// The priming event was given to the JSON decoder, and the session ended.
func TestPrimingIsNoMessage(t *testing.T) {
	for _, priming := range []string{
		"id: p1\nretry: 500\ndata: \n\n",
		"id: p1\nretry: 500\ndata:\n\n",
		"event: prime\nid: p1\nretry: 500\ndata: \n\n",
	} {
		s := &server{}
		s.calls = [][]Step{{Send(priming), s.R("")}}
		t.Run(fmt.Sprintf("%q", priming), func(t *testing.T) {
			play(t, s, func(c *client) {
				c.call().done(t)
				id, _ := jsonrpc.MakeID(2.0) // initialize was 1
				want := []mcptransport.Position{{SessionID: "session-1", ProtocolVersion: "2025-11-25", LastEventID: "p1", Call: id}}
				if diff := cmp.Diff(want, c.positions, cmp.Comparer(func(a, b jsonrpc.ID) bool { return a == b })); diff != "" {
					t.Errorf("positions (-want +got):\n%s", diff)
				}
				if len(c.requests)+len(c.skips()) != 0 {
					t.Errorf("besides the answer there came %v; skipped: %v", c.requests, c.skips())
				}
				if n := len(s.of("resume")); n != 0 {
					t.Errorf("%d GETs, want none", n)
				}
			})
		})
	}
}

// The ID was forgotten at a reconnection that brought nothing.
func TestEmptyReconnectionKeepsTheID(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("p1", 200*ms)}}
	s.resumes = [][]Step{{Open}, {s.R("p2")}}
	play(t, s, func(c *client) {
		c.call().done(t)
		s.checkResumes(t, []string{"p1", "p1"}, []time.Duration{200 * ms, 200 * ms})
	})
}

// One 503 on a reconnection ended call and session.
func TestTemporaryRefusalsAreRiddenOut(t *testing.T) {
	for _, status := range []int{503, 500, 502, 504, 429, 408, 409, 425} {
		s := &server{}
		s.calls = [][]Step{{P("p1", 1500*ms)}}
		s.resumes = [][]Step{{Status{Code: status}}, {s.R("p2")}}
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			play(t, s, func(c *client) {
				c.call().done(t)
				s.checkResumes(t, []string{"p1", "p1"}, []time.Duration{1500 * ms, 1500 * ms})
				c.ping()
			})
		})
	}
}

// A retry of a day parked the caller for a day.
func TestADayLongRetryReleasesTheCallerAtOnce(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("p1", 24*time.Hour)}}
	play(t, s, func(c *client) {
		o := c.call()
		o.failed(t, 0, mcptransport.ErrLost)
		var budget *policy.BudgetError
		if !errors.As(o.err, &budget) || budget.Asked != 24*time.Hour {
			t.Errorf("the call came to %v; want a BudgetError for the day", o.err)
		}
		time.Sleep(10 * time.Minute)
		if n := len(s.of("resume")); n != 0 {
			t.Errorf("%d GETs, want none", n)
		}
		c.ping()
	})
}

// A response that is kept alive without bringing anything is left after a minute, and the
// call resumed once more, until the budget is used up.
func TestKeepAlivesDoNotStretchTheBudget(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("p1", 1000*ms)}}
	keepAlives := []Step{Do(func(c *Conn) {
		for c.Play(Comment("ka"), Wait(10*second)) { //nolint:revive // until the client leaves
		}
	})}
	s.resumes = [][]Step{keepAlives, keepAlives, keepAlives, keepAlives, keepAlives}
	play(t, s, func(c *client) {
		c.call().failed(t, 300*second, mcptransport.ErrLost, eventsource.ErrExpired)
		s.checkResumes(t, slices.Repeat([]string{"p1"}, 5), slices.Repeat([]time.Duration{1000 * ms}, 5))
	})
}

// The deadline of the call's own context counts as the budget does.
func TestTheCallersDeadlineReleasesAtOnceToo(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("p1", 10*second)}}
	play(t, s, func(c *client) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*second)
		defer cancel()
		c.callWith(ctx).failed(t, 0, mcptransport.ErrLost, context.DeadlineExceeded)
	})
}

// The retry field was ignored and the ID not sent.
func TestRetryIsWaitedAndTheIDSent(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("e1", 500*ms), Wait(50 * ms), End}}
	s.resumes = [][]Step{{s.R("e2")}}
	play(t, s, func(c *client) {
		c.call().done(t)
		s.checkResumes(t, []string{"e1"}, []time.Duration{500 * ms})
	})
}

// The caller was never told.
func TestTheCallerIsTold(t *testing.T) {
	t.Run("nothing to resume from", func(t *testing.T) {
		s := &server{}
		s.calls = [][]Step{{Comment("hi")}}
		play(t, s, func(c *client) {
			c.call().failed(t, 0, mcptransport.ErrLost, policy.ErrNotResumable)
		})
	})
	t.Run("the server is gone", func(t *testing.T) {
		s := &server{}
		s.calls = [][]Step{{P("p1", 100*ms)}}
		refused := 0
		play(t, s, func(c *client) {
			c.call().failed(t, 912500*time.Microsecond, mcptransport.ErrLost, policy.ErrExhausted, syscall.ECONNREFUSED)
			if refused != 5 {
				t.Errorf("%d reconnections, want 5", refused)
			}
		}, refuseGETs(func(r *http.Request) bool {
			if r.Header.Get("Last-Event-ID") == "" {
				return false
			}
			refused++
			return true
		}))
	})
}

// refuseGETs makes the connection fail for the GETs that refuse selects.
func refuseGETs(refuse func(*http.Request) bool) func(*mcptransport.Transport) {
	return func(tr *mcptransport.Transport) {
		client := *tr.Client.HTTPClient
		next := client.Transport
		client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && refuse(r) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			}
			return next.RoundTrip(r)
		})
		tr.Client.HTTPClient = &client
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A limit on the whole request cut the stream.
func TestATimeoutOfTheHTTPClientDoesNotCutACall(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Do(func(c *Conn) {
		for range 25 {
			c.Play(Comment("ka"), Wait(second))
		}
	}), s.R("")}}
	play(t, s, func(c *client) {
		o := c.call()
		o.done(t)
		if o.after != 25*second || len(s.of("tools/call", "resume")) != 1 {
			t.Errorf("answered after %v with %d requests; want 25 s and 1", o.after, len(s.of("tools/call", "resume")))
		}
	}, func(tr *mcptransport.Transport) {
		client := *tr.Client.HTTPClient
		client.Timeout = 10 * second
		tr.Client.HTTPClient = &client
	})
}

// Lines of 64 KiB and more broke the stream.
func TestLongLinesAreRead(t *testing.T) {
	for _, size := range []int{70_000, 2 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := &server{}
			s.calls = [][]Step{{
				Event{ID: "m1", Data: `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + strings.Repeat("x", size) + `"}}`},
				s.R("m2"),
			}}
			play(t, s, func(c *client) {
				c.call().done(t)
				if len(c.requests) != 1 || len(c.requests[0].Params) < size {
					t.Errorf("the message did not come whole: %d messages", len(c.requests))
				}
			})
		})
	}
	t.Run("over the limit", func(t *testing.T) {
		s := &server{}
		s.calls = [][]Step{{P("p1", 100*ms), Event{ID: "m1", Data: strings.Repeat("x", 2000)}, Stall}}
		play(t, s, func(c *client) {
			c.call().failed(t, 0, mcptransport.ErrLost, eventsource.ErrEventTooLarge)
			if n := len(s.of("resume")); n != 0 {
				t.Errorf("%d GETs; a replay would bring the same event", n)
			}
			c.ping()
		}, func(tr *mcptransport.Transport) { tr.Client.MaxEventSize = 1000 })
	})
}

// CR LF was taken for two line ends.
func TestCRLFIsOneLineEnd(t *testing.T) {
	for _, cut := range []int{0, 1} {
		s := &server{}
		line := "event: message\r\ndata: " + progress(1) + "\r"
		s.calls = [][]Step{{Send(line[:len(line)-cut]), Wait(ms), Send(line[len(line)-cut:] + "\n\r\n"), s.R("")}}
		play(t, s, func(c *client) {
			c.call().done(t)
			if diff := cmp.Diff([]int{1}, c.progressed()); diff != "" {
				t.Error(diff)
			}
			if len(c.skips()) != 0 {
				t.Errorf("skipped: %v", c.skips())
			}
		})
	}
}

// A connection that had died silently was never given up.
func TestASilentCallIsResumed(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("p1", 100*ms), M("m1", 1), M("m2", 2), M("m3", 3), Stall}}
	s.resumes = [][]Step{{s.R("m4")}}
	var kinds []policy.Kind
	play(t, s, func(c *client) {
		o := c.call()
		o.done(t)
		if o.after != 5100*ms {
			t.Errorf("answered after %v, want 5.1 s", o.after)
		}
		s.checkResumes(t, []string{"m3"}, []time.Duration{100 * ms})
		if diff := cmp.Diff([]policy.Kind{policy.Idle}, kinds); diff != "" {
			t.Error(diff)
		}
	}, func(tr *mcptransport.Transport) {
		tr.DisableStandby = true
		tr.Client.IdleTimeout = 5 * second
		tr.Client.Trace = func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{End: func(a policy.Attempt) { kinds = append(kinds, a.Kind) }}
		}
	})
}

// The ID of one stream was sent with an unrelated request.
func TestTheIDStaysWithItsStream(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("p1", 100*ms)}}
	s.resumes = [][]Step{{s.R("p2")}}
	play(t, s, func(c *client) {
		wait := c.begin(context.Background(), "tools/call", `{}`)
		synctest.Wait() // the stream has ended and its wait has begun
		c.ping()        // checkHeaders looks for a Last-Event-ID on any POST
		wait().done(t)
		s.checkResumes(t, []string{"p1"}, []time.Duration{100 * ms})
	})
}

// A call resumed with a stored ID lost its callbacks, and its caller was not told.
func TestAResumedCallIsToldOnce(t *testing.T) {
	for name, route := range map[string][]Step{"clean end": {Open}, "read error": {Open, Cut}, "failed attempt": {Status{Code: 503}}} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			s.resumes = [][]Step{{M("m1", 1)}, route}
			synctest.Test(t, func(t *testing.T) {
				s.start(t)
				var positions []string
				tr := &mcptransport.Transport{
					Endpoint:   s.URL,
					Policy:     exactly,
					OnPosition: func(p mcptransport.Position) { positions = append(positions, p.LastEventID) },
				}
				tr.Client.HTTPClient = s.Client()
				var messages int
				var errs []error
				for _, err := range tr.Resume(t.Context(), position("p0")) {
					if err != nil {
						errs = append(errs, err)
					} else {
						messages++
					}
				}
				if messages != 1 || len(errs) != 1 || !errors.Is(errs[0], mcptransport.ErrLost) || !errors.Is(errs[0], policy.ErrExhausted) {
					t.Errorf("%d messages, then %v; want 1, then one ErrLost by ErrExhausted", messages, errs)
				}
				if diff := cmp.Diff([]string{"m1"}, positions); diff != "" {
					t.Error(diff)
				}
				s.checkHeaders(t)
				if diff := cmp.Diff([]string{"p0", "m1", "m1", "m1", "m1", "m1"}, ids(s.of("resume"))); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
	t.Run("a hook panics", func(t *testing.T) {
		s := &server{}
		s.resumes = [][]Step{{M("m1", 1), Stall}}
		synctest.Test(t, func(t *testing.T) {
			s.start(t)
			tr := &mcptransport.Transport{
				Endpoint:   s.URL,
				OnPosition: func(mcptransport.Position) { panic("out of disk") },
			}
			tr.Client.HTTPClient = s.Client()
			messages := tr.Resume(t.Context(), position("p0"))
			func() {
				defer func() {
					if got := recover(); got != "out of disk" {
						t.Errorf("recovered %v", got)
					}
				}()
				for range messages { //nolint:revive // the hook ends it
				}
			}()
			synctest.Wait()
			if r := s.of("resume")[0]; !r.ClientLeft {
				t.Error("the stream is still open")
			}
			for msg, err := range messages {
				if msg != nil || !errors.Is(err, mcptransport.ErrLost) {
					t.Errorf("the second range gave %v, %v; want ErrLost", msg, err)
				}
			}
		})
	})
}

func position(lastEventID string) mcptransport.Position {
	id, _ := jsonrpc.MakeID(7.0)
	return mcptransport.Position{SessionID: "session-1", ProtocolVersion: "2025-11-25", LastEventID: lastEventID, Call: id}
}

// A resumption that was refused hung until the caller's timeout, or ended the
// session.
func TestRefusedResumptionIsToldAtOnce(t *testing.T) {
	for _, status := range []int{405, 400, 406, 410, 501} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := &server{}
			s.calls = [][]Step{{P("p1", 200*ms)}}
			s.resumes = [][]Step{{Status{Code: status}}}
			play(t, s, func(c *client) {
				o := c.call()
				o.failed(t, 200*ms, mcptransport.ErrLost)
				o.refused(t, status)
				c.ping()
				if n := len(s.of("resume")); n != 1 {
					t.Errorf("%d GETs, want 1", n)
				}
			})
		})
	}
}

// A session that was gone was asked for again, then waited for.
func TestSessionGoneOnResume(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("p1", 200*ms)}}
	s.resumes = [][]Step{{Status{Code: http.StatusNotFound}}}
	play(t, s, func(c *client) {
		o := c.call()
		o.failed(t, 200*ms, mcp.ErrSessionMissing)
		o.refused(t, 404)
		c.conn.Close()
		if n := len(s.of("resume")); n != 1 {
			t.Errorf("%d GETs, want 1", n)
		}
		if n := len(s.of("DELETE")); n != 0 {
			t.Errorf("%d DELETEs for a session that is gone", n)
		}
	})
	t.Run("without a session", func(t *testing.T) {
		s := &server{session: "-"}
		s.calls = [][]Step{{P("p1", 200*ms)}}
		s.resumes = [][]Step{{Status{Code: http.StatusNotFound}}}
		play(t, s, func(c *client) {
			o := c.call()
			o.failed(t, 200*ms, mcptransport.ErrLost)
			o.refused(t, 404)
			c.ping()
		})
	})
}

// A text was parsed as events; another client asked for it 5 times a second.
func TestWrongTypeOnResume(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{P("p1", 200*ms)}}
	s.resumes = [][]Step{{Status{Header: http.Header{"Content-Type": {"text/plain"}}, Body: "hello"}}}
	play(t, s, func(c *client) {
		o := c.call()
		o.failed(t, 200*ms, mcptransport.ErrLost)
		o.refused(t, 200)
		if n := len(s.of("resume")); n != 1 {
			t.Errorf("%d GETs, want 1", n)
		}
		c.ping()
	})
}

// The retry field of one stream set the wait of another.
func TestRetryStaysWithItsStream(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Retry(3 * second), Stall}}
	s.calls = [][]Step{{P("p1", -1)}}
	s.resumes = [][]Step{{s.R("p2")}}
	play(t, s, func(c *client) {
		c.call().done(t)
		s.checkResumes(t, []string{"p1"}, []time.Duration{1000 * ms})
	})
}

// The polling loop at 5 Hz again: IDs move, no message comes.
func TestPrimingOnlyIsPolledWithinTheBudget(t *testing.T) {
	var polls atomic.Int32
	s := &server{}
	s.calls = [][]Step{{P("p0", 200*ms)}}
	s.resumes = [][]Step{{Do(func(c *Conn) {
		c.Play(P(fmt.Sprint("p", polls.Add(1)), 200*ms))
	})}}
	play(t, s, func(c *client) {
		o := c.call()
		// A poll that would end with the budget is not begun.
		o.failed(t, 300*second-200*ms, mcptransport.ErrLost)
		var budget *policy.BudgetError
		if !errors.As(o.err, &budget) {
			t.Errorf("the call came to %v; want a BudgetError", o.err)
		}
		resumes := s.of("resume")
		if len(resumes) != 1499 {
			t.Errorf("%d polls, want 1499", len(resumes))
		}
		for i, r := range resumes {
			if want := fmt.Sprint("p", i); r.LastEventID != want || r.Gap != 200*ms {
				t.Fatalf("poll %d came after %v with the ID %s; want 200 ms and %s", i, r.Gap, r.LastEventID, want)
			}
		}
		c.ping()
	})
}

// An event that was no JSON-RPC ended the session.
func TestOddJSONHarmsNothing(t *testing.T) {
	for _, data := range []string{`{}`, `{"a":`, `[]`, `null`, `"text"`, `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":{}}`, "\x00\xff"} {
		s := &server{}
		s.calls = [][]Step{{Event{ID: "p1", Data: data}, s.R("")}}
		t.Run(data, func(t *testing.T) {
			play(t, s, func(c *client) {
				c.call().done(t)
				if len(c.skips()) != 1 {
					t.Errorf("skipped: %v; want one report", c.skips())
				}
			})
		})
	}
}

// Streams that the server left open after the answer piled up.
func TestTheStreamEndsWithTheAnswer(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{s.R(""), Stall}}
	play(t, s, func(c *client) {
		for range 20 {
			c.call().done(t)
		}
		synctest.Wait()
		requests := s.of("tools/call")
		if len(requests) != 20 {
			t.Errorf("%d calls, want 20", len(requests))
		}
		for i, r := range requests {
			if !r.ClientLeft || r.Ended != r.Arrived {
				t.Errorf("call %d: left %v, after %v; want it left at once", i, r.ClientLeft, r.Ended.Sub(r.Arrived))
			}
		}
	})
}

// Without ID and answer the call hung.
func TestNeitherIDNorAnswer(t *testing.T) {
	for name, end := range map[string]Step{"end": End, "cut": Cut} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			s.calls = [][]Step{{M("", 1), end}}
			play(t, s, func(c *client) {
				c.call().failed(t, 0, mcptransport.ErrLost, policy.ErrNotResumable)
				if n := len(s.of("resume")); n != 0 {
					t.Errorf("%d GETs, want none", n)
				}
				c.ping()
			})
		})
	}
}

// A number parser accepted more than digits.
func TestRetryTakesDigitsOnly(t *testing.T) {
	for _, value := range []string{"+100", "-5", "1e3", "500ms", " 500", "", "５００", "0x64"} {
		s := &server{}
		s.calls = [][]Step{{Send("id: p1\nretry: " + value + "\ndata:\n\n")}}
		s.resumes = [][]Step{{s.R("p2")}}
		t.Run(value, func(t *testing.T) {
			play(t, s, func(c *client) {
				c.call().done(t)
				s.checkResumes(t, []string{"p1"}, []time.Duration{1000 * ms})
			})
		})
	}
}

// A line without a colon ended the session.
func TestALineWithoutAColonIsRead(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Send("id: p1\ndata\n\n"), s.R("")}}
	play(t, s, func(c *client) {
		c.call().done(t)
		if len(c.requests)+len(c.skips()) != 0 {
			t.Errorf("besides the answer there came %v; skipped: %v", c.requests, c.skips())
		}
	})
}

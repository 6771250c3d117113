package mcptransport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

func jsonBody(status int, body string) Status {
	return Status{Code: status, Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}}, Body: body}
}

func TestConnectToNoURL(t *testing.T) {
	for _, endpoint := range []string{"", "/mcp", "http://[SECRET", "http:// /?SECRET"} {
		tr := &mcptransport.Transport{Endpoint: endpoint}
		conn, err := tr.Connect(t.Context())
		if conn != nil || err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: got %v, %v; want an error without the URL", endpoint, conn, err)
		}
		for _, err := range tr.Resume(t.Context(), position("p1")) {
			if !errors.Is(err, mcptransport.ErrLost) {
				t.Errorf("%q: Resume gave %v, want ErrLost", endpoint, err)
			}
		}
	}
}

// What cannot be sent fails alone.
func TestAMessageThatCannotBeEncoded(t *testing.T) {
	s := &server{}
	play(t, s, func(c *client) {
		if err := c.notify("notifications/progress", `{`); err == nil {
			t.Error("no error")
		}
		if o := c.begin(context.Background(), "tools/call", `{`)(); o.err == nil {
			t.Error("no error")
		}
		c.ping()
	})
}

// Only messages of the default type are MCP's.
func TestAnotherEventTypeIsSkipped(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Event{Type: "ping", Data: progress(1)}, Event{Type: "message", Data: progress(2)}, s.R("")}}
	play(t, s, func(c *client) {
		c.call().done(t)
		if diff := cmp.Diff([]int{2}, c.progressed()); diff != "" {
			t.Error(diff)
		}
		if len(c.skips()) != 1 {
			t.Errorf("skipped: %v; want one report", c.skips())
		}
	})
}

// Nobody has to listen to the hooks.
func TestWithoutHooks(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Event{ID: "s1", Data: "{}"}, Stall}}
	s.calls = [][]Step{{Event{ID: "m1", Data: "{}"}, s.R("")}}
	play(t, s, func(c *client) { c.call().done(t) }, func(tr *mcptransport.Transport) {
		tr.OnPosition, tr.OnStandbyEnd, tr.OnSkip = nil, nil, nil
	})
}

// A message that the server does not accept fails alone; the session goes on.
func TestARefusedMessageHarmsNothing(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer Step
		status int   // of the ResponseError; 0 for none
		code   int64 // of the JSON-RPC error; 0 for none
	}{
		{"503", Status{Code: 503}, 503, 0},
		{"401", Status{Code: 401}, 401, 0},
		{"404 and a JSON-RPC error without a session", jsonBody(404, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"none"}}`), 404, -32601},
		{"400 and a JSON-RPC error without ID", jsonBody(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"bad"}}`), 400, -32600},
		{"400 and a page", Status{Code: 400, Body: "<html>"}, 400, 0},
		{"a redirect to another host", Status{Code: 307, Header: http.Header{"Location": {"http://other.test/"}}}, 307, 0},
		{"a redirect that changes the method", Status{Code: 303, Header: http.Header{"Location": {"/other"}}}, 303, 0},
		{"no answer at all", Reset, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &server{session: "-"}
			s.calls = [][]Step{{test.answer}, {s.R("")}}
			s.posts = map[string][]Step{"notifications/progress": {test.answer}}
			play(t, s, func(c *client) {
				err := c.notify("notifications/progress", `{}`)
				o := c.call()
				for _, err := range []error{err, o.err} {
					if err == nil || errors.Is(err, mcptransport.ErrLost) {
						t.Fatalf("got %v; want an error that is not ErrLost", err)
					}
					var refusal *eventsource.ResponseError
					if errors.As(err, &refusal); test.status != 0 && (refusal == nil || refusal.StatusCode != test.status) {
						t.Errorf("got %v; want a refusal with %d", err, test.status)
					}
				}
				var jerr *jsonrpc.Error
				if errors.As(o.err, &jerr); test.code != 0 && (jerr == nil || jerr.Code != test.code) {
					t.Errorf("got %v; want the JSON-RPC error %d", o.err, test.code)
				}
				if test.code == 0 && jerr != nil {
					t.Errorf("got the JSON-RPC error %v", jerr)
				}
				c.call().done(t)
				for _, r := range s.Requests() {
					if r.Host != "server.test" || r.URL.Path != "/mcp" {
						t.Errorf("%s %s went to %s%s", r.Method, kindOf(r), r.Host, r.URL)
					}
				}
			})
		})
	}
}

func TestARedirectOnTheSameHostIsFollowed(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Status{Code: 308, Header: http.Header{"Location": {"/mcp/"}}}}, {s.R("")}}
	play(t, s, func(c *client) {
		c.call().done(t)
		requests := s.of("tools/call")
		if len(requests) != 2 || requests[1].URL.Path != "/mcp/" || len(requests[1].Body) == 0 {
			t.Errorf("the redirect was not followed with the message")
		}
	})
}

// Session Management, 4: a 404 in a session means that it is gone, whatever the body
// says.
func TestSessionGoneOnAMessage(t *testing.T) {
	gone := jsonBody(404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
	t.Run("a call", func(t *testing.T) {
		s := &server{}
		s.standby = [][]Step{{Open, Stall}}
		s.calls = [][]Step{{Open, Stall}, {gone}}
		play(t, s, func(c *client) {
			other := c.begin(context.Background(), "tools/call", `{}`)
			o := c.call()
			o.failed(t, 0, mcp.ErrSessionMissing)
			o.refused(t, 404)
			other().failed(t, 0, mcp.ErrSessionMissing)
			c.conn.Close()
			if n := len(s.of("DELETE")); n != 0 {
				t.Errorf("%d DELETEs", n)
			}
			synctest.Wait()
			for _, r := range s.Requests() {
				if r.Ended.IsZero() {
					t.Errorf("%s %s is still open", r.Method, kindOf(r))
				}
			}
		})
	})
	t.Run("a notification", func(t *testing.T) {
		s := &server{}
		s.posts = map[string][]Step{"notifications/progress": {gone}}
		play(t, s, func(c *client) {
			if err := c.notify("notifications/progress", `{}`); !errors.Is(err, mcp.ErrSessionMissing) {
				t.Errorf("got %v, want ErrSessionMissing", err)
			}
			<-c.over
			if !errors.Is(c.readErr, mcp.ErrSessionMissing) {
				t.Errorf("Read ended with %v", c.readErr)
			}
		})
	})
}

func TestAnswersInJSON(t *testing.T) {
	valid := `{"jsonrpc":"2.0","id":2,"result":` + toolResult + `}`
	const limit = 300 // bytes
	atLimit := valid + strings.Repeat(" ", limit-len(valid))
	for _, test := range []struct {
		name string
		body []Step
		want string // in the error's text; empty for an answer
		code int64
	}{
		{"answer", []Step{jsonBody(200, atLimit)}, "", 0},
		{"error", []Step{jsonBody(200, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"bad"}}`)}, "bad", -32602},
		{"error without ID", []Step{jsonBody(200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"oops"}}`)}, "oops", -32603},
		{"another call's answer", []Step{jsonBody(200, `{"jsonrpc":"2.0","id":9,"result":{}}`)}, "another call", 0},
		{"a request", []Step{jsonBody(200, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)}, "another call", 0},
		{"no JSON", []Step{jsonBody(200, `<html>`)}, "unmarshaling", 0},
		{"nothing", []Step{jsonBody(200, ``)}, "unmarshaling", 0},
		{"cut off", []Step{jsonBody(200, valid[:20]), Wait(ms), Cut}, "broke off", 0},
		{"over the limit", []Step{jsonBody(200, atLimit+" ")}, "larger than", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &server{}
			s.calls = [][]Step{test.body}
			play(t, s, func(c *client) {
				o := c.call()
				if test.want == "" {
					o.done(t)
				} else if o.err == nil || !strings.Contains(o.err.Error(), test.want) {
					t.Errorf("got %q, %v; want an error with %q", o.result, o.err, test.want)
				}
				var jerr *jsonrpc.Error
				if errors.As(o.err, &jerr); test.code != 0 && (jerr == nil || jerr.Code != test.code) {
					t.Errorf("got %v; want the JSON-RPC error %d", o.err, test.code)
				}
				c.ping()
			}, func(tr *mcptransport.Transport) { tr.Client.MaxEventSize = limit })
		})
	}
}

// What else a 2xx may be, the call is told at once.
func TestAcceptedWithoutAnAnswer(t *testing.T) {
	for name, answer := range map[string]Status{"204": {Code: 204}, "text": {Header: http.Header{"Content-Type": {"text/plain"}}, Body: "ok"}, "no type": {Body: "ok"}} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			s.calls = [][]Step{{answer}}
			play(t, s, func(c *client) {
				c.call().failed(t, 0, mcptransport.ErrLost)
				c.ping()
			})
		})
	}
}

// Answers to other calls on a call's stream are ignored, duplicates too.
func TestOnlyTheCallsOwnAnswerCounts(t *testing.T) {
	s := &server{}
	foreign := Event{ID: "m1", Data: `{"jsonrpc":"2.0","id":1,"result":{"late":true}}`}
	unknown := Event{ID: "m2", Data: `{"jsonrpc":"2.0","id":"other","result":{}}`}
	s.standby = [][]Step{{Open, Wait(ms), unknown, Stall}}
	s.calls = [][]Step{{foreign, unknown, M("m3", 1), Wait(2 * ms), s.R("m4"), s.R("m5"), s.R("m6")}}
	play(t, s, func(c *client) {
		c.call().done(t)
		if len(c.skips()) != 3 {
			t.Errorf("skipped: %v; want 3 reports", c.skips())
		}
		if diff := cmp.Diff([]int{1}, c.progressed()); diff != "" {
			t.Error(diff)
		}
	})
}

// A server is not to answer on the standby stream, but an answer is an answer.
func TestAnAnswerOnTheStandbyStreamCounts(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Wait(second), s.R("s1"), Stall}}
	s.calls = [][]Step{{Open, Wait(2 * second), s.R("m1")}}
	play(t, s, func(c *client) {
		o := c.call()
		o.done(t)
		if o.after != second {
			t.Errorf("answered after %v, want 1 s", o.after)
		}
		synctest.Wait()
		if r := s.of("tools/call")[0]; !r.ClientLeft || r.Ended.Sub(r.Arrived) != second {
			t.Error("the call's own stream is still open")
		}
	})
}

// Cancelling a call ends its stream and nothing else; the notification is the
// caller's part.
func TestACancelledCallEndsAlone(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Stall}}
	s.calls = [][]Step{{Open, Stall}, {P("p1", 10*second)}, {Open, Wait(5 * second), s.R("")}}
	play(t, s, func(c *client) {
		ctx, cancel := context.WithCancel(context.Background())
		first := c.begin(ctx, "tools/call", `{}`)
		inWait := c.begin(ctx, "tools/call", `{}`)
		other := c.begin(context.Background(), "tools/call", `{}`)
		synctest.Wait()
		cancel()
		first().failed(t, 0, context.Canceled)
		inWait().failed(t, 0, context.Canceled)
		if err := c.notify("notifications/cancelled", `{"requestId":2}`); err != nil {
			t.Error(err)
		}
		other().done(t)
		if n := len(s.of("notifications/cancelled")); n != 1 {
			t.Errorf("%d cancellations were sent, want the caller's", n)
		}
		if n := len(s.of("resume")); n != 0 {
			t.Errorf("%d GETs for cancelled calls", n)
		}
	})
}

// A call waits as long as its context allows, also for the headers.
func TestACallThatIsCancelledBeforeItsHeaders(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Wait(time.Hour), s.R("")}}
	play(t, s, func(c *client) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*second)
		defer cancel()
		c.callWith(ctx).failed(t, 50*second, context.DeadlineExceeded)
	})
}

func TestCloseMoreThanOnce(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Open, Stall}}
	play(t, s, func(c *client) {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := c.conn.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		if err := c.notify("notifications/progress", `{}`); !errors.Is(err, mcp.ErrConnectionClosed) {
			t.Errorf("Write after Close: %v, want ErrConnectionClosed", err)
		}
		if _, err := c.conn.Read(context.Background()); err != io.EOF {
			t.Errorf("Read after Close: %v, want io.EOF", err)
		}
		if n := len(s.of("DELETE")); n != 1 {
			t.Errorf("%d DELETEs, want 1", n)
		}
		if got := c.conn.SessionID(); got != "session-1" {
			t.Errorf("the session ID is %q", got)
		}
	})
}

// Session Management, 5: a server may refuse the DELETE.
func TestARefusedDELETEIsNoError(t *testing.T) {
	s := &server{}
	s.posts = map[string][]Step{"DELETE": {Status{Code: http.StatusMethodNotAllowed}}}
	// Without a GET under way, whose connection the DELETE could be lost on.
	play(t, s, func(*client) { synctest.Wait() })
}

func TestNothingToDELETEWithoutASession(t *testing.T) {
	s := &server{session: "-"}
	play(t, s, func(c *client) {
		c.conn.Close()
		if n := len(s.of("DELETE")); n != 0 {
			t.Errorf("%d DELETEs", n)
		}
	})
}

func TestReadHeedsItsContext(t *testing.T) {
	s := &server{}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		conn, err := (&mcptransport.Transport{Endpoint: s.URL}).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		if _, err := conn.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read: %v", err)
		}
		conn.Close()
	})
}

func TestThePreparationFails(t *testing.T) {
	s := &server{}
	revoked := errors.New("the token is revoked")
	broken := false
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		c := dial(t, s, func(tr *mcptransport.Transport) {
			tr.Client.Prepare = func(*http.Request) error {
				if broken {
					return revoked
				}
				return nil
			}
		})
		c.handshake()
		broken = true
		if err := c.notify("notifications/progress", `{}`); !errors.Is(err, revoked) {
			t.Errorf("notification: %v", err)
		}
		c.call().failed(t, 0, revoked)
		broken = false
		c.ping()
		broken = true
		if err := c.conn.Close(); !errors.Is(err, revoked) {
			t.Errorf("Close: %v", err)
		}
		<-c.over
	})
}

func TestDisableStandby(t *testing.T) {
	s := &server{}
	play(t, s, func(c *client) {
		c.ping()
		synctest.Wait()
		if n := len(s.of("standby")); n != 0 {
			t.Errorf("%d GETs", n)
		}
	}, func(tr *mcptransport.Transport) { tr.DisableStandby = true })
}

// No error shows the query of the endpoint, which may hold secrets.
func TestErrorsDoNotShowTheQuery(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // nobody listens there now
	conn, err := (&mcptransport.Transport{Endpoint: server.URL + "/mcp?token=SECRET"}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Write(t.Context(), &jsonrpc.Request{Method: "notifications/progress"})
	if err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("got %v", err)
	}
}

func TestResumeWhatCannotBeResumed(t *testing.T) {
	tr := &mcptransport.Transport{Endpoint: "http://server.test/"}
	for _, p := range []mcptransport.Position{
		{ProtocolVersion: "2025-11-25"},
		{ProtocolVersion: newVersion, LastEventID: "p1"},
	} {
		n := 0
		for msg, err := range tr.Resume(t.Context(), p) {
			if n++; msg != nil || !errors.Is(err, mcptransport.ErrLost) || !errors.Is(err, policy.ErrNotResumable) {
				t.Errorf("got %v, %v; want ErrLost for ErrNotResumable", msg, err)
			}
		}
		if n != 1 {
			t.Errorf("%d rounds, want 1", n)
		}
	}
}

func TestResumeBringsTheAnswer(t *testing.T) {
	s := &server{}
	s.resumes = [][]Step{{M("m1", 1)}, {Event{ID: "m2", Data: `{"jsonrpc":"2.0","id":7,"result":` + toolResult + `}`}, Stall}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		tr := &mcptransport.Transport{Endpoint: s.URL, Policy: exactly}
		tr.Client.HTTPClient = s.Client()
		var got []string
		for msg, err := range tr.Resume(t.Context(), position("p0")) {
			switch msg := msg.(type) {
			case *jsonrpc.Request:
				got = append(got, msg.Method)
			case *jsonrpc.Response:
				got = append(got, string(msg.Result))
			default:
				t.Error(err)
			}
		}
		if diff := cmp.Diff([]string{"notifications/progress", toolResult}, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"p0", "m1"}, ids(s.of("resume"))); diff != "" {
			t.Error(diff)
		}
		s.checkHeaders(t)
		synctest.Wait()
		if r := s.of("resume")[1]; !r.ClientLeft {
			t.Error("the stream is still open")
		}
	})
}

// The session may be gone when the process comes back.
func TestResumeInASessionThatIsGone(t *testing.T) {
	s := &server{}
	s.resumes = [][]Step{{Status{Code: 404}}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		tr := &mcptransport.Transport{Endpoint: s.URL}
		tr.Client.HTTPClient = s.Client()
		for _, err := range tr.Resume(t.Context(), position("p0")) {
			if !errors.Is(err, mcp.ErrSessionMissing) {
				t.Errorf("got %v, want ErrSessionMissing", err)
			}
		}
	})
}

func TestLeavingAResumedCall(t *testing.T) {
	s := &server{}
	s.resumes = [][]Step{{M("", 0), M("m1", 1), M("", 0), M("m2", 2), Stall}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		var positions []string
		tr := &mcptransport.Transport{Endpoint: s.URL, OnPosition: func(p mcptransport.Position) { positions = append(positions, p.LastEventID) }}
		tr.Client.HTTPClient = s.Client()
		n := 0
		for range tr.Resume(t.Context(), position("p0")) {
			if n++; n == 4 {
				break
			}
		}
		// The last message may not have been dealt with, and two have moved nothing.
		if diff := cmp.Diff([]string{"m1"}, positions); diff != "" {
			t.Errorf("positions (-want +got):\n%s", diff)
		}
		synctest.Wait()
		if r := s.of("resume")[0]; !r.ClientLeft {
			t.Error("the stream is still open")
		}
	})
}

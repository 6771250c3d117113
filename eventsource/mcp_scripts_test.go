package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// The tests named TestMCPScript… play what has gone wrong between clients and
// servers of MCP, the Model Context Protocol, whose streams are resumed as those of
// this package are: each is a server's script, and what a client ought to make of
// it. They run in bubbles, with net/http's client and server over a network in
// memory, so times are exact.
//
// A call is a POST whose response, an event stream, is adopted; GETs resume it. It
// is over when its answer has come. The standby stream is begun by a GET.

// What servers send.
const mcpAnswer = `{"jsonrpc":"2.0","id":1,"result":{}}`

var mcpAnswers = Event{Data: mcpAnswer}

// mcpPrime is a priming event: an ID, a reconnection time, and data that is empty
// but there.
func mcpPrime(id string, retry int) Step {
	return Send(fmt.Sprintf("id: %s\nretry: %d\ndata:\n\n", id, retry))
}

func mcpProgress(id string) Step {
	return Event{ID: id, Data: `{"jsonrpc":"2.0","method":"notifications/progress"}`}
}

// An mcpWaiter is who waits for the answer to a call, or listens on the standby
// stream.
type mcpWaiter struct {
	messages []string // data that is not empty
	events   int
	ids      []string // of events, where they are others than before
	answered bool
	err      error
	over     time.Duration // from the start
	done     int           // calls of Trace.Done
	ends     []policy.Attempt
}

// listen ranges over a stream until the answer has come.
func (w *mcpWaiter) listen(s *eventsource.Stream) {
	start := time.Now()
	defer func() { w.over = time.Since(start) }()
	for event, err := range s.Events() {
		if err != nil {
			w.err = err
			continue
		}
		w.events++
		if n := len(w.ids); n == 0 || w.ids[n-1] != event.LastEventID {
			w.ids = append(w.ids, event.LastEventID)
		}
		if event.Data != "" {
			w.messages = append(w.messages, event.Data)
		}
		if event.Data == mcpAnswer {
			w.answered = true
			break
		}
	}
}

// trace returns a Trace that tells w.
func (w *mcpWaiter) trace() *eventsource.Trace {
	return &eventsource.Trace{
		End:  func(a policy.Attempt) { w.ends = append(w.ends, a) },
		Done: func(error) { w.done++ },
	}
}

// mcpServer starts a server in memory for the rest of the test.
func mcpServer(t *testing.T, rest []Step, script ...[]Step) *Server {
	t.Helper()
	srv := &Server{Script: script, Rest: rest}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func mcpRequest(ctx context.Context, t *testing.T, method string, srv *Server) *http.Request {
	t.Helper()
	var req *http.Request
	var err error
	if method == http.MethodPost {
		req, err = http.NewRequestWithContext(ctx, method, srv.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
	} else {
		req, err = http.NewRequestWithContext(ctx, method, srv.URL+"/mcp", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodGet {
		req.Header.Del("Accept")
	}
	return req
}

// mcpCall makes a call and waits for its answer. The policy is MCPCall unless c
// has one.
func mcpCall(t *testing.T, srv *Server, c eventsource.Client) *mcpWaiter {
	t.Helper()
	resp, err := srv.Client().Do(mcpRequest(t.Context(), t, http.MethodPost, srv))
	if err != nil {
		t.Fatal(err)
	}
	w := new(mcpWaiter)
	if c.Policy == nil {
		c.Policy = policy.MCPCall
	}
	if c.HTTPClient == nil {
		c.HTTPClient = srv.Client()
	}
	c.Trace = w.trace()
	w.listen(c.Adopt(resp, mcpRequest(t.Context(), t, http.MethodGet, srv)))
	return w
}

// mcpListen listens on the standby stream until it ends or the context is done.
// The policy is MCPListen with a MaxFruitless of 5 unless c has one.
func mcpListen(ctx context.Context, t *testing.T, srv *Server, c eventsource.Client) *mcpWaiter {
	t.Helper()
	w := new(mcpWaiter)
	if c.Policy == nil {
		rules := policy.MCPListenRules()
		rules.MaxFruitless = 5
		c.Policy = func() policy.Reconnector { return policy.MCPListenWith(rules) }
	}
	if c.HTTPClient == nil {
		c.HTTPClient = srv.Client()
	}
	c.Trace = w.trace()
	w.listen(c.Stream(mcpRequest(ctx, t, http.MethodGet, srv)))
	return w
}

// An mcpGet is a GET that a client is to send: with what token, "-" for none, and
// after how long a wait: least, and at most least and its share.
type mcpGet struct {
	token string
	least time.Duration
	share float64 // that randomness may add
}

// mcpExactGets are GETs with a token, after exact waits.
func mcpExactGets(token string, waits ...time.Duration) (gets []mcpGet) {
	for _, wait := range waits {
		gets = append(gets, mcpGet{token, wait, 0})
	}
	return gets
}

// mcpOwnGets are GETs with a token, after waits that the client has chosen.
func mcpOwnGets(token string, waits ...time.Duration) (gets []mcpGet) {
	for _, wait := range waits {
		gets = append(gets, mcpGet{token, wait, 0.25})
	}
	return gets
}

// checkMCPGets checks the requests after the first, and that no other comes within a
// quarter of an hour.
func checkMCPGets(t *testing.T, srv *Server, want []mcpGet) {
	t.Helper()
	time.Sleep(15 * time.Minute)
	requests := srv.Requests()[1:]
	if len(requests) != len(want) {
		t.Errorf("%d GETs follow, not %d", len(requests), len(want))
		return
	}
	for i, r := range requests {
		token := "-"
		if r.HasLastEventID {
			token = r.LastEventID
		}
		if token != want[i].token && !r.Refused {
			t.Errorf("GET %d goes on from %q, not from %q", i+1, token, want[i].token)
		}
		// Growth is rounded down to nanoseconds.
		most := want[i].least + time.Duration(float64(want[i].least)*want[i].share)
		if r.Gap < want[i].least-time.Microsecond || r.Gap > most {
			t.Errorf("GET %d comes after %v, not after %v to %v", i+1, r.Gap, want[i].least, most)
		}
	}
}

func (w *mcpWaiter) checkAnswered(t *testing.T, messages ...string) {
	t.Helper()
	if w.err != nil || !w.answered || w.done != 1 {
		t.Errorf("no answer but %v (%d ends)", w.err, w.done)
	}
	if diff := cmp.Diff(append(messages, mcpAnswer), w.messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// checkStopped checks that the stream has ended with a reason, at a time.
func (w *mcpWaiter) checkStopped(t *testing.T, reason error, at time.Duration) {
	t.Helper()
	var stop *eventsource.StopError
	if !errors.As(w.err, &stop) || !errors.Is(stop.Reason, reason) || w.answered || w.done != 1 {
		t.Errorf("it ends with %v, not with %v (%d ends)", w.err, reason, w.done)
	}
	if at >= 0 && w.over != at {
		t.Errorf("it ends at %v, not at %v", w.over, at)
	}
}

// checkRefused checks that the stream has ended with a response, at a time.
func (w *mcpWaiter) checkRefused(t *testing.T, status int, at time.Duration) {
	t.Helper()
	var response *eventsource.ResponseError
	if !errors.As(w.err, &response) || response.StatusCode != status || w.answered || w.done != 1 {
		t.Errorf("it ends with %v, not with status %d (%d ends)", w.err, status, w.done)
	}
	if w.over != at {
		t.Errorf("it ends at %v, not at %v", w.over, at)
	}
}

func mcpBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// The waits of a run of fruitless attempts.
var mcpGrowth = []time.Duration{
	time.Second, 1500 * time.Millisecond, 2250 * time.Millisecond, 3375 * time.Millisecond, 5062500 * time.Microsecond,
}

// 1: a standby stream that is closed when idle reconnects for ever.
func TestMCPScript01(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{Open, Wait(50 * time.Millisecond)})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkStopped(t, policy.ErrExhausted, -1)
		checkMCPGets(t, srv, mcpOwnGets("-", mcpGrowth...))

		// What lives longer goes on, at the wait that it began with.
		srv = mcpServer(t, []Step{Open, Wait(15 * time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if w := mcpListen(ctx, t, srv, eventsource.Client{}); w.err != context.DeadlineExceeded {
			t.Errorf("it ends with %v", w.err)
		}
		waits := slices.Repeat([]time.Duration{time.Second}, len(srv.Requests())-1)
		if len(waits) < 220 {
			t.Errorf("%d GETs in an hour", len(waits))
		}
		checkMCPGets(t, srv, mcpOwnGets("-", waits...))
	})
}

// 2: the same with a call. A message on each connection is progress.
func TestMCPScript02(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		script := [][]Step{{mcpPrime("m0", 200)}}
		var want []mcpGet
		for i := range 100 {
			script = append(script, []Step{mcpProgress(fmt.Sprint("m", i+1))})
			want = append(want, mcpGet{fmt.Sprint("m", i), 200 * time.Millisecond, 0})
		}
		script[100] = []Step{mcpAnswers}
		srv := mcpServer(t, nil, script...)
		w := mcpCall(t, srv, eventsource.Client{})
		if w.err != nil || !w.answered || len(w.messages) != 100 {
			t.Errorf("%d messages, then %v", len(w.messages), w.err)
		}
		checkMCPGets(t, srv, want)
	})
}

// 3: progress is a message, not that a connection was made.
func TestMCPScript03(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{Open}, []Step{mcpProgress("a1")})
		w := mcpCall(t, srv, eventsource.Client{})
		w.checkStopped(t, policy.ErrExhausted, -1)
		var stop *eventsource.StopError
		if errors.As(w.err, &stop) && stop.Attempt.LastEventID != "a1" || !strings.HasSuffix(w.err.Error(), " 5") {
			t.Errorf("the error shows neither the count nor the last ID: %v", w.err)
		}
		// The first wait is the one after progress, the second that of the first
		// fruitless attempt.
		checkMCPGets(t, srv, mcpOwnGets("a1", append([]time.Duration{time.Second}, mcpGrowth[:4]...)...))
	})
}

// 4: a keep-alive without an ID is no progress, but a life of a minute is; and the
// end of the standby stream is no matter of the calls.
func TestMCPScript04(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		ping := Send("event: ping\ndata:\n\n")
		srv := mcpServer(t, []Step{ping, Wait(time.Minute)})
		ctx, cancel := context.WithTimeout(t.Context(), 36*time.Hour)
		defer cancel()
		if w := mcpListen(ctx, t, srv, eventsource.Client{}); w.err != context.DeadlineExceeded {
			t.Errorf("it ends with %v", w.err)
		}
		checkMCPGets(t, srv, mcpOwnGets("-", slices.Repeat([]time.Duration{time.Second}, len(srv.Requests())-1)...))

		// Shorter lives slow down, and end.
		srv = mcpServer(t, []Step{ping, Wait(100 * time.Millisecond)})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkStopped(t, policy.ErrExhausted, -1)
		checkMCPGets(t, srv, mcpOwnGets("-", mcpGrowth...))
		srv = mcpServer(t, nil, []Step{mcpPrime("p1", 100)}, []Step{mcpAnswers})
		mcpCall(t, srv, eventsource.Client{}).checkAnswered(t)
	})
}

// 5: a priming event is an event. Whoever parses JSON leaves out empty data.
func TestMCPScript05(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		for _, prime := range []string{
			"id: p1\nretry: 500\ndata:\n\n", "id: p1\nretry: 500\ndata: \n\n", "event: prime\nid: p1\nretry: 500\ndata:\n\n",
		} {
			srv := mcpServer(t, nil, []Step{Send(prime), mcpAnswers})
			w := mcpCall(t, srv, eventsource.Client{})
			w.checkAnswered(t)
			if w.events != 2 || !slices.Equal(w.ids, []string{"p1"}) {
				t.Errorf("%q: %d events with IDs %q", prime, w.events, w.ids)
			}
			checkMCPGets(t, srv, nil)
		}
	})
}

// 6: an empty reconnection keeps the token.
func TestMCPScript06(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{mcpPrime("p1", 200)}, []Step{Open}, []Step{mcpAnswers})
		mcpCall(t, srv, eventsource.Client{}).checkAnswered(t)
		checkMCPGets(t, srv, mcpExactGets("p1", 200*time.Millisecond, 200*time.Millisecond))
	})
}

// 7: a standby stream without IDs reconnects too.
func TestMCPScript07(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{Open, Wait(30 * time.Second), Cut}, []Step{mcpAnswers})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkAnswered(t)
		checkMCPGets(t, srv, mcpOwnGets("-", time.Second))
	})
}

// 8: a refusal that passes is one attempt, and not the end.
func TestMCPScript08(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		for _, code := range []int{503, 500, 502, 504, 429, 408} {
			srv := mcpServer(t, nil, []Step{mcpPrime("p1", 1500)}, []Step{Status{Code: code}}, []Step{mcpAnswers})
			mcpCall(t, srv, eventsource.Client{}).checkAnswered(t)
			checkMCPGets(t, srv, mcpExactGets("p1", 1500*time.Millisecond, 1500*time.Millisecond))
		}
	})
}

// 9 and 10: a server without a standby stream says so in many ways, and once.
func TestMCPScript09(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		for _, refusal := range []Status{
			{Code: 400},
			{Code: 404},
			{Code: 406},
			{Code: 501},
			{Code: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: "{}"},
		} {
			srv := mcpServer(t, []Step{refusal})
			mcpListen(t.Context(), t, srv, eventsource.Client{}).checkRefused(t, refusal.Code, 0)
			checkMCPGets(t, srv, nil)
		}
	})
}

func TestMCPScript10(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{Status{Code: 405}})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkRefused(t, 405, 0)
		checkMCPGets(t, srv, nil)
	})
}

// 11: plain text is no stream, on the first connection or on a later one.
func TestMCPScript11(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		text := []Step{Status{Header: http.Header{"Content-Type": {"text/plain"}}, Body: "see docs"}}
		srv := mcpServer(t, text)
		w := mcpListen(t.Context(), t, srv, eventsource.Client{})
		w.checkRefused(t, 200, 0)
		if !strings.Contains(w.err.Error(), "text/plain") {
			t.Errorf("it does not name the type: %v", w.err)
		}
		checkMCPGets(t, srv, nil)

		srv = mcpServer(t, text, []Step{mcpPrime("p1", 2000), mcpProgress("m1")})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkRefused(t, 200, 2*time.Second)
		checkMCPGets(t, srv, mcpExactGets("m1", 2*time.Second))
	})
}

// 12: a day-long retry does not park the caller, and what is left of the budget
// bounds a silent connection.
func TestMCPScript12(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{mcpAnswers}, []Step{mcpPrime("p1", 86_400_000)})
		w := mcpCall(t, srv, eventsource.Client{})
		var budget *policy.BudgetError
		if !errors.As(w.err, &budget) || budget.Asked != 24*time.Hour || budget.Left != 300*time.Second || w.over != 0 {
			t.Errorf("at %v: %v", w.over, w.err)
		}
		checkMCPGets(t, srv, nil)

		rules := policy.MCPCallRules()
		rules.Idle = -1
		srv = mcpServer(t, []Step{Open, Stall}, []Step{mcpPrime("p1", 1000)})
		w = mcpCall(t, srv, eventsource.Client{Policy: rules.New})
		if !errors.As(w.err, &budget) || !errors.Is(w.err, eventsource.ErrExpired) || w.over != 300*time.Second {
			t.Errorf("at %v: %v", w.over, w.err)
		}
		checkMCPGets(t, srv, mcpExactGets("p1", time.Second))

		// With the idle timeout there are several of them, and the same end.
		srv = mcpServer(t, []Step{Open, Stall}, []Step{mcpPrime("p1", 1000)})
		w = mcpCall(t, srv, eventsource.Client{})
		if !errors.As(w.err, &budget) || w.over != 300*time.Second {
			t.Errorf("at %v: %v", w.over, w.err)
		}
		checkMCPGets(t, srv, mcpExactGets("p1", slices.Repeat([]time.Duration{time.Second}, 10)...))
	})
}

// 13: retry: 0 is no licence to spin, and the floor no default.
func TestMCPScript13(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		rules := policy.MCPListenRules()
		rules.Factor, rules.MaxFruitless, rules.Jitter = 1, 0, -1 // it never backs off
		srv := mcpServer(t, []Step{Send("retry: 0\n\n")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mcpListen(ctx, t, srv, eventsource.Client{Policy: rules.New})
		if n := len(srv.Requests()); n != 10 {
			t.Errorf("%d GETs in the first second", n)
		}
		checkMCPGets(t, srv, mcpExactGets("-", slices.Repeat([]time.Duration{100 * time.Millisecond}, 9)...))

		srv = mcpServer(t, nil, []Step{Send("retry: 500\n\n")}, []Step{mcpAnswers})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkAnswered(t)
		checkMCPGets(t, srv, mcpExactGets("-", 500*time.Millisecond))
	})
}

// 14: retry and the token are obeyed.
func TestMCPScript14(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{mcpPrime("e1", 500), Wait(50 * time.Millisecond)}, []Step{mcpAnswers})
		mcpCall(t, srv, eventsource.Client{}).checkAnswered(t)
		checkMCPGets(t, srv, mcpExactGets("e1", 500*time.Millisecond))
	})
}

// 15: the waiter is told, and which of two things it is.
func TestMCPScript15(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{Comment("hi")})
		mcpCall(t, srv, eventsource.Client{}).checkStopped(t, policy.ErrNotResumable, 0)
		checkMCPGets(t, srv, nil)

		srv = mcpServer(t, []Step{Refuse}, []Step{mcpPrime("p1", 100)})
		w := mcpCall(t, srv, eventsource.Client{})
		w.checkStopped(t, policy.ErrExhausted, -1)
		ms := time.Millisecond
		checkMCPGets(t, srv, append(mcpExactGets("p1", 100*ms, 100*ms), mcpOwnGets("p1", 150*ms, 225*ms, 337500*time.Microsecond)...))
	})
}

// 16: the standby stream that gives up says so, once.
func TestMCPScript16(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{Refuse}, []Step{mcpProgress("")})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkStopped(t, policy.ErrExhausted, -1)
		checkMCPGets(t, srv, mcpOwnGets("-", append([]time.Duration{time.Second}, mcpGrowth[:4]...)...))
	})
}

// 17: a 404 after the stream has opened is an end that can be told from a 404 before.
func TestMCPScript17(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{Status{Code: 404}}, []Step{Open})
		w := mcpListen(t.Context(), t, srv, eventsource.Client{})
		var stop *eventsource.StopError
		if !errors.As(w.err, &stop) || stop.Attempt.Status != 404 || stop.Attempt.Number != 2 || w.ends[0].Open.IsZero() {
			t.Errorf("%v", w.err)
		}
		checkMCPGets(t, srv, mcpOwnGets("-", time.Second))
	})
}

// 18: a session that is gone is asked for once.
func TestMCPScript18(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{Status{Code: 404}})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkRefused(t, 404, 0)
		checkMCPGets(t, srv, nil)
	})
}

// 19: what every request must carry, every request carries.
func TestMCPScript19(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		var srv *Server
		demand := Do(func(c *Conn) {
			r := c.Request()
			want := fmt.Sprint("Bearer ", r.Number)
			if r.Header.Get("Authorization") != want || r.Header.Get("Mcp-Session-Id") != "s1" || r.Header.Get("MCP-Protocol-Version") != "2025-11-25" {
				c.Play(Status{Code: 401})
				return
			}
			if r.Number == 4 {
				c.Play(mcpAnswers)
				return
			}
			c.Play(mcpPrime("p", 100))
		})
		srv = mcpServer(t, []Step{demand})
		n := 0
		c := eventsource.Client{Prepare: func(req *http.Request) error {
			n++
			req.Header.Set("Authorization", fmt.Sprint("Bearer ", n))
			req.Header.Set("Mcp-Session-Id", "s1")
			req.Header.Set("MCP-Protocol-Version", "2025-11-25")
			return nil
		}}
		mcpListen(t.Context(), t, srv, c).checkAnswered(t)
		if len(srv.Requests()) != 4 {
			t.Errorf("%d requests", len(srv.Requests()))
		}
	})
}

// 20: a time limit on the HTTP client does not cut a stream.
func TestMCPScript20(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		var steps []Step
		for range 24 {
			steps = append(steps, Wait(time.Second), Comment("ka"))
		}
		srv := mcpServer(t, nil, append(steps, Wait(time.Second), mcpAnswers))
		limited := *srv.Client()
		limited.Timeout = 10 * time.Second
		w := mcpListen(t.Context(), t, srv, eventsource.Client{HTTPClient: &limited})
		w.checkAnswered(t)
		if w.over != 25*time.Second {
			t.Errorf("it comes at %v", w.over)
		}
		checkMCPGets(t, srv, nil)
	})
}

// 21: the context that counts is the stream's own, not that of the function which
// made it.
func TestMCPScript21(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{Open, Wait(8 * time.Second), mcpAnswers})
		connect, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		mcpListen(context.WithoutCancel(connect), t, srv, eventsource.Client{}).checkAnswered(t)
	})
}

// 22: headers that come with the first message come late; if they do not come, the
// attempt has failed.
func TestMCPScript22(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{Wait(20 * time.Second), mcpAnswers})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkAnswered(t)

		srv = mcpServer(t, []Step{Wait(time.Hour), mcpAnswers})
		w := mcpListen(t.Context(), t, srv, eventsource.Client{})
		w.checkStopped(t, policy.ErrExhausted, -1)
		for _, a := range w.ends {
			if a.Kind != policy.Failed || a.End.Sub(a.Start) != 30*time.Second {
				t.Errorf("attempt %d %v after %v", a.Number, a.Kind, a.End.Sub(a.Start))
			}
		}
		checkMCPGets(t, srv, mcpOwnGets("-", mcpGrowth...))
	})
}

// 23: a read that is blocked heeds a cancellation.
func TestMCPScript23(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		for _, http2 := range []bool{false, true} {
			srv := &Server{Rest: []Step{Open, Stall}, HTTP2: http2}
			srv.Start()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			w := mcpListen(ctx, t, srv, eventsource.Client{})
			if w.err != context.Canceled || w.over != time.Second {
				t.Errorf("at %v: %v", w.over, w.err)
			}
			synctest.Wait()
			if r := srv.Requests()[0]; !r.ClientLeft || !r.Ended.Equal(r.Arrived.Add(time.Second)) {
				t.Errorf("the server saw the client leave: %v, after %v", r.ClientLeft, r.Ended.Sub(r.Arrived))
			}
			srv.Close()
		}
	})
}

// 24: nothing is left of a burst that the consumer did not want.
func TestMCPScript24(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		burst := Send(strings.Repeat(mcpProgress("m").(Event).String(), 10_000))
		srv := mcpServer(t, nil, []Step{Event{Data: mcpAnswer}, burst, Stall})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkAnswered(t)
		synctest.Wait()
		if !srv.Requests()[0].ClientLeft {
			t.Error("the connection is still open")
		}
	})
}

// 25: long lines are delivered whole; one beyond the limit is the end, as a replay
// would bring it again.
func TestMCPScript25(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		for _, size := range []int{70_000, 2 << 20} {
			long := strings.Repeat("x", size)
			srv := mcpServer(t, nil, []Step{Event{ID: "1", Data: long}, mcpAnswers})
			mcpCall(t, srv, eventsource.Client{}).checkAnswered(t, long)
			checkMCPGets(t, srv, nil)

			srv = mcpServer(t, nil, []Step{mcpPrime("p1", 100), Event{ID: "1", Data: long}, mcpAnswers})
			mcpCall(t, srv, eventsource.Client{MaxEventSize: size - 1}).checkStopped(t, eventsource.ErrEventTooLarge, 0)
			checkMCPGets(t, srv, nil)
		}
	})
}

// 26: CRLF ends a line once, also between two writes.
func TestMCPScript26(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		for _, steps := range [][]Step{
			{Send("event: message\r\ndata: " + mcpAnswer + "\r\n\r\n"), Stall},
			{Send("event: message\r\ndata: " + mcpAnswer + "\r"), Send("\n\r"), Send("\n"), Stall},
			{Send("event: message\r"), Send("\ndata: " + mcpAnswer + "\r"), Send("\n\r\n"), Stall},
		} {
			srv := mcpServer(t, nil, steps)
			w := mcpCall(t, srv, eventsource.Client{})
			w.checkAnswered(t)
			if w.events != 1 {
				t.Errorf("%d events", w.events)
			}
		}
	})
}

// 27: a connection that has gone silent is given up.
func TestMCPScript27(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil,
			[]Step{mcpPrime("p1", 100), mcpProgress("m1"), mcpProgress("m2"), mcpProgress("m3"), Stall},
			[]Step{mcpAnswers})
		w := mcpCall(t, srv, eventsource.Client{IdleTimeout: 5 * time.Second})
		if w.err != nil || !w.answered || w.over != 5100*time.Millisecond || w.ends[0].Kind != policy.Idle {
			t.Errorf("at %v: %v", w.over, w.err)
		}
		checkMCPGets(t, srv, mcpExactGets("m3", 100*time.Millisecond))

		// It counts as fruitless only if nothing came on it.
		srv = mcpServer(t, []Step{Open, Stall}, []Step{mcpProgress("m1"), Stall})
		rules := policy.MCPCallRules()
		rules.Idle = 5 * time.Second
		w = mcpCall(t, srv, eventsource.Client{IdleTimeout: 5 * time.Second, Policy: rules.New})
		w.checkStopped(t, policy.ErrExhausted, -1)
		checkMCPGets(t, srv, mcpOwnGets("m1", append([]time.Duration{time.Second}, mcpGrowth[:4]...)...))
	})
}

// mcpChain is a stream with a fake clock and a real socket, on a goroutine of its
// own until it is over.
type mcpChain struct {
	mcpWaiter
	cancel context.CancelFunc
	over   chan struct{}
}

func startMCPChain(t *testing.T, srv *Server, fake *clock.Fake, newPolicy func() policy.Reconnector) *mcpChain {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	chain := &mcpChain{cancel: cancel, over: make(chan struct{})}
	c := eventsource.Client{HTTPClient: srv.Client(), Clock: fake, Policy: newPolicy, ConnectTimeout: -1, Trace: chain.trace()}
	s := c.Stream(mcpRequest(ctx, t, http.MethodGet, srv))
	go func() {
		defer close(chain.over)
		chain.listen(s)
	}()
	return chain
}

// mcpPending waits for n timers.
func mcpPending(t *testing.T, fake *clock.Fake, n int) {
	t.Helper()
	if err := fake.Wait(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// 28: no timer outlives its stream.
func TestMCPScript28(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(time.Time{})
	srv := &Server{Loopback: true, Clock: fake, Script: [][]Step{{Open}, {Open, Stall}}}
	srv.Start()
	defer srv.Close()
	rules := policy.MCPListenRules()
	rules.Jitter = -1

	old := startMCPChain(t, srv, fake, rules.New)
	mcpPending(t, fake, 1)
	fake.Advance(200 * time.Millisecond)
	old.cancel()
	<-old.over
	if d, ok := fake.Next(); ok {
		t.Errorf("a timer is left, for %v", d)
	}
	fake.Advance(200 * time.Millisecond)
	again := startMCPChain(t, srv, fake, rules.New)
	if err := srv.Await(t.Context(), func(rs []Request) bool { return len(rs) == 2 }); err != nil {
		t.Fatal(err)
	}
	fake.Advance(time.Hour)
	again.cancel()
	<-again.over
	if n := len(srv.Requests()); n != 2 || old.done != 1 || again.done != 1 {
		t.Errorf("%d requests, %d and %d ends", n, old.done, again.done)
	}
}

// 29: the token is one stream's, and goes with its GETs only.
func TestMCPScript29(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{mcpPrime("p1", 100)}, []Step{Status{Code: 202}}, []Step{mcpAnswers})
		unrelated := make(chan error, 1)
		go func() {
			time.Sleep(50 * time.Millisecond)
			resp, err := srv.Client().Do(mcpRequest(t.Context(), t, http.MethodPost, srv))
			if err == nil {
				err = resp.Body.Close()
			}
			unrelated <- err
		}()
		mcpCall(t, srv, eventsource.Client{}).checkAnswered(t)
		if err := <-unrelated; err != nil {
			t.Error(err)
		}
		var sent []string
		for _, r := range srv.Requests() {
			sent = append(sent, r.Method+" "+r.LastEventID)
		}
		if diff := cmp.Diff([]string{"POST ", "POST ", "GET p1"}, sent); diff != "" {
			t.Error(diff)
		}
	})
}

// 30: 409 says that the server has not noticed the end yet.
func TestMCPScript30(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		conflict := []Step{Status{Code: 409}}
		srv := mcpServer(t, nil, []Step{mcpProgress("m1"), Wait(30 * time.Second), Cut}, conflict, conflict, conflict, []Step{mcpAnswers})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkAnswered(t, mcpProgress("").(Event).Data)
		// It takes the server 4 s to notice: 1 + 1 + 1.5 s are too few.
		checkMCPGets(t, srv, mcpOwnGets("m1", time.Second, time.Second, 1500*time.Millisecond, 2250*time.Millisecond))

		srv = mcpServer(t, conflict, []Step{mcpProgress("m1"), Wait(30 * time.Second), Cut})
		w := mcpListen(t.Context(), t, srv, eventsource.Client{})
		w.checkStopped(t, policy.ErrExhausted, -1)
		var response *eventsource.ResponseError
		if !errors.As(w.err, &response) || response.StatusCode != 409 {
			t.Errorf("the conflict does not show: %v", w.err)
		}
		checkMCPGets(t, srv, mcpOwnGets("m1", append([]time.Duration{time.Second}, mcpGrowth[:4]...)...))
	})
}

// 31: a call that is resumed from a stored token is settled once, by whatever route
// and even if a callback panics.
func TestMCPScript31(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		for name, route := range map[string][]Step{"clean end": {Open}, "read error": {Open, Cut}, "failed attempt": {Refuse}} {
			for _, panics := range []bool{false, true} {
				srv := mcpServer(t, route, []Step{mcpProgress("m1")})
				w := new(mcpWaiter)
				c := eventsource.Client{HTTPClient: srv.Client(), Policy: policy.MCPCall, Trace: w.trace()}
				if panics {
					c.Trace.End = func(a policy.Attempt) {
						if a.Number == 3 {
							panic("the user's callback")
						}
					}
				}
				req := mcpRequest(t.Context(), t, http.MethodGet, srv)
				req.Header.Set("Last-Event-ID", "m0")
				func() {
					defer func() {
						if v := recover(); (v != nil) != panics {
							t.Errorf("%s: panic %v", name, v)
						}
					}()
					w.listen(c.Stream(req))
				}()
				if w.done != 1 || !slices.Equal(w.ids, []string{"m1"}) || errors.Is(w.err, policy.ErrExhausted) == panics {
					t.Errorf("%s: settled %d times with %v, and IDs %q were seen", name, w.done, w.err, w.ids)
				}
				if id := srv.Requests()[0].LastEventID; id != "m0" {
					t.Errorf("%s: it begins with the token %q", name, id)
				}
			}
		}
	})
}

// 32: streams are cancelled each for itself, and all of them can be.
func TestMCPScript32(t *testing.T) {
	t.Parallel()
	fake := clock.NewFake(time.Time{})
	var chains []*mcpChain
	for _, wait := range []time.Duration{10 * time.Second, 3 * time.Second} {
		srv := &Server{Loopback: true, Clock: fake, Script: [][]Step{{Open}}}
		srv.Start()
		defer srv.Close()
		chains = append(chains, startMCPChain(t, srv, fake, policy.Rules{Delay: wait, Jitter: -1}.New))
	}
	mcpPending(t, fake, 2)
	for _, chain := range chains {
		chain.cancel()
		<-chain.over
	}
	if d, ok := fake.Next(); ok {
		t.Errorf("a timer is left, for %v", d)
	}
	if chains[0].done != 1 || chains[1].done != 1 {
		t.Errorf("%d and %d ends", chains[0].done, chains[1].done)
	}
}

// 33: to close is to send nothing, so a silent peer holds nobody up.
func TestMCPScript33(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{Wait(time.Hour)}, []Step{Open, Stall})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if w := mcpListen(ctx, t, srv, eventsource.Client{}); w.over != time.Second {
			t.Errorf("it takes %v", w.over)
		}
		checkMCPGets(t, srv, nil)
	})
}

// 34 to 36: a GET that cannot resume is the end at once, and says why.
func TestMCPScript34(t *testing.T) { mcpCannotResume(t, Status{Code: 405}, "405") }

func TestMCPScript35(t *testing.T) { mcpCannotResume(t, Status{Code: 404}, "404") }

func TestMCPScript36(t *testing.T) {
	mcpCannotResume(t, Status{Code: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: "hello"}, "text/plain")
}

func mcpCannotResume(t *testing.T, refusal Status, says string) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{refusal}, []Step{mcpPrime("p1", 200)})
		w := mcpCall(t, srv, eventsource.Client{})
		w.checkRefused(t, refusal.Code, 200*time.Millisecond)
		if !strings.Contains(w.err.Error(), says) {
			t.Errorf("%v does not say %s", w.err, says)
		}
		checkMCPGets(t, srv, mcpExactGets("p1", 200*time.Millisecond))
	})
}

// 37: a reconnection time is one stream's.
func TestMCPScript37(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		standby := mcpServer(t, nil, []Step{Retry(3 * time.Second), Stall})
		ctx, cancel := context.WithCancel(t.Context())
		var listening sync.WaitGroup
		listening.Go(func() { mcpListen(ctx, t, standby, eventsource.Client{}) })
		synctest.Wait()
		srv := mcpServer(t, nil, []Step{Event{ID: "p1"}}, []Step{mcpAnswers})
		mcpCall(t, srv, eventsource.Client{}).checkAnswered(t)
		checkMCPGets(t, srv, mcpOwnGets("p1", time.Second))
		cancel()
		listening.Wait()
	})
}

// 38: priming only, with IDs that move: polling, which the budget bounds, for a
// call; fruitless for the standby stream.
func TestMCPScript38(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		prime := Do(func(c *Conn) { c.Play(mcpPrime(fmt.Sprint("p", c.Request().Number-1), 200)) })
		srv := mcpServer(t, []Step{prime})
		w := mcpCall(t, srv, eventsource.Client{})
		var budget *policy.BudgetError
		if !errors.As(w.err, &budget) || w.over != 300*time.Second-200*time.Millisecond {
			t.Errorf("at %v: %v", w.over, w.err)
		}
		var want []mcpGet
		for i := range 1499 {
			want = append(want, mcpGet{fmt.Sprint("p", i), 200 * time.Millisecond, 0})
		}
		checkMCPGets(t, srv, want)

		srv = mcpServer(t, []Step{prime})
		mcpListen(t.Context(), t, srv, eventsource.Client{}).checkStopped(t, policy.ErrExhausted, -1)
		ms := time.Millisecond
		checkMCPGets(t, srv, []mcpGet{
			{"p0", 200 * ms, 0},
			{"p1", 300 * ms, 0.25},
			{"p2", 450 * ms, 0.25},
			{"p3", 675 * ms, 0.25},
			{"p4", 1012500 * time.Microsecond, 0.25},
		})
	})
}

// 39: data is the reader's business.
func TestMCPScript39(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{Event{ID: "p1", Data: "{}"}, mcpAnswers})
		mcpCall(t, srv, eventsource.Client{}).checkAnswered(t, "{}")
		checkMCPGets(t, srv, nil)
	})
}

// 40: a stream that is left open after the answer is closed by whoever has it.
func TestMCPScript40(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{mcpAnswers, Stall})
		for range 20 {
			mcpCall(t, srv, eventsource.Client{}).checkAnswered(t)
		}
		synctest.Wait()
		for _, r := range srv.Requests() {
			if !r.ClientLeft || r.Method != http.MethodPost {
				t.Errorf("request %d, a %s: the client has left: %v", r.Number, r.Method, r.ClientLeft)
			}
		}
	})
}

// 41: with neither an ID nor an answer there is no way to go on.
func TestMCPScript41(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, []Step{mcpAnswers}, []Step{Comment("hi"), Wait(time.Second)})
		mcpCall(t, srv, eventsource.Client{}).checkStopped(t, policy.ErrNotResumable, time.Second)
		checkMCPGets(t, srv, nil)
	})
}

// 42: what is not made of digits alone is no reconnection time.
func TestMCPScript42(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		for _, value := range []string{"+100", "-5", "1e3", "500ms", "  500", "", "\uff11\uff10\uff10"} {
			srv := mcpServer(t, nil, []Step{Send("id: p1\nretry: " + value + "\ndata:\n\n")}, []Step{mcpAnswers})
			mcpCall(t, srv, eventsource.Client{}).checkAnswered(t)
			checkMCPGets(t, srv, mcpOwnGets("p1", time.Second))
		}
	})
}

// 43: a line without a colon is a field with an empty value.
func TestMCPScript43(t *testing.T) {
	mcpBubble(t, func(t *testing.T) {
		srv := mcpServer(t, nil, []Step{Send("id: p1\ndata\n\n"), mcpAnswers})
		w := mcpCall(t, srv, eventsource.Client{})
		w.checkAnswered(t)
		if w.events != 2 || !slices.Equal(w.ids, []string{"p1"}) {
			t.Errorf("%d events with IDs %q", w.events, w.ids)
		}
	})
}

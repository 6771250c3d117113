package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/vectors"
	"github.com/reprise-sse/reprise/policy"
)

// This file compares with the vectors over real sockets, on a fake clock: it replays
// the network vectors of wpt.jsonl, and what a browser was seen to do about statuses,
// types, redirects and network errors, against a Client with all its defaults.

// The two host names of the server.
const (
	origin1 = "http://origin1.test"
	origin2 = "http://origin2.test"
)

func TestVectorsNetwork(t *testing.T) {
	for _, v := range must(t, vectors.Networks) {
		t.Run(v.Name, func(t *testing.T) {
			switch {
			case v.Construct.FromBytes != nil:
				replayFromBytes(t, v)
			case v.Construct.Error && !v.Construct.OrTrace:
				replayConstructorError(t, v)
			default:
				replay(t, v)
			}
		})
	}
}

// replayFromBytes is for a client that is given bytes and no server: a Decoder.
// Whatever it reads, there are no requests.
func replayFromBytes(t *testing.T, v vectors.Network) {
	var trace []vectors.Report
	for e, err := range eventsource.NewDecoder(bytes.NewReader(v.Construct.FromBytes)).Events() {
		if err != nil {
			trace = append(trace, vectors.Report{T: "error", State: "closed"})
			break
		}
		trace = append(trace, eventReport(e))
	}
	agree(t, v.Name, cmp.Diff(v.Trace, trace))
}

func replayConstructorError(t *testing.T, v vectors.Network) {
	n := 0
	for _, err := range eventsource.Get(t.Context(), v.URL) {
		n++
		if err == nil {
			t.Error("no error")
		}
	}
	if n != 1 {
		t.Errorf("the stream yielded %d times, want one error", n)
	}
}

func eventReport(e eventsource.Event) vectors.Report {
	return vectors.Report{T: "event", Event: vectors.Event{Type: e.Type, Data: e.Data, LastEventID: e.LastEventID}}
}

// errLeft is the cause of a context's end that stands for the caller's leaving the
// loop when that is not in the loop.
var errLeft = errors.New("the caller has left")

// errStuck is the cause of a context's end when client and server wait for each
// other for ever, which is a failure of the vector, and no reason to hang.
var errStuck = errors.New("nothing is left to happen")

// errExtra is the cause after a request that the vector does not have.
var errExtra = errors.New("a request too many")

// A replayer observes a stream as a network vector's trace does, and does what the
// vector wants the caller to do.
type replayer struct {
	vector vectors.Network
	server *wireServer
	cancel context.CancelCauseFunc

	trace  []vectors.Report
	urls   []string       // that the client says it asked for
	finals []string       // that it says its streams came from
	count  map[string]int // reports of each kind
	left   bool           // the loop body is to leave the loop

	mu       sync.Mutex
	problems []string          // seen by the server
	answered map[int]time.Time // when each answer was over
}

func replay(t *testing.T, v vectors.Network) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r := &replayer{vector: v, cancel: cancel, count: map[string]int{}, answered: map[int]time.Time{}}
	r.server = newWireServer(t, r.answer)

	idle, stopIdle := context.WithCancel(context.Background())
	driven := make(chan struct{})
	go func() {
		defer close(driven)
		r.server.advanceWhenIdle(idle, func() { cancel(errStuck) })
	}()

	client := eventsource.Client{
		HTTPClient:   &http.Client{Transport: r.server},
		Clock:        r.server.clock,
		IdleTimeout:  v.Options.ReadTimeout,
		MaxEventSize: v.Options.MaxEventBytes,
		Policy:       policy.Rules{Delay: v.Options.ReconnectionTime, Jitter: -1, Floor: -1},
		Trace: traceOf(&eventsource.Trace{
			Connect: func(c eventsource.ConnectInfo) { r.urls = append(r.urls, c.Request.URL.Path) },
			Open: func(o eventsource.OpenInfo) {
				r.finals = append(r.finals, o.URL.Path)
				r.report(vectors.Report{T: "open"})
			},
			Wait: func(w eventsource.WaitInfo) {
				r.report(vectors.Report{T: "error", State: "connecting"})
				if ctx.Err() == nil {
					r.server.clock.Advance(w.Waited)
				}
			},
		}),
	}
	if v.Options.ReconnectionTime == 0 {
		client.Policy = policy.Rules{Delay: 10 * time.Millisecond, Jitter: -1, Floor: -1}
	}

	r.act("start")
	var end error
	for e, err := range client.Stream(r.request(ctx)).Events() {
		if err != nil {
			end = err
			break
		}
		r.report(eventReport(e))
		if r.left {
			break
		}
	}
	switch {
	case r.left, errors.Is(end, errLeft):
		r.trace = append(r.trace, vectors.Report{T: "closed"})
	case end != nil, v.OrderlyEndOK:
		r.trace = append(r.trace, vectors.Report{T: "error", State: "closed"})
	default:
		r.trace = append(r.trace, vectors.Report{T: "end"})
	}
	stopIdle()
	<-driven

	// Nothing more happens: all timers were the server's, and are stopped with it.
	r.server.close()
	if d, ok := r.server.clock.Next(); ok {
		t.Errorf("after the end a timer is pending, due in %v", d)
	}
	r.check(t, end)
}

func (r *replayer) request(ctx context.Context) *http.Request {
	target := r.vector.URL
	if strings.HasPrefix(target, "/") {
		target = origin1 + target
	}
	options := r.vector.Options
	method := options.Method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if options.Body != "" {
		req, err = http.NewRequestWithContext(ctx, method, target, strings.NewReader(options.Body))
	}
	if err != nil {
		panic(err)
	}
	for name, value := range options.Headers {
		req.Header.Set(name, value)
	}
	if options.LastEventID != nil {
		req.Header.Set("Last-Event-ID", *options.LastEventID)
	}
	return req
}

// report adds to the trace and does what is to be done on it.
func (r *replayer) report(report vectors.Report) {
	r.trace = append(r.trace, report)
	r.act(report.T)
}

func (r *replayer) act(on string) {
	r.count[on]++
	for _, a := range r.vector.Actions {
		if a.On != on || a.Nth != 0 && a.Nth != r.count[on] {
			continue
		}
		do := func() { r.cancel(nil) }
		if a.Do == "close" {
			do = func() { r.cancel(errLeft) }
		}
		switch {
		case a.After > 0:
			r.server.clock.AfterFunc(a.After, do)
		case a.Do == "close" && on == "event":
			r.left = true
		default:
			do()
		}
	}
}

// answer is what the server does with request n.
func (r *replayer) answer(n int, req wireRequest) wireAnswer {
	ending := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answered[n] = r.server.clock.Now()
	}
	if n >= len(r.vector.Server) {
		r.cancel(errExtra) // or it might come again for ever
		return wireAnswer{Drop: true, Ending: ending}
	}
	a := r.vector.Server[n]
	if a.Expect != nil {
		r.expect(n, req, *a.Expect)
	}
	host := strings.TrimPrefix(origin1, "http://")
	if a.Host == "origin2" {
		host = strings.TrimPrefix(origin2, "http://")
	}
	if got := req.lines("Host"); !slices.Equal(got, []string{host}) {
		r.problem("request %d: Host is %q, want %q", n+1, got, host)
	}
	w := wireAnswer{
		Drop: a.Drop, Delay: a.Delay, Status: a.Status, Body: vectors.Chunked,
		Parts: a.Chunks, Hold: a.End == "open", Cut: a.End == "abort", Ending: ending,
	}
	if a.Status == http.StatusNoContent || a.Status == http.StatusNotModified {
		w.Body = vectors.NoBody
	}
	for _, h := range a.Headers {
		w.Headers = append(w.Headers, h[0]+": "+strings.ReplaceAll(h[1], "{origin2}", origin2))
	}
	return w
}

func (r *replayer) expect(n int, req wireRequest, want vectors.Expect) {
	for _, x := range []struct{ what, got, want string }{
		{"method", req.Method, want.Method},
		{"path", req.Path, want.Path},
		{"body", req.Body, want.Body},
	} {
		if x.want != "" && x.got != x.want {
			r.problem("request %d: the %s is %q, want %q", n+1, x.what, x.got, x.want)
		}
	}
	for name, value := range want.Headers {
		lines := req.lines(name)
		switch {
		case value == nil && len(lines) != 0:
			r.problem("request %d: %s is %q, must be absent", n+1, name, lines)
		case value != nil && !slices.Equal(lines, []string{*value}):
			r.problem("request %d: %s is %q, want %q", n+1, name, lines, *value)
		}
	}
}

func (r *replayer) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// check compares everything with the vector once the stream and the server are
// over.
func (r *replayer) check(t *testing.T, end error) {
	t.Helper()
	v := r.vector
	for _, p := range r.problems {
		t.Error(p)
	}
	requests := r.server.log()
	total := v.RequestsTotal
	diff := cmp.Diff(v.Trace, r.trace)
	if diff != "" && slices.ContainsFunc(v.AcceptAlso, func(also []vectors.Report) bool { return cmp.Equal(also, r.trace) }) {
		diff = ""
		total = min(total, len(requests)) // the vector counts those of its first trace
	}
	if len(requests) != total {
		diff += fmt.Sprintf("%d requests, want %d\n", len(requests), total)
	}
	agree(t, v.Name, diff)

	for _, d := range v.Delays {
		if d.BeforeRequest > len(requests) {
			continue // counted above
		}
		wait := requests[d.BeforeRequest-1].At.Sub(r.answered[d.BeforeRequest-2])
		if wait < d.Min || d.Max != 0 && wait > d.Max {
			t.Errorf("request %d comes after %v, want %v to %v", d.BeforeRequest, wait, d.Min, d.Max)
		}
	}

	if want := v.Reports; want.URL != "" {
		if !slices.Equal(r.urls, []string{want.URL}) {
			t.Errorf("the client asked for %q, want %q", r.urls, want.URL)
		}
		if !slices.Equal(r.finals, []string{want.FinalURL}) {
			t.Errorf("the stream came from %q, want %q", r.finals, want.FinalURL)
		}
	}
	if want := v.Reports; want.Status != 0 {
		var refused *eventsource.ResponseError
		if !errors.As(end, &refused) {
			t.Fatalf("the end is %v, want a ResponseError", end)
		}
		if refused.StatusCode != want.Status {
			t.Errorf("the error has the status %d, want %d", refused.StatusCode, want.Status)
		}
		for name, value := range want.ResponseHeaders {
			if got := refused.Header.Get(name); got != value {
				t.Errorf("the error has %s %q, want %q", name, got, value)
			}
		}
	}
}

// The reasons for differences in HTTP; the table of package vectors has the words.
const (
	reasonCharset  = "charset other than utf-8"
	reasonTimeout  = "408 ends the stream"
	reasonResend   = "resent at once"
	reasonRedirect = "redirect not remembered"
)

func TestVectorsBrowserHTTP(t *testing.T) {
	for _, v := range must(t, vectors.BrowserHTTP) {
		t.Run(v.ID, func(t *testing.T) {
			ours := httpAnswer(t, v)
			agree(t, v.ID, cmp.Diff(browserAnswer(v), ours, answerOptions))

			reason := must(t, vectors.Differences)[v.ID]
			if reason == "" {
				return
			}
			want, ok := differently(v, reason)
			if !ok {
				t.Fatalf("listed under %q, which is no reason for a difference in HTTP", reason)
			}
			if diff := cmp.Diff(want, ours, answerOptions); diff != "" {
				t.Errorf("%q is not the whole reason (-browser without it +ours):\n%s", reason, diff)
			}
		})
	}
}

// httpAnswer runs the stream of a script.
func httpAnswer(t *testing.T, v vectors.Browser) (a answer) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		attempts atomic.Int32 // that have begun
		inForce  atomic.Int64 // the reconnection time, as of the last attempt's end
		last     int32        // of the request before this, for the server
	)
	server := newWireServer(t, func(n int, req wireRequest) wireAnswer {
		attempt := attempts.Load()
		if n > 0 {
			r := reconnect{LastEventID: "absent", Path: req.Path}
			if r.Path == "/stream" {
				r.Path = ""
			}
			if lines := req.lines("Last-Event-ID"); len(lines) > 0 {
				r.LastEventID = `"` + lines[0] + `"`
			}
			if attempt != last { // else it is a redirect's, which comes at once
				r.Retry = measured(time.Duration(inForce.Load()))
			}
			a.Reconnects = append(a.Reconnects, r)
		}
		last = attempt
		if n >= len(v.Connections) {
			return wireAnswer{Status: http.StatusNoContent, Body: vectors.NoBody}
		}
		c := v.Connections[n]
		w := wireAnswer{Drop: c.Status == -1, Status: c.Status, Headers: c.Headers, Body: c.Body, Cut: c.Cut}
		for _, b := range c.Chunks {
			w.Parts = append(w.Parts, vectors.Part{Bytes: b})
		}
		return w
	})
	var end policy.Attempt
	client := eventsource.Client{
		HTTPClient: &http.Client{Transport: server},
		Clock:      server.clock,
		Trace: traceOf(&eventsource.Trace{
			Connect: func(c eventsource.ConnectInfo) { attempts.Store(int32(c.Number)) },
			Open:    func(eventsource.OpenInfo) { a.Opens++ },
			End: func(attempt policy.Attempt) {
				end = attempt
				inForce.Store(int64(browserDefaultRetry))
				if attempt.HasRetry {
					inForce.Store(int64(attempt.Retry))
				}
			},
			Wait: func(w eventsource.WaitInfo) { server.clock.Advance(w.Waited) },
		}),
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin1+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range client.Stream(req).Events() {
		if err != nil {
			if end.Status == http.StatusNoContent {
				t.Errorf("the end after a 204 is %v", err)
			}
			break
		}
		a.Events = append(a.Events, vectors.Event{Connection: a.Opens - 1, Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
	}
	server.close()
	a.Outcome = vectors.Failed
	if end.Status == http.StatusNoContent && len(server.log()) == len(v.Connections)+1 {
		a.Outcome = vectors.Closed // by the 204 after the script
	}
	return a
}

// differently returns a browser's answer without what the reason says: what ours
// must then be.
func differently(v vectors.Browser, reason string) (answer, bool) {
	a := browserAnswer(v)
	switch reason {
	case reasonCharset:
		// As the vector with the same script and the plain type.
		a.Events = []vectors.Event{{Type: "message", Data: "é"}, {Connection: 1, Type: "message", Data: "y"}}
		a.Reconnects = []reconnect{{"absent", 200 * time.Millisecond, ""}, {"absent", 200 * time.Millisecond, ""}}
		a.Outcome, a.Opens = vectors.Closed, 2
	case reasonTimeout:
		// As with any other status: what came before the 408 is all there is.
		before := 0
		for v.Connections[before].Status != http.StatusRequestTimeout {
			before++
		}
		a.Events, a.Reconnects = a.Events[:before], a.Reconnects[:before]
		a.Outcome, a.Opens = vectors.Failed, before
	case reasonResend:
		a = referenceAnswer(v, false)
	case reasonRedirect:
		for i, r := range a.Reconnects {
			if r.Retry != 0 { // no redirect's, but a new attempt's
				a.Reconnects[i].Path = ""
			}
		}
	default:
		return a, false
	}
	return a, true
}

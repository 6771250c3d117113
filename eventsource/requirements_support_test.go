package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// The tests named TestR… hold what users of clients like this one have asked for
// after they had suffered: each requirement has a number, and the comment of its
// test says what it is. This file has what they share.
//
// Most run in a testing/synctest bubble, with all of net/http in place over a
// network in memory, so the times in them are exact and take none. Those whose
// point is the operating system's network use sockets.

// serve starts a server in memory for the rest of the test.
func serve(t *testing.T, script ...[]Step) *Server {
	t.Helper()
	return start(t, &Server{Script: script})
}

// start starts a server for the rest of the test.
func start(t *testing.T, srv *Server) *Server {
	t.Helper()
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// A watcher keeps what a stream's Trace is told.
type watcher struct {
	log   []string // one line for each call
	ends  []policy.Attempt
	waits []time.Duration // as waited
	asked []time.Duration
}

// trace returns the Trace that tells w. It serves one stream.
func (w *watcher) trace() *eventsource.Trace {
	say := func(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }
	return &eventsource.Trace{
		Connect: func(i eventsource.ConnectInfo) { say("connect %d", i.Number) },
		Open:    func(i eventsource.OpenInfo) { say("open %d: %d", i.Number, i.Status) },
		Comment: func(text string) { say("comment %q", text) },
		Retry:   func(d time.Duration) { say("retry %v", d) },
		End: func(a policy.Attempt) {
			w.ends = append(w.ends, a)
			if a.Status == 0 {
				say("end %d: %v", a.Number, a.Kind)
			} else {
				say("end %d: %v %d", a.Number, a.Kind, a.Status)
			}
		},
		Wait: func(i eventsource.WaitInfo) {
			w.waits = append(w.waits, i.Waited)
			w.asked = append(w.asked, i.Asked)
			say("wait %d: %v", i.Number, i.Waited)
		},
		Done: func(err error) { say("done: %v", err) },
	}
}

// advancing is trace for a stream whose clock stands still but for its waits: each
// is over as soon as it begins.
func (w *watcher) advancing(fake *clock.Fake) *eventsource.Trace {
	trace := w.trace()
	log := trace.Wait
	trace.Wait = func(i eventsource.WaitInfo) {
		log(i)
		fake.Advance(i.Waited)
	}
	return trace
}

// A session is what was seen of one stream from its start to its end.
type session struct {
	watcher
	events []eventsource.Event
	err    error
	took   time.Duration
}

// data returns the data of the events.
func (s *session) data() []string {
	var data []string
	for _, ev := range s.events {
		data = append(data, ev.Data)
	}
	return data
}

// play ranges over a stream of c from srv until it ends, which it must do by
// itself: a Server answers 204 once its script is over. If c has no HTTPClient it
// gets the server's. The edits are made to the request before.
func play(t *testing.T, srv *Server, c eventsource.Client, edits ...func(*http.Request)) *session {
	t.Helper()
	req := request(t.Context(), t, srv.URL+"/feed")
	for _, edit := range edits {
		edit(req)
	}
	return follow(srv, c, req)
}

// follow is play for a request of one's own.
func follow(srv *Server, c eventsource.Client, req *http.Request) *session {
	s := new(session)
	if c.HTTPClient == nil {
		c.HTTPClient = srv.Client()
	}
	c.Trace = s.trace()
	from := time.Now()
	for ev, err := range c.Stream(req).Events() {
		if err != nil {
			s.err = err
			continue
		}
		s.events = append(s.events, ev)
	}
	s.took = time.Since(from)
	return s
}

func request(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// header returns an edit that sets a header of the request.
func header(name, value string) func(*http.Request) {
	return func(req *http.Request) { req.Header.Set(name, value) }
}

// sentIDs returns the Last-Event-ID of each request, and "none" where there was no
// such header.
func sentIDs(srv *Server) []string {
	var ids []string
	for _, r := range srv.Requests() {
		if r.Refused {
			continue
		}
		if !r.HasLastEventID {
			r.LastEventID = "none"
		}
		ids = append(ids, r.LastEventID)
	}
	return ids
}

// gaps returns how long the client waited before each request after the first.
func gaps(srv *Server) []time.Duration {
	var gaps []time.Duration
	for _, r := range srv.Requests()[1:] {
		gaps = append(gaps, r.Gap)
	}
	return gaps
}

// exact returns rules without randomness, so that waits can be told in advance.
func exact(r policy.Rules) func() policy.Reconnector {
	r.Jitter = -1
	return r.New
}

// strict is what a Client without a Policy does, without randomness.
var strict = exact(policy.Rules{})

// resilient is policy.Resilient without randomness.
var resilient = exact(policy.ResilientRules())

// A bodyCounter is a RoundTripper that counts the responses it has passed on and
// those whose body has been closed.
type bodyCounter struct {
	base http.RoundTripper

	mu             sync.Mutex
	opened, closed int
}

func (c *bodyCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.opened++
	c.mu.Unlock()
	resp.Body = &countedBody{ReadCloser: resp.Body, closed: sync.OnceFunc(func() {
		c.mu.Lock()
		c.closed++
		c.mu.Unlock()
	})}
	return resp, nil
}

// open returns how many bodies are open.
func (c *bodyCounter) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened - c.closed
}

type countedBody struct {
	io.ReadCloser
	closed func()
}

func (b *countedBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// during ranges over a stream of c from srv for so long, then cancels its
// context, and yields its events. An error other than that of the context fails
// the test. It must run in a bubble.
func during(t *testing.T, c eventsource.Client, srv *Server, limit time.Duration) func(func(eventsource.Event) bool) {
	return func(yield func(eventsource.Event) bool) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		timer := time.AfterFunc(limit, func() { cancel(errEnough) })
		defer timer.Stop()
		for ev, err := range c.Stream(request(ctx, t, srv.URL)).Events() {
			switch {
			case err == errEnough:
			case err != nil:
				t.Errorf("the stream ended with %v", err)
			case !yield(ev):
				return
			}
		}
	}
}

var errEnough = errors.New("the test has seen enough")

// ignoreUnexported is for comparing a ResponseError, whose text is unexported.
var ignoreUnexported = cmpopts.IgnoreUnexported(eventsource.ResponseError{})

package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// This file has what tests share: servers, stand-ins for transports and bodies, and
// what keeps all that a stream does.
//
// Most tests run in a testing/synctest bubble, with all of net/http in place over a
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

// traceOf returns the constructor of a Trace that there is only one of, for clients with
// one stream.
func traceOf(t *eventsource.Trace) func(*http.Request) *eventsource.Trace {
	return func(*http.Request) *eventsource.Trace { return t }
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
	c.Trace = traceOf(s.trace())
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
func exact(r policy.Rules) policy.Rules {
	r.Jitter = -1
	return r
}

// strict is what a Client without a Policy does, without randomness.
var strict = exact(policy.Rules{})

// resilient is policy.Resilient without randomness.
var resilient = exact(policy.Resilient())

var errEnough = errors.New("the test has seen enough")

// ignoreUnexported is for comparing a ResponseError, whose text is unexported.
var ignoreUnexported = cmpopts.IgnoreUnexported(eventsource.ResponseError{})

// overNetworks runs f in a bubble for each kind of network in memory.
func overNetworks(t *testing.T, f func(t *testing.T, serve func(...[]Step) *Server)) {
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f(t, func(script ...[]Step) *Server { return start(t, &Server{HTTP2: http2, Script: script}) })
			})
		})
	}
}

// bubbleStart is where the time in a testing/synctest bubble starts.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func seconds(list ...float64) []time.Duration {
	var ds []time.Duration
	for _, s := range list {
		ds = append(ds, time.Duration(s*float64(time.Second)))
	}
	return ds
}

// repeated returns a script that does the same so many times.
func repeated(n int, steps ...Step) [][]Step { return slices.Repeat([][]Step{steps}, n) }

// numbered returns an event with the number as its ID and data.
func numbered(n int) Event { return Event{ID: strconv.Itoa(n), Data: strconv.Itoa(n)} }

// upTo returns the data of the events numbered from 1 to n.
func upTo(n int) []string {
	var data []string
	for i := range n {
		data = append(data, strconv.Itoa(i+1))
	}
	return data
}

// typed returns the header of a response with the given lines of Content-Type.
func typed(contentType ...string) http.Header { return http.Header{"Content-Type": contentType} }

// liveHeap returns the bytes of the heap that are in use.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what pools held during the first is gone after the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A roundTripperFunc is a function as a RoundTripper.
type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// wrapBodies returns base with the bodies of its responses wrapped.
func wrapBodies(base http.RoundTripper, wrap func(io.ReadCloser) io.ReadCloser) http.RoundTripper {
	return roundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err == nil {
			resp.Body = wrap(resp.Body)
		}
		return resp, err
	})
}

// A spiedBody is a body whose Read and Close are the functions, if they are not nil.
type spiedBody struct {
	io.ReadCloser
	read  func(p []byte) (int, error)
	close func() error
}

func (b *spiedBody) Read(p []byte) (int, error) {
	if b.read == nil {
		return b.ReadCloser.Read(p)
	}
	return b.read(p)
}

func (b *spiedBody) Close() error {
	if b.close == nil {
		return b.ReadCloser.Close()
	}
	return b.close()
}

// A bodyCounter is a RoundTripper that counts the requests it is given, those that
// come when the stream is over, the responses, and the bodies of these that are open.
type bodyCounter struct {
	base http.RoundTripper
	over atomic.Bool

	requests, late, opened, open atomic.Int32
}

func (c *bodyCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	if c.over.Load() {
		c.late.Add(1)
	}
	return wrapBodies(c.base, func(body io.ReadCloser) io.ReadCloser {
		c.opened.Add(1)
		c.open.Add(1)
		closed := sync.OnceFunc(func() { c.open.Add(-1) })
		return &spiedBody{ReadCloser: body, close: func() error {
			defer closed()
			return body.Close()
		}}
	}).RoundTrip(req)
}

// A roundTripper stands in for a transport where a test wants what no server of
// eventsourcetest can bring about: errors of its own choosing, bodies that are not
// net/http's. It answers the n-th request, from 0, by calling the n-th function, and
// every later one by calling the last.
type roundTripper struct {
	mu       sync.Mutex
	answers  []func(*http.Request) (*http.Response, error)
	requests []*http.Request
	at       []time.Duration // since start
	start    time.Time
}

func answers(fs ...func(*http.Request) (*http.Response, error)) *roundTripper {
	return &roundTripper{answers: fs, start: time.Now()}
}

func (rt *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	rt.mu.Lock()
	n := len(rt.requests)
	rt.requests = append(rt.requests, req)
	rt.at = append(rt.at, time.Since(rt.start))
	rt.mu.Unlock()
	resp, err := rt.answers[min(n, len(rt.answers)-1)](req)
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

func (rt *roundTripper) client(c eventsource.Client) *eventsource.Client {
	c.HTTPClient = &http.Client{Transport: rt}
	return &c
}

// body answers with an event stream of the given pieces, then the error.
func body(end error, pieces ...string) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		r, w := io.Pipe()
		stop := context.AfterFunc(req.Context(), func() { w.CloseWithError(context.Cause(req.Context())) })
		go func() {
			defer stop()
			for _, p := range pieces {
				if d, err := time.ParseDuration(p); err == nil {
					select {
					case <-time.After(d):
					case <-req.Context().Done():
						return
					}
					continue
				}
				if _, err := io.WriteString(w, p); err != nil {
					return
				}
			}
			if end == errHold {
				<-req.Context().Done()
				return
			}
			w.CloseWithError(end)
		}()
		return response(200, "text/event-stream", r), nil
	}
}

var (
	errHold = errors.New("hold the body open")
	errCut  = errors.New("connection reset by peer")
)

func response(status int, contentType string, body io.ReadCloser) *http.Response {
	h := http.Header{}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: body}
}

func status(code int, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		resp := response(code, "", io.NopCloser(strings.NewReader("")))
		for i := 0; i < len(header); i += 2 {
			resp.Header.Add(header[i], header[i+1])
		}
		return resp, nil
	}
}

func refuse(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func get(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://server.test/feed?token=SECRET", nil)
	if err != nil {
		panic(err)
	}
	return req
}

// collect ranges over s and returns the data of its events and its error.
func collect(s *eventsource.Stream) (data []string, err error) {
	for ev, e := range s.Events() {
		if e != nil {
			err = e
			continue
		}
		data = append(data, ev.Data)
	}
	return data, err
}

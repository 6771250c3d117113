package eventsource_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// post returns a POST of text, repeatable if there is a key.
func post(t *testing.T, srv *Server, text, key string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return req
}

// The body is complete on every attempt, also when the first was reset
// before it was answered.
func TestBodyIsCompleteOnEveryAttempt(t *testing.T) {
	text := strings.Repeat("0123456789", 40)
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Reset}, []Step{Event{Data: "a"}, Reset}, []Step{Event{Data: "b"}, End})
		s := follow(srv, eventsource.Client{Policy: strict}, post(t, srv, text, "k"))
		if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" || s.err != nil {
			t.Errorf("error %v, events (-want +got):\n%s", s.err, diff)
		}
		for _, r := range srv.Requests() {
			if string(r.Body) != text || r.Header.Get("Content-Length") != "400" {
				t.Errorf("request %d has %d bytes and says %q", r.Number, len(r.Body), r.Header.Get("Content-Length"))
			}
		}
		if n := len(srv.Requests()); n != 4 {
			t.Errorf("%d requests, want 4", n)
		}
	})
}

// A body that cannot be produced again is sent once, key or not, also when nothing
// shows that the server has read it. The rest of a body is not sent when a Prepare that
// failed has read of it.
func TestBodyThatCannotBeRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		prepare  func(*http.Request) error
		requests int
	}{
		"sent": {requests: 1},
		"read by Prepare": {func(req *http.Request) error {
			if req.Body != nil {
				io.ReadFull(req.Body, make([]byte, 2))
				return errors.New("the vault is closed")
			}
			return nil
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve([]Step{Reset}, []Step{Event{Data: "not asked for"}, End})
				req := post(t, srv, "", "k")
				req.Body, req.GetBody, req.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("once"))), nil, -1
				s := follow(srv, eventsource.Client{Prepare: c.prepare}, req)
				if !errors.Is(s.err, eventsource.ErrNotReplayable) {
					t.Errorf("the error is %v", s.err)
				}
				if n := len(srv.Requests()); n != c.requests || len(s.events) != 0 {
					t.Errorf("%d requests, %d events", n, len(s.events))
				}
				if c.requests == 1 && s.took != 0 { // there is nothing to wait for
					t.Errorf("it took %v", s.took)
				}
			})
		})
	}
}

// A request that must not be repeated is not sent twice behind the caller's back, and
// the drop is reported with its cause. A key makes it repeatable.
func TestNotSentTwice(t *testing.T) {
	for name, c := range map[string]struct {
		end   []Step
		cause error // nil if any
	}{
		"after an event":  {[]Step{Event{Data: "a"}, Reset}, syscall.ECONNRESET},
		"inside an event": {[]Step{Send("data: a\n\ndata: b"), Cut}, nil},
		"at once":         {[]Step{Reset}, nil},
		"503":             {[]Step{Status{Code: 503}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(c.end, []Step{Event{Data: "again"}, End})
				s := follow(srv, eventsource.Client{Policy: resilient}, post(t, srv, "{}", ""))
				var stop *eventsource.StopError
				if !errors.Is(s.err, eventsource.ErrNotReplayable) || !errors.As(s.err, &stop) || stop.Attempt.Err == nil {
					t.Errorf("the error is %v", s.err)
				}
				if http1 := srv.Requests()[0].Proto == "HTTP/1.1"; http1 && c.cause != nil && !errors.Is(s.err, c.cause) {
					t.Errorf("the error is %v, without its cause", s.err)
				}
				if n := len(srv.Requests()); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(c.end, []Step{Event{Data: "again"}, End})
				s := follow(srv, eventsource.Client{Policy: resilient}, post(t, srv, "{}", "k"))
				if n := len(srv.Requests()); n != 3 || s.err != nil { // with the 204
					t.Errorf("with a key: %d requests and %v", n, s.err)
				}
			})
		})
	}
	t.Run("clean end", func(t *testing.T) {
		overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
			srv := serve([]Step{Event{Data: "answer"}, End}, []Step{Event{Data: "again"}, End})
			s := follow(srv, eventsource.Client{}, post(t, srv, "{}", ""))
			if n := len(srv.Requests()); n != 1 || s.err != nil || len(s.events) != 1 {
				t.Errorf("%d requests, %d events and %v", n, len(s.events), s.err)
			}
		})
	})
}

// What may be sent again is what net/http would send again.
func TestWhatIsSentAgain(t *testing.T) {
	key := func(name string, values ...string) func(*http.Request) {
		return func(req *http.Request) { req.Header[name] = values }
	}
	once := func() io.ReadCloser { return io.NopCloser(io.MultiReader(strings.NewReader("once"))) }
	setBody := func(req *http.Request) error {
		req.Body, req.GetBody, req.ContentLength = once(), nil, -1
		return nil
	}
	for name, c := range map[string]struct {
		method  string
		edit    func(*http.Request)
		prepare func(*http.Request) error
		again   bool
	}{
		"no method":          {method: "", again: true},
		"GET":                {method: "GET", again: true},
		"HEAD":               {method: "HEAD", again: true},
		"OPTIONS":            {method: "OPTIONS", again: true},
		"TRACE":              {method: "TRACE", again: true},
		"POST":               {method: "POST"},
		"PUT":                {method: "PUT"},
		"DELETE":             {method: "DELETE"},
		"get":                {method: "get"},
		"a key":              {method: "POST", edit: key("Idempotency-Key", "k"), again: true},
		"the other key":      {method: "POST", edit: key("X-Idempotency-Key", "k"), again: true},
		"an empty key":       {method: "POST", edit: key("Idempotency-Key", ""), again: true},
		"the other, empty":   {method: "POST", edit: key("X-Idempotency-Key", ""), again: true},
		"a key of no values": {method: "POST", edit: key("Idempotency-Key"), again: true},
		"http.NoBody":        {method: "GET", edit: func(req *http.Request) { req.Body = http.NoBody }, again: true},
		"a body to read once": {method: "GET", edit: func(req *http.Request) {
			req.Body, req.ContentLength = once(), -1
		}},
		"a body of Prepare's": {method: "GET", prepare: setBody, again: true},
		"a body of Prepare's in place of one to read once": {method: "GET", edit: func(req *http.Request) {
			req.Body, req.ContentLength = once(), -1
		}, prepare: setBody, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := answers(refuse(errCut), status(204))
				req := get(t.Context())
				req.Method = c.method
				if c.edit != nil {
					c.edit(req)
				}
				before := req.Header.Clone()
				_, err := collect(rt.client(eventsource.Client{Prepare: c.prepare}).Stream(req))
				if again := len(rt.requests) == 2; again != c.again || errors.Is(err, eventsource.ErrNotReplayable) == again {
					t.Errorf("%d requests, then %v", len(rt.requests), err)
				}
				for _, r := range rt.requests {
					for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
						for _, value := range r.Header[name] {
							if value == "" {
								t.Errorf("an empty %s is sent", name)
							}
						}
					}
				}
				if diff := cmp.Diff(before, req.Header); diff != "" {
					t.Errorf("the caller's header (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// A GetBody that fails is why the request cannot be sent, and nothing is sent.
func TestGetBodyFails(t *testing.T) {
	errGone := errors.New("the file is gone")
	rt := answers(status(204))
	req := get(t.Context())
	req.Body = io.NopCloser(strings.NewReader("once"))
	req.ContentLength = 4
	req.GetBody = func() (io.ReadCloser, error) { return nil, errGone }
	_, err := collect(rt.client(eventsource.Client{}).Stream(req))
	if !errors.Is(err, eventsource.ErrNotReplayable) || !errors.Is(err, errGone) || len(rt.requests) != 0 {
		t.Errorf("%d requests, then %v", len(rt.requests), err)
	}
}

// The body that the request came with is closed once, by whoever has it at the end.
func TestBodyIsClosedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		sent, repeatable bool
	}{
		"sent":                 {sent: true},
		"sent, and repeatable": {sent: true, repeatable: true},
		"not sent":             {},
	} {
		t.Run(name, func(t *testing.T) {
			closed := 0
			req := get(t.Context())
			req.Body = &spiedBody{ReadCloser: io.NopCloser(strings.NewReader("body")), close: func() error {
				closed++
				return nil
			}}
			req.ContentLength = 4
			if c.repeatable {
				req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body")), nil }
			}
			rt := answers(func(req *http.Request) (*http.Response, error) {
				req.Body.Close() // as every RoundTripper must
				return status(204)(req)
			})
			collect(rt.client(eventsource.Client{Prepare: func(*http.Request) error {
				if !c.sent {
					return errEnough
				}
				return nil
			}, Policy: policy.Never()}).Stream(req))
			if closed != 1 || (len(rt.requests) == 1) != c.sent {
				t.Errorf("closed %d times, with %d requests", closed, len(rt.requests))
			}
		})
	}
}

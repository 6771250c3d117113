package eventsource_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
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

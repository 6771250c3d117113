package eventsource_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// R054: parameters of the content type, a charset among them, do not matter, nor
// does its case.
func TestR054ParametersAreAccepted(t *testing.T) {
	for _, contentType := range []string{
		"text/event-stream;charset=UTF-8",
		"text/event-stream; charset=utf-8",
		"text/event-stream ; charset=utf-8",
		`text/event-stream; charset="utf-8"; x`,
		"text/event-stream;",
		"Text/Event-Stream",
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t, []Step{Status{Header: typed(contentType)}, Event{Data: "a"}, End})
			s := play(t, srv, eventsource.Client{})
			if diff := cmp.Diff([]string{"a"}, s.data()); diff != "" || s.err != nil {
				t.Errorf("%q: error %v, events (-want +got):\n%s", contentType, s.err, diff)
			}
		})
	}
}

// R055: a wrong or missing content type ends the stream with an error that names
// what came instead; the connection is let go.
func TestR055WrongTypeEnds(t *testing.T) {
	const page = "<html>data: no event\n\n"
	for name, c := range map[string]struct {
		header http.Header
		text   string // of the error
	}{
		"html":    {typed("text/html; charset=utf-8"), "eventsource: the server answered 200 OK with the type text/html, not with text/event-stream"},
		"json":    {typed("application/json"), "eventsource: the server answered 200 OK with the type application/json, not with text/event-stream"},
		"missing": {nil, "eventsource: the server answered 200 OK without a Content-Type, not with text/event-stream"},
		"invalid": {typed("event-stream"), "eventsource: the server answered 200 OK with a Content-Type that is not valid, not with text/event-stream"},
		"alike":   {typed("text/event-streams"), "eventsource: the server answered 200 OK with the type text/event-streams, not with text/event-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(
					[]Step{Status{Header: c.header, Body: page}, Stall},
					[]Step{Event{Data: "not asked for"}, End},
				)
				bodies := &bodyCounter{base: srv.Client().Transport}
				s := play(t, srv, eventsource.Client{HTTPClient: &http.Client{Transport: bodies}, Policy: policy.Resilient})
				var resp *eventsource.ResponseError
				if !errors.As(s.err, &resp) {
					t.Fatalf("the error is %v", s.err)
				}
				if diff := cmp.Diff(c.text, s.err.Error()); diff != "" {
					t.Errorf("text (-want +got):\n%s", diff)
				}
				want := eventsource.ResponseError{
					StatusCode:  200,
					ContentType: strings.Join(c.header["Content-Type"], ", "),
					Body:        []byte(page),
				}
				got := eventsource.ResponseError{StatusCode: resp.StatusCode, ContentType: resp.ContentType, Body: resp.Body}
				if diff := cmp.Diff(want, got, ignoreUnexported); diff != "" {
					t.Errorf("response (-want +got):\n%s", diff)
				}
				if len(s.events) != 0 {
					t.Errorf("events %q", s.data())
				}
				if n := bodies.open.Load(); n != 0 {
					t.Errorf("%d bodies left open", n)
				}
				synctest.Wait()
				if requests := srv.Requests(); len(requests) != 1 || !requests[0].ClientLeft {
					t.Errorf("%d requests; the server saw the client leave: %v", len(requests), requests[0].ClientLeft)
				}
			})
		})
	}
}

// R056: only 200 opens a stream, whatever the content type.
func TestR056OnlyOKOpens(t *testing.T) {
	for _, code := range []int{201, 202, 203, 205, 206, 226, 300, 304, 400, 500} {
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t,
				[]Step{Status{Code: code, Header: typed("text/event-stream"), Body: "data: no event\n\n"}, End},
				[]Step{Event{Data: "not asked for"}, End},
			)
			s := play(t, srv, eventsource.Client{})
			var resp *eventsource.ResponseError
			if !errors.As(s.err, &resp) || resp.StatusCode != code {
				t.Errorf("%d: the error is %v", code, s.err)
			}
			want := []string{"connect 1", fmt.Sprintf("end 1: rejected %d", code), fmt.Sprint("done: ", s.err)}
			if diff := cmp.Diff(want, s.log); diff != "" {
				t.Errorf("%d: trace (-want +got):\n%s", code, diff)
			}
			if len(s.events) != 0 {
				t.Errorf("%d: events %q", code, s.data())
			}
		})
	}
}

// R066: the error for a bad status carries the response: its status, its header,
// and the first 4 KiB of its body; a large body is not read.
func TestR066ErrorCarriesResponse(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		const problem = `{"error":"no such topic","code":400000000}`
		head := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"abc"}}
		srv := serve([]Step{Status{Code: 400, Header: head, Body: problem}})
		s := play(t, srv, eventsource.Client{})
		var resp *eventsource.ResponseError
		if !errors.As(s.err, &resp) {
			t.Fatalf("the error is %v", s.err)
		}
		if resp.StatusCode != 400 || resp.ContentType != "application/json" || resp.Header.Get("X-Request-Id") != "abc" {
			t.Errorf("%d %q %v", resp.StatusCode, resp.ContentType, resp.Header)
		}
		if diff := cmp.Diff(problem, string(resp.Body)); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		if want := "eventsource: the server answered 400 Bad Request instead of an event stream"; s.err.Error() != want {
			t.Errorf("the text is %q, want %q", s.err, want)
		}
	})
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		written := 0 // MiB
		srv := serve([]Step{Status{Code: 400, Body: strings.Repeat("x", 100)}, Do(func(c *Conn) {
			for chunk := Send(strings.Repeat("x", 1<<20)); written < 50 && c.Play(chunk); written++ {
			}
		}), End})
		s := play(t, srv, eventsource.Client{})
		var resp *eventsource.ResponseError
		if !errors.As(s.err, &resp) {
			t.Fatalf("the error is %v", s.err)
		}
		if len(resp.Body) != 4<<10 {
			t.Errorf("%d bytes of the body were kept", len(resp.Body))
		}
		srv.Close() // the handler is gone
		if written > 8 {
			t.Errorf("the server could write %d MiB of its 50", written)
		}
	})
}

// R066: nor is a slow one waited for: a second is what the reading may take, and a
// server that trickles a body does not hold the stream up longer.
func TestR066SlowBodyIsNotWaitedFor(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Status{Code: 400, Body: "first"}, Send(" second"), Stall})
		s := play(t, srv, eventsource.Client{})
		var resp *eventsource.ResponseError
		if !errors.As(s.err, &resp) || string(resp.Body) != "first second" {
			t.Fatalf("the error is %v", s.err)
		}
		if s.took.Seconds() != 1 {
			t.Errorf("it took %v", s.took)
		}
	})
}

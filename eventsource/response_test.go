package eventsource_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/memnet"
	"github.com/reprise-sse/reprise/internal/vectors"
	"github.com/reprise-sse/reprise/policy"
)

// HTML §9.2.2, the constructor, step 15: a status other than 200 fails the
// connection, whatever the body is; a 204 does so without an error here.
func TestStatus(t *testing.T) {
	for status := 200; status <= 599; status++ {
		a := eventStream("data: x\n\n")
		a.Status = status
		switch status {
		case 300, 304, 305, 306: // no redirects that a client follows
			a.Headers = append(a.Headers, "Location: /moved")
		}
		if status == http.StatusNoContent || status == http.StatusNotModified {
			a.Body, a.Parts = vectors.NoBody, nil
		}
		run := runWire(t, eventsource.Client{}, nil, a)
		var refused *eventsource.ResponseError
		switch {
		case status == http.StatusOK:
			if run.End != nil || !slices.Equal(run.Data, []string{"x"}) || len(run.Requests) != 2 {
				t.Errorf("%d: %q, %v, %d requests", status, run.Data, run.End, len(run.Requests))
			}
		case run.Data != nil || run.Opens != nil || len(run.Requests) != 1:
			t.Errorf("%d: %q, opened %d times, %d requests", status, run.Data, len(run.Opens), len(run.Requests))
		case status == http.StatusNoContent:
			if run.End != nil {
				t.Errorf("%d: %v", status, run.End)
			}
		case !errors.As(run.End, &refused) || refused.StatusCode != status:
			t.Errorf("%d: the end is %v", status, run.End)
		}
		if n := len(run.Attempts); n == 0 || run.Attempts[0].Status != status {
			t.Errorf("%d: the attempts are %+v", status, run.Attempts)
		}
	}
}

// The error for a response that is no event stream says what came instead, and carries
// its status, its header and its body. The connection is let go.
func TestRefusals(t *testing.T) {
	const body = "<html>data: no event\n\n"
	const instead = ", not with text/event-stream"
	coded := typed("text/event-stream")
	coded.Set("Content-Encoding", "br")
	for name, c := range map[string]struct {
		status int
		header http.Header
		text   string // after "eventsource: the server answered "
	}{
		"html":    {200, typed("text/html; charset=utf-8"), "200 OK with the type text/html" + instead},
		"json":    {200, typed("application/json"), "200 OK with the type application/json" + instead},
		"missing": {200, nil, "200 OK without a Content-Type" + instead},
		"invalid": {200, typed("event-stream"), "200 OK with a Content-Type that is not valid" + instead},
		"alike":   {200, typed("text/event-streams"), "200 OK with the type text/event-streams" + instead},
		"several": {200, typed("text/event-stream", "text/html"), "200 OK with the type text/html" + instead},
		"coding":  {200, coded, "200 OK in the content coding br, which cannot be decoded; only gzip can"},
		"400":     {400, typed("application/json"), "400 Bad Request instead of an event stream"},
		"599":     {599, typed("application/json"), "599 instead of an event stream"},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(
					[]Step{Status{Code: c.status, Header: c.header, Body: body}, Stall},
					[]Step{Event{Data: "not asked for"}, End},
				)
				bodies := &bodyCounter{base: srv.Client().Transport}
				s := play(t, srv, eventsource.Client{HTTPClient: &http.Client{Transport: bodies}})
				var resp *eventsource.ResponseError
				if !errors.As(s.err, &resp) {
					t.Fatalf("the error is %v", s.err)
				}
				if diff := cmp.Diff("eventsource: the server answered "+c.text, s.err.Error()); diff != "" {
					t.Errorf("text (-want +got):\n%s", diff)
				}
				want := eventsource.ResponseError{
					StatusCode:  c.status,
					ContentType: strings.Join(c.header["Content-Type"], ", "),
					Header:      http.Header{"Content-Type": c.header["Content-Type"]},
					Body:        []byte(body),
				}
				got := *resp
				got.Header = http.Header{"Content-Type": resp.Header["Content-Type"]}
				if diff := cmp.Diff(want, got, ignoreUnexported); diff != "" {
					t.Errorf("response (-want +got):\n%s", diff)
				}
				synctest.Wait()
				if open := bodies.open.Load(); len(s.events) != 0 || open != 0 {
					t.Errorf("events %q, %d bodies left open", s.data(), open)
				}
				if requests := srv.Requests(); len(requests) != 1 || !requests[0].ClientLeft {
					t.Errorf("%d requests; the server saw the client leave: %v", len(requests), requests[0].ClientLeft)
				}
			})
		})
	}
}

// CheckResponse tells event streams from other responses, and leaves the body to the
// caller.
func TestCheckResponse(t *testing.T) {
	coded := func(coding string) http.Header {
		h := typed("text/event-stream")
		h.Set("Content-Encoding", coding)
		return h
	}
	for _, tt := range []struct {
		status int
		header http.Header
		want   string // after "eventsource: the server answered "; empty for an event stream
	}{
		{200, typed("text/event-stream"), ""},
		{200, typed("Text/Event-Stream;charset=utf-8"), ""},
		{200, coded("gzip"), ""},
		{200, coded("identity"), ""},
		{200, coded("br"), "200 OK in the content coding br, which cannot be decoded; only gzip can"},
		{200, typed("application/json"), "200 OK with the type application/json, not with text/event-stream"},
		{200, nil, "200 OK without a Content-Type, not with text/event-stream"},
		{202, typed("text/event-stream"), "202 Accepted instead of an event stream"},
		{204, nil, "204 No Content instead of an event stream"},
		{503, typed("text/event-stream"), "503 Service Unavailable instead of an event stream"},
	} {
		untouched := &spiedBody{
			read: func([]byte) (int, error) {
				t.Errorf("%d, %v: the body is read", tt.status, tt.header)
				return 0, io.EOF
			},
			close: func() error { t.Errorf("%d, %v: the body is closed", tt.status, tt.header); return nil },
		}
		err := eventsource.CheckResponse(&http.Response{StatusCode: tt.status, Header: tt.header, Body: untouched})
		if tt.want == "" {
			if err != nil {
				t.Errorf("%d, %v: %v", tt.status, tt.header, err)
			}
			continue
		}
		var refusal *eventsource.ResponseError
		if !errors.As(err, &refusal) || err.Error() != "eventsource: the server answered "+tt.want {
			t.Errorf("%d, %v: %v, want %s", tt.status, tt.header, err, tt.want)
			continue
		}
		want := &eventsource.ResponseError{StatusCode: tt.status, ContentType: tt.header.Get("Content-Type"), Header: tt.header}
		if diff := cmp.Diff(want, refusal, ignoreUnexported); diff != "" {
			t.Errorf("%d, %v (-want +got):\n%s", tt.status, tt.header, diff)
		}
	}
}

// Of a large refusal the first 4 KiB are kept, and little more is read.
func TestLargeRefusalIsNotRead(t *testing.T) {
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

// A second is what the reading of a refusal may take: a server that trickles the body
// does not hold the stream up longer.
func TestSlowRefusalIsNotWaitedFor(t *testing.T) {
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

// After a 101 net/http leaves the connection to whoever has the body, and the end of
// the request's context does not end a Read of it.
func TestG7SwitchedProtocolsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memnet.Listen()
		defer l.Close()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nhello")
			io.Copy(io.Discard, c) // until the client has left
		}()
		c := eventsource.Client{HTTPClient: &http.Client{Transport: &http.Transport{DialContext: l.DialContext}}}
		start := time.Now()
		_, err := collect(c.Stream(resendable(t, "GET", "http://server.test/feed")))
		var refused *eventsource.ResponseError
		if !errors.As(err, &refused) || refused.StatusCode != http.StatusSwitchingProtocols || string(refused.Body) != "hello" {
			t.Errorf("it ended with %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
		<-gone
	})
}

// TestEndlessHeader has servers that never come to the body, or to the next piece of
// it. net/http has limits of its own; the attempt fails like any other.
func TestEndlessHeader(t *testing.T) {
	const limit = 1 << 20
	const chunked = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct {
		name, start, repeat string
		kind                policy.Kind
	}{
		{"header lines", "HTTP/1.1 200 OK\r\n", "X-A: b\r\n", policy.Failed},
		{"a header line", "HTTP/1.1 200 OK\r\nX-A: ", "b", policy.Failed},
		{"a status line", "HTTP/1.1 200 ", "O", policy.Failed},
		{"continuation lines", "HTTP/1.1 200 OK\r\nX-A: b\r\n", " c\r\n", policy.Failed},
		{"a chunk's size", chunked, "0", policy.Dropped},
		{"a chunk extension", chunked + "1;", "x", policy.Dropped},
		{"chunk extensions", chunked, "1;" + strings.Repeat("x", 1000) + "\r\n:\r\n", policy.Dropped},
		{"a trailer", chunked + "0\r\n", "X-A: b\r\n", policy.Dropped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := memnet.Listen()
			defer l.Close()
			left := make(chan struct{})
			go func() {
				defer close(left)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err = http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, err = io.WriteString(c, tt.start)
				}
				for repeat := strings.Repeat(tt.repeat, 1+4<<10/len(tt.repeat)); err == nil; {
					_, err = io.WriteString(c, repeat)
				}
			}()
			var w watcher
			client := eventsource.Client{
				HTTPClient: &http.Client{Transport: &http.Transport{DialContext: l.DialContext, MaxResponseHeaderBytes: limit}},
				Policy:     policy.Never(),
			}
			trace := w.trace()
			grown, before, end := 0, int(liveHeap()), trace.End
			trace.End = func(a policy.Attempt) {
				grown = int(liveHeap()) - before
				end(a)
			}
			client.Trace = traceOf(trace)
			if _, err := collect(client.Stream(get(t.Context()))); err == nil || w.ends[0].Kind != tt.kind {
				t.Errorf("it ended %v with %v, want %v", w.ends[0].Kind, err, tt.kind)
			}
			<-left
			if grown > 4*limit {
				t.Errorf("the live heap grew by %d KiB", grown>>10)
			}
		})
	}
}

package eventsource_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/vectors"
	"github.com/reprise-sse/reprise/policy"
)

// This file tests what the standard says about requests and responses, beyond what
// the vectors cover: HTML §9.2.2 and §9.2.3, and the parts of Fetch and of
// mimesniff that they call. All of it is on the wire.

// A wireRun is what became of a stream.
type wireRun struct {
	Data     []string
	End      error
	Requests []wireRequest
	Attempts []policy.Attempt
	Opens    []string // the paths of the URLs that the streams came from
}

// runWire runs a client against answers, in order; after the last one the server
// answers 204. Waits pass at once on a fake clock. Prepare edits the caller's
// request; it may be nil.
func runWire(t *testing.T, client eventsource.Client, prepare func(*http.Request), answers ...wireAnswer) (run wireRun) {
	t.Helper()
	server := newWireServer(t, func(n int, _ wireRequest) wireAnswer {
		if n >= len(answers) {
			return wireAnswer{Status: http.StatusNoContent, Body: vectors.NoBody}
		}
		return answers[n]
	})
	httpClient := http.Client{}
	if client.HTTPClient != nil {
		httpClient = *client.HTTPClient
	}
	httpClient.Transport = server
	client.HTTPClient, client.Clock = &httpClient, server.clock
	client.Trace = &eventsource.Trace{
		Open: func(o eventsource.OpenInfo) { run.Opens = append(run.Opens, o.URL.Path) },
		End:  func(a policy.Attempt) { run.Attempts = append(run.Attempts, a) },
		Wait: func(w eventsource.WaitInfo) { server.clock.Advance(w.Waited) },
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, origin1+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(req)
	}
	for e, err := range client.Stream(req).Events() {
		if err != nil {
			run.End = err
			break
		}
		run.Data = append(run.Data, e.Data)
	}
	server.close()
	run.Requests = server.log()
	return run
}

// eventStream answers with an event stream of one part.
func eventStream(body string) wireAnswer {
	return wireAnswer{
		Status: http.StatusOK, Headers: []string{"Content-Type: text/event-stream"}, Body: vectors.Chunked,
		Parts: []vectors.Part{{Bytes: []byte(body)}},
	}
}

func redirect(status int, location string) wireAnswer {
	return wireAnswer{Status: status, Headers: []string{"Location: " + location}, Body: vectors.Length}
}

// HTML §9.2.2, the constructor, steps 10 and 11, and Fetch, HTTP-network-or-cache
// fetch, for a cache mode of no-store.
func TestRequestHeaders(t *testing.T) {
	defaults := map[string]string{
		"Accept":          "text/event-stream",
		"Cache-Control":   "no-cache",
		"Pragma":          "no-cache",
		"Accept-Encoding": "identity",
	}
	for name := range defaults {
		for _, own := range []string{"", "x/own", "a, b;q=0.5"} {
			want := maps.Clone(defaults)
			run := runWire(t, eventsource.Client{}, func(req *http.Request) {
				if own != "" {
					req.Header.Set(name, own)
					want[name] = own
				}
			}, eventStream("retry: 1\ndata: x\n\n"))
			if len(run.Requests) != 2 {
				t.Fatalf("%d requests, want 2", len(run.Requests))
			}
			for i, req := range run.Requests {
				for name, value := range want {
					if lines := req.lines(name); !slices.Equal(lines, []string{value}) {
						t.Errorf("request %d: %s is %q, want %q", i+1, name, lines, value)
					}
				}
				if lines := req.lines("Last-Event-ID"); lines != nil {
					t.Errorf("request %d: Last-Event-ID is %q, must be absent", i+1, lines)
				}
				if req.Method != "GET" || req.Body != "" {
					t.Errorf("request %d: %s with the body %q", i+1, req.Method, req.Body)
				}
			}
		}
	}
}

// HTML §9.2.3, reestablish the connection, step 5.3: the header is the last event
// ID string, UTF-8 encoded, and there is none when the string is empty.
func TestLastEventIDHeader(t *testing.T) {
	long := strings.Repeat("0123456789", 200)
	for _, tt := range []struct{ name, seed, stream, want string }{
		{"none", "", "data: x\n\n", "absent"},
		{"ASCII", "", "id: 1\ndata: x\n\n", "1"},
		{"raw UTF-8", "", "id: é…😀\ndata: x\n\n", "\xc3\xa9\xe2\x80\xa6\xf0\x9f\x98\x80"},
		{"repaired UTF-8", "", "id: \xff\ndata: x\n\n", "\xef\xbf\xbd"},
		{"all of Latin-1's range, not as Latin-1", "", "id: ÿ\ndata: x\n\n", "\xc3\xbf"},
		{"without data", "", "id: 1\n\n", "1"},
		{"not committed", "", "id: 1\ndata: x\n\nid: 2\ndata: y\n", "1"},
		{"reset", "", "id: 1\ndata: x\n\nid\n\n", "absent"},
		{"reset and set", "", "id: 1\n\nid:\n\nid: 2\n\n", "2"},
		{"reset of a seed", "7", "id:\ndata: x\n\n", "absent"},
		{"seed kept", "7", "data: x\n\n", "7"},
		{"seed kept by an empty stream", "7", "", "7"},
		{"seed replaced", "7", "id: 8\n\n", "8"},
		{"NUL ignored", "7", "id: 8\x00\ndata: x\n\n", "7"},
		{"tab", "", "id: a\tb\n\n", "a\tb"},
		{"quotes, commas, percent", "", "id: \"a\",b%0d%0a\n\n", "\"a\",b%0d%0a"},
		{"colon and leading colon", "", "id: :a:b\n\n", ":a:b"},
		{"long", "", "id: " + long + "\n\n", long},
		{"only a space, which HTTP loses", "", "id:  \n\n", ""},
	} {
		run := runWire(t, eventsource.Client{}, func(req *http.Request) {
			if tt.seed != "" {
				req.Header.Set("Last-Event-ID", tt.seed)
			}
		}, eventStream(tt.stream))
		got := []string{"absent"}
		if len(run.Requests) == 2 {
			if lines := run.Requests[1].lines("Last-Event-ID"); lines != nil {
				got = lines
			}
		}
		if !slices.Equal(got, []string{tt.want}) || len(run.Requests) != 2 {
			t.Errorf("%s: %d requests, the last with %q, want %q", tt.name, len(run.Requests), got, tt.want)
		}
	}
}

// HTML §9.2.2, the constructor, step 15: a status other than 200 fails the
// connection, whatever the body is; a 204 does so without an error here.
func TestStatus(t *testing.T) {
	for status := 200; status <= 599; status++ {
		a := eventStream("data: x\n\n")
		a.Status = status
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

// Fetch, extract a MIME type, and mimesniff, parse a MIME type: the essence is
// what counts.
func TestContentType(t *testing.T) {
	lines := func(values ...string) (headers []string) {
		for _, v := range values {
			headers = append(headers, "Content-Type: "+v)
		}
		return headers
	}
	for _, tt := range []struct {
		headers []string
		opens   bool
	}{
		{lines("text/event-stream"), true},
		{lines("TEXT/EVENT-STREAM"), true},
		{lines("text/event-stream;"), true},
		{lines("text/event-stream; charset=utf-8"), true},
		{lines("text/event-stream;charset=iso-8859-1"), true},
		{lines("text/event-stream ;charset=utf-8"), true},
		{lines("\t text/event-stream\t "), true},
		{lines("text/event-stream; charset"), true},
		{lines("text/event-stream; =;;= ; \"a"), true},
		{lines(`text/event-stream; a="x;y,z"`), true},
		{lines(`text/event-stream; a="\",text/html;"`), true},
		{lines(`text/event-stream; a="\\",text/html`), false},
		{lines("text/html", "text/event-stream"), true},
		{lines("text/event-stream", "text/html"), false},
		{lines("text/html, text/event-stream"), true},
		{lines("text/event-stream, text/html"), false},
		{lines("text/event-stream, */*"), true},
		{lines("text/event-stream", "*/*;q=1"), true},
		{lines("text/event-stream, nonsense"), true},
		{lines("text/event-stream", ""), true},
		{lines(",,text/event-stream,,"), true},
		{lines(`text/html;x="`, "text/event-stream"), false},
		{lines(`text/event-stream;x="`, "text/html"), true},
		{nil, false},
		{lines(""), false},
		{lines("*/*"), false},
		{lines("text/*"), false},
		{lines("text"), false},
		{lines("text/"), false},
		{lines("/event-stream"), false},
		{lines("event-stream"), false},
		{lines("text/event-stream2"), false},
		{lines("text/event-strea"), false},
		{lines("xtext/event-stream"), false},
		{lines("text/event-stream/x"), false},
		{lines("text /event-stream"), false},
		{lines("text/ event-stream"), false},
		{lines("text/event-stream charset=utf-8"), false},
		{lines("text/event-stream(;a=b"), false},
		{lines("text/event_stream"), false},
		{lines("text/plain"), false},
		{lines("application/event-stream"), false},
	} {
		run := runWire(t, eventsource.Client{}, nil, wireAnswer{
			Status: http.StatusOK, Headers: tt.headers, Body: vectors.Chunked,
			Parts: []vectors.Part{{Bytes: []byte("data: x\n\n")}},
		})
		var refused *eventsource.ResponseError
		if tt.opens {
			if run.End != nil || !slices.Equal(run.Data, []string{"x"}) {
				t.Errorf("%q: %q, %v; must open", tt.headers, run.Data, run.End)
			}
		} else if run.Data != nil || len(run.Requests) != 1 || !errors.As(run.End, &refused) {
			t.Errorf("%q: %q, %d requests, %v; must be refused", tt.headers, run.Data, len(run.Requests), run.End)
		}
	}
}

// Fetch, HTTP-network fetch: content codings are undone, and what the server has
// flushed is not held back. A coding that cannot be undone is no event stream.
func TestContentCoding(t *testing.T) {
	var flushed bytes.Buffer
	w := gzip.NewWriter(&flushed)
	io.WriteString(w, "id: 1\ndata: x\n\n")
	w.Flush()
	for _, coding := range []string{"gzip", "GZIP", "x-gzip", "identity, gzip"} {
		a := eventStream(flushed.String())
		a.Headers = append(a.Headers, "Content-Encoding: "+coding)
		a.Cut = true // the compressed stream never ends, so an event means that nothing waits for more
		run := runWire(t, eventsource.Client{Policy: policy.Never}, func(req *http.Request) {
			req.Header.Set("Accept-Encoding", "gzip")
		}, a)
		if !slices.Equal(run.Data, []string{"x"}) || run.Attempts[0].Kind != policy.Dropped {
			t.Errorf("%s: %q, %+v", coding, run.Data, run.Attempts)
		}
	}
	for _, coding := range []string{"br", "deflate", "gzip, gzip", "nonsense"} {
		a := eventStream("data: x\n\n")
		a.Headers = append(a.Headers, "Content-Encoding: "+coding)
		run := runWire(t, eventsource.Client{}, nil, a)
		var refused *eventsource.ResponseError
		if run.Data != nil || len(run.Requests) != 1 || !errors.As(run.End, &refused) {
			t.Errorf("%s: %q, %d requests, %v", coding, run.Data, len(run.Requests), run.End)
		}
	}
	for _, coding := range []string{"", "identity"} {
		a := eventStream("data: x\n\n")
		a.Headers = append(a.Headers, "Content-Encoding: "+coding)
		if run := runWire(t, eventsource.Client{}, nil, a); run.End != nil || !slices.Equal(run.Data, []string{"x"}) {
			t.Errorf("%q: %q, %v", coding, run.Data, run.End)
		}
	}
}

// Fetch, HTTP fetch and HTTP-redirect fetch.
func TestRedirects(t *testing.T) {
	paths := func(requests []wireRequest) (list []string) {
		for _, r := range requests {
			list = append(list, r.Path)
		}
		return list
	}
	t.Run("followed", func(t *testing.T) {
		for _, status := range []int{301, 302, 303, 307, 308} {
			run := runWire(t, eventsource.Client{}, func(req *http.Request) { req.Header.Set("Last-Event-ID", "7") },
				redirect(status, "/moved?a=b#c"), eventStream("data: x\n\n"))
			// The third request is the next attempt's, from the caller's URL.
			if diff := cmp.Diff([]string{"/stream", "/moved?a=b", "/stream"}, paths(run.Requests)); diff != "" {
				t.Errorf("%d (-want +got):\n%s", status, diff)
			}
			if run.End != nil || !slices.Equal(run.Data, []string{"x"}) || !slices.Equal(run.Opens, []string{"/moved"}) {
				t.Errorf("%d: %q from %q, %v", status, run.Data, run.Opens, run.End)
			}
			for _, req := range run.Requests {
				if req.Method != "GET" || !slices.Equal(req.lines("Accept"), []string{"text/event-stream"}) || !slices.Equal(req.lines("Last-Event-ID"), []string{"7"}) {
					t.Errorf("%d: %+v", status, req)
				}
			}
		}
	})
	t.Run("not followed", func(t *testing.T) {
		for _, status := range []int{300, 304, 305, 306} {
			a := redirect(status, "/moved")
			if status == http.StatusNotModified {
				a.Body = vectors.NoBody
			}
			run := runWire(t, eventsource.Client{}, nil, a)
			var refused *eventsource.ResponseError
			if len(run.Requests) != 1 || !errors.As(run.End, &refused) || refused.StatusCode != status {
				t.Errorf("%d: %d requests, %v", status, len(run.Requests), run.End)
			}
		}
	})
	t.Run("count", func(t *testing.T) {
		for _, tt := range []struct {
			redirects int
			kind      policy.Kind
		}{{20, policy.Ended}, {21, policy.Failed}} {
			var answers []wireAnswer
			for i := range tt.redirects {
				answers = append(answers, redirect(302, fmt.Sprint("/", i)))
			}
			run := runWire(t, eventsource.Client{Policy: policy.Never}, nil, append(answers, eventStream("data: x\n\n"))...)
			if len(run.Attempts) != 1 || run.Attempts[0].Kind != tt.kind || run.Attempts[0].Futile || len(run.Requests) != 21 {
				t.Errorf("%d redirects: %d requests, %+v", tt.redirects, len(run.Requests), run.Attempts)
			}
		}
	})
	t.Run("then a status", func(t *testing.T) {
		run := runWire(t, eventsource.Client{}, nil, redirect(301, "/a"), wireAnswer{Status: 404, Body: vectors.Length})
		var refused *eventsource.ResponseError
		if !errors.As(run.End, &refused) || refused.StatusCode != 404 || len(run.Requests) != 2 {
			t.Errorf("a 404: %d requests, %v", len(run.Requests), run.End)
		}
		run = runWire(t, eventsource.Client{}, nil, redirect(301, "/a"), wireAnswer{Status: 204, Body: vectors.NoBody})
		if run.End != nil || len(run.Requests) != 2 {
			t.Errorf("a 204: %d requests, %v", len(run.Requests), run.End)
		}
	})
	t.Run("to another host", func(t *testing.T) {
		own := func(req *http.Request) {
			for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "Accept"} {
				req.Header.Set(name, "own")
			}
			req.Header.Set("Last-Event-ID", "7")
		}
		for _, tt := range []struct {
			location string
			own      bool
		}{{origin1 + "/a", true}, {origin1 + ":8080/a", true}, {origin2 + "/a", false}} {
			run := runWire(t, eventsource.Client{Policy: policy.Never}, own, redirect(307, tt.location), eventStream("data: x\n\n"))
			if len(run.Requests) != 2 || !slices.Equal(run.Data, []string{"x"}) {
				t.Errorf("%s: %d requests, %q", tt.location, len(run.Requests), run.Data)
				continue
			}
			want := map[string][]string{"Accept": {"own"}, "Last-Event-ID": {"7"}, "Cache-Control": {"no-cache"}}
			for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
				want[name] = nil
				if tt.own {
					want[name] = []string{"own"}
				}
			}
			for name, lines := range want {
				if got := run.Requests[1].lines(name); !slices.Equal(got, lines) {
					t.Errorf("%s: %s is %q, want %q", tt.location, name, got, lines)
				}
			}
		}
	})
	t.Run("to another scheme", func(t *testing.T) {
		for _, location := range []string{"ftp://origin1.test/", "about:blank", "data:text/event-stream,data:x"} {
			run := runWire(t, eventsource.Client{Policy: policy.Never}, nil, redirect(302, location))
			if run.End == nil || run.Data != nil || len(run.Requests) != 1 {
				t.Errorf("%s: %q, %d requests, %v", location, run.Data, len(run.Requests), run.End)
			}
		}
	})
}

// HTML §9.2.2, step 3, and §9.2.3, reestablish the connection: in which cases
// there is another attempt, and after what time.
func TestReconnection(t *testing.T) {
	cut := eventStream("retry: 40\nid: 1\ndata: x\n\ndata: y")
	cut.Cut = true
	for _, tt := range []struct {
		name    string
		first   wireAnswer
		kind    policy.Kind
		waits   time.Duration
		resumes string // Last-Event-ID of the second request
	}{
		{"the end of the body", eventStream("retry: 40\nid: 1\ndata: x\n\n"), policy.Ended, 40 * time.Millisecond, "1"},
		{"the end inside an event", eventStream("retry: 40\ndata: x\n"), policy.Ended, 40 * time.Millisecond, ""},
		{"a broken body", cut, policy.Dropped, 40 * time.Millisecond, "1"},
		{"no response", wireAnswer{Drop: true}, policy.Failed, 3 * time.Second, ""},
		{"an empty body", eventStream(""), policy.Ended, 3 * time.Second, ""},
		{"a retry line alone", eventStream("retry: 40\n"), policy.Ended, 40 * time.Millisecond, ""},
		{"a retry line that is not whole", eventStream("retry: 40"), policy.Ended, 3 * time.Second, ""},
	} {
		strict := eventsource.Client{Policy: policy.Rules{Jitter: -1, Floor: -1}.New}
		run := runWire(t, strict, nil, tt.first, eventStream(""))
		if len(run.Requests) != 3 || run.End != nil {
			t.Errorf("%s: %d requests, %v", tt.name, len(run.Requests), run.End)
			continue
		}
		if run.Attempts[0].Kind != tt.kind {
			t.Errorf("%s: the attempt is %v, want %v", tt.name, run.Attempts[0].Kind, tt.kind)
		}
		if waited := run.Requests[1].At.Sub(run.Requests[0].At); waited != tt.waits {
			t.Errorf("%s: the second request comes after %v, want %v", tt.name, waited, tt.waits)
		}
		if got := strings.Join(run.Requests[1].lines("Last-Event-ID"), "|"); got != tt.resumes {
			t.Errorf("%s: the second request has the ID %q, want %q", tt.name, got, tt.resumes)
		}
		// The time stays in force for a connection that sends none; that one has
		// been fruitless, so the wait may be longer.
		if a := run.Attempts[1]; a.HasRetry != (tt.waits < time.Second) || a.HasRetry && a.Retry != tt.waits {
			t.Errorf("%s: at the second end the reconnection time is %v, %v", tt.name, a.Retry, a.HasRetry)
		}
	}
}

// HTML §9.2.2, close(): nothing happens after it, wherever in the stream it is called.
func TestCloseIsFinal(t *testing.T) {
	for _, when := range []string{"connect", "open", "comment", "retry", "event", "wait"} {
		left := errors.New("left " + when)
		server := newWireServer(t, func(int, wireRequest) wireAnswer {
			return eventStream(":\nretry: 1\nid: 1\ndata: x\n\ndata: y\n\n")
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		leave := func(at string) {
			if at == when {
				cancel(left)
			}
		}
		client := eventsource.Client{
			HTTPClient: &http.Client{Transport: server}, Clock: server.clock,
			Trace: &eventsource.Trace{
				Connect: func(eventsource.ConnectInfo) { leave("connect") },
				Open:    func(eventsource.OpenInfo) { leave("open") },
				Comment: func(string) { leave("comment") },
				Retry:   func(time.Duration) { leave("retry") },
				Wait: func(w eventsource.WaitInfo) {
					leave("wait")
					server.clock.Advance(w.Waited)
				},
			},
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin1+"/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		events := 0
		var end error
		stream := client.Stream(req)
		for _, err := range stream.Events() {
			if err != nil {
				end = err
				break
			}
			events++
			leave("event")
		}
		server.close()
		want := map[string]int{"event": 1, "wait": 2}[when]
		// Who resumes must be sent what was not delivered.
		if id := stream.LastEventID(); (id != "") != (want > 0) {
			t.Errorf("%s: the last event ID is %q after %d events", when, id, events)
		}
		if end != left || events != want || len(server.log()) > 1 {
			t.Errorf("%s: %d events, %d requests, %v; want %d events, and at most one request", when, events, len(server.log()), end, want)
		}
		cancel(nil)
	}
}

package eventsource_test

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/vectors"
)

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

// A header that the caller has set is left as it is, even without a value, by which
// net/http is told not to send it.
func TestHeaderLeftOut(t *testing.T) {
	for _, name := range []string{"Accept", "Cache-Control", "Pragma"} {
		for _, own := range [][]string{nil, {}, {""}} {
			run := runWire(t, eventsource.Client{}, func(req *http.Request) { req.Header[name] = own }, eventStream("data: x\n\n"))
			for i, req := range run.Requests {
				if lines := req.lines(name); !slices.Equal(lines, own) {
					t.Errorf("request %d: %s is %q, want %q", i+1, name, lines, own)
				}
			}
			if len(run.Requests) != 2 {
				t.Errorf("%d requests", len(run.Requests))
			}
		}
	}
}

// Requests share the values of the headers that all have. What Prepare is given is
// its own: an edit in place must not reach the requests of others.
func TestPrepareEditsItsOwnHeader(t *testing.T) {
	rt := answers(status(http.StatusNoContent))
	stream := func(prepare func(*http.Request) error) http.Header {
		t.Helper()
		if _, err := collect(rt.client(eventsource.Client{Prepare: prepare}).Stream(get(t.Context()))); err != nil {
			t.Fatal(err)
		}
		return rt.requests[len(rt.requests)-1].Header.Clone()
	}
	want := stream(nil)
	edited := stream(func(req *http.Request) error {
		for _, values := range req.Header {
			for i := range values {
				values[i] = "edited"
			}
		}
		return nil
	})
	if got := edited.Get("Accept"); got != "edited" {
		t.Errorf("Prepare's edit is not in the request: Accept is %q", got)
	}
	if diff := cmp.Diff(want, stream(nil)); diff != "" {
		t.Errorf("the header after an edit of another stream's (-want +got):\n%s", diff)
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

// The ID may be in a header of the standard's spelling, which is not the one that
// http.Header looks for.
func TestLastEventIDOfTheStandardsSpelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, []Step{Event{ID: "18", Data: "a"}, End}, []Step{Send("id\n\n"), End})
		play(t, srv, eventsource.Client{}, func(req *http.Request) {
			req.Header["Last-Event-ID"] = []string{"17"}
		})
		var got [][]string
		for _, r := range srv.Requests() {
			got = append(got, r.Header.Values("Last-Event-ID"))
		}
		if diff := cmp.Diff([][]string{{"17"}, {"18"}, nil}, got); diff != "" {
			t.Errorf("IDs sent (-want +got):\n%s", diff)
		}
	})
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
		{lines("text/html,\ttext/event-stream"), true},
		{lines("text/event-stream\t;charset=utf-8"), true},
		{lines("text/event-stream, x/\u212a"), true}, // the Kelvin sign, which Unicode lowers to k
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

// Retry-After is waited for, in seconds or until a date, and binds one wait only. Any
// other value asks for nothing.
func TestRetryAfter(t *testing.T) {
	const date = "Sat, 01 Jan 2000 00:02:00 GMT"
	for name, c := range map[string]struct {
		header http.Header
		want   time.Duration
	}{
		"seconds":                {http.Header{"Retry-After": {"7"}}, 7 * time.Second},
		"less than the policy's": {http.Header{"Retry-After": {"1"}}, 3 * time.Second},
		"zero":                   {http.Header{"Retry-After": {"0"}}, 3 * time.Second},
		"the longest of several": {http.Header{"Retry-After": {"5", "60", "7"}}, time.Minute},
		"none":                   {nil, 3 * time.Second},
		"not a number":           {http.Header{"Retry-After": {"soon"}}, 3 * time.Second},
		"negative":               {http.Header{"Retry-After": {"-7"}}, 3 * time.Second},
		"a fraction":             {http.Header{"Retry-After": {"7.5"}}, 3 * time.Second},
		// A date is relative to the server's Date, here the start of the bubble.
		"a date":          {http.Header{"Retry-After": {date}}, 2 * time.Minute},
		"of a fast clock": {http.Header{"Retry-After": {date}, "Date": {"Sat, 01 Jan 2000 00:01:30 GMT"}}, 30 * time.Second},
		"a date gone by":  {http.Header{"Retry-After": {"Fri, 31 Dec 1999 23:00:00 GMT"}}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t,
					[]Step{Status{Code: 503, Header: c.header}},
					[]Step{Event{Data: "a"}, Cut},
					[]Step{Event{Data: "b"}, Cut},
				)
				s := play(t, srv, eventsource.Client{Policy: resilient})
				if diff := cmp.Diff([]time.Duration{c.want, 3 * time.Second, 3 * time.Second}, gaps(srv)); diff != "" {
					t.Errorf("gaps (-want +got):\n%s", diff)
				}
				if len(s.events) != 2 || s.err != nil {
					t.Errorf("%d events and %v", len(s.events), s.err)
				}
			})
		})
	}
}

// A date counts from the Client's Clock if the response does not say when it was sent.
func TestRetryAfterWithoutDate(t *testing.T) {
	fake := clock.NewFake(time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC))
	refusal := status(http.StatusServiceUnavailable, "Retry-After", "Fri, 01 Jan 2100 00:00:42 GMT")
	var asked []time.Duration
	client := answers(refusal, status(http.StatusNoContent)).client(eventsource.Client{
		Policy: resilient,
		Clock:  fake,
		Trace: traceOf(&eventsource.Trace{Wait: func(i eventsource.WaitInfo) {
			asked = append(asked, i.Asked)
			fake.Advance(i.Waited)
		}}),
	})
	collect(client.Stream(get(t.Context())))
	if diff := cmp.Diff([]time.Duration{42 * time.Second}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

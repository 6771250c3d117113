package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/chunk"
	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/internal/vectors"
	"github.com/reprise-sse/reprise/policy"
)

// This file runs the vectors about decoding: those of the web platform tests
// through the Decoder, and what a browser was seen to do through a Stream. The
// vectors about HTTP are in conformance_network_test.go and
// conformance_http_test.go.

// must unwraps the result of a loader.
func must[T any](t *testing.T, load func() (T, error)) T {
	t.Helper()
	v, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The differences from the vectors and the reasons for them that tests of this
// package know. The table of package vectors has the words.
const (
	reasonBOM        = "line end after BOM"
	reasonEmptyRetry = "retry without a value"
	reasonHugeRetry  = "retry of 2^64 or more"
	reasonUnsendable = "ID with a control character"
)

// agree compares a vector's answer with ours, in the light of the table: an
// unlisted difference is an error, and so is a listed one that is none.
func agree(t *testing.T, name, diff string) {
	t.Helper()
	reason := must(t, vectors.Differences)[name]
	switch {
	case diff != "" && reason == "":
		t.Errorf("%s (-vector +ours):\n%s", name, diff)
	case diff == "" && reason != "":
		t.Errorf("%s does not differ, though the table lists it under %q", name, reason)
	}
}

func TestVectorsFormat(t *testing.T) {
	for _, v := range must(t, vectors.Formats) {
		t.Run(v.Name, func(t *testing.T) {
			input := bytes.Join(v.Chunks, nil)
			try := func(way string, r io.Reader) {
				t.Helper()
				events, id, retry, hasRetry := adoptBytes(t, v.InitialLastEventID, r)
				if v.AnyRetry {
					if retry < 0 || hasRetry && retry == 0 {
						t.Errorf("cut %s: the reconnection time is %v", way, retry)
					}
					retry, hasRetry = v.Retry, v.HasRetry
				}
				want := reference.Result{Events: referenceEvents(v.Events), LastEventID: v.LastEventID, Retry: v.Retry, HasRetry: v.HasRetry}
				got := reference.Result{Events: events, LastEventID: id, Retry: retry, HasRetry: hasRetry}
				agree(t, v.Name, cmp.Diff(want, got))
				if t.Failed() {
					t.Fatalf("cut %s", way)
				}
			}
			try("as its source does", chunk.NewReader(v.Chunks))
			if len(input) > 1<<20 {
				// A slice of pieces of one byte would be many times the input.
				try("whole", bytes.NewReader(input))
				try("byte by byte", iotest.OneByteReader(bytes.NewReader(input)))
				try("by 1448", chunk.NewReader(chunk.Every(input, 1448)))
				return
			}
			for way, pieces := range chunk.Ways(input, 1) {
				try(way, chunk.NewReader(pieces))
			}
			result := reference.Decode(input, v.InitialLastEventID)
			for i := range result.Events {
				result.Events[i] = reference.Event{Type: result.Events[i].Type, Data: result.Events[i].Data, LastEventID: result.Events[i].LastEventID}
			}
			if diff := cmp.Diff(referenceEvents(v.Events), result.Events); diff != "" {
				t.Errorf("the reference (-vector +reference):\n%s", diff)
			}
		})
	}
}

func referenceEvents(list []vectors.Event) (events []reference.Event) {
	for _, e := range list {
		events = append(events, reference.Event{Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
	}
	return events
}

// adoptBytes decodes r with a Decoder, or, if there is an ID to start from, with a
// Stream that adopts it.
func adoptBytes(t *testing.T, lastEventID string, r io.Reader) (events []reference.Event, id string, retry time.Duration, hasRetry bool) {
	t.Helper()
	take := func(e eventsource.Event, err error) {
		if err != nil {
			if !errors.Is(err, eventsource.ErrTruncated) {
				t.Errorf("the end is %v", err)
			}
			return
		}
		events = append(events, reference.Event{Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
	}
	if lastEventID == "" {
		d := eventsource.NewDecoder(r)
		for e, err := range d.Events() {
			take(e, err)
		}
		retry, hasRetry = d.Retry()
		return events, d.LastEventID(), retry, hasRetry
	}
	client := eventsource.Client{
		Policy: policy.Never,
		Trace:  &eventsource.Trace{Retry: func(d time.Duration) { retry, hasRetry = d, true }},
	}
	next := vectorRequest(t.Context())
	next.Header.Set("Last-Event-ID", lastEventID)
	s := client.Adopt(vectorResponse(200, r), next)
	for e, err := range s.Events() {
		take(e, err)
	}
	return events, s.LastEventID(), retry, hasRetry
}

func vectorRequest(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://vectors.test/stream", nil)
	if err != nil {
		panic(err)
	}
	return req
}

func vectorResponse(status int, body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body:   io.NopCloser(body),
	}
}

// An answer is what became of a server's script, in the terms of the browser
// vectors.
type answer struct {
	Events     []vectors.Event
	Reconnects []reconnect
	Outcome    vectors.Outcome
	Opens      int
}

type reconnect struct {
	LastEventID string // as received; "absent" if there was no header
	Retry       time.Duration
	Path        string
}

// received is an ID as a server receives it: HTTP loses outer spaces and tabs.
func received(id string) string {
	if id == "" {
		return "absent"
	}
	return `"` + strings.Trim(id, " \t") + `"`
}

// measured is a reconnection time as far as a measured delay can tell it.
func measured(d time.Duration) time.Duration {
	if d <= 10*time.Millisecond {
		return 0
	}
	return d
}

func browserAnswer(v vectors.Browser) answer {
	a := answer{Events: v.Events, Outcome: v.Outcome, Opens: v.Opens}
	for _, r := range v.Reconnects {
		id := "absent"
		if r.LastEventID != nil {
			id = `"` + *r.LastEventID + `"`
		}
		a.Reconnects = append(a.Reconnects, reconnect{id, measured(time.Duration(r.RetryMs) * time.Millisecond), r.Path})
	}
	return a
}

const (
	browserDefaultRetry = 3 * time.Second
	browserPatience     = 5 * time.Second // what is longer than that was not waited for
)

// referenceAnswer runs the reference over a script of event streams, and of
// connections without a response, one after the other. A Client stops at an ID that
// HTTP cannot carry; browsers go on.
func referenceAnswer(v vectors.Browser, sendAnything bool) answer {
	a := answer{Outcome: vectors.Closed}
	id, retry := "", browserDefaultRetry
	for _, c := range v.Connections {
		if c.Status != -1 {
			result := reference.Decode(bytes.Join(c.Chunks, nil), id)
			for _, e := range result.Events {
				a.Events = append(a.Events, vectors.Event{Connection: a.Opens, Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
			}
			a.Opens++
			id = result.LastEventID
			if result.HasRetry {
				retry = result.Retry
			}
		}
		if retry > browserPatience {
			a.Outcome = vectors.Waiting
			return a
		}
		if !sendAnything && unsendable(id) {
			a.Outcome = vectors.Failed
			return a
		}
		a.Reconnects = append(a.Reconnects, reconnect{LastEventID: received(id), Retry: measured(retry)})
	}
	return a
}

func unsendable(id string) bool {
	return strings.ContainsFunc(id, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F })
}

var answerOptions = cmp.Options{cmpopts.EquateEmpty()}

// A scriptedServer is a transport that answers with the connections of a script,
// and after the last one with 204.
type scriptedServer struct {
	connections []vectors.Connection
	seen        func(*http.Request)
	requests    int
}

func (s *scriptedServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.seen(req)
	s.requests++
	if s.requests > len(s.connections) {
		return vectorResponse(204, http.NoBody), nil
	}
	c := s.connections[s.requests-1]
	r := chunk.NewReader(c.Chunks)
	if c.Cut {
		r.End = io.ErrUnexpectedEOF
	}
	return vectorResponse(200, r), nil
}

// streamAnswer runs a Client with all its defaults over a script, on a test clock,
// and checks each wait against the reconnection time in force.
func streamAnswer(t *testing.T, v vectors.Browser) (a answer) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last policy.Attempt
		var waited time.Duration
		waiting := false
		inForce := func() time.Duration {
			if last.HasRetry {
				return last.Retry
			}
			return browserDefaultRetry
		}
		server := &scriptedServer{connections: v.Connections}
		server.seen = func(req *http.Request) {
			if server.requests == 0 {
				if id := req.Header["Last-Event-Id"]; id != nil {
					t.Errorf("the first request has the last event ID %q", id)
				}
				return
			}
			if got := time.Since(last.End); got != waited || got < inForce() {
				t.Errorf("request %d came after %v, the wait was to be %v, the reconnection time is %v", server.requests, got, waited, inForce())
			}
			id := "absent"
			if lines := req.Header["Last-Event-Id"]; lines != nil {
				id = received(lines[0])
				if len(lines) != 1 || lines[0] == "" {
					t.Errorf("request %d has the last event IDs %q", server.requests, lines)
				}
			}
			a.Reconnects = append(a.Reconnects, reconnect{LastEventID: id, Retry: measured(inForce())})
		}
		client := eventsource.Client{
			HTTPClient: &http.Client{Transport: server},
			Trace: &eventsource.Trace{
				Open: func(eventsource.OpenInfo) { a.Opens++ },
				End:  func(a policy.Attempt) { last = a },
				Wait: func(w eventsource.WaitInfo) {
					waited = w.Waited
					if inForce() > browserPatience {
						waiting = true
						cancel()
					}
				},
			},
		}
		var end error
		for e, err := range client.Stream(vectorRequest(ctx)).Events() {
			if err != nil {
				end = err
				break
			}
			a.Events = append(a.Events, vectors.Event{Connection: a.Opens - 1, Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
		}
		switch {
		case waiting:
			a.Outcome = vectors.Waiting
		case end == nil && server.requests == len(v.Connections)+1:
			a.Outcome = vectors.Closed
		case errors.Is(end, eventsource.ErrUnsendableID):
			a.Outcome = vectors.Failed
		default:
			t.Errorf("after %d requests the end is %v", server.requests, end)
		}
	})
	return a
}

func testBrowser(t *testing.T, list []vectors.Browser) {
	for _, v := range list {
		t.Run(v.ID, func(t *testing.T) {
			ours := streamAnswer(t, v)
			if diff := cmp.Diff(referenceAnswer(v, false), ours, answerOptions); diff != "" {
				t.Errorf("%s (-reference +ours):\n%s", v.Wire, diff)
			}
			agree(t, v.ID, cmp.Diff(browserAnswer(v), ours, answerOptions))

			// The Decoder alone, on the first connection, however it is cut.
			var want []reference.Event
			for _, e := range ours.Events {
				if e.Connection == 0 {
					want = append(want, reference.Event{Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
				}
			}
			for way, pieces := range chunk.Ways(bytes.Join(v.Connections[0].Chunks, nil), 1) {
				events, _, _, _ := adoptBytes(t, "", chunk.NewReader(pieces))
				if diff := cmp.Diff(want, events); diff != "" {
					t.Errorf("cut %s (-stream +decoder):\n%s", way, diff)
				}
			}
		})
	}
}

func TestVectorsBrowserNamed(t *testing.T) { testBrowser(t, must(t, vectors.BrowserNamed)) }

func TestVectorsBrowserGenerated(t *testing.T) { testBrowser(t, must(t, vectors.BrowserGenerated)) }

// Where the table lists a vector under a reason, that reason alone explains the
// browser's answer: change the bytes to what the browser took them for, and the
// reference gives the same answer.
func TestDifferencesHaveTheirReason(t *testing.T) {
	quirks := map[string]func([]byte) []byte{
		reasonBOM: func(b []byte) []byte {
			return regexp.MustCompile("^\xef\xbb\xbf[\r\n]").ReplaceAll(b, []byte("\xef\xbb\xbf?"))
		},
		reasonEmptyRetry: func(b []byte) []byte {
			return regexp.MustCompile(`(^|[\r\n])retry(?:: ?)?([\r\n])`).ReplaceAll(b, []byte("${1}retry: 3000$2"))
		},
		reasonHugeRetry: func(b []byte) []byte {
			return regexp.MustCompile(`retry: ?[0-9]+[\r\n]`).ReplaceAllFunc(b, func(line []byte) []byte {
				n, ok := new(big.Int).SetString(strings.Trim(strings.TrimPrefix(string(line), "retry:"), " \r\n"), 10)
				if ok && n.BitLen() > 64 {
					return bytes.ToUpper(line) // another field
				}
				return line
			})
		},
		reasonUnsendable: func(b []byte) []byte { return b },
	}
	table := must(t, vectors.Differences)
	for _, v := range append(append([]vectors.Browser{}, must(t, vectors.BrowserNamed)...), must(t, vectors.BrowserGenerated)...) {
		reason, ok := table[v.ID]
		if !ok {
			continue
		}
		quirk, ok := quirks[reason]
		if !ok {
			t.Errorf("%s is listed under %q, which is no reason for a difference in decoding", v.ID, reason)
			continue
		}
		changed := v
		changed.Connections = nil
		for _, c := range v.Connections {
			c.Chunks = [][]byte{quirk(bytes.Join(c.Chunks, nil))}
			changed.Connections = append(changed.Connections, c)
		}
		got := referenceAnswer(changed, reason == reasonUnsendable)
		if diff := cmp.Diff(browserAnswer(v), got, answerOptions); diff != "" {
			t.Errorf("%s: %q is not the whole reason (-browser +reference with it):\n%s", v.ID, reason, diff)
		}
	}
}

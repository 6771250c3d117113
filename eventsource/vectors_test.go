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
// through the Decoder, and what a browser was seen to do through a Stream.

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
			readers := decodingReaders(string(input))
			readers["as its source does"] = chunk.NewReader(v.Chunks)
			for way, r := range readers {
				got := decodeWith(decodingMethods[0], eventsource.NewHookedDecoder(r, v.InitialLastEventID, nil, nil, nil))
				if got.End != io.EOF && got.End != eventsource.ErrTruncated {
					t.Errorf("the end is %v", got.End)
				}
				want := decoding{Events: vectorEvents(v.Events, 0), End: got.End, LastEventID: v.LastEventID, Retry: v.Retry, HasRetry: v.HasRetry}
				if v.AnyRetry {
					if got.Retry < 0 || got.HasRetry && got.Retry == 0 {
						t.Errorf("the reconnection time is %v", got.Retry)
					}
					want.Retry, want.HasRetry = got.Retry, got.HasRetry
				}
				agree(t, v.Name, cmp.Diff(want, got, sameErrors))
				if t.Failed() {
					t.Fatalf("cut %s", way)
				}
			}
			result := fromReference(reference.Decode(input, v.InitialLastEventID))
			if diff := cmp.Diff(vectorEvents(v.Events, 0), result.Events); diff != "" {
				t.Errorf("the reference (-vector +reference):\n%s", diff)
			}
		})
	}
}

// vectorEvents returns the events of one connection.
func vectorEvents(list []vectors.Event, connection int) (events []eventsource.Event) {
	for _, e := range list {
		if e.Connection == connection {
			events = append(events, eventsource.Event{Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
		}
	}
	return events
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
		return response(204, "text/event-stream", http.NoBody), nil
	}
	c := s.connections[s.requests-1]
	r := chunk.NewReader(c.Chunks)
	if c.Cut {
		r.End = io.ErrUnexpectedEOF
	}
	return response(200, "text/event-stream", io.NopCloser(r)), nil
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
			Trace: traceOf(&eventsource.Trace{
				Open: func(eventsource.OpenInfo) { a.Opens++ },
				End:  func(a policy.Attempt) { last = a },
				Wait: func(w eventsource.WaitInfo) {
					waited = w.Waited
					if inForce() > browserPatience {
						waiting = true
						cancel()
					}
				},
			}),
		}
		var end error
		for e, err := range client.Stream(get(ctx)).Events() {
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
			want := vectorEvents(ours.Events, 0)
			for way, pieces := range chunk.Ways(bytes.Join(v.Connections[0].Chunks, nil), 1) {
				got := decodeWith(decodingMethods[0], eventsource.NewDecoder(chunk.NewReader(pieces)))
				if diff := cmp.Diff(want, got.Events); diff != "" {
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

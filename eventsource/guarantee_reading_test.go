package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// cutInManyWays plays a scenario with its bodies read whole, byte by byte, and at
// random.
func cutInManyWays(run runScenarios, scenarios []scenario.Scenario) (records []*scenario.Record) {
	s := scenarios[0]
	for _, chunk := range []int{0, 1, -1 - len(s.Server)} {
		s.Chunk = chunk
		records = append(records, run(s)...)
	}
	return records
}

// chunkingNeverMatters: how bodies are cut changes nothing, and an event is there
// as soon as the byte is that completes it.
func chunkingNeverMatters(records []*scenario.Record, c *complaints) {
	whole := records[0].Text()
	for _, r := range records {
		if text := r.Text(); text != whole {
			c.add("in reads of %d (-whole +cut):\n%s", r.Scenario.Chunk, cmp.Diff(strings.Split(whole, "\n"), strings.Split(text, "\n")))
			return
		}
		for i, truth := range r.Truths() {
			checkPrompt(c, r.Attempts[i], truth)
		}
	}
}

// checkPrompt checks when the loop was given the events of an attempt.
func checkPrompt(c *complaints, a *scenario.Attempt, truth scenario.Truth) {
	reads := a.Reads
	for n, d := range a.Events {
		if n >= len(truth.Decoded.Events) {
			c.add("attempt %d: event %d comes out of nothing", a.Number, n+1)
			return
		}
		for reads[0].Total < truth.Decoded.Events[n].End {
			reads = reads[1:]
		}
		if d.At != reads[0].At {
			c.add("attempt %d: event %d was complete at %v and given to the loop at %v", a.Number, n+1, reads[0].At, d.At)
		}
	}
}

func TestG9StreamChunkingNeverMatters(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Steady: true},
		play:    cutInManyWays,
		check:   chunkingNeverMatters,
	}
	pause := func(texts ...string) []scenario.Answer {
		a := scenario.Answer{End: scenario.Hold}
		for i, text := range texts {
			a.Body = append(a.Body, scenario.Piece{Wait: time.Duration(i) * time.Second, Text: text})
		}
		return []scenario.Answer{a}
	}
	minute := scenario.Caller{Deadline: time.Minute}
	const end = "1m0s done: context deadline exceeded"
	p.holdsIn(t, []scenarioCase{
		{
			name:     "a CR ends a line at once",
			scenario: scenario.Scenario{Server: pause("data: a\r\r"), Caller: minute},
			want:     []string{"0s request", `0s event "a"`, end},
		},
		{
			name:     "and an LF that comes later belongs to it",
			scenario: scenario.Scenario{Server: pause("data: a\r\n\r", "\ndata: b\r\r", "\n\r\n"), Caller: minute},
			want:     []string{"0s request", `0s event "a"`, `1s event "b"`, end},
		},
		{
			name:     "a CRLF between two lines is no blank line",
			scenario: scenario.Scenario{Server: pause("data: a\r", "\ndata: b\r", "\n\r"), Caller: minute},
			want:     []string{"0s request", `3s event "a\nb"`, end},
		},
		{
			name:     "a byte order mark and a character in pieces",
			scenario: scenario.Scenario{Server: pause("\xef", "\xbb\xbfdata: \xe2\x82", "\xac\n\n"), Caller: minute},
			want:     []string{"0s request", `3s event "€"`, end},
		},
		{
			name:     "an event waits for its blank line, whatever follows",
			scenario: scenario.Scenario{Server: pause("data: a\n", ": hello\n", "id: 1\n", "\ndata: b"), Caller: minute},
			want:     []string{"0s request", `6s event "a"`, end},
		},
		{
			name: "what comes after an event that ends it all is not looked at",
			scenario: scenario.Scenario{
				Server: pause("data: a\n\n: hello\nretry: 60000\n\nid: 1\n\ndata: b\n\n"),
				Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: scenario.Cancel}}},
			},
			want: []string{"0s request", `0s event "a"`, "0s done: scenario: cancelled by the caller"},
		},
	})
	p.holds(t)
}

// readAhead is the constant of G10: what a stream may read beyond what it needs.
const readAhead = 64 << 10

// boundedMemory: whatever the server sends, a stream reads no more than its limit
// and a constant before it refuses, and never asks for more at once.
func boundedMemory(records []*scenario.Record, c *complaints) {
	r := records[0]
	for i, truth := range r.Truths() {
		a := r.Attempts[i]
		if most := scenario.MaxEventSize + readAhead; a.LargestRead > most {
			c.add("attempt %d has room for %d bytes", a.Number, a.LargestRead)
		}
		response := (*eventsource.ResponseError)(nil)
		if truth.Rejected && (len(a.Delivered) > 4<<10 || a.Reported != nil && errors.As(a.Reported.Err, &response) && len(response.Body) > 4<<10) {
			c.add("attempt %d reads %d bytes of a refusal", a.Number, len(a.Delivered))
		}
		if !truth.TooLarge {
			if a.Reported != nil && a.Reported.Kind == policy.TooLarge {
				c.add("attempt %d: %v", a.Number, a.Reported.Err)
			}
			continue
		}
		if a.Reported != nil && a.Reported.Kind != policy.TooLarge {
			c.add("attempt %d is %v with an event that is too large", a.Number, a.Reported.Kind)
		}
		if last := a.Reads[len(a.Reads)-1]; len(a.Reads) > 1 {
			// All that was read before the last read was within the limit.
			if before := a.Reads[len(a.Reads)-2].Total; last.Total-before > readAhead || beyondLimit(a.Delivered[:before]) {
				c.add("attempt %d goes on reading an event that is too large, up to byte %d", a.Number, last.Total)
			}
		}
	}
}

// beyondLimit reports whether the line at the end of a stream is beyond the limit.
func beyondLimit(delivered []byte) bool {
	delivered = bytes.TrimPrefix(delivered, []byte("\ufeff"))
	return len(delivered)-1-bytes.LastIndexAny(delivered, "\r\n") > scenario.MaxEventSize
}

func TestG10StreamMemoryIsBounded(t *testing.T) {
	t.Parallel()
	p := property{profile: scenario.Profile{Hostile: true}, check: boundedMemory}
	flood := func(start, text string) []scenario.Answer {
		return []scenario.Answer{{Body: []scenario.Piece{{Text: start}, {Text: text, Times: 1 << 17}}}}
	}
	tooLarge := []string{"0s request", "0s too large", "0s done: scenario: the policy's script has ended"}
	fine := []string{"0s request", "0s ended", "0s done: scenario: the policy's script has ended"}
	p.holdsIn(t, []scenarioCase{
		{"a line without end", scenario.Scenario{Server: flood("data: ", "x")}, tooLarge},
		{"an ID without end", scenario.Scenario{Server: flood("id: ", "x")}, tooLarge},
		{"a type without end", scenario.Scenario{Server: flood("event: ", "x")}, tooLarge},
		{"a comment without end", scenario.Scenario{Server: flood(": ", "x")}, tooLarge},
		{"a field name without end", scenario.Scenario{Server: flood("", "x")}, tooLarge},
		{"data without end", scenario.Scenario{Server: flood("", "data: x\n")}, tooLarge},
		{"empty data without end", scenario.Scenario{Server: flood("", "data\r")}, tooLarge},
		{"many comments", scenario.Scenario{Server: flood("", ": x\n")}, fine},
		{"many IDs", scenario.Scenario{Server: flood("", "id: x\n")}, fine},
		{"many blank lines", scenario.Scenario{Server: flood("", "\n")}, fine},
		{"a refusal without end", scenario.Scenario{Server: []scenario.Answer{{Status: 404, Body: []scenario.Piece{{Text: "x", Times: 1 << 17}}}}}, nil},
	})
	p.holds(t)
}

// An endlessBody repeats a text, and looks at the heap now and then.
type endlessBody struct {
	text   string
	left   int // to send
	peak   *uint64
	sent   int
	closed bool
}

func (b *endlessBody) Read(p []byte) (int, error) {
	if b.closed || b.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) {
		n += copy(p[n:], b.text[(b.sent+n)%len(b.text):])
	}
	if (b.sent+n)>>20 != b.sent>>20 {
		*b.peak = max(*b.peak, b.measure())
	}
	b.sent += n
	b.left -= n
	return n, nil
}

func (b *endlessBody) Close() error {
	b.closed = true
	return nil
}

// measure returns the size of the heap.
func (*endlessBody) measure() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A hostile server can send what it likes, for as long as it likes: the heap stays
// within a few times the limit. 16 MiB are sent of each.
func TestG10HeapStaysSmall(t *testing.T) {
	const limit = 1 << 20
	long := strings.Repeat("x", limit*3/4)
	for _, tt := range []struct{ name, text string }{
		{"a line without end", "x"},
		{"data without end", "data: x\n"},
		{"long lines of data", "data: " + long + "\n"},
		{"long events", "data: " + long + "\n\n"},
		{"long IDs", "id: " + long[:limit/4] + "\n\n"},
		{"long types", "event: " + long + "\ndata\n\n"},
		{"long comments", ": " + long + "\n"},
		{"characters that are not UTF-8", "data: " + strings.Repeat("\xff", limit/4) + "\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := (*endlessBody)(nil).measure()
			peak := before
			transport := roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				resp := response(200, "text/event-stream", &endlessBody{text: tt.text, left: 16 << 20, peak: &peak})
				return resp, nil
			})
			c := eventsource.Client{HTTPClient: &http.Client{Transport: transport}, MaxEventSize: limit, Policy: policy.Never}
			var last string // what a caller keeps
			for event := range c.Stream(get(context.Background())).Events() {
				last = event.Data
			}
			runtime.KeepAlive(last)
			if grown := peak - min(before, peak); grown > 6*limit {
				t.Errorf("the heap grows by %d KiB", grown>>10)
			}
		})
	}
}

package eventsource_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/chunk"
	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/internal/workloads"
)

// A decoding is all that can be seen of the decoding of an input.
type decoding struct {
	Events      []eventsource.Event
	End         error
	LastEventID string
	Retry       time.Duration
	HasRetry    bool
}

// plainEvent returns an event without a type or an ID of its own.
func plainEvent(data string) eventsource.Event {
	return eventsource.Event{Type: "message", Data: data}
}

// plainEvents returns events without types or IDs of their own.
func plainEvents(data ...string) []eventsource.Event {
	var events []eventsource.Event
	for _, s := range data {
		events = append(events, plainEvent(s))
	}
	return events
}

// A decodingMethod is a way to have the events of a decoder, and its final error.
type decodingMethod struct {
	name string
	read func(*eventsource.Decoder) ([]eventsource.Event, error)
}

var decodingMethods = []decodingMethod{
	{"Next", func(d *eventsource.Decoder) ([]eventsource.Event, error) { return readAll(d.Next) }},
	{"NextRaw", func(d *eventsource.Decoder) ([]eventsource.Event, error) { return readAll(nextRaw(d)) }},
	{"Next and NextRaw in turn", func(d *eventsource.Decoder) ([]eventsource.Event, error) {
		next, other := d.Next, nextRaw(d)
		return readAll(func() (eventsource.Event, error) {
			next, other = other, next
			return other()
		})
	}},
	{"Events", func(d *eventsource.Decoder) (events []eventsource.Event, err error) {
		for event, err := range d.Events() {
			if err != nil {
				return events, err
			}
			events = append(events, event)
		}
		return events, io.EOF
	}},
}

func readAll(next func() (eventsource.Event, error)) (events []eventsource.Event, err error) {
	for {
		event, err := next()
		if err != nil {
			return events, err
		}
		events = append(events, event)
	}
}

// nextRaw returns d.NextRaw with copies of what it returns.
func nextRaw(d *eventsource.Decoder) func() (eventsource.Event, error) {
	return func() (eventsource.Event, error) {
		raw, err := d.NextRaw()
		event := eventsource.Event{Type: string(raw.Type), Data: string(raw.Data), LastEventID: string(raw.LastEventID)}
		vandalise(raw)
		return event, err
	}
}

// vandalise does to a RawEvent what its receiver may do by mistake: what the decoder
// has yet to use must not suffer.
func vandalise(raw eventsource.RawEvent) {
	for _, part := range [][]byte{raw.Type, raw.Data, raw.LastEventID} {
		_ = append(part, "vandal"...)
	}
	copy(raw.Type, "vandalise")
	copy(raw.Data, "vandalise")
}

func decodeWith(m decodingMethod, d *eventsource.Decoder) decoding {
	var got decoding
	got.Events, got.End = m.read(d)
	got.LastEventID = d.LastEventID()
	got.Retry, got.HasRetry = d.Retry()
	return got
}

// decodingReaders returns readers of input that differ in how they hand it out, by name.
func decodingReaders(input string) map[string]io.Reader {
	b := []byte(input)
	readers := map[string]io.Reader{
		"whole":       strings.NewReader(input),
		"in halves":   iotest.HalfReader(strings.NewReader(input)),
		"by 97 bytes": chunk.NewReader(chunk.Every(b, 97)),
	}
	if len(input) > 10_000 {
		return readers
	}
	readers["with its end"] = iotest.DataErrReader(strings.NewReader(input))
	readers["byte by byte, with its end"] = iotest.DataErrReader(iotest.OneByteReader(strings.NewReader(input)))
	for name, pieces := range chunk.Ways(b, uint64(len(b))) {
		readers[name] = chunk.NewReader(pieces)
	}
	for i := 0; i <= len(input) && len(input) <= 300; i++ {
		readers[fmt.Sprintf("cut at %d", i)] = chunk.NewReader(chunk.At(b, i))
	}
	return readers
}

// sameErrors compares errors as a caller does with ==.
var sameErrors = cmp.Comparer(func(a, b error) bool { return a == b })

func abbreviate(s string) string {
	if len(s) > 200 {
		return s[:100] + "…" + s[len(s)-100:]
	}
	return s
}

func TestDecode(t *testing.T) {
	type test struct {
		name, input string
		want        decoding
	}
	event := func(typ, data, id string) eventsource.Event {
		return eventsource.Event{Type: typ, Data: data, LastEventID: id}
	}
	message := func(data, id string) eventsource.Event { return event("message", data, id) }
	nothing := decoding{End: io.EOF}
	plain := func(data ...string) decoding { return decoding{Events: plainEvents(data...), End: io.EOF} }
	typed := func(events ...eventsource.Event) decoding { return decoding{Events: events, End: io.EOF} }
	withID := func(id string, events ...eventsource.Event) decoding {
		return decoding{Events: events, End: io.EOF, LastEventID: id}
	}
	truncated := func(data ...string) decoding {
		return decoding{Events: plainEvents(data...), End: eventsource.ErrTruncated}
	}
	retry := func(d time.Duration) decoding { return decoding{End: io.EOF, Retry: d, HasRetry: true} }
	const longest = time.Duration(math.MaxInt64)

	tests := []test{
		{"nothing", "", nothing},
		{"blank lines", "\n\r\r\n\n", nothing},
		{"comments", ":\n: a\n:b\n\n", nothing},
		{"a comment is no field", ":data: x\n\n", nothing},
		{"a comment within a block", "data: a\n: c\ndata: b\n\n", plain("a\nb")},

		{"data without a colon", "data\n\n", plain("")},
		{"data three times without a value", "data\ndata\ndata\n\n", plain("\n\n")},
		{"an empty line of data between others", "data: a\ndata: \ndata: b\n\n", plain("a\n\nb")},
		{"lines of data", "data: a\ndata:b\ndata:  c\n\n", plain("a\nb\n c")},
		{"only one space goes", "data:  a \n\n", plain(" a ")},
		{"a tab is no space", "data:\ta\n\n", plain("\ta")},
		{"a value that is a space", "data:  \n\n", plain(" ")},
		{"colons in the value", "data: a:b: c\ndata::\n\n", plain("a:b: c\n:")},
		{"NUL in data", "data: a\x00b\n\n", plain("a\x00b")},
		{"two events", "data: a\n\ndata: b\n\n", plain("a", "b")},
		{"names are case sensitive", "Data: a\nDATA: b\n\n", nothing},
		{"names are not trimmed", " data: a\ndata : b\n\tdata: c\n\n", nothing},
		{"longer and shorter names", "dat: a\ndatas: b\nd: c\nd\ndatax\n\n", nothing},
		{"names that begin like known ones", "even: a\nevents: a\ni: 1\nids: 1\nretr: 1\nretrys: 1\n\ndata: x\n\n", plain("x")},
		{"a NUL in a name", "data\x00: a\n\n", nothing},
		{"unknown fields", "foo: a\nbar\n\ndata: x\nbaz\n\n", plain("x")},

		{"the type after the data", "data: x\nevent: a\n\n", typed(event("a", "x", ""))},
		{"the last type", "event: a\nevent: bc\ndata: x\n\n", typed(event("bc", "x", ""))},
		{"a type without a colon", "event: a\nevent\ndata: x\n\n", plain("x")},
		{"a type named message", "event: message\ndata: x\n\n", plain("x")},
		{"a type is for one event", "event: a\ndata: x\n\ndata: y\n\nevent: b\ndata: z\n\n", typed(event("a", "x", ""), plainEvent("y"), event("b", "z", ""))},
		{"a type without data is forgotten", "event: a\n\ndata: x\n\n", plain("x")},
		{"a type between lines of data that move", "data: a\nevent: t\nid: 1\ndata: long enough to lie on the type\n\n", withID("1", event("t", "a\nlong enough to lie on the type", "1"))},
		{"types with NUL and spaces", "event:  a\x00 \ndata: x\n\n", typed(event(" a\x00 ", "x", ""))},

		{"an ID stays", "id: 1\ndata: x\n\ndata: y\n\n", withID("1", message("x", "1"), message("y", "1"))},
		{"the last ID of a block", "id: 1\nid: 22\ndata: x\n\n", withID("22", message("x", "22"))},
		{"the ID after the data", "data: x\nid: 1\n\n", withID("1", message("x", "1"))},
		{"an ID without data", "id: 1\n\ndata: x\n\n", withID("1", message("x", "1"))},
		{"IDs without data in a row", "id: 1\n\nid: 2\n\nid: 3\n\n", withID("3")},
		{"an ID that is cut off", "id: 1\n\nid: 2\n", withID("1")},
		{"an ID that is cut off with data", "id: 1\ndata: x\n\nid: 2\ndata: y\n", decoding{Events: []eventsource.Event{message("x", "1")}, End: eventsource.ErrTruncated, LastEventID: "1"}},
		{"an empty ID", "id: 1\ndata: x\n\nid:\ndata: y\n\n", typed(message("x", "1"), message("y", ""))},
		{"an ID without a colon", "id: 1\ndata: x\n\nid\ndata: y\n\n", typed(message("x", "1"), message("y", ""))},
		{"an empty ID without data", "id: 1\n\nid\n\n", nothing},
		{"an ID that comes back", "id: 1\ndata: x\n\nid: 2\n\nid: 1\ndata: y\n\n", withID("1", message("x", "1"), message("y", "1"))},
		{"an ID with a NUL", "id: 1\nid: 2\x003\ndata: x\n\n", withID("1", message("x", "1"))},
		{"an ID with a NUL beyond eight bytes", "id: 1\nid: 234567890123456\x00\nid: \x00\ndata: x\n\n", withID("1", message("x", "1"))},
		{"an ID with spaces and colons", "id:  a: b \ndata: x\n\n", withID(" a: b ", message("x", " a: b "))},

		{"retry without a blank line", "retry: 1500\n", retry(1500 * time.Millisecond)},
		{"retry without a line end", "retry: 1500", nothing},
		{"retry with leading zeros", "retry:" + strings.Repeat("0", 40) + "7\n", retry(7 * time.Millisecond)},
		{"retry 0", "retry: 0\n", retry(0)},
		{"the last retry", "retry: 1\nretry: 2\n\nretry: 3\n", retry(3 * time.Millisecond)},
		{"the longest retry that is exact", "retry: 9223372036854\n", retry(9223372036854 * time.Millisecond)},
		{"retry just beyond a Duration", "retry: 9223372036855\n", retry(longest)},
		{"retry far beyond a Duration", "retry: 18446744073709551616\n", retry(longest)},
		{"retry beyond all bounds", "retry: " + strings.Repeat("9", 100) + "\n", retry(longest)},
		{"retry without a value", "retry: 42\nretry\nretry:\n", retry(42 * time.Millisecond)},

		{"CRLF", "event: a\r\ndata: x\r\nid: 1\r\n\r\n", withID("1", event("a", "x", "1"))},
		{"CR", "event: a\rdata: x\rid: 1\r\r", withID("1", event("a", "x", "1"))},
		{"all line ends", "data: a\ndata: b\rdata: c\r\n\ndata: d\n\r\ndata: e\r\n\r", plain("a\nb\nc", "d", "e")},
		{"CR LF LF is two ends", "data: x\r\n\ndata: y\n\n", plain("x", "y")},
		{"LF CR is two ends", "data: x\n\rdata: y\n\n", plain("x", "y")},
		{"CR CR LF is two ends", "data: x\r\r\ndata: y\r\r\n", plain("x", "y")},
		{"CRLF at the start", "\r\ndata: x\n\n", plain("x")},
		{"what Unicode ends lines with", "data: a\u2028b\u2029c\u0085d\ve\ff\n\n", plain("a\u2028b\u2029c\u0085d\ve\ff")},

		{"a BOM", "\uFEFFdata: x\n\n", plain("x")},
		{"a BOM before a line end", "\uFEFF\ndata: x\n\n", plain("x")},
		{"two BOMs", "\uFEFF\uFEFFdata: x\n\ndata: y\n\n", plain("y")},
		{"a BOM later", "data: a\n\n\uFEFFdata: b\n\ndata: \uFEFFc\n\n", plain("a", "\uFEFFc")},
		{"a BOM after a line end", "\n\uFEFFdata: b\n\ndata: c\n\n", plain("c")},
		{"a BOM alone", "\uFEFF", nothing},
		{"a BOM that is cut", "\xEF\xBB", nothing},
		{"a BOM with a byte missing", "\xEF\xBBdata: x\n\ndata: y\n\n", plain("y")},
		{"a BOM in UTF-16", "\xFE\xFFdata: x\n\ndata: y\n\n", plain("y")},

		{"UTF-8", "event: é\nid: €\ndata: \U0001F600 a\ndata: é\n\n", withID("€", event("é", "\U0001F600 a\né", "€"))},
		{"not UTF-8", "event: \xE9\nid: \xE2\x82\ndata: \xF0\x9F\x98 \xFF\xFF\n\n", withID("\uFFFD", event("\uFFFD", "\uFFFD \uFFFD\uFFFD", "\uFFFD"))},
		{"a sequence that a line end cuts", "data: \xE2\x82\ndata: \xAC\n\n", plain("\uFFFD\n\uFFFD")},
		{"not UTF-8 only in a line that is followed by others", "data: a\ndata: \xFF\ndata: b\n\ndata: c\n\n", plain("a\n\uFFFD\nb", "c")},
		{"not UTF-8 in a line that is none of ours", "dat\xFF: a\n: \xFF\ndata: c\n\n", plain("c")},
		{"an ID that is not UTF-8 and then one that is", "id: \xFF\ndata: a\n\nid: b\ndata: b\n\n", withID("b", message("a", "\uFFFD"), message("b", "b"))},

		{"cut in a line of data", "data: a\n\ndata: b", truncated("a")},
		{"cut after a line of data", "data: a\n\ndata: b\n", truncated("a")},
		{"cut after lines that are not data", "data: b\nid: 1\n", truncated()},
		{"cut in an empty line of data", "data:", truncated()},
		{"cut in a name that only begins like data", "datax: x", nothing},
		{"cut in a comment", "data: a\n\n: data: b", plain("a")},
		{"cut in another field", "event: a\nid: 1\nretry: 5\n", decoding{End: io.EOF, Retry: 5 * time.Millisecond, HasRetry: true}},
	}
	for _, bad := range []string{"", " ", "x", "1x", "x1", "-1", "+1", "1.5", " 1", "1 ", "1e3", "0x1", "1_000", "\uFF11", "१", "1\x00", "1:", "1/"} {
		tests = append(tests, test{"retry with the bad value " + bad, "retry: 42\nretry: " + bad + "\n", retry(42 * time.Millisecond)})
	}
	// Sizes at which the buffer changes, and lines that cross them.
	for _, size := range []int{eventsource.SmallBuffer, eventsource.BurstBuffer, eventsource.BusyBuffer, 4 * eventsource.BusyBuffer} {
		for _, off := range []int{-9, -8, -7, -6, -1, 0, 1, 2} {
			text := strings.Repeat("0123456789abcdef", size/16+1)[:size+off]
			tests = append(tests, test{fmt.Sprintf("%d bytes of data", len(text)), "data: " + text + "\n\n", plain(text)})
		}
		half := strings.Repeat("h", size/2)
		tests = append(tests, test{
			fmt.Sprintf("%d bytes of data in two lines, with a type and an ID between", size),
			"data: " + half + "\nevent: " + half + "\nid: " + half + "\ndata: " + half + "\n\n",
			withID(half, event(half, half+"\n"+half, half)),
		})
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, m := range decodingMethods {
				for name, r := range decodingReaders(tt.input) {
					if diff := cmp.Diff(tt.want, decodeWith(m, eventsource.NewDecoder(r)), sameErrors); diff != "" {
						t.Fatalf("%q by %s, %s (-want +got):\n%s", abbreviate(tt.input), m.name, name, diff)
					}
				}
			}
			// The table must not be wrong in the way that the decoder is.
			want := reference.Decode([]byte(tt.input), "")
			if diff := cmp.Diff(tt.want, fromReference(want), sameErrors); diff != "" {
				t.Errorf("the table and the reference differ (-table +reference):\n%s", diff)
			}
		})
	}
}

func fromReference(r reference.Result) decoding {
	want := decoding{End: io.EOF, LastEventID: r.LastEventID, Retry: r.Retry, HasRetry: r.HasRetry}
	if r.Truncated {
		want.End = eventsource.ErrTruncated
	}
	for _, event := range r.Events {
		want.Events = append(want.Events, eventsource.Event{Type: event.Type, Data: event.Data, LastEventID: event.LastEventID})
	}
	return want
}

// randomStream puts together a stream of what decoders trip over.
func randomStream(rng *rand.Rand) []byte {
	tokens := []string{
		"data", "data:", "data: ", "data: x\n", "data: x\n\n", "id", "id: ", "id: 1\n", "event: ", "event: t\n", "retry:", "retry: 12\n",
		":", ": c\n", "\n", "\n\n", "\r", "\r\r", "\r\n", "\r\n\r\n", "\uFEFF", "é", "\xE2\x82", "\xF0\x9F", "\x80", "\xFF", "\x00", " ", "x",
	}
	var b []byte
	for range rng.IntN(40) {
		b = append(b, tokens[rng.IntN(len(tokens))]...)
		if rng.IntN(50) == 0 {
			b = append(b, bytes.Repeat([]byte{"zé\r"[rng.IntN(2)]}, rng.IntN(3*eventsource.SmallBuffer))...)
		}
	}
	return b
}

// TestG9Chunking holds that how the bytes are cut into reads changes nothing, and
// that no event waits for a byte that it does not need: it is there when the reader
// has handed out the line end that completes it, the LF of a CRLF not included.
func TestG9Chunking(t *testing.T) {
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		input := randomStream(rng)
		oracle := reference.Decode(input, "start")
		want := fromReference(oracle)

		for name, pieces := range chunk.Ways(input, seed) {
			for _, m := range decodingMethods {
				got := decodeWith(m, eventsource.NewHookedDecoder(chunk.NewReader(pieces), "start", nil, nil, nil))
				if diff := cmp.Diff(want, got, sameErrors); diff != "" {
					t.Fatalf("seed %d: %q by %s, %s (-want +got):\n%s", seed, abbreviate(string(input)), m.name, name, diff)
				}
			}
		}

		r := chunk.NewReader(chunk.Every(input, 1))
		d := eventsource.NewDecoder(r)
		for i, event := range oracle.Events {
			if _, err := d.Next(); err != nil {
				t.Fatalf("seed %d: %q: event %d: %v", seed, input, i, err)
			}
			if r.Offset() != event.End {
				t.Fatalf("seed %d: %q: event %d came after %d bytes, want %d", seed, input, i, r.Offset(), event.End)
			}
		}
	}
}

// TestG9NothingWaits holds the same for what is not an event.
func TestG9NothingWaits(t *testing.T) {
	const input = ": c\rretry: 5\rid: 7\r\r"
	var got []string
	r := chunk.NewReader(chunk.Every([]byte(input), 1))
	note := func(what string) { got = append(got, fmt.Sprintf("%s after %q", what, input[:r.Offset()])) }
	d := eventsource.NewHookedDecoder(r, "",
		func(string) { note("comment") },
		func(time.Duration) { note("retry") },
		func(string) { note("commit") })
	if _, err := d.Next(); err != io.EOF {
		t.Fatal(err)
	}
	want := []string{`comment after ": c\r"`, `retry after ": c\rretry: 5\r"`, `commit after ": c\rretry: 5\rid: 7\r\r"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

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
func chunkingNeverMatters(records []*scenario.Record, c *scenario.Complaints) {
	whole := records[0].Text()
	for _, r := range records {
		if text := r.Text(); text != whole {
			c.Add("in reads of %d (-whole +cut):\n%s", r.Scenario.Chunk, cmp.Diff(strings.Split(whole, "\n"), strings.Split(text, "\n")))
			return
		}
		for i, truth := range r.Truths() {
			checkPrompt(c, r.Attempts[i], truth)
		}
	}
}

// checkPrompt checks when the loop was given the events of an attempt.
func checkPrompt(c *scenario.Complaints, a *scenario.Attempt, truth scenario.Truth) {
	reads := a.Reads
	for n, d := range a.Events {
		if n >= len(truth.Decoded.Events) {
			c.Add("attempt %d: event %d comes out of nothing", a.Number, n+1)
			return
		}
		for reads[0].Total < truth.Decoded.Events[n].End {
			reads = reads[1:]
		}
		if d.At != reads[0].At {
			c.Add("attempt %d: event %d was complete at %v and given to the loop at %v", a.Number, n+1, reads[0].At, d.At)
		}
	}
}

func TestG9StreamChunkingNeverMatters(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Steady: true},
		play:    cutInManyWays,
		compare: chunkingNeverMatters,
	}
	// pieces is a server that sends one a bit later than the other.
	pieces := func(texts ...string) scenario.Scenario {
		a := scenario.Answer{End: scenario.Hold}
		for i, text := range texts {
			a.Body = append(a.Body, scenario.Piece{Wait: time.Duration(i) * time.Second, Text: text})
		}
		return scenario.Scenario{Server: []scenario.Answer{a}, Caller: scenario.Caller{Deadline: time.Minute}}
	}
	cancelled := pieces("data: a\n\n: hello\nretry: 60000\n\nid: 1\n\ndata: b\n\n")
	cancelled.Caller = scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: scenario.Cancel}}}
	const end = "1m0s done: context deadline exceeded"
	p.holdsIn(t, []scenarioCase{
		{"a CR ends a line at once", pieces("data: a\r\r"), []string{"0s request", `0s event "a"`, end}},
		{
			"and an LF that comes later belongs to it", pieces("data: a\r\n\r", "\ndata: b\r\r", "\n\r\n"),
			[]string{"0s request", `0s event "a"`, `1s event "b"`, end},
		},
		{
			"a CRLF between two lines is no blank line", pieces("data: a\r", "\ndata: b\r", "\n\r"),
			[]string{"0s request", `3s event "a\nb"`, end},
		},
		{
			"a byte order mark and a character in pieces", pieces("\xef", "\xbb\xbfdata: \xe2\x82", "\xac\n\n"),
			[]string{"0s request", `3s event "€"`, end},
		},
		{
			"an event waits for its blank line, whatever follows", pieces("data: a\n", ": hello\n", "id: 1\n", "\ndata: b"),
			[]string{"0s request", `6s event "a"`, end},
		},
		{
			"what comes after an event that ends it all is not looked at", cancelled,
			[]string{"0s request", `0s event "a"`, "0s done: scenario: cancelled by the caller"},
		},
	})
	p.holds(t)
}

func TestHooks(t *testing.T) {
	tests := []struct {
		name, id, input string
		want            []string
	}{
		{"none", "", "data: x\n\n", []string{"event x "}},
		{"comments", "", ": ping\n:\n:  a \n:\xFFb: c\nfoo:\n:cut", []string{"comment ping", "comment ", "comment  a ", "comment \uFFFDb: c"}},
		{"a comment within a block", "", "data: x\n:c\n\n", []string{"comment c", "event x "}},
		{"retry", "", "retry: 1\nretry: x\nretry: 1\ndata: x\n\n", []string{"retry 1ms", "retry 1ms", "event x "}},
		{"an ID of an event", "", "id: 1\ndata: x\n\n", []string{"event x 1"}},
		{"an ID without data", "", "id: 1\n\n: c\n", []string{"commit 1", "comment c"}},
		{"an ID that stays the same", "", "id: 1\ndata: x\n\nid: 1\ndata: y\n\nid: 1\n\n", []string{"event x 1", "event y 1"}},
		{"the ID to start from", "0", "id: 0\ndata: x\n\n", []string{"event x 0"}},
		{"an ID that is reset", "0", "id\n\ndata: x\n\n", []string{"commit ", "event x "}},
		{"an ID that is reset with data", "0", "id\ndata: x\n\n", []string{"event x "}},
		{"an ID that changes back after an event", "0", "id: 1\ndata: x\n\nid: 0\n\n", []string{"event x 1", "commit 0"}},
		{"an empty ID that stays so", "", "id\n\nid\ndata: x\n\n", []string{"event x "}},
		{"IDs in a row", "", "id: 1\n\nid: 2\n\nid: 1\n\n", []string{"commit 1", "commit 2", "commit 1"}},
		{"only the last ID of a block", "", "id: 1\nid: 2\n\n", []string{"commit 2"}},
		{"an ID that changes and changes back in one block", "0", "id: 1\nid: 0\n\n", nil},
		{"an ID that is cut off", "", "id: 1\ndata: x\n", nil},
	}
	for _, tt := range tests {
		for i, m := range decodingMethods[:2] {
			t.Run(tt.name+" by "+m.name, func(t *testing.T) {
				var got []string
				note := func(format string, a ...any) { got = append(got, fmt.Sprintf(format, a...)) }
				d := eventsource.NewHookedDecoder(strings.NewReader(tt.input), tt.id,
					func(text string) { note("comment %s", text) },
					func(d time.Duration) { note("retry %v", d) },
					func(id string) { note("commit %s", id) })
				next := []func() (eventsource.Event, error){d.Next, nextRaw(d)}[i]
				for event, err := next(); err == nil; event, err = next() {
					note("event %s %s", event.Data, event.LastEventID)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestSetLastEventID holds that a decoder can go on from where an earlier one was left.
func TestSetLastEventID(t *testing.T) {
	long := strings.Repeat("n", 40_000)
	for _, tt := range []struct {
		name, id, input string
		want            []string // the data and the ID of the events
	}{
		{"until another comes", "7", "data: a\n\nid: 8\ndata: b\n\n", []string{"a 7", "b 8"}},
		{"reset", "7", "id\ndata: a\n\n", []string{"a "}},
		{"the same", "7", "id: 7\ndata: a\n\n", []string{"a 7"}},
		{"none", "", "data: a\n\n", []string{"a "}},
		{"a long one", long, "data: a\n\n", []string{"a " + long}},
		{"an empty input", "7", "", nil},
	} {
		for _, m := range decodingMethods {
			d := eventsource.NewDecoder(strings.NewReader(tt.input))
			d.SetLastEventID("another")
			d.SetLastEventID(tt.id)
			if id := d.LastEventID(); id != tt.id {
				t.Errorf("%s: LastEventID is %q before the first read", tt.name, abbreviate(id))
			}
			want := tt.id
			var got []string
			events, err := m.read(d)
			for _, event := range events {
				want = event.LastEventID
				got = append(got, event.Data+" "+event.LastEventID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != io.EOF || d.LastEventID() != want {
				t.Errorf("%s, %s: %v, the ID is %q at the end (-want +got):\n%s", tt.name, m.name, err, abbreviate(d.LastEventID()), diff)
			}
		}
	}

	// It counts as any ID in force.
	d := eventsource.NewDecoder(strings.NewReader("data: 7890\n\n"))
	d.SetLastEventID(strings.Repeat("n", eventsource.FreeLastID+1))
	d.SetMaxEventSize(10)
	if _, err := d.Next(); !errors.Is(err, eventsource.ErrEventTooLarge) {
		t.Errorf("with one byte too much in force: %v", err)
	}
}

// TestSetAfterReading holds that what a decoder starts with cannot change later.
func TestSetAfterReading(t *testing.T) {
	for name, set := range map[string]func(*eventsource.Decoder){
		"SetMaxEventSize": func(d *eventsource.Decoder) { d.SetMaxEventSize(100) },
		"SetLastEventID":  func(d *eventsource.Decoder) { d.SetLastEventID("7") },
	} {
		d := eventsource.NewDecoder(strings.NewReader("data: x\n\n"))
		set(d)
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				want := "eventsource: " + name + " called after the first read"
				if got := recover(); got != want {
					t.Errorf("%s panics with %v, want %q", name, got, want)
				}
			}()
			set(d)
		}()
	}
}

// TestStringsAreShared holds that a type and an ID are not made anew while they stay
// the same, and that the hook, the event and LastEventID have one string.
func TestStringsAreShared(t *testing.T) {
	for _, data := range []string{"x", strings.Repeat("x", 2*eventsource.MaxShared)} {
		block := "event: tick\nid: 7\ndata: " + data + "\n\n"
		var ids, types []string
		d := eventsource.NewHookedDecoder(strings.NewReader("id: 7\n\n"+block+"data: y\n\n"+block), "", nil, nil, func(id string) { ids = append(ids, id) })
		for event := range d.Events() {
			ids = append(ids, event.LastEventID, d.LastEventID())
			if event.Type != "message" {
				types = append(types, event.Type)
			}
		}
		if len(ids) != 7 || len(types) != 2 {
			t.Fatalf("IDs %q, types %q", ids, types)
		}
		for _, list := range [][]string{ids, types} {
			for i := range list {
				if unsafe.StringData(list[i]) != unsafe.StringData(list[0]) {
					t.Errorf("with %d bytes of data: string %d of %q was made anew", len(data), i, list)
				}
			}
		}
	}
}

// TestRetainedNames holds that who keeps an ID or a type does not thereby keep the
// data of its event.
func TestRetainedNames(t *testing.T) {
	const events, size = 64, 64 << 10
	var input strings.Builder
	for i := range events {
		fmt.Fprintf(&input, "event: type %d\nid: %d\ndata: %0*d\n\n", i, i, size, i)
	}
	r := strings.NewReader(input.String())
	before := int(liveHeap())
	var kept []string
	for event, err := range eventsource.NewDecoder(r).Events() {
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, event.LastEventID, event.Type)
	}
	if want := fmt.Sprint("type ", events-1); len(kept) != 2*events || kept[len(kept)-1] != want {
		t.Fatalf("%d names, the last is %q; want %d and %q", len(kept), kept[len(kept)-1], 2*events, want)
	}
	if grown := int(liveHeap()) - before; grown > 4*size {
		t.Errorf("%d IDs and types hold %d bytes", events, grown)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(r)
}

// TestEvents holds that leaving the loop loses nothing, and how the loop ends:
// silently at the end of the input, with any other error once.
func TestEvents(t *testing.T) {
	for _, end := range []error{io.EOF, io.ErrClosedPipe} {
		d := eventsource.NewDecoder(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n\ndata: c\n\ndata: d\n\n"), iotest.ErrReader(end)))
		var got []string
		note := func(event eventsource.Event, err error) { got = append(got, fmt.Sprintf("%s %v", event.Data, err)) }
		for event, err := range d.Events() {
			note(event, err)
			break
		}
		note(d.Next())
		for event, err := range d.Events() {
			note(event, err)
			if err != nil && event != (eventsource.Event{}) {
				t.Errorf("with the error comes %v", event)
			}
		}
		want := []string{"a <nil>", "b <nil>", "c <nil>", "d <nil>"}
		if end != io.EOF {
			want = append(want, fmt.Sprintf(" %v", end))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at %v (-want +got):\n%s", end, diff)
		}
	}
}

// TestReaderErrors holds that an error of the reader is returned as it is, after
// every event that was whole before it, and for ever, without another read.
func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	wrapped := fmt.Errorf("wrapped: %w", io.EOF)
	tests := []struct {
		name, input string
		err         error
		want        []eventsource.Event
		end         error
	}{
		{"at once", "", broken, nil, broken},
		{"between events", "data: a\n\ndata: b\n\n", broken, plainEvents("a", "b"), broken},
		{"inside an event", "data: a\n\ndata: b\n", broken, plainEvents("a"), broken},
		{"inside a line", "data: a\n\ndata: b", broken, plainEvents("a"), broken},
		{"an unexpected end", "data: a\n\ndata: b", io.ErrUnexpectedEOF, plainEvents("a"), io.ErrUnexpectedEOF},
		{"an end that is wrapped is no end", "data: a\n\ndata: b", wrapped, plainEvents("a"), wrapped},
		{"the end", "data: a\n\n", io.EOF, plainEvents("a"), io.EOF},
		{"the end inside an event", "data: a\n\ndata: b", io.EOF, plainEvents("a"), eventsource.ErrTruncated},
	}
	for _, tt := range tests {
		for _, m := range decodingMethods[:3] {
			for _, withLast := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s by %s, with the last bytes: %v", tt.name, m.name, withLast), func(t *testing.T) {
					r := chunk.NewReader(chunk.Every([]byte(tt.input), 5))
					r.End, r.EndWithLast = tt.err, withLast
					ended := false
					d := eventsource.NewDecoder(readerFunc(func(p []byte) (int, error) {
						if ended {
							t.Error("a read after the error")
						}
						n, err := r.Read(p)
						ended = err != nil
						return n, err
					}))
					want, end := tt.want, tt.end
					for range 3 {
						got, err := m.read(d)
						if diff := cmp.Diff(want, got); diff != "" || err != end {
							t.Errorf("error %v, want %v; events (-want +got):\n%s", err, end, diff)
						}
						want = nil
					}
				})
			}
		}
	}
}

func TestErrTruncated(t *testing.T) {
	if !errors.Is(eventsource.ErrTruncated, io.ErrUnexpectedEOF) || errors.Is(eventsource.ErrTruncated, io.EOF) {
		t.Error("ErrTruncated must be an io.ErrUnexpectedEOF and no io.EOF")
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestReset holds what a new connection takes over: the limit and the ID that it is
// given, and nothing else.
func TestReset(t *testing.T) {
	const y = "data: y\n\n"
	from := func(id string, data ...string) decoding {
		want := decoding{End: io.EOF, LastEventID: id}
		for _, s := range data {
			want.Events = append(want.Events, eventsource.Event{Type: "message", Data: s, LastEventID: id})
		}
		return want
	}
	for _, tt := range []struct {
		name, first, second string
		want                decoding
	}{
		{"after nothing", "", y, from("given", "y")},
		{"after half a block", "event: a\nid: 1\nretry: 5\ndata: x\n", y, from("given", "y")},
		{"after half a line", "data: x\n\nid: 5\n\nda", y, from("given", "y")},
		{"after a line that is not UTF-8", "data: \xFF\n", y, from("given", "y")},
		{"after a large event", "data: " + strings.Repeat("x", 100_000) + "\n", y, from("given", "y")},
		{"a BOM is at the start again", "data: x\r", "\uFEFF" + y, from("given", "y")},
		{"an LF is not the rest of a CRLF", "data: x\r\r", "\n\uFEFFdata: not at the start\n\n" + y, from("given", "y")},
		{"the ID is replaced", "", "id: 1\n" + y, from("1", "y")},
		{"the ID is reset", "", "id\n\n" + y, from("", "y")},
		{"an empty input", "id: 1\n\n", "", from("given")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, m := range decodingMethods {
				for _, drain := range []bool{false, true} {
					called := false
					d := eventsource.NewHookedDecoder(strings.NewReader(tt.first), "", nil, nil, func(string) { called = true })
					if drain {
						_, _ = m.read(d)
					} else {
						_, _ = d.Next()
					}
					called = false
					eventsource.ResetDecoder(d, strings.NewReader(tt.second), "given")
					if id := d.LastEventID(); id != "given" {
						t.Errorf("the ID to start from is %q", id)
					}
					if diff := cmp.Diff(tt.want, decodeWith(m, d), sameErrors); diff != "" || called {
						t.Errorf("%s, drained: %v, old hook called: %v (-want +got):\n%s", m.name, drain, called, diff)
					}
				}
			}
		})
	}

	// Nor is a string made of each comment, as nobody wants it.
	t.Run("the memory", func(t *testing.T) {
		input := strings.Repeat(": ping\n", 1000) + "data: x\n\n"
		r := strings.NewReader(input)
		d := eventsource.NewDecoder(r)
		if n := testing.AllocsPerRun(5, func() {
			r.Reset(input)
			eventsource.ResetDecoder(d, r, "")
			_, _ = d.NextRaw()
		}); n > 2 {
			t.Errorf("another connection allocates %v times", n)
		}
	})

	t.Run("the limit", func(t *testing.T) {
		d := eventsource.NewDecoder(strings.NewReader("data: x\n\n"))
		d.SetMaxEventSize(7)
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
		eventsource.ResetDecoder(d, strings.NewReader("data: xy\n\n"), "")
		if _, err := d.Next(); !errors.Is(err, eventsource.ErrEventTooLarge) {
			t.Errorf("the limit is forgotten: %v", err)
		}
		eventsource.ResetDecoder(d, strings.NewReader("data: xy\n\n"), "")
		d.SetMaxEventSize(8)
		if _, err := d.Next(); err != nil {
			t.Errorf("a limit set before the first read of a connection: %v", err)
		}
	})
}

// TestAllocations holds that a decoder that is warm does not allocate, but for the
// one string that an event of Next needs.
func TestAllocations(t *testing.T) {
	for _, w := range workloads.All() {
		t.Run(w.Name, func(t *testing.T) {
			raw := eventsource.NewDecoder(w.Reader())
			rounds := 20
			if w.Events == 1 {
				rounds = 2
			}
			for range 2 * rounds {
				if _, err := raw.NextRaw(); err != nil {
					t.Fatal(err)
				}
			}
			if n := testing.AllocsPerRun(rounds, func() { _, _ = raw.NextRaw() }); n != 0 {
				t.Errorf("NextRaw allocates %v times, want 0", n)
			}
			d := eventsource.NewDecoder(w.Reader())
			for range 2 * rounds {
				if _, err := d.Next(); err != nil {
					t.Fatal(err)
				}
			}
			want := 1.0
			if w.Name == "heartbeats" {
				want = 0 // a string of one byte
			}
			if n := testing.AllocsPerRun(rounds, func() { _, _ = d.Next() }); n != want {
				t.Errorf("Next allocates %v times, want %v", n, want)
			}
		})
	}
}

// TestAllocationsOfNames holds that a name that stays is not part of the string that
// is made for one that changes: it would not fit there.
func TestAllocationsOfNames(t *testing.T) {
	long := strings.Repeat("n", eventsource.MaxShared)
	for name, format := range map[string]string{
		"a long type and IDs that change": "event: " + long + "\nid: %d\ndata: x\n\n",
		"a long ID and types that change": "id: " + long + "\nevent: t%d\ndata: x\n\n",
	} {
		i := 0
		d := eventsource.NewDecoder(readerFunc(func(p []byte) (int, error) {
			i++
			return copy(p, fmt.Sprintf(format, i)), nil
		}))
		reads := testing.AllocsPerRun(100, func() { _ = fmt.Sprintf(format, i) })
		if n := testing.AllocsPerRun(100, func() { _, _ = d.Next() }); n > reads+1 {
			t.Errorf("%s: %v allocations, %v of them the reader's; want one more", name, n, reads)
		}
	}
}

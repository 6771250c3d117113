package fuzz_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/chunk"
	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/internal/vectors"
)

// seeds adds the vectors to a target's corpus, but for the huge ones; of the
// generated ones every twentieth, so that the plain test run stays short.
func seeds(f *testing.F, add func([]byte)) {
	f.Helper()
	formats, err := vectors.Formats()
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range formats {
		if b := bytes.Join(v.Chunks, nil); len(b) <= 4<<10 {
			add(b)
		}
	}
	named, err := vectors.BrowserNamed()
	if err != nil {
		f.Fatal(err)
	}
	generated, err := vectors.BrowserGenerated()
	if err != nil {
		f.Fatal(err)
	}
	for i, v := range generated {
		if i%20 == 0 {
			named = append(named, v)
		}
	}
	for _, v := range named {
		add(bytes.Join(v.Connections[0].Chunks, nil))
	}
}

// decode reads r to its end in one of the ways that a Decoder offers, and puts
// what it gives in the terms of the reference. The End of an event is what end
// tells once the event has been returned; a nil end leaves it at 0.
func decode(t *testing.T, way string, r io.Reader, end func() int) reference.Result {
	t.Helper()
	result, err := run(t, way, eventsource.NewDecoder(r), end)
	result.Truncated = err == eventsource.ErrTruncated
	if err != io.EOF && !result.Truncated {
		t.Errorf("the end is %v", err)
	}
	if result.Truncated && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v is no io.ErrUnexpectedEOF", err)
	}
	return result
}

// run is decode for a decoder of any settings. It returns the error at the end.
func run(t *testing.T, way string, d *eventsource.Decoder, end func() int) (result reference.Result, err error) {
	t.Helper()
	take := func(typ, data, id string) {
		e := reference.Event{Type: typ, Data: data, LastEventID: id}
		e.Retry, e.HasRetry = d.Retry()
		if end != nil {
			e.End = end()
		}
		if got := d.LastEventID(); got != id {
			t.Errorf("LastEventID() is %q after an event that has %q", got, id)
		}
		result.Events = append(result.Events, e)
	}
	switch way {
	case "Next":
		var e eventsource.Event
		for {
			if e, err = d.Next(); err != nil {
				break
			}
			take(e.Type, e.Data, e.LastEventID)
		}
	case "NextRaw":
		var e eventsource.RawEvent
		for {
			if e, err = d.NextRaw(); err != nil {
				break
			}
			take(string(e.Type), string(e.Data), string(e.LastEventID))
		}
	case "Events":
		err = io.EOF
		for e, endErr := range d.Events() {
			if endErr != nil {
				err = endErr
				break
			}
			take(e.Type, e.Data, e.LastEventID)
		}
	default:
		t.Fatalf("no way of decoding is called %q", way)
	}
	result.LastEventID = d.LastEventID()
	result.Retry, result.HasRetry = d.Retry()
	if _, again := d.Next(); again != err {
		t.Errorf("the end is %v, then %v", err, again)
	}
	return result, err
}

// stretch makes an input long, now and then, so that it meets the edges of buffers:
// by repeating all of it, or each x in it.
func stretch(input []byte, rng *rand.Rand) []byte {
	long := []int{100, 500, 512, 520, 4 << 10, 10_000, 33 << 10}[rng.IntN(7)] + rng.IntN(5)
	switch rng.IntN(6) {
	case 0:
		input = bytes.Repeat(input, long/(len(input)+1)+1)
	case 1:
		if bytes.Count(input, []byte("x")) <= 4 {
			input = bytes.ReplaceAll(input, []byte("x"), bytes.Repeat([]byte("x"), long))
		}
	}
	return input
}

// FuzzDecodeDifferential: the decoder gives what the standard's algorithm gives,
// through each of its methods, for any input.
func FuzzDecodeDifferential(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, uint64(len(b))) })
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		checkDifferential(t, input, seed)
	})
}

func checkDifferential(t *testing.T, input []byte, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	input = stretch(input, rng)
	want := reference.Decode(input, "")
	for _, way := range []string{"Next", "NextRaw", "Events"} {
		r := chunk.NewReader(chunk.Random(input, rng))
		r.EndWithLast = rng.IntN(2) == 0
		for _, r := range []io.Reader{bytes.NewReader(input), r} {
			got := decode(t, way, r, nil)
			if diff := firstDifference(want, got); diff != "" {
				t.Errorf("%s, seed %d: %q (-reference +decoder):\n%s", way, seed, abridged(input), diff)
			}
		}
	}
}

func abridged(b []byte) []byte { return b[:min(len(b), 2000)] }

// firstDifference is cmp.Diff for results that may be long: it describes the first
// event that differs, or what differs besides events, and it is quick.
func firstDifference(want, got reference.Result) string {
	event := func(r reference.Result, i int) reference.Event {
		if i >= len(r.Events) {
			return reference.Event{}
		}
		e := r.Events[i]
		e.End = 0
		return e
	}
	for i := range max(len(want.Events), len(got.Events)) {
		if w, g := event(want, i), event(got, i); w != g {
			return fmt.Sprintf("event %d of %d and %d:\n%.1000q\n%.1000q", i, len(want.Events), len(got.Events), fmt.Sprint(w), fmt.Sprint(g))
		}
	}
	want.Events, got.Events = nil, nil
	return cmp.Diff(want, got)
}

// FuzzLimit: for any input and any limit, the decoder gives what precedes the event
// that is too large by the naive rule, and refuses that one.
func FuzzLimit(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, uint16(len(b)), uint64(len(b))) })
	for _, limit := range []uint16{10, 100, 4000, 6000} {
		f.Add([]byte("id: x\nevent: x\ndata: x\n\ndata: x\n\n"), limit, uint64(limit))
		f.Add([]byte(":x\nid: \xff\xff\ndata: \xffx\n\nid: x\ndata\nx\n\n"), limit, uint64(limit))
	}
	f.Fuzz(func(t *testing.T, input []byte, limit uint16, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 13))
		input = stretch(input, rng)
		most := 1 + int(limit)%10_000
		before, tooLarge := reference.TooLarge(input, "", most)
		want := reference.Decode(input[:before], "")
		for _, way := range []string{"Next", "NextRaw", "Events"} {
			for _, r := range []io.Reader{bytes.NewReader(input), chunk.NewReader(chunk.Random(input, rng))} {
				d := eventsource.NewDecoder(r)
				d.SetMaxEventSize(most)
				got, err := run(t, way, d, nil)
				if errors.Is(err, eventsource.ErrEventTooLarge) != tooLarge {
					t.Errorf("%s, limit %d: the end is %v, want too large: %v", way, most, err, tooLarge)
				}
				got.Truncated = want.Truncated && (tooLarge || err == eventsource.ErrTruncated)
				if diff := firstDifference(want, got); diff != "" {
					t.Errorf("%s, limit %d, seed %d: %q (-reference +decoder):\n%s", way, most, seed, abridged(input), diff)
				}
			}
		}
	})
}

// Random streams of many sizes, whose pieces end at and around the sizes that
// buffers have.
func TestDecodeLongStreams(t *testing.T) {
	const rounds = 60
	start := rand.Uint64()
	for round := range uint64(rounds) {
		seed := start + round
		rng := rand.New(rand.NewPCG(seed, 1))
		var input []byte
		for range rng.IntN(40) {
			long := []int{0, 1, 30, 500, 512, 4096, 5000, 32 << 10}[rng.IntN(8)] - 8 + rng.IntN(17)
			value := strings.Repeat([]string{"x", "é", "\xff", "xy z", "\xf0\x9f\x98\x80"}[rng.IntN(5)], max(long, 0))
			value = value[:max(min(len(value), long), 0)]
			end := []string{"\n", "\r", "\r\n"}[rng.IntN(3)]
			name := []string{"data: ", "data:", "id: ", "event: ", ": ", "retry: 5", "nonsense", "", "data"}[rng.IntN(9)]
			input = append(append(append(input, name...), value...), end...)
			if rng.IntN(2) == 0 {
				input = append(input, end...)
			}
		}
		want := reference.Decode(input, "")
		for i := range 4 {
			size := []int{1 + rng.IntN(40), 511 + rng.IntN(3), 1448, 1 + rng.IntN(40_000)}[i]
			got := decode(t, "Next", chunk.NewReader(chunk.Every(input, size)), nil)
			if diff := firstDifference(want, got); diff != "" {
				t.Fatalf("seed %d, reads of %d bytes: %q (-reference +decoder):\n%s", seed, size, abridged(input), diff)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A witness looks at a decoder each time that it asks for more.
type witness struct {
	*chunk.Reader
	offsets []int // after each read
	look    func(offset int)
}

func (w *witness) Read(p []byte) (int, error) {
	if w.look != nil {
		w.look(w.Offset())
	}
	n, err := w.Reader.Read(p)
	w.offsets = append(w.offsets, w.Offset())
	return n, err
}

// FuzzChunking (G9): where the bytes are cut changes nothing, and when the decoder
// asks for more it has made all that can be made of what it has: the line ended
// when its CR came, the event was returned before the read after its last byte.
func FuzzChunking(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, uint64(len(b))) })
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		// The prefixes below make the work quadratic, on purpose: slow and obvious.
		input = input[:min(len(input), 300)]
		want := reference.Decode(input, "")

		check := func(name string, pieces [][]byte) {
			w := &witness{Reader: chunk.NewReader(pieces)}
			i := 0
			got := decode(t, "Next", w, func() int {
				// Exactly the reads that the event's last byte took.
				if i < len(want.Events) {
					end, n := want.Events[i].End, len(w.offsets)
					if w.offsets[n-1] < end || n > 1 && w.offsets[n-2] >= end {
						t.Errorf("cut %s: event %d was returned after the reads up to %v, its last byte is %d", name, i, w.offsets, end)
					}
				}
				i++
				return 0
			})
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(reference.Event{}, "End")); diff != "" {
				t.Errorf("%q cut %s (-reference +decoder):\n%s", input, name, diff)
			}
		}
		for name, pieces := range chunk.Ways(input, seed) {
			check(name, pieces)
		}
		for i := range min(len(input), 64) {
			check("in two", chunk.At(input, i))
		}

		// Byte by byte: at every read the decoder is where the reference is at the
		// end of an input of as many bytes, but for what it knows to be unfinished.
		w := &witness{Reader: chunk.NewReader(chunk.Every(input, 1))}
		d := eventsource.NewDecoder(w)
		events := 0
		w.look = func(offset int) {
			now := reference.Decode(input[:offset], "")
			retry, ok := d.Retry()
			if retry != now.Retry || ok != now.HasRetry || d.LastEventID() != now.LastEventID || events != len(now.Events) {
				t.Fatalf("%q: after %d bytes the decoder has retry %v %v, last event ID %q and %d events; want %+v",
					input, offset, retry, ok, d.LastEventID(), events, now)
			}
		}
		for range d.Events() {
			events++
		}
	})
}

// A byteRange is a row's bounds for one byte.
type byteRange struct{ lower, upper byte }

// wellFormed lists the well-formed byte sequences of UTF-8, as in table 3-7 of the
// Unicode standard. It has nothing in common with the state machine of the
// reference but the outcome.
var wellFormed = [][]byteRange{
	{{0x00, 0x7F}},
	{{0xC2, 0xDF}, {0x80, 0xBF}},
	{{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
	{{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
	{{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
}

// decodeByTable replaces each maximal subpart of an ill-formed sequence: as many
// bytes as agree with a row, and one byte if none does.
func decodeByTable(b []byte) string {
	var out []byte
	for len(b) > 0 {
		longest, whole := 1, false
		for _, row := range wellFormed {
			n := 0
			for n < len(row) && n < len(b) && row[n].lower <= b[n] && b[n] <= row[n].upper {
				n++
			}
			if n == len(row) {
				longest, whole = n, true
				break
			}
			longest = max(longest, n)
		}
		if whole {
			out = append(out, b[:longest]...)
		} else {
			out = append(out, "\uFFFD"...)
		}
		b = b[longest:]
	}
	return string(out)
}

// FuzzUTF8: values are decoded as the Encoding standard decodes them, in each of
// the fields that have one, and wherever a sequence is cut.
func FuzzUTF8(f *testing.F) {
	for _, s := range []string{
		"", "é…😀", "\xff\xff", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80", "\xf0\x9f\x98", "\xf4\x90\x80\x80",
		"\xef\xbb\xbf", "\xf0\x8f\xbf\xbf", "\xe0\x9f\xbf", "\xf5\x80", "a\x00b",
	} {
		f.Add([]byte(s), uint64(1))
	}
	seeds(f, func(b []byte) { f.Add(b, uint64(len(b))) })
	f.Fuzz(func(t *testing.T, value []byte, seed uint64) {
		// What ends a line is not part of a value, and an ID with a NUL is none.
		value = slices.DeleteFunc(slices.Clone(value), func(b byte) bool { return b == '\r' || b == '\n' })
		checkUTF8(t, value, seed)
	})
}

func checkUTF8(t *testing.T, value []byte, seed uint64) {
	t.Helper()
	text := decodeByTable(value)
	input := bytes.Join([][]byte{
		[]byte("id: "), value, []byte("\nevent: "), value,
		[]byte("\ndata: "), value, []byte("\ndata: "), value, []byte("\n\n"),
	}, nil)
	want := eventsource.Event{Type: text, Data: text + "\n" + text, LastEventID: text}
	if text == "" {
		want.Type = "message"
	}
	if bytes.IndexByte(value, 0) >= 0 {
		want.LastEventID = ""
	}
	for name, pieces := range chunk.Ways(input, seed) {
		got, err := eventsource.NewDecoder(chunk.NewReader(pieces)).Next()
		if err != nil || got != want {
			t.Errorf("% x cut %s: %+v, %v; want %+v", value, name, got, err, want)
		}
	}
	if events := reference.Decode(input, "").Events; len(events) != 1 || events[0].Data != want.Data {
		t.Errorf("% x: the reference gives %+v, want %+v", value, events, want)
	}
}

// Sequences of up to four bytes of every class that the tables tell apart, the
// bounds of each range included.
func TestUTF8EveryClassOfByte(t *testing.T) {
	classes := []byte{
		0x00, 'a', 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,
		0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF,
	}
	var input, want []byte
	var add func(value []byte, depth int)
	add = func(value []byte, depth int) {
		input = append(append(append(input, "data:"...), value...), '\n')
		want = append(append(want, decodeByTable(value)...), '\n')
		if depth == 0 {
			return
		}
		for _, c := range classes {
			add(append(slices.Clip(value), c), depth-1)
		}
	}
	add(nil, 4)
	input, want = append(input, '\n'), want[:len(want)-1]

	e, err := eventsource.NewDecoder(bytes.NewReader(input)).Next()
	if err != nil {
		t.Fatal(err)
	}
	difference(t, "the decoder", input, want, []byte(e.Data))
	difference(t, "the reference", input, want, []byte(reference.Decode(input, "").Events[0].Data))
}

// difference reports the first line that differs.
func difference(t *testing.T, who string, input, want, got []byte) {
	t.Helper()
	in, w, g := bytes.Split(input, []byte("\n")), bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	if len(w) != len(g) {
		t.Errorf("%s: %d lines, want %d", who, len(g), len(w))
		return
	}
	for i := range w {
		if !bytes.Equal(w[i], g[i]) {
			t.Errorf("%s: line %d, %q, gives %q, want %q", who, i, in[i], g[i], w[i])
			return
		}
	}
}

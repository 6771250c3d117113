package eventsource_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/chunk"
	"github.com/reprise-sse/reprise/internal/loopback"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// TestEmptyReads holds that a reader may bring nothing for a while, but not for ever.
func TestEmptyReads(t *testing.T) {
	for empty, want := range map[int]decoding{ // by the number of empty reads before each byte
		0:   {Events: plainEvents("x"), End: io.EOF},
		1:   {Events: plainEvents("x"), End: io.EOF},
		99:  {Events: plainEvents("x"), End: io.EOF},
		100: {End: io.ErrNoProgress},
	} {
		r, reads := strings.NewReader("data: x\n\n"), 0
		d := eventsource.NewDecoder(readerFunc(func(p []byte) (int, error) {
			if reads++; reads > 10_000 {
				t.Fatal("the decoder spins")
			}
			if reads%(empty+1) != 0 {
				return 0, nil
			}
			return r.Read(p[:1])
		}))
		if diff := cmp.Diff(want, decodeWith(decodingMethods[0], d), sameErrors); diff != "" {
			t.Errorf("%d empty reads (-want +got):\n%s", empty, diff)
		}
	}
}

// TestImpossibleCounts holds that a reader that breaks its contract is an error, not a
// panic.
func TestImpossibleCounts(t *testing.T) {
	for _, tt := range []struct {
		name string
		more int // than there is room for
		err  error
	}{
		{"negative", -1 << 20, nil},
		{"too many", 1, nil},
		{"negative, with an error", -1 << 20, io.EOF},
	} {
		r := strings.NewReader("data: x\n\n")
		events, err := decodingMethods[0].read(eventsource.NewDecoder(readerFunc(func(p []byte) (int, error) {
			if r.Len() > 0 {
				return r.Read(p)
			}
			return len(p) + tt.more, tt.err
		})))
		if len(events) != 1 || err == io.EOF || !strings.Contains(err.Error(), "impossible") {
			t.Errorf("%s: %d events, then %v", tt.name, len(events), err)
		}
	}
}

// TestReadSizes holds that a busy reader is read in large pieces.
func TestReadSizes(t *testing.T) {
	const size = 1 << 20
	for name, block := range map[string]string{
		"small events": "data: x\n\n",
		"large events": "data: " + strings.Repeat("x", 100_000) + "\n\n",
		"one comment":  ":" + strings.Repeat("x", size) + "\n",
	} {
		r := strings.NewReader(strings.Repeat(block, size/len(block)+1))
		total := r.Len()
		reads := 0
		d := eventsource.NewDecoder(readerFunc(func(p []byte) (int, error) {
			reads++
			return r.Read(p)
		}))
		for range d.Events() {
		}
		if most := total/(eventsource.BusyBuffer/2) + 20; reads > most {
			t.Errorf("%s: %d reads for %d bytes, want at most %d", name, reads, total, most)
		}
	}
}

// TestAtRest holds that a decoder that waits for a silent server holds little,
// whatever came before.
func TestAtRest(t *testing.T) {
	large := func(size int) string { return strings.Repeat("x", size) }
	tests := []struct {
		name, input string
		piece       int // the size of reads
	}{
		{"at the start", "", 1000},
		{"after an event", "data: x\n\n", 1000},
		{"inside a small event", "data: x\nid: 7\n", 1000},
		{"after an event of 10 KB", "data: " + large(10_000) + "\n\n", 4096},
		{"after an event of 1 MB", "data: " + large(1_000_000) + "\n\n", 1448},
		{"after an event of 1 MB in large reads", "data: " + large(1_000_000) + "\n\n", 1 << 20},
		{"after an event of 1 MB that ends with a full read", "data: " + large(62*eventsource.BusyBuffer-8) + "\n\n", 1 << 20},
		{"after large events", strings.Repeat("data: "+large(200_000)+"\n\n", 5), 1448},
		{"after a large event of many lines", strings.Repeat("data: "+large(100)+"\n", 1000) + "\n", 1448},
		{"inside a small event after a large one", "data: " + large(1_000_000) + "\n\ndata: x\n", 1448},
		{"after a large comment", ":" + large(1_000_000) + "\n", 1448},
		{"after a large type", "event: " + large(100_000) + "\ndata: x\n\n", 1448},
		{"after a large type without data", "event: " + large(100_000) + "\n\n", 1448},
		{"after a large type that another has replaced", "event: " + large(100_000) + "\nevent: a\n", 1448},
		{"after a large ID that another has replaced", "id: " + large(100_000) + "\n\nid: 1\n\n", 1448},
		{"after a large ID that another has replaced at once", "id: " + large(100_000) + "\nid: 1\n\n", 1448},
		{"after large IDs", "id: " + large(100_000) + "\n\nid: " + large(200_000) + "\n\nid: 1\n\nid: 2\n\n", 1448},
		{"after a large event that is not UTF-8", "data: " + strings.Repeat("\xFF", 100_000) + "\n\n", 1448},
		{"after a burst", strings.Repeat("data: x\n\n", 1000), 4000},
		{"after a burst of events that are not ASCII", strings.Repeat("id: é\ndata: é\n\n", 1000), 4000},
	}
	for _, tt := range tests {
		for _, m := range decodingMethods[:2] {
			t.Run(tt.name+" by "+m.name, func(t *testing.T) {
				rest := errors.New("at rest")
				r := strings.NewReader(tt.input)
				var d *eventsource.Decoder
				held := 0
				d = eventsource.NewDecoder(readerFunc(func(p []byte) (int, error) {
					if r.Len() == 0 {
						held = eventsource.DecoderMemory(d)
						return 0, rest
					}
					return r.Read(p[:min(len(p), tt.piece)])
				}))
				if _, err := m.read(d); err != rest {
					t.Fatal(err)
				}
				if held == 0 || held > 600 {
					t.Errorf("holds %d bytes, want at most 600", held)
				}
			})
		}
	}
}

// TestAtTheEnd holds that a decoder that has ended keeps no large buffer, wherever it
// was, and still knows the ID that it has told.
func TestAtTheEnd(t *testing.T) {
	events := strings.Repeat("data: a\n\n", 3000)
	for name, input := range map[string]string{
		"inside a large event":              "id: 7\ndata: a\n\ndata: " + strings.Repeat("x", 100_000),
		"inside a large type":               "id: 7\ndata: a\n\nevent: " + strings.Repeat("x", 100_000) + "\n",
		"at an event beyond the limit":      "id: 7\ndata: a\n\ndata: " + strings.Repeat("x", 300_000),
		"at data beyond the limit, decoded": "id: 7\ndata: a\n\ndata: " + strings.Repeat("\xFF", 100_000) + "\n\n",
		// The ID was never copied out of the buffer: what ends the decoder is in the same read.
		"at a comment beyond the limit, in one read": events + "id: 7\ndata: a\n\n:" + strings.Repeat("x", 100) + "\n\n" + events,
	} {
		for _, m := range decodingMethods {
			d := eventsource.NewDecoder(strings.NewReader(input))
			d.SetMaxEventSize(200_000)
			if strings.HasSuffix(name, "one read") {
				d.SetMaxEventSize(100)
			}
			if _, err := m.read(d); err == nil || d.LastEventID() != "7" {
				t.Errorf("%s by %s: %v, then ID %q", name, m.name, err, d.LastEventID())
			}
			if held := eventsource.DecoderMemory(d); held > 600 {
				t.Errorf("%s by %s: holds %d bytes, want at most 600", name, m.name, held)
			}
		}
	}
}

// TestSpareIsNotHeld holds that the large buffer of a decoder at rest is the garbage
// collector's.
func TestSpareIsNotHeld(t *testing.T) {
	const decoders, size = 20, 256 << 10
	event := []byte("data: " + strings.Repeat("x", size) + "\n\n")
	before := int(liveHeap())
	var all []*eventsource.Decoder
	for range decoders {
		r := chunk.NewReader(chunk.Every(event, 4096))
		r.End = errors.New("at rest")
		d := eventsource.NewDecoder(r)
		if _, err := d.NextRaw(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.NextRaw(); err != r.End {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	if each := (int(liveHeap()) - before) / decoders; each > 4<<10 {
		t.Errorf("each decoder holds %d bytes", each)
	}
	runtime.KeepAlive(all)
}

// TestG10Memory holds that a hostile server cannot make a decoder hold much more than
// its limit: twice that while ill-formed data is decoded, once at other times.
func TestG10Memory(t *testing.T) {
	const limit = 512 << 10
	big := strings.Repeat("n", limit/2)
	tests := []struct {
		name   string
		once   string // the start of the input
		repeat string // what follows, for ever
		most   int
	}{
		{"a line of data without an end", "data: ", "xxxxxxxx", limit},
		{"an ID without an end", "id: ", "xxxxxxxx", limit},
		{"an ill-formed line without an end", "data: ", "\xFF", limit},
		{"lines of data for ever", "", "data: x\n", limit},
		{"empty lines of data for ever", "", "data\n", limit},
		{"long lines of data for ever", "", "data: " + strings.Repeat("x", 4000) + "\n", limit},
		{"data and then a line", "data: " + big + "\nid:", "xxxxxxxx", limit},
		{"a comment for ever", ":", "xxxxxxxx", 0},
		{"a name for ever", "", "xxxxxxxx", 0},
		{"an unknown field for ever", "date: ", "xxxxxxxx", 0},
		{"data and then a comment for ever", "data: " + big + "\n:", "xxxxxxxx", limit},
		{"an ID, another and then data", "id: " + big[:limit/3] + "\n\nid: 1\ndata: ", "xxxxxxxx", limit},
		{"a type and then data", "event: " + big + "\ndata: ", "xxxxxxxx", 2 * limit},
		{"an ID and then data", "id: " + big[:limit/3] + "\n\ndata: ", "xxxxxxxx", limit},
		{"a type, an ID and then data", "id: " + big[:limit/4] + "\nevent: " + big[:limit/4] + "\ndata: ", "xxxxxxxx", limit},
		{"large IDs for ever", "", "id: " + big[:limit/4] + "\n\nid: " + big[:limit/4-1] + "\n\n", limit},
		{"large types for ever", "", "event: " + big + "\n\n", 2 * limit},
		{"large events for ever", "", "data: " + big + "\n\n", limit},
		{"large ill-formed events for ever", "", "data: " + strings.Repeat("\xFF", limit/4) + "\n\n", 2 * limit},
	}
	for _, tt := range tests {
		const piece = 4 << 10
		t.Run(tt.name, func(t *testing.T) {
			repeat := strings.Repeat(tt.repeat, piece/len(tt.repeat)+1)
			source := &cyclic{rest: repeat, again: repeat, sizes: []int{piece}}
			before := int(liveHeap())
			most, total := 0, 0
			endless := readerFunc(func(p []byte) (int, error) {
				if total/(limit/4) != (total+piece)/(limit/4) {
					most = max(most, int(liveHeap())-before)
				}
				if total > 5*limit {
					return 0, io.EOF
				}
				n, err := source.Read(p)
				total += n
				return n, err
			})
			d := eventsource.NewDecoder(io.MultiReader(iotest.HalfReader(strings.NewReader(tt.once)), endless))
			d.SetMaxEventSize(limit)
			var err error
			for err == nil {
				_, err = d.NextRaw()
			}
			if total > 2*limit && !strings.HasSuffix(tt.name, "for ever") {
				t.Errorf("%d bytes were read for a limit of %d", total, limit)
			}
			if slack := 100 << 10; most > tt.most+slack {
				t.Errorf("%d bytes were held for a limit of %d: more than %d and a constant", most, limit, tt.most)
			}
			runtime.KeepAlive(repeat)
			runtime.KeepAlive(d)
		})
	}
}

func TestG10StreamMemoryIsBounded(t *testing.T) {
	t.Parallel()
	p := property{profile: scenario.Profile{Hostile: true}, checks: []scenario.Check{scenario.BoundedMemory}}
	flood := func(start, text string) []scenario.Answer {
		return []scenario.Answer{{Body: []scenario.Piece{{Text: start}, {Text: text, Times: 1 << 17}}}}
	}
	tooLarge := []string{"0s request", "0s too large", "0s done: scenario: the policy's script has ended"}
	fine := []string{"0s request", "0s ended", "0s done: scenario: the policy's script has ended"}
	p.holdsIn(t, []scenarioCase{
		{"a line without end", scenario.Scenario{Server: flood("data: ", "x")}, tooLarge},
		{"an ID without end", scenario.Scenario{Server: flood("id: ", "x")}, tooLarge},
		{"a type without end", scenario.Scenario{Server: flood("event: ", "x")}, tooLarge},
		{"a comment without end", scenario.Scenario{Server: flood(": ", "x")}, fine},
		{"a field name without end", scenario.Scenario{Server: flood("", "x")}, fine},
		{"data without end", scenario.Scenario{Server: flood("", "data: x\n")}, tooLarge},
		{"empty data without end", scenario.Scenario{Server: flood("", "data\r")}, tooLarge},
		{"many comments", scenario.Scenario{Server: flood("", ": x\n")}, fine},
		{"many IDs", scenario.Scenario{Server: flood("", "id: x\n")}, fine},
		{"many blank lines", scenario.Scenario{Server: flood("", "\n")}, fine},
		{"a refusal without end", scenario.Scenario{Server: []scenario.Answer{{Status: 404, Body: []scenario.Piece{{Text: "x", Times: 1 << 17}}}}}, nil},
	})
	p.holds(t)
}

// TestG10HeapStaysSmall holds the same for the live heap: whether the server lets no
// event end, or sends what never becomes an event, or events, a stream holds little
// more than its limit, and nothing of what it has used.
func TestG10HeapStaysSmall(t *testing.T) {
	const limit = 256 << 10
	long := strings.Repeat("x", limit/4)
	for _, tt := range []struct {
		name, start, repeat string
		tooLarge            bool
	}{
		{"a line of data", "data: ", "x", true},
		{"lines of data", "", "data: x\n", true},
		{"lines of data, CR", "", "data: x\r", true},
		{"empty lines of data", "", "data\n", true},
		{"large lines of data", "", "data: " + long + "\n", true},
		{"an ID", "data: x\nid: ", "x", true},
		{"a type", "data: x\nevent: ", "x", true},
		{"a retry", "retry: ", "1", true},
		{"a line that is not UTF-8", "data: ", "\xff", true},
		{"lines that are not UTF-8", "", "data: \xf0\x90\n", true},
		{"NULs", "data: ", "\x00", true},
		{"a line after small events", strings.Repeat("data: x\n\n", 1000) + "data: ", "x", true},
		{"a comment", ": ", "x", false},
		{"an unknown field", "x: ", "x", false},
		{"no field", "", "x", false},
		{"byte order marks", "", "\uFEFF", false},
		{"comments", "", ": ping\n\n", false},
		{"blank lines", "", "\n", false},
		{"blank lines, CR", "", "\r", false},
		{"blank lines, CRLF", "", "\r\n", false},
		{"unknown fields", "", "x: y\n", false},
		{"types", "", "event: x\n\n", false},
		{"IDs", "", "id: x\n\n", false},
		{"retries", "", "retry: 1000\n", false},
		{"large comments", "", ": " + long + long + "\n", false},
		{"large IDs", "", "id: " + long + "\n\n", false},
		{"large types", "", "event: " + long + "\n", false},
		{"large types of events", "", "event: " + long + "\ndata\n\n", false},
		{"small events", "", "data:x\n\n", false},
		{"large events", "", "data: " + long + "\n\n", false},
		{"large events that are not UTF-8", "", "data: " + strings.Repeat("\xff", limit/16) + "\n\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := flood{start: tt.start, repeat: tt.repeat, size: 2 * limit, every: limit / 2}
			if tt.tooLarge {
				f.size = 6 * limit // an empty line of data has one byte of data in five
			}
			err := f.play(t, limit)
			if tt.tooLarge != errors.Is(err, eventsource.ErrEventTooLarge) || !tt.tooLarge && err != nil && !errors.Is(err, eventsource.ErrTruncated) {
				t.Errorf("the error is %v", err)
			}
			if f.grown > 2*limit {
				t.Errorf("the live heap grew by %d KiB", f.grown>>10)
			}
		})
	}
}

// A flood is a response that begins with start and repeats a text, up to a size.
type flood struct {
	start, repeat string
	size          int
	coding        string // the Content-Encoding of all that, if any
	every         int    // how much is read between two measurements

	grown int // the live heap, at most
}

// play has a stream read the response and returns its error.
func (f *flood) play(t *testing.T, limit int) error {
	repeat := strings.Repeat(f.repeat, 1+16<<10/len(f.repeat))
	all := io.LimitReader(io.MultiReader(strings.NewReader(f.start), &cyclic{rest: repeat, again: repeat, sizes: []int{4 << 10}}), int64(f.size))
	before, read := int(liveHeap()), 0
	measure := func() { f.grown = max(f.grown, int(liveHeap())-before) }
	body := readerFunc(func(p []byte) (int, error) {
		n, err := all.Read(p[:min(len(p), f.every)])
		if (read+n)/f.every > read/f.every {
			measure()
		}
		read += n
		return n, err
	})
	client := eventsource.Client{
		HTTPClient: &http.Client{Transport: roundTripperFunc(func(*http.Request) (*http.Response, error) {
			resp := response(200, "text/event-stream", io.NopCloser(body))
			if f.coding != "" {
				resp.Header.Set("Content-Encoding", f.coding)
			}
			return resp, nil
		})},
		Policy: policy.Never(), MaxEventSize: limit,
		Trace: traceOf(&eventsource.Trace{End: func(policy.Attempt) { measure() }}),
	}
	req := get(t.Context())
	if f.coding != "" {
		req.Header.Set("Accept-Encoding", f.coding)
	}
	var last error
	for _, err := range client.Stream(req).Events() {
		last = err
	}
	runtime.KeepAlive(repeat)
	return last
}

// TestWorkIsLinear counts what is searched in vain and what is moved, for inputs and
// ways of cutting them that make a decoder that starts over quadratic.
func TestWorkIsLinear(t *testing.T) {
	const size = 256 << 10
	fill := func(start, repeat, end string) string {
		return start + strings.Repeat(repeat, size/len(repeat)) + end
	}
	half := strings.Repeat("h", size/2)
	tests := map[string]string{
		"one line":                       fill("data: ", "x", "\n\n"),
		"one comment":                    fill(":", "x", "\n"),
		"one line without an end":        fill("data: ", "x", ""),
		"one ID":                         fill("id: ", "x", "\n\n"),
		"one line of two-byte text":      fill("data: ", "é", "\n\n"),
		"one line that is ill-formed":    fill("data: ", "\xFF", "\n\n"),
		"lines of data":                  fill("", "data: x\n", "\n"),
		"empty lines of data":            fill("", "data\n", "\n"),
		"lines of data that end in CR":   fill("", "data: x\r", "\r"),
		"lines that end in CRLF":         fill("", "data: x\r\n", "\r\n"),
		"blank lines":                    fill("", "\n", ""),
		"blank lines by CR":              fill("", "\r", ""),
		"blank lines by CRLF":            fill("", "\r\n", ""),
		"comments after much data":       fill("data: "+half+"\n", ":\n", "\n"),
		"IDs after much data":            fill("data: "+half+"\n", "id: 123456789\n", "\n"),
		"IDs between lines of data":      fill("", "id: 1\ndata: x\n", "\n"),
		"events after a large type":      fill("event: "+half+"\ndata: x\n\n", "data: x\n\n", ""),
		"events after a large ID":        fill("id: "+half+"\n\n", "data: x\n\n", ""),
		"small events":                   fill("", "data: x\n\n", ""),
		"events that are not ASCII":      fill("", "event: é\ndata: é\n\n", ""),
		"one byte in many not ASCII":     fill("", "data: éxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\n", ""),
		"lines a little over the buffer": fill("", "data: "+strings.Repeat("x", eventsource.BusyBuffer)+"\n\n", ""),
		"two lines of half a buffer":     fill("", strings.Repeat("data: "+strings.Repeat("x", eventsource.BusyBuffer/2)+"\n", 2)+"\n", ""),
		"much data and then a long line": "data: " + half + "\nevent:" + half + "\n\n",
		"much data and then a comment":   "data: " + half + "\n:" + half + "\n\n",
		"at the limit":                   fill("data: "+strings.Repeat("x", size-600)+"\n", ": xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n", "\n"),
		"long lines at the limit":        fill("data: "+strings.Repeat("x", size-6000)+"\n", "id:\x00"+strings.Repeat("x", 5500)+"\n", "\n"),
	}
	// Of each byte: three searches, in vain once in each buffer; and the moves up, which
	// come to twice the size of the largest buffer, and down.
	const perByte = 8
	for name, input := range tests {
		t.Run(name, func(t *testing.T) {
			for way, sizes := range map[string][]int{
				"whole":               {len(input)},
				"in reads of 7":       {7},
				"in reads of 512":     {eventsource.SmallBuffer},
				"in reads of 1448, 1": {1448, 1},
			} {
				d := eventsource.NewDecoder(&cyclic{rest: input, sizes: sizes})
				if strings.HasSuffix(name, "at the limit") {
					d.SetMaxEventSize(size + 8)
				}
				var err error
				for err == nil {
					_, err = d.NextRaw()
				}
				if err != io.EOF && err != eventsource.ErrTruncated {
					t.Fatal(err)
				}
				if got := eventsource.DecoderWork(d); got > perByte*len(input)+64<<10 {
					t.Errorf("%s: the work is %d for %d bytes", way, got, len(input))
				}
			}
		})
	}
}

// A cyclic reader hands out its bytes in reads of the given sizes, in turn, and then
// again, if there are any.
type cyclic struct {
	rest  string
	again string
	sizes []int
	next  int
}

func (c *cyclic) Read(p []byte) (int, error) {
	if c.rest == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.sizes[c.next%len(c.sizes)])], c.rest)
	if c.rest = c.rest[n:]; c.rest == "" {
		c.rest = c.again
	}
	c.next++
	return n, nil
}

// TestTimeGrowsWithSize measures what TestWorkIsLinear cannot count: twice the data
// takes not much more than twice the time.
func TestTimeGrowsWithSize(t *testing.T) {
	times := map[int]time.Duration{}
	for _, size := range []int{4 << 20, 8 << 20} {
		input := "data: " + strings.Repeat("0123456789abcdef", size/16) + "\n\n"
		best := time.Duration(math.MaxInt64)
		for range 3 {
			start := loopback.CPUTime()
			event, err := eventsource.NewDecoder(&cyclic{rest: input, sizes: []int{1460}}).Next()
			best = min(best, loopback.CPUTime()-start)
			if err != nil || event.Data != input[6:len(input)-2] {
				t.Fatalf("%d bytes: %d came, %v", size, len(event.Data), err)
			}
		}
		times[size] = best
	}
	if small, large := times[4<<20], times[8<<20]; large > 3*small+10*time.Millisecond || large > time.Second {
		t.Errorf("4 MiB take %v, 8 MiB take %v", small, large)
	}
}

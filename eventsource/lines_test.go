package eventsource_test

import (
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/chunk"
	"github.com/reprise-sse/reprise/internal/loopback"
)

// TestEmptyReads holds that a reader may bring nothing for a while, but not for ever.
func TestEmptyReads(t *testing.T) {
	tests := []struct {
		name  string
		empty int // reads before each byte
		end   error
		want  []eventsource.Event
	}{
		{"none", 0, io.EOF, plainEvents("x")},
		{"one", 1, io.EOF, plainEvents("x")},
		{"ninety-nine", 99, io.EOF, plainEvents("x")},
		{"a hundred", 100, io.ErrNoProgress, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := strings.NewReader("data: x\n\n")
			empty, reads := 0, 0
			d := eventsource.NewDecoder(readerFunc(func(p []byte) (int, error) {
				if reads++; reads > 10_000 {
					t.Fatal("the decoder spins")
				}
				if empty < tt.empty {
					empty++
					return 0, nil
				}
				empty = 0
				return r.Read(p[:1])
			}))
			got := decodeWith(decodingMethods[0], d)
			if diff := cmp.Diff(decoding{Events: tt.want, End: tt.end}, got, sameErrors); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestImpossibleCounts holds that a reader that breaks its contract is an error, not a
// panic.
func TestImpossibleCounts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		count func(p []byte) int
		err   error
	}{
		{"negative", func([]byte) int { return -1 }, nil},
		{"too many", func(p []byte) int { return len(p) + 1 }, nil},
		{"negative, with an error", func([]byte) int { return -1 }, io.EOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := strings.NewReader("data: x\n\n")
			d := eventsource.NewDecoder(readerFunc(func(p []byte) (int, error) {
				if r.Len() > 0 {
					return r.Read(p)
				}
				return tt.count(p), tt.err
			}))
			if _, err := d.Next(); err != nil {
				t.Fatal(err)
			}
			_, err := d.Next()
			if err == nil || err == io.EOF || !strings.Contains(err.Error(), "impossible") {
				t.Errorf("the error is %v", err)
			}
		})
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
// was, and still knows what it has told.
func TestAtTheEnd(t *testing.T) {
	for name, input := range map[string]string{
		"inside a large event":              "id: 7\ndata: a\n\ndata: " + strings.Repeat("x", 100_000),
		"inside a large type":               "id: 7\ndata: a\n\nevent: " + strings.Repeat("x", 100_000) + "\n",
		"at an event beyond the limit":      "id: 7\ndata: a\n\ndata: " + strings.Repeat("x", 300_000),
		"at data beyond the limit, decoded": "id: 7\ndata: a\n\ndata: " + strings.Repeat("\xFF", 100_000) + "\n\n",
	} {
		d := eventsource.NewDecoder(strings.NewReader(input))
		d.SetMaxEventSize(200_000)
		events, err := decodingMethods[0].read(d)
		if len(events) != 1 || err == nil || d.LastEventID() != "7" {
			t.Errorf("%s: %d events, %v, ID %q", name, len(events), err, d.LastEventID())
		}
		if held := eventsource.DecoderMemory(d); held > 600 {
			t.Errorf("%s: holds %d bytes, want at most 600", name, held)
		}
	}
}

// TestIDOutlivesTheEnd holds the same for an ID that was never copied out of a large
// buffer, because what ends the decoder came in the same read.
func TestIDOutlivesTheEnd(t *testing.T) {
	block := strings.Repeat("data: a\n\n", 100)
	input := strings.Repeat(block, 30) + "id: 7\ndata: a\n\n:" + strings.Repeat("x", 100) + "\n\n" + block
	for _, m := range decodingMethods {
		d := eventsource.NewDecoder(strings.NewReader(input))
		d.SetMaxEventSize(100)
		if _, err := m.read(d); !errors.Is(err, eventsource.ErrEventTooLarge) || d.LastEventID() != "7" {
			t.Errorf("%s: %v, then ID %q", m.name, err, d.LastEventID())
		}
	}
}

// TestSpareIsNotHeld holds that the large buffer of a decoder at rest is the garbage
// collector's.
func TestSpareIsNotHeld(t *testing.T) {
	const decoders, size = 20, 256 << 10
	event := []byte("data: " + strings.Repeat("x", size) + "\n\n")
	before := heapInUse()
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
	if each := (heapInUse() - before) / decoders; each > 4<<10 {
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
		{"a comment without an end", ":", "xxxxxxxx", limit},
		{"a name without an end", "", "xxxxxxxx", limit},
		{"an ID without an end", "id: ", "xxxxxxxx", limit},
		{"an ill-formed line without an end", "data: ", "\xFF", limit},
		{"lines of data for ever", "", "data: x\n", limit},
		{"empty lines of data for ever", "", "data\n", limit},
		{"long lines of data for ever", "", "data: " + strings.Repeat("x", 4000) + "\n", limit},
		{"data and then a line", "data: " + big + "\n:", "xxxxxxxx", limit},
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
			repeat := []byte(strings.Repeat(tt.repeat, piece/len(tt.repeat)+1))
			before := heapInUse()
			most, total, at := 0, 0, 0
			endless := readerFunc(func(p []byte) (int, error) {
				if total/(limit/4) != (total+piece)/(limit/4) {
					most = max(most, heapInUse()-before)
				}
				if total > 5*limit {
					return 0, io.EOF
				}
				n := copy(p[:min(len(p), piece)], repeat[at:])
				if at += n; at == len(repeat) {
					at = 0
				}
				total += n
				return n, nil
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
		"much data and then a long line": "data: " + half + "\n:" + half + "\n\n",
		"at the limit":                   fill("data: "+strings.Repeat("x", size-600)+"\n", ": xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n", "\n"),
		"long lines at the limit":        fill("data: "+strings.Repeat("x", size-6000)+"\n", ":"+strings.Repeat("x", 5500)+"\n", "\n"),
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

// A cyclic reader hands out its bytes in reads of the given sizes, in turn.
type cyclic struct {
	rest  string
	sizes []int
	next  int
}

func (c *cyclic) Read(p []byte) (int, error) {
	if c.rest == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.sizes[c.next%len(c.sizes)])], c.rest)
	c.rest = c.rest[n:]
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

// TestLargeNamesAreNotCopiedAgain holds that a large ID or type costs nothing more once
// it is known, even if the other one changes with each event.
func TestLargeNamesAreNotCopiedAgain(t *testing.T) {
	const size, events = 256 << 10, 2000
	large := strings.Repeat("n", size)
	for name, input := range map[string]string{
		"an ID":                      "id: " + large + "\n\n" + strings.Repeat("event: a\ndata: x\n\nevent: b\ndata: x\n\n", events/2),
		"an ID with other IDs after": "id: " + large + "\n\n" + strings.Repeat("id: 1\nevent: a\ndata: x\n\nid: 2\ndata: x\n\n", events/2),
		"a type":                     "event: " + large + "\ndata: x\n\n" + strings.Repeat("id: 1\ndata: x\n\nid: 2\ndata: x\n\n", events/2),
	} {
		r := strings.NewReader(input)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := 0, error(nil)
		d := eventsource.NewDecoder(iotest.HalfReader(r))
		for err == nil {
			if _, err = d.Next(); err == nil {
				got++
			}
		}
		runtime.ReadMemStats(&after)
		if got < events || err != io.EOF {
			t.Errorf("%s: %d events, %v", name, got, err)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 20*size {
			t.Errorf("%s: %d bytes were allocated for %d of input", name, allocated, len(input))
		}
	}
}

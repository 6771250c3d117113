package eventsource_test

import (
	"errors"
	"fmt"
	"io"
	"net"
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

// The requirements on decoding, each for the decoder alone. Those that are about a
// stream, too, are held for a Stream elsewhere.

// inReads returns a reader of the parts of s between bars, one part a read.
func inReads(s string) *chunk.Reader {
	var pieces [][]byte
	for part := range strings.SplitSeq(s, "|") {
		pieces = append(pieces, []byte(part))
	}
	return chunk.NewReader(pieces)
}

// ends returns what is left of a decoding when only the events and the end matter.
func ends(events []eventsource.Event, end error) decoding { return decoding{Events: events, End: end} }

func TestR001LargeEvent(t *testing.T) {
	text := strings.Repeat("a", 100_000)
	checkDecoding(t, "data: "+text+"\n\n", "", ends(plainEvents(text), io.EOF))
}

func TestR002RefusalStatesTheLimit(t *testing.T) {
	input := "data: " + strings.Repeat("a", 1_200_000) + "\n\n"
	d := eventsource.NewDecoder(strings.NewReader(input))
	d.SetMaxEventSize(4 << 20)
	if event, err := d.Next(); err != nil || len(event.Data) != 1_200_000 {
		t.Errorf("within the limit: %d bytes, %v", len(event.Data), err)
	}

	d = eventsource.NewDecoder(strings.NewReader(input))
	d.SetMaxEventSize(1 << 20)
	_, err := d.Next()
	var network net.Error
	if !errors.Is(err, eventsource.ErrEventTooLarge) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "1048576 bytes") {
		t.Errorf("beyond the limit: %v", err)
	}
}

func TestR003LimitHolds(t *testing.T) {
	input := "data: " + strings.Repeat("a", 300_000) + "\n\n"
	for limit, want := range map[int]error{512 << 10: nil, 200_000: eventsource.ErrEventTooLarge} {
		for name, r := range decodingReaders(input) {
			d := eventsource.NewDecoder(r)
			d.SetMaxEventSize(limit)
			if _, err := d.Next(); !errors.Is(err, want) {
				t.Errorf("limit %d, %s: %v, want %v", limit, name, err, want)
			}
		}
	}
}

func TestR004EndlessEvent(t *testing.T) {
	const limit = 1 << 20
	for name, parts := range map[string][2]string{
		"a line without an end":  {"data: ", "x"},
		"lines without an end":   {"", "data: x\n"},
		"a comment without end":  {":", "x"},
		"data that is not UTF-8": {"data: ", "\xFF"},
	} {
		text := strings.Repeat(parts[1], 4096)
		before := heapInUse()
		total, most := 0, 0
		server := readerFunc(func(p []byte) (int, error) {
			if total%(256<<10) < len(p) {
				most = max(most, heapInUse()-before)
			}
			n := copy(p, text[total%len(text):])
			total += n
			return n, nil
		})
		d := eventsource.NewDecoder(io.MultiReader(strings.NewReader(parts[0]), server))
		d.SetMaxEventSize(limit)
		if _, err := d.Next(); !errors.Is(err, eventsource.ErrEventTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		if total > 6*limit || most > 2*limit {
			t.Errorf("%s: refused after %d bytes, with %d in use", name, total, most)
		}
	}
}

func TestR005LimitIsForAnEvent(t *testing.T) {
	input := strings.Repeat("data: 123456789abc\n\n", 1000)
	d := eventsource.NewDecoder(strings.NewReader(input))
	d.SetMaxEventSize(8 << 10)
	events, err := decodingMethods[0].read(d)
	if len(events) != 1000 || err != io.EOF {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestR006TimeGrowsWithSize(t *testing.T) {
	times := map[int]time.Duration{}
	for _, size := range []int{4 << 20, 8 << 20} {
		input := "data: " + strings.Repeat("0123456789abcdef", size/16) + "\n\n"
		best := time.Duration(1<<63 - 1)
		for range 3 {
			r := &cyclic{rest: input, sizes: []int{1460}}
			start := loopback.CPUTime()
			event, err := eventsource.NewDecoder(r).Next()
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

func TestR007MidSizeEvent(t *testing.T) {
	input := "data: " + strings.Repeat("x", 1_500_000) + "\n\n"
	start := loopback.CPUTime()
	event, err := eventsource.NewDecoder(&cyclic{rest: input, sizes: []int{8192}}).Next()
	if took := loopback.CPUTime() - start; took > 100*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if err != nil || len(event.Data) != 1_500_000 {
		t.Errorf("%d bytes, %v", len(event.Data), err)
	}
}

// withID returns events that have an ID in force.
func withID(id string, data ...string) []eventsource.Event {
	events := plainEvents(data...)
	for i := range events {
		events[i].LastEventID = id
	}
	return events
}

func TestR009MixedLineEnds(t *testing.T) {
	checkDecoding(t, "event: tick\r\ndata: 1\n\ndata: a\rdata: b\n\r\n", "", ends([]eventsource.Event{{Type: "tick", Data: "1"}, plainEvent("a\nb")}, io.EOF))
}

func TestR012EveryCut(t *testing.T) {
	const input = "id: 7\r: c\ndata: a\r\ndata: \u20AC\n\nevent: e\r\ndata: b\r\rdata: c\n\n"
	checkDecoding(t, input, "", decoding{
		Events: []eventsource.Event{
			{Type: "message", Data: "a\n\u20AC", LastEventID: "7"},
			{Type: "e", Data: "b", LastEventID: "7"},
			{Type: "message", Data: "c", LastEventID: "7"},
		},
		End: io.EOF, LastEventID: "7",
	})
}

func TestR014NothingElseEndsLines(t *testing.T) {
	checkDecoding(t, "data: a\u2028b\u0085c\vd\n\n", "", ends(plainEvents("a\u2028b\u0085c\vd"), io.EOF))
}

func TestR016LaterByteOrderMark(t *testing.T) {
	checkDecoding(t, "data: a\n\n\xEF\xBB\xBFdata: b\n\ndata: \xEF\xBB\xBFc\n\n", "", ends(plainEvents("a", "\uFEFFc"), io.EOF))
}

func TestR017OneSpaceGoes(t *testing.T) {
	checkDecoding(t, "data:  word \n\ndata:\tx\n\n", "", ends(plainEvents(" word ", "\tx"), io.EOF))
}

func TestR018SpaceIsOptional(t *testing.T) {
	checkDecoding(t, "data:{\"a\":1}\n\n", "", ends(plainEvents(`{"a":1}`), io.EOF))
}

func TestR019NoColon(t *testing.T) {
	checkDecoding(t, "data\n\ndata\ndata\n\ndata:", "", ends(plainEvents("", "\n"), eventsource.ErrTruncated))
}

func TestR020EmptyLinesOfData(t *testing.T) {
	checkDecoding(t, "data: I am\ndata: \ndata: B\n\n", "", ends(plainEvents("I am\n\nB"), io.EOF))
}

func TestR021LinesAreJoined(t *testing.T) {
	checkDecoding(t, "data: a\ndata: b\ndata: c\n\n", "", ends(plainEvents("a\nb\nc"), io.EOF))
}

func TestR022FirstColonSeparates(t *testing.T) {
	checkDecoding(t, "data: {\"url\":\"http://h:80/?a:b\"}\n\n", "", ends(plainEvents(`{"url":"http://h:80/?a:b"}`), io.EOF))
}

func TestR023CommentIsNoEvent(t *testing.T) {
	checkDecoding(t, ": c1\n\nid: 0\ndata: x\n\n: c2\n\n", "", decoding{Events: withID("0", "x"), End: io.EOF, LastEventID: "0"})
}

func TestR024TypeWithoutData(t *testing.T) {
	checkDecoding(t, "event: ping\n\ndata: x\n\n", "", ends(plainEvents("x"), io.EOF))
}

func TestR025EmptyValueIsAnEvent(t *testing.T) {
	checkDecoding(t, "data:\n\nevent: e\ndata\n\n", "", ends([]eventsource.Event{plainEvent(""), {Type: "e"}}, io.EOF))
}

func TestR026UnfinishedEvent(t *testing.T) {
	checkDecoding(t, "data: a\n\ndata: b", "", ends(plainEvents("a"), eventsource.ErrTruncated))
	checkDecoding(t, "data: a\n\ndata: b\n", "", ends(plainEvents("a"), eventsource.ErrTruncated))
	checkDecoding(t, "data: a\n\n: c\n", "", ends(plainEvents("a"), io.EOF))
}

func TestR027CommentsFirst(t *testing.T) {
	checkDecoding(t, ": PROCESSING\n\n: PROCESSING\n\ndata: {\"a\":1}\n\n", "", ends(plainEvents(`{"a":1}`), io.EOF))
}

func TestR030IDOfTheDecoder(t *testing.T) {
	checkDecoding(t, "id: 1\ndata: a\n\ndata: b\n\n", "", decoding{Events: withID("1", "a", "b"), End: io.EOF, LastEventID: "1"})
}

func TestR031IDWithNUL(t *testing.T) {
	checkDecoding(t, "id: 1\nid: b\x00d\ndata: x\n\n", "", decoding{Events: withID("1", "x"), End: io.EOF, LastEventID: "1"})
}

func TestR032EmptyIDOfTheDecoder(t *testing.T) {
	checkDecoding(t, "id: 1\ndata: a\n\nid:\ndata: b\n\n", "", decoding{Events: append(withID("1", "a"), plainEvent("b")), End: io.EOF})
}

func TestR034IDAlone(t *testing.T) {
	checkDecoding(t, "id: 5\n\n", "", decoding{End: io.EOF, LastEventID: "5"})
}

func TestR035BadRetry(t *testing.T) {
	checkDecoding(t, "retry:none\ndata:foo\n\nretry\ndata:bar\n\n", "", ends(plainEvents("foo", "bar"), io.EOF))
}

func TestR090RetryOfTheDecoder(t *testing.T) {
	checkDecoding(t, "retry: 7000\n\n", "", decoding{End: io.EOF, Retry: 7 * time.Second, HasRetry: true})
}

func TestR008CRLFCutBetweenReads(t *testing.T) {
	checkDecoding(t, "data: A\r\ndata: B\r\ndata: C\r\n\r\n", "", ends(plainEvents("A\nB\nC"), io.EOF))
	got := decodeWith(decodingMethods[0], eventsource.NewDecoder(inReads("data: A\r\n|data: B\r|\ndata: C\r\n|\r\n")))
	if diff := cmp.Diff(ends(plainEvents("A\nB\nC"), io.EOF), got, sameErrors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestR010LoneCREndsALineAtOnce(t *testing.T) {
	r := inReads("data: hello\r\r|data: later\r\r")
	event, err := eventsource.NewDecoder(r).Next()
	if err != nil || event != plainEvent("hello") {
		t.Errorf("%v, %v", event, err)
	}
	if n := len("data: hello\r\r"); r.Offset() != n {
		t.Errorf("%d bytes were read for it, want %d", r.Offset(), n)
	}
}

func TestR011CRLFAfterCR(t *testing.T) {
	r := inReads("data: 1\rdata: 2\r\n|\r\n")
	pause := errors.New("pause")
	d := eventsource.NewDecoder(io.MultiReader(io.LimitReader(r, int64(len("data: 1\rdata: 2\r\n"))), iotest.ErrReader(pause)))
	if event, err := d.Next(); err != pause {
		t.Errorf("during the pause: %v, %v", event, err)
	}
	event, err := eventsource.NewDecoder(inReads("data: 1\rdata: 2\r\n||\r\n")).Next()
	if err != nil || event != plainEvent("1\n2") {
		t.Errorf("after the pause: %v, %v", event, err)
	}
}

func TestR013CharacterCutBetweenReads(t *testing.T) {
	event, err := eventsource.NewDecoder(inReads("data: \xC3|\xA9\n\n")).Next()
	if err != nil || event != plainEvent("é") {
		t.Errorf("%v, %v", event, err)
	}
}

func TestR015ByteOrderMark(t *testing.T) {
	const rest = "data: first\n\ndata: second\n\n"
	for _, start := range []string{"\xEF\xBB\xBF", "\xEF|\xBB\xBF", "\xEF\xBB|\xBF", "|\xEF\xBB\xBF", "||\xEF||\xBB||\xBF|"} {
		got := decodeWith(decodingMethods[0], eventsource.NewDecoder(inReads(start+rest)))
		if diff := cmp.Diff(ends(plainEvents("first", "second"), io.EOF), got, sameErrors); diff != "" {
			t.Errorf("%q (-want +got):\n%s", start, diff)
		}
	}
}

func TestR033IDToStartFrom(t *testing.T) {
	d := eventsource.NewHookedDecoder(strings.NewReader("data: x\n\n"), "42", nil, nil, nil)
	if d.LastEventID() != "42" {
		t.Errorf("before the first event the ID is %q", d.LastEventID())
	}
	if event, err := d.Next(); err != nil || event.LastEventID != "42" || d.LastEventID() != "42" {
		t.Errorf("%v, %v, then %q", event, err, d.LastEventID())
	}
}

func TestR089CommentsOfTheDecoder(t *testing.T) {
	const input = ": ping\n:\n\ndata: x\n\n"
	var got []string
	d := eventsource.NewHookedDecoder(strings.NewReader(input), "", func(text string) { got = append(got, fmt.Sprintf("%q", text)) }, nil, nil)
	for event := range d.Events() {
		got = append(got, event.Data)
	}
	if diff := cmp.Diff([]string{`"ping"`, `""`, "x"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Without the hook no string is made of it.
	text := ":" + strings.Repeat(" ping\n:", 1000) + "\ndata: x\n\n"
	r := strings.NewReader(text)
	d = eventsource.NewDecoder(r)
	_, _ = d.NextRaw()
	if n := testing.AllocsPerRun(5, func() {
		r.Reset(text)
		eventsource.ResetDecoder(d, r, "")
		_, _ = d.NextRaw()
	}); n > 2 {
		t.Errorf("%v allocations for 1000 comments", n)
	}
	runtime.KeepAlive(d)
}

package eventsource_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/chunk"
	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/policy"
)

func TestMaxEventSize(t *testing.T) {
	free := strings.Repeat("n", eventsource.FreeNames)
	huge := strings.Repeat("n", eventsource.FreeLastID)
	bad := strings.Repeat("\xFF", 3000)
	long := strings.Repeat("n", 100)
	tests := []struct {
		name, input string
		limit       int
		events      int  // before the end
		tooLarge    bool // the end
	}{
		{"a line at the limit", "data: 89\n\n", 8, 1, false},
		{"a line beyond it", "data: 89\n\n", 7, 0, true},
		{"a line beyond it, CR", "data: 89\r\r", 7, 0, true},
		{"the line end does not count", "data: 89\r\n\r\n", 8, 1, false},
		{"a BOM does not count", "\uFEFFdata: 89\n\n", 8, 1, false},
		{"half a BOM does not count", "\xEF\xBB\xBF\n", 1, 0, false},
		{"a line without an end at the limit", "data: 89", 8, 0, false},
		{"a line without an end beyond it", "data: 89", 7, 0, true},
		{"a name that may be another's is no line of data yet", "data", 3, 0, false},
		{"a name that is another's", "dataX\ndata\n\n", 4, 1, false},
		{"a name without a colon beyond it", "data\n", 3, 0, true},
		{"a name beyond it with its colon", "data:", 4, 0, true},
		{"a retry beyond it", "retry: 10\n", 8, 0, true},
		{"an ID that does not count, beyond it", "id: \x00234\n", 7, 0, true},
		{"a comment beyond it", ": 3456789\ndata: x\n\n", 8, 1, false},
		{"a comment beyond it inside a block", "data: x\n: 3456789\ndata: y\n\n", 8, 1, false},
		{"an unknown field beyond it", "unknown: x\ndata: x\n\n", 7, 1, false},
		{"a line without a colon beyond it", "unknown\ndata\n\n", 6, 1, false},
		{"lines that end in CR and are not wanted", ": 3456789\runknown\r\rdata: x\r\r", 7, 1, false},
		{"long lines that are not wanted, by CRLF", ":" + long + "\r\ndata: x\r\n" + long + "\r\n\r\n:" + long + "\r\n\r\ndata: y\r\n\r\n", 7, 2, false},
		{"long lines that are not wanted, by CR", ":" + long + "\rdata: x\r" + long + "\r\r:" + long + "\r\rdata: y\r\r", 7, 2, false},
		{"a long comment that looks like data inside", ":" + strings.Repeat("data:", 400) + "\ndata: x\n\n", 7, 1, false},
		{"long names that begin like known ones", "datax" + long + "\neven" + long + "\nids:" + long + "\nretry " + long + "\ndata: x\n\n", 7, 1, false},
		{"a long comment without an end after an event", "data: x\n\n:" + long, 7, 1, false},
		{"lines of data at the limit", "data: a\ndata: b\ndata: c\n\n", 10, 1, false},
		{"lines of data beyond it", "data: a\ndata: b\ndata: c\n\n", 9, 0, true},
		{"empty lines of data at the limit", "data\ndata\ndata\n\n", 5, 1, false},
		{"empty lines of data beyond it", "data\ndata\ndata\ndata\n\n", 5, 0, true},
		{"a type after data at the limit", "data: abc\nevent:7\n\n", 10, 1, false},
		{"a type after data beyond it", "data: abc\nevent:78\n\n", 10, 0, true},
		{"many comments", "data: x\n" + strings.Repeat(": c\n", 100) + "\n", 7, 1, false},
		{"many events", strings.Repeat("data: x\n\n", 100), 7, 100, false},
		{"events before the one beyond", "data: x\n\ndata: y\n\ndata: zz\n\ndata: x\n\n", 7, 2, true},
		{"data that grows when decoded, at the limit", "data: \xFF\xFF\n\n", 8, 1, false},
		{"data that grows when decoded, at the limit of that", "data: \xFF\xFF\xFF\xFF\n\n", 12, 1, false},
		{"data that grows beyond it when decoded", "data: \xFF\xFF\xFF\xFF\n\n", 11, 0, true},
		{"names are measured as names when decoded, too", "id: " + bad[:100] + "\nevent: " + bad[:100] + "\ndata: x\n\n", 200, 1, false},
		{"an ID that grows when decoded, at the limit", "id: " + bad + "\n\n", 3*len(bad) - len(free), 0, false},
		{"an ID that grows beyond it when decoded", "id: " + bad + "\n\n", 3*len(bad) - len(free) - 1, 0, true},
		{"a type that grows when decoded, at the limit", "event: " + bad + "\ndata\n\n", 3*len(bad) - len(free) + 4, 1, false},
		{"a type that grows beyond it when decoded", "event: " + bad + "\ndata\n\n", 3*len(bad) - len(free) - 1, 0, true},
		{"a type that grows beyond it with the data", "data: x\nevent: " + bad + "\n\n", 3*len(bad) - len(free), 0, true},
		{"a type and an ID come free", "event: 12345\nid: 123456\ndata: 123456\n\n", 12, 1, false},
		{"an ID and a type come free up to 4 KiB together", "id: " + free[:3000] + "\nevent: " + free[:600] + "\ndata: " + free[:2500] + "\n\n", 3004, 1, false},
		{"both a little longer", "id: " + free[:3496] + "\nevent: " + free[:601] + "\ndata: " + free[:3493] + "\n\n", 3500, 1, false},
		{"one byte too much of both", "id: " + free[:3496] + "\nevent: " + free[:601] + "\ndata: " + free[:3494] + "\n\n", 3500, 0, true},
		{"a name that is not big takes what a big one left", "id: " + free[:4000] + "\nevent: " + free[:400] + "\ndata: " + free[:3794] + "\n\n", 4104, 1, false},
		{"one byte too much of that", "id: " + free[:4000] + "\nevent: " + free[:400] + "\ndata: " + free[:3795] + "\n\n", 4104, 0, true},
		{"a big type counts for what is beyond that", "event: " + free + "1234\ndata: 12\n\n", len(free) + 12, 1, false},
		{"a big type leaves nothing", "event: " + free + free + "\ndata: " + free + "\n\n", 2*len(free) + 4, 0, true},
		{"a big ID leaves nothing, either", "id: " + free + free + "\ndata: " + free + "\n\n", 2*len(free) + 4, 0, true},
		{"a big type and a big ID together", "event: " + free + "\nid: " + free + "\ndata: " + free + "\n\n", 2*len(free) - 1, 0, true},
		{"a big type that another has replaced", "event: " + free + free + "\nevent: a\ndata: " + free + free + "\n\n", 2*len(free) + 8, 1, false},
		{"a big ID that another has replaced", "id: " + free + free + "\nid: " + bad[:9] + "\ndata: " + free + free + "\n\n", 2*len(free) + 8, 1, false},
		{"a big type is gone after its event", "event: " + free + free + "\ndata: 12\n\ndata: " + free + free + "\n\n", 2*len(free) + 8, 2, false},
		{"a big type without data is gone, too", "event: " + free + free + "\n\ndata: " + free + free + "\n\n", 2*len(free) + 8, 1, false},
		{"an ID in force leaves an event as it was", strings.Repeat("id: "+free[:3000]+"\ndata: "+free[:2500]+"\n\ndata: "+free[:3994]+"\n\n", 3), 4000, 6, false},
		{"a big ID in force, too", strings.Repeat("id: "+free+free[:2000]+"\ndata: "+free+"\n\n", 3), len(free) + 2006, 3, false},
		{"a huge ID in force counts for what is beyond 32 KiB", "id: " + huge + "12\n\ndata: " + huge[:len(huge)-4] + "\n\n", len(huge) + 6, 1, false},
		{"a huge ID in force leaves less", "id: " + huge + "12\n\ndata: " + huge[:len(huge)-1] + "\n\n", len(huge) + 6, 0, true},
		{"a huge ID is replaced", "id: " + huge + "12\n\nid: 1\n\ndata: " + huge + "\n\n", len(huge) + 6, 1, false},
		{"no limit", "data: " + strings.Repeat("x", 100_000) + "\n\n", -1, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, m := range decodingMethods {
				for name, r := range decodingReaders(tt.input) {
					d := eventsource.NewDecoder(r)
					d.SetMaxEventSize(tt.limit)
					events, err := m.read(d)
					if len(events) != tt.events || errors.Is(err, eventsource.ErrEventTooLarge) != tt.tooLarge {
						t.Fatalf("%s, %s: %d events, then %v; want %d, too large: %v", m.name, name, len(events), err, tt.events, tt.tooLarge)
					}
					if !tt.tooLarge {
						continue
					}
					var network net.Error
					if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
						t.Fatalf("%v looks like a failure of the network", err)
					}
					if want := fmt.Sprintf("eventsource: event too large: the limit is %d bytes", tt.limit); err.Error() != want {
						t.Fatalf("the error reads %q, want %q", err, want)
					}
					if _, again := d.Next(); again != err {
						t.Fatalf("%s, %s: another call gives %v", m.name, name, again)
					}
				}
			}
		})
	}
}

// TestMaxEventSizeOfAStream holds the same for a Client. The error is final, as the
// server would send the same event again. No option is needed for a large event.
func TestMaxEventSizeOfAStream(t *testing.T) {
	for _, tt := range []struct {
		limit, size int
		tooLarge    bool
	}{
		{0, 2 << 20, false},
		{4 << 20, 1_200_000, false},
		{1 << 20, 1_200_000, true},
		{512 << 10, 300_000, false},
		{200_000, 300_000, true},
		{-1, 1_200_000, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			event := Send("data: " + strings.Repeat("a", tt.size) + "\n\n")
			srv := serve(t, []Step{event, End}, []Step{event, End})
			s := play(t, srv, eventsource.Client{MaxEventSize: tt.limit, Policy: policy.Resilient()})
			if !tt.tooLarge {
				if s.err != nil || len(s.events) != 2 || len(s.events[1].Data) != tt.size {
					t.Errorf("limit %d: %d events and %v", tt.limit, len(s.events), s.err)
				}
				return
			}
			want := fmt.Sprintf("eventsource: event too large: the limit is %d bytes", tt.limit)
			if !errors.Is(s.err, eventsource.ErrEventTooLarge) || s.err.Error() != want || len(srv.Requests()) != 1 || s.ends[0].Kind != policy.TooLarge {
				t.Errorf("limit %d: %d requests, ended %v with %v", tt.limit, len(srv.Requests()), s.ends[0].Kind, s.err)
			}
		})
	}
}

// TestDefaultMaxEventSize holds the limit of a decoder that was given none, and that
// it is no limit where none was asked for.
func TestDefaultMaxEventSize(t *testing.T) {
	const size = 64 << 20
	text := bytes.Repeat([]byte("x"), eventsource.BusyBuffer)
	endless := readerFunc(func(p []byte) (int, error) { return copy(p, text), nil })
	d := eventsource.NewDecoder(io.MultiReader(strings.NewReader("data: x\n\ndata: "), endless))
	d.SetMaxEventSize(1)
	d.SetMaxEventSize(0)
	if _, err := d.NextRaw(); err != nil {
		t.Fatal(err)
	}
	_, err := d.NextRaw()
	if !errors.Is(err, eventsource.ErrEventTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(size)) {
		t.Errorf("the error is %v, want one about %d bytes", err, size)
	}

	d = eventsource.NewDecoder(io.MultiReader(strings.NewReader("data: "), io.LimitReader(endless, size+1), strings.NewReader("\n\n")))
	d.SetMaxEventSize(-1)
	if event, err := d.NextRaw(); err != nil || len(event.Data) != size+1 {
		t.Errorf("without a limit: %d bytes, %v", len(event.Data), err)
	}
}

// TestLimitAgainstReference compares the rule with its naive model, for small limits
// and names around the sizes that come free.
func TestLimitAgainstReference(t *testing.T) {
	start := rand.Uint64()
	for round := range uint64(400) {
		seed := start + round
		rng := rand.New(rand.NewPCG(seed, 13))
		limit := []int{1 + rng.IntN(20), 1 + rng.IntN(300), 4000 + rng.IntN(200), 6000 + rng.IntN(3000)}[rng.IntN(4)]
		input := sizedStream(rng, limit)
		before, tooLarge := reference.TooLarge(input, "", limit)
		want := fromReference(reference.Decode(input[:before], ""))
		for name, pieces := range map[string][][]byte{
			"whole":     {input},
			"in pieces": chunk.Random(input, rng),
			"in 1448":   chunk.Every(input, 1448),
		} {
			for _, m := range decodingMethods[:3] {
				d := eventsource.NewDecoder(chunk.NewReader(pieces))
				d.SetMaxEventSize(limit)
				got := decodeWith(m, d)
				if tooLarge && errors.Is(got.End, eventsource.ErrEventTooLarge) {
					got.End = want.End
				}
				if diff := cmp.Diff(want, got, sameErrors); diff != "" {
					t.Fatalf("seed %d: limit %d, too large: %v, by %s, %s (-want +got):\n%.3000s", seed, limit, tooLarge, m.name, name, diff)
				}
			}
		}
	}
}

// sizedStream returns a stream whose lines are around the sizes that matter.
func sizedStream(rng *rand.Rand, limit int) []byte {
	var b []byte
	for range 1 + rng.IntN(12) {
		size := []int{0, rng.IntN(10), limit / 3, limit / 2, limit, eventsource.FreeNames / 2, eventsource.FreeNames, eventsource.FreeNames / 3}[rng.IntN(8)]
		size = max(0, size-10+rng.IntN(14))
		text := []string{"n", "n", "n", "é", "\xFF"}[rng.IntN(5)]
		name := []string{"data: ", "data: ", "data", "event: ", "event:", "id: ", "id:", ":", "unknown", "dat", "id: \x00", "retry: 1"}[rng.IntN(12)]
		b = append(append(b, name...), strings.Repeat(text, size/len(text))...)
		end := []string{"\n", "\r", "\r\n"}[rng.IntN(3)]
		b = append(b, strings.Repeat(end, 1+rng.IntN(2))...)
	}
	return b[:len(b)-rng.IntN(2)]
}

// TestHistoryDoesNotMatter holds that whether an event is too large depends on its own
// block, not on what came before.
func TestHistoryDoesNotMatter(t *testing.T) {
	const limit = 6000
	blocks := []string{}
	for _, id := range []int{0, 1, 3000, 4500, 5990} {
		for _, typ := range []int{0, 600, 5000} {
			for _, data := range []int{100, 2500, 4000, 5994} {
				blocks = append(blocks, fmt.Sprintf("id: %0*d\nevent: %0*d\ndata: %0*d\n\n", id, 0, typ, 0, data, 0), fmt.Sprintf("data: %0*d\nevent: %0*d\n\n", data, 0, typ, 0))
			}
		}
	}
	events := func(input string) int {
		d := eventsource.NewDecoder(strings.NewReader(input))
		d.SetMaxEventSize(limit)
		events, _ := decodingMethods[0].read(d)
		return len(events)
	}
	fine := []string{}
	for _, block := range blocks {
		if events(block) == 1 {
			fine = append(fine, block)
		}
	}
	if len(fine) < 20 || len(fine) > len(blocks)-20 {
		t.Fatalf("%d of %d blocks are fine: both kinds are wanted", len(fine), len(blocks))
	}
	for _, before := range fine {
		for _, block := range blocks {
			if got, want := events(before+block), 1+events(block); got != want {
				t.Fatalf("%d events, want %d, of\n%s\nafter\n%s", got, want, block, before)
			}
		}
	}
}

// TestIDOfAnEventTooLarge holds that the ID of an event that is refused does not take
// effect, whether that shows at a line or once the data is decoded, in a Decoder nor
// in a Stream.
func TestIDOfAnEventTooLarge(t *testing.T) {
	for name, input := range map[string]string{
		"at a line":    "id: 1\ndata: a\n\nid: 2\ndata: " + strings.Repeat("x", 100) + "\n\n",
		"once decoded": "id: 1\ndata: a\n\nid: 2\ndata: " + strings.Repeat("\xFF", 40) + "\n\n",
	} {
		for _, m := range decodingMethods {
			d := eventsource.NewDecoder(strings.NewReader(input))
			d.SetMaxEventSize(80)
			if events, err := m.read(d); len(events) != 1 || !errors.Is(err, eventsource.ErrEventTooLarge) || d.LastEventID() != "1" {
				t.Errorf("%s, %s: %d events, then %v; the last event ID is %q", name, m.name, len(events), err, d.LastEventID())
			}
		}
		synctest.Test(t, func(t *testing.T) {
			rt := answers(body(nil, input))
			s := rt.client(eventsource.Client{MaxEventSize: 80}).Stream(get(t.Context()))
			if data, err := collect(s); len(data) != 1 || !errors.Is(err, eventsource.ErrEventTooLarge) || s.LastEventID() != "1" {
				t.Errorf("%s, a Stream: %d events, then %v; the last event ID is %q", name, len(data), err, s.LastEventID())
			}
		})
	}
}

// TestSizeIsTheSameOnTheNextConnection holds that an event that was delivered is
// delivered again, with the ID in force that it has brought.
func TestSizeIsTheSameOnTheNextConnection(t *testing.T) {
	id, data := strings.Repeat("i", 3000), strings.Repeat("d", 2500)
	synctest.Test(t, func(t *testing.T) {
		rt := answers(body(nil, "id: "+id+"\ndata: "+data+"\n\n"), body(nil, "data: "+data+"\n\n"), body(nil, "id: "+id+"\ndata: "+data+"\n\n"), status(204))
		got, err := collect(rt.client(eventsource.Client{MaxEventSize: 4000}).Stream(get(t.Context())))
		if err != nil || len(got) != 3 {
			t.Errorf("%d events, then %v", len(got), err)
		}
	})
}

// TestLongCommentsAreCut holds what the hook for comments is given of those beyond the
// limit: the same in any way of cutting the input, and no part of a character.
func TestLongCommentsAreCut(t *testing.T) {
	x := strings.Repeat("x", 200)
	for _, tt := range []struct {
		name, input string
		want        []string
	}{
		{"at the limit", ": " + x[:98] + "\n", []string{x[:98]}},
		{"beyond it", ": " + x[:99] + "\n: a\n", []string{x[:98], "a"}},
		{"far beyond it", ":" + x + "\r\n:a\r\n", []string{x[:99], "a"}},
		{"without an end", ":" + x, []string{x[:99]}},
		{"what data leaves", "data:" + x[:95] + "\n:" + x[:10] + "\n\n", []string{x[:4]}},
		{"little is left", "data:" + x[:5] + "\n" + strings.Repeat("data\n", 92) + ":" + x + "\n\n", []string{x[:2]}},
		{"between characters", ":" + x[:1] + strings.Repeat("é", 60) + "\n", []string{"x" + strings.Repeat("é", 49)}},
		{"inside one", ":" + strings.Repeat("é", 60) + "\n", []string{strings.Repeat("é", 49)}},
		{"inside a long one", ":" + x[:96] + "\U0001F600\n", []string{x[:96]}},
		{"in what is none", ":" + x[:95] + "\xFF\xE2\x82\x80\x80\x80\n", []string{x[:95] + "\uFFFD\u2080"}},
	} {
		for name, r := range decodingReaders(tt.input) {
			var got []string
			d := eventsource.NewHookedDecoder(r, "", func(text string) { got = append(got, text) }, nil, nil)
			d.SetMaxEventSize(100)
			if _, err := decodingMethods[0].read(d); err != io.EOF {
				t.Fatalf("%s, %s: %v", tt.name, name, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Fatalf("%s, %s (-want +got):\n%s", tt.name, name, diff)
			}
		}
	}
}

// TestNothingIsLeftForComments holds that a comment is still told of when the last
// event ID, which the caller has chosen, is more than the limit.
func TestNothingIsLeftForComments(t *testing.T) {
	var got []string
	id := strings.Repeat("n", eventsource.FreeLastID+200)
	d := eventsource.NewHookedDecoder(iotest.OneByteReader(strings.NewReader("\uFEFF: ping\n\n: ping")), id, func(text string) { got = append(got, text) }, nil, nil)
	d.SetMaxEventSize(100)
	_, err := d.Next()
	if diff := cmp.Diff([]string{"", ""}, got); diff != "" || err != io.EOF {
		t.Errorf("%v, comments (-want +got):\n%s", err, diff)
	}
}

// TestLongRetry holds that a reconnection time of any length within the limit is the
// longest there is.
func TestLongRetry(t *testing.T) {
	d := eventsource.NewDecoder(strings.NewReader("retry: " + strings.Repeat("9", 1_000_000) + "\n"))
	_, err := d.Next()
	if retry, ok := d.Retry(); err != io.EOF || !ok || retry != math.MaxInt64 {
		t.Errorf("%v, then %v", retry, err)
	}
}

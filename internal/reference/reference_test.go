package reference_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprise-sse/reprise/internal/reference"
)

// ignoreForce leaves out of an event what a table states otherwise or not at all.
var ignoreForce = cmpopts.IgnoreFields(reference.Event{}, "Retry", "HasRetry", "End")

func TestReferenceEvents(t *testing.T) {
	message := func(data string) reference.Event { return reference.Event{Type: "message", Data: data} }
	for _, tt := range []struct {
		name, input string
		want        []reference.Event
	}{
		{"nothing", "", nil},
		{"one line", "data: x\n\n", []reference.Event{message("x")}},
		{"lines are joined with LF", "data: a\ndata:b\ndata\n\n", []reference.Event{message("a\nb\n")}},
		{"one space is dropped, and no tab", "data:  a\ndata:\tb\n\n", []reference.Event{message(" a\n\tb")}},
		{"only the first colon separates", "data:a:b\n\n", []reference.Event{message("a:b")}},
		{"an empty value is dispatched", "data\n\ndata:\n\n", []reference.Event{message(""), message("")}},
		{"names are matched as they are", "Data: a\n data: b\ndata : c\n\ndatum: d\n\n", nil},
		{"comments", ": a\n:data: b\ndata: c\n:\n\n", []reference.Event{message("c")}},
		{"CR, LF and CRLF", "data: a\rdata: b\ndata: c\r\n\r\ndata: d\r\rdata: e\n\n", []reference.Event{message("a\nb\nc"), message("d"), message("e")}},
		{"LF then CR are two line ends", "data: a\n\rdata: b\n\n", []reference.Event{message("a"), message("b")}},
		{"nothing else ends a line", "data: a\vb\fc\u0085d\u2028e\x1cf\n\n", []reference.Event{message("a\vb\fc\u0085d\u2028e\x1cf")}},
		{"the type", "event: e\ndata: a\n\ndata: b\n\n", []reference.Event{{Type: "e", Data: "a"}, message("b")}},
		{"the last type counts, even if empty", "event: a\nevent: b\ndata: x\n\nevent: a\nevent\ndata: y\n\n", []reference.Event{{Type: "b", Data: "x"}, message("y")}},
		{"without data the type is forgotten", "event: a\n\ndata: x\n\n", []reference.Event{message("x")}},
		{"one BOM is dropped", "\ufeffdata: a\n\n", []reference.Event{message("a")}},
		{"the second is part of the name", "\ufeff\ufeffdata: a\n\ndata: b\n\n", []reference.Event{message("b")}},
		{"and so is any later one", "data: \ufeffa\n\n\ufeffdata: b\n\n", []reference.Event{message("\ufeffa")}},
		{"part of a BOM is no BOM", "\xef\xbbdata: a\n\ndata: b\n\n", []reference.Event{message("b")}},
		{"a line end after the BOM is one", "\ufeff\ndata: a\n\n", []reference.Event{message("a")}},
		{"the end of the input discards", "data: a\n\ndata: b\n", []reference.Event{message("a")}},
		{"a CR at the end is a line end", "data: a\r\r", []reference.Event{message("a")}},
	} {
		got := reference.Decode([]byte(tt.input), "").Events
		if diff := cmp.Diff(tt.want, got, ignoreForce); diff != "" {
			t.Errorf("%s: %q (-want +got):\n%s", tt.name, tt.input, diff)
		}
	}
}

func TestReferenceLastEventID(t *testing.T) {
	for _, tt := range []struct {
		name, carried, input string
		want                 []string // of the events, and last the one at the end
	}{
		{"none", "", "data: x\n\n", []string{"", ""}},
		{"set, and kept", "", "id: 1\ndata: x\n\ndata: y\n\n", []string{"1", "1", "1"}},
		{"carried", "7", "data: x\n\n", []string{"7", "7"}},
		{"carried and replaced", "7", "id: 8\ndata: x\n\n", []string{"8", "8"}},
		{"cleared", "7", "id\ndata: x\n\n", []string{"", ""}},
		{"a NUL anywhere", "7", "id: 8\x00\nid: \x008\ndata: x\n\n", []string{"7", "7"}},
		{"committed without data", "", "id: 1\n\n", []string{"1"}},
		{"not committed before the blank line", "7", "id: 8\ndata: x\n", []string{"7"}},
		{"the last one counts", "", "id: 1\nid: 2\ndata: x\n\n", []string{"2", "2"}},
		{"spaces are kept but one", "", "id:  1 \ndata: x\n\n", []string{" 1 ", " 1 "}},
	} {
		result := reference.Decode([]byte(tt.input), tt.carried)
		var got []string
		for _, e := range result.Events {
			got = append(got, e.LastEventID)
		}
		got = append(got, result.LastEventID)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %q (-want +got):\n%s", tt.name, tt.input, diff)
		}
	}
}

func TestReferenceRetry(t *testing.T) {
	const never = -1
	for _, tt := range []struct {
		input string
		want  time.Duration
	}{
		{"", never},
		{"retry: 200\n", 200 * time.Millisecond},
		{"retry:0\r", 0},
		{"retry: 200", never},
		{"retry\n", never},
		{"retry: 200\nretry:\n", 200 * time.Millisecond},
		{"retry: 200\nretry: 300\n", 300 * time.Millisecond},
		{"retry: 0000000000000000000000000000200\n", 200 * time.Millisecond},
		{"retry: +5\n", never},
		{"retry: -5\n", never},
		{"retry:  5\n", never},
		{"retry: 5 \n", never},
		{"retry: 5ms\n", never},
		{"retry: 1.5\n", never},
		{"retry: 1_000\n", never},
		{"retry: ５\n", never},
		{"Retry: 5\n", never},
		{"retry: 9223372036854\n", 9223372036854 * time.Millisecond},
		{"retry: 9223372036855\n", math.MaxInt64},
		{"retry: 18446744073709551616\n", math.MaxInt64},
		{"retry: 1" + strings.Repeat("0", 400) + "\n", math.MaxInt64},
	} {
		result := reference.Decode([]byte(tt.input), "")
		got := result.Retry
		if !result.HasRetry {
			got = never
		}
		if got != tt.want {
			t.Errorf("%q: %v, want %v", tt.input, got, tt.want)
		}
	}
}

func TestReferenceRetryInForce(t *testing.T) {
	got := reference.Decode([]byte("data: a\n\nretry: 1\ndata: b\nretry: 2\n\nretry: 3\n"), "")
	want := reference.Result{
		Events: []reference.Event{
			{Type: "message", Data: "a", End: 9},
			{Type: "message", Data: "b", Retry: 2 * time.Millisecond, HasRetry: true, End: 36},
		},
		Retry: 3 * time.Millisecond, HasRetry: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An event is dispatched by the CR of a CRLF, and byte counts are of the input,
// whatever it decodes to.
func TestReferenceEnd(t *testing.T) {
	for _, tt := range []struct {
		input string
		want  []int
	}{
		{"data: a\n\n", []int{9}},
		{"data: a\r\r", []int{9}},
		{"data: a\r\n\r\n", []int{10}},
		{"data: a\r\n\r\ndata: b\r\n\n", []int{10, 21}},
		{"\ufeffdata: é\n\n", []int{13}},
		{"data: \xf0\x9f\n\ndata: \xff\n\n", []int{10, 19}},
	} {
		var got []int
		for _, e := range reference.Decode([]byte(tt.input), "").Events {
			got = append(got, e.End)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.input, diff)
		}
	}
}

func TestReferenceUTF8(t *testing.T) {
	const r = "\ufffd"
	for _, tt := range []struct{ input, want string }{
		{"é…😀", "é…😀"},
		{"\x00\x01\x7f", "\x00\x01\x7f"},
		{"\xff\xff", r + r},
		{"\x80", r},
		{"\xc0\xaf", r + r},
		{"\xc1\xbf", r + r},
		{"\xc2", r},
		{"\xc2\xc2\x80", r + "\u0080"},
		{"\xe0\x80\x80", r + r + r},
		{"\xe0\x9f\xbf", r + r + r},
		{"\xe0\xa0\x80", "\u0800"},
		{"\xed\x9f\xbf", "\ud7ff"},
		{"\xed\xa0\x80", r + r + r},
		{"\xe2\x82", r},
		{"\xe2\x82z", r + "z"},
		{"\xf0\x8f\xbf\xbf", r + r + r + r},
		{"\xf0\x90\x80\x80", "\U00010000"},
		{"\xf0\x9f\x98", r},
		{"\xf0\x9f\xf0\x9f\x98\x80", r + "😀"},
		{"\xf4\x8f\xbf\xbf", "\U0010ffff"},
		{"\xf4\x90\x80\x80", r + r + r + r},
		{"\xf5\x80", r + r},
	} {
		events := reference.Decode([]byte("data:"+tt.input+"\n\n"), "").Events
		if len(events) != 1 || events[0].Data != tt.want {
			t.Errorf("% x: %+v, want %+q", tt.input, events, tt.want)
		}
	}
	// A sequence that a line end cuts off does not swallow it.
	events := reference.Decode([]byte("data:\xf0\x9f\ndata:x\n\n"), "").Events
	if len(events) != 1 || events[0].Data != r+"\nx" {
		t.Errorf("a cut sequence before LF: %+v", events)
	}
}

func TestReferenceTruncated(t *testing.T) {
	for _, tt := range []struct {
		input string
		want  bool
	}{
		{"", false},
		{"data: x\n\n", false},
		{"data: x\n", true},
		{"data: x", true},
		{"data:", true},
		{"data", true},
		{"dat", false},
		{"datax", false},
		{"id: 1\nevent: e\nretry: 5\n", false},
		{"id: 1\nevent: e", false},
		{": data", false},
		{"data: a\n\n: c\n", false},
		{"data: a\n\n: c", false},
		{"\ufeffdata: a\r", true},
		{"data: a\r\n\r", false},
	} {
		if got := reference.Decode([]byte(tt.input), "").Truncated; got != tt.want {
			t.Errorf("%q: %v, want %v", tt.input, got, tt.want)
		}
	}
}

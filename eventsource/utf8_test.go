package eventsource_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/reference"
)

func TestAppendDecoded(t *testing.T) {
	// What the UTF-8 decoder of the Encoding standard makes of it: one U+FFFD for
	// each maximal subpart.
	tests := []struct{ name, in, want string }{
		{"empty", "", ""},
		{"ASCII", "az\x00\x7f", "az\x00\x7f"},
		{"well-formed", "é€\U0001F600\u0080\u07FF\u0800\uFFFF\U00010000\U0010FFFF", "é€\U0001F600\u0080\u07FF\u0800\uFFFF\U00010000\U0010FFFF"},
		{"U+FFFD itself", "\uFFFD", "\uFFFD"},
		{"a lone continuation byte", "a\x80b", "a\uFFFDb"},
		{"two lone continuation bytes", "\x80\xBF", "\uFFFD\uFFFD"},
		{"C0 and C1 start nothing", "\xC0\x80\xC1\xBF", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"F5 to FF start nothing", "\xF5\x80\xFF\xFE", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"two bytes, cut", "\xC3", "\uFFFD"},
		{"two bytes, cut by ASCII", "\xC3a", "\uFFFDa"},
		{"two bytes, cut by another", "\xC3\xC3\xA9", "\uFFFDé"},
		{"three bytes, one there", "\xE2", "\uFFFD"},
		{"three bytes, two there", "\xE2\x82", "\uFFFD"},
		{"three bytes, two there, then ASCII", "\xE2\x82a", "\uFFFDa"},
		{"E0 wants at least A0", "\xE0\x9F\xBF", "\uFFFD\uFFFD\uFFFD"},
		{"E0 with A0, cut", "\xE0\xA0a", "\uFFFDa"},
		{"ED wants at most 9F: a surrogate", "\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
		{"ED with 9F, cut", "\xED\x9Fa", "\uFFFDa"},
		{"four bytes, one there", "\xF1", "\uFFFD"},
		{"four bytes, two there", "\xF1\x80", "\uFFFD"},
		{"four bytes, three there", "\xF1\x80\x80", "\uFFFD"},
		{"four bytes, three there, thrice", "\xF1\x80\x80\xF1\x80\x80\xF1\x80\x80", "\uFFFD\uFFFD\uFFFD"},
		{"F0 wants at least 90", "\xF0\x8F\xBF\xBF", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"F0 with 90, cut", "\xF0\x90\x80a", "\uFFFDa"},
		{"F4 wants at most 8F", "\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"F4 with 8F, cut", "\xF4\x8F\xBFa", "\uFFFDa"},
		{"the third byte may be anything from 80 to BF", "\xE0\xA0\x80\xED\x9F\xBF", "\u0800\uD7FF"},
		{"a fourth byte too many", "\xE2\x82\xAC\x80", "€\uFFFD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := eventsource.AppendDecoded([]byte("before"), []byte(tt.in))
			if diff := cmp.Diff("before"+tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := eventsource.DecodedLen([]byte(tt.in)); n != len(tt.want) {
				t.Errorf("DecodedLen = %d, want %d", n, len(tt.want))
			}
		})
	}
}

func TestAppendDecodedAtRandom(t *testing.T) {
	// Bytes that bounds are made of, and are next to.
	alphabet := []byte("a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff")
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		in := make([]byte, rng.IntN(12))
		for i := range in {
			in[i] = alphabet[rng.IntN(len(alphabet))]
		}
		want := reference.Decode(fmt.Appendf(nil, "data: %s\n\n", in), "").Events[0].Data
		if got := eventsource.AppendDecoded(nil, in); string(got) != want || eventsource.DecodedLen(in) != len(want) {
			t.Fatalf("seed %d: %q decodes to %q, DecodedLen %d; want %q", seed, in, got, eventsource.DecodedLen(in), want)
		}
	}
}

// TestByteSearches compares the searches that look at several bytes at once with
// searches byte by byte: every length, every place, and neighbours that differ by one
// bit or by one, which is where arithmetic on eight bytes may go wrong.
func TestByteSearches(t *testing.T) {
	first := func(b []byte, is func(byte) bool) int {
		for i, c := range b {
			if is(c) {
				return i
			}
		}
		return len(b)
	}
	nonASCII := func(c byte) bool { return c >= utf8.RuneSelf }
	lf := func(c byte) bool { return c == '\n' }
	nul := func(c byte) bool { return c == 0 }
	special := func(c byte) bool { return c == '\n' || c == '\r' || c >= utf8.RuneSelf }

	for _, fill := range []byte{0x7f, 0x01, 0x0b, 0x0c} {
		for length := range 90 {
			b := bytes.Repeat([]byte{fill}, length)
			for place := -1; place < length; place++ {
				for i, c := range []byte{'\n', '\r', 0, 0x80, 0xff, 0x8a, 0x8d, '\n', '\r', 0, 0x80, 0xff, 0x8a, 0x8d} {
					if place >= 0 {
						b[place] = c
						// What comes after the first must not matter, nor hide it; and the
						// first must be found by itself.
						if place+1 < length {
							b[place+1] = fill
							if i < 7 {
								b[place+1] = c ^ 1
							}
						}
					}
					if got, want := eventsource.IndexNonASCII(b), first(b, nonASCII); got != want {
						t.Fatalf("IndexNonASCII(%q) = %d, want %d", b, got, want)
					}
					if got, want := eventsource.IndexLF(b), first(b, lf); got != want {
						t.Fatalf("IndexLF(%q) = %d, want %d", b, got, want)
					}
					if got, want := eventsource.HasNUL(b), first(b, nul) < length; got != want {
						t.Fatalf("HasNUL(%q) = %v, want %v", b, got, want)
					}
					if got, want := eventsource.IsPlain(b), first(b, special) == length; got != want {
						t.Fatalf("IsPlain(%q) = %v, want %v", b, got, want)
					}
				}
				if place >= 0 {
					b[place] = fill
					if place+1 < length {
						b[place+1] = fill
					}
				}
			}
		}
	}
}

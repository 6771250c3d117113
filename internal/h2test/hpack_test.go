package h2test_test

import (
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/internal/h2test"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestDecodeExamples decodes the examples of RFC 7541, appendix C.
func TestDecodeExamples(t *testing.T) {
	type fields = []h2test.Field
	requests := []fields{
		{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "www.example.com"}},
		{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "www.example.com"}, {"cache-control", "no-cache"}},
		{{":method", "GET"}, {":scheme", "https"}, {":path", "/index.html"}, {":authority", "www.example.com"}, {"custom-key", "custom-value"}},
	}
	responses := []fields{
		{{":status", "302"}, {"cache-control", "private"}, {"date", "Mon, 21 Oct 2013 20:13:21 GMT"}, {"location", "https://www.example.com"}},
		{{":status", "307"}, {"cache-control", "private"}, {"date", "Mon, 21 Oct 2013 20:13:21 GMT"}, {"location", "https://www.example.com"}},
		{
			{":status", "200"},
			{"cache-control", "private"},
			{"date", "Mon, 21 Oct 2013 20:13:22 GMT"},
			{"location", "https://www.example.com"},
			{"content-encoding", "gzip"},
			{"set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"},
		},
	}
	for _, test := range []struct {
		name   string
		blocks []string // of one connection
		want   []fields
	}{
		{"C.2.1", []string{"400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"}, []fields{{{"custom-key", "custom-header"}}}},
		{"C.2.2", []string{"040c 2f73 616d 706c 652f 7061 7468"}, []fields{{{":path", "/sample/path"}}}},
		{"C.2.3", []string{"1008 7061 7373 776f 7264 0673 6563 7265 74"}, []fields{{{"password", "secret"}}}},
		{"C.2.4", []string{"82"}, []fields{{{":method", "GET"}}}},
		{"C.3", []string{
			"8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
			"8286 84be 5808 6e6f 2d63 6163 6865",
			"8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
		}, requests},
		{"C.4", []string{
			"8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
			"8286 84be 5886 a8eb 1064 9cbf",
			"8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
		}, requests},
		// With a table of 256 bytes, set here by an update (3f e101), so that
		// entries are evicted.
		{"C.6", []string{
			"3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
			"4883 640e ffc1 c0bf",
			"88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
		}, responses},
	} {
		t.Run(test.name, func(t *testing.T) {
			var blocks [][]byte
			for i, block := range test.blocks {
				blocks = append(blocks, unhex(t, block))
				got, err := h2test.Decode(blocks...)
				if err != nil {
					t.Fatalf("block %d: %v", i+1, err)
				}
				if diff := cmp.Diff(test.want[i], got); diff != "" {
					t.Errorf("block %d (-want +got):\n%s", i+1, diff)
				}
			}
		})
	}
}

// TestDecodeEncoded: what encode writes is read back, at every length around the
// limits of the integer encoding.
func TestDecodeEncoded(t *testing.T) {
	for _, n := range []int{0, 1, 126, 127, 128, 254, 255, 256, 16383, 16384, 100_000} {
		want := []h2test.Field{{"a", strings.Repeat("v", n)}, {strings.Repeat("n", n+1), "b"}}
		got, err := h2test.Decode(h2test.Encode(want))
		if err != nil {
			t.Errorf("length %d: %v", n, err)
		} else if !cmp.Equal(want, got) {
			t.Errorf("length %d: the fields read back differ", n)
		}
	}
}

// TestDecodeMalformed: each of these is an error.
func TestDecodeMalformed(t *testing.T) {
	for name, block := range map[string]string{
		"index 0":                       "80",
		"index beyond both tables":      "be",
		"name index beyond both tables": "7f00 0161",
		"integer cut off":               "ff",
		"integer cut off later":         "ffff",
		"integer too large":             "ffff ffff ffff 01",
		"name cut off":                  "4003 6162",
		"value missing":                 "4001 61",
		"value cut off":                 "4001 6102 62",
		"table larger than allowed":     "3fe2 1f",
		"table size after a field":      "8220",
		"table size cut off":            "3f",
		"index of what was evicted":     "20 4001 6101 62 be",
		"literal without length":        "00",
		"Huffman, padding of zeros":     "0001 6181 18",   // "a", 000
		"Huffman, padding of a byte":    "0001 6182 1fff", // "a", 11 ones
		"Huffman, end of string inside": "0001 6184 ffff ffff",
		"Huffman, a code cut off":       "0001 6181 fe", // 8 of the 10 bits of "!"
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := h2test.Decode(unhex(t, block)); err == nil {
				t.Errorf("decoded as %q, want an error", got)
			}
		})
	}
}

// TestDecodeGarbage: whatever it is given, the decoder returns.
func TestDecodeGarbage(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("seed %d: %v", seed, r)
		}
	}()
	for range 5_000 {
		var blocks [][]byte
		for range 1 + random.IntN(3) {
			block := make([]byte, random.IntN(40))
			for i := range block {
				block[i] = byte(random.Uint32())
			}
			blocks = append(blocks, block)
		}
		// The result may be anything, an error too.
		_, _ = h2test.Decode(blocks...)
	}
}

// TestFrameContent takes padding and priority away, and refuses what is malformed.
func TestFrameContent(t *testing.T) {
	for _, test := range []struct {
		name, wire string
		want       string
		wantErr    bool
	}{
		{"data", "\x00\x00\x02\x00\x00\x00\x00\x00\x01ab", "ab", false},
		{"data, empty", "\x00\x00\x00\x00\x01\x00\x00\x00\x01", "", false},
		{"data, padded", "\x00\x00\x05\x00\x08\x00\x00\x00\x01\x02ab\x00\x00", "ab", false},
		{"data, all padding", "\x00\x00\x03\x00\x08\x00\x00\x00\x01\x02\x00\x00", "", false},
		{"data, more padding than there is", "\x00\x00\x03\x00\x08\x00\x00\x00\x01\x03\x00\x00", "", true},
		{"data, no padding length", "\x00\x00\x00\x00\x08\x00\x00\x00\x01", "", true},
		{"data, a flag that means priority in HEADERS", "\x00\x00\x02\x00\x20\x00\x00\x00\x01ab", "ab", false},
		{"headers, padded, with priority", "\x00\x00\x08\x01\x28\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00a\x00", "a", false},
		{"headers, priority cut off", "\x00\x00\x04\x01\x20\x00\x00\x00\x01\x00\x00\x00\x00", "", true},
		{"header cut off", "\x00\x00\x04\x01", "", true},
		{"payload cut off", "\x00\x00\x04\x01\x00\x00\x00\x00\x01abc", "", true},
		{"too long", "\x00\x40\x01\x00\x00\x00\x00\x00\x01" + strings.Repeat("a", 16385), "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := h2test.ReadContent(test.wire)
			if string(got) != test.want || (err != nil) != test.wantErr {
				t.Errorf("content = %q, %v; want %q, error %t", got, err, test.want, test.wantErr)
			}
		})
	}
}

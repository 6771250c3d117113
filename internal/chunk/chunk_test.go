package chunk_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/chunk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWaysKeepTheBytes(t *testing.T) {
	for _, input := range []string{"", "a", "ab", "abc", "abcd", "a longer line\r\nand another\n\n"} {
		names := map[string]bool{}
		for name, pieces := range chunk.Ways([]byte(input), 7) {
			names[name] = true
			if got := string(bytes.Join(pieces, nil)); got != input {
				t.Errorf("%q cut %s gives %q", input, name, got)
			}
		}
		if len(names) != 6 {
			t.Errorf("%d ways of cutting %q, want 6", len(names), input)
		}
	}
}

func TestPieces(t *testing.T) {
	b := []byte("abcde")
	for _, tt := range []struct {
		name   string
		pieces [][]byte
		want   []string
	}{
		{"whole", chunk.Whole(b), []string{"abcde"}},
		{"ones", chunk.Every(b, 1), []string{"a", "b", "c", "d", "e"}},
		{"twos", chunk.Every(b, 2), []string{"ab", "cd", "e"}},
		{"fives", chunk.Every(b, 5), []string{"abcde"}},
		{"sixes", chunk.Every(b, 6), []string{"abcde"}},
		{"at 0", chunk.At(b, 0), []string{"", "abcde"}},
		{"at 2", chunk.At(b, 2), []string{"ab", "cde"}},
		{"at 5", chunk.At(b, 5), []string{"abcde", ""}},
	} {
		var got []string
		for _, p := range tt.pieces {
			got = append(got, string(p))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestEveryRefusesPiecesOfNothing(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Every with a size of 0 must panic: it would never end")
		}
	}()
	chunk.Every([]byte("a"), 0)
}

func TestRandomIsRepeatable(t *testing.T) {
	b := bytes.Repeat([]byte("0123456789"), 50)
	first := chunk.Random(b, rand.New(rand.NewPCG(1, 0)))
	again := chunk.Random(b, rand.New(rand.NewPCG(1, 0)))
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same seed cuts otherwise:\n%s", diff)
	}
	other := chunk.Random(b, rand.New(rand.NewPCG(2, 0)))
	if cmp.Equal(first, other) {
		t.Error("two seeds cut alike")
	}
	var empty bool
	for _, p := range first {
		empty = empty || len(p) == 0
	}
	if !empty {
		t.Error("no empty piece among many")
	}
}

func TestReader(t *testing.T) {
	b := []byte("a longer line\r\nand another\n\n")
	for name, pieces := range chunk.Ways(b, 3) {
		if err := iotest.TestReader(chunk.NewReader(pieces), b); err != nil {
			t.Errorf("cut %s: %v", name, err)
		}
	}
}

func TestReaderNeverCrossesAPiece(t *testing.T) {
	r := chunk.NewReader([][]byte{[]byte("abc"), nil, []byte("d")})
	type read struct {
		Bytes  string
		Offset int
		Err    error
	}
	var got []read
	buf := make([]byte, 2)
	for range 5 {
		n, err := r.Read(buf)
		got = append(got, read{string(buf[:n]), r.Offset(), err})
	}
	want := []read{{"ab", 2, nil}, {"c", 3, nil}, {"", 3, nil}, {"d", 4, nil}, {"", 4, io.EOF}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReaderEnds(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name  string
		set   func(*chunk.Reader)
		reads []error
	}{
		{"io.EOF after the last byte", func(*chunk.Reader) {}, []error{nil, io.EOF, io.EOF}},
		{"io.EOF with it", func(r *chunk.Reader) { r.EndWithLast = true }, []error{io.EOF, io.EOF}},
		{"another error", func(r *chunk.Reader) { r.End = broken }, []error{nil, broken, broken}},
		{"another with it", func(r *chunk.Reader) { r.End, r.EndWithLast = broken, true }, []error{broken, broken}},
	} {
		r := chunk.NewReader(chunk.Whole([]byte("x")))
		tt.set(r)
		for i, want := range tt.reads {
			if _, err := r.Read(make([]byte, 9)); err != want {
				t.Errorf("%s: read %d: %v, want %v", tt.name, i, err, want)
			}
		}
	}
}

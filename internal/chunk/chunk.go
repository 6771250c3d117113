// Package chunk cuts byte strings into pieces and reads them piece by piece, to
// show that the way in which bytes arrive changes nothing.
//
// It is for tests. Cutting never copies: the pieces are views of the input.
package chunk

import (
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
)

// Whole returns b as one piece.
func Whole(b []byte) [][]byte { return [][]byte{b} }

// Every cuts b into pieces of n bytes, the last of which may be shorter. It
// panics if n is not positive.
func Every(b []byte, n int) [][]byte {
	if n <= 0 {
		panic("chunk: the size of a piece must be positive")
	}
	pieces := make([][]byte, 0, len(b)/n+1)
	for len(b) > n {
		pieces = append(pieces, b[:n:n])
		b = b[n:]
	}
	return append(pieces, b)
}

// At cuts b in two before the byte at offset, which may be anything from 0 to
// len(b); at either end one of the pieces is empty.
func At(b []byte, offset int) [][]byte {
	return [][]byte{b[:offset:offset], b[offset:]}
}

// Random cuts b at places that rng chooses: mostly into short pieces, some long ones,
// and now and then an empty one, which gives a read of no bytes.
func Random(b []byte, rng *rand.Rand) [][]byte {
	var pieces [][]byte
	for len(b) > 0 {
		var n int
		switch rng.IntN(8) {
		case 0: // n is 0: a read may bring nothing
		case 1:
			n = rng.IntN(len(b)) + 1
		default:
			n = rng.IntN(min(7, len(b))) + 1
		}
		pieces = append(pieces, b[:n:n])
		b = b[n:]
	}
	return pieces
}

// Ways yields the ways of cutting b that every table test tries: whole, byte by byte,
// in threes, and at random places that depend on seed. The name of each includes the
// seed, so that a failure can be repeated.
func Ways(b []byte, seed uint64) iter.Seq2[string, [][]byte] {
	return func(yield func(string, [][]byte) bool) {
		if !yield("whole", Whole(b)) || !yield("byte by byte", Every(b, 1)) || !yield("by threes", Every(b, 3)) {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range 3 {
			if !yield(fmt.Sprintf("at random, seed %d, round %d", seed, i), Random(b, rng)) {
				return
			}
		}
	}
}

// A Reader returns one piece at a time: no Read crosses the end of a piece, and
// an empty piece is a Read of zero bytes without an error. It is not safe for use
// from several goroutines.
type Reader struct {
	// End is the error after the last piece. Nil means io.EOF.
	End error

	// EndWithLast makes the Read that hands out the last byte return the error
	// too, as an io.Reader may.
	EndWithLast bool

	pieces [][]byte
	rest   []byte // of the piece before pieces[0]
	offset int
}

// NewReader returns a Reader of the pieces, which it does not change.
func NewReader(pieces [][]byte) *Reader { return &Reader{pieces: pieces} }

// Offset returns how many bytes have been handed out. The reader cannot know the bytes
// beyond it.
func (r *Reader) Offset() int { return r.offset }

// Read implements io.Reader. A Read into an empty p returns at once and takes no
// bytes.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.rest) == 0 {
		if len(r.pieces) == 0 {
			return 0, r.end()
		}
		r.rest, r.pieces = r.pieces[0], r.pieces[1:]
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	r.offset += n
	if r.EndWithLast && len(r.rest) == 0 && len(r.pieces) == 0 {
		return n, r.end()
	}
	return n, nil
}

func (r *Reader) end() error {
	if r.End != nil {
		return r.End
	}
	return io.EOF
}

var _ io.Reader = (*Reader)(nil)

package eventsource

import (
	"encoding/binary"
	"unicode/utf8"
)

// The standard decodes the whole stream as UTF-8 before it looks for lines. Line ends
// and field names are ASCII, and no byte of a longer sequence, well formed or not, is
// ASCII. So this package looks for them in the bytes, and decodes only the values that
// somebody will see.

// indexNonASCII returns the index of the first byte of b that is not ASCII, or
// len(b).
func indexNonASCII(b []byte) int {
	rest := b
	for len(rest) > 64 { // the form and the comparison that compile best
		w := (*[64]byte)(rest)
		low := (binary.NativeEndian.Uint64(w[0:8]) | binary.NativeEndian.Uint64(w[8:16])) |
			(binary.NativeEndian.Uint64(w[16:24]) | binary.NativeEndian.Uint64(w[24:32]))
		high := (binary.NativeEndian.Uint64(w[32:40]) | binary.NativeEndian.Uint64(w[40:48])) |
			(binary.NativeEndian.Uint64(w[48:56]) | binary.NativeEndian.Uint64(w[56:64]))
		if (low|high)&highBits != 0 {
			break
		}
		rest = rest[64:]
	}
	if n := len(rest); n >= 8 && n <= 16 && (binary.NativeEndian.Uint64(rest)|binary.NativeEndian.Uint64(rest[n-8:]))&highBits == 0 {
		return len(b)
	}
	for len(rest) >= 8 && binary.NativeEndian.Uint64(rest)&highBits == 0 {
		rest = rest[8:]
	}
	for len(rest) > 0 && rest[0] < utf8.RuneSelf {
		rest = rest[1:]
	}
	return len(b) - len(rest)
}

// maximalSubpart returns the length of the ill-formed sequence at the start of b,
// which must not be empty and must not start with a well-formed one. It is what
// the UTF-8 decoder of the Encoding standard replaces with one U+FFFD: the longest
// start of a well-formed sequence, or else one byte.
func maximalSubpart(b []byte) int {
	// Encoding standard, UTF-8 decoder, step 3: what the first byte promises, and
	// the bounds of the second.
	needed, lower, upper := 0, byte(0x80), byte(0xBF)
	switch lead := b[0]; {
	case lead >= 0xC2 && lead <= 0xDF:
		needed = 1
	case lead >= 0xE0 && lead <= 0xEF:
		needed = 2
		switch lead {
		case 0xE0:
			lower = 0xA0
		case 0xED:
			upper = 0x9F
		}
	case lead >= 0xF0 && lead <= 0xF4:
		needed = 3
		switch lead {
		case 0xF0:
			lower = 0x90
		case 0xF4:
			upper = 0x8F
		}
	}
	// Step 4: a byte out of bounds is not part of the sequence.
	n := 1
	for n <= needed && n < len(b) && b[n] >= lower && b[n] <= upper {
		n++
		lower, upper = 0x80, 0xBF
	}
	return n
}

// decodedLen returns how long b is once decoded by [appendDecoded].
func decodedLen(b []byte) int {
	n := 0
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			b = b[maximalSubpart(b):]
			n += len(replacement)
			continue
		}
		b = b[size:]
		n += size
	}
	return n
}

// appendDecoded appends b to dst with U+FFFD for each maximal subpart of an
// ill-formed sequence (Encoding standard, UTF-8 decode).
func appendDecoded(dst, b []byte) []byte {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			b = b[maximalSubpart(b):]
			dst = append(dst, replacement...)
			continue
		}
		dst = append(dst, b[:size]...)
		b = b[size:]
	}
	return dst
}

const replacement = string(utf8.RuneError)

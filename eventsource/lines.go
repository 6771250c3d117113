package eventsource

import (
	"bytes"
	"errors"
	"io"
	"weak"
)

const (
	// smallBuffer is the size of the buffer that waits for a silent server.
	smallBuffer = 512

	// burstBuffer is the size that follows when a read fills the small one: what
	// net/http has at hand at once.
	burstBuffer = 4 << 10

	// busyBuffer is the largest size that full reads alone lead to. Beyond it,
	// only an event that does not fit makes the buffer grow.
	busyBuffer = 32 << 10

	// maxEmptyReads is how many reads in a row may bring nothing.
	maxEmptyReads = 100
)

// A lineReader cuts what it reads into lines, and keeps some bytes of past lines
// for its owner: the data of the block so far.
//
// All of it is in one buffer:
//
//	| free | kept | free | line being read, or the next lines | free |
//	0      keptStart     start                                len    cap
//	              keptEnd
//
// The kept bytes are a view of the line they came in on for as long as one line is
// all there is; those of later lines are moved down to them (keep). So the data of
// an event is never copied out of the buffer, nor is it copied at all if it came on
// one line and in one read.
//
// Invariants:
//   - 0 ≤ keptStart ≤ keptEnd ≤ start ≤ searched ≤ len(buf)
//   - there is no LF in buf[start:searched]
//   - there is no CR in buf[start:cr]; and buf[cr] is a CR or cr is len(buf)
//   - buf[start:nonASCII] is ASCII; and buf[nonASCII] is not or nonASCII is
//     len(buf), provided that nonASCII ≥ start
//   - the buffer at rest (nothing of worth in it, the server silent) is small
//
// Each byte is searched once for each of LF, CR and non-ASCII, and moved a bounded
// number of times on average: see room. The work is linear for that reason.
type lineReader struct {
	source io.Reader
	err    error // from source, due once everything buffered has been used

	buf                []byte
	keptStart, keptEnd int
	start              int
	searched           int
	cr                 int
	nonASCII           int

	small []byte               // the small buffer, while a large one is in use
	large *[]byte              // the large buffer, while it is in use
	spare weak.Pointer[[]byte] // the large buffer, in use or left to the garbage collector

	// most is the limit on what has to be buffered at once, in bytes.
	most int

	begun  bool // the place of the BOM is behind us
	skipLF bool // the last line ended at a CR at the end of buf
	filled bool // the last read left no room

	// work counts the bytes searched in vain and the bytes moved, which tests
	// compare with the bytes read.
	work int
}

// reset starts on a new source with the memory at hand.
func (l *lineReader) reset(source io.Reader, most int) {
	buf, small, spare := l.buf, l.small, l.spare
	if small != nil {
		buf = small
	}
	*l = lineReader{source: source, buf: buf[:0], spare: spare, most: most}
}

// next returns the bounds of the next line in buf, without its end, and steps over
// it. It reports false if the rest of the line has yet to be read.
func (l *lineReader) next() (start, end int, ok bool) {
	start = l.start
	lf := bytes.IndexByte(l.buf[l.searched:], '\n')
	if lf >= 0 {
		end = l.searched + lf
		if l.cr >= end {
			l.start, l.searched = end+1, end+1
			return start, end, true
		}
	} else if l.cr == len(l.buf) {
		l.work += len(l.buf) - l.searched
		l.searched = len(l.buf)
		return start, start, false
	}
	// HTML §9.2.6: a CR ends a line, and an LF that follows belongs to it. Whether
	// one follows must not be waited for.
	end = l.cr
	after := end + 1
	if after == len(l.buf) {
		l.skipLF = true
	} else if l.buf[after] == '\n' {
		after++
	}
	l.start, l.searched = after, after
	l.cr = after + index(l.buf[after:], '\r')
	return start, end, true
}

// pending returns the size of the line being read.
func (l *lineReader) pending() int { return len(l.buf) - l.start }

// read reads once, behind what is buffered. It returns the error of the source if
// there is nothing more. There must be room.
func (l *lineReader) read() error {
	if l.err != nil {
		return l.err
	}
	for range maxEmptyReads {
		free := l.buf[len(l.buf):cap(l.buf)]
		n, err := l.source.Read(free)
		if n < 0 || n > len(free) {
			l.err = errBadRead
			return l.err
		}
		if n > 0 {
			l.err = err
			l.filled = n == len(free)
			l.add(n)
			return nil
		}
		if err != nil {
			l.err = err
			return err
		}
	}
	l.err = io.ErrNoProgress
	return l.err
}

var errBadRead = errors.New(errorPrefix + "the reader returned an impossible count")

// add takes n more bytes into the buffer.
func (l *lineReader) add(n int) {
	old := len(l.buf)
	l.buf = l.buf[:old+n]
	if l.skipLF {
		l.skipLF = false
		if l.buf[l.start] == '\n' {
			// Nothing is buffered before it: the line before ended at the last byte.
			l.start++
			old++
			l.searched = old
			l.cr, l.nonASCII = old, old
		}
	}
	if !l.begun {
		// Encoding standard, UTF-8 decode: one BOM is dropped.
		if len(l.buf) < len(byteOrderMark) && bytes.HasPrefix([]byte(byteOrderMark), l.buf) {
			l.cr = len(l.buf)
			return
		}
		l.begun = true
		old = 0
		if bytes.HasPrefix(l.buf, []byte(byteOrderMark)) {
			old = len(byteOrderMark)
		}
		l.start, l.searched, l.cr, l.nonASCII = old, old, old, old
	}
	if l.cr == old {
		l.cr = old + index(l.buf[old:], '\r')
	}
	if l.nonASCII == old {
		l.nonASCII = old + indexNonASCII(l.buf[old:])
	}
}

const byteOrderMark = "\uFEFF"

// isASCII reports whether buf[start:end], which must be in the line last returned,
// is ASCII.
func (l *lineReader) isASCII(start, end int) bool {
	if l.nonASCII < start {
		l.nonASCII = start + indexNonASCII(l.buf[start:])
	}
	return end <= l.nonASCII
}

// keep adds buf[start:end], which must be in the line last returned, to the kept
// bytes, behind a separator if it is not the first addition.
func (l *lineReader) keep(start, end int, first bool) {
	if first {
		l.keptStart, l.keptEnd = start, end
		return
	}
	l.buf[l.keptEnd] = '\n'
	l.keptEnd += 1 + copy(l.buf[l.keptEnd+1:], l.buf[start:end])
}

// forget lets go of the kept bytes. They stay where they are until room is made.
func (l *lineReader) forget() { l.keptStart, l.keptEnd = l.start, l.start }

// room makes room to read into, and reports whether the buffer is at rest. It may be
// called only when all whole lines have been used.
//
// The cost is linear because bytes are moved only within bounds: into a small
// buffer not more than half of that, once after each switch to a large one; down
// in the same buffer when that wins as much room as it moves bytes, or wins
// busyBuffer bytes of the largest buffer there may be, where one line is moved
// only once; and up into a buffer that is twice as large, or the largest.
func (l *lineReader) room() (rest bool) {
	kept, line := l.keptEnd-l.keptStart, len(l.buf)-l.start
	live := kept + line
	size := cap(l.buf)
	free := size - len(l.buf)
	switch {
	case size == 0:
		l.buf = make([]byte, 0, smallBuffer)
	case !l.filled && size > smallBuffer && live <= smallBuffer/2:
		// The server seems to have said all that it has to say for now. Wait in the
		// small buffer.
		small := l.small
		if small == nil {
			small = make([]byte, 0, smallBuffer)
		}
		l.small, l.large = nil, nil
		l.move(small)
	case l.filled && size < busyBuffer:
		l.grow(max(burstBuffer, 2*size))
	case live == 0, free < size/2 && live <= size/4, free == 0 && live <= size/2:
		l.move(l.buf)
	case free > 0:
	case size < l.largest():
		l.grow(min(2*size, l.largest()))
	default:
		l.move(l.buf)
	}
	return cap(l.buf) == smallBuffer && live <= smallBuffer/2
}

// largest returns the size beyond which the buffer does not grow. It leaves room
// to read into when the limit is exhausted, and does not overflow.
func (l *lineReader) largest() int {
	return max(l.most, l.most+busyBuffer)
}

// grow moves everything into a buffer of at least the given size.
func (l *lineReader) grow(size int) {
	if cap(l.buf) == smallBuffer {
		l.small = l.buf[:0]
	}
	l.large = l.spare.Value()
	if l.large == nil || cap(*l.large) < size {
		b := make([]byte, 0, size)
		l.large = &b
		l.spare = weak.Make(l.large)
	}
	l.move(*l.large)
}

// move moves the kept bytes and the line being read to the start of dst, which may
// be the same buffer.
func (l *lineReader) move(dst []byte) {
	dst = dst[:cap(dst)]
	kept := copy(dst, l.buf[l.keptStart:l.keptEnd])
	line := copy(dst[kept:], l.buf[l.start:])
	l.work += kept + line
	shift := l.start - kept
	l.keptStart, l.keptEnd = 0, kept
	l.start = kept
	l.searched -= shift
	l.cr -= shift
	l.nonASCII -= shift
	l.buf = dst[:kept+line]
}

// index returns the index of the first c in b, or len(b).
func index(b []byte, c byte) int {
	if i := bytes.IndexByte(b, c); i >= 0 {
		return i
	}
	return len(b)
}

package eventsource

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"unicode/utf8"
	"weak"
)

const (
	// smallBuffer is the size of the buffer that waits for a silent server. An event
	// that comes alone and does not fit costs little more than one that does, and an
	// idle stream costs little more than it must.
	smallBuffer = 320

	// burstBuffer is the next size, after a read has filled the small buffer: as much
	// as net/http has ready at once.
	burstBuffer = 4 << 10

	// busyBuffer is the largest size that full reads alone lead to, and the most that
	// is read at once, so that the bytes are searched while they are still in the
	// fastest cache. Only an event that does not fit makes the buffer grow further.
	busyBuffer = 16 << 10

	// fewBytes is the size up to which a read is looked at as a whole first.
	fewBytes = 64

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
// The kept bytes stay where they were read as long as they belong to one line (keep);
// those of later lines are moved down to them (keepToo). So the data of an event is
// never copied out of the buffer, and is not moved at all if it came on one line and
// in one read.
//
// Invariants:
//   - 0 ≤ keptStart ≤ keptEnd ≤ start ≤ searched ≤ len(buf)
//   - there is no LF in buf[start:searched]
//   - there is no CR in buf[start:cr]; and cr is len(buf) or buf[cr] is a CR (but
//     between room and add)
//   - there is nothing but ASCII in buf[start:nonASCII]; and nonASCII is len(buf)
//     or buf[nonASCII] is not ASCII, unless it is less than start
//   - while nothing is buffered and the server is silent, buf is small
//
// Each byte is searched once for each of LF, CR and non-ASCII, and is moved a
// bounded number of times on average (room), so the work is linear in the input.
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

	begun    bool // the BOM, if there was one, has been skipped
	skipping bool // the start of the line being read has been let go of
	skipLF   bool // the last line ended at a CR at the end of buf
	filled   bool // the last read left no room

	// work counts the bytes that were searched in vain or moved. Tests compare it
	// with the size of the input.
	work int
}

// reset starts reading a new source with the memory at hand. The limit must be set
// again.
func (l *lineReader) reset(source io.Reader) {
	buf := l.buf
	if l.small != nil {
		buf = l.small
	}
	*l = lineReader{source: source, buf: buf[:0], spare: l.spare, work: l.work}
}

// endAtCR looks for the end of a line that no LF ends before cr. It returns the index
// of the CR that ends it and steps over that CR, or returns -1 if the rest of the line
// has yet to be read.
func (l *lineReader) endAtCR() int {
	if l.cr == len(l.buf) {
		l.work += l.cr - l.searched
		l.searched = l.cr
		return -1
	}
	// HTML §9.2.6: a CR ends a line, and an LF that follows belongs to it. The line
	// must not wait until it is known whether an LF follows.
	end := l.cr
	after := end + 1
	if after == len(l.buf) {
		l.skipLF = true
	} else if l.buf[after] == '\n' {
		after++
	}
	l.skipTo(after)
	l.cr = after + indexCR(l.buf[after:])
	l.work += l.cr - after
	return end
}

// skipTo makes i the start of the line being read.
func (l *lineReader) skipTo(i int) { l.start, l.searched = i, i }

// skip lets go of the line being read: of what there is of it, and of what is to come.
func (l *lineReader) skip() {
	l.buf = l.buf[:l.start]
	l.searched, l.cr, l.nonASCII = l.start, l.start, l.start
	l.skipping = true
}

// skipped looks for the end of the line that is being skipped in what has just been
// read. It steps over it, or reports false.
func (l *lineReader) skipped() bool {
	if end := l.start + indexLF(l.buf[l.start:]); end < l.cr {
		l.skipTo(end + 1)
	} else if l.endAtCR() < 0 {
		l.skip()
		return false
	}
	l.skipping = false
	return true
}

// isASCII reports whether buf[start:end] is ASCII. It must be in the line last
// stepped over.
func (l *lineReader) isASCII(start, end int) bool {
	if l.nonASCII < start {
		l.nonASCII = start + indexNonASCII(l.buf[start:])
		l.work += l.nonASCII - start
	}
	return end <= l.nonASCII
}

// keep keeps buf[start:end], which must be in the line last stepped over, and forgets
// what was kept before.
func (l *lineReader) keep(start, end int) { l.keptStart, l.keptEnd = start, end }

// keepToo adds an LF and buf[start:end] to the kept bytes. At least two bytes of the
// line last stepped over must precede it, for an LF to fit in whatever was kept.
func (l *lineReader) keepToo(start, end int) {
	l.buf[l.keptEnd] = '\n'
	l.keptEnd += 1 + copy(l.buf[l.keptEnd+1:], l.buf[start:end])
	l.work += end - start
}

// forget forgets the kept bytes. They stay where they are until room is made.
func (l *lineReader) forget() { l.keptStart, l.keptEnd = 0, 0 }

// kept returns the kept bytes.
func (l *lineReader) kept() []byte { return l.buf[l.keptStart:l.keptEnd:l.keptEnd] }

// room makes room to read into, and reports whether the buffer is now the small one
// with little in it. It may be called only when all complete lines have been used.
//
// The work is linear because the bytes that are moved are bounded. A move into the
// small buffer fills at most half of it, and happens once after each switch to a large
// one. A move down in the same buffer gains at least as much room as it moves bytes;
// or the buffer is as large as it may be, and then the kept bytes and any line are
// moved once and gain at least busyBuffer. A move up is into a buffer that is twice as
// large, or the largest.
func (l *lineReader) room() (rest bool) {
	live := l.keptEnd - l.keptStart + len(l.buf) - l.start
	size := cap(l.buf)
	free := size - len(l.buf)
	switch {
	case size == 0:
		l.buf = make([]byte, 0, smallBuffer)
	case size > smallBuffer && live <= smallBuffer/2 && (!l.filled || size > busyBuffer):
		// The server seems to have nothing more to send for now, or at least a large
		// event is over: wait in the small buffer.
		small := l.small
		l.small, l.large = nil, nil
		l.move(small)
	case l.filled && size < busyBuffer:
		l.grow(max(burstBuffer, 2*size))
	case live == 0:
		// This is cheaper than slide, and is what happens to every event that comes in
		// a read of its own.
		l.buf = l.buf[:0]
		l.keptStart, l.keptEnd, l.start, l.searched, l.nonASCII = 0, 0, 0, 0, 0
	case free >= size/2:
	case live <= size/4, free == 0 && live <= size/2:
		l.slide()
	case free > 0:
	case size < l.largest():
		l.grow(min(2*size, l.largest()))
	default:
		l.slide()
	}
	return cap(l.buf) == smallBuffer && live <= smallBuffer/2
}

// largest returns the size beyond which the buffer does not grow. Even when it holds as
// much as the limit allows, there is room for a read. The sum does not overflow.
func (l *lineReader) largest() int { return max(l.most, l.most+busyBuffer) }

// grow moves everything into a large buffer of at least the given size.
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

// move moves the kept bytes and the line being read to the start of another buffer.
func (l *lineReader) move(dst []byte) {
	kept := append(dst[:0], l.kept()...)
	all := append(kept, l.buf[l.start:]...)
	l.work += len(all)
	l.moved(len(kept))
	l.buf = all
}

// slide moves the kept bytes and the line being read to the start of the buffer.
func (l *lineReader) slide() {
	kept := l.keptEnd - l.keptStart
	if l.keptStart > 0 { // otherwise they are there already, and may be many
		copy(l.buf, l.kept())
		l.work += kept
	}
	line := copy(l.buf[kept:], l.buf[l.start:])
	l.work += line
	l.moved(kept)
	l.buf = l.buf[:kept+line]
}

// moved notes that the buffer now starts with so many kept bytes, with the line being
// read behind them. It leaves cr alone: there is no CR in that line, so the next read
// sets it.
func (l *lineReader) moved(kept int) {
	by := l.start - kept
	l.keptStart, l.keptEnd = 0, kept
	l.start -= by
	l.searched -= by
	l.nonASCII -= by
}

// read reads once into the free room behind what is buffered, and returns how many
// bytes it has read; add or addPlain takes them in. There must be room. When there is
// nothing more it returns the error of the source.
func (l *lineReader) read() (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	for range maxEmptyReads {
		free := l.buf[len(l.buf):min(len(l.buf)+busyBuffer, cap(l.buf))]
		n, err := l.source.Read(free)
		if n < 0 || n > len(free) {
			n, err = 0, errBadRead
		}
		if n > 0 {
			l.filled = n == len(free)
			l.err = err
			return n, nil
		}
		if err != nil {
			return 0, err // the decoder keeps it
		}
	}
	l.err = io.ErrNoProgress
	return 0, l.err
}

var errBadRead = errors.New(errorPrefix + "the reader returned an impossible count")

// addPlain takes in n bytes that have been read if they are few and only continue the
// line being read: all ASCII and without a line end. Otherwise it reports false. It
// saves time when a line comes in many small reads.
func (l *lineReader) addPlain(n int) bool {
	old := len(l.buf)
	if n > fewBytes || !l.begun || l.skipLF || !isPlain(l.buf[old:old+n]) {
		return false
	}
	l.work += n
	l.buf = l.buf[:old+n]
	l.searched, l.cr = old+n, old+n
	if l.nonASCII == old {
		l.nonASCII = old + n
	}
	return true
}

// add takes in n bytes that have been read.
func (l *lineReader) add(n int) {
	old := len(l.buf)
	l.buf = l.buf[:old+n]
	if l.skipLF {
		l.skipLF = false
		if l.buf[old] == '\n' {
			// The previous line ended at old, so nothing is buffered before the LF.
			old++
			l.skipTo(old)
			l.cr, l.nonASCII = old, old
		}
	}
	if !l.begun {
		old = l.skipBOM()
	}
	l.cr = old + indexCR(l.buf[old:])
	l.work += l.cr - old
	if l.nonASCII == old {
		l.nonASCII = old + indexNonASCII(l.buf[old:])
		l.work += l.nonASCII - old
	}
}

// skipBOM drops the BOM that the input may start with (Encoding standard, UTF-8
// decode), once there is enough to tell. It returns the index behind it.
func (l *lineReader) skipBOM() int {
	const bom = "\uFEFF"
	start := 0
	switch {
	case len(l.buf) < len(bom) && string(l.buf) == bom[:len(l.buf)]:
		// This may be part of a BOM. It holds no line end.
	case bytes.HasPrefix(l.buf, []byte(bom)):
		start = len(bom)
		fallthrough
	default:
		l.begun = true
	}
	l.skipTo(start)
	l.cr, l.nonASCII = start, start
	return start
}

// indexLF returns the index of the first LF in b, or len(b).
func indexLF(b []byte) int {
	// Calling bytes.IndexByte costs more than searching a short line, so the first
	// bytes are searched here, eight at a time.
	const lf = '\n' * ones
	if len(b) >= 16 {
		if found := zeros(binary.LittleEndian.Uint64(b) ^ lf); found != 0 {
			return bits.TrailingZeros64(found) / 8
		}
		if found := zeros(binary.LittleEndian.Uint64(b[8:]) ^ lf); found != 0 {
			return 8 + bits.TrailingZeros64(found)/8
		}
	}
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i
	}
	return len(b)
}

// indexCR returns the index of the first CR in b, or len(b).
func indexCR(b []byte) int {
	if i := bytes.IndexByte(b, '\r'); i >= 0 {
		return i
	}
	return len(b)
}

// isPlain reports whether b is ASCII without LF and CR. It is quick for short b.
func isPlain(b []byte) bool {
	const lf, cr = '\n' * ones, '\r' * ones
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		if zeros(x^lf)|zeros(x^cr)|x&highBits != 0 {
			return false
		}
	}
	for _, c := range b {
		if c == '\n' || c == '\r' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// hasNUL reports whether b holds a NUL. It is quick for short b.
func hasNUL(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if zeros(binary.LittleEndian.Uint64(b)) != 0 {
			return true
		}
	}
	for _, c := range b {
		if c == 0 {
			return true
		}
	}
	return false
}

// Each of eight bytes: ones is 1, highBits is 0x80.
const (
	ones     = 0x0101010101010101
	highBits = 0x80 * ones
)

// zeros returns a number that is not zero if any of the eight bytes of x is zero.
// The lowest bit set in it is the high bit of the lowest such byte; above that, a
// borrow may have set others.
func zeros(x uint64) uint64 { return (x - ones) &^ x & highBits }

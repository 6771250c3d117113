package eventsource

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// This file holds the limit on the size of an event: what counts, and which lines do
// not. At every moment this must be within the limit:
//
//   - the line being read, as sent
//   - and the data of its block so far, as sent; at the end of the block, as decoded
//   - and what the type and the ID of the block have beyond freeNames together
//   - and what the last event ID has beyond freeLastID
//
// So whether an event is too large depends on its own block, whatever came before it,
// unless the server uses IDs that hardly any server would accept in a request.
//
// Lines that are neither data nor event, id or retry do not count. They are not kept,
// so they may be of any length.

const (
	// defaultMaxEventSize is the limit of a decoder that was given none.
	defaultMaxEventSize = 64 << 20

	// freeNames is how many bytes of the type and the ID of a block are not counted.
	// What they have beyond that counts, so that a server cannot use them to have more
	// memory than the limit.
	freeNames = 4 << 10

	// freeLastID is how many bytes of the last event ID are not counted. It is twice
	// what the most generous of the usual servers accepts as the header of a request.
	freeLastID = 32 << 10

	// bigName is the size up to which a type or an ID is not worth counting while the
	// two are not close to freeNames.
	bigName = 512
)

// SetMaxEventSize sets the limit on the size of an event to n bytes; 0 means 64 MiB,
// and a negative n means no limit. At an event that is larger the error is an
// [ErrEventTooLarge], and the ID of that event does not take effect.
//
// The limit holds for the line being read and the data lines before it in its block,
// together, and for the data of the block with U+FFFD in place of what is not UTF-8.
// The type and the ID of the block count for what they have beyond 4 KiB together,
// and the last event ID in force for what it has beyond 32 KiB. Nothing else that came
// before counts. A retry field is a line like those of an event.
//
// Comments and unknown fields do not count, however long they are, and nothing of
// them is kept.
//
// The decoder holds no more than the limit and a constant, unless data is ill-formed
// or a type or an ID is about as large as the limit: then it holds a second copy.
//
// SetMaxEventSize panics if reading has begun.
func (d *Decoder) SetMaxEventSize(n int) {
	d.mustNotHaveBegun("SetMaxEventSize")
	d.limit = n
	d.account()
}

func (d *Decoder) maxEventSize() int {
	switch {
	case d.limit == 0:
		return defaultMaxEventSize
	case d.limit < 0:
		return math.MaxInt
	}
	return d.limit
}

// account takes off the limit what the type and the IDs have beyond what is free.
func (d *Decoder) account() {
	names := d.typ.len() + d.id.len()
	d.bigNames = names > freeNames-bigName || d.lastID.len() > freeLastID
	d.lines.most = d.most(names)
}

// most returns what the limit leaves for lines if the type and the ID of the block
// have so many bytes.
func (d *Decoder) most(names int) int {
	return d.maxEventSize() - max(0, names-freeNames) - max(0, d.lastID.len()-freeLastID)
}

// left returns what the limit leaves for a line.
func (d *Decoder) left() int {
	l := &d.lines
	return l.most - (l.keptEnd - l.keptStart)
}

// tooLarge returns the error for what is beyond the limit.
func (d *Decoder) tooLarge() error {
	return fmt.Errorf("%w: the limit is %d bytes", ErrEventTooLarge, d.maxEventSize())
}

// longLine processes a line that is longer than what is left, and reports whether
// that is within the limit because the line does not count.
func (d *Decoder) longLine(line []byte) bool {
	if name := fieldName(line); name != "" && valueIndex(line, name) >= 0 {
		return false
	}
	d.cutComment(line)
	return true
}

// partOfLine looks at the start of a line whose end has not been read, which is worth
// it if there is more of it than is left, or than the small buffer holds. It reports
// whether that is within the limit, and has the line skipped if it does not count. It
// does not wait for more bytes than it takes to tell.
func (d *Decoder) partOfLine() bool {
	l := &d.lines
	line := l.buf[l.start:]
	if len(line) == 0 {
		return true
	}
	isLong := len(line) > d.left()
	name := fieldName(line)
	switch {
	case name != "" && len(line) > len(name) && valueIndex(line, name) >= 0:
		return !isLong
	case len(line) <= len(name) && string(line) == name[:len(line)]:
		return true
	case line[0] == ':' && d.comments && !isLong:
		return true
	}
	d.cutComment(line)
	l.skip()
	return true
}

// fieldName returns the only name of a field that matters which the line, which must
// not be empty, may start with; empty if there is none.
func fieldName(line []byte) string {
	switch line[0] {
	case 'd':
		return "data"
	case 'e':
		return "event"
	case 'i':
		return "id"
	case 'r':
		return "retry"
	}
	return ""
}

// cutComment tells the listener, if it wants to know, of a line that is longer than what is
// left, if the line is a comment: as much of it as is left, but no part of a character.
func (d *Decoder) cutComment(line []byte) {
	if line[0] != ':' || !d.comments {
		return
	}
	line = line[:max(0, d.left())]
	for i := len(line) - 1; i >= 0 && i > len(line)-utf8.UTFMax; i-- {
		if utf8.RuneStart(line[i]) {
			if !utf8.FullRune(line[i:]) {
				line = line[:i]
			}
			break
		}
	}
	d.comment(line)
}

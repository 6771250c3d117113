package eventsource

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"math"
	"time"
	"unicode/utf8"
)

// This file turns lines into events: the fields, and what a blank line does
// (HTML §9.2.6). lines.go finds the lines in what is read, and holds the memory;
// utf8.go replaces what is not UTF-8.

// defaultMaxEventSize is the limit of a decoder that was given none.
const defaultMaxEventSize = 64 << 20

// freeNames is how many bytes of event types and IDs are held beside the limit.
// What they have beyond it counts, so that a server cannot use them to have more
// memory than the limit.
const freeNames = 4 << 10

// A Decoder reads the events of one event stream, as the HTML standard reads them
// (§9.2.5 and §9.2.6). It neither connects nor reconnects: use a [Client] for a
// stream that is to go on after its connection has ended, and a Decoder for an
// input of any other kind: a response already in hand, a file, a pipe.
//
// It returns an event as soon as the line end that completes it has been read; it
// does not wait for the LF of a CRLF, nor for a buffer to fill. It reads ahead: when
// it is done with, the position of the underlying reader is unspecified.
//
// A Decoder is not safe for use from several goroutines. Make one with
// [NewDecoder].
type Decoder struct {
	lines lineReader
	hooks hooks
	err   error // the first error, returned for ever

	// limit is as set: 0 for the default, negative for none.
	limit   int
	started bool // the first read has been tried

	// The block: what the lines since the last blank one add up to. Its data is
	// kept in lines.
	hasData  bool   // there was a data line, perhaps an empty one
	dataHigh bool   // the data may hold ill-formed sequences
	typ      []byte // the event type buffer
	id       []byte // the last event ID buffer, if hasID
	hasID    bool   // there was an id line that counts

	// The last event ID string, in two forms. The string is made on demand.
	lastID      []byte
	lastString  string
	stringStale bool // lastString is not yet what lastID is

	typeString string // the last event type that was made a string
	scratch    []byte // data that had to be repaired

	retry    time.Duration
	hasRetry bool
}

// hooks are what a Stream wants to know besides events. Any may be nil.
type hooks struct {
	// comment is called with each comment line, after the colon and one space.
	comment func(string)

	// retry is called with the new reconnection time at each valid retry line.
	retry func(time.Duration)

	// commit is called when the last event ID has changed: at the blank line,
	// before the event is returned, also if there is none because the block has no
	// data. The event has the same string.
	commit func(id string)
}

// NewDecoder returns a Decoder that reads from r. It does not close r.
func NewDecoder(r io.Reader) *Decoder {
	d := new(Decoder)
	d.reset(r, "", nil)
	return d
}

// reset starts a new connection: same limit and memory, everything else anew. The
// last event ID is carried over: HTML §9.2.6 would have the buffer of a new stream
// empty, but every browser lets it start from the ID in force.
func (d *Decoder) reset(r io.Reader, lastEventID string, h *hooks) {
	*d = Decoder{
		lines:      d.lines,
		limit:      d.limit,
		typ:        d.typ[:0],
		id:         d.id[:0],
		lastID:     append(d.lastID[:0], lastEventID...),
		lastString: lastEventID,
		typeString: d.typeString,
		scratch:    d.scratch[:0],
	}
	if h != nil {
		d.hooks = *h
	}
	d.lines.reset(r, 0)
	d.account()
}

// SetMaxEventSize sets the limit on the size of an event to n bytes; 0 means
// 64 MiB, negative means none. A line and the data that its event has so far
// together may not be larger; nor may the data once decoded. An event type and IDs
// count for what they have beyond 4 KiB. An event beyond the limit ends the stream
// with an error that is an [ErrEventTooLarge].
//
// The decoder holds about as much memory as the event at hand needs, at most the
// limit and a constant. It panics if reading has begun.
func (d *Decoder) SetMaxEventSize(n int) {
	if d.started {
		panic(errorPrefix + "SetMaxEventSize after the first read")
	}
	d.limit = n
	d.account()
}

// LastEventID returns the last event ID in force: that of the newest block that
// was complete, whether or not it was an event. It is empty if there is none.
func (d *Decoder) LastEventID() string {
	if d.stringStale {
		d.lastString, d.stringStale = string(d.lastID), false
	}
	return d.lastString
}

// Retry returns the reconnection time that the stream has set, and whether it has
// set one. It takes effect at its own line, be the block complete or not. A time too
// long for a Duration is the longest Duration.
func (d *Decoder) Retry() (time.Duration, bool) { return d.retry, d.hasRetry }

// Events returns an iterator over the events. It ends silently at the end of the
// input; any other error of [Decoder.Next] is yielded once, last, with the zero
// Event. It continues where the last call of a method has stopped, so leaving the
// loop loses nothing.
func (d *Decoder) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			event, err := d.Next()
			if err == io.EOF {
				return
			}
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Next returns the next event. It allocates once for each event, as a rule: the
// type and the ID share their memory with the event before while they are the same.
//
// At the end of the input the error is io.EOF, or [ErrTruncated] if the input ended
// inside an event; for an event beyond the limit it is an [ErrEventTooLarge]; if
// the reader failed it is the reader's error, as it is. A reader that returns
// neither bytes nor an error, 100 times in a row, has failed with
// io.ErrNoProgress. Events that were complete before the error are returned before
// it. The error is the same from then on.
func (d *Decoder) Next() (Event, error) {
	data, typ, err := d.dispatch()
	if err != nil {
		return Event{}, err
	}
	return d.event(data, typ), nil
}

// NextRaw is [Decoder.Next] without any allocation: the event's parts are views of
// the decoder's memory, valid until the next call of a method. The two may be mixed.
func (d *Decoder) NextRaw() (RawEvent, error) {
	data, typ, err := d.dispatch()
	if err != nil {
		return RawEvent{}, err
	}
	if d.stringStale && d.hooks.commit != nil {
		d.hooks.commit(d.LastEventID())
	}
	return RawEvent{Type: typ, Data: data, LastEventID: d.lastID[:len(d.lastID):len(d.lastID)]}, nil
}

// dispatch reads up to the next event and returns its data and type, which are
// valid until the next call. The ID is d.lastID, and is yet to be reported if
// d.stringStale.
func (d *Decoder) dispatch() (data, typ []byte, err error) {
	if d.err == nil {
		data, typ, d.err = d.advance()
	}
	return data, typ, d.err
}

func (d *Decoder) advance() (data, typ []byte, err error) {
	l := &d.lines
	for {
		start, end, ok := l.next()
		if !ok {
			if err := d.fill(); err != nil {
				return nil, nil, err
			}
			continue
		}
		if end-start > l.most-d.collected() {
			return nil, nil, d.tooLarge()
		}
		if start < end {
			if !d.field(start, end) {
				return nil, nil, d.tooLarge()
			}
			continue
		}

		// HTML §9.2.6, dispatch, step 1.
		if d.hasID {
			d.commit()
		}
		if !d.hasData {
			// Step 2. The ID has taken effect nevertheless.
			d.typ = d.typ[:0]
			d.account()
			if d.stringStale && d.hooks.commit != nil {
				d.hooks.commit(d.LastEventID())
			}
			continue
		}
		data, ok = d.takeData()
		if !ok {
			return nil, nil, d.tooLarge()
		}
		// Steps 4 to 7: the type is "message" unless the block has named one.
		if len(d.typ) == 0 {
			d.typ = append(d.typ, defaultType...)
		}
		typ = d.typ[:len(d.typ):len(d.typ)]
		d.typ = d.typ[:0]
		d.account()
		return data, typ, nil
	}
}

const defaultType = "message"

// tooLarge returns the error for an event beyond the limit.
func (d *Decoder) tooLarge() error {
	return fmt.Errorf("%w: the limit is %d bytes", ErrEventTooLarge, d.maxEventSize())
}

// fill reads more, or tells why there is no more.
func (d *Decoder) fill() error {
	d.started = true
	l := &d.lines
	if l.begun && l.pending() > l.most-d.collected() {
		return d.tooLarge()
	}
	if l.room() {
		d.release()
	}
	err := l.read()
	if err == io.EOF && d.inEvent() {
		return ErrTruncated
	}
	return err
}

// release lets go of memory that an unusual event has left behind.
func (d *Decoder) release() {
	d.scratch = nil
	if cap(d.typ) > smallBuffer && len(d.typ) == 0 {
		d.typ = nil
	}
	if cap(d.id) > smallBuffer && !d.hasID {
		d.id = nil
	}
	if cap(d.lastID) > smallBuffer && len(d.lastID) <= smallBuffer {
		d.lastID = bytes.Clone(d.lastID)
	}
}

// inEvent reports whether the block has a data line, the line being read included.
func (d *Decoder) inEvent() bool {
	if d.hasData {
		return true
	}
	l := &d.lines
	_, ok := cutField(l.buf[l.start:], "data")
	return ok
}

// collected returns the size of the data so far, each line with its line feed, as
// the standard's data buffer has it.
func (d *Decoder) collected() int {
	if !d.hasData {
		return 0
	}
	return d.lines.keptEnd - d.lines.keptStart + 1
}

// maxEventSize returns the limit in force.
func (d *Decoder) maxEventSize() int {
	switch {
	case d.limit == 0:
		return defaultMaxEventSize
	case d.limit < 0:
		return math.MaxInt
	}
	return d.limit
}

// account takes what the type and the IDs have beyond freeNames off the limit.
// The last event ID counts twice, for its two forms.
func (d *Decoder) account() {
	names := len(d.typ) + len(d.id) + 2*len(d.lastID)
	d.lines.most = d.maxEventSize() - max(0, names-freeNames)
}

// field processes a line that is not blank. It reports whether what it adds is
// within the limit.
func (d *Decoder) field(start, end int) bool {
	l := &d.lines
	line := l.buf[start:end]
	switch line[0] {
	case ':':
		if d.hooks.comment != nil {
			d.hooks.comment(string(appendDecoded(nil, trimSpace(line[1:]))))
		}
	case 'd':
		if value, ok := cutField(line, "data"); ok {
			start = end - len(value)
			if !l.isASCII(start, end) {
				d.dataHigh = true
			}
			l.keep(start, end, !d.hasData)
			d.hasData = true
		}
	case 'e':
		if value, ok := cutField(line, "event"); ok {
			return d.setName(&d.typ, value, end)
		}
	case 'i':
		// An ID with a NUL is ignored.
		if value, ok := cutField(line, "id"); ok && bytes.IndexByte(value, 0) < 0 {
			d.hasID = true
			return d.setName(&d.id, value, end)
		}
	case 'r':
		if value, ok := cutField(line, "retry"); ok {
			if retry, ok := parseRetry(value); ok {
				d.retry, d.hasRetry = retry, true
				if d.hooks.retry != nil {
					d.hooks.retry(retry)
				}
			}
		}
	}
	return true
}

// setName makes value, which ends at end, the type or the ID of the block.
func (d *Decoder) setName(name *[]byte, value []byte, end int) bool {
	if d.lines.isASCII(end-len(value), end) {
		*name = append((*name)[:0], value...)
	} else {
		if decodedLen(value) > d.lines.most {
			return false
		}
		*name = appendDecoded((*name)[:0], value)
	}
	if len(value) > smallBuffer {
		d.account()
	}
	return true
}

// commit makes the block's ID the last event ID.
func (d *Decoder) commit() {
	d.hasID = false
	if bytes.Equal(d.id, d.lastID) {
		return
	}
	d.id, d.lastID = d.lastID[:0], d.id
	d.stringStale = true
}

// takeData returns the data of the block and starts the next one. It reports false
// if the data is too large once decoded.
func (d *Decoder) takeData() ([]byte, bool) {
	l := &d.lines
	data := l.buf[l.keptStart:l.keptEnd:l.keptEnd]
	if d.dataHigh {
		d.dataHigh = false
		if !utf8.Valid(data) {
			if decodedLen(data) > l.most {
				return nil, false
			}
			d.scratch = appendDecoded(d.scratch[:0], data)
			data = d.scratch[:len(d.scratch):len(d.scratch)]
		}
	}
	l.forget()
	d.hasData = false
	return data, true
}

// event makes strings of an event's parts.
func (d *Decoder) event(data, typ []byte) Event {
	text := string(data)
	if string(typ) != d.typeString {
		d.typeString = string(typ)
	}
	if d.stringStale {
		id := d.LastEventID()
		if d.hooks.commit != nil {
			d.hooks.commit(id)
		}
	}
	return Event{Type: d.typeString, Data: text, LastEventID: d.lastString}
}

// cutField returns the value of the line if its field has the given name
// (HTML §9.2.6: up to the first colon; one space after it is not part of the
// value; without a colon the line is all name).
func cutField(line []byte, name string) (value []byte, ok bool) {
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return nil, false
	}
	rest := line[len(name):]
	if len(rest) == 0 {
		return rest, true
	}
	if rest[0] != ':' {
		return nil, false
	}
	return trimSpace(rest[1:]), true
}

// trimSpace returns b without one leading space.
func trimSpace(b []byte) []byte {
	if len(b) > 0 && b[0] == ' ' {
		return b[1:]
	}
	return b
}

// parseRetry returns the reconnection time that value stands for, in milliseconds:
// one or more ASCII digits and nothing else.
func parseRetry(value []byte) (time.Duration, bool) {
	if len(value) == 0 {
		return 0, false
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	var n int64
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n <= most {
			n = 10*n + int64(c-'0')
		}
	}
	if n > most {
		return math.MaxInt64, true
	}
	return time.Duration(n) * time.Millisecond, true
}

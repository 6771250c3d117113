package eventsource

import (
	"bytes"
	"io"
	"iter"
	"slices"
	"time"
	"unicode/utf8"
)

// This file turns lines into events: what each field does, and what a blank line
// does (HTML §9.2.6). lines.go finds the lines in the input and holds the memory;
// limit.go says what is too large; utf8.go replaces what is not UTF-8.

// maxShared is the size of the largest block of memory that an ID or a type may
// share with the data of an event. Whoever keeps one of them keeps them all.
const maxShared = 256

// A Decoder reads the events of one event stream by the rules of HTML §9.2.5 and
// §9.2.6. It neither connects nor reconnects. Use a [Client] for a stream that should
// outlive its connections, and a Decoder for any other input: a response in hand, a
// pipe, a file.
//
// An event is returned as soon as the line end that completes it has been read; the
// decoder waits neither for the LF of a CRLF nor for a buffer to fill. But it reads
// ahead, so how much of its reader it has read when you stop using it is unspecified.
//
// A decoder that waits for a silent server holds about 1 KiB, even after a large
// event.
//
// Make one with [NewDecoder]. It is not safe for use from several goroutines.
type Decoder struct {
	lines lineReader
	told  listener // nil if there is none
	err   error    // the first error, which all later calls return

	// limit is the limit as it was set: 0 for the default, negative for none.
	// lines.most is what a big type and big IDs leave of it for the data.
	limit    int
	comments bool // told wants comments
	started  bool // the first read has been tried
	bigNames bool // the type or an ID counts toward the limit, or may soon

	// The block: the lines since the last blank one. Its data is what lines keeps.
	hasData  bool  // there was a data line, perhaps an empty one
	nonASCII bool  // the data is not all ASCII, and may be ill-formed
	hasID    bool  // there was a valid id line
	views    bool  // some values below are views, to be copied before the buffer changes
	typ      value // the event type buffer
	id       value // the last event ID buffer, if hasID

	// The last event ID string, in two forms. The text is made on demand.
	lastID      value
	lastIDText  string
	lastIDStale bool // lastIDText has not been compared with lastID yet

	typeText string // the last type of an event that had one
	decoded  []byte // data that was ill-formed, with replacements
	message  [len(defaultType)]byte

	retry    time.Duration
	hasRetry bool
}

// defaultType is the type of an event whose block does not name one.
const defaultType = "message"

// A listener is told what a Stream needs to know besides the events.
type listener interface {
	// wantsComments reports whether comment is to be called at all.
	wantsComments() bool

	// comment is called with each comment line, after the colon and one space.
	comment(text string)

	// retry is called with the new reconnection time at each valid retry line.
	retry(time.Duration)

	// commit is called at a blank line that ends a block without data and has
	// changed the last event ID. The ID of an event is in the event.
	commit(id string)
}

// NewDecoder returns a Decoder that reads from r. It does not close r.
func NewDecoder(r io.Reader) *Decoder {
	d := new(Decoder)
	d.reset(r, "", nil)
	return d
}

// reset starts a new connection. It keeps the limit and the memory, and resets
// everything else. The last event ID carries over: by HTML §9.2.6 the buffer of a new
// stream is empty, but in every browser it starts with the ID in force.
func (d *Decoder) reset(r io.Reader, lastEventID string, l listener) {
	*d = Decoder{
		lines:    d.lines,
		limit:    d.limit,
		typ:      value{own: d.typ.own},
		id:       value{own: d.id.own},
		lastID:   value{own: d.lastID.own},
		typeText: d.typeText,
		decoded:  d.decoded,
	}
	d.startFrom(lastEventID)
	d.told = l
	d.comments = l != nil && l.wantsComments()
	d.lines.reset(r)
	d.account()
}

// SetLastEventID sets the last event ID to start from: the ID that events have until
// the input sets another. It is for an input that goes on from where an earlier one
// was left, and empty unless set.
//
// SetLastEventID panics if reading has begun.
func (d *Decoder) SetLastEventID(id string) {
	d.mustNotHaveBegun("SetLastEventID")
	d.startFrom(id)
	d.account()
}

// mustNotHaveBegun panics if reading has begun. It is for the given method.
func (d *Decoder) mustNotHaveBegun(method string) {
	if d.started {
		panic(errorPrefix + method + " called after the first read")
	}
}

// startFrom makes id the last event ID.
func (d *Decoder) startFrom(id string) {
	d.lastID = value{own: append(d.lastID.own[:0], id...), isOwn: true}
	d.lastIDText = id
}

// LastEventID returns the last event ID in force: that of the last complete block
// with an ID, whether or not the block was an event (HTML §9.2.6). It is empty if
// there was none, or if the server has reset it.
func (d *Decoder) LastEventID() string {
	if d.lastIDStale {
		d.lastIDStale = false
		if id := d.lastID.bytes(&d.lines); string(id) != d.lastIDText {
			d.lastIDText = string(id)
		}
	}
	return d.lastIDText
}

// Retry returns the reconnection time that the input has set, and whether it has set
// one. A retry field takes effect at once, whatever happens to its block. A time that
// is too long for a Duration becomes the longest Duration.
func (d *Decoder) Retry() (time.Duration, bool) { return d.retry, d.hasRetry }

// Events returns an iterator over the events. It ends silently at the end of the
// input; any other error of [Decoder.Next] is yielded once, last, with the zero
// Event. Leaving the loop loses nothing: Next or another range goes on from there.
func (d *Decoder) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			event, err := d.Next()
			if err == io.EOF || !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Next returns the next event. It usually allocates once: a type and an ID that have
// not changed are the strings of the previous event, and new ones share the memory of
// the data if it is small.
//
// The error is io.EOF at the end of the input, or [ErrTruncated] if the input ends
// inside an event; an [ErrEventTooLarge]; or the reader's own error, unchanged. If
// the reader returns neither bytes nor an error 100 times in a row, the error is
// io.ErrNoProgress. Events that were complete before the error are returned before
// it. All later calls return the same error.
func (d *Decoder) Next() (Event, error) {
	data, typ, err := d.dispatch()
	if err != nil {
		return Event{}, err
	}
	return d.event(data, typ), nil
}

// NextRaw is [Decoder.Next] without allocating: the parts of the event are views of
// the decoder's memory, valid until the next event is read with Next, NextRaw or
// Events. Prefer Next unless a profile says otherwise.
func (d *Decoder) NextRaw() (RawEvent, error) {
	data, typ, err := d.dispatch()
	if err != nil {
		return RawEvent{}, err
	}
	if len(typ) == 0 {
		copy(d.message[:], defaultType)
		typ = d.message[:]
	}
	return RawEvent{Type: typ, Data: data, LastEventID: d.lastID.bytes(&d.lines)}, nil
}

// dispatch reads on to the next event and returns its data and type, which are valid
// until the next call; an empty type stands for the default. The ID is in lastID.
func (d *Decoder) dispatch() (data, typ []byte, err error) {
	if d.err != nil {
		return nil, nil, d.err
	}
	l := &d.lines
	start, from := l.start, l.searched // local copies: reading a field that was just written is slow
	for {
		end, next := start, start+1
		if start < len(l.buf) && l.buf[start] == '\n' {
			l.skipTo(next) // a blank line, found without a call
		} else if end = from + indexLF(l.buf[from:]); end < l.cr {
			next = end + 1
			l.skipTo(next)
		} else if end = l.endAtCR(); end >= 0 {
			next = l.start
		} else {
			if err := d.fill(); err != nil {
				return nil, nil, d.fail(err)
			}
			start, from = l.start, l.searched
			continue
		}
		switch {
		case start == end:
			if d.hasData {
				return d.take()
			}
			d.discard()
		case end-start > d.left():
			if !d.longLine(l.buf[start:end]) {
				return nil, nil, d.fail(d.tooLarge())
			}
		case !d.field(start, end):
			return nil, nil, d.fail(d.tooLarge())
		}
		start, from = next, next
	}
}

// fail makes err the error of every call from now on, and releases the memory that is
// not needed any more. It returns err.
func (d *Decoder) fail(err error) error {
	d.err = err
	d.typ.clear()
	d.id.clear()
	d.own()
	d.lines.reset(nil)
	d.release()
	return err
}

// discard ends a block without data: HTML §9.2.6, dispatch, steps 1 and 2.
func (d *Decoder) discard() {
	if d.hasID {
		changed := !bytes.Equal(d.id.bytes(&d.lines), d.lastID.bytes(&d.lines))
		d.commit()
		if changed && d.told != nil {
			d.told.commit(d.LastEventID())
		}
	}
	d.typ.clear()
	if d.bigNames {
		d.account()
	}
}

// take takes the data and the type out of the block, and begins a new block.
func (d *Decoder) take() (data, typ []byte, err error) {
	l := &d.lines
	data = l.kept()
	if d.nonASCII && !utf8.Valid(data) {
		// An LF ends any ill-formed sequence, so the lines can be decoded together.
		n := decodedLen(data)
		if n > l.most {
			return nil, nil, d.fail(d.tooLarge()) // before its ID has taken effect
		}
		d.decoded = appendDecoded(slices.Grow(d.decoded[:0], n), data)
		data = d.decoded[:len(d.decoded):len(d.decoded)]
	}
	// HTML §9.2.6, dispatch, steps 1, 3 and 7.
	if d.hasID {
		d.commit()
	}
	typ = d.typ.bytes(l)
	d.hasData, d.nonASCII = false, false
	l.forget()
	d.typ.clear()
	if d.bigNames {
		d.account()
	}
	return data, typ, nil
}

// field processes a line that is not blank. It reports whether the type or the ID that
// the line sets is within the limit. Field names are compared as bytes: by HTML
// §9.2.6 the stream is decoded first, but that can neither create nor change an ASCII
// name.
func (d *Decoder) field(start, end int) bool {
	l := &d.lines
	line := l.buf[start:end]
	switch line[0] {
	case 'd':
		if i := valueIndex(line, "data"); i >= 0 {
			start += i
			d.nonASCII = !l.isASCII(start, end) || d.nonASCII
			if d.hasData {
				d.own()
				l.keepToo(start, end)
				break
			}
			l.keep(start, end)
			d.hasData = true
		}
	case 'e':
		if i := valueIndex(line, "event"); i >= 0 {
			return d.view(&d.typ, start+i, end) || d.set(&d.typ, start+i, end)
		}
	case 'i':
		if i := valueIndex(line, "id"); i >= 0 && !hasNUL(line[i:]) {
			d.hasID = true
			return d.view(&d.id, start+i, end) || d.set(&d.id, start+i, end)
		}
	case 'r':
		if i := valueIndex(line, "retry"); i >= 0 {
			if retry, ok := parseDuration(line[i:], time.Millisecond); ok {
				d.retry, d.hasRetry = retry, true
				if d.told != nil {
					d.told.retry(retry)
				}
			}
		}
	case ':':
		if d.comments {
			d.comment(line)
		}
	}
	return true
}

// comment tells the listener, which wants to know, of a comment line.
func (d *Decoder) comment(line []byte) {
	d.told.comment(string(appendDecoded(nil, line[valueIndex(line, ""):])))
}

// view makes buf[start:end] the type or the ID of the block, if that is simple.
func (d *Decoder) view(v *value, start, end int) bool {
	if end > d.lines.nonASCII || end-start > bigName || d.bigNames {
		return false
	}
	v.view(start, end)
	d.views = true
	return true
}

// set makes buf[start:end] the type or the ID of the block. It reports whether that is
// within the limit, which it is unless the value grows when it is decoded.
func (d *Decoder) set(v *value, start, end int) bool {
	l := &d.lines
	if l.isASCII(start, end) {
		v.view(start, end)
		d.views = true
	} else {
		text := l.buf[start:end]
		n := decodedLen(text)
		if d.most(d.typ.len()+d.id.len()-v.len()+n) < len(l.kept()) {
			return false
		}
		v.own = appendDecoded(slices.Grow(v.own[:0], n), text)
		v.isOwn = true
	}
	if v.len() > bigName || d.bigNames {
		d.account()
	}
	return true
}

// commit makes the ID of the block the last event ID.
func (d *Decoder) commit() {
	d.hasID = false
	d.lastIDStale = true
	if d.id.isOwn {
		d.id, d.lastID = d.lastID, d.id
	} else {
		d.lastID.view(d.id.start, d.id.end)
	}
	d.id.clear()
}

// event makes strings of the parts of an event. It reuses those of the previous event
// for a type and an ID that have not changed.
func (d *Decoder) event(data, typ []byte) Event {
	id := d.lastID.bytes(&d.lines)
	newType := len(typ) > 0 && string(typ) != d.typeText
	newID := d.lastIDStale && string(id) != d.lastIDText
	d.lastIDStale = false

	var text string
	if newType || newID {
		text = d.rename(data, typ, id, newType, newID)
	} else {
		text = string(data)
	}
	event := Event{Type: d.typeText, Data: text, LastEventID: d.lastIDText}
	if len(typ) == 0 {
		// HTML §9.2.6, dispatch, step 5.
		event.Type = defaultType
	}
	return event
}

// rename sets typeText and lastIDText, each if it is new, and returns data as a
// string. Together they share one block of memory if they are small.
func (d *Decoder) rename(data, typ, id []byte, newType, newID bool) (text string) {
	if !newType {
		typ = nil
	}
	if !newID {
		id = nil
	}
	if len(data)+len(typ)+len(id) > maxShared {
		text, data = string(data), nil
	}
	var memory [maxShared]byte
	parts := append(append(append(memory[:0], data...), typ...), id...)
	rest := string(parts)
	if data != nil {
		text, rest = rest[:len(data)], rest[len(data):]
	}
	if newType {
		d.typeText = rest[:len(typ)]
	}
	if newID {
		d.lastIDText = rest[len(typ):]
	}
	return text
}

// fill reads until there may be a complete line, or returns why there will be none.
func (d *Decoder) fill() error {
	d.started = true
	l := &d.lines
	for {
		if part := len(l.buf) - l.start; part > min(d.left(), smallBuffer) && l.begun && !d.partOfLine() {
			return d.tooLarge()
		}
		d.own()
		if l.room() {
			d.release()
		}
		n, err := l.read()
		if err == io.EOF && d.inEvent() {
			return ErrTruncated
		}
		if err != nil {
			return err
		}
		switch {
		case l.skipping:
			if l.add(n); l.skipped() {
				return nil
			}
		case !l.addPlain(n):
			l.add(n)
			return nil
		}
	}
}

// inEvent reports whether the block has a data line, the line being read included.
func (d *Decoder) inEvent() bool {
	return d.hasData || valueIndex(d.lines.buf[d.lines.start:], "data") >= 0
}

// own copies the values that are views, before the buffer changes.
func (d *Decoder) own() {
	if !d.views {
		return
	}
	d.views = false
	for _, v := range [...]*value{&d.typ, &d.id, &d.lastID} {
		v.copy(&d.lines)
	}
}

// release releases the memory that unusually large values have left behind.
func (d *Decoder) release() {
	if cap(d.typ.own)|cap(d.id.own)|cap(d.lastID.own)|cap(d.decoded) <= maxShared {
		return
	}
	for _, v := range [...]*value{&d.typ, &d.id, &d.lastID} {
		v.release()
	}
	d.decoded = nil
}

// A value is the value of a field: a view of the buffer of a lineReader, or a copy
// once the buffer is about to change. The zero value is empty.
type value struct {
	start, end int
	own        []byte
	isOwn      bool
}

// view makes v a view of the buffer.
func (v *value) view(start, end int) { v.start, v.end, v.isOwn = start, end, false }

// clear makes v empty.
func (v *value) clear() { v.view(0, 0) }

// len returns the size of v in bytes.
func (v *value) len() int {
	if v.isOwn {
		return len(v.own)
	}
	return v.end - v.start
}

// bytes returns v, valid until v or the buffer changes.
func (v *value) bytes(l *lineReader) []byte {
	if v.isOwn {
		return v.own[:len(v.own):len(v.own)]
	}
	return l.buf[v.start:v.end:v.end]
}

// copy makes v a copy.
func (v *value) copy(l *lineReader) {
	if !v.isOwn {
		v.own = append(v.own[:0], l.buf[v.start:v.end]...)
		v.isOwn = true
		l.work += len(v.own)
	}
}

// release releases memory that is larger than v needs now. v must not be a view,
// unless it is empty.
func (v *value) release() {
	if used := v.len(); cap(v.own) > maxShared && cap(v.own) > 2*used {
		v.own = bytes.Clone(v.own[:used])
	}
}

// valueIndex returns the index of the value in the line if its field has the given
// name, or -1 (HTML §9.2.6: the name ends at the first colon; one space after that is
// not part of the value; in a line without a colon the whole line is the name).
func valueIndex(line []byte, name string) int {
	i := len(name)
	switch {
	case len(line) < i || string(line[:i]) != name:
		return -1
	case len(line) == i:
		return i
	case line[i] != ':':
		return -1
	}
	i++
	if i < len(line) && line[i] == ' ' {
		i++
	}
	return i
}

package eventsource

import (
	"io"
	"time"
)

// NewHookedDecoder returns a Decoder as a Stream has it.
func NewHookedDecoder(r io.Reader, lastEventID string, comment func(string), retry func(time.Duration), commit func(string)) *Decoder {
	d := new(Decoder)
	d.reset(r, lastEventID, hooks{comment, retry, commit})
	return d
}

// hooks are a listener made of functions, of which any may be nil.
type hooks struct {
	onComment func(string)
	onRetry   func(time.Duration)
	onCommit  func(string)
}

func (h hooks) wantsComments() bool { return h.onComment != nil }

func (h hooks) comment(text string) { h.onComment(text) }

func (h hooks) retry(d time.Duration) {
	if h.onRetry != nil {
		h.onRetry(d)
	}
}

func (h hooks) commit(id string) {
	if h.onCommit != nil {
		h.onCommit(id)
	}
}

// ResetDecoder starts a new connection, without hooks.
func ResetDecoder(d *Decoder, r io.Reader, lastEventID string) { d.reset(r, lastEventID, nil) }

// DecoderWork returns the number of bytes that d has searched in vain or moved.
func DecoderWork(d *Decoder) int { return d.lines.work }

// DecoderMemory returns the size of the buffers that d holds.
func DecoderMemory(d *Decoder) int {
	l := &d.lines
	n := cap(l.buf) + cap(d.typ.own) + cap(d.id.own) + cap(d.lastID.own) + cap(d.decoded)
	if l.small != nil {
		n += cap(l.small)
	}
	if l.large != nil && cap(*l.large) != cap(l.buf) {
		n += cap(*l.large)
	}
	return n
}

// Sizes that tests want to be near.
const (
	SmallBuffer = smallBuffer
	BurstBuffer = burstBuffer
	BusyBuffer  = busyBuffer
	MaxShared   = maxShared
	FreeNames   = freeNames
	FreeLastID  = freeLastID
)

// What files keep to themselves and is worth a test of its own.
var (
	AppendDecoded = appendDecoded
	DecodedLen    = decodedLen
	IndexNonASCII = indexNonASCII
	IndexLF       = indexLF
	IsPlain       = isPlain
	HasNUL        = hasNUL
)

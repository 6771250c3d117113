package h2test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// preface is what a client sends first (RFC 9113 §3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Types, flags and settings of RFC 9113 §6.
const (
	frameData        = 0x0
	frameHeaders     = 0x1
	frameResetStream = 0x3
	frameSettings    = 0x4
	framePing        = 0x6
	frameGoAway      = 0x7

	flagEndStream  = 0x1 // HEADERS, DATA
	flagAck        = 0x1 // SETTINGS, PING
	flagEndHeaders = 0x4
)

// maxFrame is the largest payload that a side may send by default.
const maxFrame = 16384

// A Code is an error code of HTTP/2 (RFC 9113 §7).
type Code uint32

// The codes that tests use.
const (
	NoError         Code = 0x0
	ProtocolError   Code = 0x1
	InternalError   Code = 0x2
	RefusedStream   Code = 0x7
	Cancel          Code = 0x8
	EnhanceYourCalm Code = 0xb
)

type frame struct {
	kind    byte
	flags   byte
	stream  uint32
	payload []byte
}

func (f frame) has(flag byte) bool { return f.flags&flag != 0 }

// appendFrame appends a frame in its wire format (RFC 9113 §4.1).
func appendFrame(p []byte, f frame) []byte {
	n := len(f.payload)
	p = append(p, byte(n>>16), byte(n>>8), byte(n), f.kind, f.flags)
	p = binary.BigEndian.AppendUint32(p, f.stream)
	return append(p, f.payload...)
}

var errFrame = errors.New("h2test: malformed frame")

func readFrame(r io.Reader) (frame, error) {
	var h [9]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	n := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	if n > maxFrame {
		return frame{}, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	f := frame{
		kind:    h[3],
		flags:   h[4],
		stream:  binary.BigEndian.Uint32(h[5:]) &^ (1 << 31),
		payload: make([]byte, n),
	}
	_, err := io.ReadFull(r, f.payload)
	return f, err
}

// appendField appends a field of a header block in the simplest representation, a
// literal that is not indexed (RFC 7541 §6.2.2), without Huffman coding.
func appendField(p []byte, name, value string) []byte {
	p = append(p, 0)
	for _, s := range [...]string{name, value} {
		p = appendLength(p, len(s))
		p = append(p, s...)
	}
	return p
}

// appendLength appends an integer whose first byte has 7 bits for it (§5.1).
func appendLength(p []byte, n int) []byte {
	const limit = 1<<7 - 1
	if n < limit {
		return append(p, byte(n))
	}
	p = append(p, limit)
	for n -= limit; n >= 0x80; n >>= 7 {
		p = append(p, byte(n)|0x80)
	}
	return append(p, byte(n))
}

package h2test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Conn is a connection from a client. Its methods may be called from any
// goroutine; each that writes sends its frames at once, or returns the error of
// the connection.
type Conn struct {
	// Number counts the server's connections; it is 1 for the first.
	Number int

	raw  net.Conn
	tls  *tls.Conn
	done chan struct{}
	once sync.Once

	writing sync.Mutex // held while frames are written that belong together

	mu       sync.Mutex
	streams  map[uint32]*Stream
	pending  []*Stream     // not yet accepted
	accepted chan struct{} // holds a token while pending may be not empty
}

// A Stream is a request and the stream that it came on.
type Stream struct {
	ID     uint32
	Method string
	Path   string      // with the query
	Header http.Header // without pseudo-header fields

	conn  *Conn
	ended chan struct{} // closed at the end of the request
	reset chan struct{} // closed by the client's RST_STREAM

	body []byte // guarded by conn.mu until ended is closed
	code Code   // guarded by conn.mu until reset is closed
}

// ErrDropped is the error of what needs a connection after it has gone.
var ErrDropped = errors.New("h2test: the connection is gone")

func newConn(raw net.Conn, t *tls.Conn) *Conn {
	return &Conn{
		raw: raw, tls: t,
		done:     make(chan struct{}),
		streams:  make(map[uint32]*Stream),
		accepted: make(chan struct{}, 1),
	}
}

// Done is closed when the connection is gone, whoever has closed it.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close drops the connection, without a GOAWAY and without TLS's farewell. What
// the client has sent and nobody has read makes TCP drop it with a reset. Only the
// first call does anything.
func (c *Conn) Close() {
	c.once.Do(func() {
		c.raw.Close()
		close(c.done)
	})
}

// Reset drops the connection as Close does, but with a TCP reset.
func (c *Conn) Reset() {
	if l, ok := c.raw.(interface{ SetLinger(int) error }); ok {
		// An error here is one of a connection that is gone already.
		_ = l.SetLinger(0)
	}
	c.Close()
}

// Accept waits for the next request. It returns as soon as the header is there;
// see [Stream.Body]. After the end of the connection it returns ErrDropped.
func (c *Conn) Accept() (*Stream, error) {
	for {
		c.mu.Lock()
		if len(c.pending) > 0 {
			s := c.pending[0]
			c.pending = c.pending[1:]
			if len(c.pending) > 0 {
				c.wakeAccept()
			}
			c.mu.Unlock()
			return s, nil
		}
		c.mu.Unlock()
		select {
		case <-c.accepted:
		case <-c.done:
			return nil, ErrDropped
		}
	}
}

// GoAway tells the client to use another connection (RFC 9113 §6.8). Requests on
// streams up to last may still be answered; those above it have not been processed
// and may be sent again elsewhere.
func (c *Conn) GoAway(last uint32, code Code) error {
	p := binary.BigEndian.AppendUint32(nil, last)
	p = binary.BigEndian.AppendUint32(p, uint32(code))
	return c.write(frame{kind: frameGoAway, payload: p})
}

// Respond sends a response's header (RFC 9113 §8.3.2), and nothing but what it is
// given. With end it is the whole response.
func (s *Stream) Respond(status int, header http.Header, end bool) error {
	fields := []Field{{":status", strconv.Itoa(status)}}
	for name, values := range header {
		for _, v := range values {
			fields = append(fields, Field{strings.ToLower(name), v})
		}
	}
	f := frame{kind: frameHeaders, flags: flagEndHeaders, stream: s.ID, payload: encode(fields)}
	if end {
		f.flags |= flagEndStream
	}
	return s.conn.write(f)
}

// Data sends a part of the response's body. With end it is the last.
func (s *Stream) Data(data string, end bool) error {
	var frames []frame
	for part := range slices.Chunk([]byte(data), maxFrame) {
		frames = append(frames, frame{kind: frameData, stream: s.ID, payload: part})
	}
	if len(frames) == 0 {
		frames = []frame{{kind: frameData, stream: s.ID}}
	}
	if end {
		frames[len(frames)-1].flags = flagEndStream
	}
	return s.conn.write(frames...)
}

// Reset ends the stream and no other (RFC 9113 §6.4).
func (s *Stream) Reset(code Code) error {
	return s.conn.write(frame{
		kind: frameResetStream, stream: s.ID,
		payload: binary.BigEndian.AppendUint32(nil, uint32(code)),
	})
}

// Body waits for the end of the request and returns its body. It fails if the
// client resets the stream before, or the connection drops.
func (s *Stream) Body() ([]byte, error) {
	select {
	case <-s.ended:
	case <-s.reset:
	case <-s.conn.done:
	}
	// More than one may have happened; what came first on the wire counts.
	switch {
	case closed(s.ended):
		return s.body, nil
	case closed(s.reset):
		return nil, fmt.Errorf("h2test: the client reset the stream, code %d", s.code)
	}
	return nil, ErrDropped
}

// Left waits until the client has reset the stream, as it does when a request is
// cancelled, and returns its code; ErrDropped if the connection drops.
func (s *Stream) Left() (Code, error) {
	select {
	case <-s.reset:
	case <-s.conn.done:
	}
	if closed(s.reset) {
		return s.code, nil
	}
	return 0, ErrDropped
}

func (c *Conn) write(frames ...frame) error {
	var p []byte
	for _, f := range frames {
		p = appendFrame(p, f)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.tls.Write(p)
	return err
}

// handshake does what comes before the first frame, and sends the server's
// settings (RFC 9113 §3.4): none that differ from the defaults.
func (c *Conn) handshake() error {
	p := make([]byte, len(preface))
	if _, err := io.ReadFull(c.tls, p); err != nil {
		return err
	}
	if string(p) != preface {
		return errFrame
	}
	return c.write(frame{kind: frameSettings})
}

// read takes in what the client sends until the connection ends or the client says
// something malformed, which ends it.
func (c *Conn) read() {
	defer c.Close()
	headers := newDecoder()
	for {
		f, err := readFrame(c.tls)
		if err != nil {
			return
		}
		switch f.kind {
		case frameSettings:
			if !f.has(flagAck) {
				err = c.write(frame{kind: frameSettings, flags: flagAck})
			}
		case framePing:
			if !f.has(flagAck) {
				err = c.write(frame{kind: framePing, flags: flagAck, payload: f.payload})
			}
		case frameHeaders:
			err = c.readHeaders(f, headers)
		case frameData:
			err = c.readData(f)
		case frameResetStream:
			err = c.readReset(f)
		}
		if err != nil {
			return
		}
	}
}

func (c *Conn) readHeaders(f frame, headers *decoder) error {
	block, err := f.content()
	if err != nil {
		return err
	}
	// RFC 9113 §6.10: nothing else comes between the parts of a header.
	for last := f; !last.has(flagEndHeaders); {
		if last, err = readFrame(c.tls); err != nil {
			return err
		}
		if last.kind != frameContinuation || last.stream != f.stream {
			return errFrame
		}
		block = append(block, last.payload...)
	}
	fields, err := headers.decode(block)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, trailer := c.streams[f.stream]
	if !trailer {
		s = &Stream{
			ID: f.stream, Header: make(http.Header),
			conn: c, ended: make(chan struct{}), reset: make(chan struct{}),
		}
		c.streams[f.stream] = s
		for _, field := range fields {
			switch field.Name {
			case ":method":
				s.Method = field.Value
			case ":path":
				s.Path = field.Value
			case ":scheme", ":authority":
			default:
				s.Header.Add(field.Name, field.Value)
			}
		}
		c.pending = append(c.pending, s)
		c.wakeAccept()
	}
	if f.has(flagEndStream) && !closed(s.ended) {
		close(s.ended)
	}
	return nil
}

// wakeAccept lets one call of Accept look at pending.
func (c *Conn) wakeAccept() {
	select {
	case c.accepted <- struct{}{}:
	default: // there is a token
	}
}

func (c *Conn) readData(f frame) error {
	data, err := f.content()
	if err != nil {
		return err
	}
	c.mu.Lock()
	s := c.streams[f.stream]
	if s == nil || closed(s.ended) {
		c.mu.Unlock()
		return errFrame
	}
	s.body = append(s.body, data...)
	if f.has(flagEndStream) {
		close(s.ended)
	}
	c.mu.Unlock()
	if len(f.payload) == 0 {
		return nil // RFC 9113 §6.9: an increment of 0 is an error
	}
	// §6.9.1: what has been read may be sent again, on the stream and in all.
	more := binary.BigEndian.AppendUint32(nil, uint32(len(f.payload)))
	return c.write(
		frame{kind: frameWindowUpdate, stream: f.stream, payload: more},
		frame{kind: frameWindowUpdate, payload: more},
	)
}

func (c *Conn) readReset(f frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[f.stream]
	if s == nil || len(f.payload) != 4 {
		return errFrame
	}
	if !closed(s.reset) {
		s.code = Code(binary.BigEndian.Uint32(f.payload))
		close(s.reset)
	}
	return nil
}

// closed is for channels that nothing is sent on.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

package h2test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Conn is a connection from a client. Its methods may be called from any goroutine. A
// method that writes sends its frames at once, or returns the error of the connection.
type Conn struct {
	// Number counts the connections on which a request has come; it is 1 for the first.
	// (net/http dials more often than it has to.) It is set when Accept has returned a
	// request.
	Number int

	server *Server
	raw    net.Conn
	tls    *tls.Conn
	done   chan struct{}
	once   sync.Once

	writing sync.Mutex // held while writing frames that belong together

	mu       sync.Mutex
	streams  map[uint32]*Stream
	pending  []*Stream     // not yet accepted
	accepted chan struct{} // holds a token while pending may have streams
}

// A Stream is the stream of one request.
type Stream struct {
	ID uint32

	conn  *Conn
	reset chan struct{} // closed by the client's RST_STREAM
	code  Code          // guarded by conn.mu until reset is closed
}

// ErrDropped is returned when a connection that is needed has gone.
var ErrDropped = errors.New("h2test: the connection is gone")

func newConn(server *Server, raw net.Conn, t *tls.Conn) *Conn {
	return &Conn{
		server: server, raw: raw, tls: t,
		done:     make(chan struct{}),
		streams:  make(map[uint32]*Stream),
		accepted: make(chan struct{}, 1),
	}
}

// Done is closed when the connection is gone, whichever side has closed it.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close drops the connection, without a GOAWAY and without a TLS alert. If the client has
// sent something that nobody has read, TCP drops it with a reset. Only the first call
// does anything.
func (c *Conn) Close() {
	c.once.Do(func() {
		c.raw.Close()
		close(c.done)
	})
}

// Reset drops the connection as Close does, but with a TCP reset.
func (c *Conn) Reset() {
	if l, ok := c.raw.(interface{ SetLinger(int) error }); ok {
		// An error here means that the connection is gone already.
		_ = l.SetLinger(0)
	}
	c.Close()
}

// Accept waits for the next request, which may be incomplete. After the end of the
// connection it returns ErrDropped.
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

// Respond sends the header of a response (RFC 9113 §8.3.2), with nothing but the given
// fields. With end the response has no body.
func (s *Stream) Respond(status int, header http.Header, end bool) error {
	block := appendField(nil, ":status", strconv.Itoa(status))
	for name, values := range header {
		for _, v := range values {
			block = appendField(block, strings.ToLower(name), v)
		}
	}
	f := frame{kind: frameHeaders, flags: flagEndHeaders, stream: s.ID, payload: block}
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

// Left waits until the client has reset the stream, as it does when a request is
// cancelled, and returns the code. If the connection drops, it returns ErrDropped.
func (s *Stream) Left() (Code, error) {
	select {
	case <-s.reset:
	case <-s.conn.done:
	}
	// If both have happened, the first one on the wire counts.
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

// read reads what the client sends until the connection ends. It ends the connection if
// the client sends something malformed.
func (c *Conn) read() {
	defer c.Close()
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
			c.readHeaders(f)
		case frameResetStream:
			err = c.readReset(f)
		}
		if err != nil {
			return
		}
	}
}

// readHeaders takes in a request, or the trailer of one. What the header says, and
// the CONTINUATION frames that it may go on in, nobody looks at.
func (c *Conn) readHeaders(f frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[f.stream] != nil {
		return
	}
	if len(c.streams) == 0 {
		c.Number = int(c.server.used.Add(1))
	}
	s := &Stream{ID: f.stream, conn: c, reset: make(chan struct{})}
	c.streams[f.stream] = s
	c.pending = append(c.pending, s)
	c.wakeAccept()
}

// wakeAccept lets one call of Accept look at pending.
func (c *Conn) wakeAccept() {
	select {
	case c.accepted <- struct{}{}:
	default: // there is a token
	}
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

// closed reports whether a channel on which nothing is sent has been closed.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

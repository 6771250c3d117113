package memnet

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// BufferSize is how many bytes one end of a connection can send before the other reads
// them. A Write beyond it waits.
const BufferSize = 64 << 10

// Pipe returns the two ends of a new connection, the client's first.
//
// When an end is closed, its peer can still read what was sent, and then reads io.EOF;
// the peer's writes fail with EPIPE. If SetLinger(0) was called before, the close is a
// reset: the peer reads what was sent, then ECONNRESET, and its writes fail with
// ECONNRESET too.
func Pipe() (client, server *Conn) {
	up, down := newStream(), newStream()
	return &Conn{in: down, out: up, local: "client", remote: "server"},
		&Conn{in: up, out: down, local: "server", remote: "client"}
}

// A Conn is one end of a connection in memory. Its methods may be called from any
// goroutine.
type Conn struct {
	in, out       *stream
	local, remote Addr

	mu    sync.Mutex
	reset bool
}

var _ net.Conn = (*Conn)(nil)

// Read reads what the peer has sent, waiting for at least a byte.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.opError("read", err)
}

// Write sends p. It waits while the buffer is full.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.opError("write", err)
}

// Close ends the connection in both directions and wakes everybody who is blocked in
// it. Only the first call counts. It returns nil.
func (c *Conn) Close() error {
	c.mu.Lock()
	reset := c.reset
	c.mu.Unlock()
	atPeer, atPeerWrite := io.EOF, error(syscall.EPIPE)
	if reset {
		atPeer, atPeerWrite = syscall.ECONNRESET, syscall.ECONNRESET
	}
	c.out.close(atPeer, net.ErrClosed)
	c.in.close(net.ErrClosed, atPeerWrite)
	return nil
}

// SetLinger with 0 means the same as on a net.TCPConn: the next Close resets the
// connection. Any other value undoes that. It returns nil.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	c.reset = sec == 0
	c.mu.Unlock()
	return nil
}

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readDeadline, t)
	c.out.setDeadline(&c.out.writeDeadline, t)
	return nil
}

// SetReadDeadline makes reads fail from t on with an error that is
// os.ErrDeadlineExceeded; the zero time means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readDeadline, t)
	return nil
}

// SetWriteDeadline is SetReadDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeDeadline, t)
	return nil
}

// opError wraps err as package net does, which leaves io.EOF alone.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: Network, Source: c.local, Addr: c.remote, Err: err}
}

// A stream is one direction of a connection.
//
// Invariant: readErr and writeErr are both nil while both ends are open, and both are
// set once one of the ends has closed.
type stream struct {
	mu       sync.Mutex
	change   *sync.Cond
	buf      bytes.Buffer
	readErr  error // what the reader gets once buf is empty
	writeErr error // what the writer gets at once

	readDeadline, writeDeadline deadline
}

type deadline struct {
	passed bool
	timer  *time.Timer
	set    int // counts the settings, so that a timer of an earlier one that fires late does nothing
}

func newStream() *stream {
	s := &stream{}
	s.change = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readErr == net.ErrClosed:
			return 0, s.readErr
		case s.readDeadline.passed:
			return 0, os.ErrDeadlineExceeded
		case s.buf.Len() > 0:
			n, _ := s.buf.Read(p)
			s.change.Broadcast()
			return n, nil
		case s.readErr != nil:
			return 0, s.readErr
		case len(p) == 0:
			return 0, nil
		}
		s.change.Wait()
	}
}

func (s *stream) write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.writeErr != nil:
			return n, s.writeErr
		case s.writeDeadline.passed:
			return n, os.ErrDeadlineExceeded
		case len(p) == 0:
			return n, nil
		}
		if room := BufferSize - s.buf.Len(); room > 0 {
			m, _ := s.buf.Write(p[:min(room, len(p))])
			n, p = n+m, p[m:]
			s.change.Broadcast()
			continue
		}
		s.change.Wait()
	}
}

// close sets the errors that the two ends get from now on. An end that closes after its
// peer gets net.ErrClosed as well.
func (s *stream) close(readErr, writeErr error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr == nil || readErr == net.ErrClosed {
		s.readErr = readErr
	}
	if s.writeErr == nil || writeErr == net.ErrClosed {
		s.writeErr = writeErr
	}
	s.change.Broadcast()
}

func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.set++
	d.passed = false
	if d.timer != nil {
		d.timer.Stop()
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		s.change.Broadcast()
		return
	}
	set := d.set
	d.timer = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.set == set {
			d.passed = true
			s.change.Broadcast()
		}
	})
}

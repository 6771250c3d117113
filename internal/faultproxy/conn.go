package faultproxy

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"
)

// A conn is a client's connection and the one to the server that goes with it.
// Two goroutines serve it: down, which carries bytes to the client and does the
// fault, and up, which carries bytes to the server and sees the client leave.
type conn struct {
	client *net.TCPConn

	mu      sync.Mutex
	server  *net.TCPConn // nil until it is dialled
	fault   Fault
	left    int  // how many bytes the client still gets before the fault, or a throttle's next wait
	epoch   int  // counts the faults, as each counts its own bytes
	heard   bool // the client has sent something
	deaf    bool // what the client sends is thrown away
	closed  bool
	woken   bool          // deadlines are set, to break off what is blocked
	changed chan struct{} // closed and replaced when any of these changes, except left
}

func newConn(client *net.TCPConn, f Fault) *conn {
	return &conn{client: client, fault: f, left: f.bytes, changed: make(chan struct{})}
}

func (c *conn) inject(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.left = f, f.bytes
	c.epoch++
	c.woken = true
	c.client.SetWriteDeadline(past)
	if c.server != nil {
		c.server.SetReadDeadline(past)
	}
	c.notify()
}

var past = time.Unix(1, 0)

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.client.Close()
	if c.server != nil {
		c.server.Close()
	}
	c.notify()
}

func (c *conn) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// run serves the connection until the client has left or the proxy is closed.
func (c *conn) run(ctx context.Context, target string) {
	var up sync.WaitGroup
	up.Go(c.up)
	if !c.down(ctx, target) {
		c.close()
	}
	up.Wait()
}

// down reports whether up still has to wait for the client's end.
func (c *conn) down(ctx context.Context, target string) (waits bool) {
	buf := make([]byte, 32<<10)
	var pending []byte // read from the server and not yet written
	for {
		s, ok := c.state()
		switch {
		case !ok:
			return false
		case s.dormant:
			<-s.changed
		case s.may == 0:
			switch s.fault.kind {
			case cut:
				c.leaveServer()
				// Close would be a reset if there are unread bytes of the client.
				c.client.CloseWrite()
				return true
			case reset:
				c.client.SetLinger(0)
				return false
			case halfOpen:
				if !c.leaveServer() {
					<-s.changed
				}
			case throttle:
				due := make(chan struct{})
				timer := s.fault.clock.AfterFunc(s.fault.interval, func() { close(due) })
				select {
				case <-due:
					c.refill(s)
				case <-s.changed:
				}
				timer.Stop()
			default:
				<-s.changed
			}
		case s.server == nil:
			if !c.dial(ctx, target) {
				c.client.SetLinger(0)
				return false
			}
		case len(pending) == 0:
			n, err := s.server.Read(buf[:min(s.may, len(buf))])
			pending = buf[:n]
			switch {
			case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
			case err == io.EOF:
				c.client.CloseWrite()
				return true
			default:
				c.client.SetLinger(0)
				return false
			}
		default:
			n, err := c.client.Write(pending[:min(s.may, len(pending))])
			pending = pending[n:]
			c.passed(s, n)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return false
			}
		}
	}
}

// up carries what the client sends to the server, until the client leaves.
func (c *conn) up() {
	defer c.close()
	buf := make([]byte, 32<<10)
	for {
		n, err := c.client.Read(buf)
		if err != nil {
			return
		}
		c.mu.Lock()
		if !c.heard {
			c.heard = true
			c.notify()
		}
		c.mu.Unlock()
		if !c.await(func() bool { return c.deaf || c.server != nil && !c.holds() }) {
			return
		}
		c.mu.Lock()
		server, deaf := c.server, c.deaf
		c.mu.Unlock()
		if !deaf {
			// down will see that the server has gone, and pass it on.
			_, _ = server.Write(buf[:n])
		}
	}
}

// holds reports whether what the client sends must not reach the server, now that
// the fault is a black hole or about to end the connection.
func (c *conn) holds() bool {
	switch c.fault.kind {
	case blackHole:
		return true
	case cut, reset, halfOpen:
		return c.left == 0
	}
	return false
}

// await waits until the condition, which is called under the lock, holds. It
// reports false if the connection is closed first.
func (c *conn) await(condition func() bool) bool {
	for {
		c.mu.Lock()
		closed, holds, changed := c.closed, condition(), c.changed
		c.mu.Unlock()
		switch {
		case closed:
			return false
		case holds:
			return true
		}
		<-changed
	}
}

// A state is what down has to do.
type state struct {
	fault   Fault
	may     int // how many bytes may go to the client now
	server  *net.TCPConn
	epoch   int
	dormant bool // the connection has not begun
	changed <-chan struct{}
}

func (c *conn) state() (s state, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.woken {
		c.woken = false
		c.client.SetWriteDeadline(time.Time{})
		if c.server != nil {
			c.server.SetReadDeadline(time.Time{})
		}
	}
	s = state{fault: c.fault, may: c.left, server: c.server, epoch: c.epoch, changed: c.changed}
	s.dormant = !c.heard && c.epoch == 0
	if s.fault.kind == forward {
		s.may = math.MaxInt
	}
	return s, !c.closed
}

func (c *conn) passed(s state, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == s.epoch {
		c.left -= n
	}
}

func (c *conn) refill(s state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == s.epoch {
		c.left = s.fault.bytes
	}
}

func (c *conn) dial(ctx context.Context, target string) bool {
	var d net.Dialer
	server, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		server.Close()
		return false
	}
	c.server = server.(*net.TCPConn)
	c.notify()
	return true
}

// leaveServer closes the connection to the server and throws away what the client
// sends from now on. It reports whether there was anything left to do.
func (c *conn) leaveServer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf {
		return false
	}
	c.deaf = true
	if c.server != nil {
		c.server.Close()
	}
	c.notify()
	return true
}

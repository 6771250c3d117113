package faultproxy

import (
	"fmt"
	"time"

	"github.com/reprise-sse/reprise/clock"
)

// A Fault is what the proxy does to a connection. The zero Fault does nothing: it
// forwards the connection and its ends.
//
// A number of bytes counts the bytes to the client exactly: the fault happens before
// the next one. Nothing happens until the client has sent something, as an HTTP client
// always does first. A reset before that might or might not fail the client's dial.
type Fault struct {
	kind     kind
	bytes    int
	interval time.Duration
	clock    clock.Clock
}

type kind uint8

const (
	forward kind = iota
	cut
	reset
	stall
	halfOpen
	blackHole
	throttle
)

// Cut closes the connection to the client after n bytes, in TCP's orderly way (FIN),
// and closes the one to the server.
func Cut(n int) Fault { return Fault{kind: cut, bytes: n} }

// Reset resets the connection to the client after n bytes (RST), and closes the one to
// the server. On Linux the client can still read the n bytes; elsewhere, and if they are
// more than it has room for, it may lose some.
func Reset(n int) Fault { return Fault{kind: reset, bytes: n} }

// Stall forwards nothing to the client after n bytes. All connections stay open, the
// server is blocked once the buffers on the way are full, and it sees the client leave.
func Stall(n int) Fault { return Fault{kind: stall, bytes: n} }

// HalfOpen makes the server disappear silently after n bytes: the connection to it is
// closed, but the one to the client is not. What the client sends is lost.
func HalfOpen(n int) Fault { return Fault{kind: halfOpen, bytes: n} }

// BlackHole accepts the connection and does nothing with it: it neither dials the server
// nor reads from the client.
func BlackHole() Fault { return Fault{kind: blackHole} }

// Throttle forwards n bytes to the client at a time, at least one, and then waits
// for the interval on the clock; nil means clock.System.
func Throttle(n int, interval time.Duration, c clock.Clock) Fault {
	if c == nil {
		c = clock.System()
	}
	return Fault{kind: throttle, bytes: max(n, 1), interval: interval, clock: c}
}

// String describes the fault.
func (f Fault) String() string {
	switch f.kind {
	case cut:
		return fmt.Sprintf("cut after %d bytes", f.bytes)
	case reset:
		return fmt.Sprintf("reset after %d bytes", f.bytes)
	case stall:
		return fmt.Sprintf("stall after %d bytes", f.bytes)
	case halfOpen:
		return fmt.Sprintf("half open after %d bytes", f.bytes)
	case blackHole:
		return "black hole"
	case throttle:
		return fmt.Sprintf("%d bytes each %v", f.bytes, f.interval)
	}
	return "forward"
}

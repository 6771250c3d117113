// Package memnet is a network in memory, for tests: a listener, and connections
// that behave like TCP over loopback does on Linux.
//
// All waiting here is on a condition variable or a channel. So a goroutine that is
// blocked in a Read, Write, Accept or dial is durably blocked in the sense of
// testing/synctest. Deadlines go by the bubble's time.
package memnet

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// Network is the network's name in addresses and errors.
const Network = "mem"

// Addr is the address of every listener and connection of this package.
type Addr string

// Network returns the constant of that name.
func (Addr) Network() string { return Network }

// String returns the address as it is.
func (a Addr) String() string { return string(a) }

// A Listener accepts the connections that its DialContext makes. Its methods may
// be called from any goroutine.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a new listener, open for dials.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for the next dial. After Close it returns an error that is
// [net.ErrClosed].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: Network, Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// DialContext connects to the listener as soon as it accepts, whatever the address is.
// Its signature is the one that http.Transport needs. Once the listener is closed it
// fails with an error that is [syscall.ECONNREFUSED]. If ctx is done first, it fails
// with one that wraps the cause.
func (l *Listener) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	client, server := Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, Refused(addr)
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: Network, Addr: Addr(addr), Err: context.Cause(ctx)}
	}
}

// Refused is the error of a dial when nobody is listening: the same that package net
// returns, down to the system call.
func Refused(addr string) error {
	return &net.OpError{Op: "dial", Net: Network, Addr: Addr(addr), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// Close makes Accept and dials fail from now on. It does not affect existing
// connections. It returns nil.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the listener's address, which is the same for all listeners.
func (l *Listener) Addr() net.Addr { return Addr("server") }

// Package faultproxy is a TCP proxy on the loopback interface that breaks connections
// in chosen ways, for tests of how a client copes with that.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// A Proxy accepts connections on a port of its own and forwards each to the
// server. Make one with [Start]. Its methods may be called from any goroutine.
type Proxy struct {
	target string
	addr   string
	plan   func(n int) Fault
	ctx    context.Context // done from Close on
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while down
	closed   bool
	accepted int
	conns    map[*conn]struct{} // that the client has open
	changed  chan struct{}      // closed, and replaced, when accepted or conns changes
}

// Start starts a proxy for the server at the target, a "host:port". For each connection
// it calls plan with the number of the connection, 1 for the first, to learn what to do
// with it. With a nil plan it forwards everything.
//
// Start panics if it cannot listen on a port.
func Start(target string, plan func(n int) Fault) *Proxy {
	if plan == nil {
		plan = func(int) Fault { return Fault{} }
	}
	p := &Proxy{
		target: target, addr: "127.0.0.1:0", plan: plan,
		conns: make(map[*conn]struct{}), changed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := p.Up(); err != nil {
		panic(fmt.Sprintf("faultproxy: no port to listen on: %v", err))
	}
	return p
}

// Addr returns the proxy's address, a "host:port". It stays the same.
func (p *Proxy) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// Down stops listening, so dials are refused. Open connections stay open.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

// Up listens again, on the same port, after Down. It fails if another process has
// taken the port in the meantime, and after Close. While the proxy listens it does
// nothing.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener, p.addr = l, l.Addr().String()
	p.work.Go(func() { p.serve(l) })
	return nil
}

// Inject applies a fault to all open connections, in place of what the plan had for
// them. Its bytes are counted from now on; with 0 it happens at once. A BlackHole stops
// both directions and keeps the connections. What has been done, such as cutting a
// connection, is not undone.
func (p *Proxy) Inject(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.inject(f)
	}
}

// Counts is how many connections there have been and are.
type Counts struct {
	Accepted int // since Start
	Open     int // of those, the ones that neither the client has left nor the proxy has reset
}

// Counts returns the current numbers. It may not notice that a client has left a
// BlackHole.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts()
}

func (p *Proxy) counts() Counts { return Counts{Accepted: p.accepted, Open: len(p.conns)} }

// Await waits until the condition holds and returns nil, or the cause if ctx is done
// first.
func (p *Proxy) Await(ctx context.Context, condition func(Counts) bool) error {
	for {
		p.mu.Lock()
		now, changed := p.counts(), p.changed
		p.mu.Unlock()
		if condition(now) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close stops listening, closes all connections, and returns when nothing is left.
// Calls after the first do nothing.
func (p *Proxy) Close() {
	p.Down()
	p.cancel()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

func (p *Proxy) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.accept(client.(*net.TCPConn))
	}
}

func (p *Proxy) accept(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		client.Close()
		return
	}
	p.accepted++
	c := newConn(client, p.plan(p.accepted))
	p.conns[c] = struct{}{}
	p.notify()
	p.work.Go(func() {
		c.run(p.ctx, p.target)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		p.notify()
	})
}

func (p *Proxy) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

package eventsourcetest

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// A Conn is a request in the hands of a [Do] step. Its methods are for the
// goroutine that the function was called on, Context and Request excepted.
type Conn struct {
	server *Server
	record *record
	w      http.ResponseWriter
	raw    net.Conn // that the request came on; under HTTP/2 others may be on it
	http2  bool
	ctx    context.Context

	answered bool // the header is written, if not yet flushed
	over     bool // an end was played, or the client is gone
	broken   bool // the end was not a proper one
}

// Context is done when the client has left or the server is closed.
func (c *Conn) Context() context.Context { return c.ctx }

// Request returns the request as the server has recorded it so far.
func (c *Conn) Request() Request {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.record.Request
}

// Play does the steps, one after the other. It reports whether the response goes on:
// false once an end was played, the client has left or the server is closed. From then
// on it does nothing.
func (c *Conn) Play(steps ...Step) bool {
	check(steps)
	for _, s := range steps {
		if c.done() {
			break
		}
		s.step(c)
	}
	return !c.done()
}

func (c *Conn) done() bool {
	if !c.over && c.ctx.Err() != nil {
		c.leave()
	}
	return c.over
}

// open writes the header of an event stream, unless there is one.
func (c *Conn) open() {
	c.respond(Status{Header: http.Header{
		"Content-Type":  {"text/event-stream"},
		"Cache-Control": {"no-store"},
	}})
}

func (c *Conn) respond(s Status) {
	if c.answered {
		return
	}
	c.answered = true
	h := c.w.Header()
	// A nil value keeps net/http from adding its own.
	h["Content-Type"] = nil
	h["Date"] = []string{c.server.clock.Now().UTC().Format(http.TimeFormat)}
	if c.record.last {
		h["Connection"] = []string{"close"}
	}
	for name, values := range s.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	if s.Code == 0 {
		s.Code = http.StatusOK
	}
	c.w.WriteHeader(s.Code)
	if s.Body != "" {
		c.writeBody(s.Body)
	}
}

func (c *Conn) write(text string) {
	c.open()
	c.writeBody(text)
	c.flush()
}

func (c *Conn) writeBody(text string) {
	_, err := io.WriteString(c.w, text)
	if err != nil && err != http.ErrBodyNotAllowed {
		c.leave()
	}
}

func (c *Conn) flush() {
	if c.answered && !c.over && http.NewResponseController(c.w).Flush() != nil {
		c.leave()
	}
}

func (c *Conn) wait(d time.Duration) {
	c.flush()
	due := make(chan struct{})
	timer := c.server.clock.AfterFunc(d, func() { close(due) })
	defer timer.Stop()
	select {
	case <-due:
	case <-c.ctx.Done():
		c.leave()
	}
}

func (c *Conn) stall() {
	c.flush()
	<-c.ctx.Done()
	c.leave()
}

// end is the proper end. What is written is flushed, and the end recorded, when
// the handler returns.
func (c *Conn) end() {
	c.open()
	c.over = true
}

func (c *Conn) abort(reset bool) {
	c.flush()
	if c.over {
		return
	}
	c.over, c.broken = true, true
	c.server.ended(c.record, false)
	if c.http2 {
		return // the handler's panic resets the stream
	}
	if l, ok := c.raw.(interface{ SetLinger(int) error }); ok && reset {
		// An error here means that the connection is broken already.
		_ = l.SetLinger(0)
	}
	c.raw.Close()
}

// leave is called when the other side has gone, or the server is being closed.
func (c *Conn) leave() {
	c.over, c.broken = true, true
	c.server.ended(c.record, true)
}

// carrier is the connection that a request came on.
type carrier struct {
	raw    net.Conn
	number int
}

type carrierKey struct{}

func withCarrier(ctx context.Context, conn net.Conn, number int) context.Context {
	return context.WithValue(ctx, carrierKey{}, carrier{raw: conn, number: number})
}

func carrierOf(r *http.Request) carrier {
	return r.Context().Value(carrierKey{}).(carrier)
}

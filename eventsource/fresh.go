package eventsource

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-sse/reprise/policy"
)

// A connection whose peer has vanished without a word looks well: net/http keeps it in
// its pool, and over HTTP/2 it sends every further request to it. So once an attempt
// has ended in a way that says that its connection may be dead, the next one may go
// only over a connection that was made after that end, or that has answered a request
// since (G13). This file sees to that.

// mayBeDead reports whether the attempt's end says that its connection may be dead.
func (a *attempt) mayBeDead() bool {
	switch a.kind {
	case policy.Idle, policy.Expired, policy.Restarted:
		return true
	}
	// ConnectTimeout, the limits of the transport, TCP's keep-alive
	var timeout interface{ Timeout() bool }
	return errors.As(a.err, &timeout) && timeout.Timeout()
}

// suspect puts the connections that exist under suspicion of being dead.
//
// The time is the real one even if the stream has a Clock of its own, because net/http
// tells by the real time how long a connection has been idle.
func (s *Stream) suspect() {
	now := time.Now()
	s.suspected = &now
}

// A freshTransport sends the requests of one attempt, but only over connections that
// are not under suspicion.
//
// net/http has no way to ask for that, so it is done in rounds. In each, base gets a
// connection for the request. If httptrace reports one that is under suspicion, the
// round is cancelled before anything has been written, the connection is kept from
// coming again, and the next round begins:
//
//   - An HTTP/1.1 connection is nobody else's at that moment, and is closed.
//   - An HTTP/2 connection may be shared, and its other streams are left alone. The
//     header "Connection: close" of a request makes net/http use its connection for no
//     further request. That happens before the request is written, and a request that
//     has been cancelled is not written. It does not happen always: net/http
//     chooses at random whether it looks at the cancellation first. So such a
//     connection takes two rounds on average.
//
// A RoundTripper that does not report its connections has one round.
type freshTransport struct {
	base    http.RoundTripper
	attempt *attempt
	since   time.Time
}

const (
	// After so many rounds in which an HTTP/2 connection was rejected, a RoundTripper
	// around the transport must have copied the header. Request.Close reaches the
	// transport even so, but the connection that is accepted in the end is not shared.
	roundsByHeader = 8

	// After so many, the next connection is accepted whatever it is: nothing keeps it
	// from coming again. So it may be if another request to it is stuck in being written.
	maxRounds = 64

	// net/http goes on with a cancelled request on a goroutine of its own, and the next
	// round leaves it the time to.
	pause    = 100 * time.Microsecond
	maxPause = time.Millisecond
)

var errNotFresh = errors.New("eventsource: the connection may be dead")

// RoundTrip implements http.RoundTripper. A redirect calls it again.
func (t *freshTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	for shared := 0; ; {
		r := &round{transport: t, last: shared >= maxRounds}
		ctx, cancel := context.WithCancelCause(req.Context())
		r.cancel = cancel
		r.header = maps.Clone(req.Header)

		// The hooks of a round that was rejected may be called late, so each round has
		// its own guard.
		out := req.WithContext(t.attempt.watched(ctx, new(resendGuard), r))
		out.Header = r.header
		out.Close = req.Close || shared >= roundsByHeader
		if req.Body != nil && req.Body != http.NoBody {
			out.Body = &roundBody{req.Body, r}
		}
		resp, err := t.base.RoundTrip(out)
		if err == nil {
			resp.Request = req
			return resp, nil // the context ends with the attempt's
		}
		cancel(context.Canceled)
		if !r.rejected.Load() {
			return nil, err
		}
		if req.Context().Err() != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, context.Cause(req.Context())
		}
		if r.shared.Load() {
			shared++
			time.Sleep(min(time.Duration(shared)*pause, maxPause))
		}
	}
}

// A round is one try of a freshTransport to get a connection.
type round struct {
	transport *freshTransport
	cancel    context.CancelCauseFunc
	header    http.Header // of this round's request alone
	last      bool        // accept any connection

	begun    atomic.Bool // the request is being written
	rejected atomic.Bool
	shared   atomic.Bool // the connection that was rejected may be shared
}

// accepts reports whether the request may be sent over a connection. When part of it
// has been written it is too late: a RoundTripper that repeats a request after a 401 may
// use any connection for that.
func (r *round) accepts(info httptrace.GotConnInfo, http2 bool) bool {
	since := r.transport.since
	switch {
	case r.last, r.begun.Load(), !info.Reused && !info.WasIdle:
		return true
	case http2:
		return connections.answeredAfter(info.Conn, since)
	default:
		// It became idle when a response had been read from it.
		return info.Reused && info.WasIdle && info.IdleTime < time.Since(since)
	}
}

// reject ends the round before its request is written.
func (r *round) reject(c net.Conn, http2 bool) {
	r.rejected.Store(true)
	r.cancel(errNotFresh)
	if http2 {
		r.shared.Store(true)
		r.header["Connection"] = []string{"close"}
		return
	}
	c.Close()
}

// A roundBody is the body of a request for one round. If that is rejected, net/http
// closes the body, and may read of it, but another round still needs it.
type roundBody struct {
	io.ReadCloser
	round *round
}

func (b *roundBody) Read(p []byte) (int, error) {
	if b.round.rejected.Load() {
		return 0, errNotFresh
	}
	return b.ReadCloser.Read(p)
}

func (b *roundBody) Close() error {
	if b.round.rejected.Load() {
		return nil
	}
	return b.ReadCloser.Close()
}

// connections are the HTTP/2 connections that attempts use at the moment. A connection
// that is not among them counts as old. Without this a thousand streams that have left
// a dead connection would make a thousand new ones.
var connections connectionSet

type connectionSet struct {
	mu  sync.Mutex
	set map[net.Conn]*connection
}

// A connection is a connection of a connectionSet.
type connection struct {
	conn     net.Conn
	alive    time.Time // when it was made or last answered; zero if that is not known
	attempts int       // that use it
}

// use notes that the attempt uses a connection, instead of the one before if it has
// followed a redirect.
func (s *connectionSet) use(a *attempt, info httptrace.GotConnInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(a)
	if a.ctx.Err() != nil {
		return // leave has been called, or will be
	}
	c := s.set[info.Conn]
	if c == nil {
		c = &connection{conn: info.Conn}
		if s.set == nil {
			s.set = make(map[net.Conn]*connection)
		}
		s.set[c.conn] = c
	}
	if !info.Reused {
		c.alive = time.Now()
	}
	c.attempts++
	a.connection = c
}

// leave notes that the attempt, whose context is done, does not use its connection any
// more.
func (s *connectionSet) leave(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(a)
}

func (s *connectionSet) drop(a *attempt) {
	c := a.connection
	if c == nil {
		return
	}
	a.connection = nil
	if c.attempts--; c.attempts == 0 {
		delete(s.set, c.conn)
	}
}

// answered notes that the header of a response has come on the attempt's connection.
func (s *connectionSet) answered(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.connection != nil {
		a.connection.alive = time.Now()
	}
}

// answeredAfter reports whether c is known to have been made, or to have answered a
// request, after t.
func (s *connectionSet) answeredAfter(c net.Conn, t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.set[c]
	return known != nil && known.alive.After(t)
}

package eventsourcetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/internal/memnet"
	"github.com/reprise-sse/reprise/internal/selfsigned"
)

// A Server answers requests by a script and records them. Fill in its settings,
// which must not be changed afterwards, then call Start, before any other method;
// the zero Server answers every request with status 204, which ends an event stream
// for good. Its methods may be called from any goroutine.
type Server struct {
	// Script says what to do with the requests: its first entry is for the first
	// request, its second for the second, and so on, whatever their path.
	// Connections that are refused count as requests.
	Script [][]Step

	// Rest is for every request after the script. Nil means status 204, by
	// which a server tells a client not to reconnect (HTML §9.2.3), so that
	// the loop over a stream ends where the script does.
	Rest []Step

	// Loopback makes the server listen on a TCP port of the loopback interface.
	// Without it the network is in memory: only the server's Client, and
	// transports that use its DialContext, can reach it, under any host name.
	//
	// A server in memory works inside a testing/synctest bubble, and must be
	// started and closed inside it; one on a port does not.
	Loopback bool

	// HTTP2 makes the server speak HTTP/2 over TLS and nothing else, with a
	// certificate of its own that its Client trusts. Without it the server
	// speaks HTTP/1.1 in the clear.
	HTTP2 bool

	// Clock is the clock of Wait and Outage, of the times in the record and of the
	// Date headers; nil means clock.System, which inside a bubble is the bubble's
	// time. It must not start at the zero time.
	Clock clock.Clock

	// URL is the server's address, without a path: "http://127.0.0.1:41234", or
	// "http://server.test" for a network in memory. Start sets it.
	URL string

	clock   clock.Clock
	http    *http.Server
	client  *http.Client
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	cancel  context.CancelFunc
	serving sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	idle        *sync.Cond    // signalled when busy falls to 0
	busy        int           // connections and handlers
	connections int           // accepted so far
	entry       int           // index of the script's next entry
	records     []*record     // in order of arrival
	changed     chan struct{} // closed, and replaced, when records change
	inFlight    int           // requests being answered
	latestEnd   time.Time     // of a response; zero before the first
	outageFrom  time.Time     // what the length of an outage is counted from
}

// Start makes the server listen. It panics if the settings contradict each other, if
// it was called before, or if there is no port to listen on.
func (s *Server) Start() {
	if s.http != nil {
		panic("eventsourcetest: the Server was started before")
	}
	for _, entry := range s.Script {
		check(entry)
	}
	check(s.Rest)
	if outage, _ := refuses(s.Rest); outage > 0 {
		panic("eventsourcetest: an Outage in Rest has no entry to follow it")
	}

	s.clock = s.Clock
	if s.clock == nil {
		s.clock = clock.System()
	}
	s.idle = sync.NewCond(&s.mu)
	s.changed = make(chan struct{})
	s.outageFrom = s.clock.Now()
	if s.outageFrom.IsZero() {
		panic("eventsourcetest: the Clock shows the zero time, which the record needs for what has not happened")
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel

	var listener net.Listener
	var host string
	if s.Loopback {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(fmt.Sprintf("eventsourcetest: no port to listen on: %v", err))
		}
		listener, host = l, l.Addr().String()
		s.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", host)
		}
	} else {
		l := memnet.Listen()
		listener, host = l, selfsigned.ServerName
		s.dial = l.DialContext
	}

	s.http = &http.Server{
		Handler:     http.HandlerFunc(s.handle),
		ConnState:   s.connState,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.connections++
			return withCarrier(ctx, conn, s.connections)
		},
		Protocols: new(http.Protocols),
	}
	transport := &http.Transport{DialContext: s.DialContext, Protocols: new(http.Protocols)}
	if s.HTTP2 {
		s.URL = "https://" + host
		s.http.Protocols.SetHTTP2(true)
		transport.Protocols.SetHTTP2(true)
		transport.TLSClientConfig = selfsigned.Client()
		s.http.TLSConfig = selfsigned.Server("h2")
	} else {
		s.URL = "http://" + host
		s.http.Protocols.SetHTTP1(true)
		transport.Protocols.SetHTTP1(true)
	}
	s.client = &http.Client{Transport: transport}

	s.serving.Go(func() {
		// The error only says that the server was closed.
		if s.HTTP2 {
			_ = s.http.ServeTLS(listener, "", "")
		} else {
			_ = s.http.Serve(listener)
		}
	})
}

// Client returns the client that belongs to the server: it trusts the server's
// certificate and dials the server under any host name. It is always the same client,
// without time limits, with an *http.Transport of its own, which a test may clone, or
// adapt before the first request.
func (s *Server) Client() *http.Client { return s.client }

// DialContext connects to the server whatever the address, or refuses to if the
// script says so. It is for an http.Transport that is not the Client's.
func (s *Server) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if s.refuse() {
		return nil, memnet.Refused(addr)
	}
	return s.dial(ctx, network, addr)
}

// Requests returns what has been recorded so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := make([]Request, len(s.records))
	for i, r := range s.records {
		requests[i] = r.Request
	}
	return requests
}

// Await waits until the condition holds for what Requests returns, for instance that
// a request has arrived or ended. It then returns nil; if ctx is done before that, it
// returns the cause. The condition is called again whenever the record changes.
//
// Inside a bubble Await is not needed: use synctest.Wait or time.Sleep.
func (s *Server) Await(ctx context.Context, condition func([]Request) bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if condition(s.Requests()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close stops listening, breaks off all connections, and returns when nothing that the
// server has started is left. It closes idle connections of the Client but not those
// of other clients. A Do step that ignores the context of its Conn holds it up. Calls
// after the first do nothing.
func (s *Server) Close() {
	if s.http == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.http.Close()
	s.client.CloseIdleConnections()
	s.serving.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.busy > 0 {
		s.idle.Wait()
	}
}

// connState counts connections for Close. It is called for a new one before
// Serve can return, so none is missed.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.mu.Lock()
		s.busy++
		closed := s.closed
		s.mu.Unlock()
		if closed {
			// http.Server.Close may have passed before it knew of this one.
			conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		s.mu.Lock()
		s.release()
		s.mu.Unlock()
	}
}

func (s *Server) release() {
	s.busy--
	if s.busy == 0 {
		s.idle.Broadcast()
	}
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	rec, entry := s.arrive(r)
	if rec == nil {
		panic(http.ErrAbortHandler)
	}
	defer func() {
		s.mu.Lock()
		s.release()
		s.mu.Unlock()
	}()

	c := &Conn{server: s, record: rec, w: w, raw: carrierOf(r).raw, http2: r.ProtoMajor == 2, ctx: r.Context()}
	// The client must not see the end before it is recorded; and a Do may panic, or
	// call a test's FailNow.
	defer s.ended(rec, false)

	// net/http sees a client leave only once the request's body has been read.
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	rec.Body = body
	s.mu.Unlock()

	if _, ok := refuses(entry); ok {
		c.abort(false)
	} else if c.Play(entry...) {
		c.end()
	}
	if c.broken {
		panic(http.ErrAbortHandler)
	}
}

// arrive records a request and returns what to do with it, or nil once the server is
// closed.
func (s *Server) arrive(r *http.Request) (*record, []Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil
	}
	s.busy++
	entry := s.next()
	s.take(entry)
	rec := s.add()
	rec.setRefused(entry)
	rec.Proto, rec.Method, rec.Host = r.Proto, r.Method, r.Host
	rec.URL, rec.Header = r.URL, r.Header
	if ids, ok := r.Header["Last-Event-Id"]; ok {
		rec.LastEventID, rec.HasLastEventID = ids[0], true
	}
	rec.Connection = carrierOf(r).number
	rec.last = s.willRefuse()
	return rec, entry
}

// refuse reports whether the next connection is to be refused, and records it if
// so.
func (s *Server) refuse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false // the dial itself fails
	}
	entry := s.next()
	if _, ok := refuses(entry); !ok {
		return false
	}
	s.take(entry)
	rec := s.add()
	rec.setRefused(entry)
	s.endedLocked(rec, false)
	return true
}

// entryAt returns entry i of the script, or what is done after it.
func (s *Server) entryAt(i int) []Step {
	switch {
	case i < len(s.Script):
		return s.Script[i]
	case s.Rest != nil:
		return s.Rest
	}
	return []Step{Status{Code: http.StatusNoContent}}
}

// willRefuse reports whether a connection is to be refused later on. Until then no
// connection may be used twice: a request on an idle connection could not be refused.
func (s *Server) willRefuse() bool {
	for i := s.entry; i <= len(s.Script); i++ {
		if _, ok := refuses(s.entryAt(i)); ok {
			return true
		}
	}
	return false
}

// next returns the entry that is due, after moving past outages that are over.
func (s *Server) next() []Step {
	for {
		entry := s.entryAt(s.entry)
		if outage, _ := refuses(entry); outage == 0 || s.clock.Now().Sub(s.outageFrom) < outage {
			return entry
		}
		s.entry++
	}
}

// take moves on from the entry that is due, unless it is an outage, which lasts.
func (s *Server) take(entry []Step) {
	if outage, _ := refuses(entry); outage == 0 && s.entry < len(s.Script) {
		s.entry++
	}
}

// add records something that has arrived now.
func (s *Server) add() *record {
	s.inFlight++
	rec := &record{Request: Request{
		Number:   len(s.records) + 1,
		Arrived:  s.clock.Now(),
		InFlight: s.inFlight,
	}}
	if !s.latestEnd.IsZero() {
		rec.Gap = rec.Arrived.Sub(s.latestEnd)
	}
	s.records = append(s.records, rec)
	s.notify()
	return rec
}

// ended records that a response has ended; only the first call for each counts.
func (s *Server) ended(rec *record, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endedLocked(rec, left)
}

func (s *Server) endedLocked(rec *record, left bool) {
	if rec.over {
		return
	}
	rec.over = true
	rec.Ended = s.clock.Now()
	rec.ClientLeft = left && !s.closed
	s.inFlight--
	s.latestEnd = rec.Ended
	if !rec.inOutage {
		s.outageFrom = rec.Ended
	}
	s.notify()
}

// notify wakes Await.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

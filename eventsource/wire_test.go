package eventsource_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/vectors"
	"github.com/reprise-sse/reprise/policy"
)

// A wireServer is a TCP server that answers requests with exact bytes, for vectors
// that say what is on the wire. It listens on loopback; its transport connects to
// it under any host name. Its pauses are on a fake clock.
//
// The clock moves in two ways. What waits between attempts is the test's to
// advance (Trace.Wait tells when). And while the client waits for the server and
// the server for the clock, both having nothing else to do, advanceWhenIdle moves
// it to the next timer, as time in a testing/synctest bubble moves.
type wireServer struct {
	t      *testing.T
	clock  *clock.Fake
	answer func(n int, req wireRequest) wireAnswer // one call at a time
	turn   sync.Mutex                              // for answer

	listener  net.Listener
	transport *http.Transport
	done      sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond
	version  int // of what follows
	requests []wireRequest
	conns    map[net.Conn]bool // whether they are between two requests
	timers   []clock.Timer
	closed   bool

	// What the newest exchange is at.
	waiting       bool // the server, for the clock or for the client to leave
	headSent      bool
	sent          int  // bytes of the body
	clientReading bool // the client, for the response or in a read of its body
	clientHasHead bool
	received      int // bytes of the body
}

// A wireRequest is a request as received.
type wireRequest struct {
	Method, Path, Body string
	Headers            []wireHeader
	At                 time.Time
}

type wireHeader struct{ Name, Value string }

// lines returns the values of a header, one for each line.
func (r wireRequest) lines(name string) (values []string) {
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, name) {
			values = append(values, h.Value)
		}
	}
	return values
}

// A wireAnswer is what the server does with a request.
type wireAnswer struct {
	Drop    bool // close the connection before any byte
	Delay   time.Duration
	Status  int
	Headers []string
	Body    vectors.Framing
	Parts   []vectors.Part
	Hold    bool   // at the end, keep the body open until the client leaves
	Cut     bool   // at the end, break the connection without ending the body
	Ending  func() // called before what the client takes for the end, if not nil
}

func newWireServer(t *testing.T, answer func(n int, req wireRequest) wireAnswer) *wireServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &wireServer{
		t: t, answer: answer, listener: listener,
		clock: clock.NewFake(time.Time{}),
		conns: map[net.Conn]bool{},
	}
	s.changed = sync.NewCond(&s.mu)
	s.transport = &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, listener.Addr().String())
	}}
	s.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.done.Go(func() {
				s.serve(conn)
				conn.Close()
				s.change(func() { delete(s.conns, conn) })
			})
		}
	})
	t.Cleanup(s.close)
	return s
}

// change changes the state under the lock and tells who waits for it.
func (s *wireServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.version++
	s.changed.Broadcast()
}

// close ends the server. Connections that the client has not given back are an
// error, unless the test has failed already.
func (s *wireServer) close() {
	s.listener.Close()
	s.transport.CloseIdleConnections()
	s.change(func() {
		s.closed = true
		for _, timer := range s.timers {
			timer.Stop()
		}
		for conn, idle := range s.conns {
			if idle {
				conn.Close() // the client may be about to give it back
			}
		}
	})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.done.Wait()
	}()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		s.t.Error("10 s after the end the client still holds a connection")
		s.change(func() {
			for conn := range s.conns {
				conn.Close()
			}
		})
		<-gone
	}
}

func (s *wireServer) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	for {
		over := false
		s.change(func() { s.conns[conn], over = true, s.closed })
		if over {
			return
		}
		req, err := readWireRequest(r)
		if err != nil {
			return
		}
		req.At = s.clock.Now()
		var n int
		s.change(func() {
			n = len(s.requests)
			s.requests = append(s.requests, req)
			s.conns[conn] = false
			s.waiting, s.headSent, s.sent = false, false, 0
		})
		s.turn.Lock()
		a := s.answer(n, req)
		s.turn.Unlock()
		if !s.send(conn, r, n, a) {
			return
		}
	}
}

// send sends the answer to request n, and reports whether the connection can take
// another request.
func (s *wireServer) send(conn net.Conn, r *bufio.Reader, n int, a wireAnswer) (again bool) {
	ending := a.Ending
	if ending == nil {
		ending = func() {}
	}
	if !s.pause(a.Delay) {
		return false
	}
	if a.Drop {
		ending()
		return false
	}
	var head strings.Builder
	fmt.Fprintf(&head, "HTTP/1.1 %d %s\r\n", a.Status, http.StatusText(a.Status))
	for _, h := range a.Headers {
		head.WriteString(h + "\r\n")
	}
	size := 0
	for _, part := range a.Parts {
		size += len(part.Bytes)
	}
	switch a.Body {
	case vectors.Chunked:
		head.WriteString("Transfer-Encoding: chunked\r\n")
	case vectors.Length:
		fmt.Fprintf(&head, "Content-Length: %d\r\n", size)
	case vectors.UntilClose:
		head.WriteString("Connection: close\r\n")
	}
	head.WriteString("\r\n")
	if _, err := io.WriteString(conn, head.String()); err != nil {
		return false
	}
	s.change(func() { s.headSent = true })
	for _, part := range a.Parts {
		if !s.pause(part.Wait) {
			return false
		}
		if len(part.Bytes) == 0 {
			continue // a chunk of no bytes would end the body
		}
		s.change(func() { s.sent += len(part.Bytes) })
		bytes := string(part.Bytes)
		if a.Body == vectors.Chunked {
			bytes = fmt.Sprintf("%x\r\n%s\r\n", len(bytes), bytes)
		}
		if _, err := io.WriteString(conn, bytes); err != nil {
			return false
		}
	}
	ending()
	switch {
	case a.Hold:
		s.change(func() { s.waiting = true })
		r.ReadByte() // until the client leaves
		s.change(func() {
			if n == len(s.requests)-1 {
				s.waiting = false
			}
		})
		return false
	case a.Cut, a.Body == vectors.UntilClose:
		return false
	case a.Body == vectors.Chunked:
		if _, err := io.WriteString(conn, "0\r\n\r\n"); err != nil {
			return false
		}
	}
	return true
}

// pause waits on the clock. It reports false when the server is closed.
func (s *wireServer) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	over := false
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.timers = append(s.timers, s.clock.AfterFunc(d, func() {
			s.change(func() { over, s.waiting = true, false })
		}))
	}
	s.waiting = true
	s.version++
	s.changed.Broadcast()
	for !over && !s.closed {
		s.changed.Wait()
	}
	return over
}

func readWireRequest(r *bufio.Reader) (req wireRequest, err error) {
	line := func() (string, error) {
		s, err := r.ReadString('\n')
		return strings.TrimSuffix(s, "\r\n"), err
	}
	first, err := line()
	if err != nil {
		return req, err
	}
	fields := strings.Fields(first)
	if len(fields) != 3 {
		return req, fmt.Errorf("the request line is %q", first)
	}
	req.Method, req.Path = fields[0], fields[1]
	for {
		header, err := line()
		if err != nil {
			return req, err
		}
		if header == "" {
			break
		}
		name, value, _ := strings.Cut(header, ":")
		// HTTP's own rule: outer spaces and tabs are not part of a value.
		req.Headers = append(req.Headers, wireHeader{name, strings.Trim(value, " \t")})
	}
	if length := req.lines("Content-Length"); len(length) == 1 {
		n, err := strconv.Atoi(length[0])
		if err != nil {
			return req, err
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return req, err
		}
		req.Body = string(body)
	}
	return req, nil
}

// RoundTrip makes the server a transport to itself that knows when the client is
// waiting.
func (s *wireServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.change(func() { s.clientReading, s.clientHasHead, s.received = true, false, 0 })
	resp, err := s.transport.RoundTrip(req)
	s.change(func() { s.clientReading, s.clientHasHead = false, true })
	if err == nil {
		body := resp.Body
		resp.Body = &spiedBody{ReadCloser: body, read: func(p []byte) (int, error) {
			s.change(func() { s.clientReading = true })
			n, err := body.Read(p)
			s.change(func() {
				s.clientReading = false
				s.received += n
			})
			return n, err
		}}
	}
	return resp, err
}

// idle reports whether nothing will happen unless the clock moves. mu is held.
func (s *wireServer) idle() bool {
	return s.waiting && s.clientReading && s.clientHasHead == s.headSent && s.received == s.sent
}

// advanceWhenIdle moves the clock to its next timer whenever nothing else is left
// to happen, until the context is done. When there is no timer either, nothing will
// ever happen again, and it calls stuck.
func (s *wireServer) advanceWhenIdle(ctx context.Context, stuck func()) {
	stop := context.AfterFunc(ctx, func() { s.change(func() {}) })
	defer stop()
	for {
		s.mu.Lock()
		for !s.idle() && ctx.Err() == nil {
			s.changed.Wait()
		}
		version := s.version
		s.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if d, ok := s.clock.Next(); ok {
			s.clock.Advance(d)
		} else {
			stuck()
		}
		// What fired has its effect before the clock moves on.
		s.mu.Lock()
		for s.version == version && ctx.Err() == nil {
			s.changed.Wait()
		}
		s.mu.Unlock()
	}
}

// log returns the requests so far.
func (s *wireServer) log() []wireRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]wireRequest(nil), s.requests...)
}

// A wireRun is what became of a stream.
type wireRun struct {
	Data     []string
	End      error
	Requests []wireRequest
	Attempts []policy.Attempt
	Opens    []string // the paths of the URLs that the streams came from
}

// runWire runs a client against answers, in order; after the last one the server
// answers 204. Waits pass at once on a fake clock. Prepare edits the caller's
// request; it may be nil.
func runWire(t *testing.T, client eventsource.Client, prepare func(*http.Request), answers ...wireAnswer) (run wireRun) {
	t.Helper()
	server := newWireServer(t, func(n int, _ wireRequest) wireAnswer {
		if n >= len(answers) {
			return wireAnswer{Status: http.StatusNoContent, Body: vectors.NoBody}
		}
		return answers[n]
	})
	httpClient := http.Client{}
	if client.HTTPClient != nil {
		httpClient = *client.HTTPClient
	}
	httpClient.Transport = server
	client.HTTPClient, client.Clock = &httpClient, server.clock
	client.Trace = traceOf(&eventsource.Trace{
		Open: func(o eventsource.OpenInfo) { run.Opens = append(run.Opens, o.URL.Path) },
		End:  func(a policy.Attempt) { run.Attempts = append(run.Attempts, a) },
		Wait: func(w eventsource.WaitInfo) { server.clock.Advance(w.Waited) },
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, origin1+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(req)
	}
	for e, err := range client.Stream(req).Events() {
		if err != nil {
			run.End = err
			break
		}
		run.Data = append(run.Data, e.Data)
	}
	server.close()
	run.Requests = server.log()
	return run
}

// eventStream answers with an event stream of one part.
func eventStream(body string) wireAnswer {
	return wireAnswer{
		Status: http.StatusOK, Headers: []string{"Content-Type: text/event-stream"}, Body: vectors.Chunked,
		Parts: []vectors.Part{{Bytes: []byte(body)}},
	}
}

func redirect(status int, location string) wireAnswer {
	return wireAnswer{Status: status, Headers: []string{"Location: " + location}, Body: vectors.Length}
}

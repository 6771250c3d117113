package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/selfsigned"
	"github.com/reprise-sse/reprise/policy"
)

// A wire is a client's way to a server whose peer can stop reading: then whatever the
// client writes to a connection that it has waits.
type wire struct {
	mu      sync.Mutex
	conns   []*wireConn   // all that were made
	filled  int           // so many of them, from the first, cannot be written to
	blocked chan struct{} // receives when a write waits
}

type wireConn struct {
	net.Conn
	wire   *wire
	full   chan struct{} // closed when the peer stops reading
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	deadline <-chan time.Time
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: conn, wire: w, full: make(chan struct{}), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return c, nil
}

// fill has the peers of the connections that there are stop reading.
func (w *wire) fill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns[w.filled:] {
		close(c.full)
	}
	w.filled = len(w.conns)
}

// close ends all connections, the stuck ones too.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
}

func (c *wireConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = nil
	if !t.IsZero() {
		c.deadline = time.After(time.Until(t))
	}
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

func (c *wireConn) Write(p []byte) (int, error) {
	select {
	case <-c.full:
	default:
		return c.Conn.Write(p)
	}
	select {
	case c.wire.blocked <- struct{}{}:
	default: // it has been told already
	}
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case <-deadline:
		return 0, os.ErrDeadlineExceeded
	}
}

func (c *wireConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A stuckServer answers every request with an event and what the path asks for.
type stuckServer struct {
	url    string
	client *http.Client
	wire   *wire
	asked  chan struct{} // receives when a request for /refused or /mute has come
	refuse chan struct{} // closed: requests for /refused are answered
}

func startStuck(t *testing.T, http2 bool) *stuckServer {
	s := &stuckServer{wire: &wire{blocked: make(chan struct{}, 1)}, asked: make(chan struct{}, 1), refuse: make(chan struct{})}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/sync":
			return
		case "/refused":
			s.asked <- struct{}{}
			<-s.refuse
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "the start of a reason")
		case "/mute":
			s.asked <- struct{}{}
			<-req.Context().Done()
			return
		default:
			http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: x\n\n")
			if req.URL.Path == "/unread" {
				fmt.Fprint(w, strings.Repeat(": something\n", 10000))
			}
		}
		http.NewResponseController(w).Flush()
		if io.Copy(io.Discard, req.Body); req.Method == http.MethodGet {
			<-req.Context().Done()
		}
	}))
	srv.TLS = selfsigned.Server()
	srv.EnableHTTP2 = http2
	srv.StartTLS()
	transport := &http.Transport{TLSClientConfig: selfsigned.Client(), ForceAttemptHTTP2: http2, DialContext: s.wire.dial}
	t.Cleanup(func() {
		s.wire.close()
		srv.CloseClientConnections()
		srv.Close()
	})
	s.url, s.client = srv.URL, &http.Client{Transport: transport}
	return s
}

// stick makes the connection one that cannot be written to: something is being written
// to it, and the peer does not read. Over HTTP/2 that is another request.
func (s *stuckServer) stick(ctx context.Context, t *testing.T) {
	t.Helper()
	s.wire.fill()
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/upload", strings.NewReader(strings.Repeat("x", 1000)))
		if resp, err := s.client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	select {
	case <-s.wire.blocked:
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
}

// promptly fails the test if f takes long.
func promptly(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Errorf("%s: the stream has not ended", what)
	}
}

// TestG7EndsThoughNothingCanBeWritten ends a stream in every way, and in every state,
// while another request to the same connection is stuck in being written.
func TestG7EndsThoughNothingCanBeWritten(t *testing.T) {
	errLeft := errors.New("the loop body panics")
	type run struct {
		s      *stuckServer
		stream *eventsource.Stream
		fake   *clock.Fake
		cancel context.CancelFunc
	}
	later := func(f func(context.Context, run)) func(context.Context, run) bool {
		return func(ctx context.Context, r run) bool { go f(ctx, r); return true }
	}
	fire := func(ctx context.Context, r run) {
		if r.fake.Wait(ctx, 1) == nil {
			d, _ := r.fake.Next()
			r.fake.Advance(d)
		}
	}
	for name, end := range map[string]func(ctx context.Context, r run) (more bool){
		"idle":      later(fire),
		"cancel":    later(func(_ context.Context, r run) { r.cancel() }),
		"Reconnect": later(func(_ context.Context, r run) { r.stream.Reconnect() }),
		"break":     func(context.Context, run) bool { return false },
		"panic":     func(context.Context, run) bool { panic(errLeft) },
		"linger":    func(ctx context.Context, r run) bool { go fire(ctx, r); return false },
	} {
		for _, path := range []string{"/", "/unread"} {
			if path == "/unread" && name != "break" && name != "panic" {
				// Who reads on waits too: net/http has to write in order to tell the
				// peer that it may send more.
				continue
			}
			t.Run(name+path, func(t *testing.T) {
				s := startStuck(t, true)
				ctx, fake := guarded(t), clock.NewFake(time.Time{})
				streamCtx, cancel := context.WithCancel(ctx)
				defer cancel()
				client := eventsource.Client{HTTPClient: s.client, Policy: policy.Never(), Clock: fake, IdleTimeout: idleTimeout}
				if name == "linger" {
					client.Linger = time.Second
				}
				stream := client.Stream(request(streamCtx, t, s.url+path))
				r := run{s, stream, fake, cancel}
				ready := make(chan struct{})
				promptly(t, name, func() {
					defer func() {
						if v := recover(); v != nil && v != errLeft {
							panic(v)
						}
					}()
					for _, err := range stream.Events() {
						if err != nil {
							return
						}
						// The answer comes on the same connection, behind the event and
						// what the server has sent with it.
						if resp, err := s.client.Do(request(ctx, t, s.url+"/sync")); err == nil {
							resp.Body.Close()
						}
						s.stick(ctx, t)
						close(ready)
						if !end(ctx, r) {
							break
						}
					}
				})
				select {
				case <-ready:
				default:
					t.Error("no event came")
				}
			})
		}
	}
	connecting := func(name, path string, begin func(s *stuckServer), end func(ctx context.Context, r run)) {
		t.Run(name, func(t *testing.T) {
			s := startStuck(t, true)
			ctx, fake := guarded(t), clock.NewFake(time.Time{})
			streamCtx, cancel := context.WithCancel(ctx)
			defer cancel()
			// A stream of its own shows that the connection is made, and keeps it.
			other := eventsource.Client{HTTPClient: s.client, Policy: policy.Never()}
			for range other.Stream(request(ctx, t, s.url)).Events() {
				client := eventsource.Client{HTTPClient: s.client, Policy: policy.Never(), Clock: fake}
				stream := client.Stream(request(streamCtx, t, s.url+path))
				promptly(t, name, func() {
					go func() {
						<-s.asked
						s.stick(ctx, t)
						begin(s)
						end(ctx, run{s, stream, fake, cancel})
					}()
					for range stream.Events() {
					}
				})
				break
			}
		})
	}
	nothing := func(*stuckServer) {}
	connecting("connecting, cancel", "/mute", nothing, func(_ context.Context, r run) { r.cancel() })
	connecting("connecting, Reconnect", "/mute", nothing, func(_ context.Context, r run) { r.stream.Reconnect() })
	connecting("connecting, timeout", "/mute", nothing, fire)
	connecting("refused", "/refused", func(s *stuckServer) { close(s.refuse) }, func(ctx context.Context, r run) {
		for ctx.Err() == nil {
			if d, ok := r.fake.Next(); ok && d <= time.Second {
				r.fake.Advance(d)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Run("adopted", func(t *testing.T) {
		s := startStuck(t, true)
		ctx := guarded(t)
		resp, err := s.client.Do(request(ctx, t, s.url+"/unread"))
		if err != nil {
			t.Fatal(err)
		}
		s.client.Do(request(ctx, t, s.url+"/sync"))
		s.stick(ctx, t)
		over, cancel := context.WithCancel(ctx)
		cancel()
		promptly(t, "adopted", func() {
			client := eventsource.Client{Policy: policy.Never()}
			for range client.Adopt(resp, request(over, t, s.url)).Events() {
			}
		})
	})
}

// TestG7EndsThoughItsRequestIsStuck has the server answer before it has read the request,
// and read no more of it.
func TestG7EndsThoughItsRequestIsStuck(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for name, end := range map[string]func(stream *eventsource.Stream, cancel context.CancelFunc) bool{
			"break":     func(*eventsource.Stream, context.CancelFunc) bool { return false },
			"cancel":    func(_ *eventsource.Stream, cancel context.CancelFunc) bool { go cancel(); return true },
			"Reconnect": func(s *eventsource.Stream, _ context.CancelFunc) bool { go s.Reconnect(); return true },
		} {
			t.Run(fmt.Sprintf("HTTP2 %v/%s", http2, name), func(t *testing.T) {
				s := startStuck(t, http2)
				ctx, cancel := context.WithCancel(guarded(t))
				defer cancel()
				body := &endless{more: make(chan struct{}, 2), closed: make(chan struct{})}
				body.more <- struct{}{}
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, body)
				if err != nil {
					t.Fatal(err)
				}
				client := eventsource.Client{HTTPClient: s.client, Policy: policy.Never()}
				stream := client.Stream(req)
				promptly(t, name, func() {
					for _, err := range stream.Events() {
						if err != nil {
							return
						}
						s.wire.fill()
						body.more <- struct{}{}
						select {
						case <-s.wire.blocked:
						case <-ctx.Done():
						}
						if !end(stream, cancel) {
							break
						}
					}
				})
			})
		}
	}
}

// An endless body has a piece whenever it is given leave.
type endless struct {
	more   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (b *endless) Read(p []byte) (int, error) {
	select {
	case <-b.more:
		return len(p), nil
	case <-b.closed:
		return 0, errors.New("closed")
	}
}

func (b *endless) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// Package h2test is a server that writes HTTP/2 frame by frame, for tests of what
// net/http's own server never does: refuse a stream, send a GOAWAY in the middle of one,
// answer one stream but not another, drop the connection under all of them.
//
// It does only what the tests need. It does not decode requests, which would take all of
// HPACK: tests tell requests apart by their order, and ask the client what it sent. It
// ignores the bodies of requests, so they must fit into the first window. It also ignores
// flow control towards the client, because net/http opens windows of megabytes.
//
// The Framer of golang.org/x/net/http2 could do the framing, but the main module does not
// require that module, and the tests that need this server share too much with the other
// tests of package eventsource to move to a module that does.
package h2test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/reprise-sse/reprise/internal/selfsigned"
)

// A Server accepts connections, HTTP/2 over TLS, and gives each to its handler.
// Make one with [Start].
type Server struct {
	// URL is the server's address, without a path.
	URL string

	handler  func(*Conn)
	listener net.Listener
	client   *http.Client
	serving  sync.WaitGroup
	used     atomic.Int32 // connections on which a request has come

	mu     sync.Mutex
	closed bool
	conns  []*Conn
}

// Start starts a server on a port of the loopback interface. For each connection it calls
// the handler, on a goroutine of its own, after the TLS handshake and the client's
// preface. When the handler returns, the connection is closed. The handler must return
// when Accept fails or the connection's Done is closed.
//
// Start panics if it cannot listen on a port.
func Start(handler func(*Conn)) *Server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("h2test: no port to listen on: %v", err))
	}
	s := &Server{URL: "https://" + l.Addr().String(), handler: handler, listener: l}
	transport := &http.Transport{TLSClientConfig: selfsigned.Client(), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	s.client = &http.Client{Transport: transport}
	s.serving.Go(s.serve)
	return s
}

// Client returns a client that trusts the server, always the same one. Its transport is
// an *http.Transport.
func (s *Server) Client() *http.Client { return s.client }

// Close drops all connections, and returns when everything that the server has started
// has ended, handlers included. It also closes the idle connections of its Client.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	conns := s.conns
	s.mu.Unlock()
	s.listener.Close()
	for _, c := range conns {
		c.Close()
	}
	s.client.CloseIdleConnections()
	s.serving.Wait()
}

func (s *Server) serve() {
	config := selfsigned.Server("h2")
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return
		}
		c := newConn(s, raw, tls.Server(raw, config))
		s.mu.Lock()
		s.conns = append(s.conns, c)
		closed := s.closed
		s.mu.Unlock()
		if closed {
			raw.Close()
			return
		}
		s.serving.Go(func() {
			defer c.Close()
			if c.handshake() != nil {
				return
			}
			s.serving.Go(c.read)
			s.handler(c)
		})
	}
}

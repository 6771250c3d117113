// Package h2test is a server that speaks HTTP/2 frame by frame, for tests of what
// net/http's own server never does: refuse a stream, say goodbye in the middle of
// one, answer one and not the other, drop the connection under all of them.
//
// It does no more than a test needs. It does not decode what a request says, which
// takes all of HPACK: tests tell requests apart by their order, and ask the client
// what it sent. It ignores the bodies of requests, so these must fit into the first
// window, and flow control towards the client, whose windows net/http opens to
// megabytes.
//
// The Framer of golang.org/x/net/http2 could replace its frames, but the main module
// does not require that module, and the tests that need this server share too much
// with the others of package eventsource to move to a module that does.
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
	used     atomic.Int32 // connections that a request has come on

	mu     sync.Mutex
	closed bool
	conns  []*Conn
}

// Start starts a server on a port of the loopback interface. The handler is called
// for each connection, on a goroutine of its own, once the TLS handshake and the
// client's preface are done. When it returns the connection is closed; it must
// return when Accept fails or the connection's Done is closed.
//
// Start panics if there is no port to listen on.
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

// Client returns the client that trusts the server, always the same one. Its
// transport is an *http.Transport.
func (s *Server) Client() *http.Client { return s.client }

// Close drops all connections and returns when nothing that the server has started
// is left, handlers included. It closes the idle connections of its Client.
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

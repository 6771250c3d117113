package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// A network connects the demo's client with the demo's server.
type network interface {
	listen() (net.Listener, error)
	// dial connects to the listener's address.
	dial(ctx context.Context, network, address string) (net.Conn, error)
}

// loopback is this machine's own network.
type loopback struct{}

func (loopback) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return net.Listen("tcp", "[::1]:0")
	}
	return l, nil
}

func (loopback) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

// demoRules is the demo's policy: it waits out a 503, and its budget is too small
// for a wait of a day.
func demoRules() policy.Rules {
	rules := policy.Resilient()
	rules.Delay = time.Second
	rules.Budget = 20 * time.Second
	return rules
}

// runDemo starts the demo server, follows it to the end and prints the summary.
// It returns exitOK if the summary is right or ctx is done, and exitFailed otherwise.
func runDemo(ctx context.Context, n network, events *printer, log *journal) int {
	listener, err := n.listen()
	if err != nil {
		log.log("gave up", errorText(err))
		return exitFailed
	}
	handler := &demoServer{log: func(text string) { log.log("server", text) }}
	server := &http.Server{Handler: handler}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // always http.ErrServerClosed, because of Close below
	}()
	transport := &http.Transport{DialContext: n.dial}
	defer func() {
		transport.CloseIdleConnections()
		_ = server.Close() // no connection is needed any more
		<-served
		handler.playing.Wait()
	}()

	url := "http://" + listener.Addr().String() + "/readings"
	log.log("following", url)
	s := followDemo(ctx, url, transport, events, log)
	if ctx.Err() != nil {
		log.log("stopped", "interrupted")
		return exitOK
	}
	log.log("gave up", errorText(s.err))
	s.visits, s.published = handler.record()

	out := events.w
	if events.json {
		out = log.w // standard output is for objects only
	}
	if err := s.write(out); err != nil {
		log.log("gave up", errorText(err))
		return exitFailed
	}
	if len(s.faults()) > 0 {
		return exitFailed
	}
	return exitOK
}

// followDemo follows the server with an ordinary client and notes what it saw.
func followDemo(ctx context.Context, url string, transport http.RoundTripper, events *printer, log *journal) (s summary) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		s.err = err
		return s
	}
	trace := log.trace()
	logWait := trace.Wait
	trace.Wait = func(i eventsource.WaitInfo) {
		logWait(i)
		s.waits = append(s.waits, i)
	}
	client := eventsource.Client{
		HTTPClient: &http.Client{Transport: transport},
		Policy:     demoRules(),
		Trace:      func(*http.Request) *eventsource.Trace { return trace },
	}
	for ev, err := range client.Stream(req).Events() {
		if err == nil {
			s.received = append(s.received, ev)
			err = events.print(ev)
		}
		if err != nil {
			s.err, s.ended = err, time.Now()
			return s
		}
	}
	s.ended = time.Now()
	return s
}

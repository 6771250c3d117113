package mcptransport_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/examples/mcp/mcptransport"
	"github.com/reprise-sse/reprise/policy"
)

// A client speaks JSON-RPC over a connection and keeps what it is told, the same
// thing twice too.
type client struct {
	t         *testing.T
	conn      mcp.Connection
	transport *mcptransport.Transport

	mu        sync.Mutex
	nextID    float64
	waiting   map[jsonrpc.ID]chan *jsonrpc.Response
	answers   map[jsonrpc.ID][]*jsonrpc.Response
	requests  []*jsonrpc.Request // of the server, and its notifications
	positions []mcptransport.Position
	standbys  []error // ends of the standby stream
	skipped   []error
	bodies    int           // of responses, not yet closed
	over      chan struct{} // closed when Read has failed
	readErr   error
}

// play runs a test of a client and a server in a bubble, up to and with the end of
// both.
func play(t *testing.T, s *server, test func(*client), settings ...func(*mcptransport.Transport)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		c := dial(t, s, settings...)
		c.handshake()
		test(c)
		if err := c.conn.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		<-c.over
		s.checkHeaders(t)
		c.checkOnce()
		synctest.Wait()
		c.checkBodies()
	})
}

// exactly makes the waits of the policies free of chance, and lets the standby
// stream be given up after 5 fruitless reconnections.
func exactly(version string, role mcptransport.Role) policy.Policy {
	switch {
	case role == mcptransport.Listen:
		rules := policy.MCPListen()
		rules.Jitter, rules.MaxFruitless = -1, 5
		return rules
	case version < "2026":
		rules := policy.MCPCall()
		rules.Jitter = -1
		return rules
	default:
		return mcptransport.ForVersion(version, role)
	}
}

func dial(t *testing.T, s *server, settings ...func(*mcptransport.Transport)) *client {
	t.Helper()
	c := &client{
		t:       t,
		waiting: make(map[jsonrpc.ID]chan *jsonrpc.Response),
		answers: make(map[jsonrpc.ID][]*jsonrpc.Response),
		over:    make(chan struct{}),
	}
	c.transport = &mcptransport.Transport{
		Endpoint:     s.URL + "/mcp",
		Policy:       exactly,
		OnPosition:   func(p mcptransport.Position) { c.note(func() { c.positions = append(c.positions, p) }) },
		OnStandbyEnd: func(err error) { c.note(func() { c.standbys = append(c.standbys, err) }) },
		OnSkip:       func(err error) { c.note(func() { c.skipped = append(c.skipped, err) }) },
	}
	c.transport.Client.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := s.Client().Transport.RoundTrip(r)
		if err == nil {
			c.note(func() { c.bodies++ })
			resp.Body = &countedBody{resp.Body, sync.OnceFunc(func() { c.note(func() { c.bodies-- }) })}
		}
		return resp, err
	})}
	for _, set := range settings {
		set(c.transport)
	}
	conn, err := c.transport.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c.conn = conn
	go c.read()
	return c
}

type countedBody struct {
	io.ReadCloser
	closed func()
}

func (b *countedBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// checkBodies checks that the body of every response was closed.
func (c *client) checkBodies() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bodies != 0 {
		c.t.Errorf("%d bodies were not closed", c.bodies)
	}
}

func (c *client) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *client) read() {
	defer close(c.over)
	for {
		msg, err := c.conn.Read(context.Background())
		if err != nil {
			c.readErr = err
			return
		}
		c.note(func() {
			switch msg := msg.(type) {
			case *jsonrpc.Request:
				c.requests = append(c.requests, msg)
			case *jsonrpc.Response:
				c.answers[msg.ID] = append(c.answers[msg.ID], msg)
				if w := c.waiting[msg.ID]; w != nil {
					close(w)
					delete(c.waiting, msg.ID)
				}
			}
		})
	}
}

// An outcome is how a call ended, and when, counted from its start.
type outcome struct {
	result string
	err    error
	after  time.Duration
}

// begin sends a call and returns a function that waits for its outcome.
func (c *client) begin(ctx context.Context, method, params string) (wait func() outcome) {
	start := time.Now()
	answered := make(chan *jsonrpc.Response)
	var id jsonrpc.ID
	c.note(func() {
		c.nextID++
		id, _ = jsonrpc.MakeID(c.nextID)
		c.waiting[id] = answered
	})
	err := c.conn.Write(ctx, &jsonrpc.Request{ID: id, Method: method, Params: json.RawMessage(params)})
	return func() outcome {
		if err != nil {
			return outcome{err: err, after: time.Since(start)}
		}
		select {
		case <-answered:
		case <-c.over:
			return outcome{err: c.readErr, after: time.Since(start)}
		}
		o := outcome{after: time.Since(start)}
		c.note(func() {
			answer := c.answers[id][0]
			o.result, o.err = string(answer.Result), answer.Error
		})
		return o
	}
}

// call sends a tools/call and waits for its outcome.
func (c *client) call() outcome { return c.callWith(context.Background()) }

func (c *client) callWith(ctx context.Context) outcome {
	return c.begin(ctx, "tools/call", `{"name":"slow","arguments":{}}`)()
}

func (c *client) notify(method, params string) error {
	return c.conn.Write(context.Background(), &jsonrpc.Request{Method: method, Params: json.RawMessage(params)})
}

func (c *client) handshake() {
	c.t.Helper()
	if o := c.begin(context.Background(), "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)(); o.err != nil {
		c.t.Fatalf("initialize: %v", o.err)
	}
	if err := c.notify("notifications/initialized", `{}`); err != nil {
		c.t.Fatalf("initialized: %v", err)
	}
}

// ping checks that the session works.
func (c *client) ping() {
	c.t.Helper()
	if o := c.begin(context.Background(), "ping", `{}`)(); o.err != nil {
		c.t.Errorf("ping: %v", o.err)
	}
}

// checkOnce checks that no call was answered twice.
func (c *client) checkOnce() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, answers := range c.answers {
		if len(answers) != 1 {
			c.t.Errorf("call %v was answered %d times", id.Raw(), len(answers))
		}
	}
}

// progressed returns the numbers of the progress notifications that came.
func (c *client) progressed() (numbers []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		var params struct{ Progress int }
		if json.Unmarshal(r.Params, &params) == nil && r.Method == "notifications/progress" {
			numbers = append(numbers, params.Progress)
		}
	}
	return numbers
}

func (c *client) skips() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]error(nil), c.skipped...)
}

func (c *client) standbyEnds() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]error(nil), c.standbys...)
}

// done checks that a call was answered.
func (o outcome) done(t *testing.T) {
	t.Helper()
	if o.err != nil || o.result != toolResult {
		t.Errorf("the call came to %s, %v; want %s", o.result, o.err, toolResult)
	}
}

// failed checks that a call failed with errors that all are in its tree, after so
// long.
func (o outcome) failed(t *testing.T, after time.Duration, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(o.err, w) {
			t.Errorf("the call came to %q, %v; want an error that is %v", o.result, o.err, w)
		}
	}
	if o.after != after {
		t.Errorf("the call failed after %v, want %v", o.after, after)
	}
}

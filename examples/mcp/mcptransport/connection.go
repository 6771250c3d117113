package mcptransport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/eventsource"
)

const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodSubscribe   = "subscriptions/listen"
)

// closeTimeout bounds how long Close waits for the server's answer.
const closeTimeout = 5 * time.Second

// A connection is one MCP session. Each stream runs on a goroutine of its own, under a
// context that ends with ctx. The streams share incoming, and what mu guards.
type connection struct {
	transport Transport
	endpoint  *http.Request      // cloned for each request
	http      http.Client        // for everything that is not a stream
	streams   eventsource.Client // the settings of every stream, without a policy
	incoming  chan jsonrpc.Message

	ctx context.Context         // done when the connection is over; the cause says why
	end context.CancelCauseFunc // the first call counts

	closing  sync.Once
	closeErr error

	mu        sync.Mutex
	sessionID string
	version   string // of the protocol, as negotiated; empty before the handshake
	ready     bool   // the handshake of the resumable era is over
	calls     map[jsonrpc.ID]*call
	standby   standby
}

var _ mcp.Connection = (*connection)(nil)

// Read returns the next message from any stream. When the connection is over it
// returns io.EOF after Close, or an error that is mcp.ErrSessionMissing.
func (c *connection) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-c.incoming:
		return msg, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

// deliver hands a message to Read, and drops it if the connection ends first.
func (c *connection) deliver(msg jsonrpc.Message) {
	select {
	case c.incoming <- msg:
	case <-c.ctx.Done():
	}
}

// Write sends msg in a POST of its own (Sending Messages, 1) and returns when the answer
// has begun. The outcome of a call, even a refusal, is the response that Read returns
// for it. So an error of Write is about a notification or a response that the server
// did not accept, or about the end of the connection.
//
// The context of a call also governs the stream of its answer: a wait for a reconnection
// that cannot end before the context's deadline is not begun.
func (c *connection) Write(ctx context.Context, msg jsonrpc.Message) error {
	if c.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", mcp.ErrConnectionClosed, context.Cause(c.ctx))
	}
	req, _ := msg.(*jsonrpc.Request)
	switch {
	case req != nil && req.IsCall():
		c.call(ctx, req)
		return nil
	case resumable(c.protocolVersion()):
		return c.notify(ctx, msg)
	case req != nil && req.Method == methodCancelled:
		c.cancel(req.Params)
		return nil
	case req == nil:
		return fmt.Errorf("mcptransport: a response cannot be sent under protocol version %s: %w", c.protocolVersion(), errRejected)
	default:
		return c.notify(ctx, msg)
	}
}

// notify sends a message that is not answered.
func (c *connection) notify(ctx context.Context, msg jsonrpc.Message) error {
	ctx, cancel := c.within(ctx)
	defer cancel(nil)
	req, err := c.newPOST(ctx, msg, c.protocolVersion())
	if err != nil {
		return fmt.Errorf("%w: %w", err, errRejected)
	}
	resp, err := c.send(req)
	if err == nil && !accepted(resp) {
		err = c.explain(c.refusal(resp))
	}
	if err != nil {
		if errors.Is(err, mcp.ErrSessionMissing) {
			c.end(err)
		}
		return fmt.Errorf("%w: %w", err, errRejected)
	}
	resp.Body.Close()
	if note, ok := msg.(*jsonrpc.Request); ok && note.Method == methodInitialized {
		c.mu.Lock()
		c.ready = true
		c.mu.Unlock()
	}
	c.openStandby(ctx)
	return nil
}

// Close ends the session: it cuts off all streams and calls, then tells the server
// (Session Management, 5). It waits at most 5 s for the server's answer. The streams and
// calls end promptly by themselves.
func (c *connection) Close() error {
	c.closing.Do(func() {
		gone := errors.Is(context.Cause(c.ctx), mcp.ErrSessionMissing)
		c.end(io.EOF)
		if c.SessionID() != "" && !gone {
			c.closeErr = c.leave()
		}
	})
	return c.closeErr
}

// leave ends the session at the server, which may refuse it.
func (c *connection) leave() error {
	req := c.endpoint.Clone(context.WithoutCancel(c.ctx))
	req.Method = http.MethodDelete
	if err := c.prepare(req); err != nil {
		return fmt.Errorf("mcptransport: ending the session: %w", err)
	}
	client := c.http
	client.Timeout = closeTimeout
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("mcptransport: ending the session: %w", withoutURL(err))
	}
	return resp.Body.Close()
}

// SessionID returns the session's ID; it is empty if the server has not given one.
func (c *connection) SessionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessionID
}

func (c *connection) protocolVersion() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// greet begins the handshake of the resumable era, with neither a session nor a version
// in force (Session Management, 4: without a session ID).
func (c *connection) greet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessionID, c.version, c.ready = "", "", false
}

// greeted records what the handshake has settled.
func (c *connection) greeted(result json.RawMessage) {
	var settled struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(result, &settled) // the SDK finds the same errors
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = settled.ProtocolVersion
}

// within returns a context that ends with ctx, of the message, or with the
// connection.
func (c *connection) within(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}

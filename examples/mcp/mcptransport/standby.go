package mcptransport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// standby is the state of the stream for messages that are not answers.
type standby struct {
	running     bool
	final       bool   // it ended for good
	opened      bool   // it has been open before
	lastEventID string // where it got to when it was given up
}

// openStandby opens the standby stream if it is wanted and not open. It is called
// when the server has accepted a message, so a stream that was given up is opened
// again when the server is back.
//
// It waits until the request is on its way or the attempt has failed, because a server
// may answer the caller's next message with a question that only this stream can bring.
// It does not wait for the response, which some servers begin with the first event,
// except with a RoundTripper that ignores httptrace and so cannot tell.
func (c *connection) openStandby(ctx context.Context) {
	c.mu.Lock()
	s := c.standby
	if c.transport.DisableStandby || !c.ready || !resumable(c.version) || s.running || s.final {
		c.mu.Unlock()
		return
	}
	c.standby.running = true
	c.mu.Unlock()

	onItsWay := make(chan struct{})
	go c.listen(s, sync.OnceFunc(func() { close(onItsWay) }))
	select {
	case <-onItsWay:
	case <-ctx.Done():
	}
}

// listen runs the standby stream from where it was left.
func (c *connection) listen(s standby, onItsWay func()) {
	client := c.streams
	client.Policy = c.policy(c.protocolVersion(), Listen)
	client.Trace = watched(client.Trace, func() {
		onItsWay()
		s.opened = true
	}, onItsWay)
	ctx := httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { onItsWay() },
	})
	stream := client.Stream(c.newGET(ctx, s.lastEventID))
	err := c.listenTo(stream)
	s.lastEventID = stream.LastEventID()
	c.standbyEnded(s, err)
}

// watched returns a constructor of Traces that do what those of newTrace do, which may be
// nil, and also call opened and ended for each attempt.
func watched(newTrace func(*http.Request) *eventsource.Trace, opened, ended func()) func(*http.Request) *eventsource.Trace {
	return func(req *http.Request) *eventsource.Trace {
		var own eventsource.Trace
		if newTrace != nil {
			if t := newTrace(req); t != nil {
				own = *t
			}
		}
		w := own
		w.Open = func(i eventsource.OpenInfo) {
			opened()
			if own.Open != nil {
				own.Open(i)
			}
		}
		w.End = func(a policy.Attempt) {
			ended()
			if own.End != nil {
				own.End(a)
			}
		}
		return &w
	}
}

// listenTo delivers what the standby stream brings, and returns how it ended.
func (c *connection) listenTo(stream *eventsource.Stream) error {
	position := stream.LastEventID()
	for event, err := range stream.Events() {
		if err != nil {
			return err
		}
		if msg := c.decode(event); msg != nil {
			if resp, ok := msg.(*jsonrpc.Response); ok {
				c.unpark(resp)
			} else {
				c.deliver(msg)
			}
		}
		if event.LastEventID != position {
			position = event.LastEventID
			c.moved(jsonrpc.ID{}, position)
		}
	}
	return nil
}

// standbyEnded reports the end of the standby stream to everybody concerned: the
// caller's hook, and the calls that were waiting for an answer on it.
func (c *connection) standbyEnded(s standby, err error) {
	var refusal *eventsource.ResponseError
	refused := errors.As(err, &refusal)
	exhausted := errors.Is(err, policy.ErrExhausted)
	switch {
	case c.ctx.Err() != nil:
		if err = context.Cause(c.ctx); err == io.EOF {
			err = mcp.ErrConnectionClosed
		}
	case exhausted, refused && (refusal.StatusCode == http.StatusUnauthorized || refusal.StatusCode == http.StatusForbidden):
	case !s.opened && err == nil:
		err = ErrNotOffered
	case !s.opened && refused:
		// A server without a standby stream should answer 405 (Listening, 3), but
		// servers answer with any refusal. If the session is gone, the next message
		// will show it.
		err = fmt.Errorf("%w: %w", ErrNotOffered, err)
	default:
		if err = c.explain(err); errors.Is(err, mcp.ErrSessionMissing) {
			c.end(err)
		}
	}

	s.running, s.final = false, !exhausted
	var orphans []*call
	c.mu.Lock()
	c.standby = s
	for _, w := range c.calls {
		if w.parked {
			orphans = append(orphans, w)
		}
	}
	c.mu.Unlock()
	for _, w := range orphans {
		c.fail(w, fmt.Errorf("%w: the standby stream that was to bring it is over: %w", ErrLost, orEnded(err)))
	}
	if c.transport.OnStandbyEnd != nil {
		c.transport.OnStandbyEnd(err)
	}
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("the server asked to stop")
	}
	return err
}

// park leaves a call to the standby stream, for a server that accepted it with
// status 202 instead of answering.
func (c *connection) park(w *call) {
	c.mu.Lock()
	w.parked = c.standby.running
	c.mu.Unlock()
	if !w.parked {
		c.fail(w, fmt.Errorf("%w: the server accepted the call for later, and there is no standby stream to bring the answer", ErrLost))
		return
	}
	context.AfterFunc(w.ctx, func() { c.fail(w, context.Cause(w.ctx)) })
}

// unpark settles the call that a response on the standby stream is for. By Listening, 4
// only parked and resumed calls should be answered there, but it is better to take an
// answer that somebody is waiting for than to drop it.
func (c *connection) unpark(resp *jsonrpc.Response) {
	c.mu.Lock()
	w := c.calls[resp.ID]
	c.mu.Unlock()
	if w == nil {
		c.skip(fmt.Errorf("mcptransport: the standby stream brought an answer that nobody waits for, %v", resp.ID.Raw()))
		return
	}
	c.settle(w, resp)
}

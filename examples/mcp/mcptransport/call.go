package mcptransport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/policy"
)

// A call waits for its answer.
type call struct {
	request *jsonrpc.Request
	post    *http.Request           // sends it, before it is prepared
	version string                  // of the protocol, for this call
	ctx     context.Context         // of the POST and of the stream that answers it
	end     context.CancelCauseFunc // ends both
	parked  bool                    // the answer is to come on the standby stream; guarded by the connection's mu
}

// call sends req and starts a goroutine that receives the answer.
func (c *connection) call(ctx context.Context, req *jsonrpc.Request) {
	if req.Method == methodInitialize {
		c.greet()
	}
	w := &call{request: req}
	w.ctx, w.end = c.within(ctx)
	c.mu.Lock()
	if version := versionOf(req); version != "" {
		c.version = version
	}
	w.version = c.version
	c.calls[req.ID] = w
	c.mu.Unlock()

	var resp *http.Response
	post, err := c.newPOST(w.ctx, req, w.version)
	if err == nil {
		w.post = post
		resp, err = c.send(post)
	}
	if err == nil && accepted(resp) {
		if req.Method == methodInitialize {
			c.mu.Lock()
			c.sessionID = resp.Header.Get(headerSession) // Session Management, 1
			c.mu.Unlock()
		}
		c.openStandby(w.ctx)
	}
	go c.receive(w, resp, err)
}

// receive gets the answer to a call from where the server has put it: the body of the
// response, a stream that begins there, or the standby stream.
func (c *connection) receive(w *call, resp *http.Response, err error) {
	switch {
	case err != nil:
		c.fail(w, err)
	case accepted(resp) && isJSON(resp):
		c.readJSON(w, resp)
	case w.subscribes():
		c.follow(w, resp) // a refusal is for the policy too
	case !accepted(resp):
		c.fail(w, c.explain(c.refusal(resp)))
	case resp.StatusCode == http.StatusAccepted:
		resp.Body.Close()
		c.park(w)
	default:
		c.follow(w, resp)
	}
}

// subscribes reports whether the call's answer is a subscription.
func (w *call) subscribes() bool {
	return w.request.Method == methodSubscribe && !resumable(w.version)
}

// follow receives the answer to a call from the stream that begins with resp. The
// switch is the only place where the kinds of streams differ.
func (c *connection) follow(w *call, resp *http.Response) {
	var (
		next   *http.Request  // what follows resp when it breaks off
		answer = w.request.ID // the ID that the answer will have
		client = c.streams
		moved  = func(string) {}
	)
	switch {
	case resumable(w.version):
		client.Policy = c.policy(w.version, Call)
		next = c.newGET(w.ctx, "")
		moved = func(id string) { c.moved(w.request.ID, id) }
	case w.subscribes():
		client.Policy = policy.Constructor(func() policy.Reconnector { return forgetful{c.policy(w.version, Listen).New()} })
		client.Prepare = c.renew(w, &answer)
		next = w.post.Clone(w.ctx)
		// Since Prepare makes every attempt a call of its own, the request may be sent
		// again. An empty key tells net/http so, and is not sent.
		next.Header["Idempotency-Key"] = []string{}
	default:
		client.Policy = c.policy(w.version, Call)
		client.IdleTimeout = 0 // closing the stream would cancel the call
	}
	for msg, err := range c.messages(client.Adopt(resp, next), &answer, moved) {
		switch msg := msg.(type) {
		case nil:
			c.fail(w, err)
		case *jsonrpc.Response:
			c.settle(w, msg)
		case *jsonrpc.Request:
			if msg.IsCall() && !resumable(w.version) {
				c.skip(fmt.Errorf("mcptransport: the server called %s, which protocol version %s does not allow", msg.Method, w.version))
				continue
			}
			c.deliver(msg)
		}
	}
}

// renew returns a Prepare that makes each request a new subscription with its own ID,
// and remembers that ID.
func (c *connection) renew(w *call, answer *jsonrpc.ID) func(*http.Request) error {
	made := 1 // the caller's own
	return func(req *http.Request) error {
		made++
		*answer, _ = jsonrpc.MakeID(fmt.Sprintf("%v/%d", w.request.ID.Raw(), made))
		err := setBody(req, &jsonrpc.Request{ID: *answer, Method: w.request.Method, Params: w.request.Params})
		if err != nil {
			return err
		}
		return c.prepare(req)
	}
}

// defaultMaxBody limits an answer in JSON as eventsource limits one in an event.
const defaultMaxBody = 64 << 20

// readJSON receives the answer to a call from the body of resp.
func (c *connection) readJSON(w *call, resp *http.Response) {
	defer resp.Body.Close()
	limit := c.transport.Client.MaxEventSize
	if limit == 0 {
		limit = defaultMaxBody
	}
	body := io.Reader(resp.Body)
	if limit > 0 {
		body = io.LimitReader(body, int64(limit)+1)
	}
	data, err := io.ReadAll(body)
	switch {
	case err != nil:
		c.fail(w, fmt.Errorf("%w: the body broke off: %w", ErrLost, err))
		return
	case limit > 0 && len(data) > limit:
		c.fail(w, fmt.Errorf("%w: it is larger than %d bytes", ErrLost, limit))
		return
	}
	msg, err := jsonrpc.DecodeMessage(data)
	if answer, ok := msg.(*jsonrpc.Response); ok && answer.ID == w.request.ID {
		c.settle(w, answer)
		return
	}
	if jerr := jsonError(data); jerr != nil {
		err = jerr
	} else if err == nil {
		err = errors.New("the server answered another call")
	}
	c.fail(w, fmt.Errorf("%w: %w", ErrLost, err))
}

// fail tells a call that there will not be an answer, and why.
func (c *connection) fail(w *call, why error) {
	if errors.Is(why, mcp.ErrSessionMissing) {
		c.end(why) // Read tells all calls
	}
	c.settle(w, &jsonrpc.Response{Error: why})
}

// settle answers a call once; later answers to it are dropped.
func (c *connection) settle(w *call, answer *jsonrpc.Response) {
	id := w.request.ID
	c.mu.Lock()
	waiting := c.calls[id] == w
	if waiting {
		delete(c.calls, id)
	}
	c.mu.Unlock()
	w.end(nil)
	if !waiting {
		return
	}
	if w.request.Method == methodInitialize && answer.Error == nil {
		c.greeted(answer.Result)
	}
	answer.ID = id // a subscription may have been renewed under another
	c.deliver(answer)
}

// cancel cancels the call that a cancellation names, in the era in which closing its
// stream does that.
func (c *connection) cancel(params json.RawMessage) {
	var cancelled struct {
		RequestID any `json:"requestId"`
	}
	if json.Unmarshal(params, &cancelled) != nil {
		return
	}
	id, err := jsonrpc.MakeID(cancelled.RequestID)
	if err != nil {
		return
	}
	c.mu.Lock()
	w := c.calls[id]
	c.mu.Unlock()
	if w != nil {
		w.end(context.Canceled)
	}
}

package mcptransport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/reprise-sse/reprise/policy"
)

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
)

// prepare completes any request: with the session (Session Management, 2) and the
// protocol version (Protocol Version Header) in force, then by the caller's hook. The
// streams call it for each of their attempts.
func (c *connection) prepare(req *http.Request) error {
	c.mu.Lock()
	session, version := c.sessionID, c.version
	c.mu.Unlock()
	if session != "" {
		req.Header.Set(headerSession, session)
	}
	if version != "" && req.Header.Get(headerVersion) == "" {
		req.Header.Set(headerVersion, version)
	}
	if c.transport.Client.Prepare != nil {
		return c.transport.Client.Prepare(req)
	}
	return nil
}

// newGET returns the request that opens the standby stream with an empty
// lastEventID, and resumes any stream with its own (Resumability, 2: always by GET).
func (c *connection) newGET(ctx context.Context, lastEventID string) *http.Request {
	req := c.endpoint.Clone(ctx)
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	return req
}

// newPOST returns the request that sends msg under a protocol version.
func (c *connection) newPOST(ctx context.Context, msg jsonrpc.Message, version string) (*http.Request, error) {
	req := c.endpoint.Clone(ctx)
	req.Method = http.MethodPost
	if err := setBody(req, msg); err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream") // Sending Messages, 2
	req.Header.Set("Accept-Encoding", "identity")                   // compressed events tend to be held back
	if version != "" {
		req.Header.Set(headerVersion, version)
	}
	if call, ok := msg.(*jsonrpc.Request); ok && !resumable(version) {
		// The era without sessions has these headers, so that a proxy can route by them.
		req.Header.Set(headerMethod, call.Method)
		if name := target(call); name != "" {
			req.Header.Set(headerName, name)
		}
	}
	return req, nil
}

func setBody(req *http.Request, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("mcptransport: %w", err)
	}
	req.ContentLength = int64(len(data))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	req.Body, err = req.GetBody()
	return err
}

// send sends a POST and returns the answer, whatever its status.
func (c *connection) send(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if err := c.prepare(req); err != nil {
		return nil, fmt.Errorf("mcptransport: preparing the request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("mcptransport: sending the message: %w", withoutURL(err))
	}
	return resp, nil
}

func accepted(resp *http.Response) bool {
	return resp.StatusCode >= 200 && resp.StatusCode <= 299
}

// refusal returns the error for an answer that does not accept the message, and closes
// the answer. To the engine it is a stream that did not open.
func (c *connection) refusal(resp *http.Response) error {
	client := c.streams
	client.Policy = policy.Never()
	for _, err := range client.Adopt(resp, nil).Events() {
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("mcptransport: the server answered %s", resp.Status)
}

func isJSON(resp *http.Response) bool {
	essence, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(essence), "application/json")
}

// target returns what a call is about, for the header that says so.
func target(call *jsonrpc.Request) string {
	var params struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	}
	if json.Unmarshal(call.Params, &params) != nil {
		return ""
	}
	switch call.Method {
	case "tools/call", "prompts/get":
		return params.Name
	case "resources/read":
		return params.URI
	default:
		return ""
	}
}

// versionOf returns the protocol version that a call carries, as calls in the era
// without a handshake do, or the empty string.
func versionOf(call *jsonrpc.Request) string {
	var params struct {
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	if json.Unmarshal(call.Params, &params) != nil {
		return ""
	}
	return params.Meta.Version
}

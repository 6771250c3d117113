package mcptransport

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/eventsource"
)

var (
	// ErrLost reports that the server has accepted a call, but that the stream ended
	// without the answer. The server may have done the work, so calling again means
	// making another call. The error wraps the cause. An error of a call that is not
	// ErrLost means that the server did not accept it.
	ErrLost = errors.New("mcptransport: the stream ended without the answer")

	// ErrNotOffered reports that the server does not offer a standby stream, which the
	// protocol allows. It wraps the answer that said so.
	ErrNotOffered = errors.New("mcptransport: the server offers no standby stream")

	// errRejected marks the errors of Write that concern one message only. The SDK
	// takes any other error for the end of the connection; it recognises the mark
	// by its code.
	errRejected = &jsonrpc.Error{Code: -32005, Message: "the message was not accepted"}
)

// explain says what the end of a stream, or the refusal of a message, means in MCP.
// Nothing else in this package looks at the status of a refusal.
func (c *connection) explain(err error) error {
	var refusal *eventsource.ResponseError
	if !errors.As(err, &refusal) {
		return err
	}
	if refusal.StatusCode == http.StatusNotFound && c.SessionID() != "" {
		// Session Management, 4: whatever the body says
		return fmt.Errorf("%w: %w", mcp.ErrSessionMissing, err)
	}
	if jerr := jsonError(refusal.Body); jerr != nil {
		return fmt.Errorf("%w: %w", jerr, err)
	}
	return err
}

// withoutURL returns an error of an http.Client without the URL, whose query may
// hold secrets.
func withoutURL(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

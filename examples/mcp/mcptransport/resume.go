package mcptransport

import (
	"context"
	"fmt"
	"iter"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/reprise-sse/reprise/policy"
)

// A Position is how far a resumable stream has got: everything that another process
// needs to continue it.
type Position struct {
	// SessionID and ProtocolVersion are those of the connection; SessionID is
	// empty with a server that has no sessions.
	SessionID, ProtocolVersion string

	// LastEventID is the ID of the last event that was taken.
	LastEventID string

	// Call is the ID of the call that the stream answers, or the zero ID for the
	// standby stream. To store it, store what its Raw method returns; jsonrpc.MakeID
	// turns that into an ID again, if a number is given as a float64.
	Call jsonrpc.ID
}

// moved calls the caller's hook with the position of a stream.
func (c *connection) moved(call jsonrpc.ID, lastEventID string) {
	if c.transport.OnPosition == nil {
		return
	}
	c.mu.Lock()
	p := Position{SessionID: c.sessionID, ProtocolVersion: c.version, LastEventID: lastEventID, Call: call}
	c.mu.Unlock()
	c.transport.OnPosition(p)
}

// Resume continues the stream of a call from a stored Position, in the session that
// it was made in. It yields the messages that follow, and the answer last; if there
// is no answer, it yields an error that is [ErrLost] instead. It also yields the
// server's requests, which the caller has to answer.
//
// For a Position without an event ID, or of a revision whose streams cannot be
// resumed, the error is also policy.ErrNotResumable. Everything runs on the goroutine
// that ranges, which ends the stream by leaving the loop; OnPosition and OnSkip are
// called there too. The sequence is single use.
func (t *Transport) Resume(ctx context.Context, p Position) iter.Seq2[jsonrpc.Message, error] {
	c, err := t.connect(ctx)
	if err == nil && (p.LastEventID == "" || !resumable(p.ProtocolVersion)) {
		err = policy.ErrNotResumable
	}
	if err != nil {
		return func(yield func(jsonrpc.Message, error) bool) {
			yield(nil, fmt.Errorf("%w: %w", ErrLost, err))
		}
	}
	c.sessionID, c.version = p.SessionID, p.ProtocolVersion
	client := c.streams
	client.Policy = c.policy(p.ProtocolVersion, Call)
	return c.messages(client.Stream(c.newGET(ctx, p.LastEventID)), &p.Call, func(id string) { c.moved(p.Call, id) })
}

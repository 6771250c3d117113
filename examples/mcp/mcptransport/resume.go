package mcptransport

import (
	"context"
	"fmt"
	"iter"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/reprise-sse/reprise/policy"
)

// A Position is how far a resumable stream has got: all that another process needs
// to go on with it.
type Position struct {
	// SessionID and ProtocolVersion are those of the connection; SessionID is
	// empty with a server that has no sessions.
	SessionID, ProtocolVersion string

	// LastEventID is the ID of the last event that was taken.
	LastEventID string

	// Call is the ID of the call that the stream answers, and the zero ID for the
	// standby stream. To store it, store what its Raw method returns; jsonrpc.MakeID
	// makes an ID of that again, a number as a float64.
	Call jsonrpc.ID
}

// moved tells the caller's hook where a stream has got to.
func (c *connection) moved(call jsonrpc.ID, lastEventID string) {
	if c.transport.OnPosition == nil {
		return
	}
	c.mu.Lock()
	p := Position{SessionID: c.sessionID, ProtocolVersion: c.version, LastEventID: lastEventID, Call: call}
	c.mu.Unlock()
	c.transport.OnPosition(p)
}

// Resume goes on with the stream of a call from a stored Position, in the session
// that it was made in. It yields the messages that follow, and the answer last;
// what comes last instead of the answer is an error that is [ErrLost]. Requests of
// the server are yielded too; to answer them is the caller's part.
//
// It returns policy.ErrNotResumable, as an error that is ErrLost, for a Position
// without an event ID, or of a revision whose streams cannot be resumed. Everything
// runs on the goroutine that ranges, which ends the stream by leaving the loop;
// OnPosition and OnSkip are called there too. The sequence is single use.
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

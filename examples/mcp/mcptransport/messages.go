package mcptransport

import (
	"encoding/json"
	"fmt"
	"iter"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/reprise-sse/reprise/eventsource"
)

// messages yields what a stream brings for the call whose answer has the ID *answer;
// the answer comes last. If the stream ends without it, the last item is an error that
// is ErrLost. The position moves past a message once it has been taken.
func (c *connection) messages(stream *eventsource.Stream, answer *jsonrpc.ID, moved func(lastEventID string)) iter.Seq2[jsonrpc.Message, error] {
	return func(yield func(jsonrpc.Message, error) bool) {
		position := stream.LastEventID()
		for event, err := range stream.Events() {
			if err != nil {
				yield(nil, fmt.Errorf("%w: %w", ErrLost, c.explain(err)))
				return
			}
			if msg := c.decode(event); msg != nil {
				switch resp, ok := msg.(*jsonrpc.Response); {
				case !ok:
					if !yield(msg, nil) {
						return
					}
				case resp.ID == *answer:
					yield(msg, nil)
					return
				default:
					c.skip(fmt.Errorf("mcptransport: a stream brought the answer to another call, %v", resp.ID.Raw()))
				}
			}
			if event.LastEventID != position {
				position = event.LastEventID
				moved(position)
			}
		}
		yield(nil, ErrLost)
	}
}

// decode returns the message in an event. It returns nil if there is none, as in the
// event without data that primes a stream (Sending Messages, 6).
func (c *connection) decode(event eventsource.Event) jsonrpc.Message {
	if event.Data == "" {
		return nil
	}
	if event.Type != "message" {
		c.skip(fmt.Errorf("mcptransport: an event has the type %q, which MCP does not use", event.Type))
		return nil
	}
	msg, err := jsonrpc.DecodeMessage([]byte(event.Data))
	if err != nil {
		c.skip(fmt.Errorf("mcptransport: an event holds no message: %w", err))
		return nil
	}
	return msg
}

func (c *connection) skip(err error) {
	if c.transport.OnSkip != nil {
		c.transport.OnSkip(err)
	}
}

// jsonError returns the JSON-RPC error in a body. It may come without an ID, which
// the SDK's decoder does not accept.
func jsonError(body []byte) *jsonrpc.Error {
	var answer struct {
		Error *jsonrpc.Error `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return nil
	}
	return answer.Error
}

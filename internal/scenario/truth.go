package scenario

import (
	"net/http"
	"strings"
	"time"

	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/policy"
)

// A Truth is what an attempt was according to the scenario alone: what was delivered to
// the client, as the reference decoder reads it. It does not depend on what the library
// says.
type Truth struct {
	// Streamed is set if the response is an event stream, Rejected if there is a response
	// that is not an event stream.
	Streamed, Rejected bool

	// Decoded is what was delivered. If TooLarge is set, it ends before an event that is
	// too large.
	Decoded  reference.Result
	TooLarge bool

	// Messages is the number of decoded events with data. RetrySent is set if a valid
	// retry field was delivered.
	Messages  int
	RetrySent bool

	// Retry is the reconnection time in force at the end. LastEventID is the last event
	// ID, before a Forget takes effect. Asked is the longest wait that the server asked
	// for.
	Retry       time.Duration
	HasRetry    bool
	LastEventID string
	Asked       time.Duration
}

// Truths returns the truth about each attempt of the record.
func (r *Record) Truths() []Truth {
	truths := make([]Truth, len(r.Attempts))
	id := r.Scenario.Caller.seed()
	var retry time.Duration
	var hasRetry bool
	for i, a := range r.Attempts {
		t := &truths[i]
		// An answer that comes at the moment when ConnectTimeout passes may be too late.
		// Only the library knows.
		if late := a.Reported != nil && a.Reported.Kind == policy.Failed; a.HasAnswer && !late {
			t.Streamed = a.Answer.streams()
			t.Rejected = !t.Streamed
		}
		if t.Streamed {
			var input []byte
			var before int
			before, t.TooLarge = reference.TooLarge(a.Delivered, "", MaxEventSize)
			input = a.Delivered[:before]
			t.Decoded = reference.Decode(input, id)
			id = t.Decoded.LastEventID
			if t.Decoded.HasRetry {
				retry, hasRetry = t.Decoded.Retry, true
				t.RetrySent = true
			}
			for _, event := range t.Decoded.Events {
				if event.Data != "" {
					t.Messages++
				}
			}
		}
		t.Retry, t.HasRetry, t.LastEventID = retry, hasRetry, id
		if hasRetry {
			t.Asked = retry
		}
		if t.Rejected {
			t.Asked = max(t.Asked, a.RetryAfter)
		}
		if _, stops := a.Decided.Stopped(); !stops && a.Decided.Forgets() {
			id = ""
		}
	}
	return truths
}

// streams reports whether an answer is an event stream. The generator's answers
// have one Content-Type, without odd spellings.
func (a Answer) streams() bool {
	if a.Status != 0 && a.Status != http.StatusOK {
		return false
	}
	if a.Type == "" {
		return true
	}
	essence, _, _ := strings.Cut(a.Type, ";")
	return essence == "text/event-stream"
}

// seed returns the ID that the stream starts with, which is that of its request.
func (c Caller) seed() string {
	if c.Adopt == Alone {
		return ""
	}
	return c.LastEventID
}

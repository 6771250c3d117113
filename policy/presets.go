package policy

import (
	"fmt"
	"net/http"
	"time"
)

// presets are the Rules that streams share while they are unchanged.
var presets = [...]struct{ rules, complete *Rules }{
	newPreset(WHATWG()), newPreset(Resilient()), newPreset(MCPCall()), newPreset(MCPListen()),
}

func newPreset(r Rules) struct{ rules, complete *Rules } {
	return struct{ rules, complete *Rules }{&r, r.complete()}
}

// WHATWG returns the policy of the HTML standard, section 9.2, and of browsers:
// reconnect after the end of the body, after a broken connection and after a
// failure to connect; stop at every response that is not an event stream, without an
// error after status 204. It never gives up on a server that cannot be reached.
// It is the zero [Rules].
func WHATWG() Rules { return Rules{} }

// Resilient returns [WHATWG] with patience for temporary refusals: Retryable is true of
// the status codes 408, 425, 429, 500, 502, 503 and 504. A Retry-After header that comes
// with them is obeyed.
func Resilient() Rules { return Rules{Retryable: passes} }

// Never returns a policy that makes one attempt. The stream ends without an error
// after a clean end, and otherwise with the attempt's error; for a body that ended
// inside an event that is eventsource.ErrTruncated. A restart by the caller, which is
// a reconnection, ends it with [ErrExhausted].
func Never() Policy { return Func(never) }

func never(a Attempt) Decision {
	if a.Kind == Restarted {
		// A nil error would look like an end that the server chose.
		return Stop(fmt.Errorf("%w: this policy allows none", ErrExhausted))
	}
	return Stop(a.Err)
}

// MCPCall returns the policy for the answer to one MCP request (revisions
// 2025-03-26 to 2025-11-25), which a POST begins and GETs resume. It stops when
// there is no event ID to resume from, after 5 fruitless reconnections in a row,
// and when a message cannot come within 300 s after the end of the first response
// or of the last one that brought a message. A clean end after a retry field and
// without a message is a poll. The caller leaves the loop when the answer has
// come.
func MCPCall() Rules {
	r := mcpRules()
	r.MaxFruitless = 5
	r.Budget = 300 * time.Second
	r.PollAfter = -1 // any retry field
	r.RequireLastEventID = true
	r.MessageTimeout = 60 * time.Second
	r.Idle = 30 * time.Second
	return r
}

// MCPListen returns the policy for MCP's standby stream, which a GET opens
// (revisions 2025-03-26 to 2025-11-25). It has no budget, and stops after 12
// fruitless reconnections in a row; a clean end without a message is a poll if
// the server asked for at least 10 s. Until the stream has opened for the first
// time, every refusal that is not retryable ends it, because the server does not offer
// such a stream, unless it may be the refusal of a last event ID: see
// Rules.ForgetRefusedID.
func MCPListen() Rules {
	r := mcpRules()
	r.MaxFruitless = 12
	r.PollAfter = 10 * time.Second
	r.ForgetRefusedID = true
	return r
}

// mcpRules returns what both MCP policies share.
func mcpRules() Rules {
	return Rules{
		Delay:         time.Second,
		Factor:        1.5,
		Jitter:        0.25,
		ProgressAfter: 10 * time.Second,
		Retryable:     passesInMCP,
	}
}

// passes reports whether a refusal with this status is usually temporary.
func passes(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// passesInMCP is passes for MCP, where a 409 means that the server has not yet
// noticed the end of the previous connection, and every 5xx except 501 is worth
// another try.
func passesInMCP(status int) bool {
	return passes(status) || status == http.StatusConflict ||
		status >= 500 && status <= 599 && status != http.StatusNotImplemented
}

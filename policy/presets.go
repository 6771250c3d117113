package policy

import (
	"fmt"
	"net/http"
	"time"
)

// The rules of the presets, which all streams share.
var (
	whatwgRules    = Rules{}.complete()
	resilientRules = ResilientRules().complete()
	mcpCallRules   = MCPCallRules().complete()
)

// WHATWG returns the policy of the HTML standard, section 9.2, and of browsers:
// reconnect after the end of the body, after a broken connection and after a
// failure to connect; stop at every response that is not an event stream, without an
// error after status 204. It never gives up on a server that cannot be reached.
// It is [Rules] with nothing set.
func WHATWG() Reconnector { return &ruled{rules: whatwgRules} }

// Resilient returns [WHATWG] with patience for temporary refusals: the status codes
// 408, 425, 429, 500, 502, 503 and 504. A Retry-After header that comes with them is
// obeyed. It is [ResilientRules] unchanged.
func Resilient() Reconnector { return &ruled{rules: resilientRules} }

// ResilientRules returns the Rules of [Resilient], for callers who want to
// change a number.
func ResilientRules() Rules {
	return Rules{Temporary: passes}
}

// Never returns a policy that makes one attempt. The stream ends without an error
// after a clean end, and otherwise with the attempt's error; for a body that ended
// inside an event that is eventsource.ErrTruncated. A restart by the caller, which is
// a reconnection, ends it with [ErrExhausted].
func Never() Reconnector { return Func(never) }

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
// come. It is [MCPCallRules] unchanged.
func MCPCall() Reconnector { return &ruled{rules: mcpCallRules} }

// MCPCallRules returns the Rules of [MCPCall], for callers who want to change a
// number.
func MCPCallRules() Rules {
	r := mcpRules()
	r.MaxFruitless = 5
	r.Budget = 300 * time.Second
	r.PollAfter = -1 // any retry field
	r.NeedID = true
	r.Idle = 30 * time.Second
	return r
}

// MCPListen returns the policy for MCP's standby stream, which a GET opens
// (revisions 2025-03-26 to 2025-11-25). It has no budget, and stops after 12
// fruitless reconnections in a row; a clean end without a message is a poll if
// the server asked for at least 10 s. Until the stream has opened for the first
// time, every refusal that is not temporary ends it, because the server does not
// offer such a stream. Later, a 4xx that is neither temporary nor 401, 403, 404 or
// 405 counts as a refusal of the last event ID: the stream forgets the ID and goes
// on, and the attempt counts as fruitless.
//
// To change a number, pass changed [MCPListenRules] to [MCPListenWith].
func MCPListen() Reconnector { return MCPListenWith(MCPListenRules()) }

// MCPListenRules returns the Rules within [MCPListen]. They do not cover refusals of
// the last event ID, which [MCPListenWith] adds.
func MCPListenRules() Rules {
	r := mcpRules()
	r.MaxFruitless = 12
	r.PollAfter = 10 * time.Second
	return r
}

// MCPListenWith returns [MCPListen] with rules in place of [MCPListenRules]. It
// panics where [Rules.New] does.
func MCPListenWith(rules Rules) Reconnector {
	return &mcpListen{rules: rules, next: rules.New()}
}

// mcpRules returns what both MCP policies share.
func mcpRules() Rules {
	return Rules{
		Delay:         time.Second,
		Factor:        1.5,
		Jitter:        0.25,
		ProgressAfter: 10 * time.Second,
		Temporary:     passesInMCP,
	}
}

type mcpListen struct {
	rules  Rules
	next   Reconnector // of the rules
	opened bool        // an attempt of the stream has opened
}

var _ Reconnector = (*mcpListen)(nil)

// Next implements [Reconnector].
func (l *mcpListen) Next(a Attempt) Decision {
	if !a.Open.IsZero() {
		l.opened = true
	}
	if !l.opened || !l.refusesID(a) {
		return l.next.Next(a)
	}
	// The rules see an ordinary failure of a stream without an ID.
	a.Kind, a.LastEventID = Failed, ""
	return l.next.Next(a).Forget()
}

// refusesID reports whether a is a response that, once the stream has been open,
// can only be meant for its last event ID.
func (l *mcpListen) refusesID(a Attempt) bool {
	if a.Kind != Rejected || a.Status < 400 || a.Status > 499 {
		return false
	}
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return false
	}
	return l.rules.Temporary == nil || !l.rules.Temporary(a.Status)
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

// Package scenario runs whole lives of event streams, written down as data: what
// the server answers, what the policy decides and what the caller does. The
// property tests of the guarantees make such scenarios at random ([Generate]), run
// them ([Run]), and look at what happened ([Record]). One that fails is made
// smaller ([Shrink]) and printed as Go source ([Scenario.GoString]), fit to be
// pasted into a table of cases.
//
// It is for tests, and runs inside testing/synctest bubbles only: years pass in no
// time. There is no network in it. A scripted http.RoundTripper stands for it,
// which behaves as net/http's Transport does as far as a client can see.
package scenario

import (
	"time"

	"github.com/reprise-sse/reprise/policy"
)

// A Scenario is the life of one stream. Every value of it can be run, the zero
// value too: its server answers the only request with status 204.
type Scenario struct {
	// Server answers the requests in order; once it has no more, with status 204.
	// With an adopted response the first answer is that.
	Server []Answer

	// Chunk cuts the bodies into reads: 0 gives as much as there is and fits, a
	// positive number so many bytes at most, and a negative one, the seed of a
	// generator, a few bytes or none.
	Chunk int

	Policy Policy
	Caller Caller
}

// An Answer is what the server does with one request.
type Answer struct {
	// Failure, if any, is all that comes of it, after Delay.
	Failure Failure

	// Delay is the time until the header of the response.
	Delay time.Duration

	// Status is the response's; 0 means 200.
	Status int

	// Type is the Content-Type; empty means text/event-stream, "-" means none.
	Type string

	// RetryAfter is the header of that name. A value that starts with + is sent as
	// the date that is so much, a Go duration, after the response's Date.
	RetryAfter string

	// Body and End are the response's body. A server sends on time, whether or not
	// the client reads.
	Body []Piece
	End  End

	// Deaf makes a body that heeds its Close but not the request's context, as
	// one that a RoundTripper has wrapped may be.
	Deaf bool
}

// A Failure keeps a response from coming.
type Failure uint8

// The failures of an attempt.
const (
	None         Failure = iota
	Refused              // the request fails with ErrRefused
	Permanent            // it fails with ErrRefused in a backoff.PermanentError
	Unprepared           // Client.Prepare fails with ErrUnprepared; no request is sent
	NeverAnswers         // the request is held for as long as its context lives
)

// An End is how a body ends.
type End uint8

// The ends of a body.
const (
	Clean End = iota // io.EOF
	Cut              // ErrCut
	Hold             // not at all
)

// A Piece is a part of a body, which comes a time after the part before it. Times
// repeats the text; 0 means once.
type Piece struct {
	Wait  time.Duration
	Text  string
	Times int
}

// A Policy is the stream's policy: the preset of that name, Rules, or a script.
type Policy struct {
	// Preset is WHATWG, Resilient, Never, MCPCall or MCPListen; or Rules for the
	// rules in that field, with Resilient's temporary statuses if Temporary is set
	// and a random number of Random; or empty for the script.
	Preset    string
	Rules     policy.Rules
	Temporary bool
	Random    float64

	// Script holds the decisions, in order; after the last one the policy stops
	// with ErrScriptEnded.
	Script []Decision
}

// A Decision is a policy.Decision in the making.
type Decision struct {
	Verb   Verb
	After  time.Duration
	Within *time.Duration
	Idle   time.Duration
	Forget bool
}

// A Verb is what a Decision does.
type Verb uint8

// The verbs of decisions.
const (
	Reconnect Verb = iota // policy.After and its refinements
	Stop                  // policy.Stop(nil)
	GiveUp                // policy.Stop(ErrGivenUp)
	Undecided             // the zero policy.Decision
)

// A Caller is whoever ranges over the stream, and the settings of their Client.
type Caller struct {
	// Request
	Post        bool    // a POST, not a GET
	Key         bool    // with an Idempotency-Key
	Payload     Payload // of a POST
	LastEventID string  // the ID to resume from
	Adopt       Adopt   // whether the first answer is adopted

	// Deadline is that of the request's context, from the start; 0 means none.
	// When a stream has gone on for Horizon, its context is cancelled in any case.
	Deadline time.Duration

	// Settings of the Client. MaxEventSize is always [MaxEventSize].
	ConnectTimeout time.Duration
	IdleTimeout    time.Duration

	// Slow is how long the body of the loop takes.
	Slow time.Duration

	Actions []Action
}

// A Payload is the body of a request.
type Payload uint8

// The payloads.
const (
	Empty    Payload = iota
	Once             // a Body without GetBody
	Repeated         // with GetBody
)

// Adopt is what happens with the first answer.
type Adopt uint8

// The uses of the first answer.
const (
	Request Adopt = iota // it answers the first request
	Resume               // it is adopted, and requests follow
	Alone                // it is adopted, and no request follows
)

// An Action is something that the caller does.
type Action struct {
	// On is a point in the life of the stream, and N says which time it is passed,
	// from 1; 0 means 1. The point Start is passed once, before all others.
	On Point
	N  int

	// After is how much later it is done, on another goroutine. Aside does it on
	// another goroutine at the same moment. Otherwise it is done at the point
	// itself, on the goroutine that ranges.
	After time.Duration
	Aside bool

	Do Deed
}

// A Point is a place in the life of a stream.
type Point uint8

// The points at which a caller can act.
const (
	Start      Point = iota
	Prepare          // Client.Prepare
	Connect          // Trace.Connect
	RoundTrip        // the request has reached the transport
	Open             // Trace.Open
	Comment          // Trace.Comment
	Retry            // Trace.Retry
	Body             // the body of the loop
	AttemptEnd       // Trace.End
	Decide           // Reconnector.Next
	Wait             // Trace.Wait
	Done             // Trace.Done
)

// A Deed is what the caller does at a point. What can only be done by the goroutine
// that ranges is not done by another one.
type Deed uint8

// The deeds.
const (
	Nothing Deed = iota
	Cancel       // cancel the context with ErrCancelled
	Restart      // call Stream.Reconnect
	Leave        // break out of the loop; in its body only
	Panic        // panic with ErrPanic
	Exit         // call runtime.Goexit
)

const (
	// Horizon is the longest life of a stream: its context is cancelled then.
	Horizon = 40 * 24 * time.Hour

	// LongestRun is the most that a run takes. A bubble's time ends after 262
	// years, and with it the program.
	LongestRun = Horizon + 24*time.Hour + aftermath
	aftermath  = 5 * 24 * time.Hour // in which nothing more may happen

	// MaxRequests is how many requests a stream may send before its context is
	// cancelled and Record.Runaway set.
	MaxRequests = 200

	// MaxEventSize is the limit of every stream.
	MaxEventSize = 512
)

// Secret is in the user info, the query and the headers of every request.
const Secret = "hunter2"

// Package scenario runs whole lives of event streams that are written down as data:
// what the server answers, what the policy decides and what the caller does. The
// property tests of the guarantees make such scenarios at random ([Generate]), run
// them ([Run]), and look at what happened ([Record]). A scenario that fails is made
// smaller ([Shrink]) and printed as Go source ([Scenario.GoString]), which can be
// pasted into a table of cases.
//
// It is for tests, and runs only inside testing/synctest bubbles, where years pass in
// no time. It has no network: a scripted http.RoundTripper takes its place, which
// behaves like net/http's Transport as far as a client can see.
package scenario

import (
	"time"

	"github.com/reprise-sse/reprise/policy"
)

// A Scenario is the life of one stream. Every value can be run. In the zero value the
// server answers the only request with status 204.
type Scenario struct {
	// Server is the answers to the requests, in order; after the last one the server
	// answers with status 204. If a response is adopted, it is the first answer.
	Server []Answer

	// Chunk cuts the bodies into reads. With 0 a read brings as much as there is and
	// fits, with a positive number at most that many bytes. A negative number is the
	// seed of a generator, and each read brings a few bytes or none.
	Chunk int

	Policy Policy
	Caller Caller
}

// An Answer is what the server does with one request.
type Answer struct {
	// Failure, if any, is the outcome of the request, after Delay.
	Failure Failure

	// Delay is the time until the header of the response.
	Delay time.Duration

	// Status is the status of the response; 0 means 200.
	Status int

	// Type is the Content-Type; empty means text/event-stream, "-" means none.
	Type string

	// RetryAfter is the Retry-After header. A value that starts with + is a Go duration,
	// and is sent as the date that is this much later than the response's Date.
	RetryAfter string

	// Body and End are the response's body. The server sends on time, whether or not the
	// client reads.
	Body []Piece
	End  End

	// Deaf makes a body that obeys its Close but ignores the request's context, as a
	// body that a RoundTripper has wrapped may do.
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

// A Piece is a part of a body, which comes some time after the part before it. Times is
// how often the text is repeated; 0 means once.
type Piece struct {
	Wait  time.Duration
	Text  string
	Times int
}

// A Policy is the stream's policy: a preset, Rules, or a script.
type Policy struct {
	// Preset is WHATWG, Resilient, Never, MCPCall or MCPListen. If it is Rules, the
	// policy is the field Rules, with Resilient's retryable statuses if Retryable is
	// set, and with Random as the random number. If it is empty, the policy is Script.
	Preset    string
	Rules     policy.Rules
	Retryable bool
	Random    float64

	// Script holds the decisions, in order; after the last one the policy stops
	// with ErrScriptEnded.
	Script []Decision
}

// A Decision describes a policy.Decision.
type Decision struct {
	Verb    Verb
	After   time.Duration
	Within  *time.Duration
	Message time.Duration
	Idle    time.Duration
	Forget  bool
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

// A Caller is the code that ranges over the stream, and the settings of its Client.
type Caller struct {
	// Request
	Post        bool    // a POST, not a GET
	Key         bool    // with an Idempotency-Key
	Payload     Payload // of a POST
	LastEventID string  // the ID to resume from
	Adopt       Adopt   // whether the first answer is adopted

	// Deadline is the deadline of the request's context, from the start; 0 means none.
	// In any case the context is cancelled when the stream has lasted for Horizon.
	Deadline time.Duration

	// Settings of the Client. MaxEventSize is always [MaxEventSize].
	ConnectTimeout time.Duration
	IdleTimeout    time.Duration

	// Slow is how long the loop's body takes.
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
	// On is a point in the life of the stream, and N is which passing of it is meant,
	// from 1; 0 means 1. The point Start is passed once, before all others.
	On Point
	N  int

	// After is how much later the deed is done, on another goroutine. With Aside it is
	// done on another goroutine at the same moment. Otherwise it is done at the point
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

// A Deed is what the caller does at a point. What only the goroutine that ranges can do
// is not done by another one.
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

	// LongestRun is the longest time that a run takes. A bubble's time ends after 262
	// years, and the program ends with it.
	LongestRun = Horizon + 24*time.Hour + aftermath
	aftermath  = 5 * 24 * time.Hour // nothing more may happen in this time

	// MaxRequests is how many requests a stream may send before its context is cancelled
	// and Record.Runaway is set.
	MaxRequests = 200

	// MaxEventSize is the limit of every stream.
	MaxEventSize = 512
)

// Secret is in the user info, the query and the headers of every request.
const Secret = "hunter2"

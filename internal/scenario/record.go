package scenario

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// The errors that a scenario brings into a stream.
var (
	ErrRefused     = errors.New("scenario: connection refused")
	ErrUnprepared  = errors.New("scenario: no token to be had")
	ErrCut         = errors.New("scenario: connection reset by peer")
	ErrGivenUp     = errors.New("scenario: the policy has given up")
	ErrScriptEnded = errors.New("scenario: the policy's script has ended")
	ErrCancelled   = errors.New("scenario: cancelled by the caller")
	ErrHorizon     = errors.New("scenario: cancelled at the horizon")
	ErrPanic       = errors.New("scenario: the caller panics")
)

// A Record is what happened in a scenario. Times count from its start.
type Record struct {
	Scenario Scenario
	Attempts []*Attempt
	Log      []Entry // everything that happened, in order

	// Started is what the policy decided before the first attempt.
	Started policy.Decision

	// Errors are the errors that the loop was given, and Surplus counts everything that
	// it was given after the first of them.
	Errors  []error
	Surplus int

	// Done are the calls of Trace.Done, and DoneAt is the time of the first.
	Done   []error
	DoneAt time.Duration

	// Left, Panicked and Exited tell how the loop ended if not by itself. Returned is
	// when it was over. Hung tells that it was not over a day after Horizon.
	Left     bool
	Panicked any
	Exited   bool
	Returned time.Duration
	Hung     bool

	// What the stream still held when Trace.Done was called: armed timers of the
	// Client's Clock, bodies of responses, bodies of requests.
	Timers, Bodies, Payloads int

	// Late counts the requests that came after Trace.Done, within 5 days.
	Late int

	// InFlight is the largest number of requests at a time.
	InFlight int

	// Runaway is set if MaxRequests was exceeded.
	Runaway bool

	// Resumed is Stream.LastEventID after the end.
	Resumed string

	// Again is what a second range over the stream gave.
	Again []error

	// Logged is what eventsource.LogTrace wrote.
	Logged string

	// Deadlock is set if the goroutines of the bubble blocked each other, or one
	// was left over at the end; nothing else can be relied on then.
	Deadlock string
}

// An Attempt is what the server, the policy and the trace saw of one attempt.
type Attempt struct {
	Number  int
	Adopted bool
	Answer  Answer
	Began   time.Duration // when the request was being prepared; the start, if adopted

	Sent   bool        // the request has reached the transport
	Header http.Header // that it came with
	Body   string      // that it came with

	// Answered is when the header of the response came, if HasAnswer. RetryAfter is the
	// wait that its Retry-After header asks for.
	HasAnswer  bool
	Answered   time.Duration
	RetryAfter time.Duration

	// Reads are the reads of the body that brought something, and Delivered is all that
	// they brought. LargestRead is the size of the largest read, successful or not.
	Reads       []Read
	Delivered   []byte
	LargestRead int

	// Over is when the client could know that the attempt was over, if HasOver:
	// the request failed, a read did, or it closed the body itself. Outcome is
	// the error of the request or the read, or nil if it was the client.
	HasOver bool
	Over    time.Duration
	Outcome error
	Closed  bool // the body

	Connected, Opened, Ended []time.Duration // the calls of these hooks
	Comments                 []string
	Retries                  []time.Duration
	Events                   []Delivery

	// Reported are the facts that Trace.End was given, Asked the facts that the policy
	// was given, and Decided its decision. Waited are the calls of Trace.Wait.
	Reported *policy.Attempt
	Asked    *policy.Attempt
	Decided  policy.Decision
	Waited   []eventsource.WaitInfo
}

// A Read is a read of a body: when it returned, and how many bytes the client had by
// then in total.
type Read struct {
	At    time.Duration
	Total int
}

// A Delivery is an event that the loop was given. ID is Stream.LastEventID in the
// loop's body.
type Delivery struct {
	At    time.Duration
	Event eventsource.Event
	ID    string
}

// An Entry is a line of the log.
type Entry struct {
	At     time.Duration
	Number int // of the attempt
	What   string

	format string
	args   []any
}

// What an Entry says, besides the names of points and deeds.
const (
	EntryEvent    = "event"
	EntryError    = "error"
	EntryPanicked = "panicked"
	EntryReturned = "returned"
)

func (e Entry) String() string {
	return fmt.Sprintf("%12v  #%-3d %s", e.At, e.Number, e.What) + fmt.Sprintf(e.format, e.args...)
}

// Text returns the log for people.
func (r *Record) Text() string {
	var b strings.Builder
	for _, e := range r.Log {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Err returns the first error that the loop was given.
func (r *Record) Err() error {
	if len(r.Errors) == 0 {
		return nil
	}
	return r.Errors[0]
}

// Kinds counts the ends that Trace.End was told of.
func (r *Record) Kinds() map[policy.Kind]int {
	kinds := make(map[policy.Kind]int)
	for _, a := range r.Attempts {
		if a.Reported != nil {
			kinds[a.Reported.Kind]++
		}
	}
	return kinds
}

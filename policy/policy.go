package policy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Policy makes the [Reconnector] of each stream. It is what a client is set up
// with: [Rules], a preset, a [Func], or a [Constructor].
//
// New is called when a stream is made, perhaps by many goroutines at once, and must
// not return nil. Reconnectors that it returns must not share state that is not safe
// for concurrent use.
type Policy interface {
	New() Reconnector
}

// A Constructor is a [Policy] made of a function that makes a [Reconnector] with state
// of its own. For a Reconnector without state use [Func].
type Constructor func() Reconnector

var _ Policy = Constructor(nil)

// New calls c.
func (c Constructor) New() Reconnector { return c() }

// A Reconnector decides, for one stream, what follows the end of each attempt.
//
// Next is called once for every attempt that ended by itself or through
// Stream.Reconnect, in order, always from the goroutine that ranges over the
// stream. So an implementation may keep state without locks, as long as the
// [Policy] gives each stream its own. Next is not called once the stream's context is
// done, nor when the caller leaves the loop.
//
// Next should return promptly and must not wait: waiting is the engine's part. It
// need not take into account what the server asked for: the engine waits at least
// [Attempt.Asked] whatever Next returns.
type Reconnector interface {
	Next(Attempt) Decision
}

// A Func is a [Policy] made of a function that decides by the facts of the attempt
// alone. All streams share it, so it must be safe for concurrent use, and a closure
// that keeps state about one stream belongs in a [Constructor].
type Func func(Attempt) Decision

var (
	_ Policy      = Func(nil)
	_ Reconnector = Func(nil)
)

// New returns f.
func (f Func) New() Reconnector { return f }

// Next calls f.
func (f Func) Next(a Attempt) Decision { return f(a) }

// A Starter is a [Reconnector] that also decides about the first attempt. Start is called
// once, before it; the decision is followed like that of Next, but there is nothing that
// the server has asked for yet, and an adopted response is not waited for. A Reconnector
// that is not a Starter lets the first attempt begin at once and without limits, so one
// that wraps a Starter should be a Starter too.
type Starter interface {
	Reconnector
	Start() Decision
}

// An Attempt holds the facts about an attempt that has ended. A policy decides by
// nothing else, so it can be tested with a table of Attempts.
type Attempt struct {
	// Number counts the attempts of the stream; it is 1 for the first.
	Number int

	// Kind tells how the attempt ended.
	Kind Kind

	// Err is the cause of the end. It is nil for a clean end and for a restart
	// by the caller; for a body that ended inside an event (Kind Ended) it is
	// eventsource.ErrTruncated; for Rejected it is an *eventsource.ResponseError.
	Err error

	// Permanent reports that repeating the request cannot succeed: its URL or scheme
	// cannot be requested, its last event ID cannot be sent in a header, its body
	// cannot be produced again, or it is not a valid HTTP request.
	Permanent bool

	// Status and Header are those of the response; 0 and nil without one.
	// Header must not be changed.
	Status int
	Header http.Header

	// Events counts the events that this attempt brought, and Messages those of
	// them that were messages.
	Events, Messages int

	// RetrySent reports that this attempt carried a valid retry field.
	RetrySent bool

	// Retry is the stream's reconnection time, set by this or an earlier attempt.
	// It is meaningful only if HasRetry is set: zero is a valid reconnection time.
	Retry    time.Duration
	HasRetry bool

	// Asked is the longest wait that the server asked for: the larger of the
	// reconnection time and the Retry-After of this response, if it was
	// rejected. The engine waits at least this long.
	Asked time.Duration

	// LastEventID is the stream's last event ID at the end of the attempt;
	// empty if there is none.
	LastEventID string

	// Silence is how long before End no message had come; the length of the attempt
	// if it brought none. The time that the loop body took does not count.
	Silence time.Duration

	// Start, Open and End are times of the stream's clock: when the attempt
	// began, when its response turned out to be an event stream (zero if it
	// never did), and when it was over.
	Start, Open, End time.Time

	// LastReceived is when the server was last heard of: with its last byte, or with
	// the end if the server or the network ended the connection. Zero if the attempt
	// never opened.
	LastReceived time.Time
}

// A Kind is a way for an attempt to end. The zero Kind means none: every attempt that
// a policy is asked about has one of the others.
type Kind uint8

const (
	// Ended: the body reached its end. Err is nil, or ErrTruncated if the end
	// came inside an event.
	Ended Kind = iota + 1

	// Dropped: a read failed after the stream had opened.
	Dropped

	// Failed: there was no response. The name did not resolve, the dial, the
	// TLS handshake, the request or Client.Prepare failed, or ConnectTimeout
	// passed.
	Failed

	// Rejected: the response is not an event stream. Its status is not 200, its
	// type not text/event-stream, or its content coding one that cannot be decoded.
	Rejected

	// Idle: nothing came for longer than the idle timeout.
	Idle

	// Expired: a limit set with [Decision.Within] or [Decision.MessageTimeout] passed
	// without a message.
	Expired

	// TooLarge: an event was larger than Client.MaxEventSize.
	TooLarge

	// Restarted: the caller called Stream.Reconnect.
	Restarted
)

var kindNames = [...]string{
	Ended: "ended", Dropped: "dropped", Failed: "failed", Rejected: "rejected",
	Idle: "idle", Expired: "expired", TooLarge: "too large", Restarted: "restarted",
}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// A Decision is what a [Reconnector] wants to follow an attempt: another one
// after a wait ([After]) or the end of the stream ([Stop]).
//
// The zero Decision stops the stream with [ErrNoDecision], so a policy that
// forgets a case never reconnects by accident. Within, Idle and Forget refine a
// decision made by After, and have no effect on one made by Stop. Decisions may be
// compared with ==.
type Decision struct {
	verb      verb
	wait      time.Duration
	reason    error
	within    time.Duration
	hasWithin bool
	message   time.Duration
	idle      time.Duration
	forget    bool
}

type verb uint8

const (
	verbNone verb = iota
	verbAfter
	verbStop
)

// After connects again d after the end of the attempt, or after Asked if that
// is longer. A negative d is taken as zero.
func After(d time.Duration) Decision { return Decision{verb: verbAfter, wait: max(d, 0)} }

// Stop ends the stream. With a nil reason the end is orderly, and the loop over the
// stream ends without an error; otherwise the loop is given an *eventsource.StopError
// that wraps the reason.
func Stop(reason error) Decision { return Decision{verb: verbStop, reason: reason} }

// Within ends the next attempt, with Kind Expired, if it brings no message within
// limit of its start. Once it has brought one, the limit no longer applies. A limit of
// zero or less is reached as soon as the attempt starts. Without Within there is no
// limit.
func (d Decision) Within(limit time.Duration) Decision {
	d.within, d.hasWithin = limit, true
	return d
}

// MessageTimeout ends the next attempt, with Kind Expired, once no message has come for
// limit: from its start to its first message, and from each message to the next. The time
// that the loop body takes does not count. Zero or less means no limit.
func (d Decision) MessageTimeout(limit time.Duration) Decision {
	d.message = max(limit, 0)
	return d
}

// Idle sets the idle timeout of the next attempt, in place of the Client's. Zero
// means the Client's; a negative limit means none.
func (d Decision) Idle(limit time.Duration) Decision {
	d.idle = limit
	return d
}

// Forget clears the stream's last event ID before the next attempt, which is
// then sent without Last-Event-ID.
func (d Decision) Forget() Decision {
	d.forget = true
	return d
}

// Stopped reports whether the decision ends the stream, and why: nil for an
// orderly end, [ErrNoDecision] for the zero Decision.
func (d Decision) Stopped() (reason error, stopped bool) {
	switch d.verb {
	case verbAfter:
		return nil, false
	case verbStop:
		return d.reason, true
	default:
		return ErrNoDecision, true
	}
}

// Delay returns the wait given to [After]; zero if the decision stops.
func (d Decision) Delay() time.Duration { return d.wait }

// Limit returns what was given to Within, and whether anything was.
func (d Decision) Limit() (limit time.Duration, ok bool) { return d.within, d.hasWithin }

// MessageLimit returns what was given to MessageTimeout; zero if nothing was.
func (d Decision) MessageLimit() time.Duration { return d.message }

// IdleLimit returns what was given to Idle; zero if nothing was.
func (d Decision) IdleLimit() time.Duration { return d.idle }

// Forgets reports whether Forget was called.
func (d Decision) Forgets() bool { return d.forget }

// String describes the decision, for logs and failing tests.
func (d Decision) String() string {
	if reason, ok := d.Stopped(); ok {
		return fmt.Sprintf("stop: %v", reason)
	}
	s := "after " + d.wait.String()
	if d.hasWithin {
		s += ", within " + d.within.String()
	}
	if d.message != 0 {
		s += ", message timeout " + d.message.String()
	}
	if d.idle != 0 {
		s += ", idle " + d.idle.String()
	}
	if d.forget {
		s += ", forget"
	}
	return s
}

var (
	// ErrExhausted is the reason to stop when no more reconnections are allowed:
	// the limit on fruitless ones is reached ([Rules.MaxFruitless]), the caller's
	// schedule has ended ([Rules.Backoff]), or none was ever allowed ([Never]).
	ErrExhausted = errors.New("reconnections are exhausted")

	// ErrNotResumable is the reason to stop when a stream can only go on from
	// its last event ID and has none.
	ErrNotResumable = errors.New("no last event ID to resume from")

	// ErrNoDecision is the reason to stop when the policy returned the zero
	// Decision.
	ErrNoDecision = errors.New("the policy made no decision")
)

// Permanent returns an error that wraps err and tells [Rules] to stop: trying again
// cannot help. It is for errors of Client.Prepare and of RoundTrippers, such as that of
// a token that was revoked. It is backoff.Permanent of the package
// github.com/cenkalti/backoff/v4, whose errors are taken in the same way. Permanent(nil)
// is nil.
func Permanent(err error) error { return backoff.Permanent(err) }

func isPermanent(err error) bool {
	var permanent *backoff.PermanentError
	return errors.As(err, &permanent)
}

// A BudgetError is the reason to stop when the wait before the next attempt cannot end
// within [Rules].Budget or [Rules].GiveUpAfter. The wait has not been begun.
type BudgetError struct {
	// Asked is the wait that was due, the larger of the policy's and the
	// server's.
	Asked time.Duration

	// Left is what was left of the time, never more than Asked; zero or less if it
	// was used up.
	Left time.Duration
}

var _ error = (*BudgetError)(nil)

// Error names both durations.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("a wait of %v does not fit in the %v left of the budget", e.Asked, max(e.Left, 0))
}

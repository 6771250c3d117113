package scenario

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// cancelledAt returns when the stream's context was done, and the cause. There may be
// two causes at the same time.
func cancelledAt(r *Record) (at time.Duration, causes []error) {
	at, causes = Horizon, []error{ErrHorizon}
	if d := r.Scenario.Caller.Deadline; d > 0 {
		at, causes = d, []error{context.DeadlineExceeded}
	}
	for _, e := range r.Log {
		if e.What != Cancel.String() || e.At > at {
			continue
		}
		if e.At < at {
			causes = nil
		}
		return e.At, append(causes, ErrCancelled)
	}
	return at, causes
}

// OneEnd checks that a stream ends once, with nil or one error that says why.
func OneEnd(r *Record, c *Complaints) {
	switch {
	case len(r.Done) != 1:
		c.Add("Trace.Done was called %d times", len(r.Done))
		return
	case len(r.Errors) > 1 || r.Surplus > 0:
		c.Add("the loop was given %v, and %d things after an error or with it", r.Errors, r.Surplus)
	case len(r.Again) != 1 || r.Again[0] == nil || !strings.Contains(r.Again[0].Error(), "only once"):
		c.Add("a second range gives %v", r.Again)
	}
	done := r.Done[0]

	interrupted := r.Left || r.Exited || r.Panicked != nil
	if interrupted && didAtDone(r) {
		return // the hook that was told of the end left, whatever the end was
	}
	if interrupted {
		if done != nil || len(r.Errors) > 0 {
			c.Add("the loop was left; Trace.Done was told %v and the loop given %v", done, r.Errors)
		}
		return
	}
	if done != r.Err() {
		c.Add("Trace.Done was told %v, and the loop was given %v", done, r.Err())
	}
	at, causes := cancelledAt(r)
	switch asCause := slices.Contains(causes, done); {
	case asCause && r.DoneAt < at:
		c.Add("the stream ends at %v with %v; its context was done at %v", r.DoneAt, done, at)
	case asCause:
	case r.DoneAt > at:
		c.Add("the context was done at %v with %v; the stream ends at %v with %v", at, causes, r.DoneAt, done)
	default:
		checkStop(c, r, done)
	}
}

// didAtDone reports whether the caller broke out of Trace.Done.
func didAtDone(r *Record) bool {
	done := false
	for _, e := range r.Log {
		switch e.What {
		case Done.String():
			done = true
		case Panic.String(), Exit.String():
			return done
		}
	}
	return false
}

// checkStop checks the end of a stream that has ended by itself.
func checkStop(c *Complaints, r *Record, done error) {
	if len(r.Attempts) == 0 {
		c.Add("the stream ends with %v before its first attempt", done)
		return
	}
	last := r.Attempts[len(r.Attempts)-1]
	if last.Reported == nil || last.Asked == nil {
		c.Add("the stream ends with %v, and nobody was told of its last attempt", done)
		return
	}
	clean := last.Reported.Kind == policy.Ended && last.Reported.Err == nil
	reason, stopped := last.Decided.Stopped()
	switch {
	case stopped && reason == nil, !stopped && done == nil && clean:
		// The second is the clean end of a request that is not repeated.
		if done != nil {
			c.Add("after an orderly end there is the error %v", done)
		}
		if !stopped && repeatable(r, last) {
			c.Add("the decision %v is not followed", last.Decided)
		}
		return
	}
	var stop *eventsource.StopError
	if !errors.As(done, &stop) {
		c.Add("the stream ends with %v, which is not a StopError", done)
		return
	}
	if err := last.Reported.Err; err != nil && !errors.Is(done, err) {
		c.Add("the error %v does not wrap the cause %v", done, err)
	}
	if stop.Attempt.Number != last.Number || stop.Attempt.Kind != last.Reported.Kind || !stop.Attempt.End.Equal(last.Reported.End) {
		c.Add("the error is about %+v, not about the last attempt, %+v", stop.Attempt, *last.Reported)
	}
	switch {
	case stopped && stop.Reason != reason:
		c.Add("the policy stopped for %v; the error gives %v", reason, stop.Reason)
	case !stopped && errors.Is(stop.Reason, eventsource.ErrNotReplayable):
		if clean || repeatable(r, last) {
			c.Add("after an attempt that %v: %v", last.Reported.Kind, done)
		}
	case !stopped && !errors.Is(stop.Reason, context.DeadlineExceeded):
		c.Add("the policy did not stop, and the stream ends with %v", done)
	}
}

// repeatable reports whether the request of the next attempt may be sent.
func repeatable(r *Record, last *Attempt) bool {
	caller := r.Scenario.Caller
	if caller.Adopt == Alone {
		return false
	}
	sent := false
	for _, a := range r.Attempts {
		sent = sent || len(a.Connected) > 0
	}
	if !sent {
		return true
	}
	return !caller.Post || caller.Key && caller.Payload != Once
}

// NothingLeft checks that a stream that is over holds nothing, and that it is over soon.
func NothingLeft(r *Record, c *Complaints) {
	if r.Timers != 0 || r.Bodies != 0 || r.Payloads != 0 {
		c.Add("at the end there are %d timers, %d bodies of responses and %d of requests left", r.Timers, r.Bodies, r.Payloads)
	}
	if r.Late > 0 {
		c.Add("there are %d requests after the end", r.Late)
	}
	if len(r.Done) == 0 || r.Returned != r.DoneAt {
		c.Add("the loop is over at %v; Trace.Done is called at %v", r.Returned, r.DoneAt)
	}
	for _, e := range r.Log {
		switch e.What {
		case Cancel.String():
			if prompt := e.At + r.Scenario.Caller.Slow; r.DoneAt > prompt {
				c.Add("cancelled at %v, it ends at %v", e.At, r.DoneAt)
			}
		case Leave.String(), Panic.String(), Exit.String():
			if r.DoneAt > e.At {
				c.Add("left at %v, it ends at %v", e.At, r.DoneAt)
			}
		}
	}
	if d := r.Scenario.Caller.Deadline; d > 0 && r.DoneAt > d+r.Scenario.Caller.Slow {
		c.Add("its deadline at %v, it ends at %v", d, r.DoneAt)
	}
	for _, a := range r.Attempts {
		if a.HasAnswer && !a.Closed {
			c.Add("the body of attempt %d is not closed", a.Number)
		}
	}
}

// OneAtATime checks that there are never two requests in flight.
func OneAtATime(r *Record, c *Complaints) {
	if r.InFlight > 1 {
		c.Add("there are %d requests in flight", r.InFlight)
	}
	for i, a := range r.Attempts {
		if i > 0 && (!r.Attempts[i-1].HasOver || r.Attempts[i-1].Over > a.Began) {
			c.Add("attempt %d begins at %v; the one before is over at %v", a.Number, a.Began, r.Attempts[i-1].Over)
		}
		if len(a.Connected) > 1 {
			c.Add("attempt %d connects %d times", a.Number, len(a.Connected))
		}
		if a.Sent != (len(a.Connected) == 1) && a.Reported != nil && a.Reported.Kind != policy.Restarted && a.Reported.Kind != policy.Expired {
			c.Add("attempt %d: a request was sent: %v; the trace was told of %d", a.Number, a.Sent, len(a.Connected))
		}
	}
}

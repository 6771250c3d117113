package scenario

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// EverythingVisible checks that the trace sees every attempt once, in order, with how it
// ended, why, and the wait that follows, and that no text shows a secret.
func EverythingVisible(r *Record, c *Complaints) {
	truths := r.Truths()
	for i, a := range r.Attempts {
		last := i == len(r.Attempts)-1
		if a.Reported == nil {
			if !last {
				c.Add("nobody is told of the end of attempt %d", a.Number)
			}
			continue
		}
		if len(a.Ended) != 1 || a.Reported.Number != a.Number {
			c.Add("attempt %d: Trace.End is called %d times, with number %d", a.Number, len(a.Ended), a.Reported.Number)
		}
		if (len(a.Opened) == 1) != !a.Reported.Open.IsZero() || len(a.Opened) > 1 {
			c.Add("attempt %d: Trace.Open is called %d times; it is said to have opened at %v", a.Number, len(a.Opened), a.Reported.Open)
		}
		if a.Asked != nil {
			if diff := cmp.Diff(describe(a.Reported), describe(a.Asked)); diff != "" {
				c.Add("attempt %d (-trace +policy):\n%s", a.Number, diff)
			}
		}
		if waits := len(a.Waited); waits > 1 || waits == 0 && !last {
			c.Add("attempt %d: Trace.Wait is called %d times", a.Number, waits)
		} else if waits == 1 && a.Waited[0].Number != a.Number+1 {
			c.Add("attempt %d: the next one is said to have the number %d", a.Number, a.Waited[0].Number)
		}
		checkFacts(c, r, a, truths[i])
		checkCause(c, r, i, truths[i])
	}
	checkOrder(c, r)
	checkSecrets(c, r)
}

// describe returns the facts of an attempt without the header.
func describe(a *policy.Attempt) string {
	facts := *a
	facts.Header = nil
	return fmt.Sprintf("%+v", facts)
}

func checkFacts(c *Complaints, r *Record, a *Attempt, truth Truth) {
	got := a.Reported
	want := policy.Attempt{
		Events: len(truth.Decoded.Events), Messages: truth.Messages, RetrySent: truth.RetrySent,
		HasRetry: truth.HasRetry, Retry: truth.Retry, LastEventID: truth.LastEventID,
	}
	// An answer may come in the very moment in which the attempt is interrupted.
	tooLate := got.Status == 0 && len(a.Opened) == 0 && got.Kind != policy.Rejected
	answered := a.HasAnswer && !tooLate
	if answered {
		want.Status = orDefault(a.Answer.Status, 200)
	}
	if got.Events != want.Events || got.Messages != want.Messages || got.RetrySent != want.RetrySent || got.Status != want.Status ||
		got.HasRetry != want.HasRetry || got.HasRetry && got.Retry != want.Retry || got.LastEventID != want.LastEventID {
		c.Add("the facts of attempt %d are %s, not %s", a.Number, describe(got), describe(&want))
	}
	if (got.Header != nil) != answered || answered && got.Header.Get("Set-Cookie") == "" {
		c.Add("attempt %d: the header is %v", a.Number, got.Header)
	}
	length := got.End.Sub(got.Start)
	if a.Began+length != a.Ended[0] || length < 0 {
		c.Add("attempt %d: it is said to last %v from %v", a.Number, length, a.Began)
	}
	if len(a.Opened) == 1 && (a.Opened[0] != a.Answered || a.Began+got.Open.Sub(got.Start) != a.Answered) {
		c.Add("attempt %d opens at %v; its answer came at %v", a.Number, a.Opened[0], a.Answered)
	}
	if len(a.Opened) == 1 && a.Began+got.LastReceived.Sub(got.Start) != heard(a) {
		c.Add("attempt %d was last heard of at %v, not at %v", a.Number, heard(a), a.Began+got.LastReceived.Sub(got.Start))
	}
	quiet := a.Began
	for _, d := range a.Events {
		if d.Event.Data != "" {
			quiet = d.At
		}
	}
	if want := a.Ended[0] - quiet; r.Scenario.Caller.Slow == 0 && got.Silence != want {
		c.Add("attempt %d was without a message for %v at its end, not for %v", a.Number, want, got.Silence)
	}
	if len(a.Retries) > 0 != truth.RetrySent || truth.RetrySent && a.Retries[len(a.Retries)-1] != truth.Retry {
		c.Add("attempt %d: Trace.Retry is told %v; the server set %v", a.Number, a.Retries, truth.Retry)
	}
}

// checkCause checks that the kind of an end is possible and that the error is one of that
// kind.
func checkCause(c *Complaints, r *Record, i int, truth Truth) {
	a := r.Attempts[i]
	err, lasted := a.Reported.Err, a.Ended[0]-a.Began
	idle := r.Scenario.Caller.IdleTimeout
	if i > 0 {
		idle = orDefault(r.Attempts[i-1].Decided.IdleLimit(), idle)
	}
	limit, message, limited := limitsOf(r, i)
	connect := orDefault(r.Scenario.Caller.ConnectTimeout, 30*time.Second)
	silence := time.Duration(0) // the longest
	before := a.Answered
	for _, read := range a.Reads {
		silence, before = max(silence, read.At-before), read.At
	}
	silence = max(silence, a.Ended[0]-before)

	possible, caused := false, false
	switch a.Reported.Kind {
	case policy.Ended:
		possible = a.Outcome == io.EOF
		caused = err == nil
		if truth.Decoded.Truncated {
			caused = errors.Is(err, eventsource.ErrTruncated) && errors.Is(err, io.ErrUnexpectedEOF)
		}
	case policy.Dropped:
		possible = truth.Streamed && a.Outcome == ErrCut
		caused = errors.Is(err, ErrCut)
	case policy.Failed:
		timeout := net.Error(nil)
		switch {
		case a.Reported.Permanent:
			possible = !a.HasAnswer
			caused = errors.Is(err, eventsource.ErrUnsendableID) || errors.Is(err, eventsource.ErrNotReplayable)
		case errors.As(err, &timeout) && timeout.Timeout():
			possible, caused = connect > 0 && lasted == connect && len(a.Opened) == 0, true
		default:
			possible = a.Outcome == ErrRefused || a.Outcome == ErrUnprepared
			caused = errors.Is(err, a.Outcome)
		}
	case policy.Rejected:
		response := (*eventsource.ResponseError)(nil)
		possible = truth.Rejected
		caused = errors.As(err, &response) && response.StatusCode == orDefault(a.Answer.Status, 200) && response.Header != nil &&
			strings.HasPrefix(string(a.Delivered), string(response.Body))
	case policy.Idle:
		possible = truth.Streamed && idle > 0 && silence >= idle
		caused = errors.Is(err, eventsource.ErrIdle)
	case policy.Expired:
		possible = limited && lasted >= limit || truth.Messages > 0 && message > 0 // when: see WithinLimits
		caused = errors.Is(err, eventsource.ErrExpired)
	case policy.TooLarge:
		possible = truth.TooLarge
		caused = errors.Is(err, eventsource.ErrEventTooLarge) && strings.Contains(err.Error(), fmt.Sprint(MaxEventSize))
	case policy.Restarted:
		rs := restartsOf(r, a.Number)
		possible = len(rs.all) > 0 || len(rs.stray) > 0
		caused = err == nil
	}
	if !possible {
		c.Add("attempt %d cannot have been %v: it lasted %v, and the client saw %v", a.Number, a.Reported.Kind, lasted, a.Outcome)
	}
	if !caused {
		c.Add("attempt %d was %v, and its error is %v", a.Number, a.Reported.Kind, err)
	}
}

// checkOrder checks the order of the hooks.
func checkOrder(c *Complaints, r *Record) {
	order := []string{
		Prepare.String(), Connect.String(), RoundTrip.String(), Open.String(),
		Comment.String(), AttemptEnd.String(), Decide.String(), Wait.String(), Done.String(),
	}
	place, number := -1, 0
	for _, e := range r.Log {
		what := e.What
		switch what {
		case Retry.String(), EntryEvent:
			what = Comment.String() // in any order
		}
		p := slices.Index(order, what)
		if p < 0 {
			continue
		}
		if e.Number != number {
			place, number = -1, e.Number
		}
		if p < place || p == place && what != Comment.String() {
			c.Add("after %s of attempt %d comes %v", order[place], number, e)
		}
		place = p
	}
	if place < len(order)-1 {
		c.Add("the end of the stream is not the last thing that the trace is told")
	}
}

// checkSecrets looks for secrets in all texts that the library has made.
func checkSecrets(c *Complaints, r *Record) {
	texts := []string{r.Logged, fmt.Sprint(r.Err()), fmt.Sprint(r.Done)}
	for _, a := range r.Attempts {
		if a.Reported != nil {
			texts = append(texts, fmt.Sprint(a.Reported.Err))
		}
	}
	for _, text := range texts {
		if strings.Contains(text, Secret) {
			c.Add("a text shows the secret: %s", text)
		}
	}
}

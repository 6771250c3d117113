package scenario

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// restarts are the calls of Reconnect between the beginning of an attempt and that
// of the next.
type restarts struct {
	all   []time.Duration
	after []time.Duration // those that came for certain when the attempt was over

	// stray are the calls that were recorded with an earlier attempt, at the time when
	// this one ended, and may have come then: another goroutine records its call
	// before it makes it.
	stray []time.Duration
}

func restartsOf(r *Record, number int) (rs restarts) {
	ended := false
	for _, e := range r.Log {
		switch {
		case e.Number < number && e.What == Restart.String() && slices.Contains(r.Attempts[number-1].Ended, e.At):
			rs.stray = append(rs.stray, e.At)
		case e.Number != number:
		case e.What == AttemptEnd.String():
			ended = true
		case e.What == Restart.String():
			rs.all = append(rs.all, e.At)
			if ended {
				rs.after = append(rs.after, e.At)
			}
		}
	}
	return rs
}

// NeverEarly checks that no attempt starts sooner after the end of the one before than
// the server asked.
func NeverEarly(r *Record, c *Complaints) {
	truths := r.Truths()
	for i, a := range r.Attempts {
		if i > 0 {
			before := r.Attempts[i-1]
			if !before.HasOver {
				c.Add("attempt %d begins while the one before goes on", a.Number)
			} else if gap := a.Began - before.Over; gap < truths[i-1].Asked {
				c.Add("attempt %d begins %v after the one before; the server asked for %v", a.Number, gap, truths[i-1].Asked)
			}
		}
		if a.Reported != nil && a.Reported.Asked != truths[i].Asked {
			c.Add("attempt %d: the policy is told that the server asked for %v, not %v", a.Number, a.Reported.Asked, truths[i].Asked)
		}
		for _, w := range a.Waited {
			if w.Asked != truths[i].Asked || w.Decided != a.Decided.Delay() || w.Waited != max(w.Asked, w.Decided) {
				c.Add("after attempt %d the trace says %+v, where the server asked for %v and the policy decided %v", a.Number, w, truths[i].Asked, a.Decided)
			}
		}
	}
}

// Exactly checks that each wait lasts exactly as long as decided, or that the stream
// ends instead of beginning it. Only the caller can cut a wait short.
func Exactly(r *Record, c *Complaints) {
	truths := r.Truths()
	deadline, hasDeadline := r.Scenario.Caller.Deadline, r.Scenario.Caller.Deadline > 0
	for i, a := range r.Attempts {
		if a.Reported == nil {
			continue
		}
		end := a.Ended[0]
		if at := a.Began + a.Reported.End.Sub(a.Reported.Start); at != end {
			c.Add("attempt %d ended at %v and is said to have ended at %v", a.Number, end, at)
		}
		if end < a.Over || end > a.Over && r.Scenario.Caller.Slow == 0 {
			c.Add("attempt %d ended at %v and is reported at %v", a.Number, a.Over, end)
		}

		if len(a.Waited) == 0 {
			// The stream ends here.
			if r.DoneAt != end {
				c.Add("attempt %d ended at %v, the stream at %v: what was there to wait for?", a.Number, end, r.DoneAt)
			}
			stop := (*eventsource.StopError)(nil)
			if _, stopped := a.Decided.Stopped(); !stopped && errors.As(r.Err(), &stop) && errors.Is(stop.Reason, context.DeadlineExceeded) {
				if wait := max(a.Decided.Delay(), truths[i].Asked); !hasDeadline || wait < deadline-end {
					c.Add("attempt %d: a wait of %v is refused at %v; the deadline is at %v", a.Number, wait, end, deadline)
				}
			}
			continue
		}
		due := end + a.Waited[0].Waited
		if due < end {
			due = math.MaxInt64
		}
		// Reconnect may have cut the wait short before it began.
		rs := restartsOf(r, a.Number)
		hurried := len(rs.all)+len(rs.stray) > 0
		if hasDeadline && a.Waited[0].Waited > 0 && due >= deadline && !hurried {
			c.Add("attempt %d: a wait from %v to %v is begun; the deadline is at %v", a.Number, end, due, deadline)
		}
		if i == len(r.Attempts)-1 {
			if r.DoneAt > due {
				c.Add("attempt %d: a wait from %v to %v goes on until the stream ends at %v", a.Number, end, due, r.DoneAt)
			}
			continue
		}
		checkBeginning(c, r.Attempts[i+1].Began, due, end+truths[i].Asked, rs, a)
	}
}

// checkBeginning checks when the attempt after a began: when the wait was due, or,
// if the caller was in a hurry, when the server allowed it.
func checkBeginning(c *Complaints, began, due, allowed time.Duration, rs restarts, a *Attempt) {
	if began == due && len(rs.after) == 0 {
		return
	}
	if slices.ContainsFunc(rs.stray, func(at time.Duration) bool { return began == max(allowed, at) }) {
		return
	}
	hurried := len(rs.all) > 1 || len(rs.all) == 1 && a.Reported.Kind != policy.Restarted
	if len(rs.after) > 0 {
		first := rs.after[0]
		if want := min(max(allowed, first), due); began != want {
			c.Add("attempt %d, hurried at %v, begins at %v, not at %v", a.Number+1, first, began, want)
		}
		return
	}
	if hurried && slices.ContainsFunc(rs.all, func(at time.Duration) bool { return began == max(allowed, at) }) {
		return
	}
	c.Add("attempt %d begins at %v, not at %v (Reconnect was called at %v)", a.Number+1, began, due, rs.all)
}

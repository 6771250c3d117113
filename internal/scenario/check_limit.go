package scenario

import (
	"errors"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/reprise-sse/reprise/policy"
)

// saturatingSum adds without wrapping.
func saturatingSum(a, b time.Duration) time.Duration {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// endOf returns when an attempt ended, or the stream during it.
func endOf(r *Record, a *Attempt) time.Duration {
	if a.Reported != nil {
		return a.Ended[0]
	}
	return r.DoneAt
}

// firstMessage returns when the loop was given the first message of an attempt.
func firstMessage(a *Attempt) (at time.Duration, ok bool) {
	for _, d := range a.Events {
		if d.Event.Data != "" {
			return d.At, true
		}
	}
	return 0, false
}

// heard returns when the client last heard of the server of an attempt that has opened
// and ended.
func heard(a *Attempt) time.Duration {
	switch {
	case a.Reported.Kind == policy.Ended, a.Reported.Kind == policy.Dropped:
		return a.Ended[0]
	case len(a.Reads) > 0:
		return a.Reads[len(a.Reads)-1].At
	}
	return a.Opened[0]
}

// limitsOf returns the limits on the time without a message in the i-th attempt: before the
// first message, if there is one, and after each message, or 0.
func limitsOf(r *Record, i int) (limit, message time.Duration, limited bool) {
	a := r.Attempts[i]
	decided, planned := r.Started, a.Began
	if i > 0 {
		// A limit counts from when the attempt was to begin.
		before := r.Attempts[i-1]
		decided = before.Decided
		planned = max(planned, saturatingSum(before.Ended[0], max(decided.Delay(), before.Reported.Asked)))
	}
	limit, limited = decided.Limit()
	limit = saturatingSum(planned-a.Began, max(limit, 0))
	message = decided.MessageLimit()
	if message > 0 && (!limited || message < limit) {
		limit, limited = message, true
	}
	return limit, message, limited
}

// WithinLimits checks that an attempt with a limit on the time without a message brings
// one in time or is ended by the limit: before its first message, and after it.
func WithinLimits(r *Record, c *Complaints) {
	for i, a := range r.Attempts {
		limit, message, limited := limitsOf(r, i)
		expired := a.Reported != nil && a.Reported.Kind == policy.Expired
		slow := time.Duration(len(a.Events)) * r.Scenario.Caller.Slow // that is the caller's time
		from := a.Began
		tied := false // the last message came at the moment when the limit passed
		check := func(at time.Duration, what string) {
			if limited && at > saturatingSum(saturatingSum(from, limit), slow) {
				c.Add("attempt %d %s at %v; the limit from %v on was %v", a.Number, what, at, from, limit)
			}
		}
		for _, d := range a.Events {
			if d.Event.Data != "" {
				check(d.At, "brought a message")
				tied = limited && d.At >= saturatingSum(from, limit) || tied && d.At == from
				from, limit, limited = d.At, message, message > 0
			}
		}
		check(endOf(r, a), "ended")
		tied = tied && endOf(r, a) <= saturatingSum(from, slow)
		if expired && !tied && (!limited || a.Ended[0] < saturatingSum(from, limit)) {
			c.Add("attempt %d expired at %v; the limit from %v on was %v (%v)", a.Number, a.Ended[0], from, limit, limited)
		}
	}
}

// WithinPatience checks that with GiveUpAfter no time without a message is longer, from the
// start of the stream to its end.
func WithinPatience(r *Record, c *Complaints) {
	patience := r.Scenario.Policy.Rules.GiveUpAfter
	if r.Scenario.Policy.Preset != "Rules" || patience == 0 || len(r.Attempts) == 0 {
		return
	}
	from, slow := r.Attempts[0].Began, time.Duration(0)
	check := func(at time.Duration) {
		if at > saturatingSum(from, patience)+slow {
			c.Add("there was no message from %v to %v, and the caller gives up after %v", from, at, patience)
		}
	}
	for _, a := range r.Attempts {
		for _, d := range a.Events {
			slow += r.Scenario.Caller.Slow
			if d.Event.Data != "" {
				check(d.At)
				from, slow = d.At, r.Scenario.Caller.Slow
			}
		}
	}
	check(r.DoneAt)
}

func budgetOf(p Policy) time.Duration {
	switch p.Preset {
	case "MCPCall":
		return 300 * time.Second
	case "Rules":
		return p.Rules.Budget
	}
	return 0
}

// WithinBudget checks that under a budget, once the first attempt has ended, a message
// comes in time or the stream ends.
func WithinBudget(r *Record, c *Complaints) {
	budget := budgetOf(r.Scenario.Policy)
	if budget == 0 {
		return
	}
	truths := r.Truths()
	var renewed time.Duration
	for i, a := range r.Attempts {
		end := endOf(r, a)
		if i > 0 {
			late := renewed + budget + time.Duration(len(a.Events))*r.Scenario.Caller.Slow
			over, how := end, "ends"
			if at, ok := firstMessage(a); ok {
				over, how = at, "brings a message"
			}
			if a.Began >= renewed+budget || over > late {
				c.Add("attempt %d begins at %v and %s at %v; the budget ended at %v", a.Number, a.Began, how, over, renewed+budget)
			}
		}
		if a.Reported == nil {
			return
		}
		if i == 0 || truths[i].Messages > 0 {
			renewed = end
		}
		if i == len(r.Attempts)-1 && r.DoneAt > max(renewed+budget, end) {
			c.Add("the stream ends at %v; the budget ended at %v", r.DoneAt, renewed+budget)
		}
		refusal, left := (*policy.BudgetError)(nil), renewed+budget-end
		if why, _ := a.Decided.Stopped(); errors.As(why, &refusal) {
			if patience := r.Scenario.Policy.Rules.GiveUpAfter; patience > 0 {
				left = min(left, refusal.Left) // which may be what is left of that
			}
			if refusal.Left != left || refusal.Asked < max(left, truths[i].Asked) {
				c.Add("after attempt %d: %v; in fact %v were left and the server asked for %v", a.Number, refusal, left, truths[i].Asked)
			}
		}
	}
}

// A fruitlessLedger counts as the documentation of policy.Rules says, by what the server
// did.
type fruitlessLedger struct {
	rules              policy.Rules
	random             float64
	run, reconnections int
}

// count counts an attempt. It reports whether the reconnections are exhausted now.
func (l *fruitlessLedger) count(a *Attempt, truth Truth) (productive, poll, exhausted bool) {
	progress := orDefault(l.rules.ProgressAfter, 30*time.Second)
	productive = truth.Messages > 0 ||
		progress > 0 && len(a.Opened) > 0 && heard(a)-a.Opened[0] >= progress
	poll = !productive && l.rules.PollAfter != 0 && a.Reported.Kind == policy.Ended && !truth.Decoded.Truncated &&
		truth.HasRetry && truth.Retry >= l.rules.PollAfter
	switch {
	case productive:
		l.run, l.reconnections = 0, 0
	case a.Reported.Kind == policy.Restarted:
	case !poll:
		l.run++
		if a.Number > 1 {
			l.reconnections++
		}
		most := l.rules.MaxFruitless
		exhausted = most < 0 || most > 0 && l.reconnections >= most
	}
	return productive, poll, exhausted
}

// wait returns the wait after the attempt counted last.
func (l *fruitlessLedger) wait(truth Truth, poll bool) (wait float64) {
	own := !truth.HasRetry
	base := float64(truth.Retry)
	if own {
		base = float64(orDefault(l.rules.Delay, 3*time.Second))
	}
	base = max(base, float64(max(orDefault(l.rules.Floor, 100*time.Millisecond), 0)))
	wait = base
	if l.run > 1 && !poll {
		own = true
		grown := base * math.Pow(orDefault(l.rules.Factor, 2), float64(l.run-1))
		wait = max(base, min(grown, float64(orDefault(l.rules.MaxDelay, 30*time.Second))))
	}
	if own && !poll {
		wait += wait * l.random * max(orDefault(l.rules.Jitter, 0.5), 0)
	}
	return min(wait, math.MaxInt64)
}

// NoFreeResets checks that the run of fruitless attempts follows from what the server
// did, and the waits from the run.
func NoFreeResets(r *Record, c *Complaints) {
	if r.Scenario.Policy.Preset != "Rules" {
		return
	}
	truths := r.Truths()
	l := &fruitlessLedger{rules: r.Scenario.Policy.RulesInForce(), random: r.Scenario.Policy.Random}
	opened := false
	for i, a := range r.Attempts {
		if a.Reported == nil || a.Asked == nil {
			return
		}
		opened = opened || len(a.Opened) > 0
		why, stopped := a.Decided.Stopped()
		if a.Reported.Kind == policy.Restarted {
			if !stopped && a.Decided.Delay() != 0 {
				c.Add("a restart is followed by a wait of %v", a.Decided.Delay())
			}
			if l.rules.OneAnswer && truths[i].Messages > 0 && !stopped {
				c.Add("attempt %d brought the beginning of the answer, and after it: %v", a.Number, a.Decided)
			}
			l.count(a, truths[i])
			continue
		}
		if leavesNothingToCount(a, truths[i], l.rules, opened) {
			if !stopped || errors.Is(why, policy.ErrExhausted) {
				c.Add("after attempt %d, which settles the matter: %v", a.Number, a.Decided)
			}
			return
		}
		_, poll, exhausted := l.count(a, truths[i])
		if exhausted != errors.Is(why, policy.ErrExhausted) {
			c.Add("after attempt %d, the %dth fruitless one and the %dth such reconnection in a row: %v", a.Number, l.run, l.reconnections, a.Decided)
		}
		if stopped {
			return
		}
		want, got := l.wait(truths[i], poll), float64(a.Decided.Delay())
		if math.Abs(got-want) > want/1e6+10 {
			c.Add("after attempt %d, the %dth fruitless one in a row (a poll: %v), the wait is %v, not %v", a.Number, l.run, poll, a.Decided.Delay(), time.Duration(want))
		}
	}
}

// leavesNothingToCount reports whether an attempt leaves nothing to count.
func leavesNothingToCount(a *Attempt, truth Truth, rules policy.Rules, opened bool) bool {
	permanent := (*backoff.PermanentError)(nil)
	retryable := rules.Retryable != nil && rules.Retryable(a.Reported.Status)
	forgets := rules.ForgetRefusedID && !retryable && a.Reported.Status/100 == 4 && (opened || truth.LastEventID != "")
	switch a.Reported.Status {
	case 401, 403, 404, 405:
		forgets = false
	}
	switch {
	case a.Reported.Permanent, errors.As(a.Reported.Err, &permanent), a.Reported.Kind == policy.TooLarge:
		return true
	case rules.OneAnswer && truth.Messages > 0:
		return true
	case truth.Rejected && !retryable && !forgets:
		return true
	}
	return rules.RequireLastEventID && (truth.LastEventID == "" || truth.Rejected && forgets)
}

package eventsource_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// saturatingSum adds without wrapping.
func saturatingSum(a, b time.Duration) time.Duration {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// endOf returns when an attempt ended, or with it the stream.
func endOf(r *scenario.Record, a *scenario.Attempt) time.Duration {
	if a.Reported != nil {
		return a.Ended[0]
	}
	return r.DoneAt
}

// firstMessage returns when the loop was given the first message of an attempt.
func firstMessage(a *scenario.Attempt) (at time.Duration, ok bool) {
	for _, d := range a.Events {
		if d.Event.Data != "" {
			return d.At, true
		}
	}
	return 0, false
}

// withinLimits: an attempt with a limit brings a message in time, or is ended by it.
func withinLimits(records []*scenario.Record, c *complaints) {
	r := records[0]
	for i, a := range r.Attempts[min(1, len(r.Attempts)):] {
		limit, limited := r.Attempts[i].Decided.Limit()
		if !limited {
			if a.Reported != nil && a.Reported.Kind == policy.Expired {
				c.add("attempt %d had no limit and expired", a.Number)
			}
			continue
		}
		due := saturatingSum(a.Began, max(limit, 0))
		late := saturatingSum(due, time.Duration(len(a.Events))*r.Scenario.Caller.Slow) // that is the caller's time
		over, how := endOf(r, a), "ended"
		if at, ok := firstMessage(a); ok {
			over, how = at, "brought a message"
		}
		if over > late {
			c.add("attempt %d %s at %v; its limit was %v", a.Number, how, over, due)
		}
		if a.Reported != nil && a.Reported.Kind == policy.Expired && a.Ended[0] < due {
			c.add("attempt %d expired at %v; its limit was %v", a.Number, a.Ended[0], due)
		}
	}
}

func budgetOf(p scenario.Policy) time.Duration {
	switch p.Preset {
	case "MCPCall":
		return 300 * time.Second
	case "Rules":
		return p.Rules.Budget
	}
	return 0
}

// withinBudget: under a budget, and once the first attempt has ended, a message
// comes in time or the stream ends.
func withinBudget(records []*scenario.Record, c *complaints) {
	r := records[0]
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
				c.add("attempt %d begins at %v and %s at %v; the budget ended at %v", a.Number, a.Began, how, over, renewed+budget)
			}
		}
		if a.Reported == nil {
			return
		}
		if i == 0 || truths[i].Messages > 0 {
			renewed = end
		}
		if i == len(r.Attempts)-1 && r.DoneAt > max(renewed+budget, end) {
			c.add("the stream ends at %v; the budget ended at %v", r.DoneAt, renewed+budget)
		}
		refusal, left := (*policy.BudgetError)(nil), renewed+budget-end
		if why, _ := a.Decided.Stopped(); errors.As(why, &refusal) {
			if refusal.Left != left || refusal.Asked < max(left, truths[i].Asked) {
				c.add("after attempt %d: %v; in fact %v were left and the server asked for %v", a.Number, refusal, left, truths[i].Asked)
			}
		}
	}
}

func TestG3BoundedWhenAsked(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Rules: true, Budget: true, Long: true},
		check: func(records []*scenario.Record, c *complaints) {
			withinLimits(records, c)
			withinBudget(records, c)
		},
	}
	minute := policyRules(policy.Rules{Budget: time.Minute, Delay: 10 * time.Second, Factor: 1})
	drip := scenario.Answer{End: scenario.Hold}
	for range 100 {
		drip.Body = append(drip.Body, scenario.Piece{Wait: time.Second, Text: ": still here\n\n"})
	}
	primed := answerStream("id: 1\nretry: 10000\ndata:\n\n")
	p.holdsIn(t, []scenarioCase{
		{
			name:     "a silent server",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, answerSilent}, Policy: minute},
			want:     []string{"0s request", "0s ended", "10s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "the budget's clock starts when the first attempt has ended",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerQuiet("", time.Hour), answerSilent}, Policy: minute},
			want:     []string{"0s request", "1h0m0s ended", "1h0m10s request", "1h1m0s expired", "1h1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "a server that drips keep-alives",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, drip}, Policy: minute},
			want:     []string{"0s request", "0s ended", "10s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "a server that never answers",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, {Failure: scenario.NeverAnswers}}, Policy: minute, Caller: scenario.Caller{ConnectTimeout: -1}},
			want:     []string{"0s request", "0s ended", "10s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "primed closes without end",
			scenario: scenario.Scenario{Server: repeatAnswer(20, primed), Policy: minute},
			want: []string{
				"0s request", `0s event ""`, "0s ended", `10s request ["1"]`, `10s event ""`, "10s ended",
				`20s request ["1"]`, `20s event ""`, "20s ended", `30s request ["1"]`, `30s event ""`, "30s ended",
				`40s request ["1"]`, `40s event ""`, "40s ended", `50s request ["1"]`, `50s event ""`, "50s ended",
				"50s done: budget: 10s of 10s",
			},
		},
		{
			name: "only a message renews the budget",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerQuiet("data: m\n\n", 5*time.Minute), answerQuiet("data:\n\n", 35*time.Second), answerSilent},
				Policy: minute,
			},
			want: []string{
				"0s request", "0s ended", "10s request", `10s event "m"`, "5m10s ended", "5m20s request",
				`5m20s event ""`, "5m55s ended", "6m5s request", "6m10s expired", "6m10s done: budget: 10s of 0s",
			},
		},
		{
			name: "an attempt that has brought a message is bounded by the idle timeout only",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, openAnswer(answerQuiet("data: m\n\n: still here\n\n", 10*time.Minute)), answerGone},
				Policy: minute,
				Caller: scenario.Caller{IdleTimeout: time.Hour},
			},
			want: []string{"0s request", "0s ended", "10s request", `10s event "m"`, "1h0m10s idle", "1h0m20s request", "1h0m20s rejected", "1h0m20s done: in order"},
		},
		{
			name: "restarts by the caller do not renew it",
			scenario: scenario.Scenario{
				Server: repeatAnswer(8, answerSilent),
				Policy: minute,
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: 10 * time.Second, Do: scenario.Restart},
					{After: 30 * time.Second, Do: scenario.Restart},
					{After: 50 * time.Second, Do: scenario.Restart},
				}},
			},
			want: []string{
				"0s request", "10s restarted", "10s request", "30s restarted", "30s request", "50s restarted",
				"50s request", "1m10s expired", "1m10s done: budget: 10s of 0s",
			},
		},
		{
			name: "keep-alives do not stop a policy's own limit",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, drip, answerGone},
				Policy: scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(5 * time.Second)}, {}}},
			},
			want: []string{"0s request", "0s ended", "0s request", "5s expired", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name: "nor does an event without data, and a message does",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerEmpty,
					openAnswer(answerStream("data:\n\n")),
					{Body: []scenario.Piece{{Wait: 5*time.Second - 1, Text: "data: m\n\n"}, {Wait: time.Hour}}},
					answerGone,
				},
				Policy: scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(5 * time.Second)}, {Within: scenario.Ptr(5 * time.Second)}, {}}},
			},
			want: []string{
				"0s request", "0s ended", "0s request", `0s event ""`, "5s expired", "5s request", `9.999999999s event "m"`,
				"1h0m9.999999999s ended", "1h0m9.999999999s request", "1h0m9.999999999s rejected",
				"1h0m9.999999999s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "the limit is that of one attempt",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerQuiet("", time.Second), answerQuiet("", time.Hour), answerGone},
				Policy: scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(5 * time.Second)}, {}, {}}},
			},
			want: []string{
				"0s request", "0s ended", "0s request", "1s ended", "1s request", "1h0m1s ended", "1h0m1s request", "1h0m1s rejected",
				"1h0m1s done: scenario: the policy's script has ended",
			},
		},
	})
	p.holds(t)
}

// A fruitlessLedger counts as the text about Rules has it, by what the server did.
type fruitlessLedger struct {
	rules              policy.Rules
	random             float64
	run, reconnections int
}

func orDefault[T comparable](value, byDefault T) T {
	if value == *new(T) {
		return byDefault
	}
	return value
}

// count counts an attempt. It reports whether the reconnections are exhausted now.
func (l *fruitlessLedger) count(a *scenario.Attempt, truth scenario.Truth) (productive, poll, exhausted bool) {
	progress := orDefault(l.rules.ProgressAfter, 30*time.Second)
	productive = truth.Messages > 0 ||
		progress > 0 && len(a.Opened) > 0 && a.Ended[0]-a.Opened[0] >= progress
	poll = !productive && l.rules.PollAfter != 0 && a.Reported.Kind == policy.Ended && !truth.Decoded.Truncated &&
		truth.RetrySent && truth.Retry >= l.rules.PollAfter
	switch {
	case productive:
		l.run, l.reconnections = 0, 0
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
func (l *fruitlessLedger) wait(truth scenario.Truth, poll bool) (wait float64) {
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

// noFreeResets: the run of fruitless attempts is what the server has made of it,
// and the waits are those of the run.
func noFreeResets(records []*scenario.Record, c *complaints) {
	r := records[0]
	if r.Scenario.Policy.Preset != "Rules" {
		return
	}
	truths := r.Truths()
	l := &fruitlessLedger{rules: r.Scenario.Policy.RulesInForce(), random: r.Scenario.Policy.Random}
	for i, a := range r.Attempts {
		if a.Reported == nil || a.Asked == nil {
			return
		}
		why, stopped := a.Decided.Stopped()
		if a.Reported.Kind == policy.Restarted {
			if !stopped && a.Decided.Delay() != 0 {
				c.add("a restart is followed by a wait of %v", a.Decided.Delay())
			}
			continue
		}
		if leavesNothingToCount(a, truths[i], l.rules) {
			if !stopped || errors.Is(why, policy.ErrExhausted) {
				c.add("after attempt %d, which settles the matter: %v", a.Number, a.Decided)
			}
			return
		}
		_, poll, exhausted := l.count(a, truths[i])
		if exhausted != errors.Is(why, policy.ErrExhausted) {
			c.add("after attempt %d, the %dth fruitless one and the %dth such reconnection in a row: %v", a.Number, l.run, l.reconnections, a.Decided)
		}
		if stopped {
			return
		}
		want, got := l.wait(truths[i], poll), float64(a.Decided.Delay())
		if math.Abs(got-want) > want/1e6+10 {
			c.add("after attempt %d, the %dth fruitless one in a row (a poll: %v), the wait is %v, not %v", a.Number, l.run, poll, a.Decided.Delay(), time.Duration(want))
		}
	}
}

// leavesNothingToCount reports whether an attempt leaves nothing to count.
func leavesNothingToCount(a *scenario.Attempt, truth scenario.Truth, rules policy.Rules) bool {
	permanent := (*backoff.PermanentError)(nil)
	switch {
	case a.Reported.Futile, errors.As(a.Reported.Err, &permanent), a.Reported.Kind == policy.TooLarge:
		return true
	case rules.EndIsDone && a.Reported.Kind == policy.Ended && truth.Messages > 0:
		return true
	case truth.Rejected && (rules.Temporary == nil || !rules.Temporary(a.Reported.Status)):
		return true
	}
	return rules.NeedID && truth.LastEventID == ""
}

func TestG4NoFreeResets(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Rules: true, Count: true, Long: true},
		check:   noFreeResets,
	}
	steep := policyRules(policy.Rules{Delay: time.Second, Factor: 2, MaxFruitless: 4})
	p.holdsIn(t, []scenarioCase{
		{
			name:     "to connect is no progress",
			scenario: scenario.Scenario{Server: repeatAnswer(9, answerQuiet("", 100*time.Millisecond)), Policy: steep},
			want: []string{
				"0s request", "100ms ended", "1.1s request", "1.2s ended", "3.2s request", "3.3s ended",
				"7.3s request", "7.4s ended", "15.4s request", "15.5s ended", "15.5s done: exhausted",
			},
		},
		{
			name:     "nor are comments",
			scenario: scenario.Scenario{Server: repeatAnswer(9, answerStream(": hello\n\n")), Policy: steep},
			want: []string{
				"0s request", "0s ended", "1s request", "1s ended", "3s request", "3s ended",
				"7s request", "7s ended", "15s request", "15s ended", "15s done: exhausted",
			},
		},
		{
			name: "nor are priming events, though their IDs move",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerStream("id: 0\ndata:\n\n"), answerStream("id: 1\ndata:\n\n"), answerStream("id: 2\ndata:\n\n"),
					answerStream("id: 3\ndata:\n\n"), answerStream("id: 4\ndata:\n\n"), answerGone,
				},
				Policy: steep,
			},
			want: []string{
				"0s request", `0s event ""`, "0s ended", `1s request ["0"]`, `1s event ""`, "1s ended",
				`3s request ["1"]`, `3s event ""`, "3s ended", `7s request ["2"]`, `7s event ""`, "7s ended",
				`15s request ["3"]`, `15s event ""`, "15s ended", "15s done: exhausted",
			},
		},
		{
			name: "refusals, failures, and streams without a message are one run",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerRefused, answerUnavailable(""), answerEmpty, cutAnswer(answerStream("data: lost")), answerGone},
				Policy: steep,
			},
			want: []string{
				"0s request", "0s failed", "1s request", "1s rejected", "3s request", "3s ended", "7s request", "7s dropped",
				"15s request", "15s rejected", "15s done: in order",
			},
		},
		{
			name: "a message ends the run",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerEmpty, answerEmpty, answerEmpty, cutAnswer(answerMessage), answerEmpty, answerEmpty, answerEmpty, answerEmpty, answerGone},
				Policy: steep,
			},
			want: []string{
				"0s request", "0s ended", "1s request", "1s ended", "3s request", "3s ended", "7s request", "7s ended",
				"15s request", `15s event "m"`, "15s dropped", "16s request", "16s ended", "17s request", "17s ended",
				"19s request", "19s ended", "23s request", "23s ended", "23s done: exhausted",
			},
		},
		{
			name: "and so does a life of 30 s, but not one that is shorter",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerEmpty, answerEmpty, cutAnswer(answerQuiet("", 30*time.Second)), answerEmpty, answerEmpty, cutAnswer(answerQuiet("", 30*time.Second-1)), answerEmpty, answerEmpty,
				},
				Policy: policyRules(policy.Rules{Delay: time.Second, Factor: 2, MaxFruitless: 4}),
			},
			want: []string{
				"0s request", "0s ended", "1s request", "1s ended", "3s request", "33s dropped", "34s request", "34s ended",
				"35s request", "35s ended", "37s request", "1m6.999999999s dropped", "1m10.999999999s request", "1m10.999999999s ended",
				"1m10.999999999s done: exhausted",
			},
		},
		{
			name: "a long wait for the response is not life",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, scenario.Answer{Delay: time.Minute}),
				Policy: steep,
				Caller: scenario.Caller{ConnectTimeout: -1},
			},
			want: []string{
				"0s request", "1m0s ended", "1m1s request", "2m1s ended", "2m3s request", "3m3s ended",
				"3m7s request", "4m7s ended", "4m15s request", "5m15s ended", "5m15s done: exhausted",
			},
		},
		{
			name: "ProgressAfter is a number of its own",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, answerQuiet("", 2*time.Second)),
				Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 1, ProgressAfter: time.Second}),
			},
			want: []string{
				"0s request", "2s ended", "3s request", "5s ended", "6s request", "8s ended", "9s request", "11s ended",
				"12s request", "14s ended", "15s request", "17s ended", "18s request", "20s ended", "21s request", "23s ended",
				"24s request", "26s ended", "27s request", "27s rejected", "27s done: in order",
			},
		},
		{
			name: "without it only messages count",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, answerQuiet("", time.Hour)),
				Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 1, ProgressAfter: -1}),
			},
			want: []string{"0s request", "1h0m0s ended", "1h0m1s request", "2h0m1s ended", "2h0m1s done: exhausted"},
		},
		{
			name: "a poll neither counts nor resets",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerEmpty, answerEmpty, answerStream("retry: 5000\n\n"), answerStream("retry: 5000\n\n"), answerStream("retry: 1000\n\n"), answerEmpty, answerGone,
				},
				Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 3, PollAfter: 5 * time.Second}),
			},
			want: []string{
				"0s request", "0s ended", "1s request", "1s ended", "3s request", "3s ended", "8s request", "8s ended",
				"13s request", "13s ended", "17s request", "17s ended", "17s done: exhausted",
			},
		},
		{
			name: "a restart by the caller neither counts nor resets",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerSilent, answerSilent, answerEmpty, answerEmpty, answerEmpty},
				Policy: steep,
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: 2 * time.Second, Do: scenario.Restart},
					{After: 3 * time.Second, Do: scenario.Restart},
				}},
			},
			want: []string{
				"0s request", "0s ended", "1s request", "2s restarted", "2s request", "3s restarted", "3s request", "3s ended",
				"5s request", "5s ended", "9s request", "9s ended", "17s request", "17s rejected", "17s done: in order",
			},
		},
	})
	p.holds(t)
}

// A quiet stream that something in the middle cuts every minute goes on for ever,
// at its base wait.
func TestG4QuietStreamGoesOn(t *testing.T) {
	t.Parallel()
	s := scenario.Scenario{
		Server: repeatAnswer(150, cutAnswer(answerQuiet(": hello\n\n", time.Minute))),
		Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 1}),
	}
	r := scenario.Play(t, s)[0]
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Attempts); n != 151 { // the last meets the 204
		t.Fatalf("%d attempts", n)
	}
	for i, a := range r.Attempts[1:] {
		if gap := a.Began - r.Attempts[i].Over; gap != time.Second {
			t.Fatalf("attempt %d comes after %v", a.Number, gap)
		}
	}
}

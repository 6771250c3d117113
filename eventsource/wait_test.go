package eventsource_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// neverEarly checks that no attempt starts sooner after the end of the one before than
// the server asked.
func neverEarly(records []*scenario.Record, c *complaints) {
	r := records[0]
	truths := r.Truths()
	for i, a := range r.Attempts {
		if i > 0 {
			before := r.Attempts[i-1]
			if !before.HasOver {
				c.add("attempt %d begins while the one before goes on", a.Number)
			} else if gap := a.Began - before.Over; gap < truths[i-1].Asked {
				c.add("attempt %d begins %v after the one before; the server asked for %v", a.Number, gap, truths[i-1].Asked)
			}
		}
		if a.Reported != nil && a.Reported.Asked != truths[i].Asked {
			c.add("attempt %d: the policy is told that the server asked for %v, not %v", a.Number, a.Reported.Asked, truths[i].Asked)
		}
		for _, w := range a.Waited {
			if w.Asked != truths[i].Asked || w.Decided != a.Decided.Delay() || w.Waited != max(w.Asked, w.Decided) {
				c.add("after attempt %d the trace says %+v, where the server asked for %v and the policy decided %v", a.Number, w, truths[i].Asked, a.Decided)
			}
		}
	}
}

func TestG1NeverEarly(t *testing.T) {
	t.Parallel()
	p := property{check: neverEarly}
	p.holdsIn(t, []scenarioCase{
		{
			name:     "a retry binds a policy that does not wait",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone}, Policy: policyScript(0)},
			want:     []string{"0s request", "0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name:     "and one that waits less",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone}, Policy: policyScript(time.Second)},
			want:     []string{"0s request", "0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name:     "and one that waits less than nothing",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone}, Policy: policyScript(math.MinInt64)},
			want:     []string{"0s request", "0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name:     "the policy may wait longer",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone}, Policy: policyScript(time.Minute)},
			want:     []string{"0s request", "0s ended", "1m0s request", "1m0s rejected", "1m0s done: scenario: the policy's script has ended"},
		},
		{
			name: "a retry stays in force through failures",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerRefused, answerUnavailable("1"), answerEmpty, cutAnswer(answerEmpty), answerGone},
				Policy: policyScript(0, 0, 0, 0, 0),
			},
			want: []string{
				"0s request", "0s ended", "5s request", "5s failed", "10s request", "10s rejected",
				"15s request", "15s ended", "20s request", "20s dropped", "25s request", "25s rejected",
				"25s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "until it is replaced",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerStream("retry: +1\nretry: 200\nretry:\n\n"), answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{
				"0s request", "0s ended", "5s request", "5s ended", "5.2s request", "5.2s rejected",
				"5.2s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "a retry in an unfinished block counts",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{cutAnswer(answerStream("retry: 5000\ndata: lost")), answerGone},
				Policy: policyScript(0),
			},
			want: []string{"0s request", "0s dropped", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name: "Retry-After in seconds, and it binds one wait",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerUnavailable("7"), answerRefused, answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{"0s request", "0s rejected", "7s request", "7s failed", "7s request", "7s rejected", "7s done: scenario: the policy's script has ended"},
		},
		{
			name: "Retry-After as a date",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerUnavailable("+90s"), answerGone},
				Policy: policyScript(time.Second),
			},
			want: []string{"0s request", "0s rejected", "1m30s request", "1m30s rejected", "1m30s done: scenario: the policy's script has ended"},
		},
		{
			name: "the longer of retry and Retry-After",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerUnavailable("1"), answerUnavailable("9"), answerGone},
				Policy: policyScript(0, 0, 0),
			},
			want: []string{
				"0s request", "0s ended", "5s request", "5s rejected", "10s request", "10s rejected",
				"19s request", "19s rejected", "19s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "Retry-After of an event stream means nothing",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{RetryAfter: "60"}, answerGone},
				Policy: policyScript(0),
			},
			want: []string{"0s request", "0s ended", "0s request", "0s rejected", "0s done: scenario: the policy's script has ended"},
		},
		{
			name: "Reconnect while open waits for what the server asked",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerStream("retry: 5000\n\n")), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 2 * time.Second, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "2s restarted", "7s request", "7s rejected", "7s done: scenario: the policy's script has ended"},
		},
		{
			name: "Reconnect in the wait cannot cut what the server asked",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone},
				Policy: policyScript(time.Minute),
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: 2 * time.Second, Do: scenario.Restart},
					{After: 3 * time.Second, Do: scenario.Restart},
					{After: 4 * time.Second, Do: scenario.Restart},
				}},
			},
			want: []string{"0s request", "0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name: "Reconnect before the first byte, again and again",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), {Failure: scenario.NeverAnswers}, answerGone},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: 6 * time.Second, Do: scenario.Restart},
					{After: 7 * time.Second, Do: scenario.Restart},
				}},
			},
			want: []string{
				"0s request", "0s ended", "5s request", "6s restarted", "11s request", "11s rejected",
				"11s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "an adopted response asks as well",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Adopt: scenario.Resume},
			},
			want: []string{"0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name: "a failed Prepare is an attempt",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), {Failure: scenario.Unprepared}, answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{"0s request", "0s ended", "5s failed", "10s request", "10s rejected", "10s done: scenario: the policy's script has ended"},
		},
		{
			name: "a Retry-After for ever",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerUnavailable("99999999999999999999999"), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 24 * time.Hour, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s rejected", "960h0m0s done: scenario: cancelled at the horizon"},
		},
		{
			name: "a retry for ever",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 99999999999999999999\n\n"), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 24 * time.Hour, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s ended", "960h0m0s done: scenario: cancelled at the horizon"},
		},
	})
	p.holds(t)
}

// exactly checks that each wait lasts exactly as long as decided, or that the stream
// ends instead of beginning it. Only the caller can cut a wait short.
func exactly(records []*scenario.Record, c *complaints) {
	r := records[0]
	truths := r.Truths()
	deadline, hasDeadline := r.Scenario.Caller.Deadline, r.Scenario.Caller.Deadline > 0
	for i, a := range r.Attempts {
		if a.Reported == nil {
			continue
		}
		end := a.Ended[0]
		if at := a.Began + a.Reported.End.Sub(a.Reported.Start); at != end {
			c.add("attempt %d ended at %v and is said to have ended at %v", a.Number, end, at)
		}
		if end < a.Over || end > a.Over && r.Scenario.Caller.Slow == 0 {
			c.add("attempt %d ended at %v and is reported at %v", a.Number, a.Over, end)
		}

		if len(a.Waited) == 0 {
			// The stream ends here.
			if r.DoneAt != end {
				c.add("attempt %d ended at %v, the stream at %v: what was there to wait for?", a.Number, end, r.DoneAt)
			}
			stop := (*eventsource.StopError)(nil)
			if _, stopped := a.Decided.Stopped(); !stopped && errors.As(r.Err(), &stop) && errors.Is(stop.Reason, context.DeadlineExceeded) {
				if wait := max(a.Decided.Delay(), truths[i].Asked); !hasDeadline || wait < deadline-end {
					c.add("attempt %d: a wait of %v is refused at %v; the deadline is at %v", a.Number, wait, end, deadline)
				}
			}
			continue
		}
		due := end + a.Waited[0].Waited
		if due < end {
			due = math.MaxInt64
		}
		if hasDeadline && a.Waited[0].Waited > 0 && due >= deadline {
			c.add("attempt %d: a wait from %v to %v is begun; the deadline is at %v", a.Number, end, due, deadline)
		}
		if i == len(r.Attempts)-1 {
			if r.DoneAt > due {
				c.add("attempt %d: a wait from %v to %v goes on until the stream ends at %v", a.Number, end, due, r.DoneAt)
			}
			continue
		}
		checkBeginning(c, r.Attempts[i+1].Began, due, end+truths[i].Asked, restartsOf(r, a.Number), a)
	}
}

// checkBeginning checks when the attempt after a began: when the wait was due, or,
// if the caller was in a hurry, when the server allowed it.
func checkBeginning(c *complaints, began, due, allowed time.Duration, rs restarts, a *scenario.Attempt) {
	if began == due && len(rs.after) == 0 {
		return
	}
	hurried := len(rs.all) > 1 || len(rs.all) == 1 && a.Reported.Kind != policy.Restarted
	if len(rs.after) > 0 {
		first := rs.after[0]
		if want := min(max(allowed, first), due); began != want {
			c.add("attempt %d, hurried at %v, begins at %v, not at %v", a.Number+1, first, began, want)
		}
		return
	}
	if hurried && slices.ContainsFunc(rs.all, func(at time.Duration) bool { return began == max(allowed, at) }) {
		return
	}
	c.add("attempt %d begins at %v, not at %v (Reconnect was called at %v)", a.Number+1, began, due, rs.all)
}

func TestG2ExactlyOrNotAtAll(t *testing.T) {
	t.Parallel()
	day := answerStream("id: 1\nretry: 86400000\n\n")
	p := property{check: func(records []*scenario.Record, c *complaints) {
		exactly(records, c)
		withinBudget(records, c)
	}}
	p.holdsIn(t, []scenarioCase{
		{
			name:     "a day-long retry under a budget is not slept",
			scenario: scenario.Scenario{Server: []scenario.Answer{day, answerGone}, Policy: scenario.Policy{Preset: "MCPCall"}},
			want:     []string{"0s request", "0s ended", "0s done: budget: 24h0m0s of 5m0s"},
		},
		{
			name: "a day-long retry without a budget is waited for exactly",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{day, answerGone},
				Policy: policyRules(policy.Rules{}),
			},
			want: []string{"0s request", "0s ended", `24h0m0s request ["1"]`, "24h0m0s rejected", "24h0m0s done: in order"},
		},
		{
			name: "a day-long Retry-After under a budget",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerUnavailable("86400"), answerGone},
				Policy: policyRules(policy.Rules{Budget: time.Minute}),
			},
			want: []string{"0s request", "0s rejected", "0s done: budget: 24h0m0s of 1m0s"},
		},
		{
			name: "a wait that fits is waited in full",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 59999\n\n"), answerGone},
				Policy: policyRules(policy.Rules{Budget: time.Minute}),
			},
			want: []string{"0s request", "0s ended", "59.999s request", "59.999s rejected", "59.999s done: in order"},
		},
		{
			name: "a wait as long as the budget does not fit",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 60000\n\n"), answerGone},
				Policy: policyRules(policy.Rules{Budget: time.Minute}),
			},
			want: []string{"0s request", "0s ended", "0s done: budget: 1m0s of 1m0s"},
		},
		{
			name: "a wait that cannot end before the deadline is refused at once",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{day, answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Deadline: time.Hour},
			},
			want: []string{"0s request", "0s ended", "0s done: deadline"},
		},
		{
			name: "so is one that ends at the deadline",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerQuiet("", 10*time.Second), answerGone},
				Policy: policyScript(50 * time.Second),
				Caller: scenario.Caller{Deadline: time.Minute},
			},
			want: []string{"0s request", "10s ended", "10s done: deadline"},
		},
		{
			name: "but not one that ends just before",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerQuiet("", 10*time.Second), answerSilent},
				Policy: policyScript(50*time.Second - 1),
				Caller: scenario.Caller{Deadline: time.Minute},
			},
			want: []string{"0s request", "10s ended", "59.999999999s request", "1m0s done: context deadline exceeded"},
		},
		{
			name: "Reconnect cuts a wait of the client's own",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerRefused, answerGone},
				Policy: policyScript(30 * time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 10 * time.Second, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s failed", "10s request", "10s rejected", "10s done: scenario: the policy's script has ended"},
		},
		{
			name: "and Reconnect while the policy decides cuts the wait to come",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 2000\n\n"), answerGone},
				Policy: policyScript(30 * time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Decide, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s ended", "2s request", "2s rejected", "2s done: scenario: the policy's script has ended"},
		},
		{
			name: "one Reconnect cuts one thing",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerMessage), answerGone},
				Policy: policyScript(30 * time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 10 * time.Second, Do: scenario.Restart}}},
			},
			want: []string{"0s request", `0s event "m"`, "10s restarted", "40s request", "40s rejected", "40s done: scenario: the policy's script has ended"},
		},
		{
			name: "a refusal stays one when Reconnect comes while its body is read",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{Status: 503, Body: []scenario.Piece{{Wait: time.Minute}}}, answerGone},
				Policy: policyScript(30 * time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 500 * time.Millisecond, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "500ms rejected", "500ms request", "500ms rejected", "500ms done: scenario: the policy's script has ended"},
		},
		{
			name: "so does an event too large that was read when Reconnect is called",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerStream(strings.Repeat(":"+strings.Repeat(" ", 199)+"\n", 2) + "data: " + strings.Repeat("x", 600) + "\n\n")), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Comment, N: 2, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s too large", "0s request", "0s rejected", "0s done: scenario: the policy's script has ended"},
		},
	})
	p.holds(t)
}

// The deadline of a context is real time, whatever the Clock says: under a Fake too
// a wait is refused if it could not end before.
func TestG2DeadlineIsRealTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	fake := clock.NewFake(time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC))
	rt := answers(refuse(errCut))
	var waited []time.Duration
	c := rt.client(eventsource.Client{
		Clock: fake,
		Policy: func() policy.Reconnector {
			return policy.Func(func(a policy.Attempt) policy.Decision {
				return policy.After(time.Duration(a.Number) * 25 * time.Minute)
			})
		},
		Trace: &eventsource.Trace{Wait: func(i eventsource.WaitInfo) {
			waited = append(waited, i.Waited)
			fake.Advance(i.Waited)
		}},
	})
	_, err := collect(c.Stream(get(ctx)))
	var stop *eventsource.StopError
	if !errors.As(err, &stop) || !errors.Is(stop.Reason, context.DeadlineExceeded) || !errors.Is(err, errCut) {
		t.Errorf("it ends with %v", err)
	}
	// The time by which the Fake was advanced is not counted.
	if diff := cmp.Diff([]time.Duration{25 * time.Minute, 50 * time.Minute}, waited); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

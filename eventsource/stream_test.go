package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// One stream goes through every kind of trouble: what it yields, what it sends, and how
// long it waits.
func TestStreamRidesOutWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := answers(
			body(errCut, "id: 1\ndata: a\n\ndata: lost"),
			body(nil, "retry: 1500\nid: 2\ndata: b\n\n"),
			status(503, "Retry-After", "7"),
			body(nil, "id: 3\ndata\n\n"), // primed and closed
			refuse(errors.New("dial refused")),
			body(nil, "data: c\n\n"),
			status(204),
		)
		var log []string
		trace := &eventsource.Trace{
			End:  func(a policy.Attempt) { log = append(log, fmt.Sprintf("%d %v %v", a.Number, a.Kind, a.LastEventID)) },
			Wait: func(w eventsource.WaitInfo) { log = append(log, fmt.Sprint(w.Waited)) },
			Done: func(err error) { log = append(log, fmt.Sprint("done ", err)) },
		}
		rules := policy.ResilientRules()
		rules.Jitter = -1
		s := rt.client(eventsource.Client{Policy: rules.New, Trace: trace}).Stream(get(t.Context()))
		data, err := collect(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b", "", "c"}, data); diff != "" {
			t.Error(diff)
		}
		want := []string{
			"1 dropped 1", "3s",
			"2 ended 2", "1.5s",
			"3 rejected 2", "7s",
			"4 ended 3", "3s",
			"5 failed 3", "6s",
			"6 ended 3", "1.5s",
			"7 rejected 3", "done <nil>",
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Error(diff)
		}
		var ids []string
		for _, r := range rt.requests {
			ids = append(ids, strings.Join(r.Header.Values("Last-Event-ID"), "|"))
		}
		if diff := cmp.Diff([]string{"", "1", "2", "2", "3", "3", "3"}, ids); diff != "" {
			t.Error(diff)
		}
	})
}

// cancelledAt returns when the stream's context was done, and the cause. There may be
// two causes at the same time.
func cancelledAt(r *scenario.Record) (at time.Duration, causes []error) {
	at, causes = scenario.Horizon, []error{scenario.ErrHorizon}
	if d := r.Scenario.Caller.Deadline; d > 0 {
		at, causes = d, []error{context.DeadlineExceeded}
	}
	for _, e := range r.Log {
		if e.What != scenario.Cancel.String() || e.At > at {
			continue
		}
		if e.At < at {
			causes = nil
		}
		return e.At, append(causes, scenario.ErrCancelled)
	}
	return at, causes
}

// oneEnd checks that a stream ends once, with nil or one error that says why.
func oneEnd(records []*scenario.Record, c *complaints) {
	r := records[0]
	switch {
	case len(r.Done) != 1:
		c.add("Trace.Done was called %d times", len(r.Done))
		return
	case len(r.Errors) > 1 || r.Surplus > 0:
		c.add("the loop was given %v, and %d things after an error or with it", r.Errors, r.Surplus)
	case len(r.Again) != 1 || r.Again[0] == nil || !strings.Contains(r.Again[0].Error(), "only once"):
		c.add("a second range gives %v", r.Again)
	}
	done := r.Done[0]

	interrupted := r.Left || r.Exited || r.Panicked != nil
	if interrupted && didAtDone(r) {
		return // by the hook that was told of the end, whatever it was
	}
	if interrupted {
		if done != nil || len(r.Errors) > 0 {
			c.add("the loop was left; Trace.Done was told %v and the loop given %v", done, r.Errors)
		}
		return
	}
	if done != r.Err() {
		c.add("Trace.Done was told %v, and the loop was given %v", done, r.Err())
	}
	at, causes := cancelledAt(r)
	switch asCause := slices.Contains(causes, done); {
	case asCause && r.DoneAt < at:
		c.add("the stream ends at %v with %v; its context was done at %v", r.DoneAt, done, at)
	case asCause:
	case r.DoneAt > at:
		c.add("the context was done at %v with %v; the stream ends at %v with %v", at, causes, r.DoneAt, done)
	default:
		checkStop(c, r, done)
	}
}

// didAtDone reports whether the caller broke out of Trace.Done.
func didAtDone(r *scenario.Record) bool {
	done := false
	for _, e := range r.Log {
		switch e.What {
		case scenario.Done.String():
			done = true
		case scenario.Panic.String(), scenario.Exit.String():
			return done
		}
	}
	return false
}

// checkStop checks the end of a stream that has ended by itself.
func checkStop(c *complaints, r *scenario.Record, done error) {
	if len(r.Attempts) == 0 {
		c.add("the stream ends with %v before its first attempt", done)
		return
	}
	last := r.Attempts[len(r.Attempts)-1]
	if last.Reported == nil || last.Asked == nil {
		c.add("the stream ends with %v, and nobody was told of its last attempt", done)
		return
	}
	clean := last.Reported.Kind == policy.Ended && last.Reported.Err == nil
	reason, stopped := last.Decided.Stopped()
	switch {
	case stopped && reason == nil, !stopped && done == nil && clean:
		// The second is the clean end of a request that is not repeated.
		if done != nil {
			c.add("after an orderly end there is the error %v", done)
		}
		if !stopped && repeatable(r, last) {
			c.add("the decision %v is not followed", last.Decided)
		}
		return
	}
	var stop *eventsource.StopError
	if !errors.As(done, &stop) {
		c.add("the stream ends with %v, which is not a StopError", done)
		return
	}
	if err := last.Reported.Err; err != nil && !errors.Is(done, err) {
		c.add("the error %v does not wrap the cause %v", done, err)
	}
	if stop.Attempt.Number != last.Number || stop.Attempt.Kind != last.Reported.Kind || !stop.Attempt.End.Equal(last.Reported.End) {
		c.add("the error is about %+v, not about the last attempt, %+v", stop.Attempt, *last.Reported)
	}
	switch {
	case stopped && stop.Reason != reason:
		c.add("the policy stopped for %v; the error gives %v", reason, stop.Reason)
	case !stopped && errors.Is(stop.Reason, eventsource.ErrNotReplayable):
		if clean || repeatable(r, last) {
			c.add("after an attempt that %v: %v", last.Reported.Kind, done)
		}
	case !stopped && !errors.Is(stop.Reason, context.DeadlineExceeded):
		c.add("the policy did not stop, and the stream ends with %v", done)
	}
}

// repeatable reports whether the request of the next attempt may be sent.
func repeatable(r *scenario.Record, last *scenario.Attempt) bool {
	caller := r.Scenario.Caller
	if caller.Adopt == scenario.Alone {
		return false
	}
	sent := false
	for _, a := range r.Attempts {
		sent = sent || len(a.Connected) > 0
	}
	if !sent {
		return true
	}
	return !caller.Post || caller.Key && caller.Payload != scenario.Once
}

func TestG6OneEnd(t *testing.T) {
	t.Parallel()
	p := property{check: oneEnd}
	at := func(on scenario.Point, do scenario.Deed) scenario.Caller {
		return scenario.Caller{Actions: []scenario.Action{{On: on, Do: do}}}
	}
	busy := []scenario.Answer{answerStream(": hello\nretry: 1000\n\ndata: m\n\n"), answerGone}
	p.holdsIn(t, []scenarioCase{
		{
			name:     "in order",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerGone}, Policy: scenario.Policy{Preset: "WHATWG"}},
			want:     []string{"0s request", "0s rejected", "0s done: in order"},
		},
		{
			name:     "a refusal",
			scenario: scenario.Scenario{Server: []scenario.Answer{{Status: 404}}, Policy: scenario.Policy{Preset: "WHATWG"}},
			want:     []string{"0s request", "0s rejected", "0s done: response 404"},
		},
		{
			name:     "the policy gives up",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerRefused}, Policy: scenario.Policy{Script: []scenario.Decision{{Verb: scenario.GiveUp}}}},
			want:     []string{"0s request", "0s failed", "0s done: scenario: the policy has given up"},
		},
		{
			name:     "the policy makes no decision",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerMessage}, Policy: scenario.Policy{Script: []scenario.Decision{{Verb: scenario.Undecided}}}},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: the policy made no decision"},
		},
		{
			name:     "no reconnection is wanted: a clean end",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerMessage}, Policy: scenario.Policy{Preset: "Never"}},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: in order"},
		},
		{
			name:     "no reconnection is wanted: one inside an event",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("data: half")}, Policy: scenario.Policy{Preset: "Never"}},
			want:     []string{"0s request", "0s ended", "0s done: the stream ended inside an event: unexpected EOF"},
		},
		{
			name: "the answer to a POST",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerMessage, answerMessage},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Post: true, Payload: scenario.Repeated},
			},
			want: []string{"0s request", `0s event "m"`, "0s ended", "0s done: in order"},
		},
		{
			name: "a POST that breaks",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{cutAnswer(answerMessage), answerMessage},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Post: true, Payload: scenario.Repeated},
			},
			want: []string{"0s request", `0s event "m"`, "0s dropped", "0s done: the request cannot be repeated"},
		},
		{
			name: "an adopted response that nothing follows",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{cutAnswer(answerMessage), answerMessage},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Adopt: scenario.Alone},
			},
			want: []string{`0s event "m"`, "0s dropped", "0s done: the request cannot be repeated"},
		},
		{
			name: "cancelled before it begins",
			scenario: scenario.Scenario{
				Server: busy,
				Caller: at(scenario.Start, scenario.Cancel),
			},
			want: []string{"0s done: scenario: cancelled by the caller"},
		},
		{
			name: "the deadline passes",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerSilent},
				Caller: scenario.Caller{Deadline: time.Second},
			},
			want: []string{"0s request", "1s done: context deadline exceeded"},
		},
		{
			name:     "cancelled while connecting",
			scenario: scenario.Scenario{Server: busy, Caller: at(scenario.RoundTrip, scenario.Cancel)},
			want:     []string{"0s request", "0s done: scenario: cancelled by the caller"},
		},
		{
			name:     "cancelled in the loop",
			scenario: scenario.Scenario{Server: busy, Caller: at(scenario.Body, scenario.Cancel)},
			want:     []string{"0s request", `0s event "m"`, "0s done: scenario: cancelled by the caller"},
		},
		{
			name:     "cancelled by the hook that sees the end of an attempt",
			scenario: scenario.Scenario{Server: busy, Policy: policyScript(0), Caller: at(scenario.AttemptEnd, scenario.Cancel)},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: scenario: cancelled by the caller"},
		},
		{
			name:     "cancelled while the policy decides",
			scenario: scenario.Scenario{Server: busy, Policy: policyScript(0), Caller: at(scenario.Decide, scenario.Cancel)},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: scenario: cancelled by the caller"},
		},
		{
			name:     "cancelled in the wait",
			scenario: scenario.Scenario{Server: busy, Policy: policyScript(0), Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Wait, After: time.Millisecond, Do: scenario.Cancel}}}},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "1ms done: scenario: cancelled by the caller"},
		},
		{
			name:     "left",
			scenario: scenario.Scenario{Server: busy, Caller: at(scenario.Body, scenario.Leave)},
			want:     []string{"0s request", `0s event "m"`, "0s done: in order", "left"},
		},
		{
			name:     "Reconnect and then left",
			scenario: scenario.Scenario{Server: busy, Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: scenario.Restart}, {On: scenario.Body, Do: scenario.Leave}}}},
			want:     []string{"0s request", `0s event "m"`, "0s done: in order", "left"},
		},
	})
	// A panic or an exit at every point.
	for point := scenario.Prepare; point <= scenario.Done; point++ {
		for _, deed := range []scenario.Deed{scenario.Panic, scenario.Exit} {
			t.Run(deed.String()+" at "+point.String(), func(t *testing.T) {
				records, broken := p.run(t, scenario.Scenario{Server: busy, Policy: policyScript(time.Second), Caller: at(point, deed)})
				for _, text := range broken {
					t.Error(text)
				}
				if r := records[0]; (r.Panicked == any(scenario.ErrPanic)) != (deed == scenario.Panic) || r.Exited != (deed == scenario.Exit) {
					t.Errorf("it did not come through:\n%s", r.Text())
				}
			})
		}
	}
	p.holds(t)
}

// An adopted response that no request led to has no context, and is the only
// attempt.
func TestG6AdoptedWithoutRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want error
	}{
		{"data: a\n\n", nil},
		{"data: a\n\ndata: b", eventsource.ErrNotReplayable},
	} {
		resp := response(200, "text/event-stream", io.NopCloser(strings.NewReader(tt.text)))
		data, err := collect((&eventsource.Client{}).Adopt(resp, nil))
		if !errors.Is(err, tt.want) || len(data) != 1 {
			t.Errorf("%q gives %q, then %v", tt.text, data, err)
		}
	}
}

// oneAtATime checks that there are never two requests in flight.
func oneAtATime(records []*scenario.Record, c *complaints) {
	r := records[0]
	if r.InFlight > 1 {
		c.add("there are %d requests in flight", r.InFlight)
	}
	for i, a := range r.Attempts {
		if i > 0 && (!r.Attempts[i-1].HasOver || r.Attempts[i-1].Over > a.Began) {
			c.add("attempt %d begins at %v; the one before is over at %v", a.Number, a.Began, r.Attempts[i-1].Over)
		}
		if len(a.Connected) > 1 {
			c.add("attempt %d connects %d times", a.Number, len(a.Connected))
		}
		if a.Sent != (len(a.Connected) == 1) && a.Reported != nil && a.Reported.Kind != policy.Restarted && a.Reported.Kind != policy.Expired {
			c.add("attempt %d: a request was sent: %v; the trace was told of %d", a.Number, a.Sent, len(a.Connected))
		}
	}
}

func TestG8OneAtATime(t *testing.T) {
	t.Parallel()
	p := property{check: oneAtATime}
	everySecond := func(n int) (actions []scenario.Action) {
		for i := range n {
			actions = append(actions, scenario.Action{After: time.Duration(i+1) * time.Second, Do: scenario.Restart})
		}
		return actions
	}
	p.holdsIn(t, []scenarioCase{
		{
			name: "Reconnect while open",
			scenario: scenario.Scenario{
				Server: repeatAnswer(3, answerSilent), Policy: policyScript(0, 0, 0),
				Caller: scenario.Caller{Actions: append(everySecond(2), scenario.Action{After: 3 * time.Second, Do: scenario.Cancel})},
			},
			want: []string{"0s request", "1s restarted", "1s request", "2s restarted", "2s request", "3s done: scenario: cancelled by the caller"},
		},
		{
			name: "Reconnect while open, by two goroutines at once",
			scenario: scenario.Scenario{
				Server: repeatAnswer(3, answerSilent), Policy: policyScript(time.Second, time.Second, time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: time.Second, Do: scenario.Restart}, {After: time.Second, Do: scenario.Restart}, {After: 10 * time.Second, Do: scenario.Cancel},
				}},
			},
		},
		{
			name: "Reconnect while connecting",
			scenario: scenario.Scenario{
				Server: repeatAnswer(3, scenario.Answer{Failure: scenario.NeverAnswers}), Policy: policyScript(0, 0, 0),
				Caller: scenario.Caller{Actions: append(everySecond(2), scenario.Action{After: 3 * time.Second, Do: scenario.Cancel})},
			},
			want: []string{"0s request", "1s restarted", "1s request", "2s restarted", "2s request", "3s done: scenario: cancelled by the caller"},
		},
		{
			name: "Reconnect with a body that heeds no context",
			scenario: scenario.Scenario{
				Server: repeatAnswer(2, scenario.Answer{End: scenario.Hold, Deaf: true}), Policy: policyScript(0, 0),
				Caller: scenario.Caller{Actions: append(everySecond(1), scenario.Action{After: 3 * time.Second, Do: scenario.Cancel})},
			},
			want: []string{"0s request", "1s restarted", "1s request", "3s done: scenario: cancelled by the caller"},
		},
		{
			name: "Reconnect with an adopted response",
			scenario: scenario.Scenario{
				Server: repeatAnswer(2, answerSilent), Policy: policyScript(0, 0),
				Caller: scenario.Caller{Adopt: scenario.Resume, Actions: append(everySecond(1), scenario.Action{After: 3 * time.Second, Do: scenario.Cancel})},
			},
			want: []string{"1s restarted", "1s request", "3s done: scenario: cancelled by the caller"},
		},
		{
			name: "a refusal whose body does not end",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerUnavailable("")), answerGone}, Policy: policyScript(0),
			},
			want: []string{"0s request", "1s rejected", "1s request", "1s rejected", "1s done: scenario: the policy's script has ended"},
		},
	})
	p.holds(t)
}

// aloneAndTogether plays each scenario alone, and then both at once with the same
// Client but for the hooks.
func aloneAndTogether(run runScenarios, scenarios []scenario.Scenario) (records []*scenario.Record) {
	for i := range scenarios {
		scenarios[i].Policy = scenarios[0].Policy
		records = append(records, run(scenarios[i])...)
	}
	return append(records, run(scenarios...)...)
}

// isolation checks that what happens to a stream does not depend on the others.
func isolation(records []*scenario.Record, c *complaints) {
	n := len(records) / 2
	for i := range n {
		alone := records[i].Text()
		// Each server has a name of its own.
		together := strings.ReplaceAll(records[n+i].Text(), "server1.test", "server0.test")
		if alone != together {
			c.add("stream %d (-alone +together):\n%s", i+1, cmp.Diff(strings.Split(alone, "\n"), strings.Split(together, "\n")))
		}
	}
}

func TestG11Isolation(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Steady: true},
		streams: 2,
		play:    aloneAndTogether,
		check:   isolation,
	}
	t.Run("runs, schedules, times and IDs are each stream's own", func(t *testing.T) {
		growing := policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 4})
		records, broken := p.run(
			t,
			scenario.Scenario{
				Server: []scenario.Answer{answerStream("id: 1\nretry: 2000\n\n"), answerEmpty, answerEmpty, answerEmpty, answerGone},
				Policy: growing,
			},
			scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerMessage, answerEmpty, answerEmpty, answerGone},
			},
		)
		for _, text := range broken {
			t.Error(text)
		}
		for i, want := range [][]string{
			{
				"0s request", "0s ended", `2s request ["1"]`, "2s ended", `6s request ["1"]`, "6s ended", `14s request ["1"]`, "14s ended",
				`30s request ["1"]`, "30s rejected", "30s done: in order",
			},
			{
				"0s request", "0s ended", "1s request", `1s event "m"`, "1s ended", "2s request", "2s ended", "3s request", "3s ended",
				"5s request", "5s rejected", "5s done: in order",
			},
		} {
			if diff := cmp.Diff(want, historyOf(records[2+i])); diff != "" {
				t.Errorf("stream %d (-want +got):\n%s", i+1, diff)
			}
		}
	})
	t.Run("cancelling, leaving and panicking end one stream", func(t *testing.T) {
		for _, deed := range []scenario.Deed{scenario.Cancel, scenario.Leave, scenario.Panic, scenario.Exit} {
			_, broken := p.run(
				t,
				scenario.Scenario{
					Server: []scenario.Answer{openAnswer(answerMessage)},
					Policy: policyScript(0),
					Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: deed}}},
				},
				scenario.Scenario{
					Server: []scenario.Answer{openAnswer(answerQuiet("data: m\n\n", time.Hour)), answerMessage},
					Caller: scenario.Caller{IdleTimeout: 2 * time.Hour},
				},
			)
			for _, text := range broken {
				t.Errorf("%v: %s", deed, text)
			}
		}
	})
	p.holds(t)
}

// A fruitlessLedger counts as the documentation of policy.Rules says, by what the server
// did.
type fruitlessLedger struct {
	rules              policy.Rules
	random             float64
	run, reconnections int
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

// noFreeResets checks that the run of fruitless attempts follows from what the server
// did, and the waits from the run.
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
			name:     "connecting is not progress",
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

// A quiet stream that a proxy cuts every minute goes on for ever, at its base wait.
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

package eventsource_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// cancelledAt returns when the stream's context was done, and the cause; there may
// be two at the same time.
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

// oneEnd: a stream ends once, with nil or one error that says why.
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
		c.add("the stream ends with %v, which is no StopError", done)
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

// nothingLeft: when a stream is over it holds nothing, and it is over soon.
func nothingLeft(records []*scenario.Record, c *complaints) {
	r := records[0]
	if r.Timers != 0 || r.Bodies != 0 || r.Payloads != 0 {
		c.add("at the end there are %d timers, %d bodies of responses and %d of requests left", r.Timers, r.Bodies, r.Payloads)
	}
	if r.Late > 0 {
		c.add("there are %d requests after the end", r.Late)
	}
	if len(r.Done) == 0 || r.Returned != r.DoneAt {
		c.add("the loop is over at %v; Trace.Done is called at %v", r.Returned, r.DoneAt)
	}
	for _, e := range r.Log {
		switch e.What {
		case scenario.Cancel.String():
			if prompt := e.At + r.Scenario.Caller.Slow; r.DoneAt > prompt {
				c.add("cancelled at %v, it ends at %v", e.At, r.DoneAt)
			}
		case scenario.Leave.String(), scenario.Panic.String(), scenario.Exit.String():
			if r.DoneAt > e.At {
				c.add("left at %v, it ends at %v", e.At, r.DoneAt)
			}
		}
	}
	if d := r.Scenario.Caller.Deadline; d > 0 && r.DoneAt > d+r.Scenario.Caller.Slow {
		c.add("its deadline at %v, it ends at %v", d, r.DoneAt)
	}
	for _, a := range r.Attempts {
		if a.HasAnswer && !a.Closed {
			c.add("the body of attempt %d is not closed", a.Number)
		}
	}
}

func TestG7NothingLeft(t *testing.T) {
	t.Parallel()
	p := property{check: nothingLeft}
	// Every state that a stream can be in, with every timer that it can have, and
	// every way to end it from outside.
	limits := scenario.Caller{ConnectTimeout: time.Hour, IdleTimeout: time.Hour}
	limited := scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(2 * time.Hour), After: time.Second}, {After: 24 * time.Hour}}}
	states := []struct {
		name   string
		server []scenario.Answer
		after  time.Duration
	}{
		{"connecting", []scenario.Answer{{Failure: scenario.NeverAnswers}}, time.Minute},
		{"open and silent", []scenario.Answer{answerSilent}, time.Minute},
		{"inside an event", []scenario.Answer{openAnswer(answerStream("data: half"))}, time.Minute},
		{"reading a refusal", []scenario.Answer{openAnswer(answerUnavailable(""))}, time.Second / 2},
		{"reading a body that heeds no context", []scenario.Answer{{End: scenario.Hold, Deaf: true}}, time.Minute},
		{"waiting", []scenario.Answer{answerMessage}, time.Second / 2},
		{"connecting again", []scenario.Answer{answerMessage, {Failure: scenario.NeverAnswers}}, time.Minute},
		{"open again", []scenario.Answer{answerMessage, answerSilent}, time.Minute},
		{"waiting for what the server asked", []scenario.Answer{answerStream("retry: 86400000\n\n"), answerSilent}, time.Hour},
		{"waiting for ever", []scenario.Answer{answerStream("retry: 99999999999999999999\n\n"), answerSilent}, time.Hour},
	}
	p.holdsIn(t, []scenarioCase{
		{
			name: "an adopted response that is not read any more",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerSilent},
				Caller: scenario.Caller{Adopt: scenario.Resume, Actions: []scenario.Action{{Do: scenario.Cancel}}},
			},
			want: []string{"0s done: scenario: cancelled by the caller"},
		},
		{
			name: "a body that is not sent any more",
			scenario: scenario.Scenario{
				Caller: scenario.Caller{Post: true, Payload: scenario.Repeated, Actions: []scenario.Action{{Do: scenario.Cancel}}},
			},
			want: []string{"0s done: scenario: cancelled by the caller"},
		},
		{
			name: "a body that is made and not sent",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{Failure: scenario.Unprepared}},
				Caller: scenario.Caller{Post: true, Payload: scenario.Repeated},
			},
			want: []string{"0s failed", "0s done: scenario: the policy's script has ended"},
		},
	})
	for _, state := range states {
		for _, how := range []string{"cancel", "deadline", "restart and cancel"} {
			t.Run(how+" while "+state.name, func(t *testing.T) {
				s := scenario.Scenario{Server: state.server, Policy: limited, Caller: limits}
				switch how {
				case "cancel":
					s.Caller.Actions = []scenario.Action{{After: state.after, Do: scenario.Cancel}}
				case "restart and cancel":
					s.Caller.Actions = []scenario.Action{{After: state.after, Do: scenario.Restart}, {After: state.after, Do: scenario.Cancel}}
				case "deadline":
					s.Caller.Deadline = state.after
				}
				records, broken := p.run(t, s)
				r := records[0]
				for _, text := range broken {
					t.Error(text)
				}
				early := how == "deadline" && strings.HasPrefix(state.name, "waiting") // refused
				if r.DoneAt != state.after && !early {
					t.Errorf("it ends at %v, not at %v", r.DoneAt, state.after)
				}
				if t.Failed() {
					t.Log(r.Text())
				}
			})
		}
	}
	p.holds(t)
}

// A stream that is never ranged over holds nothing, and an adopted body is still
// the caller's then.
func TestG7NeverRangedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := answers(body(errHold, "data: m\n\n"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := rt.RoundTrip(get(ctx))
		if err != nil {
			t.Fatal(err)
		}
		s := rt.client(eventsource.Client{IdleTimeout: time.Second}).Adopt(resp, get(ctx))
		s.Reconnect()
		time.Sleep(time.Hour)
		if n, err := resp.Body.Read(make([]byte, 9)); n != 9 || err != nil {
			t.Errorf("the adopted body gave %d bytes and %v", n, err)
		}
		if len(rt.requests) != 1 {
			t.Errorf("%d requests", len(rt.requests))
		}
	})
}

// A hastyClock moves on as soon as a timer is set: the timer fires before AfterFunc
// has returned.
type hastyClock struct{ *clock.Fake }

func (c hastyClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := c.Fake.AfterFunc(d, f)
	c.Fake.Advance(d)
	return t
}

// A timer may fire before the goroutine that has set it gets any further, and
// Reconnect may have been called before.
func TestG7TimerThatFiresAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := answers(refuse(errCut), status(204))
		c := rt.client(eventsource.Client{Clock: hastyClock{clock.NewFake(time.Time{})}, ConnectTimeout: -1})
		var s *eventsource.Stream
		c.Trace = &eventsource.Trace{End: func(policy.Attempt) { s.Reconnect() }}
		s = c.Stream(get(t.Context()))
		if _, err := collect(s); err != nil || len(rt.requests) != 2 {
			t.Errorf("%d requests, then %v", len(rt.requests), err)
		}
	})
}

// oneAtATime: there are never two requests in flight.
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

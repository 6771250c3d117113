package policy_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/policy"
)

// plain is Rules without what these tests cannot foresee.
func plain(change func(*policy.Rules)) policy.Rules {
	r := policy.Rules{Jitter: -1}
	if change != nil {
		change(&r)
	}
	return r
}

func TestWhatEndsAStream(t *testing.T) {
	permanent := backoff.Permanent(errors.New("token revoked"))
	temporary := func(r *policy.Rules) { r.Retryable = func(int) bool { return true } }
	for _, s := range []sequence{
		{
			name: "a clean end does not", rules: plain(nil),
			turns: script(ended, ended.brings(1)),
			want:  decisions("after 3s; after 3s"),
		},
		{
			name: "nor a broken or silent connection", rules: plain(nil),
			turns: script(dropped, idle.brings(1), failed),
			want:  decisions("after 3s; after 3s; after 3s"),
		},
		{
			name: "permanent", rules: plain(temporary),
			turns: script(failed.isPermanent(), restarted.isPermanent().fails(errCut)),
			want:  decisions("stop: dial refused; stop: cut"),
		},
		{
			name: "permanent", rules: plain(temporary),
			turns: script(failed.fails(permanent), failed.fails(fmt.Errorf("Prepare: %w", permanent)), rejected(503).fails(permanent)),
			want:  decisions("stop: token revoked; stop: Prepare: token revoked; stop: token revoked"),
		},
		{
			name: "too large, even after messages", rules: plain(temporary),
			turns: script(tooLarge.brings(5)),
			want:  decisions("stop: event too large"),
		},
		{
			name: "204", rules: plain(nil),
			turns: script(rejected(204)), want: decisions("stop: <nil>"),
		},
		{
			name: "204 is never temporary", rules: plain(temporary),
			turns: script(ended, rejected(204)), want: decisions("after 3s; stop: <nil>"),
		},
		{
			name: "a rejection", rules: plain(nil),
			turns: script(rejected(503)), want: decisions("stop: status 503"),
		},
		{
			name: "a rejection of a stream that had opened", rules: plain(nil),
			turns: script(ended.brings(1), rejected(200)), want: decisions("after 3s; stop: status 200"),
		},
		{
			name: "a rejection that is not temporary", rules: plain(func(r *policy.Rules) { r.Retryable = func(s int) bool { return s == 503 } }),
			turns: script(rejected(503), rejected(504)), want: decisions("after 3s; stop: status 504"),
		},
		{
			name: "a wrong type that the caller calls temporary", rules: plain(temporary),
			turns: script(rejected(200)), want: decisions("after 3s"),
		},
		{
			name: "a kind that this version does not know", rules: plain(nil),
			turns: script(turn{}, turn{kind: 99}), want: decisions("after 3s; after 6s"),
		},
	} {
		s.check(t)
	}
}

func TestOneAnswer(t *testing.T) {
	rules := plain(func(r *policy.Rules) { r.OneAnswer = true })
	truncated := errors.New("inside an event")
	for _, s := range []sequence{
		{
			name: "a clean end after a message", rules: rules,
			turns: script(ended.brings(1)), want: decisions("stop: <nil>"),
		},
		{
			name: "an end inside an event, after a message", rules: rules,
			turns: script(ended.brings(1).fails(truncated)), want: decisions("stop: inside an event"),
		},
		{
			name: "a clean end without one", rules: rules,
			turns: script(ended.lasts(time.Hour), ended, ended.brings(3)), want: decisions("after 3s; after 3s; stop: <nil>"),
		},
		{
			name: "any other end after a message", rules: rules,
			turns: script(failed, dropped.brings(1)), want: decisions("after 3s; stop: cut"),
		},
		{
			name: "silence after a message", rules: rules,
			turns: script(idle.brings(1)), want: decisions("stop: idle"),
		},
		{
			name: "a restart after a message", rules: rules,
			turns: script(restarted.brings(1)),
			want:  decisions("stop: reconnections are exhausted: the answer has begun, and another would begin anew"),
		},
		{
			name: "a restart before one", rules: rules,
			turns: script(restarted, ended.brings(1)), want: decisions("after 0s; stop: <nil>"),
		},
	} {
		s.check(t)
	}
}

func TestRequireLastEventID(t *testing.T) {
	rules := plain(func(r *policy.Rules) { r.RequireLastEventID = true; r.Retryable = func(int) bool { return true } })
	const stop = "stop: no last event ID to resume from"
	for _, s := range []sequence{
		{name: "after an end", rules: rules, turns: script(ended.brings(1)), want: decisions(stop)},
		{name: "after a failure", rules: rules, turns: script(failed), want: decisions(stop)},
		{name: "after a temporary rejection", rules: rules, turns: script(rejected(503)), want: decisions(stop)},
		{name: "after a restart", rules: rules, turns: script(restarted), want: decisions(stop)},
		{
			name: "seeded", rules: rules, id: "7",
			turns: script(failed, restarted), want: decisions("after 3s; after 0s"),
		},
		{
			name: "set and cleared", rules: rules,
			turns: script(ended.brings(1).setsID("7"), ended.brings(1), ended.brings(1).setsID("")),
			want:  decisions("after 3s; after 3s; " + stop),
		},
		{
			name: "what ends the stream anyhow comes first", rules: rules,
			turns: script(failed.isPermanent(), rejected(204)), want: decisions("stop: dial refused; stop: <nil>"),
		},
	} {
		s.check(t)
	}
}

func TestTheWaitGrowsWhileAttemptsFail(t *testing.T) {
	rules := policy.Rules{Delay: time.Second, Factor: 2, MaxDelay: 30 * time.Second, Jitter: -1}
	got, _ := newPlayer(rules).waits(failed.times(7))
	if diff := cmp.Diff(seconds(1, 2, 4, 8, 16, 30, 30), got); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

func TestTheWait(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules policy.Rules
		turns []turn
		want  []time.Duration
	}{
		{
			name: "defaults", rules: plain(nil),
			turns: failed.times(6), want: seconds(3, 6, 12, 24, 30, 30),
		},
		{
			name: "no growth", rules: plain(func(r *policy.Rules) { r.Factor = 1 }),
			turns: failed.times(4), want: seconds(3, 3, 3, 3),
		},
		{
			name: "cap between steps", rules: plain(func(r *policy.Rules) { r.MaxDelay = 7 * time.Second }),
			turns: failed.times(4), want: seconds(3, 6, 7, 7),
		},
		{
			name: "cap below the delay", rules: plain(func(r *policy.Rules) { r.MaxDelay = time.Second }),
			turns: failed.times(3), want: seconds(3, 3, 3),
		},
		{
			name: "a factor beyond all bounds", rules: plain(func(r *policy.Rules) { r.Factor = math.MaxFloat64 }),
			turns: failed.times(3), want: seconds(3, 30, 30),
		},
		{
			name: "the server's time is the base", rules: plain(nil),
			turns: script(ended.retry(5*time.Second), failed.times(4)), want: seconds(5, 10, 20, 30, 30),
		},
		{
			name: "a server's time beyond the cap", rules: plain(nil),
			turns: script(ended.retry(time.Minute), failed.times(2)), want: seconds(60, 60, 60),
		},
		{
			name: "a delay below the floor", rules: plain(func(r *policy.Rules) { r.Delay = time.Millisecond }),
			turns: failed.times(3), want: seconds(0.1, 0.2, 0.4),
		},
		{
			name: "retry 0", rules: plain(nil),
			turns: ended.retry(0).times(3), want: seconds(0.1, 0.2, 0.4),
		},
		{
			name: "retry 0 with a floor of one's own", rules: plain(func(r *policy.Rules) { r.Floor = time.Second }),
			turns: ended.retry(0).times(3), want: seconds(1, 2, 4),
		},
		{
			name: "retry 0 without a floor", rules: plain(func(r *policy.Rules) { r.Floor = -1 }),
			turns: ended.retry(0).times(3), want: seconds(0, 0, 0),
		},
		{
			name: "the server's time replaces the delay, it does not raise it", rules: plain(nil),
			turns: script(ended.retry(500*time.Millisecond), failed), want: seconds(0.5, 1),
		},
		{
			name: "a new server's time in the middle of a run", rules: plain(nil),
			turns: script(failed.times(2), ended.retry(time.Second), failed, ended.retry(100*time.Millisecond)),
			want:  seconds(3, 6, 4, 8, 1.6),
		},
		{
			name: "retry that says what is in force already", rules: plain(nil),
			turns: ended.retry(time.Second).times(5), want: seconds(1, 2, 4, 8, 16),
		},
		{
			name: "a message ends the run", rules: plain(nil),
			turns: script(failed.times(3), dropped.brings(1), failed, failed), want: seconds(3, 6, 12, 3, 3, 6),
		},
		{
			name: "so does a long open stream", rules: plain(nil),
			turns: script(failed.times(3), dropped.lasts(30*time.Second), failed, failed), want: seconds(3, 6, 12, 3, 3, 6),
		},
		{
			name: "but not one a little shorter, nor a long wait for the response", rules: plain(nil),
			turns: script(dropped.takes(time.Hour).lasts(30*time.Second-1), failed.takes(time.Hour), rejected(503).takes(time.Hour)),
			want:  seconds(3, 6),
		},
		{
			name: "a progress time of one's own", rules: plain(func(r *policy.Rules) { r.ProgressAfter = time.Second }),
			turns: script(ended.lasts(time.Second-1), ended.lasts(time.Second), ended), want: seconds(3, 3, 3),
		},
		{
			name: "only messages are progress", rules: plain(func(r *policy.Rules) { r.ProgressAfter = -1 }),
			turns: script(dropped.lasts(time.Hour), dropped.lasts(time.Hour), dropped.brings(1)), want: seconds(3, 6, 3),
		},
		{
			name: "a restart neither lengthens nor ends a run", rules: plain(nil),
			turns: script(failed.times(2), restarted, restarted.lasts(time.Hour), failed), want: seconds(3, 6, 0, 0, 12),
		},
		{
			name: "a restart after a message ends the run", rules: plain(nil),
			turns: script(failed.times(2), restarted.brings(1), failed), want: seconds(3, 6, 0, 3),
		},
		{
			name: "a restart of a stream that lasted and was heard of ends the run", rules: plain(nil),
			turns: script(failed.times(2), restarted.lasts(time.Hour).hears(30*time.Second), failed), want: seconds(3, 6, 0, 3),
		},
		{
			name: "an idle timeout does not make its own silence progress", rules: plain(nil),
			turns: script(idle.lasts(31 * time.Second).times(3)), want: seconds(3, 6, 12),
		},
		{
			name: "what came before the silence does", rules: plain(nil),
			turns: script(failed, idle.lasts(61*time.Second).hears(30*time.Second)), want: seconds(3, 3),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := newPlayer(tt.rules).waits(tt.turns)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	}
}

// GiveUpAfter limits the time without a message in every state, from the start of the
// stream on.
func TestGiveUpAfter(t *testing.T) {
	rules := plain(func(r *policy.Rules) { r.GiveUpAfter = time.Minute })
	for _, s := range []sequence{
		{
			name: "silent from the start", rules: rules,
			turns: script(silent), want: decisions("stop: a wait of 3s does not fit in the 0s left of the budget"),
		},
		{
			name: "after a message", rules: rules,
			turns: script(silent.lasts(time.Hour).brings(1).isQuiet(time.Hour)),
			want:  decisions("stop: a wait of 3s does not fit in the 0s left of the budget"),
		},
		{
			name: "over several attempts and the waits between", rules: rules,
			turns: script(ended.takes(10*time.Second), ended.lasts(20*time.Second), silent),
			want: decisions("after 3s, within 47s, message timeout 1m0s; after 6s, within 21s, message timeout 1m0s; " +
				"stop: a wait of 12s does not fit in the 0s left of the budget"),
		},
		{
			name: "a message renews it, not the end of its attempt", rules: rules,
			turns: script(failed.takes(50*time.Second), ended.brings(1).isQuiet(20*time.Second), failed),
			want:  decisions("after 3s, within 7s, message timeout 1m0s; after 3s, within 37s, message timeout 1m0s; after 3s, within 34s, message timeout 1m0s"),
		},
		{
			name: "polls do not renew it", rules: func() policy.Rules { r := rules; r.PollAfter = -1; return r }(),
			turns: ended.retry(25 * time.Second).times(3),
			want: decisions("after 25s, within 35s, message timeout 1m0s; after 25s, within 10s, message timeout 1m0s; " +
				"stop: a wait of 25s does not fit in the 10s left of the budget"),
		},
		{
			name: "the shorter of it and the message timeout holds", rules: func() policy.Rules { r := rules; r.MessageTimeout = time.Hour; return r }(),
			turns: script(failed), want: decisions("after 3s, within 57s, message timeout 1m0s"),
		},
	} {
		s.check(t)
	}
	if got, want := rules.New().(policy.Starter).Start(), policy.After(0).MessageTimeout(time.Minute); got != want {
		t.Errorf("the first attempt starts with %v, want %v", got, want)
	}
	if got, want := plain(nil).New().(policy.Starter).Start(), policy.After(0); got != want {
		t.Errorf("without GiveUpAfter the first attempt starts with %v, want %v", got, want)
	}
}

// MessageTimeout ends an attempt and leaves the stream to the other rules.
func TestMessageTimeout(t *testing.T) {
	sequence{
		name: "keep-alives only", rules: plain(func(r *policy.Rules) { r.MessageTimeout = time.Minute }),
		turns: script(failed, silent, silent),
		want:  decisions("after 3s, message timeout 1m0s; after 6s, message timeout 1m0s; after 12s, message timeout 1m0s"),
	}.check(t)
}

// A negative Delay is none, and Floor still holds.
func TestNegativeDelay(t *testing.T) {
	sequence{
		name: "none", rules: policy.Rules{Delay: -1, Jitter: -1},
		turns: script(ended.brings(1), failed, failed), want: decisions("after 100ms; after 100ms; after 200ms"),
	}.check(t)
}

// A refused ID is forgotten if there was one, even before the stream has opened; a refusal
// without one is final until then.
func TestForgetRefusedID(t *testing.T) {
	rules := plain(func(r *policy.Rules) { r.ForgetRefusedID = true })
	for _, s := range []sequence{
		{name: "a stored ID", rules: rules, id: "7", turns: script(rejected(400), ended.brings(1)), want: decisions("after 3s, forget; after 3s")},
		{name: "refused again without it", rules: rules, id: "7", turns: script(rejected(400).times(2)), want: decisions("after 3s, forget; stop: status 400")},
		{name: "no ID", rules: rules, turns: script(rejected(400)), want: decisions("stop: status 400")},
		{name: "no ID, but it has been open", rules: rules, turns: script(ended, rejected(400)), want: decisions("after 3s; after 6s, forget")},
		{name: "unauthorized", rules: rules, id: "7", turns: script(rejected(401)), want: decisions("stop: status 401")},
	} {
		s.check(t)
	}
}

func TestPolls(t *testing.T) {
	all := plain(func(r *policy.Rules) { r.PollAfter = -1 })
	ten := plain(func(r *policy.Rules) { r.PollAfter = 10 * time.Second })
	for _, tt := range []struct {
		name  string
		rules policy.Rules
		turns []turn
		want  []time.Duration
	}{
		{
			name: "none without PollAfter", rules: plain(nil),
			turns: ended.retry(20 * time.Second).times(3), want: seconds(20, 30, 30),
		},
		{
			name: "wait exactly, without end", rules: all,
			turns: ended.retry(200 * time.Millisecond).times(4), want: seconds(0.2, 0.2, 0.2, 0.2),
		},
		{
			name: "not below the floor", rules: all,
			turns: ended.retry(0).times(3), want: seconds(0.1, 0.1, 0.1),
		},
		{
			name: "leave the run as it is", rules: all,
			turns: script(ended.retry(time.Second), failed.times(3), ended.retry(time.Second), failed),
			want:  seconds(1, 1, 2, 4, 1, 8),
		},
		{
			name: "need not carry the field themselves", rules: all,
			turns: script(dropped.retry(time.Second), ended, ended, failed), want: seconds(1, 1, 1, 2),
		},
		{
			name: "end cleanly", rules: all,
			turns: script(ended.retry(time.Second).fails(errCut).times(2), dropped.retry(time.Second), dropped.retry(time.Second).fails(nil)),
			want:  seconds(1, 2, 4, 8),
		},
		{
			name: "with a message they are productive", rules: all,
			turns: script(failed.times(2), ended.retry(time.Second).brings(1), failed, failed), want: seconds(3, 6, 1, 1, 2),
		},
		{
			name: "after a long open stream as well", rules: all,
			turns: script(failed.times(2), ended.retry(time.Second).lasts(30*time.Second), failed, failed), want: seconds(3, 6, 1, 1, 2),
		},
		{
			name: "below the threshold", rules: ten,
			turns: ended.retry(10*time.Second - 1).times(2), want: []time.Duration{10*time.Second - 1, 2 * (10*time.Second - 1)},
		},
		{
			name: "at the threshold", rules: ten,
			turns: ended.retry(10 * time.Second).times(3), want: seconds(10, 10, 10),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := newPlayer(tt.rules).waits(tt.turns)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMaxFruitless(t *testing.T) {
	limit := func(n int) policy.Rules {
		return plain(func(r *policy.Rules) { r.MaxFruitless = n; r.PollAfter = time.Minute })
	}
	poll := ended.retry(time.Minute)
	for _, tt := range []struct {
		name  string
		rules policy.Rules
		turns []turn
		want  int // turns until the end; 0: going on
	}{
		{"no limit", limit(0), failed.times(1000), 0},
		{"the first attempt does not count", limit(3), failed.times(9), 4},
		{"a productive first attempt", limit(3), script(ended.brings(1), failed.times(9)), 4},
		{"one", limit(1), failed.times(9), 2},
		{"a productive attempt starts anew", limit(3), script(failed.times(3), ended.brings(1), failed.times(9)), 7},
		{"so does a long open one", limit(3), script(failed.times(3), dropped.lasts(time.Minute), failed.times(9)), 7},
		{"polls do not count", limit(3), script(failed.times(2), poll.times(20), failed.times(9)), 24},
		{"restarts do not count", limit(3), script(failed.times(2), restarted.times(20), failed.times(9)), 24},
		{"a restarted first attempt", limit(1), script(restarted, failed.times(9)), 2},
		{"a first attempt that was a poll", limit(1), script(poll, failed.times(9)), 2},
		{"negative: a fruitless first attempt", limit(-1), failed.times(9), 1},
		{"negative: a fruitless reconnection", limit(-7), script(ended.brings(1), poll, restarted, dropped.lasts(time.Minute), ended.fails(errCut)), 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlayer(tt.rules)
			for i, turn := range tt.turns {
				reason, stopped := p.play(turn).Stopped()
				if stopped != (i+1 == tt.want) {
					t.Fatalf("after %d attempts: stopped is %v (%v), want the end after %d", i+1, stopped, reason, tt.want)
				}
				if stopped {
					if !errors.Is(reason, policy.ErrExhausted) {
						t.Errorf("the reason is %v, want ErrExhausted", reason)
					}
					return
				}
			}
		})
	}
}

func TestMaxFruitlessNamesTheCount(t *testing.T) {
	_, end := newPlayer(policy.Rules{MaxFruitless: 5}).waits(failed.times(9))
	if want := "stop: reconnections are exhausted: fruitless attempts in a row: 6"; end != want {
		t.Errorf("end %q, want %q", end, want)
	}
}

// steps is a schedule of the caller's. It notes how it is used.
type steps struct {
	list  []time.Duration
	reset int
}

func (s *steps) Reset() { s.reset++ }

func (s *steps) NextBackOff() time.Duration {
	if len(s.list) == 0 {
		return backoff.Stop
	}
	step := s.list[0]
	s.list = s.list[1:]
	return step
}

func TestBackoff(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules policy.Rules
		list  []time.Duration
		turns []turn
		want  []time.Duration
		end   string
		made  int
	}{
		{
			name: "takes over from the second fruitless attempt on", list: seconds(5, 4, 4, 40),
			turns: failed.times(5), want: seconds(3, 5, 4, 4, 40), end: "going on", made: 1,
		},
		{
			name: "knows neither Factor nor MaxDelay", rules: policy.Rules{Factor: 10, MaxDelay: 1}, list: seconds(5, 5, 99),
			turns: failed.times(4), want: seconds(3, 5, 5, 99), end: "going on", made: 1,
		},
		{
			name: "never below the base", list: seconds(1, 0, 5),
			turns: script(ended.retry(4*time.Second), failed.times(3)), want: seconds(4, 4, 4, 5), end: "going on", made: 1,
		},
		{
			name: "goes on when the base changes", list: seconds(5, 6, 7),
			turns: script(failed.times(2), ended.retry(time.Second), failed), want: seconds(3, 5, 6, 7), end: "going on", made: 1,
		},
		{
			name: "is new after a productive attempt", list: seconds(5, 6, 7),
			turns: script(failed.times(3), ended.brings(1), failed.times(3)), want: seconds(3, 5, 6, 3, 3, 5, 6), end: "going on", made: 2,
		},
		{
			name: "is not made before it is needed", list: seconds(5),
			turns: script(failed, ended.brings(1), failed, ended.brings(1)), want: seconds(3, 3, 3, 3), end: "going on", made: 0,
		},
		{
			name: "polls take no step", rules: policy.Rules{PollAfter: -1}, list: seconds(5, 6, 7),
			turns: script(failed.times(2), ended.retry(time.Second).times(3), failed), want: seconds(3, 5, 1, 1, 1, 6), end: "going on", made: 1,
		},
		{
			name: "restarts take no step", list: seconds(5, 6, 7),
			turns: script(failed.times(2), restarted.times(3), failed), want: seconds(3, 5, 0, 0, 0, 6), end: "going on", made: 1,
		},
		{
			name: "its end is the stream's", list: seconds(5),
			turns: failed.times(9), want: seconds(3, 5),
			end: "stop: reconnections are exhausted: the schedule ended after 3 fruitless attempts in a row", made: 1,
		},
		{
			name: "so is any negative step", list: []time.Duration{math.MinInt64},
			turns: failed.times(9), want: seconds(3),
			end: "stop: reconnections are exhausted: the schedule ended after 2 fruitless attempts in a row", made: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var made []*steps
			tt.rules.Jitter = -1
			tt.rules.Backoff = func() backoff.BackOff {
				made = append(made, &steps{list: slices.Clone(tt.list)})
				return made[len(made)-1]
			}
			got, end := newPlayer(tt.rules).waits(tt.turns)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
			if end != tt.end {
				t.Errorf("end %q, want %q", end, tt.end)
			}
			if len(made) != tt.made {
				t.Errorf("%d schedules were made, want %d", len(made), tt.made)
			}
			for _, s := range made {
				if s.reset != 1 {
					t.Errorf("a schedule was reset %d times, want once", s.reset)
				}
			}
		})
	}
}

func TestBackoffExhaustionIsErrExhausted(t *testing.T) {
	rules := policy.Rules{Backoff: func() backoff.BackOff { return &backoff.StopBackOff{} }}
	p := newPlayer(rules)
	p.play(failed)
	if reason, _ := p.play(failed).Stopped(); !errors.Is(reason, policy.ErrExhausted) {
		t.Errorf("the reason is %v, want ErrExhausted", reason)
	}
}

// A schedule of the backoff package that was not reset yields zeros; backoff's
// own Retry resets it first, so callers rely on it.
func TestBackoffOfThePackage(t *testing.T) {
	rules := plain(func(r *policy.Rules) {
		r.Backoff = func() backoff.BackOff {
			return backoff.WithMaxRetries(&backoff.ExponentialBackOff{
				InitialInterval: 5 * time.Second, Multiplier: 3, MaxInterval: time.Minute, Clock: backoff.SystemClock,
			}, 4)
		}
	})
	got, end := newPlayer(rules).waits(failed.times(9))
	if diff := cmp.Diff(seconds(3, 5, 15, 45, 60), got); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	if !strings.Contains(end, "exhausted") {
		t.Errorf("end %q, want exhaustion", end)
	}
}

func TestBackoffMustNotBeNil(t *testing.T) {
	rules := policy.Rules{Backoff: func() backoff.BackOff { return nil }}
	p := newPlayer(rules)
	p.play(failed)
	defer func() {
		if got := fmt.Sprint(recover()); got != "policy: Rules.Backoff returned nil" {
			t.Errorf("panic %q", got)
		}
	}()
	p.play(failed)
}

func TestJitter(t *testing.T) {
	half := func() float64 { return 0.5 }
	retry := 4 * time.Second
	for _, tt := range []struct {
		name  string
		rules policy.Rules
		turns []turn
		want  []time.Duration
	}{
		{
			name: "on the delay and on what has grown", rules: policy.Rules{Rand: half},
			turns: script(failed.times(2), ended.brings(1), failed.times(6)), want: seconds(3.75, 7.5, 3.75, 3.75, 7.5, 15, 30, 37.5, 37.5),
		},
		{
			name: "on a delay that the floor has raised", rules: policy.Rules{Rand: half, Delay: 1},
			turns: script(failed), want: seconds(0.125),
		},
		{
			name: "never on the server's time", rules: policy.Rules{Rand: half, PollAfter: 10 * time.Second},
			turns: script(ended.retry(retry), ended.retry(retry).brings(1), ended.retry(0).brings(1), ended.retry(20*time.Second)),
			want:  seconds(4, 4, 0.1, 20),
		},
		{
			name: "on growth from the server's time", rules: policy.Rules{Rand: half},
			turns: ended.retry(retry).times(3), want: seconds(4, 10, 20),
		},
		{
			name: "on growth that the cap has stopped", rules: policy.Rules{Rand: half},
			turns: ended.retry(time.Minute).times(2), want: seconds(60, 75),
		},
		{
			name: "not on a poll in a run", rules: policy.Rules{Rand: half, PollAfter: -1},
			turns: script(failed.times(3), ended.retry(retry), failed), want: seconds(3.75, 7.5, 15, 4, 40-2.5),
		},
		{
			name: "on a schedule's steps", rules: policy.Rules{Rand: half, Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(8 * time.Second) }},
			turns: failed.times(3), want: seconds(3.75, 10, 10),
		},
		{
			name: "not on a restart", rules: policy.Rules{Rand: half},
			turns: script(restarted), want: seconds(0),
		},
		{
			name: "as large as the caller wants", rules: policy.Rules{Rand: half, Jitter: 4},
			turns: script(failed), want: seconds(9),
		},
		{
			name: "none", rules: policy.Rules{Jitter: -1, Rand: func() float64 { panic("asked for nothing") }},
			turns: failed.times(2), want: seconds(3, 6),
		},
		{
			name: "random numbers below 0", rules: policy.Rules{Rand: func() float64 { return math.Inf(-1) }},
			turns: failed.times(2), want: seconds(3, 6),
		},
		{
			name: "random numbers that are none", rules: policy.Rules{Rand: math.NaN},
			turns: failed.times(2), want: seconds(3, 6),
		},
		{
			name: "random numbers of 1 and more", rules: policy.Rules{Rand: func() float64 { return math.Inf(1) }, Jitter: 1},
			turns: script(failed), want: []time.Duration{6*time.Second - 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := newPlayer(tt.rules).waits(tt.turns)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRandomnessByDefault(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 20 {
		d := policy.WHATWG().New().Next(policy.Attempt{Number: 1, Kind: policy.Failed, Err: errDial}).Delay()
		if d < 3*time.Second || d >= 4500*time.Millisecond {
			t.Errorf("wait %v, want 3s up to 4.5s", d)
		}
		seen[d] = true
	}
	if len(seen) < 10 {
		t.Errorf("20 streams chose only %d different waits", len(seen))
	}
}

func TestManyClientsDoNotComeBackTogether(t *testing.T) {
	const clients = 1000
	first := func(turns ...turn) (waits []time.Duration) {
		for seed := range uint64(clients) {
			rules := policy.Rules{Delay: 4 * time.Second, Rand: rand.New(rand.NewPCG(seed, 58)).Float64}
			p := newPlayer(rules)
			for _, turn := range turns {
				p.play(turn)
			}
			waits = append(waits, p.waited)
		}
		return waits
	}

	waits := first(dropped.brings(1))
	if least := slices.Min(waits); least < 4*time.Second {
		t.Errorf("one came back after %v, before its time", least)
	}
	if spread := slices.Max(waits) - slices.Min(waits); spread < 1500*time.Millisecond {
		t.Errorf("all came back within %v", spread)
	}

	told := dropped.brings(1).retry(4 * time.Second)
	for seed, wait := range first(told) {
		if wait != 4*time.Second {
			t.Errorf("seed %d: %v, want exactly what the server asked", seed, wait)
		}
	}
	for seed, wait := range first(told, failed) {
		if wait != 4*time.Second {
			t.Errorf("seed %d: %v after the first failure, want exactly what the server asked", seed, wait)
		}
	}
	waits = first(told, failed, failed)
	if least := slices.Min(waits); least < 8*time.Second {
		t.Errorf("one came back after %v, before its time", least)
	}
	if spread := slices.Max(waits) - slices.Min(waits); spread < 3*time.Second {
		t.Errorf("after the second failure all came back within %v", spread)
	}
}

func TestRetryZeroIsNoBusyLoop(t *testing.T) {
	for name, turn := range map[string]turn{
		"empty":         ended.retry(0),
		"with messages": ended.retry(0).brings(1), // productive, so the wait never grows
	} {
		for _, rules := range []policy.Rules{{}, {PollAfter: -1}, policy.MCPCall(), policy.MCPListen()} {
			p := newPlayer(rules).withID("1")
			attempts := 0
			for p.now.Sub(start) < time.Second {
				attempts++
				if _, stopped := p.play(turn).Stopped(); stopped {
					break
				}
				if p.waited < 100*time.Millisecond {
					t.Fatalf("%s: attempt %d is followed after %v", name, attempts, p.waited)
				}
			}
			if attempts > 10 {
				t.Errorf("%s: %d attempts within a second", name, attempts)
			}
		}
	}
}

func TestTheWaitStaysWithinItsCapForEver(t *testing.T) {
	const seed = 60
	for name, script := range map[string][]turn{
		"without retry":         script(failed),
		"with a constant retry": script(ended.retry(time.Second)),
		"with a changing retry": script(ended.retry(time.Second), ended.retry(2*time.Second), failed),
	} {
		rules := policy.Rules{Rand: rand.New(rand.NewPCG(seed, 0)).Float64}
		p := newPlayer(rules)
		for i := range 10_000 {
			d := p.play(script[i%len(script)])
			if _, stopped := d.Stopped(); stopped {
				t.Fatalf("%s: %v after %d failures", name, d, i+1)
			}
			if wait := p.waited; wait < time.Second || wait > 45*time.Second {
				t.Fatalf("%s: waits %v after %d failures", name, wait, i+1)
			}
		}
		if p.waited < 30*time.Second {
			t.Errorf("%s: in the end the wait is %v, below the cap", name, p.waited)
		}
	}

	_, end := newPlayer(policy.Rules{MaxFruitless: 1000}).waits(failed.times(10_000))
	if !strings.Contains(end, "in a row: 1001") {
		t.Errorf("with a limit of 1000 the stream ends with %q", end)
	}
}

// What a decision costs must not grow with the run, not even if the server
// changes its mind all the time and the schedule has to be made anew: stepping
// through the run each time would make this test some 2,000,000,000 steps long.
func TestDecisionsStayCheapInLongRuns(t *testing.T) {
	rules := plain(func(r *policy.Rules) { r.ProgressAfter = -1; r.MaxDelay = 5 * time.Second })
	p := newPlayer(rules)
	began := time.Now()
	for i := range 60_000 {
		p.play(ended.retry(time.Duration(1+i%2) * time.Second))
	}
	if p.waited != 5*time.Second {
		t.Errorf("the wait is %v, want the cap", p.waited)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("60,000 decisions took %v", took)
	}
}

func TestAHealthyConnectionResetsTheWait(t *testing.T) {
	for name, healthy := range map[string]turn{
		"silent":        dropped.lasts(10 * time.Minute),
		"with messages": dropped.lasts(10 * time.Minute).brings(600),
	} {
		got, _ := newPlayer(plain(nil)).waits(script(failed.times(5), healthy, failed))
		if diff := cmp.Diff(seconds(3, 6, 12, 24, 30, 3, 3), got); diff != "" {
			t.Errorf("%s: waits (-want +got):\n%s", name, diff)
		}
	}
}

func TestAConnectionThatDiesAtOnceDoesNotResetTheWait(t *testing.T) {
	got, _ := newPlayer(plain(nil)).waits(ended.lasts(100 * time.Millisecond).times(7))
	if diff := cmp.Diff(seconds(3, 6, 12, 24, 30, 30, 30), got); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

func TestG4NoFreeResets(t *testing.T) {
	for _, tt := range []struct {
		name string
		turn turn
		want []time.Duration
	}{
		{"connecting", ended, seconds(3, 6, 12, 24, 30)},
		{"a response that takes long to come", dropped.takes(time.Hour), seconds(3, 6, 12, 24, 30)},
		{"priming events, each with an ID", ended.setsID("moved").retry(3 * time.Second), seconds(3, 6, 12, 24, 30)},
		{"a rejection that takes long", rejected(503).takes(time.Hour), seconds(3, 6, 12, 24, 30)},
		{"a restart", restarted.lasts(time.Hour), seconds(3, 0, 6, 0, 12, 0, 24, 0, 30, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := plain(func(r *policy.Rules) { r.MaxFruitless = 5; r.Retryable = func(int) bool { return true } })
			got, end := newPlayer(rules).waits(repeat(9, failed, tt.turn))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
			if !strings.Contains(end, "exhausted") {
				t.Errorf("end %q, want exhaustion", end)
			}
		})
	}
}

func TestG4EventsWithoutDataAreNoMessages(t *testing.T) {
	next := plain(nil).New().Next
	attempt := policy.Attempt{
		Number: 2, Kind: policy.Ended, Status: 200, Events: 3,
		Start: start, Open: start, End: start.Add(time.Second),
	}
	for i, want := range seconds(3, 6, 12) {
		if got := next(attempt).Delay(); got != want {
			t.Errorf("after %d attempts with events but no message the wait is %v, want %v", i+1, got, want)
		}
	}
}

// minute is Rules with a budget.
func minute() policy.Rules {
	return plain(func(r *policy.Rules) { r.Budget = time.Minute; r.Retryable = func(int) bool { return true } })
}

func TestBudget(t *testing.T) {
	two := failed.takes(2 * time.Second)
	for _, s := range []sequence{
		{
			name: "starts at the end of the first attempt", rules: minute(),
			turns: script(failed.takes(time.Hour), two, two, two, two),
			want: decisions("after 3s, within 57s; after 6s, within 49s; after 12s, within 35s; after 24s, within 9s; " +
				"stop: a wait of 30s does not fit in the 7s left of the budget"),
		},
		{
			name: "starts anew at the end of an attempt with a message", rules: minute(),
			turns: script(failed, two, dropped.lasts(time.Hour).brings(1), two),
			want:  decisions("after 3s, within 57s; after 6s, within 49s; after 3s, within 57s; after 3s, within 52s"),
		},
		{
			name: "not at the end of a long open one", rules: plain(func(r *policy.Rules) { r.Budget = time.Hour }),
			turns: script(failed, dropped.lasts(40*time.Minute), failed),
			want:  decisions("after 3s, within 59m57s; after 3s, within 19m54s; after 3s, within 19m51s"),
		},
		{
			name: "a message in the first attempt changes nothing", rules: minute(),
			turns: script(dropped.lasts(time.Hour).brings(9), two),
			want:  decisions("after 3s, within 57s; after 3s, within 52s"),
		},
		{
			name: "a wait as long as what is left does not fit", rules: minute(),
			turns: script(ended.retry(time.Minute)),
			want:  decisions("stop: a wait of 1m0s does not fit in the 1m0s left of the budget"),
		},
		{
			name: "one a little shorter does", rules: minute(),
			turns: script(ended.retry(time.Minute - 1)),
			want:  decisions("after 59.999999999s, within 1ns"),
		},
		{
			name: "Retry-After counts", rules: minute(),
			turns: script(rejected(503).asksFor(20*time.Second), rejected(503).asksFor(40*time.Second)),
			want:  decisions("after 3s, within 40s; stop: a wait of 40s does not fit in the 40s left of the budget"),
		},
		{
			name: "a restarted first attempt starts it", rules: minute(),
			turns: script(restarted.lasts(time.Hour), two),
			want:  decisions("after 0s, within 1m0s; after 3s, within 55s"),
		},
		{
			name: "a restart does not renew it", rules: minute(),
			turns: script(failed, restarted.lasts(16*time.Second).times(3)),
			want:  decisions("after 3s, within 57s; after 0s, within 41s; after 0s, within 25s; after 0s, within 9s"),
		},
		{
			name: "a restart after a message does", rules: minute(),
			turns: script(failed, restarted.lasts(20*time.Second), restarted.lasts(20*time.Second).brings(1)),
			want:  decisions("after 3s, within 57s; after 0s, within 37s; after 0s, within 1m0s"),
		},
		{
			name: "a restart waits for what the server asked", rules: minute(),
			turns: script(restarted.retry(50*time.Second), restarted),
			want:  decisions("after 0s, within 10s; stop: a wait of 50s does not fit in the 10s left of the budget"),
		},
		{
			name: "none", rules: plain(nil),
			turns: script(failed, restarted, ended.retry(forever)), want: decisions("after 3s; after 0s; after 2562047h47m16.854775807s"),
		},
	} {
		s.check(t)
	}
}

func TestG2AWaitThatDoesNotFitIsNotBegun(t *testing.T) {
	for _, tt := range []struct {
		name  string
		turns []turn
		want  policy.BudgetError
	}{
		{"a day", script(ended.retry(24 * time.Hour)), policy.BudgetError{Asked: 24 * time.Hour, Left: time.Minute}},
		{"for ever", script(ended.retry(forever)), policy.BudgetError{Asked: forever, Left: time.Minute}},
		{"a day of Retry-After", script(rejected(503).asksFor(24 * time.Hour)), policy.BudgetError{Asked: 24 * time.Hour, Left: time.Minute}},
		{"used up", script(failed, turn{kind: policy.Expired, after: 57 * time.Second}), policy.BudgetError{Asked: 6 * time.Second}},
		{"overdrawn", script(failed, failed.takes(2*time.Minute).isLate()), policy.BudgetError{Asked: 6 * time.Second, Left: -63 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlayer(minute())
			var reason error
			for i, turn := range tt.turns {
				var stopped bool
				if reason, stopped = p.play(turn).Stopped(); stopped != (i == len(tt.turns)-1) {
					t.Fatalf("after %d attempts: stopped is %v (%v)", i+1, stopped, reason)
				}
			}
			var got *policy.BudgetError
			if !errors.As(reason, &got) {
				t.Fatalf("the reason is %v, want a BudgetError", reason)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the server does, the stream ends within the budget, counted from the
// end of the first attempt.
func TestG3BoundedByTheBudget(t *testing.T) {
	const budget = 5 * time.Minute
	for name, turns := range map[string][]turn{
		"nobody there":                script(failed.takes(time.Second)),
		"a name that never resolves":  script(failed.takes(forever)),
		"a silent server":             script(silent),
		"silence and failures":        script(failed, silent),
		"a server that drips":         script(dropped.lasts(40 * time.Second)),
		"primed closes without end":   script(ended.retry(200 * time.Millisecond).setsID("p")),
		"closes with no wait":         script(ended.retry(0)),
		"ever longer waits":           script(ended.retry(time.Second), ended.retry(2*time.Second), ended.retry(time.Minute)),
		"refusals with Retry-After":   script(rejected(503).asksFor(17 * time.Second)),
		"a caller who restarts":       script(restarted.lasts(time.Second)),
		"a caller who restarts early": script(restarted.retry(10 * time.Millisecond)),
		"a day":                       script(ended.retry(24 * time.Hour)),
	} {
		t.Run(name, func(t *testing.T) {
			rules := policy.Rules{
				Budget: budget, PollAfter: -1, Retryable: func(int) bool { return true },
				Rand: rand.New(rand.NewPCG(3, 3)).Float64,
			}
			for _, first := range []turn{failed, restarted.lasts(time.Hour), dropped.lasts(time.Hour).brings(5)} {
				p := newPlayer(rules)
				p.play(first)
				for i := 0; ; i++ {
					if i == 1_000_000 {
						t.Fatal("a million attempts, and no end")
					}
					reason, stopped := p.play(turns[i%len(turns)]).Stopped()
					if !stopped {
						continue
					}
					var overdrawn *policy.BudgetError
					if !errors.As(reason, &overdrawn) {
						t.Errorf("the reason is %v, want a BudgetError", reason)
					}
					break
				}
				if took := p.now.Sub(p.firstEnd); took > budget {
					t.Errorf("the end came %v after the first attempt, beyond the budget", took)
				}
			}
		})
	}
}

func TestIdle(t *testing.T) {
	for _, limit := range []time.Duration{0, 30 * time.Second, -1} {
		rules := plain(func(r *policy.Rules) { r.Idle = limit })
		withBudget := rules
		withBudget.Budget = time.Minute
		for _, r := range []policy.Rules{rules, withBudget} {
			p := newPlayer(r)
			for _, turn := range script(failed, restarted, ended.brings(1)) {
				if got := p.play(turn).IdleLimit(); got != limit {
					t.Errorf("after %v the idle limit is %v, want %v", turn.kind, got, limit)
				}
			}
		}
	}
}

func TestDurationsSaturate(t *testing.T) {
	almost := func() float64 { return 0.999 }
	for _, tt := range []struct {
		name  string
		rules policy.Rules
		turns []turn
		want  []time.Duration
	}{
		{
			name: "the longest delay", rules: policy.Rules{Delay: forever, Rand: almost},
			turns: failed.times(3), want: []time.Duration{forever, forever, forever},
		},
		{
			name: "the longest reconnection time", rules: policy.Rules{Rand: almost},
			turns: ended.retry(forever).times(3), want: []time.Duration{forever, forever, forever},
		},
		{
			name: "growth", rules: policy.Rules{Delay: forever/3 + 1, MaxDelay: forever, Jitter: -1},
			turns: failed.times(4), want: []time.Duration{forever/3 + 1, 6148914691236516864, forever, forever},
		},
		{
			name: "jitter", rules: policy.Rules{Delay: forever - forever/4, Rand: almost},
			turns: failed.times(2), want: []time.Duration{forever, forever},
		},
		{
			name: "endless jitter", rules: policy.Rules{Delay: 1, Floor: -1, Jitter: math.MaxFloat64, Rand: almost},
			turns: failed.times(2), want: []time.Duration{forever, forever},
		},
		{
			name: "a schedule", rules: policy.Rules{Rand: almost, Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(forever) }},
			turns: failed.times(3), want: []time.Duration{4498500 * time.Microsecond, forever, forever},
		},
		{
			name: "the floor", rules: policy.Rules{Floor: forever},
			turns: ended.retry(0).times(2), want: []time.Duration{forever, forever},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []time.Duration
			next := tt.rules.New().Next
			for i, turn := range tt.turns { // without a player, whose time would end too soon
				got = append(got, next(policy.Attempt{
					Number: i + 1, Kind: turn.kind, Err: turn.err, Start: start, End: start,
					RetrySent: turn.retrySent, HasRetry: turn.retrySent, Retry: turn.retryIs, Asked: turn.retryIs,
				}).Delay())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	}
}

// A clock that goes backwards breaks its contract; a budget then gains nothing
// by it, and nothing overflows.
func TestTimeThatGoesBackwards(t *testing.T) {
	next := minute().New().Next
	end := time.Date(2800, time.January, 1, 0, 0, 0, 0, time.UTC)
	next(policy.Attempt{Number: 1, Kind: policy.Failed, Err: errDial, End: end})
	d := next(policy.Attempt{Number: 2, Kind: policy.Dropped, Err: errCut, Open: end, End: end.AddDate(-1600, 0, 0)})
	if got, want := d.String(), "after 6s, within 54s"; got != want {
		t.Errorf("decided %q, want %q", got, want)
	}
}

func TestNewRefusesImpossibleRules(t *testing.T) {
	const factor = "must be a number of at least 1, or 0 for the default"
	for _, tt := range []struct {
		rules policy.Rules
		want  string
	}{
		{policy.Rules{GiveUpAfter: -time.Second}, "policy: Rules.GiveUpAfter is -1s; it must not be negative"},
		{policy.Rules{MessageTimeout: -time.Second}, "policy: Rules.MessageTimeout is -1s; it must not be negative"},
		{policy.Rules{MaxDelay: -time.Second}, "policy: Rules.MaxDelay is -1s; it must not be negative"},
		{policy.Rules{Budget: -time.Second}, "policy: Rules.Budget is -1s; it must not be negative"},
		{policy.Rules{Factor: 0.5}, "policy: Rules.Factor is 0.5; it " + factor},
		{policy.Rules{Factor: -2}, "policy: Rules.Factor is -2; it " + factor},
		{policy.Rules{Factor: math.Inf(1)}, "policy: Rules.Factor is +Inf; it " + factor},
		{policy.Rules{Factor: math.NaN()}, "policy: Rules.Factor is NaN; it " + factor},
		{policy.Rules{Jitter: math.NaN()}, "policy: Rules.Jitter is NaN; it must be a finite number"},
		{policy.Rules{Jitter: math.Inf(1)}, "policy: Rules.Jitter is +Inf; it must be a finite number"},
		{policy.Rules{Jitter: math.Inf(-1)}, "policy: Rules.Jitter is -Inf; it must be a finite number"},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != tt.want {
					t.Errorf("panic %q, want %q", got, tt.want)
				}
			}()
			tt.rules.New()
		}()
	}
}

// Each field at the edge of what it allows.
func TestNewAcceptsTheRest(t *testing.T) {
	for _, rules := range []policy.Rules{
		{},
		{Delay: 1, MaxDelay: 1, Floor: -forever, Factor: 1, Jitter: -1e300, Budget: 1, ProgressAfter: -forever, PollAfter: -forever, MaxFruitless: math.MinInt, Idle: -forever},
		{Delay: forever, MaxDelay: forever, Floor: forever, Factor: math.MaxFloat64, Jitter: math.MaxFloat64, Budget: forever, ProgressAfter: forever, PollAfter: forever, MaxFruitless: math.MaxInt, Idle: forever},
	} {
		if rules.New() == nil {
			t.Errorf("no Reconnector for %+v", rules)
		}
	}
}

// Streams share Rules but no state.
func TestG11StreamsShareNoState(t *testing.T) {
	rules := plain(func(r *policy.Rules) { r.MaxFruitless = 3; r.Budget = time.Minute })
	one, other := newPlayer(rules), newPlayer(rules)
	one.waits(failed.times(9))
	got := other.play(failed).String()
	if want := "after 3s, within 57s"; got != want {
		t.Errorf("decided %q after another stream's failures, want %q", got, want)
	}
}

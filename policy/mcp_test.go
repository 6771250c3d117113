package policy_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/policy"
)

// The tests below go through the decisions that an MCP transport needs, in the
// order in which they are tried. The first two, the end by the consumer and by
// the context, are the engine's: no policy is asked.

// call and listen are the MCP policies without jitter.
func call() policy.Policy {
	rules := policy.MCPCall()
	rules.Jitter = -1
	return rules
}

func listen() policy.Policy {
	rules := policy.MCPListen()
	rules.Jitter = -1
	return rules
}

// A role is a use of an MCP stream, before or after its first opening.
type role struct {
	name   string
	player func() *player // after one attempt, if it has opened
}

var (
	callOpened   = role{"call", func() *player { return after(call(), ended.brings(1).setsID("1")) }}
	listenOpened = role{"listen", func() *player { return after(listen(), ended.brings(1).setsID("1")) }}
	listenNever  = role{"listen, never opened", func() *player { return newPlayer(listen()) }}

	roles = []role{callOpened, listenOpened, listenNever}
)

func after(p policy.Policy, t turn) *player {
	player := newPlayer(p)
	player.play(t)
	return player
}

// same checks that a turn has the same consequence in each of some roles.
func same(t *testing.T, turn turn, want string, roles ...role) {
	t.Helper()
	for _, r := range roles {
		if got := r.player().play(turn).String(); got != want {
			t.Errorf("%s, %v %d: decided %q, want %q", r.name, turn.kind, turn.status, got, want)
		}
	}
}

func TestMCPEndsWhateverTheRole(t *testing.T) {
	for _, tt := range []struct {
		why  string
		turn turn
		want string
	}{
		{"an event that is too large would be so again", tooLarge, "stop: event too large"},
		{"and after messages too", tooLarge.brings(2), "stop: event too large"},
		{"there is nothing more", rejected(204), "stop: <nil>"},
		{"another Content-Type", rejected(200), "stop: status 200"},
		{"not authorised", rejected(401), "stop: status 401"},
		{"forbidden", rejected(403), "stop: status 403"},
		{"the session is gone", rejected(404), "stop: status 404"},
		{"the stream is not offered", rejected(405), "stop: status 405"},
		{"nor is it here", rejected(501), "stop: status 501"},
	} {
		t.Run(tt.why, func(t *testing.T) { same(t, tt.turn, tt.want, roles...) })
	}
}

func TestMCPRefusedIDIsForgotten(t *testing.T) {
	for status := range 1000 {
		turn := rejected(status)
		switch {
		case status < 400 || status > 499:
			continue
		case status == 401, status == 403, status == 404, status == 405: // which end the stream
			continue
		case status == 408, status == 409, status == 425, status == 429: // which are temporary
			continue
		}
		stop := fmt.Sprintf("stop: status %d", status)
		same(t, turn, stop, callOpened, listenNever)
		same(t, turn, "after 1s, forget", listenOpened)
	}

	// Beyond either end of 4xx it is an ordinary refusal.
	same(t, rejected(399), "stop: status 399", listenOpened)
	same(t, rejected(304), "stop: status 304", listenOpened)
}

func TestMCPRefusedIDIsCounted(t *testing.T) {
	p := listenOpened.player()
	got := p.run(script(rejected(400), rejected(410), failed, rejected(400)))
	want := decisions("after 1s, forget; after 1.5s, forget; after 2.25s; after 3.375s, forget")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if p.id != "" {
		t.Errorf("the last event ID is still %q", p.id)
	}

	waits, end := listenOpened.player().waits(rejected(400).times(20))
	if want := "stop: reconnections are exhausted: fruitless attempts in a row: 12"; len(waits) != 11 || end != want {
		t.Errorf("%d waits, then %q; want 11, then %q", len(waits), end, want)
	}
}

func TestMCPRefusedIDDependsOnAnyOpening(t *testing.T) {
	for name, turns := range map[string][]turn{
		"the first attempt":   script(ended, rejected(400)),
		"one long ago":        script(dropped, failed.times(5), rejected(400)),
		"one that was silent": script(failed, silent.lasts(time.Minute), rejected(400)),
	} {
		got := newPlayer(listen()).run(turns)
		if last := got[len(got)-1]; last[len(last)-len(", forget"):] != ", forget" {
			t.Errorf("%s opened, but then: %q", name, last)
		}
	}
	got := newPlayer(listen()).run(script(failed.times(5), rejected(503), rejected(400)))
	if last := got[len(got)-1]; last != "stop: status 400" {
		t.Errorf("none opened, but then: %q", last)
	}
}

func TestForgetRefusedIDKeepsToTheOtherRules(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*policy.Rules)
		turn   turn
		want   string
	}{
		{"permanent", nil, rejected(400).isPermanent(), "stop: status 400"},
		{"a status that the caller rides out", func(r *policy.Rules) { r.Retryable = func(s int) bool { return s == 400 } }, rejected(400), "after 1s"},
		{"one that it does not", func(r *policy.Rules) { r.Retryable = func(s int) bool { return s == 400 } }, rejected(429), "after 1s, forget"},
		{"no temporary statuses", func(r *policy.Rules) { r.Retryable = nil }, rejected(429), "after 1s, forget"},
		{"an ID is needed", func(r *policy.Rules) { r.RequireLastEventID = true }, rejected(400), "stop: no last event ID to resume from"},
		{"no fruitless attempts", func(r *policy.Rules) { r.MaxFruitless = -1 }, rejected(400), "stop: reconnections are exhausted: fruitless attempts in a row: 1"},
		{"no such response", nil, failed, "after 1s"},
		{"a stream that carried this status", nil, turn{kind: policy.Dropped, status: 400, err: errCut}, "after 1s"},
	} {
		rules := policy.MCPListen()
		rules.Jitter = -1
		if tt.change != nil {
			tt.change(&rules)
		}
		p := after(rules, ended.brings(1).setsID("1"))
		if got := p.play(tt.turn).String(); got != tt.want {
			t.Errorf("%s: decided %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestMCPNoID(t *testing.T) {
	const stop = "stop: no last event ID to resume from"
	for _, turn := range []turn{ended, ended.retry(time.Second), ended.brings(1), dropped, failed, rejected(503), idle, restarted} {
		if got := newPlayer(call()).play(turn).String(); got != stop {
			t.Errorf("call, %v: decided %q, want %q", turn.kind, got, stop)
		}
		d := newPlayer(listen()).play(turn)
		if reason, stopped := d.Stopped(); stopped {
			t.Errorf("listen, %v: stopped: %v", turn.kind, reason)
		}
	}
	cleared := ended.brings(1).setsID("")
	same(t, cleared, stop, callOpened)
	same(t, cleared, "after 1s", listenOpened)

	if reason, _ := newPlayer(call()).play(ended).Stopped(); !errors.Is(reason, policy.ErrNotResumable) {
		t.Errorf("the reason is %v, want ErrNotResumable", reason)
	}
}

func TestMCPRetryAfter(t *testing.T) {
	for _, r := range roles {
		for _, status := range []int{429, 503} {
			p := r.player()
			if r.name == listenNever.name {
				p.id = "1"
			}
			p.play(rejected(status).asksFor(7 * time.Second))
			if p.waited != 7*time.Second {
				t.Errorf("%s, %d: waited %v, want 7s", r.name, status, p.waited)
			}
			p.play(rejected(status)) // without Retry-After
			if p.waited != 1500*time.Millisecond {
				t.Errorf("%s, %d: waited %v after the next, want the usual 1.5s", r.name, status, p.waited)
			}
		}
	}
}

func TestMCPProgress(t *testing.T) {
	for _, p := range []policy.Policy{call(), listen()} {
		got, _ := newPlayer(p).withID("1").waits(script(
			failed.times(3), ended.brings(1), // a message
			failed.times(2), dropped.lasts(10*time.Second), // a lifetime
			failed, dropped.lasts(10*time.Second-1), // less than that
		))
		if diff := cmp.Diff(seconds(1, 1.5, 2.25, 1, 1, 1.5, 1, 1, 1.5), got); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
	}
}

func TestMCPPoll(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy policy.Policy
		turns  []turn
		want   []time.Duration
	}{
		{"call", call(), ended.retry(200 * time.Millisecond).times(4), seconds(0.2, 0.2, 0.2, 0.2)},
		{"call, in a run", call(), script(failed.times(2), ended.retry(0), failed), seconds(1, 1.5, 0.1, 0.225)},
		{"listen, below 10 s", listen(), ended.retry(200 * time.Millisecond).times(4), seconds(0.2, 0.3, 0.45, 0.675)},
		{"listen, at 10 s", listen(), ended.retry(10 * time.Second).times(4), seconds(10, 10, 10, 10)},
		{"listen, in a run", listen(), script(failed.times(2), ended.retry(10*time.Second), failed), seconds(1, 1.5, 10, 22.5)},
	} {
		got, _ := newPlayer(tt.policy).withID("1").waits(tt.turns)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: waits (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestMCPFruitless(t *testing.T) {
	fruitless := script(ended, dropped, failed, idle, turn{kind: policy.Expired, err: errCut})
	for _, status := range []int{408, 409, 425, 429, 500, 502, 503, 504, 599} {
		fruitless = append(fruitless, rejected(status))
	}
	for _, turn := range fruitless {
		for _, tt := range []struct {
			name   string
			policy policy.Policy
			want   []time.Duration
			end    string
		}{
			{
				"call", call(), seconds(1, 1.5, 2.25, 3.375, 5.0625),
				"stop: reconnections are exhausted: fruitless attempts in a row: 6",
			},
			{
				"listen", listen(), seconds(1, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, 17.0859375, 25.62890625, 30, 30, 30),
				"stop: reconnections are exhausted: fruitless attempts in a row: 13",
			},
		} {
			got, end := newPlayer(tt.policy).withID("1").waits(turn.times(20))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s, %v %d: waits (-want +got):\n%s", tt.name, turn.kind, turn.status, diff)
			}
			if end != tt.end {
				t.Errorf("%s, %v %d: end %q, want %q", tt.name, turn.kind, turn.status, end, tt.end)
			}
		}
	}
}

func TestMCPBudget(t *testing.T) {
	poll := ended.retry(24 * time.Hour)
	same(t, poll, "stop: a wait of 24h0m0s does not fit in the 4m59s left of the budget", callOpened)
	same(t, poll, "after 24h0m0s", listenOpened, listenNever)

	// Of what the policy decides on a resumed connection, the idle timeout and
	// the hard end are part.
	got := newPlayer(call()).withID("1").run(script(dropped, dropped.takes(9*time.Second)))
	want := decisions("after 1s, within 4m59s, message timeout 1m0s, idle 30s; after 1.5s, within 4m48.5s, message timeout 1m0s, idle 30s")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

func TestMCPJitter(t *testing.T) {
	for name, rules := range map[string]policy.Rules{"call": policy.MCPCall(), "listen": policy.MCPListen()} {
		rules.Rand = func() float64 { return 0.5 }
		got, _ := newPlayer(rules).withID("1").waits(script(failed.times(2), ended.retry(10*time.Second), ended.brings(1)))
		if diff := cmp.Diff(seconds(1.125, 1.6875, 10, 10), got); diff != "" {
			t.Errorf("%s: waits (-want +got):\n%s", name, diff)
		}
	}
}

func TestMCPWorkedNumbers(t *testing.T) {
	t.Run("a priming event and an end", func(t *testing.T) {
		p := newPlayer(policy.MCPCall())
		p.play(ended.setsID("p1").retry(500 * time.Millisecond))
		if p.waited != 500*time.Millisecond {
			t.Errorf("waited %v, want exactly 500ms", p.waited)
		}
	})

	t.Run("a day of retry releases the waiter at once", func(t *testing.T) {
		p := newPlayer(policy.MCPCall())
		reason, _ := p.play(ended.setsID("p1").retry(24 * time.Hour)).Stopped()
		var budget *policy.BudgetError
		if !errors.As(reason, &budget) {
			t.Errorf("the reason is %v, want a BudgetError", reason)
		}
		if p.waited != 0 {
			t.Errorf("waited %v first", p.waited)
		}
	})

	t.Run("a second of retry and then silence", func(t *testing.T) {
		p := newPlayer(policy.MCPCall())
		p.play(ended.setsID("p1").retry(time.Second))
		attempts := 0
		for stopped := false; !stopped; attempts++ {
			_, stopped = p.play(silent).Stopped()
		}
		if attempts != 5 { // the call is resumed again after a minute without a message
			t.Errorf("%d attempts were silent, want 5", attempts)
		}
		if took := p.now.Sub(p.firstEnd); took != 300*time.Second {
			t.Errorf("ended after %v, want 300s", took)
		}
	})

	t.Run("priming events for ever", func(t *testing.T) {
		p := newPlayer(policy.MCPCall())
		attempts, id := 0, 0
		for {
			attempts++
			id++
			reason, stopped := p.play(ended.setsID(fmt.Sprint("p", id)).retry(200 * time.Millisecond)).Stopped()
			if stopped {
				var budget *policy.BudgetError
				if !errors.As(reason, &budget) {
					t.Errorf("the reason is %v, want a BudgetError", reason)
				}
				break
			}
			if p.waited != 200*time.Millisecond {
				t.Fatalf("waited %v, want exactly 200ms", p.waited)
			}
		}
		if took := p.now.Sub(p.firstEnd); took <= 299*time.Second || took > 300*time.Second {
			t.Errorf("ended after %v, want about 300s", took)
		}
		if attempts != 1500 {
			t.Errorf("%d attempts, want 1500", attempts)
		}
	})

	t.Run("a message on each connection goes on for ever", func(t *testing.T) {
		waits, end := newPlayer(policy.MCPCall()).waits(ended.brings(1).setsID("m").retry(200 * time.Millisecond).times(5000))
		if end != "going on" {
			t.Fatalf("ended after %d attempts with %q", len(waits), end)
		}
		for _, wait := range waits {
			if wait != 200*time.Millisecond {
				t.Fatalf("waited %v, want exactly 200ms", wait)
			}
		}
	})

	t.Run("empty responses without retry", func(t *testing.T) {
		p := newPlayer(call()).withID("a1")
		waits, end := p.waits(ended.times(20))
		if diff := cmp.Diff(seconds(1, 1.5, 2.25, 3.375, 5.0625), waits); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		if took := p.now.Sub(p.firstEnd).Round(time.Second); took != 13*time.Second {
			t.Errorf("%q after %v, want about 13s", end, took)
		}
	})

	t.Run("a standby that a balancer closes each minute", func(t *testing.T) {
		waits, end := newPlayer(listen()).waits(ended.lasts(time.Minute).times(1000))
		if end != "going on" {
			t.Fatalf("ended after %d attempts with %q", len(waits), end)
		}
		for _, wait := range waits {
			if wait != time.Second {
				t.Fatalf("waited %v, want 1s", wait)
			}
		}
	})

	t.Run("a standby that is closed at once each time", func(t *testing.T) {
		p := newPlayer(listen())
		waits, _ := p.waits(ended.times(100))
		if len(waits) != 12 {
			t.Errorf("%d reconnections, want 12", len(waits))
		}
		if took := p.now.Sub(p.firstEnd).Round(time.Second); took != 165*time.Second {
			t.Errorf("ended after %v, want about 165s", took)
		}
	})

	t.Run("a 503 on a reconnection is ridden out, never sooner than retry", func(t *testing.T) {
		for _, status := range []int{503, 500, 502, 504, 429, 408} {
			waits, end := newPlayer(policy.MCPCall()).waits(script(
				ended.setsID("p1").retry(1500*time.Millisecond), rejected(status), ended.brings(1),
			))
			if diff := cmp.Diff(seconds(1.5, 1.5, 1.5), waits); diff != "" || end != "going on" {
				t.Errorf("%d: %q, waits (-want +got):\n%s", status, end, diff)
			}
		}
	})

	t.Run("a refused dial after a priming event, five times", func(t *testing.T) {
		waits, end := newPlayer(policy.MCPCall()).waits(script(ended.setsID("p1").retry(100*time.Millisecond), failed.times(9)))
		if len(waits) != 5 || end != "stop: reconnections are exhausted: fruitless attempts in a row: 5" {
			t.Errorf("%d waits, then %q; want 5, then exhaustion", len(waits), end)
		}
	})
}

package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/policy"
)

// temporary lists the statuses that rules ride out.
func temporary(r policy.Rules) (statuses []int) {
	for status := range 1000 {
		if r.Retryable != nil && r.Retryable(status) {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

func statusesFrom(from, to int, but ...int) (statuses []int) {
	for status := from; status <= to; status++ {
		if !slices.Contains(but, status) {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

func TestPresetRules(t *testing.T) {
	mcp := slices.Concat([]int{408, 409, 425, 429}, statusesFrom(500, 599, 501))
	for _, tt := range []struct {
		name      string
		rules     policy.Rules
		temporary []int
		want      policy.Rules // but for Retryable
	}{
		{
			name: "Resilient", rules: policy.Resilient(),
			temporary: []int{408, 425, 429, 500, 502, 503, 504},
		},
		{
			name: "MCPCall", rules: policy.MCPCall(), temporary: mcp,
			want: policy.Rules{
				Delay: time.Second, Factor: 1.5, Jitter: 0.25, MaxFruitless: 5, Budget: 300 * time.Second,
				ProgressAfter: 10 * time.Second, PollAfter: -1, RequireLastEventID: true, MessageTimeout: time.Minute, Idle: 30 * time.Second,
			},
		},
		{
			name: "MCPListen", rules: policy.MCPListen(), temporary: mcp,
			want: policy.Rules{
				Delay: time.Second, Factor: 1.5, Jitter: 0.25, MaxFruitless: 12,
				ProgressAfter: 10 * time.Second, PollAfter: 10 * time.Second, ForgetRefusedID: true,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.temporary, temporary(tt.rules)); diff != "" {
				t.Errorf("temporary statuses (-want +got):\n%s", diff)
			}
			tt.rules.Retryable = nil
			if diff := cmp.Diff(tt.want, tt.rules); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

// The strict policy ends at the first 503, the one for temporary statuses gets past it.
func TestWHATWGIsStrictAndResilientIsNot(t *testing.T) {
	turns := script(dropped.brings(1), rejected(503), rejected(503), dropped.brings(1))
	p := newPlayer(policy.WHATWG())
	if waits, end := p.waits(turns); len(waits) != 1 || end != "stop: status 503" {
		t.Errorf("WHATWG: %d waits, %q; want the end at the first 503", len(waits), end)
	}

	p = newPlayer(policy.Resilient())
	waits, end := p.waits(turns)
	if end != "going on" {
		t.Fatalf("Resilient: %q", end)
	}
	for i, least := range seconds(3, 3, 6, 3) {
		if waits[i] < least || waits[i] >= least*3/2 {
			t.Errorf("Resilient: wait %d is %v, want %v and up to half of it", i+1, waits[i], least)
		}
	}
}

func TestRetryAfterBindsOneWait(t *testing.T) {
	p := newPlayer(policy.Resilient())
	waits, _ := p.waits(script(rejected(503).asksFor(7*time.Second), dropped.brings(1)))
	if waits[0] != 7*time.Second {
		t.Errorf("the wait is %v, want the 7s of the server", waits[0])
	}
	if waits[1] < 3*time.Second || waits[1] >= 4500*time.Millisecond {
		t.Errorf("the wait after it is %v, want the usual one", waits[1])
	}
}

func TestALongOutageIsSurvived(t *testing.T) {
	p := newPlayer(policy.WHATWG())
	var last time.Duration
	for p.now.Sub(start) < 6*time.Hour {
		if reason, stopped := p.play(failed).Stopped(); stopped {
			t.Fatalf("stopped: %v", reason)
		}
		last = p.waited
	}
	if last > 45*time.Second {
		t.Errorf("after 6 hours the wait is %v, more than the cap and its jitter", last)
	}
}

func TestNever(t *testing.T) {
	for _, tt := range []struct {
		name string
		turn turn
		want string
	}{
		{"clean end", ended, "stop: <nil>"},
		{"clean end after messages", ended.brings(3), "stop: <nil>"},
		{"end inside an event", ended.fails(errCut), "stop: cut"},
		{"broken connection", dropped, "stop: cut"},
		{"no connection", failed, "stop: dial refused"},
		{"rejection", rejected(503), "stop: status 503"},
		{"silence", idle, "stop: idle"},
		{"restart", restarted, "stop: reconnections are exhausted: this policy allows none"},
	} {
		if got := newPlayer(policy.Never()).play(tt.turn).String(); got != tt.want {
			t.Errorf("%s: decided %q, want %q", tt.name, got, tt.want)
		}
	}
	if reason, _ := newPlayer(policy.Never()).play(restarted).Stopped(); !errors.Is(reason, policy.ErrExhausted) {
		t.Errorf("after a restart the reason is %v, want ErrExhausted", reason)
	}
}

// Each stream has a Reconnector of its own, and a changed copy of a preset leaves the
// preset as it was.
func TestStreamsOfAPresetAreFresh(t *testing.T) {
	for name, preset := range map[string]func() policy.Rules{
		"WHATWG": policy.WHATWG, "Resilient": policy.Resilient, "MCPCall": policy.MCPCall, "MCPListen": policy.MCPListen,
	} {
		rules := preset()
		newPlayer(rules).withID("1").waits(script(ended, failed.times(4)))
		if d := newPlayer(rules).withID("1").play(failed); d.Delay() > 4500*time.Millisecond {
			t.Errorf("%s: a new stream begins with %v", name, d)
		}
		rules.MaxFruitless = -1
		if d := newPlayer(preset()).withID("1").play(failed); d.Delay() == 0 {
			t.Errorf("%s: after a copy was changed a new stream decides %v", name, d)
		}
	}
}

// By default a policy does not give up, and one with a limit says which it was.
func TestGivingUpIsNeverASurprise(t *testing.T) {
	if _, end := newPlayer(policy.WHATWG()).waits(failed.times(100)); end != "going on" {
		t.Errorf("WHATWG ends with %q", end)
	}
	waits, end := newPlayer(policy.Rules{MaxFruitless: 5}).waits(failed.times(100))
	if want := fmt.Sprintf("stop: %v: fruitless attempts in a row: 6", policy.ErrExhausted); len(waits) != 5 || end != want {
		t.Errorf("with a limit of 5: %d reconnections, then %q; want 5, then %q", len(waits), end, want)
	}
}

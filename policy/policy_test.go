package policy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprise-sse/reprise/policy"
)

func TestDecision(t *testing.T) {
	reason := errors.New("enough")
	type view struct {
		Reason  error
		Stopped bool
		Delay   time.Duration
		Limit   time.Duration
		Limited bool
		Idle    time.Duration
		Forgets bool
		String  string
	}
	tests := []struct {
		name     string
		decision policy.Decision
		want     view
	}{
		{
			name: "zero",
			want: view{Reason: policy.ErrNoDecision, Stopped: true, String: "stop: the policy made no decision"},
		},
		{
			name:     "zero, refined",
			decision: policy.Decision{}.Within(time.Second).Idle(time.Minute).Forget(),
			want: view{
				Reason: policy.ErrNoDecision, Stopped: true, Limit: time.Second, Limited: true, Idle: time.Minute, Forgets: true,
				String: "stop: the policy made no decision",
			},
		},
		{
			name:     "after",
			decision: policy.After(3 * time.Second),
			want:     view{Delay: 3 * time.Second, String: "after 3s"},
		},
		{
			name:     "after nothing",
			decision: policy.After(0),
			want:     view{String: "after 0s"},
		},
		{
			name:     "after less than nothing",
			decision: policy.After(-time.Second),
			want:     view{String: "after 0s"},
		},
		{
			name:     "within",
			decision: policy.After(time.Second).Within(0),
			want:     view{Delay: time.Second, Limited: true, String: "after 1s, within 0s"},
		},
		{
			name:     "all",
			decision: policy.After(time.Second).Forget().Idle(-1).Within(time.Minute),
			want: view{
				Delay: time.Second, Limit: time.Minute, Limited: true, Idle: -1, Forgets: true,
				String: "after 1s, within 1m0s, idle -1ns, forget",
			},
		},
		{
			name:     "the last word counts",
			decision: policy.After(0).Idle(1).Idle(0).Within(1).Within(2),
			want:     view{Limit: 2, Limited: true, String: "after 0s, within 2ns"},
		},
		{
			name:     "orderly stop",
			decision: policy.Stop(nil),
			want:     view{Stopped: true, String: "stop: <nil>"},
		},
		{
			name:     "stop",
			decision: policy.Stop(reason),
			want:     view{Reason: reason, Stopped: true, String: "stop: enough"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got view
			got.Reason, got.Stopped = tt.decision.Stopped()
			got.Delay = tt.decision.Delay()
			got.Limit, got.Limited = tt.decision.Limit()
			got.Idle = tt.decision.IdleLimit()
			got.Forgets = tt.decision.Forgets()
			got.String = tt.decision.String()
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
	if policy.After(1) != policy.After(1) || policy.After(1) == policy.After(1).Forget() {
		t.Error("decisions cannot be compared with ==")
	}
}

func TestKindString(t *testing.T) {
	want := map[policy.Kind]string{
		0: "Kind(0)", policy.Ended: "ended", policy.Dropped: "dropped", policy.Failed: "failed",
		policy.Rejected: "rejected", policy.Idle: "idle", policy.Expired: "expired",
		policy.TooLarge: "too large", policy.Restarted: "restarted", policy.Restarted + 1: "Kind(9)", 255: "Kind(255)",
	}
	got := make(map[policy.Kind]string)
	for k := range want {
		got[k] = k.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestFunc(t *testing.T) {
	var p policy.Reconnector = policy.Func(func(a policy.Attempt) policy.Decision {
		return policy.After(time.Duration(a.Number) * time.Second)
	})
	if got, want := p.Next(policy.Attempt{Number: 7}), policy.After(7*time.Second); got != want {
		t.Errorf("decided %v, want %v", got, want)
	}
}

func TestBudgetErrorText(t *testing.T) {
	for _, tt := range []struct {
		err  policy.BudgetError
		want string
	}{
		{policy.BudgetError{Asked: time.Minute, Left: time.Second}, "a wait of 1m0s does not fit in the 1s left of the budget"},
		{policy.BudgetError{Asked: time.Minute, Left: -time.Hour}, "a wait of 1m0s does not fit in the 0s left of the budget"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("text %q, want %q", got, tt.want)
		}
	}
}

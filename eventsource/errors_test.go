package eventsource_test

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// The error of a stream that its policy ended says what the policy gave as the reason,
// and where that says less, what the last attempt failed with.
func TestStopErrorText(t *testing.T) {
	const cause = "GET http://server.test/feed: dial mem server.test:80: connect: connection refused"
	for name, c := range map[string]struct {
		decide policy.Func
		is     error // nil if any
		want   string
	}{
		"no decision": {
			func(policy.Attempt) (d policy.Decision) { return d }, policy.ErrNoDecision,
			"eventsource: the policy made no decision; attempt 1 failed: " + cause,
		},
		"no reason":   {func(a policy.Attempt) policy.Decision { return policy.Stop(a.Err) }, nil, "eventsource: " + cause},
		"some reason": {func(policy.Attempt) policy.Decision { return policy.Stop(errEnough) }, errEnough, "eventsource: the test has seen enough; attempt 1 failed: " + cause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t, []Step{Refuse})
				s := play(t, srv, eventsource.Client{Policy: policy.Constructor(func() policy.Reconnector { return c.decide })})
				if s.err == nil || s.err.Error() != c.want || c.is != nil && !errors.Is(s.err, c.is) || !errors.Is(s.err, syscall.ECONNREFUSED) {
					t.Errorf("the error is\n%v\nwant\n%s", s.err, c.want)
				}
			})
		})
	}
}

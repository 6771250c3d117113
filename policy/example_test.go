package policy_test

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/reprise-sse/reprise/policy"
)

// A policy is asked with the facts of an attempt, so it can be tried out without
// a server, a connection or a clock.
func ExampleRules() {
	rules := policy.Rules{
		Delay:        time.Second,
		MaxDelay:     5 * time.Second,
		MaxFruitless: 4,
		Jitter:       -1, // so that the output below is always the same
	}
	p := rules.New()
	for n := 1; n <= 5; n++ {
		fmt.Println(p.Next(policy.Attempt{Number: n, Kind: policy.Failed, Err: errors.New("connection refused")}))
	}
	// Output:
	// after 1s
	// after 2s
	// after 4s
	// after 5s
	// stop: reconnections are exhausted: fruitless attempts in a row: 5
}

// A preset with one number changed.
func ExampleMCPCall() {
	rules := policy.MCPCall()
	rules.Budget = time.Minute

	p := rules.New()
	fmt.Println(p.Next(policy.Attempt{
		Number: 1, Kind: policy.Ended, Status: 200, LastEventID: "p1",
		RetrySent: true, HasRetry: true, Retry: time.Hour, Asked: time.Hour,
	}))
	// Output:
	// stop: a wait of 1h0m0s does not fit in the 1m0s left of the budget
}

// A schedule of the backoff package in place of Factor and MaxDelay.
func ExampleRules_backoff() {
	rules := policy.Rules{
		Delay: time.Second,
		Backoff: func() backoff.BackOff {
			return backoff.WithMaxRetries(backoff.NewConstantBackOff(10*time.Second), 2)
		},
		Jitter: -1,
	}
	p := rules.New()
	for n := 1; n <= 4; n++ {
		fmt.Println(p.Next(policy.Attempt{Number: n, Kind: policy.Failed, Err: errors.New("connection refused")}))
	}
	// Output:
	// after 1s
	// after 10s
	// after 10s
	// stop: reconnections are exhausted: the schedule ended after 4 fruitless attempts in a row
}

// A policy without state is a function: here, one that comes back every 10
// seconds and stops at any response that is no event stream.
func ExampleFunc() {
	steady := policy.Func(func(a policy.Attempt) policy.Decision {
		if a.Permanent || a.Kind == policy.Rejected || a.Kind == policy.TooLarge {
			return policy.Stop(a.Err)
		}
		return policy.After(10 * time.Second)
	})

	fmt.Println(steady.Next(policy.Attempt{Number: 1, Kind: policy.Ended, Status: 200}))
	fmt.Println(steady.Next(policy.Attempt{Number: 2, Kind: policy.Rejected, Status: 404, Err: errors.New("404 Not Found")}))
	// Output:
	// after 10s
	// stop: 404 Not Found
}

// startOver goes on from the present when the server has no events any more that
// follow the last event ID, which it tells with status 410. Everything else is
// left to another policy.
type startOver struct {
	policy.Reconnector
}

func (s startOver) Next(a policy.Attempt) policy.Decision {
	if a.Kind == policy.Rejected && a.Status == http.StatusGone && a.LastEventID != "" {
		return policy.After(0).Forget()
	}
	return s.Reconnector.Next(a)
}

func newStartOver() policy.Reconnector { return startOver{policy.Resilient().New()} }

// A policy that knows one case better than the rules, and asks them about the
// rest. A client's Policy would be newStartOver.
func Example_wrapping() {
	gone := policy.Attempt{Number: 2, Kind: policy.Rejected, Status: 410, Err: errors.New("410 Gone"), LastEventID: "1207"}
	p := newStartOver()
	fmt.Println(p.Next(gone))
	gone.Number, gone.LastEventID = 3, ""
	fmt.Println(p.Next(gone))
	// Output:
	// after 0s, forget
	// stop: 410 Gone
}

// threeStrikes comes back after a second, and stops when three attempts in a row
// have brought no message.
type threeStrikes struct {
	strikes int
}

func newThreeStrikes() policy.Reconnector { return new(threeStrikes) }

func (t *threeStrikes) Next(a policy.Attempt) policy.Decision {
	switch {
	case a.Permanent, a.Kind == policy.TooLarge:
		return policy.Stop(a.Err) // another attempt would end in the same way
	case a.Kind == policy.Rejected && a.Status == http.StatusNoContent:
		return policy.Stop(nil) // the server wants the client to stop
	case a.Kind == policy.Restarted:
		return policy.After(0) // the caller wants it now
	case a.Messages > 0:
		t.strikes = 0
	default:
		t.strikes++
	}
	if t.strikes == 3 {
		return policy.Stop(fmt.Errorf("three strikes: %w", policy.ErrExhausted))
	}
	return policy.After(time.Second).Within(time.Minute)
}

// A policy of one's own, with state. Each stream is given its own, so it needs no
// lock. A client's Policy would be newThreeStrikes.
func Example_reconnector() {
	p := newThreeStrikes()
	refused := policy.Attempt{Kind: policy.Failed, Err: errors.New("connection refused")}
	fmt.Println(p.Next(refused))
	fmt.Println(p.Next(policy.Attempt{Kind: policy.Dropped, Err: errors.New("connection reset"), Messages: 7}))
	for range 3 {
		fmt.Println(p.Next(refused))
	}
	// Output:
	// after 1s, within 1m0s
	// after 1s, within 1m0s
	// after 1s, within 1m0s
	// after 1s, within 1m0s
	// stop: three strikes: reconnections are exhausted
}

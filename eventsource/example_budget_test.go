package eventsource_test

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// A stream that somebody waits for: it ends when there has been no message for a
// minute, or rather as soon as it is clear that there will be none.
func Example_budget() {
	fake := clock.NewFake(time.Time{})
	server := &eventsourcetest.Server{Clock: fake, Script: [][]eventsourcetest.Step{
		{eventsourcetest.Event{Data: "a"}, eventsourcetest.Cut},
		{eventsourcetest.Outage(time.Hour)},
	}}
	server.Start()
	defer server.Close()

	client := &eventsource.Client{
		HTTPClient: server.Client(),
		Policy: policy.Rules{
			Budget: time.Minute,
			Jitter: -1, // so that the output is always the same
		},
		Clock: fake,
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{Wait: func(w eventsource.WaitInfo) {
				fmt.Println("waiting", w.Waited)
				fake.Advance(w.Waited)
			}}
		},
	}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		var budget *policy.BudgetError
		switch {
		case errors.As(err, &budget):
			fmt.Printf("no use in waiting %v with %v left\n", budget.Asked, budget.Left)
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(event.Data)
		}
	}
	// Output:
	// a
	// waiting 3s
	// waiting 3s
	// waiting 6s
	// waiting 12s
	// waiting 24s
	// no use in waiting 30s with 12s left
}

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

// failFirst ends a stream whose first attempt does not open, which is mostly a
// mistake in the configuration, and leaves all other ends to another policy.
type failFirst struct {
	policy.Reconnector
}

func (f failFirst) Next(a policy.Attempt) policy.Decision {
	if a.Number == 1 && a.Open.IsZero() {
		return policy.Stop(fmt.Errorf("the first attempt %v", a.Kind))
	}
	return f.Reconnector.Next(a)
}

func newFailFirst() policy.Reconnector { return failFirst{policy.Resilient().New()} }

// A policy of one's own, which knows one case better than the rules.
func ExampleClient_policy() {
	for _, script := range [][][]eventsourcetest.Step{
		{{eventsourcetest.Refuse}},
		{{eventsourcetest.Event{Data: "a"}, eventsourcetest.Cut}, {eventsourcetest.Refuse}, {eventsourcetest.Event{Data: "b"}}},
	} {
		fake := clock.NewFake(time.Time{})
		server := &eventsourcetest.Server{Clock: fake, Script: script}
		server.Start()

		client := &eventsource.Client{
			HTTPClient: server.Client(),
			Policy:     policy.Constructor(newFailFirst),
			Clock:      fake,
			Trace: func(*http.Request) *eventsource.Trace {
				return &eventsource.Trace{Wait: func(w eventsource.WaitInfo) { fake.Advance(w.Waited) }}
			},
		}
		req, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			panic(err)
		}
		for event, err := range client.Stream(req).Events() {
			var stop *eventsource.StopError
			if errors.As(err, &stop) {
				fmt.Println("stopped:", stop.Reason)
				break
			}
			fmt.Println(event.Data)
		}
		fmt.Println(len(server.Requests()), "attempts")
		server.Close()
	}
	// Output:
	// stopped: the first attempt failed
	// 1 attempts
	// a
	// b
	// 4 attempts
}

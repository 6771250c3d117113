package eventsource_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// A fresh token for each attempt. An attempt without a token fails, and is waited
// out like any other failure; that there will never be one again is said with
// backoff.Permanent.
func ExampleClient_prepare() {
	server := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{
		{eventsourcetest.Event{Data: "a"}, eventsourcetest.Cut},
		{eventsourcetest.Event{Data: "b"}, eventsourcetest.Cut},
	}}
	fake := clock.NewFake(time.Time{})
	server.Clock = fake
	server.Start()
	defer server.Close()

	issued := 0
	issue := func() (token string, err error) { // asks some other server
		if issued++; issued > 2 {
			return "", backoff.Permanent(fmt.Errorf("access was revoked"))
		}
		return fmt.Sprint("token-", issued), nil
	}

	client := &eventsource.Client{
		HTTPClient: server.Client(),
		Prepare: func(req *http.Request) error {
			token, err := issue()
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+token)
			return nil
		},
		// So that the example takes no time:
		Clock: fake,
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{Wait: func(w eventsource.WaitInfo) { fake.Advance(w.Waited) }}
		},
	}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(event.Data)
	}
	for _, r := range server.Requests() {
		fmt.Println(r.Header.Get("Authorization"))
	}
	// Output:
	// a
	// b
	// eventsource: preparing the request: access was revoked
	// Bearer token-1
	// Bearer token-2
}

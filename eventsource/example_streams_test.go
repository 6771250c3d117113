package eventsource_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// followAll gives the events of all the URLs to handle, which is called from one
// goroutine for each. It returns when all of the streams are over: when they have
// ended in order, or one has failed, which ends the others.
func followAll(ctx context.Context, client *eventsource.Client, urls []string, handle func(url string, event eventsource.Event) (more bool)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var streams sync.WaitGroup
	for _, url := range urls {
		streams.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				cancel(err)
				return
			}
			for event, err := range client.Stream(req).Events() {
				if err != nil {
					cancel(fmt.Errorf("%s: %w", url, err)) // the first one counts
					return
				}
				if !handle(url, event) {
					return
				}
			}
		})
	}
	streams.Wait()
	return context.Cause(ctx)
}

// Many streams of one client. They share nothing but the client's settings, and
// end with one context.
func Example_streams() {
	server := &eventsourcetest.Server{Rest: []eventsourcetest.Step{
		eventsourcetest.Do(func(c *eventsourcetest.Conn) {
			c.Play(eventsourcetest.Event{Data: "news of" + c.Request().URL.Path}, eventsourcetest.Stall)
		}),
	}}
	server.Start()
	defer server.Close()

	var mu sync.Mutex
	var got []string
	err := followAll(context.Background(), &eventsource.Client{HTTPClient: server.Client()},
		[]string{server.URL + "/weather", server.URL + "/sports", server.URL + "/markets"},
		func(_ string, event eventsource.Event) (more bool) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, event.Data)
			return false
		})
	slices.Sort(got)
	fmt.Println(got, err)
	// Output:
	// [news of/markets news of/sports news of/weather] <nil>
}

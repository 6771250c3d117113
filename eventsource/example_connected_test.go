package eventsource_test

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// Acting only once the stream is open, so that what follows from the act is not
// missed.
func ExampleTrace_open() {
	ordered := make(chan struct{})
	server := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{{
		eventsourcetest.Open,
		eventsourcetest.Do(func(c *eventsourcetest.Conn) {
			select {
			case <-ordered:
			case <-c.Context().Done():
			}
		}),
		eventsourcetest.Event{Data: "your order is on its way"},
	}}}
	server.Start()
	defer server.Close()

	ready := make(chan struct{})
	signal := sync.OnceFunc(func() { close(ready) })
	client := &eventsource.Client{
		HTTPClient: server.Client(),
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{
				Open: func(eventsource.OpenInfo) { signal() },
				Done: func(error) { signal() }, // it may never open
			}
		},
	}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}

	var streams sync.WaitGroup
	streams.Go(func() {
		for event, err := range client.Stream(req).Events() {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(event.Data)
			return
		}
	})
	<-ready
	fmt.Println("connected; ordering")
	close(ordered)
	streams.Wait()
	// Output:
	// connected; ordering
	// your order is on its way
}

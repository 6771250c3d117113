package eventsource_test

import (
	"context"
	"fmt"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// A first stream. The loop goes on for as long as the server does; this one leaves
// it, which closes the connection, when it has what it wanted.
func ExampleGet() {
	server := &eventsourcetest.Server{Loopback: true, Script: [][]eventsourcetest.Step{{
		eventsourcetest.Event{Type: "score", Data: "1:0"},
		eventsourcetest.Event{Type: "score", Data: "1:1"},
		eventsourcetest.Event{Data: "full time"},
		eventsourcetest.Stall,
	}}}
	server.Start()
	defer server.Close()

	for event, err := range eventsource.Get(context.Background(), server.URL) {
		if err != nil {
			fmt.Println("the stream is over:", err)
			return
		}
		fmt.Println(event.Type, event.Data)
		if event.Type == "message" {
			break
		}
	}
	// Output:
	// score 1:0
	// score 1:1
	// message full time
}

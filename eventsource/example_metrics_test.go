package eventsource_test

import (
	"expvar"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// traceInto returns a constructor of Traces that count into metrics.
func traceInto(metrics *expvar.Map) func(*http.Request) *eventsource.Trace {
	return func(*http.Request) *eventsource.Trace {
		metrics.Add("streams", 1)
		open := false // this stream's
		closed := func() {
			if open {
				open = false
				metrics.Add("open", -1)
			}
		}
		return &eventsource.Trace{
			Open: func(eventsource.OpenInfo) {
				open = true
				metrics.Add("open", 1)
			},
			End: func(a policy.Attempt) {
				closed()
				metrics.Add("attempts_"+a.Kind.String(), 1)
			},
			Wait: func(w eventsource.WaitInfo) { metrics.AddFloat("waited_seconds", w.Waited.Seconds()) },
			Done: func(err error) {
				closed() // an attempt that the loop leaves has no End
				metrics.Add("streams", -1)
				if err != nil {
					metrics.Add("given_up", 1)
				}
			},
		}
	}
}

// counted yields events and counts them as they come, in the loop: a Trace is not told
// of single events.
func counted(metrics *expvar.Map, events iter.Seq2[eventsource.Event, error]) iter.Seq2[eventsource.Event, error] {
	return func(yield func(eventsource.Event, error) bool) {
		for event, err := range events {
			if err == nil && event.Data != "" {
				metrics.Add("messages", 1)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// Metrics of all the streams of a client, here with expvar. A program would make the map
// with expvar.NewMap, which publishes it at /debug/vars.
func ExampleTrace_metrics() {
	server := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{
		{eventsourcetest.Retry(time.Millisecond), eventsourcetest.Event{Data: "a"}, eventsourcetest.Cut},
		{eventsourcetest.Refuse},
		{eventsourcetest.Event{Data: "b"}, eventsourcetest.Event{Data: "c"}, eventsourcetest.Stall},
	}}
	server.Start()
	defer server.Close()

	metrics := new(expvar.Map)
	client := &eventsource.Client{
		HTTPClient: server.Client(),
		Policy:     policy.Rules{Floor: time.Millisecond, Jitter: -1, MaxDelay: time.Millisecond},
		Trace:      traceInto(metrics),
	}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range counted(metrics, client.Stream(req).Events()) {
		fmt.Println(event.Data, err)
		if event.Data == "c" {
			fmt.Println("now:", metrics)
			break
		}
	}
	fmt.Println("after:", metrics)
	// Output:
	// a <nil>
	// b <nil>
	// c <nil>
	// now: {"attempts_dropped": 1, "attempts_failed": 1, "messages": 3, "open": 1, "streams": 1, "waited_seconds": 0.002}
	// after: {"attempts_dropped": 1, "attempts_failed": 1, "messages": 3, "open": 0, "streams": 0, "waited_seconds": 0.002}
}

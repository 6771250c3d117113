package eventsource_test

import (
	"expvar"
	"fmt"
	"net/http"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// traceInto returns a Trace that counts into metrics. Each stream needs one of its
// own, because an attempt that the loop leaves has no End: that its connection is
// closed then is known from Done and from its having been open.
func traceInto(metrics *expvar.Map) *eventsource.Trace {
	open := false
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
			metrics.Add("messages", int64(a.Messages))
		},
		Wait: func(w eventsource.WaitInfo) { metrics.AddFloat("waited_seconds", w.Waited.Seconds()) },
		Done: func(err error) {
			closed()
			if err != nil {
				metrics.Add("given_up", 1)
			}
		},
	}
}

// Metrics of streams, here with expvar. A program would make the map with
// expvar.NewMap, which publishes it at /debug/vars.
func ExampleTrace_metrics() {
	fake := clock.NewFake(time.Time{})
	server := &eventsourcetest.Server{Clock: fake, Script: [][]eventsourcetest.Step{
		{eventsourcetest.Retry(2 * time.Second), eventsourcetest.Event{Data: "a"}, eventsourcetest.Cut},
		{eventsourcetest.Refuse},
		{eventsourcetest.Event{Data: "b"}, eventsourcetest.Event{Data: "c"}},
	}}
	server.Start()
	defer server.Close()

	metrics := new(expvar.Map)
	trace := traceInto(metrics)
	countWait := trace.Wait
	trace.Wait = func(w eventsource.WaitInfo) { // so that the example takes no time
		countWait(w)
		fake.Advance(w.Waited)
	}
	client := &eventsource.Client{HTTPClient: server.Client(), Clock: fake, Trace: trace}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		fmt.Println(event.Data, err)
	}
	fmt.Println(metrics)
	// Output:
	// a <nil>
	// b <nil>
	// c <nil>
	// {"attempts_dropped": 1, "attempts_ended": 1, "attempts_failed": 1, "attempts_rejected": 1, "messages": 3, "open": 0, "waited_seconds": 6}
}

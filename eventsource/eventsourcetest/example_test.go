package eventsourcetest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// A stream loses its connection and resumes an hour later. Client and server have
// one clock, which is moved whenever the client begins to wait, so no time passes.
func Example() {
	fake := clock.NewFake(time.Time{})
	srv := &eventsourcetest.Server{Clock: fake, Script: [][]eventsourcetest.Step{
		{eventsourcetest.Retry(time.Hour), eventsourcetest.Event{ID: "1", Data: "one"}, eventsourcetest.Reset},
		{eventsourcetest.Event{ID: "2", Data: "two"}},
	}}
	srv.Start()
	defer srv.Close()

	client := eventsource.Client{
		HTTPClient: srv.Client(),
		Clock:      fake,
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{Wait: func(w eventsource.WaitInfo) { fake.Advance(w.Waited) }}
		},
	}
	req, err := http.NewRequest(http.MethodGet, srv.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		fmt.Println(event.Data, err)
	}
	for _, r := range srv.Requests() {
		fmt.Printf("request %d after %v, Last-Event-ID %q\n", r.Number, r.Gap, r.LastEventID)
	}
	// Output:
	// one <nil>
	// two <nil>
	// request 1 after 0s, Last-Event-ID ""
	// request 2 after 1h0m0s, Last-Event-ID "1"
	// request 3 after 1h0m0s, Last-Event-ID "2"
}

// A server that keeps a log answers each request with what the client has not
// had, two events at a time.
func ExampleDo() {
	log := []eventsourcetest.Event{{ID: "1", Data: "a"}, {ID: "2", Data: "b"}, {ID: "3", Data: "c"}}
	fake := clock.NewFake(time.Time{})
	srv := &eventsourcetest.Server{Clock: fake, Rest: []eventsourcetest.Step{
		eventsourcetest.Do(func(c *eventsourcetest.Conn) {
			had, _ := strconv.Atoi(c.Request().LastEventID)
			if had == len(log) {
				c.Play(eventsourcetest.Status{Code: http.StatusNoContent})
			}
			for _, event := range log[had:min(had+2, len(log))] {
				c.Play(event)
			}
		}),
	}}
	srv.Start()
	defer srv.Close()

	client := eventsource.Client{
		HTTPClient: srv.Client(),
		Clock:      fake,
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{Wait: func(w eventsource.WaitInfo) { fake.Advance(w.Waited) }}
		},
	}
	req, err := http.NewRequest(http.MethodGet, srv.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		fmt.Println(event.LastEventID, event.Data, err)
	}
	fmt.Println(len(srv.Requests()), "requests")
	// Output:
	// 1 a <nil>
	// 2 b <nil>
	// 3 c <nil>
	// 3 requests
}

// The server is down for ten minutes. The client tries now and then, and is back
// soon after.
func ExampleOutage() {
	fake := clock.NewFake(time.Time{})
	srv := &eventsourcetest.Server{Clock: fake, Script: [][]eventsourcetest.Step{
		{eventsourcetest.Event{ID: "1", Data: "before"}, eventsourcetest.Cut},
		{eventsourcetest.Outage(10 * time.Minute)},
		{eventsourcetest.Event{ID: "2", Data: "after"}},
	}}
	srv.Start()
	defer srv.Close()

	client := eventsource.Client{
		HTTPClient: srv.Client(),
		Policy:     policy.Rules{Delay: time.Second, MaxDelay: time.Minute, Jitter: -1},
		Clock:      fake,
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{Wait: func(w eventsource.WaitInfo) { fake.Advance(w.Waited) }}
		},
	}
	req, err := http.NewRequest(http.MethodGet, srv.URL, nil)
	if err != nil {
		panic(err)
	}
	start := fake.Now()
	for event, err := range client.Stream(req).Events() {
		fmt.Printf("%v: %s %v\n", fake.Now().Sub(start), event.Data, err)
	}
	refused := 0
	for _, r := range srv.Requests() {
		if r.Refused {
			refused++
		}
	}
	fmt.Println(refused, "attempts in between")
	// Output:
	// 0s: before <nil>
	// 10m4s: after <nil>
	// 15 attempts in between
}

// TestResume is the test that the package's documentation shows.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{
			{eventsourcetest.Retry(time.Hour), eventsourcetest.Event{ID: "1", Data: "a"}, eventsourcetest.Reset},
			{eventsourcetest.Event{ID: "2", Data: "b"}},
		}}
		srv.Start()
		defer srv.Close()

		got := program(t, srv.Client(), srv.URL)

		again := srv.Requests()[1]
		if again.LastEventID != "1" || again.Gap < time.Hour {
			t.Errorf("it came back after %v with ID %q", again.Gap, again.LastEventID)
		}
		if !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("it read %q", got)
		}
	})
}

func program(t *testing.T, httpClient *http.Client, url string) (data []string) {
	client := eventsource.Client{HTTPClient: httpClient}
	for event, err := range client.Stream(newRequest(t.Context(), t, url)).Events() {
		if err != nil {
			t.Error(err)
			continue
		}
		data = append(data, event.Data)
	}
	return data
}

// TestFakeClock: with sockets, a script's waits are timers of the fake clock, and
// the record's times are that clock's.
func TestFakeClock(t *testing.T) {
	for _, n := range networks[2:] {
		n.test(t, n.name, func(t *testing.T) {
			fake := clock.NewFake(time.Time{})
			srv := &eventsourcetest.Server{
				Loopback: true, HTTP2: n.http2, Clock: fake,
				Script: [][]eventsourcetest.Step{
					{eventsourcetest.Open, eventsourcetest.Wait(time.Hour), eventsourcetest.Event{Data: "a"}},
					{eventsourcetest.Outage(time.Minute)},
				},
			}
			srv.Start()
			defer srv.Close()
			done := make(chan exchange)
			req := newRequest(t.Context(), t, srv.URL)
			go func() { done <- do(srv.Client(), req) }()
			if err := fake.Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			fake.Advance(time.Hour)
			if got := (<-done).Body; got != "data: a\n\n" {
				t.Errorf("body = %q", got)
			}
			fake.Advance(time.Minute - 1)
			if got := get(t, srv).Err; got != "refused" {
				t.Errorf("just before the end of the outage: %q, want refused", got)
			}
			fake.Advance(1)
			if got := get(t, srv).Status; got != 204 {
				t.Errorf("at the end of the outage: status %d, want 204", got)
			}
			requests := srv.Requests()
			if d := requests[0].Ended.Sub(requests[0].Arrived); d != time.Hour {
				t.Errorf("the first response took %v, want an hour", d)
			}
			if requests[1].Gap != time.Minute-1 || requests[2].Gap != 1 {
				t.Errorf("gaps = %v, %v; want a minute, less 1 ns, and 1 ns", requests[1].Gap, requests[2].Gap)
			}
		})
	}
}

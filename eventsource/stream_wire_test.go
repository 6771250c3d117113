package eventsource_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// HTML §9.2.2, step 3, and §9.2.3, reestablish the connection: in which cases
// there is another attempt, and after what time.
func TestReconnection(t *testing.T) {
	cut := eventStream("retry: 40\nid: 1\ndata: x\n\ndata: y")
	cut.Cut = true
	for _, tt := range []struct {
		name    string
		first   wireAnswer
		kind    policy.Kind
		waits   time.Duration
		resumes string // Last-Event-ID of the second request
	}{
		{"the end of the body", eventStream("retry: 40\nid: 1\ndata: x\n\n"), policy.Ended, 40 * time.Millisecond, "1"},
		{"the end inside an event", eventStream("retry: 40\ndata: x\n"), policy.Ended, 40 * time.Millisecond, ""},
		{"a broken body", cut, policy.Dropped, 40 * time.Millisecond, "1"},
		{"no response", wireAnswer{Drop: true}, policy.Failed, 3 * time.Second, ""},
		{"an empty body", eventStream(""), policy.Ended, 3 * time.Second, ""},
		{"a retry line alone", eventStream("retry: 40\n"), policy.Ended, 40 * time.Millisecond, ""},
		{"a retry line that is not whole", eventStream("retry: 40"), policy.Ended, 3 * time.Second, ""},
	} {
		strict := eventsource.Client{Policy: policy.Rules{Jitter: -1, Floor: -1}.New}
		run := runWire(t, strict, nil, tt.first, eventStream(""))
		if len(run.Requests) != 3 || run.End != nil {
			t.Errorf("%s: %d requests, %v", tt.name, len(run.Requests), run.End)
			continue
		}
		if run.Attempts[0].Kind != tt.kind {
			t.Errorf("%s: the attempt is %v, want %v", tt.name, run.Attempts[0].Kind, tt.kind)
		}
		if waited := run.Requests[1].At.Sub(run.Requests[0].At); waited != tt.waits {
			t.Errorf("%s: the second request comes after %v, want %v", tt.name, waited, tt.waits)
		}
		if got := strings.Join(run.Requests[1].lines("Last-Event-ID"), "|"); got != tt.resumes {
			t.Errorf("%s: the second request has the ID %q, want %q", tt.name, got, tt.resumes)
		}
		// The time stays in force for a connection that sends none; that one has
		// been fruitless, so the wait may be longer.
		if a := run.Attempts[1]; a.HasRetry != (tt.waits < time.Second) || a.HasRetry && a.Retry != tt.waits {
			t.Errorf("%s: at the second end the reconnection time is %v, %v", tt.name, a.Retry, a.HasRetry)
		}
	}
}

// HTML §9.2.2, close(): nothing happens after it, wherever in the stream it is called.
func TestCloseIsFinal(t *testing.T) {
	for _, when := range []string{"connect", "open", "comment", "retry", "event", "wait"} {
		left := errors.New("left " + when)
		server := newWireServer(t, func(int, wireRequest) wireAnswer {
			return eventStream(":\nretry: 1\nid: 1\ndata: x\n\ndata: y\n\n")
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		leave := func(at string) {
			if at == when {
				cancel(left)
			}
		}
		client := eventsource.Client{
			HTTPClient: &http.Client{Transport: server}, Clock: server.clock,
			Trace: &eventsource.Trace{
				Connect: func(eventsource.ConnectInfo) { leave("connect") },
				Open:    func(eventsource.OpenInfo) { leave("open") },
				Comment: func(string) { leave("comment") },
				Retry:   func(time.Duration) { leave("retry") },
				Wait: func(w eventsource.WaitInfo) {
					leave("wait")
					server.clock.Advance(w.Waited)
				},
			},
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin1+"/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		events := 0
		var end error
		stream := client.Stream(req)
		for _, err := range stream.Events() {
			if err != nil {
				end = err
				break
			}
			events++
			leave("event")
		}
		server.close()
		want := map[string]int{"event": 1, "wait": 2}[when]
		// Who resumes must be sent what was not delivered.
		if id := stream.LastEventID(); (id != "") != (want > 0) {
			t.Errorf("%s: the last event ID is %q after %d events", when, id, events)
		}
		if end != left || events != want || len(server.log()) > 1 {
			t.Errorf("%s: %d events, %d requests, %v; want %d events, and at most one request", when, events, len(server.log()), end, want)
		}
		cancel(nil)
	}
}

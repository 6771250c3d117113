package eventsource_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/scenario"
)

func TestG5NothingForgotten(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.NothingForgotten}}
	p.holdsIn(t, []scenarioCase{
		{
			name: "the ID outlives empty connections, failures and refusals",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("id: 7\ndata: m\n\n"), answerEmpty, answerStream(": hello\n\n"), answerRefused, answerUnavailable(""), cutAnswer(answerEmpty), {Failure: scenario.Unprepared}, answerGone},
				Policy: policyScript(0, 0, 0, 0, 0, 0, 0),
			},
			want: []string{
				"0s request", `0s event "m"`, "0s ended", `0s request ["7"]`, "0s ended", `0s request ["7"]`, "0s ended",
				`0s request ["7"]`, "0s failed", `0s request ["7"]`, "0s rejected", `0s request ["7"]`, "0s dropped", "0s failed",
				`0s request ["7"]`, "0s rejected", "0s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "it is committed at the blank line",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("id: 7\n\nid: 8\n"), cutAnswer(answerStream("id: 8\ndata: half")), answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{
				"0s request", "0s ended", `0s request ["7"]`, "0s dropped", `0s request ["7"]`, "0s rejected",
				"0s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "an event without an ID does not clear it, on the next connection either",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("id: 7\ndata: a\n\ndata: b\n\n"), answerStream("data: c\n\n"), answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{
				"0s request", `0s event "a"`, `0s event "b"`, "0s ended", `0s request ["7"]`, `0s event "c"`, "0s ended",
				`0s request ["7"]`, "0s rejected", "0s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "an empty ID does",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("id: 7\ndata: a\n\nid\n\n"), answerGone},
				Policy: policyScript(0),
			},
			want: []string{"0s request", `0s event "a"`, "0s ended", "0s request", "0s rejected", "0s done: scenario: the policy's script has ended"},
		},
		{
			name: "and so does a policy that forgets",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("id: 7\ndata: a\n\n"), answerStream("data: b\n\n"), answerGone},
				Policy: scenario.Policy{Script: []scenario.Decision{{Forget: true}, {}}},
			},
			want: []string{
				"0s request", `0s event "a"`, "0s ended", "0s request", `0s event "b"`, "0s ended", "0s request", "0s rejected",
				"0s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "the caller's own ID is where it starts, after an adopted response too",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{LastEventID: "é 42", Adopt: scenario.Resume},
			},
			want: []string{"0s ended", `0s request ["é 42"]`, "0s rejected", "0s done: scenario: the policy's script has ended"},
		},
		{
			name: "an ID that cannot be sent is no reason to forget",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("id: 7\x01\ndata: a\n\n"), answerEmpty, answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{"0s request", `0s event "a"`, "0s ended", "0s failed", "0s failed", "0s done: scenario: the policy's script has ended"},
		},
		{
			name: "what was read when Reconnect was called is delivered",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerStream("id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: c\n\n")), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: scenario.Restart}}},
			},
			want: []string{
				"0s request", `0s event "a"`, `0s event "b"`, `0s event "c"`, "0s restarted", `0s request ["3"]`, "0s rejected",
				"0s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "the ID of an event that the loop is not given any more does not count",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerStream("id: 1\ndata: a\n\nid: 2\n\nid: 3\ndata: c\n\n"))},
				Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: scenario.Cancel}}},
			},
			want: []string{"0s request", `0s event "a"`, "0s done: scenario: cancelled by the caller"},
		},
		{
			name: "not even if it is cancelled as that event is being read",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerStream("id: 1\ndata: a\n\n: now\nid: 2\ndata: b\n\n"))},
				Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Comment, Do: scenario.Cancel}}},
			},
			want: []string{"0s request", `0s event "a"`, "0s done: scenario: cancelled by the caller"},
		},
	})
	p.holds(t)
}

// TestG5CommittedAtDelivery holds that LastEventID never names an event that the loop
// has not been given, not even while the stream finds out that its context is done,
// and that inside the loop it names the event in hand.
func TestG5CommittedAtDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := answers(body(errHold, "id: 1\ndata: a\n\ndata: b\n\nid: 2\n\nid: 1\ndata: c\n\nid\ndata: d\n\nid: 3\ndata: e\n\n", "id: 4\nretry: 1\ndata: lost\n\n"))
		ctx, cancel := context.WithCancel(t.Context())
		var s *eventsource.Stream
		var mu sync.Mutex
		seen := []string{""} // without repetitions
		see := func() {
			mu.Lock()
			defer mu.Unlock()
			if id := s.LastEventID(); id != seen[len(seen)-1] {
				seen = append(seen, id)
			}
		}
		// The context ends inside the event that is then lost.
		trace := &eventsource.Trace{Retry: func(time.Duration) { cancel() }}
		s = rt.client(eventsource.Client{Trace: traceOf(trace)}).Stream(get(&watchedContext{ctx, see}))
		var given []string
		for event, err := range s.Events() {
			if err != nil {
				break
			}
			if id := s.LastEventID(); id != event.LastEventID {
				t.Errorf("the loop has %+v, and LastEventID is %q", event, id)
			}
			given = append(given, event.Data)
		}
		see()
		if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, given); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"", "1", "2", "1", "", "3"}, seen); diff != "" {
			t.Errorf("IDs (-want +got):\n%s", diff)
		}
	})
}

// A watchedContext calls see whenever it is asked for its error.
type watchedContext struct {
	context.Context
	see func()
}

func (c *watchedContext) Err() error {
	c.see()
	return c.Context.Err()
}

// A process that stores its last event ID and ends can go on from there.
func TestG5OutlivesTheProcess(t *testing.T) {
	t.Parallel()
	for _, end := range []scenario.Action{
		{On: scenario.Body, N: 2, Do: scenario.Leave},
		{On: scenario.Body, N: 2, Do: scenario.Panic},
		{On: scenario.Body, N: 2, Do: scenario.Exit},
		{On: scenario.Body, N: 2, Do: scenario.Cancel},
		{After: time.Second, Do: scenario.Cancel},
	} {
		first := scenario.Scenario{
			Server: []scenario.Answer{openAnswer(scenario.Answer{Body: []scenario.Piece{
				{Text: "id: 1\ndata: a\n\nid: 2\ndata: b\n\n"}, {Wait: time.Second, Text: "id: 3\ndata: c\n\n"},
			}})},
			Caller: scenario.Caller{Actions: []scenario.Action{end}},
		}
		stored := scenario.Play(t, first)[0]
		if stored.Resumed == "3" && len(stored.Attempts[0].Events) == 3 {
			continue // the third event has made it in the very moment of the cancellation
		}
		if stored.Resumed != "2" {
			t.Errorf("%v: the ID to resume from is %q, not 2:\n%s", end.Do, stored.Resumed, stored.Text())
		}
		second := scenario.Scenario{
			Server: []scenario.Answer{answerStream("id: 3\ndata: c\n\n")},
			Caller: scenario.Caller{LastEventID: stored.Resumed},
		}
		r := scenario.Play(t, second)[0]
		if got := r.Attempts[0].Header["Last-Event-Id"]; !cmp.Equal(got, []string{"2"}) {
			t.Errorf("the second process asks to go on from %q", got)
		}
	}
}

// An ID that cannot be sent is reported as such.
func TestG5UnsendableID(t *testing.T) {
	t.Parallel()
	r := scenario.Play(t, scenario.Scenario{Server: []scenario.Answer{answerStream("id: 7\x7f\ndata: a\n\n"), answerEmpty}, Policy: policyScript(0)})[0]
	last := r.Attempts[len(r.Attempts)-1]
	if err := r.Err(); !errors.Is(err, eventsource.ErrUnsendableID) || last.Sent || !last.Reported.Permanent {
		t.Errorf("%v\n%s", err, r.Text())
	}
}

// What a caller stores in order to resume is the ID that the request came with, then that
// of the last finished block. In the loop it is the ID of the current event.
func TestLastEventIDFollowsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := answers(body(errCut, "data: a\n\nid: 6\ndata: b\n\nid: 7\n\ndata: c\n\nid: 8\n\nid: 9\ndata: d"), status(204))
		req := get(t.Context())
		req.Header.Set("Last-Event-ID", "5")
		s := rt.client(eventsource.Client{}).Stream(req)
		ids := []string{s.LastEventID()}
		for event, err := range s.Events() {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, s.LastEventID())
			if event.LastEventID != s.LastEventID() {
				t.Errorf("the event %q has the ID %q, and the stream %q", event.Data, event.LastEventID, s.LastEventID())
			}
		}
		ids = append(ids, s.LastEventID())
		if diff := cmp.Diff([]string{"5", "5", "6", "7", "8"}, ids); diff != "" {
			t.Errorf("IDs (-want +got):\n%s", diff)
		}
	})
}

package eventsource_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// R088: "open" is reported when the header of the response is in, with its status
// and header, though the server is silent then.
func TestR088OpenIsReportedAtTheHeader(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		header := typed("text/event-stream")
		header["X-Served-By"] = []string{"b7"}
		srv := serve([]Step{Wait(5 * time.Second), Status{Header: header}, Wait(time.Hour), Event{Data: "a"}, End})
		var opened []time.Duration
		var served string
		client := eventsource.Client{HTTPClient: srv.Client(), Trace: &eventsource.Trace{Open: func(i eventsource.OpenInfo) {
			opened = append(opened, time.Since(bubbleStart))
			served = i.Header.Get("X-Served-By")
			if i.Number != 1 || i.Status != 200 {
				t.Errorf("attempt %d opened with %d", i.Number, i.Status)
			}
		}}}
		if _, err := collect(client.Stream(request(t.Context(), t, srv.URL))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]time.Duration{5 * time.Second}, opened); diff != "" {
			t.Errorf("opened at (-want +got):\n%s", diff)
		}
		if served != "b7" {
			t.Errorf("the header has %q", served)
		}
	})
}

// R089: comments can be seen by who asks for them: each line, without one leading
// space, beside the events and not among them.
func TestR089CommentsOnRequest(t *testing.T) {
	for name, asked := range map[string]bool{"asked": true, "not asked": false} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve([]Step{Send(": ping\n:\n\n:  two spaces\ndata: a\n:no space\n\n"), End})
				var log []string
				client := eventsource.Client{HTTPClient: srv.Client()}
				want := []string{"event a"}
				if asked {
					client.Trace = &eventsource.Trace{Comment: func(text string) { log = append(log, "comment "+text) }}
					want = []string{"comment ping", "comment ", "comment  two spaces", "comment no space", "event a"}
				}
				for ev, err := range client.Stream(request(t.Context(), t, srv.URL)).Events() {
					if err != nil {
						t.Fatal(err)
					}
					log = append(log, "event "+ev.Data)
				}
				if diff := cmp.Diff(want, log); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// R090: the reconnection time in force can be read: a hook is told when it is set,
// and each attempt's facts have it.
func TestR090ReconnectionTimeCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t,
			[]Step{Open, End},
			[]Step{Send("retry: 7000\n\n"), End},
			[]Step{Event{Data: "a"}, End},
			[]Step{Send("retry: bad\n\n"), End},
		)
		s := play(t, srv, eventsource.Client{Policy: strict})
		type inForce struct {
			Has, Sent bool
			Retry     time.Duration
		}
		var got []inForce
		for _, a := range s.ends {
			got = append(got, inForce{a.HasRetry, a.RetrySent, a.Retry})
		}
		const s7 = 7 * time.Second
		want := []inForce{{}, {true, true, s7}, {true, false, s7}, {true, false, s7}, {true, false, s7}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in force (-want +got):\n%s", diff)
		}
		told := 0
		for _, line := range s.log {
			if line == "retry 7s" {
				told++
			}
		}
		if told != 1 {
			t.Errorf("the hook was told %d times", told)
		}
	})
}

// R091: the state can be followed: connecting, open, over, in order and each once,
// with every wait.
func TestR091StateCanBeFollowed(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Event{Data: "a"}, Cut}, []Step{Refuse}, []Step{Refuse}, []Step{Event{Data: "b"}, Stall})
		var w watcher
		client := eventsource.Client{HTTPClient: srv.Client(), Policy: strict, Trace: w.trace()}
		for ev, err := range client.Stream(request(t.Context(), t, srv.URL)).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Data == "b" {
				break
			}
		}
		want := []string{
			"connect 1", "open 1: 200", "end 1: dropped 200",
			"wait 2: 3s", "connect 2", "end 2: failed",
			"wait 3: 3s", "connect 3", "end 3: failed",
			"wait 4: 6s", "connect 4", "open 4: 200",
			"done: <nil>",
		}
		if diff := cmp.Diff(want, w.log); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
	})
}

// R096: the caller can ask for a reconnection: while the stream is open, while it
// is being connected, and in a wait that the client chose it comes at once; a wait
// that the server asked for is not cut short; before and after the stream it does
// nothing.
func TestR096ReconnectNow(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		script [][]Step
		rules  policy.Rules
		after  time.Duration // when Reconnect is called, from the start
		want   []time.Duration
		kind   policy.Kind // of the first attempt
	}{
		"open": {
			script: [][]Step{{numbered(1), Stall}, {numbered(2), End}},
			after:  10 * s, want: []time.Duration{10 * s}, kind: policy.Restarted,
		},
		"open, retry": {
			script: [][]Step{{Retry(5 * s), numbered(1), Stall}, {numbered(2), End}},
			after:  10 * s, want: []time.Duration{15 * s}, kind: policy.Restarted,
		},
		"wait of the client's": {
			script: [][]Step{{numbered(1), Cut}, {numbered(2), End}},
			rules:  policy.Rules{Delay: 30 * s},
			after:  10 * s, want: []time.Duration{10 * s}, kind: policy.Dropped,
		},
		"wait of the server's": {
			script: [][]Step{{Retry(30 * s), numbered(1), Cut}, {numbered(2), End}},
			after:  10 * s, want: []time.Duration{30 * s}, kind: policy.Dropped,
		},
		"longer than the server's": {
			// It asked for 8 s, the client waits 30 s: cut short to the 8 s.
			script: [][]Step{{Retry(8 * s), numbered(1), Cut}, {numbered(2), End}},
			rules:  policy.Rules{Floor: 30 * s},
			after:  2 * s, want: []time.Duration{8 * s}, kind: policy.Dropped,
		},
		"beyond the server's": {
			script: [][]Step{{Retry(8 * s), numbered(1), Cut}, {numbered(2), End}},
			rules:  policy.Rules{Floor: 30 * s},
			after:  10 * s, want: []time.Duration{10 * s}, kind: policy.Dropped,
		},
		"connecting": {
			script: [][]Step{{Stall}, {numbered(2), End}},
			after:  10 * s, want: []time.Duration{10 * s}, kind: policy.Restarted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(c.script...)
				var w watcher
				client := eventsource.Client{HTTPClient: srv.Client(), Policy: exact(c.rules), Trace: w.trace()}
				stream := client.Stream(request(t.Context(), t, srv.URL))
				stream.Reconnect() // before: nothing
				time.AfterFunc(c.after, stream.Reconnect)
				for ev, err := range stream.Events() {
					if err != nil {
						t.Fatal(err)
					}
					if ev.Data == "2" {
						break
					}
				}
				stream.Reconnect() // after: nothing
				time.Sleep(time.Hour)
				synctest.Wait()

				var at []time.Duration
				requests := srv.Requests()
				for _, r := range requests[1:] {
					at = append(at, r.Arrived.Sub(bubbleStart))
				}
				if diff := cmp.Diff(c.want, at); diff != "" {
					t.Errorf("attempts at (-want +got):\n%s", diff)
				}
				if w.ends[0].Kind != c.kind {
					t.Errorf("the first attempt ended %v, want %v", w.ends[0].Kind, c.kind)
				}
				if name != "connecting" && requests[1].LastEventID != "1" {
					t.Errorf("resumed from %q", requests[1].LastEventID)
				}
			})
		})
	}
}

package eventsource_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// A resumption is a stream that is lost after its first connection and resumed.
type resumption struct {
	stored string // Last-Event-ID of the caller's request; "" for none
	sent   string // by the server, before the connection ends

	wantSent []string // Last-Event-ID of both requests
	wantIDs  []string // of the events
	wantID   string   // in force at the end
}

// check plays the resumption with every way that a connection can end.
func (r resumption) check(t *testing.T) {
	for _, end := range []struct {
		name  string
		http2 bool
		step  Step
	}{
		{"End", false, End},
		{"Cut", false, Cut},
		{"Reset", false, Reset},
		{"HTTP2/End", true, End},
		{"HTTP2/Reset", true, Reset},
	} {
		t.Run(end.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := start(t, &Server{HTTP2: end.http2, Script: [][]Step{{Send(r.sent), end.step}}})
				req := request(t.Context(), t, srv.URL)
				if r.stored != "" {
					req.Header.Set("Last-Event-ID", r.stored)
				}
				s := (&eventsource.Client{HTTPClient: srv.Client()}).Stream(req)
				if id := s.LastEventID(); id != r.stored {
					t.Errorf("the ID before the first request is %q, not the stored %q", id, r.stored)
				}
				var ids []string
				for ev, err := range s.Events() {
					if err != nil {
						t.Fatal(err)
					}
					ids = append(ids, ev.LastEventID)
					if id := s.LastEventID(); id != ev.LastEventID {
						t.Errorf("the ID to store is %q after an event with %q", id, ev.LastEventID)
					}
				}
				if diff := cmp.Diff(r.wantIDs, ids); diff != "" {
					t.Errorf("IDs of the events (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(r.wantSent, sentIDs(srv)); diff != "" {
					t.Errorf("Last-Event-ID of the requests (-want +got):\n%s", diff)
				}
				if s.LastEventID() != r.wantID {
					t.Errorf("the ID to store is %q at the end, want %q", s.LastEventID(), r.wantID)
				}
			})
		})
	}
}

// R028: the newest ID is sent on reconnecting, not the one that the stream began
// with.
func TestR028NewestIDIsSent(t *testing.T) {
	resumption{
		stored:   "5",
		sent:     "id: 6\ndata: a\n\nid: 7\ndata: b\n\n",
		wantSent: []string{"5", "7"},
		wantIDs:  []string{"6", "7"},
		wantID:   "7",
	}.check(t)
}

// R029: a stream without an ID sends no Last-Event-ID; once it has one, it does.
func TestR029IDIsSentOnReconnect(t *testing.T) {
	resumption{
		sent:     "id: abc\ndata: x\n\n",
		wantSent: []string{"none", "abc"},
		wantIDs:  []string{"abc"},
		wantID:   "abc",
	}.check(t)
}

// R030: an event without an ID shows the ID in force.
func TestR030EventShowsIDInForce(t *testing.T) {
	resumption{
		sent:     "id: 1\ndata: a\n\ndata: b\n\n",
		wantSent: []string{"none", "1"},
		wantIDs:  []string{"1", "1"},
		wantID:   "1",
	}.check(t)
}

// R030: that includes the first events of a later connection.
func TestR030IDIsInForceAfterReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t,
			[]Step{Event{ID: "1", Data: "a"}, Cut},
			[]Step{Event{Data: "b"}, Cut},
		)
		s := play(t, srv, eventsource.Client{})
		want := []eventsource.Event{
			{Type: "message", Data: "a", LastEventID: "1"},
			{Type: "message", Data: "b", LastEventID: "1"},
		}
		if diff := cmp.Diff(want, s.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"none", "1", "1"}, sentIDs(srv)); diff != "" {
			t.Errorf("Last-Event-ID of the requests (-want +got):\n%s", diff)
		}
	})
}

// R031: an ID with a NUL is ignored and leaves the one in force.
func TestR031IDWithNULIsIgnored(t *testing.T) {
	resumption{
		sent:     "id: 1\nid: b\x00d\ndata: x\n\n",
		wantSent: []string{"none", "1"},
		wantIDs:  []string{"1"},
		wantID:   "1",
	}.check(t)
}

// R032: an empty ID clears the resume point: no header is sent, not an empty one.
func TestR032EmptyIDClears(t *testing.T) {
	resumption{
		sent:     "id: 1\ndata: a\n\nid:\ndata: b\n\n",
		wantSent: []string{"none", "none"},
		wantIDs:  []string{"1", ""},
		wantID:   "",
	}.check(t)
	t.Run("stored", func(t *testing.T) {
		resumption{
			stored:   "9",
			sent:     "id\ndata: b\n\n",
			wantSent: []string{"9", "none"},
			wantIDs:  []string{""},
			wantID:   "",
		}.check(t)
	})
}

// R033: the first request can carry a stored ID, which stays in force until the
// server sets another, and can be read back for storing.
func TestR033StoredIDIsSentFirst(t *testing.T) {
	resumption{
		stored:   "42",
		sent:     "data: x\n\n",
		wantSent: []string{"42", "42"},
		wantIDs:  []string{"42"},
		wantID:   "42",
	}.check(t)
}

// R034: a block with an ID alone makes no event and moves the resume point.
func TestR034IDAloneMoves(t *testing.T) {
	resumption{
		sent:     "id: 5\n\n",
		wantSent: []string{"none", "5"},
		wantID:   "5",
	}.check(t)
}

// R034: but an ID counts at the blank line only; one that was cut off is not
// resumed from, or the event that it belongs to would be lost.
func TestR034UnfinishedIDDoesNotMove(t *testing.T) {
	for _, sent := range []string{
		"id: 5\n\nid: 6",
		"id: 5\n\nid: 6\n",
		"id: 5\n\nid: 6\ndata: x\n",
	} {
		resumption{sent: sent, wantSent: []string{"none", "5"}, wantID: "5"}.check(t)
	}
}

// R037: the server's retry is obeyed to the millisecond, however the connection
// ends, and stays in force for later ones until it is replaced.
func TestR037RetryIsObeyed(t *testing.T) {
	for _, end := range []Step{End, Cut, Reset} {
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t,
				[]Step{Send("retry: 5000\n\n"), end},
				[]Step{Event{Data: "a"}, end},
				[]Step{Event{Data: "b"}, end},
				[]Step{Send("data: c\n\nretry: 1234\n"), end}, // at its line, not at a blank one
				[]Step{Event{Data: "d"}, end},
			)
			// No policy is set: not even jitter may be added to the server's wait.
			s := play(t, srv, eventsource.Client{})
			want := []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second, 1234 * time.Millisecond, 1234 * time.Millisecond}
			if diff := cmp.Diff(want, gaps(srv)); diff != "" {
				t.Errorf("after %v, gaps (-want +got):\n%s", end, diff)
			}
			if diff := cmp.Diff([]string{"a", "b", "c", "d"}, s.data()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// R035: a bad retry value is ignored: the stream stays up, and the reconnection
// time is what it was, neither zero nor negative.
func TestR035BadRetryIsIgnored(t *testing.T) {
	const huge = "retry: 99999999999999999999999999\n\n"
	for _, bad := range []string{
		"retry:none\n", "retry\n", "retry:\n", "retry: -1\n", "retry: +5\n", "retry: 1e3\n",
		"retry: 1.5\n", "retry:  7\n", "retry: 7 \n", "retry: 0x10\n", "retry: ५\n", "Retry: 1\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t, []Step{Send("retry: 4000\n\n" + bad + "data:foo\n\n" + bad + "data:bar\n\n"), End})
			s := play(t, srv, eventsource.Client{})
			if diff := cmp.Diff([]string{"foo", "bar"}, s.data()); diff != "" {
				t.Errorf("%q: events (-want +got):\n%s", bad, diff)
			}
			if diff := cmp.Diff([]time.Duration{4 * time.Second}, gaps(srv)); diff != "" {
				t.Errorf("%q: gaps (-want +got):\n%s", bad, diff)
			}
		})
	}
	t.Run("huge", func(t *testing.T) {
		// It is valid, and longer than a Duration. The stream must not come back at
		// once because a number has wrapped.
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t, []Step{Send(huge), End})
			var w watcher
			client := eventsource.Client{HTTPClient: srv.Client(), Trace: w.trace()}
			for range during(t, client, srv, 24*365*100*time.Hour) {
				t.Error("an event")
			}
			if n := len(srv.Requests()); n != 1 {
				t.Errorf("%d requests in a hundred years, want 1", n)
			}
		})
	})
}

// R036: retry: 0 does not become a busy loop: the Floor, 100 ms, is waited at the
// least, also when every connection brings something.
func TestR036ZeroRetryIsNoBusyLoop(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing":   "retry: 0\n\n",
		"a message": "retry: 0\ndata: x\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := start(t, &Server{Rest: []Step{Send(sent), End}})
				for range during(t, eventsource.Client{HTTPClient: srv.Client()}, srv, 10*time.Second-time.Millisecond) {
				}
				requests := srv.Requests()
				perSecond := make(map[int]int)
				for _, r := range requests {
					perSecond[int(r.Arrived.Sub(requests[0].Arrived)/time.Second)]++
				}
				for second, n := range perSecond {
					if n > 10 {
						t.Errorf("%d attempts in second %d, want 10 at most", n, second)
					}
				}
				if len(requests) < 5 {
					t.Errorf("%d attempts in 10 s: has it stopped?", len(requests))
				}
				for _, gap := range gaps(srv) {
					if gap < 100*time.Millisecond {
						t.Errorf("an attempt after %v, below the floor", gap)
					}
				}
			})
		})
	}
}

package eventsource_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// R044: a normal end of the response is followed by a reconnection, after the
// reconnection time.
func TestR044NormalEndReconnects(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Event{Data: "a"}, End}, []Step{Event{Data: "b"}, End})
		s := play(t, srv, eventsource.Client{Policy: strict})
		if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]time.Duration{3 * time.Second, 3 * time.Second}, gaps(srv)); diff != "" {
			t.Errorf("gaps (-want +got):\n%s", diff)
		}
	})
}

// R045: a server that is down at the start is tried again, and the failures are
// seen.
func TestR045ServerDownAtTheStart(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Refuse}, []Step{Refuse}, []Step{Refuse}, []Step{Event{Data: "up"}, End})
		s := play(t, srv, eventsource.Client{Policy: strict})
		if diff := cmp.Diff([]string{"up"}, s.data()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		for _, a := range s.ends[:3] {
			if a.Kind != policy.Failed || !errors.Is(a.Err, syscall.ECONNREFUSED) {
				t.Errorf("attempt %d ended %v with %v", a.Number, a.Kind, a.Err)
			}
		}
		if s.ends[3].Kind != policy.Ended {
			t.Errorf("attempt 4 ended %v", s.ends[3].Kind)
		}
	})
}

// R046: the reset of an HTTP/2 stream is a dropped connection like any other.
func TestR046HTTP2StreamReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := start(t, &Server{HTTP2: true, Script: [][]Step{{Event{ID: "1", Data: "a"}, Reset}, {Event{ID: "2", Data: "b"}, End}}})
		s := play(t, srv, eventsource.Client{Policy: strict})
		if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"none", "1", "2"}, sentIDs(srv)); diff != "" {
			t.Errorf("Last-Event-ID of the requests (-want +got):\n%s", diff)
		}
		if s.ends[0].Kind != policy.Dropped || s.ends[0].Err == nil {
			t.Errorf("the first attempt ended %v with %v", s.ends[0].Kind, s.ends[0].Err)
		}
	})
}

// A feed is a server's log of events, numbered from 1 as their IDs and data.
type feed struct{ events int }

// replay plays what follows the client's last event ID.
func (f *feed) replay(c *Conn) {
	from, err := strconv.Atoi(c.Request().LastEventID)
	if err != nil && c.Request().HasLastEventID {
		c.Play(Status{Code: http.StatusBadRequest}, End)
		return
	}
	for n := from + 1; n <= f.events; n++ {
		c.Play(numbered(n))
	}
}

// R047: cuts by a proxy that takes a minute of silence for the end are ridden out:
// each event once and in order, and the wait does not grow.
func TestR047CutsEveryMinute(t *testing.T) {
	const cuts = 10
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		var log feed
		connection := []Step{
			Do(func(c *Conn) {
				log.events++
				log.replay(c)
			}), Wait(time.Minute), Cut,
		}
		var script [][]Step
		for range cuts {
			script = append(script, connection)
		}
		srv := serve(script...)
		s := play(t, srv, eventsource.Client{Policy: strict})
		if diff := cmp.Diff(upTo(cuts), s.data()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		for _, gap := range gaps(srv) {
			if gap != 3*time.Second {
				t.Errorf("a gap of %v, want the base, 3s", gap)
			}
		}
		if len(s.ends) != cuts+1 {
			t.Errorf("%d attempts, want %d", len(s.ends), cuts+1)
		}
	})
}

// R048: giving up is never silent and never surprising: without a limit there is
// no giving up, and with one the error says which it was and what had gone wrong.
func TestR048GivingUp(t *testing.T) {
	outage := [][]Step{{Outage(20 * time.Minute)}, {Event{Data: "back"}, End}}
	t.Run("no limit", func(t *testing.T) {
		for name, policy := range map[string]func() policy.Reconnector{"default": nil, "resilient": policy.Resilient} {
			synctest.Test(t, func(t *testing.T) {
				s := play(t, serve(t, outage...), eventsource.Client{Policy: policy})
				if s.err != nil || len(s.events) != 1 {
					t.Errorf("%s: %d events and %v", name, len(s.events), s.err)
				}
			})
		}
	})
	t.Run("5 attempts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t, outage...)
			s := play(t, srv, eventsource.Client{Policy: policy.Rules{MaxFruitless: 5}.New})
			var stop *eventsource.StopError
			if !errors.Is(s.err, policy.ErrExhausted) || !errors.Is(s.err, syscall.ECONNREFUSED) || !errors.As(s.err, &stop) {
				t.Fatalf("the error is %v", s.err)
			}
			// Five reconnections, as documented: the first attempt is none.
			if n := len(srv.Requests()); n != 6 || stop.Attempt.Number != 6 {
				t.Errorf("%d attempts, the last is number %d, want 6", n, stop.Attempt.Number)
			}
			if diff := cmp.Diff(fmt.Sprint("done: ", s.err), s.log[len(s.log)-1]); diff != "" {
				t.Errorf("the trace's last line (-want +got):\n%s", diff)
			}
		})
	})
}

// R049: a long outage is survived, and its end is noticed within the longest
// wait and its jitter.
func TestR049LongOutage(t *testing.T) {
	const outage = 6 * time.Hour
	for _, downAtStart := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			script := [][]Step{{Outage(outage)}, {Event{Data: "back"}, End}}
			if !downAtStart {
				script = append([][]Step{{Event{Data: "before"}, Cut}}, script...)
			}
			srv := serve(t, script...)
			from := time.Now()
			s := play(t, srv, eventsource.Client{})
			if s.err != nil || s.data()[len(s.events)-1] != "back" {
				t.Fatalf("events %q, error %v", s.data(), s.err)
			}
			back := s.ends[len(s.ends)-2]
			if late := back.Open.Sub(from) - outage; late < 0 || late > 45*time.Second {
				t.Errorf("connected %v after the network was back, want at most 30 s and half of it as jitter", late)
			}
			if n := len(srv.Requests()); n > 6*60*2+10 {
				t.Errorf("%d attempts in 6 h of outage", n)
			}
		})
	}
}

// R050: 204 means stop: one request, no error, and the trace shows the status.
func TestR050NoContentStops(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Status{Code: http.StatusNoContent}}, []Step{Event{Data: "not asked for"}})
		s := play(t, srv, eventsource.Client{Policy: policy.Resilient})
		if s.err != nil || len(s.events) != 0 {
			t.Errorf("%d events and %v", len(s.events), s.err)
		}
		want := []string{"connect 1", "end 1: rejected 204", "done: <nil>"}
		if diff := cmp.Diff(want, s.log); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
		if n := len(srv.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// R051: a permanent refusal ends the stream, at the start and later, with an error
// that has the status.
func TestR051PermanentRefusal(t *testing.T) {
	for _, refusal := range []int{400, 401, 403, 404, 405, 410, 418, 451} {
		for name, before := range map[string][][]Step{"at once": nil, "later": {{Event{ID: "1", Data: "a"}, End}}} {
			for policyName, p := range map[string]func() policy.Reconnector{"default": nil, "resilient": policy.Resilient} {
				synctest.Test(t, func(t *testing.T) {
					srv := serve(t, append(before, []Step{Status{Code: refusal}})...)
					s := play(t, srv, eventsource.Client{Policy: p})
					var resp *eventsource.ResponseError
					if !errors.As(s.err, &resp) || resp.StatusCode != refusal {
						t.Errorf("%d %s, %s: the error is %v", refusal, name, policyName, s.err)
					}
					if n := len(srv.Requests()); n != len(before)+1 {
						t.Errorf("%d %s, %s: %d requests", refusal, name, policyName, n)
					}
				})
			}
		}
	}
}

// R052, R067: with reconnecting switched off there is one request, and the caller
// is told how it ended. A clean end is nil, the one value that no failure has.
//
// Requirements: R052, R067
func TestR052ReconnectingOff(t *testing.T) {
	for name, c := range map[string]struct {
		script []Step
		events int
		err    error // that the error is; nil for none
	}{
		"clean end":      {script: []Step{Event{Data: "a"}, End}, events: 1},
		"inside a block": {script: []Step{Send("data: a\n\ndata: b\n"), End}, events: 1, err: eventsource.ErrTruncated},
		"reset":          {script: []Step{Send("data: a\n\ndata: b"), Reset}, events: 1, err: syscall.ECONNRESET},
		"refused":        {script: []Step{Refuse}, err: syscall.ECONNREFUSED},
		"status":         {script: []Step{Status{Code: 503}}, err: errAnyResponse},
		"204":            {script: []Step{Status{Code: 204}}, err: errAnyResponse},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t, c.script)
				s := play(t, srv, eventsource.Client{Policy: policy.Never})
				if n := len(srv.Requests()); n != 1 {
					t.Errorf("%d requests", n)
				}
				if len(s.events) != c.events {
					t.Errorf("%d events, want %d", len(s.events), c.events)
				}
				var resp *eventsource.ResponseError
				switch {
				case c.err == errAnyResponse:
					if !errors.As(s.err, &resp) {
						t.Errorf("the error is %v", s.err)
					}
				case !errors.Is(s.err, c.err):
					t.Errorf("the error is %v, want %v", s.err, c.err)
				}
			})
		})
	}
}

var errAnyResponse = errors.New("a ResponseError")

// R053: a stream that is finished for the consumer is not started again, and there
// is no wait and no error.
func TestR053FinishedStream(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Event{Data: "1"}, Event{Data: "2"}, Event{Data: "[DONE]"}, End})
		var w watcher
		client := eventsource.Client{HTTPClient: srv.Client(), Trace: w.trace()}
		from := time.Now()
		var data []string
		for ev, err := range client.Stream(request(t.Context(), t, srv.URL)).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Data == "[DONE]" {
				break
			}
			data = append(data, ev.Data)
		}
		if took := time.Since(from); took != 0 {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Hour)
		if diff := cmp.Diff([]string{"1", "2"}, data); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if n := len(srv.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		if diff := cmp.Diff([]string{"connect 1", "open 1: 200", "done: <nil>"}, w.log); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
	})
}

package eventsource_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// R038, R039: silence for the idle limit ends the connection, between events and
// inside one; the error says so, and the stream goes on with the last ID.
//
// Requirements: R038, R039
func TestR038IdleLimitEndsConnection(t *testing.T) {
	for name, last := range map[string]string{
		"after an event":       "",
		"inside an event":      "data: par",
		"inside a line":        "da",
		"before a blank line":  "id: 8\ndata: whole\n",
		"inside a comment":     ": hm",
		"after nothing but CR": "\r",
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(
					[]Step{Event{ID: "7", Data: "a"}, Wait(10 * time.Second), Send(last), Stall},
					[]Step{Event{ID: "8", Data: "b"}, End},
				)
				silence := 30 * time.Second
				if last != "" {
					silence += 10 * time.Second
				}
				s := play(t, srv, eventsource.Client{IdleTimeout: 30 * time.Second, Policy: strict})
				if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"none", "7", "8"}, sentIDs(srv)); diff != "" {
					t.Errorf("Last-Event-ID of the requests (-want +got):\n%s", diff)
				}
				first := s.ends[0]
				if first.Kind != policy.Idle || !errors.Is(first.Err, eventsource.ErrIdle) {
					t.Errorf("the first attempt ended %v with %v", first.Kind, first.Err)
				}
				if open := first.End.Sub(first.Open); open != silence {
					t.Errorf("it ended after %v, want %v", open, silence)
				}
				r := srv.Requests()[0]
				if !r.ClientLeft || r.Ended.Sub(r.Arrived) != silence {
					t.Errorf("the server saw the client leave: %v, after %v", r.ClientLeft, r.Ended.Sub(r.Arrived))
				}
			})
		})
	}
}

// R040: any byte is a sign of life, that of a comment too.
func TestR040AnyByteIsASignOfLife(t *testing.T) {
	for _, sign := range []string{":\n", ": ping\n\n", "x", "\n", "\r", "data: more\n", "\xff"} {
		overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
			steps := []Step{Open}
			for range 20 { // 5 minutes
				steps = append(steps, Wait(15*time.Second), Send(sign))
			}
			srv := serve(append(steps, Send("\n\n"), End))
			s := play(t, srv, eventsource.Client{IdleTimeout: 45 * time.Second})
			if n := len(srv.Requests()); n != 2 { // the other meets the 204
				t.Errorf("%q: %d connections", sign, n-1)
			}
			if open := s.ends[0].End.Sub(s.ends[0].Open); s.ends[0].Kind != policy.Ended || open != 5*time.Minute {
				t.Errorf("%q: the connection ended %v after %v", sign, s.ends[0].Kind, open)
			}
		})
	}
}

// R041: without an idle limit, which is the default, a server may be silent for a
// day; one can also be switched off for a policy that sets it.
func TestR041IdleLimitCanBeOff(t *testing.T) {
	for name, c := range map[string]eventsource.Client{
		"default":  {Policy: strict},
		"negative": {Policy: strict, IdleTimeout: -1},
		"by the policy": {IdleTimeout: time.Second, Policy: func() policy.Reconnector {
			return policy.Func(func(policy.Attempt) policy.Decision { return policy.After(0).Idle(-1) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				day := []Step{Open, Wait(24 * time.Hour), Event{Data: "at last"}}
				script := [][]Step{day}
				if name == "by the policy" { // which has no say in the first attempt
					script = [][]Step{{Open, Stall}, day}
				}
				srv := serve(script...)
				for ev, err := range (&eventsource.Client{
					HTTPClient: srv.Client(), Policy: c.Policy, IdleTimeout: c.IdleTimeout,
				}).Stream(request(t.Context(), t, srv.URL)).Events() {
					if err != nil || ev.Data != "at last" {
						t.Fatalf("%v, %v", ev, err)
					}
					break
				}
				if n := len(srv.Requests()); n != len(script) {
					t.Errorf("%d connections, want %d", n, len(script))
				}
			})
		})
	}
}

// R041: the time that the loop body takes is not the server's silence.
func TestR041SlowLoopIsNotSilence(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{
			Event{Data: "a"}, Event{Data: "b"}, Wait(65 * time.Minute), Event{Data: "c"}, End,
		})
		client := eventsource.Client{HTTPClient: srv.Client(), IdleTimeout: 30 * time.Second}
		var w watcher
		client.Trace = w.trace()
		for _, err := range client.Stream(request(t.Context(), t, srv.URL)).Events() {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(32*time.Minute + 45*time.Second)
		}
		if w.ends[0].Kind != policy.Ended || w.ends[0].Events != 3 {
			t.Errorf("the connection ended %v after %d events", w.ends[0].Kind, w.ends[0].Events)
		}
	})
}

// R042: a total time limit on the caller's HTTP client does not cut a stream, and
// the caller's client is not changed.
func TestR042TotalLimitDoesNotCut(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		var steps []Step
		for range 20 {
			steps = append(steps, Event{Data: "x"}, Wait(500*time.Millisecond))
		}
		srv := serve(append(steps, End))
		limited := *srv.Client()
		limited.Timeout = 2 * time.Second
		s := play(t, srv, eventsource.Client{HTTPClient: &limited})
		if first := s.ends[0]; first.Events != 20 || first.Kind != policy.Ended {
			t.Errorf("the first connection ended %v after %d events", first.Kind, first.Events)
		}
		if limited.Timeout != 2*time.Second || limited.CheckRedirect != nil {
			t.Error("the caller's client was changed")
		}
	})
}

// R042, R043: the limits on connecting: the caller's client's and one's own. The
// shorter holds, for the headers of the response, redirects included.
//
// Requirements: R042, R043
func TestR043ConnectLimit(t *testing.T) {
	const s = time.Second
	answers := func(after time.Duration) []Step {
		return []Step{Wait(after), Event{Data: "x"}, Wait(5 * s), Event{Data: "y"}}
	}
	moved := Status{Code: 307, Header: http.Header{"Location": {"/elsewhere"}}}
	for name, c := range map[string]struct {
		connect, total time.Duration
		script         [][]Step
		want           time.Duration // after which the attempt has failed; 0: it has not
	}{
		"answers at once":            {connect: s, script: [][]Step{answers(0)}},
		"answers in time":            {connect: s, script: [][]Step{answers(s - 1)}},
		"answers too late":           {connect: s, script: [][]Step{answers(s + 1)}, want: s},
		"client's limit, in time":    {total: 2 * s, script: [][]Step{answers(2*s - 1)}},
		"client's limit, too late":   {total: 2 * s, script: [][]Step{answers(2*s + 1)}, want: 2 * s},
		"client's limit is shorter":  {connect: 3 * s, total: 2 * s, script: [][]Step{answers(2*s + 1)}, want: 2 * s},
		"client's limit is longer":   {connect: s, total: 2 * s, script: [][]Step{answers(s + 1)}, want: s},
		"only the client's":          {connect: -1, total: 2 * s, script: [][]Step{answers(2*s + 1)}, want: 2 * s},
		"default, in time":           {script: [][]Step{answers(30*s - 1)}},
		"default, too late":          {script: [][]Step{answers(30*s + 1)}, want: 30 * s},
		"none":                       {connect: -1, script: [][]Step{answers(24 * time.Hour)}},
		"redirects are in it":        {connect: 3 * s, script: [][]Step{{Wait(2 * s), moved}, {Wait(2 * s), Event{Data: "x"}}}, want: 3 * s},
		"redirects in time":          {connect: 3 * s, script: [][]Step{{Wait(s), moved}, answers(s)}},
		"the body of a redirect too": {connect: s, script: [][]Step{{moved, Open, Wait(2 * s), Send("x")}, answers(0)}, want: s},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(c.script...)
				limited := *srv.Client()
				limited.Timeout = c.total
				played := play(t, srv, eventsource.Client{HTTPClient: &limited, ConnectTimeout: c.connect})
				first := played.ends[0]
				if c.want == 0 {
					if first.Kind != policy.Ended || first.Events != 2 {
						t.Fatalf("the attempt ended %v, with %d events and %v", first.Kind, first.Events, first.Err)
					}
					return
				}
				var timeout interface{ Timeout() bool }
				if first.Kind != policy.Failed || !errors.As(first.Err, &timeout) || !timeout.Timeout() {
					t.Errorf("the attempt ended %v with %v", first.Kind, first.Err)
				}
				if took := first.End.Sub(first.Start); took != c.want {
					t.Errorf("it ended after %v, want %v", took, c.want)
				}
			})
		})
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// The whole demo, with the real client and server, in no time: its end, its
// summary, its length.
func TestDemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		start := time.Now()
		code := runDemo(t.Context(), newPipes(), &printer{w: &stdout}, &journal{w: &stderr})
		if code != exitOK {
			t.Errorf("exit status %d, want %d\n%s%s", code, exitOK, stderr.String(), stdout.String())
		}
		if took := time.Since(start); took < 12*time.Second || took > 18*time.Second {
			t.Errorf("took %v, want about 15 s", took)
		}
		_, got, _ := strings.Cut(stdout.String(), "\n\n")
		if diff := cmp.Diff(demoSummary, settled(got)); diff != "" {
			t.Errorf("summary (-want +got):\n%s", diff)
		}
		if lines := strings.Split(got, "\n"); strings.Index(lines[0], "server asked") != strings.Index(lines[5], "24h0m0s") {
			t.Errorf("the columns are not aligned:\n%s", got)
		}
	})
}

// settled puts words in the place of what is random in a summary, the waits that
// the client chose and so the number of readings, and makes its spaces single.
func settled(s string) string {
	s = regexp.MustCompile(` +`).ReplaceAllString(s, " ")
	s = regexp.MustCompile(`(?m)^(1 .* )1(?:\.\d+)?s 1(?:\.\d+)?s$`).ReplaceAllString(s, "${1}1-1.5s 1-1.5s")
	s = regexp.MustCompile(`(?m)^(4 .* )[34](?:\.\d+)?s [34](?:\.\d+)?s$`).ReplaceAllString(s, "${1}3-4.5s 3-4.5s")
	return regexp.MustCompile(`(published|received) [45]\d\n`).ReplaceAllString(s, "$1 40-59\n")
}

const demoSummary = `connection ended server asked client waited next request came after
1 broke inside an event - 1-1.5s 1-1.5s
2 closed, retry: 1500 1.5s 1.5s 1.5s
3 503, Retry-After: 2 2s 2s 2s
4 closed, primed but empty 1.5s 3-4.5s 3-4.5s
5 closed, retry: 86400000 24h0m0s - -

connections 5
too early 0
published 40-59
received 40-59
lost 0
duplicated 0
gave up after 0s: 24h0m0s asked, 20s left of the budget

All as it should be: nothing lost, nothing twice, nobody early, and no day spent waiting.
`

// What the demo says on the way: one line for each thing that happens.
func TestDemoNarrates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		runDemo(t.Context(), newPipes(), &printer{w: &stdout}, &journal{w: &stderr})
		var labels []string
		for l := range strings.Lines(untimed(stderr.String())) {
			label, _, _ := strings.Cut(strings.TrimPrefix(l, "* "), " ")
			labels = append(labels, label)
		}
		want := strings.Fields(`following
			server connected server dropped waiting
			server connected server retry closed waiting
			server refused waiting
			server connected closed waiting
			server connected server retry closed gave`)
		if diff := cmp.Diff(want, labels); diff != "" {
			t.Errorf("labels on stderr (-want +got):\n%s", diff)
		}
	})
}

// With -json standard output holds objects and nothing else.
func TestDemoJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		code := runDemo(t.Context(), newPipes(), &printer{w: &stdout, json: true}, &journal{w: &stderr})
		if code != exitOK {
			t.Errorf("exit status %d, want %d", code, exitOK)
		}
		lines := 0
		for l := range strings.Lines(stdout.String()) {
			lines++
			var object map[string]any
			if err := json.Unmarshal([]byte(l), &object); err != nil || len(object) != 4 {
				t.Errorf("line %d is %q: %v", lines, l, err)
			}
		}
		if lines < burst {
			t.Errorf("%d objects", lines)
		}
		if !strings.Contains(stderr.String(), "duplicated    0\n") {
			t.Errorf("no summary on stderr:\n%s", stderr.String())
		}
	})
}

func TestDemoInterrupt(t *testing.T) {
	for _, at := range []time.Duration{0, time.Second, 2500 * time.Millisecond, 5900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			time.AfterFunc(at, interrupt)
			var stdout, stderr bytes.Buffer
			start := time.Now()
			code := runDemo(ctx, newPipes(), &printer{w: &stdout}, &journal{w: &stderr})
			if code != exitOK {
				t.Errorf("exit status %d, want %d", code, exitOK)
			}
			if took := time.Since(start); took != at {
				t.Errorf("ended after %v, want %v", took, at)
			}
			if strings.Contains(stdout.String(), "connections") {
				t.Error("an interrupted demo printed a summary")
			}
			if !strings.HasSuffix(stderr.String(), "* stopped    interrupted\n") {
				t.Errorf("stderr ends otherwise:\n%s", stderr.String())
			}
		})
	}
}

// The demo begins with a burst: that many readings at one time.
func TestDemoBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(interval/2, interrupt)
		var stdout, stderr bytes.Buffer
		runDemo(ctx, newPipes(), &printer{w: &stdout}, &journal{w: &stderr})
		if n := strings.Count(stdout.String(), "\n"); n != 12 {
			t.Errorf("%d readings at the beginning, want 12:\n%s", n, stdout.String())
		}
	})
}

// busyPipes refuses one connection, so that there is an attempt more than the
// demo's server sees.
type busyPipes struct {
	*pipes
	dials int
}

func (b *busyPipes) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if b.dials++; b.dials == 2 {
		return nil, errRefused
	}
	return b.pipes.dial(ctx, network, address)
}

// The exit status hangs on the summary.
func TestDemoGoesWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		code := runDemo(t.Context(), &busyPipes{pipes: newPipes()}, &printer{w: &stdout}, &journal{w: &stderr})
		if code != exitFailed {
			t.Errorf("exit status %d, want %d", code, exitFailed)
		}
		if want := "WRONG: 5 waits between 5 connections\n"; !strings.Contains(stdout.String(), want) {
			t.Errorf("the summary does not say %q:\n%s", want, stdout.String())
		}
	})
}

type noListener struct{ loopback }

func (noListener) listen() (net.Listener, error) { return nil, errors.New("no loopback here") }

func TestDemoWithoutLoopback(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := runDemo(t.Context(), noListener{}, &printer{w: &stdout}, &journal{w: &stderr}); code != exitFailed {
		t.Errorf("exit status %d, want %d", code, exitFailed)
	}
	if want := "* gave up    no loopback here\n"; untimed(stderr.String()) != want {
		t.Errorf("stderr is %q, want %q", untimed(stderr.String()), want)
	}
}

// A demo that cannot print its readings must not praise itself.
func TestDemoBrokenOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		if code := runDemo(t.Context(), newPipes(), &printer{w: brokenWriter{}}, &journal{w: &stderr}); code != exitFailed {
			t.Errorf("exit status %d, want %d", code, exitFailed)
		}
	})
}

// rightSummary is a demo that went as it should.
func rightSummary() summary {
	at := func(ms int) time.Time { return time.Unix(1_000, 0).Add(time.Duration(ms) * time.Millisecond) }
	event := func(n int) eventsource.Event {
		return eventsource.Event{Type: "message", Data: reading(n), LastEventID: itoa(n)}
	}
	primed := eventsource.Event{Type: "message", LastEventID: "3"}
	return summary{
		received: []eventsource.Event{event(1), event(2), event(3), primed, event(4)},
		waits: []eventsource.WaitInfo{
			{Number: 2, Decided: 1100 * time.Millisecond, Waited: 1100 * time.Millisecond},
			{Number: 3, Asked: shortWait, Decided: shortWait, Waited: shortWait},
			{Number: 4, Asked: busyWait, Decided: shortWait, Waited: busyWait},
			{Number: 5, Asked: shortWait, Decided: 4 * time.Second, Waited: 4 * time.Second},
		},
		err:   &eventsource.StopError{Reason: &policy.BudgetError{Asked: longWait, Left: 20 * time.Second}},
		ended: at(20_001),
		visits: []visit{
			{arrived: at(0), left: at(1_000)},
			{arrived: at(2_101), left: at(3_000), lastEventID: "2", due: "2"},
			{arrived: at(4_500), left: at(4_500), lastEventID: "3", due: "3"},
			{arrived: at(6_500), left: at(6_500), lastEventID: "3", due: "3"},
			{arrived: at(10_501), left: at(20_000), lastEventID: "3", due: "3"},
		},
		published: 4,
	}
}

func itoa(n int) string { return string(rune('0' + n)) }

// The verdict is worked out: each thing that can be wrong makes it so.
func TestSummaryFaults(t *testing.T) {
	if faults := rightSummary().faults(); len(faults) > 0 {
		t.Fatalf("faults where there are none: %q", faults)
	}
	tests := []struct {
		name  string
		spoil func(*summary)
		want  string
	}{
		{"lost", func(s *summary) { s.received = s.received[:4] }, "3 readings received of 4 published"},
		{"duplicated", func(s *summary) { s.received = append(s.received, s.received[4]) }, "1 readings received twice"},
		{"disordered", func(s *summary) { s.received[0], s.received[1] = s.received[1], s.received[0] }, "readings changed or out of order"},
		{"changed", func(s *summary) { s.received[2].Data = "reading" }, "readings changed or out of order"},
		{"no connection", func(s *summary) { s.visits, s.waits = nil, nil }, "0 connections instead of 5"},
		{"one connection more", func(s *summary) { s.visits = append(s.visits, s.visits[4]) }, "6 connections instead of 5"},
		{"one wait less", func(s *summary) { s.waits = s.waits[1:] }, "3 waits between 5 connections"},
		{"ID forgotten", func(s *summary) { s.visits[4].lastEventID = "" }, `connection 5 resumed after "" instead of "3"`},
		{"misunderstood", func(s *summary) { s.waits[2].Asked = shortWait }, "after connection 3 the server asked for 2s and the client understood 1.5s"},
		{"waited less", func(s *summary) { s.waits[1].Waited = time.Second }, "after connection 2 the server asked for 1.5s, the client waited 1s, the request came after 1.5s"},
		{"came early", func(s *summary) { s.visits[1].left = s.visits[1].left.Add(time.Microsecond) }, "after connection 2 the server asked for 1.5s, the client waited 1.5s, the request came after 1.499999s"},
		{"came before its own wait was over", func(s *summary) { s.visits[0].left = s.visits[0].left.Add(2 * time.Millisecond) }, "after connection 1 the server asked for 0s, the client waited 1.1s, the request came after 1.099s"},
		{"longer than asked", func(s *summary) {
			s.waits[1].Waited += time.Millisecond
			s.visits[2].arrived = s.visits[2].arrived.Add(time.Millisecond)
		}, "after connection 2 the server asked for 1.5s and the client chose to wait 1.501s"},
		{"slept", func(s *summary) { s.ended = s.ended.Add(time.Second) }, "the client gave up only after 1.001s"},
		{"another end", func(s *summary) { s.err = errRefused }, "the client should have given up for its budget; it ended with: eventsource: refused"},
		{"no error at the end", func(s *summary) { s.err = nil }, "the client should have given up for its budget; it ended with: <nil>"},
		{"gave up for another wait", func(s *summary) { s.err = &policy.BudgetError{Asked: time.Hour} }, "the client gave up for a wait of 1h0m0s instead of 24h0m0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := rightSummary()
			tt.spoil(&s)
			faults := s.faults()
			if len(faults) == 0 || faults[0] != tt.want {
				t.Errorf("faults %q, want first %q", faults, tt.want)
			}
			var b strings.Builder
			if err := s.write(&b); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), "WRONG: "+tt.want+"\n") || strings.Contains(b.String(), "All as it should be") {
				t.Errorf("the summary does not say so:\n%s", b.String())
			}
		})
	}
}

// The number of early requests is counted by the server's clock.
func TestSummaryCountsEarly(t *testing.T) {
	s := rightSummary()
	if n := s.early(); n != 0 {
		t.Errorf("%d early requests in a right summary", n)
	}
	for _, i := range []int{2, 3, 4} {
		s.visits[i].arrived = s.visits[i-1].left.Add(time.Second)
	}
	if n := s.early(); n != 3 {
		t.Errorf("%d early requests, want 3", n)
	}
}

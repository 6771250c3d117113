package eventsource_test

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// arrows are the arrows of the state diagram in docs/guide.md, by where they lead from
// and to, with the kinds of end on them, if any.
type arrows map[string]map[string]bool

func (a arrows) add(from, to, kind string) {
	name := from + " --> " + to
	if a[name] == nil {
		a[name] = map[string]bool{}
	}
	if kind != "" {
		a[name][kind] = true
	}
}

// drawn returns the arrows of the document's diagram.
func drawn(t *testing.T) arrows {
	t.Helper()
	page, err := os.ReadFile("../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, diagram, _ := strings.Cut(string(page), "```mermaid\nstateDiagram-v2\n")
	diagram, _, ok := strings.Cut(diagram, "```")
	if !ok {
		t.Fatal("docs/guide.md has no state diagram")
	}
	code, err := os.ReadFile("stream.go")
	if err != nil {
		t.Fatal(err)
	}
	a := arrows{}
	for line := range strings.Lines(diagram) {
		m := regexp.MustCompile(`^ +(\S+) --> (\S+?)(?:: (.*))?\n$`).FindStringSubmatch(line)
		switch {
		case m == nil:
			t.Fatalf("not an arrow: %q", line)
		case m[1] == "[*]" || m[2] == "[*]":
			continue
		}
		if arrow := strings.TrimSpace(line); !strings.Contains(string(code), "\n//\t"+arrow+"\n") {
			t.Errorf("the diagram of stream.go lacks %q", arrow)
		}
		a.add(m[1], m[2], "")
		for kind := policy.Ended; kind <= policy.Restarted; kind++ {
			if m[2] == "Deciding" && strings.Contains(m[3], kind.String()) {
				a.add(m[1], m[2], kind.String())
			}
		}
	}
	return a
}

// A walk is a stream that goes from state to state.
type walk struct {
	name   string
	script [][]Step
	client eventsource.Client
	cancel time.Duration // when the context ends; 0: not while the stream lives
	adopt  bool
	begin  func(*eventsource.Stream) // called before the stream is ranged over
	loop   func(*eventsource.Stream) (more bool)
}

// The diagram of docs/guide.md has the arrows that streams take, and no others.
func TestGuideDiagram(t *testing.T) {
	leave := func(*eventsource.Stream) bool { return false }
	reconnect := func(s *eventsource.Stream) bool { s.Reconnect(); return true }
	reconnectLater := func(s *eventsource.Stream) { time.AfterFunc(time.Second, s.Reconnect) }
	within := policy.Func(func(a policy.Attempt) policy.Decision {
		if a.Kind == policy.Rejected {
			return policy.Stop(nil)
		}
		return policy.After(0).Within(time.Second)
	})
	event := Event{Data: "a"}
	stall := []Step{Stall} // before any header
	silence := []Step{Open, Stall}
	refuse := []Step{Refuse}

	taken := arrows{}
	for _, w := range []walk{
		{name: "nobody there, then an end", script: [][]Step{refuse, {event, End}}},
		{name: "a drop", script: [][]Step{{event, Cut}}},
		{name: "silence", script: [][]Step{silence}, client: eventsource.Client{IdleTimeout: time.Minute}},
		{name: "too large", script: [][]Step{{event}}, client: eventsource.Client{MaxEventSize: 5}},
		{
			name: "no message in time", script: [][]Step{{event, End}, silence, stall},
			client: eventsource.Client{Policy: policy.Constructor(func() policy.Reconnector { return within })},
		},
		{name: "restarted while open", script: [][]Step{{event, Stall}}, loop: reconnect},
		{name: "restarted while connecting", script: [][]Step{stall}, begin: reconnectLater},
		{name: "left", script: [][]Step{{event, Stall}}, loop: leave},
		{name: "cancelled before", cancel: -1},
		{name: "cancelled while connecting", script: [][]Step{stall}, cancel: time.Second},
		{name: "cancelled while open", script: [][]Step{silence}, cancel: time.Second},
		{name: "cancelled while waiting", script: [][]Step{refuse, refuse}, cancel: time.Second},
		{name: "adopted", script: [][]Step{{event, End}}, adopt: true},
		{name: "adopted and rejected", adopt: true},
	} {
		t.Run(w.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { w.take(t, taken) })
		})
	}
	if diff := cmp.Diff(drawn(t), taken); diff != "" {
		t.Errorf("arrows (-drawn in docs/guide.md +taken):\n%s", diff)
	}
}

// take runs the stream and adds the arrows that it takes.
func (w walk) take(t *testing.T, taken arrows) {
	server := &Server{Script: w.script}
	server.Start()
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch {
	case w.cancel < 0:
		cancel()
	case w.cancel > 0:
		time.AfterFunc(w.cancel, cancel)
	}

	state := "Ready"
	enter := func(next, kind string) {
		taken.add(state, next, kind)
		state = next
	}
	client := w.client
	client.HTTPClient = server.Client()
	client.Prepare = func(*http.Request) error { enter("Connecting", ""); return nil }
	client.Trace = traceOf(&eventsource.Trace{
		Open: func(eventsource.OpenInfo) { enter("Open", "") },
		End:  func(a policy.Attempt) { enter("Deciding", a.Kind.String()) },
		Wait: func(eventsource.WaitInfo) { enter("Waiting", "") },
		Done: func(error) { enter("Over", "") },
	})
	req := request(ctx, t, server.URL)
	stream := client.Stream(req)
	if w.adopt {
		resp, err := server.Client().Do(request(t.Context(), t, server.URL))
		if err != nil {
			t.Fatal(err)
		}
		stream = client.Adopt(resp, req)
	}
	if w.begin != nil {
		w.begin(stream)
	}
	for range stream.Events() {
		if w.loop != nil && !w.loop(stream) {
			break
		}
	}
	if state != "Over" {
		t.Errorf("at the end the stream is %s", state)
	}
}

package scenario_test

import (
	"go/parser"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// What a scenario is made of is played as it says.
func TestPlay(t *testing.T) {
	r := scenario.Play(t, scenario.Scenario{
		Server: []scenario.Answer{
			{Failure: scenario.Refused, Delay: time.Second},
			{Status: 503, RetryAfter: "7"},
			{Failure: scenario.Unprepared},
			{Body: []scenario.Piece{{Text: "id: 1\ndata: a\n\n"}, {Wait: time.Second, Text: ": b\n", Times: 2}, {Text: "retry: 20\n\n"}}, End: scenario.Cut},
			{Failure: scenario.NeverAnswers},
			{Body: []scenario.Piece{{Text: "data: c\n\n"}}, End: scenario.Hold},
		},
		Policy: scenario.Policy{Script: []scenario.Decision{{After: time.Second}, {}, {}, {}, {}, {Verb: scenario.GiveUp}}},
		Caller: scenario.Caller{
			ConnectTimeout: time.Minute,
			Slow:           time.Second,
			Actions:        []scenario.Action{{On: scenario.Open, N: 2, After: time.Minute, Do: scenario.Restart}},
		},
	})[0]
	if r.Deadlock != "" || r.Hung {
		t.Fatalf("%+v", r)
	}
	var got []string
	for line := range strings.Lines(r.Text()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		`0s #1 Prepare`, `0s #1 Connect 1`, `0s #1 RoundTrip`,
		`1s #1 AttemptEnd 1: failed, 0 messages, asked 0s, ID "": eventsource: GET http://server0.test/feed: dial http://server0.test/feed?… scenario: connection refused`,
		`1s #1 Decide: after 1s`, `1s #1 Wait 1s: decided 1s, asked 0s`,
		`2s #2 Prepare`, `2s #2 Connect 2`, `2s #2 RoundTrip`,
		`2s #2 AttemptEnd 2: rejected, 0 messages, asked 7s, ID "": eventsource: the server answered 503 Service Unavailable instead of an event stream`,
		`2s #2 Decide: after 0s`, `2s #2 Wait 7s: decided 0s, asked 7s`,
		`9s #3 Prepare`,
		`9s #3 AttemptEnd 3: failed, 0 messages, asked 0s, ID "": eventsource: preparing the request: asking http://server0.test/feed?… scenario: no token to be had`,
		`9s #3 Decide: after 0s`, `9s #3 Wait 0s: decided 0s, asked 0s`,
		`9s #4 Prepare`, `9s #4 Connect 4`, `9s #4 RoundTrip`, `9s #4 Open 4`, `9s #4 event {Type:message Data:a LastEventID:1}`,
		`10s #4 Comment "b"`, `10s #4 Comment "b"`, `10s #4 Retry 20ms`,
		`10s #4 AttemptEnd 4: dropped, 1 messages, asked 20ms, ID "1": eventsource: the stream broke: scenario: connection reset by peer`,
		`10s #4 Decide: after 0s`, `10s #4 Wait 20ms: decided 0s, asked 20ms`,
		`10.02s #5 Prepare`, `10.02s #5 Connect 5`, `10.02s #5 RoundTrip`,
		`1m10.02s #5 AttemptEnd 5: failed, 0 messages, asked 20ms, ID "1": eventsource: no response within 1m0s`,
		`1m10.02s #5 Decide: after 0s`, `1m10.02s #5 Wait 20ms: decided 0s, asked 20ms`,
		`1m10.04s #6 Prepare`, `1m10.04s #6 Connect 6`, `1m10.04s #6 RoundTrip`, `1m10.04s #6 Open 6`,
		`1m10.04s #6 event {Type:message Data:c LastEventID:1}`,
		`2m10.04s #6 Restart`,
		`2m10.04s #6 AttemptEnd 6: restarted, 1 messages, asked 20ms, ID "1": <nil>`,
		`2m10.04s #6 Decide: stop: scenario: the policy has given up`,
		`2m10.04s #6 Done: eventsource: scenario: the policy has given up`,
		`2m10.04s #6 error: eventsource: scenario: the policy has given up`,
		`2m10.04s #6 returned`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r.Late != 0 || r.InFlight != 1 || r.Resumed != "1" || len(r.Again) != 1 {
		t.Errorf("%+v", r)
	}
	asked := []time.Duration{0, 7 * time.Second, 0, 20 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond}
	for i, truth := range r.Truths() {
		if truth.Asked != asked[i] {
			t.Errorf("the truth about attempt %d: %+v", i+1, truth)
		}
	}
}

// A steady scenario ends the same way every time, however its bodies are cut.
func TestGenerateSteady(t *testing.T) {
	for i := range 200 {
		rng := func() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(i))) }
		s := scenario.Generate(rng(), scenario.Profile{Steady: true})
		if diff := cmp.Diff(s, scenario.Generate(rng(), scenario.Profile{Steady: true}), cmp.Comparer(sameFunc)); diff != "" {
			t.Fatalf("the same numbers make another scenario:\n%s", diff)
		}
		want := scenario.Play(t, s)[0].Text()
		if got := scenario.Play(t, s)[0].Text(); got != want {
			t.Fatalf("scenario %d is not steady:\n%#v\n%s", i, s, cmp.Diff(want, got))
		}
	}
}

// Functions are not part of what is generated.
func sameFunc(a, b func(int) bool) bool { return (a == nil) == (b == nil) }

func TestShrink(t *testing.T) {
	for i := range 50 {
		s := scenario.Generate(rand.New(rand.NewPCG(2, uint64(i))), scenario.Profile{Long: true})
		s.Server = append(s.Server, scenario.Answer{
			Status: 503, RetryAfter: "7", Delay: 90 * time.Second, Body: []scenario.Piece{{Wait: time.Hour, Text: "abc"}},
		})
		calls := 0
		fails := func(s scenario.Scenario) bool {
			calls++
			for _, a := range s.Server {
				if a.Status == 503 && a.Delay >= time.Second {
					return true
				}
			}
			return false
		}
		got := scenario.Shrink(s, 1000, fails)
		if len(got.Server) != 1 || got.Server[0].Delay%time.Second != 0 {
			t.Errorf("it shrinks to\n%#v", got)
		}
		got.Server[0].Delay, got.Server[0].Body = 0, nil
		want := scenario.Scenario{Server: []scenario.Answer{{Status: 503}}}
		if !strings.EqualFold(got.GoString(), want.GoString()) || calls > 1000 {
			t.Errorf("after %d calls it shrinks to\n%#v", calls, got)
		}
	}
	calls := 0
	scenario.Shrink(scenario.Scenario{Chunk: 1, Server: make([]scenario.Answer, 64)}, 5, func(scenario.Scenario) bool { calls++; return false })
	if calls != 5 {
		t.Errorf("it tries %d times, not 5", calls)
	}
}

func TestGoString(t *testing.T) {
	s := scenario.Scenario{
		Server: []scenario.Answer{
			{Failure: scenario.Refused, Delay: 90 * time.Minute},
			{Body: []scenario.Piece{{Wait: time.Second, Text: "data: " + strings.Repeat("x", 600)}, {Text: "\u00e9\n", Times: 2}}, End: scenario.Hold},
		},
		Policy: scenario.Policy{
			Preset: "Rules",
			Rules:  policy.Rules{Delay: 1, RequireLastEventID: true, Rand: func() float64 { return 0 }},
			Script: []scenario.Decision{{After: -1, Within: scenario.Ptr(1500 * time.Millisecond)}},
		},
		Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: scenario.Panic}}},
	}
	want := `scenario.Scenario{
	Server: []scenario.Answer{
		{Failure: scenario.Refused, Delay: 90 * time.Minute},
		{
			Body: []scenario.Piece{
				{Wait: time.Second, Text: "data: " + strings.Repeat("x", 600)},
				{Text: "é\n", Times: 2},
			},
			End: scenario.Hold,
		},
	},
	Policy: scenario.Policy{
		Preset: "Rules",
		Rules: policy.Rules{Delay: 1, RequireLastEventID: true},
		Script: []scenario.Decision{
			{After: -1, Within: scenario.Ptr(1500 * time.Millisecond)},
		},
	},
	Caller: scenario.Caller{
		Actions: []scenario.Action{
			{On: scenario.Body, Do: scenario.Panic},
		},
	},
}`
	got := s.GoString()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for i := range 200 {
		s := scenario.Generate(rand.New(rand.NewPCG(3, uint64(i))), scenario.Profile{})
		if _, err := parser.ParseExpr(s.GoString()); err != nil {
			t.Errorf("%v in\n%#v", err, s)
		}
	}
}

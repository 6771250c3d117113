package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// One stream goes through every kind of trouble: what it yields, what it sends, and how
// long it waits.
func TestStreamRidesOutWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := answers(
			body(errCut, "id: 1\ndata: a\n\ndata: lost"),
			body(nil, "retry: 1500\nid: 2\ndata: b\n\n"),
			status(503, "Retry-After", "7"),
			body(nil, "id: 3\ndata\n\n"), // primed and closed
			refuse(errors.New("dial refused")),
			body(nil, "data: c\n\n"),
			status(204),
		)
		var log []string
		trace := &eventsource.Trace{
			End:  func(a policy.Attempt) { log = append(log, fmt.Sprintf("%d %v %v", a.Number, a.Kind, a.LastEventID)) },
			Wait: func(w eventsource.WaitInfo) { log = append(log, fmt.Sprint(w.Waited)) },
			Done: func(err error) { log = append(log, fmt.Sprint("done ", err)) },
		}
		rules := policy.Resilient()
		rules.Jitter = -1
		s := rt.client(eventsource.Client{Policy: rules, Trace: traceOf(trace)}).Stream(get(t.Context()))
		data, err := collect(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b", "", "c"}, data); diff != "" {
			t.Error(diff)
		}
		want := []string{
			"1 dropped 1", "3s",
			"2 ended 2", "1.5s",
			"3 rejected 2", "7s",
			"4 ended 3", "3s",
			"5 failed 3", "6s",
			"6 ended 3", "1.5s",
			"7 rejected 3", "done <nil>",
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Error(diff)
		}
		var ids []string
		for _, r := range rt.requests {
			ids = append(ids, strings.Join(r.Header.Values("Last-Event-ID"), "|"))
		}
		if diff := cmp.Diff([]string{"", "1", "2", "2", "3", "3", "3"}, ids); diff != "" {
			t.Error(diff)
		}
	})
}

func TestG6OneEnd(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.OneEnd}}
	at := func(on scenario.Point, do scenario.Deed) scenario.Caller {
		return scenario.Caller{Actions: []scenario.Action{{On: on, Do: do}}}
	}
	busy := []scenario.Answer{answerStream(": hello\nretry: 1000\n\ndata: m\n\n"), answerGone}
	p.holdsIn(t, []scenarioCase{
		{
			name:     "in order",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerGone}, Policy: scenario.Policy{Preset: "WHATWG"}},
			want:     []string{"0s request", "0s rejected", "0s done: in order"},
		},
		{
			name:     "a refusal",
			scenario: scenario.Scenario{Server: []scenario.Answer{{Status: 404}}, Policy: scenario.Policy{Preset: "WHATWG"}},
			want:     []string{"0s request", "0s rejected", "0s done: response 404"},
		},
		{
			name:     "the policy gives up",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerRefused}, Policy: scenario.Policy{Script: []scenario.Decision{{Verb: scenario.GiveUp}}}},
			want:     []string{"0s request", "0s failed", "0s done: scenario: the policy has given up"},
		},
		{
			name:     "the policy makes no decision",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerMessage}, Policy: scenario.Policy{Script: []scenario.Decision{{Verb: scenario.Undecided}}}},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: the policy made no decision"},
		},
		{
			name:     "no reconnection is wanted: a clean end",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerMessage}, Policy: scenario.Policy{Preset: "Never"}},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: in order"},
		},
		{
			name:     "no reconnection is wanted: one inside an event",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("data: half")}, Policy: scenario.Policy{Preset: "Never"}},
			want:     []string{"0s request", "0s ended", "0s done: the stream ended inside an event: unexpected EOF"},
		},
		{
			name: "the answer to a POST",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerMessage, answerMessage},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Post: true, Payload: scenario.Repeated},
			},
			want: []string{"0s request", `0s event "m"`, "0s ended", "0s done: in order"},
		},
		{
			name: "a POST that breaks",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{cutAnswer(answerMessage), answerMessage},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Post: true, Payload: scenario.Repeated},
			},
			want: []string{"0s request", `0s event "m"`, "0s dropped", "0s done: the request cannot be repeated"},
		},
		{
			name: "an adopted response that nothing follows",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{cutAnswer(answerMessage), answerMessage},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Adopt: scenario.Alone},
			},
			want: []string{`0s event "m"`, "0s dropped", "0s done: the request cannot be repeated"},
		},
		{
			name: "cancelled before it begins",
			scenario: scenario.Scenario{
				Server: busy,
				Caller: at(scenario.Start, scenario.Cancel),
			},
			want: []string{"0s done: scenario: cancelled by the caller"},
		},
		{
			name: "the deadline passes",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerSilent},
				Caller: scenario.Caller{Deadline: time.Second},
			},
			want: []string{"0s request", "1s done: context deadline exceeded"},
		},
		{
			name:     "cancelled while connecting",
			scenario: scenario.Scenario{Server: busy, Caller: at(scenario.RoundTrip, scenario.Cancel)},
			want:     []string{"0s request", "0s done: scenario: cancelled by the caller"},
		},
		{
			name:     "cancelled in the loop",
			scenario: scenario.Scenario{Server: busy, Caller: at(scenario.Body, scenario.Cancel)},
			want:     []string{"0s request", `0s event "m"`, "0s done: scenario: cancelled by the caller"},
		},
		{
			name:     "cancelled by the hook that sees the end of an attempt",
			scenario: scenario.Scenario{Server: busy, Policy: policyScript(0), Caller: at(scenario.AttemptEnd, scenario.Cancel)},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: scenario: cancelled by the caller"},
		},
		{
			name:     "cancelled while the policy decides",
			scenario: scenario.Scenario{Server: busy, Policy: policyScript(0), Caller: at(scenario.Decide, scenario.Cancel)},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: scenario: cancelled by the caller"},
		},
		{
			name:     "cancelled in the wait",
			scenario: scenario.Scenario{Server: busy, Policy: policyScript(0), Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Wait, After: time.Millisecond, Do: scenario.Cancel}}}},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "1ms done: scenario: cancelled by the caller"},
		},
		{
			name:     "left",
			scenario: scenario.Scenario{Server: busy, Caller: at(scenario.Body, scenario.Leave)},
			want:     []string{"0s request", `0s event "m"`, "0s done: in order", "left"},
		},
		{
			name:     "Reconnect and then left",
			scenario: scenario.Scenario{Server: busy, Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: scenario.Restart}, {On: scenario.Body, Do: scenario.Leave}}}},
			want:     []string{"0s request", `0s event "m"`, "0s done: in order", "left"},
		},
	})
	// A panic or an exit at every point.
	for point := scenario.Prepare; point <= scenario.Done; point++ {
		for _, deed := range []scenario.Deed{scenario.Panic, scenario.Exit} {
			t.Run(deed.String()+" at "+point.String(), func(t *testing.T) {
				records, broken := p.run(t, scenario.Scenario{Server: busy, Policy: policyScript(time.Second), Caller: at(point, deed)})
				for _, text := range broken {
					t.Error(text)
				}
				if r := records[0]; (r.Panicked == any(scenario.ErrPanic)) != (deed == scenario.Panic) || r.Exited != (deed == scenario.Exit) {
					t.Errorf("it did not come through:\n%s", r.Text())
				}
			})
		}
	}
	p.holds(t)
}

// An adopted response that no request led to has no context, and is the only
// attempt.
func TestG6AdoptedWithoutRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want error
	}{
		{"data: a\n\n", nil},
		{"data: a\n\ndata: b", eventsource.ErrNotReplayable},
	} {
		resp := response(200, "text/event-stream", io.NopCloser(strings.NewReader(tt.text)))
		data, err := collect((&eventsource.Client{}).Adopt(resp, nil))
		if !errors.Is(err, tt.want) || len(data) != 1 {
			t.Errorf("%q gives %q, then %v", tt.text, data, err)
		}
	}
}

func TestG8OneAtATime(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.OneAtATime}}
	everySecond := func(n int) (actions []scenario.Action) {
		for i := range n {
			actions = append(actions, scenario.Action{After: time.Duration(i+1) * time.Second, Do: scenario.Restart})
		}
		return actions
	}
	p.holdsIn(t, []scenarioCase{
		{
			name: "Reconnect while open",
			scenario: scenario.Scenario{
				Server: repeatAnswer(3, answerSilent), Policy: policyScript(0, 0, 0),
				Caller: scenario.Caller{Actions: append(everySecond(2), scenario.Action{After: 3 * time.Second, Do: scenario.Cancel})},
			},
			want: []string{"0s request", "1s restarted", "1s request", "2s restarted", "2s request", "3s done: scenario: cancelled by the caller"},
		},
		{
			name: "Reconnect while open, by two goroutines at once",
			scenario: scenario.Scenario{
				Server: repeatAnswer(3, answerSilent), Policy: policyScript(time.Second, time.Second, time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: time.Second, Do: scenario.Restart}, {After: time.Second, Do: scenario.Restart}, {After: 10 * time.Second, Do: scenario.Cancel},
				}},
			},
		},
		{
			name: "Reconnect while connecting",
			scenario: scenario.Scenario{
				Server: repeatAnswer(3, scenario.Answer{Failure: scenario.NeverAnswers}), Policy: policyScript(0, 0, 0),
				Caller: scenario.Caller{Actions: append(everySecond(2), scenario.Action{After: 3 * time.Second, Do: scenario.Cancel})},
			},
			want: []string{"0s request", "1s restarted", "1s request", "2s restarted", "2s request", "3s done: scenario: cancelled by the caller"},
		},
		{
			name: "Reconnect with a body that heeds no context",
			scenario: scenario.Scenario{
				Server: repeatAnswer(2, scenario.Answer{End: scenario.Hold, Deaf: true}), Policy: policyScript(0, 0),
				Caller: scenario.Caller{Actions: append(everySecond(1), scenario.Action{After: 3 * time.Second, Do: scenario.Cancel})},
			},
			want: []string{"0s request", "1s restarted", "1s request", "3s done: scenario: cancelled by the caller"},
		},
		{
			name: "Reconnect with an adopted response",
			scenario: scenario.Scenario{
				Server: repeatAnswer(2, answerSilent), Policy: policyScript(0, 0),
				Caller: scenario.Caller{Adopt: scenario.Resume, Actions: append(everySecond(1), scenario.Action{After: 3 * time.Second, Do: scenario.Cancel})},
			},
			want: []string{"1s restarted", "1s request", "3s done: scenario: cancelled by the caller"},
		},
		{
			name: "a refusal whose body does not end",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerUnavailable("")), answerGone}, Policy: policyScript(0),
			},
			want: []string{"0s request", "1s rejected", "1s request", "1s rejected", "1s done: scenario: the policy's script has ended"},
		},
	})
	p.holds(t)
}

// aloneAndTogether plays each scenario alone, and then both at once with the same
// Client but for the hooks.
func aloneAndTogether(run runScenarios, scenarios []scenario.Scenario) (records []*scenario.Record) {
	for i := range scenarios {
		scenarios[i].Policy = scenarios[0].Policy
		records = append(records, run(scenarios[i])...)
	}
	return append(records, run(scenarios...)...)
}

// isolation checks that what happens to a stream does not depend on the others.
func isolation(records []*scenario.Record, c *scenario.Complaints) {
	n := len(records) / 2
	for i := range n {
		alone := records[i].Text()
		// Each server has a name of its own.
		together := strings.ReplaceAll(records[n+i].Text(), "server1.test", "server0.test")
		if alone != together {
			c.Add("stream %d (-alone +together):\n%s", i+1, cmp.Diff(strings.Split(alone, "\n"), strings.Split(together, "\n")))
		}
	}
}

func TestG11Isolation(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Steady: true},
		streams: 2,
		play:    aloneAndTogether,
		compare: isolation,
	}
	t.Run("runs, schedules, times and IDs are each stream's own", func(t *testing.T) {
		growing := policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 4})
		records, broken := p.run(
			t,
			scenario.Scenario{
				Server: []scenario.Answer{answerStream("id: 1\nretry: 2000\n\n"), answerEmpty, answerEmpty, answerEmpty, answerGone},
				Policy: growing,
			},
			scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerMessage, answerEmpty, answerEmpty, answerGone},
			},
		)
		for _, text := range broken {
			t.Error(text)
		}
		for i, want := range [][]string{
			{
				"0s request", "0s ended", `2s request ["1"]`, "2s ended", `6s request ["1"]`, "6s ended", `14s request ["1"]`, "14s ended",
				`30s request ["1"]`, "30s rejected", "30s done: in order",
			},
			{
				"0s request", "0s ended", "1s request", `1s event "m"`, "1s ended", "2s request", "2s ended", "3s request", "3s ended",
				"5s request", "5s rejected", "5s done: in order",
			},
		} {
			if diff := cmp.Diff(want, historyOf(records[2+i])); diff != "" {
				t.Errorf("stream %d (-want +got):\n%s", i+1, diff)
			}
		}
	})
	t.Run("cancelling, leaving and panicking end one stream", func(t *testing.T) {
		for _, deed := range []scenario.Deed{scenario.Cancel, scenario.Leave, scenario.Panic, scenario.Exit} {
			_, broken := p.run(
				t,
				scenario.Scenario{
					Server: []scenario.Answer{openAnswer(answerMessage)},
					Policy: policyScript(0),
					Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Body, Do: deed}}},
				},
				scenario.Scenario{
					Server: []scenario.Answer{openAnswer(answerQuiet("data: m\n\n", time.Hour)), answerMessage},
					Caller: scenario.Caller{IdleTimeout: 2 * time.Hour},
				},
			)
			for _, text := range broken {
				t.Errorf("%v: %s", deed, text)
			}
		}
	})
	p.holds(t)
}

func TestG4NoFreeResets(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Rules: true, Count: true, Long: true},
		checks:  []scenario.Check{scenario.NoFreeResets},
	}
	steep := policyRules(policy.Rules{Delay: time.Second, Factor: 2, MaxFruitless: 4})
	five := policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 5})
	p.holdsIn(t, []scenarioCase{
		{
			name:     "connecting is not progress",
			scenario: scenario.Scenario{Server: repeatAnswer(9, answerQuiet("", 100*time.Millisecond)), Policy: steep},
			want: []string{
				"0s request", "100ms ended", "1.1s request", "1.2s ended", "3.2s request", "3.3s ended",
				"7.3s request", "7.4s ended", "15.4s request", "15.5s ended", "15.5s done: exhausted",
			},
		},
		{
			name:     "nor are comments",
			scenario: scenario.Scenario{Server: repeatAnswer(9, answerStream(": hello\n\n")), Policy: steep},
			want: []string{
				"0s request", "0s ended", "1s request", "1s ended", "3s request", "3s ended",
				"7s request", "7s ended", "15s request", "15s ended", "15s done: exhausted",
			},
		},
		{
			name: "nor are priming events, though their IDs move",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerStream("id: 0\ndata:\n\n"), answerStream("id: 1\ndata:\n\n"), answerStream("id: 2\ndata:\n\n"),
					answerStream("id: 3\ndata:\n\n"), answerStream("id: 4\ndata:\n\n"), answerGone,
				},
				Policy: steep,
			},
			want: []string{
				"0s request", `0s event ""`, "0s ended", `1s request ["0"]`, `1s event ""`, "1s ended",
				`3s request ["1"]`, `3s event ""`, "3s ended", `7s request ["2"]`, `7s event ""`, "7s ended",
				`15s request ["3"]`, `15s event ""`, "15s ended", "15s done: exhausted",
			},
		},
		{
			name: "refusals, failures, and streams without a message are one run",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerRefused, answerUnavailable(""), answerEmpty, cutAnswer(answerStream("data: lost")), answerGone},
				Policy: steep,
			},
			want: []string{
				"0s request", "0s failed", "1s request", "1s rejected", "3s request", "3s ended", "7s request", "7s dropped",
				"15s request", "15s rejected", "15s done: in order",
			},
		},
		{
			name: "a message ends the run",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerEmpty, answerEmpty, answerEmpty, cutAnswer(answerMessage), answerEmpty, answerEmpty, answerEmpty, answerEmpty, answerGone},
				Policy: steep,
			},
			want: []string{
				"0s request", "0s ended", "1s request", "1s ended", "3s request", "3s ended", "7s request", "7s ended",
				"15s request", `15s event "m"`, "15s dropped", "16s request", "16s ended", "17s request", "17s ended",
				"19s request", "19s ended", "23s request", "23s ended", "23s done: exhausted",
			},
		},
		{
			name: "and so does a life of 30 s, but not one that is shorter",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerEmpty, answerEmpty, cutAnswer(answerQuiet("", 30*time.Second)), answerEmpty, answerEmpty, cutAnswer(answerQuiet("", 30*time.Second-1)), answerEmpty, answerEmpty,
				},
				Policy: policyRules(policy.Rules{Delay: time.Second, Factor: 2, MaxFruitless: 4}),
			},
			want: []string{
				"0s request", "0s ended", "1s request", "1s ended", "3s request", "33s dropped", "34s request", "34s ended",
				"35s request", "35s ended", "37s request", "1m6.999999999s dropped", "1m10.999999999s request", "1m10.999999999s ended",
				"1m10.999999999s done: exhausted",
			},
		},
		{
			name: "a long wait for the response is not life",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, scenario.Answer{Delay: time.Minute}),
				Policy: steep,
				Caller: scenario.Caller{ConnectTimeout: -1},
			},
			want: []string{
				"0s request", "1m0s ended", "1m1s request", "2m1s ended", "2m3s request", "3m3s ended",
				"3m7s request", "4m7s ended", "4m15s request", "5m15s ended", "5m15s done: exhausted",
			},
		},
		{
			name: "an attempt that the idle timeout ended has not lasted longer than its last byte",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, answerSilent), Policy: five, Caller: scenario.Caller{IdleTimeout: 29 * time.Second},
			},
			want: []string{
				"0s request", "29s idle", "30s request", "59s idle", "1m1s request", "1m30s idle", "1m34s request", "2m3s idle",
				"2m11s request", "2m40s idle", "2m56s request", "3m25s idle", "3m25s done: exhausted",
			},
		},
		{
			name: "however long that timeout is",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, answerSilent), Policy: five, Caller: scenario.Caller{IdleTimeout: 31 * time.Second},
			},
			want: []string{
				"0s request", "31s idle", "32s request", "1m3s idle", "1m5s request", "1m36s idle", "1m40s request", "2m11s idle",
				"2m19s request", "2m50s idle", "3m6s request", "3m37s idle", "3m37s done: exhausted",
			},
		},
		{
			name: "so it lasts until its last byte",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, openAnswer(answerDrip(3, 10*time.Second, ":\n")), openAnswer(answerDrip(3, 10*time.Second-1, ":\n"))},
				Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 1}), Caller: scenario.Caller{IdleTimeout: time.Minute},
			},
			want: []string{
				"0s request", "0s ended", "1s request", "1m31s idle", "1m32s request", "3m1.999999997s idle", "3m1.999999997s done: exhausted",
			},
		},
		{
			name: "messages end a run, also in an attempt that the caller ends",
			scenario: scenario.Scenario{
				Server: append(repeatAnswer(5, answerRefused), openAnswer(answerDrip(180, time.Minute, "data: m\n\n")), answerRefused, answerGone),
				Policy: five,
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 3 * time.Hour, Do: scenario.Restart}}},
			},
		},
		{
			name: "ProgressAfter is a number of its own",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, answerQuiet("", 2*time.Second)),
				Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 1, ProgressAfter: time.Second}),
			},
			want: []string{
				"0s request", "2s ended", "3s request", "5s ended", "6s request", "8s ended", "9s request", "11s ended",
				"12s request", "14s ended", "15s request", "17s ended", "18s request", "20s ended", "21s request", "23s ended",
				"24s request", "26s ended", "27s request", "27s rejected", "27s done: in order",
			},
		},
		{
			name: "without it only messages count",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, answerQuiet("", time.Hour)),
				Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 1, ProgressAfter: -1}),
			},
			want: []string{"0s request", "1h0m0s ended", "1h0m1s request", "2h0m1s ended", "2h0m1s done: exhausted"},
		},
		{
			name: "a poll neither counts nor resets",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerEmpty, answerEmpty, answerStream("retry: 5000\n\n"), answerStream("retry: 5000\n\n"), answerStream("retry: 1000\n\n"), answerEmpty, answerGone,
				},
				Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 3, PollAfter: 5 * time.Second}),
			},
			want: []string{
				"0s request", "0s ended", "1s request", "1s ended", "3s request", "3s ended", "8s request", "8s ended",
				"13s request", "13s ended", "17s request", "17s ended", "17s done: exhausted",
			},
		},
		{
			name: "a restart by the caller neither counts nor resets",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerSilent, answerSilent, answerEmpty, answerEmpty, answerEmpty},
				Policy: steep,
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: 2 * time.Second, Do: scenario.Restart},
					{After: 3 * time.Second, Do: scenario.Restart},
				}},
			},
			want: []string{
				"0s request", "0s ended", "1s request", "2s restarted", "2s request", "3s restarted", "3s request", "3s ended",
				"5s request", "5s ended", "9s request", "9s ended", "17s request", "17s rejected", "17s done: in order",
			},
		},
	})
	p.holds(t)
}

// A quiet stream that a proxy cuts every minute goes on for ever, at its base wait.
func TestG4QuietStreamGoesOn(t *testing.T) {
	t.Parallel()
	s := scenario.Scenario{
		Server: repeatAnswer(150, cutAnswer(answerQuiet(": hello\n\n", time.Minute))),
		Policy: policyRules(policy.Rules{Delay: time.Second, MaxFruitless: 1}),
	}
	r := scenario.Play(t, s)[0]
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Attempts); n != 151 { // the last meets the 204
		t.Fatalf("%d attempts", n)
	}
	for i, a := range r.Attempts[1:] {
		if gap := a.Began - r.Attempts[i].Over; gap != time.Second {
			t.Fatalf("attempt %d comes after %v", a.Number, gap)
		}
	}
}

// A Stream that is printed or logged shows nothing of what it holds.
func TestStreamShowsNothing(t *testing.T) {
	req := get(t.Context())
	req.Header.Set("Last-Event-ID", "ID-SECRET")
	req.Header.Set("Authorization", "Bearer SECRET")
	s := (&eventsource.Client{}).Stream(req)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
		if got := fmt.Sprintf(verb, s); got != "eventsource.Stream" {
			t.Errorf("%s: %s", verb, got)
		}
	}
	var log strings.Builder
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("streaming", "stream", s)
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || strings.Contains(got, "SECRET") {
		t.Errorf("the log is\n%s", got)
	}
}

// A panic in Client.Trace or in IsMessage ends the stream as one in a hook does.
func TestG6PanicInTheCallersFunctions(t *testing.T) {
	t.Parallel()
	for name, dones := range map[string]int{"Trace": 0, "IsMessage": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bodies := &bodyCounter{base: answers(body(errHold, "id: 1\ndata: m\n\n"))}
				resp, err := bodies.RoundTrip(get(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				var done []error
				client := &eventsource.Client{
					Trace: func(*http.Request) *eventsource.Trace {
						if name == "Trace" {
							panic(name)
						}
						return &eventsource.Trace{Done: func(err error) { done = append(done, err) }}
					},
					IsMessage: func(eventsource.Event) bool { panic(name) },
				}
				s := client.Adopt(resp, get(t.Context()))
				func() {
					defer func() {
						if got := recover(); got != any(name) {
							t.Errorf("it panics with %v", got)
						}
					}()
					data, err := collect(s)
					t.Errorf("the loop is given %q and %v", data, err)
				}()
				if open := bodies.open.Load(); open != 0 {
					t.Error("the body is open")
				}
				if len(done) != dones || len(done) > 0 && done[0] != nil {
					t.Errorf("Done was told %v", done)
				}
				if id := s.LastEventID(); id != "" {
					t.Errorf("the last event ID is %q, of an event that the loop has not been given", id)
				}
				if data, err := collect(s); data != nil || err == nil {
					t.Errorf("a second range gives %q and %v", data, err)
				}
			})
		})
	}
}

// A context that ends between two attempts is the end of the stream, whatever the policy
// says, and once it has ended the policy is not asked.
func TestContextEndsBetweenAttempts(t *testing.T) {
	errOver := errors.New("it is over")
	for name, c := range map[string]struct{ inEnd, inNext bool }{
		"in Trace.End": {inEnd: true},
		"in Next":      {inNext: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			asked := 0
			client := answers(body(nil, "data: a\n\n")).client(eventsource.Client{
				Policy: policy.Constructor(func() policy.Reconnector {
					return policy.Func(func(policy.Attempt) policy.Decision {
						asked++
						if c.inNext {
							cancel(errOver)
						}
						return policy.Stop(errEnough)
					})
				}),
				Trace: traceOf(&eventsource.Trace{End: func(policy.Attempt) {
					if c.inEnd {
						cancel(errOver)
					}
				}}),
			})
			if _, err := collect(client.Stream(get(ctx))); err != errOver {
				t.Errorf("it ended with %v, want the cause of the context's end", err)
			}
			if (asked > 0) != c.inNext {
				t.Errorf("the policy was asked %d times", asked)
			}
		})
	}
}

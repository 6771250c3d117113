package eventsource_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// This file tests which events are messages, and the limits on the time without one that
// begin or end in the middle of an attempt. TestG3BoundedWhenAsked has those of Budget.

const greeting = "event: keep_alive\ndata: {}\n\n"

// isNews is an IsMessage for servers that greet and ping with data.
func isNews(e eventsource.Event) bool { return e.Type != "keep_alive" && e.Type != "ping" }

// answerKeptAlive is a response that stays open for 100 s, with a comment in each second,
// after a text.
func answerKeptAlive(text string) scenario.Answer {
	a := answerDrip(100, time.Second, ": still here\n\n")
	a.Body = append([]scenario.Piece{{Text: text}}, a.Body...)
	return a
}

// Greetings and pings that the caller says are no messages end neither a run of fruitless
// attempts nor any limit on the time without a message. The loop is given them all the
// same.
func TestIsMessage(t *testing.T) {
	minute := exact(policy.Rules{Delay: time.Second, Budget: time.Minute})
	ping := slices.Repeat([]string{"7s", "event: ping\ndata: {}\n\n"}, 1000)
	for _, tt := range []struct {
		name      string
		isMessage func(eventsource.Event) bool
		rules     policy.Rules
		first     string   // of the response to the first request, which is cut
		others    []string // of the responses to the others, which are cut or, after "", held open
		want      string   // the reason for the end
		messages  []int    // of each attempt
		events    int      // of all
		took      time.Duration
	}{
		{
			name: "a greeting and a cut, until MaxFruitless", isMessage: isNews,
			rules: exact(policy.Rules{Delay: time.Second, MaxFruitless: 5, Budget: time.Minute}),
			first: greeting, others: []string{greeting},
			want: "exhausted", messages: make([]int, 6), events: 6, took: 31 * time.Second,
		},
		{
			name: "a greeting and a cut, until the budget is spent", isMessage: isNews, rules: minute,
			first: greeting, others: []string{greeting},
			want: "budget: 30s of 29s", messages: make([]int, 6), events: 6, took: 31 * time.Second,
		},
		{
			name: "a greeting, then silence", isMessage: isNews, rules: minute,
			first: greeting, others: []string{greeting, ""},
			want: "budget: 2s of 0s", messages: make([]int, 2), events: 2, took: time.Minute,
		},
		{
			name: "an MCP call that is resumed and then pinged", isMessage: isNews, rules: exact(policy.MCPCall()),
			first: "id: 1\ndata: m\n\n", others: append(ping, ""),
			want: "budget: 1s of 0s", messages: []int{1, 0, 0, 0, 0, 0}, events: 1 + 4*8 + 7, took: 300 * time.Second,
		},
		{
			name: "it decides by itself, whatever the data is", isMessage: isNews,
			rules: exact(policy.Rules{Delay: time.Second, MaxFruitless: 1}),
			first: greeting + "data: a\n\ndata:\n\n", others: []string{greeting},
			want: "exhausted", messages: []int{2, 0}, events: 4, took: time.Second,
		},
		{
			name:  "without it data makes a message",
			rules: exact(policy.Rules{Delay: time.Second, MaxFruitless: 1}),
			first: greeting + "data: a\n\ndata:\n\n", others: []string{"data:\n\n"},
			want: "exhausted", messages: []int{2, 0}, events: 4, took: time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end, others := errCut, tt.others
				if last := len(others) - 1; others[last] == "" {
					end, others = errHold, others[:last]
				}
				rt := answers(body(errCut, tt.first), body(end, others...))
				var w watcher
				client := rt.client(eventsource.Client{Policy: tt.rules, IsMessage: tt.isMessage, Trace: traceOf(w.trace())})
				start := time.Now()
				data, err := collect(client.Stream(get(t.Context())))
				if got := reasonFor(err); got != tt.want {
					t.Errorf("it ended: %s, want %s", got, tt.want)
				}
				if took := time.Since(start); took != tt.took || len(data) != tt.events {
					t.Errorf("it ended after %v and %d events, want %v and %d", took, len(data), tt.took, tt.events)
				}
				var messages []int
				for _, a := range w.ends {
					messages = append(messages, a.Messages)
				}
				if diff := cmp.Diff(tt.messages, messages); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// GiveUpAfter limits the time without a message in every state, from the first moment of
// the stream on.
func TestG3GiveUpAfter(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.WithinLimits, scenario.WithinPatience}}
	minute := policyRules(policy.Rules{GiveUpAfter: time.Minute, Delay: 10 * time.Second, Factor: 1})
	atOnce := []string{"0s request", "1m0s expired", "1m0s done: budget: 10s of 0s"}
	slow := scenario.Caller{Slow: 45 * time.Second}
	p.holdsIn(t, []scenarioCase{
		{
			name:     "silent from the start",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerSilent}, Policy: minute},
			want:     atOnce,
		},
		{
			name:     "comments only",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerKeptAlive("")}, Policy: minute},
			want:     atOnce,
		},
		{
			name:     "connecting takes for ever",
			scenario: scenario.Scenario{Server: []scenario.Answer{{Failure: scenario.NeverAnswers}}, Policy: minute, Caller: scenario.Caller{ConnectTimeout: -1}},
			want:     atOnce,
		},
		{
			name:     "connecting takes too long, and too often",
			scenario: scenario.Scenario{Server: repeatAnswer(9, scenario.Answer{Failure: scenario.NeverAnswers}), Policy: minute},
			want:     []string{"0s request", "30s failed", "40s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name: "one message, then comments",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{Body: append([]scenario.Piece{{Wait: 10 * time.Second, Text: "data: m\n\n"}}, answerKeptAlive("").Body...)}},
				Policy: minute,
			},
			want: []string{"0s request", `10s event "m"`, "1m10s expired", "1m10s done: budget: 10s of 0s"},
		},
		{
			name:     "messages go on as long as they come in time",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerDrip(4, time.Minute-1, "data: m\n\n"), answerGone}, Policy: minute},
			want: []string{
				"0s request", `59.999999999s event "m"`, `1m59.999999998s event "m"`, `2m59.999999997s event "m"`, `3m59.999999996s event "m"`,
				"3m59.999999996s ended", "4m9.999999996s request", "4m9.999999996s rejected", "4m9.999999996s done: in order",
			},
		},
		{
			name:     "what the first attempt took counts for the next",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerQuiet("data: m\n\n", 20*time.Second), answerSilent}, Policy: minute},
			want:     []string{"0s request", `0s event "m"`, "20s ended", "30s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "a message in a later attempt, then silence",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerMessage, openAnswer(answerMessage)}, Policy: minute},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "10s request", `10s event "m"`, "1m10s expired", "1m10s done: budget: 10s of 0s"},
		},
		{
			name:     "waiting",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("data: m\n\nretry: 3600000\n\n")}, Policy: minute},
			want:     []string{"0s request", `0s event "m"`, "0s ended", "0s done: budget: 1h0m0s of 1m0s"},
		},
		{
			name:     "waiting and failing",
			scenario: scenario.Scenario{Server: repeatAnswer(9, answerRefused), Policy: minute},
			want: []string{
				"0s request", "0s failed", "10s request", "10s failed", "20s request", "20s failed", "30s request", "30s failed",
				"40s request", "40s failed", "50s request", "50s failed", "50s done: budget: 10s of 10s",
			},
		},
		{
			name: "restarts by the caller do not renew it",
			scenario: scenario.Scenario{
				Server: repeatAnswer(9, answerSilent), Policy: minute,
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 25 * time.Second, Do: scenario.Restart}, {After: 50 * time.Second, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "25s restarted", "25s request", "50s restarted", "50s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "the time of the loop body does not count after a message",
			scenario: scenario.Scenario{Server: []scenario.Answer{openAnswer(answerStream("data: a\n\ndata: b\n\n"))}, Policy: minute, Caller: slow},
			want:     []string{"0s request", `0s event "a"`, `45s event "b"`, "2m30s expired", "2m30s done: budget: 10s of 0s"},
		},
		{
			name:     "nor after an event that is none",
			scenario: scenario.Scenario{Server: []scenario.Answer{openAnswer(answerStream("data:\n\ndata:\n\n"))}, Policy: minute, Caller: slow},
			want:     []string{"0s request", `0s event ""`, `45s event ""`, "2m30s expired", "2m30s done: budget: 10s of 0s"},
		},
		{
			name: "nor in a later attempt",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("data:\n\ndata: m\n\n"), openAnswer(answerStream("data:\n\n"))}, Policy: minute, Caller: slow,
			},
			want: []string{
				"0s request", `0s event ""`, `45s event "m"`, "1m30s ended", "1m40s request", `1m40s event ""`,
				"3m15s expired", "3m15s done: budget: 10s of 0s",
			},
		},
		{
			name:     "an adopted response",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerKeptAlive("")}, Policy: minute, Caller: scenario.Caller{Adopt: scenario.Resume}},
			want:     []string{"1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
	})
}

// A message timeout ends an attempt that is kept alive and brings nothing; the rules go on
// to the next.
func TestMessageTimeout(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.WithinLimits}}
	minute := policyRules(policy.Rules{MessageTimeout: time.Minute, Delay: 10 * time.Second})
	const over = "done: scenario: the policy's script has ended"
	p.holdsIn(t, []scenarioCase{
		{
			name:     "before the first message, and after it",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, answerKeptAlive(""), answerKeptAlive("data: m\n\n"), answerGone}, Policy: minute},
			want: []string{
				"0s request", "0s ended", "10s request", "1m10s expired", "1m20s request", `1m20s event "m"`, "2m20s expired",
				"2m30s request", "2m30s rejected", "2m30s done: in order",
			},
		},
		{
			name:     "a message renews it",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, openAnswer(answerDrip(2, time.Minute-time.Second, "data: m\n\n")), answerGone}, Policy: minute},
			want: []string{
				"0s request", "0s ended", "10s request", `1m9s event "m"`, `2m8s event "m"`, "3m8s expired",
				"3m18s request", "3m18s rejected", "3m18s done: in order",
			},
		},
		{
			name:     "the first attempt has none",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerQuiet("", time.Hour), answerGone}, Policy: minute},
			want:     []string{"0s request", "1h0m0s ended", "1h0m10s request", "1h0m10s rejected", "1h0m10s done: in order"},
		},
		{
			name: "the time of the loop body does not count",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, openAnswer(answerStream("data: m\n\n")), answerGone}, Policy: minute,
				Caller: scenario.Caller{Slow: time.Hour},
			},
			want: []string{
				"0s request", "0s ended", "10s request", `10s event "m"`, "1h1m10s expired",
				"1h1m20s request", "1h1m20s rejected", "1h1m20s done: in order",
			},
		},
		{
			name: "Within is the limit of the first message, if it is the shorter",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerSilent, answerEmpty, answerSilent, openAnswer(answerMessage), answerGone},
				Policy: scenario.Policy{Script: []scenario.Decision{
					{Within: scenario.Ptr(5 * time.Second), Message: 20 * time.Second},
					{},
					{Within: scenario.Ptr(50 * time.Second), Message: 20 * time.Second},
					{Within: scenario.Ptr(5 * time.Second), Message: 20 * time.Second},
					{},
				}},
			},
			want: []string{
				"0s request", "0s ended", "0s request", "5s expired", "5s request", "5s ended", "5s request", "25s expired",
				"25s request", `25s event "m"`, "45s expired", "45s request", "45s rejected", "45s " + over,
			},
		},
	})
}

// Within counts from when the attempt was to begin, and the time of the loop body does not
// count.
func TestWithin(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.WithinLimits, scenario.WithinBudget}}
	soon := scenario.Caller{Actions: []scenario.Action{{After: time.Second, Do: scenario.Restart}}}
	half := policyRules(policy.Rules{Budget: 30 * time.Second, Delay: 29500 * time.Millisecond})
	limited := scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(5 * time.Second)}, {}}}
	slow := scenario.Caller{Slow: 10 * time.Second}
	const over = "done: scenario: the policy's script has ended"
	p.holdsIn(t, []scenarioCase{
		{
			name:     "a wait that is not cut short",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, answerSilent}, Policy: half},
			want:     []string{"0s request", "0s ended", "29.5s request", "30s expired", "30s done: budget: 30s of 0s"},
		},
		{
			name:     "Reconnect cuts the wait short, and the attempt gets the rest",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, answerSilent}, Policy: half, Caller: soon},
			want:     []string{"0s request", "0s ended", "1s request", "30s expired", "30s done: budget: 30s of 0s"},
		},
		{
			name: "so does one that brings a message late",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, {Body: []scenario.Piece{{Wait: 28 * time.Second, Text: "data: m\n\n"}}}, answerGone}, Policy: half, Caller: soon,
			},
			want: []string{
				"0s request", "0s ended", "1s request", `29s event "m"`, "29s ended", "58.5s request", "58.5s rejected", "58.5s done: in order",
			},
		},
		{
			name: "only the part of the wait that was cut comes on top",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 10000\n\n"), answerSilent, answerGone}, Caller: soon,
				Policy: scenario.Policy{Script: []scenario.Decision{{After: 29 * time.Second, Within: scenario.Ptr(time.Second)}, {}}},
			},
			want: []string{"0s request", "0s ended", "10s request", "30s expired", "40s request", "40s rejected", "40s " + over},
		},
		{
			name: "the time of the loop body on an event without data does not count",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerQuiet("data:\n\ndata: m\n\n", time.Hour), answerGone}, Policy: limited, Caller: slow,
			},
			want: []string{
				"0s request", "0s ended", "0s request", `0s event ""`, `10s event "m"`, "1h0m0s ended", "1h0m0s request", "1h0m0s rejected", "1h0m0s " + over,
			},
		},
		{
			name: "what is left after it does",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, openAnswer(scenario.Answer{Body: []scenario.Piece{{Wait: 2 * time.Second, Text: "data:\n\n"}}}), answerGone}, Policy: limited, Caller: slow,
			},
			want: []string{"0s request", "0s ended", "0s request", `2s event ""`, "15s expired", "15s request", "15s rejected", "15s " + over},
		},
	})
}

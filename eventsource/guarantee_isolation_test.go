package eventsource_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

// aloneAndTogether plays each scenario alone, and then both at once with the same
// Client but for the hooks.
func aloneAndTogether(run runScenarios, scenarios []scenario.Scenario) (records []*scenario.Record) {
	for i := range scenarios {
		scenarios[i].Policy = scenarios[0].Policy
		records = append(records, run(scenarios[i])...)
	}
	return append(records, run(scenarios...)...)
}

// isolation: what happens to a stream does not depend on the others.
func isolation(records []*scenario.Record, c *complaints) {
	n := len(records) / 2
	for i := range n {
		alone := records[i].Text()
		// Each server has a name of its own.
		together := strings.ReplaceAll(records[n+i].Text(), "server1.test", "server0.test")
		if alone != together {
			c.add("stream %d (-alone +together):\n%s", i+1, cmp.Diff(strings.Split(alone, "\n"), strings.Split(together, "\n")))
		}
	}
}

func TestG11Isolation(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Steady: true},
		streams: 2,
		play:    aloneAndTogether,
		check:   isolation,
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

package eventsource_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

var (
	propertyRuns = flag.Int("reprise.runs", 0, "how many random scenarios each property test runs; 0 means $REPRISE_RUNS, or else 300, and 150 with -short")
	propertySeed = flag.Uint64("reprise.seed", 0, "the seed of the property tests; 0 chooses one")
)

// runs returns how many random scenarios a property test runs. Few are enough to
// find what a change has broken; make ci runs fullRuns.
func runs(t *testing.T) int {
	t.Helper()
	if *propertyRuns > 0 {
		return *propertyRuns
	}
	if env := os.Getenv("REPRISE_RUNS"); env != "" {
		n, err := strconv.Atoi(env)
		if err != nil || n <= 0 {
			t.Fatalf("REPRISE_RUNS is %q, not a number of runs", env)
		}
		return n
	}
	if testing.Short() {
		return 150
	}
	return 300
}

const (
	fullRuns = 10_000

	// leastOfAKind is how often each policy.Kind must occur in fullRuns. In fewer
	// runs chance decides.
	leastOfAKind = 100
)

// A property is what a guarantee says of any scenario, or of several at once.
type property struct {
	// profile is what the random scenarios are like, and streams how many there
	// are at once; 0 means one.
	profile scenario.Profile
	streams int

	// play runs the scenarios, perhaps in several ways; nil means once and as they
	// are.
	play func(run runScenarios, scenarios []scenario.Scenario) []*scenario.Record

	// checks look at the first record, and compare at the records of all plays.
	checks  []scenario.Check
	compare func([]*scenario.Record, *scenario.Complaints)
}

// runScenarios runs scenarios at the same time.
type runScenarios func(...scenario.Scenario) []*scenario.Record

// run runs scenarios in a bubble of their own.
func (p property) run(t *testing.T, scenarios ...scenario.Scenario) ([]*scenario.Record, scenario.Complaints) {
	return p.try(func(s ...scenario.Scenario) []*scenario.Record { return scenario.Play(t, s...) }, scenarios)
}

// try runs scenarios and checks the property.
func (p property) try(run runScenarios, scenarios []scenario.Scenario) ([]*scenario.Record, scenario.Complaints) {
	var records []*scenario.Record
	if p.play != nil {
		records = p.play(run, scenarios)
	} else {
		records = run(scenarios...)
	}
	var c scenario.Complaints
	for _, r := range records {
		scenario.Sound(r, &c)
	}
	if len(c) > 0 {
		return records, c
	}
	for _, check := range p.checks {
		check(records[0], &c)
	}
	if p.compare != nil {
		p.compare(records, &c)
	}
	return records, c
}

// A tally is what a property test has seen.
type tally struct {
	kinds    map[policy.Kind]int
	attempts int
}

// holds checks the property in random scenarios.
func (p property) holds(t *testing.T) {
	t.Helper()
	seed := *propertySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	seen := tally{kinds: make(map[policy.Kind]int)}
	runs := runs(t)
	for from := 0; from < runs; from += runsPerBubble {
		p.holdsFor(t, seed, from, min(from+runsPerBubble, runs), &seen)
	}
	t.Logf("%d scenarios of seed %d, %d attempts, which ended as follows: %v", runs, seed, seen.attempts, seen.kinds)
	if runs < fullRuns {
		return
	}
	for kind := policy.Ended; kind <= policy.Restarted; kind++ {
		if least := leastOfAKind * runs / fullRuns; seen.kinds[kind] < least {
			t.Errorf("only %d attempts were %v, not %d", seen.kinds[kind], kind, least)
		}
	}
}

// runsPerBubble is as many as there is time for in one bubble, for properties that
// play a scenario three times.
const runsPerBubble = 600

// scenarios makes the scenarios of one run.
func (p property) scenarios(seed uint64, number int) []scenario.Scenario {
	rng := rand.New(rand.NewPCG(seed, uint64(number)))
	scenarios := make([]scenario.Scenario, max(p.streams, 1))
	for n := range scenarios {
		scenarios[n] = scenario.Generate(rng, p.profile)
	}
	return scenarios
}

// holdsFor checks the property in some runs of a seed, in one bubble.
func (p property) holdsFor(t *testing.T, seed uint64, from, to int, seen *tally) {
	t.Helper()
	var records []*scenario.Record
	var broken scenario.Complaints
	number := from
	deadlock := scenario.Bubble(t, func() {
		for ; number < to; number++ {
			if records, broken = p.try(scenario.Run, p.scenarios(seed, number)); len(broken) > 0 {
				return
			}
			for kind, n := range records[0].Kinds() {
				seen.kinds[kind] += n
			}
			seen.attempts += len(records[0].Attempts)
		}
	})
	if deadlock != "" && len(broken) == 0 {
		// Which one was it?
		for number = from; number < to && len(broken) == 0; number++ {
			records, broken = p.run(t, p.scenarios(seed, number)...)
		}
		number--
		if len(broken) == 0 {
			broken.Add("in one of the runs from %d to %d: %s", from, to, deadlock)
		}
	}
	if len(broken) > 0 {
		t.Fatalf("seed %d, run %d: %s", seed, number, p.report(t, p.scenarios(seed, number), records, broken))
	}
}

// report makes scenarios that break the property as small as they get.
func (p property) report(t *testing.T, scenarios []scenario.Scenario, records []*scenario.Record, broken scenario.Complaints) string {
	fails := func(scenarios []scenario.Scenario) bool {
		for range 3 { // it may be a race
			if r, c := p.run(t, scenarios...); len(c) > 0 {
				records, broken = r, c
				return true
			}
		}
		return false
	}
	for n := range scenarios {
		scenarios[n] = scenario.Shrink(scenarios[n], 400, func(s scenario.Scenario) bool {
			smaller := slices.Clone(scenarios)
			smaller[n] = s
			return fails(smaller)
		})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nMade smaller, for the table of cases:\n", strings.Join(broken, "\n"))
	for _, s := range scenarios {
		fmt.Fprintf(&b, "\n%#v\n", s)
	}
	for _, r := range records {
		fmt.Fprintf(&b, "\nWhat happened:\n%s", r.Text())
	}
	return b.String()
}

// A scenarioCase is a scenario in a table and what must happen in it; if that is nil,
// only the property is checked.
type scenarioCase struct {
	name     string
	scenario scenario.Scenario
	want     []string
}

// holdsIn checks the property in the scenarios of a table.
func (p property) holdsIn(t *testing.T, cases []scenarioCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			records, broken := p.run(t, slices.Repeat([]scenario.Scenario{c.scenario}, max(p.streams, 1))...)
			for _, text := range broken {
				t.Error(text)
			}
			if c.want != nil {
				if diff := cmp.Diff(c.want, historyOf(records[0])); diff != "" {
					t.Errorf("what happened (-want +got):\n%s", diff)
				}
			}
			if t.Failed() {
				t.Logf("all that happened:\n%s", records[0].Text())
			}
		})
	}
}

// historyOf lists the main points of a record, each with its time.
func historyOf(r *scenario.Record) []string {
	var h []string
	for i, a := range r.Attempts {
		if a.Sent {
			id := ""
			if ids, ok := a.Header["Last-Event-Id"]; ok {
				id = fmt.Sprintf(" %q", ids)
			}
			h = append(h, fmt.Sprintf("%v request%s", a.Began, id))
		}
		for _, d := range a.Events {
			h = append(h, fmt.Sprintf("%v event %q", d.At, d.Event.Data))
		}
		if a.Reported != nil {
			h = append(h, fmt.Sprintf("%v %v", a.Ended[0], a.Reported.Kind))
		} else if i < len(r.Attempts)-1 {
			h = append(h, "not reported")
		}
	}
	for _, err := range r.Done {
		h = append(h, fmt.Sprintf("%v done: %s", r.DoneAt, reasonFor(err)))
	}
	switch {
	case r.Left:
		h = append(h, "left")
	case r.Panicked != nil:
		h = append(h, "panicked")
	case r.Exited:
		h = append(h, "exited")
	}
	return h
}

// reasonFor names the reason for the end of a stream.
func reasonFor(err error) string {
	var budget *policy.BudgetError
	var response *eventsource.ResponseError
	var stop *eventsource.StopError
	switch {
	case err == nil:
		return "in order"
	case !errors.As(err, &stop):
		return err.Error()
	case errors.As(stop.Reason, &budget):
		return fmt.Sprintf("budget: %v of %v", budget.Asked, budget.Left)
	case errors.Is(stop.Reason, context.DeadlineExceeded):
		return "deadline"
	case errors.As(stop.Reason, &response):
		return fmt.Sprint("response ", response.StatusCode)
	case errors.Is(stop.Reason, policy.ErrExhausted):
		return "exhausted"
	default:
		return strings.TrimPrefix(stop.Reason.Error(), "eventsource: ")
	}
}

// Answers and policies of many tables.
var (
	answerRefused = scenario.Answer{Failure: scenario.Refused}
	answerEmpty   = scenario.Answer{}
	answerSilent  = scenario.Answer{End: scenario.Hold}
	answerMessage = answerStream("data: m\n\n")
	answerGone    = scenario.Answer{Status: 204}
)

// answerStream is a response whose body ends after some text.
func answerStream(text string) scenario.Answer {
	return scenario.Answer{Body: []scenario.Piece{{Text: text}}}
}

// answerQuiet is a response that brings a text, stays open for a time, and then ends.
func answerQuiet(text string, open time.Duration) scenario.Answer {
	return scenario.Answer{Body: []scenario.Piece{{Text: text}, {Wait: open}}}
}

// cutAnswer breaks an answer's body instead of ending it.
func cutAnswer(a scenario.Answer) scenario.Answer {
	a.End = scenario.Cut
	return a
}

// openAnswer holds an answer's body open.
func openAnswer(a scenario.Answer) scenario.Answer {
	a.End = scenario.Hold
	return a
}

func answerUnavailable(retryAfter string) scenario.Answer {
	return scenario.Answer{Status: 503, RetryAfter: retryAfter}
}

// policyScript is a policy that connects again after these times.
func policyScript(waits ...time.Duration) scenario.Policy {
	p := scenario.Policy{}
	for _, wait := range waits {
		p.Script = append(p.Script, scenario.Decision{After: wait})
	}
	return p
}

// policyRules is a policy by Rules without randomness.
func policyRules(r policy.Rules) scenario.Policy {
	r.Jitter = -1
	return scenario.Policy{Preset: "Rules", Rules: r, Retryable: true}
}

// repeatAnswer returns n copies of an answer.
func repeatAnswer(n int, a scenario.Answer) []scenario.Answer {
	return slices.Repeat([]scenario.Answer{a}, n)
}

package policy_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/reprise-sse/reprise/policy"
)

// The model below decides by the rules as they are written down, from the whole
// history of a stream each time. It shares nothing with Rules, not even state
// from one decision to the next.

type verdict struct {
	stop   bool
	reason string // of a stop
	wait   float64
	within float64
	bound  bool // within is set

	message time.Duration // the message timeout
}

type model struct {
	rules  policy.Rules
	list   []time.Duration // what the caller's schedule gives, if it has one
	random float64         // what Rand returns
}

func or(value, byDefault float64) float64 {
	if value == 0 {
		return byDefault
	}
	return value
}

func (m model) productive(a policy.Attempt) bool {
	progress := or(float64(m.rules.ProgressAfter), 30e9)
	return a.Messages > 0 || progress > 0 && !a.Open.IsZero() && float64(a.LastReceived.Sub(a.Open)) >= progress
}

func (m model) poll(a policy.Attempt) bool {
	p := m.rules.PollAfter
	return !m.productive(a) && a.Kind == policy.Ended && a.Err == nil && a.HasRetry && (p < 0 || p > 0 && a.Retry >= p)
}

func (m model) fruitless(a policy.Attempt) bool {
	return a.Kind != policy.Restarted && !m.productive(a) && !m.poll(a)
}

func (m model) decide(history []policy.Attempt) verdict {
	a := history[len(history)-1]
	stop := func(reason error) verdict { return verdict{stop: true, reason: fmt.Sprint(reason)} }

	// permanent, or TooLarge → stop
	if a.Permanent || errors.Is(a.Err, &backoff.PermanentError{}) || a.Kind == policy.TooLarge {
		return stop(a.Err)
	}
	// OneAnswer
	if m.rules.OneAnswer && a.Kind == policy.Restarted && a.Messages > 0 {
		return stop(policy.ErrExhausted)
	}
	if m.rules.OneAnswer && a.Messages > 0 {
		return stop(a.Err)
	}
	// 204 → nil; other rejections unless Retryable
	if a.Kind == policy.Rejected && a.Status == 204 {
		return stop(nil)
	}
	if a.Kind == policy.Rejected && (m.rules.Retryable == nil || !m.rules.Retryable(a.Status)) {
		return stop(a.Err)
	}
	// RequireLastEventID
	if m.rules.RequireLastEventID && a.LastEventID == "" {
		return stop(policy.ErrNotResumable)
	}

	// The run of fruitless attempts, and those of it that were reconnections.
	k, counted := 0, 0
	for i := len(history) - 1; i >= 0; i-- {
		old := history[i]
		if m.productive(old) {
			break
		}
		if m.fruitless(old) {
			k++
			if old.Number > 1 {
				counted++
			}
		}
	}
	if m.fruitless(a) {
		n := m.rules.MaxFruitless
		if n > 0 && counted >= n || n < 0 {
			return stop(policy.ErrExhausted)
		}
	}

	// The wait.
	floor := max(or(float64(m.rules.Floor), 100e6), 0)
	jitter := 1 + m.random*max(or(m.rules.Jitter, 0.5), 0)
	base := max(floor, or(float64(m.rules.Delay), 3e9))
	wait := base * jitter
	if a.HasRetry {
		base = max(floor, float64(a.Retry))
		wait = base
	}
	switch {
	case a.Kind == policy.Restarted:
		wait = 0
	case m.poll(a):
		wait = base
	case k >= 2 && m.list != nil:
		if k-2 >= len(m.list) {
			return stop(policy.ErrExhausted)
		}
		wait = max(float64(m.list[k-2]), base) * jitter
	case k >= 2:
		ceiling := max(or(float64(m.rules.MaxDelay), 30e9), base)
		wait = min(base*math.Pow(or(m.rules.Factor, 2), float64(k-1)), ceiling) * jitter
	}

	// Budget and GiveUpAfter.
	v := verdict{wait: wait, message: m.rules.MessageTimeout}
	if g := m.rules.GiveUpAfter; g > 0 && (v.message == 0 || g < v.message) {
		v.message = g
	}
	since, silence := history[0].End, time.Duration(0)
	for i, old := range history {
		if old.Messages > 0 {
			since, silence = old.End, old.Silence
			continue
		}
		silence += old.Silence
		if i > 0 {
			silence += old.Start.Sub(history[i-1].End)
		}
	}
	left := math.Inf(1)
	if m.rules.Budget > 0 {
		left = float64(m.rules.Budget - a.End.Sub(since))
	}
	if m.rules.GiveUpAfter > 0 {
		left = min(left, float64(m.rules.GiveUpAfter-silence))
	}
	if math.IsInf(left, 1) {
		return v
	}
	due := max(wait, float64(a.Asked))
	if due >= left {
		return verdict{stop: true, reason: "budget"}
	}
	v.within, v.bound = left-due, true
	return v
}

// compare says how a decision differs from the model's, or nothing.
func (v verdict) compare(d policy.Decision) string {
	// The schedule rounds down to a nanosecond at each of its steps.
	const tolerance = 1e-5
	near := func(got time.Duration, want float64) bool {
		return math.Abs(float64(got)-want) <= 2+tolerance*math.Abs(want)
	}
	reason, stopped := d.Stopped()
	text := fmt.Sprint(reason)
	var budget *policy.BudgetError
	switch {
	case errors.As(reason, &budget):
		text = "budget"
	case errors.Is(reason, policy.ErrExhausted):
		text = policy.ErrExhausted.Error()
	}
	limit, bound := d.Limit()
	switch {
	case stopped != v.stop || stopped && text != v.reason:
		return fmt.Sprintf("decided %v, want %+v", d, v)
	case stopped:
		return ""
	case !near(d.Delay(), v.wait):
		return fmt.Sprintf("waits %v, want %v", d.Delay(), time.Duration(v.wait))
	case bound != v.bound || math.Abs(float64(limit)-v.within) > 4+tolerance*(v.within+v.wait):
		return fmt.Sprintf("within %v, %v, want %v, %v", limit, bound, time.Duration(v.within), v.bound)
	case d.MessageLimit() != v.message:
		return fmt.Sprintf("a message timeout of %v, want %v", d.MessageLimit(), v.message)
	}
	return ""
}

func pick[T any](random *rand.Rand, list ...T) T { return list[random.IntN(len(list))] }

// randomRules returns Rules and the model of them.
func randomRules(random *rand.Rand) model {
	m := model{random: pick(random, 0, 0.25, 0.5, 0.999)}
	ms := time.Millisecond
	m.rules = policy.Rules{
		Delay:              pick(random, 0, ms, 50*ms, 1000*ms, 7000*ms),
		Floor:              pick(random, 0, -1, ms, 2000*ms),
		Factor:             pick(random, 0, 1, 1.5, 2, 10),
		MaxDelay:           pick(random, 0, ms, 5000*ms, time.Hour),
		Jitter:             pick(random, 0, -1, 0.25, 3),
		MaxFruitless:       pick(random, 0, 0, 0, -1, 1, 3, 8),
		Budget:             pick(random, 0, 0, time.Second, time.Minute, time.Hour),
		GiveUpAfter:        pick(random, 0, 0, 0, time.Second, time.Minute, time.Hour),
		MessageTimeout:     pick(random, 0, 0, 0, time.Second, time.Minute),
		ProgressAfter:      pick(random, 0, -1, 5000*ms, time.Hour),
		PollAfter:          pick(random, 0, -1, 1000*ms, time.Hour),
		OneAnswer:          random.IntN(8) == 0,
		RequireLastEventID: random.IntN(4) == 0,
		Rand:               func() float64 { return m.random },
	}
	if random.IntN(2) == 0 {
		m.rules.Retryable = func(status int) bool { return status >= 500 }
	}
	if random.IntN(4) == 0 {
		for range random.IntN(9) {
			m.list = append(m.list, pick(random, 0, ms, 3000*ms, 3000*ms, time.Minute))
		}
		m.list = append(m.list, time.Second)
		m.rules.Backoff = func() backoff.BackOff { return &steps{list: m.list} }
	}
	return m
}

// randomTurn returns a turn that does not often end a stream.
func randomTurn(random *rand.Rand) turn {
	t := pick(random, ended, ended, ended, dropped, failed, failed, idle, restarted, rejected(503), turn{kind: policy.Expired, err: errCut})
	switch random.IntN(60) {
	case 0:
		t = pick(random, tooLarge, rejected(204), rejected(404), rejected(200))
	case 1:
		t = t.isPermanent()
	case 2:
		t = t.fails(backoff.Permanent(errCut))
	case 3, 4, 5:
		t = t.fails(errCut)
	case 6, 7:
		t = t.isLate()
	}
	if random.IntN(3) == 0 {
		t = t.retry(pick(random, 0, time.Millisecond, 999*time.Millisecond, time.Second, 20*time.Second, 2*time.Hour))
	}
	if t.opened && random.IntN(4) == 0 {
		t = t.brings(1 + random.IntN(3)).isQuiet(pick(random, 0, 0, time.Second, time.Minute))
	}
	if t.kind == policy.Rejected && random.IntN(2) == 0 {
		t = t.asksFor(pick(random, time.Second, 40*time.Second))
	}
	if random.IntN(3) == 0 {
		t = t.lasts(pick(random, 4*time.Second, 5*time.Second, 31*time.Second, 2*time.Hour))
		t = t.hears(pick(random, 0, time.Duration(random.Int64N(int64(t.open)+1)), t.open))
	}
	if random.IntN(3) == 0 {
		t = t.takes(pick(random, time.Millisecond, time.Second, time.Minute))
	}
	if random.IntN(10) == 0 {
		t = t.setsID(pick(random, "", "1", "2"))
	}
	return t
}

// A recorder keeps what a Starter is asked about.
type recorder struct {
	policy.Starter
	history *[]policy.Attempt
}

func (r recorder) Next(a policy.Attempt) policy.Decision {
	*r.history = append(*r.history, a)
	return r.Starter.Next(a)
}

func TestRulesAgreeWithTheirText(t *testing.T) {
	checked := make(map[string]int)
	for range 4000 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		m := randomRules(random)
		var history []policy.Attempt
		p := newPlayer(policy.Constructor(func() policy.Reconnector {
			return recorder{m.rules.New().(policy.Starter), &history}
		})).withID(pick(random, "", "0", "0", "0"))
		for range 40 {
			turn := randomTurn(random)
			d := p.play(turn)
			want := m.decide(history)
			if difference := want.compare(d); difference != "" {
				t.Fatalf("seed %d, attempt %d (%+v) under %+v: %s", seed, len(history), history[len(history)-1], m.rules, difference)
			}
			checked[want.reason]++
			if want.stop {
				break
			}
		}
	}
	// The generator must reach every kind of end, or the comparison is worth little.
	for _, reason := range []string{"", "<nil>", "budget", "cut", policy.ErrExhausted.Error(), policy.ErrNotResumable.Error(), "event too large", "status 404"} {
		if checked[reason] < 20 {
			t.Errorf("%d decisions with reason %q were compared, want more", checked[reason], reason)
		}
	}
}

// Facts that no engine would report, and rules at the edge of what is allowed:
// the decision must still be one that can be carried out.
func TestDecisionsCanBeCarriedOut(t *testing.T) {
	durations := []time.Duration{0, 1, -1, time.Millisecond, time.Second, time.Hour, forever, forever - 1, -forever, math.MinInt64}
	notNegative := durations[:0:0]
	for _, d := range durations {
		if d >= 0 {
			notNegative = append(notNegative, d)
		}
	}
	times := []time.Time{{}, start, start.Add(1), start.Add(time.Hour), start.Add(forever), start.Add(-forever), time.Unix(1<<40, 0)}
	for range 20_000 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		rules := policy.Rules{
			Delay: pick(random, notNegative...), Floor: pick(random, durations...),
			Factor: pick(random, 0, 1, 1.0001, 2, 1e300, math.MaxFloat64), MaxDelay: pick(random, notNegative...),
			Jitter: pick(random, 0, -1, 0.5, 1, 1e300, math.MaxFloat64, math.SmallestNonzeroFloat64), MaxFruitless: pick(random, 0, 0, 1, 5, math.MaxInt, -1),
			Budget: pick(random, notNegative...), GiveUpAfter: pick(random, notNegative...), MessageTimeout: pick(random, notNegative...), ProgressAfter: pick(random, durations...), PollAfter: pick(random, durations...),
			OneAnswer: random.IntN(9) == 0, RequireLastEventID: random.IntN(9) == 0, Idle: pick(random, durations...),
			Retryable: func(int) bool { return true },
			Rand:      func() float64 { return pick(random, 0, 0.5, 1, 2, -1, math.NaN(), math.Inf(1), math.Inf(-1)) },
		}
		if random.IntN(3) == 0 {
			rules.Backoff = func() backoff.BackOff {
				return pick[backoff.BackOff](random, &backoff.ZeroBackOff{}, backoff.NewConstantBackOff(pick(random, durations...)), backoff.NewExponentialBackOff())
			}
		}
		p := rules.New()
		for range 12 {
			a := policy.Attempt{
				Number: random.IntN(4), Kind: policy.Kind(random.IntN(10)), Err: pick(random, nil, errCut), Permanent: random.IntN(30) == 0,
				Status: pick(random, 0, 200, 204, 400, 503, -7, math.MaxInt), Events: random.IntN(3) - 1, Messages: random.IntN(3) - 1,
				RetrySent: random.IntN(2) == 0, Retry: pick(random, durations...), HasRetry: random.IntN(2) == 0, Asked: pick(random, durations...),
				LastEventID: pick(random, "", "1"), Start: pick(random, times...), Open: pick(random, times...), End: pick(random, times...), Silence: pick(random, durations...), LastReceived: pick(random, times...),
			}
			d := p.Next(a)
			reason, stopped := d.Stopped()
			var budget *policy.BudgetError
			if errors.As(reason, &budget) && budget.Left > budget.Asked {
				t.Fatalf("seed %d: after %+v: %v", seed, a, budget)
			}
			if stopped {
				continue
			}
			if d.Delay() < 0 {
				t.Fatalf("seed %d: after %+v: %v", seed, a, d)
			}
			floor := rules.Floor
			if floor == 0 {
				floor = 100 * time.Millisecond
			}
			if a.Kind != policy.Restarted && (d.Delay() < floor || a.HasRetry && d.Delay() < a.Retry) {
				t.Fatalf("seed %d: after %+v: %v, below the floor or the reconnection time", seed, a, d)
			}
			limit, bound := d.Limit()
			if bound != (rules.Budget > 0 || rules.GiveUpAfter > 0) {
				t.Fatalf("seed %d: after %+v: %v, with a budget of %v", seed, a, d, rules.Budget)
			}
			if wait := max(d.Delay(), a.Asked); bound && (limit <= 0 || rules.Budget > 0 && limit > rules.Budget-wait || rules.GiveUpAfter > 0 && limit > rules.GiveUpAfter-wait) {
				t.Fatalf("seed %d: after %+v: %v, beyond the budget of %v", seed, a, d, rules.Budget)
			}
			if d.IdleLimit() != rules.Idle {
				t.Fatalf("seed %d: after %+v: %v, with an idle timeout of %v", seed, a, d, rules.Idle)
			}
		}
	}
}

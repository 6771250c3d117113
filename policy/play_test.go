package policy_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/policy"
)

var (
	errDial = errors.New("dial refused")
	errCut  = errors.New("cut")
)

// start is when every stream of these tests begins.
var start = time.Date(2024, time.February, 29, 23, 59, 58, 0, time.UTC)

const forever = time.Duration(math.MaxInt64)

// A turn tells how one attempt goes. Its methods return a changed copy, so the
// turns below serve as words.
type turn struct {
	kind       policy.Kind
	err        error
	permanent  bool
	late       bool // an engine that lets the limit pass
	status     int
	after      time.Duration // from the start to the response, or to the failure
	opened     bool
	open       time.Duration // from the response to the end
	heard      time.Duration // from the response to the last byte, if it is not the end that came last
	messages   int
	quiet      time.Duration // from the last message to the end
	retrySent  bool
	retryIs    time.Duration
	retryAfter time.Duration
	id         *string
}

var (
	ended     = turn{kind: policy.Ended, status: 200, opened: true}
	dropped   = turn{kind: policy.Dropped, status: 200, opened: true, err: errCut}
	idle      = turn{kind: policy.Idle, status: 200, opened: true, err: errors.New("idle")}
	tooLarge  = turn{kind: policy.TooLarge, status: 200, opened: true, err: errors.New("event too large")}
	failed    = turn{kind: policy.Failed, err: errDial}
	restarted = turn{kind: policy.Restarted, status: 200, opened: true}
	silent    = turn{kind: policy.Dropped, status: 200, opened: true, open: forever, err: errCut} // until somebody ends it
)

func rejected(status int) turn {
	return turn{kind: policy.Rejected, status: status, err: fmt.Errorf("status %d", status)}
}

func (t turn) fails(err error) turn         { t.err = err; return t }
func (t turn) isLate() turn                 { t.late = true; return t }
func (t turn) isPermanent() turn            { t.permanent = true; return t }
func (t turn) takes(d time.Duration) turn   { t.after = d; return t }
func (t turn) lasts(d time.Duration) turn   { t.open = d; return t }
func (t turn) hears(d time.Duration) turn   { t.heard = d; return t }
func (t turn) brings(messages int) turn     { t.messages = messages; return t }
func (t turn) isQuiet(d time.Duration) turn { t.quiet = d; return t }
func (t turn) retry(d time.Duration) turn   { t.retrySent, t.retryIs = true, d; return t }
func (t turn) asksFor(d time.Duration) turn { t.retryAfter = d; return t }
func (t turn) setsID(id string) turn        { t.id = &id; return t }
func (t turn) times(n int) (turns []turn)   { return append(turns, repeat(n, t)...) }
func repeat(n int, ts ...turn) (turns []turn) {
	for range n {
		turns = append(turns, ts...)
	}
	return turns
}

func script(parts ...any) (turns []turn) {
	for _, part := range parts {
		switch part := part.(type) {
		case turn:
			turns = append(turns, part)
		case []turn:
			turns = append(turns, part...)
		default:
			panic(fmt.Sprintf("a script is made of turns, not of %T", part))
		}
	}
	return turns
}

// A player stands in for the engine: it numbers the attempts, keeps the facts of
// the stream, honours the decisions, and lets the time pass.
type player struct {
	policy policy.Reconnector

	number   int
	now      time.Time
	retry    time.Duration
	hasRetry bool
	id       string
	limit    time.Duration // of the next attempt
	limited  bool
	message  time.Duration // its message timeout

	firstEnd time.Time
	waited   time.Duration // the last wait
	asked    time.Duration // of the last attempt
}

func newPlayer(p policy.Policy) *player {
	pl := &player{policy: p.New(), now: start}
	if starter, ok := pl.policy.(policy.Starter); ok {
		pl.limits(starter.Start())
	}
	return pl
}

// limits takes the limits of the next attempt from the decision that leads to it.
func (p *player) limits(d policy.Decision) {
	p.limit, p.limited = d.Limit()
	p.message = d.MessageLimit()
}

// withID starts the stream with a last event ID.
func (p *player) withID(id string) *player { p.id = id; return p }

// play lets an attempt go as t tells, and waits as decided.
func (p *player) play(t turn) policy.Decision {
	p.number++
	a := policy.Attempt{
		Number: p.number, Kind: t.kind, Err: t.err, Permanent: t.permanent, Status: t.status,
		Events: t.messages, Messages: t.messages, Start: p.now,
	}
	p.now = p.now.Add(t.after)
	if t.opened {
		a.Open = p.now
		a.Events += 2 // without data, so nothing may come of them
		p.now = p.now.Add(t.open)
	}
	quietFrom := a.Start
	if t.messages > 0 {
		quietFrom = p.now.Add(-t.quiet)
	}
	limit := time.Duration(math.MaxInt64)
	if p.limited && t.messages == 0 {
		limit = p.limit
	}
	if p.message > 0 {
		limit = min(limit, p.message)
	}
	if !t.late && p.now.Sub(quietFrom) > limit {
		p.now = quietFrom.Add(limit)
		a.Kind, a.Err = policy.Expired, errors.New("expired")
		if a.Open.After(p.now) {
			a.Open = time.Time{}
		}
	}
	a.End = p.now
	a.Silence = p.now.Sub(quietFrom)
	switch {
	case a.Open.IsZero():
	case a.Kind == policy.Ended, a.Kind == policy.Dropped:
		a.LastReceived = a.End
	default:
		a.LastReceived = a.Open.Add(t.heard)
	}
	if p.firstEnd.IsZero() {
		p.firstEnd = a.End
	}
	if t.retrySent {
		a.RetrySent, p.retry, p.hasRetry = true, t.retryIs, true
	}
	if t.id != nil {
		p.id = *t.id
	}
	a.Retry, a.HasRetry, a.LastEventID = p.retry, p.hasRetry, p.id
	a.Asked = max(a.Retry, t.retryAfter)
	p.asked = a.Asked

	d := p.policy.Next(a)
	p.waited = 0
	if _, stopped := d.Stopped(); stopped {
		return d
	}
	p.waited = max(d.Delay(), a.Asked)
	p.now = p.now.Add(p.waited)
	p.limits(d)
	if d.Forgets() {
		p.id = ""
	}
	return d
}

// run plays the turns, and says what was decided after each.
func (p *player) run(turns []turn) (decisions []string) {
	for _, t := range turns {
		decisions = append(decisions, p.play(t).String())
	}
	return decisions
}

// waits plays the turns up to the first that ends the stream, and returns the
// waits and the reason to stop, or "going on".
func (p *player) waits(turns []turn) (waits []time.Duration, end string) {
	for _, t := range turns {
		d := p.play(t)
		if _, stopped := d.Stopped(); stopped {
			return waits, d.String()
		}
		waits = append(waits, p.waited)
	}
	return waits, "going on"
}

// seconds makes a list of Durations.
func seconds(list ...float64) (durations []time.Duration) {
	for _, s := range list {
		durations = append(durations, time.Duration(math.Round(s*float64(time.Second))))
	}
	return durations
}

// A sequence is a table row: what a policy decides after each of some turns.
type sequence struct {
	name  string
	rules policy.Rules
	id    string
	turns []turn
	want  []string
}

func (s sequence) check(t *testing.T) {
	t.Helper()
	t.Run(s.name, func(t *testing.T) {
		t.Helper()
		got := newPlayer(s.rules).withID(s.id).run(s.turns)
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("decisions (-want +got):\n%s", diff)
		}
	})
}

// decisions splits a list at its semicolons.
func decisions(list string) []string { return strings.Split(list, "; ") }

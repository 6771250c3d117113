package scenario

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/reprise-sse/reprise/policy"
)

// A Profile says what kind of scenarios to make.
type Profile struct {
	// Steady makes scenarios with only one possible outcome: they have no races, and it
	// does not matter how bodies are cut.
	Steady bool

	// Rules makes all policies Rules; Budget gives them a Budget, and Count a
	// MaxFruitless.
	Rules, Budget, Count bool

	// Hostile makes most bodies floods, and Long most scenarios long.
	Hostile, Long bool
}

// Choices are what a scenario is made from: a *rand.Rand, or anything else that
// chooses, and makes the same scenario whenever it chooses the same.
type Choices interface {
	IntN(n int) int   // from 0 up to n, which is not included
	Float64() float64 // from 0 up to 1, which is not included
}

// Generate makes a scenario.
func Generate(choices Choices, p Profile) Scenario {
	g := &generator{Choices: choices, Profile: p}
	var s Scenario
	answers := 1 + g.IntN(6)
	if p.Long {
		answers += g.IntN(10)
	}
	for range answers {
		s.Server = append(s.Server, g.answer())
	}
	switch g.IntN(4) {
	case 0:
		s.Chunk = 1 + g.IntN(7)
	case 1:
		s.Chunk = -1 - g.IntN(1000)
	}
	s.Policy = g.policy(answers)
	s.Caller = g.caller()
	return s
}

type generator struct {
	Choices
	Profile
	events int // so far, so that no two are alike
}

// often is true n times in 100.
func (g *generator) often(n int) bool { return g.IntN(100) < n }

// pick returns one of the choices.
func pick[T any](g *generator, choices ...T) T { return choices[g.IntN(len(choices))] }

// odd returns a time that coincides with no other if scenarios are to be steady.
// Otherwise it stays as round as the others, so that coincidences are common.
func (g *generator) odd(d time.Duration) time.Duration {
	if g.Steady && d > 0 && d < forever/2 {
		d += time.Duration(1 + g.IntN(999_999))
	}
	return d
}

// moment returns a time at which a scenario with many waits is probably still going on.
func (g *generator) moment() time.Duration {
	return g.odd(pick(g,
		time.Millisecond, 100*time.Millisecond, 500*time.Millisecond, time.Second, 1500*time.Millisecond,
		3*time.Second, 5*time.Second, 10*time.Second, 15*time.Second, 30*time.Second, time.Minute, time.Hour,
	))
}

func (g *generator) answer() Answer {
	a := Answer{}
	if g.often(25) {
		a.Delay = pick(g, time.Millisecond, 500*time.Millisecond, 5*time.Second, 29*time.Second)
	}
	switch n := g.IntN(100); {
	case n < 8:
		a.Failure = Refused
		return a
	case n < 9:
		a.Failure = Permanent
		return a
	case n < 12:
		a.Failure = Unprepared
		return a
	case n < 16:
		a.Failure = NeverAnswers
		return a
	case n < 28:
		a.Status = pick(g, 503, 503, 503, 429, 429, 500, 204, 404, 401, 202, 200)
		a.Type = pick(g, "", "text/html; token="+Secret, "-")
		if a.Status == 200 && a.Type == "" {
			a.Type = "text/plain"
		}
		if g.often(60) {
			a.RetryAfter = pick(g, "0", "1", "7", "120", "99999999999999999999", "-5", "soon", "+0s", "+7s", "+2m", "+-1h", "+876000h")
		}
		a.Body = []Piece{{Text: "no: " + Secret}}
		if g.often(20) {
			a.Body[0].Times = 4 << 10 // more than the stream reads of it
		}
		if g.often(10) {
			a.Body[0].Wait = pick(g, 500*time.Millisecond, time.Minute) // more than the stream waits for it
		}
	default:
		a.Type = pick(g, "", "", "", "text/event-stream; charset=utf-8")
		a.Body = g.body()
	}
	switch n := g.IntN(100); {
	case n < 55:
		a.End = Clean
	case n < 80:
		a.End = Cut
	default:
		a.End = Hold
	}
	a.Deaf = g.often(10)
	return a
}

// body returns the body of an event stream.
func (g *generator) body() []Piece {
	var pieces []Piece
	if g.often(5) {
		pieces = append(pieces, Piece{Text: "\ufeff"})
	}
	for range g.IntN(6) {
		p := Piece{Text: g.text()}
		if g.often(30) {
			p.Wait = pick(g, time.Millisecond, 500*time.Millisecond, 5*time.Second, 10*time.Second, 15*time.Second, 40*time.Second)
		}
		if g.often(15) {
			// CRLF, or CR alone.
			p.Text = strings.ReplaceAll(p.Text, "\n", pick(g, "\r\n", "\r"))
		}
		pieces = append(pieces, p)
	}
	if g.often(8) || g.Hostile && g.often(50) {
		pieces = append(pieces, g.flood()...)
	}
	if g.often(20) {
		// The time that passes before the end.
		pieces = append(pieces, Piece{Wait: pick(g, 100*time.Millisecond, 10*time.Second, 15*time.Second, 35*time.Second)})
	}
	return pieces
}

func (g *generator) id() string { return fmt.Sprintf("%d.%s", g.events, Secret) }

func (g *generator) text() string {
	g.events++
	switch n := g.IntN(100); {
	case n < 5:
		return g.scraps()
	case n < 20:
		return fmt.Sprintf("id: %s\ndata: m%d\n\n", g.id(), g.events)
	case n < 35:
		return fmt.Sprintf("data: m%d\n\n", g.events)
	case n < 40:
		return fmt.Sprintf("event: tick\ndata: m%d\ndata: two\n\n", g.events)
	case n < 46: // several at once
		return fmt.Sprintf("id: %[1]s.a\ndata: a\n\nid: %[1]s.b\n\nid: %[1]s.c\ndata: c\n\n", g.id())
	case n < 56: // priming
		return fmt.Sprintf("id: %s\ndata:\n\n", g.id())
	case n < 62: // a block without data
		return fmt.Sprintf("id: %s\nevent: tick\n\n", g.id())
	case n < 65:
		return "id\n\n"
	case n < 82:
		return "retry: " + g.retry() + "\n\n"
	case n < 90:
		return ": still here\n\n"
	case n < 97: // goes on with the next piece, or is lost
		return fmt.Sprintf("id: %s\ndata: half", g.id())
	case n < 99:
		return fmt.Sprintf("retry: 2000\nid: %s\ndata: m%d\n\n", g.id(), g.events)
	default:
		return "id: cannot\x01be sent\n\n"
	}
}

// scraps returns lines, and parts of lines, that may or may not make an event.
func (g *generator) scraps() string {
	var b strings.Builder
	for range 1 + g.IntN(6) {
		b.WriteString(pick(g,
			"data: x\n", "data\n", "data: \xff\r\n", "data: y\r", "data: \xe2", "\x82\xac", "\n", "\r", "\r\n", "\n\n",
			"id: 1\n", "id: é\r\n", "id\n", "id: a\x00b\n", "id:  s \n\n", "retry: 50\r\n", "retry: 5x\n", "retry\n",
			": c\n", "event: e\n", "\ufeff", "data: m\n\n",
		))
	}
	return b.String()
}

// retry returns the value of a retry field, of 0 to 20 digits or not a number.
func (g *generator) retry() string {
	switch g.IntN(8) {
	case 0:
		return pick(g, "", "+100", "-5", "1e3", "500ms", "0x10", "１００")
	case 1:
		return "0"
	case 2:
		digits := make([]byte, g.IntN(21))
		for i := range digits {
			digits[i] = byte('0' + g.IntN(10))
		}
		return string(digits)
	default:
		return pick(g, "1", "50", "200", "1000", "1500", "5000", "10000", "60000", "86400000")
	}
}

// flood returns an event that is too large, or what looks like one.
func (g *generator) flood() []Piece {
	const n = 4 * MaxEventSize
	times := pick(g, MaxEventSize/2, n, n, 4*n)
	if g.Hostile {
		times = pick(g, n, n, 24*n)
	}
	switch g.IntN(8) {
	case 0, 1, 2:
		return []Piece{{Text: "data: "}, {Text: "x", Times: times}, {Text: "\n\n"}}
	case 3:
		return []Piece{{Text: "data: xxxxxxxx\n", Times: times / 8}, {Text: "\n"}}
	case 4:
		return []Piece{{Text: "id: "}, {Text: "x", Times: times}, {Text: "\n\n"}}
	case 5:
		return []Piece{{Text: ": "}, {Text: "x", Times: times}, {Text: "\n\n"}}
	case 6: // many small things, each of which is allowed
		return []Piece{{Text: ": still here\n", Times: times / 8}, {Text: "id: 1\nevent: x\nwhat: y\n", Times: times / 16}, {Text: "\n\n"}}
	default:
		return []Piece{{Text: "x", Times: times}, {Text: "\n\n"}}
	}
}

func (g *generator) policy(answers int) Policy {
	if g.Rules || g.often(35) {
		return Policy{Preset: "Rules", Rules: g.rules(), Retryable: g.often(80), Random: g.Float64()}
	}
	if g.often(15) {
		preset := pick(g, "WHATWG", "Resilient", "Never", "MCPCall", "MCPListen")
		if g.Steady && preset != "Never" {
			return Policy{Preset: "Rules", Random: g.Float64()} // the presets' randomness is not ours
		}
		return Policy{Preset: preset}
	}
	var p Policy
	for range answers + g.IntN(3) {
		p.Script = append(p.Script, g.decision())
	}
	return p
}

func (g *generator) rules() policy.Rules {
	r := policy.Rules{
		Delay:              pick(g, 0, time.Second, 100*time.Millisecond, time.Nanosecond, math.MaxInt64),
		Floor:              pick(g, 0, 0, -1, 50*time.Millisecond),
		Factor:             pick(g, 0, 1, 1.5, 3, 1e300),
		MaxDelay:           pick(g, 0, 0, 5*time.Second, math.MaxInt64),
		Jitter:             pick(g, 0, -1, 0.25, 1e300),
		MaxFruitless:       pick(g, 0, 0, 1, 3, 5, -1),
		ProgressAfter:      pick(g, 0, -1, 10*time.Second),
		PollAfter:          pick(g, 0, -1, 10*time.Second),
		OneAnswer:          g.often(8),
		ForgetRefusedID:    g.often(8),
		RequireLastEventID: g.often(8),
		Idle:               g.odd(pick(g, 0, 0, -1, 5*time.Second)),
	}
	if g.often(80) {
		// Extremes are for the others.
		r.Delay = pick(g, 0, time.Second, 100*time.Millisecond)
		r.Factor = pick(g, 0, 1, 1.5, 3)
		r.Jitter = pick(g, 0, -1, 0.25)
	}
	if g.often(15) {
		r.GiveUpAfter = g.odd(pick(g, time.Second, 10*time.Second, time.Minute, 5*time.Minute))
	}
	if g.often(15) {
		r.MessageTimeout = g.odd(pick(g, time.Second, 10*time.Second, time.Minute))
	}
	if g.Budget || g.often(30) {
		r.Budget = g.odd(pick(g, time.Second, 10*time.Second, time.Minute, 5*time.Minute))
	}
	if g.Count && r.MaxFruitless == 0 {
		r.MaxFruitless = pick(g, 1, 2, 3, 4)
	}
	return r
}

func (g *generator) decision() Decision {
	if g.often(6) {
		return Decision{Verb: pick(g, Stop, GiveUp, Undecided)}
	}
	const century = 100 * 365 * 24 * time.Hour
	d := Decision{
		After: pick(g,
			0, 1, time.Millisecond, 100*time.Millisecond, time.Second, 1500*time.Millisecond,
			5*time.Second, time.Minute, 30*time.Hour,
		),
		Forget: g.often(6),
	}
	if g.often(10) {
		d.After = pick(g, math.MinInt64, -1, century, math.MaxInt64)
	}
	if g.often(30) {
		within := g.odd(pick(g, 1, time.Second, 5*time.Second, 15*time.Second, 15*time.Second, time.Minute, math.MaxInt64))
		if !g.Steady && g.often(15) {
			within = pick[time.Duration](g, math.MinInt64, -1, 0) // whether a request is sent is open
		}
		d.Within = &within
	}
	if g.often(20) {
		d.Message = g.odd(pick(g, 1, time.Second, 5*time.Second, time.Minute))
	}
	if g.often(25) {
		d.Idle = g.odd(pick(g, -1, time.Second, 10*time.Second))
	}
	return d
}

func (g *generator) caller() Caller {
	c := Caller{
		ConnectTimeout: g.odd(pick(g, 0, 0, time.Second, 5*time.Second, -1)),
		IdleTimeout:    g.odd(pick(g, 0, time.Second, 10*time.Second, 30*time.Second)),
	}
	if c.ConnectTimeout == 0 && g.Steady {
		c.ConnectTimeout = g.odd(30 * time.Second)
	}
	if g.often(12) {
		c.Post = true
		c.Key = g.often(70)
		c.Payload = pick(g, Empty, Once, Repeated, Repeated)
	}
	if g.often(15) {
		c.LastEventID = pick(g, "seed."+Secret, "é\t1")
	}
	if g.often(15) {
		c.Adopt = pick(g, Resume, Resume, Alone)
	}
	if g.often(20) {
		c.Deadline = g.odd(pick(g, time.Millisecond, time.Second, 10*time.Second, time.Minute, 24*time.Hour))
	}
	if !g.Steady && g.often(15) {
		c.Slow = pick(g, time.Millisecond, time.Second, 15*time.Second)
	}
	for range pick(g, 0, 0, 1, 1, 2, 3) {
		c.Actions = append(c.Actions, g.action())
	}
	return c
}

func (g *generator) action() Action {
	a := Action{
		On: Point(g.IntN(int(Done) + 1)),
		N:  1 + g.IntN(3),
		Do: pick(g, Restart, Restart, Restart, Restart, Cancel, Cancel, Leave, Panic, Exit),
	}
	if a.On == Done {
		a.N = 1
	}
	switch {
	case a.On == Start && g.often(70) || g.often(40):
		a.After = g.moment()
	case g.often(40):
		a.Aside = true
	}
	if a.Do == Leave {
		a.On, a.After, a.Aside = Body, 0, false
	}
	if !g.Steady {
		return a
	}
	// What is under way when the stream is interrupted by its own goroutine
	// depends on what has been read; what is done aside, on the scheduler.
	inside := a.On == Open || a.On == Comment || a.On == Retry || a.On == Body
	if a.Aside || a.After == 0 && (inside && a.Do == Restart || inside && a.On != Body && a.Do == Cancel) {
		a.Aside = false
		a.After = g.moment()
	}
	return a
}

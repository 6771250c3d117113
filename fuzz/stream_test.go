package fuzz_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/policy"
)

// FuzzStream runs a random server, a random policy and a random caller through the
// whole engine, in a bubble of fake time, and checks what must hold for all of
// them: G1 never early, G5 nothing forgotten, G6 one end, G7 nothing left, G8 one
// at a time. What the server asked for, and the last event ID, are worked out by
// the reference from the bytes that the client has read.
func FuzzStream(f *testing.F) {
	for seed := range uint32(256) {
		script := make([]byte, 300)
		x := seed*2654435761 + 12345
		for i := range script {
			x = x*1664525 + 1013904223
			script[i] = byte(x >> 24)
		}
		f.Add(script)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) { runScript(t, &dice{script: script[:min(len(script), 1<<10)]}) })
	})
}

// A dice turns the bytes of a script into choices; after the last byte it always
// shows 0.
type dice struct{ script []byte }

func (d *dice) intn(n int) int {
	if len(d.script) == 0 {
		return 0
	}
	b := d.script[0]
	d.script = d.script[1:]
	return int(b) % n
}

func (d *dice) chance(of int) bool { return d.intn(of) == of-1 }

func (d *dice) duration() time.Duration {
	return pick(d, 0, 0, time.Millisecond, 50*time.Millisecond, 100*time.Millisecond, time.Second,
		3*time.Second, 10*time.Second, 29*time.Second, 31*time.Second, time.Minute, time.Hour)
}

func pick[T any](d *dice, of ...T) T { return of[d.intn(len(of))] }

// horizon is when a caller without other plans gives up.
const horizon = 1000 * time.Hour

var (
	errRefused = errors.New("refused")
	errBroken  = errors.New("broken")
	errClosed  = errors.New("read after close")
	errGaveUp  = errors.New("the caller gave up")
)

// An exchange is one request, as the server saw it.
type exchange struct {
	attempt   int // that it belongs to
	start     time.Time
	header    http.Header
	delivered []byte        // of the body, as far as it was read
	ended     time.Time     // when the exchange was over; zero while it is not
	asked     time.Duration // by Retry-After, in a refusal
	opened    bool          // it was an event stream
}

// A play is one run of a script.
type play struct {
	t *testing.T
	*dice

	mu        sync.Mutex
	exchanges []*exchange
	attempts  int // begun, by the trace
	over      bool

	cancel    context.CancelCauseFunc
	cancelled time.Time
	busyUntil time.Time // the end of the last time that the caller took

	stream   *eventsource.Stream
	retry    time.Duration // worked out from what was delivered
	hasRetry bool
	id       string
	events   []reference.Event // of the attempt under way
	ends     []policy.Attempt
	decided  policy.Decision
	wait     *eventsource.WaitInfo
	hurrying int  // calls of Reconnect that are under way
	hurried  bool // one was made since the last attempt began: the wait may be short
	opens    int
}

func (p *play) errorf(format string, args ...any) {
	p.t.Helper()
	p.t.Errorf("at %v: "+format, append([]any{time.Since(bubbleStart)}, args...)...)
}

var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// RoundTrip is the server.
func (p *play) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	e := &exchange{start: time.Now(), header: req.Header.Clone(), attempt: p.attempts}
	if n := len(p.exchanges); n > 0 && p.exchanges[n-1].ended.IsZero() {
		p.errorf("G8: request %d came before the one before was over", n+1)
	}
	if p.over {
		p.errorf("G7: a request after the end")
	}
	p.exchanges = append(p.exchanges, e)
	p.checkRequest(e)
	n := len(p.exchanges)
	choice, delay := p.intn(20), p.duration()
	p.mu.Unlock()

	fail := func(err error) (*http.Response, error) {
		p.mu.Lock()
		e.ended = time.Now()
		p.mu.Unlock()
		return nil, err
	}
	if !sleep(req.Context(), delay) {
		return fail(req.Context().Err())
	}
	if n > 24 {
		p.giveUp() // a policy that never tires, or a redirect without end
		return fail(req.Context().Err())
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	resp := &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: req}
	body := &scriptBody{play: p, exchange: e, closed: make(chan struct{})}
	resp.Body = body
	switch choice {
	case 0:
		resp.StatusCode = http.StatusNoContent
	case 1:
		p.mu.Unlock()
		resp, err := fail(errRefused)
		p.mu.Lock()
		return resp, err
	case 2: // never answers
		p.mu.Unlock()
		<-req.Context().Done()
		resp, err := fail(req.Context().Err())
		p.mu.Lock()
		return resp, err
	case 3, 4:
		resp.StatusCode = pick(p.dice, 503, 429, 500, 404, 401, 202, 408)
		if seconds := pick(p.dice, "", "0", "7", "3600", "nonsense", "99999999999999999999"); seconds != "" {
			resp.Header.Set("Retry-After", seconds)
			if n, err := strconv.ParseUint(seconds, 10, 64); err == nil {
				e.asked = time.Duration(n) * time.Second
			} else if errors.Is(err, strconv.ErrRange) {
				e.asked = math.MaxInt64
			}
		}
		body.script(p.dice)
	case 5:
		resp.Header.Set("Content-Type", "text/html")
		body.script(p.dice)
	case 6:
		resp.StatusCode = http.StatusFound
		resp.Header.Set("Location", "/elsewhere")
	default:
		resp.Header.Set("Content-Type", "text/event-stream")
		e.opened = true
		body.script(p.dice)
	}
	return resp, nil
}

// checkRequest compares a request with the end of the attempt before. p.mu is held.
func (p *play) checkRequest(e *exchange) {
	id := "absent"
	if lines, ok := e.header["Last-Event-Id"]; ok {
		id = strings.Join(lines, "|")
	}
	want := p.id
	if want == "" {
		want = "absent"
	}
	if id != want {
		p.errorf("G5: the request has the last event ID %q, want %q", id, want)
	}
	n := len(p.exchanges)
	if n < 2 || p.exchanges[n-2].attempt == e.attempt {
		return // the first, or a redirect's
	}
	if len(p.ends) == 0 || p.wait == nil {
		p.errorf("another attempt has begun without an end and a wait before it")
		return
	}
	last := p.ends[len(p.ends)-1]
	passed := e.start.Sub(last.End)
	before := p.exchanges[n-2]
	if before.attempt != last.Number {
		before = &exchange{} // the last attempt failed before it had sent a request
	}
	if asked := p.asked(before); passed < asked {
		p.errorf("G1: attempt %d begins %v after the end of the one before, the server asked for %v", e.attempt, passed, asked)
	}
	if passed != p.wait.Waited && !p.hurried && p.hurrying == 0 {
		p.errorf("attempt %d begins after %v, the wait was set to %v", e.attempt, passed, p.wait.Waited)
	}
	p.hurried = false
}

// asked is what the server has asked for, given its last answer. p.mu is held.
func (p *play) asked(last *exchange) time.Duration {
	if p.hasRetry {
		return max(p.retry, last.asked)
	}
	return last.asked
}

// endOfAttempt compares what an attempt has made of the bytes that it has read with
// what the reference makes of them. It runs in Trace.End.
func (p *play) endOfAttempt(a policy.Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var e *exchange
	if n := len(p.exchanges); n > 0 && p.exchanges[n-1].attempt == a.Number {
		e = p.exchanges[n-1]
	}
	if e != nil && (e.ended.IsZero() || e.ended.After(a.End)) {
		p.errorf("G7: attempt %d has ended, its response has not", a.Number)
	}
	if a.Number != len(p.ends)+1 {
		p.errorf("attempt %d ends after %d others", a.Number, len(p.ends))
	}
	p.ends = append(p.ends, a)
	if e != nil && e.opened != !a.Open.IsZero() && a.Kind != policy.Failed && a.Kind != policy.Expired && a.Kind != policy.Restarted {
		p.errorf("attempt %d: opened %v, want %v", a.Number, !a.Open.IsZero(), e.opened)
	}

	var delivered []byte
	if e != nil && !a.Open.IsZero() {
		delivered = e.delivered
	}
	// An attempt that was ended from without, or by an event too large, may have
	// left any number of the last bytes unused.
	from := len(delivered)
	if a.Kind != policy.Ended && a.Kind != policy.Dropped {
		from = 0
	}
	matches := func(length int) bool {
		r := reference.Decode(delivered[:length], p.id)
		if !r.HasRetry {
			r.Retry, r.HasRetry = p.retry, p.hasRetry
		}
		if !cmp.Equal(p.events, r.Events, cmpopts.IgnoreFields(reference.Event{}, "Retry", "HasRetry", "End"), cmpopts.EquateEmpty()) ||
			r.LastEventID != a.LastEventID || r.HasRetry != a.HasRetry || a.HasRetry && r.Retry != a.Retry {
			return false
		}
		if a.Kind == policy.Ended && r.Truncated != (a.Err != nil) {
			return false
		}
		p.retry, p.hasRetry, p.id = r.Retry, r.HasRetry, r.LastEventID
		return true
	}
	length := from
	for length <= len(delivered) && !matches(length) {
		length++
	}
	if length > len(delivered) {
		p.errorf("G5: attempt %d (%v, %v) from the ID %q read %q, and ended with the ID %q, the retry %v %v, and the events %+v",
			a.Number, a.Kind, a.Err, p.id, delivered, a.LastEventID, a.Retry, a.HasRetry, p.events)
		p.retry, p.hasRetry, p.id = a.Retry, a.HasRetry, a.LastEventID
	}
	messages := 0
	for _, event := range p.events {
		if event.Data != "" {
			messages++
		}
	}
	if a.Events != len(p.events) || a.Messages != messages {
		p.errorf("attempt %d counts %d events and %d messages, want %d and %d", a.Number, a.Events, a.Messages, len(p.events), messages)
	}
	if want := p.askedAt(e); a.Asked != want {
		p.errorf("attempt %d: Asked is %v, want %v", a.Number, a.Asked, want)
	}
	p.events = nil
	p.wait = nil
}

func (p *play) askedAt(e *exchange) time.Duration {
	if e == nil {
		e = &exchange{}
	}
	if p.ends[len(p.ends)-1].Kind != policy.Rejected {
		e = &exchange{}
	}
	return p.asked(e)
}

// A scriptBody is a body whose bytes come by and by. Only Close ends a Read that
// waits, as with a body that a caller's transport has wrapped.
type scriptBody struct {
	play     *play
	exchange *exchange
	pieces   []piece
	end      error // after the last piece; nil: silence
	closed   chan struct{}
	once     sync.Once
}

type piece struct {
	delay time.Duration
	bytes []byte
}

// script chooses the body. p.mu is held.
func (b *scriptBody) script(d *dice) {
	for range d.intn(12) {
		var p piece
		p.delay = d.duration()
		for range d.intn(6) {
			p.bytes = append(p.bytes, pick(d,
				"data: x\n", "data\n", "data: \xff\r\n", "data: y\r", "\n", "\r", "\r\n", "\n\n",
				"id: 1\n", "id: é\r\n", "id\n", "id: a\x00b\n", "id: \x01\n", "id:  s \n\n",
				"retry: 0\n", "retry: 50\r\n", "retry: 7000\n", "retry: 99999999999999999999\n", "retry: 5x\n", "retry\n",
				": c\n", "event: e\n", "\xef\xbb\xbf", "data: \xe2", "\x82\xac", "data: "+strings.Repeat("z", 700)+"\n",
				"data: m\n\n", "id: 7\ndata: n\n\n",
			)...)
		}
		b.pieces = append(b.pieces, p)
	}
	b.end = pick(d, io.EOF, io.EOF, errBroken, nil)
}

func (b *scriptBody) Read(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, errClosed
	default:
	}
	if len(b.pieces) == 0 {
		if b.end == nil && b.exchange.opened {
			<-b.closed
			return 0, errClosed
		}
		return 0, b.final()
	}
	first := &b.pieces[0]
	if first.delay > 0 {
		timer := time.NewTimer(first.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-b.closed:
			return 0, errClosed
		}
		first.delay = 0
	}
	n := copy(p, first.bytes)
	b.play.mu.Lock()
	b.exchange.delivered = append(b.exchange.delivered, first.bytes[:n]...)
	b.play.mu.Unlock()
	first.bytes = first.bytes[n:]
	if len(first.bytes) == 0 {
		b.pieces = b.pieces[1:]
	}
	return n, nil
}

func (b *scriptBody) final() error {
	if b.end == nil {
		return io.EOF
	}
	return b.end
}

func (b *scriptBody) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.play.mu.Lock()
		defer b.play.mu.Unlock()
		b.exchange.ended = time.Now()
	})
	return nil
}

// sleep waits for d, and reports false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *play) giveUp() {
	p.mu.Lock()
	if p.cancelled.IsZero() {
		p.cancelled = time.Now()
	}
	p.mu.Unlock()
	p.cancel(errGaveUp)
}

// choosePolicy returns a constructor, as Client.Policy is one.
func (p *play) choosePolicy() func() policy.Reconnector {
	var inner policy.Reconnector
	switch p.intn(8) {
	case 0:
		inner = policy.WHATWG()
	case 1:
		inner = policy.Resilient()
	case 2:
		inner = policy.Rules{MaxFruitless: 3, Temporary: func(int) bool { return true }}.New()
	case 3:
		inner = policy.Rules{Budget: p.duration(), PollAfter: -1, Temporary: func(int) bool { return true }}.New()
	case 4:
		inner = policy.MCPListen()
	case 5:
		inner = policy.Never()
	case 6:
		inner = policy.Rules{Floor: -1, Jitter: -1, Delay: time.Nanosecond}.New()
	default:
		// A policy that never waits, and decides at random.
		within, idle, forget := p.duration(), p.duration(), p.chance(3)
		inner = policy.Func(func(policy.Attempt) policy.Decision {
			d := policy.After(0)
			if within > 0 {
				d = d.Within(within)
			}
			if idle > 0 {
				d = d.Idle(idle)
			}
			if forget {
				d = d.Forget()
			}
			return d
		})
	}
	return func() policy.Reconnector {
		return policy.Func(func(a policy.Attempt) policy.Decision {
			d := inner.Next(a)
			p.mu.Lock()
			p.decided = d
			p.mu.Unlock()
			return d
		})
	}
}

// runScript is one run.
func runScript(t *testing.T, d *dice) {
	p := &play{t: t, dice: d}
	ctx, cancel := context.WithCancelCause(context.Background())
	p.cancel = cancel
	if p.chance(4) {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, p.duration()+time.Second)
		defer stop()
	}

	reconnect := func() {
		p.mu.Lock()
		p.hurrying++
		p.mu.Unlock()
		p.stream.Reconnect()
		p.mu.Lock()
		p.hurrying--
		p.hurried = true
		p.mu.Unlock()
	}
	var panicIn string
	if p.chance(6) {
		panicIn = pick(d, "body", "connect", "open", "end", "wait", "retry", "comment", "prepare")
	}
	trip := func(where string) {
		if where == panicIn && p.chance(2) {
			panic(where)
		}
	}
	dones := 0
	var doneErr error
	client := eventsource.Client{
		HTTPClient:   &http.Client{Transport: p},
		Policy:       p.choosePolicy(),
		IdleTimeout:  pick(d, 0, 0, time.Second, 30*time.Second),
		MaxEventSize: pick(d, 0, -1, 100),
		Prepare: func(*http.Request) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			trip("prepare")
			if p.chance(16) {
				return errRefused
			}
			return nil
		},
		Trace: &eventsource.Trace{
			Connect: func(c eventsource.ConnectInfo) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.attempts = c.Number
				trip("connect")
			},
			Open: func(eventsource.OpenInfo) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.opens++
				trip("open")
			},
			Retry: func(time.Duration) {
				p.mu.Lock()
				defer p.mu.Unlock()
				trip("retry")
			},
			Comment: func(string) {
				p.mu.Lock()
				defer p.mu.Unlock()
				trip("comment")
			},
			End: func(a policy.Attempt) {
				p.endOfAttempt(a)
				if a.Number == 40 {
					p.giveUp() // a policy that never tires of what cannot be sent
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				trip("end")
			},
			Wait: func(w eventsource.WaitInfo) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.wait = &w
				if p.decided.Forgets() {
					p.id = ""
				}
				if w.Waited != max(w.Asked, w.Decided) || w.Asked != p.ends[len(p.ends)-1].Asked {
					p.errorf("the wait is %+v after %+v", w, p.ends[len(p.ends)-1])
				}
				trip("wait")
			},
			Done: func(err error) {
				dones++
				doneErr = err
			},
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://fuzz.test/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.chance(4) {
		p.id = "seed"
		req.Header.Set("Last-Event-ID", p.id)
	}
	p.stream = client.Stream(req)

	// What the caller does from elsewhere.
	var elsewhere sync.WaitGroup
	at := func(d time.Duration, f func()) {
		elsewhere.Go(func() {
			if sleep(ctx, d) {
				f()
			}
		})
	}
	at(horizon, p.giveUp)
	if p.chance(4) {
		at(p.duration()+p.duration(), p.giveUp)
	}
	for range p.intn(3) {
		at(p.duration()+p.duration(), reconnect)
	}

	// The loop.
	var (
		end      error
		ends     int
		left     bool
		yielded  int
		leaveAt  = -1
		panicked any
	)
	if p.chance(4) {
		leaveAt = p.intn(5)
	}
	func() {
		defer func() { panicked = recover() }()
		for e, err := range p.stream.Events() {
			if err != nil {
				end = err
				ends++
				continue
			}
			if ends > 0 {
				p.errorf("G6: an event after the error")
			}
			p.mu.Lock()
			p.events = append(p.events, reference.Event{Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
			choice, nap := p.intn(10), p.duration()
			if got := p.stream.LastEventID(); got != e.LastEventID {
				p.errorf("G5: LastEventID is %q in the body of an event that has %q", got, e.LastEventID)
			}
			if !p.cancelled.IsZero() && p.cancelled.Before(time.Now()) {
				p.errorf("G7: an event after the caller gave up")
			}
			p.mu.Unlock()
			switch choice {
			case 0:
				reconnect()
			case 1:
				time.Sleep(nap)
				p.mu.Lock()
				p.busyUntil = time.Now()
				p.mu.Unlock()
			case 2:
				if nap == time.Hour {
					p.giveUp()
				}
			}
			p.mu.Lock()
			func() { defer p.mu.Unlock(); trip("body") }()
			if yielded == leaveAt {
				left = true
				break
			}
			yielded++
		}
	}()
	over := time.Now()

	p.mu.Lock()
	p.over = true
	last := over
	if n := len(p.ends); n > 0 {
		last = p.ends[n-1].End
	}
	for i, e := range p.exchanges {
		if e.ended.IsZero() {
			p.errorf("G7: the stream is over, the response to request %d is not", i+1)
		}
	}
	if dones != 1 || doneErr != end {
		p.errorf("G6: Done was called %d times, the last time with %v; the loop was given %v", dones, doneErr, end)
	}
	if panicked != nil && panicked != panicIn {
		p.errorf("G6: a panic with %v, want %q", panicked, panicIn)
	}
	var stop *eventsource.StopError
	switch {
	case panicked != nil || left:
		if ends != 0 {
			p.errorf("G6: an error in a loop that was left: %v", end)
		}
	case ends > 1:
		p.errorf("G6: %d errors", ends)
	case errors.As(end, &stop), end == nil:
		// G2: nothing is slept before giving up.
		if !over.Equal(last) {
			p.errorf("G2: the stream ends with %v, %v after its last attempt", end, over.Sub(last))
		}
	case ctx.Err() == nil || end != context.Cause(ctx):
		p.errorf("G6: the end is %v, the context's is %v", end, context.Cause(ctx))
	case errors.Is(end, context.DeadlineExceeded):
		if deadline, _ := ctx.Deadline(); over.After(maxTime(deadline, p.busyUntil)) {
			p.errorf("G7: the deadline was at %v, the stream ends %v later", deadline.Sub(bubbleStart), over.Sub(deadline))
		}
	case errors.Is(end, errGaveUp):
		if latest := maxTime(p.cancelled, p.busyUntil); over.After(latest) {
			p.errorf("G7: the caller gave up at %v, the stream ends %v later", p.cancelled.Sub(bubbleStart), over.Sub(latest))
		}
	}
	if !slices.IsSortedFunc(p.ends, func(a, b policy.Attempt) int { return a.Start.Compare(b.Start) }) {
		p.errorf("attempts are out of order")
	}
	p.mu.Unlock()

	// G6: a second range gives one error, and nothing happens.
	n := 0
	for _, err := range p.stream.Events() {
		n++
		if err == nil {
			p.errorf("G6: a second range yields an event")
		}
	}
	if n != 1 {
		p.errorf("G6: a second range yields %d times, want one error", n)
	}
	p.stream.Reconnect()
	time.Sleep(2 * horizon) // G7: whatever was left would come to light
	cancel(nil)
	elsewhere.Wait()
	if t.Failed() {
		t.Logf("%d exchanges, %d events, the end is %v", len(p.exchanges), yielded, describe(end))
	}
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func describe(err error) string {
	if err == nil {
		return "nil"
	}
	return fmt.Sprintf("%T: %v", err, err)
}

package scenario

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// Run runs scenarios at the same time and returns what happened in each. The streams
// share a transport, and streams with equal policies share the constructor. Run must be
// called in a bubble, and takes up to LongestRun of its time.
func Run(scenarios ...Scenario) []*Record {
	records := make([]*Record, len(scenarios))
	play(scenarios, records)
	return records
}

// play is Run, but puts the records where the caller can look at them even if play does
// not return.
func play(scenarios []Scenario, records []*Record) {
	transport := make(transport)
	runs := make([]*run, len(scenarios))
	for i, s := range scenarios {
		policy := s.Policy.inForce()
		if i > 0 && reflect.DeepEqual(s.Policy, scenarios[0].Policy) {
			policy = runs[0].policy
		}
		runs[i] = newRun(s, fmt.Sprintf("server%d.test", i), transport, policy)
		records[i] = &runs[i].record
	}
	for _, r := range runs {
		go r.consume()
	}
	horizon := time.NewTimer(Horizon + 24*time.Hour)
	defer horizon.Stop()
	for _, r := range runs {
		select {
		case <-r.returned:
		case <-horizon.C:
			r.mu.Lock()
			r.record.Hung = true
			r.mu.Unlock()
			return
		}
	}
	synctest.Wait()
	for _, r := range runs {
		r.stream.Reconnect() // which does nothing after the end
		r.cancel(ErrHorizon)
	}
	time.Sleep(aftermath)
	synctest.Wait()
	for _, r := range runs {
		r.mu.Lock()
		r.record.Resumed = r.stream.LastEventID()
		r.record.Logged = r.logged.String()
		r.mu.Unlock()
		for _, err := range r.stream.Events() {
			r.record.Again = append(r.record.Again, err)
		}
	}
}

// A run is a scenario that is being run.
type run struct {
	scenario Scenario
	start    time.Time
	policy   policy.Policy
	decider  policy.Reconnector // of the stream
	stream   *eventsource.Stream
	cancel   context.CancelCauseFunc
	clock    ledger
	returned chan struct{} // closed when the loop is over
	leave    bool          // the body of the loop must break

	mu       sync.Mutex
	record   Record
	passed   map[Point]int
	answers  int // used up
	inFlight int
	payloads int // open
	logged   strings.Builder
}

func newRun(s Scenario, host string, transport transport, policy policy.Policy) *run {
	r := &run{
		scenario: s,
		start:    time.Now(),
		policy:   policy,
		returned: make(chan struct{}),
		passed:   make(map[Point]int),
	}
	transport[host] = r
	r.record.Scenario = s

	ctx, cancel := context.WithCancelCause(context.Background())
	stop := context.CancelFunc(func() {})
	if s.Caller.Deadline > 0 {
		ctx, stop = context.WithTimeout(ctx, s.Caller.Deadline)
	}
	r.cancel = cancel
	horizon := time.AfterFunc(Horizon, func() { r.cancel(ErrHorizon) })
	go func() {
		<-r.returned
		stop()
		horizon.Stop()
	}()

	client := eventsource.Client{
		HTTPClient:     &http.Client{Transport: transport},
		Policy:         (*observedPolicy)(r),
		Clock:          &r.clock,
		Prepare:        r.prepare,
		ConnectTimeout: s.Caller.ConnectTimeout,
		IdleTimeout:    s.Caller.IdleTimeout,
		MaxEventSize:   MaxEventSize,
		Trace:          func(*http.Request) *eventsource.Trace { return r.trace() },
	}
	req := r.request(ctx, host)
	switch {
	case s.Caller.Adopt == Request:
		r.stream = client.Stream(req)
	default:
		a := r.begin(r.answer())
		a.Adopted = true
		resp := r.respond(a, ctx)
		if s.Caller.Adopt == Resume {
			r.stream = client.Adopt(resp, req)
		} else {
			resp.Request = req
			if req.Body != nil {
				req.Body.Close() // it has been sent
			}
			r.stream = client.Adopt(resp, nil)
		}
	}
	return r
}

func (r *run) request(ctx context.Context, host string) *http.Request {
	c := r.scenario.Caller
	method := http.MethodGet
	if c.Post {
		method = http.MethodPost
	}
	target := "http://" + Secret + "@" + host + "/feed?token=" + Secret + "#" + Secret
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+Secret)
	if c.Key {
		req.Header.Set("Idempotency-Key", Secret)
	}
	if c.LastEventID != "" {
		req.Header.Set("Last-Event-ID", c.LastEventID)
	}
	if c.Post && c.Payload != Empty {
		req.Body = r.payload()
		if c.Payload == Repeated {
			req.GetBody = func() (io.ReadCloser, error) { return r.payload(), nil }
		}
	}
	return req
}

// PayloadText is the body of every POST that has one.
const PayloadText = `{"ask":1}`

// payload returns a body of a request, which counts as open until it is closed.
func (r *run) payload() io.ReadCloser {
	r.mu.Lock()
	r.payloads++
	r.mu.Unlock()
	return &payload{run: r, Reader: strings.NewReader(PayloadText)}
}

type payload struct {
	run *run
	io.Reader
	once sync.Once
}

func (p *payload) Close() error {
	p.once.Do(func() {
		p.run.mu.Lock()
		p.run.payloads--
		p.run.mu.Unlock()
	})
	return nil
}

// answer takes the next answer of the script.
func (r *run) answer() Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.answers
	r.answers++
	if n < len(r.scenario.Server) {
		return r.scenario.Server[n]
	}
	return Answer{Status: http.StatusNoContent}
}

// begin starts the record of an attempt.
func (r *run) begin(answer Answer) *Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &Attempt{Number: len(r.record.Attempts) + 1, Answer: answer, Began: r.now()}
	r.record.Attempts = append(r.record.Attempts, a)
	return a
}

// latest returns the attempt that began last; nil before the first.
func (r *run) latest() *Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.record.Attempts) == 0 {
		return nil
	}
	return r.record.Attempts[len(r.record.Attempts)-1]
}

func (r *run) now() time.Duration { return time.Since(r.start) }

// note writes a line of the log. The run's mu is held.
func (r *run) note(what, format string, args ...any) {
	r.record.Log = append(r.record.Log, Entry{
		At: r.now(), Number: len(r.record.Attempts), What: what, format: format, args: args,
	})
}

// consume is the caller's loop.
func (r *run) consume() {
	defer func() {
		r.mu.Lock()
		r.note(EntryReturned, "")
		r.record.Returned = r.now()
		r.mu.Unlock()
		close(r.returned)
	}()
	defer func() {
		if v := recover(); v != nil {
			r.mu.Lock()
			r.record.Panicked = v
			r.note(EntryPanicked, ": %v", v)
			r.mu.Unlock()
		}
	}()
	r.pass(Start)
	for event, err := range r.stream.Events() {
		r.mu.Lock()
		if len(r.record.Errors) > 0 {
			r.record.Surplus++
		}
		if err != nil {
			r.record.Errors = append(r.record.Errors, err)
			r.note(EntryError, ": %v", err)
			if event != (eventsource.Event{}) {
				r.record.Surplus++ // an event and an error at once
			}
			r.mu.Unlock()
			continue
		}
		a := r.record.Attempts[len(r.record.Attempts)-1]
		a.Events = append(a.Events, Delivery{r.now(), event, r.stream.LastEventID()})
		r.note(EntryEvent, " %+v", event)
		r.mu.Unlock()
		r.pass(Body)
		if r.leave {
			r.mu.Lock()
			r.record.Left = true
			r.mu.Unlock()
			break
		}
		time.Sleep(r.scenario.Caller.Slow)
	}
}

// pass passes a point: it does the actions on it, or starts them.
func (r *run) pass(p Point) {
	r.mu.Lock()
	r.passed[p]++
	n := r.passed[p]
	r.mu.Unlock()
	for _, action := range r.scenario.Caller.Actions {
		if action.On != p || max(action.N, 1) != n {
			continue
		}
		if action.After <= 0 && !action.Aside {
			r.do(action.Do, p)
			continue
		}
		go func() {
			if action.After > 0 {
				timer := time.NewTimer(action.After)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-r.returned:
					return
				}
			}
			r.doAside(action.Do)
		}()
	}
}

// do does a deed on the goroutine that ranges.
func (r *run) do(d Deed, at Point) {
	if d == Leave && at != Body || at == Start && (d == Panic || d == Exit) {
		return // there is nothing to break out of
	}
	switch d {
	case Leave:
		r.noteDeed(d)
		r.leave = true
	case Panic:
		r.noteDeed(d)
		panic(ErrPanic)
	case Exit:
		r.noteDeed(d)
		r.mu.Lock()
		r.record.Exited = true
		r.mu.Unlock()
		runtime.Goexit()
	default:
		r.doAside(d)
	}
}

// doAside does a deed that any goroutine can do.
func (r *run) doAside(d Deed) {
	switch d {
	case Cancel:
		r.noteDeed(d)
		r.cancel(ErrCancelled)
	case Restart:
		r.noteDeed(d)
		r.stream.Reconnect()
	}
}

func (r *run) noteDeed(d Deed) {
	r.mu.Lock()
	r.note(d.String(), "")
	r.mu.Unlock()
}

// prepare is Client.Prepare, and the beginning of an attempt.
func (r *run) prepare(req *http.Request) error {
	a := r.begin(r.answer())
	r.mu.Lock()
	r.note(Prepare.String(), "")
	r.mu.Unlock()
	r.pass(Prepare)
	if a.Answer.Failure == Unprepared {
		r.over(a, ErrUnprepared)
		return fmt.Errorf("asking %s: %w", req.URL, ErrUnprepared)
	}
	return nil
}

// over records that the client can know that an attempt is over.
func (r *run) over(a *Attempt, outcome error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.HasOver {
		a.HasOver, a.Over, a.Outcome = true, r.now(), outcome
	}
}

// A transport is the network of all runs, by host.
type transport map[string]*run

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t[req.URL.Host].roundTrip(req)
}

// roundTrip answers a request. Like net/http's Transport it does not send a request whose
// context is done, and like HTTP/2's it reports a cancellation but not the cause.
func (r *run) roundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	var body []byte
	if req.Body != nil {
		defer req.Body.Close()
		body, _ = io.ReadAll(req.Body)
	}
	a := r.latest()
	if a == nil || a.Sent || a.Adopted {
		a = r.begin(r.answer()) // nobody has prepared this request
	}
	if ctx.Err() != nil {
		r.over(a, ctx.Err())
		return nil, ctx.Err()
	}
	r.mu.Lock()
	a.Sent, a.Header, a.Body = true, req.Header.Clone(), string(body)
	r.note(RoundTrip.String(), "")
	if len(r.record.Done) > 0 {
		r.record.Late++
	}
	if len(r.record.Attempts) > MaxRequests {
		r.record.Runaway = true
		r.mu.Unlock()
		r.cancel(ErrHorizon)
		r.mu.Lock()
	}
	r.launch()
	r.mu.Unlock()
	failed := true // unless there is a response
	defer func() {
		if failed {
			r.mu.Lock()
			r.land()
			r.mu.Unlock()
		}
	}()
	r.pass(RoundTrip)

	if a.Answer.Failure == NeverAnswers {
		<-ctx.Done()
	} else if a.Answer.Delay > 0 {
		timer := time.NewTimer(a.Answer.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		r.over(a, ctx.Err())
		return nil, ctx.Err()
	}
	switch a.Answer.Failure {
	case Refused:
		r.over(a, ErrRefused)
		return nil, fmt.Errorf("dial %s: %w", req.URL, ErrRefused)
	case Permanent:
		r.over(a, ErrRefused)
		return nil, backoff.Permanent(fmt.Errorf("dial %s: %w", req.URL, ErrRefused))
	}
	failed = false
	resp := r.respond(a, ctx)
	resp.Request = req
	return resp, nil
}

// launch and land count what is in flight: requests without a response yet, and
// responses whose body the client has not closed. The run's mu is held.
func (r *run) launch() {
	r.inFlight++
	r.record.InFlight = max(r.record.InFlight, r.inFlight)
}

func (r *run) land() { r.inFlight-- }

// trace returns the hooks of the stream: the record's, and those of a LogTrace.
func (r *run) trace() *eventsource.Trace {
	logger := eventsource.LogTrace(slog.New(slog.NewTextHandler(&r.logged, &slog.HandlerOptions{Level: slog.LevelDebug})))(nil)
	note := func(p Point, log func(), f func(a *Attempt), format string, args ...any) {
		r.mu.Lock()
		log()
		if n := len(r.record.Attempts); n > 0 {
			f(r.record.Attempts[n-1])
		}
		r.note(p.String(), format, args...)
		r.mu.Unlock()
		r.pass(p)
	}
	return &eventsource.Trace{
		Connect: func(i eventsource.ConnectInfo) {
			note(Connect, func() { logger.Connect(i) }, func(a *Attempt) { a.Connected = append(a.Connected, r.now()) }, " %d", i.Number)
		},
		Open: func(i eventsource.OpenInfo) {
			note(Open, func() { logger.Open(i) }, func(a *Attempt) { a.Opened = append(a.Opened, r.now()) }, " %d", i.Number)
		},
		Comment: func(text string) {
			note(Comment, func() {}, func(a *Attempt) { a.Comments = append(a.Comments, text) }, " %q", text)
		},
		Retry: func(d time.Duration) {
			note(Retry, func() { logger.Retry(d) }, func(a *Attempt) { a.Retries = append(a.Retries, d) }, " %v", d)
		},
		End: func(facts policy.Attempt) {
			if facts.Number > len(r.record.Attempts) {
				// It ended before Prepare was called.
				r.begin(Answer{})
			}
			note(AttemptEnd, func() { logger.End(facts) }, func(a *Attempt) {
				a.Ended = append(a.Ended, r.now())
				a.Reported = &facts
				if !a.HasOver && !a.HasAnswer {
					a.HasOver, a.Over, a.Outcome = true, r.now(), facts.Err // nothing was sent
				}
			}, " %d: %v, %d messages, asked %v, ID %q: %v", facts.Number, facts.Kind, facts.Messages, facts.Asked, facts.LastEventID, facts.Err)
		},
		Wait: func(i eventsource.WaitInfo) {
			note(Wait, func() { logger.Wait(i) }, func(a *Attempt) { a.Waited = append(a.Waited, i) },
				" %v: decided %v, asked %v", i.Waited, i.Decided, i.Asked)
		},
		Done: func(err error) {
			r.mu.Lock()
			logger.Done(err)
			r.record.Done = append(r.record.Done, err)
			if len(r.record.Done) == 1 {
				r.record.DoneAt = r.now()
				r.record.Timers, r.record.Bodies, r.record.Payloads = r.clock.count(), r.inFlight, r.payloads
			}
			r.note(Done.String(), ": %v", err)
			r.mu.Unlock()
			r.pass(Done)
		},
	}
}

// observedPolicy is the run's policy. The Reconnector that it makes records what it is
// asked.
type observedPolicy run

func (o *observedPolicy) New() policy.Reconnector {
	o.decider = o.policy.New()
	return (*observed)(o)
}

type observed run

func (o *observed) Start() policy.Decision {
	if starter, ok := o.decider.(policy.Starter); ok {
		o.record.Started = starter.Start()
	} else {
		o.record.Started = policy.After(0)
	}
	return o.record.Started
}

func (o *observed) Next(facts policy.Attempt) policy.Decision {
	r := (*run)(o)
	r.pass(Decide)
	decision := r.decider.Next(facts)
	a := r.latest()
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Asked, a.Decided = &facts, decision
	r.note(Decide.String(), ": %v", decision)
	return decision
}

package eventsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/policy"
)

// A stream is in one of these states, and moves only along these arrows:
//
//	Ready --> Connecting: range over Events
//	Ready --> Open: range, the adopted response is an event stream
//	Ready --> Deciding: range, the adopted response is rejected
//	Ready --> Over: range, the context is done
//	Connecting --> Open: 200 and text/event-stream
//	Connecting --> Deciding: failed, rejected, expired, restarted
//	Connecting --> Over: the context is done
//	Open --> Deciding: ended, dropped, idle, expired, too large, restarted
//	Open --> Over: the loop is left, the context is done
//	Deciding --> Waiting: another attempt
//	Deciding --> Over: the policy stops, the wait does not fit, the request cannot be repeated
//	Waiting --> Connecting: the wait is over
//	Waiting --> Over: the context is done
//
// Connecting and Open are in attempt.go: attempt.connect and attempt.read. Deciding is
// Stream.decide, Waiting is Stream.wait. docs/guide.md draws the diagram.

// A Stream is a stream of events that reconnects. [Client.Stream] and [Client.Adopt]
// make it; ranging over [Stream.Events] runs it. There is nothing to close: a stream
// that is not being ranged over holds no connection, timer or goroutine.
type Stream struct {
	// These are from the Client, and with its defaults.
	httpClient     *http.Client
	clock          clock.Clock
	prepare        func(*http.Request) error  // may be nil
	newTrace       func(*http.Request) *Trace // may be nil
	isMessage      func(Event) bool
	connectTimeout time.Duration
	idleTimeout    time.Duration
	linger         time.Duration

	policy  policy.Reconnector
	trace   *Trace         // not nil; the stream's own once it is ranged over
	adopted *http.Response // nil once its attempt has begun

	// These belong to the ranging goroutine.
	replay    replay
	decoder   Decoder
	suspected *time.Time    // connections older than this may be dead; nil once a response has come
	retry     time.Duration // the reconnection time, if hasRetry
	hasRetry  bool

	mu          sync.Mutex // guards what follows; no hook or policy is called under it
	state       streamState
	restart     bool // Reconnect was called and no attempt has begun since
	lastEventID string
	interrupt   context.CancelCauseFunc // ends the attempt or cuts short the wait that is under way
}

type streamState uint8

const (
	stateNew streamState = iota
	stateRunning
	stateOver
)

var noTrace Trace

var errUsed = errors.New("eventsource: a stream can be ranged over only once; make a new one")

func newStream(c Client, req *http.Request, adopted *http.Response) *Stream {
	s := &Stream{
		httpClient:     c.HTTPClient,
		clock:          c.Clock,
		prepare:        c.Prepare,
		newTrace:       c.Trace,
		isMessage:      c.IsMessage,
		connectTimeout: c.ConnectTimeout,
		idleTimeout:    c.IdleTimeout,
		linger:         c.Linger,

		trace:   &noTrace,
		adopted: adopted,
		replay:  newReplay(req),
	}
	if s.httpClient == nil {
		s.httpClient = http.DefaultClient
	}
	if s.isMessage == nil {
		s.isMessage = hasData
	}
	if s.clock == nil {
		s.clock = clock.System()
	}
	if c.Policy == nil {
		c.Policy = policy.WHATWG()
	}
	if s.policy = c.Policy.New(); s.policy == nil {
		panic("eventsource: New of Client.Policy returned nil")
	}
	if req != nil {
		s.lastEventID = takeLastEventID(maps.Clone(req.Header))
	}
	s.decoder.limit = c.MaxEventSize
	return s
}

// Events returns the events of the stream, in order, each with a nil error. If
// the stream does not end in an orderly way, a last pair holds a zero Event and the
// error: a [*StopError] if the policy gave up or the engine could not follow its
// decision, or the cause of the context's end. What the stream survives is not an
// error here; a [Trace] sees it.
//
// An end is orderly when the policy says so: with [policy.WHATWG], only after a
// response with status 204. If the request cannot be repeated, a clean end of its
// response is an orderly end too.
//
// Everything runs on the goroutine that ranges: a slow loop body slows down the
// reading, and through TCP the server; nothing is buffered beyond what one read
// brought. Leaving the loop by break, return or panic closes the connection. To end
// the stream from elsewhere, cancel the request's context.
//
// The sequence is single use: a second range is given one error that says so.
func (s *Stream) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if !s.begin() {
			yield(Event{}, errUsed)
			return
		}
		defer s.finish(nil) // when the loop is left, or a body or hook panics
		s.startTrace()
		err, left := s.run(yield)
		if left {
			return
		}
		s.finish(err)
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// LastEventID returns the stream's last event ID: that of the last event that the loop
// was given, or of a complete block without data after it, or else the one that the
// request came with. It is what the next attempt will send, and what to store in order
// to resume later. It may be called at any time from any goroutine, and never names an
// event that the loop has not been given.
func (s *Stream) LastEventID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastEventID
}

// Reconnect asks for a new connection now. It drops a connection that is open or
// being made, and cuts a wait short, but not to less than the server asked for. The
// next attempt does not use a connection from before, not even one of the pool, as
// after an [Client.IdleTimeout]. The attempt that Reconnect ends has the Kind
// policy.Restarted, and the policy decides as always.
//
// Reconnect returns at once. Before the stream is ranged over, and after its
// end, it does nothing. It may be called from any goroutine, from the loop body,
// and from hooks.
func (s *Stream) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateRunning {
		return
	}
	s.restart = true
	if s.interrupt != nil {
		s.interrupt(&interruption{kind: policy.Restarted})
	}
}

// Format implements fmt.Formatter, so that a Stream that is printed or logged shows
// nothing of what it holds, such as a last event ID or the headers of its request.
func (s *Stream) Format(f fmt.State, _ rune) { io.WriteString(f, "eventsource.Stream") }

// begin marks the stream as running. It reports false if the stream has been ranged
// over before.
func (s *Stream) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateNew {
		return false
	}
	s.state = stateRunning
	return true
}

// finish releases what the stream still holds and reports its end, once.
func (s *Stream) finish(err error) {
	s.mu.Lock()
	over := s.state == stateOver
	s.state = stateOver
	s.mu.Unlock()
	if over {
		return
	}
	if resp := s.adopted; resp != nil && resp.Body != nil {
		if resp.ProtoMajor >= 2 {
			go resp.Body.Close() // as in attempt.release
		} else {
			resp.Body.Close()
		}
	}
	s.replay.close()
	s.decoder = Decoder{}
	if s.trace.Done != nil {
		s.trace.Done(err)
	}
}

// startTrace makes the Trace of the stream.
func (s *Stream) startTrace() {
	if s.newTrace == nil {
		return
	}
	req := s.replay.request
	if req == nil {
		req = s.adopted.Request
	}
	if t := s.newTrace(req); t != nil {
		s.trace = t
	}
}

// context returns the one context that governs the stream.
func (s *Stream) context() context.Context {
	switch {
	case s.replay.request != nil:
		return s.replay.request.Context()
	case s.adopted.Request != nil:
		return s.adopted.Request.Context()
	default:
		return context.Background()
	}
}

// run makes attempts until there is no reason for another. It returns how the stream
// ended, or that the loop was left.
//
// A stream spends its life in attempt, which is called from here, so this frame stays
// on the stack of every idle stream. What happens between attempts has frames of its
// own.
func (s *Stream) run(yield func(Event, error) bool) (end error, left bool) {
	ctx := s.context()
	next, over, end := s.first(ctx)
	if over {
		return end, false
	}
	for number := 1; ctx.Err() == nil; number++ {
		facts, left := s.attempt(ctx, number, &next, yield)
		if left {
			return nil, true
		}
		if next, over, end = s.decide(ctx, facts); over {
			return end, false
		}
	}
	return context.Cause(ctx), false
}

// first returns the decision that the first attempt follows, once its wait is over; or
// that there is to be no attempt, and how the stream ends.
func (s *Stream) first(ctx context.Context) (next policy.Decision, over bool, end error) {
	starter, ok := s.policy.(policy.Starter)
	if !ok || ctx.Err() != nil {
		return policy.After(0), false, nil // without limits
	}
	next = starter.Start()
	if ctx.Err() != nil {
		return next, false, nil
	}
	if next.Forgets() {
		s.setLastEventID("")
	}
	_, stopped := next.Stopped()
	if !stopped && (next.Delay() == 0 || s.adopted != nil) {
		return next, false, nil // there is nothing to wait for with a response in hand
	}
	now := s.clock.Now()
	begin := &policy.Attempt{Start: now, End: now}
	if end, over = s.mustEnd(ctx, begin, next); over {
		return next, true, end
	}
	return s.follow(ctx, begin, next), false, nil
}

// hasData tells messages from other events, unless the caller says how.
func hasData(e Event) bool { return e.Data != "" }

// decide does what comes between two attempts: it reports the end of the first, asks
// the policy, and waits. It returns the decision that the next attempt follows, or
// that the stream is over and how it ends. If ctx is done it returns early, and run
// ends the stream.
func (s *Stream) decide(ctx context.Context, facts *policy.Attempt) (next policy.Decision, over bool, end error) {
	if ctx.Err() != nil {
		return next, false, nil
	}
	if s.trace.End != nil {
		s.trace.End(*facts)
		if ctx.Err() != nil {
			return next, false, nil
		}
	}
	next = s.policy.Next(*facts)
	if ctx.Err() != nil {
		return next, false, nil
	}
	if end, over = s.mustEnd(ctx, facts, next); over {
		return next, true, end
	}
	return s.follow(ctx, facts, next), false, nil
}

// follow does what a decision to connect again asks for before the next attempt. It
// returns the decision that the attempt follows.
func (s *Stream) follow(ctx context.Context, facts *policy.Attempt, next policy.Decision) policy.Decision {
	if next.Forgets() {
		s.setLastEventID("")
	}
	s.wait(ctx, facts, next.Delay())
	if limit, ok := next.Limit(); ok {
		// It counts from the end of the whole wait, which Reconnect may have cut short.
		next = next.Within(addSaturating(max(limit, 0), s.rest(facts, waitAfter(facts, next.Delay()))))
	}
	return next
}

// mustEnd reports whether the stream ends after this decision, and how: the decision
// was to stop, or it cannot be followed.
func (s *Stream) mustEnd(ctx context.Context, facts *policy.Attempt, d policy.Decision) (end error, over bool) {
	if reason, stopped := d.Stopped(); stopped {
		if reason == nil {
			return nil, true
		}
		return &StopError{Reason: reason, Attempt: *facts}, true
	}
	if !s.replay.repeatable {
		if facts.Kind == policy.Ended && facts.Err == nil {
			return nil, true
		}
		return &StopError{Reason: ErrNotReplayable, Attempt: *facts}, true
	}
	if deadline, ok := ctx.Deadline(); ok {
		// G2: a wait that cannot end in time is not begun. The context's deadline is
		// the only time here that is not the Clock's.
		wait, left := waitAfter(facts, d.Delay()), time.Until(deadline)
		s.mu.Lock()
		if s.restart {
			wait = facts.Asked // Reconnect would cut it short
		}
		s.mu.Unlock()
		if s.rest(facts, wait) >= left {
			return &StopError{Reason: &deadlineError{wait, left}, Attempt: *facts}, true
		}
	}
	return nil, false
}

// waitAfter returns the wait that follows an attempt.
func waitAfter(facts *policy.Attempt, decided time.Duration) time.Duration {
	return max(decided, facts.Asked) // G1: never sooner than the server asked
}

// addSaturating returns the sum of d and e, which is not negative, or the longest
// Duration.
func addSaturating(d, e time.Duration) time.Duration {
	if sum := d + e; sum >= d {
		return sum
	}
	return math.MaxInt64
}

// rest returns what is left of a wait, which counts from the end of the attempt.
func (s *Stream) rest(facts *policy.Attempt, wait time.Duration) time.Duration {
	return max(wait-s.clock.Now().Sub(facts.End), 0)
}

// wait returns once the wait is over or ctx is done. If Reconnect cuts the wait
// short, only the part that the server asked for is waited.
func (s *Stream) wait(ctx context.Context, facts *policy.Attempt, decided time.Duration) {
	info := WaitInfo{
		Number:  facts.Number + 1,
		Asked:   facts.Asked,
		Decided: decided,
		Waited:  waitAfter(facts, decided),
	}
	rest := s.rest(facts, info.Waited)
	if rest == 0 {
		if s.trace.Wait != nil {
			s.trace.Wait(info)
		}
		return
	}

	wake := make(chan struct{}, 1) // a signal to look again, from the timer and from Reconnect
	timer := s.clock.AfterFunc(rest, func() { signal(wake) })
	defer timer.Stop()
	s.mu.Lock()
	s.interrupt = func(error) { signal(wake) }
	if s.restart {
		signal(wake) // the timer may have been quicker
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.interrupt = nil
		s.mu.Unlock()
	}()
	if s.trace.Wait != nil {
		s.trace.Wait(info)
	}

	for rest > 0 {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		wait := info.Waited
		s.mu.Lock()
		if s.restart {
			wait = info.Asked
		}
		s.mu.Unlock()
		if rest = s.rest(facts, wait); rest > 0 {
			timer.Reset(rest)
		}
	}
}

// signal sends without blocking: one signal that has not been received yet is enough.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *Stream) setLastEventID(id string) {
	s.mu.Lock()
	s.lastEventID = id
	s.mu.Unlock()
}

// A deadlineError is the reason to stop when a wait cannot end before the deadline of
// the context.
type deadlineError struct{ wait, left time.Duration }

func (e *deadlineError) Error() string {
	return fmt.Sprintf("a wait of %v does not fit in the %v left to the context's deadline", e.wait, max(e.left, 0))
}

func (e *deadlineError) Unwrap() error { return context.DeadlineExceeded }

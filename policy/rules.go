package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"reflect"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Rules is the configurable [Policy]: a set of numbers and switches. The zero value is
// [WHATWG]. The presets are Rules too, so a number of theirs is changed by assigning to
// the field.
//
// Zero always means the default that the field names. Rules may be copied and
// shared freely. Their functions are called by every stream that uses them, and
// must be safe for concurrent use.
//
// The rules are tried in this order:
//
//  1. Stop with the attempt's error if it was permanent, if its error is or wraps that
//     of [Permanent], or if an event was too large.
//  2. OneAnswer: stop after an attempt that brought a message.
//  3. Stop without an error after status 204, and with the attempt's error after
//     any other response that is not an event stream, unless Retryable or
//     ForgetRefusedID says otherwise.
//  4. RequireLastEventID: stop with [ErrNotResumable] if there is no last event ID.
//  5. Count: a productive attempt ends the run of fruitless ones, a poll leaves
//     it as it is, and a fruitless one makes it longer.
//  6. After a restart by the caller, which is never fruitless, go on with 9, without a
//     wait of the client's own.
//  7. MaxFruitless: stop with [ErrExhausted].
//  8. Choose the wait. After a productive attempt, a poll and the first fruitless
//     attempt of a run it is the reconnection time, or Delay while the server has
//     set none; from the second fruitless attempt on it grows with every one.
//  9. Budget and GiveUpAfter: stop with a [*BudgetError] if the wait cannot end within
//     what is left, else limit the next attempt to the rest.
//
// The reconnection time, once set, is waited exactly; a wait chosen by the
// client gets a random share on top, so that many clients do not come back at the
// same moment. All arithmetic saturates at the longest Duration, about 292 years.
type Rules struct {
	// Delay is the wait before a reconnection while the server has sent no
	// retry field. Zero means 3 s; a negative Delay means none, so that Floor holds.
	Delay time.Duration

	// Floor is the shortest wait, even with a reconnection time of zero. Zero
	// means 100 ms; a negative Floor means none. Without a Floor, a server that
	// sends retry: 0 and closes is asked again as fast as it can answer, because
	// multiplying zero does not make it grow.
	Floor time.Duration

	// Factor is what the wait is multiplied by for every fruitless attempt of a
	// run after the first. Zero means 2; 1 means no growth. It must not be less
	// than 1, infinite or NaN.
	Factor float64

	// MaxDelay is where that growth ends. It never shortens a wait that starts
	// out longer, as it does with a long reconnection time. Zero means 30 s. It
	// must not be negative.
	MaxDelay time.Duration

	// Backoff, if set, makes the schedule of a run in place of Factor and
	// MaxDelay. The first fruitless attempt of a run is followed by the usual
	// wait; each one after it by the schedule's next step, or by that usual wait
	// if the step is shorter. If the schedule returns backoff.Stop the stream
	// ends with [ErrExhausted]. After a productive attempt the schedule is
	// dropped, and Backoff is called again, and the new schedule reset, when the
	// next is needed. Backoff must not return nil.
	//
	// Most schedules of the backoff package add randomness of their own, so set
	// Jitter to -1; and its ExponentialBackOff stops by the system's clock after
	// 15 minutes unless its MaxElapsedTime is set to 0.
	Backoff func() backoff.BackOff

	// Jitter bounds the random share that is added to the waits that the client
	// chose: at 0.5, a wait of 4 s becomes one of 4 s up to 6 s. The client
	// chose Delay, and every wait that has grown; a wait that the server asked
	// for gets none. Zero means 0.5; a negative Jitter means none. It must not
	// be infinite or NaN.
	Jitter float64

	// MaxFruitless ends the stream with [ErrExhausted] once this many
	// reconnections in a row were fruitless. The first attempt of a stream never
	// counts, because it is not a reconnection, so MaxFruitless+1 attempts are made
	// at a server that is never there. Zero means no limit. A negative MaxFruitless
	// allows no fruitless attempt at all: the stream ends with the first one, even
	// if that is its first attempt.
	MaxFruitless int

	// Budget is the longest time that the stream goes on without a message. It
	// counts from the end of the first attempt, and starts again at the end of
	// every attempt that brought a message; it does not limit an open attempt that
	// has brought one. A wait that would not end within the Budget is not begun:
	// the stream ends at once with a [*BudgetError]. After a shorter wait the next
	// attempt must bring a message within the rest. Zero means no limit. It must
	// not be negative.
	//
	// Budget says how long an outage may last. If the question is how long the caller
	// goes without a message, whatever the reason, set GiveUpAfter.
	Budget time.Duration

	// GiveUpAfter is the longest time without a message from the first moment of the
	// stream on, in every state: connecting, open before a message and after it, and
	// waiting. When it has passed, or a wait would last longer than what is left of it,
	// the stream ends with a [*BudgetError]. The time that the loop body takes does not
	// count. Together with OneAnswer it limits the time to the first message of an
	// answer. Zero means no limit. It must not be negative.
	//
	// A server may rightly have nothing to say for hours. If it sends keep-alives then,
	// an idle timeout notices that it has vanished, and GiveUpAfter is not needed.
	GiveUpAfter time.Duration

	// MessageTimeout ends an attempt, but not the stream, once no message has come for
	// so long, since its start or since the last one. It applies to all attempts but
	// the first, and is for servers that keep a resumed connection alive without ever
	// sending what was asked for. Zero means no limit. It must not be negative.
	MessageTimeout time.Duration

	// ProgressAfter is how long a stream must stay open to be productive even if
	// it is silent, up to the last sign of life of the server: its last byte, or the
	// end if the server or the network ended it. Zero means 30 s; a negative
	// ProgressAfter means that only messages count. It ends a run of fruitless attempts
	// but, unlike a message, gives no new Budget.
	ProgressAfter time.Duration

	// PollAfter makes a poll of an attempt that ended cleanly and without a message, if
	// the reconnection time in force is at least PollAfter. A poll neither lengthens nor
	// ends a run, and is followed by exactly the reconnection time; Budget and
	// GiveUpAfter bound polls too. With a negative PollAfter any reconnection time that
	// the server has set will do. Zero means that there are no polls.
	PollAfter time.Duration

	// Retryable reports whether the server may answer with an event stream later,
	// after a response with this status that was not one. It is called with 200 for
	// a response of the wrong type; it is never called with 204. Nil means that no
	// status is retryable.
	Retryable func(status int) bool

	// ForgetRefusedID takes a 4xx that is neither Retryable nor 401, 403, 404 or
	// 405 for the refusal of a last event ID that the server no longer knows, if the
	// request had one or the stream has been open before. The stream forgets the ID
	// and goes on, and the attempt counts as fruitless. Events that the server has
	// sent since are lost, so do not set it where a gap matters.
	ForgetRefusedID bool

	// OneAnswer is for a request that has one answer, such as a language model's: it is
	// retried by the rules until the first message, and never after it, because another
	// attempt would begin the answer anew. After a message a clean end ends the stream
	// with nil, and any other end with its error; a restart by the caller ends it with
	// [ErrExhausted]. Do not set it for a subscription.
	//
	// A POST is repeated at all only if it is marked as idempotent: see Client.Stream.
	OneAnswer bool

	// RequireLastEventID ends the stream with [ErrNotResumable], even after a restart
	// by the caller, when there is no last event ID and the stream would have to start
	// over.
	RequireLastEventID bool

	// Idle is the idle timeout of all attempts but the first. Zero means the
	// Client's; a negative Idle means none.
	Idle time.Duration

	// Rand returns the random numbers for Jitter, at least 0 and less than 1. Any
	// other number is replaced with the nearest of these, and NaN with 0. Every
	// stream that uses these Rules calls Rand, so it must be safe for concurrent
	// use. Nil means rand.Float64 of math/rand/v2.
	Rand func() float64
}

const (
	defaultDelay         = 3 * time.Second
	defaultFloor         = 100 * time.Millisecond
	defaultFactor        = 2
	defaultMaxDelay      = 30 * time.Second
	defaultJitter        = 0.5
	defaultProgressAfter = 30 * time.Second
)

var _ Policy = Rules{}

// New returns a [Reconnector] for one stream that follows the rules. It implements
// [Policy], and panics, naming the field, if a field has a value that its comment rules
// out: so a client with such Rules panics when it makes its first stream.
func (r Rules) New() Reconnector {
	if rules := r.shared(); rules != nil {
		return &ruled{rules: rules}
	}
	return &ruled{rules: r.complete()}
}

// shared returns the complete rules that all streams of r have in common, or nil if r is
// not a preset as it is: there may be many idle streams, and most use a preset.
func (r Rules) shared() *Rules {
	for _, preset := range presets {
		if funcPointer(r.Retryable) == funcPointer(preset.rules.Retryable) {
			// DeepEqual takes functions for equal only if both are nil.
			theirs := *preset.rules
			r.Retryable, theirs.Retryable = nil, nil
			if reflect.DeepEqual(r, theirs) {
				return preset.complete
			}
			r.Retryable = preset.rules.Retryable
		}
	}
	return nil
}

// funcPointer returns what tells f from other functions, as long as it is not a closure.
func funcPointer(f func(int) bool) uintptr { return reflect.ValueOf(f).Pointer() }

// complete returns r with the defaults filled in. It panics as New does.
func (r Rules) complete() *Rules {
	switch {
	case r.Factor != 0 && (!(r.Factor >= 1) || math.IsInf(r.Factor, 1)):
		refuse("Factor", r.Factor, "must be a number of at least 1, or 0 for the default")
	case r.MaxDelay < 0:
		refuse("MaxDelay", r.MaxDelay, "must not be negative")
	case math.IsNaN(r.Jitter) || math.IsInf(r.Jitter, 0):
		refuse("Jitter", r.Jitter, "must be a finite number")
	case r.Budget < 0:
		refuse("Budget", r.Budget, "must not be negative")
	case r.GiveUpAfter < 0:
		refuse("GiveUpAfter", r.GiveUpAfter, "must not be negative")
	case r.MessageTimeout < 0:
		refuse("MessageTimeout", r.MessageTimeout, "must not be negative")
	}

	r.Delay = max(orDefault(r.Delay, defaultDelay), 0)
	r.Floor = max(orDefault(r.Floor, defaultFloor), 0)
	r.Factor = orDefault(r.Factor, defaultFactor)
	r.MaxDelay = orDefault(r.MaxDelay, defaultMaxDelay)
	r.Jitter = max(orDefault(r.Jitter, defaultJitter), 0)
	r.ProgressAfter = orDefault(r.ProgressAfter, defaultProgressAfter)
	if r.Rand == nil {
		r.Rand = rand.Float64
	}
	return &r
}

func refuse(field string, value any, must string) {
	panic(fmt.Sprintf("policy: Rules.%s is %v; it %s", field, value, must))
}

func orDefault[T comparable](value, byDefault T) T {
	var zero T
	if value == zero {
		return byDefault
	}
	return value
}

// A ruled is the Reconnector that Rules makes. It takes all times from the attempts.
type ruled struct {
	rules *Rules // complete, and perhaps shared

	// run is the number of fruitless attempts in a row, and reconnections is how
	// many of these were not the stream's first attempt.
	run, reconnections int

	// renewed is when the budget last started, and ended how much later the last attempt
	// ended. At that moment no message had come for silence.
	renewed        time.Time
	ended, silence time.Duration

	started bool // an attempt of the stream has ended
	opened  bool // one has opened

	schedule *schedule // of the current run; nil until the run needs one
}

var _ Starter = (*ruled)(nil)

// Start implements [Starter].
func (r *ruled) Start() Decision {
	d := After(0)
	if limit := r.rules.GiveUpAfter; limit != 0 {
		d = d.MessageTimeout(limit)
	}
	return d
}

// Next implements [Reconnector].
func (r *ruled) Next(a Attempt) Decision {
	if !r.started || a.Messages > 0 {
		r.renewed, r.ended, r.silence = a.End, 0, max(a.Silence, 0)
	} else {
		waited := a.Start.Sub(r.renewed) - r.ended
		r.ended, r.silence = a.End.Sub(r.renewed), saturating(r.silence, waited, a.Silence)
	}
	r.started = true
	r.opened = r.opened || !a.Open.IsZero()

	rejected := a.Kind == Rejected
	forget := rejected && r.refusesID(a)
	switch {
	case a.Permanent, a.Kind == TooLarge, isPermanent(a.Err):
		return Stop(a.Err)
	case r.rules.OneAnswer && a.Messages > 0 && a.Kind == Restarted:
		return Stop(fmt.Errorf("%w: the answer has begun, and another would begin anew", ErrExhausted))
	case r.rules.OneAnswer && a.Messages > 0:
		return Stop(a.Err)
	case rejected && a.Status == http.StatusNoContent:
		return Stop(nil) // HTML §9.2: a 204 tells the client to stop reconnecting
	case rejected && !forget && !r.isRetryable(a.Status):
		return Stop(a.Err)
	case r.rules.RequireLastEventID && (forget || a.LastEventID == ""):
		return Stop(ErrNotResumable)
	}

	poll := false
	switch {
	case r.isProductive(a):
		r.run, r.reconnections, r.schedule = 0, 0, nil
	case a.Kind == Restarted:
	case r.isPoll(a):
		poll = true
	default:
		r.run++
		if a.Number > 1 {
			r.reconnections++
		}
		if limit := r.rules.MaxFruitless; limit != 0 && r.reconnections >= limit {
			return Stop(fmt.Errorf("%w: fruitless attempts in a row: %d", ErrExhausted, r.run))
		}
	}

	if a.Kind == Restarted {
		return r.after(0, a)
	}
	wait, ok := r.wait(a, poll)
	if !ok {
		return Stop(fmt.Errorf("%w: the schedule ended after %d fruitless attempts in a row", ErrExhausted, r.run))
	}
	d := r.after(wait, a)
	if forget {
		d = d.Forget()
	}
	return d
}

// after decides to connect again after wait, if the budget allows it.
func (r *ruled) after(wait time.Duration, a Attempt) Decision {
	d := After(wait).Idle(r.rules.Idle).MessageTimeout(r.rules.messageTimeout())
	left, limited := r.left()
	if !limited {
		return d
	}
	due := max(wait, a.Asked)
	if due >= left {
		return Stop(&BudgetError{Asked: due, Left: left})
	}
	return d.Within(left - due)
}

// left returns what is left of the time for the next message, and whether there is a
// limit to it.
func (r *ruled) left() (left time.Duration, limited bool) {
	left = math.MaxInt64
	if r.rules.Budget != 0 {
		left, limited = r.rules.Budget-max(r.ended, 0), true
	}
	if r.rules.GiveUpAfter != 0 {
		left, limited = min(left, r.rules.GiveUpAfter-r.silence), true
	}
	return left, limited
}

// messageTimeout returns the message timeout of reconnections; 0 if there is none.
func (r *Rules) messageTimeout() time.Duration {
	if r.MessageTimeout == 0 || r.GiveUpAfter != 0 && r.GiveUpAfter < r.MessageTimeout {
		return r.GiveUpAfter
	}
	return r.MessageTimeout
}

// saturating returns the sum of durations, of which negative ones count as zero, or the
// longest Duration.
func saturating(durations ...time.Duration) (sum time.Duration) {
	for _, d := range durations {
		if sum += max(d, 0); sum < 0 {
			return math.MaxInt64
		}
	}
	return sum
}

// wait returns the wait that the policy wants after an attempt that has been
// counted. It reports false if the caller's schedule has ended.
func (r *ruled) wait(a Attempt, poll bool) (time.Duration, bool) {
	base, ours := r.rules.Delay, true
	if a.HasRetry {
		base, ours = a.Retry, false
	}
	base = max(base, r.rules.Floor)

	if poll {
		return base, true
	}
	wait := base
	if r.run > 1 {
		step, ok := r.step(base)
		if !ok {
			return 0, false
		}
		wait, ours = max(step, base), true
	}
	if ours {
		wait = r.withJitter(wait)
	}
	return wait, true
}

// step returns the schedule's wait for the current length of the run. It reports
// false if there is none.
func (r *ruled) step(base time.Duration) (time.Duration, bool) {
	switch {
	case r.rules.Backoff != nil:
		if r.schedule == nil {
			r.schedule = newSchedule(r.rules.Backoff(), base, 1) // the run's first wait was base
		}
	case r.schedule == nil || r.schedule.base != base:
		r.schedule = newSchedule(&backoff.ExponentialBackOff{
			InitialInterval: base,
			Multiplier:      r.rules.Factor,
			MaxInterval:     r.rules.MaxDelay, // no step below base counts, see wait
			// RandomizationFactor 0: randomness below the interval would undercut
			// the server. MaxElapsedTime 0: it would give up silently.
			Clock: noClock{},
		}, base, 0)
	}
	return r.schedule.wait(r.run)
}

// withJitter returns wait with a random share on top.
func (r *ruled) withJitter(wait time.Duration) time.Duration {
	if r.rules.Jitter == 0 {
		return wait
	}
	random := r.rules.Rand()
	if !(random > 0) { // NaN too
		random = 0
	}
	random = min(random, math.Nextafter(1, 0))
	share := random * r.rules.Jitter * float64(wait)
	if share >= float64(math.MaxInt64-wait) {
		return math.MaxInt64
	}
	return wait + time.Duration(share)
}

func (r *ruled) isRetryable(status int) bool {
	return r.rules.Retryable != nil && r.rules.Retryable(status)
}

// refusesID reports whether a, which was rejected, is the refusal of its last event
// ID: an answer that cannot be meant for a stream as such, because there was one, or
// may not be, because an ID was sent.
func (r *ruled) refusesID(a Attempt) bool {
	if !r.rules.ForgetRefusedID || a.Status < 400 || a.Status > 499 || !r.opened && a.LastEventID == "" {
		return false
	}
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return false
	}
	return !r.isRetryable(a.Status)
}

func (r *ruled) isProductive(a Attempt) bool {
	if a.Messages > 0 {
		return true
	}
	return r.rules.ProgressAfter > 0 && !a.Open.IsZero() && a.LastReceived.Sub(a.Open) >= r.rules.ProgressAfter
}

// isPoll reports whether a, which was not productive, was a poll.
func (r *ruled) isPoll(a Attempt) bool {
	return r.rules.PollAfter != 0 && a.Kind == Ended && a.Err == nil &&
		a.HasRetry && a.Retry >= r.rules.PollAfter
}

// A schedule gives the waits of one run of fruitless attempts.
type schedule struct {
	steps backoff.BackOff
	base  time.Duration // the wait that it was made for
	taken int           // how many waits of the run have been chosen
	last  time.Duration
}

// newSchedule returns a schedule for a run of which so many waits have been
// chosen already.
func newSchedule(steps backoff.BackOff, base time.Duration, taken int) *schedule {
	if steps == nil {
		panic("policy: Rules.Backoff returned nil")
	}
	steps.Reset() // the backoff package requires it before the first step
	return &schedule{steps: steps, base: base, taken: taken}
}

// wait returns the n-th wait of the run, or false if the schedule ends before.
func (s *schedule) wait(n int) (time.Duration, bool) {
	for s.taken < n {
		step := s.steps.NextBackOff()
		if step < 0 {
			return 0, false
		}
		s.taken++
		if step == s.last {
			// The steps have stopped growing. If a server changes its retry field
			// all the time, each decision makes a new schedule, and must not go
			// through as many steps as the run is long.
			s.taken = n
		}
		s.last = step
	}
	return s.last, true
}

// noClock is the clock of a backoff that does not measure time.
type noClock struct{}

func (noClock) Now() time.Time { return time.Time{} }

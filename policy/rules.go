package policy

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Rules is the configurable [Reconnector]: a set of numbers and switches, which
// [Rules.New] turns into a Reconnector for one stream. The zero value behaves as
// [WHATWG].
//
// Zero always means the default that the field names. Rules may be copied and
// shared freely. Their functions are called by every stream that uses them, and
// must be safe for concurrent use.
//
// The rules are tried in this order:
//
//  1. Stop with the attempt's error if it was futile, if its error is or wraps a
//     *backoff.PermanentError, or if an event was too large.
//  2. EndIsDone: stop after a clean end that followed a message.
//  3. Stop without an error after status 204, and with the attempt's error after
//     any other response that is not an event stream, unless Temporary says
//     otherwise.
//  4. NeedID: stop with [ErrNotResumable] if there is no last event ID.
//  5. After a restart by the caller, count nothing and go on with 9, without a wait
//     of the client's own.
//  6. Count: a productive attempt ends the run of fruitless ones, a poll leaves
//     it as it is, and a fruitless one makes it longer.
//  7. MaxFruitless: stop with [ErrExhausted].
//  8. Choose the wait. After a productive attempt, a poll and the first fruitless
//     attempt of a run it is the reconnection time, or Delay while the server has
//     set none; from the second fruitless attempt on it grows with every one.
//  9. Budget: stop with a [*BudgetError] if the wait cannot end within what is
//     left, else limit the next attempt to the rest.
//
// The reconnection time, once set, is waited exactly; a wait chosen by the
// client gets a random share on top, so that many clients do not come back at the
// same moment. All arithmetic saturates at the longest Duration, about 292 years.
type Rules struct {
	// Delay is the wait before a reconnection while the server has sent no
	// retry field. Zero means 3 s. It must not be negative.
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
	Budget time.Duration

	// ProgressAfter is how long a stream must stay open to be productive even if
	// it is silent. Zero means 30 s; a negative ProgressAfter means that only
	// messages count. It ends a run of fruitless attempts but, unlike a
	// message, gives no new Budget.
	ProgressAfter time.Duration

	// PollAfter is the shortest retry field that makes an attempt a poll. A poll
	// neither lengthens nor ends a run, and is followed by exactly the
	// reconnection time. With a negative PollAfter any retry field will do. Zero
	// means that there are no polls.
	PollAfter time.Duration

	// Temporary reports whether the server may answer with an event stream later,
	// after a response with this status that was not one. It is called with 200 for
	// a response of the wrong type; it is never called with 204. Nil means that no
	// status is temporary.
	Temporary func(status int) bool

	// EndIsDone ends the stream with nil when the body of an attempt that has
	// brought a message ends. It is for a request that has one answer. If the body
	// ended inside an event, the stream ends with that error. Do not set it for a
	// subscription.
	EndIsDone bool

	// NeedID ends the stream with [ErrNotResumable], even after a restart by the
	// caller, when there is no last event ID and the stream would have to start
	// over.
	NeedID bool

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

// New returns a [Reconnector] for one stream that follows the rules. It is made
// to be a client's Policy, as a method value: policy.Rules{NeedID: true}.New.
//
// It panics, naming the field, if a field has a value that its comment rules
// out.
func (r Rules) New() Reconnector { return &ruled{rules: r.complete()} }

// complete returns r with the defaults filled in. It panics as New does.
func (r Rules) complete() *Rules {
	switch {
	case r.Delay < 0:
		refuse("Delay", r.Delay, "must not be negative")
	case r.Factor != 0 && (!(r.Factor >= 1) || math.IsInf(r.Factor, 1)):
		refuse("Factor", r.Factor, "must be a number of at least 1, or 0 for the default")
	case r.MaxDelay < 0:
		refuse("MaxDelay", r.MaxDelay, "must not be negative")
	case math.IsNaN(r.Jitter) || math.IsInf(r.Jitter, 0):
		refuse("Jitter", r.Jitter, "must be a finite number")
	case r.Budget < 0:
		refuse("Budget", r.Budget, "must not be negative")
	}

	r.Delay = orDefault(r.Delay, defaultDelay)
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
	rules *Rules // complete; all streams of a preset share the same

	// run is the number of fruitless attempts in a row, and reconnections is how
	// many of these were not the stream's first attempt.
	run, reconnections int

	// renewed is when the budget last started; started tells whether it ever has.
	renewed time.Time
	started bool

	schedule *schedule // of the current run; nil until the run needs one
}

var _ Reconnector = (*ruled)(nil)

// Next implements [Reconnector].
func (r *ruled) Next(a Attempt) Decision {
	if !r.started || a.Messages > 0 {
		r.renewed, r.started = a.End, true
	}

	rejected := a.Kind == Rejected
	switch {
	case a.Futile, a.Kind == TooLarge, isPermanent(a.Err):
		return Stop(a.Err)
	case a.Kind == Ended && a.Messages > 0 && r.rules.EndIsDone:
		return Stop(a.Err)
	case rejected && a.Status == http.StatusNoContent:
		return Stop(nil) // HTML §9.2: a 204 tells the client to stop reconnecting
	case rejected && !r.isTemporary(a.Status):
		return Stop(a.Err)
	case r.rules.NeedID && a.LastEventID == "":
		return Stop(ErrNotResumable)
	case a.Kind == Restarted:
		return r.after(0, a)
	}

	poll := false
	switch {
	case r.isProductive(a):
		r.run, r.reconnections, r.schedule = 0, 0, nil
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

	wait, ok := r.wait(a, poll)
	if !ok {
		return Stop(fmt.Errorf("%w: the schedule ended after %d fruitless attempts in a row", ErrExhausted, r.run))
	}
	return r.after(wait, a)
}

// after decides to connect again after wait, if the budget allows it.
func (r *ruled) after(wait time.Duration, a Attempt) Decision {
	d := After(wait).Idle(r.rules.Idle)
	if r.rules.Budget == 0 {
		return d
	}
	due := max(wait, a.Asked)
	left := r.rules.Budget - max(a.End.Sub(r.renewed), 0)
	if due >= left {
		return Stop(&BudgetError{Asked: due, Left: left})
	}
	return d.Within(left - due)
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

func (r *ruled) isTemporary(status int) bool {
	return r.rules.Temporary != nil && r.rules.Temporary(status)
}

func (r *ruled) isProductive(a Attempt) bool {
	if a.Messages > 0 {
		return true
	}
	return r.rules.ProgressAfter > 0 && !a.Open.IsZero() && a.End.Sub(a.Open) >= r.rules.ProgressAfter
}

// isPoll reports whether a, which was not productive, was a poll.
func (r *ruled) isPoll(a Attempt) bool {
	return r.rules.PollAfter != 0 && a.Kind == Ended && a.Err == nil &&
		a.RetrySent && a.Retry >= r.rules.PollAfter
}

func isPermanent(err error) bool {
	var permanent *backoff.PermanentError
	return errors.As(err, &permanent)
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

package eventsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/policy"
)

// An attempt is the attempt that a stream is making. Whatever ends it early (a
// timeout, Reconnect, net/http about to send the request again) cancels ctx with an
// interruption as the cause, because HTTP transports report only that their context
// was cancelled.
type attempt struct {
	stream *Stream
	ctx    context.Context // ends with the attempt
	cancel context.CancelCauseFunc
	guard  resendGuard
	number int32

	connection *connection // HTTP/2's, guarded by connections; nil if it is not known

	// The limit on the time without a message: that of Decision.Within or that of
	// Decision.MessageTimeout. The timer is pending while the loop body is not running.
	expiry         clock.Timer   // nil if there is none
	limit          time.Duration // in force
	deadline       time.Duration // when it passes, since start
	messageTimeout time.Duration // the limit that follows a message; 0 if none does

	idle      time.Duration // the idle timeout; 0 if there is none
	idleTimer clock.Timer   // pending only while a read is blocked; nil before the first read

	body      io.ReadCloser // of the response; nil without one
	stopClose func() bool   // keeps the context's end from closing body; nil if it does not
	bodyOnce  sync.Once     // closes body

	// These become a policy.Attempt, which is larger and not needed while the
	// stream is open.
	kind             policy.Kind
	permanent        bool
	retrySent        bool
	adopted          bool // the response is not to a request of the stream
	shared           bool // the response's connection may be shared (HTTP/2, HTTP/3)
	spoke            bool // a message has come since the last read began
	status           int16
	err              error
	header           http.Header
	events, messages int
	start            time.Time

	// These are counted from start. That is smaller than a time.Time.
	opened time.Duration // negative until then
	heard  time.Duration // when the last byte came, if any did
	quiet  time.Duration // since when no message has come
}

// An interruption is the cause with which an attempt's context is cancelled.
type interruption struct {
	kind policy.Kind
	err  error
}

func (i *interruption) Error() string {
	if i.err == nil {
		return "eventsource: the attempt is " + i.kind.String()
	}
	return i.err.Error()
}

func (i *interruption) Unwrap() error { return i.err }

// attempt makes one attempt, within the limits of the decision that led to it,
// and yields its events. It returns the facts about it, and whether the loop was
// left.
func (s *Stream) attempt(ctx context.Context, number int, limits *policy.Decision, yield func(Event, error) bool) (facts *policy.Attempt, left bool) {
	a := s.newAttempt(ctx, number, limits)
	defer a.release()
	if source := a.open(); source != nil {
		left = a.read(ctx, source, yield)
	}
	return a.end(), left
}

func (s *Stream) newAttempt(ctx context.Context, number int, limits *policy.Decision) *attempt {
	a := &attempt{stream: s, number: int32(number), start: s.clock.Now(), opened: -1}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	restart := s.restart // Reconnect was called since the last attempt
	s.restart, s.interrupt = false, a.cancel
	s.mu.Unlock()
	if restart {
		s.suspect()
	}

	a.idle = s.idleTimeout
	if d := limits.IdleLimit(); d != 0 {
		a.idle = d
	}
	limit, limited := limits.Limit()
	a.messageTimeout = limits.MessageLimit()
	if a.messageTimeout > 0 && (!limited || a.messageTimeout < limit) {
		limit, limited = a.messageTimeout, true
	}
	if limited {
		a.limit, a.deadline = limit, limit
		a.expiry = s.clock.AfterFunc(limit, func() { a.cancel(&interruption{kind: policy.Expired}) })
	}
	return a
}

// now returns the time since the attempt began.
func (a *attempt) now() time.Duration { return a.stream.clock.Now().Sub(a.start) }

// end returns the facts about an attempt that is over.
func (a *attempt) end() *policy.Attempt {
	s := a.stream
	a.settle()
	a.release()
	if a.mayBeDead() {
		s.suspect()
	}
	facts := &policy.Attempt{
		Number:      int(a.number),
		Kind:        a.kind,
		Err:         a.err,
		Permanent:   a.permanent,
		Status:      int(a.status),
		Header:      a.header,
		Events:      a.events,
		Messages:    a.messages,
		RetrySent:   a.retrySent,
		Retry:       s.retry,
		HasRetry:    s.hasRetry,
		LastEventID: s.LastEventID(),
		Start:       a.start,
		End:         s.clock.Now(),
	}
	if !a.spoke { // or else nothing was waited for after the last message
		facts.Silence = facts.End.Sub(a.start) - a.quiet
	}
	if a.opened >= 0 {
		facts.Open = a.start.Add(a.opened)
		switch a.kind {
		case policy.Ended, policy.Dropped:
			facts.LastReceived = facts.End
		default:
			facts.LastReceived = a.start.Add(max(a.heard, a.opened))
		}
	}
	if a.kind == policy.Rejected {
		facts.Asked = retryAfter(a.header, facts.End)
	}
	if s.hasRetry {
		facts.Asked = max(facts.Asked, s.retry)
	}
	return facts
}

// open connects and returns the reader of the event stream. If there is none it
// returns nil, and kind and err tell why; an interruption, if there was one, is left
// to settle.
func (a *attempt) open() io.Reader {
	resp, err := a.connect()
	if err != nil {
		a.kind, a.err = policy.Failed, err
		return nil
	}
	a.body = resp.Body
	if a.body == nil {
		a.body = http.NoBody
	}
	a.shared = resp.ProtoMajor >= 2
	if a.adopted || a.shared || !endsWithContext(a.stream.httpClient) || resp.StatusCode == http.StatusSwitchingProtocols {
		a.stopClose = context.AfterFunc(a.ctx, a.closeBody)
	}
	a.status, a.header = int16(resp.StatusCode), resp.Header

	if refusal := checkResponse(resp); refusal != nil {
		refusal.Body = a.refusalBody()
		a.kind, a.err = policy.Rejected, refusal
		return nil
	}
	if err := a.ctx.Err(); err != nil {
		// The attempt was interrupted as the headers came, and they were not used.
		a.kind, a.err = policy.Failed, err
		a.status, a.header = 0, nil
		return nil
	}
	a.opened = a.now()
	if hook := a.stream.trace.Open; hook != nil {
		info := OpenInfo{Number: int(a.number), Status: resp.StatusCode, Header: resp.Header}
		if resp.Request != nil {
			info.URL = resp.Request.URL
		}
		hook(info)
	}
	return decoded(resp, a)
}

// endsWithContext reports whether the HTTP/1.1 response bodies that c returns are known
// to end with the context of their request. All should, but not every RoundTripper sees
// to it. (Nor does an adopted body, which belongs to another context, or the body of
// a 101, which is a whole connection that net/http has handed over; and net/http ends a
// body of HTTP/2 only when it has told the peer, for which it waits while something
// else is being written to the connection.)
func endsWithContext(c *http.Client) bool {
	_, ok := transport(c).(*http.Transport)
	return ok
}

// transport returns the transport that c uses.
func transport(c *http.Client) http.RoundTripper {
	if c.Transport == nil {
		return http.DefaultTransport
	}
	return c.Transport
}

// connect returns the response of this attempt: the adopted one, or the response to
// a new request.
func (a *attempt) connect() (*http.Response, error) {
	s := a.stream
	if resp := s.adopted; resp != nil {
		s.adopted, a.adopted = nil, true
		return resp, nil
	}
	req, err := a.newRequest()
	if err != nil {
		return nil, err
	}
	if s.trace.Connect != nil {
		s.trace.Connect(ConnectInfo{Number: int(a.number), Request: req})
	}

	client := *s.httpClient
	timeout := connectTimeout(s.connectTimeout, client.Timeout)
	client.Timeout = 0 // it would bound the body too
	client.CheckRedirect = a.checkRedirect(client.CheckRedirect)
	if s.suspected != nil {
		client.Transport = &freshTransport{transport(&client), a, *s.suspected}
	}
	var timer clock.Timer
	timedOut := &interruption{policy.Failed, &timeoutError{timeout}}
	if timeout > 0 {
		timer = s.clock.AfterFunc(timeout, func() { a.cancel(timedOut) })
		defer timer.Stop() // in case something of the caller's panics
	}
	s.replay.handOver(req)
	resp, err := client.Do(req)
	if err != nil {
		return nil, requestError(req, err)
	}
	s.suspected = nil
	connections.answered(a)
	if timer != nil && !timer.Stop() {
		// The timer is cancelling the attempt at this moment. The response counts
		// only if it is a refusal, since the wait that it asks for must be kept.
		a.cancel(timedOut)
	}
	return resp, nil
}

// connectTimeout returns the shorter of the two limits on the time until the headers
// of a response, or 0 if there is no limit.
func connectTimeout(own, clientTimeout time.Duration) time.Duration {
	switch {
	case own == 0:
		own = defaultConnectTimeout
	case own < 0:
		own = 0
	}
	if clientTimeout > 0 && (own == 0 || clientTimeout < own) {
		return clientTimeout
	}
	return own
}

// An attemptListener is what the stream's decoder tells. Like every hook, those that it
// calls are not called any more once ctx, the stream's context, is done.
type attemptListener struct {
	attempt *attempt
	ctx     context.Context
}

func (l *attemptListener) wantsComments() bool { return l.attempt.stream.trace.Comment != nil }

func (l *attemptListener) comment(text string) {
	if l.ctx.Err() == nil {
		l.attempt.stream.trace.Comment(text)
	}
}

// retry notes the reconnection time that a retry field has set.
func (l *attemptListener) retry(d time.Duration) {
	s := l.attempt.stream
	l.attempt.retrySent = true
	s.retry, s.hasRetry = d, true
	if s.trace.Retry != nil && l.ctx.Err() == nil {
		s.trace.Retry(d)
	}
}

func (l *attemptListener) commit(id string) { l.attempt.stream.setLastEventID(id) }

// read yields the events of source until it ends, the stream's context does, or the
// loop is left.
func (a *attempt) read(ctx context.Context, source io.Reader, yield func(Event, error) bool) (left bool) {
	s := a.stream
	s.decoder.reset(source, s.LastEventID(), &attemptListener{a, ctx})
	for ctx.Err() == nil {
		event, err := s.decoder.Next()
		if err != nil {
			a.kind, a.err = endOfRead(err)
			return false
		}
		a.events++
		message := s.isMessage(event)
		if message {
			a.messages++
			a.spoke = true
		}
		if ctx.Err() != nil {
			// The loop is not given this event, and a later stream that resumes must
			// be sent it: its ID does not take effect.
			return false
		}
		if event.LastEventID != s.lastEventID { // only this goroutine writes it
			s.setLastEventID(event.LastEventID)
		}
		if !a.deliver(event, message, yield) {
			a.linger()
			return true
		}
	}
	return false
}

// deliver gives the loop an event, and reports whether it wants another. The time that
// the loop body takes does not count toward the time without a message.
func (a *attempt) deliver(event Event, message bool, yield func(Event, error) bool) bool {
	if message && a.expiry == nil {
		return yield(event, nil) // Read will note the time
	}
	if a.expiry != nil {
		a.expiry.Stop()
	}
	given := a.now()
	more := yield(event, nil)
	now := a.now()
	switch {
	case !message:
		a.quiet += now - given
		a.deadline += now - given
	case a.messageTimeout > 0:
		a.limit, a.deadline = a.messageTimeout, now+a.messageTimeout
	default:
		a.expiry = nil
	}
	if a.expiry != nil {
		a.expiry.Reset(a.deadline - now)
	}
	return more
}

// maxLingerSize is the most that is read of a response after the loop was left: what
// is longer does not end soon, and a new connection costs less.
const maxLingerSize = 256 << 10

// linger reads on to the end of the response for as long as Client.Linger allows, so
// that net/http can use its connection again.
func (a *attempt) linger() {
	s := a.stream
	if s.linger <= 0 {
		return
	}
	timer := s.clock.AfterFunc(s.linger, func() { a.cancel(context.Canceled) })
	defer timer.Stop()
	io.CopyN(io.Discard, a.body, maxLingerSize)
}

func endOfRead(err error) (policy.Kind, error) {
	switch {
	case err == io.EOF:
		return policy.Ended, nil
	case err == ErrTruncated:
		return policy.Ended, err
	case errors.Is(err, ErrEventTooLarge):
		return policy.TooLarge, err
	default:
		return policy.Dropped, wrapError("the stream broke", err)
	}
}

// Read reads the response's body under the idle timeout. Any byte that comes off the
// wire breaks the silence, even if it completes nothing that gunzip could decode; and
// only time in which the read is blocked counts.
func (a *attempt) Read(p []byte) (n int, err error) {
	if a.spoke {
		a.spoke = false
		a.quiet = a.now()
	}
	if a.idle > 0 {
		a.startIdleTimer()
		defer a.idleTimer.Stop()
	}
	if n, err = a.body.Read(p); n > 0 {
		a.heard = a.now()
	}
	return n, err
}

func (a *attempt) startIdleTimer() {
	if a.idleTimer != nil {
		a.idleTimer.Reset(a.idle)
		return
	}
	a.idleTimer = a.stream.clock.AfterFunc(a.idle, func() {
		a.cancel(&interruption{policy.Idle, fmt.Errorf("%w: %v", ErrIdle, a.idle)})
	})
}

// settle closes the attempt to interruptions. If one has ended it, the interruption
// says how it ended, unless the response was rejected, an event was too large or the
// request permanently failed: the policy needs to know of those.
func (a *attempt) settle() {
	s := a.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt = nil
	i, ok := context.Cause(a.ctx).(*interruption)
	if !ok || a.permanent || a.kind == policy.Rejected || a.kind == policy.TooLarge {
		return
	}
	a.kind, a.err = i.kind, i.err
	switch i.kind {
	case policy.Expired:
		a.err = fmt.Errorf("%w: %v", ErrExpired, a.limit)
	case policy.Restarted:
		s.restart = false // the restart that was asked for
	}
}

// release gives back everything that the attempt holds. It may be called again.
func (a *attempt) release() {
	s := a.stream
	s.mu.Lock()
	s.interrupt = nil
	s.mu.Unlock()
	if a.expiry != nil {
		a.expiry.Stop()
	}
	s.replay.giveBack()
	if a.stopClose != nil && !a.shared {
		a.stopClose()
	}
	// Cancel before Close: a transport might otherwise read the rest of the body in
	// order to keep the connection.
	a.cancel(context.Canceled)
	connections.leave(a)
	if a.body != nil && !a.shared {
		a.closeBody()
	}
	// If the connection is shared, the end of ctx has the body closed, and nobody waits
	// for it: net/http's Close waits while something else is being written, for as long
	// as the peer does not read.
}

// closeBody closes the response's body, once, and returns when that is done.
func (a *attempt) closeBody() { a.bodyOnce.Do(func() { a.body.Close() }) }

// A timeoutError is why an attempt ended that got no response in time.
type timeoutError struct{ limit time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("eventsource: no response within %v", e.limit)
}

func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

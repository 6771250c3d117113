package eventsource

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/reprise-sse/reprise/policy"
)

// A Trace is told what a stream is doing. [Client].Trace makes one for each stream, so
// its hooks may keep state about that stream in variables that they close over, without
// locks. Any hook may be nil, and a new hook may appear in a later version, so use field
// names in literals.
//
// Hooks observe and do not decide anything. They run on the goroutine that ranges
// over the stream and hold it up, so they should return promptly. They may call
// Stream.LastEventID and Stream.Reconnect, and may cancel the request's context. A
// hook that panics ends the stream as a panicking loop body does.
//
// For one attempt the order is Connect, Open, then Comment and Retry as they come,
// End, Wait. An attempt that does not get that far skips the hooks that it did not
// reach, and an adopted response has no Connect. If the caller ends an attempt, by
// leaving the loop or through the context, it has no End: Done follows at once.
type Trace struct {
	// Connect is called before each request is sent, after Client.Prepare. The
	// request must not be changed.
	Connect func(ConnectInfo)

	// Open is called when the response has turned out to be an event stream,
	// before its body is read: the standard's "announce the connection".
	Open func(OpenInfo)

	// Comment is called for each comment line with the text after the colon,
	// without one leading space. Servers send comments to keep connections alive.
	// A comment that does not fit into what the event that is being read leaves of
	// Client.MaxEventSize is cut there, and Comment is called without waiting for
	// its end.
	Comment func(text string)

	// Retry is called for each valid retry field, with the reconnection time that
	// it sets.
	Retry func(time.Duration)

	// End is called when an attempt has ended by itself or through
	// Stream.Reconnect, with all facts about it, before the policy is asked.
	End func(policy.Attempt)

	// Wait is called when another attempt will follow and the timer for it is set,
	// so a test may advance a clock.Fake in it. It is also called for a wait of
	// zero.
	Wait func(WaitInfo)

	// Done is called once, when the stream is over and has released everything
	// that it held, before the loop is given the error. The error is nil after an
	// orderly end and when the loop was left or panicked.
	Done func(error)
}

// ConnectInfo is what Trace.Connect is told.
type ConnectInfo struct {
	Number  int           // of the attempt; 1 for the first
	Request *http.Request // as it will be sent; read only
}

// OpenInfo is what Trace.Open is told.
type OpenInfo struct {
	Number int         // of the attempt; 1 for the first
	Status int         // always 200 at present
	Header http.Header // of the response; read only
	URL    *url.URL    // after redirects, the base of relative URLs in events; nil if unknown; read only
}

// WaitInfo is what Trace.Wait is told.
type WaitInfo struct {
	Number  int           // of the attempt that will follow
	Asked   time.Duration // what the server asked for
	Decided time.Duration // what the policy decided
	Waited  time.Duration // the longer of the two, which the stream waits
}

// LogTrace returns a constructor of Traces for [Client].Trace that log to l; nil means
// slog.Default(). They log at level Info that a stream is open, the end of an attempt
// (at Warn if it has an error, except for a 204), the wait that follows, and the end of
// the stream (at Error if it is a [*StopError]). Requests and the reconnection time are
// logged at Debug; comments are not logged.
//
// Every record says which stream it is about: the method and URL of its request, and a
// number, since several streams may have the same. No record holds a query string, user
// info, the value of a header or a last event ID.
func LogTrace(l *slog.Logger) func(*http.Request) *Trace {
	if l == nil {
		l = slog.Default()
	}
	var streams atomic.Int64
	return func(req *http.Request) *Trace {
		of := []any{slog.Int64("stream", streams.Add(1))}
		if req != nil {
			of = append(of, slog.String("method", method(req)), slog.String("url", redactedURL(req.URL)))
		}
		return logTrace(l.With(of...))
	}
}

// logTrace returns the Trace of one stream, which l names.
func logTrace(l *slog.Logger) *Trace {
	log := func(level slog.Level, msg string, attrs ...slog.Attr) {
		l.LogAttrs(context.Background(), level, msg, attrs...)
	}
	return &Trace{
		Connect: func(i ConnectInfo) {
			log(slog.LevelDebug, "event stream: connecting", slog.Int("attempt", i.Number))
		},
		Open: func(i OpenInfo) {
			log(slog.LevelInfo, "event stream: open", slog.Int("attempt", i.Number))
		},
		Retry: func(d time.Duration) {
			log(slog.LevelDebug, "event stream: reconnection time set", slog.Duration("retry", d))
		},
		End: func(a policy.Attempt) {
			level := slog.LevelInfo
			attrs := []slog.Attr{
				slog.Int("attempt", a.Number), slog.String("kind", a.Kind.String()),
				slog.Int("events", a.Events), slog.Duration("after", a.End.Sub(a.Start)),
			}
			if a.Status != 0 {
				attrs = append(attrs, slog.Int("status", a.Status))
			}
			if a.Err != nil {
				if a.Status != http.StatusNoContent { // by which a server says that there is no more
					level = slog.LevelWarn
				}
				attrs = append(attrs, slog.String("error", a.Err.Error()))
			}
			log(level, "event stream: attempt ended", attrs...)
		},
		Wait: func(i WaitInfo) {
			log(slog.LevelInfo, "event stream: waiting", slog.Int("attempt", i.Number),
				slog.Duration("wait", i.Waited), slog.Duration("asked", i.Asked), slog.Duration("decided", i.Decided))
		},
		Done: func(err error) {
			if err == nil {
				log(slog.LevelInfo, "event stream: over")
				return
			}
			level := slog.LevelInfo // the caller ended the context
			if given := (*StopError)(nil); errors.As(err, &given) {
				level = slog.LevelError
			}
			log(level, "event stream: over", slog.String("error", redactQuotes(err.Error(), true)))
		},
	}
}

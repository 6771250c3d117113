package eventsource

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/reprise-sse/reprise/policy"
)

var (
	// ErrIdle is why an attempt ended when nothing came for longer than the idle
	// timeout.
	ErrIdle = errors.New("eventsource: the stream was silent for too long")

	// ErrExpired is why an attempt ended when it brought no message within the
	// limit that the policy had set.
	ErrExpired = errors.New("eventsource: no message came in the time allowed")

	// ErrEventTooLarge reports an event larger than the limit. The error that
	// wraps it states the limit. Raise Client.MaxEventSize, or see
	// [Decoder.SetMaxEventSize].
	ErrEventTooLarge = errors.New("eventsource: event too large")

	// ErrTruncated reports that the input ended inside an event that has data.
	// The unfinished event is discarded, as the standard requires. ErrTruncated
	// wraps io.ErrUnexpectedEOF.
	ErrTruncated = fmt.Errorf("eventsource: the stream ended inside an event: %w", io.ErrUnexpectedEOF)

	// ErrUnsendableID reports a last event ID that HTTP cannot carry in a
	// header, because it holds a control character other than tab.
	ErrUnsendableID = errors.New("eventsource: the last event ID holds a control character and cannot be sent")

	// ErrNotReplayable is the reason to stop when another attempt was due but
	// the request must not, or cannot, be sent again: its method is not
	// idempotent and it has no Idempotency-Key header, its body cannot be
	// produced again, or an adopted response came without a request to follow it.
	ErrNotReplayable = errors.New("eventsource: the request cannot be repeated")
)

// A ResponseError reports a response that is not an event stream: its status is
// not 200, its type is not text/event-stream, or its content coding is one that
// this package cannot decode.
type ResponseError struct {
	StatusCode  int
	ContentType string      // the Content-Type header as received, lines joined with a comma
	Header      http.Header // read only
	Body        []byte      // at most the first 4 KiB

	text string
}

// Error names the status and, for a 200, what was wrong with the response. It
// shows neither the body nor the value of any header except the media type.
func (e *ResponseError) Error() string {
	if e.text != "" {
		return errorPrefix + e.text
	}
	return errorPrefix + "the server answered " + statusText(e.StatusCode) + " instead of an event stream"
}

func statusText(code int) string {
	if t := http.StatusText(code); t != "" {
		return fmt.Sprintf("%d %s", code, t)
	}
	return fmt.Sprint(code)
}

// A StopError ends a stream when its policy or the engine gives up. It wraps both
// the reason and the cause of the last attempt's end, so errors.Is and errors.As
// reach either.
//
// If a wait cannot end before the context's deadline, the stream ends at once with a
// StopError that is a context.DeadlineExceeded. The end of the context itself is not a
// StopError: the loop is given the context's cause as it is.
type StopError struct {
	Reason  error          // why there is no further attempt
	Attempt policy.Attempt // the last one; its Err may be nil
}

// Error gives the reason and, where it says more, the last attempt's cause.
func (e *StopError) Error() string {
	reason := unprefixed(e.Reason)
	if e.Attempt.Err == nil || errors.Is(e.Reason, e.Attempt.Err) {
		return errorPrefix + reason
	}
	return fmt.Sprintf("%s%s; attempt %d %v: %s", errorPrefix, reason, e.Attempt.Number, e.Attempt.Kind, unprefixed(e.Attempt.Err))
}

// Unwrap returns the reason and the last attempt's Err, without nils.
func (e *StopError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Reason, e.Attempt.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

const errorPrefix = "eventsource: "

// unprefixed returns the text of err without errorPrefix. A text that is composed of
// several errors has the prefix only once.
func unprefixed(err error) string {
	if err == nil {
		return "no reason given"
	}
	return strings.TrimPrefix(err.Error(), errorPrefix)
}

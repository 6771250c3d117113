package eventsource

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/policy"
)

// A Client holds the settings of event streams. The zero Client works and
// behaves as a browser's EventSource does. A Client is not changed by its
// methods; it may be copied, and used by any number of goroutines. A stream
// copies the settings when it is made, so later changes do not touch it.
type Client struct {
	// HTTPClient sends the requests; nil means http.DefaultClient. It is never
	// changed. Its transport, cookie jar and CheckRedirect are used; its Timeout
	// would cut every long stream, so it is taken as a bound on ConnectTimeout
	// only. Its transport must end a request whose context is done. A transport of
	// another make than net/http's that sends a request again by itself does so
	// unseen, and perhaps too early, unless it calls the hooks of net/http/httptrace.
	HTTPClient *http.Client

	// Policy makes the policy of each stream, when the stream is made; nil means
	// [policy.WHATWG]. It must not return nil: Client.Stream and Client.Adopt panic
	// if it does.
	Policy func() policy.Reconnector

	// Clock measures and waits; nil means [clock.System].
	Clock clock.Clock

	// Prepare, if not nil, may edit each attempt's request before it is sent:
	// set a fresh token, the query, the body. The request is a clone of the
	// stream's with the headers of this package already set. Its context ends
	// with the attempt; one set in its place must be derived from it. A Prepare
	// that sets Body sets ContentLength too, to -1 if it is not known, and
	// GetBody, or that to nil, since a redirect may repeat the body. An error
	// fails the attempt with Kind policy.Failed, and the policy decides; wrapped
	// with backoff.Permanent it stops policy.Rules.
	// Prepare runs on the goroutine that ranges over the stream.
	Prepare func(*http.Request) error

	// ConnectTimeout is the longest wait for the headers of a response,
	// redirects included, after which the attempt has failed. Zero means 30
	// seconds; a negative value means no limit.
	ConnectTimeout time.Duration

	// IdleTimeout is the longest silence inside a response, after which the
	// attempt has ended with Kind policy.Idle. Any byte breaks the silence, a
	// comment too, and the time that the loop body takes does not count. Zero
	// or less means no limit: set it if the server sends anything regularly,
	// since a peer that vanished without a word is otherwise noticed late, when
	// TCP's keep-alive fails, and behind a proxy perhaps never.
	IdleTimeout time.Duration

	// MaxEventSize is the largest event accepted, in bytes as sent: the line
	// being read plus the data collected before it. A larger one ends the
	// attempt with Kind policy.TooLarge and [ErrEventTooLarge]. Zero means 64
	// MiB; a negative value means no limit.
	MaxEventSize int

	// Trace, if not nil, is told what the stream is doing.
	Trace *Trace
}

const (
	defaultConnectTimeout = 30 * time.Second
	maxRedirects          = 20 // Fetch, HTTP-redirect fetch
)

// Get returns the events of url: the zero Client's stream of a GET request. It is
// single use, like [Stream.Events].
//
// As in a browser there is no limit on reconnecting: the loop ends with ctx, with
// a response that is no event stream, or by leaving it. Use a [Client] to set
// limits. A url that does not parse gives one error; a nil ctx panics.
func Get(ctx context.Context, url string) iter.Seq2[Event, error] {
	if ctx == nil {
		panic("eventsource: Get with a nil Context")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		// The text of err shows the URL, and the URL may hold secrets.
		req, _ = http.NewRequestWithContext(ctx, http.MethodGet, "", nil)
		return newStream(Client{}, req, nil, &unsendableError{"the URL does not parse", err}).Events()
	}
	return new(Client).Stream(req).Events()
}

// Stream returns the stream of events that req asks for. It sends nothing until
// the stream is ranged over. A nil req panics.
//
// The stream is governed by req's context. Every attempt sends a clone of req,
// with these headers unless req sets them: Accept: text/event-stream,
// Cache-Control and Pragma: no-cache, Accept-Encoding: identity. A Last-Event-ID
// header of req is the ID to resume from. req must not be changed, nor used for
// anything else, until the stream is over.
//
// A request is sent again only as net/http would: its method is GET, HEAD,
// OPTIONS or TRACE or it has an Idempotency-Key or X-Idempotency-Key header, and it
// has no body, or a GetBody, or a body that Client.Prepare sets. Any other is sent
// once: if the policy wants another attempt the stream is over after a clean end,
// and after any other end the loop is given [ErrNotReplayable] with the cause.
func (c *Client) Stream(req *http.Request) *Stream {
	if req == nil {
		panic("eventsource: Client.Stream with a nil Request")
	}
	return newStream(*c, req, nil, nil)
}

// Adopt returns a stream whose first attempt is a response already in hand,
// checked like any other. Later attempts send next, in the way of
// [Client.Stream]; next inherits nothing from resp. With a nil next there are no
// later attempts: if the policy wants one the stream is over after a clean end, and
// after any other end the loop is given [ErrNotReplayable] with the cause. A nil
// resp panics.
//
// The context of next governs the stream, the adopted body too; with a nil next
// it is that of resp.Request, if it has one. The body becomes the stream's when the
// stream is ranged over; until then it is the caller's to close. To close it must
// end a Read that is under way, as it does with net/http's: that is how timeouts,
// Reconnect and the context end the attempt. IdleTimeout holds for it,
// ConnectTimeout does not.
func (c *Client) Adopt(resp *http.Response, next *http.Request) *Stream {
	if resp == nil {
		panic("eventsource: Client.Adopt with a nil Response")
	}
	return newStream(*c, next, resp, nil)
}

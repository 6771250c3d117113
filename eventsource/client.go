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
// behaves as a browser's EventSource does. Its methods do not change it; it may be
// copied, and used by any number of goroutines. A stream copies the settings when
// it is made, so later changes do not affect it.
type Client struct {
	// HTTPClient sends the requests; nil means http.DefaultClient. It is never
	// changed. Its transport, cookie jar and CheckRedirect are used; its Timeout
	// would cut every long stream, so it is taken as a bound on ConnectTimeout
	// only. Its transport must end a request whose context is done. If it is not
	// net/http's and resends requests by itself, it must call the hooks of
	// net/http/httptrace; otherwise the stream cannot keep it from resending a
	// request sooner than the server asked, nor from using a dead connection again.
	//
	// A stream that leaves a dead connection of HTTP/2 leaves the other requests on it
	// alone. To have net/http close such a connection, and so end all of its streams,
	// set HTTP2.SendPingTimeout of the http.Transport ([http.HTTP2Config]).
	HTTPClient *http.Client

	// Policy decides about reconnecting; nil means [policy.WHATWG]. Its New is called
	// for each stream, when the stream is made. Client.Stream and Client.Adopt panic
	// if New returns nil, and as [policy.Rules.New] does.
	Policy policy.Policy

	// Clock tells the time and sets timers; nil means [clock.System]. A stream takes all
	// times from it, except for its context's deadline. A date in a Retry-After header
	// counts from the response's own Date header or, without one, from the Clock's time.
	Clock clock.Clock

	// Prepare, if not nil, may edit each attempt's request before it is sent:
	// set a fresh token, the query, the body. The request is a clone of the
	// stream's with the headers of this package already set. Its context ends
	// with the attempt; a context set in its place must be derived from it. A
	// Prepare that sets Body must also set ContentLength, to -1 if it is not
	// known, and GetBody, to nil if there is none, because a redirect may send the
	// body again. If Prepare returns an error, the attempt ends with Kind
	// policy.Failed and the policy decides; an error wrapped with
	// backoff.Permanent makes policy.Rules stop. Prepare runs on the goroutine
	// that ranges over the stream.
	Prepare func(*http.Request) error

	// ConnectTimeout is the longest wait for the headers of a response,
	// redirects included, after which the attempt has failed, and the next one is made
	// over a new connection. Zero means 30 seconds; a negative value means no limit.
	ConnectTimeout time.Duration

	// IdleTimeout is the longest silence inside a response, after which the
	// attempt has ended with Kind policy.Idle. Any byte breaks the silence, even
	// in a comment, and the time that the loop body takes does not count. Zero
	// or less means no limit. Set it if the server sends anything regularly:
	// otherwise a peer that has vanished without a word is noticed late, when
	// TCP's keep-alive fails, and behind a proxy perhaps never.
	//
	// The next attempt, and those after it until one has had a response, are made over
	// a connection that is newer than the silence, or has answered another request
	// since: also over HTTP/2, where net/http would use the silent one again. Other
	// requests on that one are not disturbed.
	IdleTimeout time.Duration

	// IsMessage reports whether an event is a message, which is what counts as progress:
	// for the policy, for the limits that it sets, and in policy.Attempt. Set it if the
	// server greets its clients or sends keep-alives with data, for example as events of
	// the type ping. It decides nothing about which events the loop is given. It is
	// called on the goroutine that ranges, once for each event, before the loop is given
	// it. Nil means that an event whose data is not empty is a message.
	IsMessage func(Event) bool

	// Linger is the longest that leaving the loop by break or return waits for the end
	// of the response, so that its connection can be used again: useful where the
	// response ends soon after the event that the loop is left at, as with the answer
	// of a language model or of MCP, since over HTTP/1.1 an unfinished response costs
	// its connection. At most 256 KiB are read, and thrown away. Zero or less means
	// that the connection is left at once. Even then net/http may read a little by
	// itself, from Go 1.27 on.
	Linger time.Duration

	// MaxEventSize is the largest event accepted, in bytes: the line being read
	// plus the data collected before it, plus what the event's type and ID have
	// beyond 4 KiB; [Decoder.SetMaxEventSize] has the details. A larger one ends
	// the attempt with Kind policy.TooLarge and [ErrEventTooLarge]. Comments and
	// unknown fields may be of any length. Zero means 64 MiB; a negative value
	// means no limit.
	MaxEventSize int

	// Trace, if not nil, makes the Trace of each stream, which is told what the
	// stream is doing. It is called once, when the stream is first ranged over and
	// on that goroutine, with the stream's request, which is read only: the one given
	// to Client.Stream, the next of Client.Adopt, or else the adopted response's own,
	// which may be nil. It may return nil: then nobody is told.
	Trace func(*http.Request) *Trace
}

const (
	defaultConnectTimeout = 30 * time.Second
	maxRedirects          = 20 // Fetch, HTTP-redirect fetch
)

// Get returns the events of url: the zero Client's stream of a GET request. It is
// single use, like [Stream.Events].
//
// As in a browser, there is no limit on reconnecting: the loop goes on until ctx is
// done, a response is not an event stream, or you leave it. Use a [Client] to set
// limits. If url does not parse, the loop is given one error. Get panics if ctx is
// nil.
func Get(ctx context.Context, url string) iter.Seq2[Event, error] {
	if ctx == nil {
		panic("eventsource: Get with a nil Context")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		// The text of err shows the URL, and the URL may hold secrets.
		req, _ = http.NewRequestWithContext(ctx, http.MethodGet, "", nil)
		unsendable := &unsendableError{"the URL does not parse", err}
		client := Client{Prepare: func(*http.Request) error { return unsendable }}
		return client.Stream(req).Events()
	}
	return new(Client).Stream(req).Events()
}

// Stream returns the stream of events that req asks for. It sends nothing until
// the stream is ranged over. It panics if req is nil.
//
// The stream is governed by req's context. Every attempt sends a clone of req,
// with these headers unless req sets them: Accept: text/event-stream,
// Cache-Control and Pragma: no-cache, Accept-Encoding: identity. A Last-Event-ID
// header of req is the ID to resume from. req must not be changed, nor used for
// anything else, until the stream is over.
//
// A request is sent again only if net/http would do so: its method is GET, HEAD,
// OPTIONS or TRACE or it has an Idempotency-Key or X-Idempotency-Key header, and it
// has no body, or a GetBody, or a body that Client.Prepare sets. Any other request
// is sent once. If the policy then wants another attempt, the stream ends: without
// an error after a clean end, and otherwise with [ErrNotReplayable] and the cause.
// For a server that does not know the header, an empty key is enough: it marks the
// request as harmless to repeat and is not sent.
func (c *Client) Stream(req *http.Request) *Stream {
	if req == nil {
		panic("eventsource: Client.Stream with a nil Request")
	}
	return newStream(*c, req, nil)
}

// Adopt returns a stream whose first attempt is a response already in hand,
// checked like any other. Later attempts send next, as those of [Client.Stream] do;
// next inherits nothing from resp. If next is nil there are no later attempts, and
// the stream ends like one whose request cannot be sent again. Adopt panics if resp
// is nil.
//
// The context of next governs the stream, including the adopted body; if next is
// nil, that of resp.Request does, if there is one. IdleTimeout applies to the body;
// ConnectTimeout does not.
//
// The stream closes the body if it is ranged over. If the loop may never be entered,
// because something can fail before it, defer resp.Body.Close() as for any response:
// closing the body twice does no harm. Closing it must end a Read that is under way, as
// it does for the bodies of net/http: that is how timeouts, Reconnect and the context
// end the attempt.
func (c *Client) Adopt(resp *http.Response, next *http.Request) *Stream {
	if resp == nil {
		panic("eventsource: Client.Adopt with a nil Response")
	}
	return newStream(*c, next, resp)
}

// Package eventsource is a client for server-sent events (SSE, text/event-stream)
// that reconnects. It follows the EventSource parts of the HTML standard (§9.2)
// to the letter, waits as long as the server asks or gives up, and leaves every
// decision about reconnecting to a policy.
//
// # Words
//
// A stream is one logical sequence of events, over as many connections as it
// takes. An attempt is one try at a connection, from the request to the end of
// its response. A message is an event whose data is not empty, unless
// [Client].IsMessage says otherwise. The last event ID is the newest one that the
// server has sent on the stream and that the loop has been given; the next request
// carries it, so that the server can go on from there.
//
// The reconnection time is the last valid retry field that the server has sent on
// the stream; it stays in force until it is replaced. It is one of two ways in which
// a server asks for a wait; the other is the Retry-After header of a refusal, which
// holds for one wait only.
//
// An attempt ends cleanly if its body ends between two events. A stream ends in an
// orderly way if its loop is not given an error. Package [policy] adds words of its
// own: productive and fruitless attempts, polls and the budget.
//
// # Reading a stream
//
// Range over the events, and leave the loop to end the stream:
//
//	for event, err := range eventsource.Get(ctx, "https://example.com/feed") {
//		if err != nil {
//			return err // the stream is over: this is the last round
//		}
//		fmt.Println(event.Type, event.Data)
//	}
//
// Everything runs on the goroutine that ranges. There is nothing to close and no
// channel to drain; cancel the context to end the stream from elsewhere.
//
// # Settings
//
// [Get] behaves as a browser does: it reconnects for as long as ctx lives. A
// [Client] holds other settings. If somebody waits for a stream, give it a limit; if
// the server sends anything regularly, set an idle timeout:
//
//	client := &eventsource.Client{
//		Policy:      policy.Rules{Budget: time.Minute, MaxFruitless: 5},
//		IdleTimeout: 45 * time.Second,
//	}
//	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
//	…
//	for event, err := range client.Stream(req).Events() {
//
// To resume where an earlier process stopped, set the request's Last-Event-ID
// header to the stored [Event.LastEventID].
//
// # One answer instead of a feed
//
// A language model answers a POST with one response. [Client.Stream] never sends a
// POST twice unless it has an Idempotency-Key, and its stream ends when the response
// does. For a response that another library has received there are [CheckResponse],
// [Client.Adopt], and [Decoder], which only decodes.
//
// # Credentials
//
// Client.Prepare runs before every attempt and can set a fresh token. To answer a
// 401 with a new token and one more try inside the same attempt, wrap the
// transport in a RoundTripper, as the example Unauthorized does. Only the headers
// that this package sets follow a redirect to another host; after a 307 or 308 the
// body follows too, as HTTP requires.
//
// # Watching
//
// A [Trace] has hooks for connections, ends, waits and comments of one stream, and
// [LogTrace] writes them to a log. Nothing that this package writes shows the query or the user
// info of a URL, the value of a header except the media type, or a last event ID.
//
// # Guarantees
//
// What a stream guarantees is written down in docs/guarantees.md. Comments cite the
// guarantees by their numbers, G1 to G12.
package eventsource

// Package eventsource is a client for server-sent events (SSE, text/event-stream)
// that reconnects. It follows the EventSource parts of the HTML standard (§9.2)
// to the letter, honours the server's wishes about waiting exactly or gives up,
// and leaves every decision about reconnecting to a policy.
//
// # Words
//
// A stream is one logical sequence of events, over as many connections as it
// takes. An attempt is one try at a connection, from the request to the end of
// its response. The reconnection time is the last valid retry field that the
// server has sent on this stream; it stays in force until replaced. A message is
// an event whose data is not empty.
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
// Everything runs on the goroutine that ranges. There is nothing to close, and no
// channel to drain; cancel the context to end the stream from elsewhere.
//
// # Settings
//
// [Get] behaves as a browser does: it reconnects for as long as ctx lives. A
// [Client] holds other settings. Give streams that somebody waits for a limit, and
// an idle timeout if the server sends anything regularly:
//
//	client := &eventsource.Client{
//		Policy:      policy.Rules{Budget: time.Minute, MaxFruitless: 5}.New,
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
// An answer of a language model to a POST is one response: [Client.Stream] with a
// POST request ends when the response does and never sends it twice, unless it
// has an Idempotency-Key. For a response that another library has received there
// are [Client.Adopt], and [Decoder], which only decodes.
//
// # Credentials
//
// Client.Prepare runs before every attempt and can set a fresh token. To answer a
// 401 with a new token and one more try inside the same attempt, wrap the
// transport in a RoundTripper, as the example Unauthorized does. Of the header of a
// request only what this package sets follows a redirect to another host; after a
// 307 or 308 the body goes along too, as HTTP has it.
//
// # Watching
//
// A [Trace] has hooks for connections, ends, waits and comments, and [LogTrace]
// writes them to a log. Nothing that this package writes shows a URL's query or
// user info, a header's value but the media type, or a last event ID.
package eventsource

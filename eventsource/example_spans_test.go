package eventsource_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// A span stands for that of a tracing library: it has a parent, which its context knows,
// and an end.
type span struct{ name string }

type spanKey struct{}

func startSpan(ctx context.Context, name string) (context.Context, *span) {
	if parent, ok := ctx.Value(spanKey{}).(*span); ok {
		name = parent.name + "/" + name
	}
	fmt.Println("start", name)
	s := &span{name}
	return context.WithValue(ctx, spanKey{}, s), s
}

func (s *span) end(err error) { fmt.Println("end", s.name, err) }

// inject stands for a propagator: it names the span of ctx in a request's header.
func inject(ctx context.Context, h http.Header) {
	if s, ok := ctx.Value(spanKey{}).(*span); ok {
		h.Set("Traceparent", s.name)
	}
}

// A span for each stream and, below it, one for each attempt. Prepare is where headers
// are injected, since Connect, which comes after it, must not change the request: it
// sees the span of the stream in the request's context.
func ExampleTrace_spans() {
	server := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{
		{eventsourcetest.Retry(time.Millisecond), eventsourcetest.Event{Data: "a"}},
		{eventsourcetest.Event{Data: "b"}, eventsourcetest.Stall},
	}}
	server.Start()
	defer server.Close()

	client := &eventsource.Client{
		HTTPClient: server.Client(),
		Policy:     policy.Rules{Floor: time.Millisecond},
		Prepare: func(req *http.Request) error {
			inject(req.Context(), req.Header)
			return nil
		},
		Trace: func(req *http.Request) *eventsource.Trace {
			var attempt *span // nil between attempts
			end := func(err error) {
				if attempt != nil {
					attempt.end(err)
					attempt = nil
				}
			}
			return &eventsource.Trace{
				Connect: func(i eventsource.ConnectInfo) {
					_, attempt = startSpan(req.Context(), fmt.Sprint("attempt ", i.Number))
				},
				End:  func(a policy.Attempt) { end(a.Err) },
				Done: func(err error) { end(err) }, // an attempt that the loop leaves has no End
			}
		},
	}

	ctx, stream := startSpan(context.Background(), "stream")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		fmt.Println(event.Data, err)
		if event.Data == "b" {
			break
		}
	}
	stream.end(nil)
	fmt.Println("injected:", server.Requests()[0].Header.Get("Traceparent"))
	// Output:
	// start stream
	// start stream/attempt 1
	// a <nil>
	// end stream/attempt 1 <nil>
	// start stream/attempt 2
	// b <nil>
	// end stream/attempt 2 <nil>
	// end stream <nil>
	// injected: stream
}

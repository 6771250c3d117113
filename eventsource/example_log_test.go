package eventsource_test

import (
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// Watching a stream in a log. To have one more hook, set it: what LogTrace returns makes
// a Trace like any other for each stream.
func ExampleLogTrace() {
	fake := clock.NewFake(time.Time{})
	server := &eventsourcetest.Server{Clock: fake, Script: [][]eventsourcetest.Step{
		{eventsourcetest.Retry(5 * time.Second), eventsourcetest.Event{Data: "a"}, eventsourcetest.Cut},
		{eventsourcetest.Status{Code: http.StatusForbidden}},
	}}
	server.Start()
	defer server.Close()

	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
			if attr.Key == slog.TimeKey {
				return slog.Attr{} // so that the output is always the same
			}
			return attr
		},
	}))
	newTrace := eventsource.LogTrace(logger)
	client := &eventsource.Client{
		HTTPClient: server.Client(),
		Clock:      fake,
		Trace: func(req *http.Request) *eventsource.Trace {
			trace := newTrace(req)
			logWait := trace.Wait
			trace.Wait = func(w eventsource.WaitInfo) {
				logWait(w)
				fake.Advance(w.Waited)
			}
			return trace
		},
	}
	req, err := http.NewRequest(http.MethodGet, "http://feed.test/prices?token=secret", nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		logger.Info("in the loop", "data", event.Data, "failed", err != nil)
	}
	// Output:
	// level=INFO msg="event stream: open" stream=1 method=GET url=http://feed.test/prices attempt=1
	// level=INFO msg="in the loop" data=a failed=false
	// level=WARN msg="event stream: attempt ended" stream=1 method=GET url=http://feed.test/prices attempt=1 kind=dropped events=1 after=0s status=200 error="eventsource: the stream broke: unexpected EOF"
	// level=INFO msg="event stream: waiting" stream=1 method=GET url=http://feed.test/prices attempt=2 wait=5s asked=5s decided=5s
	// level=WARN msg="event stream: attempt ended" stream=1 method=GET url=http://feed.test/prices attempt=2 kind=rejected events=0 after=0s status=403 error="eventsource: the server answered 403 Forbidden instead of an event stream"
	// level=ERROR msg="event stream: over" stream=1 method=GET url=http://feed.test/prices error="eventsource: the server answered 403 Forbidden instead of an event stream"
	// level=INFO msg="in the loop" data="" failed=true
}

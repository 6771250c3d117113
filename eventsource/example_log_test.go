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

// Watching a stream in a log. To have one hook more, set it: LogTrace returns a
// Trace like any other.
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
	trace := eventsource.LogTrace(logger)
	logWait := trace.Wait
	trace.Wait = func(w eventsource.WaitInfo) {
		logWait(w)
		fake.Advance(w.Waited)
	}

	client := &eventsource.Client{HTTPClient: server.Client(), Clock: fake, Trace: trace}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		logger.Info("in the loop", "data", event.Data, "failed", err != nil)
	}
	// Output:
	// level=INFO msg="event stream: open" attempt=1
	// level=INFO msg="in the loop" data=a failed=false
	// level=WARN msg="event stream: attempt ended" attempt=1 kind=dropped events=1 after=0s status=200 error="eventsource: the stream broke: unexpected EOF"
	// level=INFO msg="event stream: waiting" attempt=2 wait=5s asked=5s decided=5s
	// level=WARN msg="event stream: attempt ended" attempt=2 kind=rejected events=0 after=0s status=403 error="eventsource: the server answered 403 Forbidden instead of an event stream"
	// level=ERROR msg="event stream: over" error="eventsource: the server answered 403 Forbidden instead of an event stream"
	// level=INFO msg="in the loop" data="" failed=true
}

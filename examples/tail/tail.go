package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"

	"github.com/reprise-sse/reprise/eventsource"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // gave up, or the demo's summary is wrong
	exitUsage  = 2
)

// run is the whole program. It returns the exit status and leaves nothing behind.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return exitUsage
	}
	events, log := &printer{w: stdout, json: o.json}, &journal{w: stderr}
	if o.url == "" {
		return runDemo(ctx, loopback{}, events, log)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	return follow(ctx, o, transport, events, log)
}

// follow prints the events of o.url until the stream ends or ctx is done, and
// returns the exit status.
func follow(ctx context.Context, o options, transport http.RoundTripper, events *printer, log *journal) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	if err != nil {
		log.log("gave up", errorText(err))
		return exitUsage
	}
	req.Header = o.header
	req.Host = o.header.Get("Host") // net/http takes it from here only
	if o.lastEventID != "" {
		req.Header.Set("Last-Event-ID", o.lastEventID)
	}

	client := eventsource.Client{
		HTTPClient:  &http.Client{Transport: transport},
		Policy:      o.policy,
		IdleTimeout: o.idle,
		Trace:       func(*http.Request) *eventsource.Trace { return log.trace() },
	}
	for ev, err := range client.Stream(req).Events() {
		if err == nil {
			err = events.print(ev)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			log.log("stopped", "interrupted")
			return exitOK
		default:
			log.log("gave up", errorText(err))
			return exitFailed
		}
	}
	log.log("over", "there will be no more events")
	return exitOK
}

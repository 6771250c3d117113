package eventsource_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// A Proxy hands the events of a server on to browsers. It reconnects to the server
// by itself, so that a browser keeps its connection while the server's breaks; and
// a browser that has lost its own goes on from its last event ID.
type Proxy struct {
	Client *eventsource.Client
	URL    string
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The browser's context: when it leaves, the stream ends.
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, p.URL, nil)
	if err != nil {
		http.Error(w, "no such stream", http.StatusInternalServerError)
		return
	}
	last := r.Header.Get("Last-Event-ID")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}

	// The response opens when the server's has, so that the browser is told of a
	// refusal, and of a 204, which makes it stop. Comments are passed on because other
	// proxies cut a connection that they take to be idle.
	opened := false
	flush := http.NewResponseController(w).Flush
	client := *p.Client
	client.Trace = func(req *http.Request) *eventsource.Trace {
		trace := new(eventsource.Trace)
		if p.Client.Trace != nil {
			if own := p.Client.Trace(req); own != nil {
				*trace = *own
			}
		}
		trace.Open = func(eventsource.OpenInfo) {
			if !opened {
				opened = true
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("Cache-Control", "no-store")
				flush()
			}
		}
		trace.Retry = func(d time.Duration) {
			fmt.Fprintf(w, "retry: %d\n", d.Milliseconds())
			flush()
		}
		trace.Comment = func(text string) {
			fmt.Fprintf(w, ": %s\n", text)
			flush()
		}
		return trace
	}

	for event, err := range client.Stream(req).Events() {
		var refusal *eventsource.ResponseError
		switch {
		case err == nil:
		case opened:
			return // the end of the response makes the browser come back
		case errors.As(err, &refusal) && refusal.StatusCode >= 400:
			http.Error(w, http.StatusText(refusal.StatusCode), refusal.StatusCode)
			return
		default:
			http.Error(w, "there is no stream", http.StatusBadGateway)
			return
		}
		writeEvent(w, event, &last)
		if flush() != nil {
			return
		}
	}
	if !opened {
		w.WriteHeader(http.StatusNoContent)
	}
}

// writeEvent writes an event, with its ID if that is not the last one.
func writeEvent(w io.Writer, event eventsource.Event, last *string) {
	if event.Type != "message" {
		fmt.Fprintf(w, "event: %s\n", event.Type)
	}
	if event.LastEventID != *last {
		*last = event.LastEventID
		fmt.Fprintf(w, "id: %s\n", *last)
	}
	for line := range strings.SplitSeq(event.Data, "\n") {
		fmt.Fprintf(w, "data: %s\n", line)
	}
	fmt.Fprintln(w)
}

// A proxy for browsers, whose stream goes on through a broken connection to the
// server behind it.
func Example_proxy() {
	fake := clock.NewFake(time.Time{})
	server := &eventsourcetest.Server{Clock: fake, Script: [][]eventsourcetest.Step{
		{eventsourcetest.Retry(2 * time.Second), eventsourcetest.Event{ID: "8", Data: "two\nlines"}, eventsourcetest.Send("id: 9\ndata: brok"), eventsourcetest.Cut},
		{eventsourcetest.Comment("still here"), eventsourcetest.Event{ID: "9", Type: "alert", Data: "whole"}},
	}}
	server.Start()
	defer server.Close()

	proxy := &Proxy{URL: server.URL, Client: &eventsource.Client{
		HTTPClient: server.Client(),
		Clock:      fake,
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{Wait: func(w eventsource.WaitInfo) { fake.Advance(w.Waited) }}
		},
	}}
	browser := httptest.NewRequest(http.MethodGet, "/events", nil)
	browser.Header.Set("Last-Event-ID", "7")
	response := httptest.NewRecorder()
	proxy.ServeHTTP(response, browser)

	fmt.Print(response.Body)
	for _, r := range server.Requests() {
		fmt.Printf("request %d with Last-Event-ID %q\n", r.Number, r.LastEventID)
	}
	// Output:
	// retry: 2000
	// id: 8
	// data: two
	// data: lines
	//
	// : still here
	// event: alert
	// id: 9
	// data: whole
	//
	// request 1 with Last-Event-ID "7"
	// request 2 with Last-Event-ID "8"
	// request 3 with Last-Event-ID "9"
}

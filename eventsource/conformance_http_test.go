package eventsource_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/vectors"
	"github.com/reprise-sse/reprise/policy"
)

// This file runs what a browser was seen to do about statuses, types, redirects
// and network errors against a Client with all its defaults, over real sockets.

// The reasons for differences in HTTP; the table of package vectors has the words.
const (
	reasonCharset  = "charset other than utf-8"
	reasonTimeout  = "408 ends the stream"
	reasonResend   = "resent at once"
	reasonRedirect = "redirect not remembered"
)

func TestVectorsBrowserHTTP(t *testing.T) {
	for _, v := range must(t, vectors.BrowserHTTP) {
		t.Run(v.ID, func(t *testing.T) {
			ours := httpAnswer(t, v)
			agree(t, v.ID, cmp.Diff(browserAnswer(v), ours, answerOptions))

			reason := must(t, vectors.Differences)[v.ID]
			if reason == "" {
				return
			}
			want, ok := differently(v, reason)
			if !ok {
				t.Fatalf("listed under %q, which is no reason for a difference in HTTP", reason)
			}
			if diff := cmp.Diff(want, ours, answerOptions); diff != "" {
				t.Errorf("%q is not the whole reason (-browser without it +ours):\n%s", reason, diff)
			}
		})
	}
}

// httpAnswer runs the stream of a script.
func httpAnswer(t *testing.T, v vectors.Browser) (a answer) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		attempts atomic.Int32 // that have begun
		inForce  atomic.Int64 // the reconnection time, as of the last attempt's end
		last     int32        // of the request before this, for the server
	)
	server := newWireServer(t, func(n int, req wireRequest) wireAnswer {
		attempt := attempts.Load()
		if n > 0 {
			r := reconnect{LastEventID: "absent", Path: req.Path}
			if r.Path == "/stream" {
				r.Path = ""
			}
			if lines := req.lines("Last-Event-ID"); len(lines) > 0 {
				r.LastEventID = `"` + lines[0] + `"`
			}
			if attempt != last { // else it is a redirect's, which comes at once
				r.Retry = measured(time.Duration(inForce.Load()))
			}
			a.Reconnects = append(a.Reconnects, r)
		}
		last = attempt
		if n >= len(v.Connections) {
			return wireAnswer{Status: http.StatusNoContent, Body: vectors.NoBody}
		}
		c := v.Connections[n]
		w := wireAnswer{Drop: c.Status == -1, Status: c.Status, Headers: c.Headers, Body: c.Body, Cut: c.Cut}
		for _, b := range c.Chunks {
			w.Parts = append(w.Parts, vectors.Part{Bytes: b})
		}
		return w
	})
	var end policy.Attempt
	client := eventsource.Client{
		HTTPClient: &http.Client{Transport: server},
		Clock:      server.clock,
		Trace: &eventsource.Trace{
			Connect: func(c eventsource.ConnectInfo) { attempts.Store(int32(c.Number)) },
			Open:    func(eventsource.OpenInfo) { a.Opens++ },
			End: func(attempt policy.Attempt) {
				end = attempt
				inForce.Store(int64(browserDefaultRetry))
				if attempt.HasRetry {
					inForce.Store(int64(attempt.Retry))
				}
			},
			Wait: func(w eventsource.WaitInfo) { server.clock.Advance(w.Waited) },
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin1+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range client.Stream(req).Events() {
		if err != nil {
			if end.Status == http.StatusNoContent {
				t.Errorf("the end after a 204 is %v", err)
			}
			break
		}
		a.Events = append(a.Events, vectors.Event{Connection: a.Opens - 1, Type: e.Type, Data: e.Data, LastEventID: e.LastEventID})
	}
	server.close()
	a.Outcome = vectors.Failed
	if end.Status == http.StatusNoContent && len(server.log()) == len(v.Connections)+1 {
		a.Outcome = vectors.Closed // by the 204 after the script
	}
	return a
}

// differently returns a browser's answer without what the reason says: what ours
// must then be.
func differently(v vectors.Browser, reason string) (answer, bool) {
	a := browserAnswer(v)
	switch reason {
	case reasonCharset:
		// As the vector with the same script and the plain type.
		a.Events = []vectors.Event{{Type: "message", Data: "é"}, {Connection: 1, Type: "message", Data: "y"}}
		a.Reconnects = []reconnect{{"absent", 200 * time.Millisecond, ""}, {"absent", 200 * time.Millisecond, ""}}
		a.Outcome, a.Opens = vectors.Closed, 2
	case reasonTimeout:
		// As with any other status: what came before the 408 is all there is.
		before := 0
		for v.Connections[before].Status != http.StatusRequestTimeout {
			before++
		}
		a.Events, a.Reconnects = a.Events[:before], a.Reconnects[:before]
		a.Outcome, a.Opens = vectors.Failed, before
	case reasonResend:
		a = referenceAnswer(v, false)
	case reasonRedirect:
		for i, r := range a.Reconnects {
			if r.Retry != 0 { // no redirect's, but a new attempt's
				a.Reconnects[i].Path = ""
			}
		}
	default:
		return a, false
	}
	return a, true
}

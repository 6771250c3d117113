package eventsource_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/memnet"
	"github.com/reprise-sse/reprise/policy"
)

// A browser that follows the rules, which a Client without settings does, is told by the
// Proxy of Example_proxy what the server behind it says, and costs that server one request
// for each of its own.
func TestProxy(t *testing.T) {
	type outcome struct {
		Told     []string // what the browser is told, in order
		Refused  int      // the status that ended its stream; 0 for an orderly end
		Asked    int      // how many requests the browser has sent
		Upstream []string // the Last-Event-ID of each request of the proxy
	}
	refusal := func(code int) []Step { return []Step{Status{Code: code, Body: "no"}} }
	for _, tt := range []struct {
		name   string
		policy policy.Policy // of the proxy
		script [][]Step
		want   outcome
	}{
		{"no content", nil, [][]Step{refusal(204)}, outcome{Asked: 1, Upstream: []string{"none"}}},
		{"forbidden", nil, [][]Step{refusal(403)}, outcome{Refused: 403, Asked: 1, Upstream: []string{"none"}}},
		{"not found", nil, [][]Step{refusal(404)}, outcome{Refused: 404, Asked: 1, Upstream: []string{"none"}}},
		{
			"the wrong type", nil,
			[][]Step{{Status{Header: typed("text/html"), Body: "no"}}},
			outcome{Refused: 502, Asked: 1, Upstream: []string{"none"}},
		},
		{
			"nobody there", policy.Never(),
			[][]Step{{Refuse}},
			outcome{Refused: 502, Asked: 1},
		},
		{
			"comments and reconnection times", nil,
			[][]Step{{Comment("still here"), Retry(2 * time.Second), numbered(1), Wait(20 * time.Second), Comment("and here"), End}, refusal(204)},
			outcome{
				Told: []string{
					"0s open", `0s comment "still here"`, "0s retry 2s", `0s "1" with ID 1`, `20s comment "and here"`,
				},
				Asked: 2, Upstream: []string{"none", "1", "1"},
			},
		},
		{
			"a broken connection to the server, which the browser does not notice", nil,
			[][]Step{{Retry(2 * time.Second), numbered(1), Send("id: 2\ndata: half"), Cut}, {Event{ID: "2", Type: "alert", Data: "two\nlines"}, End}, refusal(204)},
			outcome{
				Told:  []string{"0s open", "0s retry 2s", `0s "1" with ID 1`, `2s "two\nlines" with ID 2`},
				Asked: 2, Upstream: []string{"none", "1", "2", "2"},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upstream := serve(t, tt.script...)
				l := memnet.Listen()
				var got outcome
				proxy := &Proxy{URL: upstream.URL, Client: &eventsource.Client{
					HTTPClient: upstream.Client(), Policy: tt.policy,
					Trace: func(*http.Request) *eventsource.Trace { return nil },
				}}
				srv := &httptest.Server{Listener: l, Config: &http.Server{
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						got.Asked++
						proxy.ServeHTTP(w, r)
					}),
				}}
				srv.Start()
				defer srv.Close()
				transport := &http.Transport{DialContext: l.DialContext}
				defer transport.CloseIdleConnections()

				tell := func(format string, args ...any) {
					got.Told = append(got.Told, fmt.Sprintf("%v ", time.Since(bubbleStart))+fmt.Sprintf(format, args...))
				}
				browser := &eventsource.Client{HTTPClient: &http.Client{Transport: transport}, Trace: traceOf(&eventsource.Trace{
					Open:    func(eventsource.OpenInfo) { tell("open") },
					Comment: func(text string) { tell("comment %q", text) },
					Retry:   func(d time.Duration) { tell("retry %v", d) },
				})}
				for event, err := range browser.Stream(request(t.Context(), t, "http://relay.test/events")).Events() {
					var refused *eventsource.ResponseError
					switch {
					case err == nil:
						tell("%q with ID %s", event.Data, event.LastEventID)
					case errors.As(err, &refused):
						got.Refused = refused.StatusCode
					default:
						t.Error(err)
					}
				}
				got.Upstream = sentIDs(upstream)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// When the browser leaves, the proxy leaves the server, too.
func TestProxyLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := serve(t, []Step{numbered(1), Stall})
		l := memnet.Listen()
		srv := &httptest.Server{Listener: l, Config: &http.Server{
			Handler: &Proxy{URL: upstream.URL, Client: &eventsource.Client{HTTPClient: upstream.Client()}},
		}}
		srv.Start()
		defer srv.Close()
		transport := &http.Transport{DialContext: l.DialContext}
		defer transport.CloseIdleConnections()
		browser := &eventsource.Client{HTTPClient: &http.Client{Transport: transport}}
		for range browser.Stream(request(t.Context(), t, "http://relay.test/events")).Events() {
			break
		}
		synctest.Wait()
		if requests := upstream.Requests(); len(requests) != 1 || !requests[0].ClientLeft {
			t.Errorf("%d requests; the server saw the proxy leave: %v", len(requests), requests[0].ClientLeft)
		}
	})
}

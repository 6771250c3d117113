package eventsource_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/h2test"
	"github.com/reprise-sse/reprise/policy"
)

// Fetch, HTTP fetch and HTTP-redirect fetch.
func TestRedirects(t *testing.T) {
	// Every attempt starts from the caller's URL, also after a permanent redirect.
	t.Run("followed", func(t *testing.T) {
		for _, status := range []int{301, 302, 303, 307, 308} {
			run := runWire(t, eventsource.Client{}, func(req *http.Request) { req.Header.Set("Last-Event-ID", "7") },
				redirect(status, "/moved?a=b#c"), eventStream("id: 8\ndata: x\n\n"),
				redirect(status, "/elsewhere"), eventStream("id: 9\ndata: y\n\n"))
			var requests []string
			for _, r := range run.Requests {
				requests = append(requests, r.Method+" "+r.Path+" "+strings.Join(append(r.lines("Accept"), r.lines("Last-Event-ID")...), " "))
			}
			want := []string{
				"GET /stream text/event-stream 7", "GET /moved?a=b text/event-stream 7",
				"GET /stream text/event-stream 8", "GET /elsewhere text/event-stream 8",
				"GET /stream text/event-stream 9",
			}
			if diff := cmp.Diff(want, requests); diff != "" {
				t.Errorf("%d (-want +got):\n%s", status, diff)
			}
			if run.End != nil || !slices.Equal(run.Data, []string{"x", "y"}) || !slices.Equal(run.Opens, []string{"/moved", "/elsewhere"}) {
				t.Errorf("%d: %q from %q, %v", status, run.Data, run.Opens, run.End)
			}
		}
	})
	t.Run("count", func(t *testing.T) {
		for _, tt := range []struct {
			redirects int
			kind      policy.Kind
		}{{20, policy.Ended}, {21, policy.Failed}} {
			var answers []wireAnswer
			for i := range tt.redirects {
				answers = append(answers, redirect(302, fmt.Sprint("/", i)))
			}
			run := runWire(t, eventsource.Client{Policy: policy.Never()}, nil, append(answers, eventStream("data: x\n\n"))...)
			if len(run.Attempts) != 1 || run.Attempts[0].Kind != tt.kind || run.Attempts[0].Permanent || len(run.Requests) != 21 {
				t.Errorf("%d redirects: %d requests, %+v", tt.redirects, len(run.Requests), run.Attempts)
			}
		}
	})
	t.Run("to another scheme", func(t *testing.T) {
		for _, location := range []string{"ftp://origin1.test/", "about:blank", "data:text/event-stream,data:x"} {
			run := runWire(t, eventsource.Client{Policy: policy.Never()}, nil, redirect(302, location))
			if run.End == nil || run.Data != nil || len(run.Requests) != 1 {
				t.Errorf("%s: %q, %d requests, %v", location, run.Data, len(run.Requests), run.End)
			}
		}
	})
}

// What the caller added follows a redirect on the same host, however that is spelt, to
// another port of it and to https too. To another host, or from https to http, nothing follows but what the
// stream needs, nor from there on back to the first.
func TestCallersHeadersStayOnTheHost(t *testing.T) {
	stream := http.Header{
		"Accept": {"text/event-stream"}, "Accept-Encoding": {"identity"}, "Cache-Control": {"no-cache"}, "Pragma": {"no-cache"},
		"Last-Event-Id": {"9"},
	}
	all := stream.Clone()
	for _, name := range []string{
		"Authorization", "Cookie", "X-Api-Key", "Mcp-Session-Id", "Proxy-Authorization", "Referer", "User-Agent", "X-Anything",
	} {
		all.Set(name, "s")
	}
	for name, c := range map[string]struct {
		from string
		hops []string
		want http.Header // at each hop
	}{
		"same port":          {"http://server.test/x", []string{"/y"}, all},
		"other port":         {"http://server.test/x", []string{"http://server.test:8080/y"}, all},
		"default port":       {"http://server.test/x", []string{"http://server.test:80/y"}, all},
		"upper case":         {"http://server.test/x", []string{"http://SERVER.Test/y"}, all},
		"respelt and back":   {"http://server.test/x", []string{"http://SERVER.test/y", "http://server.test/z"}, all},
		"to lower case":      {"http://Server.test/x", []string{"http://server.test/y", "/z"}, all},
		"to Punycode":        {"http://bücher.test/x", []string{"http://xn--bcher-kva.test/y", "/z"}, all},
		"from Punycode":      {"http://XN--bcher-kva.test/x", []string{"http://Bücher.test/y", "/z"}, all},
		"to https":           {"http://server.test/x", []string{"https://server.test/y"}, all},
		"from https to http": {"https://server.test/x", []string{"http://server.test/y"}, stream},
		"to a parent":        {"http://a.server.test/x", []string{"http://server.test/y"}, stream},
		"to a child":         {"http://server.test/x", []string{"http://a.server.test/y"}, stream},
		"to a stranger":      {"http://user:s@server.test/x?token=s", []string{"http://other.test/y"}, stream},
		"to a lookalike":     {"http://bücher.test/x", []string{"http://bucher.test/y"}, stream},
		"to another IDN":     {"http://bücher.test/x", []string{"http://xn--bcher-kvb.test/y"}, stream},
		// net/http writes this Host as another one than bücher.test.
		"to a capital Ü":   {"http://bücher.test/x", []string{"http://BÜCHER.test/y"}, stream},
		"to a longer name": {"http://server.test/x", []string{"http://SERVER.test.other.test/y"}, stream},
		"back, respelt":    {"http://server.test/x", []string{"http://other.test/y", "http://SERVER.test:80/back"}, stream},
		"and back":         {"http://server.test/x?token=s", []string{"http://other.test/y", "http://server.test/back"}, stream},
	} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			t.Run(fmt.Sprint(name, "/", code), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rt := answers()
					for _, hop := range c.hops {
						rt.answers = append(rt.answers, status(code, "Location", hop))
					}
					rt.answers = append(rt.answers, body(nil, "data: a\n\n"), status(204))
					req := request(t.Context(), t, c.from)
					req.Header = all.Clone()
					if _, err := collect(rt.client(eventsource.Client{}).Stream(req)); err != nil {
						t.Fatal(err)
					}
					for i, r := range rt.requests {
						want := all // of the caller's URL, in the next attempt again
						if i > 0 && i <= len(c.hops) {
							want = c.want
						}
						if diff := cmp.Diff(want, r.Header); diff != "" {
							t.Errorf("the header at %s (-want +got):\n%s", r.URL, diff)
						}
					}
					if n := len(rt.requests); n != len(c.hops)+2 {
						t.Errorf("%d requests", n)
					}
				})
			})
		}
	}
}

// A CheckRedirect of the caller's has the last word.
func TestCheckRedirectOfTheCallers(t *testing.T) {
	for name, c := range map[string]struct {
		check func(*http.Request, []*http.Request) error
		keys  []string // X-Api-Key of each request
	}{
		"adds to the header": {func(req *http.Request, via []*http.Request) error {
			req.Header.Set("X-Api-Key", via[0].Header.Get("X-Api-Key"))
			return nil
		}, []string{"s", "s"}},
		"allows":  {func(*http.Request, []*http.Request) error { return nil }, []string{"s", ""}},
		"refuses": {func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, []string{"s"}},
	} {
		t.Run(name, func(t *testing.T) {
			rt := answers(status(307, "Location", "http://other.test/"), status(204))
			client := rt.client(eventsource.Client{Policy: policy.Never()})
			client.HTTPClient.CheckRedirect = c.check
			req := get(t.Context())
			req.Header.Set("X-Api-Key", "s")
			collect(client.Stream(req))
			var keys []string
			for _, r := range rt.requests {
				keys = append(keys, r.Header.Get("X-Api-Key"))
			}
			if diff := cmp.Diff(c.keys, keys); diff != "" {
				t.Errorf("X-Api-Key of the requests (-want +got):\n%s", diff)
			}
		})
	}
}

// If the body follows to another host, its type does too. The type of a body that does
// not follow, of an empty one or of none stays.
func TestBodyFollowsWithItsType(t *testing.T) {
	for code, follows := range map[int]bool{301: false, 302: false, 303: false, 307: true, 308: true} {
		for _, c := range []struct{ method, body string }{{"POST", "{}"}, {"POST", ""}, {"GET", ""}} {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve([]Step{Status{Code: code, Header: http.Header{"Location": {"//b.test/other"}}}}, []Step{Event{Data: "x"}, End})
				req := post(t, srv, c.body, "")
				if c.method == "GET" {
					req = request(t.Context(), t, srv.URL)
					req.Header.Set("Content-Type", "application/json")
				}
				want := []string{"GET", "", ""}
				if follows {
					want[0], want[1] = c.method, c.body
				}
				if follows && c.body != "" {
					want[2] = "application/json"
				}
				if s := follow(srv, eventsource.Client{Policy: policy.Never()}, req); s.err != nil {
					t.Fatal(s.err)
				}
				r := srv.Requests()[1]
				got := []string{r.Method, string(r.Body), r.Header.Get("Content-Type")}
				if diff := cmp.Diff(want, got); diff != "" || r.Host != "b.test" {
					t.Errorf("%d for a %s of %q: at %s (-want +got):\n%s", code, c.method, c.body, r.Host, diff)
				}
			})
		}
	}
}

// A POST may be sent again because of its key, so one that reached a server without the
// key may not.
func TestKeyThatDoesNotFollow(t *testing.T) {
	withKey := func(req *http.Request, via []*http.Request) error {
		req.Header["Idempotency-Key"] = via[0].Header["Idempotency-Key"]
		return nil
	}
	for name, c := range map[string]struct {
		code     int
		location string
		check    func(*http.Request, []*http.Request) error
		want     []string // method, key and body at the target
		repeated bool
	}{
		"another host":              {307, "//b.test/other", nil, []string{"POST", "", "question"}, false},
		"another host, for good":    {308, "//b.test/other", nil, []string{"POST", "", "question"}, false},
		"another host, key allowed": {307, "//b.test/other", withKey, []string{"POST", "k", "question"}, true},
		"another host, as a GET":    {303, "//b.test/other", nil, []string{"GET", "", ""}, true},
		"the same host":             {307, "/other", nil, []string{"POST", "k", "question"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				moved := []Step{Status{Code: c.code, Header: http.Header{"Location": {c.location}}}}
				srv := serve(moved, []Step{Event{Data: "a"}, Cut}, moved, []Step{Event{Data: "b"}, Cut})
				client := *srv.Client()
				client.CheckRedirect = c.check
				s := follow(srv, eventsource.Client{HTTPClient: &client, Policy: strict}, post(t, srv, "question", "k"))
				var got [][]string
				for _, r := range srv.Requests() {
					if r.URL.Path == "/other" {
						got = append(got, []string{r.Method, r.Header.Get("Idempotency-Key"), string(r.Body)})
					}
				}
				want := [][]string{c.want}
				if c.repeated {
					want = append(want, c.want)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("requests at the target (-want +got):\n%s", diff)
				}
				if errors.Is(s.err, eventsource.ErrNotReplayable) == c.repeated || c.repeated && s.err != nil {
					t.Errorf("it ended with %v", s.err)
				}
			})
		})
	}
}

// A redirect that follows an informational response is not one of net/http's resends.
func TestRedirectAfterEarlyHints(t *testing.T) {
	srv := startRefusingServer(t, func(_ *h2test.Conn, s *h2test.Stream) {
		s.Respond(http.StatusEarlyHints, earlyHints, false)
		s.Respond(http.StatusFound, http.Header{"Location": {"/there"}}, true)
	}, nil)
	history, _ := attemptsOf(t, srv.Client(), resendable(t, "GET", srv.URL+"/feed"), &srv.arrivals)
	if diff := cmp.Diff([]perAttempt{{policy.Ended, 2}}, history); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// TestConfigRefused gives requests that cannot be sent. The stream ends at once,
// with nothing sent and nothing retried, in words that name what is wrong.
func TestConfigRefused(t *testing.T) {
	parsed := func(target string) func(*http.Request) {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		return func(req *http.Request) { req.URL = u }
	}
	for name, c := range map[string]struct {
		edit func(*http.Request)
		want string
	}{
		"no scheme":     {parsed("/feed"), "the URL has no scheme; it must begin with http:// or https://"},
		"host and port": {parsed("localhost:8080/feed"), `the URL's scheme is "localhost", not http or https`},
		"ws":            {parsed("ws://server.test/feed"), `the URL's scheme is "ws", not http or https`},
		"file":          {parsed("file:///etc/feed"), `the URL's scheme is "file", not http or https`},
		"no host":       {parsed("http:///feed"), "the URL names no host"},
		"no URL":        {func(req *http.Request) { req.URL = nil }, "it has no URL"},
		"method":        {func(req *http.Request) { req.Method = "GE T" }, "its method is not a valid HTTP method"},
		"query":         {func(req *http.Request) { req.URL.RawQuery = "q=\t" }, "the URL holds a control character"},
		"opaque":        {func(req *http.Request) { req.URL.Opaque = "/feed\n" }, "the URL holds a control character"},
		"received": {
			func(req *http.Request) { req.RequestURI = "/feed" },
			"its RequestURI is set, as in requests that a server has received",
		},
		"no body":     {func(req *http.Request) { req.ContentLength = 5 }, "it has a ContentLength and no Body"},
		"header name": {func(req *http.Request) { req.Header["X Key"] = []string{"v"} }, "the name of a header is not valid"},
		"empty name":  {func(req *http.Request) { req.Header[""] = []string{"v"} }, "the name of a header is not valid"},
		"header value": {
			func(req *http.Request) { req.Header.Set("Authorization", "Bearer abc\n") },
			"the value of header Authorization holds a control character",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t)
				s := play(t, srv, eventsource.Client{Policy: policy.Resilient}, c.edit)
				if s.err == nil || s.err.Error() != "eventsource: cannot send the request: "+c.want {
					t.Errorf("the error is\n%v\nwant\neventsource: cannot send the request: %s", s.err, c.want)
				}
				if n := len(srv.Requests()); n != 0 || len(s.ends) != 1 || !s.ends[0].Futile {
					t.Errorf("%d requests, %d attempts", n, len(s.ends))
				}
			})
		})
	}
}

// TestConfigURL gives Get what is no URL.
func TestConfigURL(t *testing.T) {
	for target, want := range map[string]string{
		"":                      "eventsource: cannot send the request: the URL has no scheme; it must begin with http:// or https://",
		"server.test/feed":      "eventsource: cannot send the request: the URL has no scheme; it must begin with http:// or https://",
		"localhost:8080/feed":   `eventsource: cannot send the request: the URL's scheme is "localhost", not http or https`,
		"127.0.0.1:8080/feed":   "eventsource: cannot send the request: the URL does not parse",
		"http://server.test/%":  "eventsource: cannot send the request: the URL does not parse",
		"http://[::1/feed":      "eventsource: cannot send the request: the URL does not parse",
		"https://a.test:b/feed": "eventsource: cannot send the request: the URL does not parse",
	} {
		var got []error
		for _, err := range eventsource.Get(t.Context(), target) {
			got = append(got, err)
		}
		if len(got) != 1 || got[0].Error() != want {
			t.Errorf("%q: %v, want %s", target, got, want)
		}
	}
}

// TestConfigStoredID has an ID to resume from that no header can carry.
func TestConfigStoredID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t)
		s := play(t, srv, eventsource.Client{Policy: policy.Resilient}, header("Last-Event-ID", "17\n18"))
		if !errors.Is(s.err, eventsource.ErrUnsendableID) || len(srv.Requests()) != 0 {
			t.Errorf("%d requests and %v", len(srv.Requests()), s.err)
		}
		const want = "eventsource: the last event ID holds a control character and cannot be sent"
		if s.err.Error() != want {
			t.Errorf("the text is %q, want %q", s.err, want)
		}
	})
}

// TestConfigStoredIDSpelling has the ID in a header of the standard's spelling, which
// is not the one that http.Header looks for.
func TestConfigStoredIDSpelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, []Step{Event{ID: "18", Data: "a"}, End}, []Step{Send("id\n\n"), End})
		play(t, srv, eventsource.Client{}, func(req *http.Request) {
			req.Header["Last-Event-ID"] = []string{"17"}
		})
		var got [][]string
		for _, r := range srv.Requests() {
			got = append(got, r.Header.Values("Last-Event-ID"))
		}
		if diff := cmp.Diff([][]string{{"17"}, {"18"}, nil}, got); diff != "" {
			t.Errorf("IDs sent (-want +got):\n%s", diff)
		}
	})
}

// TestConfigServer has the client at the wrong door: the text tells which.
func TestConfigServer(t *testing.T) {
	for name, c := range map[string]struct {
		http2  bool // and TLS
		client func(srv *Server) *http.Client
		edit   func(*http.Request)
		want   string
	}{
		"https to a server of http": {
			client: func(srv *Server) *http.Client {
				return &http.Client{Transport: &http.Transport{DialContext: srv.DialContext}}
			},
			edit: func(req *http.Request) { req.URL.Scheme = "https" },
			want: "eventsource: GET https://server.test/feed: http: server gave HTTP response to HTTPS client",
		},
		"a certificate of nobody's": {
			http2: true,
			client: func(srv *Server) *http.Client {
				return &http.Client{Transport: &http.Transport{DialContext: srv.DialContext}}
			},
			want: "eventsource: GET https://server.test/feed: tls: failed to verify certificate: x509: certificate signed by unknown authority",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := start(t, &Server{HTTP2: c.http2, Script: [][]Step{{Status{Code: 400, Header: http.Header{"Connection": {"close"}}}}}})
				edits := []func(*http.Request){}
				if c.edit != nil {
					edits = append(edits, c.edit)
				}
				s := play(t, srv, eventsource.Client{HTTPClient: c.client(srv), Policy: policy.Never}, edits...)
				if s.err == nil || s.err.Error() != c.want {
					t.Errorf("the error is\n%v\nwant\n%s", s.err, c.want)
				}
			})
		})
	}
	t.Run("a coding that was asked for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := typed("text/event-stream")
			h["Content-Encoding"] = []string{"br"}
			srv := serve(t, []Step{Status{Header: h}, Event{Data: "x"}, End})
			s := play(t, srv, eventsource.Client{}, header("Accept-Encoding", "br"))
			const want = "eventsource: the server answered 200 OK in a content coding that cannot be decoded; only gzip can"
			if s.err == nil || s.err.Error() != want {
				t.Errorf("the error is %v, want %s", s.err, want)
			}
		})
	})
	t.Run("an event beyond the limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t, []Step{Event{Data: strings.Repeat("x", 5000)}, End}, []Step{Event{Data: "not asked for"}, End})
			s := play(t, srv, eventsource.Client{Policy: policy.Resilient, MaxEventSize: 4096})
			const want = "eventsource: event too large: the limit is 4096 bytes"
			if s.err == nil || s.err.Error() != want || len(srv.Requests()) != 1 {
				t.Errorf("%d requests and %v, want %s", len(srv.Requests()), s.err, want)
			}
		})
	})
}

// TestConfigPolicy has policies that do not do their part.
func TestConfigPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		policy policy.Func
		is     error
		want   string
	}{
		"no decision": {
			func(policy.Attempt) (d policy.Decision) { return d },
			policy.ErrNoDecision,
			"eventsource: the policy made no decision; attempt 1 failed: GET http://server.test/feed: dial mem server.test:80: connect: connection refused",
		},
		"stop without saying why": {
			func(a policy.Attempt) policy.Decision { return policy.Stop(a.Err) },
			nil,
			"eventsource: GET http://server.test/feed: dial mem server.test:80: connect: connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t, []Step{Refuse})
				s := play(t, srv, eventsource.Client{Policy: func() policy.Reconnector { return c.policy }})
				if s.err == nil || s.err.Error() != c.want || c.is != nil && !errors.Is(s.err, c.is) {
					t.Errorf("the error is\n%v\nwant\n%s", s.err, c.want)
				}
			})
		})
	}
	t.Run("negative wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := serve(t, []Step{Refuse}, []Step{Event{Data: "a"}, End})
			s := play(t, srv, eventsource.Client{Policy: func() policy.Reconnector {
				return policy.Func(func(a policy.Attempt) policy.Decision {
					if a.Number == 3 {
						return policy.Stop(nil)
					}
					return policy.After(-time.Hour)
				})
			}})
			if diff := cmp.Diff([]string{"a"}, s.data()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]time.Duration{0, 0}, s.waits); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	})
}

// TestConfigPanics has what can only be a programmer's mistake. It panics where it
// is made, in words that name it.
func TestConfigPanics(t *testing.T) {
	req := request(t.Context(), t, "http://server.test")
	client := &eventsource.Client{}
	for name, c := range map[string]struct {
		do   func()
		want string
	}{
		"request":  {func() { client.Stream(nil) }, "eventsource: Client.Stream with a nil Request"},
		"response": {func() { client.Adopt(nil, req) }, "eventsource: Client.Adopt with a nil Response"},
		"context": {
			func() { eventsource.Get(nilContext(), "http://server.test") },
			"eventsource: Get with a nil Context",
		},
		"policy": {
			func() {
				(&eventsource.Client{Policy: func() policy.Reconnector { return nil }}).Stream(req)
			}, "eventsource: Client.Policy returned nil",
		},
		"Delay":    {func() { policy.Rules{Delay: -1}.New() }, "policy: Rules.Delay is -1ns; it must not be negative"},
		"MaxDelay": {func() { policy.Rules{MaxDelay: -1}.New() }, "policy: Rules.MaxDelay is -1ns; it must not be negative"},
		"Budget":   {func() { policy.Rules{Budget: -1}.New() }, "policy: Rules.Budget is -1ns; it must not be negative"},
		"Factor": {
			func() { policy.Rules{Factor: 0.5}.New() },
			"policy: Rules.Factor is 0.5; it must be a number of at least 1, or 0 for the default",
		},
		"Jitter": {func() { policy.Rules{Jitter: math.NaN()}.New() }, "policy: Rules.Jitter is NaN; it must be a finite number"},
		"limit": {
			func() {
				d := eventsource.NewDecoder(strings.NewReader(""))
				d.Next()
				d.SetMaxEventSize(1)
			}, "eventsource: SetMaxEventSize called after the first read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); got != c.want {
					t.Errorf("the panic is %q, want %q", got, c.want)
				}
			}()
			c.do()
		})
	}
}

func nilContext() context.Context { return nil }

// TestConfigReuse ranges twice over a stream: the second gets one error.
func TestConfigReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, []Step{Event{Data: "a"}, End})
		stream := (&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(t.Context(), t, srv.URL))
		if _, err := collect(stream); err != nil {
			t.Fatal(err)
		}
		before := len(srv.Requests())
		data, err := collect(stream)
		const want = "eventsource: a stream can be ranged over only once; make a new one"
		if err == nil || err.Error() != want || len(data) != 0 {
			t.Errorf("%q and %v, want %s", data, err, want)
		}
		if n := len(srv.Requests()); n != before {
			t.Errorf("%d more requests", n-before)
		}
	})
}

// TestConfigCallersObjects: neither the request, nor the client, nor what they hold
// is changed, so that they can be used for another stream.
func TestConfigCallersObjects(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(repeated(4, Retry(time.Millisecond), numbered(1), Cut)...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/feed?x", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		client := eventsource.Client{HTTPClient: srv.Client(), Prepare: func(req *http.Request) error {
			req.Header.Set("Authorization", "Bearer 1")
			req.URL.RawQuery = "y"
			req.Body, req.GetBody, req.ContentLength = io.NopCloser(strings.NewReader("other")), nil, 5
			return nil
		}}
		before, u := req.Header.Clone(), *req.URL
		for ev, err := range client.Stream(req).Events() {
			if err != nil || ev.Data != "1" {
				t.Fatal(ev, err)
			}
			if diff := cmp.Diff(before, req.Header); diff != "" {
				t.Fatalf("the request's header (-before +after):\n%s", diff)
			}
			if *req.URL != u {
				t.Fatalf("the request's URL is %v", req.URL)
			}
		}
		for _, r := range srv.Requests() {
			if string(r.Body) != "other" || r.URL.RawQuery != "y" {
				t.Errorf("request %d: %s with %q", r.Number, r.URL, r.Body)
			}
		}
		if client.Policy != nil || client.Clock != nil || client.Trace != nil || client.ConnectTimeout != 0 || client.MaxEventSize != 0 {
			t.Error("the Client was changed")
		}
	})
}

package eventsource_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// With a request that cannot be sent the stream ends at once, with nothing sent and
// nothing retried, in words that name what is wrong.
func TestUnsendableRequests(t *testing.T) {
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
		"DEL in a header value": {
			func(req *http.Request) { req.Header.Set("X-Api-Key", "abc\x7f") },
			"the value of header X-Api-Key holds a control character",
		},
		"stored ID": {header("Last-Event-ID", "17\n18"), eventsource.ErrUnsendableID.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t)
				s := play(t, srv, eventsource.Client{Policy: policy.Constructor(twice)}, c.edit)
				want := "eventsource: cannot send the request: " + c.want
				if errors.Is(s.err, eventsource.ErrUnsendableID) {
					want = c.want
				}
				if s.err == nil || s.err.Error() != want {
					t.Errorf("the error is\n%v\nwant\n%s", s.err, want)
				}
				if n := len(srv.Requests()); n != 0 || len(s.ends) != 1 || !s.ends[0].Permanent {
					t.Errorf("%d requests, %d attempts", n, len(s.ends))
				}
			})
		})
	}
}

// Headers can be computed for each attempt. If that fails, the attempt has
// failed and the policy decides.
func TestPrepareMakesFreshHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, []Step{Event{Data: "a"}, Cut}, []Step{Event{Data: "b"}, Cut}, []Step{Event{Data: "c"}, End})
		errVault := errors.New("the vault is closed")
		n := 0
		s := play(t, srv, eventsource.Client{Policy: strict, Prepare: func(req *http.Request) error {
			n++
			if n == 2 || n == 3 {
				return errVault
			}
			req.Header.Set("Authorization", fmt.Sprint("Bearer ", n))
			return nil
		}})
		var tokens []string
		for _, r := range srv.Requests() {
			tokens = append(tokens, r.Header.Get("Authorization"))
		}
		if diff := cmp.Diff([]string{"Bearer 1", "Bearer 4", "Bearer 5", "Bearer 6"}, tokens); diff != "" {
			t.Errorf("tokens (-want +got):\n%s", diff)
		}
		for _, a := range s.ends[1:3] {
			if a.Kind != policy.Failed || !errors.Is(a.Err, errVault) {
				t.Errorf("attempt %d ended %v with %v", a.Number, a.Kind, a.Err)
			}
		}
		if diff := cmp.Diff(seconds(3, 3, 6, 3, 3), s.waits); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
	})
}

// Any method and body can be used.
func TestAnyMethodAndBody(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "REPORT", "GET"} {
		overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
			srv := serve([]Step{Event{Data: "a"}, End})
			req := post(t, srv, `{"stream":true}`, "")
			req.Method = method
			if s := follow(srv, eventsource.Client{}, req); s.err != nil {
				t.Errorf("%s: %v", method, s.err)
			}
			r := srv.Requests()[0]
			got := []string{r.Method, string(r.Body), r.Header.Get("Content-Type"), r.Header.Get("Accept")}
			want := []string{method, `{"stream":true}`, "application/json", "text/event-stream"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: request (-want +got):\n%s", method, diff)
			}
		})
	}
}

package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// What does not parse as a URL, or is none of http, is one error, which shows nothing of
// it. The cause unwraps.
func TestGetOfWhatIsNoURL(t *testing.T) {
	const (
		noScheme = "eventsource: cannot send the request: the URL has no scheme; it must begin with http:// or https://"
		noURL    = "eventsource: cannot send the request: the URL does not parse"
	)
	for target, want := range map[string]string{
		"":                         noScheme,
		"server.test/feed":         noScheme,
		"localhost:8080/feed":      `eventsource: cannot send the request: the URL's scheme is "localhost", not http or https`,
		"127.0.0.1:8080/feed":      noURL,
		"http://server.test/%zz?q": noURL,
		"http://u:p@[::1/feed":     noURL,
		"https://a.test:b/feed":    noURL,
		"http://a b/":              noURL,
		":secret":                  noURL,
		"http://a.test/\x7f":       noURL,
	} {
		var got []error
		for _, err := range eventsource.Get(t.Context(), target) {
			got = append(got, err)
		}
		if len(got) != 1 || got[0].Error() != want {
			t.Errorf("%q: %v, want %s", target, got, want)
		}
		if cause := (*url.Error)(nil); errors.As(got[0], &cause) != (want == noURL) {
			t.Errorf("%q: the cause of %v", target, got)
		}
	}
}

// The context governs the stream of Get too, whether or not the URL is one.
func TestGetHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	for _, target := range []string{"", ":no URL"} {
		var got []error
		for _, err := range eventsource.Get(ctx, target) {
			got = append(got, err)
		}
		if len(got) != 1 || got[0] != errEnough {
			t.Errorf("%q: %v, want the cause of the context's end", target, got)
		}
	}
}

// What can only be a programmer's mistake panics where it is made, in words that name
// it.
func TestMistakesPanic(t *testing.T) {
	req := request(t.Context(), t, "http://server.test")
	client := &eventsource.Client{}
	var none context.Context
	for want, mistake := range map[string]func(){
		"eventsource: Client.Stream with a nil Request": func() { client.Stream(nil) },
		"eventsource: Client.Adopt with a nil Response": func() { client.Adopt(nil, req) },
		"eventsource: Get with a nil Context":           func() { eventsource.Get(none, "http://server.test") },
		"eventsource: New of Client.Policy returned nil": func() {
			(&eventsource.Client{Policy: policy.Constructor(func() policy.Reconnector { return nil })}).Stream(req)
		},
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("the panic is %q, want %q", got, want)
				}
			}()
			mistake()
		})
	}
}

// The caller's HTTP client makes every attempt, with its round tripper and
// its cookie jar, and is not changed.
func TestCallersHTTPClientIsUsed(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(
			[]Step{Status{Header: http.Header{"Content-Type": {"text/event-stream"}, "Set-Cookie": {"session=7; Path=/"}}}, Event{Data: "a"}, Cut},
			[]Step{Event{Data: "b"}, End},
		)
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		passed := 0
		own := &http.Client{Jar: jar, Timeout: time.Minute, Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
			passed++
			return srv.Client().Transport.RoundTrip(req)
		})}
		play(t, srv, eventsource.Client{HTTPClient: own})
		var cookies []string
		for _, r := range srv.Requests() {
			cookies = append(cookies, r.Header.Get("Cookie"))
		}
		if diff := cmp.Diff([]string{"", "session=7", "session=7"}, cookies); diff != "" {
			t.Errorf("cookies (-want +got):\n%s", diff)
		}
		if passed != 3 {
			t.Errorf("%d of 3 requests went through the caller's round tripper", passed)
		}
		if own.Timeout != time.Minute || own.CheckRedirect != nil || own.Jar != http.CookieJar(jar) {
			t.Error("the caller's client was changed")
		}
	})
}

// Neither the request, nor the client, nor what they hold
// is changed, so that they can be used for another stream.
func TestCallersObjectsAreNotChanged(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(repeated(4, Retry(time.Millisecond), numbered(1), Cut)...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/feed?x", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		req.Header.Set("Last-Event-ID", "0")
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

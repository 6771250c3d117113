package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// moved returns the step that redirects.
func moved(code int, location string) Step {
	return Status{Code: code, Header: http.Header{"Location": {location}}}
}

// R069: Authorization survives a redirect on the same host, to another port of it
// too, but not one from https to http.
func TestR069AuthorizationOnSameHost(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		want     []string
	}{
		"same port":          {"http://server.test/x", "/y", []string{"Bearer s"}},
		"other port":         {"http://server.test/x", "http://server.test:8080/y", []string{"Bearer s"}},
		"to https":           {"http://server.test/x", "https://server.test/y", []string{"Bearer s"}},
		"from https to http": {"https://server.test/x", "http://server.test/y", nil},
		"to a parent":        {"http://a.server.test/x", "http://server.test/y", nil},
		"to a child":         {"http://server.test/x", "http://a.server.test/y", nil},
	} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			t.Run(fmt.Sprint(name, "/", code), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rt := answers(status(code, "Location", c.to), body(nil, "id: 1\ndata: a\n\n"), status(204))
					req := request(t.Context(), t, c.from)
					req.Header.Set("Authorization", "Bearer s")
					if _, err := collect(rt.client(eventsource.Client{}).Stream(req)); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(c.want, rt.requests[1].Header["Authorization"]); diff != "" {
						t.Errorf("after the redirect (-want +got):\n%s", diff)
					}
					// The next attempt is at the caller's URL again.
					if diff := cmp.Diff([]string{"Bearer s"}, rt.requests[2].Header["Authorization"]); diff != "" {
						t.Errorf("on the next attempt (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// R069: the same over sockets, where net/http adds and drops what it likes.
func TestR069AuthorizationOverSockets(t *testing.T) {
	var got []string
	target := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusNoContent)
	})
	plain, secure := httptest.NewServer(target), httptest.NewTLSServer(target)
	defer plain.Close()
	defer secure.Close()
	location := ""
	redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, location, http.StatusPermanentRedirect)
	})
	from, secureFrom := httptest.NewServer(redirect), httptest.NewTLSServer(redirect)
	defer from.Close()
	defer secureFrom.Close()

	client := eventsource.Client{HTTPClient: secureFrom.Client()}
	defer client.HTTPClient.CloseIdleConnections()
	for _, hop := range [][2]string{{from.URL, plain.URL}, {secureFrom.URL, secure.URL}, {secureFrom.URL, plain.URL}} {
		req := request(t.Context(), t, hop[0])
		req.Header.Set("Authorization", "Bearer s")
		location = hop[1]
		if _, err := collect(client.Stream(req)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"Bearer s", "Bearer s", ""}, got); diff != "" {
		t.Errorf("to another port of the host, the same in TLS, from https to http (-want +got):\n%s", diff)
	}
}

// R070: nothing that the caller added follows to another host, nor from there on
// back to the first; what the stream needs does. A CheckRedirect of the caller's
// has the last word.
func TestR070NothingOfTheCallersFollows(t *testing.T) {
	own := map[string]string{
		"Authorization": "Bearer s", "Cookie": "session=s", "X-Api-Key": "s", "Mcp-Session-Id": "s",
		"Proxy-Authorization": "s", "Referer": "http://a.test/?token=s", "User-Agent": "s", "X-Anything": "s",
	}
	play := func(t *testing.T, check func(*http.Request, []*http.Request) error, script ...[]Step) *Server {
		srv := serve(t, script...)
		client := *srv.Client()
		client.CheckRedirect = check
		req := request(t.Context(), t, "http://user:s@a.test/feed?token=s")
		for name, value := range own {
			req.Header.Set(name, value)
		}
		req.Header.Set("Last-Event-ID", "9")
		follow(srv, eventsource.Client{HTTPClient: &client}, req)
		return srv
	}
	wantStranger := http.Header{
		"Accept": {"text/event-stream"}, "Accept-Encoding": {"identity"}, "Cache-Control": {"no-cache"}, "Pragma": {"no-cache"},
		"Last-Event-Id": {"9"}, "User-Agent": {"Go-http-client/1.1"},
	}

	for _, code := range []int{301, 302, 303, 307, 308} {
		synctest.Test(t, func(t *testing.T) {
			srv := play(t, nil,
				[]Step{moved(code, "http://b.test/other")},
				[]Step{moved(code, "http://a.test/back")},
				[]Step{Event{Data: "x"}, End},
			)
			requests := srv.Requests()
			for name, value := range own {
				if got := requests[0].Header.Get(name); got != value && name != "Proxy-Authorization" {
					t.Errorf("%d: the first request has %q as %s", code, got, name)
				}
			}
			for _, r := range requests[1:3] {
				if diff := cmp.Diff(wantStranger, r.Header); diff != "" {
					t.Errorf("%d: the header at %s%s (-want +got):\n%s", code, r.Host, r.URL, diff)
				}
			}
			// The last, at the caller's URL, is the next attempt: it has everything again.
			if last := requests[3]; last.Host != "a.test" || last.Header.Get("X-Api-Key") != "s" {
				t.Errorf("%d: the next attempt was at %s%s with %v", code, last.Host, last.URL, last.Header)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		srv := play(t, func(req *http.Request, via []*http.Request) error {
			req.Header.Set("X-Api-Key", via[0].Header.Get("X-Api-Key"))
			return nil
		}, []Step{moved(307, "http://b.test/other")}, []Step{Event{Data: "x"}, End})
		if got := srv.Requests()[1].Header.Get("X-Api-Key"); got != "s" {
			t.Errorf("the caller's CheckRedirect has set %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		srv := play(t, func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			[]Step{moved(307, "http://b.test/other")}, []Step{Event{Data: "x"}, End})
		if n := len(srv.Requests()); n != 1 {
			t.Errorf("%d requests, though the caller's CheckRedirect refused", n)
		}
	})
}

// R070: of a body that goes along to another host, its type does too; without the
// body it does not.
func TestR070BodyFollowsWithItsType(t *testing.T) {
	for code, follows := range map[int]bool{301: false, 302: false, 303: false, 307: true, 308: true} {
		overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
			srv := serve([]Step{moved(code, "//b.test/other")}, []Step{Event{Data: "x"}, End})
			req := post(t, srv, "{}", "")
			req.Header.Set("X-Api-Key", "s")
			if s := follow(srv, eventsource.Client{}, req); s.err != nil {
				t.Fatal(s.err)
			}
			want := []string{"GET", "", "", ""}
			if follows {
				want = []string{"POST", "{}", "application/json", ""}
			}
			r := srv.Requests()[1]
			got := []string{r.Method, string(r.Body), r.Header.Get("Content-Type"), r.Header.Get("X-Api-Key")}
			if diff := cmp.Diff(want, got); diff != "" || r.Host != "b.test" {
				t.Errorf("%d: at %s (-want +got):\n%s", code, r.Host, diff)
			}
		})
	}
}

// R071: every attempt starts from the caller's URL, also after a permanent
// redirect.
func TestR071AttemptsStartFromCallersURL(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
			srv := serve(
				[]Step{moved(code, "/b")}, []Step{Event{ID: "1", Data: "a"}, Cut},
				[]Step{moved(code, "/c")}, []Step{Event{ID: "2", Data: "b"}, End},
			)
			play(t, srv, eventsource.Client{})
			var paths []string
			for _, r := range srv.Requests() {
				paths = append(paths, r.Method+" "+r.URL.Path+" "+r.LastEventID)
			}
			want := []string{"GET /feed ", "GET /b ", "GET /feed 1", "GET /c 1", "GET /feed 2"}
			if diff := cmp.Diff(want, paths); diff != "" {
				t.Errorf("%d: requests (-want +got):\n%s", code, diff)
			}
		})
	}
}

// R072: headers can be computed for each attempt. If that fails, the attempt has
// failed and the policy decides.
func TestR072FreshHeaders(t *testing.T) {
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

// R073: a 401 can bring a fresh token and one more try inside the same attempt:
// with the ID, and without a wait or a count. Without that it is final. The
// RoundTripper is that of an example.
func TestR073UnauthorizedRefreshes(t *testing.T) {
	script := [][]Step{
		{Event{ID: "3", Data: "a"}, Cut},
		{Status{Code: 401, Body: "expired"}},
		{Event{ID: "4", Data: "b"}, End},
	}
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(script...)
		tokens := 0
		client := &http.Client{Transport: &Refresher{Base: srv.Client().Transport, Fetch: func(context.Context) (string, error) {
			tokens++
			return strconv.Itoa(tokens), nil
		}}}
		s := play(t, srv, eventsource.Client{HTTPClient: client, Policy: strict})
		if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" || s.err != nil {
			t.Errorf("error %v, events (-want +got):\n%s", s.err, diff)
		}
		var got []string
		for _, r := range srv.Requests() {
			got = append(got, fmt.Sprint(r.Header.Get("Authorization"), ", ID ", r.LastEventID, ", after ", r.Gap))
		}
		want := []string{
			"Bearer 1, ID , after 0s",
			"Bearer 1, ID 3, after 3s",
			"Bearer 2, ID 3, after 0s",
			"Bearer 2, ID 4, after 3s",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if len(s.ends) != 3 { // the last is the 204
			t.Errorf("%d attempts, want 3", len(s.ends))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, script...)
		s := play(t, srv, eventsource.Client{})
		var resp *eventsource.ResponseError
		if !errors.As(s.err, &resp) || resp.StatusCode != 401 || len(srv.Requests()) != 2 {
			t.Errorf("without it: %d requests and %v", len(srv.Requests()), s.err)
		}
	})
}

// post returns a POST of text, repeatable if there is a key.
func post(t *testing.T, srv *Server, text, key string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return req
}

// R074: any method and body can be used.
func TestR074AnyMethodAndBody(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "REPORT", "GET"} {
		overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
			srv := serve([]Step{Event{Data: "to"}, Event{Data: "ken"}, End})
			req := post(t, srv, `{"stream":true}`, "")
			req.Method = method
			s := follow(srv, eventsource.Client{}, req)
			if diff := cmp.Diff([]string{"to", "ken"}, s.data()); diff != "" || s.err != nil {
				t.Errorf("%s: error %v, events (-want +got):\n%s", method, s.err, diff)
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

// R075: the body is complete on every attempt, also when the first was reset
// before it was answered.
func TestR075BodyIsCompleteOnEveryAttempt(t *testing.T) {
	text := strings.Repeat("0123456789", 40)
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Reset}, []Step{Event{Data: "a"}, Reset}, []Step{Event{Data: "b"}, End})
		s := follow(srv, eventsource.Client{Policy: strict}, post(t, srv, text, "k"))
		if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" || s.err != nil {
			t.Errorf("error %v, events (-want +got):\n%s", s.err, diff)
		}
		for _, r := range srv.Requests() {
			if string(r.Body) != text || r.Header.Get("Content-Length") != "400" {
				t.Errorf("request %d has %d bytes and says %q", r.Number, len(r.Body), r.Header.Get("Content-Length"))
			}
		}
		if n := len(srv.Requests()); n != 4 {
			t.Errorf("%d requests, want 4", n)
		}
	})
}

// R075: a body that cannot be produced again is sent once, key or not, also when
// nothing shows that the server has read it.
func TestR075BodyThatCannotBeRepeated(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Reset}, []Step{Event{Data: "not asked for"}, End})
		req := post(t, srv, "", "k")
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader("once")))
		req.GetBody, req.ContentLength = nil, -1
		s := follow(srv, eventsource.Client{}, req)
		if !errors.Is(s.err, eventsource.ErrNotReplayable) {
			t.Errorf("the error is %v", s.err)
		}
		if n := len(srv.Requests()); n != 1 || len(s.events) != 0 || s.took != 0 {
			t.Errorf("%d requests, %d events, after %v", n, len(s.events), s.took)
		}
	})
}

// R075: nor is the rest of a body sent of which a Prepare that failed has read.
func TestR075BodyThatPrepareHasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, []Step{Event{Data: "not asked for"}, End})
		req := post(t, srv, "", "k")
		req.Body, req.GetBody, req.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("once"))), nil, -1
		s := follow(srv, eventsource.Client{Prepare: func(req *http.Request) error {
			if req.Body != nil {
				io.ReadFull(req.Body, make([]byte, 2))
				return errors.New("the vault is closed")
			}
			return nil
		}}, req)
		if !errors.Is(s.err, eventsource.ErrNotReplayable) || len(srv.Requests()) != 0 {
			t.Errorf("%d requests and %v", len(srv.Requests()), s.err)
		}
	})
}

// R076: a request that must not be repeated is not sent twice behind the caller's
// back, and the drop is reported with its cause. A key makes it repeatable.
func TestR076NotSentTwice(t *testing.T) {
	for name, end := range map[string][]Step{
		"after an event":  {Event{Data: "a"}, Reset},
		"inside an event": {Send("data: a\n\ndata: b"), Cut},
		"at once":         {Reset},
		"503":             {Status{Code: 503}},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(end, []Step{Event{Data: "again"}, End})
				s := follow(srv, eventsource.Client{Policy: resilient}, post(t, srv, "{}", ""))
				var stop *eventsource.StopError
				if !errors.Is(s.err, eventsource.ErrNotReplayable) || !errors.As(s.err, &stop) || stop.Attempt.Err == nil {
					t.Errorf("the error is %v", s.err)
				}
				if n := len(srv.Requests()); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(end, []Step{Event{Data: "again"}, End})
				s := follow(srv, eventsource.Client{Policy: resilient}, post(t, srv, "{}", "k"))
				if n := len(srv.Requests()); n != 3 || s.err != nil { // with the 204
					t.Errorf("with a key: %d requests and %v", n, s.err)
				}
			})
		})
	}
	t.Run("clean end", func(t *testing.T) {
		overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
			srv := serve([]Step{Event{Data: "answer"}, End}, []Step{Event{Data: "again"}, End})
			s := follow(srv, eventsource.Client{}, post(t, srv, "{}", ""))
			if n := len(srv.Requests()); n != 1 || s.err != nil || len(s.events) != 1 {
				t.Errorf("%d requests, %d events and %v", n, len(s.events), s.err)
			}
		})
	})
}

// R076: nor does net/http send it twice, on a connection used before that dies
// just then, as it does with a GET of one's own. Over sockets.
func TestR076NotSentTwiceOverSockets(t *testing.T) {
	srv := start(t, &Server{
		Loopback: true,
		Script: [][]Step{
			{Status{Body: "warm"}}, // leaves an idle connection
			{Cut},
			{Event{Data: "again"}, End},
		},
	})
	warm, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, warm.Body)
	warm.Body.Close()

	fake := clock.NewFake(time.Time{})
	var w watcher
	trace := w.trace()
	log := trace.Wait
	trace.Wait = func(i eventsource.WaitInfo) {
		log(i)
		if n := len(srv.Requests()); n != i.Number {
			t.Errorf("%d requests before the wait for attempt %d", n, i.Number)
		}
		fake.Advance(i.Waited)
	}
	client := eventsource.Client{HTTPClient: srv.Client(), Policy: strict, Clock: fake, Trace: trace}
	data, err := collect(client.Stream(request(t.Context(), t, srv.URL)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"again"}, data); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	want := []string{
		"connect 1", "end 1: failed", "wait 2: 3s",
		"connect 2", "open 2: 200", "end 2: ended 200", "wait 3: 3s",
		"connect 3", "end 3: rejected 204", "done: <nil>",
	}
	if diff := cmp.Diff(want, w.log); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
	if requests := srv.Requests(); requests[1].Connection != requests[0].Connection {
		t.Errorf("the request that died came on connection %d, not on the used one: nothing was tested", requests[1].Connection)
	}
}

// R077: the caller's HTTP client makes every attempt, with its round tripper and
// its cookie jar, and is not changed.
func TestR077CallersClientIsUsed(t *testing.T) {
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

// R076: the cause of the drop reaches through the error.
func TestR076CauseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t, []Step{Event{Data: "a"}, Reset})
		s := follow(srv, eventsource.Client{}, post(t, srv, "{}", ""))
		if !errors.Is(s.err, syscall.ECONNRESET) {
			t.Errorf("the error is %v", s.err)
		}
	})
}

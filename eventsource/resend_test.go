package eventsource_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/h2test"
	"github.com/reprise-sse/reprise/internal/memnet"
	"github.com/reprise-sse/reprise/policy"
)

// A keepAliveServer is an HTTP/1.1 server over sockets. It answers the first request of
// each connection, and reads the second and drops the connection without a byte, as a
// server does that gives idle connections up.
type keepAliveServer struct {
	*httptest.Server
	patient  bool           // connections are not dropped
	warm     sync.WaitGroup // requests for /warm that are still to come
	open     sync.WaitGroup // connections
	reset    atomic.Bool    // connections are reset, not closed
	arrivals atomic.Int32   // of requests for /feed
	accepted atomic.Int32   // connections
}

func startKeepAliveServer(t *testing.T, patient bool) *keepAliveServer {
	t.Helper()
	s := &keepAliveServer{patient: patient}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		s.accepted.Add(1)
		return context.WithValue(ctx, requestsOnConn{}, new(int))
	}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.open.Done()
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// requestsOnConn is the key of a connection's number of requests.
type requestsOnConn struct{}

func (s *keepAliveServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := r.Context().Value(requestsOnConn{}).(*int)
	*n++
	io.Copy(io.Discard, r.Body)
	if r.URL.Path == "/warm" {
		// Answered when all others are there, so each is on a connection of its own.
		s.warm.Done()
		s.warm.Wait()
		return
	}
	s.arrivals.Add(1)
	if *n == 1 || s.patient {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: m\n\n")
		return
	}
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if s.reset.Load() {
		c.(*net.TCPConn).SetLinger(0)
	}
	c.Close()
}

// warmUp leaves the client with n idle connections.
func (s *keepAliveServer) warmUp(t *testing.T, c *http.Client, n int) {
	t.Helper()
	s.warm.Add(n)
	var warming sync.WaitGroup
	for range n {
		warming.Go(func() {
			resp, err := c.Get(s.URL + "/warm")
			if err != nil {
				t.Error(err)
				return
			}
			// net/http has the connection back before it gives io.EOF.
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	warming.Wait()
}

// keepAliveClient is a client with room for idle connections.
func keepAliveClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 10}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// perAttempt is a stream's history: for each attempt how it ended, and how many
// requests the server had seen by then.
type perAttempt struct {
	Kind     policy.Kind
	Arrivals int
}

// attemptsOf runs a stream to its first clean end, on a fake clock that does not
// move but for the waits, and returns its history.
func attemptsOf(t *testing.T, c *http.Client, req *http.Request, arrivals *atomic.Int32) (history []perAttempt, errs []error) {
	t.Helper()
	fake := clock.NewFake(time.Time{})
	client := eventsource.Client{
		HTTPClient: c,
		Clock:      fake,
		Policy: policy.Constructor(func() policy.Reconnector {
			return policy.Func(func(a policy.Attempt) policy.Decision {
				if a.Kind == policy.Ended || a.Number == 20 {
					return policy.Stop(nil)
				}
				return policy.After(time.Hour)
			})
		}),
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{
				End: func(a policy.Attempt) {
					history = append(history, perAttempt{a.Kind, int(arrivals.Load())})
					errs = append(errs, a.Err)
				},
				Wait: func(i eventsource.WaitInfo) { fake.Advance(i.Waited) },
			}
		},
	}
	if _, err := collect(client.Stream(req)); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
	return history, errs
}

// resendable returns a request that net/http would resend, a POST with a key and a body
// or a GET.
func resendable(t *testing.T, kind, url string) *http.Request {
	t.Helper()
	if kind == "GET" {
		return request(t.Context(), t, url)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("question"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "1")
	return req
}

// What G1 is up against: a plain client's request arrives once for each idle
// connection that has died, within milliseconds. The engine's arrives once for each
// attempt, and the policy decides when.
func TestG1NeverResentOverHTTP1(t *testing.T) {
	const idle = 3
	for _, kind := range []string{"GET", "POST with a key"} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, connections reset %v", kind, reset), func(t *testing.T) {
				srv := startKeepAliveServer(t, false)
				srv.reset.Store(reset)
				c := keepAliveClient(t)

				srv.warmUp(t, c, idle)
				resp, err := c.Do(resendable(t, kind, srv.URL+"/feed"))
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if n := srv.arrivals.Swap(0); n != idle+1 {
					t.Errorf("a plain client's request arrives %d times; this test shows nothing", n)
				}
				c.CloseIdleConnections()

				srv.warmUp(t, c, idle)
				history, errs := attemptsOf(t, c, resendable(t, kind, srv.URL+"/feed"), &srv.arrivals)
				checkNeverResent(t, history, idle)
				if err := errs[0]; err == nil || !strings.Contains(err.Error(), "connection was lost") {
					t.Errorf("the first attempt failed with %v", err)
				}
			})
		}
	}
}

// A RoundTripper of the caller's that repeats requests on errors does not repeat
// those of the engine either.
func TestG1NeverResentByAWrapper(t *testing.T) {
	srv := startKeepAliveServer(t, false)
	c := keepAliveClient(t)
	base := c.Transport
	srv.warmUp(t, c, 3)
	stubborn := &http.Client{Transport: roundTripperFunc(func(req *http.Request) (resp *http.Response, err error) {
		for range 5 {
			if resp, err = base.RoundTrip(req); err == nil {
				break
			}
		}
		return resp, err
	})}
	history, _ := attemptsOf(t, stubborn, resendable(t, "GET", srv.URL+"/feed"), &srv.arrivals)
	checkNeverResent(t, history, 3)
}

// checkNeverResent checks that each attempt was one request, and that the idle
// connections, which all die, were noticed. An attempt that fails may take a
// second one of them with it, the one that its request must not be sent on again.
func checkNeverResent(t *testing.T, history []perAttempt, idle int) {
	t.Helper()
	for i, attempt := range history {
		want := perAttempt{policy.Failed, i + 1}
		if i == len(history)-1 {
			want.Kind = policy.Ended
		}
		if attempt != want {
			t.Errorf("attempt %d was %v with %d requests so far, not %v with %d", i+1, attempt.Kind, attempt.Arrivals, want.Kind, want.Arrivals)
		}
	}
	if n := len(history); n < 2 || n > idle+1 {
		t.Errorf("%d attempts with %d idle connections", n, idle)
	}
}

// Connections are reused all the same: ten streams, one connection.
func TestG1ConnectionsAreReusedOverHTTP1(t *testing.T) {
	srv := startKeepAliveServer(t, true)
	c := keepAliveClient(t)
	for i := range 10 {
		history, _ := attemptsOf(t, c, resendable(t, "GET", srv.URL+"/feed"), &srv.arrivals)
		if diff := cmp.Diff([]perAttempt{{policy.Ended, i + 1}}, history); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
	}
	if n := srv.accepted.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// The race between the cancellation of an attempt and the write of its repetition,
// over and over: 1 in 20 of the runs of a property.
func TestG1NeverResentRace(t *testing.T) {
	srv := startKeepAliveServer(t, false)
	c := keepAliveClient(t)
	// The connections of the client, to end them so that the server reads what they hold.
	var mu sync.Mutex
	var conns []*net.TCPConn
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			mu.Lock()
			conns = append(conns, conn.(*net.TCPConn))
			mu.Unlock()
		}
		return conn, err
	}
	const idle = 9 // so there are many occasions
	total := 0
	for i := range max(runs(t)/20, 100) {
		srv.reset.Store(i%2 == 1)
		srv.warmUp(t, c, idle)
		before := int(srv.arrivals.Load())
		history, _ := attemptsOf(t, c, resendable(t, "GET", srv.URL+"/feed"), &srv.arrivals)
		// A resent request may arrive after the attempt is over, so what counts is
		// the sum.
		total += len(history)
		for n, attempt := range history {
			if attempt.Arrivals > before+n+1 {
				t.Fatalf("run %d: attempt %d, and %d requests", i, n+1, attempt.Arrivals-before)
			}
		}
		c.CloseIdleConnections()
	}
	// A resent request that is still on its way must be counted, too.
	mu.Lock()
	for _, conn := range conns {
		conn.CloseWrite()
	}
	mu.Unlock()
	srv.open.Wait()
	if n := int(srv.arrivals.Load()); n != total {
		t.Errorf("%d attempts, and %d requests", total, n)
	}
}

// A refusingServer is an HTTP/2 server that refuses every other stream, from the first, in
// one way or another. If there is a channel, one more stream comes before; it is opened
// and sent to it.
type refusingServer struct {
	*h2test.Server
	arrivals atomic.Int32
	last     atomic.Int32 // connection
}

func startRefusingServer(t *testing.T, refuse func(c *h2test.Conn, s *h2test.Stream), busy chan<- *h2test.Stream) *refusingServer {
	srv := new(refusingServer)
	srv.Server = serveHTTP2(t, func(n int, c *h2test.Conn, s *h2test.Stream) {
		if busy != nil && n == 1 {
			s.Respond(200, typed("text/event-stream"), false)
			busy <- s
			return
		}
		srv.last.Store(int32(c.Number))
		if srv.arrivals.Add(1)%2 == 1 {
			refuse(c, s)
			return
		}
		s.Respond(200, typed("text/event-stream"), false)
		s.Data("data: m\n\n", true)
	})
	return srv
}

var earlyHints = http.Header{"Link": {"</style.css>; rel=preload"}}

// The same over HTTP/2, where net/http resends after REFUSED_STREAM and after a
// GOAWAY that leaves the stream out. It does so also when an informational response
// came before, so that does not count as an answer. The connection, which others share,
// stays.
func TestG1NeverResentOverHTTP2(t *testing.T) {
	for _, tt := range []struct {
		name   string
		refuse func(c *h2test.Conn, s *h2test.Stream)
		last   int32 // connection of the engine's requests
	}{
		{"REFUSED_STREAM", func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.RefusedStream) }, 1},
		{"GOAWAY", func(c *h2test.Conn, s *h2test.Stream) { c.GoAway(max(s.ID, 2)-2, h2test.NoError) }, 2},
		{"early hints, then REFUSED_STREAM", func(_ *h2test.Conn, s *h2test.Stream) {
			s.Respond(http.StatusEarlyHints, earlyHints, false)
			s.Reset(h2test.RefusedStream)
		}, 1},
		{"early hints, then GOAWAY", func(c *h2test.Conn, s *h2test.Stream) {
			s.Respond(http.StatusEarlyHints, earlyHints, false)
			c.GoAway(max(s.ID, 2)-2, h2test.NoError)
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plain := startRefusingServer(t, tt.refuse, nil)
			resp, err := plain.Client().Do(resendable(t, "GET", plain.URL+"/feed"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if n := plain.arrivals.Load(); n != 2 {
				t.Errorf("a plain client's request arrives %d times; this test shows nothing", n)
			}

			others := make(chan *h2test.Stream, 1)
			srv := startRefusingServer(t, tt.refuse, others)
			// Somebody else's stream on the same connection.
			busy, err := srv.Client().Do(resendable(t, "GET", srv.URL))
			if err != nil {
				t.Fatal(err)
			}
			defer busy.Body.Close()
			history, errs := attemptsOf(t, srv.Client(), resendable(t, "GET", srv.URL+"/feed"), &srv.arrivals)
			want := []perAttempt{{policy.Failed, 1}, {policy.Ended, 2}}
			if diff := cmp.Diff(want, history); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			if len(errs) > 0 && (errs[0] == nil || errors.Is(errs[0], context.Canceled)) {
				t.Errorf("the attempt failed with %v", errs[0])
			}
			if n := srv.last.Load(); n != tt.last {
				t.Errorf("the second request came on connection %d, want %d", n, tt.last)
			}

			// Nobody has disturbed it.
			const event = "data: still here\n\n"
			if err := (<-others).Data(event, true); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(busy.Body); string(got) != event || err != nil {
				t.Errorf("the other stream on the connection reads %q, then %v", got, err)
			}
		})
	}
}

// A RoundTripper may repeat a request after a 401: with a fresh token it is one more try
// inside the same attempt, with the ID, and without a wait or a count. The one here is
// that of an example.
func TestRepetitionAfter401IsNoResend(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(
			[]Step{Event{ID: "3", Data: "a"}, Cut},
			[]Step{Status{Code: 401, Body: "expired"}},
			[]Step{Event{ID: "4", Data: "b"}, End},
		)
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
}

// So it is if an informational response came before the 401, over HTTP/1.1.
func TestRepetitionAfterEarlyHintsIsNoResend(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		if r.Header.Get("Authorization") == "Bearer 1" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: m\n\n")
	}))
	t.Cleanup(srv.Close)
	tokens := 0
	client := eventsource.Client{Policy: policy.Never(), HTTPClient: &http.Client{Transport: &Refresher{
		Base: srv.Client().Transport,
		Fetch: func(context.Context) (string, error) {
			tokens++
			return strconv.Itoa(tokens), nil
		},
	}}}
	data, err := collect(client.Stream(request(t.Context(), t, srv.URL)))
	if diff := cmp.Diff([]string{"m"}, data); diff != "" || err != nil || tokens != 2 {
		t.Errorf("%d tokens, error %v, events (-want +got):\n%s", tokens, err, diff)
	}
}

// A hundred informational responses to an attempt are accepted, and no more.
func TestInformationalResponses(t *testing.T) {
	for n, accepted := range map[int]bool{0: true, 1: true, 100: true, 101: false} {
		synctest.Test(t, func(t *testing.T) {
			l := memnet.Listen()
			defer l.Close()
			served := make(chan struct{})
			go func() {
				defer close(served)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", n)+
					"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: m\n\n")
			}()
			c := eventsource.Client{
				HTTPClient: &http.Client{Transport: &http.Transport{DialContext: l.DialContext}},
				Policy:     policy.Never(),
			}
			data, err := collect(c.Stream(get(t.Context())))
			if (err == nil && len(data) == 1) != accepted {
				t.Errorf("after %d: %q, then %v", n, data, err)
			}
			<-served
		})
	}
}

// A server that sends informational responses and nothing else is left, though no
// limit on the time is set.
func TestAttackInformationalResponses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(t *testing.T) (url string, client *http.Client)
	}{
		{"HTTP1", func(t *testing.T) (string, *http.Client) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
					return
				}
				for err == nil {
					_, err = io.WriteString(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", 100))
				}
			}()
			t.Cleanup(func() { l.Close(); <-served })
			return "http://" + l.Addr().String(), keepAliveClient(t)
		}},
		{"HTTP2", func(t *testing.T) (string, *http.Client) {
			srv := serveHTTP2(t, func(_ int, _ *h2test.Conn, s *h2test.Stream) {
				for s.Respond(http.StatusEarlyHints, earlyHints, false) == nil {
				}
			})
			return srv.URL, srv.Client()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, client := tt.start(t)
			c := eventsource.Client{HTTPClient: client, Policy: policy.Never(), ConnectTimeout: -1}
			_, err := collect(c.Stream(resendable(t, "GET", url)))
			if err == nil || !strings.HasSuffix(err.Error(), "too many informational responses") {
				t.Errorf("it ended with %v", err)
			}
			client.CloseIdleConnections()
		})
	}
}

package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/faultproxy"
	"github.com/reprise-sse/reprise/internal/selfsigned"
	"github.com/reprise-sse/reprise/policy"
)

// A farServer is a server behind a forwarder that can make it vanish without a word.
// Its answers tell which of its connections a request has come on: 1 for the first
// that any came on.
type farServer struct {
	url    string
	client *http.Client
	path   *faultproxy.Proxy

	mu    sync.Mutex
	conns []string // remote addresses
	seen  []string // what came, "path number"
}

// A reach is a way from a client to a server.
type reach struct {
	name    string
	http2   bool
	reverse bool // through a reverse proxy, which the forwarder stands before
}

var reaches = []reach{
	{"HTTP1", false, false},
	{"HTTP2", true, false},
	{"HTTP2 reverse proxy", true, true},
}

// startFar starts a server whose streams are at every path. If there is a handler it
// is asked first, and reports whether it has answered.
func startFar(t *testing.T, r reach, handler func(w http.ResponseWriter, req *http.Request, number int) bool) *farServer {
	t.Helper()
	f := new(farServer)
	serve := func(handler http.Handler, http2 bool) *httptest.Server {
		srv := httptest.NewUnstartedServer(handler)
		srv.TLS = selfsigned.Server()
		srv.EnableHTTP2 = http2
		srv.StartTLS()
		t.Cleanup(func() {
			srv.CloseClientConnections()
			srv.Close()
		})
		return srv
	}
	var feed http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		number := f.arrived(req)
		if handler != nil && handler(w, req, number) {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %d\n\n", number)
		http.NewResponseController(w).Flush()
		<-req.Context().Done()
	})
	if r.reverse {
		back := serve(feed, true)
		target, _ := url.Parse(back.URL)
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = &http.Transport{TLSClientConfig: selfsigned.Client(), ForceAttemptHTTP2: true}
		front := proxy
		feed = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			req.Header.Set("Front", req.RemoteAddr)
			front.ServeHTTP(w, req)
		})
	}
	srv := serve(feed, r.http2)
	f.path = faultproxy.Start(srv.Listener.Addr().String(), nil)
	t.Cleanup(f.path.Close)
	f.url = "https://" + f.path.Addr()
	f.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: selfsigned.Client(), ForceAttemptHTTP2: r.http2, MaxIdleConnsPerHost: 10,
	}}
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

func (f *farServer) arrived(req *http.Request) (number int) {
	addr := req.RemoteAddr
	if front := req.Header.Get("Front"); front != "" {
		addr = front
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	number = slices.Index(f.conns, addr) + 1
	if number == 0 {
		f.conns = append(f.conns, addr)
		number = len(f.conns)
	}
	f.seen = append(f.seen, fmt.Sprintf("%s %d", req.URL.Path, number))
	return number
}

// requests returns what has come, "path number".
func (f *farServer) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// guarded returns a context that ends a test which is stuck. It has no deadline, because
// a stream looks at that.
func guarded(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(20*time.Second, func() { cancel(errNotBack) })
	t.Cleanup(func() {
		timer.Stop()
		cancel(nil)
	})
	return ctx
}

var errNotBack = errors.New("the test is stuck")

const idleTimeout = 20 * time.Second // shorter than ConnectTimeout

// waitless has the waits of the client's own left out, so that the times of a Fake
// that is moved by more than one stream cannot matter.
var waitless = policy.Rules{Delay: -1, Floor: -1, MaxDelay: 0, Jitter: -1}

// A silence is the time of one stream whose connection goes silent again and again.
type silence struct {
	fake  *clock.Fake
	ended chan struct{} // receives at each end of an attempt
}

func newSilence() *silence {
	return &silence{clock.NewFake(time.Time{}), make(chan struct{}, 100)}
}

// begin moves the time past the limit, which is that of idleness once the stream reads.
func (s *silence) begin(ctx context.Context) {
	go func() {
		for s.fake.Wait(ctx, 1) == nil {
			limit, _ := s.fake.Next()
			s.fake.Advance(limit)
			select {
			case <-s.ended:
				return
			case <-ctx.Done():
			case <-time.After(time.Second):
				// The stream was between two reads, and had no timer at that moment.
			}
		}
	}()
}

// trace returns a trace that has waits take no time.
func (s *silence) trace(also ...func(policy.Attempt)) func(*http.Request) *eventsource.Trace {
	return func(*http.Request) *eventsource.Trace {
		return &eventsource.Trace{
			End: func(a policy.Attempt) {
				for _, f := range also {
					f(a)
				}
				s.ended <- struct{}{}
			},
			Wait: func(i eventsource.WaitInfo) { s.fake.Advance(i.Waited) },
		}
	}
}

var swallowing = map[string]faultproxy.Fault{
	"both directions": faultproxy.BlackHole(),
	"to the client":   faultproxy.Stall(0),
}

// TestG13DeadConnectionIsLeft has the connection of a stream swallow everything. The
// first attempt after the idle timeout is over another.
func TestG13DeadConnectionIsLeft(t *testing.T) {
	limited := waitless
	limited.Budget, limited.MaxFruitless = time.Minute, 5
	for _, r := range reaches {
		for direction, fault := range swallowing {
			for name, p := range map[string]policy.Policy{"WHATWG": policy.WHATWG(), "limited": limited, "MCPCall": policy.MCPCall()} {
				t.Run(r.name+"/"+direction+"/"+name, func(t *testing.T) {
					f := startFar(t, r, nil)
					ctx, silence := guarded(t), newSilence()
					var kinds []policy.Kind
					client := eventsource.Client{
						HTTPClient: f.client, Policy: p, Clock: silence.fake, IdleTimeout: idleTimeout,
						Trace: silence.trace(func(a policy.Attempt) { kinds = append(kinds, a.Kind) }),
					}
					req := request(ctx, t, f.url)
					req.Header.Set("Last-Event-ID", "1") // without one MCPCall does not go on
					var numbers []string
					for event, err := range client.Stream(req).Events() {
						if err != nil {
							t.Fatalf("%v after %v", err, kinds)
						}
						numbers = append(numbers, event.Data)
						if len(numbers) == 3 {
							break
						}
						f.path.Inject(fault)
						silence.begin(ctx)
					}
					if diff := cmp.Diff([]string{"1", "2", "3"}, numbers); diff != "" {
						t.Errorf("connections (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff([]policy.Kind{policy.Idle, policy.Idle}, kinds); diff != "" {
						t.Errorf("ends (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// TestG13ReconnectLeavesTheConnection asks for a new connection while all is well, often:
// each attempt is on one of its own, and the server never sees anything of the tries
// that find out which connection is not to be used.
func TestG13ReconnectLeavesTheConnection(t *testing.T) {
	for _, r := range reaches {
		t.Run(r.name, func(t *testing.T) {
			const times = 50
			f := startFar(t, r, nil)
			client := eventsource.Client{HTTPClient: f.client, Policy: waitless}
			stream := client.Stream(request(guarded(t), t, f.url))
			var got, want, seen []string
			for event, err := range stream.Events() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, event.Data)
				want = append(want, fmt.Sprint(len(got)))
				seen = append(seen, fmt.Sprint("/ ", len(got)))
				if len(got) == times {
					break
				}
				stream.Reconnect()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("connections (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(seen, f.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestG13ReconnectDuringTheWait asks for a new connection when there is none: one that
// the pool has from before is not it.
func TestG13ReconnectDuringTheWait(t *testing.T) {
	for _, r := range reaches {
		t.Run(r.name, func(t *testing.T) {
			f := startFar(t, r, func(w http.ResponseWriter, req *http.Request, number int) bool {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "data: %d\n\n", number)
				return true
			})
			var stream *eventsource.Stream
			client := eventsource.Client{
				HTTPClient: f.client,
				Trace: func(*http.Request) *eventsource.Trace {
					return &eventsource.Trace{Wait: func(i eventsource.WaitInfo) { stream.Reconnect() }}
				},
			}
			stream = client.Stream(request(guarded(t), t, f.url))
			var numbers []string
			for event, err := range stream.Events() {
				if err != nil {
					t.Fatal(err)
				}
				if numbers = append(numbers, event.Data); len(numbers) == 3 {
					break
				}
			}
			if diff := cmp.Diff([]string{"1", "2", "3"}, numbers); diff != "" {
				t.Errorf("connections (-want +got):\n%s", diff)
			}
		})
	}
}

// TestG13StreamsShareAgain has all streams of a client on one dead connection. They are
// all back, and they share a connection again, also with a stream that begins then.
func TestG13StreamsShareAgain(t *testing.T) {
	const streams = 30
	for _, r := range reaches[1:] {
		t.Run(r.name, func(t *testing.T) {
			f := startFar(t, r, nil)
			ctx, fake := guarded(t), clock.NewFake(time.Time{})
			ctx, cancel := context.WithCancel(ctx)
			first, second := make(chan string, streams), make(chan string, streams)
			client := eventsource.Client{HTTPClient: f.client, Policy: waitless, Clock: fake, IdleTimeout: idleTimeout}
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			open := func() {
				running.Go(func() {
					to := first
					for event, err := range client.Stream(request(ctx, t, f.url)).Events() {
						if err != nil {
							return
						}
						to <- event.Data
						to = second
					}
				})
			}
			receive := func(from chan string) string {
				select {
				case number := <-from:
					return number
				case <-ctx.Done():
					t.Fatal(context.Cause(ctx))
					return ""
				}
			}
			before := make(map[string]bool)
			for range streams {
				open()
				before[receive(first)] = true
			}
			f.path.Inject(faultproxy.BlackHole())
			if err := fake.Wait(ctx, streams); err != nil {
				t.Fatal(err)
			}
			fake.Advance(idleTimeout)
			after := make(map[string]int)
			for range streams {
				number := receive(second)
				if before[number] {
					t.Errorf("a stream is back on connection %s", number)
				}
				after[number]++
			}
			open()
			after[receive(first)]++
			// net/http may dial more connections than it needs when many requests come at
			// once, and one of them may be used too.
			if len(after) > 5 {
				t.Errorf("streams of each connection: %v; they do not share", after)
			}
		})
	}
}

// TestG13NeighboursLiveOn has one stream of a connection stall. It leaves, and the others
// stay as they are.
func TestG13NeighboursLiveOn(t *testing.T) {
	more := make(chan string)
	f := startFar(t, reach{http2: true}, func(w http.ResponseWriter, req *http.Request, number int) bool {
		if req.URL.Path != "/neighbour" {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %d\n\n", number)
		for {
			http.NewResponseController(w).Flush()
			select {
			case data := <-more:
				fmt.Fprintf(w, "data: %s\n\n", data)
			case <-req.Context().Done():
				return true
			}
		}
	})
	ctx, silence := guarded(t), newSilence()
	events := make(chan string)
	var neighbour sync.WaitGroup
	defer neighbour.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	neighbour.Go(func() {
		client := eventsource.Client{HTTPClient: f.client, Policy: policy.Never()}
		for event, err := range client.Stream(request(ctx, t, f.url+"/neighbour")).Events() {
			if err != nil {
				event.Data = err.Error()
			}
			select {
			case events <- event.Data:
			case <-ctx.Done():
			}
		}
	})
	got := []string{<-events}
	client := eventsource.Client{HTTPClient: f.client, Policy: waitless, Clock: silence.fake, IdleTimeout: idleTimeout, Trace: silence.trace()}
	for event, err := range client.Stream(request(ctx, t, f.url+"/stalled")).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, event.Data); len(got) == 3 {
			break
		}
		silence.begin(ctx)
	}
	select {
	case more <- "alive":
	case <-ctx.Done():
		t.Fatal("the neighbour has gone:", <-events)
	}
	got = append(got, <-events)
	if diff := cmp.Diff([]string{"1", "1", "2", "alive"}, got); diff != "" {
		t.Errorf("connection of the neighbour, of the stalled stream, of its next attempt, and an event of the neighbour (-want +got):\n%s", diff)
	}
}

// TestG13NoResponse has the connection of the pool die before a stream uses it. When no
// response has come in time, the next attempt is over another.
func TestG13NoResponse(t *testing.T) {
	for _, r := range reaches {
		t.Run(r.name, func(t *testing.T) {
			f := startFar(t, r, answerPlain)
			ctx, silence := guarded(t), newSilence()
			plain(ctx, t, f, 3)
			f.path.Inject(faultproxy.BlackHole())
			client := eventsource.Client{
				HTTPClient: f.client, Policy: waitless, Clock: silence.fake, ConnectTimeout: idleTimeout, Trace: silence.trace(),
			}
			old := len(f.requests())
			silence.begin(ctx)
			for event, err := range client.Stream(request(ctx, t, f.url)).Events() {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(f.requests()[old:], []string{"/ " + event.Data}); diff != "" {
					t.Errorf("requests of the stream (-want +got):\n%s", diff)
				}
				break
			}
		})
	}
}

// answerPlain answers a request for /plain at once, and without an event stream.
func answerPlain(w http.ResponseWriter, req *http.Request, number int) bool {
	if !strings.HasPrefix(req.URL.Path, "/plain") {
		return false
	}
	fmt.Fprint(w, number)
	return true
}

// plain makes so many requests at once that have nothing to do with a stream. Over
// HTTP/1.1 as many connections are idle then.
func plain(ctx context.Context, t *testing.T, f *farServer, n int) {
	t.Helper()
	var responses []*http.Response
	for range n {
		resp, err := f.client.Do(request(ctx, t, f.url+"/plain"))
		if err != nil {
			t.Fatal(err)
		}
		responses = append(responses, resp)
	}
	for _, resp := range responses {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// TestG13IdleConnectionsAreLeft has other connections of the pool die with the stream's
// own, and the request with its body go over none of them.
func TestG13IdleConnectionsAreLeft(t *testing.T) {
	for _, r := range reaches {
		t.Run(r.name, func(t *testing.T) {
			f := startFar(t, r, func(w http.ResponseWriter, req *http.Request, number int) bool {
				if answerPlain(w, req, number) {
					return true
				}
				body, _ := io.ReadAll(req.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "data: %d %s\n\n", number, body)
				http.NewResponseController(w).Flush()
				<-req.Context().Done()
				return true
			})
			ctx, silence := guarded(t), newSilence()
			plain(ctx, t, f, 4)
			last := 4
			if r.http2 {
				last = 1
			}
			bodies := new(bodies)
			client := eventsource.Client{
				HTTPClient: f.client, Policy: waitless, Clock: silence.fake, IdleTimeout: idleTimeout, Trace: silence.trace(),
				Prepare: func(req *http.Request) error {
					req.Body, req.ContentLength, req.GetBody = bodies.make("question"), 8, nil
					return nil
				},
			}
			var got []string
			for event, err := range client.Stream(request(ctx, t, f.url)).Events() {
				if err != nil {
					t.Fatal(err)
				}
				number, rest, _ := strings.Cut(event.Data, " ")
				if rest != "question" {
					t.Errorf("the request had the body %q", rest)
				}
				if got = append(got, number); len(got) == 3 {
					break
				}
				f.path.Inject(faultproxy.BlackHole())
				silence.begin(ctx)
			}
			want := []string{got[0], fmt.Sprint(last + 1), fmt.Sprint(last + 2)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("connections (-want +got):\n%s", diff)
			}
			if err := bodies.closed(ctx, 3); err != nil {
				t.Errorf("bodies of requests that nobody closes: %v", err)
			}
		})
	}
}

// bodies makes bodies of requests and knows when they are closed.
type bodies struct {
	made []chan struct{}
}

func (b *bodies) make(text string) io.ReadCloser {
	closed := make(chan struct{})
	b.made = append(b.made, closed)
	return struct {
		io.Reader
		io.Closer
	}{strings.NewReader(text), closerFunc(sync.OnceFunc(func() { close(closed) }))}
}

// closed waits until so many bodies have been made and all are closed.
func (b *bodies) closed(ctx context.Context, n int) error {
	if len(b.made) != n {
		return fmt.Errorf("%d bodies were made, want %d", len(b.made), n)
	}
	for _, closed := range b.made {
		select {
		case <-closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

type closerFunc func()

func (f closerFunc) Close() error { f(); return nil }

// TestG13ConnectionThatHasAnsweredSince may be used: another request has found it alive.
func TestG13ConnectionThatHasAnsweredSince(t *testing.T) {
	f := startFar(t, reaches[0], answerPlain)
	ctx, silence := guarded(t), newSilence()
	client := eventsource.Client{
		HTTPClient: f.client, Policy: waitless, Clock: silence.fake, IdleTimeout: idleTimeout, Trace: silence.trace(func(policy.Attempt) { plain(ctx, t, f, 1) }),
	}
	var got []string
	for event, err := range client.Stream(request(ctx, t, f.url)).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, event.Data); len(got) == 2 {
			break
		}
		f.path.Inject(faultproxy.BlackHole())
		silence.begin(ctx)
	}
	if diff := cmp.Diff([]string{"/ 1", "/plain 2", "/ 2"}, f.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestG13HoldsUntilAResponse has the attempt after a dead connection fail for another
// reason, before it has looked for a connection. The next is held to the rule all the
// same.
func TestG13HoldsUntilAResponse(t *testing.T) {
	for _, r := range reaches {
		t.Run(r.name, func(t *testing.T) {
			f := startFar(t, r, answerPlain)
			ctx, silence := guarded(t), newSilence()
			plain(ctx, t, f, 2)
			attempts := 0
			client := eventsource.Client{
				HTTPClient: f.client, Policy: waitless, Clock: silence.fake, IdleTimeout: idleTimeout, Trace: silence.trace(),
				Prepare: func(req *http.Request) error {
					if attempts++; attempts == 2 {
						return errors.New("no token")
					}
					return nil
				},
			}
			var got []string
			for event, err := range client.Stream(request(ctx, t, f.url)).Events() {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, event.Data); len(got) == 2 {
					break
				}
				f.path.Inject(faultproxy.BlackHole())
				silence.begin(ctx)
			}
			if slices.Contains(f.requests()[:3], "/ "+got[1]) {
				t.Errorf("the stream is back on connection %s; requests: %v", got[1], f.requests())
			}
		})
	}
}

// TestG13Redirects has every hop of a request that is redirected held to the rule.
func TestG13Redirects(t *testing.T) {
	for _, r := range reaches {
		t.Run(r.name, func(t *testing.T) {
			there := startFar(t, r, nil)
			here := startFar(t, r, func(w http.ResponseWriter, req *http.Request, number int) bool {
				http.Redirect(w, req, there.url, http.StatusTemporaryRedirect)
				return true
			})
			ctx, silence := guarded(t), newSilence()
			client := eventsource.Client{HTTPClient: here.client, Policy: waitless, Clock: silence.fake, IdleTimeout: idleTimeout, Trace: silence.trace()}
			n := 0
			for _, err := range client.Stream(request(ctx, t, here.url)).Events() {
				if err != nil {
					t.Fatal(err)
				}
				if n++; n == 3 {
					break
				}
				here.path.Inject(faultproxy.BlackHole())
				there.path.Inject(faultproxy.BlackHole())
				silence.begin(ctx)
			}
			want := []string{"/ 1", "/ 2", "/ 3"}
			if diff := cmp.Diff(want, there.requests()); diff != "" {
				t.Errorf("requests where it leads (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, here.requests()); diff != "" {
				t.Errorf("requests where it begins (-want +got):\n%s", diff)
			}
		})
	}
}

// TestG13WrappedTransport has a RoundTripper around the transport that copies what it is
// given, as those do that add a header.
func TestG13WrappedTransport(t *testing.T) {
	for _, r := range reaches {
		t.Run(r.name, func(t *testing.T) {
			f := startFar(t, r, nil)
			ctx, silence := guarded(t), newSilence()
			wrapped := &http.Client{Transport: roundTripperFunc(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				req.Header.Set("Authorization", "Bearer token")
				return f.client.Transport.RoundTrip(req)
			})}
			client := eventsource.Client{HTTPClient: wrapped, Policy: waitless, Clock: silence.fake, IdleTimeout: idleTimeout, Trace: silence.trace()}
			var got []string
			for event, err := range client.Stream(request(ctx, t, f.url)).Events() {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, event.Data); len(got) == 3 {
					break
				}
				f.path.Inject(faultproxy.BlackHole())
				silence.begin(ctx)
			}
			if diff := cmp.Diff([]string{"1", "2", "3"}, got); diff != "" {
				t.Errorf("connections (-want +got):\n%s", diff)
			}
		})
	}
}

// TestG13UnencryptedHTTP2 has no TLS to tell that a connection is shared.
func TestG13UnencryptedHTTP2(t *testing.T) {
	more := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\n", req.RemoteAddr)
		http.NewResponseController(w).Flush()
		select {
		case <-more:
			io.WriteString(w, "data: alive\n\n")
		case <-req.Context().Done():
		}
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	transport := &http.Transport{Protocols: srv.Config.Protocols}
	defer transport.CloseIdleConnections()
	client := eventsource.Client{HTTPClient: &http.Client{Transport: transport}, Policy: waitless}
	ctx := guarded(t)

	neighbour := client.Stream(request(ctx, t, srv.URL))
	var got []string
	for event, err := range neighbour.Events() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Data)
		if event.Data == "alive" {
			break
		}
		stream := client.Stream(request(ctx, t, srv.URL))
		n := 0
		for event, err := range stream.Events() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, event.Data)
			if n++; n == 2 {
				break
			}
			stream.Reconnect()
		}
		close(more)
	}
	if len(got) != 4 || got[0] != got[1] || got[1] == got[2] || got[3] != "alive" {
		t.Errorf("connection of the neighbour, of the stream, of its next attempt, and an event of the neighbour: %q", got)
	}
}

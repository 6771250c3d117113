package mcptransport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/examples/mcp/mcptransport"
	"github.com/reprise-sse/reprise/policy"
)

// These tests connect the SDK's own client to the SDK's own server over sockets.
// The streams' waits are on a fake clock, which each wait moves on by itself, so
// they take no time but are as long as they would be.

// A realServer is the SDK's server over HTTP.
type realServer struct {
	mcp   *mcp.Server
	store *mcp.MemoryEventStore
	http  *httptest.Server

	requests atomic.Int32
	gets     atomic.Int32
	deny     atomic.Pointer[func(*http.Request) int] // a status for requests to be refused; nil or 0 for none
}

func startReal(t *testing.T, opts mcp.StreamableHTTPOptions) *realServer {
	t.Helper()
	s := &realServer{
		mcp:   mcp.NewServer(&mcp.Implementation{Name: "real", Version: "1"}, nil),
		store: mcp.NewMemoryEventStore(nil),
	}
	opts.EventStore = s.store
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, &opts)
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if r.Method == http.MethodGet {
			s.gets.Add(1)
		}
		if deny := s.deny.Load(); deny != nil {
			if status := (*deny)(r); status != 0 {
				w.WriteHeader(status)
				return
			}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for session := range s.mcp.Sessions() {
			session.Close()
		}
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// A realClient is the SDK's client over the transport.
type realClient struct {
	*mcp.ClientSession
	fake     *clock.Fake
	progress chan float64
	tools    chan struct{} // the list of tools has changed
	standby  chan error    // the standby stream has ended

	mu    sync.Mutex
	waits []time.Duration
}

func connectReal(t *testing.T, s *realServer, version string, settings ...func(*mcptransport.Transport)) *realClient {
	t.Helper()
	c := &realClient{
		fake:     clock.NewFake(time.Time{}),
		progress: make(chan float64, 1000),
		tools:    make(chan struct{}, 100),
		standby:  make(chan error, 100),
	}
	tr := &mcptransport.Transport{
		Endpoint:     s.http.URL,
		Policy:       exactly,
		OnStandbyEnd: func(err error) { c.standby <- err },
		OnSkip:       func(err error) { t.Errorf("skipped: %v", err) },
	}
	tr.Client.HTTPClient = &http.Client{Transport: &http.Transport{}}
	tr.Client.Clock = c.fake
	tr.Client.Trace = func(*http.Request) *eventsource.Trace {
		return &eventsource.Trace{Wait: func(i eventsource.WaitInfo) {
			c.mu.Lock()
			c.waits = append(c.waits, i.Waited)
			c.mu.Unlock()
			c.fake.Advance(i.Waited)
		}}
	}
	for _, set := range settings {
		set(tr)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.progress <- r.Params.Progress
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.tools <- struct{}{} },
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
	})
	session, err := client.Connect(t.Context(), tr, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	c.ClientSession = session
	t.Cleanup(func() {
		session.Close()
		tr.Client.HTTPClient.CloseIdleConnections()
	})
	return c
}

func (c *realClient) work(ctx context.Context) (*mcp.CallToolResult, error) {
	params := &mcp.CallToolParams{Name: "work", Arguments: map[string]any{}}
	params.SetProgressToken("t")
	return c.CallTool(ctx, params)
}

// addWork gives the server the tool that the tests call.
func (s *realServer) addWork(do func(context.Context, *mcp.CallToolRequest) error) {
	mcp.AddTool(s.mcp, &mcp.Tool{Name: "work"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		if err := do(ctx, r); err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
}

func notifyProgress(ctx context.Context, r *mcp.CallToolRequest, n int) error {
	return r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: float64(n)})
}

func checkDone(t *testing.T, result *mcp.CallToolResult, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("the call failed: %v", err)
	}
	if result.IsError || len(result.Content) != 1 || result.Content[0].(*mcp.TextContent).Text != "done" {
		t.Errorf("the call came to %+v", result.Content)
	}
}

// drain returns what is in the channel.
func drain(c chan float64) (all []float64) {
	for len(c) > 0 {
		all = append(all, <-c)
	}
	return all
}

func oneTo(n int) (all []float64) {
	for i := range n {
		all = append(all, float64(i+1))
	}
	return all
}

func TestRealServerClosesACallTwentyTimes(t *testing.T) {
	const closes = 20
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	s := startReal(t, mcp.StreamableHTTPOptions{})
	seen := make(chan float64)
	var retries []time.Duration
	s.addWork(func(ctx context.Context, r *mcp.CallToolRequest) error {
		for n := range closes {
			if err := notifyProgress(ctx, r, 2*n+1); err != nil {
				return err
			}
			if got := <-seen; got != float64(2*n+1) { // so the stream is connected
				return fmt.Errorf("the client saw %v, want %v", got, 2*n+1)
			}
			retry := time.Duration(50+random.IntN(1951)) * time.Millisecond
			retries = append(retries, max(retry, 100*time.Millisecond)) // the policy's floor
			r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: retry})
			if err := notifyProgress(ctx, r, 2*n+2); err != nil { // while there is no connection
				return err
			}
			if got := <-seen; got != float64(2*n+2) {
				return fmt.Errorf("the client saw %v, want %v", got, 2*n+2)
			}
		}
		return nil
	})
	c := connectReal(t, s, "2025-11-25")
	var all []float64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range c.progress {
			all = append(all, n)
			if len(all) <= 2*closes {
				seen <- n
			}
			if len(all) == 2*closes {
				return
			}
		}
	}()
	result, err := c.work(t.Context())
	checkDone(t, result, err)
	<-done
	all = append(all, drain(c.progress)...)
	if diff := cmp.Diff(oneTo(2*closes), all); diff != "" {
		t.Errorf("seed %d: progress (-want +got):\n%s", seed, diff)
	}
	if diff := cmp.Diff(retries, c.waits); diff != "" {
		t.Errorf("seed %d: waits (-want +got):\n%s", seed, diff)
	}
	if n := s.gets.Load(); n != closes+1 { // one is the standby stream's
		t.Errorf("%d GETs, want %d", n, closes+1)
	}
}

// cutBodies breaks off the bodies of event streams after a random number of bytes,
// wherever that is, as long as the limit of cuts is not reached.
func cutBodies(random *rand.Rand, cuts int) func(*mcptransport.Transport) {
	var mu sync.Mutex
	return func(tr *mcptransport.Transport) {
		next := tr.Client.HTTPClient.Transport
		tr.Client.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
				return resp, err
			}
			mu.Lock()
			defer mu.Unlock()
			if cuts > 0 {
				cuts--
				// The event that tells the first ID has some 50 bytes, and a call
				// that is cut before it is lost.
				resp.Body = &cutBody{ReadCloser: resp.Body, left: 60 + random.IntN(500)}
			}
			return resp, nil
		})}
	}
}

// watch tells when a text has come in a body of an event stream.
func watch(text string, seen chan<- struct{}) func(*mcptransport.Transport) {
	return func(tr *mcptransport.Transport) {
		next := tr.Client.HTTPClient.Transport
		tr.Client.HTTPClient = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.Header.Get("Content-Type") == "text/event-stream" {
				resp.Body = &watchedBody{resp.Body, text, seen}
			}
			return resp, err
		})}
	}
}

type watchedBody struct {
	io.ReadCloser
	text string
	seen chan<- struct{}
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte(b.text)) { // the server writes an event at a time
		b.seen <- struct{}{}
	}
	return n, err
}

type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func TestRealServerBehindAWireThatBreaks(t *testing.T) {
	const messages = 50
	seed := uint64(time.Now().UnixNano())
	s := startReal(t, mcp.StreamableHTTPOptions{})
	s.addWork(func(ctx context.Context, r *mcp.CallToolRequest) error {
		for n := range messages {
			if err := notifyProgress(ctx, r, n+1); err != nil {
				return err
			}
		}
		return nil
	})
	c := connectReal(t, s, "2025-11-25", func(tr *mcptransport.Transport) {
		tr.DisableStandby = true
		// The server may take a while to see that a connection is gone, and
		// answers 409 until then.
		tr.Policy = func(string, mcptransport.Role) policy.Policy {
			rules := policy.MCPCall()
			rules.MaxFruitless, rules.Budget, rules.MaxDelay = 0, 0, time.Second
			return rules
		}
	}, cutBodies(rand.New(rand.NewPCG(seed, 0)), 20))
	result, err := c.work(t.Context())
	if err != nil {
		t.Logf("seed %d", seed)
	}
	checkDone(t, result, err)
	c.Close() // handlers have run when it returns
	if diff := cmp.Diff(oneTo(messages), drain(c.progress)); diff != "" {
		t.Errorf("seed %d: progress (-want +got):\n%s", seed, diff)
	}
	if s.gets.Load() == 0 {
		t.Errorf("seed %d: the call was never resumed", seed)
	}
}

// Revisions before 2025-11-25 have no event that only tells an ID, and no retry
// field.
func TestRealServerOfOlderRevisions(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2025-03-26"} {
		t.Run(version, func(t *testing.T) {
			s := startReal(t, mcp.StreamableHTTPOptions{})
			seen := make(chan float64, 10)
			s.addWork(func(ctx context.Context, r *mcp.CallToolRequest) error {
				if err := notifyProgress(ctx, r, 1); err != nil {
					return err
				}
				<-seen
				r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 5 * time.Second}) // not sent
				return nil
			})
			c := connectReal(t, s, version)
			go func() { seen <- <-c.progress }()
			result, err := c.work(t.Context())
			checkDone(t, result, err)
			if diff := cmp.Diff([]time.Duration{time.Second}, c.waits); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRealServerHasPurgedTheEvents(t *testing.T) {
	s := startReal(t, mcp.StreamableHTTPOptions{})
	s.store.SetMaxBytes(1)
	purged := make(chan struct{})
	seen := make(chan float64, 10)
	s.addWork(func(ctx context.Context, r *mcp.CallToolRequest) error {
		if err := notifyProgress(ctx, r, 1); err != nil {
			return err
		}
		<-seen
		r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 50 * time.Millisecond})
		for n := range 5 {
			_ = notifyProgress(ctx, r, n+2) // there is nobody to take it
		}
		close(purged)
		return nil
	})
	hold := func(r *http.Request) int {
		if r.Header.Get("Last-Event-ID") != "" {
			<-purged
		}
		return 0
	}
	s.deny.Store(&hold)
	c := connectReal(t, s, "2025-11-25")
	go func() { seen <- <-c.progress }()
	_, err := c.work(t.Context())
	var refusal *eventsource.ResponseError
	if !errors.Is(err, mcptransport.ErrLost) || !errors.As(err, &refusal) || refusal.StatusCode != http.StatusBadRequest {
		t.Errorf("the call came to %v; want ErrLost with the refusal of its ID", err)
	}
	if err := c.Ping(t.Context(), nil); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestRealServerEndsTheSession(t *testing.T) {
	t.Run("between calls", func(t *testing.T) {
		s := startReal(t, mcp.StreamableHTTPOptions{})
		c := connectReal(t, s, "2025-11-25", func(tr *mcptransport.Transport) { tr.DisableStandby = true })
		for session := range s.mcp.Sessions() {
			session.Close()
		}
		if err := c.Ping(t.Context(), nil); !errors.Is(err, mcp.ErrSessionMissing) {
			t.Errorf("ping: %v, want ErrSessionMissing", err)
		}
		if err := c.Wait(); !errors.Is(err, mcp.ErrSessionMissing) {
			t.Errorf("the session ended with %v, want ErrSessionMissing", err)
		}
	})
	t.Run("under the standby stream", func(t *testing.T) {
		s := startReal(t, mcp.StreamableHTTPOptions{})
		opened := make(chan struct{})
		c := connectReal(t, s, "2025-11-25", func(tr *mcptransport.Transport) {
			newTrace := tr.Client.Trace
			tr.Client.Trace = func(req *http.Request) *eventsource.Trace {
				trace := newTrace(req)
				trace.Open = func(eventsource.OpenInfo) {
					if s.gets.Load() > 0 {
						close(opened)
					}
				}
				return trace
			}
		})
		<-opened
		for session := range s.mcp.Sessions() {
			session.Close()
		}
		if err := <-c.standby; !errors.Is(err, mcp.ErrSessionMissing) {
			t.Errorf("the standby stream ended with %v, want ErrSessionMissing", err)
		}
		if err := c.Wait(); !errors.Is(err, mcp.ErrSessionMissing) {
			t.Errorf("the session ended with %v, want ErrSessionMissing", err)
		}
	})
}

// The server asks back in the middle of a call whose stream it has closed.
func TestRealServerAsksBack(t *testing.T) {
	s := startReal(t, mcp.StreamableHTTPOptions{})
	s.addWork(func(ctx context.Context, r *mcp.CallToolRequest) error {
		r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 50 * time.Millisecond})
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who?"})
		if err == nil && answer.Content["name"] != "Ada" {
			err = fmt.Errorf("the client answered %v", answer)
		}
		return err
	})
	c := connectReal(t, s, "2025-11-25")
	result, err := c.work(t.Context())
	checkDone(t, result, err)
}

func TestRealServerAnswersInJSON(t *testing.T) {
	s := startReal(t, mcp.StreamableHTTPOptions{JSONResponse: true})
	s.addWork(func(ctx context.Context, r *mcp.CallToolRequest) error { return notifyProgress(ctx, r, 1) })
	c := connectReal(t, s, "2025-11-25")
	result, err := c.work(t.Context())
	checkDone(t, result, err)
	if n := <-c.progress; n != 1 { // on the standby stream
		t.Errorf("progress %v, want 1", n)
	}
}

// The SDK takes most errors of Write for the end of the connection.
func TestARefusedNotificationDoesNotEndTheSDKsSession(t *testing.T) {
	s := startReal(t, mcp.StreamableHTTPOptions{})
	c := connectReal(t, s, "2025-11-25")
	refuse := func(r *http.Request) int {
		if r.Method == http.MethodPost {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	s.deny.Store(&refuse)
	err := c.NotifyProgress(t.Context(), &mcp.ProgressNotificationParams{ProgressToken: "t"})
	var refusal *eventsource.ResponseError
	if !errors.As(err, &refusal) || refusal.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the notification came to %v, want the 503", err)
	}
	if err := c.Ping(t.Context(), nil); !errors.As(err, &refusal) {
		t.Errorf("ping: %v, want the 503", err)
	}
	s.deny.Store(nil)
	if err := c.Ping(t.Context(), nil); err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestManyCallsAtOnce(t *testing.T) {
	const calls, closes = 50, 3
	s := startReal(t, mcp.StreamableHTTPOptions{})
	s.addWork(func(ctx context.Context, r *mcp.CallToolRequest) error {
		for n := range closes {
			r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 50 * time.Millisecond})
			if err := notifyProgress(ctx, r, n); err != nil {
				return err
			}
		}
		return nil
	})
	c := connectReal(t, s, "2025-11-25")
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			result, err := c.work(t.Context())
			if err != nil || result.IsError {
				t.Errorf("a call came to %v, %v", result, err)
			}
		})
	}
	wg.Wait()
	c.Close()
	if n := len(drain(c.progress)); n != calls*closes {
		t.Errorf("%d progress notifications, want %d", n, calls*closes)
	}
}

// The SDK's client chooses the newest revision by itself.
func TestRealServerOfTheNewEra(t *testing.T) {
	s := startReal(t, mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	started, cancelled := make(chan struct{}), make(chan struct{})
	block := false
	s.addWork(func(ctx context.Context, r *mcp.CallToolRequest) error {
		if block {
			close(started)
			<-ctx.Done()
			close(cancelled)
			return ctx.Err()
		}
		return notifyProgress(ctx, r, 1)
	})
	acknowledged := make(chan struct{}, 10)
	c := connectReal(t, s, "", watch("acknowledged", acknowledged))
	if got := c.InitializeResult().ProtocolVersion; got != newVersion {
		t.Fatalf("the protocol version is %s, want %s", got, newVersion)
	}
	result, err := c.work(t.Context())
	checkDone(t, result, err)
	if n := <-c.progress; n != 1 {
		t.Errorf("progress %v, want 1", n)
	}

	// To leave a call is to cancel it.
	block = true
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	if _, err := c.work(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled call came to %v", err)
	}
	<-cancelled

	// A subscription survives its connections.
	for n := range 3 {
		<-acknowledged
		mcp.AddTool(s.mcp, &mcp.Tool{Name: fmt.Sprint("more", n)}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
		<-c.tools
		s.http.CloseClientConnections()
	}
	if n := s.gets.Load(); n != 0 {
		t.Errorf("%d GETs, want none", n)
	}
	if got := c.ID(); got != "" {
		t.Errorf("there is a session: %s", got)
	}
}

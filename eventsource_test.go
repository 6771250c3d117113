// Package eventsource_test tells the stories of the module's users, through the
// public packages, over real sockets, on a fake clock.
package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a server on a port and a client that share a clock, which each wait of the
// client advances by just as much.
type world struct {
	*eventsourcetest.Server
	clock  *clock.Fake
	client eventsource.Client
}

func newWorld(t *testing.T, p policy.Policy, script ...[]eventsourcetest.Step) *world {
	t.Helper()
	w := &world{clock: clock.NewFake(time.Time{})}
	w.Server = &eventsourcetest.Server{Script: script, Loopback: true, Clock: w.clock}
	w.Start()
	t.Cleanup(w.Close)
	w.client = eventsource.Client{
		HTTPClient: w.Client(),
		Policy:     p,
		Clock:      w.clock,
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{Wait: func(i eventsource.WaitInfo) {
				// The server takes a moment to notice that a client has left.
				w.await(t, func(r eventsourcetest.Request) bool { return !r.Ended.IsZero() })
				w.clock.Advance(i.Waited)
			}}
		},
	}
	return w
}

// await waits until the condition holds for each of the requests.
func (w *world) await(t *testing.T, condition func(eventsourcetest.Request) bool) {
	t.Helper()
	err := w.Await(t.Context(), func(requests []eventsourcetest.Request) bool {
		for _, r := range requests {
			if !condition(r) {
				return false
			}
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

// over checks what holds after every story: the server has seen the client go,
// it never had two requests at once, and no timer is left.
func (w *world) over(t *testing.T) {
	t.Helper()
	w.await(t, func(r eventsourcetest.Request) bool { return !r.Ended.IsZero() })
	for _, r := range w.Requests() {
		if !r.Refused && r.InFlight != 1 {
			t.Errorf("request %d: %d in flight", r.Number, r.InFlight)
		}
	}
	if d, ok := w.clock.Next(); ok {
		t.Errorf("a timer is left, due in %v", d)
	}
}

// get returns a GET request of the server's feed.
func (w *world) get(t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/feed", nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// One answer of a language model: a POST whose answer is one response. It is not
// asked for twice, unless the caller says that this is harmless.
func TestStoryAnswerByPOST(t *testing.T) {
	tokens := eventsourcetest.Send("data: {\"token\":\"Once\"}\n\ndata: {\"token\":\" upon\"}\n\n")
	done := eventsourcetest.Send("data: [DONE]\n\n")
	half := eventsourcetest.Send("data: {\"token\":\" a ti")
	busy := eventsourcetest.Status{Code: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"20"}}}

	once := []string{`{"token":"Once"}`, `{"token":" upon"}`}
	whole := append(once[:2:2], "[DONE]")

	tests := []struct {
		name   string
		policy policy.Policy
		header http.Header
		script [][]eventsourcetest.Step
		want   []string // data received
		errs   []error  // that the end is; none for an orderly end
		gaps   []time.Duration
	}{
		{
			name:   "the caller leaves at the end of the answer",
			script: [][]eventsourcetest.Step{{tokens, done, eventsourcetest.Stall}},
			want:   whole,
			gaps:   []time.Duration{0},
		},
		{
			name:   "the response ends",
			script: [][]eventsourcetest.Step{{tokens, eventsourcetest.End}, {tokens, done}},
			want:   once,
			gaps:   []time.Duration{0},
		},
		{
			name:   "the connection breaks and the request is not repeated",
			script: [][]eventsourcetest.Step{{tokens, half, eventsourcetest.Cut}, {tokens, done}},
			want:   once,
			errs:   []error{eventsource.ErrNotReplayable, io.ErrUnexpectedEOF},
			gaps:   []time.Duration{0},
		},
		{
			name: "with a key it is repeated until the answer has come",
			policy: policy.Rules{
				OneAnswer: true,
				Retryable: func(status int) bool { return status == http.StatusServiceUnavailable },
			},
			header: http.Header{"Idempotency-Key": {`"8e03978e"`}},
			script: [][]eventsourcetest.Step{{busy}, {eventsourcetest.Cut}, {tokens, eventsourcetest.End}, {tokens, done}},
			want:   once,
			gaps:   []time.Duration{0, 20 * time.Second, 6 * time.Second},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.policy, tt.script...)
			const question = `{"prompt":"Tell me a story","stream":true}`
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+"/v1/answers", strings.NewReader(question))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			for name, values := range tt.header {
				req.Header[name] = values
			}

			var got []string
			var end error
			for ev, err := range w.client.Stream(req).Events() {
				if err != nil {
					end = err
					break
				}
				got = append(got, ev.Data)
				if ev.Data == "[DONE]" {
					break
				}
			}

			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if (end != nil) != (len(tt.errs) > 0) {
				t.Errorf("ended with %v, want %v", end, tt.errs)
			}
			for _, want := range tt.errs {
				if !errors.Is(end, want) {
					t.Errorf("ended with %v, want %v", end, want)
				}
			}
			w.over(t)
			requests := w.Requests()
			if len(requests) != len(tt.gaps) {
				t.Fatalf("%d requests, want %d", len(requests), len(tt.gaps))
			}
			for i, r := range requests {
				if r.Method != http.MethodPost || string(r.Body) != question || r.Header.Get("Accept") != "text/event-stream" {
					t.Errorf("request %d was %s with Accept %q and body %q", r.Number, r.Method, r.Header.Get("Accept"), r.Body)
				}
				// The client's own waits have a random share of up to a half on top.
				if r.Gap < tt.gaps[i] || r.Gap > tt.gaps[i]*3/2 {
					t.Errorf("request %d came after %v, want %v", r.Number, r.Gap, tt.gaps[i])
				}
			}
		})
	}
}

// feed is what a server of numbered entries does with a request: it replays what
// the client has missed, up to the last entry there is at that time.
func feed(last int) eventsourcetest.Do {
	return func(c *eventsourcetest.Conn) {
		next := 1
		if seen, err := strconv.Atoi(c.Request().LastEventID); err == nil {
			next = seen + 1
		}
		for n := next; n <= last; n++ {
			c.Play(eventsourcetest.Event{ID: strconv.Itoa(n), Data: entry(n)})
		}
	}
}

func entry(n int) string { return fmt.Sprintf("entry %d", n) }

func entries(first, last int) []string {
	var list []string
	for n := first; n <= last; n++ {
		list = append(list, entry(n))
	}
	return list
}

// A feed without end goes on through all that happens to connections: nothing is
// lost, nothing comes twice, and the server is left alone as long as it asked.
func TestStoryFeedThroughDrops(t *testing.T) {
	const asked = 2 * time.Second
	const idle = 30 * time.Second
	script := [][]eventsourcetest.Step{
		{eventsourcetest.Retry(asked), feed(10), eventsourcetest.End},
		{feed(20), eventsourcetest.Cut},
		{feed(30), eventsourcetest.Send("id: 31\ndata: entry 3"), eventsourcetest.Cut},
		{eventsourcetest.Refuse},
		{feed(40), eventsourcetest.Comment("still there"), eventsourcetest.Stall},
		{eventsourcetest.Status{Code: http.StatusBadGateway}},
		{feed(50), eventsourcetest.Send("id: 50\n\n"), eventsourcetest.End},
		{feed(60), eventsourcetest.Reset}, // may lose what it sent, which is then replayed
		{feed(70), eventsourcetest.Stall},
	}

	w := newWorld(t, policy.Resilient(), script...)
	w.client.IdleTimeout = idle
	var silence sync.WaitGroup
	var got []string
	for ev, err := range w.client.Stream(w.get(t)).Events() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ev.Data)
		if ev.Data == entry(40) {
			// Nothing more comes on this connection: let that be noticed.
			silence.Go(func() {
				if err := w.clock.Wait(t.Context(), 1); err != nil {
					t.Error(err)
				}
				w.clock.Advance(idle)
			})
		}
		if ev.Data == entry(70) {
			break
		}
	}
	silence.Wait()

	if diff := cmp.Diff(entries(1, 70), got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	w.over(t)
	requests := w.Requests()
	if len(requests) != len(script) {
		t.Fatalf("%d requests, want %d", len(requests), len(script))
	}
	wantIDs := map[int]string{1: "", 2: "10", 3: "20", 5: "30", 6: "40", 7: "40", 8: "50"}
	for _, r := range requests[1:] {
		// No two attempts in a row were fruitless, so no wait has grown.
		if r.Gap != asked {
			t.Errorf("request %d came after %v, the server asked for %v", r.Number, r.Gap, asked)
		}
		if want, ok := wantIDs[r.Number]; ok && r.LastEventID != want {
			t.Errorf("request %d had Last-Event-ID %q, want %q", r.Number, r.LastEventID, want)
		}
	}
}

// When a kept connection dies under the next request, net/http sends that request again
// by itself and at once, which would be too early.
func TestG1NetHTTPDoesNotResend(t *testing.T) {
	const asked = time.Minute
	script := [][]eventsourcetest.Step{
		{eventsourcetest.Retry(asked), feed(1), eventsourcetest.End},
		{eventsourcetest.Cut}, // before any byte
		{feed(2), eventsourcetest.Stall},
	}

	plain := newWorld(t, nil, script[0], script[1], []eventsourcetest.Step{feed(2), eventsourcetest.End})
	for range 2 {
		resp, err := plain.Client().Do(plain.get(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
	}
	if n := len(plain.Requests()); n != 3 {
		t.Fatalf("a plain client's 2 requests were %d: there is nothing to prevent here", n)
	}

	w := newWorld(t, nil, script...)
	var got []string
	for ev, err := range w.client.Stream(w.get(t)).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, ev.Data); ev.Data == entry(2) {
			break
		}
	}
	if diff := cmp.Diff(entries(1, 2), got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	w.over(t)
	requests := w.Requests()
	if len(requests) != 3 {
		t.Fatalf("%d requests, want 3", len(requests))
	}
	if requests[1].Connection != requests[0].Connection {
		t.Error("the connection was not used again")
	}
	for _, r := range requests[1:] {
		if r.Gap != asked {
			t.Errorf("request %d came after %v, the server asked for %v", r.Number, r.Gap, asked)
		}
	}
}

// A program that stores the last event ID with each entry goes on where it
// crashed, wherever that was.
func TestStoryResumeAfterCrash(t *testing.T) {
	const last = 5
	for crash := 1; crash <= last; crash++ {
		t.Run(fmt.Sprintf("after entry %d", crash), func(t *testing.T) {
			w := newWorld(t, nil, []eventsourcetest.Step{feed(last), eventsourcetest.Stall}, []eventsourcetest.Step{feed(last + 1), eventsourcetest.Stall})
			// What survives a crash.
			var stored string
			var got []string
			process := func(handle func(eventsource.Event) (more bool)) {
				defer func() { _ = recover() }()
				req := w.get(t)
				if stored != "" {
					req.Header.Set("Last-Event-ID", stored)
				}
				for ev, err := range w.client.Stream(req).Events() {
					if err != nil {
						t.Error(err)
						return
					}
					got, stored = append(got, ev.Data), ev.LastEventID
					if !handle(ev) {
						return
					}
				}
			}
			process(func(ev eventsource.Event) bool {
				if ev.Data == entry(crash) {
					panic("crash")
				}
				return true
			})
			w.await(t, func(r eventsourcetest.Request) bool { return r.ClientLeft })
			process(func(ev eventsource.Event) bool { return ev.Data != entry(last+1) })

			if diff := cmp.Diff(entries(1, last+1), got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			w.over(t)
			requests := w.Requests()
			if len(requests) != 2 {
				t.Fatalf("%d requests, want 2", len(requests))
			}
			if requests[0].HasLastEventID {
				t.Errorf("the first process resumed after %q", requests[0].LastEventID)
			}
			if want := strconv.Itoa(crash); requests[1].LastEventID != want {
				t.Errorf("the second process resumed after %q, want %q", requests[1].LastEventID, want)
			}
		})
	}
}

// A call over MCP's Streamable HTTP: the response to the POST is adopted, and what
// it did not bring is fetched by GET, at the server's pace or not at all.
func TestStoryAdoptedCall(t *testing.T) {
	prime := func(id string) eventsourcetest.Send {
		return eventsourcetest.Send("retry: 500\nid: " + id + "\ndata:\n\n")
	}
	progress := eventsourcetest.Event{ID: "p3", Data: `{"method":"notifications/progress"}`}
	answer := eventsourcetest.Event{ID: "p4", Data: `{"id":1,"result":{}}`}

	type get struct {
		LastEventID string
		Gap         time.Duration
	}
	tests := []struct {
		name   string
		script [][]eventsourcetest.Step
		want   []string
		err    error // that the end is; nil if the answer came
		budget time.Duration
		gets   []get
	}{
		{
			name:   "answered at once",
			script: [][]eventsourcetest.Step{{answer, eventsourcetest.Stall}},
			want:   []string{answer.Data},
		},
		{
			name: "polled, then dropped, then answered",
			script: [][]eventsourcetest.Step{
				{prime("p1"), eventsourcetest.End},
				{prime("p2"), eventsourcetest.End},
				{progress, eventsourcetest.Cut},
				{answer, eventsourcetest.Stall},
			},
			want: []string{"", "", progress.Data, answer.Data},
			gets: []get{{"p1", 500 * time.Millisecond}, {"p2", 500 * time.Millisecond}, {"p3", 500 * time.Millisecond}},
		},
		{
			name:   "a day-long wait is refused at once",
			script: [][]eventsourcetest.Step{{eventsourcetest.Retry(24 * time.Hour), eventsourcetest.Event{ID: "p1"}, eventsourcetest.End}},
			want:   []string{""},
			budget: 24 * time.Hour,
		},
		{
			name:   "nothing to resume from",
			script: [][]eventsourcetest.Step{{eventsourcetest.Comment("hello"), eventsourcetest.End}},
			err:    policy.ErrNotResumable,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, policy.MCPCall(), tt.script...)
			start := w.clock.Now()
			call, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+"/mcp", strings.NewReader(`{"id":1,"method":"tools/call"}`))
			if err != nil {
				t.Fatal(err)
			}
			call.Header.Set("Accept", "application/json, text/event-stream")
			resp, err := w.Client().Do(call)
			if err != nil {
				t.Fatal(err)
			}
			next, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/mcp", nil)
			if err != nil {
				t.Fatal(err)
			}
			next.Header.Set("Mcp-Session-Id", "s1")

			var got []string
			var end error
			for ev, err := range w.client.Adopt(resp, next).Events() {
				if err != nil {
					end = err
					break
				}
				got = append(got, ev.Data)
				if ev.Data == answer.Data {
					break
				}
			}

			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			var budget *policy.BudgetError
			switch {
			case tt.budget > 0:
				if !errors.As(end, &budget) || budget.Asked != tt.budget {
					t.Errorf("ended with %v, want a budget too small for %v", end, tt.budget)
				}
			case !errors.Is(end, tt.err):
				t.Errorf("ended with %v, want %v", end, tt.err)
			}
			w.over(t)
			requests := w.Requests()
			var gets []get
			var slept time.Duration
			for _, r := range requests[1:] {
				gets = append(gets, get{r.LastEventID, r.Gap})
				slept += r.Gap
				if r.Method != http.MethodGet || len(r.Body) > 0 || r.Header.Get("Mcp-Session-Id") != "s1" {
					t.Errorf("request %d was %s with session %q and body %q", r.Number, r.Method, r.Header.Get("Mcp-Session-Id"), r.Body)
				}
			}
			if diff := cmp.Diff(tt.gets, gets); diff != "" {
				t.Errorf("resumptions (-want +got):\n%s", diff)
			}
			if took := w.clock.Now().Sub(start); took != slept {
				t.Errorf("took %v, with waits of %v in all", took, slept)
			}
		})
	}
}

// Cancelling the request's context is the way to end a stream from elsewhere; the
// loop is given the cause.
func TestStoryCancel(t *testing.T) {
	w := newWorld(t, nil, []eventsourcetest.Step{feed(1), eventsourcetest.Stall})
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var end error
	for _, err := range w.client.Stream(w.get(t).WithContext(ctx)).Events() {
		if err != nil {
			end = err
			break
		}
		go cancel(enough)
	}
	if !errors.Is(end, enough) {
		t.Errorf("ended with %v, want %v", end, enough)
	}
	w.over(t)
	if n := len(w.Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// feedOf answers requests of any host with a feed of two events, then with 204.
type feedOf struct{ requests int }

func (f *feedOf) RoundTrip(req *http.Request) (*http.Response, error) {
	f.requests++
	resp := &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: req}
	if f.requests == 1 {
		resp.StatusCode = http.StatusOK
		resp.Header.Set("Content-Type", "text/event-stream")
		resp.Body = io.NopCloser(strings.NewReader("retry: 0\ndata: hello\n\nevent: news\ndata: world\n\n"))
	}
	return resp, nil
}

// The loop is that of README.md. It ends when the server says that there is no
// more, by a status of 204.
func Example() {
	http.DefaultClient.Transport = &feedOf{}
	defer func() { http.DefaultClient.Transport = nil }()

	for ev, err := range eventsource.Get(context.Background(), "https://example.com/feed") {
		if err != nil {
			log.Fatal(err) // the stream is over, and this is why
		}
		fmt.Println(ev.Type, ev.Data)
	}
	// Output:
	// message hello
	// news world
}

// The body is that of the second example in README.md.
func followFrom(ctx context.Context, url, stored string) error {
	client := &eventsource.Client{
		Policy:      policy.Rules{Budget: time.Minute, MaxFruitless: 5},
		IdleTimeout: 45 * time.Second,
		Trace:       eventsource.LogTrace(nil),
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", stored) // to go on where an earlier process stopped
	for ev, err := range client.Stream(req).Events() {
		if err != nil {
			return err
		}
		stored = ev.LastEventID
	}
	return nil
}

// What the second example does when the server asks for more than its budget.
func TestReadmeSettings(t *testing.T) {
	srv := &eventsourcetest.Server{Loopback: true, Script: [][]eventsourcetest.Step{
		{eventsourcetest.Retry(2 * time.Minute), feed(9), eventsourcetest.End},
	}}
	srv.Start()
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()

	logged := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(logged)
	err := followFrom(t.Context(), srv.URL, "7")
	var budget *policy.BudgetError
	if !errors.As(err, &budget) || budget.Asked != 2*time.Minute || budget.Left > time.Minute {
		t.Errorf("ended with %v, want a budget of 1m0s that is too small for 2m0s", err)
	}
	if got := srv.Requests(); len(got) != 1 || got[0].LastEventID != "7" {
		t.Errorf("requests: %+v", got)
	}
}

// readmeBlocks returns the Go examples of README.md.
func readmeBlocks(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(readme), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) != 2 {
		t.Fatalf("README.md has %d Go examples, want 2", len(blocks))
	}
	return blocks
}

// sourceOf returns the body of a function in src, and a function that returns the text
// of a node.
func sourceOf(t *testing.T, name, src string) (text func(ast.Node) string, body *ast.BlockStmt) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	text = func(n ast.Node) string { return src[files.Position(n.Pos()).Offset:files.Position(n.End()).Offset] }
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
			return text, f.Body
		}
	}
	t.Fatalf("no function %s", name)
	return nil, nil
}

// The examples of README.md are those that the tests run, to the letter.
func TestReadmeIsTested(t *testing.T) {
	self, err := os.ReadFile("eventsource_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := readmeBlocks(t)

	text, body := sourceOf(t, "Example", string(self))
	loop := text(body.List[len(body.List)-1])
	text, body = sourceOf(t, "main", blocks[0])
	if len(body.List) != 1 {
		t.Fatalf("main has %d statements, want the loop alone", len(body.List))
	}
	if diff := cmp.Diff(loop, text(body.List[0])); diff != "" {
		t.Errorf("README.md's first example is not Example's loop (-want +got):\n%s", diff)
	}

	text, body = sourceOf(t, "followFrom", string(self))
	want := strings.Trim(strings.ReplaceAll("\n"+strings.Trim(text(body), "{}"), "\n\t", "\n"), "\n")
	if diff := cmp.Diff(want+"\n", blocks[1]); diff != "" {
		t.Errorf("README.md's second example is not followFrom's body (-want +got):\n%s", diff)
	}
}

// The first example is a program that compiles in a new module whose only direct
// requirement is this one.
func TestReadmeCompiles(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"main.go": readmeBlocks(t)[0],
		"go.sum":  string(sums),
		"go.mod": "module example.com/first\n\ngo 1.25\n\n" +
			"require github.com/reprise-sse/reprise v0.0.0\n\n" +
			"replace github.com/reprise-sse/reprise => " + strconv.Quote(root) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", "-mod=mod", ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd, err, out)
	}
}

package eventsourcetest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// A network is a kind of network that a Server can be on.
type network struct {
	name            string
	loopback, http2 bool
}

var networks = []network{
	{name: "memory"},
	{name: "memory, HTTP/2", http2: true},
	{name: "loopback", loopback: true},
	{name: "loopback, HTTP/2", loopback: true, http2: true},
}

// test runs f as a subtest, in a bubble if the network allows it.
func (n network) test(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	if n.loopback {
		t.Run(name, f)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// server returns a server on the network that runs for the rest of the test.
func (n network) server(t *testing.T, script ...[]Step) *Server {
	t.Helper()
	srv := &Server{Script: script, Loopback: n.loopback, HTTP2: n.http2}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func onEachNetwork(t *testing.T, f func(*testing.T, network)) {
	t.Helper()
	for _, n := range networks {
		n.test(t, n.name, func(t *testing.T) { f(t, n) })
	}
}

var memory = networks[0]

// An exchange is what a client saw of one request.
type exchange struct {
	Status int
	Type   []string // Content-Type
	Length int64    // Content-Length, -1 if there was none
	Body   string
	Err    string // of the request, or of reading the body
}

func newRequest(ctx context.Context, t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// do sends a request and reads the whole answer.
func do(client *http.Client, req *http.Request) exchange {
	resp, err := client.Do(req)
	if err != nil {
		return exchange{Err: errorName(err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return exchange{
		Status: resp.StatusCode,
		Type:   resp.Header["Content-Type"],
		Length: resp.ContentLength,
		Body:   string(body),
		Err:    errorName(err),
	}
}

func get(t *testing.T, srv *Server) exchange {
	t.Helper()
	return do(srv.Client(), newRequest(t.Context(), t, srv.URL))
}

// open sends a request and returns its open response; leave breaks it off.
func open(t *testing.T, srv *Server) (body io.Reader, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := srv.Client().Do(newRequest(ctx, t, srv.URL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body, cancel
}

func errorName(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case strings.Contains(err.Error(), "INTERNAL_ERROR"):
		return "stream reset"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "unexpected end"
	case errors.Is(err, io.EOF):
		return "end"
	}
	return err.Error()
}

var eventStream = []string{"text/event-stream"}

// TestSteps shows each step as a client sees it, on each network.
func TestSteps(t *testing.T) {
	large := strings.Repeat("x", 300_000) // more than any buffer on the way

	tests := []struct {
		name  string
		entry []Step
		want  exchange
		http2 *exchange // where HTTP/2 differs
	}{
		{
			name: "nothing",
			want: exchange{Status: 200, Type: eventStream, Length: 0},
		},
		{
			name:  "end",
			entry: []Step{End},
			want:  exchange{Status: 200, Type: eventStream, Length: 0},
		},
		{
			name:  "open and end",
			entry: []Step{Open, End},
			want:  exchange{Status: 200, Type: eventStream, Length: -1},
		},
		{
			name: "what an event stream is made of",
			entry: []Step{
				Comment("hello"),
				Retry(2500 * time.Millisecond),
				Event{ID: "p"},
				Event{Type: "tick", ID: "1", Data: "a\nb"},
				Send("data: \xff\r\r"),
			},
			want: exchange{
				Status: 200, Type: eventStream, Length: -1,
				Body: ": hello\n\nretry: 2500\n\nid: p\ndata: \n\nevent: tick\nid: 1\ndata: a\ndata: b\n\ndata: \xff\r\r",
			},
		},
		{
			name:  "more than fits in the buffers",
			entry: []Step{Send(large), Send(large)},
			want:  exchange{Status: 200, Type: eventStream, Length: -1, Body: large + large},
		},
		{
			name: "steps after the end are not reached",
			entry: []Step{
				Event{Data: "a"},
				End,
				Event{Data: "b"},
				Do(func(*Conn) { panic("a step after the end was reached") }),
			},
			want: exchange{Status: 200, Type: eventStream, Length: -1, Body: "data: a\n\n"},
		},
		{
			name:  "a status",
			entry: []Step{Status{Code: 503, Header: http.Header{"Content-Type": {"text/plain"}}, Body: "busy"}},
			want:  exchange{Status: 503, Type: []string{"text/plain"}, Length: 4, Body: "busy"},
		},
		{
			name:  "a status without a type",
			entry: []Step{Status{Body: "<html>"}, End},
			want:  exchange{Status: 200, Length: 6, Body: "<html>"},
		},
		{
			name:  "a status and then a stream",
			entry: []Step{Status{Header: http.Header{"content-type": {"text/event-stream;charset=utf-8"}}, Body: ":a\n"}, Event{Data: "b"}},
			want:  exchange{Status: 200, Type: []string{"text/event-stream;charset=utf-8"}, Length: -1, Body: ":a\ndata: b\n\n"},
		},
		{
			name:  "a status that has no body",
			entry: []Step{Status{Code: 204, Body: "x"}},
			want:  exchange{Status: 204, Length: 0},
		},
		{
			name:  "a status after the stream has opened",
			entry: []Step{Event{Data: "a"}, Status{Code: 500, Body: "b"}},
			want:  exchange{Status: 200, Type: eventStream, Length: -1, Body: "data: a\n\n"},
		},
		{
			name:  "cut",
			entry: []Step{Event{Data: "a"}, Cut},
			want:  exchange{Status: 200, Type: eventStream, Length: -1, Body: "data: a\n\n", Err: "unexpected end"},
			http2: &exchange{Status: 200, Type: eventStream, Length: -1, Body: "data: a\n\n", Err: "stream reset"},
		},
		{
			name:  "cut in the middle of an answer",
			entry: []Step{Status{Code: 500, Header: http.Header{"Content-Length": {"8"}}, Body: "four"}, Cut},
			want:  exchange{Status: 500, Length: 8, Body: "four", Err: "unexpected end"},
			http2: &exchange{Status: 500, Length: 8, Body: "four", Err: "stream reset"},
		},
		{
			name:  "cut before any byte",
			entry: []Step{Cut},
			want:  exchange{Err: "end"},
			http2: &exchange{Err: "stream reset"},
		},
		{
			name:  "reset",
			entry: []Step{Event{Data: "a"}, Reset},
			want:  exchange{Status: 200, Type: eventStream, Length: -1, Body: "data: a\n\n", Err: "reset"},
			http2: &exchange{Status: 200, Type: eventStream, Length: -1, Body: "data: a\n\n", Err: "stream reset"},
		},
		{
			name:  "reset before any byte",
			entry: []Step{Reset},
			want:  exchange{Err: "reset"},
			http2: &exchange{Err: "stream reset"},
		},
		{
			name:  "refuse",
			entry: []Step{Refuse},
			want:  exchange{Err: "refused"},
		},
		{
			name: "a function",
			entry: []Step{
				Do(func(c *Conn) { c.Play(Send(":"+c.Request().Method+"\n"), Send(":2\n")) }),
				Send(":3\n"),
			},
			want: exchange{Status: 200, Type: eventStream, Length: -1, Body: ":GET\n:2\n:3\n"},
		},
		{
			name: "a function that ends the response",
			entry: []Step{
				Do(func(c *Conn) {
					if !c.Play(Send(":1\n")) || c.Play(End) || c.Play(Send(":2\n")) {
						panic("Play reported the wrong state of the connection")
					}
				}),
				Send(":3\n"),
			},
			want: exchange{Status: 200, Type: eventStream, Length: -1, Body: ":1\n"},
		},
		{
			name:  "a function that fails the test",
			entry: []Step{Send(":\n"), Do(func(*Conn) { runtime.Goexit() })},
			want:  exchange{Status: 200, Type: eventStream, Length: -1, Body: ":\n", Err: "unexpected end"},
			http2: &exchange{Status: 200, Type: eventStream, Length: -1, Body: ":\n", Err: "stream reset"},
		},
	}
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			for _, test := range tests {
				n.test(t, test.name, func(t *testing.T) {
					srv := n.server(t, test.entry)
					want := test.want
					if n.http2 && test.http2 != nil {
						want = *test.http2
					}
					if diff := cmp.Diff(want, get(t, srv)); diff != "" {
						t.Errorf("the client saw (-want +got):\n%s", diff)
					}
					requests := srv.Requests()
					if len(requests) != 1 || requests[0].Ended.IsZero() || requests[0].ClientLeft {
						t.Errorf("record = %+v, want one request that the server ended", requests)
					}
				})
			}
		})
	}
}

func TestEventText(t *testing.T) {
	for _, test := range []struct {
		event Event
		want  string
	}{
		{Event{}, "data: \n\n"},
		{Event{ID: "1"}, "id: 1\ndata: \n\n"},
		{Event{Type: "t", ID: "1", Data: "d"}, "event: t\nid: 1\ndata: d\n\n"},
		{Event{Data: "a\nb\rc\r\nd\n"}, "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{Event{Data: " a"}, "data:  a\n\n"},
	} {
		if got := test.event.String(); got != test.want {
			t.Errorf("%#v is written as %q, want %q", test.event, got, test.want)
		}
	}
}

// TestRecord compares all that is recorded, to the nanosecond.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.server(t,
			[]Step{Wait(time.Second), Event{ID: "1"}},
			[]Step{Status{Code: 503}},
			[]Step{Refuse},
			[]Step{Open, Stall},
		)
		t0 := time.Now()
		get(t, srv)

		time.Sleep(2 * time.Second)
		req := newRequest(t.Context(), t, "http://another.host:81/a/b?c=d")
		req.Method = http.MethodPost
		req.Body = io.NopCloser(strings.NewReader("body"))
		req.Header = http.Header{"Last-Event-Id": {"1"}, "X": {"y", "z"}, "User-Agent": {"test"}, "Accept-Encoding": {"identity"}}
		do(srv.Client(), req)

		time.Sleep(3 * time.Second)
		get(t, srv)

		time.Sleep(4 * time.Second)
		_, leave := open(t, srv)
		time.Sleep(5 * time.Second)
		leave()
		synctest.Wait()

		at := func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
		header := http.Header{"Accept-Encoding": {"gzip"}, "User-Agent": {"Go-http-client/1.1"}}
		want := []Request{
			{
				Number: 1, Connection: 1, Proto: "HTTP/1.1", Method: "GET", Host: "server.test",
				URL: &url.URL{Path: "/"}, Header: header, Body: []byte{},
				Arrived: at(0), Ended: at(1), InFlight: 1,
			},
			{
				Number: 2, Connection: 2, Proto: "HTTP/1.1", Method: "POST", Host: "another.host:81",
				URL: &url.URL{Path: "/a/b", RawQuery: "c=d"},
				Header: http.Header{
					"Accept-Encoding": {"identity"}, "User-Agent": {"test"},
					"Last-Event-Id": {"1"}, "X": {"y", "z"},
				},
				Body: []byte("body"), LastEventID: "1", HasLastEventID: true,
				Arrived: at(3), Ended: at(3), Gap: 2 * time.Second, InFlight: 1,
			},
			{Number: 3, Refused: true, Arrived: at(6), Ended: at(6), Gap: 3 * time.Second, InFlight: 1},
			{
				Number: 4, Connection: 3, Proto: "HTTP/1.1", Method: "GET", Host: "server.test",
				URL: &url.URL{Path: "/"}, Header: header, Body: []byte{},
				Arrived: at(10), Ended: at(15), Gap: 4 * time.Second, InFlight: 1, ClientLeft: true,
			},
		}
		if diff := cmp.Diff(want, srv.Requests()); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
	})
}

// TestLastEventID tells a missing header from an empty one.
func TestLastEventID(t *testing.T) {
	onEachNetwork(t, func(t *testing.T, n network) {
		srv := n.server(t)
		for _, header := range []http.Header{{}, {"Last-Event-Id": {""}}, {"Last-Event-Id": {"ä", "b"}}} {
			req := newRequest(t.Context(), t, srv.URL)
			req.Header = header
			do(srv.Client(), req)
		}
		type id struct {
			ID      string
			Present bool
		}
		var got []id
		for _, r := range srv.Requests() {
			got = append(got, id{r.LastEventID, r.HasLastEventID})
		}
		if diff := cmp.Diff([]id{{"", false}, {"", true}, {"ä", true}}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestRest shows what follows the script, and that a connection is used again
// after a proper end.
func TestRest(t *testing.T) {
	for _, n := range networks {
		n.test(t, n.name+", default", func(t *testing.T) {
			srv := n.server(t, []Step{End})
			got := []int{get(t, srv).Status, get(t, srv).Status, get(t, srv).Status}
			if diff := cmp.Diff([]int{200, 204, 204}, got); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			for _, r := range srv.Requests() {
				if r.Connection != 1 {
					t.Errorf("request %d came on connection %d, want 1", r.Number, r.Connection)
				}
			}
		})
		n.test(t, n.name+", set", func(t *testing.T) {
			srv := &Server{Rest: []Step{Status{Code: 500}}, Loopback: n.loopback, HTTP2: n.http2}
			srv.Start()
			defer srv.Close()
			for range 3 {
				if got := get(t, srv).Status; got != 500 {
					t.Errorf("status = %d, want 500", got)
				}
			}
		})
	}
}

// TestWait shows that what was written before a wait is on its way during it, and
// that a wait before anything was written sends nothing.
func TestWait(t *testing.T) {
	for _, n := range networks[:2] {
		n.test(t, n.name, func(t *testing.T) {
			srv := n.server(t, []Step{
				Wait(time.Second), Status{Body: "a"}, Wait(2 * time.Second), Send("b"), Wait(3 * time.Second),
			})
			start := time.Now()
			resp, err := srv.Client().Do(newRequest(t.Context(), t, srv.URL))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			type read struct {
				Bytes string
				After time.Duration
			}
			got := []read{{"header", time.Since(start)}}
			for buf := make([]byte, 10); ; {
				n, err := resp.Body.Read(buf)
				if n > 0 {
					got = append(got, read{string(buf[:n]), time.Since(start)})
				}
				if err != nil {
					got = append(got, read{err.Error(), time.Since(start)})
					break
				}
			}
			want := []read{
				{"header", time.Second},
				{"a", time.Second},
				{"b", 3 * time.Second},
				{"EOF", 6 * time.Second},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestClientLeaves shows that the server sees a client leave, whatever it is doing
// at the time.
func TestClientLeaves(t *testing.T) {
	for _, test := range []struct {
		name  string
		entry []Step
	}{
		{"stalled", []Step{Open, Stall}},
		{"stalled before the header", []Step{Stall}},
		{"waiting", []Step{Open, Wait(100 * time.Hour)}},
		{"writing", []Step{Do(func(c *Conn) {
			for c.Play(Send(strings.Repeat("x", 10_000))) {
			}
		})}},
		{"calling a function", []Step{Open, Do(func(c *Conn) { <-c.Context().Done() })}},
	} {
		for _, n := range networks {
			n.test(t, test.name+", "+n.name, func(t *testing.T) {
				srv := n.server(t, append(test.entry, Do(func(*Conn) { panic("a step after the client left was reached") })))
				ctx, leave := context.WithCancel(t.Context())
				req := newRequest(ctx, t, srv.URL)
				left := make(chan struct{})
				go func() {
					defer close(left)
					resp, err := srv.Client().Do(req)
					if err == nil {
						<-ctx.Done()
						resp.Body.Close()
					}
				}()
				arrived := func(r []Request) bool { return len(r) == 1 }
				if err := srv.Await(t.Context(), arrived); err != nil {
					t.Fatal(err)
				}
				if r := srv.Requests()[0]; !r.Ended.IsZero() || r.ClientLeft {
					t.Errorf("recorded before the client left: %+v", r)
				}
				leave()
				ended := func(r []Request) bool { return !r[0].Ended.IsZero() }
				if err := srv.Await(t.Context(), ended); err != nil {
					t.Fatal(err)
				}
				if r := srv.Requests()[0]; !r.ClientLeft {
					t.Errorf("ClientLeft is not set: %+v", r)
				}
				<-left
			})
		}
	}
}

// TestClose shows that Close breaks off what the server is doing, that this does
// not count as the client's leaving, and that nothing answers afterwards.
func TestClose(t *testing.T) {
	for _, test := range []struct {
		name  string
		entry []Step
	}{
		{"stalled", []Step{Open, Stall}},
		{"waiting", []Step{Open, Wait(100 * time.Hour)}},
		{"writing", []Step{Do(func(c *Conn) {
			for c.Play(Send(strings.Repeat("x", 10_000))) {
			}
		})}},
		{"idle", []Step{Open, End}},
	} {
		for _, n := range networks {
			n.test(t, test.name+", "+n.name, func(t *testing.T) {
				srv := n.server(t, test.entry, []Step{Refuse})
				body, _ := open(t, srv)
				if test.name == "idle" {
					io.Copy(io.Discard, body)
				}
				srv.Close()
				srv.Close()
				if _, err := io.Copy(io.Discard, body); err == nil && test.name != "idle" {
					t.Error("the client read a proper end")
				}
				// A dial, if there is one, is refused, and not by the script.
				if got := get(t, srv).Err; got == "" {
					t.Error("a request after Close was answered")
				}
				requests := srv.Requests()
				if len(requests) != 1 || requests[0].ClientLeft || requests[0].Ended.IsZero() {
					t.Errorf("record = %+v, want one request that the client did not leave", requests)
				}
			})
		}
	}
}

// TestClosePipelined: a client that sends its next request too soon keeps net/http
// from watching its connection, but not Close from ending what it does there.
func TestClosePipelined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.server(t, []Step{Open, Stall})
		conn, err := srv.DialContext(t.Context(), "tcp", "server.test:80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range 2 {
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: server.test\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		srv.Close()
		if n := len(srv.Requests()); n != 1 {
			t.Errorf("%d requests recorded, want 1", n)
		}
	})
}

// TestRefuse alternates answers over connections that are kept alive with
// refusals: they never miss the request that they are for.
func TestRefuse(t *testing.T) {
	onEachNetwork(t, func(t *testing.T, n network) {
		script := [][]Step{
			{Event{ID: "1"}}, {Refuse}, {Status{Code: 503}}, {Refuse}, {Refuse}, {Event{ID: "1"}, Cut}, {Refuse}, {Open},
		}
		srv := n.server(t, script...)
		var got []bool
		for range script {
			got = append(got, get(t, srv).Err == "refused")
		}
		want := []bool{false, true, false, true, true, false, true, false}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("refused (-want +got):\n%s", diff)
		}
		for i, r := range srv.Requests() {
			if r.Refused != want[i] {
				t.Errorf("request %d: Refused = %t, want %t", r.Number, r.Refused, want[i])
			}
		}
	})
}

// TestRefuseForeignClient: a client that does not dial through the server cannot
// be refused, so it sees the nearest thing.
func TestRefuseForeignClient(t *testing.T) {
	srv := networks[2].server(t, []Step{Refuse}, []Step{End})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	if got := do(client, newRequest(t.Context(), t, srv.URL)).Err; got != "end" {
		t.Errorf("refused request: %q, want end", got)
	}
	if got := do(client, newRequest(t.Context(), t, srv.URL)).Status; got != 200 {
		t.Errorf("status of the request after it = %d, want 200", got)
	}
	if r := srv.Requests()[0]; !r.Refused {
		t.Errorf("Refused is not set: %+v", r)
	}
}

// TestOutage tries every two seconds. An outage counts from the end of the
// response before it, and neither uses up entries nor is prolonged by attempts.
func TestOutage(t *testing.T) {
	for _, n := range networks[:2] {
		n.test(t, n.name, func(t *testing.T) {
			srv := n.server(t,
				[]Step{Outage(3 * time.Second)},
				[]Step{Wait(time.Second)},
				[]Step{Outage(4 * time.Second)},
				[]Step{Event{ID: "1"}},
			)
			var got []int
			for range 8 {
				got = append(got, get(t, srv).Status)
				time.Sleep(2 * time.Second)
			}
			// t:           0  2  4-5  7  9 (4 s after 5) 11 …
			want := []int{0, 0, 200, 0, 200, 204, 204, 204}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInFlight has two requests at once, then one.
func TestInFlight(t *testing.T) {
	onEachNetwork(t, func(t *testing.T, n network) {
		srv := n.server(t, []Step{Open, Stall}, []Step{Open, Stall}, []Step{End})
		_, leave1 := open(t, srv)
		_, leave2 := open(t, srv)
		leave1()
		leave2()
		bothEnded := func(r []Request) bool { return !r[0].Ended.IsZero() && !r[1].Ended.IsZero() }
		if err := srv.Await(t.Context(), bothEnded); err != nil {
			t.Fatal(err)
		}
		get(t, srv)
		var got []int
		for _, r := range srv.Requests() {
			got = append(got, r.InFlight)
		}
		if diff := cmp.Diff([]int{1, 2, 1}, got); diff != "" {
			t.Errorf("InFlight (-want +got):\n%s", diff)
		}
	})
}

func TestAwait(t *testing.T) {
	srv := networks[2].server(t, []Step{End})
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := srv.Await(ctx, func([]Request) bool { return false }); !errors.Is(err, cause) {
		t.Errorf("Await with a context that is done: %v, want its cause", err)
	}
	arrived := make(chan error)
	go func() {
		arrived <- srv.Await(t.Context(), func(r []Request) bool { return len(r) == 1 && !r[0].Ended.IsZero() })
	}()
	get(t, srv)
	if err := <-arrived; err != nil {
		t.Errorf("Await: %v", err)
	}
}

// TestEndIsRecordedFirst: when a client sees the end of a response, the time of it
// is taken. The clock takes a second to tell the time, in which the client sees
// nothing.
func TestEndIsRecordedFirst(t *testing.T) {
	for _, end := range []Action{End, Cut, Reset} {
		for _, n := range networks[:2] {
			n.test(t, n.name+", "+end.String(), func(t *testing.T) {
				var slow, seen atomic.Bool
				now := slowClock(func() {
					if slow.Load() {
						time.Sleep(time.Second)
						if seen.Load() {
							t.Error("the client saw the end before it was recorded")
						}
					}
				})
				srv := &Server{HTTP2: n.http2, Clock: now, Script: [][]Step{
					{Open, Do(func(*Conn) { slow.Store(true) }), end},
				}}
				srv.Start()
				defer srv.Close()
				get(t, srv)
				seen.Store(true)
				slow.Store(false)
				if requests := srv.Requests(); requests[0].Ended.IsZero() {
					t.Error("the end is not recorded")
				}
			})
		}
	}
}

// slowClock is the system's clock, which calls a function before it tells the time.
type slowClock func()

func (c slowClock) Now() time.Time { c(); return time.Now() }

func (slowClock) AfterFunc(d time.Duration, f func()) clock.Timer { return time.AfterFunc(d, f) }

// TestCutIsImmediate: it does not wait for the function that plays it to return.
func TestCutIsImmediate(t *testing.T) {
	for _, n := range []network{networks[0], networks[2]} {
		n.test(t, n.name, func(t *testing.T) {
			seen := make(chan struct{})
			srv := n.server(t, []Step{Do(func(c *Conn) {
				c.Play(Event{Data: "a"}, Cut)
				<-seen
			})})
			if got := get(t, srv).Err; got != "unexpected end" {
				t.Errorf("the client saw %q, want an unexpected end", got)
			}
			close(seen)
		})
	}
}

// TestStallFlushes: what was written before a stall is on its way.
func TestStallFlushes(t *testing.T) {
	onEachNetwork(t, func(t *testing.T, n network) {
		srv := n.server(t, []Step{Status{Body: "a"}, Stall})
		body, leave := open(t, srv)
		defer leave()
		if got, err := io.ReadAll(io.LimitReader(body, 1)); string(got) != "a" || err != nil {
			t.Errorf("read %q, %v; want a", got, err)
		}
	})
}

// TestWaitStops: no timer is left of a wait that the client has left.
func TestWaitStops(t *testing.T) {
	fake := clock.NewFake(time.Time{})
	srv := &Server{Loopback: true, Clock: fake, Script: [][]Step{{Open, Wait(time.Hour)}}}
	srv.Start()
	defer srv.Close()
	_, leave := open(t, srv)
	if err := fake.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	leave()
	srv.Close()
	if d, ok := fake.Next(); ok {
		t.Errorf("a timer is left, due in %v", d)
	}
}

// TestDate: the Date header is the clock's, or the script's.
func TestDate(t *testing.T) {
	onEachNetwork(t, func(t *testing.T, n network) {
		const other = "Tue, 01 Feb 2050 00:00:00 GMT"
		srv := &Server{
			Script:   [][]Step{{Open}, {Status{Header: http.Header{"Date": {other}}}}},
			Loopback: n.loopback, HTTP2: n.http2,
			Clock: stopped{time.Date(2040, 2, 1, 0, 0, 0, 0, time.FixedZone("", 3600))},
		}
		srv.Start()
		defer srv.Close()
		for _, want := range []string{"Tue, 31 Jan 2040 23:00:00 GMT", other} {
			resp, err := srv.Client().Do(newRequest(t.Context(), t, srv.URL))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.Header["Date"]; !cmp.Equal(got, []string{want}) {
				t.Errorf("Date = %q, want %q", got, want)
			}
		}
	})
}

// stopped is a clock that stands still and never fires.
type stopped struct{ now time.Time }

func (s stopped) Now() time.Time { return s.now }

func (stopped) AfterFunc(time.Duration, func()) clock.Timer { return stopped{} }

func (stopped) Stop() bool { return true }

func (stopped) Reset(time.Duration) bool { return true }

// TestOwnTransport: DialContext serves transports that are not the Client's, and
// refuses them too.
func TestOwnTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memory.server(t, []Step{Refuse}, []Step{Event{Data: "a"}})
		transport := &http.Transport{DialContext: srv.DialContext, DisableKeepAlives: true}
		client := &http.Client{Transport: transport}
		if got := do(client, newRequest(t.Context(), t, "http://any.host/")).Err; got != "refused" {
			t.Errorf("first: %q, want refused", got)
		}
		if got := do(client, newRequest(t.Context(), t, "http://any.host/")).Body; got != "data: a\n\n" {
			t.Errorf("second: body %q", got)
		}
	})
}

// TestWrongSettings: what cannot be played is refused at once, with a panic.
func TestWrongSettings(t *testing.T) {
	for _, test := range []struct {
		name   string
		server *Server
		want   string
	}{
		{"nil step", &Server{Script: [][]Step{{End}, {nil}}}, "is nil"},
		{"refuse after a step", &Server{Script: [][]Step{{Open, Refuse}}}, "Refuse must be the only Step"},
		{"refuse before a step", &Server{Script: [][]Step{{Refuse, Open}}}, "Refuse must be the only Step"},
		{"outage in company", &Server{Rest: []Step{Open, Outage(time.Second)}}, "must be the only Step"},
		{"outage at the end", &Server{Rest: []Step{Outage(time.Second)}}, "no entry to follow"},
		{"outage without length", &Server{Script: [][]Step{{Outage(0)}}}, "longer than zero"},
		{"zero time", &Server{Clock: stopped{}}, "zero time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer test.server.Close()
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, test.want) {
					t.Errorf("Start panicked with %q, want %q in it", got, test.want)
				}
			}()
			test.server.Start()
		})
	}
}

func TestStartTwice(t *testing.T) {
	srv := networks[2].server(t)
	defer func() {
		if recover() == nil {
			t.Error("the second Start did not panic")
		}
	}()
	srv.Start()
}

func TestCloseWithoutStart(t *testing.T) {
	var srv Server
	srv.Close()
}

// TestActionString is what a failing test shows.
func TestActionString(t *testing.T) {
	var got []string
	for a := Open - 1; a <= Refuse+1; a++ {
		got = append(got, a.String())
	}
	want := []string{"Action(0)", "Open", "End", "Cut", "Reset", "Stall", "Refuse", "Action(7)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTransportResends shows why a count of requests matters: net/http sends a GET
// again, at once and on its own, when a connection that has served before dies
// before the first byte of the answer. The client sends two requests; the server
// gets three, the last without any gap.
func TestTransportResends(t *testing.T) {
	for _, n := range []network{networks[0], networks[2]} {
		for _, fault := range []Action{Cut, Reset} {
			n.test(t, n.name+", "+fault.String(), func(t *testing.T) {
				srv := n.server(t, []Step{Event{Data: "a"}}, []Step{fault}, []Step{Event{Data: "b"}})
				var got []string
				for range 2 {
					x := get(t, srv)
					got = append(got, x.Body+x.Err)
				}
				if diff := cmp.Diff([]string{"data: a\n\n", "data: b\n\n"}, got); diff != "" {
					t.Errorf("answers (-want +got):\n%s", diff)
				}
				var connections []int
				for _, r := range srv.Requests() {
					connections = append(connections, r.Connection)
				}
				if diff := cmp.Diff([]int{1, 1, 2}, connections); diff != "" {
					t.Errorf("connections that the requests came on (-want +got):\n%s", diff)
				}
			})
		}
	}
}

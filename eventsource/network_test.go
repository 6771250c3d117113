package eventsource_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/h2test"
	"github.com/reprise-sse/reprise/policy"
)

// A brittleFeed is a handler whose responses break off or end after every second
// event. It answers 204 to a client that has had all of them.
type brittleFeed struct {
	events int

	mu       sync.Mutex
	requests []*http.Request
}

func (f *brittleFeed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r)
	n := len(f.requests)
	f.mu.Unlock()
	last, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	if last >= f.events {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, ev := range []Event{numbered(last + 1), numbered(last + 2)} {
		io.WriteString(w, ev.String())
		http.NewResponseController(w).Flush()
	}
	if n%2 == 0 {
		io.WriteString(w, "id: 99\ndata: cut off")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// TestTransports takes a stream that loses its connection many times over each way
// to reach a server: every event arrives once, and in order.
func TestTransports(t *testing.T) {
	const events = 20
	for name, reach := range map[string]func(t *testing.T, feed http.Handler) (url string, client *http.Client){
		"HTTP1":                      reachHTTP1,
		"HTTP2":                      reachHTTP2,
		"Unix socket":                reachUnixSocket,
		"HTTP proxy":                 func(t *testing.T, feed http.Handler) (string, *http.Client) { return reachProxy(t, reachHTTP1, feed) },
		"HTTP proxy, CONNECT":        func(t *testing.T, feed http.Handler) (string, *http.Client) { return reachProxy(t, reachTLS, feed) },
		"HTTP proxy, CONNECT, HTTP2": func(t *testing.T, feed http.Handler) (string, *http.Client) { return reachProxy(t, reachHTTP2, feed) },
		"reverse proxy":              reachReverseProxy,
	} {
		t.Run(name, func(t *testing.T) {
			f := &brittleFeed{events: events}
			target, httpClient := reach(t, f)
			defer httpClient.CloseIdleConnections()
			fake := clock.NewFake(time.Time{})
			var w watcher
			client := eventsource.Client{HTTPClient: httpClient, Policy: strict, Clock: fake, Trace: w.advancing(fake)}
			data, err := collect(client.Stream(request(t.Context(), t, target)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(upTo(events), data); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if len(w.ends) != events/2+1 {
				t.Errorf("%d attempts, want %d", len(w.ends), events/2+1)
			}
			for _, a := range w.ends[:events/2] {
				want := policy.Ended
				if a.Number%2 == 0 {
					want = policy.Dropped
				}
				if a.Kind != want {
					t.Errorf("attempt %d ended %v with %v, want %v", a.Number, a.Kind, a.Err, want)
				}
			}
			if got, want := f.requests[0].Proto, map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[strings.Contains(name, "HTTP2")]; got != want {
				t.Errorf("it was %s", got)
			}
		})
	}
}

// discarded is for servers whose responses break off on purpose.
var discarded = log.New(io.Discard, "", 0)

func unstarted(t *testing.T, handler http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.ErrorLog = discarded
	t.Cleanup(srv.Close)
	return srv
}

func reachHTTP1(t *testing.T, feed http.Handler) (string, *http.Client) {
	srv := unstarted(t, feed)
	srv.Start()
	return srv.URL, srv.Client()
}

func reachTLS(t *testing.T, feed http.Handler) (string, *http.Client) {
	srv := unstarted(t, feed)
	srv.StartTLS()
	return srv.URL, srv.Client()
}

func reachHTTP2(t *testing.T, feed http.Handler) (string, *http.Client) {
	srv := unstarted(t, feed)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	return srv.URL, srv.Client()
}

func reachUnixSocket(t *testing.T, feed http.Handler) (string, *http.Client) {
	path := filepath.Join(t.TempDir(), "feed.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := unstarted(t, feed)
	srv.Listener.Close()
	srv.Listener = listener
	srv.Start()
	return "http://feed.test/", &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

// reachProxy goes through a forward proxy: with an absolute URL, or by CONNECT to
// a server of TLS.
func reachProxy(t *testing.T, reach func(*testing.T, http.Handler) (string, *http.Client), feed http.Handler) (string, *http.Client) {
	target, client := reach(t, feed)
	proxy := unstarted(t, &httpProxy{forward: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetXForwarded() },
		Transport: client.Transport,
		ErrorLog:  discarded,
	}})
	proxy.Start()
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	through := client.Transport.(*http.Transport).Clone()
	through.Proxy = http.ProxyURL(proxyURL)
	return target, &http.Client{Transport: through}
}

func reachReverseProxy(t *testing.T, feed http.Handler) (string, *http.Client) {
	target, client := reachHTTP1(t, feed)
	targetURL, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return reachHTTP1(t, &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(targetURL) },
		Transport: client.Transport,
		ErrorLog:  discarded,
	})
}

// An httpProxy is a forward proxy.
type httpProxy struct {
	forward http.Handler
}

func (p *httpProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		p.forward.ServeHTTP(w, r)
		return
	}
	server, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer client.Close()
	io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	up := make(chan struct{})
	go func() {
		defer close(up)
		io.Copy(server, client)
		server.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(client, server)
	client.Close()
	<-up
}

// An h2play is what an HTTP/2 server does with the n-th request, from 1, on any
// of its connections. It returns the connections' end if that is due.
type h2play func(n int, c *h2test.Conn, s *h2test.Stream)

var eventStreamHeader = http.Header{"Content-Type": {"text/event-stream"}}

// serveHTTP2 starts an HTTP/2 server that plays; each stream on a goroutine of its
// own.
func serveHTTP2(t *testing.T, play h2play) *h2test.Server {
	var mu sync.Mutex
	n := 0
	srv := h2test.Start(func(c *h2test.Conn) {
		var streams sync.WaitGroup
		defer streams.Wait()
		for {
			s, err := c.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			n++
			number := n
			mu.Unlock()
			streams.Go(func() { play(number, c, s) })
		}
	})
	t.Cleanup(srv.Close)
	return srv
}

// TestHTTP2Faults has an HTTP/2 server do what net/http's own never does, before
// the header, after an event and in the middle of one. Each is one attempt that has
// ended, with its wait, and the stream goes on from the last ID.
func TestHTTP2Faults(t *testing.T) {
	for name, c := range map[string]struct {
		fault      func(c *h2test.Conn, s *h2test.Stream)
		goesOn     bool // the stream does not notice
		reconnects bool // the next attempt is on another connection
		lossy      bool // TCP may lose what was sent before (Linux does not)
	}{
		"RST_STREAM INTERNAL_ERROR":    {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.InternalError) }},
		"RST_STREAM CANCEL":            {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.Cancel) }},
		"RST_STREAM ENHANCE_YOUR_CALM": {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.EnhanceYourCalm) }},
		"RST_STREAM REFUSED_STREAM":    {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.RefusedStream) }},
		"RST_STREAM PROTOCOL_ERROR":    {fault: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.ProtocolError) }, reconnects: true},
		"GOAWAY, not processed": {
			fault: func(c *h2test.Conn, _ *h2test.Stream) { c.GoAway(0, h2test.NoError) }, reconnects: true,
		},
		"GOAWAY, then dropped": {
			fault: func(c *h2test.Conn, s *h2test.Stream) { c.GoAway(s.ID, h2test.EnhanceYourCalm); c.Close() }, reconnects: true, lossy: true,
		},
		"GOAWAY, goes on": {
			fault: func(c *h2test.Conn, s *h2test.Stream) { c.GoAway(s.ID, h2test.NoError) }, reconnects: true, goesOn: true,
		},
		"connection closed": {fault: func(c *h2test.Conn, _ *h2test.Stream) { c.Close() }, reconnects: true, lossy: true},
		"connection reset":  {fault: func(c *h2test.Conn, _ *h2test.Stream) { c.Reset() }, reconnects: true, lossy: true},
	} {
		for moment, sent := range map[string]string{
			"before the header": "-",
			"before an event":   "",
			"after an event":    "id: 1\ndata: a\n\n",
			"inside an event":   "id: 1\ndata: a\n\nid: 2\ndata: b",
		} {
			t.Run(name+"/"+moment, func(t *testing.T) {
				var mu sync.Mutex
				var on []int // the connection of each request
				srv := serveHTTP2(t, func(n int, conn *h2test.Conn, s *h2test.Stream) {
					mu.Lock()
					on = append(on, conn.Number)
					mu.Unlock()
					switch n {
					case 1:
						if sent != "-" {
							s.Respond(200, eventStreamHeader, false)
							s.Data(sent, false)
						}
						c.fault(conn, s)
						if c.goesOn {
							if sent == "-" {
								s.Respond(200, eventStreamHeader, false)
							}
							s.Data("\n\nid: 7\ndata: on\n\n", true)
						}
					case 2:
						s.Respond(200, eventStreamHeader, false)
						s.Data("id: 8\ndata: next\n\n", true)
					default:
						s.Respond(204, nil, true)
					}
				})
				fake := clock.NewFake(time.Time{})
				var w watcher
				var ids []string // that the requests had
				client := eventsource.Client{
					HTTPClient: srv.Client(), Policy: strict, Clock: fake, Trace: w.advancing(fake),
					Prepare: func(req *http.Request) error { ids = append(ids, req.Header.Get("Last-Event-ID")); return nil },
				}
				data, err := collect(client.Stream(request(t.Context(), t, srv.URL)))
				srv.Close() // its goroutines are done with the slice
				if err != nil {
					t.Fatal(err)
				}

				want, resumed := []string{"next"}, ""
				if strings.HasPrefix(sent, "id: 1") {
					want, resumed = []string{"a", "next"}, "1"
				}
				if c.goesOn {
					want = slices.Insert(want, len(want)-1, "on")
					if moment == "inside an event" {
						want = slices.Insert(want, len(want)-2, "b")
					}
					resumed = "7"
				}
				if len(on) != 3 {
					t.Fatalf("%d requests, want 3", len(on))
				}
				if lost := c.lossy && len(data) == 1; lost {
					want, resumed = []string{"next"}, ""
				}
				if diff := cmp.Diff(want, data); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if ids[1] != resumed {
					t.Errorf("resumed from %q, want %q", ids[1], resumed)
				}
				if sameConnection := on[1] == on[0]; sameConnection == c.reconnects {
					t.Errorf("the requests came on the connections %v", on)
				}
				kind := policy.Dropped
				switch {
				case c.goesOn:
					kind = policy.Ended
				case sent == "-":
					kind = policy.Failed
				}
				if first := w.ends[0]; first.Kind != kind || (first.Err == nil) != c.goesOn {
					t.Errorf("the first attempt ended %v with %v, want %v", first.Kind, first.Err, kind)
				}
				if diff := cmp.Diff(seconds(3, 3), w.waits); diff != "" {
					t.Errorf("waits (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestHTTP2StalledBesideBusy has two streams on one connection, of which the
// server stalls one. It is ended by its idle timeout and comes back, on the same
// connection, while the other does not notice.
func TestHTTP2StalledBesideBusy(t *testing.T) {
	const ticks = 20
	tick := make(chan int)
	srv := serveHTTP2(t, func(n int, conn *h2test.Conn, s *h2test.Stream) {
		if conn.Number != 1 {
			t.Errorf("a connection number %d", conn.Number)
		}
		switch n {
		case 1: // the busy one
			s.Respond(200, eventStreamHeader, false)
			for n := range tick {
				s.Data(numbered(n).String(), false)
			}
			s.Data("", true)
		case 2:
			s.Respond(200, eventStreamHeader, false)
			s.Data(numbered(1).String(), false)
			if code, err := s.Left(); code != h2test.Cancel || err != nil {
				t.Errorf("the stalled stream was left with %v, %v", code, err)
			}
		default:
			s.Respond(200, eventStreamHeader, false)
			s.Data(numbered(2).String(), true)
		}
	})
	defer srv.Close()

	// The busy stream has a clock of its own, so only the other one is ever idle.
	busy := eventsource.Client{HTTPClient: srv.Client(), Policy: policy.Never}
	received := make(chan string)
	var both sync.WaitGroup
	both.Go(func() {
		defer close(received)
		for ev, err := range busy.Stream(request(t.Context(), t, srv.URL)).Events() {
			if err != nil {
				t.Error(err)
				return
			}
			received <- ev.Data
		}
	})
	next := 0
	push := func() {
		next++
		tick <- next
		if got := <-received; got != strconv.Itoa(next) {
			t.Fatalf("the busy stream received %q, want %d", got, next)
		}
	}
	push()

	fake := clock.NewFake(time.Time{})
	var w watcher
	stalled := eventsource.Client{HTTPClient: srv.Client(), Policy: strict, Clock: fake, IdleTimeout: 30 * time.Second, Trace: w.advancing(fake)}
	var data []string
	stalledEvents := make(chan string)
	both.Go(func() {
		defer close(stalledEvents)
		for ev, err := range stalled.Stream(request(t.Context(), t, srv.URL)).Events() {
			if err != nil {
				t.Error(err)
				return
			}
			stalledEvents <- ev.Data
			if ev.Data == "2" {
				return
			}
		}
	})
	data = append(data, <-stalledEvents)
	for range ticks {
		push()
	}
	// Its read blocks now: the one timer is that of the idle timeout.
	if err := fake.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	fake.Advance(30 * time.Second)
	data = append(data, <-stalledEvents)
	for range ticks {
		push()
	}
	close(tick)
	both.Wait()
	if diff := cmp.Diff([]string{"1", "2"}, data); diff != "" {
		t.Errorf("the stalled stream (-want +got):\n%s", diff)
	}
	if first := w.ends[0]; first.Kind != policy.Idle || !errors.Is(first.Err, eventsource.ErrIdle) {
		t.Errorf("its first attempt ended %v with %v", first.Kind, first.Err)
	}
}

// A zipper compresses pieces of one gzip stream.
type zipper struct {
	out bytes.Buffer
	gz  *gzip.Writer
}

func newZipper() *zipper {
	z := new(zipper)
	z.gz = gzip.NewWriter(&z.out)
	return z
}

// taken returns what has been put out since the last call.
func (z *zipper) taken() Send {
	defer z.out.Reset()
	return Send(z.out.String())
}

// flushed compresses text so that all of it can be decompressed.
func (z *zipper) flushed(text string) Send {
	io.WriteString(z.gz, text)
	z.gz.Flush()
	return z.taken()
}

// held compresses text and puts out what there is then, which may be nothing.
func (z *zipper) held(text string) Send {
	io.WriteString(z.gz, text)
	return z.taken()
}

func (z *zipper) end() Send {
	z.gz.Close()
	return z.taken()
}

// member compresses text into a gzip stream of its own.
func member(text string) Send {
	z := newZipper()
	return z.held(text) + z.end()
}

// TestGzip is for a caller who asks for compression: events come when the server
// has flushed them, and the end is checked like that of any other body.
func TestGzip(t *testing.T) {
	header := typed("text/event-stream")
	header["Content-Encoding"] = []string{"gzip"}
	flushed, held, broken, cut, two := newZipper(), newZipper(), newZipper(), newZipper(), newZipper()
	second := newZipper()
	corrupt := func(s Send) Send {
		b := []byte(s)
		b[len(b)-6]++ // in the checksum
		return Send(b)
	}
	const minute = time.Minute
	for name, c := range map[string]struct {
		steps []Step
		want  []string // events, each with its minute
		kind  policy.Kind
	}{
		"flushed": {
			steps: []Step{
				flushed.flushed("id: 1\ndata: a\n\n"), Wait(minute), flushed.flushed("id: 2\ndata: b\n\n"),
				Wait(minute), flushed.flushed("id: 3\nda"), Wait(minute), flushed.flushed("ta: c\n\n"),
				Wait(minute), flushed.end(), End,
			},
			want: []string{"a 0", "b 1", "c 3"}, kind: policy.Ended,
		},
		"not flushed": {
			steps: []Step{
				held.held("id: 1\ndata: a\n\n"), Wait(minute), held.held("id: 2\ndata: b\n\n"),
				Wait(minute), held.held("id: 3\ndata: c\n\n"), Wait(minute), held.end(), End,
			},
			want: []string{"a 3", "b 3", "c 3"}, kind: policy.Ended,
		},
		"two members": {
			steps: []Step{
				two.flushed("id: 1\ndata: a\n\nid: 2\nda"), two.end(), Wait(minute),
				second.flushed("ta: b\n\n"), second.end(), End,
			},
			want: []string{"a 0", "b 1"}, kind: policy.Ended,
		},
		"a member for each event": {
			steps: []Step{
				member("id: 1\ndata: a\n\n"), Wait(minute), member("id: 2\ndata: b\n\n"), Wait(minute),
				Send(strings.Repeat(string(member("")), 200)), member("id: 3\ndata: c\n\n"), Wait(minute), End,
			},
			want: []string{"a 0", "b 1", "c 2"}, kind: policy.Ended,
		},
		"garbage behind a member": {
			steps: []Step{member("id: 1\ndata: a\n\n"), Send("data: b\n\n"), End},
			want:  []string{"a 0"}, kind: policy.Dropped,
		},
		"cut off in the second header": {
			steps: []Step{member("id: 1\ndata: a\n\n"), member("")[:5], End},
			want:  []string{"a 0"}, kind: policy.Dropped,
		},
		"cut off": {
			steps: []Step{cut.flushed("id: 1\ndata: a\n\nid: 2\ndata: b"), End},
			want:  []string{"a 0"}, kind: policy.Dropped,
		},
		"corrupt": {
			steps: []Step{broken.flushed("id: 1\ndata: a\n\n"), corrupt(broken.end()), End},
			want:  []string{"a 0"}, kind: policy.Dropped,
		},
		"not gzip": {
			steps: []Step{Send("data: a\n\n"), Send(strings.Repeat("data: b\n\n", 10)), End},
			kind:  policy.Dropped,
		},
		"empty": {steps: []Step{Open, End}, kind: policy.Ended},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(append([]Step{Status{Header: header}}, c.steps...))
				client := eventsource.Client{HTTPClient: srv.Client()}
				var w watcher
				client.Trace = w.trace()
				req := request(t.Context(), t, srv.URL)
				req.Header.Set("Accept-Encoding", "gzip")
				var got []string
				for ev, err := range client.Stream(req).Events() {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, fmt.Sprintf("%s %g", ev.Data, time.Since(bubbleStart).Minutes()))
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if w.ends[0].Kind != c.kind {
					t.Errorf("it ended %v with %v, want %v", w.ends[0].Kind, w.ends[0].Err, c.kind)
				}
				if got := srv.Requests()[0].Header.Get("Accept-Encoding"); got != "gzip" {
					t.Errorf("Accept-Encoding: %s", got)
				}
			})
		})
	}
}

// TestGzipSignOfLife: a byte that was flushed on the wire is a sign of life, though
// nothing can be decompressed from it yet.
func TestGzipSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		header := typed("text/event-stream")
		header["Content-Encoding"] = []string{"gzip"}
		z := newZipper()
		steps := []Step{Status{Header: header}, z.flushed("data: a\n\n")}
		for range 20 {
			steps = append(steps, Wait(20*time.Second), z.flushed(""))
		}
		srv := serve(t, append(steps, z.flushed("data: b\n\n"), z.end(), End))
		s := play(t, srv, eventsource.Client{IdleTimeout: 30 * time.Second}, func(req *http.Request) {
			req.Header.Set("Accept-Encoding", "gzip")
		})
		if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if s.ends[0].Kind != policy.Ended {
			t.Errorf("it ended %v", s.ends[0].Kind)
		}
	})
}

package eventsource_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
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

// A stream loses its connection many times, over each way to reach a server: every event arrives once, and in order.
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
			client := eventsource.Client{HTTPClient: httpClient, Policy: strict, Clock: fake, Trace: traceOf(w.advancing(fake))}
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

// A slow consumer slows the reader, and nothing is lost: the server cannot
// write further ahead than the network's buffers hold, and the client's heap stays
// small.
func TestSlowConsumer(t *testing.T) {
	const (
		burst = 10       // events in each write
		heap  = 16 << 20 // by which it may grow, the network's 4 MiB of HTTP/2 included
	)
	padding := strings.Repeat("x", 1<<10)
	for name, c := range map[string]struct {
		http2  bool
		events int
		ahead  int // events that fit into the network
	}{
		"HTTP1": {false, 20_000, 200},
		"HTTP2": {true, 20_000, 5_000}, // net/http lets a stream send 4 MiB
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := liveHeap()
				written := 0
				srv := start(t, &Server{HTTP2: c.http2, Script: [][]Step{{Do(func(conn *Conn) {
					for written < c.events {
						var text strings.Builder
						for n := range burst {
							text.WriteString("data: " + strconv.Itoa(written+n) + padding + "\n\n")
						}
						if !conn.Play(Send(text.String())) {
							return
						}
						written += burst
					}
				}), Stall}}})
				taken := 0
				for ev, err := range (&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(t.Context(), t, srv.URL)).Events() {
					if err != nil {
						t.Fatal(err)
					}
					if ev.Data != strconv.Itoa(taken)+padding {
						t.Fatalf("event %d is %.20q…", taken, ev.Data)
					}
					if taken++; taken%burst == 0 {
						time.Sleep(burst * time.Millisecond) // 1 ms for each
					}
					if taken%(c.events/4) == c.events/8 {
						synctest.Wait() // the server is blocked, or done
						if n := written - taken; n > c.ahead {
							t.Errorf("the server is %d events ahead", n)
						}
						if now := liveHeap(); now > before+heap {
							t.Errorf("the heap has grown by %d KiB", (now-before)>>10)
						}
					}
					if taken == c.events {
						break
					}
				}
				if taken != c.events {
					t.Errorf("%d of %d events", taken, c.events)
				}
			})
		})
	}
}

// A stream that is not read does not stall another on the same transport,
// even on the same connection, as HTTP/2 has it.
func TestSlowStreamDoesNotStallAnother(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		megabyte := Send("data: " + strings.Repeat("x", 1<<20) + "\n\n")
		var tenMegabytes, each []Step
		for range 10 {
			tenMegabytes = append(tenMegabytes, megabyte)
		}
		const ticks = 60
		for n := range ticks {
			each = append(each, numbered(n+1), Wait(time.Second))
		}
		srv := serve(append(tenMegabytes, Stall), append(each, Stall))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var slow sync.WaitGroup
		slow.Go(func() {
			for _, err := range (&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(ctx, t, srv.URL)).Events() {
				if err != nil {
					t.Error(err)
				}
				<-ctx.Done() // takes one, and reads no further
				break
			}
		})
		synctest.Wait()
		n := 0
		for ev, err := range (&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(ctx, t, srv.URL)).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if at := time.Since(bubbleStart); at != time.Duration(n)*time.Second || ev.Data != strconv.Itoa(n+1) {
				t.Fatalf("event %q at %v, want number %d", ev.Data, at, n+1)
			}
			if n++; n == ticks {
				break
			}
		}
		if n != ticks {
			t.Errorf("%d events", n)
		}
		cancel()
		slow.Wait()
		if rs := srv.Requests(); rs[0].Proto == "HTTP/2.0" && rs[0].Connection != rs[1].Connection {
			t.Error("the streams had a connection each: nothing was tested")
		}
	})
}

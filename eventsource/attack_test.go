package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// This file has servers that attack the memory of their clients, on sockets, and
// measures the live heap while they do. The limit on an event bounds it all.

const (
	attackLimit = 1 << 20               // on an event
	attackHeap  = attackLimit + 512<<10 // on what may be live; 1,070 KiB were measured
)

// An attacker is a server of raw bytes. It answers each request with head and then
// one piece after the other, for ever if they are endless.
type attacker struct {
	head   string
	pieces iter.Seq[[]byte]

	listener net.Listener
	serving  sync.WaitGroup
	left     chan error // for each response, how it was left
}

// endless repeats a piece of about 16 KiB of text for ever.
func endless(text string) iter.Seq[[]byte] {
	piece := bytes.Repeat([]byte(text), 1+16<<10/len(text))
	return func(yield func([]byte) bool) {
		for yield(piece) {
		}
	}
}

// once is text, which ends the response.
func once(text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { yield(text) }
}

func (a *attacker) start(t *testing.T) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.listener, a.left = listener, make(chan error, 100)
	t.Cleanup(func() {
		listener.Close()
		a.serving.Wait()
	})
	a.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			a.serving.Go(func() { a.answer(conn) })
		}
	})
	return "http://" + listener.Addr().String()
}

func (a *attacker) answer(conn net.Conn) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 64<<10)); err != nil {
		return
	}
	_, err := io.WriteString(conn, a.head)
	for piece := range a.pieces {
		if err != nil {
			break
		}
		_, err = conn.Write(piece)
	}
	if err == nil {
		conn.(*net.TCPConn).CloseWrite()
		_, err = conn.Read(make([]byte, 1)) // until the client leaves
	}
	a.left <- err
}

// A heapWatch is a RoundTripper that measures the live heap while the response is
// read.
type heapWatch struct {
	transport http.Transport
	every     int // bytes between two measurements

	before, peak uint64
	read         int // bytes of bodies
}

func newHeapWatch(t *testing.T) *heapWatch {
	w := &heapWatch{every: 128 << 10, before: liveHeap()}
	t.Cleanup(w.transport.CloseIdleConnections)
	return w
}

// grown returns how much more was live at the peak than before.
func (w *heapWatch) grown() int { return max(0, int(w.peak)-int(w.before)) }

func (w *heapWatch) measure() { w.peak = max(w.peak, liveHeap()) }

func (w *heapWatch) RoundTrip(req *http.Request) (*http.Response, error) {
	return wrapBodies(&w.transport, func(body io.ReadCloser) io.ReadCloser {
		return &spiedBody{ReadCloser: body, read: func(p []byte) (int, error) {
			n, err := body.Read(p)
			if before := w.read / w.every; (w.read+n)/w.every > before {
				w.measure()
			}
			w.read += n
			return n, err
		}}
	}).RoundTrip(req)
}

const attackHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

// TestAttackEndlessEvent has servers that never let an event end. The stream ends
// with the typed error at the limit, is not tried again, and holds little more than
// the limit until then.
//
// Requirements: R004, R002, R003
func TestAttackEndlessEvent(t *testing.T) {
	for name, pieces := range map[string]iter.Seq[[]byte]{
		"data line":          prefixed("data: ", endless("x")),
		"data lines":         endless("data: x\n"),
		"data lines, CR":     endless("data: x\r"),
		"empty data lines":   endless("data\n"),
		"large data lines":   endless("data: " + strings.Repeat("x", 10_000) + "\n"),
		"comment line":       prefixed(": ", endless("x")),
		"unknown field":      prefixed("x: ", endless("x")),
		"no field":           endless("x"),
		"id line":            prefixed("data: x\nid: ", endless("x")),
		"event line":         prefixed("data: x\nevent: ", endless("x")),
		"retry line":         prefixed("retry: ", endless("1")),
		"not UTF-8":          prefixed("data: ", endless("\xff")),
		"not UTF-8, lines":   endless("data: \xf0\x90\n"),
		"NULs":               prefixed("data: ", endless("\x00")),
		"byte order marks":   endless("\uFEFF"),
		"after small events": prefixed(strings.Repeat("data: x\n\n", 1000), prefixed("data: ", endless("x"))),
	} {
		t.Run(name, func(t *testing.T) {
			server := &attacker{head: attackHead, pieces: pieces}
			url := server.start(t)
			watch := newHeapWatch(t)
			client := eventsource.Client{
				HTTPClient: &http.Client{Transport: watch}, Policy: policy.Resilient, MaxEventSize: attackLimit,
			}
			_, err := collect(client.Stream(request(t.Context(), t, url)))
			if !errors.Is(err, eventsource.ErrEventTooLarge) || !strings.Contains(err.Error(), "1048576") {
				t.Errorf("the error is %v", err)
			}
			if left := <-server.left; left == nil {
				t.Error("the server did not see the client leave")
			}
			// The limit is on data, of which an empty data line has one byte of its five.
			if watch.read > 5*attackLimit+64<<10 || watch.read < attackLimit/3 {
				t.Errorf("%d bytes were read", watch.read)
			}
			if watch.grown() > attackHeap {
				t.Errorf("the live heap grew by %d KiB", watch.grown()>>10)
			}
			t.Logf("the live heap grew by %d KiB", watch.grown()>>10)
		})
	}
}

// prefixed is first, then rest.
func prefixed(first string, rest iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if yield([]byte(first)) {
			rest(yield)
		}
	}
}

// TestAttackEndlessNothing has servers that send for ever what never becomes an
// event, each line small: nothing is too large, and nothing of it is kept. A budget
// ends it once there is one, and the caller can at any time.
func TestAttackEndlessNothing(t *testing.T) {
	const enough = 2 << 20
	for name, text := range map[string]string{
		"comments":       ": ping\n\n",
		"blank lines":    "\n",
		"CRs":            "\r",
		"CRLFs":          "\r\n",
		"unknown fields": "x: y\n",
		"types":          "event: x\n\n",
		"IDs":            "id: x\n\n",
		"retries":        "retry: 1000\n",
		"large comments": ": " + strings.Repeat("x", attackLimit/2) + "\n",
		"large IDs":      "id: " + strings.Repeat("x", attackLimit/4) + "\n\n",
		"large types":    "event: " + strings.Repeat("x", attackLimit/4) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			server := &attacker{head: attackHead, pieces: endless(text)}
			url := server.start(t)
			watch := newHeapWatch(t)
			watch.every = 128 << 10
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			left := enough
			transport := wrapBodies(watch, func(body io.ReadCloser) io.ReadCloser {
				return &spiedBody{ReadCloser: body, read: func(p []byte) (int, error) {
					n, err := body.Read(p)
					if left -= n; left <= 0 {
						cancel(errEnough)
					}
					return n, err
				}}
			})
			client := eventsource.Client{HTTPClient: &http.Client{Transport: transport}, MaxEventSize: attackLimit}
			data, err := collect(client.Stream(request(ctx, t, url)))
			if err != errEnough || len(data) != 0 {
				t.Errorf("%d events and %v", len(data), err)
			}
			if left := <-server.left; left == nil {
				t.Error("the server did not see the client leave")
			}
			if watch.grown() > attackHeap {
				t.Errorf("the live heap grew by %d KiB", watch.grown()>>10)
			}
			t.Logf("the live heap grew by %d KiB", watch.grown()>>10)
		})
	}
}

// TestAttackHeader has servers that attack before the body. net/http has limits of
// its own; the attempt fails like any other.
func TestAttackHeader(t *testing.T) {
	const limit = 1 << 20 // MaxResponseHeaderBytes of the transport
	for name, c := range map[string]struct {
		head   string
		pieces iter.Seq[[]byte]
		opened bool
	}{
		"header lines":     {"HTTP/1.1 200 OK\r\n", endless("X-A: b\r\n"), false},
		"header line":      {"HTTP/1.1 200 OK\r\nX-A: ", endless("b"), false},
		"status line":      {"HTTP/1.1 200 ", endless("O"), false},
		"informational":    {"", endless("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"), false},
		"continuation":     {"HTTP/1.1 200 OK\r\nX-A: b\r\n", endless(" c\r\n"), false},
		"chunk's size":     {strings.TrimSuffix(attackHead, "\r\n") + "Transfer-Encoding: chunked\r\n\r\n", endless("0"), true},
		"chunk extension":  {strings.TrimSuffix(attackHead, "\r\n") + "Transfer-Encoding: chunked\r\n\r\n1;", endless("x"), true},
		"chunk extensions": {strings.TrimSuffix(attackHead, "\r\n") + "Transfer-Encoding: chunked\r\n\r\n", endless("1;" + strings.Repeat("x", 1000) + "\r\n:\r\n"), true},
		"trailer":          {strings.TrimSuffix(attackHead, "\r\n") + "Transfer-Encoding: chunked\r\n\r\n0\r\n", endless("X-A: b\r\n"), true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &attacker{head: c.head, pieces: c.pieces}
			url := server.start(t)
			watch := newHeapWatch(t)
			watch.transport.MaxResponseHeaderBytes = limit
			var w watcher
			client := eventsource.Client{
				HTTPClient: &http.Client{Transport: watch}, Policy: policy.Never, MaxEventSize: attackLimit, Trace: w.trace(),
			}
			end := client.Trace.End
			client.Trace.End = func(a policy.Attempt) {
				watch.measure()
				end(a)
			}
			_, err := collect(client.Stream(request(t.Context(), t, url)))
			if left := <-server.left; left == nil {
				t.Error("the server did not see the client leave")
			}
			kind := policy.Failed
			if c.opened {
				kind = policy.Dropped
			}
			if a := w.ends[0]; a.Kind != kind || err == nil {
				t.Errorf("it ended %v with %v, want %v", a.Kind, err, kind)
			}
			if watch.grown() > 4*limit {
				t.Errorf("the live heap grew by %d KiB", watch.grown()>>10)
			}
		})
	}
}

// TestAttackGzipBomb sends 256 MiB in a few hundred KiB, to a caller who has asked
// for compression.
func TestAttackGzipBomb(t *testing.T) {
	for name, c := range map[string]struct {
		first, text string
		tooLarge    bool
	}{
		"one event":      {"data: ", "x", true},
		"one comment":    {":", "x", true},
		"events":         {"", "data: x\n\n", false},
		"keep-alives":    {"", ":\n\n", false},
		"large comments": {"", ":" + strings.Repeat("x", attackLimit/2) + "\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			// Members of a gzip file follow each other, and so do their contents.
			member := gzipped(strings.Repeat(c.text, 1<<20/len(c.text)))
			members := 256
			if !c.tooLarge {
				members = 2 // all of it is read
			}
			bomb := gzipped(c.first) + strings.Repeat(member, members)
			server := &attacker{
				head:   strings.TrimSuffix(attackHead, "\r\n") + "Content-Encoding: gzip\r\nConnection: close\r\n\r\n",
				pieces: once([]byte(bomb)),
			}
			url := server.start(t)
			watch := newHeapWatch(t)
			n := 0
			measure := func() {
				if n++; n%10_000 == 0 {
					watch.measure()
				}
			}
			client := eventsource.Client{
				HTTPClient: &http.Client{Transport: watch}, Policy: policy.Never, MaxEventSize: attackLimit,
				Trace: &eventsource.Trace{Comment: func(string) { measure() }, End: func(policy.Attempt) { watch.measure() }},
			}
			req := request(t.Context(), t, url)
			req.Header.Set("Accept-Encoding", "gzip")
			var err error
			for _, e := range client.Stream(req).Events() {
				err = e
				measure()
			}
			if c.tooLarge != errors.Is(err, eventsource.ErrEventTooLarge) || !c.tooLarge && err != nil {
				t.Errorf("the error is %v", err)
			}
			if watch.grown() > attackHeap {
				t.Errorf("the live heap grew by %d KiB", watch.grown()>>10)
			}
		})
	}
}

// TestAttackMillionTinyEvents sends a million events in one write. Each arrives,
// and none is held back for those after it.
//
// Requirements: R005
func TestAttackMillionTinyEvents(t *testing.T) {
	const events = 1_000_000
	server := &attacker{
		head:   strings.TrimSuffix(attackHead, "\r\n") + "Connection: close\r\n\r\n",
		pieces: once(bytes.Repeat([]byte("data:x\n\n"), events)),
	}
	url := server.start(t)
	watch := newHeapWatch(t)
	watch.every = 1 << 20
	client := eventsource.Client{HTTPClient: &http.Client{Transport: watch}, Policy: policy.Never, MaxEventSize: 8 << 10}
	n := 0
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ev, err := range client.Stream(request(ctx, t, url)).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Data != "x" {
			t.Fatalf("event %d is %q", n, ev.Data)
		}
		if n++; n == events {
			break
		}
	}
	if n != events {
		t.Errorf("%d events", n)
	}
	if watch.grown() > 256<<10 {
		t.Errorf("the live heap grew by %d KiB", watch.grown()>>10)
	}
}

// TestAttackRedirects has a server that redirects for ever, each time to another
// URL.
func TestAttackRedirects(t *testing.T) {
	n := 0
	client := eventsource.Client{Policy: policy.Never, HTTPClient: &http.Client{
		Transport: roundTripperFunc(func(*http.Request) (*http.Response, error) {
			n++
			resp := response(307, "", http.NoBody)
			resp.Header.Set("Location", "/"+strings.Repeat("x", n))
			return resp, nil
		}),
	}}
	_, err := collect(client.Stream(request(t.Context(), t, "http://server.test/")))
	if diff := cmp.Diff("eventsource: GET http://server.test/: stopped after 20 redirects", errorText(err)); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if n != 21 {
		t.Errorf("%d requests, want the first and 20 redirects", n)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

package h2test_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/h2test"
	"github.com/reprise-sse/reprise/internal/selfsigned"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request(ctx context.Context, t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// answer tells what a client got for a request.
func answer(client *http.Client, req *http.Request) string {
	resp, err := client.Do(req)
	if err != nil {
		return "error: " + describe(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	s := fmt.Sprintf("%d %q", resp.StatusCode, body)
	if err != nil {
		s += ", then " + describe(err)
	}
	return s
}

// describe shortens net/http's errors, whose types it does not export.
func describe(err error) string {
	for _, text := range []string{"INTERNAL_ERROR", "REFUSED_STREAM", "ENHANCE_YOUR_CALM", "GOAWAY"} {
		if strings.Contains(err.Error(), text) {
			return text
		}
	}
	if strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "reset by peer") {
		return "connection lost"
	}
	return err.Error()
}

// TestResponse: what the server sends arrives as it was sent: names and values at
// every length around the limits of the integer encoding, and a body in frames.
func TestResponse(t *testing.T) {
	header := http.Header{"X-Two": {"1", "2"}}
	for _, n := range []int{0, 1, 126, 127, 128, 254, 255, 256, 5000} {
		header.Set(fmt.Sprint("X-Value-", n), strings.Repeat("v", n))
		header.Set("X-"+strings.Repeat("n", n), "name")
	}
	srv := h2test.Start(func(c *h2test.Conn) {
		for {
			s, err := c.Accept()
			if err != nil {
				return
			}
			s.Respond(200, header, false)
			s.Data(strings.Repeat("x", 40_000), false)
			s.Data("", true)
		}
	})
	defer srv.Close()
	resp, err := srv.Client().Do(request(t.Context(), t, http.MethodPost, srv.URL, strings.NewReader("a body")))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || len(body) != 40_000 || err != nil {
		t.Errorf("answer: %d, %d bytes, %v", resp.StatusCode, len(body), err)
	}
	if diff := cmp.Diff(header, resp.Header, cmp.FilterPath(isDate, cmp.Ignore())); diff != "" {
		t.Errorf("header of the answer (-want +got):\n%s", diff)
	}
}

func isDate(p cmp.Path) bool { return strings.Contains(p.GoString(), `["Date"]`) }

// TestFaults does something to the first request and shows what a plain client
// gets, and how often the request arrived: net/http sends it again on its own
// after all that tells it that it was not processed. It is this that an
// eventsource client must prevent, because no wait comes between.
func TestFaults(t *testing.T) {
	ok := func(s *h2test.Stream) {
		s.Respond(200, nil, false)
		s.Data("ok", true)
	}
	for _, test := range []struct {
		name  string
		first func(*h2test.Conn, *h2test.Stream)
		want  string
		sent  []int // the connections that the request arrived on
	}{
		{
			name:  "answered",
			first: func(_ *h2test.Conn, s *h2test.Stream) { ok(s) },
			want:  `200 "ok"`, sent: []int{1},
		},
		{
			name:  "REFUSED_STREAM before the header",
			first: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.RefusedStream) },
			want:  `200 "ok"`, sent: []int{1, 1},
		},
		{
			name:  "PROTOCOL_ERROR before the header",
			first: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.ProtocolError) },
			want:  `200 "ok"`, sent: []int{1, 2},
		},
		{
			name:  "INTERNAL_ERROR before the header",
			first: func(_ *h2test.Conn, s *h2test.Stream) { s.Reset(h2test.InternalError) },
			want:  "error: INTERNAL_ERROR", sent: []int{1},
		},
		{
			name: "INTERNAL_ERROR in the body",
			first: func(_ *h2test.Conn, s *h2test.Stream) {
				s.Respond(200, nil, false)
				s.Data("da", false)
				s.Reset(h2test.InternalError)
			},
			want: `200 "da", then INTERNAL_ERROR`, sent: []int{1},
		},
		{
			name: "REFUSED_STREAM in the body",
			first: func(_ *h2test.Conn, s *h2test.Stream) {
				s.Respond(200, nil, false)
				s.Data("da", false)
				s.Reset(h2test.RefusedStream)
			},
			want: `200 "da", then REFUSED_STREAM`, sent: []int{1},
		},
		{
			name:  "GOAWAY that leaves the request out",
			first: func(c *h2test.Conn, s *h2test.Stream) { c.GoAway(0, h2test.NoError) },
			want:  `200 "ok"`, sent: []int{1, 2},
		},
		{
			name:  "GOAWAY with an error that leaves the connection's first request out",
			first: func(c *h2test.Conn, s *h2test.Stream) { c.GoAway(0, h2test.EnhanceYourCalm) },
			want:  "error: ENHANCE_YOUR_CALM", sent: []int{1},
		},
		{
			name: "GOAWAY that includes the request, then its answer",
			first: func(c *h2test.Conn, s *h2test.Stream) {
				c.GoAway(s.ID, h2test.NoError)
				ok(s)
			},
			want: `200 "ok"`, sent: []int{1},
		},
		{
			name: "GOAWAY in the body, which goes on",
			first: func(c *h2test.Conn, s *h2test.Stream) {
				s.Respond(200, nil, false)
				s.Data("o", false)
				c.GoAway(s.ID, h2test.NoError)
				s.Data("k", true)
			},
			want: `200 "ok"`, sent: []int{1},
		},
		{
			name: "GOAWAY in the body that leaves the request out",
			first: func(c *h2test.Conn, s *h2test.Stream) {
				s.Respond(200, nil, false)
				s.Data("da", false)
				c.GoAway(0, h2test.NoError)
			},
			want: `200 "da", then GOAWAY`, sent: []int{1},
		},
		{
			name: "connection dropped before the header",
			first: func(c *h2test.Conn, s *h2test.Stream) {
				c.Close()
			},
			want: "error: connection lost", sent: []int{1},
		},
		{
			name: "connection reset in the body",
			first: func(c *h2test.Conn, s *h2test.Stream) {
				s.Respond(200, nil, false)
				s.Data("da", false)
				c.Reset()
			},
			want: `200 "da", then connection lost`, sent: []int{1},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			sent := make(chan int, 10)
			srv := h2test.Start(func(c *h2test.Conn) {
				for {
					s, err := c.Accept()
					if err != nil {
						return
					}
					sent <- c.Number
					if len(sent) == 1 {
						test.first(c, s)
					} else {
						ok(s)
					}
				}
			})
			defer srv.Close()
			if got := answer(srv.Client(), request(t.Context(), t, http.MethodGet, srv.URL, nil)); got != test.want {
				t.Errorf("answer = %s, want %s", got, test.want)
			}
			srv.Close()
			close(sent)
			var got []int
			for n := range sent {
				got = append(got, n)
			}
			if diff := cmp.Diff(test.sent, got); diff != "" {
				t.Errorf("connections that the request arrived on (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStalledStream: one stream is stalled while another on the same connection is
// busy; the server sees the stalled one's client leave.
func TestStalledStream(t *testing.T) {
	stalled := make(chan *h2test.Stream, 1)
	srv := h2test.Start(func(c *h2test.Conn) {
		first, err := c.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		first.Respond(200, nil, false)
		stalled <- first
		busy, err := c.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		busy.Respond(200, nil, false)
		for range 100 {
			busy.Data("busy ", false)
		}
		busy.Data("", true)
		<-c.Done()
	})
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := srv.Client().Do(request(ctx, t, http.MethodGet, srv.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	want := fmt.Sprintf("200 %q", strings.Repeat("busy ", 100))
	if got := answer(srv.Client(), request(t.Context(), t, http.MethodGet, srv.URL, nil)); got != want {
		t.Errorf("the busy stream's answer = %s", got)
	}
	cancel()
	if code, err := (<-stalled).Left(); code != h2test.Cancel || err != nil {
		t.Errorf("the client left with code %d, %v; want CANCEL", code, err)
	}
}

// TestDropped: everything that waits returns when the connection drops.
func TestDropped(t *testing.T) {
	errs := make(chan error, 3)
	srv := h2test.Start(func(c *h2test.Conn) {
		s, err := c.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			_, err := s.Left()
			errs <- err
		}()
		go func() {
			_, err := c.Accept()
			errs <- err
		}()
		c.Close()
		<-c.Done()
		errs <- s.Data("x", false)
	})
	defer srv.Close()
	body, w := io.Pipe() // a request that does not end
	defer w.Close()
	if got := answer(srv.Client(), request(t.Context(), t, http.MethodPost, srv.URL, body)); got != "error: connection lost" {
		t.Errorf("the client got %s", got)
	}
	dropped := 0
	for range 3 {
		err := <-errs
		if err == nil {
			t.Error("no error after the connection dropped")
		}
		if errors.Is(err, h2test.ErrDropped) {
			dropped++
		}
	}
	if dropped != 2 {
		t.Errorf("%d of 2 waits ended with ErrDropped", dropped)
	}
}

// TestGoAway: streams up to the last one go on, and the next request takes a new
// connection.
func TestGoAway(t *testing.T) {
	said, finish := make(chan struct{}), make(chan struct{})
	srv := h2test.Start(func(c *h2test.Conn) {
		s, err := c.Accept()
		if err != nil {
			return // a connection that the client dialled in vain
		}
		s.Respond(200, nil, false)
		if c.Number == 1 {
			c.GoAway(s.ID, h2test.EnhanceYourCalm)
			close(said)
			<-finish
		}
		s.Data(fmt.Sprint(c.Number), true)
		<-c.Done()
	})
	defer srv.Close()
	long, err := srv.Client().Do(request(t.Context(), t, http.MethodGet, srv.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer long.Body.Close()
	<-said
	next := answer(srv.Client(), request(t.Context(), t, http.MethodGet, srv.URL, nil))
	close(finish)
	if next != `200 "2"` {
		t.Errorf("the next answer = %s, want it from connection 2", next)
	}
	if got, err := io.ReadAll(long.Body); string(got) != "1" || err != nil {
		t.Errorf("the answer that was under way = %q, %v; want it from connection 1", got, err)
	}
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// dial makes a connection to a server without net/http, and sends something.
func dial(t *testing.T, srv *h2test.Server, text string) *tls.Conn {
	t.Helper()
	config := selfsigned.Client()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(srv.URL, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// reply returns what a server answers to something until it drops the connection.
func reply(t *testing.T, srv *h2test.Server, text string) string {
	t.Helper()
	conn := dial(t, srv, text)
	defer conn.Close()
	conn.CloseWrite()          // the server may have dropped it already
	got, _ := io.ReadAll(conn) // without TLS's farewell, which is an error
	return string(got)
}

// TestAcknowledgements: settings and pings are answered, answers to them are not.
func TestAcknowledgements(t *testing.T) {
	srv := h2test.Start(func(c *h2test.Conn) { <-c.Done() })
	defer srv.Close()
	got := reply(t, srv, preface+
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x01"+ // SETTINGS
		"\x00\x00\x00\x04\x01\x00\x00\x00\x00"+ // SETTINGS, ack
		"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"+ // PING
		"\x00\x00\x08\x06\x01\x00\x00\x00\x0087654321") // PING, ack
	want := "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS
		"\x00\x00\x00\x04\x01\x00\x00\x00\x00" + // SETTINGS, ack
		"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678" // PING, ack
	if got != want {
		t.Errorf("the server sent\n%q, want\n%q", got, want)
	}
}

// TestAcceptTwice: two requests that arrive together wake two callers of Accept,
// and a trailer is not another request.
func TestAcceptTwice(t *testing.T) {
	accepted := make(chan uint32, 3)
	srv := h2test.Start(func(c *h2test.Conn) {
		var callers sync.WaitGroup
		for range cap(accepted) {
			callers.Go(func() {
				if s, err := c.Accept(); err == nil {
					accepted <- s.ID
				}
			})
		}
		callers.Wait()
		close(accepted)
	})
	defer srv.Close()
	conn := dial(t, srv, preface+
		"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x82"+
		"\x00\x00\x01\x01\x05\x00\x00\x00\x03\x82"+
		"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82"+ // a trailer
		"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678") // PING
	if a, b := <-accepted, <-accepted; a+b != 4 {
		t.Errorf("accepted streams %d and %d, want 1 and 3", a, b)
	}
	// Its settings and the answer to the ping: all has been read.
	if _, err := io.ReadFull(conn, make([]byte, 9+17)); err != nil {
		t.Error(err)
	}
	conn.Close()
	if id, more := <-accepted; more {
		t.Errorf("accepted stream %d, want 1 and 3 only", id)
	}
}

// TestMalformedClient: a client that does not speak HTTP/2 is dropped.
func TestMalformedClient(t *testing.T) {
	for name, sent := range map[string]string{
		"preface":               "GET / HTTP/1.1\r\nHost: server.test\r\n\r\n",
		"frame too long":        preface + "\xff\xff\xff\x00\x00\x00\x00\x00\x01",
		"reset before a header": preface + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08",
	} {
		t.Run(name, func(t *testing.T) {
			srv := h2test.Start(func(c *h2test.Conn) {
				if s, err := c.Accept(); err == nil {
					t.Errorf("accepted stream %d", s.ID)
				}
			})
			defer srv.Close()
			ping := "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
			if got := reply(t, srv, sent+ping); strings.Contains(got, "12345678") {
				t.Errorf("the server goes on: %q", got)
			}
		})
	}
}

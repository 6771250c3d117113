package h2test_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/h2test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onBoth runs a test over a socket, and in memory inside a bubble.
func onBoth(t *testing.T, f func(*testing.T, func(func(*h2test.Conn)) *h2test.Server)) {
	t.Helper()
	t.Run("loopback", func(t *testing.T) { f(t, h2test.Start) })
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, h2test.StartInMemory) })
	})
}

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

// TestRequest: what a client sends arrives as it was sent: a header that needs
// CONTINUATION frames, every byte that a value can hold, a repeated one that the
// client's table makes short, a body larger than the flow-control window.
func TestRequest(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(func(*h2test.Conn)) *h2test.Server) {
		var bytesOfAValue []byte
		for b := 1; b < 256; b++ {
			if b >= 0x20 && b != 0x7f {
				bytesOfAValue = append(bytesOfAValue, byte(b))
			}
		}
		header := http.Header{
			"Last-Event-Id": {"ä – 7"},
			"X-Bytes":       {"!" + string(bytesOfAValue) + "!"},
			"X-Long":        {strings.Repeat("long ", 20_000)},
			"X-Two":         {"1", "2"},
			"User-Agent":    {"test"},
		}
		body := strings.Repeat("0123456789", 30_000)

		type got struct {
			Method, Path string
			Header       http.Header
			Body         string
		}
		seen := make(chan got, 2)
		srv := start(func(c *h2test.Conn) {
			for {
				s, err := c.Accept()
				if err != nil {
					return
				}
				body, err := s.Body()
				if err != nil {
					t.Error(err)
				}
				seen <- got{s.Method, s.Path, s.Header, string(body)}
				s.Respond(200, http.Header{"X-Answer": {"a", "b"}}, false)
				s.Data(strings.Repeat("x", 40_000), false)
				s.Data("", true)
			}
		})
		defer srv.Close()
		for range 2 {
			req := request(t.Context(), t, http.MethodPost, srv.URL+"/path?query", strings.NewReader(body))
			req.Header = header.Clone()
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || len(answer) != 40_000 || err != nil {
				t.Errorf("answer: %d, %d bytes, %v", resp.StatusCode, len(answer), err)
			}
			if diff := cmp.Diff(http.Header{"X-Answer": {"a", "b"}}, resp.Header, cmp.FilterPath(isDate, cmp.Ignore())); diff != "" {
				t.Errorf("header of the answer (-want +got):\n%s", diff)
			}
			want := got{"POST", "/path?query", header.Clone(), body}
			want.Header.Set("Content-Length", fmt.Sprint(len(body)))
			want.Header.Set("Accept-Encoding", "gzip")
			if diff := cmp.Diff(want, <-seen); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		}
	})
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
			onBoth(t, func(t *testing.T, start func(func(*h2test.Conn)) *h2test.Server) {
				sent := make(chan int, 10)
				srv := start(func(c *h2test.Conn) {
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
		})
	}
}

// TestStalledStream: one stream is stalled while another on the same connection is
// busy; the server sees the stalled one's client leave.
func TestStalledStream(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(func(*h2test.Conn)) *h2test.Server) {
		stalled := make(chan *h2test.Stream, 1)
		srv := start(func(c *h2test.Conn) {
			for {
				s, err := c.Accept()
				if err != nil {
					return
				}
				s.Respond(200, nil, false)
				if s.Path == "/stalled" {
					stalled <- s
					continue
				}
				for range 100 {
					s.Data("busy ", false)
				}
				s.Data("", true)
			}
		})
		defer srv.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := srv.Client().Do(request(ctx, t, http.MethodGet, srv.URL+"/stalled", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		want := fmt.Sprintf("200 %q", strings.Repeat("busy ", 100))
		if got := answer(srv.Client(), request(t.Context(), t, http.MethodGet, srv.URL+"/busy", nil)); got != want {
			t.Errorf("the busy stream's answer = %s", got)
		}
		cancel()
		s := <-stalled
		if code, err := s.Left(); code != h2test.Cancel || err != nil {
			t.Errorf("the client left with code %d, %v; want CANCEL", code, err)
		}
	})
}

// TestBodyCutShort: a client that leaves in the middle of its body.
func TestBodyCutShort(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(func(*h2test.Conn)) *h2test.Server) {
		errs := make(chan error, 1)
		srv := start(func(c *h2test.Conn) {
			s, err := c.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, err = s.Body()
			errs <- err
		})
		defer srv.Close()
		body, w := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		req := request(ctx, t, http.MethodPost, srv.URL, body)
		done := make(chan string)
		go func() { done <- answer(srv.Client(), req) }()
		w.Write([]byte("some"))
		cancel()
		if got := <-done; !strings.Contains(got, "context canceled") {
			t.Errorf("the client got %s", got)
		}
		if err := <-errs; err == nil {
			t.Error("Body returned no error for a body that was cut short")
		}
	})
}

// TestDropped: everything that waits returns when the connection drops.
func TestDropped(t *testing.T) {
	onBoth(t, func(t *testing.T, start func(func(*h2test.Conn)) *h2test.Server) {
		errs := make(chan error, 4)
		srv := start(func(c *h2test.Conn) {
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
				_, err := s.Body()
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
		for range 4 {
			err := <-errs
			if err == nil {
				t.Error("no error after the connection dropped")
			}
			if errors.Is(err, h2test.ErrDropped) {
				dropped++
			}
		}
		if dropped != 3 {
			t.Errorf("%d of 3 waits ended with ErrDropped", dropped)
		}
	})
}

// TestSilence: in a bubble, a stalled stream lasts for as long as the test likes.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := h2test.StartInMemory(func(c *h2test.Conn) {
			s, err := c.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			s.Respond(200, nil, false)
			time.Sleep(24 * time.Hour)
			s.Data("awake", true)
			<-c.Done()
		})
		defer srv.Close()
		start := time.Now()
		if got := answer(srv.Client(), request(t.Context(), t, http.MethodGet, srv.URL, nil)); got != `200 "awake"` {
			t.Errorf("answer = %s", got)
		}
		if d := time.Since(start); d != 24*time.Hour {
			t.Errorf("after %v, want a day", d)
		}
	})
}

// TestGoAway: streams up to the last one go on, and the next request takes a new
// connection.
func TestGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := h2test.StartInMemory(func(c *h2test.Conn) {
			for {
				s, err := c.Accept()
				if err != nil {
					return
				}
				s.Respond(200, nil, false)
				if s.Path == "/long" {
					c.GoAway(s.ID, h2test.EnhanceYourCalm)
					time.Sleep(time.Hour)
				}
				s.Data(fmt.Sprint(c.Number), true)
			}
		})
		defer srv.Close()
		long := make(chan string)
		req := request(t.Context(), t, http.MethodGet, srv.URL+"/long", nil)
		go func() { long <- answer(srv.Client(), req) }()
		synctest.Wait()
		if got := answer(srv.Client(), request(t.Context(), t, http.MethodGet, srv.URL, nil)); got != `200 "2"` {
			t.Errorf("the next answer = %s, want it from connection 2", got)
		}
		if got := <-long; got != `200 "1"` {
			t.Errorf("the answer that was under way = %s, want it from connection 1", got)
		}
	})
}

// TestAcknowledgements: settings and pings are answered, answers to them are not,
// and what has been read of a body may be sent again.
func TestAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := h2test.StartInMemory(func(c *h2test.Conn) { <-c.Done() })
		defer srv.Close()
		conn, err := dialTLS(t, srv)
		if err != nil {
			t.Fatal(err)
		}
		sent := preface +
			"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x01" + // SETTINGS
			"\x00\x00\x00\x04\x01\x00\x00\x00\x00" + // SETTINGS, ack
			"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678" + // PING
			"\x00\x00\x08\x06\x01\x00\x00\x00\x0087654321" + // PING, ack
			"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x83" + // HEADERS, :method POST
			"\x00\x00\x03\x00\x00\x00\x00\x00\x01abc" + // DATA
			"\x00\x00\x00\x00\x01\x00\x00\x00\x01" // DATA, empty, END_STREAM
		want := "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS
			"\x00\x00\x00\x04\x01\x00\x00\x00\x00" + // SETTINGS, ack
			"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678" + // PING, ack
			"\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x03" + // WINDOW_UPDATE of the stream
			"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x03" // and of the connection
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { conn.NetConn().Close() })
		got, _ := io.ReadAll(conn) // ends with the error of the Close
		if string(got) != want {
			t.Errorf("the server sent\n%q, want\n%q", got, want)
		}
	})
}

// TestAcceptTwice: two requests that arrive together wake two callers of Accept.
func TestAcceptTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := make(chan uint32, 2)
		srv := h2test.StartInMemory(func(c *h2test.Conn) {
			for range 2 {
				go func() {
					if s, err := c.Accept(); err == nil {
						accepted <- s.ID
					}
				}()
			}
			<-c.Done()
		})
		defer srv.Close()
		conn, err := dialTLS(t, srv)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sent := preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
			"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82" + "\x00\x00\x01\x01\x05\x00\x00\x00\x03\x82"
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		if a, b := <-accepted, <-accepted; a+b != 4 {
			t.Errorf("accepted streams %d and %d, want 1 and 3", a, b)
		}
	})
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// TestMalformedClient: a client that does not speak HTTP/2 is dropped.
func TestMalformedClient(t *testing.T) {
	for name, sent := range map[string]string{
		"preface":                               "GET / HTTP/1.1\r\nHost: server.test\r\n\r\n",
		"frame too long":                        preface + "\xff\xff\xff\x00\x00\x00\x00\x00\x01",
		"data before a header":                  preface + "\x00\x00\x01\x00\x00\x00\x00\x00\x01a",
		"reset before a header":                 preface + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08",
		"malformed header":                      preface + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x80",
		"header that goes on on another stream": preface + "\x00\x00\x01\x01\x01\x00\x00\x00\x01\x82\x00\x00\x01\x09\x04\x00\x00\x00\x03\x84",
		"another frame in a header":             preface + "\x00\x00\x01\x01\x01\x00\x00\x00\x01\x82\x00\x00\x00\x04\x01\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := h2test.StartInMemory(func(c *h2test.Conn) {
					if s, err := c.Accept(); err == nil {
						t.Errorf("accepted %+v", s)
					}
				})
				defer srv.Close()
				conn, err := dialTLS(t, srv)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := io.WriteString(conn, sent); err != nil {
					t.Fatal(err)
				}
				// Were the connection not dropped, the bubble would be deadlocked here.
				got, err := io.ReadAll(conn)
				if err != nil {
					t.Error(err)
				}
				want := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
				if name == "preface" {
					want = ""
				}
				if string(got) != want {
					t.Errorf("the server sent %q, want its settings and nothing else (%q)", got, want)
				}
			})
		})
	}
}

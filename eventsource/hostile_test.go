package eventsource_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/h2test"
	"github.com/reprise-sse/reprise/internal/memnet"
	"github.com/reprise-sse/reprise/policy"
)

// This file has servers that do by design what servers do not do by accident.

var earlyHints = http.Header{"Link": {"</style.css>; rel=preload"}}

// On HTTP/2 net/http resends a refused request also when an informational response
// came before the refusal, so that does not count as an answer.
func TestG1NeverResentAfterEarlyHints(t *testing.T) {
	for _, tt := range []struct {
		name   string
		refuse func(c *h2test.Conn, s *h2test.Stream)
	}{
		{"REFUSED_STREAM", func(_ *h2test.Conn, s *h2test.Stream) {
			s.Respond(http.StatusEarlyHints, earlyHints, false)
			s.Reset(h2test.RefusedStream)
		}},
		{"GOAWAY", func(c *h2test.Conn, s *h2test.Stream) {
			s.Respond(http.StatusEarlyHints, earlyHints, false)
			c.GoAway(max(s.ID, 2)-2, h2test.NoError)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv, arrivals := startRefusingServer(tt.refuse, nil)
			t.Cleanup(srv.Close)
			history, _ := attemptsOf(t, srv.Client(), resendable(t, "GET", srv.URL+"/feed"), func() int { return len(arrivals()) })
			want := []perAttempt{{policy.Failed, 1}, {policy.Ended, 2}}
			if diff := cmp.Diff(want, history); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
		})
	}
}

// A redirect that follows an informational response is none of net/http's resends.
func TestRedirectAfterEarlyHints(t *testing.T) {
	srv, arrivals := startRefusingServer(func(_ *h2test.Conn, s *h2test.Stream) {
		s.Respond(http.StatusEarlyHints, earlyHints, false)
		s.Respond(http.StatusFound, http.Header{"Location": {"/there"}}, true)
	}, nil)
	t.Cleanup(srv.Close)
	history, _ := attemptsOf(t, srv.Client(), resendable(t, "GET", srv.URL+"/feed"), func() int { return len(arrivals()) })
	if diff := cmp.Diff([]perAttempt{{policy.Ended, 2}}, history); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
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
			srv := h2test.Start(func(c *h2test.Conn) {
				s, err := c.Accept()
				for err == nil {
					err = s.Respond(http.StatusEarlyHints, earlyHints, false)
				}
			})
			t.Cleanup(srv.Close)
			return srv.URL, srv.Client()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, client := tt.start(t)
			c := eventsource.Client{HTTPClient: client, Policy: policy.Never, ConnectTimeout: -1}
			_, err := collect(c.Stream(resendable(t, "GET", url)))
			if err == nil || !strings.HasSuffix(err.Error(), "too many informational responses") {
				t.Errorf("it ended with %v", err)
			}
			client.CloseIdleConnections()
		})
	}
}

// What a server has put in a header does not fill the logs, however much it is.
func TestTextsAreShort(t *testing.T) {
	const size = 1 << 20
	long := strings.Repeat("a", size)
	for name, script := range map[string]Step{
		"type":     Status{Header: http.Header{"Content-Type": {long + "/b"}}},
		"location": Status{Code: http.StatusFound, Header: http.Header{"Location": {"ftp://server.test/" + long}}},
		"host":     Status{Code: http.StatusFound, Header: http.Header{"Location": {"ftp://" + strings.Repeat("é", size) + "/"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t, []Step{script, End})
				s := play(t, srv, eventsource.Client{Policy: policy.Never})
				if s.err == nil || len(s.err.Error()) > 1024 || !utf8.ValidString(s.err.Error()) {
					t.Errorf("the text is %.1000q", s.err)
				}
			})
		})
	}
}

// After a 101 net/http leaves the connection to whoever has the body, and the end of
// the request's context does not end a Read of it.
func TestG7SwitchedProtocolsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memnet.Listen()
		defer l.Close()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nhello")
			io.Copy(io.Discard, c) // until the client has left
		}()
		c := eventsource.Client{HTTPClient: &http.Client{Transport: &http.Transport{DialContext: l.DialContext}}}
		start := time.Now()
		_, err := collect(c.Stream(resendable(t, "GET", "http://server.test/feed")))
		var refused *eventsource.ResponseError
		if !errors.As(err, &refused) || refused.StatusCode != http.StatusSwitchingProtocols || string(refused.Body) != "hello" {
			t.Errorf("it ended with %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
		<-gone
	})
}

package mcptransport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/examples/mcp/mcptransport"
)

// A read that was blocked did not notice that it was to end.
func TestCloseBreaksOffABlockedRead(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			s := &server{}
			s.HTTP2 = http2
			s.standby = [][]Step{{Open, Stall}}
			s.calls = [][]Step{{P("p1", 0), Stall}}
			play(t, s, func(c *client) {
				wait := c.begin(context.Background(), "tools/call", `{}`)
				time.Sleep(second)
				start := time.Now()
				if err := c.conn.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				wait().failed(t, second, io.EOF)
				if took := time.Since(start); took != 0 {
					t.Errorf("Close took %v", took)
				}
				synctest.Wait()
				for _, r := range s.Requests() {
					if r.Ended.IsZero() {
						t.Errorf("%s %s is still open", r.Method, kindOf(r))
					}
				}
			})
		})
	}
}

// The reader was blocked on a full channel for ever.
func TestCloseWithMessagesLeft(t *testing.T) {
	s := &server{}
	s.standby = [][]Step{{Do(func(c *Conn) {
		for i := range 10_000 {
			c.Play(M(fmt.Sprint("s", i), i))
		}
	}), Stall}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		tr := &mcptransport.Transport{Endpoint: s.URL}
		tr.Client.HTTPClient = s.Client()
		conn, err := tr.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id, _ := jsonrpc.MakeID(1.0)
		for _, msg := range []*jsonrpc.Request{{ID: id, Method: "initialize"}, {Method: "notifications/initialized"}} {
			if err := conn.Write(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(t.Context()); err != nil { // the answer, then a single message
				t.Fatal(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		synctest.Wait() // the bubble fails if a goroutine is left
		if r := s.of("standby")[0]; r.Ended.IsZero() {
			t.Error("the stream is still open")
		}
	})
}

// A timer outlived Close, and one of two was forgotten.
func TestCloseLeavesNoTimer(t *testing.T) {
	fake := clock.NewFake(time.Time{})
	s := &server{}
	s.Loopback = true
	s.standby = [][]Step{{Retry(10 * second)}}
	s.calls = [][]Step{{P("p1", 3*second)}}
	s.start(t)

	done := make(chan error, 2)
	waiting := make(chan time.Duration, 2)
	c := dial(t, s, func(tr *mcptransport.Transport) {
		tr.Client.Clock = fake
		tr.Client.Trace = func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{
				Wait: func(i eventsource.WaitInfo) { waiting <- i.Waited },
				Done: func(err error) { done <- err },
			}
		}
	})
	c.handshake()
	wait := c.begin(t.Context(), "tools/call", `{}`)
	if got := (<-waiting) + (<-waiting); got != 13*second {
		t.Fatalf("waits of %v together, want 10 s and 3 s", got)
	}

	if err := c.conn.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for range 2 {
		if err := <-done; !errors.Is(err, io.EOF) {
			t.Errorf("a stream ended with %v, want the end of the connection", err)
		}
	}
	if o := wait(); !errors.Is(o.err, io.EOF) {
		t.Errorf("the call came to %v, want io.EOF", o.err)
	}
	if d, pending := fake.Next(); pending {
		t.Errorf("a timer is pending, due in %v", d)
	}

	// A new connection has its own streams only.
	before := len(s.Requests())
	c2 := dial(t, s, func(tr *mcptransport.Transport) { tr.DisableStandby = true })
	c2.handshake()
	fake.Advance(time.Hour)
	c2.ping()
	c2.conn.Close()
	<-c2.over
	for _, r := range s.Requests()[before:] {
		if kind := kindOf(r); kind == "standby" || kind == "resume" {
			t.Errorf("a GET came after Close: %s", kind)
		}
	}
}

// Close waited for a server that did not answer.
func TestCloseIsBounded(t *testing.T) {
	s := &server{}
	s.posts = map[string][]Step{"DELETE": {Stall}}
	s.standby = [][]Step{{Open, Stall}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		c := dial(t, s)
		c.handshake()
		start := time.Now()
		err := c.conn.Close()
		if took := time.Since(start); took != 5*second {
			t.Errorf("Close took %v, want 5 s", took)
		}
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("Close: %v, want a timeout", err)
		}
		<-c.over
		synctest.Wait()
		if diff := cmp.Diff([]error{mcp.ErrConnectionClosed}, c.standbyEnds(), cmp.Comparer(errors.Is)); diff != "" {
			t.Error(diff)
		}
	})
}

package eventsource_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// R001: an event larger than 64 KB can be received, and no option has to be set for
// it: nor for one of megabytes.
func TestR001LargeEventOverHTTP(t *testing.T) {
	sockets(t, func(t *testing.T, serve func(...[]Step) *Server) {
		for _, size := range []int{100_000, 5 << 20} {
			text := strings.Repeat("a", size)
			srv := serve([]Step{Send("data: " + text + "\n\n"), Stall})
			n := 0
			for ev, err := range (&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(t.Context(), t, srv.URL)).Events() {
				if err != nil || ev.Data != text {
					t.Errorf("%d bytes of data, want %d, and %v", len(ev.Data), size, err)
				}
				n++
				break
			}
			if n != 1 {
				t.Errorf("%d events", n)
			}
		}
	})
}

// R002, R003: the largest event is a setting of the client, which holds at every
// stage. The refusal states it, is told apart from failures of the network, and is
// final, as the server would send the same event again.
//
// Requirements: R002, R003
func TestR002LimitOverHTTP(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		for _, c := range []struct {
			limit, size int
			refusal     string
		}{
			{4 << 20, 1_200_000, ""},
			{1 << 20, 1_200_000, "eventsource: event too large: the limit is 1048576 bytes"},
			{512 << 10, 300_000, ""},
			{200_000, 300_000, "eventsource: event too large: the limit is 200000 bytes"},
			{-1, 1_200_000, ""},
		} {
			event := Send("data: " + strings.Repeat("a", c.size) + "\n\n")
			srv := serve([]Step{event, End}, []Step{event, End})
			s := play(t, srv, eventsource.Client{MaxEventSize: c.limit, Policy: policy.Resilient})
			var network net.Error
			switch {
			case c.refusal == "":
				if s.err != nil || len(s.events) != 2 {
					t.Errorf("limit %d: %d events and %v", c.limit, len(s.events), s.err)
				}
			case !errors.Is(s.err, eventsource.ErrEventTooLarge) || errors.As(s.err, &network) || errors.Is(s.err, io.ErrUnexpectedEOF):
				t.Errorf("limit %d: %v", c.limit, s.err)
			case s.err.Error() != c.refusal || len(srv.Requests()) != 1 || s.ends[0].Kind != policy.TooLarge:
				t.Errorf("limit %d: %d requests, ended %v with %v", c.limit, len(srv.Requests()), s.ends[0].Kind, s.err)
			}
		}
	})
}

// R026: an event that the end of the response cuts off is dropped, and the stream
// reconnects like after any end; the trace says that something was lost.
func TestR026UnfinishedEventOverHTTP(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(
			[]Step{Send("data: a\n\ndata: b"), End},
			[]Step{Send("data: a\n\ndata: b\n"), End},
			[]Step{Send("data: a\n\n: c\n"), End},
		)
		s := play(t, srv, eventsource.Client{Policy: strict})
		if diff := cmp.Diff([]string{"a", "a", "a"}, s.data()); diff != "" || s.err != nil {
			t.Errorf("error %v, events (-want +got):\n%s", s.err, diff)
		}
		if diff := cmp.Diff(seconds(3, 3, 3), gaps(srv)); diff != "" {
			t.Errorf("gaps (-want +got):\n%s", diff)
		}
		for i, truncated := range []bool{true, true, false} {
			if a := s.ends[i]; a.Kind != policy.Ended || errors.Is(a.Err, eventsource.ErrTruncated) != truncated || !truncated && a.Err != nil {
				t.Errorf("attempt %d ended %v with %v", i+1, a.Kind, a.Err)
			}
		}
	})
}

// R011: an event is delivered with its last byte, which may be a CR: no line waits
// for an LF that may not come.
func TestR011NothingWaitsForALineFeed(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{
			Send("data: 1\rdata: 2\r\n"), Wait(time.Minute), Send("\r\n"), Wait(time.Minute),
			Send("data: 3\r\r"), Wait(time.Minute), Send("\ndata: 4\r\n\r"), Wait(time.Minute), End,
		})
		var got []string
		for ev, err := range (&eventsource.Client{HTTPClient: srv.Client(), Policy: policy.Never}).Stream(request(t.Context(), t, srv.URL)).Events() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ev.Data+" at "+time.Since(srv.Requests()[0].Arrived).String())
		}
		if diff := cmp.Diff([]string{"1\n2 at 1m0s", "3 at 2m0s", "4 at 3m0s"}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

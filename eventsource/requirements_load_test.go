package eventsource_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// R092: no compression is asked for by default, as a server that compresses and
// does not flush would hold events back. This one does.
func TestR092NoCompressionByDefault(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve([]Step{Do(func(c *Conn) {
			if !strings.Contains(c.Request().Header.Get("Accept-Encoding"), "gzip") {
				c.Play(Event{Data: "now"}, Wait(time.Hour))
				return
			}
			header := typed("text/event-stream")
			header["Content-Encoding"] = []string{"gzip"}
			c.Play(Status{Header: header}, Wait(time.Hour), Send(gzipped("data: late\n\n")))
		}), End})
		for ev, err := range (&eventsource.Client{HTTPClient: srv.Client()}).Stream(request(t.Context(), t, srv.URL)).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if at := time.Since(bubbleStart); ev.Data != "now" || at != 0 {
				t.Errorf("%q after %v", ev.Data, at)
			}
			break
		}
		if diff := cmp.Diff([]string{"identity"}, srv.Requests()[0].Header["Accept-Encoding"]); diff != "" {
			t.Errorf("Accept-Encoding (-want +got):\n%s", diff)
		}
	})
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

// R093: a slow consumer slows the reader, and nothing is lost: the server cannot
// write further ahead than the network's buffers hold, and the client's heap stays
// small.
func TestR093SlowConsumer(t *testing.T) {
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
		"HTTP1": {false, 100_000, 200},
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

// R095: a stream that is not read does not stall another on the same transport,
// even on the same connection, as HTTP/2 has it.
func TestR095SlowStreamDoesNotStallAnother(t *testing.T) {
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

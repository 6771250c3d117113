package eventsource_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/memnet"
	"github.com/reprise-sse/reprise/policy"
)

// TestEndlessHeader has servers that never come to the body, or to the next piece of
// it. net/http has limits of its own; the attempt fails like any other.
func TestEndlessHeader(t *testing.T) {
	const limit = 1 << 20
	const chunked = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct {
		name, start, repeat string
		kind                policy.Kind
	}{
		{"header lines", "HTTP/1.1 200 OK\r\n", "X-A: b\r\n", policy.Failed},
		{"a header line", "HTTP/1.1 200 OK\r\nX-A: ", "b", policy.Failed},
		{"a status line", "HTTP/1.1 200 ", "O", policy.Failed},
		{"continuation lines", "HTTP/1.1 200 OK\r\nX-A: b\r\n", " c\r\n", policy.Failed},
		{"a chunk's size", chunked, "0", policy.Dropped},
		{"a chunk extension", chunked + "1;", "x", policy.Dropped},
		{"chunk extensions", chunked, "1;" + strings.Repeat("x", 1000) + "\r\n:\r\n", policy.Dropped},
		{"a trailer", chunked + "0\r\n", "X-A: b\r\n", policy.Dropped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := memnet.Listen()
			defer l.Close()
			left := make(chan struct{})
			go func() {
				defer close(left)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err = http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, err = io.WriteString(c, tt.start)
				}
				for repeat := strings.Repeat(tt.repeat, 1+4<<10/len(tt.repeat)); err == nil; {
					_, err = io.WriteString(c, repeat)
				}
			}()
			var w watcher
			client := eventsource.Client{
				HTTPClient: &http.Client{Transport: &http.Transport{DialContext: l.DialContext, MaxResponseHeaderBytes: limit}},
				Policy:     policy.Never, Trace: w.trace(),
			}
			grown, before, end := 0, int(liveHeap()), client.Trace.End
			client.Trace.End = func(a policy.Attempt) {
				grown = int(liveHeap()) - before
				end(a)
			}
			if _, err := collect(client.Stream(get(t.Context()))); err == nil || w.ends[0].Kind != tt.kind {
				t.Errorf("it ended %v with %v, want %v", w.ends[0].Kind, err, tt.kind)
			}
			<-left
			if grown > 4*limit {
				t.Errorf("the live heap grew by %d KiB", grown>>10)
			}
		})
	}
}

package eventsource_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// BenchmarkIdleStream reports what an open, silent stream costs above the same
// response held by bare net/http: bytes of heap and stack, and goroutines. The
// server is in the same process, so both rows hold the same server.
func BenchmarkIdleStream(b *testing.B) {
	for _, streams := range []int{1_000, 5_000} {
		for _, kind := range []struct {
			name  string
			large bool // an event of 64 KiB has passed
		}{{"", false}, {"AfterLarge", true}} {
			b.Run(fmt.Sprintf("%d%s", streams, kind.name), func(b *testing.B) {
				event := "id: 1\ndata: x\n\n"
				if kind.large {
					event = "data: " + string(make([]byte, 64<<10)) + "\n\n" + event
				}
				idleCost(b, streams/4, event, openBare) // fills net/http's pools
				for b.Loop() {
					ours := idleCost(b, streams, event, openStream)
					bare := idleCost(b, streams, event, openBare)
					n := float64(streams)
					b.ReportMetric(bare.bytes/n, "bare-B/stream")
					b.ReportMetric((ours.bytes-bare.bytes)/n, "above-B/stream")
					b.ReportMetric((ours.stack-bare.stack)/n, "above-stack-B/stream")
					b.ReportMetric((ours.goroutines-bare.goroutines)/n, "above-goroutines/stream")
				}
			})
		}
	}
}

type cost struct{ bytes, stack, goroutines float64 }

// An opener opens a stream on its own goroutine, calls opened when the first
// event has come, and goes on reading until ctx is done.
type opener func(ctx context.Context, client *http.Client, url string, opened func())

func openBare(ctx context.Context, client *http.Client, url string, opened func()) {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Cache-Control", "no-cache")
	resp, err := client.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 512)
	for last := byte(0); last != 'x'; {
		n, err := resp.Body.Read(buf)
		if err != nil {
			panic(err)
		}
		for _, c := range buf[:n] {
			if c != '\n' {
				last = c
			}
		}
	}
	opened()
	resp.Body.Read(buf)
}

func openStream(ctx context.Context, client *http.Client, url string, opened func()) {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		panic(err)
	}
	c := eventsource.Client{HTTPClient: client, Policy: policy.Resilient}
	for ev, err := range c.Stream(req).Events() {
		if err == nil && ev.LastEventID == "1" {
			opened()
		}
	}
}

func idleCost(b *testing.B, streams int, event string, open opener) cost {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, event)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(context.Background())
	var all, opened sync.WaitGroup
	runtime.GC()
	before := held()
	opened.Add(streams)
	gate := make(chan struct{}, 64)
	for range streams {
		gate <- struct{}{}
		all.Go(func() {
			open(ctx, client, server.URL, func() { <-gate; opened.Done() })
		})
	}
	opened.Wait()
	for range 4 {
		runtime.GC() // each shrinks the stacks by half at most
	}
	after := held()
	cancel()
	all.Wait()
	return cost{after.bytes - before.bytes, after.stack - before.stack, after.goroutines - before.goroutines}
}

func held() cost {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return cost{float64(m.HeapAlloc + m.StackInuse), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// BenchmarkBusyStream compares the rate of events of one stream over loopback
// HTTP with what bare net/http takes to read the same bytes.
func BenchmarkBusyStream(b *testing.B) {
	const burst = 64
	event := "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"delta\":{\"content\":\" token\"}}]}\n\n"
	block := strings.Repeat(event, burst)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, block); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	b.Run("bare", func(b *testing.B) {
		resp, err := http.Get(server.URL)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		buf := make([]byte, 32<<10)
		b.ReportAllocs()
		b.SetBytes(int64(len(event)))
		for left := 0; b.Loop(); {
			for left < len(event) {
				n, err := resp.Body.Read(buf)
				if err != nil {
					b.Fatal(err)
				}
				left += n
			}
			left -= len(event)
		}
	})
	b.Run("stream", func(b *testing.B) {
		req, err := http.NewRequestWithContext(b.Context(), "GET", server.URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.SetBytes(int64(len(event)))
		for _, err := range new(eventsource.Client).Stream(req).Events() {
			if err != nil {
				b.Fatal(err)
			}
			if !b.Loop() {
				break
			}
		}
	})
}

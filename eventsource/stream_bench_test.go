package eventsource_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/loopback"
	"github.com/reprise-sse/reprise/policy"
)

// The benchmarks of this file have their server in another process, which runs this same
// program, so its CPU time and memory do not count.
func init() { loopback.Main() }

// startServer starts a server for a benchmark or a test.
func startServer(tb testing.TB) (url string) {
	server, err := loopback.Start()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error("the server's process:", err)
		}
	})
	return server.URL
}

// newTransport returns a client with a transport of its own.
func newTransport(tb testing.TB) *http.Client {
	client := &http.Client{Transport: &http.Transport{}}
	tb.Cleanup(client.CloseIdleConnections)
	return client
}

// openStream is the loopback.Opener of a Client that reconnects.
func openStream(ctx context.Context, client *http.Client, url string, opened func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	c := eventsource.Client{HTTPClient: client, Policy: policy.Resilient()}
	for event, err := range c.Stream(req).Events() {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case event.Data == "x":
			opened()
		}
	}
	return nil
}

// idleAbove returns what each of so many idle streams holds above bare net/http,
// the median of some rounds.
func idleAbove(tb testing.TB, url string, streams, rounds int) loopback.Cost {
	measure := func(open loopback.Opener) loopback.Cost {
		cost, err := loopback.MeasureIdle(streams, url, open)
		if err != nil {
			tb.Fatal(err)
		}
		return cost
	}
	measure(loopback.OpenBare) // what stays in pools is not to count
	var heap, stack, goroutines []float64
	for range rounds {
		bare := measure(loopback.OpenBare)
		above := measure(openStream).Sub(bare).Each(streams)
		heap = append(heap, above.Heap)
		stack = append(stack, above.Stack)
		goroutines = append(goroutines, above.Goroutines)
	}
	return loopback.Cost{Heap: median(heap), Stack: median(stack), Goroutines: median(goroutines)}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkIdleStream reports what an open, silent stream holds above the same
// response in the hands of bare net/http.
func BenchmarkIdleStream(b *testing.B) {
	for _, streams := range []int{1_000, 5_000} {
		for name, path := range map[string]string{"": loopback.Idle, "AfterLarge": loopback.IdleAfterLarge} {
			b.Run(fmt.Sprintf("%d%s", streams, name), func(b *testing.B) {
				url := startServer(b) + path
				for b.Loop() {
					above := idleAbove(b, url, streams, 3)
					b.ReportMetric(above.Heap, "above-heap-B/stream")
					b.ReportMetric(above.Stack, "above-stack-B/stream")
					b.ReportMetric(above.Goroutines, "above-goroutines/stream")
				}
			})
		}
	}
}

// TestIdleStreamIsSmall holds the promise of the documents: what a Client adds to
// net/http for a stream that is open and silent is at most 1.5 KiB of heap, also
// when a large event has passed, and no goroutine.
func TestIdleStreamIsSmall(t *testing.T) {
	const streams = 300
	url := startServer(t)
	for _, path := range []string{loopback.Idle, loopback.IdleAfterLarge} {
		above := idleAbove(t, url+path, streams, 3)
		if above.Heap > 1536+64 { // what rounds differ by, at so few streams
			t.Errorf("%s: %.0f bytes of heap above net/http's", path, above.Heap)
		}
		if above.Goroutines >= 1 {
			t.Errorf("%s: %.1f goroutines above net/http's", path, above.Goroutines)
		}
	}
}

// BenchmarkBusyStreams compares the events of one stream, and of 1,000, with what
// bare net/http takes to read the same bytes. Compare the CPU time.
func BenchmarkBusyStreams(b *testing.B) {
	for _, streams := range []int{1, 1_000} {
		for _, kind := range []struct {
			name string
			read func(ctx context.Context, client *http.Client, url string, events int) error
		}{{"bare", readBare}, {"stream", readEvents}} {
			b.Run(fmt.Sprintf("%d/%s", streams, kind.name), func(b *testing.B) {
				client, server := newTransport(b), startServer(b)
				each := (b.N + streams - 1) / streams
				url := fmt.Sprintf("%s%s?events=%d", server, loopback.Busy, each)
				errs := make([]error, streams)
				var all sync.WaitGroup
				b.ReportAllocs()
				b.SetBytes(int64(len(loopback.BusyEvent)))
				b.ResetTimer()
				before := loopback.CPUTime()
				for i := range streams {
					all.Go(func() { errs[i] = kind.read(b.Context(), client, url, each) })
				}
				all.Wait()
				b.ReportMetric(float64(loopback.CPUTime()-before)/float64(streams*each), "cpu-ns/event")
				for _, err := range errs {
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func readBare(ctx context.Context, client *http.Client, url string, events int) error {
	size, err := loopback.ReadBare(ctx, client, url)
	if want := events * len(loopback.BusyEvent); err == nil && size != want {
		return fmt.Errorf("read %d bytes, want %d", size, want)
	}
	return err
}

func readEvents(ctx context.Context, client *http.Client, url string, events int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	c := eventsource.Client{HTTPClient: client, Policy: policy.Never()}
	n := 0
	for _, err := range c.Stream(req).Events() {
		if err != nil {
			return err
		}
		n++
	}
	if n != events {
		return fmt.Errorf("%d events, want %d", n, events)
	}
	return nil
}

// BenchmarkReconnect reports the time from the end of a response, as the server sees
// it, to the next request: gap-ns/op. The waits are zero, so it is what the client
// itself takes.
func BenchmarkReconnect(b *testing.B) {
	report := func(b *testing.B, run func(url string, gap func(data string) (more bool))) {
		url := startServer(b) + loopback.Short
		total, n := time.Duration(0), 0
		b.ReportAllocs()
		b.ResetTimer()
		before := loopback.CPUTime()
		run(url, func(data string) bool {
			d, err := strconv.ParseInt(data, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			total += time.Duration(d)
			n++
			return n <= b.N // the first has no gap
		})
		b.ReportMetric(float64(loopback.CPUTime()-before)/float64(b.N), "cpu-ns/op")
		b.ReportMetric(float64(total)/float64(b.N), "gap-ns/op")
		if n != b.N+1 {
			b.Fatalf("%d responses, want %d", n, b.N+1)
		}
	}
	b.Run("bare", func(b *testing.B) {
		client := newTransport(b)
		report(b, func(url string, gap func(string) bool) {
			for {
				data, err := loopback.ReadShort(b.Context(), client, url)
				if err != nil {
					b.Fatal(err)
				}
				if !gap(data) {
					return
				}
			}
		})
	})
	b.Run("stream", func(b *testing.B) {
		client := newTransport(b)
		report(b, func(url string, gap func(string) bool) {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
			if err != nil {
				b.Fatal(err)
			}
			c := eventsource.Client{HTTPClient: client, Policy: policy.Rules{Floor: -1}}
			for event, err := range c.Stream(req).Events() {
				if err != nil {
					b.Fatal(err)
				}
				if !gap(event.Data) {
					return
				}
			}
		})
	})
}

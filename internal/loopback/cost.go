package loopback

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
)

// An Opener opens the stream at url with client, calls opened once when the event
// "x" has come, and goes on reading until ctx is done. It returns an error if the
// stream has failed before.
type Opener func(ctx context.Context, client *http.Client, url string, opened func()) error

// A Cost is what streams hold after a garbage collection.
type Cost struct {
	Heap, Stack float64 // bytes
	Goroutines  float64
}

// Sub returns c minus d.
func (c Cost) Sub(d Cost) Cost {
	return Cost{c.Heap - d.Heap, c.Stack - d.Stack, c.Goroutines - d.Goroutines}
}

// Each returns the cost of one of n streams.
func (c Cost) Each(n int) Cost {
	return Cost{c.Heap / float64(n), c.Stack / float64(n), c.Goroutines / float64(n)}
}

// opening is how many streams are being opened at once: few enough for the
// server's queue of connections.
const opening = 64

// MeasureIdle opens a number of streams at url, each on a goroutine of its own, and
// returns what they hold while all of them are open and silent.
func MeasureIdle(streams int, url string, open Opener) (Cost, error) {
	client := &http.Client{Transport: &http.Transport{}}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	before := held()
	var running, opened sync.WaitGroup
	opened.Add(streams)
	gate := make(chan struct{}, opening)
	for range streams {
		gate <- struct{}{}
		running.Go(func() {
			once := sync.OnceFunc(func() { <-gate; opened.Done() })
			if err := open(ctx, client, url, once); err != nil {
				cancel(err)
			}
			once() // a stream that failed must not keep the others waiting
		})
	}
	opened.Wait()
	after := held()
	err := context.Cause(ctx)
	cancel(nil)
	running.Wait()
	client.CloseIdleConnections()
	return after.Sub(before), err
}

// held returns what the process holds now.
func held() Cost {
	for range 4 {
		runtime.GC() // each halves the stacks that are too large
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Cost{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// ReadBare reads the response of url with bare net/http, as fast as it can, and returns
// its size.
func ReadBare(ctx context.Context, client *http.Client, url string) (size int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		size += n
		if err == io.EOF {
			return size, nil
		}
		if err != nil {
			return size, err
		}
	}
}

// ReadShort reads the response of [Short] with bare net/http and returns the data of its
// event.
func ReadShort(ctx context.Context, client *http.Client, url string) (data string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	_, data, _ = strings.Cut(string(all), "data: ")
	return strings.TrimSpace(data), nil
}

// OpenBare is the Opener that uses bare net/http: the least that a program could do,
// without decoding events or reconnecting.
func OpenBare(ctx context.Context, client *http.Client, url string, opened func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Cache-Control", "no-cache")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	buf := make([]byte, 512)
	for last := byte(0); ; {
		n, err := resp.Body.Read(buf)
		for _, c := range buf[:n] {
			if c != '\n' {
				last = c
			}
		}
		if last == 'x' {
			opened()
			last = 0
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

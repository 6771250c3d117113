package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/reprise-sse/reprise/internal/loopback"
)

// A busyRow reads the events of a busy stream to its end.
type busyRow func(ctx context.Context, http *http.Client, url string, events int) error

// busyBare reads the same bytes but does not look at them.
func busyBare(ctx context.Context, http *http.Client, url string, events int) error {
	size, err := loopback.ReadBare(ctx, http, url)
	if want := events * len(loopback.BusyEvent); err == nil && size != want {
		err = fmt.Errorf("read %d bytes, want %d", size, want)
	}
	return err
}

// busyClient turns a client into a row.
func busyClient(c client) busyRow {
	return func(ctx context.Context, http *http.Client, url string, events int) error {
		n, size := 0, 0
		err := c.stream(ctx, http, url, func(_, _, data []byte) bool {
			n++
			size += len(data)
			return n < events
		})
		if want := events * len(loopback.BusyData); err == nil && (n != events || size != want) {
			err = fmt.Errorf("%d events with %d bytes of data, want %d with %d", n, size, events, want)
		}
		return err
	}
}

// timeStreams runs a row on a number of streams at once, with a number of events each,
// and returns its CPU time for one event.
func timeStreams(server string, row busyRow, streams, events int) (time.Duration, error) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("%s%s?events=%d", server, loopback.Busy, events)
	errs := make([]error, streams)
	var all sync.WaitGroup
	runtime.GC()
	before := loopback.CPUTime()
	for i := range streams {
		all.Go(func() { errs[i] = row(context.Background(), client, url, events) })
	}
	all.Wait()
	used := loopback.CPUTime() - before
	return used / time.Duration(streams*events), errors.Join(errs...)
}

// opener turns a client into what loopback.MeasureIdle needs.
func opener(c client) loopback.Opener {
	return func(ctx context.Context, http *http.Client, url string, opened func()) error {
		err := c.stream(ctx, http, url, func(_, _, data []byte) bool {
			if string(data) == "x" {
				opened()
			}
			return true
		})
		if ctx.Err() != nil {
			return nil // clients may report the end of the measurement as they like
		}
		if err == nil {
			err = errors.New("the stream has ended")
		}
		return err
	}
}

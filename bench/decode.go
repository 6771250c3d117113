package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/reprise-sse/reprise/internal/loopback"
	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/internal/workloads"
)

// A workload is an event stream to decode, and the events in it.
type workload struct {
	workloads.Workload
	events   []event // of a lap
	dataSize int     // bytes of data in a lap
}

type event struct{ Type, ID, Data string }

// newWorkload finds the events with the naive decoder, which follows the standard word
// by word.
func newWorkload(w workloads.Workload) workload {
	made := workload{Workload: w}
	for _, e := range reference.Decode(w.Lap, "").Events {
		made.events = append(made.events, event{e.Type, e.LastEventID, e.Data})
		made.dataSize += len(e.Data)
	}
	return made
}

// A decodeRow decodes a number of laps of a workload, and returns the number of events
// and the size of their data.
type decodeRow func(w workload, laps int) (events, size int, err error)

// memchr finds every LF. Every decoder has to do more than that.
func memchr(w workload, laps int) (events, size int, err error) {
	lines := 0
	for range laps {
		for rest := w.Lap; ; lines++ {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			rest = rest[i+1:]
		}
	}
	if lines < laps*w.Events {
		return 0, 0, fmt.Errorf("found %d lines", lines)
	}
	return laps * w.Events, laps * w.dataSize, nil
}

// readOnly reads the workload as decoders do, but does not look at it.
func readOnly(w workload, laps int) (events, size int, err error) {
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, finite(w, laps), make([]byte, 32<<10))
	if want := int64(laps * len(w.Lap)); n != want {
		return 0, 0, fmt.Errorf("read %d bytes, want %d: %v", n, want, err)
	}
	return laps * w.Events, laps * w.dataSize, err
}

// counted turns a client into a row.
func counted(c client) decodeRow {
	return func(w workload, laps int) (events, size int, err error) {
		err = c.decode(finite(w, laps), func(_, _, data []byte) bool {
			events++
			size += len(data)
			return true
		})
		return events, size, err
	}
}

// finite returns a reader of a number of laps that has no method but Read.
func finite(w workload, laps int) io.Reader {
	return io.LimitReader(w.Reader(), int64(laps)*int64(len(w.Lap)))
}

// verify returns what is wrong with the events that c decodes from w, or nil.
func verify(c client, w workload) error {
	const laps = 2
	total := laps * len(w.events)
	n, wrong := 0, error(nil)
	err := c.decode(finite(w, laps), func(typ, id, data []byte) bool {
		got := event{string(typ), string(id), string(data)}
		if got.Type == "" {
			got.Type = "message" // most clients leave this to their users
		}
		want := w.events[n%len(w.events)]
		if c.noID {
			want.ID = ""
		}
		if got != want && wrong == nil {
			wrong = fmt.Errorf("event %d is %.60q, want %.60q", n, got, want)
		}
		n++
		return true
	})
	switch {
	case err != nil:
		return fmt.Errorf("fails after %d of %d events: %w", n, total, err)
	case wrong != nil:
		return wrong
	case n != total:
		return fmt.Errorf("brings %d events, want %d", n, total)
	}
	return nil
}

// timeDecoding runs a row and returns its CPU time for one lap. It returns an error if
// the row does not find the events that are in the laps.
func timeDecoding(row decodeRow, w workload, laps int) (time.Duration, error) {
	runtime.GC() // this row must not pay for the garbage of the rows before
	before := loopback.CPUTime()
	events, got, err := row(w, laps)
	used := loopback.CPUTime() - before
	if err == nil && (events != laps*w.Events || got != laps*w.dataSize) {
		err = fmt.Errorf("%d events with %d bytes of data, want %d with %d", events, got, laps*w.Events, laps*w.dataSize)
	}
	return used / time.Duration(laps), err
}

// calibrate returns how many laps take about the given CPU time.
func calibrate(row decodeRow, w workload, budget time.Duration) (laps int, err error) {
	for laps = 1; ; laps *= 2 {
		lap, err := timeDecoding(row, w, laps)
		if err != nil {
			return 0, err
		}
		if used := lap * time.Duration(laps); used >= budget/8 {
			return max(1, int(budget/max(lap, 1))), nil
		}
	}
}

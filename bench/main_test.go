package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/loopback"
	"github.com/reprise-sse/reprise/internal/workloads"
)

func TestMain(m *testing.M) {
	loopback.Main()
	goleak.VerifyTestMain(m)
}

// TestClients holds that every client brings the same events, or the comparison
// compares nothing.
func TestClients(t *testing.T) {
	for _, generated := range workloads.All() {
		w := newWorkload(generated)
		for _, c := range clients() {
			if err := verify(c, w); err != nil {
				t.Errorf("%s, %s: it %v", c.name, w.Name, err)
			}
		}
	}
}

func TestVerifyFindsFaults(t *testing.T) {
	w := newWorkload(workloads.Ticks())
	changing := func(change func(n int, typ, id, data string) (string, string, string)) func(io.Reader, sink) error {
		return func(r io.Reader, to sink) error {
			n := 0
			return decodeNext(r, func(typ, id, data []byte) bool {
				t, i, d := change(n, string(typ), string(id), string(data))
				n++
				return to([]byte(t), []byte(i), []byte(d))
			})
		}
	}
	broken := errors.New("broken")
	tests := map[string]struct {
		client client
		want   string // part of the error; empty if there is none
	}{
		"right":   {client{decode: decodeNext}, ""},
		"no type": {client{decode: changing(func(_ int, _, id, data string) (string, string, string) { return "", id, data })}, "event 0 is"},
		"data": {client{decode: changing(func(n int, typ, id, data string) (string, string, string) {
			if n == 7 {
				data += "x"
			}
			return typ, id, data
		})}, "event 7 is"},
		"ID":          {client{decode: changing(func(_ int, typ, _, data string) (string, string, string) { return typ, "", data })}, "event 0 is"},
		"shows no ID": {client{noID: true, decode: changing(func(_ int, typ, _, data string) (string, string, string) { return typ, "", data })}, ""},
		"fewer":       {client{decode: func(r io.Reader, to sink) error { return decodeNext(io.LimitReader(r, int64(len(w.Lap))), to) }}, "brings"},
		"an error":    {client{decode: func(io.Reader, sink) error { return broken }}, "broken"},
	}
	for name, tt := range tests {
		err := verify(tt.client, w)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestTimedRowsAreCounted(t *testing.T) {
	w := newWorkload(workloads.Tokens("\n"))
	half := counted(client{decode: func(r io.Reader, to sink) error {
		return decodeNext(io.LimitReader(r, int64(len(w.Lap))/2), to)
	}})
	if _, err := timeDecoding(half, w, 1); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half of the events: %v", err)
	}
	for _, row := range []decodeRow{memchr, readOnly, counted(client{decode: decodeRaw})} {
		if used, err := timeDecoding(row, w, 3); err != nil || used <= 0 {
			t.Errorf("%v of CPU time, %v", used, err)
		}
	}
}

func TestSummarize(t *testing.T) {
	tests := []struct {
		rounds []float64
		want   figure
	}{
		{[]float64{4}, figure{4, 0}},
		{[]float64{3, 1}, figure{2, 0.5}},
		{[]float64{5, 1, 2, 100, 4}, figure{4, 1.5}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, summarize(tt.rounds), cmp.AllowUnexported(figure{})); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.rounds, diff)
		}
	}
	if diff := cmp.Diff([]float64{2, 5}, ratios([]float64{4, 10}, []float64{2, 2})); diff != "" {
		t.Error(diff)
	}
	if got, want := (figure{12.345, 0.5}).ratio(), "12.3 ±4%"; got != want {
		t.Errorf("a ratio is %q, want %q", got, want)
	}
	if got, want := (figure{-0.004, 1.129}).amount(), "0 ±1.13"; got != want {
		t.Errorf("an amount is %q, want %q", got, want)
	}
}

func TestTable(t *testing.T) {
	tb := &table{heading: []string{"", "a"}}
	tb.add("x", tb.na("broken"))
	tb.add("y", tb.na("broken"))
	tb.add("z", tb.na("other"))
	var b strings.Builder
	if err := tb.print(&b); err != nil {
		t.Fatal(err)
	}
	want := `|  | a |
| --- | ---: |
| x | n/a [1] |
| y | n/a [1] |
| z | n/a [2] |

1. broken
2. other
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRun runs everything, as little of it as there can be.
func TestRun(t *testing.T) {
	var progress bytes.Buffer
	s := settings{
		workloads:   []workloads.Workload{workloads.Ticks()},
		rounds:      1,
		budget:      time.Millisecond,
		busyEvents:  2000,
		manyStreams: 10,
		manyEvents:  200,
		idleRounds:  1,
		idleStreams: 10,
		progress:    &progress,
	}
	tb, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	// Rows: a workload, two loads, and three kinds of memory twice.
	if len(tb.rows) != 1+2+6 {
		t.Errorf("%d rows, want 9", len(tb.rows))
	}
	for _, row := range tb.rows {
		if len(row) != len(tb.heading) {
			t.Errorf("%d cells in %q, want %d", len(row), row, len(tb.heading))
		}
		for i, cell := range row {
			raw := strings.HasPrefix(tb.heading[i], "Reprise, NextRaw") && row[0] != "ticks"
			if cell == "" || strings.Contains(cell, "n/a") != raw || strings.Contains(cell, "NaN") || strings.Contains(cell, "Inf") {
				t.Errorf("%s: the cell is %q", tb.heading[i], row)
			}
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is printed %q, want %q", n, got, want)
		}
	}
}

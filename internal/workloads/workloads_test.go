package workloads_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/internal/reference"
	"github.com/reprise-sse/reprise/internal/workloads"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWorkloads(t *testing.T) {
	// The sizes of an event's data, from the goals.
	want := map[string]int{
		"tokens": 190, "crlf": 190, "small-reads": 190, "ticks": 40, "20-lines": 20*81 - 1,
		"64KiB-lines": 64 << 10, "64KiB-lines-in-1448": 64 << 10, "heartbeats": 1,
	}
	got := map[string]int{}
	for _, w := range workloads.All() {
		result := reference.Decode(w.Lap, "")
		if len(result.Events) != w.Events || result.Truncated {
			t.Errorf("%s: %d events, truncated: %v; want %d whole ones", w.Name, len(result.Events), result.Truncated, w.Events)
		}
		for _, event := range result.Events {
			if len(event.Data) != len(result.Events[0].Data) {
				t.Fatalf("%s: data of %d and of %d bytes", w.Name, len(event.Data), len(result.Events[0].Data))
			}
		}
		got[w.Name] = len(result.Events[0].Data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sizes of data (-want +got):\n%s", diff)
	}
}

func TestReaderGoesRound(t *testing.T) {
	for _, w := range workloads.All() {
		got := make([]byte, 2*len(w.Lap))
		if _, err := io.ReadFull(w.Reader(), got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, append(bytes.Clone(w.Lap), w.Lap...)) {
			t.Errorf("%s: two laps differ from the lap, twice", w.Name)
		}
	}
}

func TestReadSizes(t *testing.T) {
	tests := map[string]struct{ least, most int }{
		"small-reads":         {1, 37},
		"64KiB-lines-in-1448": {1448, 1448},
		"tokens":              {4096, 4096},
	}
	for _, w := range workloads.All() {
		want, ok := tests[w.Name]
		if !ok {
			continue
		}
		r, p := w.Reader(), make([]byte, 4096)
		least, most := len(p), 0
		for range 200 {
			n, err := r.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			least, most = min(least, n), max(most, n)
		}
		if least != want.least || most != want.most {
			t.Errorf("%s: reads of %d to %d bytes, want %d to %d", w.Name, least, most, want.least, want.most)
		}
	}
}

package eventsource_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/reprise-sse/reprise/eventsource"
)

// TestGzipBomb has a server send a thousand times as much as it seems, to a caller
// who has asked for compression. The limit is on what comes out.
func TestGzipBomb(t *testing.T) {
	const limit = 1 << 20
	for _, tt := range []struct {
		name, start, repeat string
		tooLarge            bool
	}{
		{"an event", "data: ", "x", true},
		{"a comment", ":", "x", true},
		{"small events", "", "data: x\n\n", false},
		{"small comments", "", ":\n\n", false},
		{"large comments", "", ":" + strings.Repeat("x", limit/2) + "\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Members of a gzip file follow each other, and so do their contents.
			start, repeat := string(member(tt.start)), string(member(strings.Repeat(tt.repeat, limit/len(tt.repeat))))
			f := flood{start: start, repeat: repeat, size: len(start) + 2*len(repeat), coding: "gzip", every: 128}
			err := f.play(t, limit)
			if tt.tooLarge != errors.Is(err, eventsource.ErrEventTooLarge) || !tt.tooLarge && err != nil {
				t.Errorf("the error is %v", err)
			}
			if f.grown > limit+limit/2 {
				t.Errorf("the live heap grew by %d KiB", f.grown>>10)
			}
		})
	}
}

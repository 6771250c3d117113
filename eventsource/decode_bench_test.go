package eventsource_test

import (
	"bytes"
	"testing"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/internal/loopback"
	"github.com/reprise-sse/reprise/internal/workloads"
)

// BenchmarkDecode measures one lap of each workload, with a decoder that is warm,
// beside two limits: memchr only finds every LF in the same bytes, copy only reads
// them from the same reader. On a machine that others use, too, compare the CPU
// time.
func BenchmarkDecode(b *testing.B) {
	for _, w := range workloads.All() {
		b.Run(w.Name, func(b *testing.B) {
			lap := func(name string, run func(b *testing.B)) {
				b.Run(name, func(b *testing.B) {
					b.SetBytes(int64(len(w.Lap)))
					b.ReportAllocs()
					before := loopback.CPUTime()
					run(b)
					b.ReportMetric(float64(loopback.CPUTime()-before)/float64(b.N), "cpu-ns/op")
				})
			}
			lap("memchr", func(b *testing.B) {
				for b.Loop() {
					lines := 0
					for rest := w.Lap; ; lines++ {
						i := bytes.IndexByte(rest, '\n')
						if i < 0 {
							break
						}
						rest = rest[i+1:]
					}
					if lines < w.Events {
						b.Fatalf("found %d lines in %d events", lines, w.Events)
					}
				}
			})
			lap("copy", func(b *testing.B) {
				r, p := w.Reader(), make([]byte, 32<<10)
				for b.Loop() {
					for n := 0; n < len(w.Lap); {
						m, err := r.Read(p)
						if err != nil {
							b.Fatal(err)
						}
						n += m
					}
				}
			})
			lap("NextRaw", func(b *testing.B) {
				d := eventsource.NewDecoder(w.Reader())
				for b.Loop() {
					for range w.Events {
						if _, err := d.NextRaw(); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
			lap("Next", func(b *testing.B) {
				d := eventsource.NewDecoder(w.Reader())
				for b.Loop() {
					for range w.Events {
						if _, err := d.Next(); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
	}
}

// Package workloads generates the event streams that decoding speed is measured
// with, the same bytes at each call, and readers that hand them out for as long as
// a benchmark runs.
//
// It is for benchmarks and tests.
package workloads

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// A Workload is an event stream to be read over and over.
type Workload struct {
	Name string

	// Lap is one round of the stream. It has whole events and does not depend on the
	// rounds before. It must not be changed.
	Lap []byte

	// Events is the number of events in a lap.
	Events int

	// Reads are the sizes of the reads that hand it out, in turn and for ever. If it is
	// empty, a read may be of any size.
	Reads []int
}

// lapSize is the approximate size of a lap: larger than the first cache and smaller than
// the last.
const lapSize = 1 << 20

// All returns the workloads that the project has goals for.
func All() []Workload {
	tokens, lines64K := Tokens("\n"), Lines64K()
	return []Workload{
		tokens,
		Ticks(),
		Lines20(),
		lines64K,
		Tokens("\r\n"),
		Heartbeats(),
		tokens.inReads("small-reads", oneTo37()),
		lines64K.inReads("64KiB-lines-in-1448", []int{1448}),
	}
}

// Tokens is a language model's answer: each event is one line of JSON of 190 bytes. The
// lines end with lineEnd.
func Tokens(lineEnd string) Workload {
	name := "tokens"
	if lineEnd != "\n" {
		name = "crlf"
	}
	return generate(name, func(b *bytes.Buffer, n int) {
		head := fmt.Sprintf(`{"id":"chatcmpl-%08d","object":"chat.completion.chunk","created":1700000000,"model":"m-1","choices":[{"index":0,"delta":{"content":"`, n)
		tail := `"},"finish_reason":null}]}`
		word := strings.Repeat("token ", 10)[:190-len(head)-len(tail)]
		fmt.Fprint(b, "data: ", head, word, tail, lineEnd, lineEnd)
	})
}

// Ticks is a feed of prices: each event has a type, a new ID, and 40 bytes of data.
func Ticks() Workload {
	return generate("ticks", func(b *bytes.Buffer, n int) {
		fmt.Fprintf(b, "event: tick\nid: %08d\ndata: {\"symbol\":\"ABCD\",\"price\":%014d}\n\n", n, n*7919)
	})
}

// Lines20 has events of 20 lines with 80 bytes of data each.
func Lines20() Workload {
	return generate("20-lines", func(b *bytes.Buffer, n int) {
		for i := range 20 {
			fmt.Fprintf(b, "data: %080d\n", n*20+i)
		}
		b.WriteByte('\n')
	})
}

// Lines64K has events of one line with 64 KiB of data.
func Lines64K() Workload {
	return generate("64KiB-lines", func(b *bytes.Buffer, n int) {
		fmt.Fprintf(b, "data: %0*d\n\n", 64<<10, n)
	})
}

// Heartbeats has comments and blank lines, as they keep a silent stream open, and one
// event at the end.
func Heartbeats() Workload {
	w := generate("heartbeats", func(b *bytes.Buffer, _ int) {
		b.WriteString(": keep-alive\n\n")
	})
	w.Lap = append(w.Lap, "data: x\n\n"...)
	w.Events = 1
	return w
}

func generate(name string, event func(b *bytes.Buffer, n int)) Workload {
	var b bytes.Buffer
	n := 0
	for b.Len() < lapSize {
		event(&b, n)
		n++
	}
	return Workload{Name: name, Lap: b.Bytes(), Events: n}
}

func (w Workload) inReads(name string, sizes []int) Workload {
	w.Name, w.Reads = name, sizes
	return w
}

// oneTo37 returns read sizes from 1 to 37 bytes, evenly spread.
func oneTo37() []int {
	rng := rand.New(rand.NewPCG(37, 0))
	sizes := make([]int, 4096)
	for i := range sizes {
		sizes[i] = rng.IntN(37) + 1
	}
	return sizes
}

// Reader returns a reader of the workload that never ends: lap after lap.
func (w Workload) Reader() io.Reader { return &endless{lap: w.Lap, sizes: w.Reads} }

type endless struct {
	lap   []byte
	at    int
	sizes []int
	next  int
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.sizes) > 0 {
		p = p[:min(len(p), e.sizes[e.next])]
		if e.next++; e.next == len(e.sizes) {
			e.next = 0
		}
	}
	n := copy(p, e.lap[e.at:])
	if e.at += n; e.at == len(e.lap) {
		e.at = 0
	}
	return n, nil
}

package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/reprise-sse/reprise/internal/loopback"
	"github.com/reprise-sse/reprise/internal/workloads"
)

func main() {
	loopback.Main()
	s := settings{
		workloads:   workloads.All(),
		busyEvents:  200_000,
		manyStreams: 1_000,
		manyEvents:  200,
		progress:    os.Stderr,
	}
	flag.IntVar(&s.rounds, "rounds", 11, "how often each row is timed")
	flag.DurationVar(&s.budget, "budget", 50*time.Millisecond, "about how much CPU time a row takes for a workload in a round")
	flag.IntVar(&s.idleRounds, "idle-rounds", 5, "how often the memory of each row is measured")
	flag.IntVar(&s.idleStreams, "idle-streams", 1_000, "with how many streams")
	flag.Parse()
	if s.rounds < 1 || s.idleRounds < 1 || s.idleStreams < 1 {
		fmt.Fprintln(os.Stderr, "bench: there must be at least one round, and one stream")
		os.Exit(2)
	}
	t, err := s.run()
	if err == nil {
		err = t.print(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings say how much to measure.
type settings struct {
	workloads               []workloads.Workload
	rounds                  int
	budget                  time.Duration // CPU time of a row, a workload and a round
	busyEvents              int           // of the one busy stream
	manyStreams, manyEvents int           // of the many busy streams, and of each
	idleRounds, idleStreams int
	progress                io.Writer
}

// run measures everything.
func (s settings) run() (*table, error) {
	rows := clients()
	t := &table{heading: []string{"", "1 is", "copy"}}
	t.heading[2] += " " + t.note("copy: only reads the same bytes, from a reader in memory or with net/http")
	for _, c := range rows {
		name := c.name
		if c.note != "" {
			name += " " + t.note(c.name+": "+c.note)
		}
		t.heading = append(t.heading, name)
	}
	if err := s.decoding(t, rows); err != nil {
		return nil, err
	}
	server, err := loopback.Start()
	if err != nil {
		return nil, err
	}
	err = s.streams(t, rows, server.URL)
	if err == nil {
		err = s.idle(t, rows, server.URL)
	}
	if closed := server.Close(); err == nil {
		err = closed
	}
	return t, err
}

// decoding adds a row for each workload.
func (s settings) decoding(t *table, rows []client) error {
	for _, generated := range s.workloads {
		w := newWorkload(generated)
		fmt.Fprintln(s.progress, "decoding", w.Name)
		cells := []string{w.Name, "memchr", ""}
		timed := []decodeRow{memchr, readOnly}
		for _, c := range rows {
			if err := verify(c, w); err != nil {
				cells = append(cells, t.na(fmt.Sprintf("%s, %s: it %v", c.name, w.Name, err)))
				timed = append(timed, nil)
				continue
			}
			cells = append(cells, "")
			timed = append(timed, counted(c))
		}
		laps := make([]int, len(timed))
		for i, row := range timed {
			if row == nil {
				continue
			}
			var err error
			if laps[i], err = calibrate(row, w, s.budget); err != nil {
				return fmt.Errorf("%s: %w", w.Name, err)
			}
		}
		times, err := s.measure(len(timed), func(i int) (float64, error) {
			if timed[i] == nil {
				return 0, nil
			}
			lap, err := timeDecoding(timed[i], w, laps[i])
			return float64(lap), err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		for i, row := range timed[1:] {
			if row != nil {
				cells[2+i] = summarize(ratios(times[1+i], times[0])).ratio()
			}
		}
		t.add(cells...)
	}
	return nil
}

// measure gives each of n rows its turn in every round, and returns the results of
// each row.
func (s settings) measure(n int, one func(row int) (float64, error)) ([][]float64, error) {
	results := make([][]float64, n)
	for range s.rounds {
		for row := range n {
			result, err := one(row)
			if err != nil {
				return nil, err
			}
			results[row] = append(results[row], result)
		}
	}
	return results, nil
}

const notStreamed = "NextRaw belongs to the Decoder: a Stream hands out events to keep"

// streams adds the rows of busy streams.
func (s settings) streams(t *table, rows []client, url string) error {
	timed := []busyRow{busyBare}
	for _, c := range rows {
		if c.stream == nil {
			timed = append(timed, nil)
			continue
		}
		timed = append(timed, busyClient(c))
	}
	for _, load := range []struct {
		name            string
		streams, events int
	}{
		{"one busy stream", 1, s.busyEvents},
		{thousands(s.manyStreams) + " busy streams", s.manyStreams, s.manyEvents},
	} {
		fmt.Fprintln(s.progress, load.name)
		cells := []string{load.name, "net/http", "1"}
		times, err := s.measure(len(timed), func(i int) (float64, error) {
			if timed[i] == nil {
				return 0, nil
			}
			each, err := timeStreams(url, timed[i], load.streams, load.events)
			if err != nil {
				err = fmt.Errorf("%s, %s: %w", load.name, t.heading[2+i], err)
			}
			return float64(each), err
		})
		if err != nil {
			return err
		}
		for i := range rows {
			if timed[1+i] == nil {
				cells = append(cells, t.na(notStreamed))
				continue
			}
			cells = append(cells, summarize(ratios(times[1+i], times[0])).ratio())
		}
		t.add(cells...)
	}
	return nil
}

// idle adds the rows of idle streams: what they hold above bare net/http.
func (s settings) idle(t *table, rows []client, url string) error {
	of := thousands(s.idleStreams)
	for _, after := range []struct{ name, path string }{
		{"idle stream", loopback.Idle},
		{"idle stream after 64 KiB", loopback.IdleAfterLarge},
	} {
		fmt.Fprintln(s.progress, after.name)
		heap := []string{after.name + ", one of " + of + ": heap", "KiB", "0"}
		stack := []string{after.name + ": stack", "KiB", "0"}
		goroutines := []string{after.name + ": goroutines", "one", "0"}
		// The first run fills pools that stay filled.
		if _, err := loopback.MeasureIdle(s.idleStreams, url+after.path, loopback.OpenBare); err != nil {
			return err
		}
		above := make([][3][]float64, len(rows))
		for range s.idleRounds {
			bare, err := loopback.MeasureIdle(s.idleStreams, url+after.path, loopback.OpenBare)
			if err != nil {
				return err
			}
			for i, c := range rows {
				if c.stream == nil {
					continue
				}
				held, err := loopback.MeasureIdle(s.idleStreams, url+after.path, opener(c))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", after.name, c.name, err)
				}
				more := held.Sub(bare).Each(s.idleStreams)
				above[i][0] = append(above[i][0], more.Heap/1024)
				above[i][1] = append(above[i][1], more.Stack/1024)
				above[i][2] = append(above[i][2], more.Goroutines)
			}
		}
		for i, c := range rows {
			if c.stream == nil {
				na := t.na(notStreamed)
				heap, stack, goroutines = append(heap, na), append(stack, na), append(goroutines, na)
				continue
			}
			heap = append(heap, summarize(above[i][0]).amount())
			stack = append(stack, summarize(above[i][1]).amount())
			goroutines = append(goroutines, summarize(above[i][2]).amount())
		}
		t.add(heap...)
		t.add(stack...)
		t.add(goroutines...)
	}
	return nil
}

// thousands prints n as 1,000.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// A summary holds what the client and the server of the demo each saw. Everything
// that is printed is computed from it.
type summary struct {
	// The client's side.
	received []eventsource.Event
	waits    []eventsource.WaitInfo // waits[i] came after visits[i]
	err      error                  // the end of the loop
	ended    time.Time              // when it ended

	// The server's side.
	visits    []visit
	published int // readings, numbered from 1
}

// promptly is how soon after the last response the loop must end: long enough for a
// busy machine, but nothing compared with the wait that was asked for.
const promptly = time.Second

// gap returns how much time passed between visit i and the next request.
func (s summary) gap(i int) time.Duration { return s.visits[i+1].arrived.Sub(s.visits[i].left) }

// released returns how long after the end of the last response the loop ended.
func (s summary) released() time.Duration { return s.ended.Sub(s.visits[len(s.visits)-1].left) }

// readings counts the events that carried a reading: all of them, and the different
// ones. It also reports whether they were as published and in order.
func (s summary) readings() (all, distinct int, intact bool) {
	seen := map[string]bool{}
	last := 0
	intact = true
	for _, ev := range s.received {
		if ev.Data == "" {
			continue // a priming event: an ID without data
		}
		all++
		if !seen[ev.LastEventID] {
			seen[ev.LastEventID] = true
			distinct++
		}
		n, err := strconv.Atoi(ev.LastEventID)
		if err != nil || n <= last || ev.Data != reading(n) {
			intact = false
		}
		last = max(last, n)
	}
	return all, distinct, intact
}

// early counts the requests that came sooner than the server asked.
func (s summary) early() int {
	early := 0
	for i := range len(s.visits) - 1 {
		if i < len(scenes) && s.gap(i) < scenes[i].asked {
			early++
		}
	}
	return early
}

// faults lists everything that is not as it should be.
func (s summary) faults() []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }

	if len(s.visits) != len(scenes) {
		fault("%d connections instead of %d", len(s.visits), len(scenes))
	}
	if len(s.waits) != max(len(s.visits)-1, 0) {
		fault("%d waits between %d connections", len(s.waits), len(s.visits))
	}
	for i, v := range s.visits {
		if v.lastEventID != v.due {
			fault("connection %d resumed after %q instead of %q", i+1, v.lastEventID, v.due)
		}
	}
	for i, w := range s.waits {
		if i >= len(scenes) || i+1 >= len(s.visits) {
			break // counted above
		}
		asked, gap := scenes[i].asked, s.gap(i)
		if w.Asked != asked {
			fault("after connection %d the server asked for %v and the client understood %v", i+1, asked, w.Asked)
		}
		if w.Waited < asked || gap < w.Waited {
			fault("after connection %d the server asked for %v, the client waited %v, the request came after %v", i+1, asked, w.Waited, gap)
		}
		if scenes[i].exactly && w.Waited != asked {
			fault("after connection %d the server asked for %v and the client chose to wait %v", i+1, asked, w.Waited)
		}
	}

	all, distinct, intact := s.readings()
	if distinct != s.published {
		fault("%d readings received of %d published", distinct, s.published)
	}
	if all != distinct {
		fault("%d readings received twice", all-distinct)
	}
	if !intact {
		fault("readings changed or out of order")
	}

	var budget *policy.BudgetError
	switch {
	case !errors.As(s.err, &budget):
		fault("the client should have given up for its budget; it ended with: %v", s.err)
	case budget.Asked != longWait:
		fault("the client gave up for a wait of %v instead of %v", budget.Asked, longWait)
	case len(s.visits) > 0 && s.released() > promptly:
		fault("the client gave up only after %v", s.released())
	}
	return faults
}

// write prints the summary.
func (s summary) write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "connection\tended\tserver asked\tclient waited\tnext request came after")
	for i := range s.visits {
		name, asked := "not in the script", "-"
		if i < len(scenes) {
			name = scenes[i].name
			if scenes[i].asked > 0 {
				asked = rounded(scenes[i].asked).String()
			}
		}
		waited, came := "-", "-"
		if i < len(s.waits) {
			waited = rounded(s.waits[i].Waited).String()
		}
		if i+1 < len(s.visits) {
			came = rounded(s.gap(i)).String()
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", i+1, name, asked, waited, came)
	}
	_ = t.Flush() // writing to a strings.Builder cannot fail

	all, distinct, _ := s.readings()
	b.WriteString("\n")
	for _, row := range []struct {
		name  string
		value int
	}{
		{"connections", len(s.visits)},
		{"too early", s.early()},
		{"published", s.published},
		{"received", all},
		{"lost", s.published - distinct},
		{"duplicated", all - distinct},
	} {
		fmt.Fprintf(&b, "%-11s %3d\n", row.name, row.value)
	}
	var budget *policy.BudgetError
	if errors.As(s.err, &budget) && len(s.visits) > 0 {
		fmt.Fprintf(&b, "gave up     after %v: %v asked, %v left of the budget\n",
			s.released().Round(10*time.Microsecond), budget.Asked, rounded(budget.Left))
	}

	b.WriteString("\n")
	faults := s.faults()
	for _, f := range faults {
		fmt.Fprintf(&b, "WRONG: %s\n", f)
	}
	if len(faults) == 0 {
		b.WriteString("All as it should be: nothing lost, nothing twice, nobody early, and no day spent waiting.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

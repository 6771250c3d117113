package main

import (
	"fmt"
	"io"
	"strings"
)

// A table is printed in Markdown, with notes below it.
type table struct {
	heading []string
	rows    [][]string
	notes   []string
}

// note returns a reference to a note, which is added if it is new.
func (t *table) note(text string) string {
	for i, n := range t.notes {
		if n == text {
			return fmt.Sprintf("[%d]", i+1)
		}
	}
	t.notes = append(t.notes, text)
	return fmt.Sprintf("[%d]", len(t.notes))
}

// na returns the cell for something that was not measured, with a note that says why.
func (t *table) na(why string) string { return "n/a " + t.note(why) }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) error {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.heading)
	rule := []string{"---"}
	for range t.heading[1:] {
		rule = append(rule, "---:")
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
	if len(t.notes) > 0 {
		b.WriteByte('\n')
	}
	for i, n := range t.notes {
		fmt.Fprintf(&b, "%d. %s\n", i+1, n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

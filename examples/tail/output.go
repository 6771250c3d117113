package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// Both outputs have the same columns, so that they can be read together on a
// terminal: the time, a mark, a label, and the text.
const (
	clockLayout = "15:04:05.000"
	eventMark   = ' '
	clientMark  = '*'
	labelWidth  = len("connected")
)

// line formats one entry. Further lines of the text are indented to its column.
func line(now time.Time, mark rune, label, text string) string {
	head := fmt.Sprintf("%s %c %-*s  ", now.Format(clockLayout), mark, labelWidth, printable(label))
	indent := "\n" + strings.Repeat(" ", len(clockLayout)+len(" * ")+labelWidth+len("  "))
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.TrimRight(head+strings.Join(lines, indent), " ") + "\n"
}

// printable escapes control characters, because the text comes from a server and a
// terminal would obey them.
func printable(s string) string {
	if !strings.ContainsFunc(s, isControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isControl(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isControl includes characters that change the direction of text: they can make one
// line look like another.
func isControl(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// A printer writes events to standard output.
type printer struct {
	w    io.Writer
	json bool
}

func (p *printer) print(ev eventsource.Event) error {
	now := time.Now()
	if !p.json {
		_, err := io.WriteString(p.w, line(now, eventMark, ev.Type, ev.Data))
		return err
	}
	e := json.NewEncoder(p.w)
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Type string    `json:"type"`
		Data string    `json:"data"`
		ID   string    `json:"id"`
		Time time.Time `json:"time"`
	}{ev.Type, ev.Data, ev.LastEventID, now})
}

// A journal reports on standard error what the client is doing. Its methods may be
// called from several goroutines; its trace is for one stream.
type journal struct {
	mu sync.Mutex
	w  io.Writer
}

func (j *journal) log(label, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	// If standard error is gone there is nowhere to report it.
	_, _ = io.WriteString(j.w, line(time.Now(), clientMark, label, text))
}

func (j *journal) trace() *eventsource.Trace {
	var resumed string
	return &eventsource.Trace{
		Connect: func(i eventsource.ConnectInfo) {
			resumed = i.Request.Header.Get("Last-Event-ID")
		},
		Open: func(i eventsource.OpenInfo) {
			j.log("connected", connectedText(i.Number, resumed))
		},
		Retry: func(d time.Duration) {
			j.log("retry", fmt.Sprintf("the server sets the reconnection time to %v", d))
		},
		End: func(a policy.Attempt) {
			j.log(endLabels[a.Kind], endText(a))
		},
		Wait: func(i eventsource.WaitInfo) {
			j.log("waiting", waitText(i))
		},
	}
}

func connectedText(number int, lastEventID string) string {
	if lastEventID == "" {
		return fmt.Sprintf("attempt %d", number)
	}
	return fmt.Sprintf("attempt %d, resuming after event ID %s", number, lastEventID)
}

var endLabels = map[policy.Kind]string{
	policy.Ended:     "closed",
	policy.Dropped:   "dropped",
	policy.Failed:    "failed",
	policy.Rejected:  "refused",
	policy.Idle:      "silent",
	policy.Expired:   "expired",
	policy.TooLarge:  "too large",
	policy.Restarted: "restarted",
}

func endText(a policy.Attempt) string {
	text := fmt.Sprintf("attempt %d", a.Number)
	if !a.Open.IsZero() {
		text += fmt.Sprintf(" after %s in %v", count(a.Events, "event"), rounded(a.End.Sub(a.Open)))
	}
	if a.Err == nil {
		return text
	}
	return text + ": " + errorText(a.Err)
}

// waitText says how long the client waits and who asked for that.
func waitText(i eventsource.WaitInfo) string {
	var who string
	switch {
	case i.Asked == 0:
		who = "the client's choice"
	case i.Waited == i.Asked:
		who = "as the server asked"
	default:
		who = fmt.Sprintf("the client's choice, the server asked for %v", rounded(i.Asked))
	}
	return fmt.Sprintf("%v before attempt %d: %s", rounded(i.Waited), i.Number, who)
}

// rounded rounds a duration so that it can be read at a glance.
func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// errorText returns the error as one line, without the name of the library.
func errorText(err error) string {
	text := strings.TrimPrefix(err.Error(), "eventsource: ")
	return strings.ReplaceAll(text, "\n", "; ")
}

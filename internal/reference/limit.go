package reference

import (
	"bytes"
	"strings"
)

const (
	freeNames       = 4 << 10
	freeLastEventID = 32 << 10
)

// TooLarge applies the limit on the size of an event, which the standard does not
// have. If an event is too large, it returns the number of bytes before the line at
// which that shows: whatever [Decode] makes of them is what a decoder gives before it
// refuses the event.
//
// At every moment the limit holds for the sum of the line being read, the data lines
// of its block so far, what the type and the ID of the block have beyond 4 KiB, and
// what the last event ID has beyond 32 KiB. At the end of the block it holds for the
// data as decoded in place of the lines. Only lines of the four fields count.
func TooLarge(input []byte, lastEventID string, limit int) (before int, tooLarge bool) {
	var (
		data    []string // as sent
		typ, id string
		hasID   bool
		last    = lastEventID
	)
	beyond := func(size int) bool {
		size += max(0, len(typ)+len(id)-freeNames) + max(0, len(last)-freeLastEventID)
		return size > limit
	}
	start := 0
	if bytes.HasPrefix(input, []byte("\uFEFF")) {
		start = 3
	}
	for start < len(input) {
		length, whole := bytes.IndexAny(input[start:], "\r\n"), true
		if length < 0 {
			length, whole = len(input)-start, false
		}
		line := string(input[start : start+length])
		lines := strings.Join(data, "\n")
		if line == "" {
			if len(data) > 0 && beyond(len(decoded(lines))) {
				return start, true
			}
			if hasID {
				last = id
			}
			data, typ, id, hasID = nil, "", "", false
		}
		// What has no colon yet is not a name yet.
		if name, value, ok := field(line); ok && (whole || strings.Contains(line, ":")) {
			switch name {
			case "data", "event", "id", "retry":
				if beyond(len(line) + len(lines)) {
					return start, true
				}
			}
			switch {
			case name == "data":
				data = append(data, value)
			case name == "event":
				typ = decoded(value)
			case name == "id" && !strings.Contains(value, "\x00"):
				id, hasID = decoded(value), true
			}
			// A name may have grown.
			if (name == "event" || name == "id") && beyond(len(lines)) {
				return start, true
			}
		}
		start += length + 1
		if start < len(input) && input[start-1] == '\r' && input[start] == '\n' {
			start++
		}
	}
	return len(input), false
}

// decoded returns what the UTF-8 decoder makes of a value.
func decoded(value string) string {
	var b strings.Builder
	for _, s := range utf8Decode([]byte("x" + value)) { // the x, because a BOM is dropped only at the start of the input
		b.WriteRune(s.value)
	}
	return b.String()[1:]
}

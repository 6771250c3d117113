// Package reference holds a naive decoder, which the fuzz targets and the
// conformance tests compare with. To read a stream use package eventsource.
package reference

import (
	"math"
	"math/big"
	"strings"
	"time"
)

// An Event is an event that the standard's algorithm dispatches.
type Event struct {
	Type, Data, LastEventID string

	// Retry is the reconnection time in force when the event was dispatched; it
	// is meaningful if HasRetry is set.
	Retry    time.Duration
	HasRetry bool

	// End is the number of input bytes up to and including the line end that
	// dispatched the event; the LF of a CRLF does not count. A decoder that has read
	// that much does not have to wait for more.
	End int
}

// A Result is everything that the standard's algorithm finds in an input.
type Result struct {
	Events []Event

	// LastEventID is the last event ID string at the end.
	LastEventID string

	// Retry is the reconnection time at the end; it is meaningful if HasRetry is
	// set.
	Retry    time.Duration
	HasRetry bool

	// Truncated reports that what was discarded at the end of the input had a
	// data line, whole or cut.
	Truncated bool
}

// Decode interprets a whole event stream: HTML §9.2.5 and §9.2.6, and the UTF-8
// decode of the Encoding standard, transcribed step by step. It is slow and
// obvious on purpose, and shares no code with package eventsource.
//
// It departs from the text in two places, where the text is silent or no browser
// follows it. The last event ID buffer starts from lastEventID, not from the empty
// string. And "only ASCII digits" means at least one; a number of milliseconds that
// does not fit in a Duration is the longest one.
func Decode(input []byte, lastEventID string) Result {
	d := decoder{
		lastEventIDBuffer: lastEventID,
		lastEventIDString: lastEventID,
	}
	// HTML §9.2.6: streams must be decoded using the UTF-8 decode algorithm.
	text := utf8Decode(input)

	// HTML §9.2.6: the stream is parsed by reading lines, with a CRLF pair, a LF
	// not preceded by CR, and a CR not followed by LF being the ways in which a
	// line can end.
	var line []rune
	for i := 0; i < len(text); i++ {
		switch text[i].value {
		case '\r':
			d.line(line, text[i].end)
			line = nil
			if i+1 < len(text) && text[i+1].value == '\n' {
				i++
			}
		case '\n':
			d.line(line, text[i].end)
			line = nil
		default:
			line = append(line, text[i].value)
		}
	}

	// HTML §9.2.6: once the end of the file is reached, any pending data must be
	// discarded.
	name, _, _ := field(string(line))
	return Result{
		Events:      d.events,
		LastEventID: d.lastEventIDString,
		Retry:       d.reconnectionTime,
		HasRetry:    d.hasReconnectionTime,
		Truncated:   d.data.Len() > 0 || name == "data",
	}
}

type decoder struct {
	// HTML §9.2.6: a stream has a data buffer, an event type buffer, and a last
	// event ID buffer.
	data              strings.Builder
	eventType         string
	lastEventIDBuffer string

	// HTML §9.2.2: the event source's own last event ID string and reconnection
	// time.
	lastEventIDString   string
	reconnectionTime    time.Duration
	hasReconnectionTime bool

	events []Event
}

// line processes a line, in the order in which HTML §9.2.6 lists the cases.
func (d *decoder) line(runes []rune, end int) {
	line := string(runes)
	// If the line is empty (a blank line): dispatch the event.
	if line == "" {
		d.dispatch(end)
		return
	}
	// The three other cases, a line that starts with a colon among them.
	name, value, ok := field(line)
	if ok {
		d.field(name, value)
	}
}

// field splits a line that is not blank, as HTML §9.2.6 does. For a line that is to be
// ignored, ok is false.
func field(line string) (name, value string, ok bool) {
	// If the line starts with a U+003A COLON character (:): ignore the line.
	if strings.HasPrefix(line, ":") {
		return "", "", false
	}
	// If the line contains a U+003A COLON character (:):
	if colon := strings.Index(line, ":"); colon >= 0 {
		// The field is what is before the first colon, the value what is after.
		name, value = line[:colon], line[colon+1:]
		// If value starts with a U+0020 SPACE character, remove it from value.
		value = strings.TrimPrefix(value, " ")
		return name, value, true
	}
	// Otherwise: the whole line is the field name, the empty string the value.
	return line, "", true
}

// field processes a field, HTML §9.2.6.
func (d *decoder) field(name, value string) {
	switch name {
	case "event":
		// Set the event type buffer to the field value.
		d.eventType = value
	case "data":
		// Append the field value to the data buffer, then append a single U+000A
		// LINE FEED (LF) character to the data buffer.
		d.data.WriteString(value)
		d.data.WriteByte('\n')
	case "id":
		// If the field value does not contain U+0000 NULL, then set the last event
		// ID buffer to the field value. Otherwise, ignore the field.
		if !strings.ContainsRune(value, 0) {
			d.lastEventIDBuffer = value
		}
	case "retry":
		// If the field value consists of only ASCII digits, then interpret it as
		// an integer in base ten, and set the reconnection time to that integer.
		// Otherwise, ignore the field.
		if onlyASCIIDigits(value) {
			d.reconnectionTime, d.hasReconnectionTime = milliseconds(value), true
		}
	default:
		// Otherwise: the field is ignored.
	}
}

func onlyASCIIDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func milliseconds(digits string) time.Duration {
	n, _ := new(big.Int).SetString(digits, 10)
	n.Mul(n, big.NewInt(int64(time.Millisecond)))
	if n.Cmp(big.NewInt(math.MaxInt64)) > 0 {
		return math.MaxInt64
	}
	return time.Duration(n.Int64())
}

// dispatch is "dispatch the event", HTML §9.2.6, with its step numbers.
func (d *decoder) dispatch(end int) {
	// 1. Set the last event ID string of the event source to the value of the
	// last event ID buffer. The buffer does not get reset.
	d.lastEventIDString = d.lastEventIDBuffer
	// 2. If the data buffer is an empty string, set the data buffer and the event
	// type buffer to the empty string and return.
	data := d.data.String()
	if data == "" {
		d.eventType = ""
		return
	}
	// 3. If the data buffer's last character is a LF, then remove it.
	data = strings.TrimSuffix(data, "\n")
	// 4. and 5. The event's type is message, its data the data buffer, its
	// lastEventId the last event ID string.
	event := Event{
		Type:        "message",
		Data:        data,
		LastEventID: d.lastEventIDString,
		Retry:       d.reconnectionTime,
		HasRetry:    d.hasReconnectionTime,
		End:         end,
	}
	// 6. If the event type buffer has a value other than the empty string, change
	// the type to equal it.
	if d.eventType != "" {
		event.Type = d.eventType
	}
	// 7. Set the data buffer and the event type buffer to the empty string.
	d.data.Reset()
	d.eventType = ""
	// 8. Queue a task which dispatches the event.
	d.events = append(d.events, event)
}

// A scalar is a decoded scalar value, and the number of input bytes up to and including
// its last byte.
type scalar struct {
	value rune
	end   int
}

// utf8Decode is "UTF-8 decode" of the Encoding standard, §6: a byte order mark is
// dropped from the start, and the rest goes through the UTF-8 decoder.
func utf8Decode(input []byte) []scalar {
	start := 0
	if len(input) >= 3 && input[0] == 0xEF && input[1] == 0xBB && input[2] == 0xBF {
		start = 3
	}

	// The UTF-8 decoder, §8.1.1, with its variables and their initial values.
	const replacement = 0xFFFD
	var (
		text         []scalar
		codePoint    rune
		bytesSeen    int
		bytesNeeded  int
		lowerBound   byte = 0x80
		upperBound   byte = 0xBF
		restoreState      = func() {
			codePoint, bytesNeeded, bytesSeen = 0, 0, 0
			lowerBound, upperBound = 0x80, 0xBF
		}
	)
	for i := start; i < len(input); i++ {
		b := input[i]
		// 3. If UTF-8 bytes needed is 0:
		if bytesNeeded == 0 {
			switch {
			case b <= 0x7F:
				text = append(text, scalar{rune(b), i + 1})
			case 0xC2 <= b && b <= 0xDF:
				bytesNeeded = 1
				codePoint = rune(b & 0x1F)
			case 0xE0 <= b && b <= 0xEF:
				if b == 0xE0 {
					lowerBound = 0xA0
				}
				if b == 0xED {
					upperBound = 0x9F
				}
				bytesNeeded = 2
				codePoint = rune(b & 0xF)
			case 0xF0 <= b && b <= 0xF4:
				if b == 0xF0 {
					lowerBound = 0x90
				}
				if b == 0xF4 {
					upperBound = 0x8F
				}
				bytesNeeded = 3
				codePoint = rune(b & 0x7)
			default:
				text = append(text, scalar{replacement, i + 1})
			}
			continue
		}
		// 4. If byte is not in the range from the lower to the upper boundary:
		// reset everything, restore the byte to the input, and return error.
		if b < lowerBound || b > upperBound {
			restoreState()
			text = append(text, scalar{replacement, i})
			i--
			continue
		}
		// 5. to 7. Reset the boundaries, and take the byte's six bits.
		lowerBound, upperBound = 0x80, 0xBF
		codePoint = codePoint<<6 | rune(b&0x3F)
		bytesSeen++
		// 8. and 9. Once all needed bytes were seen, emit the code point.
		if bytesSeen == bytesNeeded {
			text = append(text, scalar{codePoint, i + 1})
			restoreState()
		}
	}
	// 1. The end of the input while bytes are needed is one error.
	if bytesNeeded != 0 {
		text = append(text, scalar{replacement, len(input)})
	}
	return text
}

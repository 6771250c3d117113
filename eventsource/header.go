package eventsource

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// Header names, in Go's canonical form.
const (
	headerAccept          = "Accept"
	headerAcceptEncoding  = "Accept-Encoding"
	headerAuthorization   = "Authorization"
	headerCacheControl    = "Cache-Control"
	headerContentEncoding = "Content-Encoding"
	headerContentType     = "Content-Type"
	headerCookie          = "Cookie"
	headerDate            = "Date"
	headerLastEventID     = "Last-Event-Id" // the standard writes Last-Event-ID
	headerPragma          = "Pragma"
	headerRetryAfter      = "Retry-After"
)

// defaultHeader holds the headers that every request has unless the caller sets
// them. HTML §9.2.2, the constructor, steps 10 and 11, asks for Accept and for the
// cache mode no-store, for which Fetch sends Cache-Control and Pragma. A compressed
// response is often held back until a block is full, so identity is asked for.
//
// Requests share these values, so nothing that sends a request may change them.
var defaultHeader = http.Header{
	headerAccept:         {"text/event-stream"},
	headerCacheControl:   {"no-cache"},
	headerPragma:         {"no-cache"},
	headerAcceptEncoding: {"identity"},
}

// setDefault adds to h what it lacks of defaultHeader.
func setDefault(h http.Header) {
	for name, values := range defaultHeader {
		if _, ok := h[name]; !ok {
			h[name] = values
		}
	}
}

// takeLastEventID removes the last event ID from h and returns it. The standard's
// spelling of the name is not Go's canonical form, so h may have it in that spelling
// too, if it was not set with Set.
func takeLastEventID(h http.Header) (id string) {
	for name, values := range h {
		if !strings.EqualFold(name, headerLastEventID) {
			continue
		}
		if len(values) > 0 && (id == "" || name == headerLastEventID) {
			id = values[0]
		}
		delete(h, name)
	}
	return id
}

// validHeaderValue reports whether HTTP can carry value (RFC 9110 §5.5, with the
// bytes above ASCII that UTF-8 needs).
func validHeaderValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// mimeEssence returns the essence of the MIME type of a response, in lower case,
// or "" if there is no valid one (Fetch, extract a MIME type). It does not look at
// parameters, because a malformed one does not make the type invalid; that is why
// mime.ParseMediaType would not do.
func mimeEssence(contentType []string) (essence string) {
	for value := range splitHeader(contentType) {
		// Mimesniff, parse a MIME type
		value, _, _ = strings.Cut(value, ";")
		value = strings.Trim(value, "\t\n\r ")
		typ, subtype, ok := strings.Cut(value, "/")
		if ok && isToken(typ) && isToken(subtype) && value != "*/*" {
			essence = strings.ToLower(value) // of tokens, which are ASCII
		}
	}
	return essence
}

// contentCodings are those of IANA's registry but identity, and whether this package can
// decode them.
var contentCodings = map[string]bool{
	"gzip": true, "x-gzip": true,
	"aes128gcm": false, "br": false, "compress": false, "dcb": false, "dcz": false, "deflate": false,
	"exi": false, "pack200-gzip": false, "x-compress": false, "zstd": false,
}

// contentCoding returns the content codings of a response, in lower case and joined with
// a comma, and whether this package can decode them. What is not a coding, such as the
// none or utf-8 of a careless server, is ignored, as in Fetch, handle content codings.
func contentCoding(h http.Header) (coding string, decodable bool) {
	decodable = true
	for value := range splitHeader(h.Values(headerContentEncoding)) {
		value = strings.ToLower(value)
		known, ok := contentCodings[value]
		switch {
		case !ok:
			continue
		case coding != "":
			coding, decodable = coding+", "+value, false
		default:
			coding, decodable = value, known
		}
	}
	return coding, decodable
}

// splitHeader yields the values of a header: its lines joined and split again at
// the commas outside quotes (Fetch, get, decode, and split).
func splitHeader(lines []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		joined := strings.Join(lines, ", ")
		start, quoted := 0, false
		for i := 0; i < len(joined); i++ {
			switch c := joined[i]; {
			case c == '"':
				quoted = !quoted
			case c == '\\' && quoted:
				i++
			case c == ',' && !quoted:
				if !yield(strings.Trim(joined[start:i], "\t ")) {
					return
				}
				start = i + 1
			}
		}
		yield(strings.Trim(joined[start:], "\t "))
	}
}

// retryAfter returns the wait that the Retry-After headers of a refusal ask for,
// the longest if there are several (RFC 9110 §10.2.3). A date counts from the
// response's own Date, if there is one, so that the clocks of the two hosts need
// not agree, and else from now.
func retryAfter(h http.Header, now time.Time) (wait time.Duration) {
	for _, value := range h.Values(headerRetryAfter) {
		if d, ok := parseDuration(value, time.Second); ok {
			wait = max(wait, d)
			continue
		}
		date, err := http.ParseTime(value)
		if err != nil {
			continue
		}
		if sent, err := http.ParseTime(h.Get(headerDate)); err == nil {
			wait = max(wait, date.Sub(sent))
		} else {
			wait = max(wait, date.Sub(now))
		}
	}
	return wait
}

// parseDuration returns the duration that digits stands for: so many units, in one
// or more ASCII digits. A number that is too large for a Duration stands for the
// longest Duration. The unit is at least a millisecond.
func parseDuration[T string | []byte](digits T, unit time.Duration) (d time.Duration, ok bool) {
	// No number of milliseconds above this fits, nor one of any longer unit.
	const most = uint64(math.MaxInt64 / time.Millisecond)
	var n uint64
	for i := range len(digits) {
		c := digits[i] - '0'
		if c > 9 {
			return 0, false
		}
		if n <= most {
			n = 10*n + uint64(c)
		}
	}
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, len(digits) > 0
}

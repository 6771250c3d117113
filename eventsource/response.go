package eventsource

import (
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"time"
)

const (
	errorBodySize = 4 << 10
	errorBodyTime = time.Second
)

// eventStream checks that resp is an event stream (HTML §9.2.2, the constructor,
// step 15.3) and returns a reader of its decoded body, which reads from wire; or it
// tells why it is none.
func eventStream(resp *http.Response, wire io.Reader) (source io.Reader, why string) {
	answered := "the server answered " + statusText(resp.StatusCode)
	if resp.StatusCode != http.StatusOK {
		return nil, answered + " instead of an event stream"
	}
	contentType := resp.Header.Values(headerContentType)
	if len(contentType) == 0 {
		return nil, answered + " without a Content-Type, not with text/event-stream"
	}
	switch essence := mimeEssence(contentType); essence {
	case "text/event-stream":
	case "":
		return nil, answered + " with a Content-Type that is not valid, not with text/event-stream"
	default:
		return nil, answered + " with the type " + shortened(essence) + ", not with text/event-stream"
	}
	switch coding := contentCoding(resp.Header); coding {
	case "":
		return wire, ""
	case "gzip", "x-gzip":
		return &gunzip{source: wire}, ""
	default:
		return nil, answered + " in a content coding that cannot be decoded; only gzip can"
	}
}

// reject reads the start of the body of a response that is no event stream. It
// lets the connection be used again if that is all of it.
func (a *attempt) reject(resp *http.Response, why string) *ResponseError {
	timer := a.stream.client.Clock.AfterFunc(errorBodyTime, func() { a.cancel(context.Canceled) })
	defer timer.Stop()
	body, _ := io.ReadAll(io.LimitReader(a.body, errorBodySize))
	return &ResponseError{
		StatusCode:  resp.StatusCode,
		ContentType: strings.Join(resp.Header.Values(headerContentType), ", "),
		Header:      resp.Header,
		Body:        body,
		text:        why,
	}
}

// mimeEssence returns the essence of the MIME type of a response, in lower case,
// or "" if there is no valid one (Fetch, extract a MIME type). Parameters
// are not looked at: whatever they are worth, they do not make a type invalid,
// which is why mime.ParseMediaType would not do.
func mimeEssence(contentType []string) (essence string) {
	for value := range splitHeader(contentType) {
		// Mimesniff, parse a MIME type
		value, _, _ = strings.Cut(value, ";")
		value = strings.ToLower(strings.Trim(value, "\t\n\r "))
		typ, subtype, ok := strings.Cut(value, "/")
		if ok && isToken(typ) && isToken(subtype) && value != "*/*" {
			essence = value
		}
	}
	return essence
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

// contentCoding returns the codings of a response in lower case, identity left
// out and several joined with a comma.
func contentCoding(h http.Header) string {
	var codings []string
	for coding := range splitHeader(h.Values("Content-Encoding")) {
		if coding = strings.ToLower(coding); coding != "" && coding != "identity" {
			codings = append(codings, coding)
		}
	}
	return strings.Join(codings, ",")
}

// A gunzip decodes a body that the caller asked to have compressed. It reads the
// header of the format when it is first read from, so that a stream opens, and
// its idle time runs, before the first byte has come. What the server has flushed
// is returned without waiting for more: not for the next member either, of which
// some servers make one for each event.
type gunzip struct {
	source  io.Reader
	input   *bufio.Reader // from source
	member  *gzip.Reader  // from input
	started bool          // the member's header has been read, and not yet its end
}

func (g *gunzip) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		if !g.started {
			if err := g.begin(); err != nil {
				return 0, err
			}
		}
		n, err = g.member.Read(p)
		if err == io.EOF {
			g.started, err = false, nil
		}
	}
	return n, err
}

// begin reads the header of the next member. It returns io.EOF if there is none.
func (g *gunzip) begin() (err error) {
	if g.member == nil {
		g.input, g.member = bufio.NewReader(g.source), new(gzip.Reader)
	}
	if err := g.member.Reset(g.input); err != nil {
		return err
	}
	g.member.Multistream(false) // else Read would read the next header before it returns
	g.started = true
	return nil
}

// retryAfter returns the wait that the Retry-After headers of a refusal ask for,
// the longest if there are several (RFC 9110 §10.2.3). A number of seconds
// saturates; a date counts from the response's own Date, if it has one, so that
// the clocks of the two hosts need not agree.
func retryAfter(h http.Header) (wait time.Duration) {
	for _, value := range h.Values("Retry-After") {
		if d, ok := parseSeconds(value); ok {
			wait = max(wait, d)
			continue
		}
		date, err := http.ParseTime(value)
		if err != nil {
			continue
		}
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		wait = max(wait, date.Sub(now))
	}
	return wait
}

func parseSeconds(s string) (time.Duration, bool) {
	const limit = math.MaxInt64 / time.Second
	var n time.Duration
	for i := range len(s) {
		digit := s[i] - '0'
		if digit > 9 {
			return 0, false
		}
		if n = n*10 + time.Duration(digit); n > limit {
			n = limit + 1
		}
	}
	if n > limit {
		return math.MaxInt64, s != ""
	}
	return n * time.Second, s != ""
}

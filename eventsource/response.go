package eventsource

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// The limits on reading the body of a response that is not an event stream.
const (
	errorBodySize = 4 << 10
	errorBodyTime = time.Second
)

// CheckResponse reports whether resp is an event stream that a [Client] can read: its
// status is 200, its type text/event-stream, and its content coding, if it has one, is
// gzip. It returns nil if so, and else a [*ResponseError] that says what is wrong. That
// has no Body, as resp.Body is not read and stays the caller's.
//
// It is for a caller who has received a response and wants to know what it is before
// [Client.Adopt], for example because the server may also answer with JSON. There is no
// need to call it otherwise: a stream checks every response.
func CheckResponse(resp *http.Response) error {
	if e := checkResponse(resp); e != nil {
		return e
	}
	return nil
}

// checkResponse is CheckResponse (HTML §9.2.2, the constructor, step 15.3).
func checkResponse(resp *http.Response) *ResponseError {
	why := ""
	contentType := resp.Header.Values(headerContentType)
	essence := mimeEssence(contentType)
	coding, decodable := contentCoding(resp.Header)
	switch {
	case resp.StatusCode != http.StatusOK:
		why = "instead of an event stream"
	case len(contentType) == 0:
		why = "without a Content-Type, not with text/event-stream"
	case essence == "":
		why = "with a Content-Type that is not valid, not with text/event-stream"
	case essence != "text/event-stream":
		why = "with the type " + shortened(essence) + ", not with text/event-stream"
	case !decodable:
		why = "in the content coding " + shortened(coding) + ", which cannot be decoded; only gzip can"
	default:
		return nil
	}
	return &ResponseError{
		StatusCode:  resp.StatusCode,
		ContentType: strings.Join(contentType, ", "),
		Header:      resp.Header,
		text:        "the server answered " + statusText(resp.StatusCode) + " " + why,
	}
}

// decoded returns a reader of the content of resp, which has passed checkResponse. It
// reads the body through wire.
func decoded(resp *http.Response, wire io.Reader) io.Reader {
	if coding, _ := contentCoding(resp.Header); coding == "" {
		return wire
	}
	return &gunzip{source: wire}
}

// refusalBody reads the start of the body of a response that is not an event stream. If
// that is the whole body, the connection can be used again.
func (a *attempt) refusalBody() []byte {
	timer := a.stream.clock.AfterFunc(errorBodyTime, func() { a.cancel(context.Canceled) })
	defer timer.Stop()
	body, _ := io.ReadAll(io.LimitReader(a.body, errorBodySize))
	return body
}

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

// eventStream checks that resp is an event stream (HTML §9.2.2, the constructor,
// step 15.3). It returns a reader of the body without its content coding, which reads
// from wire; or it tells why the response is not an event stream.
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

// reject reads the start of the body of a response that is not an event stream. If
// that is the whole body, the connection can be used again.
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

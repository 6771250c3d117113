package eventsource

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

const (
	headerAccept         = "Accept"
	headerAcceptEncoding = "Accept-Encoding"
	headerCacheControl   = "Cache-Control"
	headerContentType    = "Content-Type"
	headerLastEventID    = "Last-Event-Id" // the canonical form of Last-Event-ID
	headerPragma         = "Pragma"
)

// defaultHeader is what an attempt's request has unless the caller's has it. HTML
// §9.2.2, the constructor, steps 10 and 11: Accept, and the cache mode no-store, for
// which Fetch sends the next two. A compressed response is apt to be held back until
// a block is full.
//
// Requests share these values: who may send a request must not change it.
var defaultHeader = http.Header{
	headerAccept:         {"text/event-stream"},
	headerCacheControl:   {"no-cache"},
	headerPragma:         {"no-cache"},
	headerAcceptEncoding: {"identity"},
}

// idempotencyKeys are the headers that make net/http, and so this package, take a
// request of any method for repeatable.
var idempotencyKeys = [...]string{"Idempotency-Key", "X-Idempotency-Key"}

// An unsendableError reports a request that cannot be sent as it is.
type unsendableError struct {
	what string
	err  error // may be nil; its text may hold secrets and is not shown
}

func (e *unsendableError) Error() string { return errorPrefix + "cannot send the request: " + e.what }
func (e *unsendableError) Unwrap() error { return e.err }

// newRequest returns the request of this attempt: a clone of the caller's,
// completed and prepared. It finds out whether it may be sent once more.
func (a *attempt) newRequest() (*http.Request, error) {
	s := a.stream
	if s.unsendable != nil {
		a.futile = true
		return nil, s.unsendable
	}
	id := s.LastEventID()
	if !validHeaderValue(id) {
		a.futile = true
		return nil, ErrUnsendableID
	}

	req := s.request.WithContext(a.watchResends())
	if req.Header = req.Header.Clone(); req.Header == nil {
		req.Header = make(http.Header)
	}
	setDefault(req.Header)
	// HTML §9.2.3, reestablish the connection, step 5.3
	takeLastEventID(req.Header)
	if id != "" {
		req.Header[headerLastEventID] = []string{id}
	}

	if s.client.Prepare != nil {
		req = req.Clone(req.Context()) // all of it may be edited
	}

	body, err := s.attemptBody()
	if err != nil {
		a.futile = true
		return nil, err
	}
	req.Body = nil
	if body != nil {
		req.Body, a.unsent = body, body
	}
	if s.client.Prepare != nil {
		if err := s.client.Prepare(req); err != nil {
			return nil, wrapOwnError("preparing the request", err)
		}
	}
	if body == nil && req.Body == nil && hasBody(s.request) {
		a.futile = true
		return nil, ErrNotReplayable
	}
	if err := sendable(req); err != nil {
		a.futile = true
		return nil, err
	}
	prepared := body == nil || req.Body != io.ReadCloser(body)
	s.repeatable = idempotent(req) && (prepared || s.request.GetBody != nil)
	return req, nil
}

// takeLastEventID takes the last event ID out of h and returns it. The standard's
// spelling of the header is not the canonical one of Go, so h may have it in that
// form too, if it was not made with Set.
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

// setDefault completes h with defaultHeader.
func setDefault(h http.Header) {
	for name, values := range defaultHeader {
		if _, ok := h[name]; !ok {
			h[name] = values
		}
	}
}

// A requestBody is the body of one attempt as this package set it, which tells
// it from one that Prepare set.
type requestBody struct {
	io.ReadCloser
	read bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.read = true
	return b.ReadCloser.Read(p)
}

// attemptBody returns the body for the next attempt; nil if the request has none,
// or none any more.
func (s *Stream) attemptBody() (*requestBody, error) {
	switch {
	case !hasBody(s.request):
		return nil, nil
	case s.request.GetBody != nil:
		body, err := s.request.GetBody()
		if err != nil {
			own := wrapOwnError(unprefixed(ErrNotReplayable)+": GetBody", err)
			return nil, &wrappedError{own.Error(), errors.Join(ErrNotReplayable, err)}
		}
		return &requestBody{ReadCloser: body}, nil
	case s.bodySent:
		return nil, nil
	default:
		return &requestBody{ReadCloser: s.request.Body}, nil
	}
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// handOver notes that req is about to be given to net/http, which closes its body.
func (a *attempt) handOver(req *http.Request) {
	if a.unsent == nil || req.Body != io.ReadCloser(a.unsent) {
		return
	}
	a.unsent = nil
	if a.stream.request.GetBody == nil {
		a.stream.bodySent = true
	}
}

// dropUnsent closes the body that this attempt made and did not send. The one
// that the request came with stays, for the next attempt or for finish, unless
// Prepare has read of it.
func (a *attempt) dropUnsent() {
	if a.unsent == nil {
		return
	}
	switch {
	case a.stream.request.GetBody != nil:
		a.unsent.Close()
	case a.unsent.read:
		a.stream.bodySent = true
		a.unsent.Close()
	}
	a.unsent = nil
}

// idempotent is net/http's rule for requests that may be sent again.
func idempotent(req *http.Request) bool {
	ok := false
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		ok = true
	}
	for _, name := range idempotencyKeys {
		values, present := req.Header[name]
		if !present {
			continue
		}
		ok = true
		if strings.Join(values, "") == "" {
			// net/http takes an empty key for a mark that is not to be sent, but
			// leaves out only an empty slice.
			req.Header[name] = []string{}
		}
	}
	return ok
}

// sendable finds what net/http would refuse on every attempt.
func sendable(req *http.Request) error {
	switch {
	case req.URL == nil:
		return &unsendableError{what: "it has no URL"}
	case req.URL.Scheme == "":
		return &unsendableError{what: "the URL has no scheme; it must begin with http:// or https://"}
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return &unsendableError{what: fmt.Sprintf("the URL's scheme is %q, not http or https", req.URL.Scheme)}
	case req.URL.Host == "":
		return &unsendableError{what: "the URL names no host"}
	case strings.ContainsFunc(req.URL.RequestURI(), isControl):
		return &unsendableError{what: "the URL holds a control character"}
	case req.RequestURI != "":
		return &unsendableError{what: "its RequestURI is set, as in requests that a server has received"}
	case req.Method != "" && !isToken(req.Method):
		return &unsendableError{what: "its method is not a valid HTTP method"}
	case req.Body == nil && req.ContentLength > 0:
		return &unsendableError{what: "it has a ContentLength and no Body"}
	}
	for name, values := range req.Header {
		if !isToken(name) {
			return &unsendableError{what: "the name of a header is not valid"}
		}
		for _, value := range values {
			if !validHeaderValue(value) {
				return &unsendableError{what: fmt.Sprintf("the value of header %s holds a control character", name)}
			}
		}
	}
	return nil
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

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// isToken reports whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// requestError adds to an error of http.Client.Do what was asked for, without the
// parts of the URL that may be secret.
func requestError(req *http.Request, err error) error {
	target := req.URL
	if ue := (*url.Error)(nil); errors.As(err, &ue) {
		if u, perr := url.Parse(ue.URL); perr == nil && u.Host != "" {
			target = u // where redirects had led
		}
		err = ue.Err
	}
	return wrapError(method(req)+" "+redactedURL(target), err)
}

func method(req *http.Request) string {
	if req.Method == "" {
		return http.MethodGet
	}
	return req.Method
}

// redactedURL returns u without user info, query and fragment.
func redactedURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	return shortened((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String())
}

package eventsource

import (
	"fmt"
	"net/http"
	"strings"
)

// An unsendableError reports a request that cannot be sent as it is.
type unsendableError struct {
	what string
	err  error // may be nil; its text may hold secrets and is not shown
}

func (e *unsendableError) Error() string { return errorPrefix + "cannot send the request: " + e.what }
func (e *unsendableError) Unwrap() error { return e.err }

// newRequest returns the request of this attempt: a clone of the caller's with this
// package's headers, edited by Client.Prepare.
func (a *attempt) newRequest() (*http.Request, error) {
	s := a.stream
	id := s.LastEventID()
	if !validHeaderValue(id) {
		a.permanent = true
		return nil, ErrUnsendableID
	}

	ctx := a.ctx
	if s.suspected == nil {
		ctx = a.watched(ctx, &a.guard, nil)
	} // else freshTransport watches each of its rounds
	req := s.replay.request.WithContext(ctx)
	if req.Header = req.Header.Clone(); req.Header == nil {
		req.Header = make(http.Header)
	}
	setDefault(req.Header)
	// HTML §9.2.3, reestablish the connection, step 5.3.
	takeLastEventID(req.Header)
	if id != "" {
		req.Header[headerLastEventID] = []string{id}
	}

	if s.prepare != nil {
		req = req.Clone(req.Context()) // Prepare may edit all of it
	}

	if err := s.replay.lend(req); err != nil {
		a.permanent = true
		return nil, err
	}
	if s.prepare != nil {
		if err := s.prepare(req); err != nil {
			if unsendable, ok := err.(*unsendableError); ok { // see Get
				a.permanent = true
				return nil, unsendable
			}
			return nil, wrapOwnError("preparing the request", err)
		}
	}
	if s.replay.lacksBody(req) {
		a.permanent = true
		return nil, ErrNotReplayable
	}
	if err := sendable(req); err != nil {
		a.permanent = true
		return nil, err
	}
	s.replay.prepared(req)
	return req, nil
}

// sendable returns an error if net/http would refuse req on every attempt.
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

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// method returns the method of req, which may be empty in req itself.
func method(req *http.Request) string {
	if req.Method == "" {
		return http.MethodGet
	}
	return req.Method
}

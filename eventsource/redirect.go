package eventsource

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// checkRedirect returns the CheckRedirect of an attempt's request. Unless the caller
// has one of their own, it allows as many redirects as Fetch does. In either case the
// headers that the caller added do not go to another host: net/http copies the first
// request's headers at each hop, and drops only those that it knows to be secret.
func (a *attempt) checkRedirect(own func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		a.guard.sent.Store(false) // a redirect is a response
		if leftHost(req, via) {
			stripHeader(req)
		}
		if own != nil {
			return own(req, via)
		}
		if len(via) > maxRedirects {
			return errTooManyRedirects
		}
		return nil
	}
}

var errTooManyRedirects = errors.New("stopped after 20 redirects")

// leftHost reports whether req or a hop before it left the host name of the first
// request, or left https for http.
func leftHost(req *http.Request, via []*http.Request) bool {
	first := via[0].URL
	for _, hop := range via[1:] {
		if foreign(hop.URL, first) {
			return true
		}
	}
	return foreign(req.URL, first)
}

// foreign reports whether what the caller added to a request for first must not be
// sent to u.
func foreign(u, first *url.URL) bool {
	return !strings.EqualFold(u.Hostname(), first.Hostname()) || first.Scheme == "https" && u.Scheme != "https"
}

// stripHeader removes the headers that this package does not set itself. That
// includes Referer, which carries the query of the previous URL.
func stripHeader(req *http.Request) {
	for name := range req.Header {
		switch name {
		case headerAccept, headerAcceptEncoding, headerCacheControl, headerPragma, headerLastEventID:
		case headerContentType:
			if req.Body == nil {
				delete(req.Header, name)
			}
		default:
			delete(req.Header, name)
		}
	}
}

package eventsource

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// checkRedirect returns the CheckRedirect of an attempt's request. Unless the caller
// has one of their own, it allows as many redirects as Fetch does. In either case the
// headers that the caller added go along on the same host and do not go to another:
// net/http copies the first request's headers at each hop, drops only those that it
// knows to be secret, and takes another spelling of a host for another host.
//
// A request that may be sent again because of its idempotency key may not be once it
// has gone to a server that does not get the key.
func (a *attempt) checkRedirect(own func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		a.guard.sent.Store(false) // a redirect is a response
		if leftHost(req, via) {
			stripHeader(req)
		} else {
			restoreSecrets(req, via)
		}
		err := errTooManyRedirects
		switch {
		case own != nil:
			err = own(req, via)
		case len(via) <= maxRedirects:
			err = nil
		}
		if err == nil && !idempotent(req) {
			a.stream.replay.repeatable = false
		}
		return err
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
	return hostName(u) != hostName(first) || first.Scheme == "https" && u.Scheme != "https"
}

// hostName returns the host name of u in the form in which it is looked up: in lower
// case, and an internationalized one in ASCII.
func hostName(u *url.URL) string {
	name := u.Hostname()
	if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }) {
		if ascii, ok := asciiHost(name); ok {
			name = ascii
		}
	}
	return strings.ToLower(name)
}

// asciiHost returns a host name as net/http writes it into a request, which is its
// form in ASCII (RFC 5891); net/http has no other way to ask for that.
func asciiHost(name string) (ascii string, ok bool) {
	var b bytes.Buffer
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: name}}
	if err := req.Write(&b); err != nil {
		return "", false
	}
	written, err := http.ReadRequest(bufio.NewReader(&b))
	if err != nil {
		return "", false
	}
	return written.Host, true
}

// secretHeaders are those that net/http does not send to another host.
var secretHeaders = [...]string{
	headerAuthorization, headerCookie, "Cookie2", "Proxy-Authenticate", "Proxy-Authorization", "Www-Authenticate",
}

// restoreSecrets gives req, whose host is that of the first request, what net/http has
// dropped because it or a hop before it spelt the host differently.
func restoreSecrets(req *http.Request, via []*http.Request) {
	first := via[0]
	respelt := req.URL.Hostname() != first.URL.Hostname()
	for _, hop := range via[1:] {
		respelt = respelt || hop.URL.Hostname() != first.URL.Hostname()
	}
	if !respelt {
		return // what is missing, such as a cookie that was replaced, should be
	}
	for _, name := range secretHeaders {
		values, had := first.Header[name]
		if _, has := req.Header[name]; had && !has {
			req.Header[name] = values
		}
	}
}

// stripHeader removes the headers that this package does not set itself. That
// includes Referer, which carries the query of the previous URL.
func stripHeader(req *http.Request) {
	for name := range req.Header {
		switch name {
		case headerAccept, headerAcceptEncoding, headerCacheControl, headerPragma, headerLastEventID:
		case headerContentType:
			if req.Body == nil || req.Body == http.NoBody {
				delete(req.Header, name)
			}
		default:
			delete(req.Header, name)
		}
	}
}

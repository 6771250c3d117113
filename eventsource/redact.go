package eventsource

import (
	"errors"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// This file makes the texts of errors and log records safe to show: it leaves out
// what may be secret, and it shortens what a server may have made long.

// A wrappedError tells what was being done when an error came from elsewhere. Its
// text leaves out what may be secret; it unwraps to the error itself.
type wrappedError struct {
	text string
	err  error
}

func (e *wrappedError) Error() string { return e.text }
func (e *wrappedError) Unwrap() error { return e.err }

// wrapError wraps an error of net/http, or of what the caller plugged into it.
func wrapError(doing string, err error) error {
	return &wrappedError{errorPrefix + doing + ": " + redact(err), err}
}

// wrapOwnError wraps an error of one of the caller's own functions. What such an
// error quotes does not come from the peer, so the text keeps it.
func wrapOwnError(doing string, err error) error {
	return &wrappedError{errorPrefix + doing + ": " + redactQuotes(unprefixed(err), true), err}
}

// requestError adds the method and the URL of the request to an error of
// http.Client.Do.
func requestError(req *http.Request, err error) error {
	target := req.URL
	if ue := (*url.Error)(nil); errors.As(err, &ue) {
		if u, perr := url.Parse(ue.URL); perr == nil && u.Host != "" {
			target = u // where redirects led
		}
		err = ue.Err
	}
	return wrapError(method(req)+" "+redactedURL(target), err)
}

// redact returns the text of an error of net/http without header values and
// without the user info, query and fragment of URLs. Such a text quotes what came
// from the peer, so redact leaves out everything in quotes that is not a URL.
func redact(err error) string {
	text := unprefixed(err)
	if pe := textproto.ProtocolError(""); errors.As(err, &pe) {
		return "the header of the response is malformed" // the text shows a line of it without quotes
	}
	if strings.HasPrefix(text, "failed to parse Location header") {
		return "the Location of the redirect is not a valid URL"
	}
	return redactQuotes(text, false)
}

// redactQuotes redacts the URLs in text, in quotes or not. Anything else in quotes
// stays only if keep is set.
func redactQuotes(text string, keep bool) string {
	var b strings.Builder
	for {
		quote := strings.IndexByte(text, '"')
		if quote < 0 {
			return b.String() + redactURLs(text)
		}
		b.WriteString(redactURLs(text[:quote]))
		text = text[quote:]
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			quoted = text // it has no end
		}
		text = text[len(quoted):]
		content, err := strconv.Unquote(quoted)
		u, urlErr := url.Parse(content)
		switch {
		case err == nil && urlErr == nil && u.Host != "":
			b.WriteString(strconv.Quote(redactedURL(u)))
		case keep && !strings.Contains(quoted, "://"):
			b.WriteString(quoted)
		default:
			b.WriteString("…")
		}
	}
}

// redactURLs redacts the URLs in a text without quotes.
func redactURLs(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "://")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("://")
		end := strings.IndexFunc(after, func(r rune) bool { return r <= ' ' || strings.ContainsRune("'<>`", r) })
		if end < 0 {
			end = len(after)
		}
		target := after[:end]
		if i := strings.IndexAny(target, "?#"); i >= 0 {
			target = target[:i] + "?…"
		}
		authority, _, _ := strings.Cut(target, "/")
		if i := strings.LastIndexByte(authority, '@'); i >= 0 {
			target = target[i+1:]
		}
		b.WriteString(target)
		text = after[end:]
	}
}

// redactedURL returns u without user info, query and fragment.
func redactedURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	return shortened((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String())
}

// maxQuoted is how many bytes of a URL or a media type a text shows. A server may
// send either in any size that net/http accepts for a header, and texts end up in
// logs.
const maxQuoted = 512

// shortened returns s, or the first maxQuoted bytes of it.
func shortened(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
}

package eventsource

import (
	"errors"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// This file makes the texts of errors and logs safe to show: without what may be
// secret, and no longer than they have to be.

// A wrappedError adds what was being done to an error from elsewhere. Its text
// leaves out what may be secret; the cause unwraps as it was.
type wrappedError struct {
	text string
	err  error
}

func (e *wrappedError) Error() string { return e.text }
func (e *wrappedError) Unwrap() error { return e.err }

// wrapError is for errors of net/http, and of what the caller plugged into it.
func wrapError(doing string, err error) error {
	return &wrappedError{errorPrefix + doing + ": " + redact(err), err}
}

// wrapOwnError is for errors of the caller's own functions, whose quotations are
// the caller's too.
func wrapOwnError(doing string, err error) error {
	return &wrappedError{errorPrefix + doing + ": " + redactQuotes(unprefixed(err), true), err}
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

// redact returns the text of an error of net/http without header values and
// without the user info, query and fragment of URLs. What came from the peer such a
// text has in quotes, so of those it keeps none.
func redact(err error) string {
	text := unprefixed(err)
	if pe := textproto.ProtocolError(""); errors.As(err, &pe) {
		return "the header of the response is malformed" // the text has a line of it, not in quotes
	}
	if strings.HasPrefix(text, "failed to parse Location header") {
		return "the Location of the redirect is not a valid URL"
	}
	return redactQuotes(text, false)
}

// redactQuotes redacts the URLs of text. Of what stands in quotes, URLs stay in
// that form, and what is none only if keep is set.
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
			quoted = text // no end to it
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

// redactURLs redacts the URLs of a text that has no quotes.
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

// maxQuoted is how much of a URL or a type a text shows. A server may send either
// in any size that net/http takes for a header, and texts end up in logs.
const maxQuoted = 512

func shortened(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
}

package eventsource

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"

	"github.com/reprise-sse/reprise/policy"
)

// errResend is the cause of an attempt that net/http was about to repeat.
var errResend = errors.New("eventsource: the connection was lost before a response came")

// resendGuard keeps net/http from sending a request again on its own, as it does
// within milliseconds when a reused connection dies before the first byte of a
// response, and on HTTP/2 after REFUSED_STREAM and GOAWAY. That would break G1,
// and the policy would never hear of it.
//
// The mark of a resend is a look for a connection after the first header was
// written, with no byte of a response between. A first byte clears it, so redirects
// go on, and so does a RoundTripper that repeats a request after a 401.
//
// It is the first header because that precedes the first byte for certain: on
// HTTP/2, httptrace's WroteHeaders may come when the response is there already.
//
// HTTP/2 may refuse a request, and net/http then resends it, also after an
// informational response. So that sets the mark again, and as nothing tells of the
// response proper that follows, a redirect clears it. A RoundTripper that repeats a
// request after a 103 and a 401 on HTTP/2 cannot be told from a resend and fails.
type resendGuard struct {
	sent  atomic.Bool // a request was begun, and nothing was received since
	http2 atomic.Bool // it was HTTP/2's

	informational atomic.Int32 // how many informational responses came
}

// maxInformational is the most informational responses to one attempt. net/http
// limits their size, but not for who has a look at them, as the guard has.
const maxInformational = 100

var errInformational = errors.New("too many informational responses")

// watchResends returns the context of the attempt, made to end with a resend.
func (a *attempt) watchResends() context.Context {
	g := &a.guard
	return httptrace.WithClientTrace(a.ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.endIfResent() },
		GotConn: func(info httptrace.GotConnInfo) {
			// Cancelling alone can lose the race with the write. A connection of
			// HTTP/1.1 is this request's alone; one of HTTP/2 is shared.
			if a.endIfResent() && !g.isHTTP2(info) {
				info.Conn.Close()
			}
		},
		WroteHeaderField: func(name string, _ []string) {
			switch {
			case strings.HasPrefix(name, ":"):
				g.http2.Store(true)
				g.sent.Store(true)
			case name == "Host": // HTTP/1.1's first
				g.sent.Store(true)
			}
		},
		GotFirstResponseByte: func() { g.sent.Store(false) },
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			if g.http2.Load() {
				g.sent.Store(true)
			}
			if g.informational.Add(1) > maxInformational {
				return errInformational
			}
			return nil
		},
	})
}

func (a *attempt) endIfResent() (resend bool) {
	if !a.guard.sent.Load() {
		return false
	}
	a.cancel(&interruption{policy.Failed, errResend})
	return true
}

// isHTTP2 reports whether a connection may be HTTP/2's. Only TLS tells for
// certain; without it a request that began in HTTP/2 is taken to go on so.
func (g *resendGuard) isHTTP2(info httptrace.GotConnInfo) bool {
	if c, ok := info.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return c.ConnectionState().NegotiatedProtocol == "h2"
	}
	return g.http2.Load()
}

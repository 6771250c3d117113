package eventsource

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"

	"github.com/reprise-sse/reprise/policy"
)

// errResend is why an attempt ended whose request net/http was about to send again.
var errResend = errors.New("eventsource: the connection was lost before a response came")

// resendGuard keeps net/http from sending a request again on its own, as it does
// within milliseconds when a reused connection dies before the first byte of a
// response, and on HTTP/2 after REFUSED_STREAM and GOAWAY. That would break G1,
// and the policy would never hear of it.
//
// net/http is resending if it looks for a connection after the first header was
// written and before any byte of a response has come: then sent is set.
//
//	             first header, or
//	         a 1xx response of HTTP/2
//	not sent -------------------------> sent ---> looks for a connection: a resend
//	    ^                                |
//	    +--------------------------------+
//	      first byte of a response, or
//	        a redirect is followed
//
// A first byte clears sent, so redirects work, and so does a RoundTripper that
// repeats a request after a 401.
//
// The guard watches for the first header because it certainly precedes the first
// byte. On HTTP/2, httptrace may call WroteHeaders when the response is already
// there.
//
// HTTP/2 may refuse a request even after an informational response, and net/http
// then resends it. So an informational response sets sent again. Nothing reports the
// final response that follows it, so a redirect has to clear sent itself. A
// RoundTripper that repeats a request after a 103 and a 401 on HTTP/2 looks like a
// resend, and its attempt fails.
type resendGuard struct {
	sent  atomic.Bool // the request is begun, and nothing has been received since
	http2 atomic.Bool // the request was HTTP/2's

	informational atomic.Int32 // how many informational responses came
}

// maxInformational is the largest number of informational responses to one attempt.
// net/http limits their total size, except for a request whose trace has a
// Got1xxResponse, as this one has.
const maxInformational = 100

var errInformational = errors.New("too many informational responses")

// watched returns ctx with a trace that watches the connections of a request of the
// attempt: it ends the attempt when net/http is about to send the request again, and it
// leaves a connection that the round, if there is one, does not accept.
func (a *attempt) watched(ctx context.Context, g *resendGuard, r *round) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.endIfResent(g) },
		GotConn: func(info httptrace.GotConnInfo) {
			http2 := a.isHTTP2(g, info)
			switch {
			case a.endIfResent(g):
				// Cancelling alone may come too late to prevent the write. An HTTP/1.1
				// connection carries only this request; an HTTP/2 connection is shared.
				if !http2 {
					info.Conn.Close()
				}
			case r != nil && !r.accepts(info, http2):
				r.reject(info.Conn, http2)
			case http2:
				connections.use(a, info)
			}
		},
		WroteHeaderField: func(name string, _ []string) {
			switch {
			case strings.HasPrefix(name, ":"):
				g.http2.Store(true)
				g.begin(r)
			case name == "Host": // the first header of HTTP/1.1
				g.begin(r)
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

// begin notes that the request is being written.
func (g *resendGuard) begin(r *round) {
	g.sent.Store(true)
	if r != nil {
		r.begun.Store(true)
	}
}

// endIfResent ends the attempt if net/http is resending its request, and reports
// whether it is.
func (a *attempt) endIfResent(g *resendGuard) (resend bool) {
	if !g.sent.Load() {
		return false
	}
	a.cancel(&interruption{policy.Failed, errResend})
	return true
}

// isHTTP2 reports whether a connection may be an HTTP/2 connection. TLS tells for
// certain. Without it, a transport that is net/http's does, and a request that began on
// HTTP/2 is assumed to stay there.
func (a *attempt) isHTTP2(g *resendGuard, info httptrace.GotConnInfo) bool {
	if c, ok := info.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
		return c.ConnectionState().NegotiatedProtocol == "h2"
	}
	if t, ok := transport(a.stream.httpClient).(*http.Transport); ok && t.Protocols != nil {
		return t.Protocols.UnencryptedHTTP2() && !t.Protocols.HTTP1()
	}
	return g.http2.Load()
}

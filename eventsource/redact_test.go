package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// secret marks what no text of the library may show.
const secret = "s3cr3t"

// A secretRun is a stream with secrets everywhere, of which every text is kept.
type secretRun struct {
	request *http.Request
	client  eventsource.Client
	log     bytes.Buffer
	texts   []string
	ends    []policy.Attempt
}

// newSecretRun returns a run against a server of address.
func newSecretRun(t *testing.T, address string) *secretRun {
	t.Helper()
	r := &secretRun{}
	target := "http://" + secret + ":" + secret + "@" + address + "/path?" + secret + "=" + secret + "#" + secret
	r.request = request(t.Context(), t, target)
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "Mcp-Session-Id", "Last-Event-ID", "Proxy-Authorization", "Referer"} {
		r.request.Header.Set(name, "Bearer "+secret)
	}
	fake := clock.NewFake(time.Time{})
	trace := eventsource.LogTrace(slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})))(r.request)
	logEnd, logWait := trace.End, trace.Wait
	trace.End = func(a policy.Attempt) {
		logEnd(a)
		r.ends = append(r.ends, a)
		if a.Err != nil {
			r.texts = append(r.texts, a.Err.Error(), fmt.Sprintf("%+v", a.Err))
		}
	}
	trace.Wait = func(i eventsource.WaitInfo) {
		logWait(i)
		fake.Advance(i.Waited)
	}
	r.client = eventsource.Client{
		HTTPClient: &http.Client{Transport: &http.Transport{}}, Policy: policy.Constructor(twice), Clock: fake, Trace: traceOf(trace),
	}
	return r
}

// twice is Resilient for two attempts.
func twice() policy.Reconnector {
	resilient := policy.Resilient().New()
	return policy.Func(func(a policy.Attempt) policy.Decision {
		d := resilient.Next(a)
		if _, stopped := d.Stopped(); !stopped && a.Number == 2 {
			return policy.Stop(errEnough)
		}
		return d
	})
}

// run runs the stream to its end, which must be an error, and searches the texts.
func (r *secretRun) run(t *testing.T) error {
	t.Helper()
	_, err := collect(r.client.Stream(r.request))
	if err == nil {
		t.Fatal("the stream ended without an error")
	}
	r.client.HTTPClient.CloseIdleConnections()
	r.texts = append(r.texts, err.Error(), fmt.Sprintf("%+v", err), r.log.String())
	for _, text := range r.texts {
		for line := range strings.Lines(text) {
			if strings.Contains(line, secret) {
				t.Errorf("a secret in: %s", line)
				break
			}
		}
		if n := strings.Count(text, "eventsource: "); !strings.Contains(text, "\n") && n != 1 {
			t.Errorf("the prefix stands %d times in: %s", n, text)
		}
	}
	if len(r.ends) == 0 || r.log.Len() == 0 {
		t.Error("nothing was reported")
	}
	return err
}

// rawServer answers every request with the given bytes and closes the connection.
// In them %ADDRESS% is a host that refuses connections.
func rawServer(t *testing.T, answer string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answer = strings.ReplaceAll(answer, "%ADDRESS%", refusedAddress)
	answer = strings.ReplaceAll(answer, "%SELF%", listener.Addr().String())
	var serving sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 64<<10)); err != nil {
					return
				}
				io.WriteString(conn, answer)
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
			})
		}
	})
	return listener.Addr().String()
}

// refusedAddress is one that nobody listens on: the port is reserved.
const refusedAddress = "127.0.0.1:1"

// No text shows the query, user info, Authorization, cookies, other headers
// or IDs of the request, nor what a broken or hostile server has put into its
// response, nor credentials of a proxy: not the loop's error, not that of any
// attempt, and not the log.
func TestNoTextShowsSecrets(t *testing.T) {
	const (
		head     = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: " + secret + "\r\n"
		location = "HTTP/1.1 307 Temporary Redirect\r\nConnection: close\r\nContent-Length: 0\r\nLocation: "
	)
	for name, answer := range map[string]string{
		"status":            "HTTP/1.1 500 Internal Server Error\r\nWWW-Authenticate: " + secret + "\r\nContent-Length: 6\r\n\r\n" + secret,
		"reason":            "HTTP/1.1 403 " + secret + "\r\nContent-Length: 0\r\n\r\n",
		"type's parameters": "HTTP/1.1 200 OK\r\nContent-Type: text/html; x=" + secret + "\r\nContent-Length: 0\r\n\r\n",
		"invalid type":      "HTTP/1.1 200 OK\r\nContent-Type: " + secret + "\r\nContent-Length: 0\r\n\r\n",
		"coding":            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: " + secret + "\r\nContent-Length: 0\r\n\r\n",

		"events":         head + "\r\nid: " + secret + "\ndata: " + secret + "\n\nid: " + secret + "2\ndata: " + secret,
		"unsendable ID":  head + "\r\nid: " + secret + "\x01\ndata: x\n\n",
		"comments":       head + "\r\n: " + secret + "\nevent: " + secret + "\nretry: 1\n" + secret + "\n",
		"broken chunk":   head + "Transfer-Encoding: chunked\r\n\r\n" + secret + "\r\n",
		"broken trailer": head + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + secret + "\r\n\r\n",

		"no HTTP":              secret + "\r\n\r\n",
		"no HTTP, one line":    secret,
		"version":              "HTTP/" + secret + " 200 OK\r\n\r\n",
		"status code":          "HTTP/1.1 " + secret + "\r\n\r\n",
		"header line":          "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
		"header name":          "HTTP/1.1 200 OK\r\n" + secret + " x: y\r\n\r\n",
		"header name, control": "HTTP/1.1 200 OK\r\nSet-Cookie\x01: " + secret + "\r\n\r\n",
		"continued line":       "HTTP/1.1 200 OK\r\n " + secret + "\r\n\r\n",
		"control in a value":   "HTTP/1.1 200 OK\r\nSet-Cookie: " + secret + "\x00\r\n\r\n",
		"length":               head + "Content-Length: " + secret + "\r\n\r\n",
		"two lengths":          head + "Content-Length: 1\r\nContent-Length: 2" + secret + "\r\n\r\n",
		"transfer coding":      head + "Transfer-Encoding: " + secret + "\r\n\r\n",
		"header cut off":       "HTTP/1.1 200 OK\r\nSet-Cookie: " + secret,

		"redirect, refused":     location + "http://" + secret + ":" + secret + "@%ADDRESS%/?" + secret + "#" + secret + "\r\n\r\n",
		"redirect, no end":      location + "/?" + secret + "\r\n\r\n",
		"redirect, no URL":      location + "http://[" + secret + "\r\n\r\n",
		"redirect, bad escape":  location + "/%zz?" + secret + "\r\n\r\n",
		"redirect, bad host":    location + "http://" + secret + ":" + secret + "@a b/?" + secret + "\r\n\r\n",
		"redirect, bad port":    location + "http://" + secret + ":" + secret + "@a:b/?" + secret + "\r\n\r\n",
		"redirect, a space":     location + "http://%ADDRESS%/?a b=" + secret + " " + secret + "\r\n\r\n",
		"redirect, a quote":     location + "http://%ADDRESS%/?a=\"" + secret + "\"" + secret + "\r\n\r\n",
		"redirect, user, space": location + "http://a b:" + secret + "@%ADDRESS%/\r\n\r\n",
		"redirect, scheme":      location + "ftp://" + secret + ":" + secret + "@a/?" + secret + "\r\n\r\n",
		"redirect, opaque":      location + "mailto:" + secret + "\r\n\r\n",
		"redirect, no scheme":   location + "//" + secret + "@%ADDRESS%/?" + secret + "\r\n\r\n",
		"redirect, nowhere":     "HTTP/1.1 307 Temporary Redirect\r\nSet-Cookie: " + secret + "\r\nContent-Length: 0\r\n\r\n",
		"redirect, control":     location + "http://%ADDRESS%/?" + secret + "\x7f\r\n\r\n",
		"redirect, to no HTTP":  location + "http://user:" + secret + "@%SELF%/\x01" + secret + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newSecretRun(t, rawServer(t, answer))
			r.client.MaxEventSize = 1 << 20
			r.run(t)
		})
	}
}

// The same, where it is the client's own side that fails.
func TestNoTextShowsSecretsOfTheClient(t *testing.T) {
	quoted := "http://" + secret + ":" + secret + "@a.test/x?" + secret + "=" + secret
	leaky := fmt.Errorf("asking %s: %w", quoted, &url.Error{Op: "Get", URL: quoted, Err: errors.New("no route")})
	for name, edit := range map[string]func(*secretRun){
		"refused": func(*secretRun) {},
		"host": func(r *secretRun) {
			r.request.URL.Host = "a b"
		},
		"scheme": func(r *secretRun) { r.request.URL.Scheme = "ftp" },
		"opaque": func(r *secretRun) { r.request.URL = &url.URL{Scheme: "http", Opaque: secret, RawQuery: secret} },
		"no URL": func(r *secretRun) { r.request.URL = nil },
		"header": func(r *secretRun) { r.request.Header.Set("X-Api-Key", secret+"\n"+secret) },
		"header name": func(r *secretRun) {
			r.request.Header["X Api: "+secret] = []string{secret}
		},
		"stored ID": func(r *secretRun) { r.request.Header.Set("Last-Event-ID", secret+"\n") },
		"Prepare":   func(r *secretRun) { r.client.Prepare = func(*http.Request) error { return leaky } },
		"Prepare's query": func(r *secretRun) {
			r.client.Prepare = func(req *http.Request) error { req.URL.RawQuery = "token=" + secret; return nil }
		},
		"GetBody": func(r *secretRun) {
			r.request.Method, r.request.Body = "POST", io.NopCloser(strings.NewReader("x"))
			r.request.GetBody = func() (io.ReadCloser, error) { return nil, leaky }
		},
		"round tripper": func(r *secretRun) {
			r.client.HTTPClient.Transport = roundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, leaky })
		},
		"a quotation without an end": func(r *secretRun) {
			r.client.HTTPClient.Transport = roundTripperFunc(func(*http.Request) (*http.Response, error) {
				return nil, errors.New("malformed line \"x\" and \"" + secret + " " + secret)
			})
		},
		"body": func(r *secretRun) {
			r.client.HTTPClient.Transport = roundTripperFunc(func(*http.Request) (*http.Response, error) {
				return response(200, "text/event-stream", io.NopCloser(io.MultiReader(strings.NewReader("data: x"), iotest.ErrReader(leaky)))), nil
			})
		},
		"proxy": func(r *secretRun) {
			r.proxy(func(*http.Request) (*url.URL, error) {
				return url.Parse("http://" + secret + ":" + secret + "@" + refusedAddress)
			})
		},
		"proxy's scheme": func(r *secretRun) {
			r.proxy(func(*http.Request) (*url.URL, error) {
				return url.Parse("ftp://" + secret + ":" + secret + "@" + refusedAddress)
			})
		},
		"proxy's address": func(r *secretRun) {
			// In the words of http.ProxyFromEnvironment, for a variable without a scheme.
			r.proxy(func(*http.Request) (*url.URL, error) {
				return nil, fmt.Errorf("invalid proxy address %q: %v", secret+":"+secret+"@a b:3128", errors.New("invalid host"))
			})
		},
		"CheckRedirect": func(r *secretRun) {
			r.client.HTTPClient.CheckRedirect = func(*http.Request, []*http.Request) error { return leaky }
			r.client.HTTPClient.Transport = roundTripperFunc(func(*http.Request) (*http.Response, error) {
				resp := response(307, "", http.NoBody)
				resp.Header.Set("Location", quoted)
				return resp, nil
			})
		},
		"not repeatable": func(r *secretRun) {
			r.request.Method, r.request.Body = "POST", io.NopCloser(strings.NewReader(secret))
		},
		"deadline": func(r *secretRun) {
			ctx, cancel := context.WithTimeout(r.request.Context(), time.Second)
			context.AfterFunc(r.request.Context(), cancel)
			r.request = r.request.WithContext(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSecretRun(t, refusedAddress)
			edit(r)
			r.run(t)
		})
	}
}

func (r *secretRun) proxy(f func(*http.Request) (*url.URL, error)) {
	r.client.HTTPClient.Transport.(*http.Transport).Proxy = f
}

// What is hidden from the text is still there to unwrap, and what is no
// secret is still in the text.
func TestCauseUnwraps(t *testing.T) {
	r := newSecretRun(t, refusedAddress)
	err := r.run(t)
	var dial *net.OpError
	if !errors.As(err, &dial) || dial.Op != "dial" {
		t.Errorf("the cause of %v does not unwrap", err)
	}
	const want = "eventsource: the test has seen enough; attempt 2 failed: " +
		"GET http://127.0.0.1:1/path: dial tcp 127.0.0.1:1: connect: connection refused"
	if err.Error() != want {
		t.Errorf("the text is\n%s\nwant\n%s", err, want)
	}
}

// The name of the proxy, the type that was received and the place of a
// redirect are no secrets, and needed to find the fault.
func TestTextsStillTell(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"type": {
			"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n",
			"eventsource: the server answered 200 OK with the type text/plain, not with text/event-stream",
		},
		"place": {
			"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: http://%ADDRESS%/elsewhere?x\r\n\r\n",
			"eventsource: GET http://127.0.0.1:1/elsewhere: dial tcp 127.0.0.1:1: connect: connection refused",
		},
		"escaped place": {
			"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: http://%ADDRESS%/a%2Fb/c\r\n\r\n",
			"eventsource: GET http://127.0.0.1:1/a%2Fb/c: dial tcp 127.0.0.1:1: connect: connection refused",
		},
		"loop": {
			"HTTP/1.1 307 Temporary Redirect\r\nConnection: close\r\nContent-Length: 0\r\nLocation: /again\r\n\r\n",
			"eventsource: GET http://%SELF%/path: stopped after 20 redirects",
		},
		"no HTTP": {
			"hello\r\n\r\n",
			"eventsource: GET http://%SELF%/path: net/http: HTTP/1.x transport connection broken: malformed HTTP response …",
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := rawServer(t, c.answer)
			r := newSecretRun(t, address)
			r.client.Policy = policy.Never()
			err := r.run(t)
			if want := strings.ReplaceAll(c.want, "%SELF%", address); err.Error() != want {
				t.Errorf("the text is\n%s\nwant\n%s", err, want)
			}
		})
	}
}

// What a server has put in a header does not fill the logs, however much it is.
func TestTextsAreShort(t *testing.T) {
	const size = 1 << 20
	long := strings.Repeat("a", size)
	for name, script := range map[string]Step{
		"type":     Status{Header: http.Header{"Content-Type": {long + "/b"}}},
		"location": Status{Code: http.StatusFound, Header: http.Header{"Location": {"ftp://server.test/" + long}}},
		"host":     Status{Code: http.StatusFound, Header: http.Header{"Location": {"ftp://" + strings.Repeat("é", size) + "/"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := serve(t, []Step{script, End})
				s := play(t, srv, eventsource.Client{Policy: policy.Never()})
				if s.err == nil || len(s.err.Error()) > 1024 || !utf8.ValidString(s.err.Error()) {
					t.Errorf("the text is %.1000q", s.err)
				}
			})
		})
	}
}

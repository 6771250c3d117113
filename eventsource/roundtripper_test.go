package eventsource_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reprise-sse/reprise/eventsource"
)

// A roundTripper stands in for a transport where a test wants what no server of
// eventsourcetest can bring about: errors of its own choosing, bodies that are not
// net/http's. It answers the n-th request, from 0, by calling the n-th function, and
// every later one by calling the last.
type roundTripper struct {
	mu       sync.Mutex
	answers  []func(*http.Request) (*http.Response, error)
	requests []*http.Request
	at       []time.Duration // since start
	start    time.Time
}

func answers(fs ...func(*http.Request) (*http.Response, error)) *roundTripper {
	return &roundTripper{answers: fs, start: time.Now()}
}

func (rt *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	rt.mu.Lock()
	n := len(rt.requests)
	rt.requests = append(rt.requests, req)
	rt.at = append(rt.at, time.Since(rt.start))
	rt.mu.Unlock()
	resp, err := rt.answers[min(n, len(rt.answers)-1)](req)
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

func (rt *roundTripper) client(c eventsource.Client) *eventsource.Client {
	c.HTTPClient = &http.Client{Transport: rt}
	return &c
}

// body answers with an event stream of the given pieces, then the error.
func body(end error, pieces ...string) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		r, w := io.Pipe()
		stop := context.AfterFunc(req.Context(), func() { w.CloseWithError(context.Cause(req.Context())) })
		go func() {
			defer stop()
			for _, p := range pieces {
				if d, err := time.ParseDuration(p); err == nil {
					select {
					case <-time.After(d):
					case <-req.Context().Done():
						return
					}
					continue
				}
				if _, err := io.WriteString(w, p); err != nil {
					return
				}
			}
			if end == errHold {
				<-req.Context().Done()
				return
			}
			w.CloseWithError(end)
		}()
		return response(200, "text/event-stream", r), nil
	}
}

var (
	errHold = errors.New("hold the body open")
	errCut  = errors.New("connection reset by peer")
)

func response(status int, contentType string, body io.ReadCloser) *http.Response {
	h := http.Header{}
	if contentType != "" {
		h.Set("Content-Type", contentType)
	}
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: body}
}

func status(code int, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		resp := response(code, "", io.NopCloser(strings.NewReader("")))
		for i := 0; i < len(header); i += 2 {
			resp.Header.Add(header[i], header[i+1])
		}
		return resp, nil
	}
}

func refuse(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func get(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://server.test/feed?token=SECRET", nil)
	if err != nil {
		panic(err)
	}
	return req
}

// collect ranges over s and returns the data of its events and its error.
func collect(s *eventsource.Stream) (data []string, err error) {
	for ev, e := range s.Events() {
		if e != nil {
			err = e
			continue
		}
		data = append(data, ev.Data)
	}
	return data, err
}

package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// A roundTripper answers the n-th request, from 0, by calling the n-th function,
// and every later one by calling the last.
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

func TestStreamRidesOutWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := answers(
			body(errCut, "id: 1\ndata: a\n\ndata: lost"),
			body(nil, "retry: 1500\nid: 2\ndata: b\n\n"),
			status(503, "Retry-After", "7"),
			body(nil, "id: 3\ndata\n\n"), // primed and closed
			refuse(errors.New("dial refused")),
			body(nil, "data: c\n\n"),
			status(204),
		)
		var log []string
		trace := &eventsource.Trace{
			End:  func(a policy.Attempt) { log = append(log, fmt.Sprintf("%d %v %v", a.Number, a.Kind, a.LastEventID)) },
			Wait: func(w eventsource.WaitInfo) { log = append(log, fmt.Sprint(w.Waited)) },
			Done: func(err error) { log = append(log, fmt.Sprint("done ", err)) },
		}
		rules := policy.ResilientRules()
		rules.Jitter = -1
		s := rt.client(eventsource.Client{Policy: rules.New, Trace: trace}).Stream(get(t.Context()))
		data, err := collect(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b", "", "c"}, data); diff != "" {
			t.Error(diff)
		}
		want := []string{
			"1 dropped 1", "3s",
			"2 ended 2", "1.5s",
			"3 rejected 2", "7s",
			"4 ended 3", "3s",
			"5 failed 3", "6s",
			"6 ended 3", "1.5s",
			"7 rejected 3", "done <nil>",
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Error(diff)
		}
		var ids []string
		for _, r := range rt.requests {
			ids = append(ids, strings.Join(r.Header.Values("Last-Event-ID"), "|"))
		}
		if diff := cmp.Diff([]string{"", "1", "2", "2", "3", "3", "3"}, ids); diff != "" {
			t.Error(diff)
		}
	})
}

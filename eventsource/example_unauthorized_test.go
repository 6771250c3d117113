package eventsource_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// A Refresher is a RoundTripper that puts a token on each request, and answers a
// 401 with a fresh one and one more try. A stream does not see the first try: it
// is one attempt, without a wait, that no policy counts.
type Refresher struct {
	Base  http.RoundTripper
	Fetch func(context.Context) (token string, err error)

	mu    sync.Mutex
	token string
}

// RoundTrip implements http.RoundTripper.
func (r *Refresher) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := r.current(req.Context(), "")
	if err != nil {
		return nil, err
	}
	resp, err := r.try(req, token, req.Body)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	body := req.Body
	if body != nil && body != http.NoBody {
		if req.GetBody == nil {
			return resp, nil // it cannot be sent again: the 401 is the answer
		}
		if body, err = req.GetBody(); err != nil {
			return resp, nil
		}
	}
	// What is left of a short answer is read, so that its connection can be used.
	io.CopyN(io.Discard, resp.Body, 4<<10)
	resp.Body.Close()
	if token, err = r.current(req.Context(), token); err != nil {
		if body != nil {
			body.Close()
		}
		return nil, err
	}
	return r.try(req, token, body)
}

// try sends a copy of the request, as a RoundTripper must not change the original.
func (r *Refresher) try(req *http.Request, token string, body io.ReadCloser) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Body = body
	req.Header.Set("Authorization", "Bearer "+token)
	return r.Base.RoundTrip(req)
}

// current returns a token other than the stale one. Of the streams that share the
// Refresher only one fetches it.
func (r *Refresher) current(ctx context.Context, stale string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.token == stale {
		token, err := r.Fetch(ctx)
		if err != nil {
			return "", fmt.Errorf("fetching a token: %w", err)
		}
		r.token = token
	}
	return r.token, nil
}

// How to answer a 401 with a fresh token and one more try inside the same attempt.
// Where a token can be had before each attempt, Client.Prepare is simpler.
func Example_unauthorized() {
	server := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{
		{eventsourcetest.Status{Code: http.StatusUnauthorized}},
		{eventsourcetest.Event{Data: "welcome"}},
	}}
	server.Start()
	defer server.Close()

	tokens := 0
	client := &eventsource.Client{HTTPClient: &http.Client{Transport: &Refresher{
		Base: server.Client().Transport,
		Fetch: func(context.Context) (string, error) {
			tokens++
			return fmt.Sprint("token-", tokens), nil
		},
	}}}
	req, err := http.NewRequest(http.MethodGet, server.URL, nil)
	if err != nil {
		panic(err)
	}
	for event, err := range client.Stream(req).Events() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Data)
		break
	}
	for _, r := range server.Requests() {
		fmt.Println(r.Header.Get("Authorization"))
	}
	// Output:
	// welcome
	// Bearer token-1
	// Bearer token-2
}

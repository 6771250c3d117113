package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"unsafe"

	anthropic "github.com/anthropics/anthropic-sdk-go/packages/ssestream"
	launchdarkly "github.com/launchdarkly/eventsource"
	openai "github.com/openai/openai-go/v3/packages/ssestream"
	r3labs "github.com/r3labs/sse/v2"
	gosse "github.com/tmaxmax/go-sse"
	"gopkg.in/cenkalti/backoff.v1"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// maxEvent is the limit for clients that take one. It is far larger than any event of
// the workloads.
const maxEvent = 64 << 20

// A sink is given the type, ID and data of each event. It does not keep them.
type sink func(typ, id, data []byte) (more bool)

// A client is a row of the tables.
type client struct {
	name string
	note string // what readers must know about its figures

	// noID is set if the client's API does not show IDs.
	noID bool

	// decode gives the events of r to the sink until r ends or the sink has enough.
	decode func(r io.Reader, to sink) error

	// stream does the same with the response of url, through http, and as a client
	// that reconnects if it can. It is nil if the client cannot do this.
	stream func(ctx context.Context, hc *http.Client, url string, to sink) error
}

// clients returns all clients, without the two limits.
func clients() []client {
	return []client{
		{
			name:   "Reprise, NextRaw",
			note:   "its events are views of the decoder's memory, to be copied; all others are to keep",
			decode: decodeRaw,
		},
		{name: "Reprise, Next", decode: decodeNext, stream: streamReprise},
		{name: "tmaxmax/go-sse", decode: decodeGoSSE, stream: streamGoSSE},
		{name: "launchdarkly/eventsource", decode: decodeLaunchDarkly, stream: streamLaunchDarkly},
		{
			name:   "r3labs/sse",
			note:   "what makes events is not exported, so its client reads from a RoundTripper",
			decode: decodeR3labs,
			stream: streamR3labs,
		},
		{
			name:   "openai-go, ssestream",
			note:   "shows no IDs and does not reconnect: its streams are responses of net/http",
			noID:   true,
			decode: decodeOpenAI,
			stream: streamResponse(decodeOpenAIResponse),
		},
		{
			name:   "anthropic-sdk-go, ssestream",
			note:   "shows no IDs and does not reconnect: its streams are responses of net/http",
			noID:   true,
			decode: decodeAnthropic,
			stream: streamResponse(decodeAnthropicResponse),
		},
	}
}

func decodeRaw(r io.Reader, to sink) error {
	d := eventsource.NewDecoder(r)
	for {
		e, err := d.NextRaw()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !to(e.Type, e.LastEventID, e.Data) {
			return nil
		}
	}
}

func decodeNext(r io.Reader, to sink) error {
	for e, err := range eventsource.NewDecoder(r).Events() {
		if err != nil {
			return err
		}
		if !to(view(e.Type), view(e.LastEventID), view(e.Data)) {
			break
		}
	}
	return nil
}

func streamReprise(ctx context.Context, hc *http.Client, url string, to sink) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	c := eventsource.Client{HTTPClient: hc, Policy: policy.Resilient()}
	for e, err := range c.Stream(req).Events() {
		if err != nil {
			return err
		}
		if !to(view(e.Type), view(e.LastEventID), view(e.Data)) {
			break
		}
	}
	return nil
}

func decodeGoSSE(r io.Reader, to sink) error {
	for e, err := range gosse.Read(r, &gosse.ReadConfig{MaxEventSize: maxEvent}) {
		if err != nil {
			return err
		}
		if !to(view(e.Type), view(e.LastEventID), view(e.Data)) {
			break
		}
	}
	return nil
}

func streamGoSSE(ctx context.Context, hc *http.Client, url string, to sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	c := gosse.Client{HTTPClient: hc, Backoff: gosse.Backoff{MaxRetries: -1}}
	connection := c.NewConnection(req)
	connection.Buffer(nil, maxEvent)
	enough := false
	connection.SubscribeToAll(func(e gosse.Event) {
		if !enough && !to(view(e.Type), view(e.LastEventID), view(e.Data)) {
			enough = true
			cancel()
		}
	})
	err = connection.Connect()
	if enough || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func decodeLaunchDarkly(r io.Reader, to sink) error {
	d := launchdarkly.NewDecoder(r)
	for {
		e, err := d.Decode()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !launchDarklyTo(to, e) {
			return nil
		}
	}
}

func launchDarklyTo(to sink, e launchdarkly.Event) bool {
	id := e.(launchdarkly.EventWithLastID).LastEventID()
	return to(view(e.Event()), view(id), view(e.Data()))
}

func streamLaunchDarkly(ctx context.Context, hc *http.Client, url string, to sink) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	s, err := launchdarkly.SubscribeWithRequestAndOptions(req, launchdarkly.StreamOptionHTTPClient(hc),
		launchdarkly.StreamOptionErrorHandler(func(error) launchdarkly.StreamErrorHandlerResult {
			return launchdarkly.StreamErrorHandlerResult{CloseNow: true}
		}))
	if err != nil {
		return err
	}
	defer func() { // Close does not wait; Events is closed when everything is over
		s.Close()
		for range s.Events {
		}
	}()
	for {
		select {
		case e, ok := <-s.Events:
			if !ok || !launchDarklyTo(to, e) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// decodeR3labs lets r3labs/sse read r through its client, because the code that makes
// events of the blocks that its EventStreamReader finds is not exported.
func decodeR3labs(r io.Reader, to sink) error {
	transport := roundTripper(func(req *http.Request) (*http.Response, error) {
		resp := response(r)
		resp.Request = req
		return resp, nil
	})
	return streamR3labs(context.Background(), &http.Client{Transport: transport}, "http://bench.invalid/", to)
}

func streamR3labs(ctx context.Context, hc *http.Client, url string, to sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := r3labs.NewClient(url, r3labs.ClientMaxBufferSize(maxEvent))
	c.Connection = hc
	c.ReconnectStrategy = &backoff.StopBackOff{}
	enough := false
	err := c.SubscribeRawWithContext(ctx, func(e *r3labs.Event) {
		if !enough && !to(e.Event, e.ID, e.Data) {
			enough = true
			cancel()
		}
	})
	if enough {
		return nil
	}
	return err
}

func decodeOpenAI(r io.Reader, to sink) error { return decodeOpenAIResponse(response(r), to) }

func decodeOpenAIResponse(resp *http.Response, to sink) error {
	d := openai.NewDecoder(resp)
	defer d.Close()
	for d.Next() {
		e := d.Event()
		if !to(view(e.Type), nil, withoutLF(e.Data)) {
			return nil
		}
	}
	return d.Err()
}

func decodeAnthropic(r io.Reader, to sink) error { return decodeAnthropicResponse(response(r), to) }

func decodeAnthropicResponse(resp *http.Response, to sink) error {
	d := anthropic.NewDecoder(resp)
	defer d.Close()
	for d.Next() {
		e := d.Event()
		if !to(view(e.Type), nil, withoutLF(e.Data)) {
			return nil
		}
	}
	return d.Err()
}

// withoutLF returns data without the line feed that both ssestreams leave at the end.
func withoutLF(data []byte) []byte {
	if n := len(data); n > 0 && data[n-1] == '\n' {
		return data[:n-1]
	}
	return data
}

// streamResponse turns a function that decodes a response into one that reads a
// stream.
func streamResponse(decode func(*http.Response, sink) error) func(context.Context, *http.Client, string, sink) error {
	return func(ctx context.Context, hc *http.Client, url string, to sink) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Cache-Control", "no-cache")
		resp, err := hc.Do(req)
		if err != nil {
			return err
		}
		return decode(resp, to)
	}
}

// response returns a response whose body is r.
func response(r io.Reader) *http.Response {
	return &http.Response{
		Status:     "200 OK",
		StatusCode: http.StatusOK,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Content-Type": {"text/event-stream"}},
		Body:       io.NopCloser(r),
	}
}

// view returns the bytes of s, which must not be changed.
func view(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

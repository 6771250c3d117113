package eventsource_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// ask writes a language model's answer as it comes. A POST is sent once: if the
// answer breaks off, it is for the caller to decide whether to ask again.
func ask(ctx context.Context, client *eventsource.Client, url, question string, out io.Writer) error {
	body, err := json.Marshal(map[string]any{"prompt": question, "stream": true})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")

	for event, err := range client.Stream(req).Events() {
		var stop *eventsource.StopError
		switch {
		case errors.As(err, &stop) && stop.Attempt.Events > 0:
			return fmt.Errorf("the answer broke off: %w", stop.Attempt.Err)
		case err != nil:
			return err
		case event.Type == "error": // told in the stream, because its status was sent long before
			return fmt.Errorf("the model failed: %s", event.Data)
		case event.Data == "[DONE]":
			return nil
		}
		var token struct{ Text string }
		if err := json.Unmarshal([]byte(event.Data), &token); err != nil {
			return err
		}
		fmt.Fprint(out, token.Text)
	}
	return errors.New("the answer ended without [DONE]")
}

// One answer of a language model: a POST whose response is a stream of tokens.
func Example_answer() {
	server := &eventsourcetest.Server{Script: [][]eventsourcetest.Step{{
		eventsourcetest.Event{Data: `{"text":"Server-sent"}`},
		eventsourcetest.Event{Data: `{"text":" events."}`},
		eventsourcetest.Event{Data: "[DONE]"},
	}}}
	server.Start()
	defer server.Close()

	// The response ends right after [DONE]. To wait for that costs nothing, and the
	// next question can use the same connection.
	client := &eventsource.Client{HTTPClient: server.Client(), Linger: 50 * time.Millisecond}
	err := ask(context.Background(), client, server.URL, "What is SSE short for?", os.Stdout)
	fmt.Println()
	fmt.Println("error:", err)
	fmt.Printf("%s\n", server.Requests()[0].Body)
	// Output:
	// Server-sent events.
	// error: <nil>
	// {"prompt":"What is SSE short for?","stream":true}
}

// A question that is asked again until its answer begins, and not after that: a second
// answer would begin anew, and the text would double.
func Example_answerRetried() {
	fake := clock.NewFake(time.Time{})
	server := &eventsourcetest.Server{Clock: fake, Script: [][]eventsourcetest.Step{
		{eventsourcetest.Status{Code: http.StatusServiceUnavailable}},
		{eventsourcetest.Open, eventsourcetest.Cut},
		{eventsourcetest.Event{Data: "Once"}, eventsourcetest.Event{Data: " upon"}, eventsourcetest.Cut},
		{eventsourcetest.Event{Data: "Once upon a time"}},
	}}
	server.Start()
	defer server.Close()

	rules := policy.Resilient() // waits out a 429 or 503
	rules.OneAnswer = true
	rules.GiveUpAfter = 2 * time.Minute

	client := &eventsource.Client{
		HTTPClient: server.Client(),
		Clock:      fake,
		Policy:     rules,
		Trace: func(*http.Request) *eventsource.Trace {
			return &eventsource.Trace{Wait: func(w eventsource.WaitInfo) { fake.Advance(w.Waited) }}
		},
	}
	req, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader(`{"prompt":"Tell me a story"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Idempotency-Key", "") // asking twice does no harm

	for event, err := range client.Stream(req).Events() {
		var stop *eventsource.StopError
		if errors.As(err, &stop) {
			fmt.Printf("\nthe answer broke off: %v after %d messages\n", stop.Attempt.Kind, stop.Attempt.Messages)
			break
		}
		fmt.Print(event.Data)
	}
	for _, r := range server.Requests() {
		_, sent := r.Header["Idempotency-Key"]
		fmt.Printf("request %d, with a key: %v\n", r.Number, sent)
	}
	// Output:
	// Once upon
	// the answer broke off: dropped after 2 messages
	// request 1, with a key: false
	// request 2, with a key: false
	// request 3, with a key: false
}

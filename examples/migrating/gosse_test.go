package migrating_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

func beforeGoSSE(ctx context.Context, httpClient *http.Client, url string, handle func(data string)) error {
	client := sse.Client{
		HTTPClient: httpClient,
		Backoff:    sse.Backoff{MaxRetries: 5},
		OnRetry: func(err error, wait time.Duration) {
			log.Printf("%v; again in %v", err, wait)
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	conn := client.NewConnection(req)
	conn.Buffer(nil, 1<<20) // or events end at 64 KiB
	conn.SubscribeEvent("price", func(event sse.Event) {
		handle(event.Data)
	})
	return conn.Connect()
}

func afterGoSSE(ctx context.Context, httpClient *http.Client, url string, handle func(data string)) error {
	client := eventsource.Client{
		HTTPClient: httpClient,
		Policy:     policy.Rules{MaxFruitless: 5},
		Trace:      eventsource.LogTrace(nil),
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	for event, err := range client.Stream(req).Events() {
		if err != nil {
			return err
		}
		if event.Type == "price" {
			handle(event.Data)
		}
	}
	return nil
}

func beforeGoSSERead(answer io.Reader, handle func(data string)) error {
	for event, err := range sse.Read(answer, nil) {
		if err != nil {
			return err
		}
		handle(event.Data)
	}
	return nil
}

func afterGoSSERead(answer io.Reader, handle func(data string)) error {
	for event, err := range eventsource.NewDecoder(answer).Events() {
		if err != nil {
			return err
		}
		handle(event.Data)
	}
	return nil
}

package migrating_test

import (
	"context"
	"log"
	"net/http"
	neturl "net/url"
	"time"

	"github.com/r3labs/sse/v2"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

func beforeR3labs(ctx context.Context, httpClient *http.Client, url, token string, handle func(data string)) error {
	client := sse.NewClient(url, sse.ClientMaxBufferSize(1<<20))
	client.Connection = httpClient
	client.Headers["Authorization"] = "Bearer " + token
	client.ReconnectNotify = func(err error, wait time.Duration) {
		log.Printf("%v; again in %v", err, wait)
	}
	return client.SubscribeWithContext(ctx, "prices", func(event *sse.Event) {
		handle(string(event.Data))
	})
}

func afterR3labs(ctx context.Context, httpClient *http.Client, url, token string, handle func(data string)) error {
	query := neturl.Values{"stream": {"prices"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	client := eventsource.Client{
		HTTPClient: httpClient,
		Policy:     policy.Resilient(),
		Trace:      eventsource.LogTrace(nil),
	}
	for event, err := range client.Stream(req).Events() {
		if err != nil {
			return err
		}
		handle(event.Data)
	}
	return nil
}

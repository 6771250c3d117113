package migrating_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	launchdarkly "github.com/launchdarkly/eventsource"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

func beforeLaunchDarkly(ctx context.Context, httpClient *http.Client, url, stored string, handle func(id, data string)) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	stream, err := launchdarkly.SubscribeWithRequestAndOptions(req,
		launchdarkly.StreamOptionHTTPClient(httpClient),
		launchdarkly.StreamOptionLastEventID(stored),
		launchdarkly.StreamOptionReadTimeout(time.Minute),
		launchdarkly.StreamOptionUseBackoff(30*time.Second),
		launchdarkly.StreamOptionUseJitter(0.5),
		launchdarkly.StreamOptionCanRetryFirstConnection(-1),
		launchdarkly.StreamOptionLogger(log.Default()),
		launchdarkly.StreamOptionErrorHandler(func(err error) launchdarkly.StreamErrorHandlerResult {
			var refusal launchdarkly.SubscriptionError
			return launchdarkly.StreamErrorHandlerResult{
				CloseNow: errors.As(err, &refusal) && refusal.Code < 500,
			}
		}),
	)
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		select {
		case event, ok := <-stream.Events:
			if !ok {
				return errors.New("refused")
			}
			id := event.(launchdarkly.EventWithLastID).LastEventID()
			handle(id, event.Data())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func afterLaunchDarkly(ctx context.Context, httpClient *http.Client, url, stored string, handle func(id, data string)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", stored)
	client := eventsource.Client{
		HTTPClient:  httpClient,
		IdleTimeout: time.Minute,
		Policy:      policy.Resilient(),
		Trace:       eventsource.LogTrace(nil),
	}
	for event, err := range client.Stream(req).Events() {
		if err != nil {
			return err // with the status, if the server refused
		}
		handle(event.LastEventID, event.Data)
	}
	return nil
}

module github.com/reprise-sse/reprise/bench

go 1.26.0

replace github.com/reprise-sse/reprise => ..

require (
	github.com/anthropics/anthropic-sdk-go v1.84.0
	github.com/google/go-cmp v0.7.0
	github.com/launchdarkly/eventsource v1.11.0
	github.com/openai/openai-go/v3 v3.99.0
	github.com/r3labs/sse/v2 v2.10.0
	github.com/reprise-sse/reprise v0.0.0-00010101000000-000000000000
	github.com/tmaxmax/go-sse v0.12.0
	go.uber.org/goleak v1.3.0
	gopkg.in/cenkalti/backoff.v1 v1.1.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	golang.org/x/net v0.60.0 // indirect
)

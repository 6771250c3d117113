module github.com/reprise-sse/reprise/examples/migrating

go 1.26

replace github.com/reprise-sse/reprise => ../..

require (
	github.com/google/go-cmp v0.7.0
	github.com/launchdarkly/eventsource v1.11.0
	github.com/r3labs/sse/v2 v2.10.0
	github.com/reprise-sse/reprise v0.0.0-00010101000000-000000000000
	github.com/tmaxmax/go-sse v0.12.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	golang.org/x/net v0.0.0-20191116160921-f9c825593386 // indirect
	gopkg.in/cenkalti/backoff.v1 v1.1.0 // indirect
)

package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/policy"
)

// TestLogTraceLevels: giving up is an error, and what the caller did is none.
func TestLogTraceLevels(t *testing.T) {
	cases := []struct {
		name   string
		policy func() policy.Reconnector
		do     func(cancel context.CancelCauseFunc) (leave bool) // in the loop
		want   string
	}{
		{"given up", policy.Never, func(context.CancelCauseFunc) bool { return false }, "level=ERROR"},
		{"cancelled", policy.WHATWG, func(cancel context.CancelCauseFunc) bool {
			cancel(errors.New("the user has gone"))
			return false
		}, "level=INFO"},
		{"left", policy.WHATWG, func(context.CancelCauseFunc) bool { return true }, "level=INFO"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				var log bytes.Buffer
				client := answers(body(errCut, "data: a\n\n")).client(eventsource.Client{
					Policy: c.policy,
					Trace:  eventsource.LogTrace(slog.New(slog.NewTextHandler(&log, nil))),
				})
				for range client.Stream(get(ctx)).Events() {
					if c.do(cancel) {
						break
					}
				}
				cancel(nil)
				for line := range strings.Lines(log.String()) {
					if strings.Contains(line, "over") {
						if !strings.Contains(line, c.want) {
							t.Errorf("the end is logged as %q, want %s", line, c.want)
						}
						return
					}
				}
				t.Errorf("no end in the log:\n%s", log.String())
			})
		})
	}
}

// TestLogTraceNoContent: a 204 is no failure, and a 404 is one.
func TestLogTraceNoContent(t *testing.T) {
	for code, want := range map[int]string{204: "level=INFO", 404: "level=WARN"} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			client := answers(status(code)).client(eventsource.Client{
				Trace: eventsource.LogTrace(slog.New(slog.NewTextHandler(&log, nil))),
			})
			collect(client.Stream(get(t.Context())))
			ended, _, _ := strings.Cut(log.String(), "attempt ended")
			if !strings.Contains(ended, want) {
				t.Errorf("the end of an attempt with status %d is logged as %q, want %s", code, ended, want)
			}
		})
	}
}

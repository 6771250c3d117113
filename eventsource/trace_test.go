package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

func TestG12EverythingVisible(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.EverythingVisible}}
	p.holdsIn(t, []scenarioCase{
		{
			name: "every kind of end",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerRefused, answerUnavailable("7"),
					{Failure: scenario.Unprepared},
					{Failure: scenario.NeverAnswers},
					answerMessage,
					answerStream("data: half"), cutAnswer(answerMessage), answerSilent, answerSilent, answerSilent,
					{Body: []scenario.Piece{{Text: "data: "}, {Text: "x", Times: 1000}}},
					{Type: "text/html; token=" + scenario.Secret},
				},
				Policy: scenario.Policy{Script: []scenario.Decision{
					{}, {}, {}, {}, {}, {}, {}, {Within: scenario.Ptr(time.Second)}, {}, {}, {},
				}},
				Caller: scenario.Caller{
					ConnectTimeout: 5 * time.Second, IdleTimeout: 10 * time.Second,
					Actions: []scenario.Action{{On: scenario.Open, N: 6, After: 2 * time.Second, Do: scenario.Restart}},
				},
			},
			want: []string{
				"0s request", "0s failed", "0s request", "0s rejected", "7s failed", "7s request", "12s failed",
				"12s request", `12s event "m"`, "12s ended", "12s request", "12s ended", "12s request", `12s event "m"`, "12s dropped",
				"12s request", "22s idle", "22s request", "23s expired", "23s request", "25s restarted", "25s request", "25s too large",
				"25s request", "25s rejected", "25s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "a permanent failure",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{Failure: scenario.Permanent}},
				Policy: scenario.Policy{Preset: "WHATWG"},
			},
			want: []string{"0s request", "0s failed", "0s done: GET http://server0.test/feed: dial http://server0.test/feed?… scenario: connection refused"},
		},
		{
			name: "the request's body can only be sent once",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerRefused, answerEmpty},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Post: true, Key: true, Payload: scenario.Once},
			},
			want: []string{"0s request", "0s failed", "0s done: the request cannot be repeated"},
		},
	})
	p.holds(t)
}

// The loop is given the cause of the cancellation itself.
func TestG12Cause(t *testing.T) {
	t.Parallel()
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if _, err := collect((&eventsource.Client{}).Stream(get(ctx))); err != cause {
		t.Errorf("%v", err)
	}
}

// Giving up is logged as an error; what the caller did is not.
func TestLogTraceLevels(t *testing.T) {
	cases := []struct {
		name   string
		policy policy.Policy
		do     func(cancel context.CancelCauseFunc) (leave bool) // in the loop
		want   string
	}{
		{"given up", policy.Never(), func(context.CancelCauseFunc) bool { return false }, "level=ERROR"},
		{"cancelled", policy.WHATWG(), func(cancel context.CancelCauseFunc) bool {
			cancel(errors.New("the user has gone"))
			return false
		}, "level=INFO"},
		{"left", policy.WHATWG(), func(context.CancelCauseFunc) bool { return true }, "level=INFO"},
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

// A 204 is not logged as a failure; a 404 is.
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

// The trace is told that a stream is open, with the status and header of the response, as
// soon as the header is in, even if the server then is silent. It is told of comments and
// reconnection times in their places between the events.
func TestTraceIsToldAsItHappens(t *testing.T) {
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		header := typed("text/event-stream")
		header["X-Served-By"] = []string{"b7"}
		srv := serve([]Step{
			Wait(5 * time.Second),
			Status{Header: header},
			Wait(time.Hour),
			Send(": ping\n:\n\n:  two spaces\ndata: a\n:no space\n\nretry: 7000\ndata: b\n\n: last\n\nretry: bad\n\n"), End,
		})
		var log []string
		say := func(format string, args ...any) {
			log = append(log, fmt.Sprintf("%v ", time.Since(bubbleStart))+fmt.Sprintf(format, args...))
		}
		client := eventsource.Client{HTTPClient: srv.Client(), Policy: policy.Never(), Trace: traceOf(&eventsource.Trace{
			Open: func(i eventsource.OpenInfo) {
				say("open %d: %d at %s from %s", i.Number, i.Status, i.URL.Path, i.Header.Get("X-Served-By"))
			},
			Comment: func(text string) { say("comment %q", text) },
			Retry:   func(d time.Duration) { say("retry %v", d) },
		})}
		for event, err := range client.Stream(request(t.Context(), t, srv.URL+"/feed")).Events() {
			if err != nil {
				t.Fatal(err)
			}
			say("event %s", event.Data)
		}
		want := []string{
			"5s open 1: 200 at /feed from b7",
			`1h0m5s comment "ping"`, `1h0m5s comment ""`, `1h0m5s comment " two spaces"`, `1h0m5s comment "no space"`, "1h0m5s event a",
			"1h0m5s retry 7s", "1h0m5s event b", `1h0m5s comment "last"`,
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Client.Trace makes a Trace for each stream, on the goroutine that ranges over it and not
// before. It is given the request that the stream is about.
func TestTraceOfEachStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []*http.Request
		var calls []string
		client := answers(status(204)).client(eventsource.Client{Trace: func(req *http.Request) *eventsource.Trace {
			given = append(given, req)
			n := len(given)
			return &eventsource.Trace{Done: func(error) { calls = append(calls, fmt.Sprint("done ", n)) }}
		}})
		own, next := get(t.Context()), get(t.Context())
		adopted := func() *http.Response {
			resp, err := status(204)(own)
			if err != nil {
				t.Fatal(err)
			}
			resp.Request = own
			return resp
		}
		unasked := adopted()
		unasked.Request = nil
		for _, tt := range []struct {
			name   string
			stream *eventsource.Stream
			want   *http.Request
		}{
			{"Stream", client.Stream(next), next},
			{"Stream, again", client.Stream(next), next},
			{"Adopt", client.Adopt(adopted(), next), next},
			{"Adopt without a next", client.Adopt(adopted(), nil), own},
			{"Adopt without any request", client.Adopt(unasked, nil), nil},
		} {
			if len(given) > 0 {
				t.Fatalf("%s: a Trace was made before the loop", tt.name)
			}
			for range 2 { // the second is refused
				collect(tt.stream)
			}
			if len(given) != 1 || given[0] != tt.want {
				t.Errorf("%s: Trace was given %v, want %v", tt.name, given, tt.want)
			}
			if diff := cmp.Diff([]string{"done 1"}, calls); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tt.name, diff)
			}
			given, calls = nil, nil
		}
	})
}

// A Client.Trace may make no Trace. The stream goes through all that it could have told.
func TestTraceOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := answers(body(nil, ": c\nretry: 1000\ndata: m\n\n"), status(204)).client(eventsource.Client{
			Trace: func(*http.Request) *eventsource.Trace { return nil },
		})
		if data, err := collect(client.Stream(get(t.Context()))); err != nil || len(data) != 1 {
			t.Errorf("the loop is given %q and %v", data, err)
		}
	})
}

// Every record of a LogTrace says which stream it is about, at each level: streams of the
// same request are told apart by their numbers.
func TestLogTraceTellsStreamsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		trace := eventsource.LogTrace(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		var want []string
		for n, tt := range []struct {
			method string
			answer func(*http.Request) (*http.Response, error)
			levels []string
		}{
			{"GET", body(nil, "retry: 1000\ndata: m\n\n"), []string{"DEBUG", "INFO", "DEBUG", "INFO", "INFO", "DEBUG", "INFO", "INFO"}},
			{"GET", refuse(errCut), []string{"DEBUG", "WARN", "INFO", "DEBUG", "INFO", "INFO"}},
			{"POST", status(404), []string{"DEBUG", "WARN", "ERROR"}},
			{"", status(404), []string{"DEBUG", "WARN", "ERROR"}}, // net/http's GET
		} {
			req := get(t.Context())
			req.Method = tt.method
			req.URL.User = url.UserPassword("SECRET", "SECRET")
			req.Header.Set("Authorization", "SECRET")
			req.Header.Set("Last-Event-ID", "SECRET")
			collect(answers(tt.answer, status(204)).client(eventsource.Client{Trace: trace}).Stream(req))
			if tt.method == "" {
				tt.method = "GET"
			}
			for _, level := range tt.levels {
				want = append(want, fmt.Sprintf("level=%s stream=%d method=%s url=http://server.test/feed", level, n+1, tt.method))
			}
		}
		var got []string
		field := regexp.MustCompile(`\b(?:level|stream|method|url)=\S+`)
		for line := range strings.Lines(log.String()) {
			got = append(got, strings.Join(field.FindAllString(line, -1), " "))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
		if strings.Contains(log.String(), "SECRET") {
			t.Errorf("the log shows what it must not:\n%s", log.String())
		}
	})
}

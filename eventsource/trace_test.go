package eventsource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
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

// everythingVisible checks that the trace sees every attempt once, in order, with how it
// ended, why, and the wait that follows, and that no text shows a secret.
func everythingVisible(records []*scenario.Record, c *complaints) {
	r := records[0]
	truths := r.Truths()
	for i, a := range r.Attempts {
		last := i == len(r.Attempts)-1
		if a.Reported == nil {
			if !last {
				c.add("nobody is told of the end of attempt %d", a.Number)
			}
			continue
		}
		if len(a.Ended) != 1 || a.Reported.Number != a.Number {
			c.add("attempt %d: Trace.End is called %d times, with number %d", a.Number, len(a.Ended), a.Reported.Number)
		}
		if (len(a.Opened) == 1) != !a.Reported.Open.IsZero() || len(a.Opened) > 1 {
			c.add("attempt %d: Trace.Open is called %d times; it is said to have opened at %v", a.Number, len(a.Opened), a.Reported.Open)
		}
		if a.Asked != nil {
			if diff := cmp.Diff(describe(a.Reported), describe(a.Asked)); diff != "" {
				c.add("attempt %d (-trace +policy):\n%s", a.Number, diff)
			}
		}
		if waits := len(a.Waited); waits > 1 || waits == 0 && !last {
			c.add("attempt %d: Trace.Wait is called %d times", a.Number, waits)
		} else if waits == 1 && a.Waited[0].Number != a.Number+1 {
			c.add("attempt %d: the next one is said to have the number %d", a.Number, a.Waited[0].Number)
		}
		checkFacts(c, r, a, truths[i])
		checkCause(c, r, i, truths[i])
	}
	checkOrder(c, r)
	checkSecrets(c, r)
}

// describe returns the facts of an attempt without the header.
func describe(a *policy.Attempt) string {
	facts := *a
	facts.Header = nil
	return fmt.Sprintf("%+v", facts)
}

func checkFacts(c *complaints, r *scenario.Record, a *scenario.Attempt, truth scenario.Truth) {
	got := a.Reported
	want := policy.Attempt{
		Events: len(truth.Decoded.Events), Messages: truth.Messages, RetrySent: truth.RetrySent,
		HasRetry: truth.HasRetry, Retry: truth.Retry, LastEventID: truth.LastEventID,
	}
	// An answer may come in the very moment in which the attempt is interrupted.
	tooLate := got.Status == 0 && len(a.Opened) == 0 && got.Kind != policy.Rejected
	answered := a.HasAnswer && !tooLate
	if answered {
		want.Status = orDefault(a.Answer.Status, 200)
	}
	if got.Events != want.Events || got.Messages != want.Messages || got.RetrySent != want.RetrySent || got.Status != want.Status ||
		got.HasRetry != want.HasRetry || got.HasRetry && got.Retry != want.Retry || got.LastEventID != want.LastEventID {
		c.add("the facts of attempt %d are %s, not %s", a.Number, describe(got), describe(&want))
	}
	if (got.Header != nil) != answered || answered && got.Header.Get("Set-Cookie") == "" {
		c.add("attempt %d: the header is %v", a.Number, got.Header)
	}
	length := got.End.Sub(got.Start)
	if a.Began+length != a.Ended[0] || length < 0 {
		c.add("attempt %d: it is said to last %v from %v", a.Number, length, a.Began)
	}
	if len(a.Opened) == 1 && (a.Opened[0] != a.Answered || a.Began+got.Open.Sub(got.Start) != a.Answered) {
		c.add("attempt %d opens at %v; its answer came at %v", a.Number, a.Opened[0], a.Answered)
	}
	if len(a.Retries) > 0 != truth.RetrySent || truth.RetrySent && a.Retries[len(a.Retries)-1] != truth.Retry {
		c.add("attempt %d: Trace.Retry is told %v; the server set %v", a.Number, a.Retries, truth.Retry)
	}
}

// checkCause checks that the kind of an end is possible and that the error is one of that
// kind.
func checkCause(c *complaints, r *scenario.Record, i int, truth scenario.Truth) {
	a := r.Attempts[i]
	err, lasted := a.Reported.Err, a.Ended[0]-a.Began
	idle := r.Scenario.Caller.IdleTimeout
	within, limited := time.Duration(0), false
	if i > 0 {
		d := r.Attempts[i-1].Decided
		within, limited = d.Limit()
		idle = orDefault(d.IdleLimit(), idle)
	}
	connect := orDefault(r.Scenario.Caller.ConnectTimeout, 30*time.Second)
	silence := time.Duration(0) // the longest
	before := a.Answered
	for _, read := range a.Reads {
		silence, before = max(silence, read.At-before), read.At
	}
	silence = max(silence, a.Ended[0]-before)

	possible, caused := false, false
	switch a.Reported.Kind {
	case policy.Ended:
		possible = a.Outcome == io.EOF
		caused = err == nil
		if truth.Decoded.Truncated {
			caused = errors.Is(err, eventsource.ErrTruncated) && errors.Is(err, io.ErrUnexpectedEOF)
		}
	case policy.Dropped:
		possible = truth.Streamed && a.Outcome == scenario.ErrCut
		caused = errors.Is(err, scenario.ErrCut)
	case policy.Failed:
		timeout := net.Error(nil)
		switch {
		case a.Reported.Futile:
			possible = !a.HasAnswer
			caused = errors.Is(err, eventsource.ErrUnsendableID) || errors.Is(err, eventsource.ErrNotReplayable)
		case errors.As(err, &timeout) && timeout.Timeout():
			possible, caused = connect > 0 && lasted == connect && len(a.Opened) == 0, true
		default:
			possible = a.Outcome == scenario.ErrRefused || a.Outcome == scenario.ErrUnprepared
			caused = errors.Is(err, a.Outcome)
		}
	case policy.Rejected:
		response := (*eventsource.ResponseError)(nil)
		possible = truth.Rejected
		caused = errors.As(err, &response) && response.StatusCode == orDefault(a.Answer.Status, 200) && response.Header != nil &&
			strings.HasPrefix(string(a.Delivered), string(response.Body))
	case policy.Idle:
		possible = truth.Streamed && idle > 0 && silence >= idle
		caused = errors.Is(err, eventsource.ErrIdle)
	case policy.Expired:
		possible = limited && lasted >= within
		caused = errors.Is(err, eventsource.ErrExpired)
	case policy.TooLarge:
		possible = truth.TooLarge
		caused = errors.Is(err, eventsource.ErrEventTooLarge) && strings.Contains(err.Error(), fmt.Sprint(scenario.MaxEventSize))
	case policy.Restarted:
		// A restart that another goroutine asked for an instant earlier is recorded
		// with the attempt before.
		possible = len(restartsOf(r, a.Number).all) > 0 || slices.Contains(restartsOf(r, a.Number-1).all, a.Began)
		caused = err == nil
	}
	if !possible {
		c.add("attempt %d cannot have been %v: it lasted %v, and the client saw %v", a.Number, a.Reported.Kind, lasted, a.Outcome)
	}
	if !caused {
		c.add("attempt %d was %v, and its error is %v", a.Number, a.Reported.Kind, err)
	}
}

// checkOrder checks the order of the hooks.
func checkOrder(c *complaints, r *scenario.Record) {
	order := []string{
		scenario.Prepare.String(), scenario.Connect.String(), scenario.RoundTrip.String(), scenario.Open.String(),
		scenario.Comment.String(), scenario.AttemptEnd.String(), scenario.Decide.String(), scenario.Wait.String(), scenario.Done.String(),
	}
	place, number := -1, 0
	for _, e := range r.Log {
		what := e.What
		switch what {
		case scenario.Retry.String(), scenario.EntryEvent:
			what = scenario.Comment.String() // in any order
		}
		p := slices.Index(order, what)
		if p < 0 {
			continue
		}
		if e.Number != number {
			place, number = -1, e.Number
		}
		if p < place || p == place && what != scenario.Comment.String() {
			c.add("after %s of attempt %d comes %v", order[place], number, e)
		}
		place = p
	}
	if place < len(order)-1 {
		c.add("the end of the stream is not the last thing that the trace is told")
	}
}

// checkSecrets looks for secrets in all texts that the library has made.
func checkSecrets(c *complaints, r *scenario.Record) {
	texts := []string{r.Logged, fmt.Sprint(r.Err()), fmt.Sprint(r.Done)}
	for _, a := range r.Attempts {
		if a.Reported != nil {
			texts = append(texts, fmt.Sprint(a.Reported.Err))
		}
	}
	for _, text := range texts {
		if strings.Contains(text, scenario.Secret) {
			c.add("a text shows the secret: %s", text)
		}
	}
}

func TestG12EverythingVisible(t *testing.T) {
	t.Parallel()
	p := property{check: everythingVisible}
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
					{Body: []scenario.Piece{{Text: "x", Times: 1000}}},
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
		client := eventsource.Client{HTTPClient: srv.Client(), Policy: policy.Never, Trace: &eventsource.Trace{
			Open: func(i eventsource.OpenInfo) {
				say("open %d: %d at %s from %s", i.Number, i.Status, i.URL.Path, i.Header.Get("X-Served-By"))
			},
			Comment: func(text string) { say("comment %q", text) },
			Retry:   func(d time.Duration) { say("retry %v", d) },
		}}
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

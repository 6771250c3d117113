package eventsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/clock"
	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

func TestG1NeverEarly(t *testing.T) {
	t.Parallel()
	p := property{checks: []scenario.Check{scenario.NeverEarly}}
	p.holdsIn(t, []scenarioCase{
		{
			name:     "a retry binds a policy that does not wait",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone}, Policy: policyScript(0)},
			want:     []string{"0s request", "0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name:     "and one that waits less",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone}, Policy: policyScript(time.Second)},
			want:     []string{"0s request", "0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name:     "and one that waits less than nothing",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone}, Policy: policyScript(math.MinInt64)},
			want:     []string{"0s request", "0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name:     "the policy may wait longer",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone}, Policy: policyScript(time.Minute)},
			want:     []string{"0s request", "0s ended", "1m0s request", "1m0s rejected", "1m0s done: scenario: the policy's script has ended"},
		},
		{
			name: "a retry stays in force through failures",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerRefused, answerUnavailable("1"), answerEmpty, cutAnswer(answerEmpty), answerGone},
				Policy: policyScript(0, 0, 0, 0, 0),
			},
			want: []string{
				"0s request", "0s ended", "5s request", "5s failed", "10s request", "10s rejected",
				"15s request", "15s ended", "20s request", "20s dropped", "25s request", "25s rejected",
				"25s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "until it is replaced",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerStream("retry: +1\nretry: 200\nretry:\n\n"), answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{
				"0s request", "0s ended", "5s request", "5s ended", "5.2s request", "5.2s rejected",
				"5.2s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "a retry in an unfinished block counts",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{cutAnswer(answerStream("retry: 5000\ndata: lost")), answerGone},
				Policy: policyScript(0),
			},
			want: []string{"0s request", "0s dropped", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name: "Retry-After in seconds, and it binds one wait",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerUnavailable("7"), answerRefused, answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{"0s request", "0s rejected", "7s request", "7s failed", "7s request", "7s rejected", "7s done: scenario: the policy's script has ended"},
		},
		{
			name: "Retry-After as a date",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerUnavailable("+90s"), answerGone},
				Policy: policyScript(time.Second),
			},
			want: []string{"0s request", "0s rejected", "1m30s request", "1m30s rejected", "1m30s done: scenario: the policy's script has ended"},
		},
		{
			name: "the longer of retry and Retry-After",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerUnavailable("1"), answerUnavailable("9"), answerGone},
				Policy: policyScript(0, 0, 0),
			},
			want: []string{
				"0s request", "0s ended", "5s request", "5s rejected", "10s request", "10s rejected",
				"19s request", "19s rejected", "19s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "Retry-After of an event stream means nothing",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{RetryAfter: "60"}, answerGone},
				Policy: policyScript(0),
			},
			want: []string{"0s request", "0s ended", "0s request", "0s rejected", "0s done: scenario: the policy's script has ended"},
		},
		{
			name: "Reconnect while open waits for what the server asked",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerStream("retry: 5000\n\n")), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 2 * time.Second, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "2s restarted", "7s request", "7s rejected", "7s done: scenario: the policy's script has ended"},
		},
		{
			name: "Reconnect in the wait cannot cut what the server asked",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone},
				Policy: policyScript(time.Minute),
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: 2 * time.Second, Do: scenario.Restart},
					{After: 3 * time.Second, Do: scenario.Restart},
					{After: 4 * time.Second, Do: scenario.Restart},
				}},
			},
			want: []string{"0s request", "0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name: "Reconnect before the first byte, again and again",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), {Failure: scenario.NeverAnswers}, answerGone},
				Policy: policyScript(0, 0),
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: 6 * time.Second, Do: scenario.Restart},
					{After: 7 * time.Second, Do: scenario.Restart},
				}},
			},
			want: []string{
				"0s request", "0s ended", "5s request", "6s restarted", "11s request", "11s rejected",
				"11s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "an adopted response asks as well",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Adopt: scenario.Resume},
			},
			want: []string{"0s ended", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name: "a failed Prepare is an attempt",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 5000\n\n"), {Failure: scenario.Unprepared}, answerGone},
				Policy: policyScript(0, 0),
			},
			want: []string{"0s request", "0s ended", "5s failed", "10s request", "10s rejected", "10s done: scenario: the policy's script has ended"},
		},
		{
			name: "a Retry-After for ever",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerUnavailable("99999999999999999999999"), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 24 * time.Hour, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s rejected", "960h0m0s done: scenario: cancelled at the horizon"},
		},
		{
			name: "a retry for ever",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 99999999999999999999\n\n"), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 24 * time.Hour, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s ended", "960h0m0s done: scenario: cancelled at the horizon"},
		},
	})
	p.holds(t)
}

func TestG2ExactlyOrNotAtAll(t *testing.T) {
	t.Parallel()
	day := answerStream("id: 1\nretry: 86400000\n\n")
	p := property{checks: []scenario.Check{scenario.Exactly, scenario.WithinBudget}}
	p.holdsIn(t, []scenarioCase{
		{
			name:     "a day-long retry under a budget is not slept",
			scenario: scenario.Scenario{Server: []scenario.Answer{day, answerGone}, Policy: scenario.Policy{Preset: "MCPCall"}},
			want:     []string{"0s request", "0s ended", "0s done: budget: 24h0m0s of 5m0s"},
		},
		{
			name: "a day-long retry without a budget is waited for exactly",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{day, answerGone},
				Policy: policyRules(policy.Rules{}),
			},
			want: []string{"0s request", "0s ended", `24h0m0s request ["1"]`, "24h0m0s rejected", "24h0m0s done: in order"},
		},
		{
			name: "a day-long Retry-After under a budget",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerUnavailable("86400"), answerGone},
				Policy: policyRules(policy.Rules{Budget: time.Minute}),
			},
			want: []string{"0s request", "0s rejected", "0s done: budget: 24h0m0s of 1m0s"},
		},
		{
			name: "a wait that fits is waited in full",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 59999\n\n"), answerGone},
				Policy: policyRules(policy.Rules{Budget: time.Minute}),
			},
			want: []string{"0s request", "0s ended", "59.999s request", "59.999s rejected", "59.999s done: in order"},
		},
		{
			name: "a wait as long as the budget does not fit",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 60000\n\n"), answerGone},
				Policy: policyRules(policy.Rules{Budget: time.Minute}),
			},
			want: []string{"0s request", "0s ended", "0s done: budget: 1m0s of 1m0s"},
		},
		{
			name: "a wait that cannot end before the deadline is refused at once",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{day, answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Deadline: time.Hour},
			},
			want: []string{"0s request", "0s ended", "0s done: deadline"},
		},
		{
			name: "so is one that ends at the deadline",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerQuiet("", 10*time.Second), answerGone},
				Policy: policyScript(50 * time.Second),
				Caller: scenario.Caller{Deadline: time.Minute},
			},
			want: []string{"0s request", "10s ended", "10s done: deadline"},
		},
		{
			name: "but not one that ends just before",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerQuiet("", 10*time.Second), answerSilent},
				Policy: policyScript(50*time.Second - 1),
				Caller: scenario.Caller{Deadline: time.Minute},
			},
			want: []string{"0s request", "10s ended", "59.999999999s request", "1m0s done: context deadline exceeded"},
		},
		{
			name: "Reconnect cuts a wait of the client's own",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerRefused, answerGone},
				Policy: policyScript(30 * time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 10 * time.Second, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s failed", "10s request", "10s rejected", "10s done: scenario: the policy's script has ended"},
		},
		{
			name: "and Reconnect while the policy decides cuts the wait to come",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 2000\n\n"), answerGone},
				Policy: policyScript(30 * time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Decide, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s ended", "2s request", "2s rejected", "2s done: scenario: the policy's script has ended"},
		},
		{
			name: "a wait that Reconnect has cut short before it began is measured as it will be",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerStream("retry: 2000\n\n"), answerGone},
				Policy: policyScript(2 * time.Hour),
				Caller: scenario.Caller{Deadline: time.Hour, Actions: []scenario.Action{{On: scenario.AttemptEnd, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s ended", "2s request", "2s rejected", "2s done: scenario: the policy's script has ended"},
		},
		{
			name: "and refused if even so it does not end before the deadline",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{day, answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Deadline: time.Hour, Actions: []scenario.Action{{On: scenario.AttemptEnd, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s ended", "0s done: deadline"},
		},
		{
			name: "one Reconnect cuts one thing",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerMessage), answerGone},
				Policy: policyScript(30 * time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 10 * time.Second, Do: scenario.Restart}}},
			},
			want: []string{"0s request", `0s event "m"`, "10s restarted", "40s request", "40s rejected", "40s done: scenario: the policy's script has ended"},
		},
		{
			name: "a refusal stays one when Reconnect comes while its body is read",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{Status: 503, Body: []scenario.Piece{{Wait: time.Minute}}}, answerGone},
				Policy: policyScript(30 * time.Second),
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 500 * time.Millisecond, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "500ms rejected", "500ms request", "500ms rejected", "500ms done: scenario: the policy's script has ended"},
		},
		{
			name: "so does an event too large that was read when Reconnect is called",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{openAnswer(answerStream(strings.Repeat(":"+strings.Repeat(" ", 199)+"\n", 2) + "data: " + strings.Repeat("x", 600) + "\n\n")), answerGone},
				Policy: policyScript(0),
				Caller: scenario.Caller{Actions: []scenario.Action{{On: scenario.Comment, N: 2, Do: scenario.Restart}}},
			},
			want: []string{"0s request", "0s too large", "0s request", "0s rejected", "0s done: scenario: the policy's script has ended"},
		},
	})
	p.holds(t)
}

// The deadline of a context is real time, whatever the Clock says: under a Fake too
// a wait is refused if it could not end before.
func TestG2DeadlineIsRealTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	fake := clock.NewFake(time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC))
	rt := answers(refuse(errCut))
	var waited []time.Duration
	c := rt.client(eventsource.Client{
		Clock: fake,
		Policy: policy.Constructor(func() policy.Reconnector {
			return policy.Func(func(a policy.Attempt) policy.Decision {
				return policy.After(time.Duration(a.Number) * 25 * time.Minute)
			})
		}),
		Trace: traceOf(&eventsource.Trace{Wait: func(i eventsource.WaitInfo) {
			waited = append(waited, i.Waited)
			fake.Advance(i.Waited)
		}}),
	})
	_, err := collect(c.Stream(get(ctx)))
	var stop *eventsource.StopError
	if !errors.As(err, &stop) || !errors.Is(stop.Reason, context.DeadlineExceeded) || !errors.Is(err, errCut) {
		t.Errorf("it ends with %v", err)
	}
	// The time by which the Fake was advanced is not counted.
	if diff := cmp.Diff([]time.Duration{25 * time.Minute, 50 * time.Minute}, waited); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

// A refusal that arrives in the very instant of ConnectTimeout, and so has come, is
// obeyed. The fuzzer found the next request sent before its Retry-After had passed.
func TestG1RefusalAtTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		rt := answers(func(req *http.Request) (*http.Response, error) {
			time.Sleep(timeout) // whatever becomes of the context
			return status(503, "Retry-After", "7")(req)
		}, status(204))
		var attempts []policy.Attempt
		c := rt.client(eventsource.Client{
			ConnectTimeout: timeout,
			Policy:         resilient,
			Trace:          traceOf(&eventsource.Trace{End: func(a policy.Attempt) { attempts = append(attempts, a) }}),
		})
		if _, err := collect(c.Stream(get(t.Context()))); err != nil || len(attempts) != 2 {
			t.Fatalf("%d attempts, then %v", len(attempts), err)
		}
		if first := attempts[0]; first.Kind != policy.Rejected || first.Asked != 7*time.Second {
			t.Errorf("the first attempt was %v, and asked for %v", first.Kind, first.Asked)
		}
		if gap := attempts[1].Start.Sub(attempts[0].End); gap != 7*time.Second {
			t.Errorf("the next attempt came after %v, want 7s", gap)
		}
	})
}

// TestWaitCountsFromTheEnd holds that the time that hooks and policies take is part of the
// wait, which counts from the end of the attempt.
func TestWaitCountsFromTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := serve(t,
			[]eventsourcetest.Step{eventsourcetest.Event{Data: "a"}, eventsourcetest.Cut},
			[]eventsourcetest.Step{eventsourcetest.Event{Data: "b"}})
		client := eventsource.Client{
			HTTPClient: srv.Client(),
			Policy:     strict,
			Trace:      traceOf(&eventsource.Trace{End: func(policy.Attempt) { time.Sleep(2 * time.Second) }}),
		}
		if _, err := collect(client.Stream(request(t.Context(), t, srv.URL))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(seconds(3, 3), gaps(srv)); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
	})
}

// What has passed of a wait when the policy has decided is not waited again, so it does
// not count against the deadline either.
func TestG2DeadlineCountsFromTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		rt := answers(body(nil, "data: a\n\n"), status(204))
		client := rt.client(eventsource.Client{
			Policy: strict, // waits for 3 s
			Trace:  traceOf(&eventsource.Trace{End: func(policy.Attempt) { time.Sleep(2 * time.Second) }}),
		})
		// The second hook's time passes the deadline, so how it ends tells nothing.
		collect(client.Stream(get(ctx)))
		if diff := cmp.Diff(seconds(0, 3), rt.at); diff != "" {
			t.Errorf("requests at (-want +got):\n%s", diff)
		}
	})
}

// HTML §9.2.2, step 3, and §9.2.3, reestablish the connection: in which cases
// there is another attempt, and after what time.
func TestReconnection(t *testing.T) {
	cut := eventStream("retry: 40\nid: 1\ndata: x\n\ndata: y")
	cut.Cut = true
	for _, tt := range []struct {
		name    string
		first   wireAnswer
		kind    policy.Kind
		waits   time.Duration
		resumes string // Last-Event-ID of the second request
	}{
		{"the end of the body", eventStream("retry: 40\nid: 1\ndata: x\n\n"), policy.Ended, 40 * time.Millisecond, "1"},
		{"the end inside an event", eventStream("retry: 40\ndata: x\n"), policy.Ended, 40 * time.Millisecond, ""},
		{"a broken body", cut, policy.Dropped, 40 * time.Millisecond, "1"},
		{"no response", wireAnswer{Drop: true}, policy.Failed, 3 * time.Second, ""},
		{"an empty body", eventStream(""), policy.Ended, 3 * time.Second, ""},
		{"a retry line alone", eventStream("retry: 40\n"), policy.Ended, 40 * time.Millisecond, ""},
		{"a retry line that is not whole", eventStream("retry: 40"), policy.Ended, 3 * time.Second, ""},
	} {
		strict := eventsource.Client{Policy: policy.Rules{Jitter: -1, Floor: -1}}
		run := runWire(t, strict, nil, tt.first, eventStream(""))
		if len(run.Requests) != 3 || run.End != nil {
			t.Errorf("%s: %d requests, %v", tt.name, len(run.Requests), run.End)
			continue
		}
		if run.Attempts[0].Kind != tt.kind {
			t.Errorf("%s: the attempt is %v, want %v", tt.name, run.Attempts[0].Kind, tt.kind)
		}
		if waited := run.Requests[1].At.Sub(run.Requests[0].At); waited != tt.waits {
			t.Errorf("%s: the second request comes after %v, want %v", tt.name, waited, tt.waits)
		}
		if got := strings.Join(run.Requests[1].lines("Last-Event-ID"), "|"); got != tt.resumes {
			t.Errorf("%s: the second request has the ID %q, want %q", tt.name, got, tt.resumes)
		}
		// The time stays in force for a connection that sends none; that one has
		// been fruitless, so the wait may be longer.
		if a := run.Attempts[1]; a.HasRetry != (tt.waits < time.Second) || a.HasRetry && a.Retry != tt.waits {
			t.Errorf("%s: at the second end the reconnection time is %v, %v", tt.name, a.Retry, a.HasRetry)
		}
	}
}

// A starting policy decides about the first attempt, too.
type starting struct {
	policy.Func
	start policy.Decision
}

func (s starting) Start() policy.Decision { return s.start }

// What a Starter decides about the first attempt is done, and a response in hand is not
// waited for.
func TestStarter(t *testing.T) {
	givenUp := errors.New("not today")
	for _, tt := range []struct {
		name  string
		start policy.Decision
		adopt bool
		limit time.Duration // of the context; 0 means none
		want  []string
	}{
		{
			name: "a wait", start: policy.After(5 * time.Second),
			want: []string{"wait 1: 5s", "5s: connect with 7", "5s: end 1: rejected"},
		},
		{
			name: "no wait with a response in hand", start: policy.After(5 * time.Second), adopt: true,
			want: []string{"0s: end 1: ended"},
		},
		{
			name: "limits", start: policy.After(5 * time.Second).Within(time.Second), adopt: true,
			want: []string{"1s: end 1: expired"},
		},
		{
			name: "without the last event ID", start: policy.After(0).Forget(),
			want: []string{"0s: connect with ", "0s: end 1: rejected"},
		},
		{name: "no attempt", start: policy.Stop(givenUp), want: []string{"0s: not today"}},
		{name: "no attempt with a response in hand", start: policy.Stop(givenUp), adopt: true, want: []string{"0s: not today"}},
		{name: "no attempt, in order", start: policy.Stop(nil), want: nil},
		{name: "no decision", want: []string{"0s: the policy made no decision"}},
		{name: "a wait past the deadline", start: policy.After(time.Hour), limit: time.Minute, want: []string{"0s: deadline"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.limit)
					defer cancel()
				}
				var got []string
				say := func(format string, args ...any) {
					got = append(got, fmt.Sprintf("%v: ", time.Since(bubbleStart))+fmt.Sprintf(format, args...))
				}
				rt := answers(status(204))
				client := rt.client(eventsource.Client{
					Policy: policy.Constructor(func() policy.Reconnector {
						return starting{func(policy.Attempt) policy.Decision { return policy.Stop(nil) }, tt.start}
					}),
					Trace: traceOf(&eventsource.Trace{
						Connect: func(i eventsource.ConnectInfo) { say("connect with %s", i.Request.Header.Get("Last-Event-ID")) },
						End:     func(a policy.Attempt) { say("end %d: %v", a.Number, a.Kind) },
						Wait:    func(i eventsource.WaitInfo) { got = append(got, fmt.Sprintf("wait %d: %v", i.Number, i.Waited)) },
					}),
				})
				req := get(ctx)
				req.Header.Set("Last-Event-ID", "7")
				s := client.Stream(req)
				var bodies bodyCounter
				if tt.adopt {
					end := io.EOF
					if _, limited := tt.start.Limit(); limited {
						end = errHold
					}
					bodies.base = answers(body(end, ": hello\n\n"))
					resp, err := bodies.RoundTrip(get(ctx))
					if err != nil {
						t.Fatal(err)
					}
					s = client.Adopt(resp, req)
				}
				if _, err := collect(s); err != nil {
					say("%s", reasonFor(err))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if open := bodies.open.Load(); open != 0 {
					t.Error("the adopted body is open")
				}
			})
		})
	}
}

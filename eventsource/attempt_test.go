package eventsource_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/internal/scenario"
	"github.com/reprise-sse/reprise/policy"
)

func TestG3BoundedWhenAsked(t *testing.T) {
	t.Parallel()
	p := property{
		profile: scenario.Profile{Rules: true, Budget: true, Long: true},
		checks:  []scenario.Check{scenario.WithinLimits, scenario.WithinBudget, scenario.WithinPatience},
	}
	minute := policyRules(policy.Rules{Budget: time.Minute, Delay: 10 * time.Second, Factor: 1})
	drip := scenario.Answer{End: scenario.Hold}
	for range 100 {
		drip.Body = append(drip.Body, scenario.Piece{Wait: time.Second, Text: ": still here\n\n"})
	}
	primed := answerStream("id: 1\nretry: 10000\ndata:\n\n")
	p.holdsIn(t, []scenarioCase{
		{
			name:     "a silent server",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, answerSilent}, Policy: minute},
			want:     []string{"0s request", "0s ended", "10s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "the budget's clock starts when the first attempt has ended",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerQuiet("", time.Hour), answerSilent}, Policy: minute},
			want:     []string{"0s request", "1h0m0s ended", "1h0m10s request", "1h1m0s expired", "1h1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "a server that drips keep-alives",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, drip}, Policy: minute},
			want:     []string{"0s request", "0s ended", "10s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "a server that never answers",
			scenario: scenario.Scenario{Server: []scenario.Answer{answerEmpty, {Failure: scenario.NeverAnswers}}, Policy: minute, Caller: scenario.Caller{ConnectTimeout: -1}},
			want:     []string{"0s request", "0s ended", "10s request", "1m0s expired", "1m0s done: budget: 10s of 0s"},
		},
		{
			name:     "primed closes without end",
			scenario: scenario.Scenario{Server: repeatAnswer(20, primed), Policy: minute},
			want: []string{
				"0s request", `0s event ""`, "0s ended", `10s request ["1"]`, `10s event ""`, "10s ended",
				`20s request ["1"]`, `20s event ""`, "20s ended", `30s request ["1"]`, `30s event ""`, "30s ended",
				`40s request ["1"]`, `40s event ""`, "40s ended", `50s request ["1"]`, `50s event ""`, "50s ended",
				"50s done: budget: 10s of 10s",
			},
		},
		{
			name: "only a message renews the budget",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerQuiet("data: m\n\n", 5*time.Minute), answerQuiet("data:\n\n", 35*time.Second), answerSilent},
				Policy: minute,
			},
			want: []string{
				"0s request", "0s ended", "10s request", `10s event "m"`, "5m10s ended", "5m20s request",
				`5m20s event ""`, "5m55s ended", "6m5s request", "6m10s expired", "6m10s done: budget: 10s of 0s",
			},
		},
		{
			name: "an attempt that has brought a message is bounded by the idle timeout only",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, openAnswer(answerQuiet("data: m\n\n: still here\n\n", 10*time.Minute)), answerGone},
				Policy: minute,
				Caller: scenario.Caller{IdleTimeout: time.Hour},
			},
			want: []string{"0s request", "0s ended", "10s request", `10s event "m"`, "1h0m10s idle", "1h0m20s request", "1h0m20s rejected", "1h0m20s done: in order"},
		},
		{
			name: "restarts by the caller do not renew it",
			scenario: scenario.Scenario{
				Server: repeatAnswer(8, answerSilent),
				Policy: minute,
				Caller: scenario.Caller{Actions: []scenario.Action{
					{After: 10 * time.Second, Do: scenario.Restart},
					{After: 30 * time.Second, Do: scenario.Restart},
					{After: 50 * time.Second, Do: scenario.Restart},
				}},
			},
			want: []string{
				"0s request", "10s restarted", "10s request", "30s restarted", "30s request", "50s restarted",
				"50s request", "1m10s expired", "1m10s done: budget: 10s of 0s",
			},
		},
		{
			name: "keep-alives do not stop a policy's own limit",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, drip, answerGone},
				Policy: scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(5 * time.Second)}, {}}},
			},
			want: []string{"0s request", "0s ended", "0s request", "5s expired", "5s request", "5s rejected", "5s done: scenario: the policy's script has ended"},
		},
		{
			name: "nor does an event without data, and a message does",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					answerEmpty,
					openAnswer(answerStream("data:\n\n")),
					{Body: []scenario.Piece{{Wait: 5*time.Second - 1, Text: "data: m\n\n"}, {Wait: time.Hour}}},
					answerGone,
				},
				Policy: scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(5 * time.Second)}, {Within: scenario.Ptr(5 * time.Second)}, {}}},
			},
			want: []string{
				"0s request", "0s ended", "0s request", `0s event ""`, "5s expired", "5s request", `9.999999999s event "m"`,
				"1h0m9.999999999s ended", "1h0m9.999999999s request", "1h0m9.999999999s rejected",
				"1h0m9.999999999s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "a negative limit is one of zero, and counts from the end of the whole wait",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerSilent, answerGone},
				Policy: scenario.Policy{Script: []scenario.Decision{{After: 10 * time.Second, Within: scenario.Ptr(-4 * time.Second)}, {}}},
				Caller: scenario.Caller{Actions: []scenario.Action{{After: 2 * time.Second, Do: scenario.Restart}}},
			},
			want: []string{
				"0s request", "0s ended", "2s request", "10s expired", "10s request", "10s rejected",
				"10s done: scenario: the policy's script has ended",
			},
		},
		{
			name: "the limit is that of one attempt",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerEmpty, answerQuiet("", time.Second), answerQuiet("", time.Hour), answerGone},
				Policy: scenario.Policy{Script: []scenario.Decision{{Within: scenario.Ptr(5 * time.Second)}, {}, {}}},
			},
			want: []string{
				"0s request", "0s ended", "0s request", "1s ended", "1s request", "1h0m1s ended", "1h0m1s request", "1h0m1s rejected",
				"1h0m1s done: scenario: the policy's script has ended",
			},
		},
	})
	p.holds(t)
}

// answerDrip is a response that brings a piece of text n times, each after a silence.
func answerDrip(n int, silence time.Duration, text string) scenario.Answer {
	return scenario.Answer{Body: slices.Repeat([]scenario.Piece{{Wait: silence, Text: text}}, n)}
}

// Silence for the idle timeout ends the attempt, wherever in an event it begins. Any byte
// is a sign of life, also in a comment, and the time that the loop body takes is not the
// server's silence. Without a timeout, which is the default, a server may be silent for a
// day.
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	const ended = "done: scenario: the policy's script has ended"
	limited := scenario.Caller{IdleTimeout: 30 * time.Second}
	var cases []scenarioCase
	for _, last := range []string{"data: par", "da", "id: 8\ndata: whole\n", ": hm", "\r"} {
		cases = append(cases, scenarioCase{
			name: fmt.Sprintf("silence after %q", last),
			scenario: scenario.Scenario{
				Server: []scenario.Answer{
					{Body: []scenario.Piece{{Text: "id: 7\ndata: a\n\n"}, {Wait: 10 * time.Second, Text: last}}, End: scenario.Hold},
					answerGone,
				},
				Policy: policyScript(0),
				Caller: limited,
			},
			want: []string{"0s request", `0s event "a"`, "40s idle", `40s request ["7"]`, "40s rejected", "40s " + ended},
		})
	}
	for _, sign := range []string{":\n", ": ping\n\n", "x", "\n", "\r", "data: more\n", "\xff"} {
		cases = append(cases, scenarioCase{
			name: fmt.Sprintf("%q as a sign of life", sign),
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerDrip(20, 30*time.Second-1, sign)},
				Caller: limited,
			},
			want: []string{"0s request", "9m59.99999998s ended", "9m59.99999998s " + ended},
		})
	}
	day := answerQuiet("", 24*time.Hour)
	p := property{checks: []scenario.Check{scenario.EverythingVisible}}
	p.holdsIn(t, append(cases, []scenarioCase{
		{
			name:     "none by default",
			scenario: scenario.Scenario{Server: []scenario.Answer{day}},
			want:     []string{"0s request", "24h0m0s ended", "24h0m0s " + ended},
		},
		{
			name:     "a negative one is none",
			scenario: scenario.Scenario{Server: []scenario.Answer{day}, Caller: scenario.Caller{IdleTimeout: -1}},
			want:     []string{"0s request", "24h0m0s ended", "24h0m0s " + ended},
		},
		{
			name: "the policy's goes before the client's, and lasts for one attempt",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{answerSilent, day, answerSilent, answerSilent},
				Policy: scenario.Policy{Script: []scenario.Decision{{Idle: -1}, {Idle: time.Hour}, {}}},
				Caller: limited,
			},
			want: []string{
				"0s request", "30s idle", "30s request", "24h0m30s ended", "24h0m30s request", "25h0m30s idle",
				"25h0m30s request", "25h1m0s idle", "25h1m0s " + ended,
			},
		},
		{
			name: "the loop body takes its time",
			scenario: scenario.Scenario{
				Server: []scenario.Answer{{Body: []scenario.Piece{{Text: "data: a\n\ndata: b\n\n"}, {Wait: 65 * time.Minute, Text: "data: c\n\n"}}}},
				Caller: scenario.Caller{IdleTimeout: 30 * time.Second, Slow: 32*time.Minute + 45*time.Second},
			},
			want: []string{
				"0s request", `0s event "a"`, `32m45s event "b"`, `1h5m30s event "c"`, "1h38m15s ended", "1h38m15s " + ended,
			},
		},
	}...))
}

// There are two limits on connecting, the Client's own and the Timeout of the caller's
// HTTP client. The shorter holds, for the headers of the response, redirects included;
// neither cuts the stream that follows, and the caller's client is not changed.
func TestConnectTimeout(t *testing.T) {
	const s = time.Second
	answers := func(after time.Duration) []Step {
		return []Step{Wait(after), Event{Data: "x"}, Wait(5 * s), Event{Data: "y"}}
	}
	moved := Status{Code: 307, Header: http.Header{"Location": {"/elsewhere"}}}
	for name, c := range map[string]struct {
		connect, total time.Duration
		script         [][]Step
		want           time.Duration // after which the attempt has failed; 0: it has not
	}{
		"answers at once":            {connect: s, script: [][]Step{answers(0)}},
		"answers in time":            {connect: s, script: [][]Step{answers(s - 1)}},
		"answers too late":           {connect: s, script: [][]Step{answers(s + 1)}, want: s},
		"client's limit, in time":    {total: 2 * s, script: [][]Step{answers(2*s - 1)}},
		"client's limit, too late":   {total: 2 * s, script: [][]Step{answers(2*s + 1)}, want: 2 * s},
		"client's limit is shorter":  {connect: 3 * s, total: 2 * s, script: [][]Step{answers(2*s + 1)}, want: 2 * s},
		"client's limit is longer":   {connect: s, total: 2 * s, script: [][]Step{answers(s + 1)}, want: s},
		"only the client's":          {connect: -1, total: 2 * s, script: [][]Step{answers(2*s + 1)}, want: 2 * s},
		"default, in time":           {script: [][]Step{answers(30*s - 1)}},
		"default, too late":          {script: [][]Step{answers(30*s + 1)}, want: 30 * s},
		"none":                       {connect: -1, script: [][]Step{answers(24 * time.Hour)}},
		"redirects are in it":        {connect: 3 * s, script: [][]Step{{Wait(2 * s), moved}, {Wait(2 * s), Event{Data: "x"}}}, want: 3 * s},
		"redirects in time":          {connect: 3 * s, script: [][]Step{{Wait(s), moved}, answers(s)}},
		"the body of a redirect too": {connect: s, script: [][]Step{{moved, Open, Wait(2 * s), Send("x")}, answers(0)}, want: s},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(c.script...)
				limited := *srv.Client()
				limited.Timeout = c.total
				played := play(t, srv, eventsource.Client{HTTPClient: &limited, ConnectTimeout: c.connect})
				if limited.Timeout != c.total || limited.CheckRedirect != nil {
					t.Error("the caller's client was changed")
				}
				first := played.ends[0]
				if c.want == 0 {
					if first.Kind != policy.Ended || first.Events != 2 {
						t.Fatalf("the attempt ended %v, with %d events and %v", first.Kind, first.Events, first.Err)
					}
					return
				}
				var timeout interface{ Timeout() bool }
				if first.Kind != policy.Failed || !errors.As(first.Err, &timeout) || !timeout.Timeout() {
					t.Errorf("the attempt ended %v with %v", first.Kind, first.Err)
				}
				if took := first.End.Sub(first.Start); took != c.want {
					t.Errorf("it ended after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// Refusals do not leak connections: every body is closed, and if it is small the
// connection is used again.
func TestRefusalsDoNotLeak(t *testing.T) {
	refusal := Status{Code: http.StatusServiceUnavailable, Body: strings.Repeat("x", 1<<10)}
	overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
		srv := serve(repeated(20, refusal)...)
		bodies := &bodyCounter{base: srv.Client().Transport}
		s := play(t, srv, eventsource.Client{HTTPClient: &http.Client{Transport: bodies}, Policy: policy.Resilient()})
		if n := len(s.ends); n != 21 || s.err != nil {
			t.Errorf("%d attempts and %v", n, s.err)
		}
		synctest.Wait() // nobody waits until a body of HTTP/2 is closed
		if n, all := bodies.open.Load(), bodies.opened.Load(); n != 0 || all != 21 {
			t.Errorf("%d of %d bodies are open", n, all)
		}
		for _, r := range srv.Requests() {
			if r.Connection != 1 {
				t.Fatalf("request %d came on connection %d", r.Number, r.Connection)
			}
		}
	})
}

// The time that the loop body takes is not the server's silence, even if the end of the
// response came with its last message, so that nothing is read after the loop body; with
// Content-Length net/http reads like that.
func TestSilenceWithoutLoopBody(t *testing.T) {
	t.Parallel()
	events := "id: 1\ndata: a\n\nid: 2\ndata: b\n\n"
	for name, tt := range map[string]struct {
		body  string
		limit int
		kind  policy.Kind
	}{
		"the end came along":            {events, 0, policy.Ended},
		"too large an event came along": {events + "data: " + strings.Repeat("x", 100) + "\n\n", 64, policy.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := answers(func(*http.Request) (*http.Response, error) {
					time.Sleep(time.Second) // the headers take their time
					body := iotest.DataErrReader(strings.NewReader(tt.body))
					return response(http.StatusOK, "text/event-stream", io.NopCloser(body)), nil
				})
				var got policy.Attempt
				c := rt.client(eventsource.Client{
					MaxEventSize: tt.limit,
					Policy:       policy.Func(func(a policy.Attempt) policy.Decision { got = a; return policy.Stop(nil) }),
				})
				for _, err := range c.Stream(get(t.Context())).Events() {
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Hour)
				}
				if got.Kind != tt.kind || got.Messages != 2 || got.Silence != 0 {
					t.Errorf("%v after %d messages and %v of silence; want %v, 2 and none", got.Kind, got.Messages, got.Silence, tt.kind)
				}
			})
		})
	}
}

// A loop body that takes longer than GiveUpAfter does not end the stream.
func TestGiveUpAfterWithSlowLoopBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := func(*http.Request) (*http.Response, error) {
			body := iotest.DataErrReader(strings.NewReader("data: a\n\n"))
			return response(http.StatusOK, "text/event-stream", io.NopCloser(body)), nil
		}
		c := answers(one, one, status(http.StatusNoContent)).client(eventsource.Client{Policy: policy.Rules{GiveUpAfter: time.Minute}})
		messages := 0
		for _, err := range c.Stream(get(t.Context())).Events() {
			if err != nil {
				t.Fatal(err)
			}
			messages++
			time.Sleep(time.Hour)
		}
		if messages != 2 {
			t.Errorf("%d messages, want 2", messages)
		}
	})
}

// A request that can never be sent has failed for good, even if the attempt is restarted
// at the same time: the policy needs to know.
func TestPermanentFailureOutweighsReconnect(t *testing.T) {
	var s *eventsource.Stream
	var ends []policy.Attempt
	client := answers(status(204)).client(eventsource.Client{
		Policy: policy.Never(),
		Prepare: func(req *http.Request) error {
			s.Reconnect()
			req.URL = nil
			return nil
		},
		Trace: traceOf(&eventsource.Trace{End: func(a policy.Attempt) { ends = append(ends, a) }}),
	})
	s = client.Stream(get(t.Context()))
	collect(s)
	if len(ends) != 1 || ends[0].Kind != policy.Failed || !ends[0].Permanent || ends[0].Err == nil {
		t.Errorf("the attempts ended as %+v", ends)
	}
}

// If an attempt is interrupted as the header of an event stream comes, the response is
// not used, and the facts do not speak of it.
func TestHeaderComesAsTheAttemptIsInterrupted(t *testing.T) {
	var s *eventsource.Stream
	var w watcher
	client := answers(func(req *http.Request) (*http.Response, error) {
		s.Reconnect()
		return body(nil, "data: a\n\n")(req)
	}).client(eventsource.Client{Policy: policy.Never(), Trace: traceOf(w.trace())})
	s = client.Stream(get(t.Context()))
	data, _ := collect(s)
	if diff := cmp.Diff([]string{"connect 1", "end 1: restarted"}, w.log[:min(2, len(w.log))]); diff != "" || data != nil {
		t.Errorf("events %q, trace (-want +got):\n%s", data, diff)
	}
	if a := w.ends[0]; a.Status != 0 || a.Header != nil || !a.Open.IsZero() {
		t.Errorf("the attempt has the status %d, the header %v and was open at %v", a.Status, a.Header, a.Open)
	}
}

// An attempt is over when its response is closed, which may take time.
func TestEndIsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watcher
		rt := answers(body(nil, "data: a\n\n"))
		slow := wrapBodies(rt, func(body io.ReadCloser) io.ReadCloser {
			return &spiedBody{ReadCloser: body, close: func() error {
				time.Sleep(2 * time.Second)
				return body.Close()
			}}
		})
		client := eventsource.Client{HTTPClient: &http.Client{Transport: slow}, Policy: policy.Never(), Trace: traceOf(w.trace())}
		if _, err := collect(client.Stream(get(t.Context()))); err != nil {
			t.Fatal(err)
		}
		if took := w.ends[0].End.Sub(w.ends[0].Start); took != 2*time.Second {
			t.Errorf("the attempt took %v, want 2s", took)
		}
	})
}

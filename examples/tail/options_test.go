package main

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/policy"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want options // but for policy
	}{
		{"the demo", nil, options{header: http.Header{}}},
		{"the demo as JSON", []string{"-json"}, options{json: true, header: http.Header{}}},
		{
			"everything",
			[]string{
				"-json", "-header", "Authorization: Bearer a:b", "-header", "x-trace:1", "-header", "X-Trace: 2",
				"-last-event-id", "41", "-idle", "45s", "http://h/x?y=z",
			},
			options{
				url: "http://h/x?y=z", json: true, lastEventID: "41", idle: 45 * time.Second,
				header: http.Header{"Authorization": {"Bearer a:b"}, "X-Trace": {"1", "2"}},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stderr bytes.Buffer
			got, err := parse(tt.args, &stderr)
			if err != nil || stderr.Len() > 0 {
				t.Fatalf("parse: %v, and on stderr %q", err, stderr.String())
			}
			got.policy = nil
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

// The flags for the policy show in what it decides after attempts chosen so that
// each decision depends on one flag.
func TestParsePolicy(t *testing.T) {
	start := time.Unix(1_000, 0)
	ended := policy.Attempt{Number: 1, Kind: policy.Ended, Start: start, Open: start, End: start, Messages: 1, Events: 1}
	asked := func(d time.Duration) policy.Attempt {
		a := ended
		a.RetrySent, a.HasRetry, a.Retry, a.Asked = true, true, d, d
		return a
	}
	refused := policy.Attempt{Number: 1, Kind: policy.Rejected, Status: 503, Err: errRefused, Start: start, End: start}
	failed := policy.Attempt{Number: 2, Kind: policy.Failed, Err: errRefused, Start: start, End: start}

	tests := []struct {
		name        string
		flags       []string
		attempt     policy.Attempt
		wantStop    bool
		least, most time.Duration // of the delay; most includes the jitter
	}{
		{"the default delay", nil, ended, false, 3 * time.Second, 4500 * time.Millisecond},
		{"-delay", []string{"-delay", "7s"}, ended, false, 7 * time.Second, 10500 * time.Millisecond},
		{"no budget", nil, asked(time.Hour), false, time.Hour, time.Hour},
		{"-budget that is too small", []string{"-budget", "59m"}, asked(time.Hour), true, 0, 0},
		{"-budget that is large enough", []string{"-budget", "61m"}, asked(time.Hour), false, time.Hour, time.Hour},
		{"strict", nil, refused, true, 0, 0},
		{"-resilient", []string{"-resilient"}, refused, false, 3 * time.Second, 4500 * time.Millisecond},
		{"no limit on reconnections", nil, failed, false, 3 * time.Second, 4500 * time.Millisecond},
		{"-max-fruitless reached", []string{"-max-fruitless", "1"}, failed, true, 0, 0},
		{"-max-fruitless not reached", []string{"-max-fruitless", "2"}, failed, false, 3 * time.Second, 4500 * time.Millisecond},
		{"-never", []string{"-never"}, ended, true, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stderr bytes.Buffer
			o, err := parse(append(tt.flags, "http://h/"), &stderr)
			if err != nil {
				t.Fatal(err)
			}
			d := o.policy.New().Next(tt.attempt)
			if _, stopped := d.Stopped(); stopped != tt.wantStop {
				t.Fatalf("decided %v, want a stop: %v", d, tt.wantStop)
			}
			if d.Delay() < tt.least || d.Delay() > tt.most {
				t.Errorf("decided %v, want between %v and %v", d, tt.least, tt.most)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string // the first line on stderr
	}{
		{"two URLs", []string{"http://a", "http://b"}, "tail: more than one URL (flags go before it)"},
		{"a flag after the URL", []string{"http://a", "-json"}, "tail: more than one URL (flags go before it)"},
		{"a policy for the demo", []string{"-budget", "1s"}, "tail: -budget needs a URL; the demo has settings of its own"},
		{"a header for the demo", []string{"-header", "A: b"}, "tail: -header needs a URL; the demo has settings of its own"},
		{"never, but", []string{"-never", "-delay", "1s", "http://a"}, "tail: -never and -delay contradict each other"},
		{"never and resilient", []string{"-never", "-resilient", "http://a"}, "tail: -never and -resilient contradict each other"},
		{"negative delay", []string{"-delay", "-1s", "http://a"}, "tail: -delay is negative"},
		{"negative budget", []string{"-budget", "-1s", "http://a"}, "tail: -budget is negative"},
		{"negative idle", []string{"-idle", "-1s", "http://a"}, "tail: -idle is negative"},
		{"a header without a colon", []string{"-header", "x", "http://a"}, `invalid value "x" for flag -header: want 'Name: value'`},
		{"a header without a name", []string{"-header", " : x", "http://a"}, `invalid value " : x" for flag -header: want 'Name: value'`},
		{"an unknown flag", []string{"-follow", "http://a"}, "flag provided but not defined: -follow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // should the command line be taken for a good one
			if code := run(ctx, tt.args, &stdout, &stderr); code != exitUsage {
				t.Errorf("exit status %d, want %d", code, exitUsage)
			}
			first, rest, _ := strings.Cut(stderr.String(), "\n")
			if first != tt.want {
				t.Errorf("stderr begins with %q, want %q", first, tt.want)
			}
			if !strings.HasPrefix(rest, "usage: tail ") {
				t.Errorf("no usage follows but %q", rest)
			}
			if stdout.Len() > 0 {
				t.Errorf("on stdout: %q", stdout.String())
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, &stdout, &stderr); code != exitOK {
		t.Errorf("exit status %d, want %d", code, exitOK)
	}
	for _, flag := range []string{"-budget", "-delay", "-header", "-idle", "-json", "-last-event-id", "-max-fruitless", "-never", "-resilient"} {
		if !strings.Contains(stderr.String(), "  "+flag) {
			t.Errorf("the usage does not name %s", flag)
		}
	}
}

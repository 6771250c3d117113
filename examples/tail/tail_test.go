package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// flush sends a piece of an event stream at once.
func flush(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// untimed takes the times away from the beginnings of lines.
func untimed(s string) string {
	return regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d\d\d `).ReplaceAllString(s, "")
}

// why stands for the words of the library in a line of the journal.
func why(s string) string {
	s = regexp.MustCompile(`(?m)^(\* (?:dropped|silent|expired) .*?: ).*$`).ReplaceAllString(s, "${1}WHY")
	s = regexp.MustCompile(`(?m)^(\* gave up    a wait of )\S+`).ReplaceAllString(s, "${1}D") // there is chance in it
	return regexp.MustCompile(`(?m)(exhausted: ).*$`).ReplaceAllString(s, "${1}WHY")
}

// What the program prints, and how it exits, over real sockets, for the endings
// that need no waiting.
func TestRun(t *testing.T) {
	tests := []struct {
		name           string
		flags          []string
		handler        http.HandlerFunc
		code           int
		stdout, stderr string
	}{
		{
			name:  "an orderly end",
			flags: []string{"-never"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				flush(w, "data: a\n\nevent: tick\nid: 1\ndata: b\ndata: c\n\n")
			},
			code:   exitOK,
			stdout: "  message    a\n  tick       b\n                          c\n",
			stderr: "* connected  attempt 1\n* closed     attempt 1 after 2 events in T\n* over       there will be no more events\n",
		},
		{
			name:  "events as JSON",
			flags: []string{"-never", "-json"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				flush(w, "id: 7\ndata: a\n\n")
			},
			code:   exitOK,
			stdout: `{"type":"message","data":"a","id":"7","time":"T"}` + "\n",
			stderr: "* connected  attempt 1\n* closed     attempt 1 after 1 event in T\n* over       there will be no more events\n",
		},
		{
			name: "204",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNoContent)
			},
			code:   exitOK,
			stderr: "* refused    attempt 1: the server answered 204 No Content instead of an event stream\n* over       there will be no more events\n",
		},
		{
			name: "a refusal",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "no\nno", http.StatusForbidden)
			},
			code: exitFailed,
			stderr: "* refused    attempt 1: the server answered 403 Forbidden instead of an event stream\n" +
				"* gave up    the server answered 403 Forbidden instead of an event stream\n",
		},
		{
			name:  "a day-long wait",
			flags: []string{"-budget", "1m"},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				flush(w, "retry: 86400000\ndata: a\n\n")
			},
			code:   exitFailed,
			stdout: "  message    a\n",
			stderr: "* connected  attempt 1\n* retry      the server sets the reconnection time to 24h0m0s\n* closed     attempt 1 after 1 event in T\n" +
				"* gave up    a wait of 24h0m0s does not fit in the 1m0s left of the budget\n",
		},
		{
			name:  "headers and the ID to resume from",
			flags: []string{"-never", "-header", "X-A: 1", "-header", "x-a: 2", "-header", "Host: example.com", "-last-event-id", "41"},
			handler: func(w http.ResponseWriter, r *http.Request) {
				flush(w, fmt.Sprintf("data: %v %v %v\n\n", r.Header["X-A"], r.Host, r.Header["Last-Event-Id"]))
			},
			code:   exitOK,
			stdout: "  message    [1 2] example.com [41]\n",
			stderr: "* connected  attempt 1, resuming after event ID 41\n* closed     attempt 1 after 1 event in T\n* over       there will be no more events\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests++; requests > 1 {
					w.WriteHeader(http.StatusNoContent) // or the test would never end
					return
				}
				tt.handler(w, r)
			}))
			defer server.Close()
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append(tt.flags, server.URL), &stdout, &stderr)
			if code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			got := regexp.MustCompile(`"time":"[^"]+"`).ReplaceAllString(untimed(stdout.String()), `"time":"T"`)
			if diff := cmp.Diff(tt.stdout, got); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			got = regexp.MustCompile(` in [0-9.]+[µm]?s\n`).ReplaceAllString(untimed(stderr.String()), " in T\n")
			if diff := cmp.Diff(tt.stderr, got); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

// The waits, to the tick, in a bubble.
func TestFollow(t *testing.T) {
	requests := 0
	tests := []struct {
		name           string
		flags          []string
		handler        http.HandlerFunc // for request number requests
		code           int
		took           time.Duration
		stdout, stderr string
	}{
		{
			name: "drops and resumes, as long as the server asked",
			handler: func(w http.ResponseWriter, r *http.Request) {
				switch requests {
				case 1:
					flush(w, "retry: 2500\nid: 7\ndata: a\n\ndata: lo")
					panic(http.ErrAbortHandler)
				case 2:
					flush(w, "id: 8\ndata: b\n\n")
				default:
					w.WriteHeader(http.StatusNoContent)
				}
			},
			code:   exitOK,
			took:   5 * time.Second,
			stdout: "  message    a\n  message    b\n",
			stderr: "* connected  attempt 1\n* retry      the server sets the reconnection time to 2.5s\n* dropped    attempt 1 after 1 event in 0s: WHY\n" +
				"* waiting    2.5s before attempt 2: as the server asked\n* connected  attempt 2, resuming after event ID 7\n* closed     attempt 2 after 1 event in 0s\n" +
				"* waiting    2.5s before attempt 3: as the server asked\n* refused    attempt 3: the server answered 204 No Content instead of an event stream\n* over       there will be no more events\n",
		},
		{
			name:  "notices silence and gives up",
			flags: []string{"-idle", "20s", "-max-fruitless", "-1"},
			handler: func(w http.ResponseWriter, r *http.Request) {
				flush(w, ": hello\n")
				<-r.Context().Done()
			},
			code:   exitFailed,
			took:   20 * time.Second,
			stderr: "* connected  attempt 1\n* silent     attempt 1 after 0 events in 20s: WHY\n* gave up    reconnections are exhausted: WHY\n",
		},
		{
			name:  "gives up on a server that is kept alive and says nothing",
			flags: []string{"-budget", "1m"},
			handler: func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					flush(w, ": still here\n")
					select {
					case <-time.After(7 * time.Second):
					case <-r.Context().Done():
					}
				}
			},
			code:   exitFailed,
			took:   time.Minute,
			stderr: "* connected  attempt 1\n* expired    attempt 1 after 0 events in 1m0s: WHY\n* gave up    a wait of D does not fit in the 0s left of the budget; attempt 1 expired: no message came in the time allowed: 1m0s\n",
		},
		{
			name:  "gives up on one that falls silent",
			flags: []string{"-budget", "1m"},
			handler: func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(20 * time.Second)
				flush(w, "data: a\n\n")
				<-r.Context().Done()
			},
			code:   exitFailed,
			took:   80 * time.Second,
			stdout: "  message    a\n",
			stderr: "* connected  attempt 1\n* expired    attempt 1 after 1 event in 1m0s: WHY\n* gave up    a wait of D does not fit in the 0s left of the budget; attempt 1 expired: no message came in the time allowed: 1m0s\n",
		},
		{
			name:  "rides out a refusal",
			flags: []string{"-resilient"},
			handler: func(w http.ResponseWriter, r *http.Request) {
				if requests == 1 {
					w.Header().Set("Retry-After", "7")
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				w.WriteHeader(http.StatusNoContent)
			},
			code: exitOK,
			took: 7 * time.Second,
			stderr: "* refused    attempt 1: the server answered 429 Too Many Requests instead of an event stream\n* waiting    7s before attempt 2: as the server asked\n" +
				"* refused    attempt 2: the server answered 204 No Content instead of an event stream\n* over       there will be no more events\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests = 0
				transport := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if requests++; requests > 9 {
						w.WriteHeader(http.StatusNoContent) // or the test would never end
						return
					}
					tt.handler(w, r)
				})
				var stdout, stderr bytes.Buffer
				o, err := parse(append(tt.flags, "http://h.test/"), &stderr)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				code := follow(t.Context(), o, transport, &printer{w: &stdout}, &journal{w: &stderr})
				if code != tt.code {
					t.Errorf("exit status %d, want %d", code, tt.code)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if diff := cmp.Diff(tt.stdout, untimed(stdout.String())); diff != "" {
					t.Errorf("stdout (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.stderr, why(untimed(stderr.String()))); diff != "" {
					t.Errorf("stderr (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Ctrl-C ends the program at once, from a silent stream and from a long wait.
func TestInterrupt(t *testing.T) {
	tests := []struct {
		name    string
		handler http.HandlerFunc
	}{
		{"while the server is silent", func(w http.ResponseWriter, r *http.Request) {
			flush(w, "data: a\n\n")
			<-r.Context().Done()
		}},
		{"while the server has not answered", func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
		{"during a wait", func(w http.ResponseWriter, _ *http.Request) {
			flush(w, "retry: 3600000\n\n")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := serve(t, tt.handler)
				ctx, interrupt := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Second, interrupt)
				var stdout, stderr bytes.Buffer
				o, err := parse([]string{"http://h.test/"}, &stderr)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				code := follow(ctx, o, transport, &printer{w: &stdout}, &journal{w: &stderr})
				if code != exitOK {
					t.Errorf("exit status %d, want %d", code, exitOK)
				}
				if took := time.Since(start); took != 10*time.Second {
					t.Errorf("ended after %v, want 10s", took)
				}
				if !strings.HasSuffix(stderr.String(), "* stopped    interrupted\n") {
					t.Errorf("stderr ends otherwise:\n%s", stderr.String())
				}
			})
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// What cannot be printed is not lost in silence, and nothing more is asked for.
func TestBrokenOutput(t *testing.T) {
	for _, flags := range [][]string{nil, {"-json"}} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests++; requests > 1 {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			flush(w, "data: a\n\n")
		}))
		var stderr bytes.Buffer
		if code := run(t.Context(), append(flags, server.URL), brokenWriter{}, &stderr); code != exitFailed {
			t.Errorf("exit status %d, want %d", code, exitFailed)
		}
		if want := "* gave up    disk full\n"; !strings.HasSuffix(stderr.String(), want) {
			t.Errorf("stderr does not end with %q:\n%s", want, stderr.String())
		}
		server.Close()
		if requests != 1 {
			t.Errorf("%d requests, want 1", requests)
		}
	}
}

func TestBadURL(t *testing.T) {
	tests := []struct {
		name, url string
		code      int
	}{
		{"does not parse", "http://a b/", exitUsage},
		{"a foreign scheme", "gopher://h/", exitFailed},
		{"no scheme", "example.com/feed", exitFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), []string{tt.url}, &stdout, &stderr); code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			if n := strings.Count(stderr.String(), "* gave up    "); n != 1 {
				t.Errorf("%d lines say that it gave up:\n%s", n, stderr.String())
			}
			if stdout.Len() > 0 {
				t.Errorf("on stdout: %q", stdout.String())
			}
		})
	}
}

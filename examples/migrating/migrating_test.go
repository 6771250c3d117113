package migrating_test

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // the examples log
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// The code before and the code after do the same with a server that loses its
// connection: the same data, resumed from the same ID.
func TestBeforeAndAfter(t *testing.T) {
	type code func(ctx context.Context, httpClient *http.Client, url string, handle func(data string)) error
	const token, stored = "t0ken", "0"
	withStored := func(f func(context.Context, *http.Client, string, string, func(id, data string)) error) code {
		return func(ctx context.Context, httpClient *http.Client, url string, handle func(string)) error {
			return f(ctx, httpClient, url, stored, func(id, data string) { handle(id + " " + data) })
		}
	}
	withToken := func(f func(context.Context, *http.Client, string, string, func(string)) error) code {
		return func(ctx context.Context, httpClient *http.Client, url string, handle func(string)) error {
			return f(ctx, httpClient, url, token, handle)
		}
	}
	type request struct{ URL, Authorization, LastEventID string }
	for _, tt := range []struct {
		name   string
		ends   error // of before, when its context is cancelled
		before code
		after  code
		want   []string
		asked  []request
	}{
		{
			"go-sse", context.Canceled, beforeGoSSE, afterGoSSE,
			[]string{"10", "11"},
			[]request{{"/feed", "", ""}, {"/feed", "", "1"}},
		},
		{
			"launchdarkly", context.Canceled, withStored(beforeLaunchDarkly), withStored(afterLaunchDarkly),
			[]string{"1 10", "2 11"},
			[]request{{"/feed", "", "0"}, {"/feed", "", "1"}},
		},
		{
			"r3labs", nil, withToken(beforeR3labs), withToken(afterR3labs),
			[]string{"10", "11"},
			[]request{{"/feed?stream=prices", "Bearer " + token, ""}, {"/feed?stream=prices", "Bearer " + token, "1"}},
		},
	} {
		for _, half := range []struct {
			when string
			run  code
			ends error
		}{{"before", tt.before, tt.ends}, {"after", tt.after, context.Canceled}} {
			t.Run(tt.name+" "+half.when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := &eventsourcetest.Server{
						Script: [][]eventsourcetest.Step{
							{eventsourcetest.Event{ID: "1", Type: "price", Data: "10"}, eventsourcetest.Cut},
							{eventsourcetest.Event{ID: "2", Type: "price", Data: "11"}, eventsourcetest.Stall},
						},
						Rest: []eventsourcetest.Step{eventsourcetest.Stall},
					}
					server.Start()
					defer server.Close()
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()

					var got []string
					err := half.run(ctx, server.Client(), server.URL+"/feed", func(data string) {
						if got = append(got, data); len(got) == 2 {
							cancel()
						}
					})

					if !errors.Is(err, half.ends) {
						t.Errorf("ended with %v, want %v", err, half.ends)
					}
					if diff := cmp.Diff(tt.want, got); diff != "" {
						t.Errorf("data (-want +got):\n%s", diff)
					}
					var asked []request
					for _, r := range server.Requests() {
						asked = append(asked, request{r.URL.String(), r.Header.Get("Authorization"), r.LastEventID})
					}
					if diff := cmp.Diff(tt.asked, asked); diff != "" {
						t.Errorf("requests (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// Both ways of reading an answer give the same.
func TestBeforeAndAfterRead(t *testing.T) {
	const answer = "data: a\n\n: comment\n\ndata: b\ndata: c\n\ndata: cut off\n"
	for when, read := range map[string]func(io.Reader, func(string)) error{"before": beforeGoSSERead, "after": afterGoSSERead} {
		var got []string
		err := read(strings.NewReader(answer), func(data string) { got = append(got, data) })
		if diff := cmp.Diff([]string{"a", "b\nc"}, got); diff != "" {
			t.Errorf("%s: data (-want +got):\n%s", when, diff)
		}
		// The one difference: go-sse keeps a cut-off event to itself.
		if wantErr := when == "after"; errors.Is(err, io.ErrUnexpectedEOF) != wantErr || !wantErr && err != nil {
			t.Errorf("%s: ended with %v", when, err)
		}
	}
}

// docs/migrating.md states the versions that these tests run.
func TestDocumentedVersions(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"github.com/tmaxmax/go-sse", "github.com/launchdarkly/eventsource", "github.com/r3labs/sse/v2"} {
		_, rest, ok := strings.Cut(string(mod), "\t"+path+" ")
		version, _, _ := strings.Cut(rest, "\n")
		if !ok || !strings.Contains(string(page), "`"+path+"` "+version) {
			t.Errorf("docs/migrating.md does not say that %s was tested in version %s", path, version)
		}
	}
}

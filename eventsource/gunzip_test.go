package eventsource_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// Fetch, HTTP-network fetch: content codings are undone. A coding that cannot be undone
// is no event stream.
func TestContentCoding(t *testing.T) {
	for coding, c := range map[string]struct {
		body  string
		opens bool
	}{
		"gzip":           {string(member("data: x\n\n")), true},
		"GZIP":           {string(member("data: x\n\n")), true},
		"x-gzip":         {string(member("data: x\n\n")), true},
		"identity, gzip": {string(member("data: x\n\n")), true},
		"":               {"data: x\n\n", true},
		"identity":       {"data: x\n\n", true},
		"br":             {"data: x\n\n", false},
		"deflate":        {"data: x\n\n", false},
		"gzip, gzip":     {"data: x\n\n", false},
		"zstd":           {"data: x\n\n", false},
		"Compress":       {"data: x\n\n", false},
		"none":           {"data: x\n\n", true},
		"utf-8, binary":  {"data: x\n\n", true},
		"none, gzip":     {string(member("data: x\n\n")), true},
	} {
		a := eventStream(c.body)
		a.Headers = append(a.Headers, "Content-Encoding: "+coding)
		run := runWire(t, eventsource.Client{}, func(req *http.Request) { req.Header.Set("Accept-Encoding", "gzip") }, a)
		var refused *eventsource.ResponseError
		if c.opens {
			if run.End != nil || !slices.Equal(run.Data, []string{"x"}) {
				t.Errorf("%q: %q, %v; must open", coding, run.Data, run.End)
			}
		} else if run.Data != nil || len(run.Requests) != 1 || !errors.As(run.End, &refused) {
			t.Errorf("%q: %q, %d requests, %v; must be refused", coding, run.Data, len(run.Requests), run.End)
		}
	}
}

// A zipper compresses pieces of one gzip stream.
type zipper struct {
	out bytes.Buffer
	gz  *gzip.Writer
}

func newZipper() *zipper {
	z := new(zipper)
	z.gz = gzip.NewWriter(&z.out)
	return z
}

// taken returns what has been put out since the last call.
func (z *zipper) taken() Send {
	defer z.out.Reset()
	return Send(z.out.String())
}

// flushed compresses text so that all of it can be decompressed.
func (z *zipper) flushed(text string) Send {
	io.WriteString(z.gz, text)
	z.gz.Flush()
	return z.taken()
}

// held compresses text and puts out what there is then, which may be nothing.
func (z *zipper) held(text string) Send {
	io.WriteString(z.gz, text)
	return z.taken()
}

func (z *zipper) end() Send {
	z.gz.Close()
	return z.taken()
}

// member compresses text into a gzip stream of its own.
func member(text string) Send {
	z := newZipper()
	return z.held(text) + z.end()
}

// For a caller who asks for compression, events come when the server
// has flushed them, and the end is checked like that of any other body.
func TestGzip(t *testing.T) {
	header := typed("text/event-stream")
	header["Content-Encoding"] = []string{"gzip"}
	flushed, held, broken, cut, two := newZipper(), newZipper(), newZipper(), newZipper(), newZipper()
	second := newZipper()
	corrupt := func(s Send) Send {
		b := []byte(s)
		b[len(b)-6]++ // in the checksum
		return Send(b)
	}
	const minute = time.Minute
	for name, c := range map[string]struct {
		steps []Step
		want  []string // events, each with its minute
		kind  policy.Kind
	}{
		"flushed": {
			steps: []Step{
				flushed.flushed("id: 1\ndata: a\n\n"), Wait(minute), flushed.flushed("id: 2\ndata: b\n\n"),
				Wait(minute), flushed.flushed("id: 3\nda"), Wait(minute), flushed.flushed("ta: c\n\n"),
				Wait(minute), flushed.end(), End,
			},
			want: []string{"a 0", "b 1", "c 3"}, kind: policy.Ended,
		},
		"not flushed": {
			steps: []Step{
				held.held("id: 1\ndata: a\n\n"), Wait(minute), held.held("id: 2\ndata: b\n\n"),
				Wait(minute), held.held("id: 3\ndata: c\n\n"), Wait(minute), held.end(), End,
			},
			want: []string{"a 3", "b 3", "c 3"}, kind: policy.Ended,
		},
		"two members": {
			steps: []Step{
				two.flushed("id: 1\ndata: a\n\nid: 2\nda"), two.end(), Wait(minute),
				second.flushed("ta: b\n\n"), second.end(), End,
			},
			want: []string{"a 0", "b 1"}, kind: policy.Ended,
		},
		"a member for each event": {
			steps: []Step{
				member("id: 1\ndata: a\n\n"), Wait(minute), member("id: 2\ndata: b\n\n"), Wait(minute),
				Send(strings.Repeat(string(member("")), 200)), member("id: 3\ndata: c\n\n"), Wait(minute), End,
			},
			want: []string{"a 0", "b 1", "c 2"}, kind: policy.Ended,
		},
		"garbage behind a member": {
			steps: []Step{member("id: 1\ndata: a\n\n"), Send("data: b\n\n"), End},
			want:  []string{"a 0"}, kind: policy.Dropped,
		},
		"cut off in the second header": {
			steps: []Step{member("id: 1\ndata: a\n\n"), member("")[:5], End},
			want:  []string{"a 0"}, kind: policy.Dropped,
		},
		"cut off": {
			steps: []Step{cut.flushed("id: 1\ndata: a\n\nid: 2\ndata: b"), End},
			want:  []string{"a 0"}, kind: policy.Dropped,
		},
		"corrupt": {
			steps: []Step{broken.flushed("id: 1\ndata: a\n\n"), corrupt(broken.end()), End},
			want:  []string{"a 0"}, kind: policy.Dropped,
		},
		"not gzip": {
			steps: []Step{Send("data: a\n\n"), Send(strings.Repeat("data: b\n\n", 10)), End},
			kind:  policy.Dropped,
		},
		"empty": {steps: []Step{Open, End}, kind: policy.Ended},
	} {
		t.Run(name, func(t *testing.T) {
			overNetworks(t, func(t *testing.T, serve func(...[]Step) *Server) {
				srv := serve(append([]Step{Status{Header: header}}, c.steps...))
				client := eventsource.Client{HTTPClient: srv.Client()}
				var w watcher
				client.Trace = traceOf(w.trace())
				req := request(t.Context(), t, srv.URL)
				req.Header.Set("Accept-Encoding", "gzip")
				var got []string
				for ev, err := range client.Stream(req).Events() {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, fmt.Sprintf("%s %g", ev.Data, time.Since(bubbleStart).Minutes()))
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if w.ends[0].Kind != c.kind {
					t.Errorf("it ended %v with %v, want %v", w.ends[0].Kind, w.ends[0].Err, c.kind)
				}
				if got := srv.Requests()[0].Header.Get("Accept-Encoding"); got != "gzip" {
					t.Errorf("Accept-Encoding: %s", got)
				}
			})
		})
	}
}

// A byte that was flushed on the wire is a sign of life, though
// nothing can be decompressed from it yet.
func TestGzipSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		header := typed("text/event-stream")
		header["Content-Encoding"] = []string{"gzip"}
		z := newZipper()
		steps := []Step{Status{Header: header}, z.flushed("data: a\n\n")}
		for range 20 {
			steps = append(steps, Wait(20*time.Second), z.flushed(""))
		}
		srv := serve(t, append(steps, z.flushed("data: b\n\n"), z.end(), End))
		s := play(t, srv, eventsource.Client{IdleTimeout: 30 * time.Second}, func(req *http.Request) {
			req.Header.Set("Accept-Encoding", "gzip")
		})
		if diff := cmp.Diff([]string{"a", "b"}, s.data()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if s.ends[0].Kind != policy.Ended {
			t.Errorf("it ended %v", s.ends[0].Kind)
		}
	})
}

// TestGzipBomb has a server send a thousand times as much as it seems, to a caller
// who has asked for compression. The limit is on what comes out.
func TestGzipBomb(t *testing.T) {
	const limit = 256 << 10
	for _, tt := range []struct {
		name, start, repeat string
		tooLarge            bool
	}{
		{"an event", "data: ", "x", true},
		{"a comment", ":", "x", false},
		{"small events", "", "data: x\n\n", false},
		{"small comments", "", ":\n\n", false},
		{"large comments", "", ":" + strings.Repeat("x", limit/2) + "\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Members of a gzip file follow each other, and so do their contents.
			start, repeat := string(member(tt.start)), string(member(strings.Repeat(tt.repeat, limit/len(tt.repeat))))
			f := flood{start: start, repeat: repeat, size: len(start) + 2*len(repeat), coding: "gzip", every: 128}
			err := f.play(t, limit)
			if tt.tooLarge != errors.Is(err, eventsource.ErrEventTooLarge) || !tt.tooLarge && err != nil {
				t.Errorf("the error is %v", err)
			}
			if f.grown > 2*limit {
				t.Errorf("the live heap grew by %d KiB", f.grown>>10)
			}
		})
	}
}

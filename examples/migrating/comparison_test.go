package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	launchdarkly "github.com/launchdarkly/eventsource"
	r3labs "github.com/r3labs/sse/v2"
	gosse "github.com/tmaxmax/go-sse"

	"github.com/reprise-sse/reprise/eventsource"
	"github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/policy"
)

// A follower reads a stream with a client until its context is done or the client
// ends it, and returns the error that the client gave last.
type follower func(ctx context.Context, httpClient *http.Client, req *http.Request, handle func(data string)) error

// A column is a client: as it comes, and with settings that it offers for what the
// comparison is about.
type column struct {
	name    string
	plain   follower
	special follower
	what    string // the settings
}

var columns = []column{
	{"Reprise", withReprise(nil), withReprise(policy.Resilient()), "`policy.Resilient`"},
	{"go-sse", withGoSSE, nil, ""},
	{"launchdarkly", withLaunchDarkly(), withLaunchDarkly(
		launchdarkly.StreamOptionUseBackoff(30*time.Second), launchdarkly.StreamOptionUseJitter(0.5),
		launchdarkly.StreamOptionCanRetryFirstConnection(-1),
	), "options"},
	{"r3labs", withR3labs, nil, ""},
}

func withReprise(p policy.Policy) follower {
	return func(ctx context.Context, httpClient *http.Client, req *http.Request, handle func(string)) error {
		client := eventsource.Client{HTTPClient: httpClient, Policy: p}
		for event, err := range client.Stream(req.WithContext(ctx)).Events() {
			if err != nil {
				return err
			}
			handle(event.Data)
		}
		return nil
	}
}

func withGoSSE(ctx context.Context, httpClient *http.Client, req *http.Request, handle func(string)) error {
	client := gosse.Client{HTTPClient: httpClient}
	conn := client.NewConnection(req.WithContext(ctx))
	conn.SubscribeToAll(func(event gosse.Event) { handle(event.Data) })
	return conn.Connect()
}

func withLaunchDarkly(options ...launchdarkly.StreamOption) follower {
	return func(ctx context.Context, httpClient *http.Client, req *http.Request, handle func(string)) error {
		stream, err := launchdarkly.SubscribeWithRequestAndOptions(req.WithContext(ctx),
			append(options[:len(options):len(options)], launchdarkly.StreamOptionHTTPClient(httpClient))...)
		if err != nil {
			return err
		}
		defer context.AfterFunc(ctx, stream.Close)()
		failures := stream.Errors
		for {
			select {
			case event, ok := <-stream.Events:
				if !ok {
					return err
				}
				handle(event.Data())
			case failure, ok := <-failures:
				if !ok {
					failures = nil
					continue
				}
				err = failure
			}
		}
	}
}

func withR3labs(ctx context.Context, httpClient *http.Client, req *http.Request, handle func(string)) error {
	if req.Method != http.MethodGet {
		return errNoPOST
	}
	client := r3labs.NewClient(req.URL.String())
	client.Connection = httpClient
	for name := range req.Header {
		client.Headers[name] = req.Header.Get(name)
	}
	return client.SubscribeRawWithContext(ctx, func(event *r3labs.Event) { handle(string(event.Data)) })
}

var errNoPOST = errors.New("the client sends no POST")

// An outcome is what was seen within ten minutes.
type outcome struct {
	data     []string
	requests []eventsourcetest.Request
	err      error
	took     time.Duration
}

const watched = 10 * time.Minute

// over reports whether the client has ended the stream before it was stopped.
func (o outcome) over() bool { return o.took < watched }

func (o outcome) ending() string {
	if o.err == nil {
		return "ends without an error"
	}
	return "ends with an error"
}

// A row is something that servers and networks do.
type row struct {
	what   string
	script [][]eventsourcetest.Step
	rest   []eventsourcetest.Step // nil: the last connection stays silent
	post   bool
	cell   func(outcome) string
}

// requested is the cell of rows that count requests, roughly.
func requested(o outcome) string {
	n := len(o.requests)
	switch {
	case o.over() && o.err == nil:
		return fmt.Sprintf("ends without an error, at request %d", n)
	case o.over() && n <= 2: // at what the row is about
		return "ends with an error"
	}
	digit := math.Pow10(int(math.Log10(float64(n))))
	return fmt.Sprintf("about %.0f requests", math.Round(float64(n)/digit)*digit)
}

// cameBack is the cell of rows about when request n came, and asked is when it
// should have.
func cameBack(n int, asked time.Duration) func(outcome) string {
	return func(o outcome) string {
		if len(o.requests) < n {
			return o.ending()
		}
		switch gap := o.requests[n-1].Gap; {
		case gap == 0:
			return "at once"
		case gap < asked:
			return "sooner"
		case gap == asked:
			return fmt.Sprintf("after %.0f s", asked.Seconds())
		default:
			return "later"
		}
	}
}

func delivers(yes, no string, want ...string) func(outcome) string {
	return func(o outcome) string {
		if slices.Equal(o.data, want) {
			return yes
		}
		return no
	}
}

var (
	first  = []eventsourcetest.Step{eventsourcetest.Event{ID: "1", Data: "a"}, eventsourcetest.Cut}
	silent = []eventsourcetest.Step{eventsourcetest.Open, eventsourcetest.Stall}
	big    = strings.Repeat("x", 100_000)
)

func status(code int, header ...string) []eventsourcetest.Step {
	s := eventsourcetest.Status{Code: code, Header: http.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		s.Header.Set(header[i], header[i+1])
	}
	return []eventsourcetest.Step{s}
}

var rows = []row{
	{
		what:   "the connection drops after `retry: 5000`: comes back",
		script: [][]eventsourcetest.Step{append([]eventsourcetest.Step{eventsourcetest.Retry(5 * time.Second)}, first...)},
		cell:   cameBack(2, 5*time.Second),
	},
	{
		what: "… and the kept connection dies under the next request: tries again",
		script: [][]eventsourcetest.Step{
			{eventsourcetest.Retry(5 * time.Second), eventsourcetest.Event{ID: "1", Data: "a"}, eventsourcetest.End},
			{eventsourcetest.Cut},
		},
		cell: cameBack(3, 5*time.Second),
	},
	{
		what:   "503 with `Retry-After: 20` on the way back: tries again",
		script: [][]eventsourcetest.Step{first, status(503, "Retry-After", "20")},
		cell:   cameBack(3, 20*time.Second),
	},
	{
		what:   "the server asks for a day, the context ends in 10 minutes: tells",
		script: [][]eventsourcetest.Step{{eventsourcetest.Retry(24 * time.Hour), eventsourcetest.Event{Data: "a"}, eventsourcetest.Cut}},
		cell: func(o outcome) string {
			switch {
			case len(o.requests) > 1:
				return "does not wait"
			case o.took == 0:
				return "at once"
			default:
				return "in 10 minutes"
			}
		},
	},
	{
		what: "every connection is accepted and closed, 10 minutes long",
		rest: []eventsourcetest.Step{eventsourcetest.Open, eventsourcetest.End},
		cell: requested,
	},
	{
		what:   "404 on the way back, 10 minutes long",
		script: [][]eventsourcetest.Step{first},
		rest:   status(404),
		cell:   requested,
	},
	{
		what:   "204 on the way back, which means stop, 10 minutes long",
		script: [][]eventsourcetest.Step{first},
		rest:   status(204),
		cell:   requested,
	},
	{
		what:   "the response ends: comes back",
		script: [][]eventsourcetest.Step{{eventsourcetest.Event{ID: "1", Data: "a"}, eventsourcetest.End}},
		cell: func(o outcome) string {
			if len(o.requests) < 2 {
				return o.ending()
			}
			return "yes"
		},
	},
	{
		what:   "nobody there at first: tries again",
		script: [][]eventsourcetest.Step{{eventsourcetest.Refuse}},
		cell: func(o outcome) string {
			if len(o.requests) < 2 {
				return o.ending()
			}
			return "yes"
		},
	},
	{
		what:   "200 with `text/html`",
		script: [][]eventsourcetest.Step{{eventsourcetest.Status{Header: http.Header{"Content-Type": {"text/html"}}, Body: "data: <p>\n\n"}}},
		cell: func(o outcome) string {
			if len(o.data) > 0 {
				return "reads events from it"
			}
			return o.ending()
		},
	},
	{
		what:   "an event of 100,000 bytes",
		script: [][]eventsourcetest.Step{{eventsourcetest.Event{Data: big}, eventsourcetest.Stall}},
		cell:   delivers("delivered", "lost", big),
	},
	{
		what:   "an event that is cut off",
		script: [][]eventsourcetest.Step{{eventsourcetest.Send("data: pay 100"), eventsourcetest.Cut}},
		cell:   delivers("discarded, as the standard has it", "delivered, half of it"),
	},
	{
		what:   "a block of `retry` alone",
		script: [][]eventsourcetest.Step{{eventsourcetest.Send("retry: 1000\n\n"), eventsourcetest.Stall}},
		cell:   delivers("no event, as the standard has it", "an event"),
	},
	{
		what:   "a byte order mark before the first event",
		script: [][]eventsourcetest.Step{{eventsourcetest.Send("\ufeffdata: a\n\n"), eventsourcetest.Stall}},
		cell:   delivers("skipped", "spoils the event", "a"),
	},
	{
		what:   "a POST's answer breaks off",
		script: [][]eventsourcetest.Step{first},
		post:   true,
		cell: func(o outcome) string {
			switch {
			case errors.Is(o.err, errNoPOST):
				return "no POST"
			case len(o.requests) > 1:
				return "posts again"
			default:
				return o.ending()
			}
		},
	},
	{
		what:   "a redirect to another host: an `X-Api-Key` of the caller's",
		script: [][]eventsourcetest.Step{status(307, "Location", "http://elsewhere.test/")},
		cell: func(o outcome) string {
			if o.requests[1].Header.Get("X-Api-Key") != "" {
				return "goes along"
			}
			return "stays"
		},
	},
}

// watch plays a row to a client, for ten minutes that take no time.
func watch(t *testing.T, r row, follow follower) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		rest := r.rest
		if rest == nil {
			rest = silent
		}
		server := &eventsourcetest.Server{Script: r.script, Rest: rest}
		server.Start()
		defer server.Close()
		req, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if r.post {
			req, err = http.NewRequest(http.MethodPost, server.URL, strings.NewReader("q"))
		}
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", "s3cret")

		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), watched)
		defer cancel()
		o.err = follow(ctx, server.Client(), req, func(data string) { o.data = append(o.data, data) })
		o.took = time.Since(start)
		// What a client does when it has been stopped is not looked at.
		for _, request := range server.Requests() {
			if request.Arrived.Before(start.Add(watched)) {
				o.requests = append(o.requests, request)
			}
		}
	})
	return o
}

// The comparison in docs/migrating.md, and the part of it in README.md, are what the
// clients do. go test -v shows it.
func TestComparison(t *testing.T) {
	header := "| what happens |"
	for _, c := range columns {
		header += " " + c.name + " |"
	}
	table := []string{header, "|---|" + strings.Repeat("---|", len(columns))}
	for _, r := range rows {
		line := "| " + r.what + " |"
		for _, c := range columns {
			cell := r.cell(watch(t, r, c.plain))
			if c.special != nil {
				if other := r.cell(watch(t, r, c.special)); other != cell {
					cell += "; with " + c.what + " " + other
				}
			}
			line += " " + cell + " |"
		}
		table = append(table, line)
	}
	t.Logf("\n%s", strings.Join(table, "\n"))

	page, err := os.ReadFile("../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), strings.Join(table, "\n")+"\n") {
		t.Errorf("docs/migrating.md has not this table:\n%s", strings.Join(table, "\n"))
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(readme), header+"\n")
	part, _, _ = strings.Cut(part, "\n\n")
	lines := strings.Split(part, "\n")
	if !ok || len(lines) < 5 {
		t.Fatalf("README.md has no table under\n%s", header)
	}
	known := "\n" + strings.Join(table, "\n") + "\n"
	for _, line := range lines {
		if !strings.Contains(known, "\n"+line+"\n") {
			t.Errorf("README.md has a row that is not so:\n%s", line)
		}
	}
}

// r3labs' default schedule ends by itself, and with it the stream.
func TestGivingUp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		follow follower
		gives  bool
	}{{"Reprise", withReprise(nil), false}, {"r3labs", withR3labs, true}} {
		synctest.Test(t, func(t *testing.T) {
			server := &eventsourcetest.Server{Rest: []eventsourcetest.Step{eventsourcetest.Refuse}}
			server.Start()
			defer server.Close()
			req, err := http.NewRequest(http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Hour, cancel)
			start := time.Now()
			err = tt.follow(ctx, server.Client(), req, func(string) {})
			if took := time.Since(start); (took < 17*time.Minute) != tt.gives || tt.gives && took < 15*time.Minute {
				t.Errorf("%s ended after %v with %v", tt.name, took, err)
			}
		})
	}
}

package mcptransport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/examples/mcp/mcptransport"
)

// A fault is what a server does to a call, to the GETs that resume it, and to the
// standby stream; and what that comes to with this transport.
type fault struct {
	name                    string
	calls, resumes, standby [][]Step
	want                    outcomeOfFault
}

type outcomeOfFault struct {
	Call    string        // "answered", "told" (that it failed), or "never told"
	After   time.Duration // until then
	GETs    int           // in the 10 minutes from the start of the call; one is the standby stream's
	Session string        // whether it "works" after that, or is "dead"
	Open    int           // streams still open a second after the call was over, the standby stream aside
}

func faultsOf(s *server) []fault {
	var polls atomic.Int32
	answer := []Step{s.R("r1")}
	primed := [][]Step{{P("p1", 200*ms)}}
	return []fault{
		{
			name: "a 503 when a call is resumed", calls: [][]Step{{P("p1", 1500*ms)}}, resumes: [][]Step{{Status{Code: 503}}, answer},
			want: outcomeOfFault{"answered", 3 * second, 3, "works", 0},
		},
		{
			name: "a 405 when a call is resumed", calls: primed, resumes: [][]Step{{Status{Code: 405}}},
			want: outcomeOfFault{"told", 200 * ms, 2, "works", 0},
		},
		{
			name: "a text when a call is resumed", calls: primed, resumes: [][]Step{{Status{Header: http.Header{"Content-Type": {"text/plain"}}, Body: "hello"}}},
			want: outcomeOfFault{"told", 200 * ms, 2, "works", 0},
		},
		{
			name: "silence when a call is resumed", calls: primed, resumes: [][]Step{{Open, Stall}, answer},
			want: outcomeOfFault{"answered", 30400 * ms, 3, "works", 0},
		},
		{
			name: "an empty response when a call is resumed", calls: primed, resumes: [][]Step{{Open}, answer},
			want: outcomeOfFault{"answered", 400 * ms, 3, "works", 0},
		},
		{
			name: "priming events for ever, retry 200 ms", calls: primed, resumes: [][]Step{{Do(func(c *Conn) {
				c.Play(P(fmt.Sprint("p", polls.Add(1)), 200*ms))
			})}},
			want: outcomeOfFault{"told", 299800 * ms, 1500, "works", 0},
		},
		{
			name: "a retry of a day", calls: [][]Step{{P("p1", 24*time.Hour)}},
			want: outcomeOfFault{"told", 0, 1, "works", 0},
		},
		{
			name: "retry: +100", calls: [][]Step{{Send("id: p1\nretry: +100\ndata:\n\n")}}, resumes: [][]Step{answer},
			want: outcomeOfFault{"answered", second, 2, "works", 0},
		},
		{
			name: "an event that holds {}", calls: [][]Step{append([]Step{Event{ID: "p1", Data: "{}"}}, answer...)},
			want: outcomeOfFault{"answered", 0, 1, "works", 0},
		},
		{
			name: "a line without a colon", calls: [][]Step{append([]Step{Send("id: p1\ndata\n\n")}, answer...)},
			want: outcomeOfFault{"answered", 0, 1, "works", 0},
		},
		{
			name: "a stream left open after the answer", calls: [][]Step{{s.R("r1"), Stall}},
			want: outcomeOfFault{"answered", 0, 1, "works", 0},
		},
		{
			name: "a standby stream that is closed at once, beside a call of 60 s", calls: [][]Step{append([]Step{Open, Wait(60 * second)}, answer...)}, standby: [][]Step{{Open, Wait(50 * ms)}},
			want: outcomeOfFault{"answered", 60 * second, 6, "works", 0},
		},
	}
}

// play plays fault i to an MCP client over a transport.
func playFault(t *testing.T, i int, transport func(endpoint string, client *http.Client) mcp.Transport) (got outcomeOfFault) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		f := faultsOf(s)[i]
		s.calls, s.resumes, s.standby = f.calls, f.resumes, f.standby
		s.start(t)
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), transport(s.URL, s.Client()), &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err = session.CallTool(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{}})
		got.After = time.Since(start)
		switch {
		case err == nil:
			got.Call = "answered"
		case errors.Is(err, context.DeadlineExceeded):
			got.Call = "never told"
		default:
			got.Call = "told"
		}
		time.Sleep(second)
		for _, r := range s.of("tools/call", "resume") {
			if r.Ended.IsZero() {
				got.Open++
			}
		}
		time.Sleep(10*time.Minute - time.Since(start))
		got.GETs = len(s.of("resume", "standby"))
		got.Session = "works"
		if err := session.Ping(t.Context(), nil); err != nil {
			got.Session = "dead"
		}
		s.Close()
		session.Close()
	})
	return got
}

// TestFaultsCompared plays the same faults to this transport and to the SDK's own.
// What the latter makes of them is logged, not judged.
func TestFaultsCompared(t *testing.T) {
	for i, f := range faultsOf(&server{}) {
		t.Run(f.name, func(t *testing.T) {
			got := playFault(t, i, func(endpoint string, client *http.Client) mcp.Transport {
				tr := &mcptransport.Transport{Endpoint: endpoint, Policy: exactly}
				tr.Client.HTTPClient = client
				return tr
			})
			if diff := cmp.Diff(f.want, got); diff != "" {
				t.Errorf("this transport (-want +got):\n%s", diff)
			}
			other := playFault(t, i, func(endpoint string, client *http.Client) mcp.Transport {
				return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: client}
			})
			t.Logf("this transport: %+v", got)
			t.Logf("the SDK's own:  %+v", other)
		})
	}
}

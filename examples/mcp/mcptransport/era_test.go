package mcptransport_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/examples/mcp/mcptransport"
	"github.com/reprise-sse/reprise/policy"
)

// Tests of the era without resumption. Its calls carry their version.

const newVersion = "2026-07-28"

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + newVersion + `"}`

// playNew runs a test of a client of the new era, which has no handshake.
func playNew(t *testing.T, s *server, test func(*client), settings ...func(*mcptransport.Transport)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.session, s.version = "-", newVersion
		s.start(t)
		c := dial(t, s, settings...)
		test(c)
		if err := c.conn.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		<-c.over
		for _, r := range s.Requests() {
			if r.Method != http.MethodPost {
				t.Errorf("a %s was sent", r.Method)
			}
			if _, ok := r.Header["Idempotency-Key"]; ok {
				t.Errorf("an Idempotency-Key was sent")
			}
		}
		s.checkHeaders(t) // no session, no Last-Event-ID, the version
		c.checkOnce()
		synctest.Wait()
		c.checkBodies()
	})
}

func (c *client) newCall(ctx context.Context) outcome {
	return c.begin(ctx, "tools/call", `{"name":"slow",`+meta+`}`)()
}

func TestNewEraACallIsMadeOnce(t *testing.T) {
	for name, end := range map[string]Step{"end": End, "cut": Cut, "reset": Reset} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			s.calls = [][]Step{{P("p1", 100*ms), M("m1", 1), end}}
			playNew(t, s, func(c *client) {
				o := c.newCall(context.Background())
				o.failed(t, 0, mcptransport.ErrLost)
				var stop *eventsource.StopError
				if broken := name != "end"; errors.As(o.err, &stop) != broken || broken && stop.Attempt.Kind != policy.Dropped {
					t.Errorf("the call came to %v; want the cause in it if there is one", o.err)
				}
				if diff := cmp.Diff([]int{1}, c.progressed()); diff != "" {
					t.Error(diff)
				}
				time.Sleep(10 * time.Minute)
				if n := len(s.Requests()); n != 1 {
					t.Errorf("%d requests, want 1", n)
				}
				if len(c.positions) != 0 {
					t.Errorf("positions were told: %v", c.positions)
				}
				if name := s.Requests()[0].Header.Get("Mcp-Name"); name != "slow" {
					t.Errorf("Mcp-Name is %q", name)
				}
			})
		})
	}
}

// Proxies route by what a message is about.
func TestNewEraHeadersNameTheMessage(t *testing.T) {
	s := &server{}
	playNew(t, s, func(c *client) {
		for _, call := range [][2]string{
			{"ping", `{"name":"n","uri":"u",` + meta + `}`},
			{"prompts/get", `{"name":"n","uri":"u",` + meta + `}`},
			{"resources/read", `{"name":"n","uri":"u",` + meta + `}`},
			{"prompts/get", `{"name":{},` + meta + `}`},
		} {
			if o := c.begin(context.Background(), call[0], call[1])(); o.err != nil {
				t.Error(o.err)
			}
		}
		if err := c.notify("notifications/roots/list_changed", `{}`); err != nil {
			t.Error(err)
		}
		var names []string
		for _, r := range s.Requests() {
			names = append(names, r.Header.Get("Mcp-Name"))
		}
		if diff := cmp.Diff([]string{"", "n", "u", "", ""}, names); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNewEraACallIsAnswered(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Comment("keep-alive"), M("", 1), s.R("")}, {Do(func(c *Conn) { c.Play(jsonAnswer(idOf(c.Request()), toolResult, nil)) })}}
	playNew(t, s, func(c *client) {
		c.newCall(context.Background()).done(t)
		c.newCall(context.Background()).done(t)
	})
}

// Silence must not end a call: that would cancel it.
func TestNewEraACallHasNoIdleTimeout(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Open, Wait(time.Hour), s.R("")}}
	playNew(t, s, func(c *client) {
		o := c.newCall(context.Background())
		o.done(t)
		if o.after != time.Hour {
			t.Errorf("answered after %v", o.after)
		}
	}, func(tr *mcptransport.Transport) { tr.Client.IdleTimeout = second })
}

func TestNewEraCancellingClosesTheStream(t *testing.T) {
	t.Run("by the context", func(t *testing.T) {
		s := &server{}
		s.calls = [][]Step{{Open, Stall}}
		playNew(t, s, func(c *client) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*second)
			defer cancel()
			c.newCall(ctx).failed(t, 3*second, context.DeadlineExceeded)
			synctest.Wait()
			if r := s.Requests()[0]; !r.ClientLeft || r.Ended.Sub(r.Arrived) != 3*second {
				t.Errorf("left: %v, after %v", r.ClientLeft, r.Ended.Sub(r.Arrived))
			}
		})
	})
	t.Run("by the notification", func(t *testing.T) {
		s := &server{}
		s.calls = [][]Step{{Open, Stall}}
		playNew(t, s, func(c *client) {
			wait := c.begin(context.Background(), "tools/call", `{`+meta+`}`)
			for _, params := range []string{`{`, `{"requestId":{}}`, `{"requestId":77}`, `{"requestId":1}`} {
				if err := c.notify("notifications/cancelled", params); err != nil {
					t.Errorf("cancelling with %s: %v", params, err)
				}
			}
			wait().failed(t, 0, context.Canceled)
			synctest.Wait()
			if requests := s.Requests(); len(requests) != 1 || !requests[0].ClientLeft {
				t.Errorf("%d requests; left: %v", len(requests), requests[0].ClientLeft)
			}
		})
	})
}

// The client must not send responses, and no call of the server's arrives.
func TestNewEraTheServerDoesNotCall(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Event{Data: `{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}`}, s.R("")}}
	playNew(t, s, func(c *client) {
		c.newCall(context.Background()).done(t)
		if len(c.requests) != 0 || len(c.skips()) != 1 {
			t.Errorf("the server's call was not left out: %v; skipped: %v", c.requests, c.skips())
		}
		id, _ := jsonrpc.MakeID(5.0)
		if err := c.conn.Write(context.Background(), &jsonrpc.Response{ID: id, Result: json.RawMessage(`{}`)}); err == nil {
			t.Error("a response was sent")
		}
		if n := len(s.Requests()); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

// 404 means that the method is unknown; there is no session that could be gone.
func TestNewEraRefusals(t *testing.T) {
	s := &server{}
	s.calls = [][]Step{{Status{Code: 404, Header: http.Header{"Content-Type": {"application/json"}}, Body: `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`}}, {s.R("")}}
	playNew(t, s, func(c *client) {
		o := c.newCall(context.Background())
		o.refused(t, 404)
		var jerr *jsonrpc.Error
		if !errors.As(o.err, &jerr) || jerr.Code != jsonrpc.CodeMethodNotFound || errors.Is(o.err, mcptransport.ErrLost) {
			t.Errorf("the call came to %v; want the JSON-RPC error, and not ErrLost", o.err)
		}
		c.newCall(context.Background()).done(t)
	})
}

// subscription is the script of a subscription: what each POST of it gets.
func (s *server) subscription(entries ...[]Step) {
	n := 0
	s.posts = map[string][]Step{"subscriptions/listen": {Do(func(c *Conn) {
		entry := entries[min(n, len(entries)-1)]
		n++
		c.Play(entry...)
	})}}
}

func (c *client) subscribe(ctx context.Context) func() outcome {
	return c.begin(ctx, "subscriptions/listen", `{"notifications":{"toolsListChanged":true},`+meta+`}`)
}

func bodies(requests []Request) (ids []string, rest []map[string]any) {
	for _, r := range requests {
		var body map[string]any
		_ = json.Unmarshal(r.Body, &body)
		ids = append(ids, fmt.Sprint(body["id"]))
		delete(body, "id")
		rest = append(rest, body)
	}
	return ids, rest
}

func TestNewEraASubscriptionIsMadeAnew(t *testing.T) {
	acknowledged := Event{ID: "x1", Data: `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`}
	s := &server{}
	s.subscription(
		[]Step{acknowledged, Wait(60 * second), Cut},
		[]Step{acknowledged, Retry(7 * second), Wait(60 * second), End},
		[]Step{Status{Code: 503, Header: http.Header{"Retry-After": {"20"}}}},
		[]Step{Status{Code: 503}},
		[]Step{acknowledged, M("", 4), Do(func(c *Conn) {
			c.Play(Wait(60*second), Event{Data: `{"jsonrpc":"2.0","id":` + string(idOf(c.Request())) + `,"result":{}}`})
		}), Stall},
	)
	playNew(t, s, func(c *client) {
		o := c.subscribe(context.Background())()
		if o.err != nil || o.result != `{}` {
			t.Errorf("the subscription came to %q, %v; want its result", o.result, o.err)
		}
		requests := s.of("subscriptions/listen")
		// After a retry field of 7 s nothing comes sooner, growth included.
		if diff := cmp.Diff([]time.Duration{1 * second, 7 * second, 20 * second, 10500 * ms}, gaps(requests)); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		ids, rest := bodies(requests)
		if diff := cmp.Diff([]string{"1", "1/2", "1/3", "1/4", "1/5"}, ids); diff != "" {
			t.Errorf("JSON-RPC IDs (-want +got):\n%s", diff)
		}
		for i := range rest {
			if diff := cmp.Diff(rest[0], rest[i]); diff != "" {
				t.Errorf("body %d (-first +got):\n%s", i, diff)
			}
		}
		if n := len(c.requests); n != 4 {
			t.Errorf("%d messages, want 3 acknowledgements and one more", n)
		}
		if len(c.positions) != 0 {
			t.Errorf("positions were told: %v", c.positions)
		}
	})
}

// A server that has nothing to subscribe to may say so in JSON.
func TestNewEraASubscriptionIsAnsweredInJSON(t *testing.T) {
	s := &server{}
	s.posts = map[string][]Step{"subscriptions/listen": {Do(func(c *Conn) { c.Play(jsonAnswer(idOf(c.Request()), `{}`, nil)) })}}
	playNew(t, s, func(c *client) {
		if o := c.subscribe(context.Background())(); o.err != nil || o.result != `{}` {
			t.Errorf("the subscription came to %q, %v; want its result", o.result, o.err)
		}
	})
}

// A server that is down when the subscription is made is ridden out like later.
func TestNewEraASubscriptionOutlivesARefusalOfTheFirst(t *testing.T) {
	s := &server{}
	s.subscription([]Step{Status{Code: 503}}, []Step{Open, Stall})
	playNew(t, s, func(c *client) {
		c.subscribe(context.Background())
		time.Sleep(10 * second)
		if diff := cmp.Diff([]time.Duration{second}, gaps(s.Requests())); diff != "" {
			t.Error(diff)
		}
	})
}

// An event ID that HTTP cannot carry would end a stream that sends it.
func TestNewEraASubscriptionIgnoresEventIDs(t *testing.T) {
	s := &server{}
	s.subscription([]Step{Event{ID: "\x01", Data: progress(1)}, Wait(20 * second), End}, []Step{Open, Stall})
	playNew(t, s, func(c *client) {
		c.subscribe(context.Background())
		time.Sleep(60 * second)
		if n := len(s.Requests()); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

func TestNewEraASubscriptionThatIsGivenUpIsTold(t *testing.T) {
	t.Run("exhausted", func(t *testing.T) {
		s := &server{}
		s.subscription([]Step{Open, End})
		playNew(t, s, func(c *client) {
			c.subscribe(context.Background())().failed(t, 13187500*time.Microsecond, mcptransport.ErrLost, policy.ErrExhausted)
		})
	})
	t.Run("unknown method", func(t *testing.T) {
		s := &server{}
		s.subscription([]Step{Status{Code: 404, Body: `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`}})
		playNew(t, s, func(c *client) {
			o := c.subscribe(context.Background())()
			o.refused(t, 404)
			var jerr *jsonrpc.Error
			if !errors.As(o.err, &jerr) || jerr.Code != jsonrpc.CodeMethodNotFound {
				t.Errorf("the subscription came to %v; want the JSON-RPC error", o.err)
			}
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		s := &server{}
		s.subscription([]Step{Open, Stall})
		playNew(t, s, func(c *client) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			c.subscribe(ctx)().failed(t, time.Hour, context.DeadlineExceeded)
			synctest.Wait()
			if r := s.Requests()[0]; !r.ClientLeft {
				t.Error("the stream is still open")
			}
		})
	})
}

// A token for each attempt of a subscription, as for any other request.
func TestNewEraASubscriptionIsPrepared(t *testing.T) {
	s := &server{}
	s.subscription([]Step{Open, Wait(20 * second), End}, []Step{Open, Stall})
	n := 0
	playNew(t, s, func(c *client) {
		c.subscribe(context.Background())
		time.Sleep(60 * second)
		var tokens []string
		for _, r := range s.Requests() {
			tokens = append(tokens, r.Header.Values("Authorization")...)
		}
		if diff := cmp.Diff([]string{"Bearer 1", "Bearer 2"}, tokens); diff != "" {
			t.Error(diff)
		}
	}, func(tr *mcptransport.Transport) {
		tr.Client.Prepare = func(r *http.Request) error {
			n++
			r.Header.Add("Authorization", fmt.Sprint("Bearer ", n)) // to nothing
			return nil
		}
	})
}

// A subscription keeps the version that its call carries.
func TestNewEraASubscriptionKeepsItsVersion(t *testing.T) {
	s := &server{}
	s.subscription([]Step{Open, Wait(20 * second), End}, []Step{Open, Stall})
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		c := dial(t, s)
		c.subscribe(context.Background())
		c.begin(context.Background(), "ping", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}}`)()
		time.Sleep(60 * second)
		var versions []string
		for _, r := range s.Requests() {
			versions = append(versions, r.Header.Get("Mcp-Protocol-Version"))
		}
		if diff := cmp.Diff([]string{newVersion, "2027-01-01", newVersion}, versions); diff != "" {
			t.Error(diff)
		}
		c.conn.Close()
		<-c.over
	})
}

// In the resumable era a subscription is a call like any other.
func TestTheVersionInForceChoosesTheEra(t *testing.T) {
	s := &server{}
	s.posts = map[string][]Step{"subscriptions/listen": {P("p1", 100*ms)}}
	s.resumes = [][]Step{{Do(func(c *Conn) {
		c.Play(Event{Data: `{"jsonrpc":"2.0","id":2,"result":{}}`})
	})}}
	play(t, s, func(c *client) {
		if o := c.begin(context.Background(), "subscriptions/listen", `{}`)(); o.err != nil {
			t.Error(o.err)
		}
		if diff := cmp.Diff([]string{"p1"}, ids(s.of("resume"))); diff != "" {
			t.Error(diff)
		}
	})
	s = &server{}
	s.posts = map[string][]Step{"subscriptions/listen": {Status{Code: 503}}}
	play(t, s, func(c *client) {
		if o := c.begin(context.Background(), "subscriptions/listen", `{}`)(); o.err == nil || errors.Is(o.err, mcptransport.ErrLost) {
			t.Errorf("the call came to %v; want a refusal", o.err)
		}
	})
}

// A client that asks a server of the resumable era in the new way falls back to the
// handshake, whose version then counts.
func TestTheHandshakeReplacesTheVersion(t *testing.T) {
	s := &server{version: "2025-06-18"}
	s.posts = map[string][]Step{"server/discover": {Status{Code: 400, Body: `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"unsupported","data":{"supported":["2025-06-18"]}}}`}}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		c := dial(t, s)
		o := c.begin(t.Context(), "server/discover", `{`+meta+`}`)()
		var jerr *jsonrpc.Error
		if !errors.As(o.err, &jerr) || jerr.Code != -32022 || len(jerr.Data) == 0 {
			t.Errorf("discovery came to %v; want the JSON-RPC error with its data", o.err)
		}
		c.handshake()
		synctest.Wait()
		c.ping()
		c.conn.Close()
		<-c.over
		var versions []string
		for _, r := range s.Requests() {
			versions = append(versions, kindOf(r)+" "+r.Header.Get("Mcp-Protocol-Version"))
		}
		want := []string{"server/discover " + newVersion, "initialize ", "notifications/initialized 2025-06-18", "standby 2025-06-18", "ping 2025-06-18", "DELETE 2025-06-18"}
		if diff := cmp.Diff(want, versions); diff != "" {
			t.Errorf("versions (-want +got):\n%s", diff)
		}
	})
}

func TestForVersion(t *testing.T) {
	listen, call := mcptransport.Listen, mcptransport.Call
	if got := fmt.Sprint(call, listen, mcptransport.Role(0)); got != "call listen unknown role" {
		t.Errorf("the roles are %s", got)
	}
	lost := policy.Attempt{Number: 1, Kind: policy.Ended, Status: 200}
	resume := lost
	resume.LastEventID = "p1"
	var stops []string
	for _, version := range []string{"", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", newVersion, "2027-01-01", "draft", "DRAFT-2026-v1"} {
		for _, role := range []mcptransport.Role{call, listen} {
			for _, a := range []policy.Attempt{lost, resume} {
				if _, stopped := mcptransport.ForVersion(version, role).New().Next(a).Stopped(); stopped {
					stops = append(stops, fmt.Sprintf("%s %v %q", version, role, a.LastEventID))
				}
			}
		}
	}
	want := []string{
		` call ""`, `2024-11-05 call ""`, `2025-03-26 call ""`, `2025-06-18 call ""`, `2025-11-25 call ""`,
		`2026-07-28 call ""`, `2026-07-28 call "p1"`, `2027-01-01 call ""`, `2027-01-01 call "p1"`,
		`draft call ""`, `draft call "p1"`, `DRAFT-2026-v1 call ""`, `DRAFT-2026-v1 call "p1"`,
	}
	if diff := cmp.Diff(want, stops); diff != "" {
		t.Errorf("what stops at the end of an attempt (-want +got):\n%s", diff)
	}
}

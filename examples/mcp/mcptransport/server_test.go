package mcptransport_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
)

// A server is an MCP server in memory that follows a script. It does the handshake
// of the resumable era by itself.
type server struct {
	Server

	version string // the protocol version it agrees to; "2025-11-25" if empty
	session string // the session ID; "session-1" if empty, none if "-"

	// What is done with the POSTs of tools/call, with the GETs that resume one, and
	// with the GETs of the standby stream: each with its first, second, … request.
	// The last entry is for all that follow. A GET is the standby stream's if it
	// has no Last-Event-ID or one that begins with "s".
	calls, resumes, standby [][]Step

	// posts is done with the POSTs of other methods.
	posts map[string][]Step

	mu      sync.Mutex
	counts  map[string]int
	pending json.RawMessage // ID of the latest tools/call
}

func (s *server) start(t *testing.T) {
	t.Helper()
	if s.version == "" {
		s.version = "2025-11-25"
	}
	switch s.session {
	case "":
		s.session = "session-1"
	case "-":
		s.session = ""
	}
	s.counts = make(map[string]int)
	s.Rest = []Step{Do(s.answer)}
	s.Start()
	t.Cleanup(s.Close)
}

// next returns the entry for the next request of a kind.
func (s *server) next(kind string, entries [][]Step) []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[kind]
	s.counts[kind]++
	if len(entries) == 0 {
		return []Step{Status{Code: http.StatusMethodNotAllowed}}
	}
	return entries[min(n, len(entries)-1)]
}

func (s *server) answer(c *Conn) {
	req := c.Request()
	switch kind := kindOf(req); kind {
	case "standby":
		c.Play(s.next(kind, s.standby)...)
	case "resume":
		c.Play(s.next(kind, s.resumes)...)
	case "initialize":
		var header http.Header
		if s.session != "" {
			header = http.Header{"Mcp-Session-Id": {s.session}}
		}
		c.Play(jsonAnswer(idOf(req), `{"protocolVersion":"`+s.version+`","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1"}}`, header))
	case "tools/call":
		s.mu.Lock()
		s.pending = idOf(req)
		s.mu.Unlock()
		c.Play(s.next(kind, s.calls)...)
	default:
		if steps, ok := s.posts[kind]; ok {
			c.Play(steps...)
		} else if kind == "DELETE" {
			c.Play(Status{Code: http.StatusNoContent})
		} else if id := idOf(req); len(id) > 0 {
			c.Play(jsonAnswer(id, `{}`, nil))
		} else {
			c.Play(Status{Code: http.StatusAccepted})
		}
	}
}

// kindOf returns the JSON-RPC method of a POST, "standby" or "resume" for a GET, and
// the method of any other request.
func kindOf(r Request) string {
	switch r.Method {
	case http.MethodPost:
		var message struct{ Method string }
		_ = json.Unmarshal(r.Body, &message) // a response has none
		return message.Method
	case http.MethodGet:
		if !r.HasLastEventID || strings.HasPrefix(r.LastEventID, "s") {
			return "standby"
		}
		return "resume"
	default:
		return r.Method
	}
}

func idOf(r Request) json.RawMessage {
	var message struct{ ID json.RawMessage }
	_ = json.Unmarshal(r.Body, &message)
	return message.ID
}

func jsonAnswer(id json.RawMessage, result string, header http.Header) Step {
	h := http.Header{"Content-Type": {"application/json"}}
	for name, values := range header {
		h[name] = values
	}
	return Status{Header: h, Body: `{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`}
}

const toolResult = `{"content":[{"type":"text","text":"done"}]}`

// R is the answer to the latest call, in an event with the given ID.
func (s *server) R(id string) Step {
	return Do(func(c *Conn) {
		s.mu.Lock()
		pending := s.pending
		s.mu.Unlock()
		c.Play(Event{ID: id, Data: `{"jsonrpc":"2.0","id":` + string(pending) + `,"result":` + toolResult + `}`})
	})
}

// P is an event that only tells its ID, with a retry field unless that is negative.
func P(id string, retry time.Duration) Step {
	text := "id: " + id + "\n"
	if retry >= 0 {
		text += "retry: " + strconv.FormatInt(retry.Milliseconds(), 10) + "\n"
	}
	return Send(text + "data: \n\n")
}

// M is an event that holds the n-th progress notification.
func M(id string, n int) Step {
	return Event{ID: id, Data: progress(n)}
}

func progress(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":%d}}`, n)
}

// of returns the requests of the given kinds.
func (s *server) of(kinds ...string) []Request {
	var of []Request
	for _, r := range s.Requests() {
		if slices.Contains(kinds, kindOf(r)) {
			of = append(of, r)
		}
	}
	return of
}

// ids returns the Last-Event-IDs of requests, "–" for none.
func ids(requests []Request) []string {
	var ids []string
	for _, r := range requests {
		if r.HasLastEventID {
			ids = append(ids, r.LastEventID)
		} else {
			ids = append(ids, "–")
		}
	}
	return ids
}

// gaps returns the times from the end of each request to the arrival of the next.
func gaps(requests []Request) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(requests); i++ {
		gaps = append(gaps, requests[i].Arrived.Sub(requests[i-1].Ended))
	}
	return gaps
}

// checkHeaders checks what each request after the handshake must carry.
func (s *server) checkHeaders(t *testing.T) {
	t.Helper()
	for _, r := range s.Requests() {
		if r.Refused {
			continue
		}
		got := map[string]string{}
		for _, name := range []string{"Mcp-Session-Id", "Mcp-Protocol-Version", "Accept", "Accept-Encoding", "Mcp-Method"} {
			got[name] = r.Header.Get(name)
		}
		want := map[string]string{"Mcp-Session-Id": s.session, "Mcp-Protocol-Version": s.version, "Accept": "", "Accept-Encoding": "identity", "Mcp-Method": ""}
		switch kind := kindOf(r); {
		case r.Method == http.MethodPost:
			if s.version == newVersion {
				want["Mcp-Method"] = kind
			}
			want["Accept"] = "application/json, text/event-stream"
			if kind == "initialize" {
				want["Mcp-Session-Id"], want["Mcp-Protocol-Version"] = "", ""
			}
			if r.HasLastEventID {
				t.Errorf("the POST of %s has a Last-Event-ID", kind)
			}
		case r.Method == http.MethodGet:
			want["Accept"] = "text/event-stream"
		default:
			delete(want, "Accept-Encoding")
			delete(got, "Accept-Encoding")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("headers of %s %s (-want +got):\n%s", r.Method, kindOf(r), diff)
		}
	}
}

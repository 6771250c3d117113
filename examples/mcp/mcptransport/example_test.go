package mcptransport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/eventsource"
	. "github.com/reprise-sse/reprise/eventsource/eventsourcetest"
	"github.com/reprise-sse/reprise/examples/mcp/mcptransport"
	"github.com/reprise-sse/reprise/policy"
)

// The functions that follow are the examples of docs/mcp.md.

func connectExample(ctx context.Context, url string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "app", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcptransport.Transport{Endpoint: url}, nil)
	return session, err
}

// call sends a call and follows its answer over as many connections as it takes.
// handle is given every message, and reports whether that was the answer.
func call(post *http.Request, session, version string, handle func(data string) (done bool)) error {
	resp, err := http.DefaultClient.Do(post)
	if err != nil {
		return err
	}
	next, err := http.NewRequestWithContext(post.Context(), http.MethodGet, post.URL.String(), nil)
	if err != nil {
		return err
	}
	next.Header.Set("Mcp-Session-Id", session)
	next.Header.Set("MCP-Protocol-Version", version)

	client := eventsource.Client{Policy: policy.MCPCall()}
	for event, err := range client.Adopt(resp, next).Events() {
		if err != nil {
			return err // the caller must be told: there will be no answer
		}
		if event.Data != "" && handle(event.Data) {
			return nil // leaving the loop closes the connection
		}
	}
	return errors.New("the server ended the stream without the answer")
}

// adviceOn tells what to do about a call that failed.
func adviceOn(err error) string {
	var refusal *eventsource.ResponseError
	switch {
	case errors.Is(err, mcp.ErrSessionMissing):
		return "make a new session"
	case !errors.Is(err, mcptransport.ErrLost):
		return "the server did not take it: repair, and call again"
	case errors.As(err, &refusal):
		return fmt.Sprintf("the answer cannot be had any more (status %d)", refusal.StatusCode)
	default:
		return "the work may have been done: ask before you call again"
	}
}

func resumeExample(ctx context.Context, transport *mcptransport.Transport, stored mcptransport.Position, answer func(*jsonrpc.Response)) error {
	for message, err := range transport.Resume(ctx, stored) {
		if err != nil {
			return err // mcptransport.ErrLost, with the cause
		}
		if response, ok := message.(*jsonrpc.Response); ok {
			answer(response)
		}
	}
	return nil
}

func Example() {
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello"}}}, nil, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := httptest.NewServer(handler)
	defer web.Close()

	ctx := context.Background()
	session, err := connectExample(ctx, web.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "greet"})
	if err != nil {
		fmt.Println(adviceOn(err))
		return
	}
	fmt.Println(result.Content[0].(*mcp.TextContent).Text)
	// Output: hello
}

func TestExampleOfACall(t *testing.T) {
	s := startReal(t, mcp.StreamableHTTPOptions{JSONResponse: false})
	s.addWork(func(_ context.Context, r *mcp.CallToolRequest) error {
		r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 1})
		return nil
	})
	c := connectReal(t, s, "2025-11-25")
	post := func(body string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.http.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Session-Id": c.ID(), "MCP-Protocol-Version": "2025-11-25",
		} {
			req.Header.Set(name, value)
		}
		return req
	}
	var got string
	err := call(post(`{"jsonrpc":"2.0","id":99,"method":"tools/list"}`), c.ID(), "2025-11-25", func(data string) bool {
		got = data
		return true
	})
	if err != nil || !strings.Contains(got, `"id":99`) {
		t.Errorf("got %q, %v", got, err)
	}
	if err := call(post(`{`), c.ID(), "2025-11-25", nil); err == nil {
		t.Error("a call that was refused gave no error")
	}
}

func TestExampleOfResuming(t *testing.T) {
	s := &server{}
	s.resumes = [][]Step{{M("m1", 1), Event{ID: "m2", Data: `{"jsonrpc":"2.0","id":7,"result":{}}`}}, {Status{Code: 405}}}
	synctest.Test(t, func(t *testing.T) {
		s.start(t)
		transport := &mcptransport.Transport{Endpoint: s.URL}
		transport.Client.HTTPClient = s.Client()
		answers := 0
		answer := func(*jsonrpc.Response) { answers++ }
		if err := resumeExample(t.Context(), transport, position("p0"), answer); err != nil || answers != 1 {
			t.Errorf("%d answers, %v", answers, err)
		}
		if err := resumeExample(t.Context(), transport, position("p0"), answer); !errors.Is(err, mcptransport.ErrLost) || answers != 1 {
			t.Errorf("%d answers, %v; want ErrLost", answers, err)
		}
	})
}

func TestAdvice(t *testing.T) {
	refusal := &eventsource.ResponseError{StatusCode: 405}
	for _, test := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: %w: %w", mcptransport.ErrLost, mcp.ErrSessionMissing, refusal), "make a new session"},
		{refusal, "the server did not take it: repair, and call again"},
		{fmt.Errorf("%w: %w", mcptransport.ErrLost, refusal), "the answer cannot be had any more (status 405)"},
		{fmt.Errorf("%w: %w", mcptransport.ErrLost, policy.ErrExhausted), "the work may have been done: ask before you call again"},
	} {
		if got := adviceOn(test.err); got != test.want {
			t.Errorf("on %v: %q, want %q", test.err, got, test.want)
		}
	}
}

// TestDocumentedCode checks that the code in the documentation is that of this
// file, which compiles.
func TestDocumentedCode(t *testing.T) {
	page, err := os.ReadFile("../../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	source := undented(string(file))
	blocks := 0
	for i, part := range strings.Split(string(page), "```") {
		code, isGo := strings.CutPrefix(part, "go\n")
		if i%2 == 0 || !isGo {
			continue
		}
		blocks++
		if !strings.Contains(source, undented(code)) {
			t.Errorf("this code is not in example_test.go:\n%s", code)
		}
	}
	if blocks != 4 {
		t.Errorf("%d blocks of Go in docs/mcp.md, want 4", blocks)
	}
}

func undented(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimLeft(line, "\t"))
	}
	return b.String()
}

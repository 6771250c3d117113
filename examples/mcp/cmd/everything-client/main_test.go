package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	type numbers struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	fail := false
	server := mcp.NewServer(&mcp.Implementation{Name: "server", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add_numbers"}, func(_ context.Context, _ *mcp.CallToolRequest, n numbers) (*mcp.CallToolResult, any, error) {
		if fail || n.A+n.B != 8 {
			return nil, nil, errors.New("wrong sum")
		}
		return nil, nil, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		web.Close()
		http.DefaultClient.CloseIdleConnections()
	})

	for _, test := range []struct {
		scenario string
		args     []string
		fail     bool
		want     string // in the error; empty for none
	}{
		{scenario: "initialize", args: []string{"everything-client", "-x", web.URL}},
		{scenario: "tools_call", args: []string{"everything-client", web.URL}},
		{scenario: "tools_call", args: []string{"everything-client", web.URL}, fail: true, want: "wrong sum"},
		{scenario: "sse-retry", args: []string{"everything-client", web.URL}, want: "test_reconnection"},
		{scenario: "auth/none", args: []string{"everything-client", web.URL}, want: "not a known scenario"},
		{scenario: "initialize", args: []string{"everything-client"}, want: "URL is missing"},
		{scenario: "initialize", args: []string{"everything-client", "http://127.0.0.1:1/"}, want: "initialize"},
	} {
		fail = test.fail
		err := run(t.Context(), test.scenario, test.args)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.scenario, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got %v, want an error with %q", test.scenario, err, test.want)
		}
	}
}

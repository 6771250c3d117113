// Everything-client is the client program that MCP's conformance suite runs. Its last
// argument is the URL of the suite's server, and MCP_CONFORMANCE_SCENARIO is the name
// of the scenario. It exits with status 0 when the scenario is done.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/reprise-sse/reprise/examples/mcp/mcptransport"
)

func main() {
	if err := run(context.Background(), os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "everything-client:", err)
		os.Exit(1)
	}
}

// scenarios has the tool that each scenario wants to be called; an empty name means
// none.
var scenarios = map[string]string{
	"initialize":                          "",
	"tools_call":                          "add_numbers",
	"elicitation-sep1034-client-defaults": "test_client_elicitation_defaults",
	"sse-retry":                           "test_reconnection",
}

func run(ctx context.Context, scenario string, args []string) (err error) {
	tool, ok := scenarios[scenario]
	switch {
	case !ok:
		return fmt.Errorf("MCP_CONFORMANCE_SCENARIO is %q, which is not a known scenario", scenario)
	case len(args) < 2:
		return errors.New("the server's URL is missing: it is the last argument")
	}

	client := mcp.NewClient(&mcp.Implementation{Name: "reprise-everything-client", Version: "1"}, &mcp.ClientOptions{
		// An empty answer leaves every field to its default.
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
	})
	session, err := client.Connect(ctx, &mcptransport.Transport{Endpoint: args[len(args)-1]}, &mcp.ClientSessionOptions{
		ProtocolVersion: "2025-11-25", // the scenarios' own
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()

	if _, err := session.ListTools(ctx, nil); err != nil {
		return err
	}
	if tool == "" {
		return nil
	}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"a": 5, "b": 3}})
	if err != nil {
		return err
	}
	if result.IsError {
		content, _ := json.Marshal(result.Content)
		return fmt.Errorf("the tool %s failed: %s", tool, content)
	}
	return nil
}

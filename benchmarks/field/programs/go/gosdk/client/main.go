// A client with the official Go SDK: calls echo of the server that a command starts.
//
//	client CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
package main

import (
	"context"
	"log"
	"os"
	"os/exec"

	"example.invalid/field/load"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "field", Version: "1"}, nil)
	transport := &mcp.CommandTransport{Command: exec.Command(os.Args[4], os.Args[5:]...)}
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		log.Fatal(err)
	}
	load.Run(func(text string) bool {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{
			Name: "echo", Arguments: map[string]any{"text": text},
		})
		if err != nil || result.IsError || len(result.Content) == 0 {
			return false
		}
		block, ok := result.Content[0].(*mcp.TextContent)
		return ok && block.Text == text
	})
	session.Close()
}

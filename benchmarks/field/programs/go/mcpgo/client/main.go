// A client with mcp-go: calls echo of the server that a command starts.
//
//	client CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
package main

import (
	"context"
	"log"
	"os"

	"example.invalid/field/load"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
)

func main() {
	ctx := context.Background()
	session, err := client.NewStdioMCPClient(os.Args[4], nil, os.Args[5:]...)
	if err != nil {
		log.Fatal(err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "field", Version: "1"}
	if _, err := session.Initialize(ctx, hello); err != nil {
		log.Fatal(err)
	}
	load.Run(func(text string) bool {
		var request mcp.CallToolRequest
		request.Params.Name = "echo"
		request.Params.Arguments = map[string]any{"text": text}
		result, err := session.CallTool(ctx, request)
		if err != nil || result.IsError || len(result.Content) == 0 {
			return false
		}
		block, ok := mcp.AsTextContent(result.Content[0])
		return ok && block.Text == text
	})
	session.Close()
}

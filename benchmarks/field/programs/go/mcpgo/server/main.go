// An echo server with mcp-go.
//
//	server stdio SETTING TOOLS
//	server http SETTING TOOLS PORT
//	server sse SETTING TOOLS PORT
//
// SETTING is documented or fastest. TOOLS is the number of tools beside echo.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func echo(_ context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	text, err := request.RequireString("text")
	if err != nil {
		return mcp.NewToolResultError(err.Error()), nil
	}
	return mcp.NewToolResultText(text), nil
}

func tool(name, description string) mcp.Tool {
	return mcp.NewTool(name, mcp.WithDescription(description),
		mcp.WithString("text", mcp.Required(), mcp.Description("The text to return")))
}

func main() {
	transport, fastest := os.Args[1], os.Args[2] == "fastest"
	tools, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	options := []server.ServerOption{server.WithToolCapabilities(false)}
	if !fastest {
		options = append(options, server.WithRecovery())
	}
	echoes := server.NewMCPServer("echo", "1", options...)
	echoes.AddTool(tool("echo", "Return the text."), echo)
	for number := 1; number <= tools; number++ {
		description := fmt.Sprintf("Tool number %d: returns the text that it is given.", number)
		echoes.AddTool(tool(fmt.Sprintf("tool_%d", number), description), echo)
	}
	switch transport {
	case "stdio":
		err = server.ServeStdio(echoes)
	case "sse":
		err = server.NewSSEServer(echoes).Start("127.0.0.1:" + os.Args[4])
	default:
		var options []server.StreamableHTTPOption
		if fastest {
			options = append(options, server.WithStateLess(true), server.WithDisableStreaming(true))
		}
		err = server.NewStreamableHTTPServer(echoes, options...).Start("127.0.0.1:" + os.Args[4])
	}
	if err != nil {
		log.Fatal(err)
	}
}

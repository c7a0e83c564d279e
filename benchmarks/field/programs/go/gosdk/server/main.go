// An echo server with the official Go SDK.
//
//	server stdio SETTING TOOLS
//	server http SETTING TOOLS PORT
//	server sse SETTING TOOLS PORT
//
// SETTING is documented, fastest, or modern: as fastest, without sessions, as 2026-07-28 needs it.
// TOOLS is the number of tools beside echo.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type echoArguments struct {
	Text string `json:"text" jsonschema:"the text to return"`
}

func textOf(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// typed is the tool as the documentation writes it.
func typed(_ context.Context, _ *mcp.CallToolRequest, arguments echoArguments) (*mcp.CallToolResult, any, error) {
	return textOf(arguments.Text), nil, nil
}

// plain is the tool of the lower interface, which checks no schema.
func plain(_ context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var arguments echoArguments
	if err := json.Unmarshal(request.Params.Arguments, &arguments); err != nil {
		return nil, err
	}
	return textOf(arguments.Text), nil
}

func main() {
	transport, setting := os.Args[1], os.Args[2]
	fastest := setting != "documented"
	tools, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	if fastest {
		schema := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)
		server.AddTool(&mcp.Tool{Name: "echo", Description: "Return the text.", InputSchema: schema}, plain)
	} else {
		mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Return the text."}, typed)
	}
	for number := 1; number <= tools; number++ {
		mcp.AddTool(server, &mcp.Tool{
			Name:        fmt.Sprintf("tool_%d", number),
			Description: fmt.Sprintf("Tool number %d: returns the text that it is given.", number),
		}, typed)
	}
	if transport == "stdio" {
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}
	address := "127.0.0.1:" + os.Args[4]
	get := func(*http.Request) *mcp.Server { return server }
	if transport == "sse" {
		log.Fatal(http.ListenAndServe(address, mcp.NewSSEHandler(get, nil)))
	}
	var options *mcp.StreamableHTTPOptions
	if fastest {
		// With sessions: without them each request has a session of its own, which is slower.
		options = &mcp.StreamableHTTPOptions{JSONResponse: true, Stateless: setting == "modern"}
	}
	log.Fatal(http.ListenAndServe(address, mcp.NewStreamableHTTPHandler(get, options)))
}

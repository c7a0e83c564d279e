package field;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.catalina.startup.Tomcat;

import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.server.McpServer;
import io.modelcontextprotocol.server.McpServerFeatures.AsyncToolSpecification;
import io.modelcontextprotocol.server.McpServerFeatures.SyncToolSpecification;
import io.modelcontextprotocol.server.McpStatelessServerFeatures;
import io.modelcontextprotocol.server.transport.HttpServletSseServerTransportProvider;
import io.modelcontextprotocol.server.transport.HttpServletStatelessServerTransport;
import io.modelcontextprotocol.server.transport.HttpServletStreamableServerTransportProvider;
import io.modelcontextprotocol.server.transport.StdioServerTransportProvider;
import io.modelcontextprotocol.spec.McpSchema.CallToolRequest;
import io.modelcontextprotocol.spec.McpSchema.CallToolResult;
import io.modelcontextprotocol.spec.McpSchema.ServerCapabilities;
import io.modelcontextprotocol.spec.McpSchema.Tool;
import io.modelcontextprotocol.spec.McpServerTransportProvider;
import jakarta.servlet.http.HttpServlet;
import reactor.core.publisher.Mono;

/**
 * An echo server with the Java SDK.
 *
 * <pre>
 * EchoServer stdio SETTING TOOLS
 * EchoServer http SETTING TOOLS PORT
 * EchoServer sse SETTING TOOLS PORT
 * </pre>
 *
 * SETTING is documented or fastest. TOOLS is the number of tools beside echo.
 */
public final class EchoServer {

    private static final ServerCapabilities CAPABILITIES = ServerCapabilities.builder().tools(false).build();

    public static void main(String[] arguments) throws Exception {
        boolean fastest = arguments[1].equals("fastest");
        List<Tool> tools = tools(Integer.parseInt(arguments[2]));
        if (arguments[0].equals("stdio")) {
            // its threads live until the input ends
            connect(new StdioServerTransportProvider(McpJsonDefaults.getMapper()), fastest, tools);
        } else if (arguments[0].equals("sse")) {
            var transport = HttpServletSseServerTransportProvider.builder()
                .jsonMapper(McpJsonDefaults.getMapper())
                .sseEndpoint("/sse")
                .messageEndpoint("/message")
                .build();
            connect(transport, fastest, tools);
            http(transport, Integer.parseInt(arguments[3]));
        } else {
            http(fastest ? stateless(tools) : streamable(tools), Integer.parseInt(arguments[3]));
        }
    }

    private static List<Tool> tools(int number) {
        List<Tool> tools = new ArrayList<>();
        tools.add(tool("echo", "Return the text."));
        for (int n = 1; n <= number; n++) {
            tools.add(tool("tool_" + n, "Tool number " + n + ": returns the text that it is given."));
        }
        return tools;
    }

    private static Tool tool(String name, String description) {
        Map<String, Object> text = Map.of("type", "string", "description", "The text to return.");
        Map<String, Object> schema = Map.of("type", "object", "properties", Map.of("text", text), "required",
                List.of("text"));
        return Tool.builder(name, schema).description(description).build();
    }

    private static CallToolResult echo(CallToolRequest request) {
        return CallToolResult.builder().addTextContent((String) request.arguments().get("text")).build();
    }

    private static void connect(McpServerTransportProvider transport, boolean fastest, List<Tool> tools) {
        if (fastest) {
            McpServer.async(transport)
                .serverInfo("echo", "1")
                .capabilities(CAPABILITIES)
                .validateToolInputs(false)
                .tools(tools.stream()
                    .map(tool -> AsyncToolSpecification.builder()
                        .tool(tool)
                        .callHandler((exchange, request) -> Mono.just(echo(request)))
                        .build())
                    .toList())
                .build();
        } else {
            McpServer.sync(transport).serverInfo("echo", "1").capabilities(CAPABILITIES).tools(sync(tools)).build();
        }
    }

    private static List<SyncToolSpecification> sync(List<Tool> tools) {
        return tools.stream()
            .map(tool -> SyncToolSpecification.builder()
                .tool(tool)
                .callHandler((exchange, request) -> echo(request))
                .build())
            .toList();
    }

    private static HttpServlet streamable(List<Tool> tools) {
        var transport = HttpServletStreamableServerTransportProvider.builder()
            .jsonMapper(McpJsonDefaults.getMapper())
            .mcpEndpoint("/mcp")
            .build();
        McpServer.sync(transport).serverInfo("echo", "1").capabilities(CAPABILITIES).tools(sync(tools)).build();
        return transport;
    }

    private static HttpServlet stateless(List<Tool> tools) {
        var transport = HttpServletStatelessServerTransport.builder()
            .jsonMapper(McpJsonDefaults.getMapper())
            .messageEndpoint("/mcp")
            .build();
        McpServer.async(transport)
            .serverInfo("echo", "1")
            .capabilities(CAPABILITIES)
            .validateToolInputs(false)
            .tools(tools.stream()
                .map(tool -> McpStatelessServerFeatures.AsyncToolSpecification.builder()
                    .tool(tool)
                    .callHandler((context, request) -> Mono.just(echo(request)))
                    .build())
                .toList())
            .build();
        return transport;
    }

    private static void http(HttpServlet servlet, int port) throws Exception {
        var tomcat = new Tomcat();
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir"));
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(port);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        tomcat.getConnector().setProperty("maxKeepAliveRequests", "-1");
        var context = tomcat.addContext("", System.getProperty("java.io.tmpdir"));
        var wrapper = Tomcat.addServlet(context, "mcp", servlet);
        wrapper.setAsyncSupported(true);
        wrapper.addMapping("/*");
        tomcat.start();
        tomcat.getServer().await();
    }

}

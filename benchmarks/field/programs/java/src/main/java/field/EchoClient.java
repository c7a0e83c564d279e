package field;

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import com.sun.management.OperatingSystemMXBean;

import io.modelcontextprotocol.client.McpAsyncClient;
import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.spec.McpSchema.CallToolRequest;
import io.modelcontextprotocol.spec.McpSchema.TextContent;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * A client with the Java SDK: calls echo of the server that a command starts.
 *
 * <pre>
 * EchoClient CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
 * </pre>
 *
 * Prints a line of JSON: calls, wrong answers, seconds, processor seconds.
 */
public final class EchoClient {

    public static void main(String[] arguments) throws Exception {
        int calls = Integer.parseInt(arguments[0]);
        int warmup = Integer.parseInt(arguments[1]);
        int inFlight = Integer.parseInt(arguments[2]);
        var parameters = ServerParameters.builder(arguments[3])
            .args(Arrays.copyOfRange(arguments, 4, arguments.length))
            .build();
        var transport = new StdioClientTransport(parameters, McpJsonDefaults.getMapper());
        var client = McpClient.async(transport).requestTimeout(Duration.ofSeconds(60)).build();
        client.initialize().block();
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        int wrong = phase(client, 0, warmup, inFlight);
        long processor = system.getProcessCpuTime();
        long began = System.nanoTime();
        wrong += phase(client, warmup, calls, inFlight);
        double seconds = (System.nanoTime() - began) / 1e9;
        double used = (system.getProcessCpuTime() - processor) / 1e9;
        System.out.println(String.format(Locale.ROOT,
                "{\"calls\": %d, \"wrong\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f}", calls, wrong, seconds,
                used));
        client.closeGracefully().block(Duration.ofSeconds(10));
        System.exit(0);
    }

    /** Makes calls, so many at a time, and returns how many were answered wrongly. */
    private static int phase(McpAsyncClient client, int from, int calls, int inFlight) {
        var wrong = new AtomicInteger();
        Flux.range(from, calls)
            .flatMap(number -> call(client, String.format("%012d:%s", number, "x".repeat(51)), wrong), inFlight)
            .blockLast();
        return wrong.get();
    }

    private static Mono<Boolean> call(McpAsyncClient client, String text, AtomicInteger wrong) {
        return client.callTool(CallToolRequest.builder("echo").arguments(Map.of("text", text)).build())
            .map(result -> !Boolean.TRUE.equals(result.isError()) && !result.content().isEmpty()
                    && result.content().get(0) instanceof TextContent found && text.equals(found.text()))
            .onErrorReturn(false)
            .doOnNext(right -> {
                if (!right) {
                    wrong.incrementAndGet();
                }
            });
    }

}

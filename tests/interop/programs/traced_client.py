"""A client under `opentelemetry-instrumentation-mcp`: it calls `add` of a server on stdio, and
prints the spans that the instrumentation saw, as JSON.

python traced_client.py COMMAND [ARGUMENT …]
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client import stdio
from opentelemetry import trace
from opentelemetry.instrumentation.mcp import McpInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
McpInstrumentor().instrument()


async def main() -> None:
    parameters = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio.stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.list_tools()
        await session.call_tool("add", {"a": 2, "b": 3})


asyncio.run(main())
seen = [[span.name, sorted(span.attributes or {})] for span in spans.get_finished_spans()]
print(json.dumps({"spans": seen}))

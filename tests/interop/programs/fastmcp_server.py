"""A small FastMCP server."""

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

server = FastMCP("interop", version="1.2.3", instructions="Call the tools.")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def count(n: int, ctx: Context) -> str:
    """Report progress n times, and log."""
    for i in range(1, n + 1):
        await ctx.report_progress(i, n, f"step {i}")
    await ctx.warning("counted")
    return str(n)


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("boom")


if __name__ == "__main__":
    server.run(show_banner=False)

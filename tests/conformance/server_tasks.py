"""The fixtures of the tasks extension (SEP-2663): calls that outlive their request."""

import asyncio
from dataclasses import dataclass

from wirespeed import Context, Server
from wirespeed.errors import ProtocolError, ToolError


@dataclass
class Confirmation:
    """Whether to go on."""

    confirm: bool


@dataclass
class Name:
    """A name."""

    name: str


async def greet(name: str) -> str:
    """Greet somebody; never a task.

    Args:
        name: Whom to greet.
    """
    return f"Hello, {name}!"


async def slow_compute(seconds: float, label: str) -> str:
    """Take a while.

    Args:
        seconds: How long.
        label: What the result is called.
    """
    await asyncio.sleep(seconds)
    return f"{label}: computed for {seconds} seconds"


async def failing_job() -> str:
    """Fail after a second."""
    await asyncio.sleep(1)
    raise ToolError("This job always fails.")


async def protocol_error_job() -> str:
    """End with an error of the protocol."""
    await asyncio.sleep(0.1)
    raise ProtocolError(-32603, "This job ends with an error of the protocol.")


async def confirm_delete(filename: str, ctx: Context) -> str:
    """Delete a file, if the user agrees.

    Args:
        filename: The file.
    """
    answer = await ctx.elicit(f"Delete {filename}?", Confirmation)
    if answer and answer.content.confirm:
        return f"{filename} was deleted."
    return f"{filename} was kept."


async def multi_input(ctx: Context) -> str:
    """Ask for two names at once."""
    first, second = await asyncio.gather(
        ctx.elicit("What is the first name?", Name),
        ctx.elicit("What is the second name?", Name),
    )
    return " and ".join(answer.content.name for answer in (first, second) if answer)


async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name, then go on as a task."""
    answer = await ctx.elicit("What is your name?", Name)
    await asyncio.sleep(1)  # longer than `task_after`
    return f"Hello, {answer.content.name if answer else 'stranger'}!"


def add_to(server: Server) -> None:
    """Register the tools."""
    server.use_tasks(poll_interval=0.1)
    server.add_tool(greet)
    server.add_tool(slow_compute, task="optional", task_after=0)
    server.add_tool(failing_job, task="required")
    server.add_tool(protocol_error_job, task="required")
    server.add_tool(confirm_delete, task="required")
    server.add_tool(multi_input, task="required")
    server.add_tool(test_tool_with_task, task="optional", task_after=0.2)

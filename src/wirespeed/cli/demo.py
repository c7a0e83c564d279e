"""``wirespeed demo``: a load on the bundled servers, every answer checked."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, Failure, cannot_start, print_json, printable
from wirespeed.cli.session import run

if TYPE_CHECKING:
    from rich.console import Console

    from wirespeed import Client, Stdio
    from wirespeed.bench.load import Result
    from wirespeed.types import ToolInfo

_TIMEOUT = 60.0
_NAME = "wirespeed-demo"
_MOST = 20_000  # calls over the WebSocket
# A row of the README's table.
_RIVAL, _TIMES = "mcp 2.3.0", "589"
_START_TIMEOUT = 30.0  # seconds that the bundled servers have
_END_TIMEOUT = 5.0


def demo(calls: int, in_flight: int, *, as_json: bool) -> int:
    """Run the demo. Failure (1) at a wrong answer."""
    return run(_demo(calls, in_flight, as_json))


def calculator() -> Stdio:
    """Return the target of the bundled calculator. Its stderr is shown only with an error."""
    from wirespeed import Stdio

    args = ["-m", "wirespeed.demo.calculator"]
    return Stdio(sys.executable, args, stderr="discard", inherit_env=True)


async def _demo(calls: int, in_flight: int, as_json: bool) -> int:
    out = None if as_json else show.console()
    facts = await _stdio(out, calls, in_flight)
    async with bundled() as (mcp, lite):
        facts["websocket"] = await _load(out, mcp, min(calls, _MOST), in_flight)
        facts["litemcp"] = await _litemcp(out, lite)
    if out is None:
        print_json(facts)
    else:
        _end(out)
    return Exit.OK


async def _stdio(out: Console | None, calls: int, in_flight: int) -> dict[str, Any]:
    from wirespeed import Client

    began = time.perf_counter()
    async with Client(calculator(), timeout=_TIMEOUT, name=_NAME) as client:
        ready = time.perf_counter() - began
        tools = await client.list_tools()
        if out is not None:
            _introduce(out, client, ready, tools)
        one = await _one(out, client)
        server, revision = client.server_info, client.protocol_version
    return {
        "server": server,
        "revision": revision,
        "ready_seconds": ready,
        "first_call_seconds": one,
        "stdio": await _load(out, calculator(), calls, in_flight),
    }


async def _load(out: Console | None, target: Any, calls: int, in_flight: int) -> Any:
    """Make the calls, show their figures, and return these as JSON values."""
    import msgspec

    from wirespeed.cli.bench.summary import show_results

    result = await measured(target, calls, in_flight)
    if out is not None:
        out.print()
        show_results(out, [result], several=False)
    return msgspec.to_builtins(result)


async def measured(target: Any, calls: int, in_flight: int) -> Result:
    """Measure calls of the calculator's ``add``. Failure (1): an answer was not right."""
    from wirespeed.bench.arguments import Arguments
    from wirespeed.bench.load import Load
    from wirespeed.bench.plan import Planned
    from wirespeed.bench.recorder import OUTCOMES
    from wirespeed.bench.run import Run
    from wirespeed.bench.work import Work
    from wirespeed.cli.bench.live import Watch
    from wirespeed.client.targets import as_target

    # the sum is the number of the call
    work = Work("add", Arguments({"a": "$n", "b": 0}, "a"))
    load = Load(calls=calls, in_flight=min(in_flight, calls), timeout=_TIMEOUT)
    with Watch(sys.stderr.isatty(), 1) as watch:
        watch.begin(0, Planned(load, 0, 0))
        result = await Run(as_target(target), work, load, watch=watch.show).measure()
    faults = {name: result.counts[name] for name in OUTCOMES[1:] if result.counts[name]}
    if faults or result.counts["ok"] != calls:
        shown = "".join(f", {name}: {count:,}" for name, count in faults.items())
        right = f"{result.counts['ok']:,} of {show.plural(calls, 'call')} of add were right"
        raise _wrong(f"{right}{shown}")
    return result


async def _litemcp(out: Console | None, url: str) -> dict[str, Any]:
    """Ask for one tool's description, and call the tool."""
    from wirespeed.litemcp import LiteClient

    arguments = ["26.2", "mi", "km"]
    began = time.perf_counter()
    async with LiteClient(url, timeout=_TIMEOUT) as client:
        tool = await client.info()
        ready = time.perf_counter() - began
        began = time.perf_counter()
        result = await client.call(*arguments)
        seconds = time.perf_counter() - began
    right = "42.1648128"
    if result.text != right or result.error:
        raise _wrong(f"convert({', '.join(arguments)}) returned {result.text!r}, not {right}")
    if out is not None:
        names = ", ".join(parameter.name for parameter in tool.parameters)
        words = ", ".join(f'"{argument}"' for argument in arguments)
        out.print()
        _step(out, f"LiteMCP on {url}: {tool.name}({names})", show.duration(ready))
        _step(out, f'{tool.name}({words}) = "{result.text}"', show.duration(seconds))
    return {"url": url, "ready_seconds": ready, "tool": tool.name, "call_seconds": seconds}


async def _one(out: Console | None, client: Client) -> float:
    began = time.perf_counter()
    result = await client.call_tool("multiply", {"a": 6, "b": 7})
    seconds = time.perf_counter() - began
    if result.structured_content != {"result": 42} or result.text != "42":
        raise _wrong(f"multiply(6, 7) returned {result.text!r}, not 42")
    if out is not None:
        _step(out, "multiply(6, 7) = 42", show.duration(seconds))
    return seconds


def _wrong(text: str) -> Failure:
    return Failure(f"a wrong answer: {text}", Exit.TOOL_FAILED, "WrongAnswer")


# -- for people -----------------------------------------------------------------------------------


def _introduce(out: Console, client: Client, ready: float, tools: list[ToolInfo]) -> None:
    from rich.text import Text

    from wirespeed import __version__
    from wirespeed.cli.info import installation

    info = client.server_info or {}
    name = printable(str(info.get("title") or info.get("name")))
    facts = installation()
    line = Text.assemble(
        (f"wirespeed {__version__}", "bold"),
        f"  {facts['python']}, {facts['loop']}, {facts['simd']['level']}",
    )
    out.print(line)
    out.print()
    _step(out, f"{name} started as a child, MCP {client.protocol_version}", show.duration(ready))
    _step(out, show.plural(len(tools), "tool"), "")
    out.print()
    show.put(out, show.tool_table(tools), indent=2)
    out.print()


def _step(out: Console, text: str, value: str) -> None:
    from rich.text import Text

    mark = "✓" if show.unicode_output() else "*"
    line = Text.assemble((mark, "green"), " ", text)
    if value:
        line.append("  ").append(value, "cyan")
    out.print(line)


def _end(out: Console) -> None:
    import os

    out.print()
    out.print(
        "  Client and server ran without encryption on this machine with "
        f"{show.plural(os.cpu_count() or 1, 'processor')}."
    )
    out.print(
        f"  A call over stdio takes the official SDK {_TIMES} times as much processor time\n"
        f"  ({_RIVAL}, see README.md)."
    )
    out.print("  Next: the server in ten lines of README.md; wirespeed dev FILE tries it.")


# -- the bundled servers on a port, in a child that ends with this process ------------------------


@contextlib.asynccontextmanager
async def bundled() -> AsyncIterator[list[str]]:
    """Start a child that runs `wirespeed.demo.network`, and yield its URLs for MCP and for LiteMCP.
    Failure (3): the child does not start."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "wirespeed.demo.network", stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        # Meanwhile, load the modules of the first connection, so that its time is not measured.
        import wirespeed.client.connection.network_channels
        import wirespeed.transport.websocket.upgrade  # noqa: F401

        yield await _urls(child)
    finally:
        await _end_child(child)


async def _urls(child: Process) -> list[str]:
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            lines = [await child.stdout.readline() for _ in range(2)]
            if lines[-1]:
                return [line.decode().strip() for line in lines]
            said = (await child.stderr.read()).decode(errors="replace").strip()
    except TimeoutError:
        text = f"the bundled server does not listen after {_START_TIMEOUT:g} s"
        raise cannot_start(text) from None
    reason = printable(said.rpartition("\n")[2]) or "it wrote nothing to stderr"
    raise cannot_start(f"the bundled server cannot be started: {reason}")


async def _end_child(child: Process) -> None:
    """Close the child's stdin, which tells the child to end, and wait for its end."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        async with asyncio.timeout(_END_TIMEOUT):
            await child.communicate()  # reads the rest of the output
    except TimeoutError:
        child.kill()
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

"""``wirespeed demo``: many calls multiplexed on one link to the bundled servers."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.bundled import bundled
from wirespeed.cli.failures import Exit, print_json, printable
from wirespeed.cli.histogram import PERCENTILES, bar, bins
from wirespeed.cli.load import Load, check, wrong
from wirespeed.cli.session import run

if TYPE_CHECKING:
    from rich.console import Console

    from wirespeed import Client, Stdio
    from wirespeed.types import ToolInfo

_ROWS = 12
_TIMEOUT = 60.0
_NAME = "wirespeed-demo"
_MOST = 20_000  # calls over the WebSocket
# The columns of a histogram line without its bar and the digits of its count; the widest line.
_MARGIN = 26
_WIDEST = 100
# What the README measured, with 64 calls in flight.
_RIVAL, _RIVAL_RATE = "The official SDK (mcp 2.3.0)", "1,022"


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
        facts["websocket"] = await _websocket(out, mcp, min(calls, _MOST), in_flight)
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
        load = Load(client, calls, in_flight)
        await load.run(watch=sys.stderr.isatty())
        facts = load.facts() | {"ready_seconds": ready, "first_call_seconds": one}
        facts |= {"server": client.server_info, "revision": client.protocol_version}
    if out is not None:
        _measured(out, load, facts)
        _histogram(out, load)
        _counted(out, facts)
    return facts


async def _websocket(out: Console | None, url: str, calls: int, in_flight: int) -> dict[str, Any]:
    from wirespeed import Client

    began = time.perf_counter()
    async with Client(url, timeout=_TIMEOUT, name=_NAME) as client:
        ready = time.perf_counter() - began
        if out is not None:
            _step(out, f"The same tools on {url}", show.duration(ready))
        one = await _one(out, client)
        load = Load(client, calls, in_flight)
        await load.run(watch=sys.stderr.isatty())
        facts = load.facts() | {"ready_seconds": ready, "first_call_seconds": one, "url": url}
    if out is not None:
        _measured(out, load, facts)
        _counted(out, facts)
    return facts


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
        raise wrong(f"convert({', '.join(arguments)}) returned {result.text!r}, not {right}")
    if out is not None:
        names = ", ".join(parameter.name for parameter in tool.parameters)
        words = ", ".join(f'"{argument}"' for argument in arguments)
        _step(out, f"LiteMCP on {url}: {tool.name}({names})", show.duration(ready))
        _step(out, f'{tool.name}({words}) = "{result.text}"', show.duration(seconds))
    return {"url": url, "ready_seconds": ready, "tool": tool.name, "call_seconds": seconds}


async def _one(out: Console | None, client: Client) -> float:
    began = time.perf_counter()
    result = await client.call_tool("multiply", {"a": 6, "b": 7})
    seconds = time.perf_counter() - began
    check("multiply(6, 7)", result, 42)
    if out is not None:
        _step(out, "multiply(6, 7) = 42", show.duration(seconds))
    return seconds


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


def _measured(out: Console, load: Load, facts: dict[str, Any]) -> None:
    from rich.text import Text

    rate = f"{facts['calls_per_second']:,.0f} calls/s"
    took = f"in {show.duration(load.seconds)}, {load.in_flight} in flight, every answer right"
    _step(out, f"{show.plural(load.answered, 'call')} {took}", "")
    out.print()
    out.print(Text.assemble("  throughput  ", (rate, "bold green")))
    latency = facts["latency_seconds"]
    line = Text("  latency   ")
    for name in (*(f"p{p:g}" for p in PERCENTILES), "max"):
        line.append(f"  {name} ").append(show.duration(latency[name]), "bold")
    out.print(line)
    out.print()


def _histogram(out: Console, load: Load) -> None:
    from rich.text import Text

    for row in histogram(sorted(load.latencies), max(20, min(out.width, _WIDEST) - _MARGIN)):
        out.print(Text.assemble(row[0], (row[1], "cyan")))
    out.print()


def _counted(out: Console, facts: dict[str, Any]) -> None:
    from rich.text import Text

    counted = facts["counters"]
    copied = counted["payload_bytes_copied"]
    out.print(
        Text.assemble(
            f"  {counted['messages_in']:,} answers, {counted['bytes_in']:,} bytes read, ",
            (f"{copied:,} payload bytes copied", "green" if copied == 0 else "yellow"),
        )
    )
    out.print()


def _end(out: Console) -> None:
    import os

    out.print()
    out.print(
        "  Client and server ran without encryption on this machine with "
        f"{show.plural(os.cpu_count() or 1, 'processor')}."
    )
    out.print(f"  {_RIVAL} answered {_RIVAL_RATE} calls/s on stdio (see README.md).")
    out.print("  Next: the server in ten lines of README.md; wirespeed serve FILE serves it.")


def histogram(ordered: list[float], width: int) -> list[tuple[str, str]]:
    """Return lines of (range and count, bar). The length of a bar is its row's count as a share of
    the largest count."""
    rows = bins(ordered, _ROWS)
    fullest = max(count for _, _, count in rows)
    blocks = show.unicode_output()
    digits = len(f"{fullest:,}")
    lines = []
    for low, high, count in rows:
        label = f"  {show.duration(low):>7} - {show.duration(high):>7}  {count:>{digits},}"
        length = bar(count / fullest, width - digits, blocks=blocks)
        lines.append((label, f"  {length}" if length else ""))
    return lines

"""``wirespeed demo``, and the bundled calculator."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cli import CONTROLS, DEADLINE, error_of, on_terminal, wirespeed
from lab.wording import raises

from wirespeed import Client, Server
from wirespeed.cli import demo, show
from wirespeed.cli.demo import bundled
from wirespeed.cli.failures import Exit, Failure
from wirespeed.demo import calculator
from wirespeed.errors import ProtocolError, ToolError
from wirespeed.transport.loop import run


def test_demo_json() -> None:
    done = wirespeed("demo", "--calls", "500", "--in-flight", "7", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    assert facts["server"]["name"] == "calculator"
    assert facts["first_call_seconds"] > 0 and facts["ready_seconds"] > 0
    for transport in ("stdio", "websocket"):
        result = facts[transport]
        assert result["transport"] == transport
        assert result["calls"] == result["counts"]["ok"] == 500
        assert result["load"]["in_flight"] == 7
        assert result["rate"] == pytest.approx(500 / result["seconds"])
    web = facts["websocket"]["target"]
    assert web.startswith("ws://127.0.0.1:")
    lite = facts["litemcp"]
    assert (lite["tool"], lite["url"]) == ("convert", web.replace("/mcp", "/lite"))
    assert lite["call_seconds"] > 0


def test_demo_in_a_pipe_has_no_control_codes() -> None:
    done = wirespeed("demo", "--calls", "500")
    assert (done.returncode, done.stderr) == (0, "")
    assert not CONTROLS.search(done.stdout)
    text, M = done.stdout, re.MULTILINE
    lines = text.splitlines()
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)
    # over stdio, and over the WebSocket
    assert len(re.findall("^  load +500 calls in .*, 64 in flight on 1 connection$", text, M)) == 2
    assert len(re.findall("^  answers +all right$", text, M)) == 2
    assert len(re.findall("^  latency +p50 .* p90 .* p99 .* max ", text, M)) == 2
    assert re.search("^ws://127.0.0.1:[0-9]+/mcp  websocket", text, M)
    assert 'convert("26.2", "mi", "km") = "42.1648128"' in text
    ran, rival, its_version, after = lines[-4:]
    assert ran.startswith("  Client and server ran without encryption on this machine with ")
    assert after.startswith("  Next: the server in ten lines of README.md; wirespeed dev FILE")
    # the figure is the README's
    times = re.search(r"the official SDK (\d+) times as much processor time$", rival)
    version = re.fullmatch(r"  \((mcp [\d.]+), see README.md\)\.", its_version)
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    assert times and version
    heading = next(line for line in readme.splitlines() if line.startswith("| processor time of"))
    row = next(line for line in readme.splitlines() if line.startswith("| stdio server, 64 in"))
    assert heading.split(" | ")[-1] == f"{version[1]} |"
    assert row.split(" | ")[-1] == f"{times[1]}\u00d7 |"


def test_demo_on_a_terminal_shows_the_run_that_goes_on() -> None:
    written, status = on_terminal(["demo", "--calls", "30000"])
    assert status == 0
    assert "\x1b[?25l" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "64 in flight on 1 connection: connections" in written
    assert "all right" in written
    assert "\x1b[36m" in written


def test_demo_without_colour_and_in_ascii() -> None:
    written, status = on_terminal(["demo", "--calls", "500"], NO_COLOR="1")
    assert status == 0
    # bold, and the cursor's moves of the progress bar, but no colour
    assert not re.search(r"\x1b\[(?:\d+;)*[34]\d", written)
    done = wirespeed("demo", "--calls", "500", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "#" in done.stdout


def test_one_call_is_enough() -> None:
    done = wirespeed("demo", "--calls", "1")
    assert done.returncode == 0
    assert "1 call in" in done.stdout
    assert "1 in flight on 1 connection" in done.stdout


def test_a_demo_that_cannot_start() -> None:
    error = error_of(wirespeed("demo", "--json", WIRESPEED_LOOP="turbo"))
    assert error["exit_code"] == Exit.USAGE


def test_the_servers_behind_a_port_end_with_whoever_started_them() -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "wirespeed.demo.network"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        mcp, lite = (child.stdout.readline().decode().strip() for _ in range(2))
        listed = wirespeed("list", mcp)
        assert "slow_sum" in listed.stdout
        done = wirespeed("call", "--lite", lite, "convert", '[1, "mi", "m"]')
        assert (done.returncode, done.stdout) == (0, "1609.344\n")
        _, said = child.communicate(timeout=DEADLINE)
    assert (child.returncode, said) == (0, b"")


def test_servers_that_do_not_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with bundled():
            raise AssertionError

    monkeypatch.setenv("WIRESPEED_LOOP", "turbo")  # the child's
    with raises(Failure) as caught:
        asyncio.run(main())
    assert caught.value.code == Exit.UNREACHABLE


# -- the load -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["wrong", "error", "tool-error"])
def test_a_wrong_answer_fails(fault: str) -> None:
    server = Server("adder")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add, but for one call."""
        if a == 30 and fault == "tool-error":
            raise ToolError("no")
        if a == 30 and fault == "error":
            raise ProtocolError(-32603, "no")
        return a + b + (a == 30 and fault == "wrong")

    with raises(Failure) as caught:
        run(demo.measured(server, 100, 4))
    assert caught.value.code == Exit.TOOL_FAILED


def test_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "unicode_output", lambda: True)
    spoken = [show.duration(s) for s in (9.12e-6, 4.12e-4, 9.996e-4, 0.00125, 0.0999, 2.08, 75)]
    assert spoken == ["9.12 µs", "412 µs", "1.00 ms", "1.25 ms", "99.9 ms", "2.08 s", "75.0 s"]


# -- the calculator -------------------------------------------------------------------------------

SUMS: list[tuple[str, dict[str, Any], Any]] = [
    ("add", {"a": 1, "b": 2}, 3),
    ("add", {"a": 10**30, "b": 1}, 10**30 + 1),
    ("add", {"a": 0.5, "b": 1}, 1.5),
    ("subtract", {"a": 1, "b": 2}, -1),
    ("multiply", {"a": 6, "b": 7}, 42),
    ("divide", {"a": 1, "b": 4}, 0.25),
    ("power", {"base": 2, "exponent": -1}, 0.5),
    ("sqrt", {"x": 2.25}, 1.5),
    ("mean", {"numbers": [1, 2, 6]}, 3.0),
    ("slow_sum", {"numbers": [1, 2.5], "pause": 0}, 3.5),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("divide", {"a": 1, "b": 0}, "cannot divide by zero"),
    ("power", {"base": 10, "exponent": 400}, "too large"),
    ("power", {"base": -1, "exponent": 0.5}, "not a real number"),
    ("power", {"base": 0, "exponent": -1}, "not a real number"),
    ("sqrt", {"x": -1}, ">= 0"),
    ("mean", {"numbers": []}, "length >= 1"),
    ("statistics", {"numbers": []}, "length >= 1"),
    ("add", {"a": "1", "b": 2}, "argument 'a'"),
    ("add", {"a": 1}, "'b'"),
]


def test_the_calculator_is_right() -> None:
    async def main() -> None:
        async with Client(calculator.server) as client:
            for tool, arguments, right in SUMS:
                result = await client.call_tool(tool, arguments)
                assert result.structured_content == {"result": right}, tool
            for tool, arguments, reason in REFUSED:
                result = await client.call_tool(tool, arguments)
                assert result.is_error, tool
                assert reason in result.text
            result = await client.call_tool("statistics", {"numbers": [2, 4, 9]})
            assert result.structured_content == {
                "count": 3,
                "mean": 5.0,
                "median": 4.0,
                "stdev": pytest.approx(3.605551275),
                "minimum": 2.0,
                "maximum": 9.0,
            }
            single = await client.call_tool("statistics", {"numbers": [2]})
            assert single.structured_content["stdev"] == 0.0
            told: list[Any] = []
            await client.call_tool(
                "slow_sum",
                {"numbers": [3, 4], "pause": 0},
                on_progress=lambda *args: told.append(args),
            )
            assert told == [(1, 2, "so far 3"), (2, 2, "so far 7")]

    run(main())


def test_the_calculator_is_a_short_example() -> None:
    assert len(Path(calculator.__file__).read_text().splitlines()) <= 120


async def test_words_of_code_in_docstrings_are_parameters() -> None:
    async with Client(calculator.server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    for tool in tools.values():
        words = re.findall(r"`([^`]+)`", tool.description or "")
        assert set(words) <= tool.input_schema["properties"].keys(), tool.name
    assert "`pause`" in (tools["slow_sum"].description or "")

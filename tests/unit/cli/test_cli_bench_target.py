"""``wirespeed bench-target``: the server to measure against."""

from __future__ import annotations

import json
import sys
import time

from lab.cli import listening, one_line, wirespeed, wirespeed_each

from wirespeed import Client, Http, Stdio


def target(*options: str) -> Stdio:
    args = ["-m", "wirespeed", "bench-target", *options]
    return Stdio(sys.executable, args, inherit_env=True)


async def test_echo_with_a_delay_a_large_result_and_progress() -> None:
    options = ["--bytes", "1000", "--delay", "60ms", "--progress", "3", "--tools", "0"]
    async with Client(target(*options)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["echo"]
        seen: list[tuple[float, float | None]] = []
        began = time.monotonic()
        result = await client.call_tool(
            "echo",
            {"text": "häß"},
            on_progress=lambda done, total, message: seen.append((done, total)),
        )
        assert time.monotonic() - began >= 0.06
        first, second = result.content
        assert first.text == "häß" and len(second.text) == 1000
        assert seen == [(1, 3), (2, 3), (3, 3)]


async def test_many_tools_are_listed_with_schemas_that_differ() -> None:
    async with Client(target("--tools", "40")) as client:
        tools = await client.list_tools()
        assert len({tool.name for tool in tools}) == 41
        assert tools[7].input_schema["required"] == ["workspace"]
        assert len({tool.description for tool in tools}) > 30
        result = await client.call_tool(tools[7].name, {"workspace": "w"})
        assert json.loads(result.text) == {"workspace": "w"}


async def test_it_listens_where_a_server_does() -> None:
    with listening("--on", "http://127.0.0.1:0/mcp", command="bench-target") as url:
        done = wirespeed(
            *("bench", "--calls", "50", "--warmup", "0", "--expect", "echo=text", "--json", "-"),
            *(url, "echo", '{"text": "$text:16"}'),
        )
        assert json.loads(done.stdout)["counts"]["ok"] == 50
        async with Client(Http(url)) as client:
            assert (await client.call_tool("echo", {"text": "a"})).text == "a"


def test_wrong_options(tmp_path) -> None:
    lines = {
        ("bench-target", "--delay", "5"): "--delay: '5' is not a time",
        ("bench-target", "--workers", "2"): "--workers needs --on URL",
        ("bench-target", "--on", "gopher://x"): "--on: ",
    }
    for line, done in wirespeed_each(lines, tmp_path).items():
        assert done.returncode == 2
        assert one_line(done).startswith(lines[line])

"""The programs of the page "Coming from FastMCP": a client sees the same of both."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import Any

import peers
import pytest

from wirespeed import Client, Stdio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "from-fastmcp.md"
PROGRAM = re.compile(r'^```python title="([\w.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
PROGRAMS = dict(PROGRAM.findall(PAGE.read_text(encoding="utf-8")))

CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "weather": [
        ("get_alerts", {"state": "CA"}),
        ("get_alerts", {"state": "NV"}),
        ("get_alerts", {"state": "XX"}),
        ("forecast", {"latitude": 50, "longitude": 8.5}),
    ],
    "library": [("count", {}), ("lend", {"number": "1"})],
    "shop": [("price", {"item": "pen"}), ("stock_left", {"item": "ink"})],
}
URIS = {"library": ["books://all", "books://all?limit=1", "books://2"]}


async def seen(command: list[str], program: str) -> dict[str, Any]:
    """What a client sees of a server."""
    found: dict[str, Any] = {"steps": [], "logged": []}

    async def on_elicit(request: Any) -> dict[str, Any]:
        return {"days": 7, "reader": "Ada"}

    def on_log(message: Any) -> None:
        data = message.data
        found["logged"].append(data["msg"] if isinstance(data, dict) else data)

    client = Client(
        Stdio(command[0], command[1:], stderr="discard"),
        era="legacy",  # FastMCP 4.1 does not ask clients of 2026-07-28
        on_elicit=on_elicit,
        on_log=on_log,
        log_level="info",
    )
    async with client:
        found["tools"] = {
            tool.name: (tool.description, tool.input_schema) for tool in await client.list_tools()
        }
        for name, arguments in CALLS[program]:
            result = await client.call_tool(
                name, arguments, on_progress=lambda *step: found["steps"].append(step)
            )
            found[f"{name} {arguments}"] = (result.is_error, result.text, result.data)
        for uri in URIS.get(program, []):
            read = await client.read_resource(uri)
            found[uri] = [(part.text, part.mime_type) for part in read.contents]
        if program == "library":
            templates = await client.list_resource_templates()
            found["templates"] = {one.uri_template for one in templates}
            prompt = await client.get_prompt("review", {"title": "Emma"})
            found["prompt"] = [(part.role, part.content.text) for part in prompt.messages]
    return found


@pytest.mark.parametrize("peer", ["fastmcp"])
@pytest.mark.parametrize("program", sorted(CALLS))
async def test_a_client_sees_the_same(program: str, peer: str, tmp_path: Path) -> None:
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    before = await seen([peers.python(peer), str(tmp_path / f"{program}_fastmcp.py")], program)
    after = await seen([sys.executable, str(tmp_path / f"{program}.py")], program)
    assert after == before
    assert [bool(after["steps"]), bool(after["logged"])] == [program == "library"] * 2


@pytest.mark.parametrize("program", sorted(CALLS))
def test_the_counted_lines(program: str) -> None:
    before = PROGRAMS[f"{program}_fastmcp.py"].splitlines()
    after = PROGRAMS[f"{program}.py"].splitlines()
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    same = sum(block.size for block in blocks)
    counted = [len(before), len(after), len(before) - same, len(after) - same]
    row = f" | {' | '.join(map(str, counted))} |\n"
    (line,) = re.findall(rf"^\| \[{program}: .*\n", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert line.endswith(row)

"""The programs of the pages "Coming from …": a client sees the same of both."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import Any

import peers
import pytest

from wirespeed import Client, Stdio

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to"
PROGRAM = re.compile(r'^```python title="([\w.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
# The peer, the page, and the end of the names of programs for the peer.
PAGES = {"fastmcp": ("from-fastmcp.md", "fastmcp"), "python2": ("from-mcp.md", "mcp")}
TEXTS = {peer: (GUIDE / page).read_text(encoding="utf-8") for peer, (page, _) in PAGES.items()}
PROGRAMS = {peer: dict(PROGRAM.findall(text)) for peer, text in TEXTS.items()}

CALLS: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {
    ("weather", "fastmcp"): [
        ("get_alerts", {"state": "CA"}),
        ("get_alerts", {"state": "NV"}),
        ("get_alerts", {"state": "XX"}),
        ("forecast", {"latitude": 50, "longitude": 8.5}),
    ],
    ("library", "fastmcp"): [("count", {}), ("lend", {"number": "1"})],
    ("shop", "fastmcp"): [("price", {"item": "pen"}), ("stock_left", {"item": "ink"})],
    ("library", "python2"): [("count", {}), ("lend", {"number": "1"}), ("lend", {"number": "9"})],
}
URIS = {
    ("library", "fastmcp"): ["books://all", "books://all?limit=1", "books://2"],
    ("library", "python2"): ["books://2/summary"],
}
PORTS = pytest.mark.parametrize(("program", "peer"), sorted(CALLS))


def schema(found: Any, peer: str) -> Any:
    """A schema of a tool, without what the page says of those of the peer."""
    if peer == "python2" and isinstance(found, dict):
        dropped = {"additionalProperties"} | ({"title"} if "type" in found else set())
        return {key: schema(value, peer) for key, value in found.items() if key not in dropped}
    return found


async def seen(command: list[str], program: str, peer: str) -> dict[str, Any]:
    """What a client sees of a server."""
    found: dict[str, Any] = {"steps": [], "logged": []}

    async def on_elicit(request: Any) -> dict[str, Any]:
        return {"days": 7, "reader": "Ada"}

    def on_log(message: Any) -> None:
        data = message.data
        found["logged"].append(data["msg"] if isinstance(data, dict) else data)

    client = Client(
        Stdio(command[0], command[1:], stderr="discard"),
        era="legacy",  # FastMCP 4.1 and `ctx.elicit` of mcp do not ask clients of 2026-07-28
        on_elicit=on_elicit,
        on_log=on_log,
        log_level="info",
    )
    async with client:
        found["tools"] = {
            tool.name: (tool.description, schema(tool.input_schema, peer))
            for tool in await client.list_tools()
        }
        for name, arguments in CALLS[program, peer]:
            result = await client.call_tool(
                name, arguments, on_progress=lambda *step: found["steps"].append(step)
            )
            text = result.text
            if peer == "fastmcp":
                found[f"data of {name} {arguments}"] = result.data
            else:  # which sends texts as structured output, too
                text = text.removeprefix(f"Error executing tool {name}: ")
            found[f"{name} {arguments}"] = (result.is_error, text)
        for uri in URIS.get((program, peer), []):
            read = await client.read_resource(uri)
            found[uri] = [(part.text, part.mime_type) for part in read.contents]
        if program == "library":
            templates = await client.list_resource_templates()
            found["templates"] = {one.uri_template for one in templates}
            prompt = await client.get_prompt("review", {"title": "Emma"})
            found["prompt"] = [(part.role, part.content.text) for part in prompt.messages]
    return found


@PORTS
async def test_a_client_sees_the_same(program: str, peer: str, tmp_path: Path) -> None:
    for name, text in PROGRAMS[peer].items():
        (tmp_path / name).write_text(text)
    old = tmp_path / f"{program}_{PAGES[peer][1]}.py"
    before = await seen([peers.python(peer), str(old)], program, peer)
    after = await seen([sys.executable, str(tmp_path / f"{program}.py")], program, peer)
    assert after == before
    assert [bool(after["steps"]), bool(after["logged"])] == [program == "library"] * 2


@PORTS
def test_the_counted_lines(program: str, peer: str) -> None:
    before = PROGRAMS[peer][f"{program}_{PAGES[peer][1]}.py"].splitlines()
    after = PROGRAMS[peer][f"{program}.py"].splitlines()
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    same = sum(block.size for block in blocks)
    counted = [len(before), len(after), len(before) - same, len(after) - same]
    row = f" | {' | '.join(map(str, counted))} |\n"
    (line,) = re.findall(rf"^\| \[{program}: .*\n", TEXTS[peer], re.MULTILINE)
    assert line.endswith(row)

"""Example programs of other SDKs with a few lines changed: a client sees what it saw before.

The programs are not part of this repository. `ported.toml` names them and their changed lines.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import peers
import pytest
from msgspec import UNSET

from wirespeed import Client, Stdio
from wirespeed.protocol.results import is_wrap
from wirespeed.types import CallToolResult, ElicitParams, ToolInfo

PROGRAMS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "ported.toml").read_text()
)
MOST_CHANGED = 3  # lines of a program
SERVE = "import sys; sys.path.insert(0, {!r}); import {} as program; program.{}.run()"


def changed(text: str, changes: list[list[str]]) -> tuple[str, int]:
    """The program with other lines in place of some, and how many these are."""
    lines, n = text.split("\n"), 0
    for old, new in changes:
        assert lines.count(old) == 1, f"{old!r} is not a line of the program"
        at = lines.index(old)
        lines[at : at + 1] = new.split("\n")
        n += len(new.split("\n"))
    return "\n".join(lines), n


def told(result: CallToolResult) -> Any:
    """The value of a result; of a failure, that there is one."""
    if result.is_error:
        return "failed"
    value = result.structured_content
    if value is UNSET:
        return result.text
    return value["result"] if is_wrap(value) else value


def seen(tools: list[ToolInfo]) -> dict[str, Any]:
    """What a model sees of tools."""
    return {
        tool.name: (
            (tool.description or "").split(),
            sorted(tool.input_schema.get("properties", {})),
            sorted(tool.input_schema.get("required", [])),
            [icon["src"] for icon in tool.icons or []],
            tool.annotations,
        )
        for tool in tools
    }


async def used(python: str, program: Path, entry: dict[str, Any], **options: Any) -> Any:
    """What a client sees of a server: the tools, and the results of calls."""
    answers = list(entry.get("answers", []))

    def on_elicit(question: ElicitParams) -> Any:
        return answers.pop(0)

    code = SERVE.format(str(program.parent), program.stem, entry.get("server", "mcp"))
    target = Stdio(python, ["-c", code], stderr="discard", **options)
    # up to 2025-11-25 a server may ask in every SDK
    async with Client(target, era="legacy", on_elicit=on_elicit) as client:
        tools = seen(await client.list_tools())
        return tools, [told(await client.call_tool(*call)) for call in entry["calls"]]


def programs() -> list[Any]:
    """The names of all programs; most of them only with --full."""
    full = pytest.mark.full("another published program")
    return [
        pytest.param(name, marks=[] if "answers" in one else [full])
        for name, one in PROGRAMS.items()
    ]


@pytest.mark.parametrize("name", programs())
async def test_a_client_sees_the_same(name: str, tmp_path: Path) -> None:
    entry = PROGRAMS[name]
    before = peers.sources(*entry["sdist"].split("==")) / entry["path"]
    ported, n = changed(before.read_text(), entry["changes"])
    assert n <= MOST_CHANGED, f"{n} lines of {name} are changed"
    after = tmp_path / before.name
    after.write_text(ported)
    for beside in before.parent.glob("*.png"):
        (tmp_path / beside.name).write_bytes(beside.read_bytes())
    published = await used(peers.python(entry["peer"]), before, entry)
    assert published[0]
    assert await used(sys.executable, after, entry, inherit_env=True) == published

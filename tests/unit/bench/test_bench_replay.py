"""Replays: which requests are asked when, and which answers are right."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lab.raw import CHILDREN
from lab.rows import every

from wirespeed import Client, Stdio
from wirespeed.bench.recorded_calls import RecordedConnection, connections_of, without_moments
from wirespeed.bench.replay import Replay, load_of
from wirespeed.bench.tap_file import BadRecord, TapFile, read_record

SERVER = """
import asyncio
import msgspec
from wirespeed import Context, Server

class Name(msgspec.Struct):
    name: str

server = Server("s")
count = 0

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def counted() -> int:
    global count
    count += 1
    return count

@server.tool
async def fails(text: str) -> str:
    raise ValueError(text)

@server.tool
async def waits(seconds: float, ctx: Context) -> str:
    ctx.progress(0.5)
    await asyncio.sleep(seconds)
    return "waited"

@server.tool
async def asks(ctx: Context) -> str:
    answer = await ctx.elicit("your name?", Name)
    return answer.content.name

if __name__ == "__main__":
    server.run()
"""

Line = tuple[str, dict[str, Any]]


def call(id: int, tool: str, **arguments: Any) -> Line:
    params = {"name": tool, "arguments": arguments}
    return "client", {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def text(id: int, words: str, **more: Any) -> Line:
    return "server", {"id": id, "result": {"content": [{"type": "text", "text": words}], **more}}


def parts(tmp_path: Path, *lines: Line) -> list[RecordedConnection]:
    path = str(tmp_path / "r")
    file = TapFile(path, "x")
    for sender, message in lines:
        file.message(sender, 1, json.dumps(message).encode())  # type: ignore[arg-type]
    file.close()
    return connections_of(*read_record(path))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Stdio:
    path = tmp_path_factory.mktemp("replay") / "server.py"
    path.write_text(SERVER)
    return Stdio(sys.executable, [path], inherit_env=True)


def replay(
    server: Stdio,
    found: list[RecordedConnection],
    speed: float | None = None,
    timeout: float = 10,
    **more: Any,
) -> Replay:
    return Replay(server, found, load_of(found, timeout), speed=speed, **more)


async def counts_of(run: Replay) -> dict[str, int]:
    result = await run.measure()
    return {name: count for name, count in result.counts.items() if count}


async def test_each_answer_is_compared_with_that_of_the_record(
    server: Stdio, tmp_path: Path
) -> None:
    def content(words: str) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": words}]}

    error = {"code": -32602, "message": "another text"}
    lines = [
        call(1, "echo", text="a"), text(1, "a"),
        call(2, "echo", text="b"), text(2, "c"),
        call(3, "fails", text="no"), text(3, "no", isError=True),
        call(4, "fails", text="no"), text(4, "no"),
        call(5, "none"), ("server", {"id": 5, "error": error}),
        call(6, "none"), text(6, ""),
        call(7, "echo", text="d"), ("server", {"id": 7, "error": error}),
        ("client", {"id": 8, "method": "ping"}), ("server", {"id": 8, "result": {}}),
        call(9, "echo", text="e"),
    ]  # fmt: skip
    remarks: list[str] = []
    assert await counts_of(replay(server, parts(tmp_path, *lines), remarks=remarks)) == {
        "ok": 4, "wrong": 2, "tool_errors": 1, "protocol_errors": 1, "cancelled": 1,
    }  # fmt: skip
    assert remarks == [
        'tools/call echo: result.content[0].text is "b", and was "c"',
        "tools/call fails: a failure, and the record has a result",
        "tools/call echo: a result, and the record has an error",
    ]
    loose = replay(server, parts(tmp_path, *lines[:4]), any_answer=True)
    assert await counts_of(loose) == {"ok": 2}


async def test_requests_keep_their_times_and_follow_their_answers(
    server: Stdio, tmp_path: Path
) -> None:
    path = str(tmp_path / "r")
    args = ["-m", "wirespeed", "record", "-o", path, "--", sys.executable, *server.argv[1:]]
    async with Client(Stdio(sys.executable, args, inherit_env=True)) as client:
        await asyncio.gather(*(client.call_tool("waits", {"seconds": 0.2}) for _ in range(3)))
        await asyncio.sleep(0.4)
        await client.call_tool("counted")
        await client.call_tool("counted")
    found = connections_of(*read_record(path))
    for speed, least in ((1.0, 0.6), (4.0, 0.2), (None, 0.2)):
        remarks: list[str] = []
        result = await replay(server, found, speed, remarks=remarks).measure()
        assert result.counts["ok"] == result.calls == 6, remarks
        assert result.seconds >= least
        assert result.load.in_flight == 3


async def test_a_question_of_the_server_gets_the_answer_of_the_record(
    server: Stdio, tmp_path: Path
) -> None:
    initialize = {"capabilities": {"elicitation": {}}, "protocolVersion": "2025-11-25"}
    question = {"id": "q", "method": "elicitation/create", "params": {}}
    answer = {"id": "q", "result": {"action": "accept", "content": {"name": "Ann"}}}
    lines: Sequence[Line] = [
        ("client", {"id": 0, "method": "initialize", "params": initialize}),
        call(1, "asks"),
        ("server", question),
        ("client", answer),
        text(1, "Ann"),
    ]
    assert await counts_of(replay(server, parts(tmp_path, *lines))) == {"ok": 1}
    # a second question has no answer
    lines = [*lines, call(2, "asks"), text(2, "Ann")]
    counts = await counts_of(replay(server, parts(tmp_path, *lines)))
    assert counts == {"ok": 1, "tool_errors": 1}


async def test_what_was_cancelled_is_cancelled(server: Stdio, tmp_path: Path) -> None:
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    lines = [call(1, "waits", seconds=60), ("client", cancel), call(2, "echo", text="a")]
    lines += [text(2, "a")]
    counts = await counts_of(replay(server, parts(tmp_path, *lines)))
    assert counts == {"ok": 1, "cancelled": 1}


async def test_no_answer_in_time_is_missing(server: Stdio, tmp_path: Path) -> None:
    lines = [call(1, "waits", seconds=60), text(1, "waited")]
    found = parts(tmp_path, *lines)
    assert await counts_of(replay(server, found, timeout=0.3)) == {"missing": 1}


async def test_a_second_answer_right_behind_the_first_is_a_duplicate(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    text_of_it = (CHILDREN / "faulty_server.py").read_text()
    program.write_text(
        text_of_it.replace(
            "say(right)\n        say(right)", "say(f'{json.dumps(right)}\\n{json.dumps(right)}')"
        )
    )
    target = Stdio(sys.executable, ["-S", program, "twice", "2"])
    lines = [call(n, "echo", text="a") for n in (1, 2)] + [text(n, "a") for n in (1, 2)]
    counts = await counts_of(replay(target, parts(tmp_path, *lines)))
    assert counts == {"ok": 2, "duplicate": 1}


async def test_an_answer_with_another_form_of_the_id_is_wrong(tmp_path: Path) -> None:
    path = str(CHILDREN / "faulty_server.py")
    target = Stdio(sys.executable, ["-S", path, "text-id", "2"])
    lines = [
        *(call(1, "echo", text="a"), text(1, "a")),
        *(call(2, "echo", text="b"), text(2, "b")),
    ]
    remarks: list[str] = []
    counts = await counts_of(replay(target, parts(tmp_path, *lines), remarks=remarks))
    assert counts == {"ok": 1, "wrong": 1}
    assert remarks == ["tools/call echo: the id of the answer is not that of the request"]


def text_of(message: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", **message})


def initialize(**capabilities: Any) -> str:
    return text_of({"id": 0, "method": "initialize", "params": {"capabilities": capabilities}})


DEEP = "[" * 5000 + "]" * 5000


@every(
    ("message", "reason"),
    [
        (text_of({"method": "notifications/cancelled", "params": {"requestId": [1]}}), "requestId"),
        (text_of({"method": "notifications/cancelled", "params": {"requestId": {}}}), "requestId"),
        (initialize(sampling=5), "the capability sampling is not an object"),
        (text_of({"id": 1, "method": "tools/list", "params": {"cursor": [1]}}), "cursor is not a"),
        (f'{{"id":1,"method":"tools/call","params":{DEEP}}}', "the message is nested too deep"),
        (f'{{"id":1,"result":{DEEP}}}', "the message is nested too deep"),
    ],
)
def test_a_damaged_message_is_refused_by_its_line(
    message: str, reason: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "r")
    file = TapFile(path, "x")
    file.message("client", 1, json.dumps(call(1, "echo")[1]).encode())
    file.message("server" if "result" in message else "client", 1, message.encode())
    file.close()
    with pytest.raises(BadRecord) as caught:
        connections_of(*read_record(path))
    assert str(caught.value).startswith(f"line 3: {reason}")


def test_what_a_server_chooses_is_handed_back(tmp_path: Path) -> None:
    """A cursor of the record leads to that of now, and its own value is not compared."""
    first = {"id": 1, "method": "tools/list"}
    second = {"id": 2, "method": "tools/list", "params": {"cursor": "then"}}
    lines: Sequence[Line] = [
        ("client", first),
        ("server", {"id": 1, "result": {"tools": [], "nextCursor": "then", "_meta": {"a": 1}}}),
        ("client", second),
        ("server", {"id": 2, "result": {"tools": []}}),
    ]
    (part,) = parts(tmp_path, *lines)
    one, two = part.steps
    assert two.after == [one] and one.expected is not None
    assert one.expected.handles == {"nextCursor": "then"}
    assert one.expected.value == {"tools": [], "nextCursor": True}


NOW = datetime(2026, 11, 29, 18, 54, 1, tzinfo=UTC).timestamp()  # 1,795,978,441


@every(
    ("words", "left"),
    [
        ("created at 6:54:01 PM", "created at …"),
        ("2026-11-29T18:54:03.123Z and 2026-11-30T00:24:01+05:30", "… and …"),
        ("on 11/29/2026, 13:54:00", "on …, …"),
        ("1795978441 1795978441000 17959784410", "… … 17959784410"),
        ("6:53:01 PM", "6:53:01 PM"),
        ("2025-11-29", "2025-11-29"),
        ("2026-13-45 99:99:99", "2026-13-45 99:99:99"),
    ],
)
def test_times_of_the_moment_in_a_text(words: str, left: str) -> None:
    assert without_moments(words, NOW) == left

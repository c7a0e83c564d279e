"""Real LiteMCP servers as child processes: nobody else's wire, ends, signals, strange servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.lite import CHILDREN, END, FOREVER, Run, call, child, content, encode, failure, get
from lab.rows import every
from lab.wording import raises

from wirespeed import Stdio
from wirespeed.errors import CallTimeout, ChildExited, ConnectionClosed, LaunchError
from wirespeed.litemcp import LiteClient, SyncLiteClient

both_loops = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


def surroundings(loop: str = "uvloop") -> dict[str, str]:
    path = os.pathsep.join(filter(None, sys.path))
    env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return {**env, "PYTHONPATH": path, "WIRESPEED_LOOP": loop}


def spawn(which: str, loop: str = "uvloop", **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(CHILDREN / "lite_server.py"), which],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=surroundings(loop),
        **options,
    )


def converse(which: str, data: bytes, loop: str = "uvloop") -> tuple[list[Any], bytes, int]:
    """Everything a server writes for an input: the answers, its stderr, its exit status."""
    with spawn(which, loop) as process:
        out, errors = process.communicate(data, timeout=FOREVER)
    assert out == b"" or out.endswith(END)
    answers = [json.loads(frame) for frame in out.split(END)[:-1]]
    assert out == b"".join(json.dumps(a, separators=(",", ":")).encode() + END for a in answers)
    return answers, errors, process.returncode


# -- servers --------------------------------------------------------------------------------------


@both_loops
def test_answers_end_with_three_newlines_and_nothing_else_is_on_stdout(loop: str) -> None:
    answers, errors, status = converse(
        "noisy", encode(get(1)) + encode(call(2, "noisy", ["x"])), loop
    )
    assert [a["id"] for a in answers] == [1, 2]
    assert content(answers[1]) == [("text", "quiet")]
    assert status == 0
    for words in (b"a banner", b"printed: x", b"written: x", b"a child: x"):
        assert words in errors


@every("style", ["pretty", "crlf", "blank lines", "bom", "no terminator", "many newlines"])
def test_three_newlines_end_requests_as_people_write_them(style: str) -> None:
    requests = [get(1), call(2, "Calculator", ["2", "3"])]
    text = "".join(json.dumps(r, indent=4) + "\n\n\n" for r in requests)
    if style == "crlf":
        text = text.replace("\n", "\r\n")
    elif style == "blank lines":
        text = text.replace(",\n", ",\n\n")
    elif style == "bom":
        text = "\ufeff" + text
    elif style == "no terminator":
        text = text.rstrip()
    elif style == "many newlines":
        text = "\n\n\n\n" + text.replace("\n\n\n", "\n" * 7)
    answers, errors, status = converse("calculator", text.encode())
    assert [a["type"] for a in answers] == ["info", "result"]
    assert content(answers[1]) == [("number", "5")]
    assert (errors, status) == (b"", 0)


def test_the_terminator_may_come_in_pieces() -> None:
    text = json.dumps(call(1, "Calculator", ["2", "3"])).encode() + b"\r\n\n\n"
    with spawn("calculator") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for i in range(len(text)):
            process.stdin.write(text[i : i + 1])
            process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert content(answer) == [("number", "5")]
        # answered before the end of input: the server did not wait for more
        assert process.poll() is None
        process.communicate(timeout=FOREVER)


def test_bad_input_is_told_on_stderr() -> None:
    answers, errors, status = converse("calculator", b"nonsense" + END + encode(get(1)))
    assert [a["id"] for a in answers] == [1]
    assert b"ignored a message: not one JSON value" in errors
    assert b"nonsense" in errors
    assert status == 0


@both_loops
def test_calls_at_the_end_of_input_are_answered_first(loop: str) -> None:
    answers, _, status = converse("slow", encode(call(1, "slow", ["0.05"])), loop)
    assert content(answers[0]) == [("text", "slept")]
    assert status == 0


@both_loops
def test_a_signal_lets_calls_in_flight_end(loop: str) -> None:
    with spawn("slow", loop) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(encode(call(1, "slow", ["0.3"])))
        process.stdin.flush()
        assert process.stderr.readline() == b"began\n"
        process.send_signal(signal.SIGTERM)
        assert content(json.loads(process.stdout.read())) == [("text", "slept")]
        assert process.wait(FOREVER) == 0


def test_a_blocked_tool_does_not_hold_the_process() -> None:
    answers, errors, status = converse("blocking", encode(call(1, "blocking", ["600"])))
    assert failure(answers[0]) == "the server is shutting down"
    assert b"did not end in time" in errors
    assert status == 0


def test_a_tool_that_leaves_is_answered() -> None:
    answers, errors, status = converse("leaves", encode(call(1, "leaves", ["7"])))
    assert failure(answers[0]) == "tool leaves ended the server"
    assert status == 7
    assert b"ended the server: SystemExit(7); to fail the call alone, raise ToolError" in errors


def test_over_a_file_and_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, str(CHILDREN / "lite_server.py"), "calculator"],
            stdin=theirs,
            stdout=theirs,
            env=surroundings(),
        )
        theirs.close()
        with process:
            ours.sendall(encode(call(1, "Calculator", ["2", "3"])))
            ours.shutdown(socket.SHUT_WR)
            text = b""
            while data := ours.recv(1 << 16):
                text += data
            assert content(json.loads(text)) == [("number", "5")]
            assert process.wait(FOREVER) == 0


# -- our client and our server --------------------------------------------------------------------


async def test_a_client_and_its_server() -> None:
    async with LiteClient(child("lite_server.py", "picture")) as client:
        info = await client.info()
        assert [p.name for p in info.parameters] == ["text", "times"]
        assert "1. text (string)" in await client.prompt()
        result = await client.call("ab", times=2)
        assert (result.error, result.text) == (False, "abab")
        assert result.params == {"text": "ab", "times": "2"}
        assert [c.type for c in result.content] == ["text", "image/png"]
        result = await client.call("ab", -1)
        assert (result.error, result.text) == (True, "no such picture")


async def test_many_calls_over_a_pipe() -> None:
    async with LiteClient(child("lite_server.py", "calculator")) as client:
        results = await asyncio.gather(*(client.call(i, b=1) for i in range(2000)))
        assert [result.text for result in results] == [str(i + 1) for i in range(2000)]


def test_without_an_event_loop() -> None:
    with SyncLiteClient(child("lite_server.py", "calculator")) as client:
        assert client.info().name == "Calculator"
        assert client.call(2, b=3).text == "5"
        assert client.invoke(["2"], timeout=10).error
        assert client.prompt().startswith("Tool: Calculator")
    with pytest.raises(ConnectionClosed):
        client.call(1, 2)


# -- servers written from the pages ---------------------------------------------------------------


@pytest.mark.parametrize("style", ["pages", "compact", "crlf", "chatty"])
async def test_a_server_written_from_the_pages(style: str, caplog: Any) -> None:
    async with LiteClient(child("lite_pages_server.py", style)) as client:
        info = await client.info()
        assert info.name == "Calculator"
        assert [p.example for p in info.parameters] == ["2", "3"]
        result = await client.call(2, b=3)
        assert (result.text, result.params) == ("5", {"a": "2", "b": "3"})
        assert (await client.call("x", 3)).error
        results = await asyncio.gather(*(client.call(i, 1) for i in range(50)))
        assert [r.text for r in results] == [str(i + 1) for i in range(50)]
    assert ("is starting" in caplog.text) == (style == "chatty")


async def test_a_strict_client_waits_for_the_terminator(once: Run) -> None:
    strict = LiteClient(child("lite_pages_server.py", "pages"), strict=True)
    async with strict as client:
        assert (await client.call(2, 3)).text == "5"
    async with LiteClient(child("lite_pages_server.py", "compact"), strict=True) as client:
        with raises(CallTimeout):
            await client.info(timeout=0.2)


# -- what goes wrong ------------------------------------------------------------------------------


async def test_a_server_that_cannot_be_started() -> None:
    client = LiteClient(Stdio("no-such-program-anywhere"))
    with raises(LaunchError):
        await client.open()
    with raises(ConnectionClosed):
        await client.info()
    await client.close()


async def test_a_server_that_has_nothing_to_say() -> None:
    async with LiteClient(child("lite_pages_server.py", "silent")) as client:
        with pytest.raises(ChildExited) as caught:
            await client.info()
        assert caught.value.status == 3
        assert "I have nothing to say" in str(caught.value)
        with pytest.raises(ChildExited):
            await client.call()


async def test_a_server_that_dies_fails_all_calls_with_its_last_words() -> None:
    async with LiteClient(child("lite_server.py", "exits")) as client:
        assert (await client.info()).name == "exits"
        results = await asyncio.gather(*(client.call(5) for _ in range(5)), return_exceptions=True)
        for result in results:
            assert isinstance(result, ChildExited)
            assert result.status == 5
            assert "the last words" in str(result)
        assert len({id(result) for result in results}) == 5
        with pytest.raises(ChildExited):
            await client.call(5)


async def test_a_server_that_may_be_restarted_is() -> None:
    async with LiteClient(child("lite_server.py", "exits", restart=2)) as client:
        for _ in range(3):
            with pytest.raises(ChildExited):
                await client.call(5)
        assert (await client.info()).name == "exits"


async def test_a_server_that_dies_at_once_is_not_restarted_for_ever(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    target = Stdio("sh", ["-c", 'echo x >> "$0"', str(starts)], restart=2)
    async with LiteClient(target) as client:
        for _ in range(5):
            with pytest.raises(ChildExited):
                await client.info()
        assert starts.read_text() == "x\n" * 3


async def test_a_call_that_is_cancelled_drops_its_answer() -> None:
    async with LiteClient(child("lite_server.py", "slow")) as client:
        await client.info()
        task = asyncio.ensure_future(client.call(0.05))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with raises(CallTimeout):
            await client.invoke([0.05], timeout=0.02)
        assert (await client.call(0.05)).text == "slept"
        assert client.n_outstanding == 0
        assert (await client.call(0.05)).text == "slept"


async def test_closing_fails_what_waits_and_ends_the_child() -> None:
    client = LiteClient(child("lite_server.py", "slow", shutdown_grace=0.1))
    await client.open()
    await client.open()
    await client.info()
    waiting = asyncio.ensure_future(client.call(60))
    await asyncio.sleep(0)
    await client.close()
    with raises(ConnectionClosed):
        await waiting
    with raises(ConnectionClosed):
        await client.call(1)
    await client.close()
    async with client:
        assert (await client.call(0)).text == "slept"

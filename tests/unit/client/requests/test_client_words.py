"""What the client says about wrong use and odd servers, and how often."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.client import LEGACY, MODERN, Fake, Run, alive, failed
from lab.peer import MODERN_PEER, LinePeer
from lab.wording import raises

from wirespeed import Client, Server, Stdio, SyncClient
from wirespeed.errors import (
    CallTimeout,
    ChildExited,
    ConnectionClosed,
    InvalidResponse,
    VersionMismatch,
    WirespeedError,
)

Make = Callable[..., Fake]

PYTHON = [sys.executable, "-I", "-S", "-c"]


def child(code: str, **options: Any) -> Stdio:
    return Stdio(PYTHON[0], [*PYTHON[1:], code], stderr="discard", **options)


# -- wrong use -------------------------------------------------------------------------------------


async def test_a_client_that_is_not_open_says_how_to_open_it(once: Run) -> None:
    with raises(ConnectionClosed):
        await Client(Server("s")).call_tool("x")
    with raises(ConnectionClosed):
        SyncClient(Server("s")).call_tool("x")


def test_with_instead_of_async_with() -> None:
    with raises(TypeError), Client(Server("s")):  # type: ignore[attr-defined]
        pass


def test_a_forked_child_is_refused_at_once() -> None:
    with SyncClient(Server("s")) as client:
        client.ping()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                client.ping(timeout=2)
            except RuntimeError as exc:
                client.close()
                status = 0 if "make a new client after the fork" in str(exc) else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        client.ping()


LEFT = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@LEFT
def test_a_client_of_a_closed_loop(fake: Make) -> None:
    client = Client(fake(MODERN).target)
    asyncio.run(client.open())

    async def again() -> None:
        with raises(ConnectionClosed):
            await client.call_tool("x")
        await client.close()
        async with client:
            await client.call_tool("echo")

    asyncio.run(again())


@LEFT
def test_a_client_of_a_loop_that_was_left(fake: Make) -> None:
    client = Client(fake(MODERN).target)
    asyncio.run(client.open())
    asyncio.run(client.close())  # nothing is raised


def test_a_client_of_another_loop_that_runs(fake: Make) -> None:
    client = Client(fake(MODERN).target)
    with asyncio.Runner() as runner:
        runner.run(client.open())

        async def elsewhere() -> None:
            for work in (client.ping(), client.call_tool("x"), client.close(), client.open()):
                with raises(RuntimeError):
                    await work

        with asyncio.Runner() as other:
            other.run(elsewhere())
        runner.run(client.ping())
        runner.run(client.close())


BAD = "caf\udce9"

SURROGATES: dict[str, Callable[[Client], Any]] = {
    "call_tool: name": lambda client: client.call_tool(BAD),
    "call_tool: a": lambda client: client.call_tool("t", {"b": 1, "a": [BAD]}),
    "resources/read: uri": lambda client: client.read_resource(BAD),
    "prompts/get: name": lambda client: client.get_prompt(BAD),
    "prompts/get: arguments": lambda client: client.get_prompt("p", {"a": BAD}),
    "x/y: z": lambda client: client.request("x/y", {"z": BAD}),
    "meta: com.example/x": lambda client: client.ping(meta={"com.example/x": BAD}),
    "tools/list: cursor": lambda client: client.list_tools_page(BAD),
}


@pytest.mark.parametrize("field", SURROGATES)
async def test_lone_surrogates_are_refused_where_they_are_given(
    once: Run, tmp_path: Path, field: str
) -> None:
    async with LinePeer(MODERN_PEER, tmp_path) as peer, Client(peer.url) as client:
        before = len(peer.talks[0].messages)
        with pytest.raises(ValueError, match=f"^{field} is not valid text: .* lone surrogate"):
            await SURROGATES[field](client)
        assert len(peer.talks[0].messages) == before


# -- odd servers -----------------------------------------------------------------------------------


async def test_noise_is_logged_a_few_times(fake: Make, caplog: pytest.LogCaptureFixture) -> None:
    noise = [["raw", "Loading...\n" * 4999 + "Loading..."]]
    server = fake(MODERN | {"tools/call": [*noise, *MODERN["tools/call"]]})
    async with Client(server.target) as client:
        await client.call_tool("echo")
    lines = [r.getMessage() for r in caplog.records if "not a JSON-RPC message" in r.getMessage()]
    assert 1 <= len(lines) <= 25
    assert "Loading..." in lines[0]


async def test_an_endless_line_is_named(once: Run, caplog: pytest.LogCaptureFixture) -> None:
    from wirespeed.limits import Limits

    limits = Limits(max_message=65536)
    code = "import sys; sys.stdout.write('x' * 1000000); sys.stdout.flush()"
    with pytest.raises(ChildExited) as caught:
        async with Client(child(code), limits=limits, era="legacy"):
            pass
    assert "b''" not in str(caught.value)
    assert "wrote a line that is not a JSON-RPC message: " in str(caught.value)
    assert "65536" in str(caught.value)


async def test_a_child_that_ends_in_order_without_a_word(once: Run) -> None:
    with raises(ChildExited):
        await Client(child("import sys; sys.stdin.readline()")).open()


async def test_a_child_that_did_not_read_is_not_started_again(tmp_path: Path) -> None:
    """It failed before it knew what it was asked."""
    log = tmp_path / "starts"
    code = f"open({str(log)!r}, 'a').write('x'); raise SystemExit(3)"
    with raises(ChildExited):
        await Client(child(code)).open()
    assert log.read_text() == "x"


async def test_a_child_that_read_may_have_died_of_that(fake: Make) -> None:
    server = fake(LEGACY | {"server/discover": [["exit", 3]]})
    async with Client(server.target) as client:
        assert client.protocol_version == "2025-11-25"
    assert len(server.pids) == 2 and not any(map(alive, server.pids))


@pytest.mark.parametrize(("restart", "hint"), [(0, True), (1, False)])
async def test_a_crash_says_how_to_start_again(
    once: Run, fake: Make, restart: int, hint: bool
) -> None:
    server = fake(MODERN | {"tools/call": [["exit", 7]]}, restart=restart)
    async with Client(server.target) as client:
        with pytest.raises(ChildExited) as caught:
            await client.call_tool("echo")
        said = "Stdio(restart=…) or client.restart() starts it again" in str(caught.value)
        assert said == hint


async def test_a_failed_reconnection_says_when_the_next_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from lab.client import until

    from wirespeed import Socket

    async with (
        LinePeer(MODERN_PEER, tmp_path) as peer,
        Client(Socket(peer.url, restart=2)) as client,
    ):
        await peer.stop()
        with pytest.raises(WirespeedError):
            await client.call_tool("echo")
            await client.call_tool("echo")
        await until(lambda: "giving up" in caplog.text)
    lines = [r.getMessage() for r in caplog.records if "reconnecting failed: " in r.getMessage()]
    assert "; next try in 0." in lines[0]
    assert lines[-1].endswith("; giving up")


# -- a server that contradicts itself --------------------------------------------------------------

REFUSES = failed(-32022, "no", {"supported": ["2026-07-28"], "requested": "2026-07-28"})


@pytest.mark.parametrize("era", ["auto", "modern"])
async def test_a_version_that_is_refused_and_supported_is_asked_for_again(
    fake: Make, era: Any
) -> None:
    server = fake(MODERN | {"server/discover#1": REFUSES})
    async with Client(server.target, era=era) as client:
        assert client.protocol_version == "2026-07-28"
    assert server.methods == ["server/discover", "server/discover"]


@pytest.mark.parametrize("era", ["auto", "modern"])
async def test_a_version_that_is_always_refused(fake: Make, era: Any) -> None:
    server = fake(MODERN | {"server/discover": REFUSES})
    with raises(VersionMismatch) as caught:
        await Client(server.target, era=era).open()
    assert caught.value.supported == ["2026-07-28"]
    assert server.methods == ["server/discover", "server/discover"]


@pytest.mark.parametrize("first", ["result", "id"])
@pytest.mark.parametrize("kind", ["deep", "long"])
async def test_an_answer_that_was_skipped_is_named(tmp_path: Path, kind: str, first: str) -> None:
    """With its id in front the call fails at once, otherwise at its time limit."""
    from lab.peer import Talk

    from wirespeed.limits import Limits

    async def give(talk: Talk, message: dict[str, Any]) -> None:
        value = "[" * 200 + "]" * 200 if kind == "deep" else f'"{"x" * 100_000}"'
        members = [f'"result":{{"x":{value}}}', f'"id":{message["id"]}']
        if first == "id":
            members.reverse()
        await talk.write(f'{{"jsonrpc":"2.0",{",".join(members)}}}')

    limits = Limits(max_message=65536)
    why = {"deep": "nested deeper than 128 levels", "long": "65536 bytes"}[kind]
    async with (
        LinePeer(MODERN_PEER | {"tools/call": give}, tmp_path) as peer,
        Client(peer.url, limits=limits) as client,
    ):
        late = first == "result"
        with pytest.raises(CallTimeout if late else InvalidResponse, match=why):
            await client.call_tool("echo", timeout=0.5 if late else None)
        with pytest.raises(CallTimeout) as later:
            await client.request("x/y", timeout=0.02)
        assert why not in str(later.value)

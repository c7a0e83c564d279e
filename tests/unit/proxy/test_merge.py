"""Several servers behind one endpoint: calls go to the server whose prefix a name has."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from lab.merge import MergeLab
from lab.proxy import call, delayed
from lab.raw import modern
from lab.wording import raises

from wirespeed import Client, Limits
from wirespeed.errors import RemoteError, WirespeedError
from wirespeed.proxy import BackendConfig, ToolsConfig
from wirespeed.proxy.downstream import DeferredRequest
from wirespeed.proxy.upstream import Upstream, UpstreamOwner
from wirespeed.types import Accept, ElicitParams

pytestmark = pytest.mark.compiled

VERSIONS = {"auto": "2026-07-28", "legacy": "2025-11-25"}
TOOLS = ["grow", "hang", "leave", "name", "say", "secret", "touch", "who"]


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> Any:
    """Each era."""
    return request.param


def text(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


@pytest.mark.both_loops
async def test_one_endpoint(tmp_path: Path, era: Any) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving(), Client(lab.url, era=era) as client:
        assert client.protocol_version == VERSIONS[era]
        assert client.instructions == "# red\n\nAsk red.\n\n# blue\n\nAsk blue."
        names = [tool.name for tool in await client.list_tools()]
        assert sorted(names[:8]) == [f"red_{name}" for name in TOOLS]
        assert sorted(names[8:]) == [f"blue_{name}" for name in TOOLS]
        for name in ("red", "blue"):
            progress: list[Any] = []
            called = await client.call_tool(
                f"{name}_who",
                {"nonce": "n"},
                on_progress=lambda *said, to=progress: to.append(said),
            )
            assert called.data == f"{name}:n"
            assert progress == [(1, 2, "n")]


async def test_many_clients_with_the_same_ids(tmp_path: Path) -> None:
    """Each gets its own answers and its own progress, of both servers."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.backend("red"), lab.backend("blue", isolation="shared")]
    async with lab.serving():
        clients = [await lab.connect() for _ in range(4)]

        async def one(n: int) -> None:
            expected = set()
            for k in range(20):
                for id in (k, str(k)):
                    name = "red" if (k + n + isinstance(id, str)) % 2 else "blue"
                    nonce = f"{n}:{k}:{type(id).__name__}"
                    await clients[n].send(call(id, f"{name}_who", id, nonce=nonce))
                    expected |= {("p", id, nonce), ("r", id, f"{name}:{nonce}")}
            got = set()
            for _ in range(len(expected)):
                said = await clients[n].recv()
                if "method" in said:
                    params = said["params"]
                    got.add(("p", params["progressToken"], params["message"]))
                else:
                    got.add(("r", said["id"], text(said)))
            assert got == expected

        await asyncio.gather(*(one(n) for n in range(4)))


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"red_who","arguments":%s}}',
        '{"params":{"arguments":%s,"name":"red_who"},"method":"tools/call","id":7,"jsonrpc":"2.0"}',
        '{"params":{"_meta":{"progressToken":"t"},"name":"red_who","arguments":%s},"id":7,'
        '"method":"tools/call","jsonrpc":"2.0"}',
        '{"id":7,"params":{"name":"red\\u005fwho","arguments":%s,"_meta":{"progressToken":7}},'
        '"method":"tools/call","jsonrpc":"2.0"}',
    ],
)
@pytest.mark.parametrize("length", [1, 10_000])
async def test_the_name_stands_anywhere(tmp_path: Path, line: str, length: int) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving():
        client = await lab.connect()
        answer = await client.ask(line % json.dumps({"nonce": "x" * length}))
        if "progressToken" in line:
            answer = await client.recv()
        assert (answer["id"], text(answer)) == (7, "red:" + "x" * length)


@pytest.mark.parametrize("name", ["red_nothing", "green_who", "who", "", "red"])
async def test_unknown_tools(tmp_path: Path, name: str) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving():
        client = await lab.connect()
        error = (await client.ask(call(1, name)))["error"]
        assert error["code"] == -32602
        assert "nknown tool" in error["message"]


async def test_cancellation(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving():
        client = await lab.connect()
        await client.send(call("a", "red_hang"), call("b", "blue_hang"))
        await lab.until_logged("red hangs", "blue hangs")
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": "b"}}
        await client.send({"jsonrpc": "2.0", **cancelled})
        await lab.until_logged("red hangs", "blue hangs", "blue cancelled")
        assert text(await client.ask(call("b", "blue_who"))) == "blue:"


async def test_what_a_client_that_left_had_asked_is_cancelled(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, shutdown_grace=0.2)
    lab.backends = [lab.backend(name, isolation="shared") for name in ("red", "blue")]
    async with lab.serving():
        client = await lab.connect()
        await client.send(call(1, "red_hang"), call(2, "blue_hang"))
        await lab.until_logged("red hangs", "blue hangs")
        await client.close()
        await lab.until_logged("red hangs", "blue hangs", "red cancelled", "blue cancelled")


async def test_questions(tmp_path: Path, era: Any) -> None:
    """A server of the client's own asks it."""
    asked: list[str] = []

    async def answer(request: ElicitParams) -> Accept:
        asked.append(request.message)
        return Accept({"value": "Ada"})

    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving(), Client(lab.url, era=era, on_elicit=answer) as client:
        for name in ("blue", "red"):
            assert (await client.call_tool(f"{name}_name")).data == "Ada"
    assert asked == ["blue asks", "red asks"]


async def test_a_server_that_cannot_be_started(
    tmp_path: Path, era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entries are absent, calls of it fail, and the others answer."""
    from wirespeed import Stdio

    lab = MergeLab(tmp_path, "red")
    lab.backends.append(BackendConfig(target=Stdio("/nowhere/at/all"), name="lost"))
    async with lab.serving(), Client(lab.url, era=era) as client:
        assert {tool.name.split("_")[0] for tool in await client.list_tools()} == {"red"}
        assert (await client.call_tool("red_who")).data == "red:"
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("lost_who")
        assert caught.value.code == -31004
    assert "lost: " in caplog.text


async def test_a_shared_server_that_cannot_be_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The proxy serves the others, and says what is wrong with this one."""
    from wirespeed import Stdio

    lab = MergeLab(tmp_path, "red")
    lab.backends.append(
        BackendConfig(target=Stdio("/nowhere/at/all"), name="lost", isolation="shared")
    )
    async with lab.serving("ws://127.0.0.1:0/mcp") as urls:
        async with Client(urls[0], era="legacy") as client:
            names = [tool.name for tool in await client.list_tools()]
            assert {name.split("_")[0] for name in names} == {"red"}
        lost = Client(urls[0].replace("/mcp", "/servers/lost"), era="legacy")
        with raises(WirespeedError):
            await lost.open()
    assert "lost: " in caplog.text


async def test_a_server_that_ends(tmp_path: Path, era: Any) -> None:
    """Its requests fail, those of others do not, and it is started for the next one."""
    lab = MergeLab(tmp_path)
    lab.backends = [lab.backend("red"), lab.backend("blue")]
    async with lab.serving(), Client(lab.url, era=era) as client:
        hanging = asyncio.ensure_future(client.call_tool("blue_hang"))
        await lab.until_logged("blue hangs")
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("red_leave")
        assert caught.value.code == -31004
        assert (await client.call_tool("blue_who")).data == "blue:"
        assert not hanging.done()
        hanging.cancel()


async def test_allow_deny_rename_describe(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path)
    tools = ToolsConfig(
        allow=("w*", "se*", "hang"),
        deny=("secret",),
        rename={"who": "me"},
        describe={"hang": "Ours."},
    )
    lab.backends = [lab.inside("red", tools=tools), lab.inside("blue")]
    async with lab.serving(), Client(lab.url) as client:
        listed = {tool.name: tool.description for tool in await client.list_tools()}
        assert {name for name in listed if not name.startswith("blue_")} == {"me", "red_hang"}
        assert (listed["red_hang"], listed["blue_hang"]) == ("Ours.", "Its own words.")
        assert (await client.call_tool("me")).data == "red:"
        for hidden in ("red_secret", "red_who", "red_leave"):
            with raises(RemoteError, code=-32602):
                await client.call_tool(hidden)


async def test_without_prefixes_the_first_server_wins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [lab.inside("red", prefix=""), lab.inside("blue", prefix="")]
    async with lab.serving(), Client(lab.url) as client:
        assert (await client.call_tool("who")).data == "red:"
        assert sorted(tool.name for tool in await client.list_tools()) == TOOLS
    assert "red and blue both have 'who' in tools: that of red is used" in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ({"name": "a", "prefix": "x_"}, {"name": "b", "prefix": "x_"}),
            "a and b have the same prefix, x_",
        ),
        (({"name": "a.b"}, {"name": "a~b"}), "servers a.b and a~b have the same prefix, a_b_"),
        (({"prefix": "a b"},), "a prefix has"),
        (
            (
                {"name": "a", "tools": ToolsConfig(rename={"x": "y"})},
                {"name": "b", "tools": ToolsConfig(rename={"z": "y"})},
            ),
            "tools with the same new name, y",
        ),
    ],
)
def test_wrong_configurations(options: Any, said: str) -> None:
    from wirespeed import Stdio
    from wirespeed.proxy import ProxyConfig

    with pytest.raises(ValueError, match=said):
        ProxyConfig(
            backends=tuple(BackendConfig(target=Stdio("x"), **one) for one in options), listen=()
        )


async def test_before_the_handshake(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving():
        client = await lab.connect(None)
        error = (await client.ask(call(1, "red_who")))["error"]
        assert error == {"code": -32602, "message": "the connection is not initialized"}
        # what follows `initialize` waits for its answer
        await client.send(
            {"jsonrpc": "2.0", "id": 2, "method": "initialize",
             "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                        "clientInfo": {"name": "raw", "version": "1"}}},
            call(3, "blue_who"),
        )  # fmt: skip
        assert (await client.recv())["result"]["protocolVersion"] == "2025-06-18"
        assert text(await client.recv()) == "blue:"
        unknown = await client.ask(modern(4, "tools/call", {"name": "x"}))
        assert unknown["error"]["code"] == -32602


async def test_one_handshake_for_all_who_wait(tmp_path: Path) -> None:
    """Calls at once, after the loss of a server."""
    lab = MergeLab(tmp_path)
    lab.backends = [delayed(lab.backend("red"), retry=0.0), lab.backend("blue")]
    async with lab.serving():
        client = await lab.connect()
        await client.send(call(0, "red_leave"))
        while "id" not in await client.recv():  # its lists have changed, too
            pass
        await client.send(*(call(n, "red_who", nonce=str(n)) for n in range(1, 5)))
        found: dict[int, Any] = {}
        while len(found) < 4:
            if "id" in (answer := await client.recv()):
                found[answer["id"]] = answer
        assert {n: text(answer) for n, answer in found.items()} == {
            n: f"red:{n}" for n in range(1, 5)
        }


async def test_a_handshake_that_takes_too_long(tmp_path: Path) -> None:
    """Its process ends: the next handshake is with another one."""
    lab = MergeLab(tmp_path, "red")
    scripted = lab.scripted("s", {"initialize": None}, start_timeout=1.0)
    lab.backends.append(delayed(scripted, retry=0.0))
    async with lab.serving():
        client = await lab.connect()
        servers = lab.proxy.services["s"].assignment
        for n in range(2):
            error = (await client.ask(call(n, "s_x")))["error"]
            assert error["code"] == -31004
            assert "it did not answer initialize within 1 s" in error["message"]
            while servers.supervisors:
                await asyncio.sleep(0.01)


async def test_a_client_may_try_initialize_again(tmp_path: Path) -> None:
    """After it has cancelled the first one, which the specification forbids."""
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving():
        client = await lab.connect(None)
        params = {"protocolVersion": "2025-11-25", "capabilities": {}}
        params["clientInfo"] = {"name": "raw", "version": "1"}
        await client.send(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        )
        assert "result" in await client.initialize()
        assert text(await client.ask(call(1, "blue_who"))) == "blue:"


@pytest.mark.off_schema
@pytest.mark.parametrize(
    "wrong", [5, {"tools": True}, {"tools": {"listChanged": True}, "resources": 7}]
)
async def test_capabilities_that_are_not_objects(
    tmp_path: Path, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is left out."""
    lab = MergeLab(tmp_path, "red")
    lab.backends.append(lab.scripted("s", {"initialize": {"capabilities": wrong}}))
    async with lab.serving():
        client = await lab.connect()
        answer = await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert {one["name"] for one in answer["result"]["tools"]} == {f"red_{x}" for x in TOOLS}
        error = (await client.ask(call(1, "s_x")))["error"]
        assert error == {"code": -31004, "message": "the capabilities of s are not objects"}
    assert "s: nothing is shown of its entries: the capabilities of s are not obj" in caplog.text


async def test_a_connection_is_lost_even_where_its_owner_fails() -> None:
    owner = mock.Mock(spec=UpstreamOwner, **{"closed.side_effect": RuntimeError("a fault")})
    backend = Upstream("b", owner, Limits(), asyncio.get_running_loop())
    with pytest.raises(RuntimeError, match="a fault"):
        backend.on_lost(None)
    assert backend.closed.result() is None


async def test_work_that_is_cancelled_before_it_began() -> None:
    """The request is refused, unless the client has cancelled it."""
    for is_open in (True, False):
        front, works, message = mock.Mock(), set[DeferredRequest](), mock.Mock()
        front.is_open.return_value = is_open
        work = DeferredRequest(front, message, asyncio.sleep(0), works)
        assert works == {work}
        work.task.cancel()
        await asyncio.wait((work.task,))
        assert front.refuse.call_count == is_open
        assert not works


@pytest.mark.parametrize("n", [1, 2])
async def test_rules_hold_at_each_endpoint(tmp_path: Path, era: Any, n: int) -> None:
    """Also at the path of the server, whose tools have no prefix there, and after a reload."""
    lab = MergeLab(tmp_path, *["blue"][: n - 1])
    tools = ToolsConfig(deny=("se*", "leave"), rename={"who": "me"})
    lab.backends.append(lab.inside("red", tools=tools))
    async with lab.serving("ws://127.0.0.1:0/mcp") as (url, *_):
        at = url.replace("/mcp", "/servers/red")
        async with Client(at, era=era) as client:
            names = {tool.name for tool in await client.list_tools()}
            assert names == {"grow", "hang", "name", "say", "touch", "who"}
            assert (await client.call_tool("who")).data == "red:"
            for denied in ("secret", "leave"):
                with pytest.raises(RemoteError, match=f"Unknown tool: {denied}"):
                    await client.call_tool(denied)
            red = replace(lab.backends[-1], tools=ToolsConfig(deny=("who",)))
            backends = (*lab.proxy.config.backends[:-1], red)
            await lab.proxy.reload(replace(lab.proxy.config, backends=backends))
            assert (await client.call_tool("secret")).data == "secret"
            with raises(RemoteError, code=-32602):
                await client.call_tool("who")


def test_a_tool_for_litemcp_that_is_denied() -> None:
    from wirespeed import Stdio

    with raises(ValueError):
        BackendConfig(target=Stdio("x"), lite=("x",), tools=ToolsConfig(deny=("x",)))

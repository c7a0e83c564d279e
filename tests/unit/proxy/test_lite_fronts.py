"""Tools of MCP servers for clients of LiteMCP, over HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.lite import LITE
from lab.merge import MergeLab
from lab.proxy import BACKEND, delayed
from lab.raw import surroundings
from lab.reload import server as echo_server
from lab.wording import raises

from wirespeed import Client, Stdio
from wirespeed.auth import hash_token, new_token
from wirespeed.errors import (
    ConfigError,
    ConnectionLost,
    HttpStatusError,
    TransportError,
    UpgradeRefused,
)
from wirespeed.litemcp import LiteClient
from wirespeed.proxy import (
    BackendConfig,
    FlowConfig,
    ListenConfig,
    PrincipalConfig,
    RateConfig,
    ToolRules,
)
from wirespeed.proxy import lite as lite_module
from wirespeed.proxy.file import load
from wirespeed.transport.address import parse

pytestmark = pytest.mark.off_schema

TOOLS = ("who", "hang", "leave", "grow", "none")


@pytest.fixture(params=["http", "ws"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def place(urls: tuple[str, ...], path: str) -> str:
    address = parse(urls[0])
    return f"{address.scheme}://{address.host}:{address.port}{path}"


def lite_lab(
    folder: Path, *, names: tuple[str, ...] = ("a", "b"), processes: bool = False, **backend: Any
) -> MergeLab:
    """Two servers, of which clients of LiteMCP may use the tools of the first."""
    lab = MergeLab(folder)
    server = lab.backend if processes else lab.inside
    lab.backends = [server(name, lite=TOOLS if name == "a" else (), **backend) for name in names]
    return lab


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("isolation", ["auto", "session", "shared", "pool"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_info_and_calls(tmp_path: Path, scheme: str, era: Any, isolation: Any) -> None:
    lab = lite_lab(tmp_path, era=era, isolation=isolation)
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/who")) as lite,
    ):
        info = await lite.info()
        assert (info.name, [one.name for one in info.parameters]) == ("who", ["nonce"])
        results = await asyncio.gather(*(lite.call(f"{n}") for n in range(20)))
        assert [one.text for one in results] == [f"a:{n}" for n in range(20)]
        assert results[3].params == {"nonce": "3"}
        assert not results[3].error


async def test_the_servers_own_clients_are_there_too(tmp_path: Path) -> None:
    lab = lite_lab(tmp_path, isolation="shared")
    async with (
        lab.serving("ws://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/who")) as lite,
        Client(place(urls, "/servers/a")) as client,
        Client(place(urls, "/mcp")) as whole,
    ):
        assert (await lite.call("1")).text == "a:1"
        assert (await client.call_tool("who", {"nonce": "2"})).text == "a:2"
        assert (await whole.call_tool("b_who", {"nonce": "3"})).text == "b:3"


async def test_a_server_of_litemcp(tmp_path: Path, scheme: str) -> None:
    """Its parameters are strings."""
    script = tmp_path / "lite.py"
    script.write_text(LITE)
    target = Stdio(sys.executable, [str(script)], env=surroundings(), restart=True)
    backend = BackendConfig(target=target, name="a", protocol="litemcp", lite=("adder",))
    lab = MergeLab(tmp_path)
    lab.backends = [backend]
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/") as urls,
        LiteClient(place(urls, "/lite/a/adder")) as lite,
    ):
        assert [one.type for one in (await lite.info()).parameters] == ["string", "string"]
        result = await lite.call(1, 2)
        assert (result.text, result.error) == ("3", False)
        result = await lite.call("x", 2)
        assert result.error
        assert "expected integer" in result.text


async def test_only_what_is_named(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, isolation="shared")
    async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls:
        for path in ("/lite/a/secret", "/lite/b/who", "/lite/a", "/lite/a/who//"):
            with pytest.raises((HttpStatusError, UpgradeRefused)) as refused:
                async with LiteClient(place(urls, path)) as lite:
                    await lite.info()
            assert refused.value.status == 404


async def test_a_tool_that_the_server_does_not_have(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, isolation="shared")
    async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls:
        began = time.monotonic()
        async with LiteClient(place(urls, "/lite/a/none")) as lite:
            with pytest.raises(TransportError, match=r"404|the server a has no tool none"):
                await lite.info()
        # the client's goodbye is read: nobody waits until a peer that says none is given up
        assert time.monotonic() - began < 2
        async with LiteClient(place(urls, "/lite/a/who")) as lite:
            assert (await lite.call("1")).text == "a:1"


async def test_cancellation(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, isolation="shared")
    async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls:
        async with LiteClient(place(urls, "/lite/a/hang")) as lite:
            calling = asyncio.ensure_future(lite.call())
            await lab.until_logged("a hangs")
            calling.cancel()
            await asyncio.wait((calling,))
        # over WebSocket the client has left: LiteMCP has no cancellation
        await lab.until_logged("a hangs", "a cancelled")


@pytest.mark.parametrize("isolation", ["session", "shared"])
async def test_a_server_that_ends(tmp_path: Path, scheme: str, isolation: Any) -> None:
    lab = lite_lab(tmp_path, processes=True, isolation=isolation)
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/leave")) as leave,
        LiteClient(place(urls, "/lite/a/who")) as who,
    ):
        assert (await who.call("1")).text == "a:1"
        result = await leave.call()
        assert result.error
        assert "tool leave" in result.text
        while (result := await who.call("2")).error:
            await asyncio.sleep(0.05)
        assert result.text == "a:2"


async def test_a_server_that_is_down(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, names=("b",))
    down = BackendConfig(target=Stdio("/no/such"), name="a", lite=("who",), isolation="shared")
    lab.backends.append(down)
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/who")) as lite,
    ):
        with pytest.raises(TransportError, match=r"503|server.*down") as failed:
            await lite.info()
        assert isinstance(failed.value, HttpStatusError if scheme == "http" else ConnectionLost)


SILENT = "import time; time.sleep(60)"


def silent(**fields: Any) -> BackendConfig:
    """A server that does not answer."""
    target = Stdio(sys.executable, ["-c", SILENT], shutdown_grace=0.1)
    return BackendConfig(target=target, name="a", lite=("who",), isolation="shared", **fields)


async def test_a_server_that_does_not_answer(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, names=("b",))
    lab.backends.append(silent(start_timeout=0.3))
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/who")) as lite,
    ):
        with pytest.raises(TransportError):
            await lite.info()


async def test_the_end_while_a_server_does_not_answer(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, names=("b",))
    lab.options = {"shutdown_grace": 0.2}
    lab.backends.append(silent())
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/who")) as lite,
    ):
        asking = asyncio.ensure_future(lite.info())
        await asyncio.sleep(0.3)
        backends = (lab.backends[0],)
        await lab.proxy.reload(dataclasses.replace(lab.proxy.config, backends=backends))
        with pytest.raises(TransportError):
            await asking


async def test_a_call_that_outlives_the_grace_time(tmp_path: Path, scheme: str) -> None:
    """It is cut off with an answer."""
    lab = lite_lab(tmp_path, processes=True, isolation="shared")
    lab.options = {"shutdown_grace": 0.2}
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/hang")) as lite,
    ):
        calling = asyncio.ensure_future(lite.call())
        await lab.until_logged("a hangs")
        os.kill(os.getpid(), signal.SIGTERM)
        result = await calling
        assert (result.error, result.text) == (True, "the server is shutting down")


@pytest.mark.parametrize(
    "schema",
    [{"required": None}, {"required": 5}, {"$defs": 5}, {"properties": {"x": {"examples": 5}}}],
)
async def test_a_schema_that_is_not_valid(
    tmp_path: Path, scheme: str, schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request is refused, and the log says why."""
    lab = lite_lab(tmp_path, names=("b",))
    tool = {"name": "who", "inputSchema": {"type": "object", **schema}}
    script = tmp_path / "bad.py"
    script.write_text(BACKEND)
    target = Stdio(
        sys.executable, [str(script), str(tmp_path / "seen")], {"TOOLS": json.dumps([tool])}
    )
    lab.backends.append(BackendConfig(target=target, name="a", lite=("who",), isolation="shared"))
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/who")) as lite,
    ):
        with pytest.raises(TransportError, match=r"503|input schema of who is not valid"):
            await lite.info()
    assert "a: the tool who: the input schema of who is not valid" in caplog.text


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_that_changes(tmp_path: Path, scheme: str, era: Any) -> None:
    """Its parameters are those that the server names now."""
    lab = lite_lab(tmp_path, names=("b",))
    script = tmp_path / "changes.py"
    script.write_text(
        "from wirespeed import Server\n"
        "server = Server('c')\n"
        "@server.tool\n"
        "async def change() -> str:\n"
        "    async def change(text: str) -> str:\n"
        "        return text\n"
        "    server.remove_tool('change')\n"
        "    server.add_tool(change)\n"
        "    return 'changed'\n"
        "server.run()\n"
    )
    target = lab.backend("c").target
    assert isinstance(target, Stdio)
    target = Stdio(target.command, [str(script)], env=target.env)
    lab.backends.append(
        BackendConfig(target=target, name="c", era=era, isolation="shared", lite=("change",))
    )
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/c/change")) as lite,
    ):
        assert (await lite.info()).parameters == []
        assert (await lite.call()).text == "changed"
        text = ""
        while text != "new":
            result = await _tried(lite)
            text = "" if result is None else result.text


async def _tried(lite: LiteClient) -> Any:
    await asyncio.sleep(0.02)
    try:
        await lite.open()
        if not (await lite.info()).parameters:
            return None
        return await lite.call("new")
    except TransportError:  # the connection has ended
        return None


async def test_reload(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, isolation="shared")

    async def change(**fields: Any) -> Any:
        one, other = lab.proxy.config.backends
        backends = dataclasses.replace(one, **fields), other
        return await lab.proxy.reload(dataclasses.replace(lab.proxy.config, backends=backends))

    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/who")) as lite,
    ):
        assert (await lite.call("1")).text == "a:1"
        # one more, while the connection and the process stay
        service = lab.proxy.services["a"]
        changes = await change(lite=("who", "secret"))
        assert (changes.changed, changes.shown) == ((), ("a",))
        assert lab.proxy.services["a"] is service
        assert (await lite.call("2")).text == "a:2"
        async with LiteClient(place(urls, "/lite/a/secret")) as secret:
            assert (await secret.call()).text == "secret"
        # another server
        assert (await change(target=lab.backend("x").target)).changed == ("a",)
        async with LiteClient(place(urls, "/lite/a/who")) as again:
            assert (await again.call("3")).text == "x:3"
        await until(lambda: not service.downstreams)
        # none
        await change(lite=())
        with pytest.raises((HttpStatusError, UpgradeRefused)) as refused:
            async with LiteClient(place(urls, "/lite/a/who")) as gone:
                await gone.info()
        assert refused.value.status == 404


async def test_a_call_in_flight_ends_where_it_began(tmp_path: Path, scheme: str) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [
        echo_server(tmp_path, "a", versions="2026-07-28", lite=("sleep",)),
        lab.backend("b"),
    ]
    tools = [{"name": "sleep", "inputSchema": {"properties": {"seconds": {"type": "number"}}}}]
    (tmp_path / "backend.py").write_text(BACKEND)
    target = lab.backends[0].target
    assert isinstance(target, Stdio)
    env = {**(target.env or {}), "TOOLS": json.dumps(tools)}
    target = Stdio(target.command, target.args, env)
    lab.backends[0] = dataclasses.replace(lab.backends[0], target=target)
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/sleep")) as lite,
    ):
        await lite.info()
        calling = asyncio.ensure_future(lite.call(0.5))
        await asyncio.sleep(0.1)
        other = dataclasses.replace(
            lab.proxy.config,
            backends=(lab.backend("a", lite=("who",)), lab.proxy.config.backends[1]),
        )
        await lab.proxy.reload(other)
        assert not (await calling).error


TOKENS = {name: new_token() for name in ("anne", "bob", "carl")}


def principal(name: str, **fields: Any) -> PrincipalConfig:
    digits = hash_token(TOKENS[name]).removeprefix("sha256:")
    return PrincipalConfig(name=name, token_sha256=digits, **fields)


async def test_principals(tmp_path: Path, scheme: str) -> None:
    audit = tmp_path / "audit"
    lab = lite_lab(tmp_path, isolation="shared")
    lab.options = {
        "audit": str(audit),
        "principals": (
            principal("anne", servers=("a",), tools=ToolRules(deny=("a_hang",))),
            principal("bob", servers=("b",)),
        ),
    }

    async def status(path: str, name: str | None, **more: Any) -> int:
        token = None if name is None else TOKENS[name]
        with pytest.raises((HttpStatusError, UpgradeRefused)) as refused:
            async with LiteClient(place(urls, path), token=token, **more) as lite:
                await lite.info()
        found = refused.value.status
        assert isinstance(found, int)
        return found

    async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls:
        for both in (False, True):
            who = place(urls, "/lite/a/who")
            async with LiteClient(who, token=TOKENS["anne"], both_headers=both) as anne:
                assert (await anne.call("1")).text == "a:1"
        fields = {"Authentication": f"Bearer {TOKENS['anne']}"}
        async with LiteClient(who, headers=fields) as anne:
            assert (await anne.call("2")).text == "a:2"
        assert await status("/lite/a/hang", "anne") == 403
        assert await status("/lite/a/who", "bob") == 403
        assert await status("/lite/a/who", "carl") == 403
        assert await status("/lite/a/who", None) == 403
        assert await status("/lite/a/who", "bob", headers=fields) == 403
        # what a principal may not any more is refused on connections that are there, too
        async with LiteClient(who, token=TOKENS["anne"]) as anne:
            await anne.call("3")
            rules = principal("anne", servers=("a",), tools=ToolRules(deny=("a_who",)))
            changed = (rules, lab.proxy.config.principals[1])
            await lab.proxy.reload(dataclasses.replace(lab.proxy.config, principals=changed))
            with pytest.raises((HttpStatusError, UpgradeRefused), match="403"):
                while True:
                    with contextlib.suppress(ConnectionLost):
                        await anne.open()
                        await anne.call("4")
        assert await status("/lite/a/who", "anne") == 403
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    calls = [one for one in lines if one["event"] == "call"]
    found = [(one["principal"], one["tool"], one["outcome"]) for one in calls]
    assert found == [("anne", "who", "ok")] * 4
    assert {one["peer"] for one in calls} == {"127.0.0.1"}


async def test_tokens_of_a_listener(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, isolation="shared")
    listen: Any = ListenConfig(url=f"{scheme}://127.0.0.1:0/mcp", tokens=(TOKENS["anne"],))
    async with lab.serving(listen) as urls:
        who = place(urls, "/lite/a/who")
        async with LiteClient(who, token=TOKENS["anne"]) as lite:
            assert (await lite.call("1")).text == "a:1"
        with pytest.raises((HttpStatusError, UpgradeRefused)) as refused:
            async with LiteClient(who) as lite:
                await lite.info()
        assert refused.value.status == 403


async def test_limits(tmp_path: Path, scheme: str) -> None:
    flow = FlowConfig(tools={"hang": 1}, max_queued=0)
    lab = lite_lab(tmp_path, isolation="shared", flow=flow)
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/hang")) as lite,
    ):
        calling = asyncio.ensure_future(lite.call())
        await lab.until_logged("a hangs")
        refused = await lite.call()
        assert refused.error
        assert "tool hang: " in refused.text
        calling.cancel()


async def test_connections_that_end_leave_nothing(tmp_path: Path) -> None:
    lab = lite_lab(tmp_path, isolation="shared")
    async with lab.serving("ws://127.0.0.1:0/mcp") as urls:
        async with LiteClient(place(urls, "/lite/a/who")) as stays:
            for n in range(3):
                async with LiteClient(place(urls, "/lite/a/who")) as lite:
                    assert (await lite.call(f"{n}")).text == f"a:{n}"
            assert (await stays.call("4")).text == "a:4"
            (session,) = lab.proxy.services["a"]._lite.sessions.values()
            await until(lambda: len(session.tools["who"].connections) == 1)
        await until(lambda: not session.tools["who"].connections)


async def test_rates(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, isolation="shared")
    lab.options = {"rate": RateConfig(requests=0.001, burst=6)}
    async with (
        lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls,
        LiteClient(place(urls, "/lite/a/who")) as lite,
    ):
        results = [await lite.call("1") for _ in range(7)]
        assert not results[0].error
        assert results[-1].error
        assert "too many requests" in results[-1].text


async def test_the_connection_of_a_client_ends(tmp_path: Path, scheme: str) -> None:
    lab = lite_lab(tmp_path, isolation="shared")
    lab.backends[0] = delayed(lab.backends[0], lite=0.2)
    async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls:
        fronts = lab.proxy.services["a"].downstreams
        async with LiteClient(place(urls, "/lite/a/hang")) as lite:
            calling = asyncio.ensure_future(lite.call())
            await lab.until_logged("a hangs")
            await asyncio.sleep(0.5)
            assert len(fronts) == 1
            calling.cancel()
            await asyncio.wait((calling,))
        await until(lambda: not fronts)
        async with LiteClient(place(urls, "/lite/a/who")) as lite:
            assert (await lite.call("1")).text == "a:1"


async def test_too_many_clients(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lite_module, "MAX_SESSIONS", 1)
    lab = lite_lab(tmp_path, isolation="shared")
    lab.options = {"principals": (principal("anne"), principal("bob"))}
    async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls:
        hang, who = place(urls, "/lite/a/hang"), place(urls, "/lite/a/who")
        async with LiteClient(hang, token=TOKENS["anne"]) as anne:
            calling = asyncio.ensure_future(anne.call())
            await lab.until_logged("a hangs")
            async with LiteClient(who, token=TOKENS["bob"]) as bob:
                with pytest.raises(TransportError, match=r"503|there are too many clients"):
                    await bob.info()
            calling.cancel()
            await asyncio.wait((calling,))
        await lab.until_logged("a hangs", "a cancelled")
        await asyncio.sleep(2 * lite_module.SETTLED)
        async with LiteClient(who, token=TOKENS["bob"]) as bob:
            assert (await bob.call("1")).text == "a:1"


def test_the_file(tmp_path: Path) -> None:
    file = tmp_path / "proxy.json"

    def read(*tools: str) -> BackendConfig:
        entry = {"command": "x", "proxy": {"lite": tools}}
        file.write_text(json.dumps({"mcpServers": {"a": entry}}))
        return load(file).backends[0]

    assert read("add", "über/all").lite_paths == {
        "add": "/lite/a/add",
        "über/all": "/lite/a/%C3%BCber/all",
    }
    for wrong in ("", "a b", "a?", "..", "a//b", "%41", "x" * 201):
        with pytest.raises(ConfigError, match=r"lite|the name of the tool cannot be"):
            read(wrong)
    with raises(ConfigError):
        read("a", "a")

"""Extensions of servers behind one endpoint: which it declares, to whom, and whose a method is."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from lab.gateway import gateway, inside
from lab.merge import MergeLab
from lab.principals import PRINCIPALS
from lab.proxy import MODERN
from lab.wording import raises

from wirespeed import Client, Context, Extension, Server
from wirespeed.errors import ConfigError, RemoteError
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.proxy.file import load

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

NAME = "com.example/bell"
BOTH = ("legacy", "modern")
CONFIGURED = Extension("com.example/configured", requests={"configured/do": lambda params: {}})
NOT_ONE = "text"


@pytest.fixture(params=BOTH)
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


class Bell:
    """An extension with something in each direction, as one value."""

    def __init__(self, name: str = NAME, word: str = "bell", **options: Any) -> None:
        self.heard: list[Any] = []
        self.rung: list[Any] = []
        self.word = word
        self.value = Extension(
            name,
            {"loud": True},
            requests={f"{word}/ring": self.ring},
            notifications={f"notifications/{word}/rest": self.heard.append},
            client_notifications={f"notifications/{word}/rung": self.rung.append},
            **{"eras": BOTH, **options},
        )

    async def ring(self, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        settings = self.value.settings_of(ctx)
        self.value.notify(ctx, f"notifications/{self.word}/rung", {"of": ctx.server.name})
        return {
            "server": ctx.server.name,
            "client": settings,
            "meta": ctx.meta.get("com.example/m"),
        }


def having(name: str, *extensions: Extension) -> Server:
    server = Server(name)
    server.add_tool(lambda: name, name="who")
    for one in extensions:
        server.add_extension(one)
    return server


def declared(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.server_capabilities.get("extensions", {})
    return found


def own(name: str, server: Server) -> BackendConfig:
    """A server that each client has for itself: it hears what the client declares, and what it says
    without naming a request is that client's."""
    return inside(name, server, isolation="auto")


async def test_one_value_for_server_proxy_and_client(era: Any) -> None:
    bell = Bell()
    servers = [inside("a", having("a")), inside("b", having("b", bell.value), isolation="session")]
    async with (
        gateway(*servers, listen="ws://127.0.0.1:0/mcp", extensions=(bell.value,)) as gate,
        gate.client(era=era, extensions=[bell.value]) as client,
    ):
        assert declared(client) == {NAME: {"loud": True}}
        found = await client.request("bell/ring", {}, meta={"com.example/m": 1})
        assert (found["server"], found["client"], found["meta"]) == ("b", {"loud": True}, 1)
        assert bell.rung == [{"of": "b"}]
        with raises(RemoteError, code=-32601):
            await client.request("bell/break", {})


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_notifications_of_clients(version: str, tmp_path: Path) -> None:
    bell = Bell()
    lab = MergeLab(tmp_path, "a", extensions=(bell.value,))
    lab.backends.append(lab.inside("b", isolation="session"))
    next(reversed(lab.servers.values())).add_extension(bell.value)
    async with lab.serving():
        client = await lab.connect(version if version != MODERN else None)
        client.is_modern = version == MODERN
        await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        method = "notifications/bell/rest"
        await client.send({"jsonrpc": "2.0", "method": method, "params": {"n": 1}})
        while not bell.heard:
            await asyncio.sleep(0.01)
        assert bell.heard == [{"n": 1}]


async def test_what_the_proxy_does_not_know(era: Any) -> None:
    """It is not declared, and passes at the server's own path."""
    bell = Bell()
    servers = own("a", having("a")), own("b", having("b", bell.value))
    async with gateway(*servers) as gate:
        async with gate.client(era=era, extensions=[bell.value]) as client:
            assert declared(client) == {}
            with raises(RemoteError, code=-32601):
                await client.request("bell/ring", {})
        async with gate.client(era=era, path="/servers/b", extensions=[bell.value]) as client:
            assert declared(client) == {NAME: {"loud": True}}
            assert (await client.request("bell/ring", {}))["server"] == "b"


async def test_several_servers_have_it(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing says whose a request is, so it is nobody's; without methods there is nothing to
    tell apart."""
    bell, plain = Bell(), Extension("com.example/plain", {"x": 1}, eras=BOTH)
    servers = [own(name, having(name, bell.value, plain)) for name in "ab"]
    async with gateway(*servers, extensions=(bell.value, plain)) as gate:
        for _ in range(2):
            async with gate.client(era=era, extensions=[bell.value]) as client:
                assert declared(client) == {"com.example/plain": {"x": 1}}
                with raises(RemoteError, code=-32601):
                    await client.request("bell/ring", {})
    assert caplog.text.count("a, b have it") == 1


async def test_each_client_by_the_servers_that_it_may_use(era: Any) -> None:
    bell = Bell()
    servers = [own(name, having(name, bell.value)) for name in "ab"]
    async with gateway(*servers, extensions=(bell.value,), principals=PRINCIPALS) as gate:
        for name, server in (("anne", "a"), ("bob", "b")):
            async with gate.client(name, era=era, extensions=[bell.value]) as client:
                assert declared(client) == {NAME: {"loud": True}}
                assert (await client.request("bell/ring", {}))["server"] == server
        async with gate.client("root", era=era, extensions=[bell.value]) as client:
            assert declared(client) == {}


async def test_a_revision_that_is_not_known(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    theirs, ours = Bell(revision="2"), Bell()
    servers = own("a", having("a")), own("b", having("b", theirs.value))
    async with gateway(*servers, extensions=(ours.value,)) as gate:
        for _ in range(2):
            async with gate.client(era=era, extensions=[theirs.value]) as client:
                assert declared(client) == {}
                with raises(RemoteError, code=-32601):
                    await client.request("bell/ring", {})
        async with gate.client(era=era, path="/servers/b", extensions=[theirs.value]) as client:
            assert (await client.request("bell/ring", {}))["server"] == "b"
    assert caplog.text.count("the server b has its revision 2") == 1
    servers = own("a", having("a")), own("b", having("b", theirs.value))
    async with (
        gateway(*servers, extensions=(Bell(understands=["2"]).value,)) as gate,
        gate.client(era=era) as client,
    ):
        assert declared(client) == {NAME: {"loud": True, "revision": "2"}}


async def test_eras_and_dependencies() -> None:
    """An extension is declared in its own eras, and beside what it depends on."""
    bell = Bell(eras=["modern"])
    chime = Bell("com.example/chime", "chime", depends=[NAME])
    servers = own("a", having("a", bell.value, chime.value)), own("b", having("b"))
    async with gateway(*servers, extensions=(bell.value, chime.value)) as gate:
        async with gate.client(era="modern", extensions=[bell.value, chime.value]) as client:
            assert declared(client).keys() == {NAME, "com.example/chime"}
        async with gate.client(era="legacy", extensions=[bell.value, chime.value]) as client:
            assert declared(client) == {}
            for method in ("bell/ring", "chime/ring"):
                with raises(RemoteError, code=-32601):
                    await client.request(method, {})


async def test_members_of_subscriptions_are_not_passed(caplog: pytest.LogCaptureFixture) -> None:
    class Tides:
        def honoured(self, message: Any, value: Any) -> Any:
            return value

        def started(self, subscription: Any) -> None: ...

    tides = Extension("com.example/tides", listening={"tides": Tides()})
    servers = own("a", having("a", tides)), own("b", having("b"))
    async with gateway(*servers, extensions=(tides,)) as gate, gate.client() as client:
        assert declared(client) == {}
    assert "com.example/tides is not declared: it adds to subscriptions" in caplog.text


async def test_a_reload_takes_other_extensions() -> None:
    bell = Bell()
    servers = own("a", having("a")), own("b", having("b", bell.value))
    async with gateway(*servers) as gate:
        before = gate.proxy.config
        after = ProxyConfig(
            backends=before.backends, listen=before.listen, extensions=(bell.value,)
        )
        for config, names in ((after, {NAME}), (before, set())):
            changes = await gate.proxy.reload(config)
            assert changes.settings == ("extensions",)
            async with gate.client(extensions=[bell.value]) as client:
                assert declared(client).keys() == names


def test_what_cannot_be_used_together() -> None:
    backend = inside("a", having("a"))
    for extensions in (
        (Bell().value, Bell(word="other").value),
        (Bell().value, Bell("com.example/chime").value),
        (Bell(depends=["com.example/none"]).value,),
        (Extension("io.modelcontextprotocol/skills"),),
    ):
        with raises(ValueError):
            ProxyConfig(backends=(backend,), listen=(), extensions=extensions)
    tasks = Bell(depends=["io.modelcontextprotocol/tasks"])
    Proxy(ProxyConfig(backends=(backend,), listen=(), extensions=(tasks.value,)))
    with raises(TypeError):
        ProxyConfig(backends=(backend,), listen=(), extensions=("x",))  # type: ignore[arg-type]


def test_in_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    file = tmp_path / "proxy.json"

    def given(*names: str) -> Path:
        servers = {"a": {"command": "true"}}
        file.write_text(json.dumps({"mcpServers": servers, "proxy": {"extensions": names}}))
        return file

    assert load(given(f"{__name__}:CONFIGURED")).extensions == (CONFIGURED,)
    for name in ("NOT_ONE", "NONE"):
        with pytest.raises(ConfigError, match=r"proxy\.extensions\[0\].*:NO"):
            load(given(f"{__name__}:{name}"))

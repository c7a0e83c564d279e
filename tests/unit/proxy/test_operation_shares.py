"""Numbers by tool and by principal, an hour back, and what an operator does with a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from lab.gateway import Gateway, gateway, inside
from lab.operation import TOKEN, fetch
from lab.principals import PRINCIPALS, TOKENS
from lab.wording import raises

from wirespeed import Http, Server, Stdio, ToolSearch
from wirespeed.config import ServerUrl
from wirespeed.errors import RemoteError, WirespeedError
from wirespeed.proxy import AdminConfig, BackendConfig, HookConfig, ListenConfig, ProxyConfig
from wirespeed.proxy.breakdown import Breakdown
from wirespeed.proxy.operation import meter
from wirespeed.proxy.operation.in_force import in_force
from wirespeed.proxy.operation.meter import Meter, Sample
from wirespeed.proxy.operation.status import plotted

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

ADMIN = AdminConfig(listen="http://127.0.0.1:0", token=TOKEN)
WS = "ws://127.0.0.1:0/mcp"


def server(name: str) -> Server:
    made = Server(name)

    @made.tool
    async def good() -> str:
        return "good"

    @made.tool
    async def slow() -> str:
        await asyncio.sleep(0.2)
        return "slow"

    return made


def port(gate: Gateway) -> int:
    admin = gate.proxy.admin
    assert admin is not None
    return gate.admin_port


async def status(gate: Gateway) -> Any:
    return (await fetch(port(gate), "/status")).json


async def do(gate: Gateway, name: str, action: str, **headers: str) -> int:
    fields = {"Authorization": f"Bearer {TOKEN}", "Content-Length": "0", **headers}
    return (await fetch(port(gate), f"/{action}/{name}", fields, "POST")).status


async def test_by_tool_and_principal() -> None:
    async with gateway(
        inside("a", server("a")), inside("b", server("b")), principals=PRINCIPALS, admin=ADMIN
    ) as gate:
        async with gate.client("anne") as anne, gate.client("root") as root:
            for _ in range(3):
                with raises(RemoteError, code=-32602):
                    await anne.call_tool("a_good")  # anne may not
            await root.call_tool("a_good")
            await root.call_tool("a_slow")
            with raises(RemoteError, code=-32602):
                await root.call_tool("a_unheard")
        found = {one["name"]: one for one in (await status(gate))["backends"]}["a"]
        tools = {one["name"]: one for one in found["tools"]}
        assert tools.keys() == {"good", "slow", "other"}  # a name without a result has no place
        assert (tools["good"]["requests"], tools["good"]["errors"]) == (1, 0)
        assert (tools["other"]["requests"], tools["other"]["errors"]) == (1, 1)
        assert tools["slow"]["p99"] >= 0.1 > tools["good"]["p99"]
        principals = {one["name"]: one for one in found["principals"]}
        assert "root" in principals
        assert principals["root"]["errors"] == 1
        page = (await fetch(port(gate), "/")).text
        assert "Tools of a" in page
        assert "Principals at a" in page


def test_a_breakdown_is_bounded() -> None:
    found = Breakdown()
    for n in range(2000):
        found.add(b'"t%d"' % n, b"p%d" % n, 0.001, 0)
    assert (len(found.tools), len(found.principals)) == (500, 1000)
    assert found.other_tools.buckets[-1] == 1500
    assert found.other_principals.buckets[-1] == 1000
    found = Breakdown()
    found.add(b'"%b"' % (b"x" * 300), None, 0.001, 0)
    found.add(b'"bad"', None, 0.001, -32602)
    assert found.tools == {}
    assert found.other_tools.codes == {-32602: 1}


def test_the_last_minute_and_the_last_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(meter, "current_tick", lambda: now[0])
    one = Meter()
    one.observe()
    assert one.observer is not None
    assert one.breakdown is not None
    for tick in range(3600):  # two hours
        now[0] = tick
        one.observer.of("tools/call").add(0.001)
        one.breakdown.add(b'"t"', None, 0.001, 0)
        one.sample()
    assert len(one.hour) == 61  # with the present minute
    assert {sample.requests for sample in one.hour} == {30}
    (share,) = one.shares("tools", lambda text: text.decode())
    assert sum(share.buckets) == 3600
    assert 25 <= share.recent <= 40  # the last minute, by marks of ten seconds
    lines = plotted(one.hour, one.hour[-1].tick, 60, 60.0)
    assert lines["rate"] == [0.5] * 60
    assert plotted([Sample(5, 60, 0, 0, [60] + [0] * 16)], 6, 3, 60.0)["rate"] == [None, 1.0, None]


async def test_a_timer_that_fires_early_does_not_take_a_sample() -> None:
    now, sleeps = [101.5], list[float]()

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += max(seconds - 0.001, 0.0005)

    await meter.end_of_tick(lambda: now[0], sleep)
    assert now[0] >= 102
    assert sleeps == [pytest.approx(0.5), pytest.approx(0.001), pytest.approx(0.0005)]


async def test_a_server_is_drained() -> None:
    """What it works on is answered, what comes is refused; and the proxy stays ready."""
    async with (
        gateway(inside("a", server("a")), inside("b", server("b")), admin=ADMIN, listen=WS) as gate,
        gate.client() as client,
        gate.client(path="/servers/a") as alone,
    ):
        running = asyncio.ensure_future(client.call_tool("a_slow"))
        await asyncio.sleep(0.05)
        assert await do(gate, "a", "drain") == 200
        assert (await running).text == "slow"
        for one, name in ((client, "a_good"), (alone, "good")):
            with raises(RemoteError, code=-31001):
                await one.call_tool(name)
        assert (await client.call_tool("b_good")).text == "good"
        async with gate.client(path="/servers/b") as late:
            assert (await late.call_tool("good")).text == "good"
        states = {one["name"]: one["state"] for one in (await status(gate))["backends"]}
        assert states == {"a": "drained", "b": "up"}
        for path, code in (("", 200), ("/a", 503), ("/b", 200)):
            assert (await fetch(port(gate), f"/readyz{path}")).status == code
        assert await do(gate, "a", "resume") == 200
        assert (await client.call_tool("a_good")).text == "good"
        assert (await alone.call_tool("good")).text == "good"


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_a_server_is_restarted(tmp_path: Path, isolation: Any) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import os, asyncio\nfrom wirespeed import Server\nserver = Server('s')\n"
        "@server.tool\nasync def pid() -> int:\n    return os.getpid()\n"
        "@server.tool\nasync def slow() -> int:\n    await asyncio.sleep(1)\n"
        "    return os.getpid()\n"
        "server.run()\n"
    )
    import sys

    target = Stdio(sys.executable, [str(script)], inherit_env=True)
    config = BackendConfig(target=target, name="s", isolation=isolation, era="legacy")
    async with gateway(config, admin=ADMIN, listen=WS) as gate, gate.client(era="legacy") as client:
        before = (await client.call_tool("pid")).data
        running = asyncio.ensure_future(client.call_tool("slow"))
        await asyncio.sleep(0.1)
        assert await do(gate, "s", "restart") == 200
        assert (await running).data == before  # what it worked on is answered

        async def now() -> Any:
            if isolation == "shared":
                return (await client.call_tool("pid")).data
            async with gate.client(era="legacy") as other:
                return (await other.call_tool("pid")).data

        async with asyncio.timeout(20):
            while await now() == before:
                await asyncio.sleep(0.05)


async def test_who_may_do_that() -> None:
    async with gateway(inside("a", server("a")), admin=ADMIN) as gate:
        place = f"http://127.0.0.1:{port(gate)}"
        assert await do(gate, "a", "drain", Authorization="Bearer wrong") == 401
        for origin in (
            "https://evil.example",
            "http://127.0.0.1:1",
            "http://localhost:3000",
            "null",
        ):
            assert await do(gate, "a", "drain", Origin=origin) == 403
        assert await do(gate, "none", "drain") == 404
        assert await do(gate, "proxy", "drain") == 404
        assert await do(gate, "a", "what") == 404
        assert (await fetch(port(gate), "/drain/a")).status == 405
        async with gate.client() as client:
            assert (await client.call_tool("good")).text == "good"
        assert await do(gate, "a", "drain", Origin=place) == 200
        with pytest.raises(WirespeedError):
            async with gate.client() as client:
                await client.call_tool("good")


async def test_what_else_is_counted() -> None:
    def before(call: Any) -> None: ...

    hooks = (HookConfig(tools=("good",), function=before),)
    async with gateway(
        inside("a", server("a"), hooks=hooks, era="legacy"),
        tool_search=ToolSearch(),
        admin=ADMIN,
        listen=WS,
    ) as gate:
        async with gate.client(era="legacy", cache=False) as client:
            await client.call_tool("good")
            for _ in range(3):
                await client.call_tool("search_tools", {"query": "good"})
        (found,) = (await status(gate))["backends"]
        assert found["hooks"] == {"held": 1, "refused": 0, "failed": 0}
        assert found["search"] == {"searches": 3, "calls": 0}
        assert found["cached_lists"] >= 1


def test_the_configuration_in_force() -> None:
    """It is shown without secrets."""
    secret = "s3cret-s3cret-s3cret-s3cret-s3cret"
    config = ProxyConfig(
        backends=(
            BackendConfig(target=Stdio("/bin/x", [secret], env={"A": secret}), name="a"),
            BackendConfig(
                target=Http(f"https://h.example/mcp?{secret}", token=secret),
                name="b",
                hooks=(HookConfig(tools=("t",), url=f"https://h.example/?{secret}", token=secret),),
            ),
            BackendConfig(
                target=Http(f"https://h.example/mcp?{secret}"),
                urls=(ServerUrl(f"https://h.example/mcp?{secret}", 2),),
                isolation="pool",
                name="c",
            ),
        ),
        listen=(ListenConfig(url="https://0.0.0.0:1/mcp", headers={"A": secret}),),
        principals=tuple(PRINCIPALS),
        admin=AdminConfig(token=secret),
        name="east",
    )
    found = in_force(config)
    text = json.dumps(found)
    assert secret not in text
    assert not any(token in text for token in TOKENS.values())
    assert not any(one.token_sha256 in text for one in PRINCIPALS if one.token_sha256)
    assert found["name"] == "east"
    assert found["backends"][0]["target"] == "/bin/x …"
    url = {"url": "https://h.example/mcp", "weight": 2, "percent": None}
    assert found["backends"][2]["urls"] == [url]
    assert found["principals"][0]["servers"] == ["a"]
    assert "drain_delay" not in found  # the default

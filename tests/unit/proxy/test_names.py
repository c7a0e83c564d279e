"""A server whose name has several addresses: they are looked up again and again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.addresses import Place, all_up, called, pool_of
from lab.gateway import gateway
from lab.nameserver import Nameserver, nameserver
from lab.operation import TOKEN, fetch
from lab.principals import principal
from lab.proxy import delayed, until
from lab.rows import every
from lab.wording import raises

from wirespeed import Client, Http, Socket, Stdio, WebSocket
from wirespeed.errors import RemoteError, TransportError, WirespeedError
from wirespeed.proxy import (
    AdminConfig,
    BackendConfig,
    BreakerConfig,
    HealthConfig,
    IdentityConfig,
)
from wirespeed.proxy.backend_config import NameDelays
from wirespeed.proxy.file import load
from wirespeed.proxy.isolation.addresses import NamedUrl
from wirespeed.proxy.names.watch import NameWatch

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

NAME = "mill.test"
SRV = f"_mcp._tcp.{NAME}"
LOST = -31004
NEVER = 3600.0
SOON = NameDelays(least=0.05, most=0.05, timeout=10.0, stays=0.3)


def named(
    server: Nameserver,
    url: str,
    names: NameDelays = SOON,
    asks: float = NEVER,
    **options: Any,
) -> BackendConfig:
    """The server with this name. ``asks``: as of `lab.addresses.backend`."""
    kind = Http if url.startswith("http") else WebSocket if url.startswith("ws") else Socket
    fields: dict[str, Any] = {
        "target": kind(url),
        "resolve": "a",
        "resolver": (server.address,),
        "name": "s",
        "isolation": "pool",
        "breaker": BreakerConfig(failures=2, pause=0.3),
    }
    address = HealthConfig(interval=asks, timeout=1.5)
    return delayed(
        BackendConfig(**{**fields, **options}), slow_start=0.2, address=address, names=names
    )


@contextlib.asynccontextmanager
async def mills(*ips: str, scheme: str = "http") -> AsyncIterator[list[Place]]:
    """Servers at one port of these addresses. Each has its address as its name."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[Place] = []
        for ip in ips:
            port = found[0].port if found else 0
            one = Place(ip, scheme, ip=ip, port=port, hosts=[NAME])
            found.append(await stack.enter_async_context(one.serving()))
        yield found


def url_of(places: list[Place]) -> str:
    return f"http://{NAME}:{places[0].port}/mcp"


async def calls(client: Client, stop: asyncio.Event) -> set[str]:
    """Call until then. Every call has to succeed."""
    found = set()
    while not stop.is_set():
        found.add((await client.call_tool("who")).text)
    return found


# -- the addresses ---------------------------------------------------------------------------------


async def test_requests_are_spread_over_the_addresses_of_a_name() -> None:
    """Both families. The servers see the name, operators see the addresses."""
    admin = AdminConfig(listen="http://127.0.0.1:0", token=TOKEN)
    async with mills("127.0.0.1", "127.0.0.2", "::1") as three, nameserver() as dns:
        dns.have(NAME, "A", "127.0.0.1", "127.0.0.2")
        dns.have(NAME, "AAAA", "::1")
        async with (
            gateway(named(dns, url_of(three)), admin=admin) as gate,
            gate.client() as client,
        ):
            await all_up(gate)
            assert await called(client, 30) == {"127.0.0.1": 10, "127.0.0.2": 10, "::1": 10}
            host = (await client.call_tool("host")).text
            assert host == f"{NAME}:{three[0].port}"
            (found,) = (await fetch(gate.admin_port, "/status")).json["backends"]
            assert {one["url"] for one in found["servers"]} == {one.url for one in three}
            assert found["names"]["ok"] > 0
            text = (await fetch(gate.admin_port, "/metrics")).text
            assert 'wirespeed_proxy_name_lookups_total{backend="s",outcome="ok"} ' in text
            assert f'requests_answered_total{{backend="s",url="{three[1].url}"}} ' in text


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_other_schemes(scheme: str) -> None:
    async with nameserver() as dns:
        hosts = None if scheme == "tcp" else [NAME]
        async with Place("a", scheme, hosts=hosts).serving() as one:
            dns.have(NAME, "A", "127.0.0.1")
            path = "" if scheme == "tcp" else "/mcp"
            config = named(dns, f"{scheme}://{NAME}:{one.port}{path}")
            async with gateway(config) as gate, gate.client() as client:
                assert await called(client, 3) == {"a": 3}


async def test_addresses_come_and_go() -> None:
    """What an address works on is answered, a legacy session keeps its address, and no call
    fails."""
    async with mills("127.0.0.1", "127.0.0.2", "127.0.0.3") as three, nameserver() as dns:
        dns.have(NAME, "A", "127.0.0.1")
        async with (
            gateway(named(dns, url_of(three))) as gate,
            gate.client() as client,
            gate.client(era="legacy") as old,
        ):
            await all_up(gate, 1)
            assert await called(old, 2) == {"127.0.0.1": 2}
            three[0].go.clear()
            held = asyncio.ensure_future(client.call_tool("who"))
            await until(lambda: three[0].seen["who"] == 3)
            stop = asyncio.Event()
            dns.have(NAME, "A", "127.0.0.2", "127.0.0.3")
            await until(lambda: len(pool_of(gate).modern) == 2)
            await all_up(gate, 2)
            calling = asyncio.ensure_future(calls(client, stop))
            await until(lambda: all(one.seen["who"] > 5 for one in three[1:]))
            stop.set()
            assert await calling == {"127.0.0.2", "127.0.0.3"}
            assert not held.done()
            three[0].go.set()
            assert (await held).text == "127.0.0.1"
            assert await called(old, 2) == {"127.0.0.1": 2}
            async with gate.client(era="legacy") as new:
                assert set(await called(new, 2)) <= {"127.0.0.2", "127.0.0.3"}


async def test_with_auto_a_legacy_client_keeps_its_address() -> None:
    async with mills("127.0.0.1", "127.0.0.2") as two, nameserver() as dns:
        dns.have(NAME, "A", "127.0.0.1")
        config = named(dns, url_of(two), isolation="auto")
        async with gateway(config) as gate, gate.client(era="legacy") as old:
            assert await called(old, 2) == {"127.0.0.1": 2}
            dns.have(NAME, "A", "127.0.0.2")
            await until(
                lambda: (
                    [one.address.url.at for one in pool_of(gate).modern]
                    == [f"127.0.0.2:{two[0].port}"]
                )
            )
            await all_up(gate, 1)
            assert await called(old, 2) == {"127.0.0.1": 2}
            async with gate.client(era="legacy") as new:
                assert await called(new, 2) == {"127.0.0.2": 2}


@pytest.mark.parametrize("isolation", ["auto", "pool"])
async def test_a_legacy_client_gets_another_address_when_a_removed_one_ends(
    isolation: Any,
) -> None:
    async with mills("127.0.0.1", "127.0.0.2") as two, nameserver() as dns:
        dns.have(NAME, "A", "127.0.0.1")
        config = named(dns, url_of(two), isolation=isolation)
        async with gateway(config) as gate, gate.client(era="legacy") as old:
            assert await called(old, 2) == {"127.0.0.1": 2}
            dns.have(NAME, "A", "127.0.0.2")
            await until(
                lambda: (
                    [one.address.target.connect_to for one in pool_of(gate).modern]
                    == [f"127.0.0.2:{two[0].port}"]
                )
            )
            await all_up(gate, 1)
            await two[0].close()
            n = two[1].seen["who"]
            async with asyncio.timeout(20):
                while two[1].seen["who"] == n:
                    with contextlib.suppress(WirespeedError):
                        await old.call_tool("who")


# -- answers of another kind -----------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["servfail", "refused", "silent", "garbage"])
async def test_a_look_up_that_fails_changes_nothing(
    fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one line about it, and one about its end."""
    caplog.set_level(logging.INFO, "wirespeed.proxy")
    async with mills("127.0.0.1", "127.0.0.2") as two, nameserver() as dns:
        dns.have(NAME, "A", "127.0.0.1", "127.0.0.2")
        config = named(dns, url_of(two), SOON._replace(timeout=1.0))
        async with gateway(config) as gate, gate.client() as client:
            await all_up(gate, 2)
            names = gate.proxy.services["s"].names
            assert names is not None
            dns.fault = fault
            await until(lambda: names.counts["failed"] > 1)
            assert await called(client, 10) == {"127.0.0.1": 5, "127.0.0.2": 5}
            dns.fault = ""
            good = names.counts["ok"]
            await until(lambda: names.counts["ok"] > good)
    lines = [one.message for one in caplog.records if "looked up" in one.message]
    assert len(lines) == 2
    assert lines[0].startswith(f"s: {NAME} cannot be looked up: ")
    assert lines[1] == f"s: {NAME} can be looked up again"


async def test_a_family_that_fails_keeps_its_addresses() -> None:
    async with mills("127.0.0.1", "::1") as two, nameserver() as dns:
        dns.have(NAME, "A", "127.0.0.1")
        dns.have(NAME, "AAAA", "::1")
        async with gateway(named(dns, url_of(two))) as gate:
            await all_up(gate, 2)
            dns.faulty, dns.fault = {"AAAA"}, "servfail"
            n = dns.asked["AAAA"]
            await until(lambda: dns.asked["AAAA"] > n + 3)
            assert len(pool_of(gate).modern) == 2


async def test_a_name_without_addresses(caplog: pytest.LogCaptureFixture) -> None:
    """They are drained when the answer has stayed for a while, and come back with the name."""
    async with mills("127.0.0.1") as one, nameserver() as dns:
        dns.have(NAME, "A", "127.0.0.1")
        admin = AdminConfig(listen="http://127.0.0.1:0", token=TOKEN)
        config = named(dns, url_of(one), SOON._replace(stays=NEVER))
        async with gateway(config, admin=admin) as gate, gate.client() as client:
            await all_up(gate, 1)
            for fault in ("nxdomain", ""):
                dns.fault = fault  # type: ignore[assignment]
                dns.have(NAME, "A")
                n = dns.asked["A"]
                await until(lambda n=n: dns.asked["A"] > n + 3)
                assert await called(client, 3) == {"127.0.0.1": 3}
        assert [r.message for r in caplog.records if "has no addresses" in r.message] == [
            f"s: {NAME} has no addresses; those that are known stay for 3600 s"
        ]
        dns.have(NAME, "A", "127.0.0.1")
        async with (
            gateway(named(dns, url_of(one)), admin=admin) as gate,
            gate.client() as client,
            gate.client(era="legacy") as old,
        ):
            await all_up(gate, 1)
            assert await called(old, 1) == {"127.0.0.1": 1}
            dns.have(NAME, "A")
            await until(lambda: not pool_of(gate).modern)
            with raises(RemoteError, code=LOST):
                await client.call_tool("who")
            assert await called(old, 1) == {"127.0.0.1": 1}
            (found,) = (await fetch(gate.admin_port, "/status")).json["backends"]
            assert found["names"]["empty"] > 0 and found["state"] == "down"
            assert (await fetch(gate.admin_port, "/readyz", {})).status == 503
            dns.have(NAME, "A", "127.0.0.1")
            await until(lambda: pool_of(gate).modern)
            await all_up(gate, 1)
            assert await called(client, 3) == {"127.0.0.1": 3}


@pytest.mark.parametrize("isolation", ["auto", "pool"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_name_that_is_not_there_at_first(isolation: Any, era: Any) -> None:
    """Requests do not wait for it. Another server makes the proxy start without this one."""
    async with mills("127.0.0.1") as one, nameserver() as dns:
        config = named(dns, url_of(one), isolation=isolation)
        async with gateway(config, BackendConfig(target=Http(one[0].url), name="o")) as gate:
            await until(lambda: dns.asked["A"] > 2)
            await until(lambda: pool_of(gate) is not None)
            with raises(RemoteError, code=LOST):
                async with gate.client(era=era, path="/servers/s") as client:
                    await client.call_tool("who")
            dns.have(NAME, "A", "127.0.0.1")
            await until(lambda: pool_of(gate).modern)
            await all_up(gate, 1)
            async with gate.client(era=era, path="/servers/s") as client:
                assert await called(client, 3) == {"127.0.0.1": 3}


async def test_the_only_server_has_no_address() -> None:
    """As where a server refuses connections, the proxy does not start."""
    async with nameserver() as dns:
        with raises(TransportError):
            await gateway(named(dns, f"http://{NAME}/mcp")).__aenter__()


# -- SRV -------------------------------------------------------------------------------------------


async def test_srv_records() -> None:
    """Ports and weights are those of the records, and Host is the name without the service."""
    async with nameserver() as dns, contextlib.AsyncExitStack() as stack:
        three = [
            await stack.enter_async_context(Place(name, hosts=[NAME]).serving()) for name in "abc"
        ]
        dns.have(
            SRV,
            "SRV",
            *(
                f"0 {weight} {one.port} {one.name}.{NAME}."
                for one, weight in zip(three, (1, 2, 3), strict=True)
            ),
        )
        for one in three:
            dns.have(f"{one.name}.{NAME}", "A", "127.0.0.1")
        config = named(dns, f"http://{SRV}/mcp", resolve="srv")
        async with gateway(config) as gate, gate.client() as client:
            await all_up(gate)
            assert await called(client, 60) == {"a": 10, "b": 20, "c": 30}
            assert (await client.call_tool("host")).text == NAME
            # a target whose addresses cannot be asked for keeps those that it had
            dns.fault, dns.faulty = "servfail", {"A", "AAAA"}
            dns.faulty_names = {f"c.{NAME}"}
            dns.have(SRV, "SRV", *(f"0 1 {one.port} {one.name}.{NAME}." for one in three[1:]))
            await until(lambda: len(pool_of(gate).modern) == 2)
            assert set(await called(client, 10)) == {"b", "c"}
            dns.have(SRV, "SRV", "0 0 0 .")
            await until(lambda: not pool_of(gate).modern)
            with raises(RemoteError, code=LOST):
                await client.call_tool("who")


async def test_addresses_of_a_later_priority_stand_by() -> None:
    async with nameserver() as dns, contextlib.AsyncExitStack() as stack:
        two = [
            await stack.enter_async_context(Place(name, hosts=[NAME]).serving()) for name in "ab"
        ]
        dns.have(SRV, "SRV", f"20 9 {two[1].port} {NAME}.", f"10 0 {two[0].port} {NAME}.")
        dns.have(NAME, "A", "127.0.0.1")
        config = named(dns, f"http://{SRV}/mcp", resolve="srv", asks=0.1)
        async with gateway(config) as gate, gate.client() as client:
            await all_up(gate, 2)
            assert await called(client, 10) == {"a": 10}
            async with gate.client(era="legacy") as old:
                assert await called(old, 2) == {"a": 2}
            await two[0].close()
            await all_up(gate, 1)
            assert await called(client, 10) == {"b": 10}
            async with gate.client(era="legacy") as old:
                assert await called(old, 2) == {"b": 2}
            await two[0].open()
            await all_up(gate, 2)
            assert await called(client, 10) == {"a": 10}


# -- the times of look-ups, and the most addresses ------------------------------------------------


class Taken:
    """Takes the addresses of a server.

    Attributes:
        urls: Each time.
    """

    def __init__(self) -> None:
        self.urls: list[tuple[NamedUrl, ...]] = []

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    def readdress(self, urls: tuple[NamedUrl, ...]) -> None:
        self.urls.append(urls)


@contextlib.asynccontextmanager
async def watched(config: BackendConfig) -> AsyncIterator[Taken]:
    """Look the name of a server up meanwhile."""
    taken = Taken()
    names = NameWatch(config, taken)
    await names.start()
    try:
        yield taken
    finally:
        await names.stop()


async def test_a_thousand_addresses(caplog: pytest.LogCaptureFixture) -> None:
    """The answer comes over TCP. A hundred are used, and nearly the same ones when one goes."""
    ips = [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(1000)]
    async with nameserver() as dns:
        dns.have(NAME, "A", *ips)
        async with watched(named(dns, f"http://{NAME}/mcp")) as taken:
            first = set(taken.urls[0])
            assert len(first) == 100 and dns.asked["tcp"] >= 1
            dns.have(NAME, "A", *(ip for ip in ips if f"{ip}:80" != taken.urls[0][0].at))
            await until(lambda: set(taken.urls[-1]) != first)
            assert len(set(taken.urls[-1]) & first) == 99
            dns.have(SRV, "SRV", *(f"0 65535 {n + 1} {NAME}." for n in range(1000)))
            dns.have(NAME, "A", "10.0.0.1")
        assert len([one for one in caplog.records if "of which 100 are used" in one.message]) == 1
        async with watched(named(dns, f"http://{SRV}/mcp", resolve="srv")) as taken:
            assert len(taken.urls[0]) == 100
            assert {one.weight for one in taken.urls[0]} == {1000}


async def test_a_ttl_of_nothing_does_not_flood_the_nameserver() -> None:
    async with nameserver() as dns:
        dns.have(NAME, "A", "10.0.0.1")
        config = named(dns, f"http://{NAME}/mcp", SOON._replace(least=NEVER, most=NEVER))
        async with watched(config), watched(named(dns, f"http://{NAME}/mcp")) as often:
            await until(lambda: len(often.urls) > 5)
            assert dns.asked["A"] <= len(often.urls) + 2


async def test_a_long_ttl_ends_after_a_while() -> None:
    async with nameserver() as dns:
        dns.ttl = 86_400
        dns.have(NAME, "A", "10.0.0.1")
        async with watched(named(dns, f"http://{NAME}/mcp")) as taken:
            dns.have(NAME, "A", "10.0.0.2")
            await until(lambda: taken.urls[-1][0].at == "10.0.0.2:80")


async def test_each_principal_has_the_addresses() -> None:
    """The name is looked up once for all of them."""

    identity = IdentityConfig(type="header", header="X-User", credential=lambda name: f"of {name}")
    people = principal("anne"), principal("bob")
    async with mills("127.0.0.1", "127.0.0.2") as two, nameserver() as dns:
        dns.have(NAME, "A", "127.0.0.1")
        config = named(dns, url_of(two), isolation="auto", identity=identity)
        async with (
            gateway(config, principals=people) as gate,
            gate.client("anne") as anne,
            gate.client("bob") as bob,
        ):
            for client, name in ((anne, "anne"), (bob, "bob")):
                assert (await client.call_tool("user")).text == f"of {name}"
            dns.have(NAME, "A", "127.0.0.2")
            seen = two[1].seen
            for client in (anne, bob):
                n = seen["who"]
                while seen["who"] == n:
                    await client.call_tool("who")


# -- the configuration -----------------------------------------------------------------------------


@every(
    ("change", "text"),
    [
        ({"resolve": "aaaa"}, 'resolve is "a" or "srv"'),
        ({"resolve": None}, "resolver is for a server with resolve"),
        ({"urls": ("http://mill.test/mcp", "http://b/mcp")}, "urls and resolve do not go together"),
        ({"target": Http("http://10.0.0.1/mcp")}, "a URL whose host is a name"),
        ({"target": Http("http://[::1]/mcp")}, "a URL whose host is a name"),
        ({"target": Socket("unix:/x")}, "a URL whose host is a name"),
        ({"target": Http("http://m/", connect_to="10.0.0.1:1")}, "a URL whose host is a name"),
        ({"target": Stdio("x")}, "resolve is for servers of MCP that have a URL"),
        ({"isolation": "session"}, 'with resolve, isolation is "auto" or "pool"'),
        ({"spares": 1}, "resolve and spares do not go together"),
        ({"protocol": "litemcp"}, "resolve is for servers of MCP that have a URL"),
        ({"resolver": ("ns.test",)}, "is not an IP address and a port"),
        ({"resolver": ("10.0.0.1:0",)}, "is not an IP address and a port"),
        ({"resolve": "srv", "target": Http("http://m:8000/")}, "leave it out of the URL"),
        ({"resolve": "srv", "target": Http("http://_mcp._tcp/")}, "_service._tcp. and a name"),
    ],
)
def test_faulty_configuration(change: dict[str, Any], text: str) -> None:
    good: dict[str, Any] = {
        "target": Http("http://mill.test/mcp"),
        "resolve": "a",
        "resolver": ("10.0.0.1", "10.0.0.1:5353", "::1", "[::1]:53"),
        "isolation": "pool",
    }
    BackendConfig(**good)
    with pytest.raises((TypeError, ValueError), match=text):
        BackendConfig(**{**good, **change})


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text("""
[mcpServers.mill]
url = "http://_mcp._tcp.mill.test/mcp"

[mcpServers.mill.proxy]
resolve = "srv"
resolver = ["10.0.0.2"]
""")
    (found,) = load(path).backends
    assert (found.resolve, found.resolver) == ("srv", ("10.0.0.2",))


def test_a_proxy_without_names_does_not_load_dnspython() -> None:
    text = """
import sys
from wirespeed import Http
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
one = BackendConfig(target=Http("http://127.0.0.1:1/mcp"))
Proxy(ProxyConfig(backends=(one,), listen=("http://127.0.0.1:0/mcp",)))
print([name for name in sys.modules if name.split(".")[0] == "dns"])
"""
    found = subprocess.run((sys.executable, "-c", text), capture_output=True, check=True)
    assert found.stdout == b"[]\n"

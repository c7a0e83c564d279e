"""Lists of a shared server are kept while they hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab.gateway import gateway, inside
from lab.principals import PRINCIPALS
from lab.rows import every

from wirespeed import Server
from wirespeed.core import parse
from wirespeed.proxy import BackendConfig
from wirespeed.proxy.list_cache import MAX_ENTRIES, ListCache
from wirespeed.types import CallNext, InboundRequest, Reply

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

LEGACY, MODERN = ("2025-11-25",), ("2026-07-28",)
WS = "ws://127.0.0.1:0/mcp"


class Behind:
    """A server, and how often it was asked for its tools."""

    def __init__(self, name: str = "a", **options: Any) -> None:
        self.server = Server(name, **options)
        self.n_lists = 0

        @self.server.tool
        async def who() -> str:
            return name

        @self.server.tool
        async def secret() -> str:
            return "secret"

        @self.server.add_middleware
        async def count(request: InboundRequest, call_next: CallNext) -> Reply | None:
            self.n_lists += request.method == "tools/list"
            return await call_next(request)

    def backend(self, **options: Any) -> BackendConfig:
        return inside(self.server.name, self.server, **options)


async def names(client: Any) -> set[str]:
    return {tool.name for tool in await client.list_tools()}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_until_it_changes(era: Any) -> None:
    """A server of a legacy era is asked again after each change, for clients of both eras."""
    behind = Behind(versions=LEGACY)
    async with (
        gateway(behind.backend(), listen=WS) as gate,
        gate.client(era=era, cache=False) as one,
        gate.client(cache=False) as other,
    ):
        for _ in range(3):
            assert await names(one) == await names(other) == {"who", "secret"}
        n = behind.n_lists
        assert n <= 2
        behind.server.remove_tool("secret")
        while await names(one) != {"who"}:  # its word may still be on the way
            pass
        assert await names(other) == {"who"}
        assert behind.n_lists == n + 1


async def test_as_long_as_it_says() -> None:
    for ttl, n in ((0, 4), (60_000, 1)):
        behind = Behind(versions=MODERN, list_ttl_ms=ttl, cache_scope="public")
        async with (
            gateway(behind.backend()) as gate,
            gate.client(cache=False) as one,
            gate.client(cache=False) as other,
        ):
            for _ in range(2):
                await names(one)
                await names(other)
        assert behind.n_lists == n


@pytest.mark.parametrize("path", ["/mcp", "/servers/a"])
async def test_private_lists(path: str) -> None:
    """A private list is for its principal; what a principal may not see is left out of each."""
    behind = Behind(versions=MODERN, list_ttl_ms=60_000)
    other = Behind("b", versions=MODERN)
    async with gateway(behind.backend(), other.backend(), principals=PRINCIPALS) as gate:
        prefix = "a_" if path == "/mcp" else ""
        for _ in range(2):
            async with gate.client("anne", path=path, cache=False) as anne:
                for _ in range(2):
                    assert f"{prefix}secret" not in await names(anne)
            async with gate.client("root", path=path, cache=False) as root:
                for _ in range(2):
                    assert f"{prefix}secret" in await names(root)
    assert behind.n_lists == 2


async def test_what_is_not_kept() -> None:
    for options in ({"cache_lists": False}, {"isolation": "session"}):
        behind = Behind(versions=LEGACY)
        async with (
            gateway(behind.backend(**options), listen=WS) as gate,
            gate.client(era="legacy", cache=False) as client,
        ):
            for _ in range(3):
                await names(client)
        assert behind.n_lists == 3, options


async def test_pages_and_a_pool() -> None:
    behind = Behind(versions=MODERN, list_ttl_ms=60_000, page_size=1)
    backend = behind.backend(isolation="pool", size=2)
    async with gateway(backend) as gate, gate.client(cache=False) as client:
        for _ in range(3):
            assert await names(client) == {"who", "secret"}
    assert behind.n_lists == 2  # its two pages


# -- the cache itself ------------------------------------------------------------------------------


class Asker:
    outer = None
    peer = None

    def __init__(self, principal: bytes | None = None) -> None:
        self.principal = principal


def asked(method: str = "tools/list", **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return parse(json.dumps(message).encode())


def answered(**result: Any) -> Any:
    return parse(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode())


def kept(cache: ListCache, asker: Any, message: Any) -> Any:
    key = cache.key(asker, message)
    found = None if key is None else cache.find(key)
    return None if found is None else json.loads(bytes(found.result))


ANNE, BOB = Asker(b"anne"), Asker(b"bob")


def test_scopes_and_times() -> None:
    now = [0.0]
    cache = ListCache(None, lambda: now[0])
    key = cache.key(ANNE, asked())  # type: ignore[arg-type]
    assert key is not None
    cache.keep(key, answered(tools=[1], ttlMs=1000))
    assert kept(cache, BOB, asked()) is None
    assert kept(cache, ANNE, asked(cursor="x")) is None
    now[0] = 0.4
    assert kept(cache, ANNE, asked(_meta={"progressToken": 1})) == {"tools": [1], "ttlMs": 600}
    now[0] = 1.0
    assert kept(cache, ANNE, asked()) is None
    assert len(cache) == 0
    cache.keep(key, answered(tools=[2], ttlMs=1000, cacheScope="public"))
    assert kept(cache, BOB, asked())["tools"] == [2]


def test_changes_on_the_way() -> None:
    cache = ListCache({"tools": {"listChanged": True}, "prompts": {}})
    early = cache.key(ANNE, asked())  # type: ignore[arg-type]
    assert early is not None
    cache.heard("notifications/tools/list_changed")
    cache.keep(early, answered(tools=[1]))
    assert kept(cache, ANNE, asked()) is None
    late = cache.key(ANNE, asked())  # type: ignore[arg-type]
    assert late is not None
    cache.keep(late, answered(tools=[2]))
    assert kept(cache, BOB, asked()) == {"tools": [2]}
    cache.heard("notifications/prompts/list_changed")
    cache.heard(None)
    cache.heard("list_changed")
    assert len(cache) == 1
    cache.heard("notifications/tools/list_changed")
    assert len(cache) == 0
    assert cache.key(ANNE, asked("prompts/list")) is None  # type: ignore[arg-type]
    assert cache.key(ANNE, asked("tasks/list")) is None  # type: ignore[arg-type]


@every("result", [{"ttlMs": 0}, {"ttlMs": -1}, {"ttlMs": True}, {"ttlMs": "5"}, {"ttlMs": 1.5}, {}])
def test_what_does_not_hold(result: Any) -> None:
    cache = ListCache(None)
    key = cache.key(ANNE, asked())  # type: ignore[arg-type]
    assert key is not None
    cache.keep(key, answered(**result))
    assert len(cache) == 0


def test_what_a_list_depends_on() -> None:
    cache = ListCache(None)
    mine = asked(_meta={"a.example/tenant": "x"})
    key = cache.key(ANNE, mine)  # type: ignore[arg-type]
    assert key is not None
    cache.keep(key, answered(tools=[1], ttlMs=60_000, cacheScope="public"))
    assert kept(cache, ANNE, asked()) is None
    assert kept(cache, ANNE, asked(_meta={"a.example/tenant": "y"})) is None
    log = {"a.example/tenant": "x", "io.modelcontextprotocol/logLevel": "debug"}
    assert kept(cache, BOB, asked(_meta=log))["tools"] == [1]


def test_more_than_python_can_hold() -> None:
    """Such an answer is passed on, and a fault of one answer is not one of its connection."""
    cache = ListCache(None)
    key = cache.key(ANNE, asked())  # type: ignore[arg-type]
    assert key is not None
    for held in (
        b'"ttlMs":1%b' % (b"0" * 400),
        b'"ttlMs":5,"tools":%b%b' % (b"[" * 1000, b"]" * 1000),
    ):
        text = b'{"jsonrpc":"2.0","id":1,"result":{%b}}' % held
        cache.keep(key, parse(text, max_depth=1024))
        cache.find(key)


def test_bounds() -> None:
    cache = ListCache(None)
    for n in range(MAX_ENTRIES + 10):
        key = cache.key(ANNE, asked(cursor=str(n)))  # type: ignore[arg-type]
        assert key is not None
        cache.keep(key, answered(tools=[n], ttlMs=60_000))
    assert len(cache) == MAX_ENTRIES
    assert kept(cache, ANNE, asked(cursor="0")) is None
    assert kept(cache, ANNE, asked(cursor=str(MAX_ENTRIES)))["tools"] == [MAX_ENTRIES]

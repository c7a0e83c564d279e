"""HTTP clients of the proxy without a session: no request changes what becomes of another one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.http_front import Front, asked, fields, hello, serving
from lab.merge import MergeLab
from lab.principals import PRINCIPALS, TOKENS
from lab.proxy import ENVELOPE, MODERN, call, said

from wirespeed import Http, Server, serve
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.server.context import Context

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

ECHO = asked("tools/call", name="echo", arguments={"nonce": 5})


async def echoes(front: Front) -> None:
    status, _, answer = await front.post(ECHO, *fields("tools/call", "echo"))
    assert (status, said(answer)["nonce"]) == (200, 5)


@pytest.mark.parametrize("versions", [MODERN, f"2025-11-25 {MODERN}", ""])
@pytest.mark.parametrize("isolation", ["auto", "shared", "pool"])
async def test_a_legacy_body_whose_field_names_2026_07_28(
    tmp_path: Path, isolation: str, versions: str
) -> None:
    if isolation == "auto" and not versions:
        return  # such a server has no clients of 2026-07-28
    async with serving(tmp_path, isolation, versions=versions) as front:
        await echoes(front)
        for body in (hello(), call(1, "echo"), {"jsonrpc": "2.0", "id": 1, "method": "ping"}):
            for more in (fields(body["method"]), [f"MCP-Protocol-Version: {MODERN}"]):
                status, got, answer = await front.post(body, *more)
                assert (status, answer["error"]["code"]) == (400, -32602)
                assert "mcp-session-id" not in got
        await echoes(front)
        # the fields of a request count as before
        status, _, answer = await front.post(ECHO, f"MCP-Protocol-Version: {MODERN}")
        assert (status, answer["error"]["code"]) == (400, -32020)


@pytest.mark.parametrize(("path", "name"), [("/servers/a", "who"), ("/mcp", "a_who")])
async def test_what_one_principal_sends_is_refused_to_it_alone(
    tmp_path: Path, path: str, name: str
) -> None:
    lab = MergeLab(tmp_path, principals=PRINCIPALS)
    lab.backends = [lab.backend("a", isolation="shared"), lab.backend("b")]
    body = asked("tools/call", name=name, arguments={"nonce": "n"})
    anne, root = (f"Authorization: Bearer {TOKENS[one]}" for one in ("anne", "root"))
    async with lab.serving("http://127.0.0.1:0/mcp") as urls:
        front = Front(lab, urls[0])
        front.path = path

        async def served(who: str) -> None:
            status, _, answer = await front.post(body, *fields("tools/call", name), who)
            assert (status, answer["result"]["content"][0]["text"]) == (200, "a:n")

        for _ in range(2):
            for wrong in (fields("initialize"), [f"MCP-Protocol-Version: {MODERN}"]):
                await served(root)
                status, got, answer = await front.post(hello(), *wrong, anne)
                assert (status, answer["error"]["code"]) == (400, -32602)
                assert "mcp-session-id" not in got
                await served(root)
                await served(anne)


@pytest.mark.parametrize("isolation", ["auto", "shared", "pool", "session"])
async def test_a_response_whose_field_names_2026_07_28(tmp_path: Path, isolation: str) -> None:
    async with serving(tmp_path, isolation, versions=MODERN) as front:
        for body in (
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
        ):
            status, _, answer = await front.post(body, f"MCP-Protocol-Version: {MODERN}")
            assert (status, answer["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize("isolation", ["auto", "shared", "pool"])
async def test_initialize_with_an_envelope_is_no_handshake(tmp_path: Path, isolation: str) -> None:
    async with serving(tmp_path, isolation, versions=f"2025-11-25 {MODERN}") as front:
        await echoes(front)
        body = hello()
        body["params"]["_meta"] = ENVELOPE
        status, _, answer = await front.post(body, *fields("initialize"))
        assert (status, answer["error"]["code"]) == (404, -32601)
        await echoes(front)
        assert [m["method"] for m in front.lab.read("initialize")] == []


# -- a server behind over HTTP ---------------------------------------------------------------------


class Behind:
    """A server over HTTP behind a proxy over HTTP, and its tool that waits."""

    def __init__(self) -> None:
        self.server = Server("behind", version="1")
        self.started = asyncio.Event()
        self.go = asyncio.Event()

        @self.server.tool
        async def wait(ctx: Context) -> str:
            self.started.set()
            await self.go.wait()
            return "went"

        @self.server.tool
        async def echo(nonce: int) -> int:
            return nonce


@contextlib.asynccontextmanager
async def listening(serving: Any) -> AsyncIterator[str]:
    """The first URL of what serves meanwhile."""
    found: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serving(found.set_result))
    await asyncio.wait((task, found), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield found.result()[0]
    finally:
        task.cancel()
        await asyncio.wait((task,))


@contextlib.asynccontextmanager
async def proxied(behind: Behind, isolation: str) -> AsyncIterator[Front]:
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(
            listening(
                lambda told: serve("http://127.0.0.1:0/mcp", behind.server, on_listening=told)
            )
        )
        backend = BackendConfig(name="b", target=Http(url), isolation=isolation)  # type: ignore[arg-type]
        proxy = Proxy(ProxyConfig(backends=(backend,), listen=("http://127.0.0.1:0/mcp",)))
        url = await stack.enter_async_context(
            listening(lambda told: proxy.serve(on_listening=told))
        )
        yield Front(None, url)  # type: ignore[arg-type]


@pytest.mark.parametrize("isolation", ["auto", "shared"])
async def test_a_version_that_the_server_behind_does_not_speak(isolation: str) -> None:
    async with proxied(Behind(), isolation) as front:
        for version in ("2099-01-01", "2025-11-25"):
            body = asked("tools/list")
            body["params"]["_meta"] = {
                **ENVELOPE,
                "io.modelcontextprotocol/protocolVersion": version,
            }
            if version == "2025-11-25":  # its field is one of a legacy client
                more = [f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list"]
                expected = -32020
            else:
                more = [f"MCP-Protocol-Version: {version}", "Mcp-Method: tools/list"]
                expected = -32022
            status, _, answer = await front.post(body, *more)
            assert (status, answer["error"]["code"]) == (400, expected)
            if expected == -32022:
                assert answer["error"]["data"]["requested"] == version
                assert MODERN in answer["error"]["data"]["supported"]


@pytest.mark.parametrize("isolation", ["auto", "shared"])
async def test_initialize_with_an_envelope_cuts_nobody_off(isolation: str) -> None:
    behind = Behind()
    async with proxied(behind, isolation) as front:
        waits = asyncio.ensure_future(
            front.post(asked("tools/call", name="wait"), *fields("tools/call", "wait"))
        )
        await behind.started.wait()
        body = hello()
        body["params"]["_meta"] = ENVELOPE
        status, _, answer = await front.post(body, *fields("initialize"))
        assert (status, answer["error"]["code"]) == (404, -32601)
        behind.go.set()
        status, _, answer = await waits
        assert (status, answer["result"]["content"][0]["text"]) == (200, "went")

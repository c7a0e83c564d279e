"""Principals: each sees and calls what it may, over HTTP and WebSocket, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest
from lab.issuer import AUDIENCE, Issuer
from lab.merge import MergeLab
from lab.principals import (
    INFO,
    PRINCIPALS,
    TOKENS,
    Requests,
    client,
    modern,
    principal,
    serving,
    target,
)
from lab.proxy import Lab, call
from lab.wording import raises

from wirespeed import Client, Context, Http, HttpRequest, Server, WebSocket
from wirespeed.auth import hash_token
from wirespeed.errors import RemoteError, WirespeedError
from wirespeed.protocol.codes import INVALID_PARAMS
from wirespeed.proxy import (
    AuthorizationConfig,
    BackendConfig,
    PrincipalConfig,
    Proxy,
    ProxyConfig,
    ToolRules,
    ToolsConfig,
)

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

ERAS = ("legacy", "modern")


@pytest.fixture(params=["http", "ws"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_lists_and_calls(tmp_path: Path, scheme: str, era: str) -> None:
    async with serving(tmp_path, scheme) as url:
        async with client(url, "anne", era) as anne:
            assert [tool.name for tool in await anne.list_tools()] == ["a_who", "a_say"]
            assert (await anne.call_tool("a_who", {"nonce": "1"})).data == "a:1"
            texts = set()
            for name in ("a_secret", "a_hang", "b_who", "none"):
                with pytest.raises(RemoteError) as refused:
                    await anne.call_tool(name)
                assert refused.value.code == INVALID_PARAMS
                texts.add(refused.value.message.replace(name, "NAME"))
            assert texts == {"Unknown tool: NAME"}
            assert {one.name for one in await anne.list_prompts()} == {"a_greet"}
            assert {one.uri for one in await anne.list_resources()} == {"data://common", "data://a"}
            with pytest.raises(RemoteError, match=r"(?i)not found|unknown") as missing:
                await anne.read_resource("data://b")
            assert missing.value.resource_missing
            with raises(RemoteError, code=-32602):
                await anne.get_prompt("b_greet", {"whom": "x"})
            assert "Ask b." not in (anne.instructions or "")
        async with client(url, "bob", era) as bob:
            names = {tool.name for tool in await bob.list_tools()}
            assert "b_secret" in names
            assert all(name.startswith("b_") for name in names)
            common = await bob.read_resource("data://common")
            assert common.contents[0].text == "common of b"  # the first server that bob may use
        async with client(url, "root", era) as root:
            names = {tool.name for tool in await root.list_tools()}
            assert {"a_secret", "b_secret"} <= names
            assert (await root.call_tool("a_secret")).data == "secret"


# Requests of 2026-07-28 over HTTP have no session.
@pytest.mark.parametrize(
    ("scheme", "era", "isolation"),
    [
        *(("ws", era, kind) for era in ERAS for kind in ("session", "shared", "pool")),
        *(("http", "legacy", kind) for kind in ("session", "shared", "pool")),
        *(("http", "modern", kind) for kind in ("shared", "pool")),
    ],
)
async def test_a_server_alone(tmp_path: Path, scheme: str, era: str, isolation: str) -> None:
    async with serving(tmp_path, scheme, isolation) as url:
        async with client(url, "anne", era, "/servers/a") as anne:
            # by the names at the endpoint of all servers
            assert [tool.name for tool in await anne.list_tools()] == ["who", "say"]
            assert (await anne.call_tool("who", {"nonce": "1"})).data == "a:1"
            for name in ("secret", "hang"):
                with pytest.raises(RemoteError) as refused:
                    await anne.call_tool(name)
                assert refused.value.code == INVALID_PARAMS
                assert refused.value.message == f"Unknown tool: {name}"
        with pytest.raises(WirespeedError) as forbidden:
            async with client(url, "bob", era, "/servers/a"):
                pass
        assert "403" in str(forbidden.value)
        async with client(url, "root", era, "/servers/a") as root:
            assert (await root.call_tool("secret")).data == "secret"


@pytest.mark.parametrize("denied", ["secret", "a_secret"])
async def test_a_deny_holds_by_both_names(tmp_path: Path, denied: str) -> None:
    anne = principal("anne", tools=ToolRules(deny=(denied,)))
    lab = MergeLab(tmp_path, principals=(anne,))
    lab.backends = [lab.inside("a")]
    async with lab.serving("http://127.0.0.1:0/mcp") as urls:
        url = next(url for url in urls if url.endswith("/mcp"))

        async def refused(path: str, name: str) -> None:
            async with client(url, "anne", "modern", path) as one:
                assert name not in {tool.name for tool in await one.list_tools()}
                with raises(RemoteError, code=-32602):
                    await one.call_tool(name)

        await refused("/mcp", "secret")
        await refused("/servers/a", "secret")
        other = [*lab.backends, lab.backend("b")]
        config = dataclasses.replace(lab.proxy.config, backends=tuple(other))
        await lab.proxy.reload(config)
        await refused("/mcp", "a_secret")
        await refused("/servers/a", "secret")
        if denied == "secret":
            tools = ToolsConfig(rename={"secret": "open"})
            changed = dataclasses.replace(other[0], prefix="x_", tools=tools)
            await lab.proxy.reload(dataclasses.replace(config, backends=(changed, other[1])))
            await refused("/mcp", "open")
            await refused("/servers/a", "secret")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mcp", "session"),
        ("/mcp", "ws"),
        ("/servers/a", "session"),
        ("/servers/a", "listen"),
        ("/servers/a", "ws"),
    ],
)
@pytest.mark.parametrize("leaves", ["the principal", "its token"])
async def test_a_reload_ends_the_streams_of_a_principal(
    tmp_path: Path, path: str, kind: str, leaves: str
) -> None:
    """Those of a principal that it removes, or whose token it changes. Others keep theirs."""
    lab = MergeLab(tmp_path, principals=(principal("anne"), principal("root")))
    lab.backends = [lab.inside(name, isolation="shared") for name in ("a", "b")]
    scheme = "ws" if kind == "ws" else "http"
    async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls, contextlib.AsyncExitStack() as s:
        url = next(url for url in urls if url.endswith("/mcp"))
        services = [*lab.proxy.services.values(), lab.proxy._whole]

        def n_streams() -> int:
            return sum(
                (front.outer is None and not front.shared) or bool(front.session.inflight.live)
                for service in services
                for front in service.downstreams
            )

        if kind == "ws":
            for name in ("anne", "root"):
                await s.enter_async_context(client(url, name, "legacy", path))
        else:
            anne, root = [await s.enter_async_context(Requests(url)) for _ in range(2)]
            await anne.stream("anne", path, kind)
            await root.stream("root", path, kind)
        before = n_streams()
        others = []
        if leaves == "its token":
            digits = hash_token("another-token-of-the-same-principal").removeprefix("sha256:")
            others.append(PrincipalConfig(name="anne", token_sha256=digits))
        await lab.proxy.reload(
            dataclasses.replace(lab.proxy.config, principals=(principal("root"), *others))
        )
        if kind != "ws":
            async with asyncio.timeout(10):
                await anne.reader.readuntil(b"0\r\n\r\n")
        while n_streams() == before:
            await asyncio.sleep(0.01)
        assert n_streams() == before // 2


async def test_a_reload_that_takes_one_server_from_a_principal(tmp_path: Path) -> None:
    """Its connection to all servers stays, and hears of this server no more."""
    lab = MergeLab(tmp_path, principals=(principal("anne"), principal("root")))
    lab.backends = [lab.inside(name, isolation="shared") for name in ("a", "b")]
    async with lab.serving("ws://127.0.0.1:0/mcp") as urls:
        url = next(url for url in urls if url.endswith("/mcp"))
        async with (
            client(url, "anne", "legacy") as anne,
            client(url, "root", "legacy") as root,
            anne.subscribe(uris=["data://a", "data://b"]) as events,
        ):
            await root.call_tool("b_touch")
            assert (await anext(events)).uri == "data://b"
            fewer = principal("anne", servers=("a",)), principal("root")
            await lab.proxy.reload(dataclasses.replace(lab.proxy.config, principals=fewer))
            for name in ("b_touch", "a_touch"):
                await root.call_tool(name)
            assert (await anext(events)).uri == "data://a"


async def test_requests_on_one_connection_are_of_their_own_principals(tmp_path: Path) -> None:
    async with serving(tmp_path, "http") as url, Requests(url) as requests:
        seen: dict[str, set[str]] = {}
        for name in ("anne", "bob", "anne", "root", "bob"):
            body, *fields = modern("tools/list")
            status, _, answer = await requests.post(body, name, *fields)
            assert status == 200
            tools = {tool["name"] for tool in answer["result"]["tools"]}
            assert seen.setdefault(name, tools) == tools
        assert seen["anne"] == {"a_who", "a_say"}
        assert seen["root"] > seen["bob"]
        body, *fields = modern("tools/call", name="b_who", arguments={})
        for name, error in (("bob", False), ("anne", True), ("root", False)):
            _, _, answer = await requests.post(body, name, *fields)
            assert ("error" in answer) is error


async def test_clients_without_a_good_token(tmp_path: Path) -> None:
    async with serving(tmp_path, "http") as url, Requests(url) as requests:
        body, *fields = modern("tools/list")
        for name in (None, "x" * 40):
            status, found, _ = await requests.post(body, name, *fields)
            assert status == 401
            assert found["www-authenticate"].startswith("Bearer")
        status, found, _ = await requests.post(body, "anne", *fields, path="/servers/b")
        assert status == 403


async def test_a_session_is_of_one_principal(tmp_path: Path) -> None:
    async with serving(tmp_path, "http") as url, Requests(url) as requests:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        status, fields, _ = await requests.post(body, "anne")
        assert status == 200
        session = f"Mcp-Session-Id: {fields['mcp-session-id']}"
        body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert (await requests.post(body, "bob", session))[0] == 404
        assert (await requests.post(body, "anne", session))[0] == 200


# What names a tool in other letters, or twice.
SPELLINGS = [
    r'"method":"tools\/call","params":{"name":"crash"}',
    r'"method":"tools/call","params":{"name":"cr\u0061sh"}',
    r'"method":"tools/call","params":{"name":"echo","n\u0061me":"crash"}',
    r'"method":"tools/call","params":{"n\u0061me":"crash"}',
    r'"method":"tools/call","params":{"n\u0061me":"crash","name":"echo"}',
    r'"method":"tools/call","params":{"name":["crash"]}',
    r'"method":"tools/call","params":{}',
    r'"method":"tools/call"',
    r'"m\u0065thod":"tools/call","params":{"name":"crash"}',
    r'"method":"ping","m\u0065thod":"tools/call","params":{"name":"crash"}',
]


@pytest.mark.parametrize("isolation", ["session", "shared", "pool"])
@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
async def test_no_spelling_calls_a_tool(tmp_path: Path, isolation: str, version: str) -> None:
    lab = Lab(tmp_path, isolation)
    only = principal("anne", tools=ToolRules(allow=("echo",)))
    config = dataclasses.replace(lab.proxy.config, principals=(only,), listen=(HTTP,))
    lab.proxy = Proxy(config)
    urls: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(lab.proxy.serve(on_listening=urls.set_result))
    async with Requests((await urls)[0]) as requests:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": INFO}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        _, fields, _ = await requests.post(body, "anne")
        session = f"Mcp-Session-Id: {fields['mcp-session-id']}"
        for i, text in enumerate(SPELLINGS):
            body = f'{{"jsonrpc":"2.0","id":{i},{text}}}'
            _, _, answer = await requests.post(body, "anne", session)
            assert "error" in answer, text
            if version == "2025-03-26" and isolation != "session":  # whose server has no batches
                good = json.dumps(call("good", "echo"))
                _, _, answers = await requests.post(f"[{body},{good}]", "anne", session)
                assert {one.get("id"): "error" in one for one in answers}["good"] is False
                assert sum("error" in one for one in answers) == 1
        assert {m["params"]["name"] for m in lab.read("tools/call")} <= {"echo"}
        assert TOKENS["anne"] not in lab.seen.read_text()
    serving.cancel()
    await asyncio.wait([serving])


HTTP = "http://127.0.0.1:0/mcp"


@pytest.mark.parametrize("back", ["http", "ws"])
@pytest.mark.parametrize("isolation", ["session", "shared"])
async def test_the_token_of_a_client_is_not_passed_on(back: str, isolation: str) -> None:
    """A server elsewhere gets the credentials of the proxy."""
    seen: list[str | None] = []

    def authenticate(request: HttpRequest) -> bool:
        seen.append(request.token)
        assert TOKENS["anne"] not in str(dict(request.headers))
        return request.token == "of-the-proxy"

    server = Server("far")

    @server.tool
    async def meta(ctx: Context) -> str:
        return json.dumps(dict(ctx.meta))

    urls: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    far = asyncio.ensure_future(
        server.serve(
            f"{back}://127.0.0.1:0/mcp", authenticate=authenticate, on_listening=urls.set_result
        )
    )
    kind = Http if back == "http" else WebSocket
    backend = BackendConfig(
        target=kind((await urls)[0], token="of-the-proxy"), name="far", isolation=isolation
    )
    fronts: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    proxy = Proxy(
        ProxyConfig(backends=(backend,), listen=("ws://127.0.0.1:0/mcp",), principals=PRINCIPALS)
    )
    near = asyncio.ensure_future(proxy.serve(on_listening=fronts.set_result))
    async with Client(target((await fronts)[0], "root")) as one:
        trace = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": "x=y"}
        result = await one.call_tool("meta", meta={**trace, "baggage": "k=v"})
        found = json.loads(result.data)
        assert {**found, **trace, "baggage": "k=v"} == found  # it passes untouched
        assert TOKENS["root"] not in result.data
    assert set(seen) == {"of-the-proxy"}
    for task in (near, far):
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_subjects_of_access_tokens(tmp_path: Path, scheme: str) -> None:
    """Two issuers know the same name, and one of them the name of a principal with a token."""
    async with Issuer() as one, Issuer() as two:
        auth = AuthorizationConfig(resource=AUDIENCE, issuers=(one.url, two.url), scopes=("tools",))
        principals = (
            PrincipalConfig(name="first", subject="anne", issuer=one.url, servers=("a",)),
            PrincipalConfig(name="second", subject="anne", issuer=two.url, servers=("b",)),
            principal("root"),
        )
        lab = MergeLab(tmp_path, principals=principals, auth=auth, audit=str(tmp_path / "audit"))
        lab.backends = [lab.inside(name, isolation="shared") for name in ("a", "b")]
        async with lab.serving(f"{scheme}://127.0.0.1:0/mcp") as urls:
            url = next(url for url in urls if url.endswith("/mcp"))
            kind = WebSocket if scheme == "ws" else Http

            async def tools(token: str) -> set[str]:
                async with Client(kind(url, token=token), era="modern") as client:
                    await client.call_tool(f"{'b' if token == second else 'a'}_who", {"nonce": ""})
                    return {tool.name[:2] for tool in await client.list_tools()}

            good = {"exp": time.time() + 600, "scope": "tools"}
            second = two.token(**good)
            assert await tools(one.token(**good)) == {"a_"}
            assert await tools(second) == {"b_"}
            assert await tools(TOKENS["root"]) == {"a_", "b_"}
            for bad, status in (
                (one.token(**good, sub="bob"), 403),  # no principal
                (one.token(**good, sub="root"), 403),
                (one.token(exp=good["exp"]), 403),  # no scope
                (one.token(**good, aud="https://other.example"), 401),
                (one.token(exp=1, scope="tools"), 401),
            ):
                with pytest.raises(WirespeedError, match=str(status)):
                    await tools(bad)
        found = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
        calls = [line["principal"] for line in found if line["event"] == "call"]
        assert calls == ["first", "second", "root"]


async def test_where_clients_get_tokens(tmp_path: Path) -> None:
    auth = AuthorizationConfig(resource="https://tools.example", issuers=("https://auth.example",))
    lab = MergeLab(tmp_path, auth=auth)
    lab.backends = [lab.inside("a", isolation="shared")]
    async with lab.serving(HTTP) as urls, Requests(urls[0]) as requests:
        body, *fields = modern("tools/list")
        status, found, _ = await requests.post(body, None, *fields)
        assert status == 401
        place = "https://tools.example/.well-known/oauth-protected-resource"
        assert f'resource_metadata="{place}"' in found["www-authenticate"]
        requests.writer.write(
            b"GET /.well-known/oauth-protected-resource HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        )
        head = await requests.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")

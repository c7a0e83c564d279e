"""Scopes of tools, prompts, resources and templates: who may use what, and who sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from lab.asgi import Request
from lab.asgi import message as asgi_message
from lab.http import LEGACY, Peer, call, message, serving
from lab.rows import every
from lab.serve import Bare, exchange, upgrade
from lab.serve import serving as listening
from lab.token import METADATA, TOKENS, bearer, challenge_of, notes, token

from wirespeed import Client, HttpOptions, Server, User
from wirespeed.auth import ResourceServer
from wirespeed.types import InboundRequest, Reply

INSUFFICIENT = -31003

# method, params, and what a client with the scopes gets
USES: dict[str, tuple[str, dict[str, Any], str]] = {
    "tool": ("tools/call", {"name": "t"}, "content"),
    "raw tool": ("tools/call", {"name": "raw"}, "content"),
    "prompt": ("prompts/get", {"name": "p"}, "messages"),
    "resource": ("resources/read", {"uri": "n://fixed"}, "contents"),
    "template": ("resources/read", {"uri": "n://one/1"}, "contents"),
    "completion of a prompt": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "x", "value": ""}},
        "completion",
    ),
    "completion of a template": (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "n://one/{x}"},
            "argument": {"name": "x", "value": ""},
        },
        "completion",
    ),
}


def fill(server: Server) -> Server:
    """Something of each kind that needs the scope `b`."""

    async def found(x: bool = True) -> str:
        return "found"

    def content(x: bool) -> str:
        return "content"

    server.add_tool(found, name="t", scopes=["b"])
    server.tool_raw("raw", {"type": "object"}, lambda arguments: "raw", scopes=["b"])
    server.add_prompt(found, name="p", scopes=["b"])
    server.add_resource("n://fixed", "text", scopes=["b"])
    server.add_resource("n://one/{x}", content, scopes=["b"])
    for ref in ("p", "n://one/{x}"):
        server.completion(ref, "x")(lambda value: ["true", "false"])
    server.add_tool(found, name="free")
    return server


def protected(**options: Any) -> Server:
    tokens = {"some": token("anne", "a"), "all": token("anne", "a", "b")}
    auth = ResourceServer(
        "https://notes.example/mcp", ["https://login.example"], verifier=tokens.get, scopes=["a"],
        **options,
    )  # fmt: skip
    return Server("x", auth=auth)


def mounted(**options: Any) -> Server:
    outer = protected(**options)
    outer.mount("", fill(Server("inner")))
    return outer


@every("make", [lambda: fill(protected()), mounted], ids=["here", "mounted"])
@every("use", USES)
async def test_a_call_needs_its_scopes(use: str, make: Callable[[], Server]) -> None:
    method, params, member = USES[use]
    params = {k: ("n://one/true" if v == "n://one/1" else v) for k, v in params.items()}
    async with serving(make()) as place:
        peer = await place.connect()
        refused = await peer.modern(method, params, **bearer("some"))
        challenge = challenge_of(refused, 403)
        assert challenge.params["error"] == "insufficient_scope"
        assert challenge.scopes == ["a", "b"]  # all that the call needs
        error = refused.json["error"]
        assert error["code"] == INSUFFICIENT and "b" in error["message"]
        assert error["data"] == {
            "error": "insufficient_scope", "scope": "a b", "resource_metadata": METADATA
        }  # fmt: skip
        served = await peer.modern(method, params, **bearer("all"))
        assert served.status == 200 and member in served.json["result"]
        free = await peer.modern("tools/call", {"name": "free"}, **bearer("some"))
        assert free.status == 200 and "www-authenticate" not in free.headers


@pytest.mark.parametrize("response", ["json", "sse"])
async def test_a_legacy_client_gets_the_same(response: Any) -> None:
    async with serving(fill(protected()), http=HttpOptions(response=response)) as place:
        peer = await place.connect()
        opened = await peer.initialize(**bearer("some"))
        fields = {"mcp_session_id": opened.headers["mcp-session-id"]}
        refused = await peer.ask(body=call("t"), **fields, **bearer("some"))
        assert challenge_of(refused, 403).scopes == ["a", "b"]
        assert refused.json["error"]["code"] == INSUFFICIENT
        served = await peer.ask(body=call("t"), **fields, **bearer("all"))
        assert served.status == 200
        for uri, status in (("n://fixed", 403), ("n://other", 200)):
            body = message("resources/subscribe", {"uri": uri}, 5)
            refused = await peer.ask(body=body, **fields, **bearer("some"))
            assert refused.status == status


async def test_a_call_in_a_batch_is_refused_by_itself() -> None:
    async with serving(fill(protected())) as place:
        peer = await place.connect()
        opened = await peer.initialize("2025-03-26", **bearer("some"))
        fields = {"mcp_session_id": opened.headers["mcp-session-id"], **bearer("some")}
        body = b"[%b,%b]" % (call("t", id=1), call("free", id=2))
        answers = {one["id"]: one for one in (await peer.ask(body=body, **fields)).json}
        assert answers[1]["error"]["code"] == INSUFFICIENT and "result" in answers[2]


async def test_a_subscription_needs_the_scopes_of_its_resources() -> None:
    async with serving(fill(protected())) as place:
        peer = await place.connect()
        wanted = {"notifications": {"resourceSubscriptions": ["n://fixed"]}}
        refused = await peer.modern("subscriptions/listen", wanted, **bearer("some"))
        assert challenge_of(refused, 403).scopes == ["a", "b"]


async def test_the_token_of_the_request_counts_behind_middleware_that_waits() -> None:
    """Not the token of another request that came meanwhile."""
    server = fill(protected())
    order: list[asyncio.Future[None]] = []

    @server.add_middleware
    async def wait(request: InboundRequest, call_next: Any) -> Reply | None:
        if request.method == "tools/call":
            order.append(asyncio.get_running_loop().create_future())
            await order[-1]
        reply: Reply | None = await call_next(request)
        return reply

    async with serving(server) as place:
        weak, strong = await place.connect(), await place.connect()
        opened = await weak.initialize(**bearer("some"))
        fields = {"mcp_session_id": opened.headers["mcp-session-id"]}
        weak.send(body=call("t", id=1), **fields, **bearer("some"))
        strong.send(body=call("t", id=2), **fields, **bearer("all"))
        async with asyncio.timeout(20):
            while len(order) < 2:
                await asyncio.sleep(0.002)
        for one in order:
            one.set_result(None)
        assert (await weak.response()).status == 403
        assert (await strong.response()).status == 200


async def test_a_user_of_the_listener_has_scopes_too() -> None:
    server = fill(Server("x"))

    def authenticate(request: Any) -> User:
        return User("anne", scopes=["b"] if request.token == "all" else [])

    async with serving(server, authenticate=authenticate) as place:
        peer = await place.connect()
        refused = await peer.modern("tools/call", {"name": "t"}, **bearer("some"))
        assert refused.status == 403
        field = refused.headers["www-authenticate"]
        assert field == 'Bearer error="insufficient_scope", scope="b"'
        assert (await peer.modern("tools/call", {"name": "t"}, **bearer("all"))).status == 200


@pytest.mark.parametrize("options", [{}, {"token": "static"}])
async def test_where_nobody_has_a_name_nobody_has_scopes(options: Any) -> None:
    async with serving(fill(Server("x")), **options) as place:
        peer = await place.connect()
        refused = await peer.modern("tools/call", {"name": "t"}, **bearer("static"))
        assert refused.status == 403
        assert (await peer.modern("tools/call", {"name": "free"}, **bearer("static"))).status == 200


async def test_a_client_in_the_same_process_needs_no_token() -> None:
    """As on stdio: MCP basic/authorization leaves both to their environment."""
    async with Client(fill(protected(filter_lists=True))) as client:
        assert not (await client.call_tool("t")).is_error
        assert len(await client.list_tools()) == 3


# -- lists -----------------------------------------------------------------------------------------

LISTS = {"tools": "tools", "prompts": "prompts", "resources": "resources"}


async def names(peer: Peer, who: str, list_: str = "tools") -> tuple[list[str], str]:
    """The names on all pages, and the scope of the caches that may keep them."""
    found: list[str] = []
    params: dict[str, Any] = {}
    while True:
        response = await peer.modern(f"{list_}/list", params, **bearer(who))
        result = response.json["result"]
        found += [entry["name"] for entry in result[list_]]
        if "nextCursor" not in result:
            return found, result["cacheScope"]
        params = {"cursor": result["nextCursor"]}


async def test_lists_show_everything_by_default() -> None:
    async with serving(fill(protected())) as place:
        peer = await place.connect()
        assert await names(peer, "some") == await names(peer, "all")


@pytest.mark.parametrize("make", [protected, mounted])
async def test_lists_can_show_what_the_scopes_permit(make: Callable[..., Server]) -> None:
    server = make(filter_lists=True)
    if make is protected:
        fill(server)
    async with serving(server) as place:
        peer = await place.connect()
        for _ in range(2):
            assert await names(peer, "some") == (["free"], "private")
            assert await names(peer, "all") == (["t", "raw", "free"], "private")
            for list_ in ("prompts", "resources"):
                assert await names(peer, "some", list_) == ([], "private")
                assert len((await names(peer, "all", list_))[0]) == 1
        for method, params, _ in USES.values():
            hidden = await peer.modern(method, params, **bearer("some"))
            assert "www-authenticate" not in hidden.headers
            assert hidden.json["error"]["code"] == -32602, hidden.body
        assert (await peer.modern("tools/call", {"name": "t"}, **bearer("all"))).status == 200


async def test_pages_of_a_filtered_list_are_exact() -> None:
    tokens = {"one": token("anne", "s1"), "both": token("anne", "s1", "s0")}
    auth = ResourceServer("https://notes.example/mcp", [], verifier=tokens.get, filter_lists=True)
    server = Server("x", auth=auth, page_size=2, cache_scope="public")
    for n in range(7):
        server.add_tool(lambda: "", name=f"t{n}", scopes=[f"s{n % 2}"])
    async with serving(server) as place:
        peer = await place.connect()
        first = (await peer.modern("tools/list", **bearer("one"))).json["result"]
        assert [tool["name"] for tool in first["tools"]] == ["t1", "t3"]
        assert await names(peer, "one") == (["t1", "t3", "t5"], "private")
        assert len((await names(peer, "both"))[0]) == 7


async def test_a_legacy_session_sees_what_each_request_permits() -> None:
    async with serving(fill(protected(filter_lists=True))) as place:
        peer = await place.connect()
        opened = await peer.initialize(LEGACY, **bearer("some"))
        fields = {"mcp_session_id": opened.headers["mcp-session-id"]}
        for who, n in (("some", 1), ("all", 3), ("some", 1)):
            response = await peer.ask(body=message("tools/list", {}, 1), **fields, **bearer(who))
            assert len(response.json["result"]["tools"]) == n


# -- other doors -----------------------------------------------------------------------------------


async def test_a_websocket_is_refused_in_its_opening_handshake() -> None:
    async with listening(notes(TOKENS.get)) as place:
        for name, error in ((None, None), ("Bearer unknown", "invalid_token")):
            answer = await exchange(place.port, upgrade(port=place.port, Authorization=name))
            assert answer.status == 401
            field = answer.headers["www-authenticate"]
            assert METADATA in field and (error is None or error in field)
        answer = await exchange(place.port, upgrade(port=place.port, Authorization="Bearer poor"))
        assert answer.status == 403 and "insufficient_scope" in answer.headers["www-authenticate"]


@pytest.mark.parametrize("url", ["ws://127.0.0.1:0/mcp", "http://127.0.0.1:0/mcp"])
async def test_a_websocket_gets_an_error_with_a_name(url: str) -> None:
    async with listening(notes(TOKENS.get), url) as place:
        for name, done in (("anne", False), ("chief", True)):
            peer = await Bare.connect(place.port, Authorization=f"Bearer {name}")
            await peer.handshake()
            peer.send(
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "clear"}}
            )
            answer = await peer.message()
            if done:
                assert answer["result"]["content"][0]["text"] == "cleared"
            else:
                assert answer["error"]["code"] == INSUFFICIENT
                assert answer["error"]["data"]["error"] == "insufficient_scope"
                assert answer["error"]["data"]["scope"] == "notes:read notes:write notes:delete"
            await peer.close()


async def test_an_application_of_asgi_checks_the_same() -> None:
    app = notes(TOKENS.get).asgi()
    async with app.lifespan():
        body = asgi_message("tools/call", {"name": "clear"})
        fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call",
                  "mcp_name": "clear"}  # fmt: skip
        for name, status in (("chief", 200), ("anne", 403), ("unknown", 401)):
            answer = await Request(app, "POST", "/mcp", body, **fields, **bearer(name)).whole()
            assert answer.status == status
        assert METADATA in answer.headers["www-authenticate"]
        for path in ("", "/mcp"):
            place = f"/.well-known/oauth-protected-resource{path}"
            found = await Request(app, "GET", place).whole()
            assert found.status == 200
            assert found.headers["access-control-allow-origin"] == "*"

"""The access tokens of a server's clients over HTTP: who comes in, what the others are told."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from lab.http import Peer, Place, Response, call, message, serving
from lab.rows import every
from lab.token import (
    ISSUER,
    RESOURCE,
    TOKENS,
    WELL_KNOWN,
    bearer,
    challenge_of,
    notes,
    token,
)
from lab.wording import raises

from wirespeed import ListenOptions, Server
from wirespeed.auth import AccessToken, ResourceServer
from wirespeed.errors import CannotVerify, InvalidToken
from wirespeed.transport.http.site import MAX_ADMITTED


async def said(peer: Peer, name: str) -> str:
    """What the tool `who` says to the client with a token."""
    response = await peer.modern("tools/call", {"name": "who"}, **bearer(name))
    assert response.status == 200, (response.status, response.body)
    text: str = response.json["result"]["content"][0]["text"]
    return text


# -- who comes in ----------------------------------------------------------------------------------


async def test_handlers_see_subject_scopes_and_claims() -> None:
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        assert await said(peer, "anne") == "anne notes:read 7"
        assert await said(peer, "bob") == "bob notes:read None"
        assert await said(peer, "anne") == "anne notes:read 7"


async def test_a_client_without_a_token_is_told_where_to_get_one() -> None:
    """RFC 6750 section 3.1: no error code for a request without credentials."""
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        for fields in ({}, {"authorization": "Basic YTpi"}, {"authorization": "anne"}):
            challenge = challenge_of(await peer.modern("tools/list", **fields), 401)
            assert challenge.scheme == "bearer" and challenge.scopes == ["notes:read"]
            assert "error" not in challenge.params


@pytest.mark.parametrize("name", ["unknown", "old"])
async def test_a_bad_token_is_refused(name: str) -> None:
    tokens = {"old": token("anne", "notes:read", expires=time.time() - 1)}
    async with serving(notes(tokens.get)) as place:
        peer = await place.connect()
        challenge = challenge_of(await peer.modern("tools/list", **bearer(name)), 401)
        assert challenge.params["error"] == "invalid_token"
        assert name not in str(challenge)


@pytest.mark.parametrize("field", ["Bearer", "Bearer a b", "Bearer a, Bearer b", 'Bearer "anne"'])
async def test_a_malformed_field_is_a_bad_request(field: str) -> None:
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        challenge = challenge_of(await peer.modern("tools/list", authorization=field), 400)
        assert challenge.params["error"] == "invalid_request"


async def test_a_token_without_the_scopes_of_every_request_is_refused() -> None:
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        challenge = challenge_of(await peer.modern("tools/list", **bearer("poor")), 403)
        assert challenge.params["error"] == "insufficient_scope"
        assert challenge.scopes == ["notes:read"]


async def test_broader_scopes_include_narrower_ones() -> None:
    implied = {"admin": ["notes:write"], "notes:write": ["notes:read", "notes:delete", "admin"]}
    tokens = {"admin": token("root", "admin")}
    async with serving(notes(tokens.get, implied=implied)) as place:
        peer = await place.connect()
        assert await said(peer, "admin") == "root admin notes:delete notes:read notes:write None"
        done = await peer.modern("tools/call", {"name": "clear"}, **bearer("admin"))
        assert done.status == 200


async def test_a_request_without_a_token_is_refused_before_its_body() -> None:
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        peer.writer.write(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000\r\n\r\n"
        )
        assert (await peer.line()).startswith(b"HTTP/1.1 401 ")
        await peer.eof()


# -- attacks ---------------------------------------------------------------------------------------


async def test_a_token_in_the_query_is_not_looked_at() -> None:
    """RFC 9700 section 4.3.2: such tokens end up in logs."""
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        body = message("tools/list", {}, 1)
        for query in ("access_token=anne", "token=anne", "authorization=Bearer%20anne"):
            response = await peer.ask(path=f"/mcp?{query}", body=body)
            assert "error" not in challenge_of(response, 401).params


@pytest.mark.parametrize("fresh", [False, True])
async def test_two_fields_are_refused_even_behind_a_good_request(fresh: bool) -> None:
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        assert (await said(peer, "anne")).startswith("anne ")
        if fresh:
            peer = await place.connect()
        peer.writer.write(
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer anne\r\nAuthorization: Bearer bob\r\n"
            b"Content-Length: 2\r\n\r\n{}" % place.port
        )
        assert (await peer.line()).startswith(b"HTTP/1.1 400 ")
        while not (line := await peer.line()).startswith(b"WWW-Authenticate: "):
            assert line != b"\r\n"
        assert b'error="invalid_request"' in line


async def test_another_user_cannot_use_a_session() -> None:
    """Not with the id of the session alone; nor with a token of the same subject of another issuer
    (MCP, "Session Hijacking")."""
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        opened = await peer.initialize(**bearer("anne"))
        session = opened.headers["mcp-session-id"]
        for name in ("bob", "stranger"):
            for method, body in (("POST", call("who")), ("GET", b""), ("DELETE", b"")):
                fields = {**bearer(name), "mcp_session_id": session}
                response = await peer.ask(method, body=body, **fields)
                assert response.status == 404, (name, method)
        missing = await peer.ask(body=call("who"), mcp_session_id=session)
        assert missing.status == 401
        # another token of the same subject is welcome: tokens are refreshed
        again = await peer.ask(body=call("clear"), **bearer("chief"), mcp_session_id=session)
        assert again.json["result"]["content"][0]["text"] == "cleared"
        weaker = await peer.ask(body=call("clear"), **bearer("anne"), mcp_session_id=session)
        assert weaker.status == 403


async def test_a_token_for_one_path_opens_no_other_one() -> None:
    inner = {"inner": token("anne", "notes:read")}
    two = {"/mcp": notes(TOKENS.get), "/inner": notes(inner.get)}
    async with serving(two, url="http://127.0.0.1:0") as place:  # type: ignore[arg-type]
        peer = await place.connect()
        assert (await said(peer, "anne")).startswith("anne ")
        refused = await peer.modern("tools/list", path="/inner", **bearer("anne"))
        assert refused.status == 401
        assert (await peer.modern("tools/list", path="/inner", **bearer("inner"))).status == 200
        assert (await peer.modern("tools/list", **bearer("inner"))).status == 401


async def test_a_known_token_does_not_stand_for_host_and_origin() -> None:
    async with serving(notes(TOKENS.get)) as place:
        assert (await said(await place.connect(), "anne")).startswith("anne ")
        for fields in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            peer = await place.connect()
            assert (await peer.modern("tools/list", **fields, **bearer("anne"))).status == 403
        peer = await place.connect()
        assert (await said(peer, "anne")).startswith("anne ")


async def test_rights_of_one_token_do_not_last_for_the_next_on_a_connection() -> None:
    async with serving(notes(TOKENS.get)) as place:
        peer = await place.connect()
        for name, status in (("chief", 200), ("anne", 403), ("chief", 200), ("bob", 403)):
            response = await peer.modern("tools/call", {"name": "clear"}, **bearer(name))
            assert response.status == status, name
        assert (await peer.modern("tools/call", {"name": "clear"})).status == 401


# -- verifiers -------------------------------------------------------------------------------------


class Counting:
    """A verifier that counts its calls."""

    def __init__(self, **tokens: AccessToken) -> None:
        self.tokens = tokens
        self.asked: list[str] = []

    async def verify(self, token: str) -> AccessToken:
        self.asked.append(token)
        await asyncio.sleep(0)
        if token not in self.tokens:
            raise InvalidToken("nobody knows it")
        return self.tokens[token]


async def test_a_token_that_was_seen_is_not_verified_again() -> None:
    verifier = Counting(**TOKENS)
    async with serving(notes(verifier)) as place:
        for _ in range(2):
            peer = await place.connect()
            for name in ("anne", "bob", "anne", "anne"):
                assert (await said(peer, name)).startswith(name)
        assert verifier.asked == ["anne", "bob"]


async def test_without_keep_each_request_is_verified() -> None:
    verifier = Counting(**TOKENS)
    async with serving(notes(verifier, keep=0)) as place:
        peer = await place.connect()
        for _ in range(3):
            await said(peer, "anne")
        assert verifier.asked == ["anne"] * 3
        del verifier.tokens["anne"]
        assert (await peer.modern("tools/list", **bearer("anne"))).status == 401


async def test_what_is_kept_is_bounded() -> None:
    verifier = Counting(**{f"t{i}": token(f"u{i}", "notes:read") for i in range(4)})
    async with serving(notes(verifier, max_kept=2)) as place:
        peer = await place.connect()
        for name in ("t0", "t1", "t0", "t2", "t0", "t1"):
            await said(peer, name)
        assert verifier.asked == ["t0", "t1", "t2", "t1"]


async def test_what_a_listener_keeps_is_bounded() -> None:
    """A token that the `ResourceServer` has forgotten is known to the listener a little longer."""
    names = [f"t{i}" for i in range(MAX_ADMITTED + 2)]
    asked: list[str] = []

    def verify(name: str) -> AccessToken:
        asked.append(name)
        return TOKENS["anne"]

    async with serving(notes(verify, max_kept=1)) as place:
        peer = await place.connect()
        for name in (*names[:2], names[0], *names[2:], names[0]):
            peer.send("GET", **bearer(name))
            await peer.response()
    assert asked == [*names, names[0]]


async def test_a_verifier_says_how_long_a_token_is_fresh() -> None:
    """Also beyond its end, for clocks that differ."""
    now = time.time()
    verifier = Counting(
        stale=token("anne", "notes:read", fresh_until=now - 1),
        late=token("anne", "notes:read", expires=now - 1, fresh_until=now + 30),
    )
    async with serving(notes(verifier)) as place:
        peer = await place.connect()
        for name in ("stale", "stale", "late", "late"):
            await said(peer, name)
        assert verifier.asked == ["stale", "stale", "late"]


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("keep", [60.0, 0.15])
async def test_a_kept_token_ends(keep: float, fresh: bool) -> None:
    """At the end of its life, or when it was kept for long enough, also on a connection that has
    shown it before, and on a new one."""
    lives = time.time() + (0.15 if keep == 60 else 60)
    verifier = Counting(short=token("anne", "notes:read", expires=lives))
    async with serving(notes(verifier, keep=keep)) as place:
        peer = await place.connect()
        await said(peer, "short")
        await said(peer, "short")
        await asyncio.sleep(0.2)
        if fresh:
            peer = await place.connect()
        response = await peer.modern("tools/list", **bearer("short"))
        assert response.status == (401 if keep == 60 else 200)
        assert verifier.asked == ["short"] * 2


async def test_a_verifier_that_is_down_refuses_everyone() -> None:
    """It fails closed, and the client may come back."""

    def down(token: str) -> AccessToken:
        raise CannotVerify("the introspection endpoint does not answer")

    async with serving(notes(down)) as place:
        response = await (await place.connect()).modern("tools/list", **bearer("anne"))
        assert response.status == 503 and response.headers["retry-after"] == "5"
        assert b"introspection" not in response.body


@pytest.mark.parametrize("result", [True, "anne", {"sub": "anne"}, ZeroDivisionError()])
async def test_a_verifier_with_a_mistake_lets_nobody_in(
    result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(token: str) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    async with serving(notes(wrong)) as place:
        response = await (await place.connect()).modern("tools/list", **bearer("s3cret"))
        assert response.status == 500
    assert "the verifier failed" in caplog.text and "s3cret" not in caplog.text


async def test_no_log_and_no_repr_has_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    auth = ResourceServer(RESOURCE, [ISSUER], verifier=TOKENS.get)
    async with serving(Server("x", auth=auth)) as place:
        peer = await place.connect()
        for name in ("anne", "s3cret", "s3cret x"):
            await peer.modern("tools/list", **bearer(name))
    assert "refused" in caplog.text and "s3cret" not in caplog.text + repr(auth)


# -- certificates ----------------------------------------------------------------------------------


async def test_a_token_of_a_certificate_needs_the_certificate() -> None:
    """RFC 8705 section 3: on a connection without TLS nobody shows one."""
    thumbprint = base64.urlsafe_b64encode(hashlib.sha256(b"der").digest()).rstrip(b"=").decode()
    tokens = {
        "bound": token("anne", "notes:read", certificate_thumbprint=thumbprint),
        "free": token("anne", "notes:read"),
    }
    for bound, free in ((False, 200), (True, 401)):
        async with serving(notes(tokens.get, certificate_bound=bound)) as place:
            peer = await place.connect()
            assert (await peer.modern("tools/list", **bearer("bound"))).status == 401
            assert (await peer.modern("tools/list", **bearer("free"))).status == free


# -- metadata --------------------------------------------------------------------------------------


async def get(place: Place, path: str, **fields: str) -> Response:
    return await (await place.connect()).ask("GET", path, **fields)


async def test_the_metadata_is_for_everyone() -> None:
    server = notes(TOKENS.get, name="Notes", documentation="https://notes.example/docs")
    server.add_resource("notes://all", "text", scopes=["notes:all"])

    @server.prompt(scopes=["notes:prompt"])
    def ask() -> str:
        return "?"

    @server.resource("notes://{id}", scopes=["notes:one"])
    def one(id: str) -> str:
        return id

    async with serving(server) as place:
        for path in (f"{WELL_KNOWN}/mcp", WELL_KNOWN, f"{WELL_KNOWN}/mcp/"):
            response = await get(place, path, origin="https://anywhere.example")
            assert response.status == 200
            assert response.headers["access-control-allow-origin"] == "*"
            assert response.headers["content-type"] == "application/json"
            assert response.json == {
                "resource": RESOURCE,
                "authorization_servers": [ISSUER],
                "scopes_supported": [
                    "notes:read", "notes:all", "notes:delete", "notes:one", "notes:prompt",
                    "notes:write",
                ],
                "bearer_methods_supported": ["header"],
                "resource_name": "Notes",
                "resource_documentation": "https://notes.example/docs",
            }  # fmt: skip
        peer = await place.connect()
        assert (await peer.ask("POST", WELL_KNOWN, body=b"{}")).status == 405
        preflight = await peer.ask(
            "OPTIONS", WELL_KNOWN, origin="https://anywhere.example",
            access_control_request_method="GET",
            access_control_request_headers="mcp-protocol-version",
        )  # fmt: skip
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-headers"] == "*"
        # the page may read the metadata, and nothing else
        refused = await peer.modern(
            "tools/list", origin="https://anywhere.example", **bearer("anne")
        )
        assert refused.status == 403


async def test_the_scopes_of_the_metadata_can_be_chosen() -> None:
    async with serving(notes(TOKENS.get, scopes_supported=["notes:read"])) as place:
        assert (await get(place, WELL_KNOWN)).json["scopes_supported"] == ["notes:read"]


async def test_a_server_at_another_path_than_the_resource_names() -> None:
    """As behind a proxy that takes a prefix away."""
    async with serving(notes(TOKENS.get), url="http://127.0.0.1:0/inner") as place:
        for path in ("/mcp", "/inner", ""):
            assert (await get(place, WELL_KNOWN + path)).json["resource"] == RESOURCE


async def test_without_authorization_servers_there_is_no_metadata() -> None:
    server = Server("static", auth=ResourceServer(RESOURCE, [], verifier=TOKENS.get))
    async with serving(server) as place:
        assert (await get(place, WELL_KNOWN)).status == 404
        refused = await (await place.connect()).modern("tools/list")
        assert refused.status == 401 and refused.headers["www-authenticate"] == "Bearer"


# -- values ----------------------------------------------------------------------------------------


@every(
    ("changed", "text"),
    [
        ({"verifier": None, "authorization_servers": []}, "one authorization server"),
        ({"resource": "http://notes.example/mcp"}, "https is needed"),
        ({"resource": "notes"}, "notes"),
        ({"authorization_servers": ["http://login.example"]}, "https is needed"),
        ({"scopes": ["a b"]}, "not a scope"),
        ({"scopes": ["offline_access"]}, "offline_access"),
        ({"scopes_supported": ['"']}, "not a scope"),
        ({"implied": {"a": [""]}}, "not a scope"),
        ({"dpop": "yes"}, "dpop"),
        ({"keep": -1}, "keep"),
        ({"max_kept": 0}, "max_kept"),
    ],
)
def test_values_that_cannot_be(changed: Mapping[str, Any], text: str) -> None:
    fields: dict[str, Any] = {"resource": RESOURCE, "authorization_servers": [ISSUER]}
    with pytest.raises(ValueError, match=text):
        ResourceServer(**(fields | {"verifier": TOKENS.get} | changed))


@pytest.mark.parametrize(
    "changed", [{"authorization_servers": ISSUER}, {"scopes": "a"}, {"verifier": "jwt"}]
)
def test_types_that_cannot_be(changed: Mapping[str, Any]) -> None:
    fields: dict[str, Any] = {"resource": RESOURCE, "authorization_servers": [ISSUER]}
    with pytest.raises(TypeError):
        ResourceServer(**(fields | {"verifier": TOKENS.get} | changed))


def test_one_place_decides_who_comes_in() -> None:
    server = notes(TOKENS.get)
    for options in (ListenOptions(token="t"), ListenOptions(authenticate=lambda request: True)):
        with raises(ValueError):
            server.run("http://127.0.0.1:0/mcp", options=options)
    with raises(ValueError):
        server.asgi(token="t")
    for url in ("tcp://127.0.0.1:0", "unix:/tmp/never"):
        with raises(ValueError):
            server.run(url)


def test_the_scopes_of_a_tool_are_checked_when_it_is_registered() -> None:
    server = Server("x")
    with raises(ValueError):
        server.add_tool(len, name="a", scopes=["a b"])
    with raises(TypeError):
        server.add_resource("a://b", "text", scopes="admin")


def test_metadata_is_json_text() -> None:
    auth = ResourceServer(RESOURCE, [ISSUER], verifier=TOKENS.get)
    assert json.loads(auth.metadata(["b", "a"]))["scopes_supported"] == ["a", "b"]

"""Each principal is itself at a server elsewhere: by a header field, an exchange or a login.
The token with which it came to the proxy goes nowhere."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from lab.audit import until
from lab.authorization_server import get
from lab.gateway import Gateway, gateway, inside
from lab.issuer import AUDIENCE, Issuer
from lab.operation import TOKEN, fetch
from lab.principals import TOKENS, principal
from lab.users import Bank, Exchanger, ask, exchanger
from lab.wording import raises

from wirespeed import Client, Http, Server, Socket, WebSocket
from wirespeed.auth import MemoryStorage, SealedStorage
from wirespeed.errors import AuthorizationError, ConfigError, RemoteError, VersionMismatch
from wirespeed.proxy import (
    AdminConfig,
    AuthorizationConfig,
    BackendConfig,
    IdentityConfig,
    ProxyConfig,
)
from wirespeed.proxy.file import load
from wirespeed.proxy.isolation.per_principal import PerPrincipal

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

LEGACY, MODERN = ("2025-11-25",), ("2026-07-28",)
PRINCIPALS = tuple(map(principal, TOKENS))
KEY = "a key of thirty-two characters or more"


def backend(url: str, identity: IdentityConfig, **options: Any) -> BackendConfig:
    kind = WebSocket if url.startswith("ws") else Http
    return BackendConfig(target=kind(url), name="bank", identity=identity, **options)


def by_file(folder: Path, **options: Any) -> IdentityConfig:
    return IdentityConfig(type="header", file=str(folder / "{principal}"), **options)


def keys(folder: Path, bank: Bank, *names: str) -> None:
    """Give users keys at the server."""
    for name in names:
        (folder / name).write_text(f"key-of-{name}\n")
        bank.valid[f"key-of-{name}"] = name


async def who(gate: Gateway, name: str, era: Any = "modern", tool: str = "whoami") -> str:
    async with gate.client(name, era) as client:
        return str((await client.call_tool(tool)).text)


def place(gate: Gateway) -> PerPrincipal:
    found = gate.proxy.services["bank"].assignment
    assert isinstance(found, PerPrincipal)
    return found


# -- a header field --------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("versions", [LEGACY, MODERN])
@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("listen", ["http", "ws"])
async def test_two_users(tmp_path: Path, era: Any, versions: Any, scheme: str, listen: str) -> None:
    bank = Bank(versions=versions)
    keys(tmp_path, bank, "anne", "bob")
    async with bank.serving(scheme) as url:
        for others in ((), (inside("b", Server("b")),)):
            async with gateway(
                backend(url, by_file(tmp_path)),
                *others,
                listen=f"{listen}://127.0.0.1:0/mcp",
                principals=PRINCIPALS,
            ) as gate:
                tool = "bank_whoami" if others else "whoami"
                async with gate.client("anne", era) as anne, gate.client("bob", era) as bob:
                    for _ in range(3):
                        assert (await anne.call_tool(tool)).text == "anne"
                        assert (await bob.call_tool(tool)).text == "bob"
    assert {one.removeprefix("Bearer ") for one in bank.seen} == {"key-of-anne", "key-of-bob"}


async def test_a_lane_of_two_users(tmp_path: Path) -> None:
    """Requests of 2026-07-28 share lanes: each goes to the connections of its own principal."""
    bank = Bank(versions=MODERN)
    keys(tmp_path, bank, "anne", "bob")
    async with bank.serving() as url:
        identity = by_file(tmp_path, header="X-Key")
        async with gateway(backend(url, identity), principals=PRINCIPALS) as gate:

            async def calls(name: str) -> None:
                async with gate.client(name) as client:
                    for _ in range(5):
                        found = await asyncio.gather(
                            *(client.call_tool(tool) for tool in ("whoami", "slow") * 4)
                        )
                        assert {one.text for one in found} == {name}

            await asyncio.gather(*(calls(name) for name in ("anne", "bob") * 3))
    assert set(bank.seen) == {"key-of-anne", "key-of-bob"}


async def test_legacy_sessions(tmp_path: Path) -> None:
    """A session at the server belongs to one principal, also where clients share the server."""
    bank = Bank(versions=LEGACY)
    keys(tmp_path, bank, "anne", "bob")
    async with bank.serving() as url:
        config = backend(url, by_file(tmp_path), isolation="shared")
        async with gateway(config, principals=PRINCIPALS) as gate:
            for name in ("anne", "bob", "anne"):
                assert await who(gate, name, "legacy", "session") == name
            assert len(set(bank.sessions)) == 2  # and anne's clients share one
            assert bank.sessions[0] == bank.sessions[2]


async def test_rotation(tmp_path: Path) -> None:
    """A key that is refused is read again, at once; and each after a while."""
    bank = Bank(versions=MODERN)
    keys(tmp_path, bank, "anne")
    async with bank.serving() as url:
        async with (
            gateway(backend(url, by_file(tmp_path)), principals=PRINCIPALS) as gate,
            gate.client("anne") as anne,
        ):
            assert (await anne.call_tool("whoami")).text == "anne"
            (tmp_path / "anne").write_text("another-key")
            del bank.valid["key-of-anne"]
            bank.valid["another-key"] = "anne again"
            assert (await anne.call_tool("whoami")).text == "anne again"
        async with (
            gateway(backend(url, by_file(tmp_path, refresh=0.01)), principals=PRINCIPALS) as gate,
            gate.client("anne") as anne,
        ):
            await anne.call_tool("whoami")
            (tmp_path / "anne").write_text("third-key")
            bank.valid["third-key"] = "third"
            await asyncio.sleep(0.05)
            assert (await anne.call_tool("whoami")).text == "third"


async def test_a_fault_is_one_principals(tmp_path: Path) -> None:
    """Who has no key, or a wrong one, is refused; others and the proxy's state stay as they are."""
    bank = Bank(versions=MODERN)
    keys(tmp_path, bank, "anne")
    (tmp_path / "root").write_text("wrong")
    audit = tmp_path / "audit"
    async with bank.serving() as url:
        config = backend(url, by_file(tmp_path), start_timeout=1.0)
        async with gateway(config, principals=PRINCIPALS, audit=str(audit)) as gate:
            for name in ("bob", "root"):
                with pytest.raises(Exception, match=r"credentials|down|not there|lost|401"):
                    async with asyncio.timeout(20):
                        await who(gate, name)
            assert await who(gate, "anne") == "anne"
            from wirespeed.proxy.operation.snapshot import state_of

            assert state_of(gate.proxy.services["bank"]) == "up"
            noted = [one for one in await until(audit, 3) if one["event"] == "identity"]
    assert {(one["principal"], one["outcome"]) for one in noted} >= {
        ("bob", "refused"),
        ("root", "read"),
        ("anne", "read"),
    }
    assert "key-of-anne" not in audit.read_text()


async def test_a_function(tmp_path: Path) -> None:
    bank = Bank(versions=MODERN)
    keys(tmp_path, bank, "anne", "bob")

    async def credential(name: str) -> str:
        return f"key-of-{name}"

    async with bank.serving() as url:
        for function in (credential, lambda name: f"key-of-{name}"):
            identity = IdentityConfig(type="header", credential=function)
            async with gateway(backend(url, identity), principals=PRINCIPALS) as gate:
                assert [await who(gate, name) for name in ("anne", "bob")] == ["anne", "bob"]


async def test_bounds(tmp_path: Path) -> None:
    """Connections of principals without clients are closed, the longest unused ones first."""
    bank = Bank(versions=LEGACY)
    keys(tmp_path, bank, *TOKENS)
    async with bank.serving("ws") as url:
        identity = by_file(tmp_path, max_principals=2, idle_timeout=60.0)
        async with gateway(
            backend(url, identity), principals=PRINCIPALS, listen="ws://127.0.0.1:0/mcp"
        ) as gate:
            for name in ("anne", "bob", "root"):
                assert await who(gate, name, "legacy") == name
                while any(one.downstreams for one in place(gate)._places.values()):
                    await asyncio.sleep(0.01)  # until it has left
            assert len(place(gate).supervisors) == 2
            async with gate.client("anne", "legacy") as anne, gate.client("bob", "legacy") as bob:
                await anne.call_tool("whoami")
                await bob.call_tool("whoami")
                with pytest.raises(Exception, match="too many clients"):
                    await who(gate, "root", "legacy")
        identity = dataclasses.replace(identity, idle_timeout=0.1)
        async with gateway(backend(url, identity), principals=PRINCIPALS) as gate:
            await who(gate, "anne")
            while place(gate).supervisors:
                await asyncio.sleep(0.02)
            assert await who(gate, "anne") == "anne"


async def test_lists_are_of_one_principal(tmp_path: Path) -> None:
    """With access tokens and no principals, too: a list that one user got is not another's."""

    def sees(user: Any, entry: Any) -> bool:
        return entry.name != "slow" or user == "anne"

    bank = Bank(versions=MODERN, list_ttl_ms=60_000, cache_scope="public", filter=sees)
    keys(tmp_path, bank, "anne", "bob")
    async with Issuer() as issuer, bank.serving() as url:
        auth = AuthorizationConfig(resource=AUDIENCE, issuers=(issuer.url,))
        for others in ((), (inside("b", Server("b")),)):
            async with gateway(backend(url, by_file(tmp_path)), *others, auth=auth) as gate:
                for name in ("anne", "bob", "anne"):
                    target = Http(gate.url, token=issuer.token(sub=name))
                    async with Client(target, cache=False) as client:
                        names = {one.name for one in await client.list_tools()}
                        assert any(one.endswith("slow") for one in names) is (name == "anne")


# -- an exchange -----------------------------------------------------------------------------------


def exchanged(issuer: Exchanger, **options: Any) -> IdentityConfig:
    return IdentityConfig(
        type="exchange",
        client_id="proxy",
        client_secret="secret of the proxy",
        issuer=issuer.issuer,
        **options,
    )


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_an_exchange(tmp_path: Path, scheme: str) -> None:
    audit = tmp_path / "audit"
    async with Issuer() as issuer, exchanger() as other:
        bank = Bank(other, versions=MODERN)
        inbound = {name: issuer.token(sub=name) for name in ("anne", "bob", "eve")}
        other.whose = {inbound[name]: name for name in ("anne", "bob")}
        auth = AuthorizationConfig(resource=AUDIENCE, issuers=(issuer.url,))
        async with bank.serving(scheme) as url:
            config = backend(url, exchanged(other, audience="bank"), start_timeout=1.0)
            async with gateway(config, auth=auth, audit=str(audit)) as gate:
                for name in ("anne", "bob", "anne"):
                    async with Client(Http(gate.url, token=inbound[name])) as client:
                        assert (await client.call_tool("whoami")).text == name
                with pytest.raises(Exception, match=r"credentials|down|not there|lost|401"):
                    async with asyncio.timeout(20):
                        async with Client(Http(gate.url, token=inbound["eve"])) as client:
                            await client.call_tool("whoami")
                noted = await until(audit, 5)
        forms = [one for one in other.asked("token") if one.get("subject_token") != inbound["eve"]]
        assert len(forms) == 2  # each token is exchanged once
        for form, name in zip(forms, ("anne", "bob"), strict=True):
            assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
            assert form["subject_token"] == inbound[name]
            assert (form["audience"], form["client_id"], form["by"]) == ("bank", "proxy", "basic")
        assert not set(inbound.values()) & set(bank.seen)
    of_users = {(one["principal"], one["outcome"]) for one in noted if one["event"] == "identity"}
    assert of_users >= {("anne", "exchanged"), ("bob", "exchanged"), ("eve", "refused")}
    text = audit.read_text()
    assert not any(token in text for token in (*inbound.values(), *other.tokens))


async def test_an_exchanged_token_expires(tmp_path: Path) -> None:
    """The last token of the user is exchanged again."""
    async with Issuer() as issuer, exchanger() as other:
        bank = Bank(other, versions=MODERN)
        first, second = (issuer.token(sub="anne", jti=one) for one in ("1", "2"))
        other.whose = {first: "anne", second: "anne"}
        auth = AuthorizationConfig(resource=AUDIENCE, issuers=(issuer.url,))
        async with (
            bank.serving() as url,
            gateway(backend(url, exchanged(other)), auth=auth) as gate,
        ):
            for token in (first, second):
                async with Client(Http(gate.url, token=token)) as client:
                    assert (await client.call_tool("whoami")).text == "anne"
                other.tokens.clear()  # they are good for nothing any more
        given = [form["subject_token"] for form in other.asked("token")]
        assert (given[0], given[-1]) == (first, second)


async def test_a_principal_without_a_token_to_exchange() -> None:
    async with exchanger() as other:
        bank = Bank(other, versions=MODERN)
        async with (
            bank.serving() as url,
            gateway(backend(url, exchanged(other)), principals=PRINCIPALS) as gate,
        ):
            with raises(VersionMismatch):
                await who(gate, "anne")
        assert bank.seen == []


async def test_the_identity_provider_of_an_organization() -> None:
    """The provider exchanges the token for a grant (ID-JAG), and the server's for a token."""
    async with Issuer() as issuer, exchanger() as idp, exchanger() as other:
        idp.kind = "urn:ietf:params:oauth:token-type:id-jag"
        bank = Bank(other, versions=MODERN)
        inbound = {name: issuer.token(sub=name) for name in ("anne", "bob")}
        idp.whose = {token: name for name, token in inbound.items()}
        auth = AuthorizationConfig(resource=AUDIENCE, issuers=(issuer.url,))
        identity = IdentityConfig(
            type="enterprise",
            client_id="proxy",
            client_secret="secret of the proxy",
            issuer=other.issuer,
            idp=idp.issuer,
            idp_client_id="proxy-there",
        )

        class Grants(dict[str, str]):
            """The grants of the provider, and whose they are."""

            def __contains__(self, key: object) -> bool:
                return key in idp.users

            def __getitem__(self, key: str) -> str:
                return idp.users[key]

        other.whose = Grants()
        async with bank.serving() as url, gateway(backend(url, identity), auth=auth) as gate:
            for name in ("anne", "bob"):
                async with Client(Http(gate.url, token=inbound[name])) as client:
                    assert (await client.call_tool("whoami")).text == name
        assert {form["subject_token"] for form in idp.asked("token")} == set(inbound.values())
        sent = {form["assertion"] for form in other.asked("token")}
        assert not sent & set(inbound.values())
        assert not set(bank.seen) & (set(inbound.values()) | sent)


# -- a login ---------------------------------------------------------------------------------------


def login(folder: Path, url: str, issuer: Exchanger, **options: Any) -> IdentityConfig:
    return IdentityConfig(
        type="login",
        issuer=issuer.issuer,
        redirect_uri=url,
        keys=(KEY,),
        folder=str(folder),
        **options,
    )


async def refused_with(gate: Gateway, name: str) -> str:
    """The link that a user gets."""
    with pytest.raises((RemoteError, VersionMismatch)) as refused:
        await who(gate, name)
    error: Any = refused.value
    if isinstance(error, VersionMismatch):  # the client could not even connect
        error = error.__cause__
    assert error.code == -32042
    (asked,) = error.data["elicitations"]
    assert asked["mode"] == "url"
    assert asked["url"] in str(refused.value)
    return str(asked["url"])


async def log_in(link: str, issuer: Exchanger, name: str) -> tuple[int, str]:
    """Open a link as a user with a browser. The last page: its status and its text."""
    issuer.browsing = name
    status, headers, text = await ask("GET", link)
    assert status == 200
    assert name in text
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "same-origin"  # else a browser sends "Origin: null"
    form, cookie = begun(headers, text)
    status, headers, _ = await ask("POST", link, {"do": "in", **form}, cookie)
    assert status == 303
    _, headers, _ = await get(headers["location"])
    status, _, text = await ask("GET", headers["location"], cookie=cookie)
    return status, text


def begun(headers: Any, text: str) -> tuple[dict[str, str], str]:
    """What a browser sends back that was shown the page of a link: a field and a cookie."""
    hidden = re.search(r'name="browser" value="([^"]+)"', text)
    assert hidden is not None
    cookie, *options = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Lax"} <= set(options)
    return {"browser": hidden[1]}, cookie


async def test_a_login(tmp_path: Path) -> None:
    folder, audit = tmp_path / "logins", tmp_path / "audit"
    changes = {"revocation_endpoint": None}
    async with exchanger(**changes) as other:
        other.changes["revocation_endpoint"] = f"{other.issuer}/revoke"
        bank = Bank(other, versions=MODERN)
        async with bank.serving() as url:
            port = await _free_port()
            uri = f"http://127.0.0.1:{port}/login/bank"
            config = backend(url, login(folder, uri, other))

            def serving() -> Any:
                return gateway(
                    config,
                    listen=f"http://127.0.0.1:{port}/mcp",
                    principals=PRINCIPALS,
                    audit=str(audit),
                    admin=AdminConfig(listen="http://127.0.0.1:0", token=TOKEN),
                )

            async with serving() as gate:
                link = await refused_with(gate, "anne")
                assert link == await refused_with(gate, "anne")  # the same while it is good
                assert link != await refused_with(gate, "bob")
                status, text = await log_in(link, other, "anne")
                assert status == 200, text
                assert await who(gate, "anne") == "anne"
                await refused_with(gate, "bob")
                assert (await ask("GET", link))[0] == 404  # once
            async with serving() as gate:  # it is kept, sealed
                assert await who(gate, "anne") == "anne"
                stored = b"".join(one.read_bytes() for one in folder.iterdir())
                assert stored
                assert not any(token.encode() in stored for token in other.tokens)
                for text in ("anne", "refresh", "access_token"):
                    assert text.encode() not in stored
                # it expires, and is renewed
                for token in other.tokens.values():
                    token.expires = 0.0
                before = len(other.asked("token"))
                other.tokens.clear()
                assert await who(gate, "anne") == "anne"
                assert other.asked("token")[before]["grant_type"] == "refresh_token"
                # it is revoked: the user gets a link again
                other.tokens.clear()
                other._refresh.clear()
                with pytest.raises(RemoteError):
                    await who(gate, "anne")
                link = await refused_with(gate, "anne")
                assert (await log_in(link, other, "anne"))[0] == 200
                assert await who(gate, "anne") == "anne"
                # the user logs out
                page = gate.proxy.services["bank"].logins
                assert page is not None
                link = page.link(next(iter(place(gate)._places.values())).who)
                _, headers, text = await ask("GET", link)
                assert "Log out" in text
                form, cookie = begun(headers, text)
                assert (await ask("POST", link, {"do": "out", **form}, cookie))[0] == 200
                assert other.asked("revoke")
                link = await refused_with(gate, "anne")
                # an operator logs a user out
                assert (await log_in(link, other, "anne"))[0] == 200
                async with gate.client("anne") as client:
                    assert (await client.call_tool("whoami")).text == "anne"
                    before = len(other.asked("revoke"))
                    assert await log_out(gate, "bank?principal=anne") == (200, "done\n")
                    assert len(other.asked("revoke")) > before
                    with pytest.raises(RemoteError):
                        await client.call_tool("whoami")
                await refused_with(gate, "anne")
                said = (200, "there is no such login\n")
                assert await log_out(gate, "bank?principal=anne") == said
                assert await log_out(gate, "bank?principal=https://a.example%20anne") == said
                for wrong, code in (
                    ("bank", 400),
                    ("bank/anne", 404),
                    ("none?principal=anne", 404),
                ):
                    assert (await log_out(gate, wrong))[0] == code
        assert not set(TOKENS.values()) & set(bank.seen)
    noted = [json.loads(line) for line in audit.read_text().splitlines()]
    outcomes = [
        one["outcome"] for one in noted if one["event"] == "identity" and one["principal"] == "anne"
    ]
    assert outcomes == ["logged in", "lost", *["logged in", "logged out"] * 2]


async def log_out(gate: Gateway, place: str) -> tuple[int, str]:
    """What an operator gets who ends a login."""
    found = await fetch(gate.admin_port, f"/logout/{place}", method="POST")
    return found.status, found.text


async def test_links_that_are_wrong(tmp_path: Path) -> None:
    async with exchanger() as other:
        bank = Bank(other, versions=MODERN)
        async with bank.serving() as url:
            port = await _free_port()
            uri = f"http://127.0.0.1:{port}/login/bank"
            config = backend(url, login(tmp_path / "l", uri, other))
            async with gateway(
                config, listen=f"http://127.0.0.1:{port}/mcp", principals=PRINCIPALS
            ) as gate:
                link = await refused_with(gate, "anne")
                for wrong in (uri, f"{uri}?login=x", f"{link}x", f"{uri}?state=x&code=y"):
                    assert (await ask("GET", wrong))[0] == 404, wrong
                    assert (await ask("POST", wrong, {}))[0] == 404, wrong
                # the authorization server refuses: the next link works
                other.redirect = lambda found: {
                    "error": "access_denied", "state": found["state"], "iss": found["iss"],
                }  # fmt: skip
                assert (await log_in(link, other, "anne"))[0] == 502
                other.redirect = lambda found: found
                link = await refused_with(gate, "anne")
                # another answer than that to this login is none
                _, headers, text = await ask("GET", link)
                form, cookie = begun(headers, text)
                _, headers, _ = await ask("POST", link, {"do": "in", **form}, cookie)
                state = re.search(r"state=([^&]+)", headers["location"])
                assert state is not None
                assert (await ask("GET", f"{uri}?code=evil&state=x{state[1]}"))[0] == 404
                assert bank.seen == []


async def test_another_browser(tmp_path: Path) -> None:
    """Nobody can send a user past the page: neither to its form nor to the authorization server."""
    async with exchanger() as other:
        bank = Bank(other, versions=MODERN)
        async with bank.serving() as url:
            port = await _free_port()
            uri = f"http://127.0.0.1:{port}/login/bank"
            config = backend(url, login(tmp_path / "l", uri, other))
            async with gateway(
                config, listen=f"http://127.0.0.1:{port}/mcp", principals=PRINCIPALS
            ) as gate:
                link = await refused_with(gate, "anne")
                _, headers, text = await ask("GET", link)
                form, cookie = begun(headers, text)
                _, headers, text = await ask("GET", link)
                _, other_cookie = begun(headers, text)
                for sent, carried in ((form, ""), ({}, cookie), (form, other_cookie), ({}, "")):
                    assert (await ask("POST", link, {"do": "in", **sent}, carried))[0] == 403
                # anne begins it, and sends bob to the authorization server
                other.browsing = "bob"
                status, headers, _ = await ask("POST", link, {"do": "in", **form}, cookie)
                assert status == 303
                _, headers, _ = await get(headers["location"])
                for carried in ("", other_cookie, f"{cookie}x"):
                    status, _, _ = await ask("GET", headers["location"], cookie=carried)
                    assert status == 403
                assert bank.seen == []
                # a login that was given up holds up no other
                link = await refused_with(gate, "anne")
                async with asyncio.timeout(20):
                    assert (await log_in(link, other, "anne"))[0] == 200
                assert await who(gate, "anne") == "anne"


async def test_lanes_hold_no_connections(tmp_path: Path) -> None:
    """A lane whose request is over is nobody's: its last principal makes place for another one."""
    bank = Bank(versions=MODERN)
    keys(tmp_path, bank, *TOKENS)
    async with bank.serving() as url:
        identity = by_file(tmp_path, max_principals=1)
        async with (
            gateway(backend(url, identity), principals=PRINCIPALS) as gate,
            gate.client("anne") as anne,
        ):
            await asyncio.gather(*(anne.call_tool("slow") for _ in range(3)))
            assert await who(gate, "bob") == "bob"


async def _free_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return int(port)


def test_sealed_logins() -> None:
    under = MemoryStorage()
    anne, bob = (SealedStorage(under, KEY, owner=name) for name in ("anne", "bob"))
    anne.save("https://a.example/", "secret of anne")
    assert anne.load("https://a.example/") == "secret of anne"
    assert bob.load("https://a.example/") is None
    (place,) = under.servers()
    assert "secret" not in (under.load(place) or "")
    # a text that was moved opens for nobody
    under.save("https://a.example/ bob", under.load(place) or "")
    with pytest.raises(AuthorizationError, match="another key"):
        bob.load("https://a.example/")
    other = "another key of thirty-two characters"
    with pytest.raises(AuthorizationError, match="another key"):
        SealedStorage(under, other, owner="anne").load("https://a.example/")
    # rotation: the first key seals, all open
    rotated = SealedStorage(under, other, KEY, owner="anne")
    assert rotated.load("https://a.example/") == "secret of anne"
    rotated.save("https://a.example/", "new")
    assert SealedStorage(under, other, owner="anne").load("https://a.example/") == "new"
    assert rotated.servers() == ["https://a.example/"]
    rotated.delete("https://a.example/")
    assert rotated.load("https://a.example/") is None
    with pytest.raises(ValueError, match="32 characters"):
        SealedStorage(under, "short")


# -- the configuration -----------------------------------------------------------------------------


def test_what_is_wrong(tmp_path: Path) -> None:
    for options, text in (
        ({"type": "other"}, "type is one of"),
        ({"type": "exchange"}, "needs client_id"),
        ({"type": "enterprise", "client_id": "c", "issuer": "https://a.example"}, "needs idp"),
        ({"type": "login"}, "needs redirect_uri"),
        ({"type": "header"}, "either a file or a credential"),
        ({"type": "header", "file": "/x"}, "has {principal}"),
        ({"type": "header", "file": "/{principal}", "header": "Host"}, "Host"),
        ({"type": "header", "file": "/{principal}", "refresh": 0}, "refresh"),
        (
            {
                "type": "login", "redirect_uri": "https://a.example/l", "folder": "/x",
                "keys": ("short",),
            },
            "32 characters",
        ),
        ({"type": "exchange", "client_id": "c", "issuer": "http://a.example"}, "https is needed"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            IdentityConfig(**options)  # type: ignore[arg-type]
    identity = by_file(tmp_path)
    url = "https://bank.example/mcp"
    with pytest.raises(ValueError, match="needs principals or auth"):
        ProxyConfig(backends=(backend(url, identity),), listen=())
    # two issuers may have an anne each
    issuers = ("https://a.example", "https://b.example")
    auth = AuthorizationConfig(resource="https://p.example", issuers=issuers)
    with pytest.raises(ValueError, match="the same name"):
        ProxyConfig(backends=(backend(url, identity),), listen=(), auth=auth)
    with pytest.raises(ValueError, match='isolation is "auto"'):
        backend(url, identity, isolation="session")
    for target in (Http(url, token="x"), Http(url, headers={"Authorization": "x"})):
        with pytest.raises(ValueError, match="different things"):
            BackendConfig(target=target, identity=identity)
    with pytest.raises(ValueError, match="over HTTP and WebSocket"):
        BackendConfig(target=Socket("unix:/x"), identity=identity)
    secrets = IdentityConfig(
        type="exchange", client_id="c", client_secret="s3cret", issuer="https://a.example"
    )
    assert "s3cret" not in repr(secrets)


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "proxy.json"

    def of(**keys: Any) -> Any:
        server = {"url": "https://bank.example/mcp", "proxy": {"identity": keys}}
        tokens = [{"name": "anne", "token": TOKENS["anne"]}]
        whole = {"mcpServers": {"bank": server}, "proxy": {"principals": tokens}}
        file.write_text(json.dumps(whole))
        return load(file, {"SECRET": "s3cret", "KEY": KEY}).backends[0].identity

    found = of(type="exchange", clientId="c", clientSecret="${SECRET}", issuer="https://a.example")
    assert (found.client_secret, found.type) == ("s3cret", "exchange")
    found = of(type="header", file="keys/{principal}", header="X-Key")
    assert found.file == str(tmp_path / "keys/{principal}")
    found = of(
        type="login", redirectUri="https://p.example/login/bank", keys=["${KEY}"], folder="logins"
    )
    assert (found.keys, found.folder) == ((KEY,), str(tmp_path / "logins"))
    with pytest.raises(ConfigError, match=r"bank.proxy.identity: the type .login. needs"):
        of(type="login")
    with pytest.raises(ConfigError, match=r"identity.credential: .* cannot be loaded"):
        of(type="header", credential="no_such_module:x")

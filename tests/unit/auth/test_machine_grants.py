"""Clients without a user get tokens: by a secret, a key, an assertion, an identity provider."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest
from joserfc import jwk, jwt
from lab.grant import Asked, Site, site
from lab.rows import every
from lab.wording import raises

from wirespeed import Client, Http
from wirespeed.auth import (
    Authorization,
    ClientCredentials,
    EnterpriseManaged,
    JwtBearer,
    MemoryStorage,
)
from wirespeed.auth.dpop import DpopKey, DpopProofs, Nonces
from wirespeed.errors import AuthorizationError
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SECRET = "s3cret/+é"
KEYS = {
    "ES256": jwk.ECKey.generate_key("P-256"),
    "RS256": jwk.RSAKey.generate_key(2048),
    "EdDSA": jwk.OKPKey.generate_key("Ed25519"),
}


def basic(asked: Asked) -> list[str]:
    """The client and the secret of HTTP Basic (RFC 6749 section 2.3.1)."""
    scheme, _, text = asked.headers["authorization"].partition(" ")
    assert scheme == "Basic"
    return [unquote_plus(part) for part in base64.b64decode(text).decode().split(":")]


def enterprise(found: Site, **options: Any) -> EnterpriseManaged:
    given: dict[str, Any] = {"identity": "the-id-token", "idp": found.idp, "idp_client_id": "me"}
    return EnterpriseManaged("app", SECRET, **{**given, **options})


# -- a secret --------------------------------------------------------------------------------------


async def test_a_secret_is_sent_by_http_basic() -> None:
    async with site() as found:
        assert await found.call(ClientCredentials("a:b", SECRET)) == "ok"
        [asked] = found.asked
        assert basic(asked) == ["a:b", SECRET]
        assert asked.form == {"grant_type": "client_credentials", "resource": found.url}
        assert set(found.used) == {"token-1"}


async def test_a_secret_is_sent_in_the_form() -> None:
    async with site() as found:
        await found.call(ClientCredentials("app", SECRET, method="client_secret_post"))
        found.methods = ["client_secret_post"]
        await found.call(ClientCredentials("app", SECRET))
        for asked in found.asked:
            assert "authorization" not in asked.headers
            assert (asked.form["client_id"], asked.form["client_secret"]) == ("app", SECRET)
        assert len(found.asked) == 2


async def test_scopes_are_asked_for() -> None:
    async with site() as found:
        await found.call(ClientCredentials("app", SECRET, scopes=["notes", "files"]))
        assert found.asked[0].form["scope"] == "notes files"


async def test_a_call_that_needs_another_scope_gets_a_token_with_both() -> None:
    async with site() as found:
        found.needed = "files"
        assert await found.call(ClientCredentials("app", SECRET, scopes=["notes"])) == "ok"
        assert [asked.form["scope"] for asked in found.asked] == ["notes", "notes files"]


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_wrong_credentials_are_an_error_that_does_not_show_them(method: str) -> None:
    """Not even if the authorization server repeats them."""
    async with site() as found:
        found.answer = 401, {"error": "invalid_client", "error_description": f"no {SECRET} here"}
        with raises(AuthorizationError) as caught:
            await found.call(ClientCredentials("app", SECRET, method=method))
        assert caught.value.error == "invalid_client"
        assert SECRET not in str(caught.value)
        assert len(found.asked) == 1


async def test_a_token_that_ends_is_replaced_without_a_challenge() -> None:
    storage = MemoryStorage()
    async with site() as found:
        found.more = {"expires_in": 100}
        await found.call(ClientCredentials("app", SECRET, storage=storage))
        kept = json.loads(storage.load(found.url) or "")
        for member in ("issued", "expires"):
            kept["tokens"][member] -= 95
        storage.save(found.url, json.dumps(kept))
        before = len(found.used)
        await found.call(ClientCredentials("app", SECRET, storage=storage))
        assert set(found.used[before:]) == {"token-2"}
        assert found.n_refused == 1  # the very first request


async def test_tokens_that_end_at_once_are_not_asked_for_in_a_loop() -> None:
    async with site() as found:
        found.more = {"expires_in": 0}
        assert await found.call(ClientCredentials("app", SECRET)) == "ok"
        assert len(found.asked) < 5


async def test_a_token_that_was_revoked_is_replaced() -> None:
    async with site() as found, found.client(ClientCredentials("app", SECRET)) as client:
        await client.call_tool("echo")
        found.valid.clear()
        await client.call_tool("echo")
        assert found.used[-1] == "token-2"
        assert len(found.asked) == 2


async def test_a_refresh_token_is_not_used() -> None:
    async with site() as found, found.client(ClientCredentials("app", SECRET)) as client:
        found.more = {"refresh_token": "r"}
        for _ in range(2):
            found.valid.clear()
            await client.call_tool("echo")
        grants = {asked.form["grant_type"] for asked in found.asked}
        assert grants == {"client_credentials"}


async def test_credentials_go_to_their_own_authorization_server_alone() -> None:
    async with site() as found:
        auth = ClientCredentials("app", SECRET, issuer="https://as.example.com")
        with raises(AuthorizationError):
            await found.call(auth)
        assert found.asked == []


# -- a key -----------------------------------------------------------------------------------------


@every("algorithm", KEYS)
@every("form", ["pem", "jwk"])
async def test_a_key_signs_an_assertion_for_the_issuer(algorithm: str, form: str) -> None:
    key = KEYS[algorithm]
    private = key.as_pem(private=True) if form == "pem" else key.as_dict(private=True)
    async with site() as found:
        auth = ClientCredentials("app", key=private, key_id="k1", algorithm=algorithm)
        for _ in range(2):
            assert await found.call(auth) == "ok"
            found.valid.clear()
        tokens = []
        for asked in found.asked:
            kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            assert asked.form["client_assertion_type"] == kind
            assert "authorization" not in asked.headers
            registry = jwt.JWTClaimsRegistry(aud={"essential": True, "value": found.issuer})
            token = _decoded(asked.form["client_assertion"], key, algorithm)
            registry.validate(token.claims)
            assert token.header["kid"] == "k1"
            assert token.claims["iss"] == token.claims["sub"] == "app"
            assert 0 < token.claims["exp"] - token.claims["iat"] <= 60
            tokens.append(token.claims["jti"])
        assert len(set(tokens)) == len(tokens) == 2


def _decoded(text: str, key: Any, algorithm: str) -> Any:
    if algorithm == "EdDSA":
        with pytest.warns(match="RFC 9864"):
            return jwt.decode(text, key, algorithms=[algorithm])
    return jwt.decode(text, key, algorithms=[algorithm])


async def test_a_key_that_does_not_fit_is_refused_at_once() -> None:
    pem = KEYS["ES256"].as_pem(private=True).decode()
    public = KEYS["ES256"].as_pem(private=False)
    wrong: list[tuple[Any, str]] = [
        (pem, "RS256"), (public, "ES256"), ("no key", "ES256"), (b"", "EdDSA"), ({}, "ES256"),
    ]  # fmt: skip
    for key, algorithm in wrong:
        with pytest.raises(ValueError, match=f"not a private key for {algorithm}") as caught:
            ClientCredentials("app", key=key, algorithm=algorithm)
        assert "MIG" not in str(caught.value)
    with raises(ValueError):
        ClientCredentials("app", key=pem, algorithm="HS256")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"client_secret": "s", "key": "k"}, "a key or a secret"),
        ({"key": "k", "method": "client_secret_basic"}, "a key or a secret"),
        ({"client_secret": "s", "method": "none"}, "method is"),
        ({"client_secret": "s", "client_id": ""}, "has a client_id"),
        ({}, "a secret or a key"),
    ],
)
async def test_credentials_that_make_no_sense(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ClientCredentials(**{"client_id": "app", **options})


# -- an assertion ----------------------------------------------------------------------------------


async def test_a_workload_shows_its_assertion() -> None:
    async with site() as found:
        assert await found.call(JwtBearer(" the-jwt\n")) == "ok"
        [asked] = found.asked
        assert asked.form == {
            "grant_type": JWT_BEARER,
            "assertion": "the-jwt",
            "resource": found.url,
        }
        assert "authorization" not in asked.headers


async def test_a_workload_may_have_a_client_id_and_a_secret() -> None:
    async with site() as found:
        await found.call(JwtBearer("the-jwt", client_id="app"))
        await found.call(JwtBearer("the-jwt", client_id="app", client_secret=SECRET))
        assert found.asked[0].form["client_id"] == "app"
        assert basic(found.asked[1]) == ["app", SECRET]


async def test_a_function_makes_each_assertion_for_the_issuer() -> None:
    issuers = []

    def plain(issuer: str) -> str:
        issuers.append(issuer)
        return f"jwt-{len(issuers)}"

    async def slow(issuer: str) -> str:
        return plain(issuer)

    for make in (plain, slow):
        issuers.clear()
        async with site() as found, found.client(JwtBearer(make)) as client:
            found.valid.clear()
            await client.call_tool("echo")
            assert issuers == [found.issuer] * 2
            assert [asked.form["assertion"] for asked in found.asked] == ["jwt-1", "jwt-2"]


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client"])
async def test_a_rejected_assertion_is_not_sent_again(error: str) -> None:
    async with site() as found:
        found.answer = 400, {"error": error}
        auth = JwtBearer("the-jwt")
        for _ in range(2):
            with pytest.raises(AuthorizationError, match=error) as caught:
                await found.call(auth)
            assert caught.value.error == error
            assert "the-jwt" not in str(caught.value)
        [asked] = found.asked
        assert asked.form["grant_type"] == JWT_BEARER


async def test_a_connection_whose_assertion_is_rejected_later_asks_once() -> None:
    async with site() as found, found.client(JwtBearer("the-jwt")) as client:
        found.answer = 400, {"error": "invalid_grant"}
        found.valid.clear()
        for _ in range(3):
            with raises(AuthorizationError):
                await client.call_tool("echo")
        assert len(found.asked) == 2


async def test_another_assertion_is_sent_after_a_rejected_one() -> None:
    texts = iter(["old", "new"])
    async with site() as found:
        auth = JwtBearer(lambda issuer: next(texts))
        found.answer = 400, {"error": "invalid_grant"}
        with pytest.raises(AuthorizationError):
            await found.call(auth)
        found.answer = None
        assert await found.call(auth) == "ok"


async def test_a_server_that_is_down_is_not_a_rejection() -> None:
    async with site() as found:
        auth = JwtBearer("the-jwt")
        found.answer = 503, {}
        with raises(AuthorizationError):
            await found.call(auth)
        found.answer = None
        assert await found.call(auth) == "ok"


async def test_an_assertion_is_a_string() -> None:
    def wrong(issuer: str) -> str:
        return b"bytes"  # type: ignore[return-value]

    async with site() as found:
        with raises(TypeError):
            await found.call(JwtBearer(wrong))
        assert found.asked == []


# -- an identity provider --------------------------------------------------------------------------


async def test_an_identity_becomes_a_grant_and_a_token() -> None:
    async with site() as found:
        assert await found.call(enterprise(found, scopes=["notes"])) == "ok"
        [exchanged], [asked] = found.exchanged, found.asked
        kind = "urn:ietf:params:oauth:token-type:"
        assert exchanged.form == {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": f"{kind}id-jag",
            "audience": found.issuer,
            "resource": found.url,
            "scope": "notes",
            "subject_token": "the-id-token",
            "subject_token_type": f"{kind}id_token",
            "client_id": "me",
        }
        assert asked.form["grant_type"] == JWT_BEARER
        assert asked.form["assertion"] == "the-id-jag"
        assert basic(asked) == ["app", SECRET]


async def test_the_client_has_a_secret_at_the_identity_provider() -> None:
    async with site() as found:
        auth = enterprise(
            found,
            idp=None,
            idp_token_endpoint=f"{found.idp}/token",
            idp_client_secret="other",
            identity=lambda issuer: f"refresh-{issuer}",
            identity_type="refresh_token",
        )
        assert await found.call(auth) == "ok"
        [exchanged] = found.exchanged
        assert basic(exchanged) == ["me", "other"]
        assert exchanged.form["subject_token"] == f"refresh-{found.issuer}"
        assert exchanged.form["subject_token_type"].endswith(":refresh_token")


async def test_a_policy_that_forbids_a_server_is_an_error() -> None:
    async with site() as found:
        found.idp_answer = 400, {"error": "access_denied", "error_description": "not for you"}
        with pytest.raises(AuthorizationError, match="not for you") as caught:
            await found.call(enterprise(found))
        assert caught.value.error == "access_denied"
        assert "the-id-token" not in str(caught.value)
        assert found.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        {"access_token": "x", "issued_token_type": "urn:ietf:params:oauth:token-type:jwt"},
        {"access_token": "x"},
        [],
    ],
)
async def test_an_answer_without_a_grant_goes_no_further(answer: Any) -> None:
    async with site() as found:
        found.idp_answer = 200, answer
        with raises(AuthorizationError):
            await found.call(enterprise(found))
        assert found.asked == []


async def test_an_identity_provider_is_named_once() -> None:
    with raises(ValueError):
        EnterpriseManaged("app", identity="x")
    with raises(ValueError):
        EnterpriseManaged("app", identity="x", idp="https://idp", identity_type="jwt")


# -- DPoP ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonces", [False, True])
async def test_tokens_are_bound_to_a_key(nonces: bool) -> None:
    async with site() as found:
        found.proofs = DpopProofs(nonces=Nonces() if nonces else None)
        values: list[Authorization] = [
            ClientCredentials("app", SECRET, dpop=True),
            JwtBearer("the-jwt", dpop=True),
            enterprise(found, dpop=True),
        ]
        for auth in values:
            async with found.client(auth) as client:
                for _ in range(3):  # the replay cache wants a fresh proof each time
                    await client.call_tool("echo")
        assert len(set(found.valid.values())) == 3
        assert found.n_refused == (6 if nonces else 3)  # without a token, and without a nonce


async def test_the_next_nonce_comes_with_an_answer() -> None:
    times = [0.0]
    async with site() as found:
        found.proofs = DpopProofs(nonces=Nonces(100, clock=lambda: times[-1]))
        async with found.client(ClientCredentials("app", SECRET, dpop=True)) as client:
            refused = found.n_refused
            for _ in range(4):
                times.append(times[-1] + 100)
                await client.call_tool("echo")
            assert found.n_refused == refused


async def test_a_stolen_token_is_of_no_use_without_its_key() -> None:
    async with site() as found:
        found.proofs = DpopProofs()
        storage = MemoryStorage()
        await found.call(ClientCredentials("app", SECRET, dpop=True, storage=storage))
        stolen = json.loads(storage.load(found.url) or "")
        stolen["key"] = DpopKey().jwk
        storage.save(found.url, json.dumps(stolen))
        used = len(found.used)
        await found.call(ClientCredentials("app", SECRET, dpop=True, storage=storage))
        assert set(found.used[used:]) == {"token-2"}  # the first was refused


async def test_a_server_that_binds_no_tokens_is_an_error() -> None:
    async with site() as found:
        with raises(AuthorizationError):
            await found.call(ClientCredentials("app", SECRET, dpop=True))


# -- storage ---------------------------------------------------------------------------------------


async def test_a_token_is_kept_for_the_next_connection_of_the_same_client() -> None:
    storage = MemoryStorage()
    async with site() as found:
        for auth in (
            ClientCredentials("app", SECRET, storage=storage),
            ClientCredentials("app", SECRET, storage=storage),
            ClientCredentials("other", SECRET, storage=storage),
        ):
            await found.call(auth)
        assert [basic(asked)[0] for asked in found.asked] == ["app", "other"]
        text = storage.load(found.url) or ""
        assert SECRET not in text


async def test_nothing_shows_a_secret() -> None:
    pem = KEYS["ES256"].as_pem(private=True).decode()
    values = [
        ClientCredentials("app", SECRET),
        ClientCredentials("app", key=pem),
        JwtBearer("the-jwt", client_id="app"),
        EnterpriseManaged("app", SECRET, identity="the-id-token", idp="https://idp.example.com"),
    ]
    for auth in values:
        assert repr(auth) == f"{type(auth).__name__}('app')"


# -- a proxy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["auto", "modern"])
async def test_a_proxy_has_credentials_of_its_own(tmp_path: Path, era: Any) -> None:
    """Its clients need none, and what they have is not sent to the server."""
    async with site() as found:
        target = Http(found.url, auth=ClientCredentials("app", SECRET))
        backend = BackendConfig(target=target, isolation="shared", era=era)
        url = f"unix:{tmp_path / 's'}"
        listening: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        proxy = Proxy(ProxyConfig(backends=(backend,), listen=(url,)))
        serving = asyncio.ensure_future(proxy.serve(on_listening=listening.set_result))
        await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
        async with Client(url) as client:
            assert (await client.call_tool("echo")).text == "ok"
        serving.cancel()
        await asyncio.wait((serving,))
        assert set(found.used) == {"token-1"}
        assert len(found.asked) == 1

"""The attack table of authorization, a test for each line: what verifiers do against attacks."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from typing import Any, Self

import pytest
from lab.issuer import AUDIENCE, NOW, Clock, Issuer, public, signed, verified
from lab.origin import Origin, Request, ok
from lab.rows import every
from lab.wording import raises

from wirespeed.auth import (
    AccessToken,
    IntrospectionVerifier,
    JwtVerifier,
    TokenHash,
    TokenHashes,
    hash_token,
    new_token,
)
from wirespeed.auth.fetch import Fetcher, FetchError
from wirespeed.auth.jose import new_key
from wirespeed.errors import CannotVerify, InvalidToken

pytestmark = pytest.mark.smoke


def segment(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class Target:
    """An issuer, its verifier, and a good token."""

    def __init__(self, algorithm: str = "ES256", **options: Any) -> None:
        self.issuer = Issuer(algorithm)
        self.clock = Clock()
        self.options = options

    async def __aenter__(self) -> Self:
        await self.issuer.__aenter__()
        self.verifier = JwtVerifier(self.issuer.url, AUDIENCE, clock=self.clock, **self.options)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.verifier.close()
        await self.issuer.__aexit__(*exc)

    async def refuses(self, token: str, reason: str) -> None:
        """The token is refused, a good one is not, and nobody is told the token."""
        assert (await verified(self.verifier, self.issuer.token())).subject == "anne"
        with pytest.raises(InvalidToken, match=reason) as caught:
            await verified(self.verifier, token)
        assert token not in str(caught.value)
        assert (await verified(self.verifier, self.issuer.token())).subject == "anne"


async def test_a_token_for_another_server() -> None:
    async with Target() as target:
        await target.refuses(target.issuer.token(aud="https://other.example/mcp"), "audience")
        await target.refuses(target.issuer.token(aud=None), "audience")
        await target.refuses(target.issuer.token(aud=AUDIENCE + "/admin"), "audience")


async def test_an_id_token_in_place_of_an_access_token() -> None:
    async with Target() as target:
        await target.refuses(
            target.issuer.token(aud="client-id", header={"typ": "JWT"}), "audience"
        )


async def test_a_token_of_another_issuer() -> None:
    async with Target() as target, Issuer() as other:
        await target.refuses(other.token(), "has the issuer")
        # the other issuer says that it is this one
        await target.refuses(other.token(iss=target.issuer.url), "signature is not valid")


async def test_metadata_of_another_issuer() -> None:
    async with Target() as target:
        target.issuer.metadata["issuer"] = "https://other.example"
        with raises(CannotVerify):
            await verified(target.verifier, target.issuer.token())


@every("algorithm", ["none", "None", "NONE", "nOnE"])
async def test_no_signature(algorithm: str) -> None:
    async with Target() as target:
        claims = target.issuer.token().split(".")[1]
        for signature in ("", "AAAA"):
            token = f"{segment({'alg': algorithm, 'kid': '1'})}.{claims}.{signature}"
            await target.refuses(token, "algorithm is not accepted|not a signed JWT")


async def test_a_signature_that_is_cut_off() -> None:
    async with Target() as target:
        head, _, signature = target.issuer.token().rpartition(".")
        for other in ("", signature[:-4], signature[:-4] + "AAAA"):
            await target.refuses(f"{head}.{other}", "signature is not valid|not a signed JWT")


async def test_claims_that_are_changed() -> None:
    async with Target() as target:
        head, claims, signature = target.issuer.token().split(".")
        changed = json.loads(base64.urlsafe_b64decode(claims + "==")) | {"sub": "root"}
        await target.refuses(f"{head}.{segment(changed)}.{signature}", "signature is not valid")


async def test_an_hmac_with_the_public_key() -> None:
    """RFC 8725 section 2.1: the public key is everybody's, and no secret."""
    async with Target("RS256") as target:
        key = target.issuer.keys["1"]
        jwk = json.dumps(public(key, "1")).encode()
        claims = {"iss": target.issuer.url, "aud": AUDIENCE, "exp": NOW + 60, "sub": "root"}
        for secret in (key.as_pem(private=False), jwk):
            head = f"{segment({'alg': 'HS256', 'kid': '1'})}.{segment(claims)}"
            mac = hmac.digest(secret, head.encode(), "sha256")
            signature = base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
            await target.refuses(f"{head}.{signature}", "algorithm is not accepted")


def test_symmetric_and_asymmetric_algorithms_together_are_refused() -> None:
    with raises(ValueError):
        JwtVerifier("https://a.example", AUDIENCE, algorithms=["RS256", "HS256"])


async def test_a_key_in_the_header() -> None:
    """``jwk``, ``jku``, ``x5c`` and ``x5u`` of a header lead to no key."""
    async with Target() as target, Issuer() as evil:
        mine = evil.keys["1"]
        claims = {"iss": target.issuer.url, "aud": AUDIENCE, "exp": NOW + 60, "sub": "root"}
        for more in (
            {"jwk": public(mine)},
            {"jku": f"{evil.url}/keys", "kid": "1"},
            {"x5u": f"{evil.url}/keys"},
            {"x5c": ["AAAA"]},
        ):
            await target.refuses(
                signed({"alg": "ES256", **more}, claims, mine), "not (known|valid)"
            )
        assert evil.asked == []


@every("kid", ["../../dev/null", "' OR 1=1 --", "x" * 8000, "\x00", "1\n"])
async def test_the_id_of_a_key_as_a_weapon(kid: str) -> None:
    async with Target() as target:
        claims = {"iss": target.issuer.url, "aud": AUDIENCE, "exp": NOW + 60, "sub": "root"}
        token = signed({"alg": "ES256", "kid": kid}, claims, new_key("ES256"))
        await target.refuses(token, "a key that is not known")


async def test_a_token_that_has_expired() -> None:
    async with Target() as target:
        await target.refuses(target.issuer.token(exp=NOW - 30), "has expired")
        await target.refuses(target.issuer.token(exp=None), "no time of expiry")


async def test_a_token_from_the_future() -> None:
    async with Target() as target:
        await target.refuses(target.issuer.token(nbf=NOW + 60), "from the future")
        await target.refuses(target.issuer.token(iat=NOW + 60), "from the future")


async def test_a_token_of_another_kind() -> None:
    async with Target() as target:
        for typ in ("dpop+jwt", "logout+jwt", "oauth-id-jag+jwt", "token-introspection+jwt"):
            await target.refuses(target.issuer.token(header={"typ": typ}), "not an access token")


async def test_critical_parameters() -> None:
    async with Target() as target:
        _, claims, signature = target.issuer.token().split(".")
        header = {"alg": "ES256", "kid": "1", "crit": ["exp"], "exp": 0}
        await target.refuses(f"{segment(header)}.{claims}.{signature}", "critical")


@every(
    "token",
    [
        "a.b.c.d.e",  # encrypted
        f"{segment({'alg': 'ES256'})}.{'e30' * 10_000}.x",
        ".".join(["[" * 3000] * 3),
        base64.urlsafe_b64encode(b"[" * 6000).decode() + ".e30.AAAA",
        base64.urlsafe_b64encode(b'{"a":' * 2000).decode() + ".e30.AAAA",
        "\ud800.e30.AAAA",
        "." * 10_000,
    ],
    ids=["jwe", "long", "garbage", "deep", "objects", "surrogate", "dots"],
)
async def test_tokens_that_are_costly_to_read(token: str) -> None:
    async with Target() as target:
        await target.refuses(token, "not a signed JWT")
        assert target.issuer.n_fetched == 1  # for the good token


async def test_a_huge_key_set() -> None:
    async with Target() as target:
        many = [public(target.issuer.keys["1"], str(n)) for n in range(500)]
        for body, reason in (
            (json.dumps({"keys": many}).encode(), "more than 100 keys"),
            (b'{"keys": [' + b" " * (1 << 20) + b"]}", "262144"),
        ):
            target.issuer.body = body
            target.clock.now += 30
            with pytest.raises(CannotVerify, match=reason):
                await verified(target.verifier, target.issuer.token(exp=NOW + 1000))


async def test_a_key_set_that_never_ends() -> None:
    async def answer(request: Request) -> None:
        await request.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await request.write(b"1\r\n \r\n")
            await asyncio.sleep(0.01)

    async with Origin(answer) as origin:
        url = f"http://127.0.0.1:{origin.port}/keys"
        verifier = JwtVerifier("i", AUDIENCE, jwks_url=url, timeout=0.2, clock=Clock())
        with raises(CannotVerify):
            await verified(verifier, Issuer().token(iss="i"))
        await verifier.close()


async def test_keys_that_are_costly_or_weak() -> None:
    async with Target() as target:
        for n_bytes in (64, 128, 2048, 32_000):
            modulus = base64.urlsafe_b64encode(b"\xff" * n_bytes).rstrip(b"=").decode()
            key = {"kty": "RSA", "kid": "1", "n": modulus, "e": "AQAB"}
            target.issuer.body = json.dumps({"keys": [key]}).encode()
            target.clock.now += 30
            with raises(CannotVerify):
                await verified(target.verifier, target.issuer.token(exp=NOW + 1000))


async def test_a_flood_of_unknown_keys() -> None:
    async with Target() as target:
        await verified(target.verifier, target.issuer.token())
        target.clock.now += 30
        forger = new_key("ES256")
        claims = {"iss": target.issuer.url, "aud": AUDIENCE, "exp": NOW + 60, "sub": "root"}
        flood = [signed({"alg": "ES256", "kid": f"k{n}"}, claims, forger) for n in range(200)]
        found = await asyncio.gather(
            *(verified(target.verifier, token) for token in flood), return_exceptions=True
        )
        assert all(isinstance(one, InvalidToken) for one in found)
        assert target.issuer.n_fetched == 2
        assert isinstance(target.verifier.verify(target.issuer.token()), AccessToken)


async def test_a_flood_of_tokens_of_other_issuers_fetches_nothing() -> None:
    async with Target() as target:
        other = Issuer()
        for claims in ({}, {"iss": target.issuer.url, "aud": "x"}, {"exp": NOW - 100}):
            with pytest.raises(InvalidToken):
                await verified(target.verifier, other.token(**claims))
        assert target.issuer.asked == []


@every(
    "url",
    [
        "https://169.254.169.254/latest/meta-data",
        "https://metadata.invalid/",
        "http://10.0.0.1/keys",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://user:s3cret@127.0.0.1/keys",
    ],
)
async def test_metadata_that_points_inside(url: str) -> None:
    async with Target() as target:
        target.issuer.metadata["jwks_uri"] = url
        with pytest.raises(CannotVerify) as caught:
            await verified(target.verifier, target.issuer.token())
        assert "s3cret" not in str(caught.value)
        assert target.issuer.n_fetched == 0


async def test_metadata_of_a_public_server_that_points_to_this_machine() -> None:
    async def answer(request: Request) -> None:
        await request.write(ok())

    async with Origin(answer) as inside:
        fetcher = Fetcher("https://93.184.215.14/mcp")  # a public address
        for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "localhost."):
            with pytest.raises(FetchError):
                await fetcher.get(f"http://{host}:{inside.port}/")
            with pytest.raises(FetchError):
                await fetcher.get(f"https://{host}:{inside.port}/")
        assert inside.n_connections == 0
        await fetcher.close()


async def test_an_open_redirect_of_the_key_set() -> None:
    async with Target() as target, Issuer() as evil:

        async def answer(request: Request) -> None:
            location = f"Location: {evil.url}/keys\r\n".encode()
            await request.write(ok(b"", location, b"302 Found"))

        async with Origin(answer) as origin:
            target.issuer.metadata["jwks_uri"] = f"http://127.0.0.1:{origin.port}/keys"
            with raises(CannotVerify):
                await verified(target.verifier, target.issuer.token())
            assert evil.asked == []


async def test_a_token_that_is_bound_to_something_unknown() -> None:
    async with Target() as target:
        for cnf in ({"kid": "x"}, {"jwk": {}}, {}, {"jkt": 5}):
            await target.refuses(target.issuer.token(cnf=cnf), "bound to something")


async def test_an_introspection_that_fails_is_not_a_permission() -> None:
    answers = iter([b'{"active": "false"}', b"true", b"", b'{"active": 1}', b"[]"])

    async def answer(request: Request) -> None:
        await request.write(ok(next(answers)))

    async with Origin(answer) as origin:
        url = f"http://127.0.0.1:{origin.port}/"
        verifier = IntrospectionVerifier(url, audience=AUDIENCE, token="own")
        for _ in range(5):
            with pytest.raises(CannotVerify):
                await verified(verifier, "t0ken")
        await verifier.close()


async def test_an_active_token_for_another_server() -> None:
    async def answer(request: Request) -> None:
        await request.write(ok(b'{"active": true, "sub": "a", "aud": "https://other.example"}'))

    async with Origin(answer) as origin:
        url = f"http://127.0.0.1:{origin.port}/"
        verifier = IntrospectionVerifier(url, audience=AUDIENCE, token="own")
        with raises(InvalidToken):
            await verified(verifier, "t0ken")
        await verifier.close()


def test_a_stolen_table_of_hashes() -> None:
    token = new_token()
    entry = TokenHash(hash=hash_token(token), subject="anne")
    verifier = TokenHashes([entry])
    assert verifier.verify(token).subject == "anne"
    assert token not in repr(entry)
    for stolen in (entry.hash, entry.hash.removeprefix("sha256:")):
        with pytest.raises(InvalidToken):
            verifier.verify(stolen)

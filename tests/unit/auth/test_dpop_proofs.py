"""A server checks the DPoP proofs of its clients (RFC 9449 section 4.3)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from joserfc import jwk, jws
from lab.rows import every
from lab.wording import raises

from wirespeed.auth.dpop import ALGORITHMS, DpopKey, DpopProofs, InvalidProof, Nonces
from wirespeed.errors import CannotVerify, InvalidToken

URL = "https://mcp.example.com/mcp"
TOKEN = "a-token"
NOW = 1_800_000_000.0
KEY = jwk.ECKey.generate_key("P-256")
OTHER = jwk.ECKey.generate_key("P-256")


class Clock:
    """A clock that a test sets."""

    now = NOW

    def __call__(self) -> float:
        return self.now


def thumbprint(key: Any = KEY) -> str:
    return str(key.thumbprint())


def claims(**changed: Any) -> dict[str, Any]:
    """The claims of a good proof, with some changed; None takes one away."""
    digest = hashlib.sha256(TOKEN.encode()).digest()
    good = {
        "jti": "1",
        "htm": "POST",
        "htu": URL,
        "iat": int(NOW),
        "ath": encoded(digest),
    }
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def forged(key: Any = KEY, *, said: dict[str, Any] | None = None, **header: Any) -> str:
    """A proof as an attacker would make it: any header, any claims, signed by any key."""
    fields = {
        "typ": "dpop+jwt",
        "alg": "ES256",
        "jwk": key.as_dict(private=False),
        **header,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    payload = claims() if said is None else said
    signed = ".".join(encoded(json.dumps(part).encode()) for part in (fields, payload))
    signature = jws.JWSRegistry.algorithms[fields["alg"]].sign(signed.encode(), key)
    return f"{signed}.{encoded(signature)}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def checked(
    proofs: DpopProofs, proof: str, method: str = "POST", url: str = URL, bound: Any = KEY
) -> Any:
    return proofs.check(proof, method=method, url=url, token=TOKEN, thumbprint=thumbprint(bound))


@every("algorithm", ALGORITHMS)
async def test_a_proof_of_our_client_is_taken(algorithm: str) -> None:
    clock = Clock()
    key = DpopKey(algorithm=algorithm, clock=clock)
    found = DpopProofs(clock=clock).check(
        key.field("POST", URL + "?page=2", TOKEN),
        method="POST",
        url=URL,
        token=TOKEN,
        thumbprint=key.thumbprint,
    )
    assert found == (key.thumbprint, None, None)


async def test_the_proof_of_a_token_request_names_no_token() -> None:
    key = DpopKey()
    found = DpopProofs().check(
        key.field("POST", "https://as.example.com/token"),
        method="POST",
        url="https://as.example.com/token",
    )
    assert found.thumbprint == key.thumbprint


@every(
    ("htu", "url"),
    [
        (URL + "?q=1#f", URL),
        (URL, URL + "?q=1"),
        ("HTTPS://MCP.example.com:443/mcp", URL),
        ("https://mcp.example.com/%6dcp", URL),
        ("https://mcp.example.com/a%2fb", "https://mcp.example.com/a%2Fb"),
        ("http://127.0.0.1:80", "http://127.0.0.1/"),
        (URL, "wss://mcp.example.com/mcp"),
    ],
)
async def test_urls_are_compared_as_rfc_3986_normalises_them(htu: str, url: str) -> None:
    assert checked(DpopProofs(clock=Clock()), forged(said=claims(htu=htu)), url=url)


def private_part() -> str:
    return forged(jwk=KEY.as_dict(private=True))


def by_another_key() -> str:
    """The header names the key of the token, and another key signs."""
    return forged(OTHER, jwk=KEY.as_dict(private=False))


def of_a_secret() -> str:
    """HS256, by the public key as its secret."""
    public = KEY.as_dict(private=False)
    secret = jwk.OctKey.import_key(json.dumps(public))
    return forged(secret, alg="HS256", jwk=public)


def unsigned() -> str:
    header, payload, _ = forged().split(".")
    fields = json.loads(base64.urlsafe_b64decode(header + "=="))
    return f"{encoded(json.dumps({**fields, 'alg': 'none'}).encode())}.{payload}."


def changed_claims() -> str:
    """The signature of other claims."""
    header, _, signature = forged().split(".")
    payload = forged(said=claims(jti="2")).split(".")[1]
    return f"{header}.{payload}.{signature}"


def of_a_shared_secret() -> str:
    secret = jwk.OctKey.generate_key(256)
    return forged(secret, alg="HS256", jwk=secret.as_dict())


@every(
    ("proof", "reason"),
    [
        (lambda: "", "not a JWT"),
        (lambda: "a.b", "not a JWT"),
        (lambda: "é.é.é", "not a JWT"),
        (lambda: "." * 8000, "not a JWT"),
        (lambda: "W10.e30.AAAA", "not a JWT"),
        (lambda: "bnVsbA.e30.AAAA", "not a JWT"),
        (lambda: f"{forged()}, {forged()}", "not a JWT"),
        (lambda: forged(said=claims(pad="x" * 9000)), "more than 8192"),
        (lambda: forged(typ="JWT"), "dpop+jwt"),
        (lambda: forged(typ=None), "dpop+jwt"),
        (unsigned, "algorithm"),
        (of_a_secret, "algorithm"),
        (of_a_shared_secret, "algorithm"),
        (lambda: forged(jwk=None), "asymmetric"),
        (lambda: forged(jwk="a"), "asymmetric"),
        (lambda: forged(jwk={"kty": ["EC"]}), "asymmetric"),
        (lambda: forged(jwk={"kty": "oct", "k": "AAAA"}), "asymmetric"),
        (private_part, "private part"),
        (lambda: forged(jwk={"kty": "EC", "crv": "P-256"}), "missing"),
        (lambda: forged(jwk={"kty": "EC", "crv": "P-1", "x": "AA", "y": "AA"}), "cannot be read"),
        (lambda: forged(jwk={"kty": "RSA", "n": "AQAB", "e": "AQAB"}), "2048 to 8192 bits"),
        (lambda: forged(jwk={"kty": "RSA", "n": "A" * 300 + "_" * 44, "e": "AQAB"}), "8192 bits"),
        (lambda: forged(jwk={"kty": "RSA", "n": "_" * 1400, "e": "AQAB"}), "8192 bits"),
        (lambda: forged(jwk={"kty": "RSA", "n": "_" * 342, "e": "é"}), "cannot be read"),
        (by_another_key, "signature"),
        (changed_claims, "signature"),
        (lambda: forged(said=claims(jti=None)), "lacks a claim"),
        (lambda: forged(said=claims(jti="")), "1 to 512"),
        (lambda: forged(said=claims(jti="x" * 513)), "1 to 512"),
        (lambda: forged(said=claims(iat=None)), "lacks a claim"),
        (lambda: forged(said=claims(iat="now")), "wrong type"),
        (lambda: forged(said=claims(iat=True)), "wrong type"),
        (lambda: forged(said=claims(htm="GET")), "(htm)"),
        (lambda: forged(said=claims(htm="post")), "(htm)"),
        (lambda: forged(said=claims(htu="https://mcp.example.com/MCP")), "(htu)"),
        (lambda: forged(said=claims(htu="http://mcp.example.com/mcp")), "(htu)"),
        (lambda: forged(said=claims(htu="https://mcp.example.com:8443/mcp")), "(htu)"),
        (lambda: forged(said=claims(htu="https://a@mcp.example.com/mcp")), "(htu)"),
        (lambda: forged(said=claims(htu="https://[mcp/mcp")), "(htu)"),
        (lambda: forged(said=claims(htu="/mcp")), "(htu)"),
        (lambda: forged(said=claims(iat=int(NOW) - 301)), "(iat)"),
        (lambda: forged(said=claims(iat=int(NOW) + 301)), "(iat)"),
        (lambda: forged(said=claims(iat=10**400)), "iat is a time"),
        (lambda: forged(said=claims(iat=-(10**400))), "iat is a time"),
        (lambda: forged(said=claims(iat=1.5e300)), "iat is a time"),
        (lambda: forged(said=claims(ath=None)), "(ath)"),
        (lambda: forged(said=claims(ath="é")), "(ath)"),
        (lambda: forged(said=claims(ath="AAAA")), "(ath)"),
        (lambda: forged(crit=["x"]), "crit"),
    ],
)
async def test_a_wrong_proof_is_refused(proof: Callable[[], str], reason: str) -> None:
    text = proof()
    with pytest.raises(InvalidProof, match=re.escape(reason)) as caught:
        checked(DpopProofs(clock=Clock()), text)
    assert caught.value.error == "invalid_dpop_proof"
    assert isinstance(caught.value, InvalidToken)
    assert text == "" or text not in str(caught.value)


async def test_a_token_of_another_key_is_refused() -> None:
    proofs = DpopProofs(clock=Clock())
    with raises(InvalidProof) as caught:
        checked(proofs, forged(OTHER))
    assert caught.value.error == "invalid_token"
    with raises(InvalidProof):
        proofs.check(forged(), method="POST", url=URL, token=TOKEN, thumbprint=None)


async def test_an_algorithm_that_is_not_listed_is_refused() -> None:
    with raises(InvalidProof):
        checked(DpopProofs(algorithms=["RS256"], clock=Clock()), forged())
    for wrong in ([], ["none"], ["HS256"], "ES256"):
        with raises(ValueError):
            DpopProofs(algorithms=wrong)


# -- replays ---------------------------------------------------------------------------------------


async def test_a_replayed_proof_is_refused_as_long_as_it_would_be_valid() -> None:
    clock = Clock()
    proofs = DpopProofs(clock=clock)
    proof = forged(said=claims(iat=int(NOW) + 300))
    checked(proofs, proof)
    for later in (0, 1, 300, 301, 599, 600):
        clock.now = NOW + later
        checked(proofs, forged(said=claims(iat=int(clock.now), jti=f"other {later}")))
        with raises(InvalidProof):
            checked(proofs, proof)
    clock.now = NOW + 601
    with raises(InvalidProof):
        checked(proofs, proof)


async def test_the_same_identifier_of_another_key_is_another_proof() -> None:
    proofs = DpopProofs(clock=Clock())
    checked(proofs, forged())
    assert checked(proofs, forged(OTHER), bound=OTHER)


async def test_refused_proofs_take_no_room() -> None:
    proofs = DpopProofs(max_remembered=1, clock=Clock())
    for proof in (by_another_key(), forged(OTHER), forged(said=claims(htm="GET"))):
        with pytest.raises(InvalidProof):
            checked(proofs, proof)
    assert checked(proofs, forged())


async def test_no_proof_is_forgotten_to_make_room() -> None:
    clock = Clock()
    proofs = DpopProofs(max_remembered=2, clock=clock)
    for jti in ("1", "2"):
        checked(proofs, forged(said=claims(jti=jti)))
    with raises(CannotVerify):
        checked(proofs, forged(said=claims(jti="3")))
    with raises(InvalidProof):
        checked(proofs, forged(said=claims(jti="1")))
    clock.now += 1300
    assert checked(proofs, forged(said=claims(jti="3", iat=int(clock.now))))


# -- nonces ----------------------------------------------------------------------------------------


async def test_a_client_is_told_the_nonce_that_it_must_use() -> None:
    clock = Clock()
    proofs = DpopProofs(nonces=Nonces(clock=clock), clock=clock)
    for wrong in (None, "x", "é"):
        with raises(InvalidProof) as caught:
            checked(proofs, forged(said=claims(nonce=wrong)))
        assert caught.value.error == "use_dpop_nonce"
    told = caught.value.nonce
    assert checked(proofs, forged(said=claims(nonce=told))).nonce is None


async def test_nonces_rotate_and_end() -> None:
    clock = Clock()
    nonces = Nonces(100, clock=clock)
    proofs = DpopProofs(nonces=nonces, clock=clock)
    first = nonces.current()
    clock.now += 100
    found = checked(proofs, forged(said=claims(nonce=first, iat=int(clock.now))))
    assert found.nonce == nonces.current() != first  # the next one comes with the response
    clock.now += 100
    with raises(InvalidProof) as caught:
        checked(proofs, forged(said=claims(nonce=first, iat=int(clock.now), jti="2")))
    assert caught.value.nonce == nonces.current()


async def test_servers_that_share_a_secret_take_the_nonces_of_each_other() -> None:
    clock = Clock()
    one, two = (Nonces(secret=b"shared", clock=clock) for _ in range(2))
    assert one.age(two.current()) == 0
    assert Nonces(clock=clock).age(one.current()) is None


async def test_a_lifetime_is_positive() -> None:
    for wrong in (0, -1, float("nan")):
        with raises(ValueError):
            Nonces(wrong)

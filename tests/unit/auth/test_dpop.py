"""The DPoP proofs of a client (RFC 9449): a fresh one for each request, with the nonce of its
origin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from joserfc.util import urlsafe_b64decode

from wirespeed.auth.dpop import MAX_NONCES, DpopKey, DpopProofs, InvalidProof, Nonces
from wirespeed.transport.headers import Headers

MCP = "https://mcp.example.com/mcp"
TOKENS = "https://as.example.com/token"


def parts(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the claims of a proof."""
    header, claims = (json.loads(urlsafe_b64decode(part.encode())) for part in proof.split(".")[:2])
    return header, claims


def nonce(value: str) -> Headers:
    return Headers([("DPoP-Nonce", value)])


async def test_a_proof_holds_the_public_key_alone() -> None:
    for algorithm in ("ES256", "RS256", "EdDSA"):
        key = DpopKey(algorithm=algorithm)
        header, _ = parts(key.field("POST", MCP))
        assert header["typ"] == "dpop+jwt"
        assert header["alg"] == algorithm
        assert not {"d", "p", "q", "dp", "dq", "qi"} & set(header["jwk"])
        assert key.jwk["d"] not in repr(key)


async def test_each_proof_is_another_one() -> None:
    key = DpopKey()
    identifiers = {parts(key.field("POST", MCP, "token"))[1]["jti"] for _ in range(100)}
    assert len(identifiers) == 100


async def test_a_proof_names_the_url_without_its_query() -> None:
    claims = parts(DpopKey().field("GET", "HTTPS://mcp.example.com:443/mcp?secret=1"))[1]
    assert (claims["htm"], claims["htu"]) == ("GET", MCP)
    assert "ath" not in claims


async def test_nonces_belong_to_their_origins() -> None:
    key = DpopKey()
    assert key.note(TOKENS, nonce("of-the-as"))
    assert key.note(MCP, nonce("of-the-rs"))
    assert parts(key.field("POST", "https://as.example.com/other"))[1]["nonce"] == "of-the-as"
    assert parts(key.field("POST", MCP, "token"))[1]["nonce"] == "of-the-rs"
    assert "nonce" not in parts(key.field("POST", "https://mcp.example.com:8443/mcp"))[1]
    assert key.note(MCP, nonce("next"))
    assert parts(key.field("POST", MCP, "token"))[1]["nonce"] == "next"


async def test_what_is_not_a_nonce_is_ignored() -> None:
    key = DpopKey()
    assert not key.note(MCP, Headers([]))
    for wrong in ("", "a b", 'a"b', "x" * 1025):
        assert not key.note(MCP, nonce(wrong))
    assert "nonce" not in parts(key.field("POST", MCP))[1]


async def test_the_nonces_of_many_origins_are_bounded() -> None:
    key = DpopKey()
    urls = [f"https://{number}.example.com/" for number in range(MAX_NONCES + 1)]
    for url in urls:
        key.note(url, nonce("n"))
    known = ["nonce" in parts(key.field("POST", url))[1] for url in urls]
    assert known == [False] + [True] * MAX_NONCES


async def test_a_key_is_kept_with_its_algorithm() -> None:
    key = DpopKey(algorithm="EdDSA")
    kept = DpopKey(json.loads(json.dumps(key.jwk)))
    assert (kept.thumbprint, kept.algorithm) == (key.thumbprint, "EdDSA")
    for wrong in ({}, {**key.jwk, "alg": "HS256"}, {**key.jwk, "alg": "ES256"}, {"kty": "OKP"}):
        with pytest.raises(ValueError, match=r"private key for|is not one of") as caught:
            DpopKey(wrong)
        assert key.jwk["d"] not in str(caught.value)


async def test_client_and_server_agree_on_nonces() -> None:
    key, proofs = DpopKey(), DpopProofs(nonces=Nonces())

    def check() -> str:
        found = proofs.check(
            key.field("POST", MCP, "token"),
            method="POST",
            url=MCP,
            token="token",
            thumbprint=key.thumbprint,
        )
        return found.thumbprint

    with pytest.raises(InvalidProof) as caught:
        check()
    assert caught.value.nonce is not None
    key.note(MCP, nonce(caught.value.nonce))
    assert check() == check() == key.thumbprint

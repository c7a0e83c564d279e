"""Tokens that an operator hands out, of which the server knows hashes."""

from __future__ import annotations

from typing import Any

import pytest
from lab.issuer import NOW, Clock
from lab.rows import every
from lab.wording import raises

from wirespeed.auth import AccessToken, TokenHash, TokenHashes, hash_token, new_token
from wirespeed.errors import InvalidToken

pytestmark = pytest.mark.smoke


def test_tokens_and_what_they_permit() -> None:
    tokens = [new_token() for _ in range(3)]
    entries = [
        TokenHash(hash=hash_token(tokens[0]), subject="anne"),
        TokenHash(
            hash=hash_token(tokens[1]),
            subject="bob",
            client_id="ci",
            scopes=frozenset({"notes"}),
            expires=NOW + 1,
        ),
    ]
    clock = Clock()
    verifier = TokenHashes(entries, clock=clock)
    assert verifier.verify(tokens[0]) == AccessToken(subject="anne")
    bob = AccessToken(subject="bob", client_id="ci", scopes=frozenset({"notes"}), expires=NOW + 1)
    assert verifier.verify(tokens[1]) == bob
    clock.now += 1
    with raises(InvalidToken):
        verifier.verify(tokens[1])
    for token in (tokens[2], "", "é", "\ud800", entries[0].hash, tokens[0] + " ", tokens[0][:-1]):
        with raises(InvalidToken):
            verifier.verify(token)


def test_tokens_are_new_and_long() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {43}


@pytest.mark.parametrize("token", ["", "hunter2", "x" * 31, "x" * 32 + " ", "é" * 40])
def test_a_token_that_could_be_guessed_is_not_hashed(token: str) -> None:
    with raises(ValueError):
        hash_token(token)


def test_a_hash_is_what_sha256sum_prints() -> None:
    assert hash_token("a" * 32).startswith("sha256:3ba3f5f43b92602683c19aee62a20342")
    assert len(hash_token("a" * 32)) == 71


HASH = hash_token("a" * 32)


@every(
    ("entries", "reason"),
    [
        ([{"hash": "a" * 32}], "not one of hash_token"),
        ([{"hash": HASH.removeprefix("sha256:")}], "not one of hash_token"),
        ([{"hash": HASH[:-2]}], "not one of hash_token"),
        ([{"hash": HASH[:-1] + "x"}], "not one of hash_token"),
        ([{"hash": HASH[:-2] + "  a "}], "not one of hash_token"),
        ([{"hash": ""}], "not one of hash_token"),
        ([{"hash": HASH, "subject": ""}], "has no subject"),
        ([{"hash": HASH}, {"hash": HASH.upper().replace("SHA", "sha")}], "comes twice"),
    ],
)
def test_entries_that_are_refused(entries: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        TokenHashes([TokenHash(**{"subject": "anne", **entry}) for entry in entries])
    assert HASH not in str(caught.value)


def test_tokens_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.auth.access_token.MAX_HASHES", 2)
    entries = [TokenHash(hash=hash_token(new_token()), subject="a") for _ in range(3)]
    TokenHashes(entries[:2])
    with raises(ValueError):
        TokenHashes(entries)

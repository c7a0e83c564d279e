"""Several verifiers together: the first that accepts a token decides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.issuer import verified
from lab.rows import every
from lab.wording import raises

from wirespeed.auth import AccessToken, AnyOf
from wirespeed.errors import CannotVerify, InvalidToken

pytestmark = pytest.mark.smoke


class Own:
    """A verifier of one's own: ``answers`` by token; other tokens are refused."""

    def __init__(self, name: str, waits: bool = False, **answers: Any) -> None:
        self.name, self.waits, self.answers = name, waits, answers
        self.asked: list[str] = []

    def verify(self, token: str) -> Any:
        self.asked.append(token)
        return self.wait(token) if self.waits else self.decide(token)

    async def wait(self, token: str) -> AccessToken:
        await asyncio.sleep(0)
        return self.decide(token)

    def decide(self, token: str) -> AccessToken:
        found = self.answers.get(token, InvalidToken(f"not of {self.name}"))
        if isinstance(found, Exception):
            raise found
        return AccessToken(subject=f"{token} of {self.name}")


@every("waits", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)])
async def test_the_first_that_accepts_decides(waits: tuple[int, ...]) -> None:
    many = [
        Own("a", 0 in waits, x=1),
        Own("b", 1 in waits, x=1, y=1),
        Own("c", 2 in waits, z=1),
    ]
    verifier = AnyOf(*many)
    for token, name in {"x": "a", "y": "b", "z": "c"}.items():
        assert (await verified(verifier, token)).subject == f"{token} of {name}"
    assert [one.asked for one in many] == [["x", "y", "z"], ["y", "z"], ["z"]]
    with raises(InvalidToken):
        await verified(verifier, "w")


def test_nothing_waits_that_need_not() -> None:
    verifier = AnyOf(Own("a"), Own("b", x=1), Own("c", waits=True))
    assert isinstance(verifier.verify("x"), AccessToken)


@pytest.mark.parametrize("waits", [False, True])
async def test_one_that_is_down(waits: bool) -> None:
    down = CannotVerify("a is down")
    verifier = AnyOf(Own("a", waits, x=down, y=down), Own("b", waits, x=1))
    assert (await verified(verifier, "x")).subject == "x of b"
    with pytest.raises(CannotVerify, match=r"^a is down$"):
        await verified(verifier, "y")


async def test_a_mistake_is_not_hidden() -> None:
    for waits in (False, True):
        verifier = AnyOf(Own("a", waits, x=ZeroDivisionError()), Own("b", x=1))
        with pytest.raises(ZeroDivisionError):
            await verified(verifier, "x")


def test_no_verifier() -> None:
    with raises(ValueError):
        AnyOf()

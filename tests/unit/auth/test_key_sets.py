"""Keys that are fetched: kept, renewed, used while the issuer is down, and never fetched often."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self

import pytest
from lab.issuer import AUDIENCE, NOW, Clock, Issuer, public, verified
from lab.rows import every
from lab.wording import raises

from wirespeed.auth import AccessToken, JwtVerifier
from wirespeed.auth.jose import new_key, secret_key
from wirespeed.auth.verifiers.jwt import MAX_KEYS, MAX_TRIED, read_key_set
from wirespeed.errors import CannotVerify, InvalidToken

pytestmark = pytest.mark.smoke


class Lab:
    """An issuer and a verifier of its tokens. Each has a clock of its own, the same one."""

    def __init__(self, **options: Any) -> None:
        self.issuer = Issuer()
        self.clock = Clock()
        self.options = options

    async def __aenter__(self) -> Self:
        await self.issuer.__aenter__()
        url = self.issuer.url
        self.verifier = JwtVerifier(url, AUDIENCE, clock=self.clock, **self.options)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.issuer.go.set()
        await self.verifier.close()
        await self.issuer.__aexit__(*exc)

    def token(self, kid: str | None = "1") -> str:
        return self.issuer.token(kid=kid, exp=NOW + 10_000_000)

    async def verify(self, kid: str | None = "1") -> AccessToken:
        return await verified(self.verifier, self.token(kid))

    async def fetched(self, n: int) -> None:
        """Wait until keys were fetched n times, and the last ones are there."""
        async with asyncio.timeout(5):
            while self.issuer.n_fetched < n:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)


async def test_keys_are_fetched_once() -> None:
    async with Lab() as lab:
        assert (await lab.verify()).subject == "anne"
        for _ in range(3):  # at once
            assert isinstance(lab.verifier.verify(lab.token()), AccessToken)
        assert lab.issuer.n_fetched == 1


async def test_many_tokens_wait_for_one_fetch() -> None:
    async with Lab() as lab:
        lab.issuer.go.clear()
        tasks = [asyncio.create_task(lab.verify()) for _ in range(300)]
        await asyncio.sleep(0.05)
        tasks[0].cancel()  # which does not cancel the fetch
        lab.issuer.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert all(isinstance(one, AccessToken) for one in found[1:])
        assert lab.issuer.n_fetched == 1


async def test_old_keys_are_used_while_new_ones_are_fetched() -> None:
    async with Lab(keys_max_age=600) as lab:
        await lab.verify()
        lab.clock.now += 599
        assert isinstance(lab.verifier.verify(lab.token()), AccessToken)
        assert lab.issuer.n_fetched == 1
        lab.clock.now += 1
        lab.issuer.go.clear()
        old = lab.token()
        lab.issuer.keys = {"2": new_key("ES256")}
        for _ in range(5):
            assert isinstance(lab.verifier.verify(old), AccessToken)
        lab.issuer.go.set()
        await lab.fetched(2)
        assert lab.issuer.n_fetched == 2
        assert isinstance(lab.verifier.verify(lab.token("2")), AccessToken)
        with raises(InvalidToken):  # it was withdrawn
            await verified(lab.verifier, old)


async def test_a_new_key_is_found_at_once() -> None:
    async with Lab() as lab:
        await lab.verify()
        lab.clock.now += 30
        lab.issuer.keys["2"] = new_key("ES256")
        assert (await lab.verify("2")).subject == "anne"
        assert lab.issuer.n_fetched == 2


async def test_a_flood_of_unknown_keys_is_one_fetch_for_each_backoff() -> None:
    async with Lab(keys_backoff=30) as lab:
        await lab.verify()
        for n in range(1, 4):
            lab.clock.now += 30
            tasks = [asyncio.create_task(lab.verify(f"{n}-{i}")) for i in range(100)]
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, InvalidToken) for one in found)
            for i in range(50):
                with raises(InvalidToken):
                    await lab.verify(f"{n}+{i}")
            assert lab.issuer.n_fetched == 1 + n
            assert isinstance(lab.verifier.verify(lab.token()), AccessToken)


async def test_a_known_key_with_a_wrong_signature_fetches_nothing() -> None:
    async with Lab() as lab:
        await lab.verify()
        lab.clock.now += 60
        lab.issuer.keys = {"1": new_key("ES256")}  # of somebody who knows the id
        with raises(InvalidToken):
            await lab.verify()
        assert lab.issuer.n_fetched == 1


async def test_tokens_without_an_id_of_a_key() -> None:
    async with Lab() as lab:
        assert (await lab.verify(None)).subject == "anne"
        lab.issuer.keys["2"] = new_key("ES256")
        token = lab.issuer.token(kid="2", header={"kid": None}, exp=NOW + 1e6)
        with pytest.raises(InvalidToken):
            await verified(lab.verifier, token)
        lab.clock.now += 30
        assert (await verified(lab.verifier, token)).subject == "anne"
        assert lab.issuer.n_fetched == 2


async def test_a_token_without_an_id_is_tried_with_few_keys() -> None:
    async with Lab() as lab:
        mine = lab.issuer.keys.pop("1")
        lab.issuer.keys = {str(n): new_key("ES256") for n in range(10, 10 + MAX_TRIED)}
        lab.issuer.keys["1"] = mine
        with pytest.raises(InvalidToken):
            await lab.verify(None)
        assert (await lab.verify("1")).subject == "anne"


async def test_keys_without_ids() -> None:
    async with Lab() as lab:
        lab.issuer.body = json.dumps({"keys": [public(lab.issuer.keys["1"])]}).encode()
        assert (await lab.verify("1")).subject == "anne"
        assert (await lab.verify(None)).subject == "anne"


async def test_stale_keys_are_used_while_the_issuer_is_down() -> None:
    async with Lab(keys_max_age=600, keys_max_stale=3600) as lab:
        await lab.verify()
        lab.issuer.status = b"503 X"
        for n in range(2, 5):
            lab.clock.now += 600
            assert isinstance(lab.verifier.verify(lab.token()), AccessToken)
            await lab.fetched(n)
        with raises(CannotVerify):  # a key that may be new
            await lab.verify("2")
        lab.clock.now = NOW + 3600
        with raises(CannotVerify):
            await lab.verify()
        lab.issuer.status = b"200 OK"
        lab.clock.now += 30
        assert (await lab.verify()).subject == "anne"


async def test_failures_are_tried_again_ever_more_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Lab(keys_backoff=30) as lab:
        lab.issuer.status = b"500 X"
        times = []
        for _ in range(200):
            before = lab.issuer.n_fetched
            with pytest.raises(CannotVerify):
                await lab.verify()
            if lab.issuer.n_fetched > before:
                times.append(lab.clock.now - NOW)
            lab.clock.now += 0.5
        assert times == [0, 1, 3, 7, 15, 31, 61, 91]
        assert len(caplog.records) == len(times)
        lab.issuer.status = b"200 OK"
        lab.clock.now += 30
        assert (await lab.verify()).subject == "anne"


async def test_a_clock_that_is_put_back() -> None:
    async with Lab() as lab:
        await lab.verify()
        lab.clock.now -= 100
        assert (await lab.verify()).subject == "anne"
        assert lab.issuer.n_fetched == 2


@every(
    ("body", "reason"),
    [
        (b"<html>", "is not JSON"),
        (b"[]", "not a JWK Set"),
        (b'{"keys": {}}', "not a JWK Set"),
        (b'{"keys": []}', "none of its keys can be used"),
        (b'{"keys": [5, null, {}, {"kty": "new"}]}', "none of its keys can be used"),
        (b'{"keys": [%b{}]}' % (b"{}," * MAX_KEYS), "more than 100 keys"),
        (b'{"keys": ["%b"]}' % (b"x" * 300_000), "262144"),
        (b"[" * 200_000, "is not JSON"),
    ],
    ids=["html", "list", "object", "empty", "unusable", "many", "long", "deep"],
)
async def test_key_sets_that_are_refused(body: bytes, reason: str) -> None:
    async with Lab() as lab:
        lab.issuer.body = body
        with pytest.raises(CannotVerify, match=reason):
            await lab.verify()


@every(
    ("metadata", "reason"),
    [
        ({"jwks_uri": None}, "has no jwks_uri"),
        ({"jwks_uri": "http://keys.example/"}, "https is needed"),
        ({"jwks_uri": "https://169.254.169.254/latest"}, "its IP address is one that"),
        ({"jwks_uri": "file:///etc/passwd"}, "is not a URL"),
        ({"issuer": "https://other.example"}, "has the issuer 'https://other.example'"),
        ({"issuer": None}, "missing required field"),
    ],
)
async def test_metadata_that_is_refused(metadata: dict[str, Any], reason: str) -> None:
    async with Lab() as lab:
        lab.issuer.metadata |= metadata
        with pytest.raises(CannotVerify, match=reason):
            await lab.verify()
        assert lab.issuer.n_fetched == 0


async def test_an_issuer_without_metadata() -> None:
    async with Lab() as lab:
        verifier = JwtVerifier(f"{lab.issuer.url}/tenant", AUDIENCE, clock=lab.clock)
        token = lab.issuer.token(iss=f"{lab.issuer.url}/tenant")
        with raises(CannotVerify):
            await verified(verifier, token)
        await verifier.close()


async def test_keys_of_no_use_are_left_out() -> None:
    good = public(new_key("ES256"), "good")
    private = {**new_key("RS256").as_dict(private=True), "kid": "private"}
    secret = {**secret_key("s" * 32).as_dict(private=True), "kid": "secret"}
    listed = [5, private, secret, {"kty": "OKP", "crv": "X25519", "x": "AA"}, good]
    assert [one.kid for one in read_key_set({"keys": listed})] == ["good"]


async def test_closing_ends_what_is_under_way() -> None:
    async with Lab() as lab:
        lab.issuer.go.clear()
        task = asyncio.create_task(lab.verify())
        while not lab.issuer.n_fetched:
            await asyncio.sleep(0.001)
        await lab.verifier.close()
        await lab.verifier.close()
        with raises(CannotVerify):
            await task


def test_a_verifier_on_one_loop_after_another() -> None:
    issuer, clock = Issuer(), Clock()

    async def first() -> JwtVerifier:
        async with issuer:
            url = f"{issuer.url}/keys"
            verifier = JwtVerifier("https://a.example", AUDIENCE, jwks_url=url, clock=clock)
            token = issuer.token(iss="https://a.example", exp=NOW + 1000)
            assert (await verified(verifier, token)).subject == "anne"
            return verifier

    async def second(verifier: JwtVerifier) -> None:
        token = issuer.token(kid="2", iss="https://a.example", exp=NOW + 1000)
        with pytest.raises(CannotVerify):  # nothing listens there any longer
            await verified(verifier, token)
        await verifier.close()

    verifier = asyncio.run(first())
    clock.now += 60
    asyncio.run(second(verifier))

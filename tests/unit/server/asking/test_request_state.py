"""requestState: what is remembered comes back, and nothing that others made or changed does."""

from __future__ import annotations

import base64
import gc
import logging
import sys
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.rows import every
from lab.wording import raises

from wirespeed.errors import LimitExceeded, ProtocolError
from wirespeed.server.asking import request_state as module
from wirespeed.server.asking.request_state import RequestState, Sealer, binding_of, state_secrets

SECRET = b"s" * 32
OTHER = b"t" * 32
BINDING = binding_of(b"alice", "tools/call", "pay", b'{"to":"bob"}')
REFUSAL = "requestState is not valid for this request"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sealer(*secrets: bytes, name: str = "lab", **options: Any) -> Sealer:
    return Sealer(state_secrets(secrets or SECRET), name, **options)


def held() -> RequestState:
    return RequestState(
        asked={"elicit-2": "q2"},
        answers={"elicit-1": ("q1", msgspec.Raw(b'{"action":"accept","content":{"n":1.0}}'))},
        state=msgspec.Raw(b'{"step":1}'),
    )


def refused(sealer: Sealer, text: str, binding: str = BINDING) -> None:
    with pytest.raises(ProtocolError) as caught:
        sealer.open(text, binding)
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, REFUSAL, None)


def test_what_was_sealed_comes_back_as_it_was() -> None:
    text = sealer().seal(held(), BINDING)
    assert text.isascii() and set(text) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )
    opened = sealer().open(text, BINDING)
    assert opened.asked == held().asked
    assert {k: (q, bytes(a)) for k, (q, a) in opened.answers.items()} == {
        "elicit-1": ("q1", b'{"action":"accept","content":{"n":1.0}}')
    }
    assert bytes(opened.state) == b'{"step":1}'  # type: ignore[arg-type]


def test_without_a_value_of_the_handlers_there_is_none() -> None:
    opened = sealer().open(sealer().seal(RequestState(), BINDING), BINDING)
    assert opened == RequestState()
    assert opened.state is msgspec.UNSET


def test_two_states_are_never_the_same_text() -> None:
    one = sealer()
    assert one.seal(held(), BINDING) != one.seal(held(), BINDING)


def test_every_changed_byte_is_noticed() -> None:
    one = sealer()
    text = one.seal(held(), BINDING)
    for i, char in enumerate(text):
        refused(one, text[:i] + ("A" if char != "A" else "B") + text[i + 1 :])
        refused(one, text[:i] + text[i + 1 :])
        refused(one, text[:i])


@every(
    "spoil",
    [
        lambda t: "",
        lambda t: t + "A",
        lambda t: t + "=",
        lambda t: t + "====",
        lambda t: t + "\n",
        lambda t: " " + t,
        lambda t: t.replace("-", "+").replace("_", "/") + "!",
        lambda t: "é" + t[1:],
        lambda t: "\0" * 80,
        lambda t: t * 2,
        lambda t: "A" * (module.MAX_STATE + 1),
    ],
)
def test_what_is_not_exactly_the_text_is_refused(spoil: Any) -> None:
    one = sealer()
    refused(one, spoil(one.seal(held(), BINDING)))


def test_the_last_character_has_no_second_spelling() -> None:
    """Base64 has unused bits there, which a lax decoder drops."""
    one = sealer()
    seconds = 0
    for extra in range(3):
        state = RequestState(asked={"k": "x" * extra})
        text = one.seal(state, BINDING)
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
            again = text[:-1] + last
            same = base64.urlsafe_b64decode(again + "=" * (-len(again) % 4)) == raw
            if same and again != text:
                seconds += 1
                refused(one, again)
    assert seconds


@given(st.text(max_size=200))
def test_any_text_is_refused_in_the_same_words(text: str) -> None:
    refused(sealer(), text)


@given(st.binary(max_size=200))
def test_any_bytes_behind_base64_are_refused(data: bytes) -> None:
    refused(sealer(), base64.urlsafe_b64encode(data).rstrip(b"=").decode())


def test_an_expired_state_is_refused(clock: Clock) -> None:
    one = sealer(ttl=60, clock=clock)
    text = one.seal(held(), BINDING)
    clock.now += 59.5
    one.open(text, BINDING)
    clock.now += 1
    refused(one, text)


@every(
    "other",
    [
        binding_of(b"mallory", "tools/call", "pay", b'{"to":"bob"}'),
        binding_of(None, "tools/call", "pay", b'{"to":"bob"}'),
        binding_of(b"alice", "prompts/get", "pay", b'{"to":"bob"}'),
        binding_of(b"alice", "tools/call", "pay2", b'{"to":"bob"}'),
        binding_of(b"alice", "tools/call", "pay", b'{"to":"bob","n":1}'),
        binding_of(b"alice", "tools/call", "pay", b'{"to":"eve"}'),
        binding_of(b"alice", "tools/call", "pay", None),
    ],
)
def test_another_user_tool_or_argument_is_refused(other: str) -> None:
    one = sealer()
    refused(one, one.seal(held(), BINDING), other)


def test_the_parts_of_a_binding_cannot_run_into_each_other() -> None:
    assert binding_of(b"a", "bc", "d", None) != binding_of(b"ab", "c", "d", None)
    assert binding_of(None, "m", "t", None) != binding_of(b"", "m", "t", None)


def test_arguments_are_compared_by_value_not_by_spelling() -> None:
    one = binding_of(None, "m", "t", b'{"a":1,"b":{"d":[1,2],"c":"\\u00e9"}}')
    two = binding_of(None, "m", "t", '{ "b" : {"c":"é", "d":[1, 2]}, "a":1 }'.encode())
    assert one == two
    assert binding_of(None, "m", "t", b"{}") == binding_of(None, "m", "t", None)
    big = b'{"n":12345678901234567890123}'
    assert binding_of(None, "m", "t", big) != binding_of(None, "m", "t", big.replace(b"3}", b"4}"))
    deep = b"[" * 5000 + b"]" * 5000
    assert binding_of(None, "m", "t", deep) == binding_of(None, "m", "t", deep)


def test_another_server_with_the_same_secret_opens_nothing() -> None:
    refused(sealer(name="two"), sealer(name="one").seal(held(), BINDING))


def test_secrets_rotate() -> None:
    old, both, new = sealer(SECRET), sealer(OTHER, SECRET), sealer(OTHER)
    text = old.seal(held(), BINDING)
    assert both.open(text, BINDING).asked == held().asked
    refused(new, text)
    assert new.open(both.seal(held(), BINDING), BINDING).asked == held().asked
    refused(old, both.seal(held(), BINDING))


def test_the_default_secret_is_random() -> None:
    assert state_secrets(None) != state_secrets(None)
    refused(Sealer(state_secrets(None), "lab"), Sealer(state_secrets(None), "lab").seal(held(), ""))


@every("secret", [b"", b"short", "text" * 10, [], [b"x" * 32, b""], ["x" * 32]])
def test_a_weak_secret_is_an_error_of_the_author(secret: Any) -> None:
    with raises(ValueError):
        state_secrets(secret)


@pytest.mark.parametrize("now", [1000.0, 1000.01, 1000.5, 1000.99])
def test_a_short_life_is_not_none_at_all(now: float, clock: Clock) -> None:
    clock.now = now
    one = sealer(ttl=0.4, clock=clock)
    text = one.seal(held(), BINDING)
    clock.now += 0.39
    one.open(text, BINDING)
    clock.now += 1.01
    refused(one, text)


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf")])
def test_a_state_lives_for_some_time(ttl: float) -> None:
    with raises(ValueError):
        sealer(ttl=ttl)


def test_too_much_to_remember_is_an_error_that_says_how_much() -> None:
    one = sealer(max_bytes=2000)
    answer = msgspec.Raw(b'"%b"' % (b"x" * 2000))
    with raises(LimitExceeded):
        one.seal(RequestState(answers={"sample-1": ("q", answer)}), BINDING)
    text = one.seal(RequestState(state=msgspec.Raw(b'"%b"' % (b"x" * 1000))), BINDING)
    assert len(text) <= 2000
    one.open(text, BINDING)


def test_a_state_may_be_presented_again_unless_it_is_for_single_use(clock: Clock) -> None:
    many, once = sealer(), sealer(single_use=True, clock=clock)
    text = many.seal(held(), BINDING)
    assert many.open(text, BINDING) == many.open(text, BINDING)
    text = once.seal(held(), BINDING)
    refused(once, text, "of another request")  # that does not use it up
    once.open(text, BINDING)
    refused(once, text)
    once.open(once.seal(held(), BINDING), BINDING)


def test_used_states_are_refused_however_many_there_are(clock: Clock) -> None:
    """A client that uses many states switches nothing off for others, and costs little memory."""
    one = sealer(single_use=True, ttl=60, clock=clock)
    first = one.seal(held(), BINDING)
    one.open(first, BINDING)
    gc.collect()
    tracemalloc.start()
    for _ in range(3_000):
        one.open(one.seal(held(), BINDING), BINDING)
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 15_000
    refused(one, first)
    another = one.seal(held(), BINDING)
    one.open(another, BINDING)
    refused(one, another)
    clock.now += 30
    late = one.seal(held(), BINDING)
    clock.now += 31
    refused(one, first)
    one.open(late, BINDING)
    refused(one, late)


def test_a_state_of_another_process_is_used_once(clock: Clock) -> None:
    """Two processes with one secret: each of them opens a state once."""
    secrets = state_secrets(b"s" * 16)
    one, other = (Sealer(secrets, "lab", single_use=True, clock=clock) for _ in range(2))
    texts = [one.seal(held(), BINDING), other.seal(held(), BINDING)]
    for text in texts:
        one.open(text, BINDING)
        refused(one, text)
    other.open(texts[0], BINDING)
    refused(other, texts[0])


def test_the_reason_is_for_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    one = sealer()
    with caplog.at_level(logging.DEBUG, "wirespeed.server"):
        refused(one, one.seal(held(), BINDING), "another")
    assert "another user or request" in caplog.text


def test_a_state_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sealer()
    monkeypatch.setattr(module, "VERSION", 2)
    text = one.seal(held(), BINDING)
    monkeypatch.undo()
    refused(one, text)


def test_servers_that_ask_nothing_load_no_cryptography() -> None:
    import subprocess

    code = (
        "import sys, wirespeed; wirespeed.Server('a'); "
        "print([m for m in ('hmac', 'hashlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"

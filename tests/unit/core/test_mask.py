"""The masking kernels: every level against the rule, at every alignment and at a guard page."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from lab.guard_page import guarded, put, shifted
from lab.wording import raises

from wirespeed._core import _simd

__all__ = ["guarded"]  # a fixture

LEVELS = _simd.levels()
KEY = b"\x01\x80\xfe\x5a"
DATA = random.Random(1).randbytes(700)


def expected(data: bytes, at: int) -> bytes:
    return bytes(byte ^ KEY[(at + i) % 4] for i, byte in enumerate(data))


def edges() -> Iterator[int]:
    """Lengths around every width of a register, and of several."""
    yield from range(140)
    yield from (191, 192, 193, 255, 256, 257, 319, 320, 511, 512, 513, 640)


@pytest.mark.parametrize("level", LEVELS)
def test_in_place_at_a_guard_page(level: str, guarded: memoryview) -> None:
    for length in edges():
        data = DATA[:length]
        at = length % 4
        place = put(guarded, data)
        before = bytes(guarded[: len(guarded) - length])
        _simd.mask(place, KEY, at, level=level)
        assert bytes(place) == expected(data, at)
        assert guarded[: len(guarded) - length] == before


@pytest.mark.parametrize("level", LEVELS)
def test_every_alignment_and_length(level: str) -> None:
    for by in range(64):
        for length in range(by % 7, 200, 7):
            data = DATA[by : by + length]
            for at in range(4):
                place = shifted(data, by)
                room = place.obj
                assert isinstance(room, bytearray)
                start = room.index(data) if data else 0
                around = room[:start], room[start + length :]
                _simd.mask(place, KEY, at, level=level)
                assert bytes(place) == expected(data, at)
                assert (room[:start], room[start + length :]) == around


@pytest.mark.parametrize("level", LEVELS)
def test_from_and_to_a_guard_page(level: str, guarded: memoryview) -> None:
    for length in edges():
        data = DATA[:length]
        target = bytearray(length)
        _simd.mask(put(guarded, data), KEY, 3, to=target, level=level)
        assert target == expected(data, 3)
        _simd.mask(data, KEY, 2, to=put(guarded, bytes(length)), level=level)
        assert guarded[len(guarded) - length :] == expected(data, 2)


@pytest.mark.parametrize("level", LEVELS)
def test_moved_down_by_any_distance(level: str) -> None:
    """As later fragments are: what is read must not have been written before."""
    for distance in (*range(1, 70), 127, 128, 129, 300):
        for length in (0, 1, 3, 8, 15, 16, 17, 63, 64, 65, 127, 128, 200, 257, 300):
            room = bytearray(b"<" * 5 + bytes(distance) + DATA[:length] + b">" * 5)
            target = memoryview(room)[5:]
            source = memoryview(room)[5 + distance : 5 + distance + length]
            _simd.mask(source, KEY, 1, to=target, level=level)
            assert room[:5] == b"<" * 5
            assert room[5 : 5 + length] == expected(DATA[:length], 1)
            # what neither the source nor the result lies in is as it was
            assert room[5 + distance + length :] == b">" * 5


@pytest.mark.parametrize("level", LEVELS)
def test_twice_is_nothing(level: str) -> None:
    place = bytearray(DATA)
    _simd.mask(place, KEY, level=level)
    assert place != DATA
    _simd.mask(place, KEY, level=level)
    assert place == DATA


def test_what_is_refused() -> None:
    with raises(ValueError):
        _simd.mask(bytearray(3), b"123")
    with raises(ValueError):
        _simd.mask(bytearray(3), KEY, 4)
    with raises(ValueError):
        _simd.mask(b"123", KEY, to=bytearray(2))
    with pytest.raises(BufferError):
        _simd.mask(b"123", KEY)
    room = bytearray(10)
    with raises(ValueError):
        _simd.mask(memoryview(room)[:5], KEY, to=memoryview(room)[4:])

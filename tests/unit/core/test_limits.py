"""Limits: defaults, and values that make no sense."""

from __future__ import annotations

import pickle

import pytest
from lab.rows import every
from lab.wording import raises

from wirespeed.core import Limits


def test_defaults() -> None:
    assert Limits().asdict() == {
        "max_message": 64 * 1024 * 1024,
        "max_depth": 128,
        "max_values": 2_000_000,
        "max_batch": 1000,
        "max_id": 1024,
        "max_in_flight": 1024,
        "max_in_flight_bytes": 64 * 1024 * 1024,
        "max_waiting": 4096,
        "max_waiting_bytes": 1024 * 1024,
        "max_outstanding": 65536,
        "output_high": 1024 * 1024,
        "output_low": 256 * 1024,
    }


@every("name", Limits.__slots__)
@every("value", [0, -1])
def test_each_is_at_least_one(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    ("name", "most"), [("max_depth", 1024), ("max_message", 2**31), ("max_outstanding", 2**20 - 1)]
)
def test_upper_bounds(name: str, most: int) -> None:
    assert getattr(Limits(**{name: most}), name) == most
    with pytest.raises(ValueError, match=name):
        Limits(**{name: most + 1})


def test_the_low_mark_is_not_above_the_high_one() -> None:
    Limits(output_high=5, output_low=5)
    with raises(ValueError):
        Limits(output_high=5, output_low=6)


def test_they_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Limits().max_depth = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        Limits(5)  # type: ignore[misc]


def test_they_are_values() -> None:
    limits = Limits(max_depth=5)
    assert limits == Limits(max_depth=5) != Limits()
    assert hash(limits) == hash(Limits(max_depth=5))
    assert pickle.loads(pickle.dumps(limits)) == limits
    assert repr(limits).startswith("Limits(max_message=67108864, max_depth=5, ")
    assert limits.replace(max_id=7).asdict() == limits.asdict() | {"max_id": 7}
    with pytest.raises(ValueError, match="max_id must be at least 1"):
        limits.replace(max_id=0)
    with pytest.raises(AttributeError):
        del limits.max_id

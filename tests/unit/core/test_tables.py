"""The tables of outstanding ids and of requests in flight, called directly."""

from __future__ import annotations

import gc
import math
import sys
import weakref

import pytest
from lab.rows import every
from lab.wording import raises

from wirespeed._core.inflight import InFlight
from wirespeed._core.pending import Pending

# -- outstanding -------------------------------------------------------------------------------


def test_an_id_is_a_slot_and_a_generation() -> None:
    pending = Pending()
    first = pending.add("a")
    assert first == 1
    assert pending.take(first) == "a"
    assert pending.take(first) is None
    again = pending.add("b")
    assert again == (1 << 20) | 1
    assert pending.take(first) is None
    assert pending.find(b"1") is None
    assert pending.find(str(again).encode()) == "b"
    assert len(pending) == pending.live == 1


def test_a_table_after_others() -> None:
    """It knows none of their ids, and has none of them."""
    found = set()
    for n in (0, 1, 2, 0xFFFF):
        pending = Pending()
        pending.begin_after(n)
        ids = [pending.add("t") for _ in range(3)]
        ids.append((pending.take(ids[0]), pending.add("t"))[1])
        assert max(ids) < 1 << 52
        assert not [id for id in found if pending.find(str(id).encode())]
        assert len(found | set(ids)) == len(found) + 4
        found |= set(ids)


def test_find_is_exact() -> None:
    pending = Pending()
    for i in range(1, 13):
        assert pending.add(f"t{i}") == i
    assert pending.find(b"12") == "t12"
    assert pending.find(bytearray(b"5")) == "t5"
    strange = (b"", b"0", b"-1", b"01", b"1.0", b"1e0", b" 1", b"1 ", b'"1"', b"13", b"+1")
    long = (b"4503599627370497", b"9" * 16, b"9" * 17, b"1" * 40, b"\xef\xbc\x91")
    for text in (*strange, *long):
        assert pending.find(text) is None, text


@every("id", [0, -1, 1 << 20, (1 << 52) + 1, (1 << 62) + 1, -(1 << 63), 2])
def test_ids_that_are_none(id: int) -> None:
    pending = Pending()
    assert pending.add("t") == 1
    assert pending.take(id) is None
    assert pending.take(1) == "t"


def test_the_limit() -> None:
    pending = Pending(3)
    ids = [pending.add(i) for i in range(3)]
    for _ in range(2):
        with pytest.raises(OverflowError, match="3 requests"):
            pending.add("t")
    assert pending.limit == 3
    assert pending.take(ids[1]) == 1
    assert pending.add("t") not in ids
    for limit in (0, 1 << 20):
        with raises(ValueError):
            Pending(limit)


def test_tokens_are_counted() -> None:
    token = object()
    before = sys.getrefcount(token)
    pending = Pending()
    ids = [pending.add(token, 1.0) for _ in range(100)]
    assert sys.getrefcount(token) == before + 100
    for id in ids[:50]:
        pending.take(id)
    assert sys.getrefcount(token) == before + 50
    assert len(pending.expire(2.0)) == 50
    assert sys.getrefcount(token) == before
    pending.add(token)
    del pending
    assert sys.getrefcount(token) == before
    with pytest.raises(TypeError):
        Pending().add(None)


class Token:
    pass


def test_cycles_through_tokens_are_collected() -> None:
    pending = Pending()
    token = Token()
    token.table = pending  # type: ignore[attr-defined]
    alive = weakref.ref(token)
    pending.add(token)
    del token, pending
    gc.collect()
    assert alive() is None


def test_deadlines_in_order() -> None:
    pending = Pending()
    at = [(i * 7919) % 1000 / 8 for i in range(1000)]
    ids = {pending.add(i, when): when for i, when in enumerate(at)}
    assert pending.next_deadline() == 0.0
    expired = pending.expire(60.0)
    assert [ids[id] for id, _ in expired] == sorted(when for when in at if when <= 60.0)
    assert pending.next_deadline() == min(when for when in at if when > 60.0)
    assert len(pending.take_all()) == len(pending.expire(math.inf)) + 1000 - len(expired)
    assert pending.next_deadline() is None


def test_deadlines_of_answered_requests_do_not_pile_up() -> None:
    """A far deadline on each of many short calls: what is answered leaves the heap."""
    pending = Pending()
    keeper = pending.add("keeper", 1e9)
    for i in range(20_000):
        pending.take(pending.add(i, 1e8 + i))
    assert pending.next_deadline() == 1e9
    assert pending.expire(2e9) == [(keeper, "keeper")]


@pytest.mark.parametrize("deadline", [-math.inf, -1.0, 0.0])
def test_deadlines_that_are_over_already(deadline: float) -> None:
    pending = Pending()
    id = pending.add("t", deadline)
    assert pending.next_deadline() == deadline
    assert pending.expire(0.0) == [(id, "t")]


def test_no_deadline_is_infinite_and_none_is_nan() -> None:
    pending = Pending()
    pending.add("a", math.inf)
    assert pending.next_deadline() is None
    assert pending.expire(math.inf) == []
    with raises(ValueError):
        pending.add("b", math.nan)
    assert len(pending) == 1


def test_take_all_leaves_a_table_that_works() -> None:
    pending = Pending()
    ids = [pending.add(i, float(i)) for i in range(10)]
    pending.take(ids[4])
    assert pending.take_all() == [(id, i) for i, id in enumerate(ids) if i != 4]
    assert (len(pending), pending.next_deadline(), pending.take_all()) == (0, None, [])
    id = pending.add("t", 5.0)
    assert id not in ids
    assert pending.expire(5.0) == [(id, "t")]


# -- in flight ---------------------------------------------------------------------------------


@every("n", [1, 27, 28, 29, 35, 36, 37, 1000, 100_000])
def test_ids_of_any_length(n: int) -> None:
    table = InFlight()
    id, other = b"x" * n, b"x" * (n - 1) + b"y"
    ref = table.add(id)
    assert ref != 0
    assert table.add(id) == 0
    assert table.find(other) == 0
    second = table.add(bytearray(other))
    assert table.find(id) == ref
    assert table.find(memoryview(other)) == second
    assert table.remove(ref)
    assert not table.remove(ref)
    assert table.find(id) == 0
    assert table.find(other) == second
    assert len(table) == table.live == 1


def test_an_id_has_bytes() -> None:
    table = InFlight()
    for ask in (table.add, table.find):
        with raises(ValueError):
            ask(b"")
    assert not table.remove(0)
    assert not table.remove(1)
    assert not table.remove(2**64 - 1)


def test_a_ref_is_not_used_again() -> None:
    table = InFlight()
    refs = set()
    for _ in range(100):
        ref = table.add(b"1")
        refs.add(ref)
        assert table.remove(ref)
    assert len(refs) == 100
    ref = table.add(b"1")
    assert not any(map(table.remove, refs))
    assert table.find(b"1") == ref


def test_it_grows_and_shrinks_with_many_collisions() -> None:
    """Ids that differ in little, added and removed in changing order."""
    table = InFlight()
    ids = [b"%d" % i for i in range(3000)] + [b'"' + b"0" * 40 + b'%d"' % i for i in range(3000)]
    refs = {id: table.add(id) for id in ids}
    assert len(set(refs.values())) == len(table) == 6000
    for round in range(3):
        gone = ids[round::3]
        for id in gone:
            assert table.remove(refs.pop(id))
        assert len(table) == len(refs)
        assert all(table.find(id) == ref for id, ref in refs.items())
        assert not any(map(table.find, gone))
        refs |= {id: table.add(id) for id in gone[::2]}
    assert all(table.find(id) == ref for id, ref in refs.items())

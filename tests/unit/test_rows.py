"""`rows.every`: a table cannot pass with a row that fails, or without rows."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from lab.rows import every


def notes(failure: pytest.ExceptionInfo[ExceptionGroup[Exception]]) -> list[list[str]]:
    return [exc.__notes__ for exc in failure.value.exceptions]


def test_all_rows_are_checked_and_those_that_fail_are_named() -> None:
    seen = []

    @every("a, b", [(1, 1), (1, 2), pytest.param(2, 3, id="third")])
    def check(a: int, b: int) -> None:
        seen.append((a, b))
        assert a == b

    with pytest.raises(ExceptionGroup, match="check: 2 of 3 rows") as failure:
        check()
    assert seen == [(1, 1), (1, 2), (2, 3)]
    assert notes(failure) == [["row: 1 2"], ["row: third"]]


def test_tables_multiply() -> None:
    seen = []

    @every("a", "xy")
    @every("b", [1, 2], ids=["one", "two"])
    def check(a: str, b: int) -> None:
        seen.append((a, b))
        if (a, b) == ("y", 2):
            pytest.fail("this one")

    with pytest.raises(ExceptionGroup) as failure:
        check()
    assert seen == [("x", 1), ("x", 2), ("y", 1), ("y", 2)]
    assert notes(failure) == [["row: 'y'"]]
    (inner,) = failure.value.exceptions
    assert isinstance(inner, ExceptionGroup)
    assert inner.exceptions[0].__notes__ == ["row: two"]


def test_fixtures_stay_parameters() -> None:
    @every("row", [1])
    def check(tmp_path: object, row: int) -> None:
        assert tmp_path == "a fixture"

    assert [*inspect.signature(check).parameters] == ["tmp_path"]
    check(tmp_path="a fixture")


def test_a_coroutine_awaits_each_row() -> None:
    @every("row", [1, 2])
    async def check(row: int) -> None:
        await asyncio.sleep(0)
        assert row == 1

    with pytest.raises(ExceptionGroup) as failure:
        asyncio.run(check())
    assert notes(failure) == [["row: 2"]]


def test_a_table_without_rows_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="checks nothing"):
        every("row", [])


def test_a_row_with_marks_is_a_case_of_its_own() -> None:
    with pytest.raises(AssertionError, match="a case of its own"):
        every("row", [pytest.param(1, marks=pytest.mark.smoke)])

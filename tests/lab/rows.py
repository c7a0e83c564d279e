"""Tables of rows that one test goes through."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

Test = Callable[..., Any]
Ids = Callable[[Any], object] | Iterable[object] | None


def every(
    names: str | Iterable[str], rows: Iterable[Any], ids: Ids = None
) -> Callable[[Test], Test]:
    """The test checks every row of a table: `pytest.mark.parametrize` without a case for each.

    It is for rows that share nothing: fixtures are set up once. All rows are checked; the failure
    is an ExceptionGroup of the errors, each with a note that names its row.
    """
    columns = names.replace(",", " ").split() if isinstance(names, str) else [*names]
    table = [*_named(columns, rows, ids)]
    assert table, "a table without rows checks nothing"

    def decorate(test: Test) -> Test:
        whole = inspect.signature(test)
        kept = [each for name, each in whole.parameters.items() if name not in columns]
        assert len(kept) == len(whole.parameters) - len(columns), "a column that the test lacks"

        def check(**fixtures: Any) -> None:
            failures = _Failures(test.__name__, len(table))
            for name, values in table:
                with failures.of(name):
                    test(**fixtures, **values)
            failures.tell()

        async def check_awaiting(**fixtures: Any) -> None:
            failures = _Failures(test.__name__, len(table))
            for name, values in table:
                with failures.of(name):
                    await test(**fixtures, **values)
            failures.tell()

        chosen = check_awaiting if inspect.iscoroutinefunction(test) else check
        decorated = functools.wraps(test)(chosen)
        decorated.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]
        return decorated

    return decorate


def _named(
    columns: list[str], rows: Iterable[Any], ids: Ids
) -> Iterator[tuple[str, dict[str, Any]]]:
    listed = None if ids is None or callable(ids) else [*ids]
    for n, row in enumerate(rows):
        id = None
        if isinstance(row, type(pytest.param())):
            assert not row.marks, "a row with marks is a case of its own"
            values, id = row.values, row.id
        else:
            values = tuple(row) if len(columns) > 1 else (row,)
        assert len(values) == len(columns), row
        if id is None and listed is not None:
            id = str(listed[n])
        elif id is None:
            shown = ids if callable(ids) else repr
            id = " ".join(str(shown(value)) for value in values)
        yield str(id), dict(zip(columns, values, strict=True))


class _Failures:
    def __init__(self, test: str, n_rows: int) -> None:
        self._test = test
        self._n_rows = n_rows
        self._found: list[Exception] = []
        self._row = ""

    def of(self, row: str) -> _Failures:
        self._row = row
        return self

    def __enter__(self) -> None:
        """A row is checked."""

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> bool:
        if isinstance(exc, pytest.fail.Exception):
            exc = AssertionError(exc.msg).with_traceback(exc.__traceback__)
        if not isinstance(exc, Exception):
            return False
        exc.add_note(f"row: {self._row}")
        self._found.append(exc)
        return True

    def tell(self) -> None:
        if self._found:
            n = len(self._found)
            raise ExceptionGroup(f"{self._test}: {n} of {self._n_rows} rows", self._found)

"""Pages of a list, and their cursors (server/utilities/pagination). Loaded by the first list.

A cursor names the last entry of the page before it: it needs no state, and survives changes
elsewhere in the list.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes


class Page(NamedTuple):
    """The entries of one page.

    ``is_regular``: the page starts at a multiple of the page size, so it is kept encoded.
    """

    entries: list[Any]
    next_cursor: str | None
    is_regular: bool


def page_of(entries: Sequence[tuple[str, Any]], cursor: str | None, size: int | None) -> Page:
    """The page behind a cursor, of entries by key. ``size``: entries on a page; None for all.

    ProtocolError -32602: the cursor was not given out.
    """
    start = 0
    if cursor is not None:
        start = _start(entries, cursor) if size is not None else _refuse()
    end = len(entries) if size is None else start + size
    shown = entries[start:end]
    more = end < len(entries)
    return Page(
        [entry for _, entry in shown],
        _cursor(shown[-1][0]) if more else None,
        start % (size or 1) == 0,
    )


def _start(entries: Sequence[tuple[str, Any]], cursor: str) -> int:
    try:
        last = base64.urlsafe_b64decode(cursor.encode()).decode()
        start = [key for key, _ in entries].index(last) + 1
    except ValueError:
        _refuse()
    if _cursor(last) != cursor:  # decoding is lenient: one spelling only
        _refuse()
    return start


def _refuse() -> NoReturn:
    raise ProtocolError(codes.INVALID_PARAMS, "Invalid cursor") from None


def _cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()

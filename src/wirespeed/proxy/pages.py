"""The pages of a list of a server, for which the proxy itself asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from wirespeed.errors import InvalidResponse

# Pages of one list.
MAX_PAGES = 1000


async def pages(
    ask: Callable[[str, object], Awaitable[Any]],
    method: str,
    params: dict[str, Any],
    max_bytes: int,
) -> list[dict[str, Any]]:
    """Return the pages of a list. The last one has no next cursor, or one that is empty, is not a
    string, or was followed before.

    ``ask``: Sends a request and returns its result. ``max_bytes``: What all pages may take.
    InvalidResponse: A page is not an object, or the list is too long.
    What ``ask`` raises passes.
    """
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    n_bytes = 0
    for _ in range(MAX_PAGES):
        page = await ask(method, params)
        if not isinstance(page, dict):
            raise InvalidResponse(f"a page of {method} is not an object")
        n_bytes += len(msgspec.json.encode(page))
        if n_bytes > max_bytes:
            raise InvalidResponse(f"{method} has more than {max_bytes} bytes")
        found.append(page)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            return found
        seen.add(cursor)
        params = {**params, "cursor": cursor}
    raise InvalidResponse(f"{method} has more than {MAX_PAGES} pages")

"""Pagination: all pages of a list of the server (server/utilities/pagination).

Cursors are opaque. ``""`` is a cursor too: only an absent ``nextCursor`` ends a list. A cursor that
was followed before, and ``""`` where the server refuses it, end the list with what came.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from wirespeed.client.results.decode import ResultDecoder
from wirespeed.client.results.features import (
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PromptInfo,
    ResourceInfo,
    ResourceTemplateInfo,
)
from wirespeed.client.results.pages import PageDecoder
from wirespeed.client.results.tools import ListToolsResult, ToolInfo
from wirespeed.errors import InvalidResponse, RemoteError
from wirespeed.protocol import codes

logger = logging.getLogger("wirespeed.client")

# The most pages of one list.
MAX_PAGES = 10_000


class Page(Protocol):
    """The members of every page that pagination needs."""

    next_cursor: str | None
    result_type: str


P = TypeVar("P", bound=Page)
T = TypeVar("T")


class Listing(Generic[P, T]):
    """One of the lists: its method, the type of its pages, their items, and the key of an item."""

    def __init__(
        self, method: str, page: type[P], items: Callable[[P], list[T]], key: Callable[[T], str]
    ) -> None:
        self.method = method
        self.items = items
        self.key = key
        self.decode: ResultDecoder[P] = ResultDecoder(PageDecoder(method, page))


TOOLS: Listing[ListToolsResult, ToolInfo] = Listing(
    "tools/list", ListToolsResult, lambda page: page.tools, lambda tool: tool.name
)
PROMPTS: Listing[ListPromptsResult, PromptInfo] = Listing(
    "prompts/list", ListPromptsResult, lambda page: page.prompts, lambda prompt: prompt.name
)
RESOURCES: Listing[ListResourcesResult, ResourceInfo] = Listing(
    "resources/list",
    ListResourcesResult,
    lambda page: page.resources,
    lambda resource: resource.uri,
)
TEMPLATES: Listing[ListResourceTemplatesResult, ResourceTemplateInfo] = Listing(
    "resources/templates/list",
    ListResourceTemplatesResult,
    lambda page: page.resource_templates,
    lambda template: template.uri_template,
)


def refuses_cursor(exc: RemoteError, cursor: str | None) -> bool:
    """Whether an error means that the server does not know the cursor."""
    return cursor is not None and exc.code == codes.INVALID_PARAMS


async def pages(
    listing: Listing[P, T], fetch: Callable[[str | None], Awaitable[P]]
) -> AsyncGenerator[P | None, None]:
    """Yields the pages that ``fetch(cursor)`` returns.

    Yields None when the list starts again: discard all pages before it.

    A list starts again, once, when a server refuses the cursor that it returned (2026-07-28
    server/utilities/caching, "Interaction with Pagination"). InvalidResponse: the pages never end.
    """
    cursor: str | None = None
    seen: set[str] = set()
    again = False
    for _ in range(MAX_PAGES):
        try:
            page = await fetch(cursor)
        except RemoteError as exc:
            if cursor == "" and refuses_cursor(exc, cursor):
                logger.warning(
                    '%s ends with the cursor "", which the server refuses', listing.method
                )
                return
            if again or not refuses_cursor(exc, cursor):
                raise
            again = True
            cursor = None
            seen.clear()
            yield None
            continue
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
        if cursor in seen:
            logger.warning(
                "%s ends early: its next page is one before it (cursor %.100r)",
                listing.method,
                cursor,
            )
            return
        seen.add(cursor)
    raise InvalidResponse(f"{listing.method} has more than {MAX_PAGES} pages")


async def walk(
    listing: Listing[P, T], fetch: Callable[[str | None], Awaitable[P]]
) -> AsyncGenerator[T, None]:
    """Yields the items of all pages. Items of which a page before had one with the same key are
    skipped: the list has started again, or its pages go in a circle."""
    given: set[str] = set()
    async with aclosing(pages(listing, fetch)) as all_pages:
        async for page in all_pages:
            items = [] if page is None else listing.items(page)
            fresh = [item for item in items if listing.key(item) not in given]
            given.update(map(listing.key, fresh))
            for item in fresh:
                yield item


async def whole(listing: Listing[P, T], fetch: Callable[[str | None], Awaitable[P]]) -> list[T]:
    """The items of all pages. When the list starts again, the items before that are dropped; of a
    key that several pages have, the first page's are kept."""
    items: list[T] = []
    given: set[str] = set()
    async with aclosing(pages(listing, fetch)) as all_pages:
        async for page in all_pages:
            if page is None:
                items.clear()
                given.clear()
                continue
            fresh = [item for item in listing.items(page) if listing.key(item) not in given]
            given.update(map(listing.key, fresh))
            items += fresh
    return items

"""The requests for a server's features: lists, resources, prompts, completion, discovery.

Results of a modern server are cached as long as they are fresh: see `wirespeed.client.cache`.

All pages of a list (server/utilities/pagination): cursors are opaque. ``""`` is a cursor too: only
an absent ``nextCursor`` ends a list. A cursor that was followed before, and ``""`` where the server
refuses it, end the list with what came.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from wirespeed.client.cache import READ, CachingDecoder, ResponseCache
from wirespeed.client.requests.send import Meta, OnProgress, Sender, params_text
from wirespeed.client.results.decode import (
    PageDecoder,
    ResultDecoder,
    Unfinished,
    decode_completion,
    decode_discovery,
    decode_prompt_result,
    decode_read_result,
)
from wirespeed.client.results.features import (
    Discovery,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PromptInfo,
    PromptRef,
    ResourceInfo,
    ResourceRef,
    ResourceTemplateInfo,
    ToolInfo,
)
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout, limit_of
from wirespeed.errors import InvalidResponse, RemoteError, Unsupported
from wirespeed.protocol import codes
from wirespeed.protocol.digests import are_of_two
from wirespeed.protocol.results import Completion, GetPromptResult, ReadResourceResult
from wirespeed.protocol.revisions import fit

if TYPE_CHECKING:
    from wirespeed.client.digests import KnownLists

__all__ = ["FeatureRequests"]

logger = logging.getLogger("wirespeed.client")

# The most pages of one list.
MAX_PAGES = 10_000
# How often a list may change while it is listed.
MAX_CHANGES = 3

P = TypeVar("P", bound="ListPage")
R = TypeVar("R")
T = TypeVar("T")


class ListPage(Protocol):
    """The members of every page that pagination needs."""

    next_cursor: str | None
    result_type: str
    digest: str | None


# Returns the page behind a cursor, of the list that has this digest.
Fetch: TypeAlias = Callable[[str | None, str | None], Awaitable[P]]


class ListMethod(Generic[P, T]):
    """One of the lists: its method, the type of its pages, their items, and the key of an item."""

    def __init__(
        self, method: str, page: type[P], items: Callable[[P], list[T]], key: Callable[[T], str]
    ) -> None:
        self.method = method
        self.items = items
        self.key = key
        self.decode: ResultDecoder[P] = ResultDecoder(PageDecoder(method, page))

    async def pages(self, fetch: Fetch[P]) -> AsyncGenerator[P | None, None]:
        """Yields the pages that ``fetch(cursor, digest)`` returns. ``digest`` is that of the first
        page.

        Yields None when the list starts again: discard all pages before it.

        A list starts again, once, when a server refuses the cursor that it returned (2026-07-28
        server/utilities/caching, "Interaction with Pagination"), and when a page has another digest
        than the first one. InvalidResponse: the pages never end, or each time have several digests.
        """
        cursor: str | None = None
        digest: str | None = None
        seen: set[str] = set()
        again = False
        n_changes = 0
        for _ in range(MAX_PAGES):
            try:
                page = await fetch(cursor, digest)
            except RemoteError as exc:
                if cursor == "" and refuses_cursor(exc, cursor):
                    logger.warning(
                        '%s ends with the cursor "", which the server refuses', self.method
                    )
                    return
                if again or not refuses_cursor(exc, cursor):
                    raise
                again = True
                cursor = None
                seen.clear()
                yield None
                continue
            if cursor is None:
                digest = page.digest
            elif are_of_two(digest, page.digest):
                n_changes += 1
                if n_changes > MAX_CHANGES:
                    raise InvalidResponse(f"{self.method} changes while it is listed")
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
                    self.method,
                    cursor,
                )
                return
            seen.add(cursor)
        raise InvalidResponse(f"{self.method} has more than {MAX_PAGES} pages")

    async def walk(self, fetch: Fetch[P]) -> AsyncGenerator[T, None]:
        """Yields the items of all pages. Items of which a page before had one with the same key are
        skipped: the list has started again, or its pages go in a circle."""
        given: set[str] = set()
        async with aclosing(self.pages(fetch)) as all_pages:
            async for page in all_pages:
                items = [] if page is None else self.items(page)
                fresh = [item for item in items if self.key(item) not in given]
                given.update(map(self.key, fresh))
                for item in fresh:
                    yield item

    async def whole(self, fetch: Fetch[P], known: KnownLists | None = None) -> list[T]:
        """The items of all pages. When the list starts again, the items before that are dropped;
        of a key that several pages have, the first page's are kept. ``known``: the lists of which
        one is taken, and the other pages are not, if the first page has its digest."""
        items: list[T] = []
        given: set[str] = set()
        page: P | None = None
        async with aclosing(self.pages(fetch)) as all_pages:
            async for page in all_pages:
                if page is None:
                    items.clear()
                    given.clear()
                    continue
                if known is not None and not given:
                    held: list[T] | None = known.get(self.method, page.digest)
                    if held is not None:
                        return held
                fresh = [item for item in self.items(page) if self.key(item) not in given]
                given.update(map(self.key, fresh))
                items += fresh
        if known is not None:
            known.keep(self.method, None if page is None else page.digest, items)
        return items


TOOLS: ListMethod[ListToolsResult, ToolInfo] = ListMethod(
    "tools/list", ListToolsResult, lambda page: page.tools, lambda tool: tool.name
)
PROMPTS: ListMethod[ListPromptsResult, PromptInfo] = ListMethod(
    "prompts/list", ListPromptsResult, lambda page: page.prompts, lambda prompt: prompt.name
)
RESOURCES: ListMethod[ListResourcesResult, ResourceInfo] = ListMethod(
    "resources/list",
    ListResourcesResult,
    lambda page: page.resources,
    lambda resource: resource.uri,
)
TEMPLATES: ListMethod[ListResourceTemplatesResult, ResourceTemplateInfo] = ListMethod(
    "resources/templates/list",
    ListResourceTemplatesResult,
    lambda page: page.resource_templates,
    lambda template: template.uri_template,
)


def refuses_cursor(exc: RemoteError, cursor: str | None) -> bool:
    """Whether an error means that the server does not know the cursor."""
    return cursor is not None and exc.code == codes.INVALID_PARAMS


class FeatureRequests:
    """The requests of one client for the features of its server.

    Args:
        sender: Sends the requests.
        cache: Keeps results; None: no result is kept.
        learn: Called with each page of tools. Returns the tools that can be called.
        known: Keeps lists by their digests; None: no list is kept.
    """

    def __init__(
        self,
        sender: Sender,
        cache: ResponseCache | None,
        learn: Callable[[list[ToolInfo]], list[ToolInfo]],
        known: KnownLists | None = None,
    ) -> None:
        self._sender = sender
        self._cache = cache
        self._learn = learn
        self._known = known

    # -- lists -----------------------------------------------------------------------------------

    async def whole(
        self, listing: ListMethod[P, T], timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> list[T]:
        """The items of all pages, which take ``timeout`` together."""
        sender = self._sender
        limit = sender.seconds(timeout)
        until = sender.until(limit)

        def fetch(cursor: str | None, digest: str | None) -> Awaitable[P]:
            return self.page(listing, cursor, sender.rest(until, limit_of(limit)), meta, digest)

        return await listing.whole(fetch, self._known)

    async def tools_again(self, until: float) -> list[ToolInfo]:
        """All tools, requested again without the cache."""
        if self._cache is not None:
            self._cache.drop(TOOLS.method)
        return await self.whole(TOOLS, self._sender.rest(until))

    def walk(
        self, listing: ListMethod[P, T], timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> AsyncGenerator[T, None]:
        """The items, page by page, each requested when it is needed; ``timeout`` is for each
        page."""
        return listing.walk(
            lambda cursor, digest: self.page(listing, cursor, timeout, meta, digest)
        )

    async def page(
        self,
        listing: ListMethod[P, T],
        cursor: str | None,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
        digest: str | None = None,
    ) -> P:
        """One page of a list. ``digest``: that of the pages before it, if they have one."""
        params = {} if cursor is None else {"cursor": cursor}
        try:
            page = await self._fresh(listing.method, params, listing.decode, timeout, None, meta)
        except RemoteError as exc:
            if self._cache is not None and refuses_cursor(exc, cursor):
                self._cache.drop(listing.method)
            raise
        if self._cache is not None and are_of_two(digest, page.digest):
            self._cache.drop(listing.method)
        if isinstance(page, ListToolsResult):
            page.tools = self._learn(page.tools)
        return page

    async def fetch(
        self,
        method: str,
        params: dict[str, Any],
        decode: Callable[[Any], R | Unfinished],
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> R:
        """A result of a method whose results say how long they may be kept."""
        return await self._fresh(method, params, decode, timeout, None, meta)

    # -- resources, prompts, completion ----------------------------------------------------------

    async def read(
        self,
        uri: str,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> ReadResourceResult:
        """See `Client.read_resource`."""
        if not isinstance(uri, str):
            raise TypeError(f"uri must be a string, not {type(uri).__name__}")
        return await self._fresh(
            READ, {"uri": uri}, decode_read_result, timeout, on_progress, meta, uri
        )

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> GetPromptResult:
        """See `Client.get_prompt`."""
        method = "prompts/get"
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = _strings(arguments, "arguments")
        result: GetPromptResult = await self._sender.send(
            method, params_text(method, params), decode_prompt_result, timeout, on_progress, meta
        )
        return result

    async def complete(
        self,
        ref: PromptRef | ResourceRef | PromptInfo | ResourceTemplateInfo,
        argument: str,
        value: str,
        context: Mapping[str, str] | None,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> Completion:
        """See `Client.complete`."""
        if isinstance(ref, PromptInfo):
            ref = PromptRef(ref.name)
        elif isinstance(ref, ResourceTemplateInfo):
            ref = ResourceRef(ref.uri_template)
        elif not isinstance(ref, PromptRef | ResourceRef):
            raise TypeError(f"ref must be a PromptRef or a ResourceRef, not {type(ref).__name__}")
        method = "completion/complete"
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context is not None:
            params["context"] = {"arguments": _strings(context, "context")}
            revision = await self._sender.revision()
            params = fit("CompleteParams", params, revision.version)
        return await self._sender.send(
            method, params_text(method, params), decode_completion, timeout, meta=meta
        )

    # -- the server itself -----------------------------------------------------------------------

    async def discover(
        self, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> Discovery:
        """See `Client.discover`."""
        revision = await self._sender.revision()
        if not revision.modern:
            raise Unsupported(
                f"{revision.version}, which the server speaks, has no server/discover"
            )
        return await self._fresh("server/discover", {}, decode_discovery, timeout, None, meta)

    # -- the cache -------------------------------------------------------------------------------

    def forget_read(self, uri: str) -> bool:
        """Drop the kept result of a resource, which is not the expected one. Returns whether there
        was one."""
        if self._cache is None or self._cache.get((READ, params_text(READ, {"uri": uri}))) is None:
            return False
        self._cache.updated((uri,))
        return True

    async def _fresh(
        self,
        method: str,
        params: dict[str, Any],
        decode: Callable[[Any], R | Unfinished],
        timeout: Timeout,
        on_progress: OnProgress | None,
        meta: Meta | None,
        uri: str | None = None,
    ) -> R:
        """A fresh result from the cache, or the server's."""
        body = params_text(method, params)
        cache = self._cache
        if cache is None:
            return await self._sender.send(method, body, decode, timeout, on_progress, meta)
        if self._modern:
            text = cache.get((method, body))
            if text is not None:
                result: R = decode(text)  # type: ignore[assignment]
                return result
        mark = cache.mark(method)
        decoder = CachingDecoder(decode, cache.clock)
        result = await self._sender.send(method, body, decoder, timeout, on_progress, meta)
        if self._modern:
            cache.put((method, body), decoder, mark, uri)
        return result

    @property
    def _modern(self) -> bool:
        agreed = self._sender.life.agreement
        return agreed is not None and agreed.revision.modern


def _strings(values: Mapping[str, str], what: str) -> dict[str, str]:
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{what} must map strings to strings; the item {name!r} does not")
    return dict(values)

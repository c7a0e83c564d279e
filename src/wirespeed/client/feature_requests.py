"""The requests for a server's features: lists, resources, prompts, completion, discovery.

Results of a modern server are cached as long as they are fresh: see `wirespeed.client.cache`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from wirespeed.client import pagination as lists
from wirespeed.client.cache import READ, CachingDecoder, ResponseCache
from wirespeed.client.pagination import Listing, Page
from wirespeed.client.requests.send import Meta, OnProgress, Sender, params_text
from wirespeed.client.results.decode import (
    Unfinished,
    decode_completion,
    decode_discovery,
    decode_prompt_result,
    decode_read_result,
)
from wirespeed.client.results.features import (
    Discovery,
    PromptInfo,
    PromptRef,
    ResourceRef,
    ResourceTemplateInfo,
)
from wirespeed.client.results.tools import ListToolsResult, ToolInfo
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout
from wirespeed.errors import RemoteError, Unsupported
from wirespeed.protocol import shapes
from wirespeed.protocol.results import (
    Completion,
    GetPromptResult,
    ReadResourceResult,
)

__all__ = ["FeatureRequests"]

P = TypeVar("P", bound=Page)
R = TypeVar("R")
T = TypeVar("T")


class FeatureRequests:
    """The requests of one client for the features of its server.

    Args:
        sender: Sends the requests.
        cache: Keeps results; None: no result is kept.
        learn: Called with each page of tools. Returns the tools that can be called.
    """

    def __init__(
        self,
        sender: Sender,
        cache: ResponseCache | None,
        learn: Callable[[list[ToolInfo]], list[ToolInfo]],
    ) -> None:
        self._sender = sender
        self._cache = cache
        self._learn = learn

    # -- lists -----------------------------------------------------------------------------------

    async def whole(
        self, listing: Listing[P, T], timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> list[T]:
        """The items of all pages, which take ``timeout`` together."""
        sender = self._sender
        until = sender.until(sender.seconds(timeout))

        def fetch(cursor: str | None) -> Awaitable[P]:
            return self.page(listing, cursor, sender.rest(until), meta)

        return await lists.whole(listing, fetch)

    async def tools_again(self, until: float) -> list[ToolInfo]:
        """All tools, requested again without the cache."""
        if self._cache is not None:
            self._cache.drop(lists.TOOLS.method)
        return await self.whole(lists.TOOLS, self._sender.rest(until))

    def walk(
        self, listing: Listing[P, T], timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> AsyncGenerator[T, None]:
        """The items, page by page, each requested when it is needed; ``timeout`` is for each
        page."""
        return lists.walk(listing, lambda cursor: self.page(listing, cursor, timeout, meta))

    async def page(
        self,
        listing: Listing[P, T],
        cursor: str | None,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> P:
        """One page of a list."""
        params = {} if cursor is None else {"cursor": cursor}
        try:
            page = await self._fresh(listing.method, params, listing.decode, timeout, None, meta)
        except RemoteError as exc:
            if self._cache is not None and lists.refuses_cursor(exc, cursor):
                self._cache.drop(listing.method)
            raise
        if isinstance(page, ListToolsResult):
            page.tools = self._learn(page.tools)
        return page

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
            params = shapes.fit("CompleteParams", params, revision.version)
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

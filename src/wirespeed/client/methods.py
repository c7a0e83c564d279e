"""Requests of a client for each feature of a server, with typed results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from wirespeed.client import pagination as lists
from wirespeed.client.cache import READ, CachingDecoder, ResponseCache
from wirespeed.client.pagination import Listing, Page
from wirespeed.client.requests.send import Calls, Meta, OnProgress, params_text
from wirespeed.client.results.decode import (
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
    PromptInfo,
    PromptRef,
    ResourceInfo,
    ResourceRef,
    ResourceTemplateInfo,
)
from wirespeed.client.results.tools import ListToolsResult, ToolInfo
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout
from wirespeed.errors import RemoteError, Unsupported
from wirespeed.protocol import shapes
from wirespeed.protocol.results import Completion, GetPromptResult, ReadResourceResult

if TYPE_CHECKING:
    from wirespeed.client.subscriptions.callbacks import News
    from wirespeed.client.subscriptions.router import Hub
    from wirespeed.client.subscriptions.subscription import Subscription

__all__ = ["Requests"]

P = TypeVar("P", bound=Page)
R = TypeVar("R")
T = TypeVar("T")


class Requests(Calls):
    """What a client asks of a server's features.

    Every method takes ``timeout``, in seconds (None for no limit; by default the
    client's) and ``meta`` (further members of the request's ``_meta``), and fails as `call_tool`
    does. What a server says is fresh is not asked for again: see `Client`, ``cache``.
    """

    _cache: ResponseCache | None
    _hub: Hub
    _news: News

    # -- lists -----------------------------------------------------------------------------------

    async def list_tools(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> list[ToolInfo]:
        """All tools, from all pages, which take ``timeout`` together."""
        return await self._whole(lists.TOOLS, timeout, meta)

    async def _list_tools_again(self, until: float) -> list[ToolInfo]:
        """All tools as the server has them now, whatever it said of them before."""
        if self._cache is not None:
            self._cache.drop(lists.TOOLS.method)
        return await self.list_tools(timeout=self._rest(until))

    def iter_tools(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> AsyncGenerator[ToolInfo, None]:
        """The tools, page by page as they are asked for; ``timeout`` is for each page.
        InvalidResponse for a server whose pages never end."""
        return lists.walk(lists.TOOLS, self._pages(lists.TOOLS, timeout, meta))

    async def list_tools_page(
        self,
        cursor: str | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> ListToolsResult:
        """One page of tools/list; ``next_cursor`` is None on the last."""
        return await self._page(lists.TOOLS, cursor, timeout, meta)

    async def list_resources(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> list[ResourceInfo]:
        """All resources, from all pages (server/resources, "Listing Resources")."""
        return await self._whole(lists.RESOURCES, timeout, meta)

    def iter_resources(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> AsyncGenerator[ResourceInfo, None]:
        """The resources, page by page, as `iter_tools`."""
        return lists.walk(lists.RESOURCES, self._pages(lists.RESOURCES, timeout, meta))

    async def list_resources_page(
        self,
        cursor: str | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> ListResourcesResult:
        """One page of resources/list."""
        return await self._page(lists.RESOURCES, cursor, timeout, meta)

    async def list_resource_templates(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> list[ResourceTemplateInfo]:
        """All templates of resources, from all pages (server/resources, "Resource Templates")."""
        return await self._whole(lists.TEMPLATES, timeout, meta)

    def iter_resource_templates(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> AsyncGenerator[ResourceTemplateInfo, None]:
        """The templates, page by page, as `iter_tools`."""
        return lists.walk(lists.TEMPLATES, self._pages(lists.TEMPLATES, timeout, meta))

    async def list_resource_templates_page(
        self,
        cursor: str | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> ListResourceTemplatesResult:
        """One page of resources/templates/list."""
        return await self._page(lists.TEMPLATES, cursor, timeout, meta)

    async def list_prompts(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> list[PromptInfo]:
        """All prompts, from all pages (server/prompts, "Listing Prompts")."""
        return await self._whole(lists.PROMPTS, timeout, meta)

    def iter_prompts(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> AsyncGenerator[PromptInfo, None]:
        """The prompts, page by page, as `iter_tools`."""
        return lists.walk(lists.PROMPTS, self._pages(lists.PROMPTS, timeout, meta))

    async def list_prompts_page(
        self,
        cursor: str | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> ListPromptsResult:
        """One page of prompts/list."""
        return await self._page(lists.PROMPTS, cursor, timeout, meta)

    async def _whole(self, listing: Listing[P, T], timeout: Timeout, meta: Meta | None) -> list[T]:
        until = self._until(self._seconds(timeout))

        def fetch(cursor: str | None) -> Awaitable[P]:
            return self._page(listing, cursor, self._rest(until), meta)

        return await lists.whole(listing, fetch)

    def _pages(
        self, listing: Listing[P, T], timeout: Timeout, meta: Meta | None
    ) -> Callable[[str | None], Awaitable[P]]:
        return lambda cursor: self._page(listing, cursor, timeout, meta)

    async def _page(
        self,
        listing: Listing[P, T],
        cursor: str | None,
        timeout: Timeout,
        meta: Meta | None,
    ) -> P:
        params = {} if cursor is None else {"cursor": cursor}
        try:
            page = await self._fresh(listing.method, params, listing.decode, timeout, None, meta)
        except RemoteError as exc:
            if self._cache is not None and lists.refuses_cursor(exc, cursor):
                self._cache.drop(listing.method)
            raise
        if isinstance(page, ListToolsResult):
            self._listed(page.tools)
        return page

    def _listed(self, tools: Iterable[ToolInfo]) -> None:
        """Learn from a page of tools/list."""
        if self._checks is not None:
            self._checks.learn(tools)

    # -- resources -------------------------------------------------------------------------------

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> ReadResourceResult:
        """Read a resource (server/resources, "Reading Resources").

        A missing one is a RemoteError, whose ``resource_missing`` is true: with code -32602 from
        2026-07-28 on, with -32002 before.
        """
        if not isinstance(uri, str):
            raise TypeError(f"uri must be a string, not {type(uri).__name__}")
        return await self._fresh(
            READ, {"uri": uri}, decode_read_result, timeout, on_progress, meta, uri
        )

    async def read_template(
        self,
        uri_template: str,
        variables: Mapping[str, Any] | None = None,
        /,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
        **more: Any,
    ) -> ReadResourceResult:
        """Read the resource that a template (RFC 6570) gives with these variables, as keywords or
        in a mapping. ValueError, TypeError: the template is none, or a variable is of the wrong
        kind. The rest as of `read_resource`."""
        from wirespeed.protocol.uri_template import UriTemplate

        uri = UriTemplate(uri_template).expand(variables, **more)
        return await self.read_resource(uri, timeout=timeout, on_progress=on_progress, meta=meta)

    async def subscribe_resource(
        self, uri: str, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> None:
        """Have ``on_resource_updated`` called when a resource changes: with resources/subscribe
        up to 2025-11-25, from then on with a ``subscriptions/listen`` that the client keeps. It is
        subscribed to again when the connection is made anew.

        RemoteError: the server refuses. NotHonoured: it does not tell about this.
        """
        await self._news.hold(uri, await self._modern(), timeout, meta)

    async def unsubscribe_resource(
        self, uri: str, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> None:
        """Take back `subscribe_resource`. Nothing happens for what was not subscribed to."""
        await self._news.release(uri, await self._modern(), timeout, meta)

    async def _modern(self) -> bool:
        if self._start_at_use and self._life.live is None:
            await self._opened()
        return self._agreed.revision.modern

    def subscribe(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Iterable[str] = (),
        more: Mapping[str, Any] | None = None,
        max_events: int = 1000,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> Subscription:
        """Be told of changes, as long as an ``async with`` lasts:

        >>> async with client.subscribe(tools=True, uris=["file:///x"]) as events:
        ...     async for event in events:
        ...         match event:
        ...             case ToolsChanged(): ...
        ...             case ResourceUpdated(uri): ...

        Args:
            tools, prompts, resources: Whether these lists change.
            uris: Resources whose changes are to be told.
            more: Further members of the filter of ``subscriptions/listen``, for extensions; what
                they bring are `Notice` events. 2026-07-28 on.
            max_events: Events that wait to be fetched; when there would be more, they are all
                replaced by one `Overflowed`.
            timeout: Seconds for the server to acknowledge it.
            meta: Further members of ``_meta`` of the requests that it takes.

        See `Subscription` for what the iterator gives, and how it ends.
        """
        from wirespeed.client.subscriptions.events import FIELDS, SubscriptionFilter
        from wirespeed.client.subscriptions.subscription import Subscription

        if isinstance(uris, str):
            raise TypeError("uris is a list of URIs, not one string")
        wanted = SubscriptionFilter(
            tools=tools,
            prompts=prompts,
            resources=resources,
            uris=tuple(dict.fromkeys(uris)),
            more=dict(more or {}),
        )
        if not all(isinstance(uri, str) for uri in wanted.uris):
            raise TypeError("uris must be strings")
        if not wanted:
            raise ValueError("subscribe to something: tools, prompts, resources or uris")
        if known := wanted.more.keys() & FIELDS:
            raise ValueError(f"more cannot have {', '.join(sorted(known))}, which has its argument")
        return Subscription(self._hub, wanted, max_events, timeout, meta)

    # -- prompts ---------------------------------------------------------------------------------

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> GetPromptResult:
        """Have a prompt made of its arguments (server/prompts, "Getting a Prompt"). Arguments are
        strings in every revision: TypeError for others."""
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = _strings(arguments, "arguments")
        result: GetPromptResult = await self._call(
            "prompts/get",
            params_text("prompts/get", params),
            decode_prompt_result,
            timeout,
            on_progress,
            meta,
        )
        return result

    async def complete(
        self,
        ref: PromptRef | ResourceRef | PromptInfo | ResourceTemplateInfo,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: Timeout = CLIENT_DEFAULT,
        meta: Meta | None = None,
    ) -> Completion:
        """Suggestions for what somebody began to type (server/utilities/completion).

        Args:
            ref: The prompt, or the template of resources, that has the argument.
            argument: Its name.
            value: What was typed so far.
            context: Arguments that are known already (2025-06-18 on; older servers are not told).
        """
        if isinstance(ref, PromptInfo):
            ref = PromptRef(ref.name)
        elif isinstance(ref, ResourceTemplateInfo):
            ref = ResourceRef(ref.uri_template)
        elif not isinstance(ref, PromptRef | ResourceRef):
            raise TypeError(f"ref must be a PromptRef or a ResourceRef, not {type(ref).__name__}")
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context is not None:
            params["context"] = {"arguments": _strings(context, "context")}
            await self._modern()  # the revision is known from then on
            params = shapes.fit("CompleteParams", params, self._agreed.revision.version)
        return await self._call(
            "completion/complete",
            params_text("completion/complete", params),
            decode_completion,
            timeout,
            None,
            meta,
        )

    # -- the server itself -----------------------------------------------------------------------

    async def discover(
        self, *, timeout: Timeout = CLIENT_DEFAULT, meta: Meta | None = None
    ) -> Discovery:
        """What a modern server is and can do now (server/discover of 2026-07-28). A legacy one says
        that once, with the handshake: see `Client.server_capabilities`. Unsupported: it is one."""
        if not await self._modern():
            version = self._agreed.revision.version
            raise Unsupported(f"{version}, which the server speaks, has no server/discover")
        return await self._fresh("server/discover", {}, decode_discovery, timeout, None, meta)

    # -- the cache -------------------------------------------------------------------------------

    def clear_cache(self) -> None:
        """Forget every answer that was kept."""
        if self._cache is not None:
            self._cache.clear()

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
        """A result from the cache if there is a fresh one, otherwise from the server."""
        body = params_text(method, params)
        cache = self._cache
        if cache is None:
            return await self._call(method, body, decode, timeout, on_progress, meta)
        agreed = self._life.agreement
        if agreed is not None and agreed.revision.modern:
            text = cache.get((method, body))
            if text is not None:
                result: R = decode(text)  # type: ignore[assignment]
                return result
        mark = cache.mark(method)
        decoder = CachingDecoder(decode, cache.clock)
        result = await self._call(method, body, decoder, timeout, on_progress, meta)
        agreed = self._life.agreement
        if agreed is not None and agreed.revision.modern:
            cache.put((method, body), decoder, mark, uri)
        return result


def _strings(values: Mapping[str, str], what: str) -> dict[str, str]:
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{what} must map strings to strings; {name!r} is not so")
    return dict(values)

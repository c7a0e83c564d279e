"""The server that people write: tools, identity, and where it listens."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from wirespeed.errors import ProtocolError
from wirespeed.limits import Limits
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LEGACY_VERSIONS,
    META_SERVER_INFO,
    MODERN_VERSIONS,
    REVISIONS,
    Revision,
)
from wirespeed.server.connection import ServerConnection
from wirespeed.server.content import Icon, ResultPlan, plan_result
from wirespeed.server.context import Context
from wirespeed.server.signature import inspect_tool
from wirespeed.server.tool import Tool
from wirespeed.transport.tasks import TaskPool

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.transport.link import Link

F = TypeVar("F", bound=Callable[..., Any])

_encode = msgspec.json.Encoder().encode


class ToolEntry(msgspec.Struct, omit_defaults=True):
    """A tool as tools/list shows it. ``annotations`` from 2025-03-26 on, ``title`` and
    ``outputSchema`` from 2025-06-18 on, ``icons`` from 2025-11-25 on."""

    name: str
    inputSchema: Mapping[str, Any]  # noqa: N815
    title: str | None = None
    description: str | None = None
    outputSchema: Mapping[str, Any] | None = None  # noqa: N815
    annotations: Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)


class Server:
    """An MCP server.

    Args:
        name: What it is called.
        version: Its own version.
        title: A name for people to read.
        instructions: How a model is to use it.
        icons, website_url, description: More of its identity (2025-11-25 on).
        versions: The revisions it speaks; all by default.
        limits: What one connection may take.
        page_size: Tools on one page of tools/list; None for all on one.
        list_ttl_ms, cache_scope: Caching hints for lists and discovery (2026-07-28
            server/utilities/caching).
        shutdown_grace: Seconds that requests in flight get when the client goes or the process is
            told to end.
    """

    # what `wirespeed.transport.service.Service` asks for
    subprotocol = "mcp"
    auth_headers = ("authorization",)
    refusal_status = 401

    def __init__(
        self,
        name: str,
        version: str = "0",
        *,
        title: str | None = None,
        instructions: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Iterable[Icon] | None = None,
        versions: Iterable[str] | None = None,
        limits: Limits | None = None,
        page_size: int | None = None,
        list_ttl_ms: int = 0,
        cache_scope: str = "private",
        shutdown_grace: float = 5.0,
    ) -> None:
        if page_size is not None and page_size < 1:
            raise ValueError("page_size must be at least 1")
        if cache_scope not in ("public", "private"):
            raise ValueError('cache_scope must be "public" or "private"')
        if list_ttl_ms < 0:
            raise ValueError("list_ttl_ms must not be negative")
        wanted = tuple(REVISIONS) if versions is None else tuple(versions)
        unknown = [v for v in wanted if v not in REVISIONS]
        if unknown or not wanted:
            raise ValueError(f"unknown versions {unknown}; known are {', '.join(REVISIONS)}")
        self.name = name
        self.version = version
        self.instructions = instructions
        self.limits = Limits() if limits is None else limits
        self.page_size = page_size
        self.shutdown_grace = shutdown_grace
        self.legacy_versions = tuple(v for v in LEGACY_VERSIONS if v in wanted)
        self.modern_versions = tuple(v for v in MODERN_VERSIONS if v in wanted)
        self.versions = self.modern_versions[::-1] + self.legacy_versions[::-1]
        self._null_ids = any(REVISIONS[v].null_error_ids for v in self.versions)
        info: dict[str, Any] = {"name": name, "version": version}
        more = {
            "title": title,
            "description": description,
            "websiteUrl": website_url,
            "icons": None if icons is None else list(icons),
        }
        info |= {key: value for key, value in more.items() if value is not None}
        self._info = info
        self._info_json = _encode(info)
        self._hints = {"ttlMs": list_ttl_ms, "cacheScope": cache_scope}
        self._capabilities = {"tools": {"listChanged": True}, "logging": {}}
        self._modern_tail = b'"resultType":"complete","_meta":{"%b":%b}}' % (
            META_SERVER_INFO.encode(),
            self._info_json,
        )
        self._modern_end = b"," + self._modern_tail
        self._discover_result = self._modern_result(
            {
                "supportedVersions": list(self.versions),
                "capabilities": self._capabilities,
                **({} if instructions is None else {"instructions": instructions}),
                **self._hints,
            }
        )
        self._tools: dict[str, Tool] = {}
        self._pages: dict[tuple[str, str | None], bytes] = {}
        self._connections: set[ServerConnection] = set()

    def __repr__(self) -> str:
        return f"<Server {self.name!r}, {len(self._tools)} tools>"

    # -- tools -----------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        inline: bool = False,
        timeout: float | None = None,
    ) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Make a function a tool; as ``@server.tool`` or ``@server.tool(title=…)``.

        Its name, docstring and signature become the tool's name, description and input schema.
        Options are those of `add_tool`.
        """
        if function is not None:
            self.add_tool(function)
            return function

        def decorate(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return decorate

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        inline: bool = False,
        timeout: float | None = None,
    ) -> Tool:
        """Register a function as a tool, now or while the server runs (clients are told).

        Args:
            function: A coroutine function, or a plain one, which runs in a worker thread.
            name, title, description: Instead of what the function says itself.
            annotations: Hints such as ``{"readOnlyHint": True}`` (server/tools).
            icons, meta: For tools/list.
            structured: Whether results have structured content; by default the return type says.
            inline: Run a plain function on the event loop's thread. Nothing else happens
                meanwhile: for functions of microseconds.
            timeout: Seconds after which a call is cancelled and answered with an error.

        Raises:
            SignatureError: The signature cannot be a tool's; the text says why.
            ValueError: There is a tool of this name.
        """
        spec = inspect_tool(
            function,
            name=name,
            title=title,
            description=description,
            context_class=Context,
            structured=structured,
        )
        entry = ToolEntry(
            name=spec.name,
            title=spec.title,
            description=spec.description,
            inputSchema=spec.input_schema,
            outputSchema=spec.output_schema,
            annotations=annotations,
            icons=None if icons is None else list(icons),
            meta=meta,
        )
        if inline and (spec.is_async or spec.is_async_generator or spec.is_generator):
            raise ValueError(f"tool {spec.name!r}: only a plain function can be inline")
        return self._register(Tool(entry, spec, spec.function, inline=inline, timeout=timeout))

    def tool_raw(
        self,
        name: str,
        schema: Mapping[str, Any],
        handler: Callable[..., Any],
        *,
        title: str | None = None,
        description: str | None = None,
        output_schema: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        context: bool = False,
        inline: bool = False,
        timeout: float | None = None,
    ) -> Tool:
        """Register a handler that gets its arguments undecoded.

        ``handler(arguments)``, or with ``context=True`` ``handler(arguments, ctx)``, where
        ``arguments`` is a bytes-like view of the JSON object that came in. The view pins input
        memory: keep it only after ``copy()``. ``schema`` is announced, not enforced. The result is
        treated like that of a function without a return annotation.
        """
        entry = ToolEntry(
            name=name,
            title=title,
            description=description,
            inputSchema=dict(schema),
            outputSchema=None if output_schema is None else dict(output_schema),
            annotations=annotations,
            icons=None if icons is None else list(icons),
            meta=meta,
        )
        _encode(entry)  # what is not JSON is said now
        plan: ResultPlan = plan_result(msgspec.UNSET, f"tool {name!r}: result", None)
        return self._register(
            Tool(
                entry,
                None,
                handler,
                inline=inline,
                timeout=timeout,
                wants_context=context,
                encode=plan.encode,
            )
        )

    def remove_tool(self, name: str) -> None:
        """Take a tool away; calls under way go on. KeyError if there is none of this name."""
        del self._tools[name]
        self._tools_changed()

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        return dict(self._tools)

    def _register(self, tool: Tool) -> Tool:
        if tool.name in self._tools:
            raise ValueError(f"there is a tool {tool.name!r} already")
        self._tools[tool.name] = tool
        self._tools_changed()
        return tool

    def _tools_changed(self) -> None:
        self._pages = {}
        for connection in list(self._connections):
            connection.forget_tools()
            connection.schedule_tools_changed()

    # -- pre-encoded answers ---------------------------------------------------------------------

    def _initialize_result(self, revision: Revision) -> bytes:
        result: dict[str, Any] = {
            "protocolVersion": revision.version,
            "capabilities": self._capabilities,
            "serverInfo": _for_revision(self._info, revision),
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return _encode(result)

    def _modern_result(self, members: Mapping[str, Any]) -> bytes:
        return _encode(members)[:-1] + b"," + self._modern_tail

    def _tools_page(self, revision: Revision, cursor: str | None) -> bytes:
        """One page of tools/list, encoded once. The cursor names the last tool of the page before,
        so that it needs no state and survives changes elsewhere in the list."""
        key = (revision.version, cursor)
        pages = self._pages  # a change meanwhile, in another thread, gives the server new ones
        page = pages.get(key)
        if page is not None:
            return page
        names = list(self._tools)
        start = 0
        if cursor is not None:
            try:
                last = base64.urlsafe_b64decode(cursor.encode()).decode()
                start = names.index(last) + 1
            except ValueError:
                raise ProtocolError(codes.INVALID_PARAMS, "Invalid cursor") from None
            if _cursor(last) != cursor:  # decoding is lenient: one spelling only
                raise ProtocolError(codes.INVALID_PARAMS, "Invalid cursor")
        end = len(names) if self.page_size is None else start + self.page_size
        tools = [self._tools[name].entry for name in names[start:end]]
        result: dict[str, Any] = {"tools": [_entry_for(entry, revision) for entry in tools]}
        if end < len(names):
            result["nextCursor"] = _cursor(names[end - 1])
        page = self._modern_result(result | self._hints) if revision.modern else _encode(result)
        pages[key] = page
        return page

    # -- running ---------------------------------------------------------------------------------

    def connect(
        self,
        make_link: Callable[[ServerConnection], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> ServerConnection:
        """Serve one more connection over the link that ``make_link`` gives it (for transports).
        ``framer``: how messages lie in the stream; one a line by default."""
        connection = ServerConnection(self, loop, pool, framer)
        make_link(connection)
        self._connections.add(connection)
        return connection

    def stream_framer(self) -> None:
        """The framing on a byte stream: one message a line, the default of `connect`."""
        return None

    async def serve(self, url: str | None = None, **options: Any) -> None:
        """Serve inside a running loop: stdio (``None``) until the client goes away, or a URL until
        SIGTERM or SIGINT comes.

        >>> await server.serve("ws://127.0.0.1:8765/mcp", token="…")

        Options are those of `wirespeed.serve` and `wirespeed.ListenOptions`.
        """
        if url is None:
            self._check_stdio(options)
            from wirespeed.transport.stdio import serve_stdio

            await serve_stdio(self)
        else:
            from wirespeed.transport.listen import serve

            await serve(url, self, **options)

    def run(self, url: str | None = None, **options: Any) -> None:
        """`serve` on an event loop of its own, on uvloop where it is installed, until the client
        goes away or the process is told to end (SIGINT, SIGTERM).

        Options are those of `wirespeed.run`: ``workers``, and all of `serve`.
        """
        if url is None:
            self._check_stdio(options)
            from wirespeed.transport.loop import run

            run(self.serve())
        else:
            from wirespeed.transport.listen import run as run_at

            run_at(url, self, **options)

    def _check_stdio(self, options: Mapping[str, Any]) -> None:
        if options:
            raise ValueError(f"{', '.join(options)}: options go with a URL, not with stdio")


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _for_revision(info: dict[str, Any], revision: Revision) -> dict[str, Any]:
    keys = {"name", "version"}
    if revision.structured:
        keys.add("title")
    if revision.icons:
        keys |= {"description", "websiteUrl", "icons"}
    return {key: value for key, value in info.items() if key in keys}


def _entry_for(entry: ToolEntry, revision: Revision) -> ToolEntry:
    """A tool's entry without what the revision does not have."""
    drop: dict[str, None] = {}
    if not revision.structured:
        drop |= {"title": None, "outputSchema": None, "meta": None}
    if not revision.annotations:
        drop["annotations"] = None
    if not revision.icons:
        drop["icons"] = None
    schema = entry.outputSchema
    if not revision.structured_any and schema is not None and schema.get("type") != "object":
        drop["outputSchema"] = None
    return msgspec.structs.replace(entry, **drop) if drop else entry

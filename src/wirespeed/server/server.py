"""The server that people write: its identity, what it offers, and where it listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.limits import Limits
from wirespeed.protocol import shapes
from wirespeed.protocol.blocks import Icon
from wirespeed.protocol.meta import check_json
from wirespeed.protocol.revisions import LEGACY_VERSIONS, MODERN_VERSIONS, REVISIONS, Revision
from wirespeed.server.completion import Completions
from wirespeed.server.composition import Composition
from wirespeed.server.connection import ServerConnection
from wirespeed.server.middleware import Middlewares
from wirespeed.server.prompts import Prompts
from wirespeed.server.reply import Whole, modern_end
from wirespeed.server.resources import Resources
from wirespeed.server.roots import Roots
from wirespeed.server.state import DEFAULT_TTL, Sealer, state_secrets
from wirespeed.server.tools import Tools
from wirespeed.transport.taskpool import TaskPool

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.server.lifespan import Lifespan
    from wirespeed.transport.link import Link

_encode = msgspec.json.Encoder().encode


class Server(Tools, Resources, Prompts, Completions, Roots, Composition, Middlewares):
    """An MCP server.

    Args:
        name: What it is called.
        version: Its own version.
        title: A name for people to read.
        instructions: How a model is to use it.
        icons, website_url, description: More of its identity (2025-11-25 on).
        experimental: What it can do that no revision has, by name, with its settings
            (``capabilities.experimental``).
        versions: The revisions it speaks; all by default.
        limits: What one connection may take.
        page_size: Entries on one page of each list; None for all on one.
        list_ttl_ms, cache_scope: Caching hints for lists and discovery (2026-07-28
            server/utilities/caching).
        shutdown_grace: Seconds that requests in flight get when the client goes or the process is
            told to end.
        lifespan: An async context manager function, or an async generator function, of the server:
            entered before the first client is served, left after the last is gone, once for each
            event loop and process that serves. What it yields is `Context.lifespan_state`.
        state_secret: What seals the ``requestState`` of questions to modern clients
            (`wirespeed.server.state`): at least 16 bytes, or several, of which the first seals and
            all open. Random by default; servers behind one address need the same.
        state_ttl: Seconds that a client may take to answer.
        state_single_use: Whether a ``requestState`` is taken only once in each process.
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
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        versions: Iterable[str] | None = None,
        limits: Limits | None = None,
        page_size: int | None = None,
        list_ttl_ms: int = 0,
        cache_scope: str = "private",
        shutdown_grace: float = 5.0,
        lifespan: Lifespan | None = None,
        state_secret: bytes | Iterable[bytes] | None = None,
        state_ttl: float = DEFAULT_TTL,
        state_single_use: bool = False,
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
        check_json("server", info | {"instructions": instructions})
        declared = {name: dict(settings) for name, settings in (experimental or {}).items()}
        check_json("server", {"experimental": declared})
        self._info = info
        self._info_json = _encode(info)
        self._sealer = Sealer(
            state_secrets(state_secret), name, state_ttl, single_use=state_single_use
        )
        self._hints = {"ttlMs": list_ttl_ms, "cacheScope": cache_scope}
        self._modern_end = modern_end(self._info_json)
        self._answers = {}
        self._offers = {}
        self._connections: set[ServerConnection] = set()
        self._setup_middleware()
        self._setup_tools()
        self._setup_resources()
        self._setup_prompts()
        self._setup_completion()
        self._setup_roots()
        self._setup_composition(lifespan)
        self._setup_extensions()
        self._setup_tasks()
        self._offers["logging"] = dict
        self._offers["experimental"] = lambda: declared or None

    def __repr__(self) -> str:
        return f"<Server {self.name!r}, {len(self._tools)} tools>"

    # -- what it is ------------------------------------------------------------------------------

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """What the server offers to a client of this revision, at this moment."""
        return {
            name: settings
            for name, offer in self._offers.items()
            if name in revision.capabilities and (settings := offer()) is not None
        }

    def _initialize_result(self, revision: Revision) -> bytes:
        result: dict[str, Any] = {
            "protocolVersion": revision.version,
            "capabilities": self.capabilities(revision),
            "serverInfo": shapes.fit("Implementation", self._info, revision.version),
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return _encode(result)

    def _discover_result(self, revision: Revision) -> Whole:
        answers = self._answers  # a change in another thread, meanwhile, replaces the dict
        answer = answers.get(revision.version)
        if answer is None:
            members = {
                "supportedVersions": list(self.versions),
                "capabilities": self.capabilities(revision),
                **({} if self.instructions is None else {"instructions": self.instructions}),
                **self._hints,
            }
            answer = answers[revision.version] = self._finish(_encode(members))
        return answer

    def _resource_updated(self, uri: str) -> None:
        """From any thread: tell those who subscribed that a resource says something else now."""
        for connection in list(self._connections):
            connection.news.resource_updated(uri)
        for mount in self._mounted_on:
            mount.parent._resource_updated(mount.uri(uri))

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

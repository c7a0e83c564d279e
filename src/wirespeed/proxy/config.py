"""What a proxy does, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from wirespeed._exports import set_public_home
from wirespeed.limits import Limits

if TYPE_CHECKING:
    from wirespeed.client.targets.remote import Http, Socket, WebSocket
    from wirespeed.transport.child.command import Stdio

Era: TypeAlias = Literal["auto", "legacy", "modern"]
Isolation: TypeAlias = Literal["auto", "session", "shared", "pool"]

PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,65}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class ToolsConfig:
    """Which tools of a server clients see, and how, where its endpoint is shared with others.

    Attributes:
        allow: Globs of the server's names; what none matches is hidden.
        deny: Globs of the server's names; what one matches is hidden.
        rename: Names of the server's tools, and what clients call them, without a prefix.
        describe: Names of the server's tools, and their descriptions instead of its own.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    rename: dict[str, str] = field(default_factory=dict)
    describe: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HealthConfig:
    """How a server that hangs is found.

    Attributes:
        interval: Seconds without a message of the server, while requests wait for it, after which
            it is asked for a sign of life.
        timeout: Seconds that it has to answer. Then it is ended, and started again.
    """

    interval: float = 30.0
    timeout: float = 10.0


@dataclass(frozen=True, kw_only=True)
class RecycleConfig:
    """When a process that clients share is replaced. None: never for this reason.

    Attributes:
        max_age: Seconds since its start.
        max_requests: Requests that it has answered.
        max_memory: Bytes in memory, of the process and of those that it has started. They are
            looked at every few seconds, where the system tells them.
    """

    max_age: float | None = None
    max_requests: int | None = None
    max_memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class RetryConfig:
    """Which calls of tools are sent again when a server that clients share ends before it has
    answered. Lists and reads always are.

    Attributes:
        tools: Globs of the names of tools that may run twice.
        trust_annotations: Whether those may as well that the server calls read-only or idempotent.
    """

    tools: tuple[str, ...] = ()
    trust_annotations: bool = False


@dataclass(frozen=True, kw_only=True)
class BreakerConfig:
    """When requests to a server are refused for a while.

    Attributes:
        failures: How many in a row: ends of the server, starts that failed, requests that took
            longer than they may.
        pause: Seconds for which requests are refused. Then one is passed on: its answer ends the
            refusal.
    """

    failures: int = 5
    pause: float = 10.0

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError(f"failures is 1 or more, not {self.failures}")


@dataclass(frozen=True, kw_only=True)
class BackendConfig:
    """One server behind the proxy.

    Attributes:
        target: How to start or reach it.
        name: Its name in paths, errors and logs: letters, digits and ``._~-``, at most 64.
        isolation: ``"session"``: each client has a server of its own, and everything passes.
            ``"shared"``: one server for all clients. What such a server says without naming a
            request reaches a client only while that client is alone. ``"pool"``: the same with
            several servers. A client of a legacy era stays with one of them. ``"auto"``: clients
            of a legacy era get ``"session"``, requests of 2026-07-28 a ``"pool"``.
        size: The most servers of a pool, for each era.
        era: What a shared server speaks: ``"auto"`` to ask it, ``"legacy"`` (with ``initialize``),
            ``"modern"`` (2026-07-28).
        start_timeout: Seconds for its handshake.
        max_clients: The most clients at a time with isolation ``"session"``, so the most processes.
            Further clients are refused.
        spares: With isolation ``"session"``, how many servers wait for clients to come.
        idle_timeout: Seconds without requests and clients after which a shared server is stopped.
            The next request starts it. None: it runs on.
        recycle: When a shared server is replaced by a new one.
        ask: Whether a shared server of a legacy era may ask clients (sampling, elicitation,
            roots). A question reaches a client only while that client is alone.
        health: How a server that hangs is found. None: by deadlines only.
        request_timeout: Seconds that the server has for a request. Then the client gets an error,
            and the server a cancellation. Progress does not extend it. None: as long as it takes.
        retry: Which requests are sent again when a shared server ends.
        breaker: When requests are refused for a while. None: only while starts fail.
        prefix: What stands before the names of its tools and prompts, where its endpoint is shared
            with others; by default its name and ``_``. Letters, digits and ``_-`` fit all hosts.
        tools: Which of its tools are shown there.
    """

    target: Stdio | Http | WebSocket | Socket
    name: str = "server"
    isolation: Isolation = "auto"
    size: int = 4
    era: Era = "auto"
    start_timeout: float = 30.0
    max_clients: int = 256
    spares: int = 0
    idle_timeout: float | None = None
    recycle: RecycleConfig = field(default_factory=RecycleConfig)
    ask: bool = False
    health: HealthConfig | None = None
    request_timeout: float | None = None
    retry: RetryConfig = field(default_factory=RetryConfig)
    breaker: BreakerConfig | None = None
    prefix: str | None = None
    tools: ToolsConfig = field(default_factory=ToolsConfig)

    @property
    def shown_prefix(self) -> str:
        """The prefix, or its default."""
        return re.sub(r"[.~]", "_", self.name) + "_" if self.prefix is None else self.prefix

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"a name has at most 64 letters, digits and ._~-, not {self.name!r}")
        if self.isolation not in ("auto", "session", "shared", "pool"):
            raise ValueError(
                f'isolation is "auto", "session", "shared" or "pool", not {self.isolation!r}'
            )
        if not 0 <= self.spares <= 1000:
            raise ValueError(f"spares is 0 to 1000, not {self.spares}")
        if not 1 <= self.size <= 1000:
            raise ValueError(f"size is 1 to 1000, not {self.size}")
        if self.era not in ("auto", "legacy", "modern"):
            raise ValueError(f'era is "auto", "legacy" or "modern", not {self.era!r}')
        if not PREFIX.fullmatch(self.shown_prefix):
            raise ValueError(f"a prefix has letters, digits and _.-, not {self.prefix!r}")


@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """A proxy.

    Attributes:
        backends: The servers behind it. Their names differ.
        listen: URLs to listen at, such as ``ws://127.0.0.1:8765/mcp``, ``tcp://…``, ``unix:…``.
            Where URLs have paths, each server is at ``/servers/`` and its name, too. At a URL with
            a path of its own, and at one that has no paths, several servers are merged.
        limits: The limits of each client's connection.
        shutdown_grace: Seconds that requests in flight have when the proxy ends.
        page_size: Entries on a page of a list that was merged of several servers.
    """

    backends: tuple[BackendConfig, ...]
    listen: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    shutdown_grace: float = 5.0
    page_size: int = 1000

    def __post_init__(self) -> None:
        if not self.backends:
            raise ValueError("a proxy needs a server behind it")
        names = [backend.name for backend in self.backends]
        if len(set(names)) < len(names):
            raise ValueError(f"two servers have the same name: {', '.join(sorted(names))}")
        prefixes = [one.shown_prefix for one in self.backends if one.shown_prefix]
        if len(set(prefixes)) < len(prefixes):
            raise ValueError(f"two servers have the same prefix: {', '.join(sorted(prefixes))}")
        shown = [name for one in self.backends for name in one.tools.rename.values()]
        if len(set(shown)) < len(shown):
            raise ValueError(f"two tools have the same new name: {', '.join(sorted(shown))}")


set_public_home(globals())

"""What a proxy does, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from wirespeed._exports import set_public_home
from wirespeed.limits import Limits
from wirespeed.transport.address import parse
from wirespeed.transport.options import is_token

if TYPE_CHECKING:
    from wirespeed.client.targets.remote import Http, Socket, WebSocket
    from wirespeed.transport.child.command import Stdio

Era: TypeAlias = Literal["auto", "legacy", "modern"]
Isolation: TypeAlias = Literal["session", "shared", "pool"]

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
class BackendConfig:
    """One server behind the proxy.

    Attributes:
        target: How to start or reach it.
        name: Its name in paths, errors and logs: letters, digits and ``._~-``, at most 64.
        isolation: ``"session"``: each client has a server of its own, and everything passes.
            ``"shared"``: one server for all clients. What such a server says without naming a
            request reaches a client only while that client is alone. ``"pool"``: the same with
            several servers. A client of a legacy era stays with one of them.
        size: The most servers of a pool, for each era.
        era: What a shared server speaks: ``"auto"`` to ask it, ``"legacy"`` (with ``initialize``),
            ``"modern"`` (2026-07-28).
        start_timeout: Seconds for its handshake.
        max_clients: The most clients at a time with isolation ``"session"``, so the most processes.
            Further clients are refused.
        prefix: What stands before the names of its tools and prompts, where its endpoint is shared
            with others; by default its name and ``_``. Letters, digits and ``_-`` fit all hosts.
        tools: Which of its tools are shown there.
    """

    target: Stdio | Http | WebSocket | Socket
    name: str = "server"
    isolation: Isolation = "session"
    size: int = 4
    era: Era = "auto"
    start_timeout: float = 30.0
    max_clients: int = 256
    prefix: str | None = None
    tools: ToolsConfig = field(default_factory=ToolsConfig)

    @property
    def shown_prefix(self) -> str:
        """The prefix, or its default."""
        return re.sub(r"[.~]", "_", self.name) + "_" if self.prefix is None else self.prefix

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"a name has at most 64 letters, digits and ._~-, not {self.name!r}")
        if self.isolation not in ("session", "shared", "pool"):
            raise ValueError(f'isolation is "session", "shared" or "pool", not {self.isolation!r}')
        if not 1 <= self.size <= 1000:
            raise ValueError(f"size is 1 to 1000, not {self.size}")
        if self.era not in ("auto", "legacy", "modern"):
            raise ValueError(f'era is "auto", "legacy" or "modern", not {self.era!r}')
        if not PREFIX.fullmatch(self.shown_prefix):
            raise ValueError(f"a prefix has letters, digits and _.-, not {self.prefix!r}")


@dataclass(frozen=True, kw_only=True)
class AdminConfig:
    """The admin listener of a proxy.

    Attributes:
        listen: An ``http://`` URL without a path.
        token: What clients of it must bring, but probes; without one, a token is made at the start.
    """

    listen: str = "http://127.0.0.1:9464"
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        address = parse(self.listen)
        if address.scheme != "http" or address.path != "/" or address.query:
            raise ValueError(f"the admin listener has an http:// URL without a path: {self.listen}")
        if self.token is not None and not is_token(self.token):
            raise ValueError("a token is one or more printable ASCII characters without spaces")


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
        admin: Where people and programs watch the proxy; None: nowhere.
    """

    backends: tuple[BackendConfig, ...]
    listen: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    shutdown_grace: float = 5.0
    page_size: int = 1000
    admin: AdminConfig | None = None

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

"""What a proxy does, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from wirespeed._exports import set_public_home
from wirespeed.limits import Limits

if TYPE_CHECKING:
    from wirespeed.client.targets.remote import Socket, WebSocket
    from wirespeed.transport.child.command import Stdio

Isolation: TypeAlias = Literal["session", "shared"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class BackendConfig:
    """One server behind the proxy.

    Attributes:
        target: How to start or reach it.
        name: Its name in paths, errors and logs: letters, digits and ``._~-``, at most 64.
        isolation: ``"session"``: each client has a server of its own, and everything passes.
            ``"shared"``: one server for all clients. What such a server says without naming a
            request reaches a client only while that client is alone.
        start_timeout: Seconds for its handshake.
    """

    target: Stdio | WebSocket | Socket
    name: str = "server"
    isolation: Isolation = "session"
    start_timeout: float = 30.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"a name has at most 64 letters, digits and ._~-, not {self.name!r}")
        if self.isolation not in ("session", "shared"):
            raise ValueError(f'isolation is "session" or "shared", not {self.isolation!r}')


@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """A proxy.

    Attributes:
        backends: The servers behind it. Their names differ.
        listen: URLs to listen at, such as ``ws://127.0.0.1:8765/mcp``, ``tcp://…``, ``unix:…``.
            Where URLs have paths, each server is at ``/servers/`` and its name, too. A URL with a
            path of its own, and one that has no paths, is for one server.
        limits: The limits of each client's connection.
        shutdown_grace: Seconds that requests in flight have when the proxy ends.
    """

    backends: tuple[BackendConfig, ...]
    listen: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    shutdown_grace: float = 5.0

    def __post_init__(self) -> None:
        if not self.backends:
            raise ValueError("a proxy needs a server behind it")
        names = [backend.name for backend in self.backends]
        if len(set(names)) < len(names):
            raise ValueError(f"two servers have the same name: {', '.join(sorted(names))}")


set_public_home(globals())

"""What can be served, as transports see it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.limits import Limits
    from wirespeed.transport.link import Link
    from wirespeed.transport.taskpool import TaskPool


class Connection(Protocol):
    """One client of a service, as a transport sees it: an Endpoint with an end.

    Attributes:
        principal: A digest of the client's credentials, None without any; the transport
            says it.
    """

    principal: bytes | None

    @property
    def closed(self) -> asyncio.Future[None]:
        """Done when the connection is over."""

    @property
    def link(self) -> Link | None:
        """What moves its bytes; None when it is over."""

    @property
    def draining(self) -> bool:
        """Whether it was told to end."""

    def drain(self) -> None:
        """Take no more requests, answer those there are, then close."""

    def abort(self) -> None:
        """Close now."""


class Service(Protocol):
    """What can be served: the ``service`` of a `wirespeed.Server`, or a
    `wirespeed.litemcp.LiteServer`.

    A service that has to be kept alive while it is served has two more methods: ``hold()``, a
    coroutine function that returns what ``release(held)`` takes at the end; see `alive`.
    """

    @property
    def limits(self) -> Limits:
        """What one connection may take."""

    @property
    def subprotocol(self) -> str | None:
        """The WebSocket subprotocol that it speaks; None if it cares for none."""

    @property
    def auth_headers(self) -> Sequence[str]:
        """The header fields, in lower case, that may bring a bearer token."""

    @property
    def refusal_status(self) -> int:
        """The HTTP status for a missing or wrong token."""

    def stream_framer(self) -> Framer | None:
        """The framing on a byte stream; None for the service's own choice."""

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> Any:
        """Serve one more connection: a `Connection` that is an Endpoint, too."""


def service_of(server: Any) -> Any:
    """The `Service` of what a user serves or connects to: its ``service``, or it is one itself."""
    return getattr(server, "service", server)


@contextlib.asynccontextmanager
async def alive(services: Iterable[Service]) -> AsyncIterator[None]:
    """Keep services alive: what they have to begin before the first connection, and to end after
    the last. Whatever fails at the begin is raised, and those that had begun are ended."""
    async with contextlib.AsyncExitStack() as stack:
        for service in services:
            kept: Any = service
            if hasattr(kept, "hold"):
                stack.push_async_callback(kept.release, await kept.hold())
        yield

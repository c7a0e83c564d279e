"""Which server gets the requests of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wirespeed.protocol import codes
from wirespeed.proxy.eras import modern_version, unsupported

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.supervision.upstream import Upstream


class Router(Protocol):
    """Decides what becomes of the messages of clients.

    Attributes:
        is_shared: Whether what a server says to one client, the others see as well.
    """

    @property
    def is_shared(self) -> bool:
        """See above."""

    def joined(self, front: Front) -> None:
        """A client has connected."""

    def left(self, front: Front) -> None:
        """A client has left."""

    def route(self, front: Front, message: Message) -> Side | None:
        """Return the server that a client's request goes to, or None if it was answered."""

    def client_said(self, front: Front, message: Message) -> None:
        """Take a notification of a client that belongs to no request."""


class Assignment(Router, Protocol):
    """Joins clients to connections of servers, and knows what the two may see of each other.

    Attributes:
        refuses_lanes: Why it does not serve requests of 2026-07-28 that come one by one over HTTP,
            from any client, and what to set; "" if it serves them.
    """

    @property
    def refuses_lanes(self) -> str:
        """See above."""

    @property
    def upstreams(self) -> list[Upstream]:
        """The servers that it keeps running."""

    async def start(self) -> None:
        """Get ready for clients. TransportError: the server cannot be started; `stop` is due all
        the same."""

    async def prove(self) -> None:
        """See that a server can be started, where `start` has not done so. WirespeedError: none
        can, and it is tried again."""

    async def stop(self) -> None:
        """End all servers."""


class WithoutSession:
    """The requests of HTTP clients that have no session. None can be passed on: clients of
    2026-07-28 learn which revisions they may use.

    Args:
        reason: Why, as of `Assignment.refuses_lanes`.
    """

    is_shared = True

    def __init__(self, reason: str = "") -> None:
        self._reason = reason

    def joined(self, front: Front) -> None:
        """Nothing is started for such clients."""

    def left(self, front: Front) -> None:
        """Nothing ends with them."""

    def route(self, front: Front, message: Message) -> None:
        """Refuse a request."""
        version = modern_version(message)
        if version is None:
            front.refuse(message, codes.INVALID_REQUEST, "there is no session")
        else:
            code, text, data = unsupported(front.service.legacy_versions, version)
            if self._reason:
                text = f"{text}; {front.service.name}: {self._reason}"
            front.refuse(message, code, text, data)

    def client_said(self, front: Front, message: Message) -> None:
        """Drop a notification."""

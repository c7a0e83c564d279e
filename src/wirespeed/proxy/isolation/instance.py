"""A connection to a server that several clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.protocol import codes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirespeed._core.envelope import Message
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.config import BackendConfig
    from wirespeed.proxy.front import Front

# Seconds for which a request of a client that has left counts as unfinished: servers need not
# answer a request that was cancelled.
_ORPHANED = 60.0


class Instance:
    """The base of `Legacy` and `Modern`: an `Owner` of one connection after another.

    Attributes:
        backend: The connection; None while there is none, or it is not ready.
        refusal: What requests get while the server cannot be started: code and text.
        dropped: How many messages of the server were dropped, by reason.
    """

    def __init__(self, config: BackendConfig, limits: Limits) -> None:
        self.config = config
        self.backend: Backend | None = None
        self.refusal: tuple[int, str] | None = None
        self.dropped = {"not attributed": 0, "no subscriber": 0, "below the level": 0}
        self._orphaned_until = 0.0

    async def opened(self, backend: Backend) -> None:
        """Shake hands. WirespeedError or TimeoutError: the server cannot be used."""
        raise NotImplementedError

    def attach_all(self) -> None:
        """Let all clients go on, wait, or be refused, as the server is there."""
        raise NotImplementedError

    def left(self, front: Front) -> None:
        """A client has left."""
        if front.n_abandoned:
            self._orphaned_until = front.loop.time() + _ORPHANED

    def closed(self, backend: Backend) -> None:
        """The server is gone: requests wait for the next one."""
        if self.backend is backend:
            self.backend = None
            self.attach_all()

    def down(self, reason: str | None) -> None:
        """Refuse requests while the server cannot be started."""
        refusal = None if reason is None else (codes.SERVER_LOST, f"the server is down: {reason}")
        if refusal != self.refusal:
            self.refusal = refusal
            self.attach_all()

    def server_asks(self, backend: Backend, message: Message) -> None:
        """Answer a ping, and refuse all else."""
        if message.method == "ping":
            backend.session.send_result(message, b"{}")
            assert backend.link is not None
            backend.link.wrote()
        else:
            backend.refuse(
                message, "several clients share this server, so none of them can be asked"
            )

    def server_said(self, backend: Backend, message: Message) -> None:
        """Take a notification that belongs to no request."""
        raise NotImplementedError

    def only(self, fronts: Iterable[Front]) -> Front | None:
        """The client that a message can only be for, if there is one: it is alone, and no request
        of a client that left is unfinished."""
        found = list(fronts)
        if len(found) != 1 or found[0].shared or found[0].loop.time() < self._orphaned_until:
            self.dropped["not attributed"] += 1
            return None
        return found[0]

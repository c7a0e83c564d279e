"""The life of a LiteMCP client's link: as that of an MCP client, but without a handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed._core.framing.blankline import BlankLineFramer
from wirespeed.client.connection.lifecycle import Lifecycle
from wirespeed.client.targets import Http
from wirespeed.litemcp.channels import channel_for, restarts_of
from wirespeed.litemcp.client_connection import LiteClientConnection

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.limits import Limits

__all__ = ["LiteLife"]


class _Host:
    """Ignores all events: a LiteMCP server sends answers only."""

    listens = False

    def parted(self, exc: BaseException) -> None:
        """The link is lost."""


class LiteLife(Lifecycle):
    """The links to one target, one after another. ``on_link`` is called before each new link."""

    def __init__(
        self, target: Any, limits: Limits, strict: bool, on_link: Callable[[], None]
    ) -> None:
        host: Any = _Host()
        identity: Any = None
        super().__init__(
            *(target, "auto", identity, limits, host), handshake_timeout=0.0, probe_timeout=0.0
        )
        self._lenient = not strict
        self._on_link = on_link

    async def _start(self) -> None:
        try:
            await self._connect()
        except BaseException:
            await self._drop("the client could not be opened")
            raise
        self.live = self._connection  # set by `join`
        self._live_since = asyncio.get_running_loop().time()

    async def _connect(self) -> None:
        self._channel = self._connection = None
        self._on_link()
        if isinstance(self.target, Http):
            from wirespeed.litemcp.http_requests import HttpRequests

            requests: Any = HttpRequests(self.target, self._limits)
            self._channel = self._connection = requests
            return
        channel = channel_for(self.target)

        def join(framer: Framer | None) -> Any:
            if framer is None:
                framer = BlankLineFramer(self._limits.max_message, lenient=self._lenient)
            made: Any = LiteClientConnection(
                asyncio.get_running_loop(), self._limits, self, framer, channel.released
            )
            self._connection = made
            return made

        self._channel = channel
        await channel.open(join, self._limits)

    def lost(self, connection: Any, reason: str) -> None:
        """The link is lost. The number of crashes starts at 0 again if the server has answered."""
        if connection.answers and self._gone is not connection:
            self.crashes = 0
        super().lost(connection, reason)

    def _with_noise(self, connection: Any, reason: str) -> str:
        if connection.noise is None or connection.answers:
            return reason
        return f"{reason} (the server wrote a line that is not a message: {connection.noise!r})"

    @property
    def restarts(self) -> int:
        return restarts_of(self.target)

"""The first connection to a server that clients share: it finds out the eras of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.errors import VersionMismatch
from wirespeed.proxy.isolation.handshake import Probe

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.isolation.legacy import Legacy
    from wirespeed.proxy.isolation.modern import Modern
    from wirespeed.proxy.isolation.pool import Pool
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.upstream import Upstream


class FirstConnection:
    """The owner of a connection until the server has said which eras it speaks. Then an instance of
    one era owns it.

    Args:
        config: The server.
        capabilities: What the server may ask the proxy.
        pool: Whose connection it is.
        legacy, modern: The instances, one of which gets the connection.

    Attributes:
        address: The address, if the server has several.
        reason: Why the server cannot be started; None as long as it may be.
    """

    def __init__(
        self,
        config: BackendConfig,
        capabilities: dict[str, object],
        pool: Pool,
        legacy: Legacy,
        modern: Modern,
    ) -> None:
        self._config = config
        self._capabilities = capabilities
        self._pool = pool
        self.legacy = legacy
        self.modern = modern
        self.address = modern.address
        self.reason: str | None = None
        self._probe = Probe(config, capabilities)

    async def opened(self, upstream: Upstream) -> None:
        """The connection is there: find out the eras. VersionMismatch: they are not those of the
        server's other addresses."""
        versions = await self._probe.ask(upstream)
        if self._pool.versions and bool(versions) is not self._pool.is_modern:
            self._probe = Probe(self._config, self._capabilities)  # it may be another one later
            raise VersionMismatch("it speaks other revisions than the server's other addresses", [])
        if versions:
            self._pool.give(self, upstream, self.modern)
            self._pool.learned(versions)
            await self.modern.ready(upstream)
        else:
            await self.legacy.opened(upstream)
            self._pool.give(self, upstream, self.legacy)
            self._pool.learned(self.legacy.versions)

    def closed(self, upstream: Upstream) -> None:
        """The connection was lost in its handshake."""

    def failed(self) -> None:
        """A start has failed. An address is down, where others may be up."""
        if self.address is not None:
            self.modern.failed()

    def again(self, asker: Side, message: Message) -> bool:
        """Nothing was passed on yet."""
        return False

    def down(self, reason: str | None) -> None:
        """Refuse requests while no server can be started."""
        self.reason = reason
        self._pool.refused()

    def server_asks(self, upstream: Upstream, message: Message) -> None:
        """Take a request of a server in its handshake."""
        self.legacy.server_asks(upstream, message)

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Drop a notification in its handshake."""

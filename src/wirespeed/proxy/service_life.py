"""The life of a service: its servers run while anything holds it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.proxy.access.audit import AuditLog
    from wirespeed.proxy.hosts.stores import ProxyStores
    from wirespeed.proxy.isolation.assignment import Assignment
    from wirespeed.proxy.names.watch import NameWatch

logger = logging.getLogger("wirespeed.proxy")

# Seconds between two looks at a server that could not be started.
_LOOK = 0.25


class ServiceLife:
    """The servers, the audit log and the shared stores of a service, from its first holder to its
    last.

    Args:
        name: The name of the service.
        assignment: What starts the servers.
        names: Looks up the addresses of the server, before it starts the assignment; None: the
            configuration has them.
        audit: The audit log; None: there is none.
        stores: The stores that hosts share; None: they share nothing.

    Attributes:
        has_ended: Whether the last holder has gone, and there was no other since.
    """

    def __init__(
        self,
        name: str,
        assignment: Assignment,
        names: NameWatch | None,
        audit: AuditLog | None,
        stores: ProxyStores | None,
    ) -> None:
        self.has_ended = False
        self._name = name
        self._assignment = assignment
        self._servers = names or assignment
        self._audit = audit
        self._stores = stores
        self._holders = 0
        self._starting: asyncio.Future[None]

    @property
    def is_held(self) -> bool:
        """Whether anything needs the servers."""
        return self._holders > 0

    async def hold(self) -> None:
        """Hold the service once more. The first holder waits until the servers have started.
        TransportError: they cannot be started, or the audit log cannot be written."""
        if not self._hold():
            return
        try:
            await self._starting
        except BaseException:
            self._holders = 0
            await self._servers.stop()
            await self._let_go()
            raise

    def begin(self) -> asyncio.Future[None]:
        """The same without waiting. A server that cannot be started is logged."""
        if self._hold():
            self._starting.add_done_callback(self._started)
        return self._starting

    async def prove(self) -> None:
        """Hold the service once more, and see that a server can be started. WirespeedError: none
        can, and it is tried again."""
        self._hold()
        await asyncio.shield(self._starting)
        await self._assignment.prove()

    async def revived(self) -> None:
        """Wait until a server could be started after all."""
        while not any(one.is_settled for one in self._assignment.supervisors):
            await asyncio.sleep(_LOOK)

    def release(self) -> bool:
        """End a `hold`. Return whether it was the last one: then `end` is due."""
        self._holders -= 1
        return self._holders == 0

    async def end(self) -> None:
        """End the servers."""
        self.has_ended = True
        self._starting.cancel()
        await self._servers.stop()
        await self._let_go()

    def _hold(self) -> bool:
        """Hold the service. Return whether this is the first time, so that the servers start."""
        if self._holders == 0 and self._audit is not None:
            self._audit.hold()
        if self._stores is not None:
            self._stores.hold(self)
        self._holders += 1
        if self._holders == 1:
            self.has_ended = False
            self._starting = asyncio.ensure_future(self._servers.start())
        return self._holders == 1

    async def _let_go(self) -> None:
        if self._stores is not None:
            await self._stores.release(self)
        if self._audit is not None:
            self._audit.release()

    def _started(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.warning("%s: %s", self._name, str(error).partition("\n")[0])

"""Several servers behind one endpoint: which of them gets a request."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeAlias

from wirespeed.proxy.merge.client import MergedClient
from wirespeed.proxy.merge.member import Member

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.access.grants import Grants
    from wirespeed.proxy.front import Front
    from wirespeed.proxy.merge.names import Names
    from wirespeed.proxy.service import ProxyService
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.supervision.upstream import Upstream

logger = logging.getLogger("wirespeed.proxy")

# The service of a server, its names, and the seconds that it has to answer.
Offer: TypeAlias = "tuple[ProxyService, Names, float]"


class Merged:
    """A `wirespeed.proxy.isolation.assignment.Assignment`: each client is a client of every server.

    Args:
        services: The service of each server, its names, and the seconds that it has to answer.
        page_size: Entries on a page of a list.

    Attributes:
        access: What clients may use; None: everything.
        collisions: Entries of lists that were left out, because an earlier server has their key.
    """

    refuses_lanes = ""

    def __init__(self, services: list[Offer], page_size: int) -> None:
        self.page_size = page_size
        self.access: Grants | None = None
        self.collisions = 0
        self._services = services
        self._held: list[ProxyService] = []
        self._clients: dict[Front, MergedClient] = {}
        self._complaints: dict[tuple[str, str], str] = {}
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def upstreams(self) -> list[Upstream]:
        """None: the services of the servers have them."""
        return []

    async def start(self) -> None:
        """Start the servers. One that cannot be started does not hold the others up."""
        for service, *_ in self._services:
            await service.hold()
            self._held.append(service)

    async def stop(self) -> None:
        """End all servers that no other listener holds."""
        while self._held:
            await self._held.pop().release(None)
        if self._releases:
            await asyncio.wait(list(self._releases))

    async def replace(self, services: list[Offer], page_size: int) -> None:
        """Show these servers from now on, to those clients too that are there: what they asked a
        server that is gone is answered, then it is released."""
        known = {service for service, *_ in self._services}
        self.page_size = page_size
        if services == self._services:
            return
        for service, *_ in services:
            if service not in known and self._held:
                self._held.append(service)
                await service.hold()
        self._services = services
        for client in self._clients.values():
            client.replace(services)
        for service in known.difference(service for service, *_ in services):
            if service in self._held:
                self._held.remove(service)
                task = asyncio.ensure_future(service.release(None))
                self._releases.add(task)
                task.add_done_callback(self._releases.discard)

    def joined(self, front: Front) -> None:
        """A client has connected. Servers are asked when it asks."""
        client = MergedClient(self, front)
        client.members = [Member(*one, front, client) for one in self._services]
        self._clients[front] = client

    def left(self, front: Front) -> None:
        """A client has left."""
        self._clients.pop(front).close()

    def route(self, front: Front, message: Message) -> Side | None:
        """Return the server that a request goes to, or None if it was or will be answered."""
        return self._clients[front].route(message)

    def client_said(self, front: Front, message: Message) -> None:
        """Take a notification of a client that belongs to no request."""
        self._clients[front].said(message)

    def complain(self, name: str, what: str, reason: str | None, *, of_lanes: bool = False) -> None:
        """Log that a server does not do something, once for each reason; None: it does.

        ``of_lanes``: It does not for clients of 2026-07-28 over HTTP.
        """
        if of_lanes:
            what += " to clients of 2026-07-28 over HTTP"
        if reason is None:
            self._complaints.pop((name, what), None)
        elif self._complaints.get((name, what)) != reason:
            self._complaints[name, what] = reason
            logger.warning("%s: nothing is shown of its %s: %s", name, what, reason)

"""The endpoint of several servers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from wirespeed.proxy.merge.catalog import CatalogKey, MergedCatalog
from wirespeed.proxy.merge.client import MergedClient
from wirespeed.proxy.merge.extensions import MergedExtensions

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.access.grants import Grants
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.merge.member import MergedService, Offer
    from wirespeed.proxy.supervision.supervisor import Supervisor
    from wirespeed.server.extensions import Extension

logger = logging.getLogger("wirespeed.proxy")

# Names of tools and prompts whose servers are kept, complaints that are not repeated, and names of
# entries in one of these.
_MAX_NAMES = 10_000
_MAX_COMPLAINTS = 1_000
_MAX_NAMED = 5


class Merged:
    """A `wirespeed.proxy.isolation.assignment.Assignment`: each client may use every server.

    Args:
        offers: The servers, in the order of the configuration.
        page_size: Entries on a page of a list.
        ready_within: Seconds that clients wait for servers that are not ready.
        extensions: Those whose methods it passes on.
        max_catalogs: Kinds of clients whose lists are kept: the oldest goes.

    Attributes:
        access: What clients may use; None: everything.
        collisions: Entries of lists that were left out, because an earlier server has their key.
    """

    refuses_lanes = ""
    is_shared = True

    def __init__(
        self,
        offers: list[Offer],
        page_size: int,
        ready_within: float,
        extensions: tuple[Extension, ...] = (),
        *,
        max_catalogs: int = 64,
    ) -> None:
        self.offers = offers
        self.page_size = page_size
        self.ready_within = ready_within
        self.extensions = MergedExtensions(extensions)
        self.max_catalogs = max_catalogs
        self.access: Grants | None = None
        self.collisions = 0
        self._held: list[MergedService] = []
        self._clients: dict[Downstream, MergedClient] = {}
        self._catalogs: dict[CatalogKey, MergedCatalog] = {}
        self._owners: dict[tuple[str, str], list[tuple[Offer, str]]] = {}
        self._complaints: dict[tuple[str, str], str] = {}
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def supervisors(self) -> list[Supervisor]:
        """None: the services of the servers have them."""
        return []

    async def start(self) -> None:
        """Start the servers. One that cannot be started does not hold the others up."""
        for offer in self.offers:
            await offer.service.hold()
            self._held.append(offer.service)

    async def prove(self) -> None:
        """Each server is on its own."""

    async def stop(self) -> None:
        """End all servers that no other listener holds."""
        self._end_catalogs()
        while self._held:
            await self._held.pop().release(None)
        if self._releases:
            await asyncio.wait(list(self._releases))

    async def replace(
        self,
        offers: list[Offer],
        page_size: int,
        ready_within: float,
        extensions: tuple[Extension, ...],
    ) -> None:
        """Show these servers from now on, to those clients too that are there: what they asked a
        server that is gone is answered, then it is released."""
        self.page_size, self.ready_within = page_size, ready_within
        if extensions != self.extensions.given:
            self.extensions = MergedExtensions(extensions)
        if offers == self.offers:
            return
        known = {one.service for one in self.offers}
        for service in (one.service for one in offers):
            if service not in known and self._held:
                self._held.append(service)
                await service.hold()
        self.offers = offers
        self._owners.clear()
        self._end_catalogs()
        for client in self._clients.values():
            client.replace(offers)
        for service in known.difference(one.service for one in offers):
            if service in self._held:
                self._held.remove(service)
                task = asyncio.ensure_future(service.release(None))
                self._releases.add(task)
                task.add_done_callback(self._releases.discard)

    def allow(self, access: Grants | None) -> None:
        """Set what clients may use; None: everything."""
        self.access = access

    # -- clients ---------------------------------------------------------------------------------

    def joined(self, downstream: Downstream) -> None:
        """A client has connected. Servers are asked when it asks."""
        self._clients[downstream] = MergedClient(self, downstream)

    def left(self, downstream: Downstream) -> None:
        """A client has left."""
        self._clients.pop(downstream).close()

    def route(self, downstream: Downstream, message: Message) -> None:
        """Answer a request, or pass it on. Returns None."""
        self._clients[downstream].route(message)

    def may_move(self, downstream: Downstream) -> bool:
        """Whether another host can go on with a client: it has used no server of its own."""
        client = self._clients.get(downstream)  # None: it leaves just now
        return client is not None and all(one.is_shared for one in client.members.values())

    def server_of(self, name: str) -> str | None:
        """Return the server of a tool or prompt by its name. None: it says none, or several."""
        found = [one.service.name for one in self.offers if one.names.may_have(name)]
        return found[0] if len(found) == 1 else None

    def client_said(self, downstream: Downstream, message: Message) -> None:
        """Take a notification of a client that belongs to no request."""
        self._clients[downstream].said(message)

    # -- what is known of the servers ------------------------------------------------------------

    def owners(self, kind: str, shown: str) -> list[tuple[Offer, str]]:
        """Return which servers a tool or a prompt may be of, and what they call it. ``kind``: tools
        or prompts. ``shown``: What clients call it."""
        found = self._owners.get((kind, shown))
        if found is None:
            found = [
                (offer, real)
                for offer in self.offers
                if (real := offer.names.real(kind, shown)) is not None
            ]
            if found and len(shown) <= 200:
                if len(self._owners) >= _MAX_NAMES:
                    self._owners.clear()
                self._owners[kind, shown] = found
        return found

    def catalog(
        self, key: CatalogKey, loop: asyncio.AbstractEventLoop, envelope: dict[str, Any]
    ) -> MergedCatalog:
        """Return what is known for clients of one kind. ``envelope``: As of `envelope_of`."""
        found = self._catalogs.pop(key, None)
        if found is None:
            found = MergedCatalog(self, key, loop, envelope)
            if len(self._catalogs) >= self.max_catalogs:
                self._catalogs.pop(next(iter(self._catalogs))).retire()
        self._catalogs[key] = found
        return found

    def renewed(self, catalog: MergedCatalog) -> MergedCatalog:
        """Return what has taken the place of a catalog that is over."""
        return self.catalog(catalog.key, catalog.loop, catalog.envelope)

    def _end_catalogs(self) -> None:
        catalogs, self._catalogs = self._catalogs, {}
        for one in catalogs.values():
            one.close()

    def changed(self, name: str, capability: str) -> None:
        """The lists of a server have changed, for all clients."""
        for one in list(self._catalogs.values()):
            one.changed(name, capability)

    def complain(self, name: str, what: str, reason: str | None, *, of_lanes: bool = False) -> None:
        """Log that a server does not do something, once for each reason; None: it does.

        ``of_lanes``: It does not for clients of 2026-07-28 over HTTP.
        """
        if of_lanes:
            what += " to clients of 2026-07-28 over HTTP"
        if self._is_new((name, what), reason):
            logger.warning("%s: nothing is shown of its %s: %s", name, what, reason)

    def leave_out(self, name: str, what: str, faults: dict[str, str]) -> None:
        """Log that entries of a list of a server are left out, once for the same ones."""
        text = "; ".join(f"{key}: {fault}" for key, fault in list(faults.items())[:_MAX_NAMED])
        if len(faults) > _MAX_NAMED:
            text += f"; and {len(faults) - _MAX_NAMED} more"
        if self._is_new((name, f"some {what}"), text or None):
            logger.warning("%s: some of its %s are not shown: %s", name, what, text)

    def _is_new(self, key: tuple[str, str], reason: str | None) -> bool:
        if reason is None:
            self._complaints.pop(key, None)
            return False
        if self._complaints.get(key) == reason:
            return False
        if len(self._complaints) >= _MAX_COMPLAINTS:
            self._complaints.clear()
        self._complaints[key] = reason
        return True

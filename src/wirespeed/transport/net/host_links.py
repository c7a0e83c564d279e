"""The connections over which a process passes requests on to other processes: one to each, which is
opened at the first request."""

from __future__ import annotations

import asyncio
import logging
import ssl as ssl_
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from wirespeed.errors import TransportError
from wirespeed.limits import Limits
from wirespeed.transport.address import Address, parse
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.http.members import MemberProofs
from wirespeed.transport.http.passing import AskingEnd, proof_frame
from wirespeed.transport.net.connect import Connected, connect_upgraded
from wirespeed.transport.options import NotPassed
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.transport.http.exchange import Exchange

logger = logging.getLogger("wirespeed.server")

OPEN_TIMEOUT = 3.0  # seconds for a connection and its proofs
RETRY = Backoff(0.05, 0.5)  # before a connection that failed is tried again


class HostLink:
    """The connection to one other process.

    Args:
        members: Makes and checks the proofs of members.
        address: Where the other process takes requests.
        name: Its name.
        ssl, limits: As of `HostLinks`.
        far: Whether it is another host, and not a worker of this host.
    """

    def __init__(
        self,
        members: MemberProofs,
        address: Address,
        name: str,
        *,
        ssl: ssl_.SSLContext | None,
        limits: Limits,
        far: bool,
    ) -> None:
        self._members = members
        self._address = address
        self._name = name
        self._ssl = ssl
        self._limits = limits
        self._far = far
        self._end: AskingEnd | None = None  # that takes requests
        self._tasks: dict[AskingEnd, asyncio.Task[None]] = {}  # of those that are not closed
        self._n_failures = 0
        self._not_before = 0.0  # by the clock of the loop
        self._quiet = RateLimitedLog(logger, lines=1)

    def pass_on(
        self, exchange: Exchange, worker: int, body: bytes, otherwise: Callable[[NotPassed], object]
    ) -> None:
        """As of `AskingEnd`."""
        end = self._ready()
        if end is None:
            otherwise(NotPassed.NOT_SENT)
        else:
            end.pass_on(exchange, worker, body, otherwise)

    async def ask(self, question: bytes, seconds: float) -> bytes | None:
        """Return the answer of the other process to a question about its state; None: it does not
        answer in time."""
        end = self._ready()
        if end is None:
            return None
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        end.ask(question, answer)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None

    def open(self) -> None:
        """Make the connection, before the first request needs it."""
        if self._end is None:
            self._ready()

    async def close(self) -> None:
        """Close the connection, or stop opening it. What waits for an answer gets none."""
        tasks = list(self._tasks.values())
        for end in list(self._tasks):
            end.close()
        if tasks:
            await asyncio.wait(tasks)

    def _ready(self) -> AskingEnd | None:
        """The end that takes requests, whose link may not be made yet; None: it failed just now."""
        if self._end is None or not self._end.takes:
            loop = asyncio.get_running_loop()
            if loop.time() < self._not_before:
                return None
            self._end = AskingEnd(self._limits, far=self._far, on_closed=self._closed)
            self._tasks[self._end] = loop.create_task(self._serve(self._end))
        return self._end

    def _closed(self, end: AskingEnd) -> None:
        task = self._tasks.pop(end, None)
        if task is not None:
            task.cancel()

    async def _serve(self, end: AskingEnd) -> None:
        """Open a connection, and close it at its end."""
        request, asked = self._members.request(self._address.authority)
        connected: Connected | None = None
        try:
            connected = await connect_upgraded(
                self._address,
                request,
                lambda head: proof_frame(self._members.proof_of(self._name, asked, head)),
                ssl=self._ssl,
                open_timeout=OPEN_TIMEOUT,
            )
            self._n_failures = 0
            connected.attach(end).flush()
            await asyncio.get_running_loop().create_future()  # until it is closed
        except asyncio.CancelledError:
            pass
        except (OSError, TransportError) as exc:
            self._not_before = asyncio.get_running_loop().time() + RETRY.pause(self._n_failures)
            self._n_failures += 1
            self._quiet.log(
                logging.WARNING, "requests are not passed on to %s: %s", self._name, exc
            )
        finally:
            self._tasks.pop(end, None)  # first: it is at its end already
            end.close()
            if connected is not None:
                connected.close()


class HostLinks:
    """The connections to all other processes of a deployment.

    Args:
        members: Makes and checks the proofs of members.
        far: Whether they are other hosts, and not workers of this host.
        ssl: The TLS context; by default it trusts the authorities of the system.
        limits: Of each connection.
        read: Makes an address of a place.
    """

    def __init__(
        self,
        members: MemberProofs,
        *,
        far: bool,
        ssl: ssl_.SSLContext | None = None,
        limits: Limits | None = None,
        read: Callable[[str], Address] = parse,
    ) -> None:
        self._members = members
        self._far = far
        self._ssl = ssl
        self._limits = limits or Limits()
        self._read = read
        self._links: dict[tuple[str, str], HostLink] = {}  # by place and name

    def to(self, place: str, name: str) -> HostLink:
        """Return the connection to the process with a name, at a place: by default a URL."""
        link = self._links.get((place, name))
        if link is None:
            link = self._links[place, name] = HostLink(
                self._members,
                self._read(place),
                name,
                ssl=self._ssl,
                limits=self._limits,
                far=self._far,
            )
        return link

    async def close(self, but: Container[str] = ()) -> None:
        """Close the connections, except those to the places ``but``. What waits for them fails."""
        gone = [self._links.pop(one) for one in list(self._links) if one[0] not in but]
        for link in gone:
            await link.close()

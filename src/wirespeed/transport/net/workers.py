"""The connections between the workers at one port. Each session lives in one worker, and the others
pass its requests on.

Each worker listens at a UNIX socket that was made before the workers were forked. The parent keeps
the sockets, so that a worker that replaces another one gets its socket.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from wirespeed.transport.address import Address
from wirespeed.transport.http.members import HOSTS_PATH, MemberProofs, MembersTarget
from wirespeed.transport.http.options import HttpOptions
from wirespeed.transport.http.site import HttpSite
from wirespeed.transport.net.host_links import HostLinks

if TYPE_CHECKING:
    from wirespeed.transport.http.exchange import Exchange
    from wirespeed.transport.options import NotPassed

BACKLOG = 128
PATIENCE = 1.0  # seconds for the state of another worker


def _address(file: str) -> Address:
    return Address("http", "localhost", 80, "/", socket=file)


class WorkerSockets:
    """The sockets of all workers, in the parent.

    Args:
        n: The number of workers.
    """

    def __init__(self, n: int) -> None:
        self._key = secrets.token_bytes(32)
        self._sockets: list[socket.socket] = []
        self._folder = ""
        if sys.platform == "linux":  # names without files: nothing is left of killed processes
            self._files = [f"\0wirespeed-{secrets.token_hex(16)}" for _ in range(n)]
        else:
            self._folder = tempfile.mkdtemp(prefix="wirespeed-")  # for this user alone
            self._files = [os.path.join(self._folder, str(worker)) for worker in range(n)]
        try:
            for file in self._files:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._sockets.append(sock)
                sock.setblocking(False)
                sock.bind(file)
                sock.listen(BACKLOG)
        except BaseException:
            self.close()
            raise

    def of(self, worker: int) -> OtherWorkers:
        """Return the connections of a worker to the others."""
        return OtherWorkers(worker, self._files, self._sockets[worker], MemberProofs(self._key))

    def close(self) -> None:
        """Release the sockets and their files."""
        for sock in self._sockets:
            sock.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


class OtherWorkers:
    """The connections of one worker to and from the others.

    Attributes:
        worker: The number of this worker.
        n: How many there are.
        socket: Where the others connect to this one.
    """

    def __init__(
        self, worker: int, files: Sequence[str], sock: socket.socket, members: MemberProofs
    ) -> None:
        self.worker = worker
        self.n = len(files)
        self.socket = sock
        self._files = files
        self._members = members
        self._links = HostLinks(members, far=False, read=_address)

    def site(self, served: HttpSite) -> HttpSite:
        """Return the site of the socket, where others pass on requests for the site ``served``."""
        known = served.options.directory
        state = (lambda question: b"") if known is None else known.state
        target = MembersTarget(self._members, lambda: str(self.worker), state, served)
        return HttpSite(
            {HOSTS_PATH: target},
            options=HttpOptions(),
            limits=served.limits,
            gate=served.gate,
            budget=served.budget,
            loop=served.loop,
        )

    def pass_on(
        self, exchange: Exchange, worker: int, body: bytes, otherwise: Callable[[NotPassed], object]
    ) -> None:
        """Answer a request with the response of another worker. ``otherwise``: As of
        `HostLink.pass_on`."""
        link = self._links.to(self._files[worker], str(worker))
        link.pass_on(exchange, worker, body, otherwise)

    async def ask(self, worker: int, question: bytes) -> bytes | None:
        """Return the state of another worker; None: it does not answer in time."""
        return await self._links.to(self._files[worker], str(worker)).ask(question, PATIENCE)

    async def close(self) -> None:
        """Close the connections to the others."""
        await self._links.close()

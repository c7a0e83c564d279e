"""The other workers of a port: their numbers, the sum of all, and an operator's actions in
each."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from wirespeed.proxy.operation.meter import Sample, Share
from wirespeed.proxy.operation.snapshot import (
    MAX_CLIENTS,
    MAX_SERVERS,
    EndpointEntry,
    MethodEntry,
    SkillsEntry,
    Snapshot,
    summary,
)
from wirespeed.transport.net.activation import FLAGS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from wirespeed.proxy.access.skills import HeldSkill

PATIENCE = 1.0  # seconds that a worker has for its answer
MAX_ANSWER = 1 << 24
QUESTION, COMMAND = b"?", b"!"
# Fields of `EndpointEntry` that are summed up.
_SUMS = (
    "of_clients", "of_servers", "supervision", "garbage", "breakers", "flow", "refused", "cut",
    "dropped", "server_states", "hooks", "search", "names",
)  # fmt: skip

_T = TypeVar("_T")

# -- the sum of all --------------------------------------------------------------------------------


def merged(snapshots: Sequence[Snapshot], missing: list[int]) -> Snapshot:
    """Sum up the numbers of several workers. ``missing``: those that did not answer."""
    endpoints = grouped((one for snapshot in snapshots for one in snapshot.endpoints), "name")
    return Snapshot(
        started=min(one.started for one in snapshots),
        processes=[process for one in snapshots for process in one.processes],
        endpoints=[_merged(found) for found in endpoints.values()],
        clients=[client for one in snapshots for client in one.clients][:MAX_CLIENTS],
        n_clients=sum(one.n_clients for one in snapshots),
        events=sorted(
            (event for one in snapshots for event in one.events), key=lambda event: event.at
        ),
        audit=_added(one.audit for one in snapshots),
        missing=missing,
    )


def _merged(found: list[EndpointEntry]) -> EndpointEntry:
    first = found[0]
    if len(found) == 1:
        return first
    return msgspec.structs.replace(
        first,
        state=summary({one.state for one in found}),
        n_clients=sum(one.n_clients for one in found),
        n_connected=sum(one.n_connected for one in found),
        n_sessions=sum(one.n_sessions for one in found),
        longest_idle=max(one.longest_idle for one in found),
        **{name: _added(getattr(one, name) for one in found) for name in _SUMS},
        requests=_requests(found),
        history=_history(found),
        hour=_summed(sample for one in found for sample in one.hour),
        tools=_shares(share for one in found for share in one.tools),
        principals=_shares(share for one in found for share in one.principals),
        skills=_skills([one.skills for one in found if one.skills is not None]),
        cached_lists=sum(one.cached_lists for one in found),
        drained=any(one.drained for one in found),
        servers=[server for one in found for server in one.servers][:MAX_SERVERS],
    )


def _added(many: Iterable[dict[Any, int]]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for one in many:
        for name, value in one.items():
            found[name] = found.get(name, 0) + value
    return found


def _requests(found: list[EndpointEntry]) -> list[MethodEntry]:
    by_method = grouped((requests for one in found for requests in one.requests), "method")
    return [
        MethodEntry(
            method,
            columns(one.buckets for one in many),
            sum(one.seconds for one in many),
            _added(one.codes for one in many),
        )
        for method, many in by_method.items()
    ]


def _skills(found: list[SkillsEntry]) -> SkillsEntry | None:
    """The skills of the workers together. Each has read the same file."""
    if not found:
        return None
    held: dict[str, HeldSkill] = {}
    for skill in (skill for one in found for skill in one.waiting):
        if skill.uri not in held or held[skill.uri].at < skill.at:
            held[skill.uri] = skill
    return msgspec.structs.replace(found[0], waiting=list(held.values()))


def _shares(many: Iterable[Share]) -> list[Share]:
    found: dict[str, Share] = {}
    for one in many:
        found[one.name] = one if one.name not in found else found[one.name].plus(one)
    return list(found.values())


def _history(found: list[EndpointEntry]) -> list[Sample]:
    return _summed(sample for one in found for sample in one.history)


def _summed(samples: Iterable[Sample]) -> list[Sample]:
    by_tick = grouped(samples, "tick")
    return [
        Sample(
            tick,
            sum(one.requests for one in many),
            sum(one.errors for one in many),
            sum(one.bytes for one in many),
            columns(one.buckets for one in many),
        )
        for tick, many in sorted(by_tick.items())
    ]


def grouped(many: Iterable[_T], name: str) -> dict[Any, list[_T]]:
    """Group values by an attribute."""
    found: dict[Any, list[_T]] = {}
    for one in many:
        found.setdefault(getattr(one, name), []).append(one)
    return found


def columns(rows: Iterable[list[int]]) -> list[int]:
    """Add rows, number by number."""
    return [sum(column) for column in zip(*rows, strict=True)]


# -- messages between workers ----------------------------------------------------------------------


class Neighbours:
    """The other workers of one port. A worker that is asked for numbers asks all others for
    theirs, and passes an operator's action on to them.

    Each worker has a mailbox, a pair of sockets that was made before the workers were forked. A
    question is one byte with one end of a new pair of sockets, over which the answer comes. A
    command is a different byte; the action comes first over the new pair.

    Args:
        n: The number of all workers.
    """

    def __init__(self, n: int) -> None:
        self._pairs = [socket.socketpair() for _ in range(n)]
        for pair in self._pairs:
            for end in pair:
                end.setblocking(False)
        self._answering: set[asyncio.Task[None]] = set()

    def serve(
        self,
        worker: int,
        take: Callable[[], Awaitable[Snapshot]],
        obey: Callable[[str, str, str], Awaitable[object]],
    ) -> None:
        """Begin to answer the others. ``worker``: the number of this process. ``obey``: carries
        out an action at a server."""
        box = self._pairs[worker][0]
        asyncio.get_running_loop().add_reader(box.fileno(), self._receive, box, take, obey)

    def stop(self, worker: int) -> None:
        """Stop answering."""
        asyncio.get_running_loop().remove_reader(self._pairs[worker][0].fileno())
        for task in self._answering:
            task.cancel()

    def _receive(
        self,
        box: socket.socket,
        take: Callable[[], Awaitable[Snapshot]],
        obey: Callable[[str, str, str], Awaitable[object]],
    ) -> None:
        with contextlib.suppress(OSError):
            kind, found, _, _ = socket.recv_fds(box, 1, 1, FLAGS)
            for fd in found:
                asker = socket.socket(fileno=fd)
                work = _obey(asker, obey) if kind == COMMAND else _answer(asker, take)
                task = asyncio.ensure_future(work)
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def ask(self, worker: int) -> tuple[list[Snapshot], list[int]]:
        """Return the snapshots of all workers but this one, and the numbers of those that did not
        answer."""
        others = self._others(worker)
        answers = await asyncio.gather(*map(self._ask, others))
        missing = [one for one, found in zip(others, answers, strict=True) if found is None]
        return [found for found in answers if found is not None], missing

    async def tell(self, worker: int, name: str, action: str, principal: str) -> list[int]:
        """Have all other workers carry out an action at a server. Returns the numbers of those
        that did not answer."""
        others = self._others(worker)
        sent = msgspec.msgpack.encode((name, action, principal))
        answers = await asyncio.gather(*(self._talk(one, COMMAND, sent) for one in others))
        return [one for one, found in zip(others, answers, strict=True) if found != b"done"]

    def _others(self, worker: int) -> list[int]:
        return [one for one in range(len(self._pairs)) if one != worker]

    async def _ask(self, worker: int) -> Snapshot | None:
        answer = await self._talk(worker, QUESTION, b"")
        try:
            return None if answer is None else msgspec.msgpack.decode(answer, type=Snapshot)
        except msgspec.DecodeError:
            return None

    async def _talk(self, worker: int, kind: bytes, sent: bytes) -> bytes | None:
        """Return the answer of a worker; None: it did not answer in time."""
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                try:
                    socket.send_fds(self._pairs[worker][1], [kind], [theirs.fileno()])
                except OSError:  # its mailbox is full
                    return None
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(PATIENCE):
                    if sent:
                        await loop.sock_sendall(ours, sent)
                        ours.shutdown(socket.SHUT_WR)
                    return await _all_of(ours)
            except (TimeoutError, OSError):
                return None


async def _all_of(asker: socket.socket) -> bytes | None:
    """Read a socket until its end; None: there were too many bytes."""
    found = bytearray()
    while data := await asyncio.get_running_loop().sock_recv(asker, 1 << 18):
        found += data
        if len(found) > MAX_ANSWER:
            return None
    return bytes(found)


async def _obey(asker: socket.socket, obey: Callable[[str, str, str], Awaitable[object]]) -> None:
    with asker, contextlib.suppress(OSError, TimeoutError, msgspec.DecodeError, LookupError):
        asker.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            wanted = await _all_of(asker)
            await obey(*msgspec.msgpack.decode(wanted or b"", type=tuple[str, str, str]))
            await asyncio.get_running_loop().sock_sendall(asker, b"done")


async def _answer(asker: socket.socket, take: Callable[[], Awaitable[Snapshot]]) -> None:
    with asker, contextlib.suppress(OSError, TimeoutError):
        asker.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(asker, msgspec.msgpack.encode(await take()))

"""Which client gives up its place at a server that has no more: one that does not work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.proxy.front import Front

IDLE = 10.0  # seconds without a request or an open stream, after which a client may lose its place
UNUSED = 1.0  # and of a session in which nothing followed `initialize`
_OPENING = 2  # `initialize` and the notification behind it


def own_of(front: Front) -> Front:
    """The client's own connection: a part of a translated or merged client has another one."""
    own: Any = front
    while own.outer is not None:
        own = own.outer
    found: Front = own
    return found


def idle_of(front: Front) -> float:
    """Seconds since a client's last request or stream was at an end. 0: it works, or it has a
    connection of its own, which ends when it leaves."""
    session = getattr(own_of(front).link, "session", None)
    return 0.0 if session is None else session.idle


def longest_idle(fronts: Iterable[Front]) -> Front | None:
    """The client that gives up its place; None: all clients work. First who has the most places,
    of the principal or the address, then who has been silent for the longest."""
    held: Counter[Hashable] = Counter()
    found: list[tuple[Hashable, float, Front]] = []
    for front in fronts:
        own = own_of(front)
        holder = _holder_of(own)
        held[holder] += 1
        seconds = idle_of(own)
        if seconds > 0 and seconds >= (UNUSED if own.session.messages_in <= _OPENING else IDLE):
            found.append((holder, seconds, front))
    if not found:
        return None
    return max(found, key=lambda one: (held[one[0]], one[1]))[2]


def _holder_of(front: Front) -> Hashable:
    if front.principal is not None:
        return front.principal
    return None if front.peer is None else front.peer.address.rpartition(":")[0]

"""A cache of the lists of a server that clients share. A list is valid until the server says that
it has changed, or for as long as the server says (``ttlMs``).

Lists are kept as the server sent them, for each connection to it. Entries that a client may not
see are left out of each answer.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw

from wirespeed._core.envelope import parse
from wirespeed.merging import KINDS
from wirespeed.protocol.revisions import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
    offers,
)
from wirespeed.proxy.flow.rates import credentials_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.side import Side

MAX_ENTRIES = 256  # of one connection to a server
MAX_BYTES = 16 << 20  # of these together
_LEAST = 0.001  # seconds: a list that is valid for less is not given out
_MOST = 1000 * 86400 * 365  # milliseconds: the longest time that a list is kept

_VERSION = "params._meta.io.modelcontextprotocol/protocolVersion"
_CAPABILITIES = "params._meta.io.modelcontextprotocol/clientCapabilities"

# Members of `_meta` on which a list does not depend, or that the key already has.
_OF_ONE_REQUEST = (
    "progressToken",
    "traceparent",
    "tracestate",
    "baggage",
    META_LOG_LEVEL,
    META_CLIENT_INFO,
    META_PROTOCOL_VERSION,
    META_CLIENT_CAPABILITIES,
)

_members = msgspec.json.Decoder(dict[str, Raw]).decode


class _Held(msgspec.Struct, rename="camel"):
    """The time for which a result is valid, and for whom."""

    ttl_ms: Any = None
    cache_scope: Any = None


_held = msgspec.json.Decoder(_Held).decode


class ListKey(NamedTuple):
    """A request for a page of a list.

    Attributes:
        n_changes: The number of changes of the list before the request.
        asked: The parts of the request that the answer depends on.
        who: The client for whom the answer is, if it is not for everyone.
    """

    n_changes: int
    method: str
    asked: tuple[bytes, ...]
    who: Hashable


class _Kept(NamedTuple):
    answer: Message
    until: float | None
    n_bytes: int


class ListCache:
    """The lists of one connection to a server.

    Args:
        offered: The capabilities of a server of a legacy era, which say of which lists it
            announces changes. None: a server of 2026-07-28, which says for how long each list is
            valid.
        clock: Returns seconds.

    Attributes:
        n_found: The requests that were answered from it.
    """

    def __init__(
        self, offered: Mapping[str, Any] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.n_found = 0
        self._is_modern = offered is None
        self._told = {
            kind.method
            for kind in KINDS.values()
            if offered is not None and offers(offered, kind.capability, "listChanged")
        }
        self._clock = clock
        self._kept: OrderedDict[tuple[Hashable, ...], _Kept] = OrderedDict()
        self._n_bytes = 0
        self._n_changes: dict[str, int] = dict.fromkeys(KINDS, 0)

    def __len__(self) -> int:
        """The number of pages that are kept."""
        return len(self._kept)

    def key(self, asker: Side, message: Message) -> ListKey | None:
        """Return the key of a request; None: its answer is not kept."""
        method = message.method or ""
        if method not in self._n_changes or (not self._is_modern and method not in self._told):
            return None
        try:
            params = {} if message.params is None else _members(message.params)
            meta = _members(params.pop("_meta", Raw(b"{}")))
        except (msgspec.DecodeError, RecursionError):  # the server refuses it
            return None
        for name in _OF_ONE_REQUEST:
            meta.pop(name, None)
        asked = [msgspec.json.encode(one, order="sorted") for one in (params, meta)]
        if self._is_modern:
            for point in (_VERSION, _CAPABILITIES):
                lease = message.lease(point)
                asked.append(b"" if lease is None else bytes(lease))
        while asker.outer is not None:
            asker = asker.outer
        return ListKey(self._n_changes[method], method, tuple(asked), credentials_of(asker))

    def find(self, key: ListKey) -> Message | None:
        """Return the kept answer to a request; None: there is none."""
        for who in (None, key.who):
            place = (key.method, key.asked, who)
            kept = self._kept.get(place)
            if kept is None:
                continue
            left = None if kept.until is None else kept.until - self._clock()
            if left is not None and left < _LEAST:
                self._drop(place)
                continue
            self._kept.move_to_end(place)
            self.n_found += 1
            return kept.answer if left is None else _aged(kept.answer, left)
        return None

    def keep(self, key: ListKey, answer: Message) -> None:
        """Keep an answer, if it stays valid."""
        if key.n_changes != self._n_changes[key.method] or answer.raw is None:
            return  # the list may have changed on the way
        text = bytes(answer.raw)
        until: float | None = None
        who: Hashable = None
        if self._is_modern:
            try:
                held = _held(answer.result or b"{}")
            except (msgspec.DecodeError, RecursionError):  # valid JSON that Python cannot decode
                return
            if isinstance(held.ttl_ms, bool) or not isinstance(held.ttl_ms, int):
                return
            if held.ttl_ms <= 0:
                return
            until = self._clock() + min(held.ttl_ms, _MOST) / 1000
            who = None if held.cache_scope == "public" else key.who
        if len(text) > MAX_BYTES:
            return
        place = (key.method, key.asked, who)
        self._drop(place)
        self._kept[place] = _Kept(parse(text, max_depth=1024), until, len(text))
        self._n_bytes += len(text)
        while len(self._kept) > MAX_ENTRIES or self._n_bytes > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def heard(self, method: str | None) -> None:
        """Take note of a notification of the server. A changed list is dropped."""
        if method is None or not method.endswith("/list_changed"):
            return
        capability = method.split("/")[1]
        for kind in KINDS.values():
            if kind.capability == capability:
                self._n_changes[kind.method] += 1
        for place in [one for one in self._kept if KINDS[str(one[0])].capability == capability]:
            self._drop(place)

    def _drop(self, place: tuple[Hashable, ...]) -> None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            self._n_bytes -= kept.n_bytes


def _aged(answer: Message, left: float) -> Message:
    """Return an answer with the time for which it is still valid."""
    assert answer.result is not None
    result = _members(answer.result)
    result["ttlMs"] = Raw(b"%d" % int(left * 1000))
    text = msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "result": result})
    return parse(text, max_depth=1024)

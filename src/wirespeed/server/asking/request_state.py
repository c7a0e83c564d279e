"""``requestState``: the state of a server between two rounds, kept by its client.

basic/patterns/mrtr of 2026-07-28 ("Server Requirements"): the client echoes the text of the last
round, which the server treats as attacker-controlled input. The text can be read by the client, but
not be made or changed: compact JSON behind its HMAC-SHA256, as base64url without padding::

    base64url( mac[32] + [1, expires, nonce, binding, asked, answers, given, state?] )

* The key is derived from the server's secret and name, so servers that share a secret do not accept
  each other's states. With several secrets the first seals, and all open.
* ``binding`` is a digest of the client's principal and of the request (method, name or URI,
  arguments in canonical form). A state is refused for another user, tool or other arguments.
  Clients without credentials count as the same user.
* ``expires`` is wall-clock time, so that all processes of a server agree.
* Every refusal is error -32602 with the same text. The reason is logged at level debug.

A state may be used again while it lives: a client repeats its request after a broken connection.
An effect that must happen once needs a check of its own, or ``single_use``: then each process, or
all hosts that share a store, accept a state once, also if that request is lost.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wirespeed.errors import LimitExceeded, ProtocolError
from wirespeed.protocol import codes

if TYPE_CHECKING:
    from wirespeed.single_use import SingleUse

logger = logging.getLogger("wirespeed.server")

DEFAULT_TTL = 600.0  # seconds
MAX_STATE = 256 * 1024  # bytes of the text, each way
MIN_SECRET = 16  # bytes

VERSION = 1
_MAC = 32  # bytes
CLOCKS = 600.0  # seconds by which the clocks of hosts may differ
_CHUNK = 4096  # serial numbers whose use is recorded together, for `single_use`

_encode = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="sorted").encode


class RequestState(msgspec.Struct):
    """The content of a request state.

    Attributes:
        asked: The open questions of the last round: key -> mark of the question.
        answers: The answers of all earlier rounds: key -> mark of the question, result as JSON.
        given: The same for the keys of `InputRequired`.
        state: The state of `InputRequired`, as JSON.
        use: Uses the state up on all hosts, before the handler runs; None: that is not to be done.
    """

    asked: dict[str, str] = msgspec.field(default_factory=dict)
    answers: dict[str, tuple[str, Raw]] = msgspec.field(default_factory=dict)
    given: dict[str, tuple[str, Raw]] = msgspec.field(default_factory=dict)
    state: Raw | UnsetType = UNSET
    use: Callable[[], Awaitable[None]] | None = None


class _Payload(msgspec.Struct, array_like=True):
    version: int
    expires: int
    nonce: str
    binding: str
    asked: dict[str, str]
    answers: dict[str, tuple[str, Raw]]
    given: dict[str, tuple[str, Raw]]
    state: Raw | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Payload).decode


def state_secrets(secret: bytes | Iterable[bytes] | None) -> tuple[bytes, ...]:
    """The secrets of a server: one, or several for rotation. None makes a random secret.

    ValueError: a secret is shorter than 16 bytes. A random secret lives as long as its process and
    the processes forked from it; servers behind one address need a common secret.
    """
    if secret is None:
        return (os.urandom(32),)
    found = (secret,) if isinstance(secret, (bytes, bytearray)) else tuple(secret)
    if not found or not all(isinstance(one, (bytes, bytearray)) for one in found):
        raise ValueError("state_secret must be bytes, or several")
    if any(len(one) < MIN_SECRET for one in found):
        raise ValueError(f"state_secret must have at least {MIN_SECRET} bytes")
    return tuple(bytes(one) for one in found)


def digest(*parts: bytes | None) -> str:
    """A short digest of byte strings and of their lengths."""
    import hashlib

    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(b"-" if part is None else b"%d:" % len(part))
        hashed.update(part or b"")
    return base64.b64encode(hashed.digest()[:18], b"-_").decode()


def canonical(data: bytes | None) -> bytes:
    """JSON text in canonical form: sorted members, no spaces. Malformed text stays as it is."""
    if data is None:
        return b"{}"
    try:
        return _sorted(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError):
        return data


def binding_of(principal: bytes | None, method: str, target: str, arguments: bytes | None) -> str:
    """The binding of a state to its user and its request.

    *principal* is the digest of the client's credential, or None; *target* the name of the tool or
    prompt, or the URI; *arguments* JSON text, None for ``{}``.
    """
    return digest(principal, method.encode(), target.encode(), canonical(arguments))


class Sealer:
    """Seals and opens the request states of one server.

    Args:
        secrets: From `state_secrets`. The first secret seals.
        name: The server's name.
        ttl: The seconds that a state lives, rounded up.
        single_use: Whether this process opens a state only once.
        max_bytes: The longest text. A call that needs more fails.
        clock: Wall-clock seconds.
    """

    def __init__(
        self,
        secrets: tuple[bytes, ...],
        name: str,
        ttl: float = DEFAULT_TTL,
        *,
        single_use: bool = False,
        max_bytes: int = MAX_STATE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 0 < ttl < math.inf:
            raise ValueError("state_ttl must be a positive number of seconds")
        self._secrets = secrets
        self._name = name.encode("utf-8", "surrogatepass")
        self._keys: list[bytes] | None = None
        self._ttl = ttl
        self._max = max_bytes
        self._clock = clock
        self._pid = 0  # of the process that the two below belong to: servers may be forked
        self._series = b""
        self._serial = itertools.count()
        # for each chunk of serial numbers: a bit for each number used, and when the last expires
        self._used: dict[tuple[bytes, int], tuple[int, int]] | None = {} if single_use else None
        self._shared: SingleUse | None = None

    @property
    def single_use(self) -> bool:
        """Whether a state is opened only once."""
        return self._used is not None

    def share(self, single_use: SingleUse) -> None:
        """Where states are for single use: accept a state once on all hosts, not in each process.
        `RequestState.use` does that."""
        self._shared = single_use

    def _macs(self, payload: bytes) -> Iterable[bytes]:
        import hmac  # most servers never need it

        if self._keys is None:
            context = b"wirespeed requestState 1\0" + self._name
            self._keys = [hmac.digest(secret, context, "sha256") for secret in self._secrets]
        for key in self._keys:
            yield hmac.digest(key, payload, "sha256")

    def seal(self, state: RequestState, binding: str) -> str:
        """The text for the client. `LimitExceeded`: the text would be too long."""
        if self._pid != os.getpid():
            self._pid, self._series = os.getpid(), os.urandom(8)
        nonce = base64.b64encode(
            self._series + next(self._serial).to_bytes(7, "big"), b"-_"
        ).decode()
        expires = math.ceil(self._clock() + self._ttl)
        parts = [VERSION, expires, nonce, binding, state.asked, state.answers, state.given]
        payload = _encode(parts if state.state is UNSET else [*parts, state.state])
        (mac, *_) = self._macs(payload)
        text = base64.urlsafe_b64encode(mac + payload).rstrip(b"=")
        if len(text) > self._max:
            raise LimitExceeded(
                f"the answers of earlier rounds and the handler's state take {len(text)} bytes as "
                f"requestState, more than {self._max}"
            )
        return text.decode()

    def open(self, text: str, binding: str) -> RequestState:
        """The state that was sealed for the same user and request. ProtocolError: refused."""
        payload = self._verified(text)
        if payload is None:
            raise _refused("it was not sealed here, or was changed")
        try:
            held = _decode(payload)
        except msgspec.DecodeError:
            raise _refused("another version sealed it") from None
        if held.version != VERSION:
            raise _refused("another version sealed it")
        if self._clock() >= held.expires:
            raise _refused("it has expired")
        if held.binding != binding:
            raise _refused("it belongs to another user or request")
        opened = RequestState(held.asked, held.answers, held.given, held.state)
        if self._used is None:
            pass
        elif self._shared is None:
            self._use(held.nonce, held.expires)
        else:
            opened.use = partial(self._use_shared, self._shared, held)
        return opened

    async def _use_shared(self, shared: SingleUse, held: _Payload) -> None:
        """ProtocolError: another request used the state, at any host. StoreUnavailable."""
        seconds = held.expires - self._clock() + CLOCKS
        if not await shared.use("state", held.nonce.encode(), seconds):
            raise _refused("it was used already")

    def _verified(self, text: str) -> bytes | None:
        import hmac

        if len(text) > self._max:
            return None
        try:
            sealed = binascii.a2b_base64(
                text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), strict_mode=True
            )
        except ValueError:
            return None
        mac, payload = sealed[:_MAC], sealed[_MAC:]
        if base64.urlsafe_b64encode(sealed).rstrip(b"=") != text.encode():
            return None  # another spelling of the same bytes
        # all keys, so that the time does not reveal which one fits
        fits = [hmac.compare_digest(mac, own) for own in self._macs(payload)]
        return payload if any(fits) else None

    def _use(self, nonce: str, expires: int) -> None:
        """Record that a state was used, as one bit: a client cannot fill the memory with states, so
        that states need not be refused for a lack of memory."""
        used = self._used
        assert used is not None
        decoded = base64.b64decode(nonce, b"-_")
        number, bit = divmod(int.from_bytes(decoded[8:], "big"), _CHUNK)
        chunk = decoded[:8], number
        if chunk not in used:
            now = self._clock()
            for old in [key for key, (_, until) in used.items() if until <= now]:
                del used[old]
        bits, until = used.get(chunk, (0, 0))
        if bits >> bit & 1:
            raise _refused("it was used already")
        used[chunk] = bits | 1 << bit, max(until, expires)


def _refused(reason: str) -> ProtocolError:
    logger.debug("requestState refused: %s", reason)
    return ProtocolError(codes.INVALID_PARAMS, "requestState is not valid for this request")

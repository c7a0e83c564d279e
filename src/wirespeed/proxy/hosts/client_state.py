"""The state that a client of a legacy era has told the proxy. With it, another host can go on with
the session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.proxy.own_requests import params_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.peer.http.http_session import HttpSession

MAX_BYTES = 65_536  # of the state of a session: with more, it stays at its host
MAX_LEVEL = 100  # characters of a log level; no server has a longer one


class ClientState:
    """The state of one session, made from the requests of its client.

    Attributes:
        answers: Answers that wait until the state is written.
    """

    __slots__ = ("_hello", "_level", "_n_bytes", "_saves", "_uris", "answers")

    def __init__(self) -> None:
        self._hello: bytes | None = None  # the params of `initialize`
        self._level: str | None = None  # that it has set last
        self._uris: set[str] = set()  # of subscriptions
        self._n_bytes = 0
        self.answers: set[Any] = set()
        self._saves: set[asyncio.Task[None]] = set()

    def save(self, session: HttpSession) -> None:
        """Write the state, or that the session cannot move, where other hosts read it."""
        task = asyncio.ensure_future(session.save())
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)

    def heard(self, message: Message) -> bool:
        """Take note of a request of the client. Returns whether the state is to be written before
        its answer, also where it is as before: the store may not have it yet. One that fails does
        so at another host, too."""
        method = message.method
        if method == "initialize":
            if self._hello is None:
                self._hello = bytes(message.params or b"{}")
                self._n_bytes += len(self._hello)
                return True
        elif method == "logging/setLevel":
            level = params_of(message).get("level")
            if isinstance(level, str) and len(level) <= MAX_LEVEL:
                self._level = level
                return True
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            uri = params_of(message).get("uri")
            if isinstance(uri, str):
                self._subscribe(uri, method == "resources/subscribe")
                return True
        return False

    def _subscribe(self, uri: str, wanted: bool) -> None:
        if wanted is not (uri in self._uris):
            self._uris ^= {uri}
            n = len(uri.encode())
            self._n_bytes += n if wanted else -n

    def messages(self) -> tuple[bytes, ...] | None:
        """Return the messages that give a new connection this state, as JSON text: ``initialize``
        first. None: there was none, or the state is too large."""
        if self._hello is None or self._n_bytes > MAX_BYTES:
            return None
        told: list[tuple[str, Any]] = [("initialize", msgspec.Raw(self._hello))]
        told.append(("notifications/initialized", {}))
        if self._level is not None:
            told.append(("logging/setLevel", {"level": self._level}))
        told += [("resources/subscribe", {"uri": uri}) for uri in sorted(self._uris)]
        return tuple(
            msgspec.json.encode(
                {"jsonrpc": "2.0", "method": method, "params": params}
                | ({} if method.startswith("notifications/") else {"id": number})
            )
            for number, (method, params) in enumerate(told)
        )

"""What a client of a legacy era has told the proxy, so that another host can go on with its
session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.proxy.own_requests import params_of

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message

MAX_BYTES = 65_536  # of the state of a session: with more, it stays at its host


class SessionState:
    """The state of one session."""

    __slots__ = ("_hello", "_level", "_n_bytes", "_uris")

    def __init__(self) -> None:
        self._hello: bytes | None = None  # the params of `initialize`
        self._level: bytes | None = None  # and of the last `logging/setLevel`
        self._uris: set[str] = set()  # of subscriptions
        self._n_bytes = 0

    def heard(self, message: Message) -> None:
        """Take note of a request of the client. One that fails does so at another host, too."""
        method = message.method
        if method == "initialize":
            if self._hello is None:
                self._hello = bytes(message.params or b"{}")
                self._n_bytes += len(self._hello)
        elif method == "logging/setLevel":
            self._level = bytes(message.params or b"{}")[:1000]
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            uri = params_of(message).get("uri")
            if isinstance(uri, str):
                self._subscribe(uri, method == "resources/subscribe")

    def _subscribe(self, uri: str, wanted: bool) -> None:
        if wanted and uri not in self._uris:
            self._uris.add(uri)
            self._n_bytes += len(uri)
        elif not wanted and uri in self._uris:
            self._uris.discard(uri)
            self._n_bytes -= len(uri)

    def messages(self) -> tuple[bytes, ...] | None:
        """Return the messages that give a new connection this state, as JSON text: ``initialize``
        first. None: there was none, or the state is too large."""
        if self._hello is None or self._n_bytes > MAX_BYTES:
            return None
        told: list[tuple[str, Any]] = [("initialize", msgspec.Raw(self._hello))]
        told.append(("notifications/initialized", {}))
        if self._level is not None:
            told.append(("logging/setLevel", msgspec.Raw(self._level)))
        told += [("resources/subscribe", {"uri": uri}) for uri in sorted(self._uris)]
        return tuple(
            msgspec.json.encode(
                {"jsonrpc": "2.0", "method": method, "params": params}
                | ({} if method.startswith("notifications/") else {"id": number})
            )
            for number, (method, params) in enumerate(told)
        )

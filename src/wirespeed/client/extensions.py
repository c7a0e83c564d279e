"""The extensions of a client: their declaration, their requests and notifications, and their
hooks.

A value is a `wirespeed.Extension`, the same that a server takes. A bare name declares an extension
whose methods the user calls with `Client.request`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from wirespeed.protocol.extensions import NotificationHook, SeenNotification
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.requests.middleware import ClientMiddleware

__all__ = ["ClientExtensions"]

logger = logging.getLogger("wirespeed.client")

_params = msgspec.json.Decoder(dict[str, Any]).decode


@runtime_checkable
class ClientExtension(Protocol):
    """An extension as a client sees it (`wirespeed.Extension`)."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def depends(self) -> tuple[str, ...]: ...

    @property
    def eras(self) -> Collection[str]: ...

    @property
    def client_middleware(self) -> ClientMiddleware | None: ...

    @property
    def client_requests(self) -> Mapping[str, Callable[[dict[str, Any]], Any]]: ...

    @property
    def client_notifications(self) -> Mapping[str, Callable[[dict[str, Any]], object]]: ...

    @property
    def on_notification(self) -> NotificationHook | None: ...

    def knows(self, settings: Mapping[str, Any], whose: str) -> bool:
        """Whether this side works with the revision in the other side's settings."""


class ClientExtensions:
    """The extensions of one client.

    Args:
        given: The argument of the user: names, values, or a mapping of names to settings.

    Attributes:
        declared: The settings by name that modern servers are told.
        legacy: The same for legacy servers.
        requests: The handlers of requests of legacy servers, by method.
        middleware: Their middleware, in order.

    TypeError: a value is not an extension. ValueError: two have the same name or method, or one
    depends on an extension that is missing.
    """

    def __init__(
        self, given: Iterable[str | ClientExtension] | Mapping[str, Mapping[str, Any]]
    ) -> None:
        if isinstance(given, str):
            raise TypeError("extensions is a list of names, or a mapping of names to settings")
        self.declared: dict[str, Mapping[str, Any]] = {}
        self.legacy: dict[str, Mapping[str, Any]] = {}
        self.requests: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.middleware: tuple[ClientMiddleware, ...] = ()
        self._values: list[ClientExtension] = []
        self._heard: dict[str, Callable[[dict[str, Any]], object]] = {}  # of extensions in use
        self._quiet = RateLimitedLog(logger)
        if isinstance(given, Mapping):
            for name, settings in given.items():
                if not isinstance(name, str) or not isinstance(settings, Mapping):
                    raise TypeError(f"extensions[{name!r}] must be a mapping of settings")
                self.declared[name] = settings
            return
        names: set[str] = set()
        for one in given:
            name = one if isinstance(one, str) else getattr(one, "name", "")
            if name in names:
                raise ValueError(f"the extension {name} is there twice")
            names.add(name)
            if isinstance(one, str):
                self.declared[one] = {}
            elif isinstance(one, ClientExtension):
                self._add(one)
            else:
                raise TypeError(f"extensions[{one!r}] must be a mapping of settings")
        for value in self._values:
            lacks = [name for name in value.depends if name not in names]
            if lacks:
                raise ValueError(
                    f"the extension {value.name} depends on {', '.join(lacks)}, which the client "
                    "does not have"
                )

    def _add(self, value: ClientExtension) -> None:
        heard = {method for one in self._values for method in one.client_notifications}
        for ours, theirs in (
            (self.requests.keys(), value.client_requests.keys()),
            (heard, value.client_notifications.keys()),
        ):
            if clash := sorted(ours & theirs):
                raise ValueError(f"another extension has {', '.join(clash)} already")
        self._values.append(value)
        if "modern" in value.eras:
            self.declared[value.name] = value.settings
        if "legacy" in value.eras:
            self.legacy[value.name] = value.settings
            self.requests |= value.client_requests
        if value.client_middleware is not None:
            self.middleware = (*self.middleware, value.client_middleware)

    @property
    def watch(self) -> Callable[[bool, str, bytes | None], None] | None:
        """The function that sees each notification; None if no extension has a hook."""
        hooks = [one.on_notification for one in self._values if one.on_notification is not None]
        if not hooks:
            return None

        def watch(sent: bool, method: str, params: bytes | None) -> None:
            seen = SeenNotification(sent, method, params)
            for hook in hooks:
                try:
                    hook(seen)
                except Exception:
                    logger.exception("the hook of an extension failed at %.100s", method)

        return watch

    def started(self, capabilities: Mapping[str, Any]) -> None:
        """Take note of the handshake: an extension is in use if the server has it, too, in a known
        revision."""
        offered = capabilities.get("extensions")
        offered = offered if isinstance(offered, dict) else {}
        self._heard = {
            method: function
            for value in self._values
            if isinstance(settings := offered.get(value.name), dict)
            if value.knows(settings, "the server")
            for method, function in value.client_notifications.items()
        }

    def heard(self, message: Message) -> None:
        """Handle a notification that does not belong to a call."""
        function = self._heard.get(message.method or "")
        if function is None:
            return
        raw = message.params
        try:
            function(_params(b"{}" if raw is None else raw))
        except msgspec.DecodeError as exc:
            text = "notification %.100s of the server is not valid: %s"
            self._quiet.log(logging.WARNING, text, message.method, exc)
        except Exception:
            logger.exception("the extension's handler of %.100s failed", message.method)

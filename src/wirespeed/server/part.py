"""What the parts of a server share: its registries, and what it says it can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed.server.registry import Fit, Registry
from wirespeed.server.reply import Whole

if TYPE_CHECKING:
    from wirespeed.limits import Limits
    from wirespeed.server.connection import ServerConnection
    from wirespeed.server.mount import Mount


class Part:
    """A base of `wirespeed.server.Server`, whose ``__init__`` calls each part's ``_setup_…``."""

    limits: Limits
    page_size: int | None
    _hints: dict[str, Any]
    _modern_end: bytes
    _connections: set[ServerConnection]
    # By capability: its settings at this moment, or None while there is nothing to offer.
    _offers: dict[str, Callable[[], dict[str, Any] | None]]
    _answers: dict[str, Whole]  # pre-encoded, until something changes
    _mounted_on: tuple[Mount, ...] = ()

    def _registry(self, kind: str, member: str, fit: Fit) -> Registry[Any]:
        """A registry whose changes the clients are told of; ``kind`` as of `_changed`."""
        return Registry(
            member,
            fit,
            page_size=self.page_size,
            hints=self._hints,
            finish=self._finish,
            changed=lambda: self._changed(kind),
        )

    def _finish(self, body: bytes) -> Whole:
        return Whole(body[:-1] + self._modern_end)

    def _changed(self, kind: str) -> None:
        """From any thread: a list ("tools", "prompts", "resources") is another one now.
        ValueError: it may not be, for it would not fit where this server is mounted."""
        for mount in self._mounted_on:
            mount.check(kind)
        self._answers = {}
        for connection in list(self._connections):
            if kind == "tools":
                connection.forget_tools()
            connection.news.list_changed(kind)
        for mount in self._mounted_on:
            mount.sync(kind)

    def offers(self, capability: str) -> bool:
        """Whether the server has this capability at this moment."""
        offer = self._offers.get(capability)
        return offer is not None and offer() is not None

"""Completion at a server: whether it completes, and which prompt or template a name means.

What completes is `wirespeed.server.completion.completer`, loaded with the first prompt or template.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wirespeed.server.completion.completer import Completable
    from wirespeed.server.service import McpService


class Completions:
    """What a server has for completion (server/utilities/completion).

    ``enabled``: whether anything could be completed so far; then the server says so.
    """

    def __init__(self, service: McpService) -> None:
        self._service = service
        self.enabled = False
        service.discovery.offers["completions"] = lambda: {} if self.enabled else None

    def enable(self) -> None:
        """Something can be completed: from now on the server says so."""
        if not self.enabled:
            self.enabled = True
            self._service.discovery.forget()
            for mount in self._service.mounts.elsewhere:
                mount.outer.completions.enable()

    def find(self, ref: str | Callable[..., Any]) -> Completable:
        """The prompt or template of this name, or of this function. ValueError: there is none."""
        prompts = self._service.prompts.items.values()
        for item in (*prompts, *self._service.resources.templates.items.values()):
            if ref == item.key or ref is item.function:
                return item
        raise ValueError(f"there is neither a prompt nor a resource template {ref!r}")

"""Completion at a server: which arguments it completes (server/utilities/completion)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from wirespeed.server.part import Part

if TYPE_CHECKING:
    from wirespeed.server.completer import Completable

__all__ = ["Completions"]

F = TypeVar("F", bound=Callable[..., Any])


class Completions(Part):
    """What a server has for completion (server/utilities/completion)."""

    _can_complete: bool

    def _setup_completion(self) -> None:
        self._can_complete = False
        self._offers["completions"] = lambda: {} if self._can_complete else None

    def _completes(self) -> None:
        """Something can be completed: from now on the server says so."""
        if not self._can_complete:
            self._can_complete = True
            self._answers = {}
            for mount in self._mounted_on:
                mount.parent._completes()

    def completion(
        self,
        ref: str | Callable[..., Any],
        argument: str,
        *,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        queue: int | None = None,
    ) -> Callable[[F], F]:
        """Complete an argument of a prompt, or a variable of a resource template, by a function::

            @server.completion("review", "language")
            def languages(value: str) -> list[str]: ...

        Args:
            ref: The name of the prompt, or the template (``"users://{id}"``), as registered; or
                the function that was registered as one of them.
            argument: Its argument, or variable.
            timeout: Seconds after which an answer is given up, waiting included.
            max_concurrency, queue: Answers that are worked on at a time, and that wait beyond
                these (100 by default); more are refused with -31000. See
                `wirespeed.server.limiter`.

        Raises:
            ValueError: There is no such prompt or template, or no such argument; an option cannot
                be right.
            SignatureError: The function takes something else than a value and known arguments.
        """
        return self._completable(ref).complete(
            argument, timeout=timeout, max_concurrency=max_concurrency, queue=queue
        )

    def remove_completion(self, ref: str | Callable[..., Any], argument: str) -> None:
        """Take the function of an argument away: again it completes by its type, or not at all.
        KeyError if it has none; ValueError as for `completion`."""
        self._completable(ref).remove_completer(argument)

    def _completable(self, ref: str | Callable[..., Any]) -> Completable:
        """What a reference of an author's means. ValueError: nothing."""
        server: Any = self
        registered = (*server._prompts.items.values(), *server._templates.items.values())
        for item in registered:
            if ref == item.key or ref is item.function:
                found: Completable = item
                return found
        raise ValueError(f"there is neither a prompt nor a resource template {ref!r}")

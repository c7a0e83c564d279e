"""The options of a client for its handlers, and the changes of its roots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from wirespeed.client.requests.rounds import MAX_ROUNDS, Rounds

if TYPE_CHECKING:
    import os

    from wirespeed.client.answering.answerer import Answering
    from wirespeed.client.answering.roots import Roots
    from wirespeed.client.answering.types import ElicitParams
    from wirespeed.protocol.asking import Root, SampleParams

__all__ = ["Handlers", "OnElicit", "OnSample", "RootsOption"]

OnElicit: TypeAlias = "Callable[[ElicitParams], Any]"
"""Returns `Accept`, its content, "decline" or "cancel". May be a coroutine function."""

OnSample: TypeAlias = "Callable[[SampleParams], Any]"
"""Returns `SampleResult` or "decline". May be a coroutine function."""

RootsOption: TypeAlias = "Iterable[Root | str | os.PathLike[str]] | Callable[[], Any]"
"""Paths, ``file://`` URIs or `Root` objects, or a function that returns them."""


class Handlers(Rounds):
    """The part of a client that answers its server.

    Options of `Client`:
        on_elicit: Called with an `ElicitParams` to have a form filled in (client/elicitation,
            2025-06-18 on). Returns `Accept`, or the content (a mapping, a struct …), "accept" to
            accept the defaults, "decline" or "cancel". Fields that are left out get their defaults;
            the content is checked against the form.
        on_elicit_url: The same to have a link opened (2025-11-25 on). "accept" means that the user
            agreed to open it, not that anything was done there.
        on_elicit_complete: Called with the ``elicitation_id`` of such a request when the user has
            finished there, if the server reports it (2025-11-25 only). Runs in the loop's thread.
        on_sample: Called with a `SampleParams` to have a model generate a message
            (client/sampling). Returns `SampleResult` or "decline".
        sampling_tools: Whether ``on_sample`` supports ``tools`` and ``tool_choice`` (2025-11-25
            on).
        roots: The directories and files for the server (client/roots): paths, ``file://`` URIs or
            `Root` objects, or a function that returns them.
        max_rounds: The most rounds of questions in one call to a modern server
            (basic/patterns/mrtr). 0: each round fails with `InputNeeded`.

    The client declares to the server what it has handlers for. A coroutine function runs on the
    event loop, a plain function in a worker thread, where it may block. Several handlers may run at
    once. A handler is cancelled when the server or the caller of a modern call gives up, and when
    the client is closed. When a handler raises an exception, or its answer does not fit, a legacy
    server gets error -32603 and the exception is logged; a call to a modern server fails with
    `HandlerFailed`. A failure is never the user's "decline". A handler may raise `Declined`.
    """

    def _set_up_handlers(
        self,
        *,
        on_elicit: OnElicit | None,
        on_elicit_url: OnElicit | None,
        on_elicit_complete: Callable[[str], object] | None,
        on_sample: OnSample | None,
        sampling_tools: bool,
        roots: RootsOption | None,
        capabilities: Mapping[str, Any] | None,
        max_rounds: int = MAX_ROUNDS,
    ) -> tuple[dict[str, Any], Answering | None]:
        """The capabilities and the handlers of a client. TypeError, ValueError: a bad option."""
        if not isinstance(max_rounds, int) or max_rounds < 0:
            raise ValueError(f"max_rounds must be a count, not {max_rounds!r}")
        self.max_rounds = max_rounds
        more = {} if capabilities is None else dict(capabilities)
        for name, settings in more.items():
            if not isinstance(name, str) or not isinstance(settings, Mapping):
                raise TypeError(f"capabilities[{name!r}] must be a mapping")
        answering: Answering | None = None
        handlers = (on_elicit, on_elicit_url, on_elicit_complete, on_sample, roots)
        if sampling_tools or any(handler is not None for handler in handlers):
            from wirespeed.client.answering.answerer import Answering

            answering = Answering(
                on_elicit=on_elicit,
                on_elicit_url=on_elicit_url,
                on_elicit_complete=on_elicit_complete,
                on_sample=on_sample,
                sampling_tools=sampling_tools,
                roots=roots,
            )
        return more, answering

    @property
    def _roots(self) -> Roots:
        answering = self._identity.answering
        if answering is None or answering.roots is None:
            raise TypeError("the client has no roots: create it with roots=[…] (may be empty)")
        return answering.roots

    async def add_root(self, root: Root | str | os.PathLike[str]) -> bool:
        """Add a root: a path, a ``file://`` URI or a `Root`. It replaces a root with the same URI.
        A legacy server is told that the list changed; a modern server sees it when it asks. False:
        the same root was in the list.

        TypeError, ValueError: not a root, or the client's roots are a function.
        """
        return self._say_changed(self._roots.add(root))

    async def remove_root(self, root: Root | str | os.PathLike[str]) -> bool:
        """Remove a root. False: it was not in the list. Otherwise as of `add_root`."""
        return self._say_changed(self._roots.remove(root))

    async def roots_changed(self) -> None:
        """Tell a legacy server that the function for the roots returns another list."""
        if self._roots.function is None:
            raise TypeError("the roots are a list: change it with add_root and remove_root")
        self._say_changed(True)

    def _say_changed(self, changed: bool) -> bool:
        agreement, live = self._life.agreement, self._life.live
        if changed and agreement is not None and live is not None and live.usable:
            roots = self._identity.declared(agreement.revision.version).get("roots", {})
            if roots.get("listChanged"):
                live.notify("notifications/roots/list_changed")
        return changed

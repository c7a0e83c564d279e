"""The handlers that a client is given for what servers ask, and its roots while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from wirespeed.client.rounds import MAX_ROUNDS, Rounds

if TYPE_CHECKING:
    import os

    from wirespeed.client.answering import Answering
    from wirespeed.client.questions import ElicitParams
    from wirespeed.client.roots import Roots
    from wirespeed.protocol.asking import Root, SampleParams

__all__ = ["Handlers", "OnElicit", "OnSample", "RootsOption"]

OnElicit: TypeAlias = "Callable[[ElicitParams], Any]"
"""Gives `Accept`, its content, "decline" or "cancel"; may be a coroutine function."""

OnSample: TypeAlias = "Callable[[SampleParams], Any]"
"""Gives `SampleResult` or "decline"; may be a coroutine function."""

RootsOption: TypeAlias = "Iterable[Root | str | os.PathLike[str]] | Callable[[], Any]"
"""Paths, ``file://`` URIs or `Root` objects, or a function that gives them."""


class Handlers(Rounds):
    """The part of a client that answers its server.

    Options of `Client`:
        on_elicit: Called with an `ElicitParams` when the server wants a form filled in
            (client/elicitation, 2025-06-18 on). Gives `Accept`, or the content itself (a mapping,
            a struct …), "accept" for a form whose defaults are right, "decline" or "cancel". Fields
            that are left out get their defaults; the content is checked against the form.
        on_elicit_url: The same when the user is to go to a URL (2025-11-25 on): "accept" says that
            the user agreed to open it, not that anything was done there.
        on_elicit_complete: Called with the ``elicitation_id`` of such a request when what was to be
            done there is done, if the server tells (2025-11-25 alone). Runs on the loop's thread.
        on_sample: Called with a `SampleParams` when the server wants a model to say something
            (client/sampling). Gives `SampleResult` or "decline".
        sampling_tools: Whether ``on_sample`` heeds ``tools`` and ``tool_choice`` (2025-11-25 on).
        roots: What the server should work on (client/roots): paths, ``file://`` URIs or `Root`
            objects, or a function that gives them.
        max_rounds: How many rounds of questions one call to a modern server takes by itself
            (basic/patterns/mrtr). 0: none, each fails with `InputNeeded`.

    What has a handler is declared to the server, and nothing else. A handler that is a coroutine
    function runs on the loop, a plain one in a worker thread, so that it may block; several may run
    at once. It is cancelled when the server, or the caller of a modern call, gives up, or the
    client is closed. When one raises an exception, or its answer does not fit, a legacy server gets
    error -32603 and the log the exception; a call to a modern server fails with `HandlerFailed`. It
    is never taken for the user's "decline". A handler may itself raise `Declined`.
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
        """What `Identity` needs of the options of a client. TypeError, ValueError: a bad one."""
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
            from wirespeed.client.answering import Answering

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
            raise TypeError("the client has no roots: give it roots=[…], which may be empty")
        return answering.roots

    async def add_root(self, root: Root | str | os.PathLike[str]) -> bool:
        """Show the server one more root: a path, a ``file://`` URI or a `Root`, whose name replaces
        that of one with the same URI. A legacy server is told that the list changed; a modern one
        sees it when it asks. False: it was there already.

        TypeError, ValueError: no root, or the client's roots are not a list.
        """
        return self._say_changed(self._roots.add(root))

    async def remove_root(self, root: Root | str | os.PathLike[str]) -> bool:
        """Show the server one root less. False: it was not there. Otherwise as of `add_root`."""
        return self._say_changed(self._roots.remove(root))

    async def roots_changed(self) -> None:
        """The function that gives the roots gives others now: tell a legacy server."""
        if self._roots.function is None:
            raise TypeError("for a list of roots there are add_root and remove_root")
        self._say_changed(True)

    def _say_changed(self, changed: bool) -> bool:
        agreement, live = self._life.agreement, self._life.live
        if changed and agreement is not None and live is not None and live.usable:
            roots = self._identity.declared(agreement.revision.version).get("roots", {})
            if roots.get("listChanged"):
                live.notify("notifications/roots/list_changed")
        return changed

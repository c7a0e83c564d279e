"""The options of a client for its handlers, and the changes of its roots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from wirespeed.protocol.structs import nearest

if TYPE_CHECKING:
    import os

    from wirespeed.client.answering.answerer import Answering, AnyRoot, Roots
    from wirespeed.client.answering.types import ElicitParams
    from wirespeed.client.connection.handshake import Identity
    from wirespeed.client.requests.send import Sender
    from wirespeed.protocol.asking import Root, SampleParams

__all__ = ["HandlerOptions", "OnElicit", "OnSample", "RootsOption", "SharedRoots", "answering_of"]

OnElicit: TypeAlias = "Callable[[ElicitParams], Any]"
"""Returns `Accept`, its content, "decline" or "cancel". May be a coroutine function."""

OnSample: TypeAlias = "Callable[[SampleParams], Any]"
"""Returns `SampleResult` or "decline". May be a coroutine function."""

RootsOption: TypeAlias = "Iterable[Root | str | os.PathLike[str]] | Callable[[], Any]"
"""Paths, ``file://`` URIs or `Root` objects, or a function that returns them."""


class HandlerOptions(TypedDict, total=False):
    """Handlers for the questions of servers, as options of `Client`.

    The client declares the capabilities for which it has handlers. A coroutine function runs on the
    event loop, a plain function in a worker thread, where it may block. Several handlers may run at
    once. A handler is cancelled when the server cancels its request, when the call whose result
    asked the question (2026-07-28) is cancelled or times out, and when the client is closed.

    When a handler raises an exception, or its answer does not fit, a legacy server receives the
    error -32603, and the exception is logged; a call to a modern server fails with `HandlerFailed`.
    The server never receives a failure as the user's "decline". A handler may raise `Declined`.

    Attributes:
        on_elicit: Called with an `ElicitParams` when the server asks the user to fill in a form
            (client/elicitation, 2025-06-18 on). Returns `Accept`, or the content (a mapping, a
            struct …), "accept" to accept the defaults, "decline" or "cancel". Fields that are left
            out get their defaults; the content is checked against the form.
        on_elicit_url: Called with an `ElicitParams` when the server asks the user to open a link
            (2025-11-25 on). "accept" means that the user agreed to open the link, not that the
            interaction is complete.
        on_elicit_complete: Called with the ``elicitation_id`` of a request in url mode when the
            server reports that the interaction is complete (2025-11-25 only). Runs in the thread of
            the event loop.
        on_sample: Called with a `SampleParams` when the server asks for a message of a model
            (client/sampling). Returns `SampleResult` or "decline".
        sampling_tools: Whether ``on_sample`` supports ``tools`` and ``tool_choice`` (2025-11-25
            on).
        roots: The directories and files for the server (client/roots): paths, ``file://`` URIs or
            `Root` objects, or a function that returns them.
    """

    on_elicit: OnElicit | None
    on_elicit_url: OnElicit | None
    on_elicit_complete: Callable[[str], object] | None
    on_sample: OnSample | None
    sampling_tools: bool
    roots: RootsOption | None


def answering_of(options: HandlerOptions, others: Iterable[str] = ()) -> Answering | None:
    """The handlers among a client's options; None without handlers. ``others``: the names of its
    other options. TypeError: an option is unknown, or a value has the wrong type. ValueError: the
    options contradict each other."""
    for name in options:
        if name not in HandlerOptions.__annotations__:
            hint = nearest(name, (*HandlerOptions.__annotations__, *others))
            raise TypeError(f"Client() got an unexpected keyword argument {name!r}; {hint}")
    if all(value is None or value is False for value in options.values()):
        return None
    from wirespeed.client.answering.answerer import Answering

    return Answering(**options)


class SharedRoots:
    """The roots that a client shows to its server.

    `add` and `remove` change a list of roots, `changed` reports new roots of a function. Each
    method raises TypeError if the client has no roots, or roots of the other form.
    """

    def __init__(self, sender: Sender, identity: Identity) -> None:
        self._sender = sender
        self._identity = identity

    @property
    def _roots(self) -> Roots:
        answering = self._identity.answering
        if answering is None or answering.roots is None:
            raise TypeError("the client has no roots: create it with roots=[…] (may be empty)")
        return answering.roots

    def add(self, root: AnyRoot) -> bool:
        """Add or rename a root, and tell a legacy server. False: nothing changed."""
        return self._announce(self._roots.add(root))

    def remove(self, root: AnyRoot) -> bool:
        """Remove a root, and tell a legacy server. False: it is not in the list."""
        return self._announce(self._roots.remove(root))

    def changed(self) -> None:
        """Tell a legacy server that the function returns other roots."""
        if self._roots.function is None:
            raise TypeError("the roots are a list: change it with add_root and remove_root")
        self._announce(True)

    def _announce(self, changed: bool) -> bool:
        agreement, live = self._sender.life.agreement, self._sender.life.live
        if changed and agreement is not None and live is not None and live.usable:
            roots = self._identity.declared(agreement.revision.version).get("roots", {})
            if roots.get("listChanged"):
                live.notify("notifications/roots/list_changed")
        return changed

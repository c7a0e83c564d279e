"""Requests for what a mounted server offers, on their way through its middleware."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from wirespeed.protocol.messages import CompleteParams, PromptReference

if TYPE_CHECKING:
    from wirespeed.server.middleware import CallNext, Middleware
    from wirespeed.server.passage import InboundRequest, Reply
    from wirespeed.server.server import Server

# Methods whose ``params.name`` or ``params.uri`` say what they are for.
_LISTS = {
    "tools/call": "_tools",
    "prompts/get": "_prompts",
    "resources/read": "_resources",
    "resources/subscribe": "_resources",
    "resources/unsubscribe": "_resources",
}

_completed = msgspec.json.Decoder(CompleteParams)


def has_middleware(server: Server) -> bool:
    """Whether a server, or one that is mounted on it, has middleware."""
    return bool(server._links) or any(has_middleware(mount.other) for mount in server._mounts)


def through_mounts(server: Server) -> Middleware | None:
    """A middleware that stands for those of the mounted servers; None if they have none."""
    if not any(has_middleware(mount.other) for mount in server._mounts):
        return None

    async def pass_on(request: InboundRequest, call_next: CallNext) -> Reply | None:
        return await _step(_links_of(server, request), 0, call_next)(request)

    return pass_on


def _step(links: list[Middleware], at: int, call_next: CallNext) -> CallNext:
    if at == len(links):
        return call_next

    async def step(request: InboundRequest) -> Reply | None:
        return await links[at](request, _step(links, at + 1, call_next))

    return step


def _links_of(server: Server, request: InboundRequest) -> list[Middleware]:
    """The middleware of the mounted servers that a request is for, outermost first."""
    name, key = _item(server, request)
    return [] if name is None or key is None else list(_links_behind(server, name, key))


def _links_behind(server: Server, name: str, key: str) -> Iterator[Middleware]:
    for mount in server._mounts:
        inner = mount.inner_key(name, key)
        if inner is not None:
            yield from mount.other._links
            yield from _links_behind(mount.other, name, inner)


def _item(server: Server, request: InboundRequest) -> tuple[str | None, str | None]:
    """What a request is for: the list that it stands in, and its key there."""
    name, key = _LISTS.get(request.method), request.name
    if request.method == "completion/complete":
        return _completable(server, request)
    if name == "_resources" and key is not None and key not in server._resources:
        return _template(server, key)
    return name, key


def _template(server: Server, uri: str) -> tuple[str | None, str | None]:
    template = server._templates.get(uri) or server._template_of(uri)
    return "_templates", None if template is None else template.key


def _completable(server: Server, request: InboundRequest) -> tuple[str | None, str | None]:
    try:
        ref = _completed.decode(request.params or b"{}").ref
    except msgspec.DecodeError:
        return None, None  # which the handler will say
    if isinstance(ref, PromptReference):
        return "_prompts", ref.name
    return _template(server, ref.uri)

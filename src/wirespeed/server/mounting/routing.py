"""Which mounted server a request is for, and its middleware. Loaded with the first of either."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from wirespeed.protocol.messages import CompleteParams, PromptReference

if TYPE_CHECKING:
    from wirespeed.server.middleware.functions import CallNext, Middleware
    from wirespeed.server.middleware.inbound import InboundRequest, Reply
    from wirespeed.server.service import McpService

# Methods whose ``params.name`` or ``params.uri`` say what they are for.
_LISTS = {
    "tools/call": "tools",
    "prompts/get": "prompts",
    "resources/read": "resources",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
}

_completed = msgspec.json.Decoder(CompleteParams)


def has_middleware(service: McpService) -> bool:
    """Whether a server, or one that is mounted on it, has middleware."""
    return bool(service.middleware.links) or any(map(has_middleware, service.mounts.servers()))


def through_mounts(service: McpService) -> Middleware | None:
    """A middleware that stands for those of the mounted servers; None if they have none."""
    if not any(map(has_middleware, service.mounts.servers())):
        return None

    async def pass_on(request: InboundRequest, call_next: CallNext) -> Reply | None:
        return await _step(_links_of(service, request), 0, call_next)(request)

    return pass_on


def _step(links: list[Middleware], at: int, call_next: CallNext) -> CallNext:
    if at == len(links):
        return call_next

    async def step(request: InboundRequest) -> Reply | None:
        return await links[at](request, _step(links, at + 1, call_next))

    return step


def _links_of(service: McpService, request: InboundRequest) -> list[Middleware]:
    """The middleware of the mounted servers that a request is for, outermost first."""
    name, key = _item(service, request)
    return [] if name is None or key is None else list(_links_behind(service, name, key))


def _links_behind(service: McpService, name: str, key: str) -> Iterator[Middleware]:
    for mount in service.mounts.here:
        inner = mount.inner_key(name, key)
        if inner is not None:
            yield from mount.inner.middleware.links
            yield from _links_behind(mount.inner, name, inner)


def _item(service: McpService, request: InboundRequest) -> tuple[str | None, str | None]:
    """What a request is for: the list that it stands in, and its key there."""
    name, key = _LISTS.get(request.method), request.name
    if request.method == "completion/complete":
        return _completable(service, request)
    if name == "resources" and key is not None and key not in service.resources.fixed:
        return _template(service, key)
    return name, key


def _template(service: McpService, uri: str) -> tuple[str | None, str | None]:
    resources = service.resources
    template = resources.templates.get(uri) or resources.template_of(uri)
    return "templates", None if template is None else template.key


def _completable(service: McpService, request: InboundRequest) -> tuple[str | None, str | None]:
    try:
        ref = _completed.decode(request.params or b"{}").ref
    except msgspec.DecodeError:
        return None, None  # which the handler will say
    if isinstance(ref, PromptReference):
        return "prompts", ref.name
    return _template(service, ref.uri)

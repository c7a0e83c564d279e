"""Mounting: a server shows what another one offers, under a prefix. Loaded by the first
`Server.mount`.

A mounted server may have clients of its own, and what is registered at it later shows where it is
mounted, too. Its functions keep its dependencies, lifespan and limits, and requests for them pass
its middleware.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wirespeed.protocol.messages import CompleteParams, PromptReference
from wirespeed.protocol.uri_template import check_uri

if TYPE_CHECKING:
    from wirespeed.server.middleware.functions import CallNext, Middleware
    from wirespeed.server.middleware.inbound import InboundRequest, Reply
    from wirespeed.server.permissions import Visibility
    from wirespeed.server.prompts import Prompt
    from wirespeed.server.resources.resource import Resource, ResourceTemplate
    from wirespeed.server.service import McpService
    from wirespeed.server.tools.tool import Tool

_NAME = re.compile(r"[A-Za-z0-9_.-]*")  # server/tools, "Tool Names"

# (key, entry, item): how an item of the mounted server is registered at the other
Shown: TypeAlias = tuple[str, Any, Any]


class Mount:
    """One server mounted on another. `Server.mount` makes them.

    Args:
        outer: Where it shows.
        inner: What is shown.
        prefix, separator: What stands before the names of tools and prompts.
        uri_prefix: What stands before the URIs of resources and templates.

    Raises:
        ValueError: A prefix cannot stand there, a name or a URI is taken at the outer server, or
            the servers would be mounted on each other.
    """

    def __init__(
        self, outer: McpService, inner: McpService, prefix: str, separator: str, uri_prefix: str
    ) -> None:
        if not isinstance(prefix, str):
            raise TypeError("mount(prefix, server): the prefix comes first, and is a string")
        if not _NAME.fullmatch(prefix) or not _NAME.fullmatch(separator):
            raise ValueError("prefix and separator take letters, digits and _ . - only")
        if uri_prefix:
            check_uri(f"{uri_prefix}a:b")
        if inner is outer or outer in _below(inner):
            raise ValueError(f"{inner!r} cannot be mounted on itself")
        self.outer = outer
        self.inner = inner
        self.prefix = prefix + separator if prefix else ""
        self.uri_prefix = uri_prefix
        # by list, and there by the key at the mounted server
        self._shown: dict[str, dict[str, Shown]] = {name: {} for name in _SHOWN_AS}
        for kind in _LISTS:
            self.check(kind)

    def __repr__(self) -> str:
        return f"<Mount of {self.inner.name!r} on {self.outer.name!r} as {self.prefix!r}>"

    @property
    def visibility(self) -> Visibility:
        """The entries of the mounted server that clients see."""
        return self.inner.visibility

    def check(self, kind: str) -> None:
        """Check a change before it shows. ValueError: a new name is taken."""
        for name in _LISTS[kind]:
            new = self._new(name)
            if new:
                taken = self.outer.catalog(name)
                for key, _, _ in new.values():
                    if key in taken:
                        raise ValueError(
                            f"{self.outer!r} has {key!r} already, which {self.inner!r} mounted on "
                            "it would show; mount it with another prefix"
                        )
                for mount in self.outer.mounts.elsewhere:
                    mount.check_keys(name, [shown[0] for shown in new.values()])

    def check_keys(self, name: str, keys: list[str]) -> None:
        """`check`, for what is about to show at the mounted server."""
        outer = [self._prefix_of(name) + key for key in keys]
        taken = self.outer.catalog(name)
        for key in outer:
            if key in taken:
                raise ValueError(f"{self.outer!r} has {key!r} already")
        for mount in self.outer.mounts.elsewhere:
            mount.check_keys(name, outer)

    def sync(self, kind: str) -> None:
        """Show new entries, and hide removed ones."""
        for name in _LISTS[kind]:
            present = self.inner.catalog(name).items
            shown = self._shown[name]
            for inner in [key for key in shown if key not in present]:
                self._hide(name, shown.pop(inner))
            for inner, (key, entry, item) in self._new(name).items():
                shown[inner] = (key, entry, item)
                tags = self.inner.catalog(name).tags.get(inner, ())
                self.outer.catalog(name).add(key, entry, item, tags)
        for feature in (kind, "completions"):
            if feature != "tools" and self.inner.discovery.offered(feature):
                self.outer.enable(feature)
        tools = self._shown["tools"].values() if self.outer.tasks.service is None else ()
        if any(tool.tasks is not None for _, _, tool in tools):
            self.outer.tasks.use()

    def end(self) -> None:
        """Hide everything."""
        for name, shown in self._shown.items():
            while shown:
                self._hide(name, shown.popitem()[1])

    def uri(self, uri: str) -> str:
        """A URI of the mounted server as it shows."""
        return self.uri_prefix + uri

    def inner_key(self, name: str, key: str) -> str | None:
        """The mounted server's own key of an entry that the outer server shows under ``key`` in the
        catalog ``name``; None if the entry is not the mounted server's."""
        prefix = self._prefix_of(name)
        inner = key[len(prefix) :]
        # a mount does not show skills
        shown = self._shown.get(name, {}).get(inner) if key.startswith(prefix) else None
        return None if shown is None else inner

    def inner_item(self, name: str, key: str) -> tuple[str, Any] | None:
        """The same, with the item that is registered there; None for one just removed."""
        inner = self.inner_key(name, key)
        return None if inner is None else (inner, self.inner.catalog(name).get(inner))

    def _prefix_of(self, name: str) -> str:
        return self.uri_prefix if name in _LISTS["resources"] else self.prefix

    def _new(self, name: str) -> dict[str, Shown]:
        shown = self._shown[name]
        show_as = _SHOWN_AS[name]
        prefix = self._prefix_of(name)
        items = self.inner.catalog(name).items
        return {
            inner: show_as(prefix, item)
            for inner, item in list(items.items())
            if inner not in shown and not (name == "tools" and self._is_of_search(inner))
        }

    def _is_of_search(self, tool: str) -> bool:
        """Whether a tool of the mounted server searches its own list: that is not shown here."""
        search = self.inner.tool_search
        return search is not None and search.config.is_own(tool)

    def _hide(self, name: str, shown: Shown) -> None:
        key, _, item = shown
        catalog = self.outer.catalog(name)
        if catalog.get(key) is item:  # it may have been removed there
            catalog.remove(key)


def _below(service: McpService) -> Iterator[McpService]:
    """The servers that are mounted on a server, and on these."""
    for mount in service.mounts.here:
        yield mount.inner
        yield from _below(mount.inner)


# -- items under other names ----------------------------------------------------------------------


def _tool(prefix: str, tool: Tool) -> Shown:
    if not prefix:
        return tool.name, tool.entry, tool
    name = prefix + tool.name
    entry = msgspec.structs.replace(tool.entry, name=name)
    return name, entry, tool.shown_as(entry)


def _prompt(prefix: str, prompt: Prompt) -> Shown:
    if not prefix:
        return prompt.key, prompt.entry, prompt
    shown = copy.copy(prompt)  # with the same completers, those to come as well
    shown.key = prefix + prompt.key
    shown.entry = msgspec.structs.replace(prompt.entry, name=shown.key)
    return shown.key, shown.entry, shown


def _resource(prefix: str, resource: Resource) -> Shown:
    if not prefix:
        return resource.uri, resource.entry, resource
    shown = resource.shown_as(prefix + resource.uri)
    return shown.uri, shown.entry, shown


def _template(prefix: str, template: ResourceTemplate) -> Shown:
    if not prefix:
        return template.key, template.entry, template
    shown = template.shown_behind(prefix)
    return shown.key, shown.entry, shown


_SHOWN_AS: dict[str, Callable[[str, Any], Shown]] = {
    "tools": _tool,
    "prompts": _prompt,
    "resources": _resource,
    "templates": _template,
}

# The catalogs that change with each kind of `McpService.list_changed`.
_LISTS = {"tools": ("tools",), "prompts": ("prompts",), "resources": ("resources", "templates")}


# -- the middleware of mounted servers ------------------------------------------------------------

# Methods whose ``params.name`` or ``params.uri`` say what they are for.
_LIST_OF = {
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
    """The list and the key that a request targets."""
    name, key = _LIST_OF.get(request.method), request.name
    if request.method == "completion/complete":
        return _completable(service, request)
    if name == "resources" and key is not None and key not in service.resources.fixed:
        return _template_of(service, key)
    return name, key


def _template_of(service: McpService, uri: str) -> tuple[str | None, str | None]:
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
    return _template_of(service, ref.uri)

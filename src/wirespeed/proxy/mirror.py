"""A server that offers what another server offers, to clients of every revision.

The two sides may speak different revisions: its internal client speaks the revision of the server
behind, and it answers each of its clients in that client's revision. Arguments of tools stay JSON
text.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.client.client import Client
from wirespeed.client.results.features import PromptInfo, PromptRef, ResourceRef
from wirespeed.errors import ProtocolError, RemoteError, ResourceNotFound, WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.upstream import told
from wirespeed.server.context import Context
from wirespeed.server.server import Server
from wirespeed.server.tools.signature import WireName
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.slab import Lease
    from wirespeed.client.requests.send import OnProgress
    from wirespeed.client.results.features import (
        PromptArgument,
        ResourceInfo,
        ResourceTemplateInfo,
        ToolInfo,
    )
    from wirespeed.server.middleware.functions import CallNext
    from wirespeed.server.middleware.inbound import InboundRequest, Reply

T = TypeVar("T")

quiet = RateLimitedLog(logging.getLogger("wirespeed.proxy"))

# The most resources whose changes are asked for at the server behind.
MAX_SUBSCRIPTIONS = 1000


class Mirror:
    """Keeps what a `Server` offers the same as what the server of a `Client` offers.

    The client is open while the server is served. Changed lists are listed anew. Progress and
    cancellations pass; questions of the server behind (sampling, elicitation, roots) and its log
    messages do not. Of a server that is mounted, clients of 2026-07-28 get no updates of resources.

    Args:
        target: What `Client` takes.
        name, version, instructions: The server's, for its clients.
        options: Arguments of `Client`, without callbacks.

    Attributes:
        server: The server.
        client: The client. Its requests have no time limit unless ``timeout`` says so.
    """

    def __init__(
        self,
        target: Any,
        *,
        name: str,
        version: str = "0",
        instructions: str | None = None,
        **options: Any,
    ) -> None:
        self.server = Server(
            name, version, instructions=instructions, lifespan=self._life, mask_errors=False
        )
        self.client = Client(
            target,
            on_tools_changed=self._show_tools,
            on_prompts_changed=self._show_prompts,
            on_resources_changed=self._resources_changed,
            on_resource_updated=self.server.resource_updated,
            **{"timeout": None, **options},
        )
        self._shown: dict[str, dict[str, Any]] = {}
        self._uris: set[str] = set()

    @contextlib.asynccontextmanager
    async def _life(self, _: Server) -> AsyncIterator[None]:
        async with self.client:
            offered = self.client.server_capabilities
            if "tools" in offered:
                self._show_tools(await self.client.list_tools())
            if "prompts" in offered:
                self.server.enable_prompts()
                self._show_prompts(await self.client.list_prompts())
            if "resources" in offered:
                self.server.enable_resources()
                await self._resources_changed(await self.client.list_resources())
                self._hear_subscriptions()
            yield

    # -- what is offered -------------------------------------------------------------------------

    def _show(
        self,
        kind: str,
        found: Mapping[str, Any],
        add: Callable[[Any], None],
        remove: Callable[[str], None],
    ) -> None:
        """Register what is new or has changed, and remove what has gone."""
        shown = self._shown.get(kind, {})
        for key, item in shown.items():
            if found.get(key) != item:
                remove(key)
        for key, item in found.items():
            if shown.get(key) != item:
                add(item)
        self._shown[kind] = dict(found)

    def _show_tools(self, tools: Iterable[ToolInfo]) -> None:
        found = {tool.name: tool for tool in tools}
        self._show("tools", found, self._add_tool, self.server.remove_tool)

    def _show_prompts(self, prompts: Iterable[PromptInfo]) -> None:
        found = {prompt.name: prompt for prompt in prompts}
        self._show("prompts", found, self._add_prompt, self.server.remove_prompt)

    async def _resources_changed(self, resources: Iterable[ResourceInfo]) -> None:
        templates = await self.client.list_resource_templates()
        remove = self.server.remove_resource
        self._show("resources", {one.uri: one for one in resources}, self._add_resource, remove)
        found = {one.uri_template: one for one in templates}
        self._show("templates", found, self._add_template, remove)

    def _add_tool(self, tool: ToolInfo) -> None:
        async def call(arguments: Lease, context: Context) -> Any:
            return await _asked(
                self.client.call_tool(
                    tool.name, bytes(arguments), on_progress=_progress(context), meta=_meta(context)
                )
            )

        self.server.tool_raw(
            tool.name,
            tool.input_schema,
            call,
            context=True,
            output_schema=tool.output_schema,
            title=tool.title,
            description=tool.description,
            annotations=tool.annotations,
            icons=_icons(tool),
            meta=tool.meta,
        )

    def _add_prompt(self, prompt: PromptInfo) -> None:
        async def get(context: Context, given: dict[str, Any]) -> Any:
            return await _asked(
                self.client.get_prompt(
                    prompt.name, given, on_progress=_progress(context), meta=_meta(context)
                )
            )

        self.server.add_prompt(
            _function(get, prompt.arguments),
            name=prompt.name,
            title=prompt.title,
            description=prompt.description,
            icons=_icons(prompt),
            meta=prompt.meta,
        )
        self._complete(prompt.name, PromptRef(prompt.name), prompt.arguments)

    def _add_resource(self, resource: ResourceInfo) -> None:
        async def read(context: Context, given: dict[str, Any]) -> Any:
            return await self._read(context, resource.uri)

        self.server.add_resource(
            resource.uri,
            _function(read, ()),
            **_described(resource),
            size=None if resource.size is None else int(resource.size),
        )

    def _add_template(self, template: ResourceTemplateInfo) -> None:
        from wirespeed.protocol.uri_template import UriTemplate

        parsed = UriTemplate(template.uri_template)
        variables = [_Variable(name) for name in parsed.names]

        async def read(context: Context, given: dict[str, Any]) -> Any:
            return await self._read(context, parsed.expand(given))

        # the server behind knows which paths it serves
        self.server.add_resource(
            template.uri_template, _function(read, variables), **_described(template), safe=False
        )
        self._complete(template.uri_template, ResourceRef(template.uri_template), variables)

    async def _read(self, context: Context, uri: str) -> Any:
        return await _asked(
            self.client.read_resource(uri, on_progress=_progress(context), meta=_meta(context)), uri
        )

    def _complete(
        self, key: str, ref: Any, arguments: Iterable[PromptArgument | _Variable]
    ) -> None:
        if "completions" not in self.client.server_capabilities:
            return
        for argument in arguments:
            self.server.completion(key, argument.name)(self._completer(ref, argument.name))

    def _completer(self, ref: Any, name: str) -> Any:
        async def complete(value: str, known: dict[str, str]) -> Any:
            return await _asked(self.client.complete(ref, name, value, context=known or None))

        return complete

    # -- subscriptions ---------------------------------------------------------------------------

    def _hear_subscriptions(self) -> None:
        """Put the middleware in place, also for clients that are connected. A server without
        resources does without it: it costs each call a third more time."""
        middleware = self.server.service.middleware
        if self._subscribe not in middleware.links:
            self.server.add_middleware(self._subscribe)
            middleware.chain_changed(for_all=True)

    async def _subscribe(self, request: InboundRequest, call_next: CallNext) -> Reply | None:
        """A middleware that subscribes at the server behind to what a client subscribes to."""
        if request.method == "resources/subscribe" and request.name is not None:
            await self._hear_of((request.name,))
        elif request.method == "subscriptions/listen":
            wanted = request.decode().get("notifications")
            uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
            if isinstance(uris, list):
                await self._hear_of(uri for uri in uris if isinstance(uri, str))
        return await call_next(request)

    async def _hear_of(self, uris: Iterable[str]) -> None:
        for uri in filter(None, map(self._behind, uris)):
            if uri in self._uris:
                continue
            if len(self._uris) >= MAX_SUBSCRIPTIONS:
                raise ProtocolError(codes.OVERLOADED, "too many subscriptions")
            await _asked(self.client.subscribe_resource(uri))
            self._uris.add(uri)

    def _behind(self, uri: str) -> str | None:
        """Return the URI at the server behind; None for what is not a resource of that server."""
        service = self.server.service
        prefixes = ["", *(mount.uri_prefix for mount in service.mounts.elsewhere)]
        for inner in (uri.removeprefix(one) for one in prefixes if uri.startswith(one)):
            template = service.resources.template_of(inner)
            if inner in self._shown["resources"] or (
                template is not None and template.key in self._shown["templates"]
            ):
                return inner
        return None


class _Variable(msgspec.Struct):
    """A variable of a template: a required argument."""

    name: str
    required: bool = True
    description: str | None = None


def _function(
    work: Callable[[Context, dict[str, Any]], Awaitable[Any]],
    arguments: Iterable[PromptArgument | _Variable],
) -> Any:
    """A handler with a parameter for each argument, which are strings."""
    names = {f"argument_{i}": one for i, one in enumerate(arguments)}

    async def passed(context: Context, **given: Any) -> Any:
        said = {names[key].name: value for key, value in given.items() if value is not None}
        return await work(context, said)

    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=Context)]
    for name, one in names.items():
        kind: Any = str if one.required else str | None
        notes: list[Any] = [WireName(one.name)]
        if one.description is not None:
            notes.append(msgspec.Meta(description=one.description))
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=Annotated[(kind, *notes)],
                default=inspect.Parameter.empty if one.required else None,
            )
        )
    handler: Any = passed
    handler.__signature__ = inspect.Signature(parameters)
    return handler


async def _asked(answer: Awaitable[T], uri: str | None = None) -> T:
    """The answer of the server behind. Its errors become errors of ours."""
    try:
        return await answer
    except RemoteError as exc:
        if uri is not None and exc.resource_missing:
            raise ResourceNotFound(uri, exc.message) from exc
        raise ProtocolError(exc.code, exc.message, exc.data) from exc
    except WirespeedError as exc:
        quiet.log(logging.WARNING, "the mirrored server: %s", exc)
        raise ProtocolError(codes.SERVER_LOST, told("behind this one", exc)) from exc


def _progress(context: Context) -> OnProgress | None:
    """The callback that passes progress on; None if the client did not ask for progress."""
    return context.progress if "progressToken" in context.meta else None


def _meta(context: Context) -> dict[str, Any] | None:
    """The members of a client's ``_meta`` that do not describe one side of a connection."""
    return {
        key: value
        for key, value in context.meta.items()
        if key != "progressToken" and not key.startswith("io.modelcontextprotocol/")
    } or None


def _described(one: ResourceInfo | ResourceTemplateInfo) -> dict[str, Any]:
    return {
        "name": one.name,
        "title": one.title,
        "description": one.description,
        "mime_type": one.mime_type,
        "annotations": one.annotations,
        "icons": _icons(one),
        "meta": one.meta,
    }


def _icons(one: Any) -> Any:
    from wirespeed.protocol.blocks import Icon

    return None if one.icons is None else msgspec.convert(one.icons, list[Icon])


set_public_home(globals())

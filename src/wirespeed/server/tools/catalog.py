"""The tools of a server: registered, listed, removed (server/tools)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from wirespeed.protocol.blocks import Icon, Text
from wirespeed.protocol.meta import check_meta
from wirespeed.protocol.revisions import fit_tool
from wirespeed.server.catalog import Catalog, Registrar, ToolEntry, check_options
from wirespeed.server.requests import launchers
from wirespeed.server.requests.call import context_class
from wirespeed.server.requests.launchers import Limiter
from wirespeed.server.requests.operation import LimitOptions, check_timeout
from wirespeed.server.tasks.catalog import TaskSupport
from wirespeed.server.tools.results import ResultPlan, ToolResult, plan_result
from wirespeed.server.tools.signature import Extra, inspect_tool
from wirespeed.server.tools.tool import Tool
from wirespeed.transport.loop import is_coroutine_function
from wirespeed.transport.options import checked_scopes

if TYPE_CHECKING:
    from wirespeed.server.requests.launchers import Launch
    from wirespeed.server.tasks.catalog import Tasks
    from wirespeed.server.tools.signature import ToolSpec

logger = logging.getLogger("wirespeed.server")

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class CommonToolOptions(LimitOptions, total=False):
    """The options that functions and raw tools share; `Server.add_tool` describes them."""

    title: str | None
    description: str | None
    annotations: Mapping[str, Any] | None
    icons: Iterable[Icon] | None
    meta: Mapping[str, Any] | None
    inline: bool
    task: TaskSupport
    task_after: float | None
    scopes: Iterable[str]
    tags: Iterable[str]


class ToolOptions(CommonToolOptions, total=False):
    """The options of `Server.tool`; `Server.add_tool` describes them."""

    name: str | None
    structured: bool | None
    extra: Extra
    coerce: bool


class RawToolOptions(CommonToolOptions, total=False):
    """The options of `Server.tool_raw`, which describes them."""

    output_schema: Mapping[str, Any] | None
    context: bool


class ToolCatalog(Catalog[Tool]):
    """The tools by name."""

    def __init__(self, service: Registrar, tasks: Tasks, *, extra: Extra, coerce: bool) -> None:
        super().__init__(
            "tool",
            "tools",
            fit_tool,
            discovery=service.discovery,
            page_size=service.page_size,
            changed=lambda: service.list_changed("tools"),
        )
        self._service = service
        self._tasks = tasks
        self._extra = _checked(extra)
        self._coerce = coerce
        service.discovery.offers["tools"] = lambda: {"listChanged": True}

    def register(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> Tool:
        """See `Server.add_tool`."""
        check_options("add_tool()", options, ToolOptions)
        check_timeout(options.get("timeout"))
        spec = inspect_tool(
            function,
            name=options.get("name"),
            title=options.get("title"),
            description=options.get("description"),
            context_class=context_class(),
            structured=options.get("structured"),
            dependencies=self._service.injecting(),
            threads=self._service.threads,
            extra=_checked(options.get("extra", self._extra)),
            coerce=options.get("coerce", self._coerce),
        )
        entry = _entry(spec.name, spec.input_schema, spec.output_schema, options)
        entry.title, entry.description = spec.title, spec.description
        inline = options.get("inline", False)
        if inline and spec.injection is not None and spec.injection.run_inline():
            inline = False  # the function around it is a coroutine function
        if inline and (spec.is_async or spec.is_async_generator or spec.is_generator):
            raise ValueError(f"tool {spec.name!r}: only a plain function can be inline")
        max_concurrency, queue = options.get("max_concurrency"), options.get("queue")
        if max_concurrency is not None or queue is not None:
            limit_tool(spec, max_concurrency, queue, inline=inline)
            inline = False
        tool = Tool(entry, spec, spec.function, inline=inline, timeout=options.get("timeout"))
        return self._add(tool, options, inline)

    def register_raw(
        self,
        name: str,
        schema: Mapping[str, Any],
        handler: Callable[..., Any],
        **options: Unpack[RawToolOptions],
    ) -> Tool:
        """See `Server.tool_raw`."""
        from wirespeed.protocol.header_values import param_fields

        check_options("tool_raw()", options, RawToolOptions)
        if schema.get("type") != "object":
            raise ValueError(f'tool {name!r}: the type of its schema must be "object"')
        try:
            header_params = param_fields(schema) or None
        except ValueError as exc:
            raise ValueError(f"tool {name!r}: {exc}") from None
        check_timeout(options.get("timeout"))
        entry = _entry(name, dict(schema), options.get("output_schema"), options)
        plan: ResultPlan = plan_result(msgspec.UNSET, f"tool {name!r}: result", None)
        inline = options.get("inline", False)
        in_thread = self._service.threads.in_thread
        max_concurrency, queue = options.get("max_concurrency"), options.get("queue")
        if max_concurrency is not None or queue is not None:
            handler = limit_raw(
                name, handler, max_concurrency, queue, inline=inline, launch=in_thread
            )
            inline = False
        tool = Tool(
            entry,
            None,
            handler,
            inline=inline,
            timeout=options.get("timeout"),
            wants_context=options.get("context", False),
            encode=plan.encode,
            launch=in_thread,
        )
        tool.header_params = header_params
        return self._add(tool, options, inline)

    def _add(self, tool: Tool, options: CommonToolOptions, inline: bool) -> Tool:
        if not _NAME.fullmatch(tool.name):
            logger.warning(
                "tool %r: clients may refuse this name; use 1 to 128 letters, digits, _ - . "
                "(server/tools, Tool Names)",
                tool.name,
            )
        tool.tasks = self._tasks.plan(
            tool.name, options.get("task", "forbidden"), options.get("task_after"), inline
        )
        tool.owner = self._service
        tool.scopes = checked_scopes(options.get("scopes", ())) or None
        self.add(tool.name, tool.entry, tool, options.get("tags", ()))
        return tool

    def arguments(self) -> list[tuple[str, Any]]:
        """The arguments of the tools that were registered here: the tool's label, and the type."""
        found: list[tuple[str, Any]] = []
        for tool in self.items.values():
            spec: ToolSpec | None = tool.spec
            if spec is not None and tool.owner is self._service:
                label = f"tool {tool.name!r}"
                found += [(label, field.type) for field in msgspec.structs.fields(spec.struct)]
        return found


def _checked(extra: Extra) -> Extra:
    """ValueError: it is not an answer to unknown arguments."""
    if extra not in ("forbid", "ignore"):
        raise ValueError(f'extra must be "forbid" or "ignore", not {extra!r}')
    return extra


def _entry(
    name: str,
    input_schema: Mapping[str, Any],
    output_schema: Mapping[str, Any] | None,
    options: CommonToolOptions,
) -> ToolEntry:
    icons, task = options.get("icons"), options.get("task", "forbidden")
    return ToolEntry(
        name=name,
        title=options.get("title"),
        description=options.get("description"),
        inputSchema=input_schema,
        outputSchema=None if output_schema is None else dict(output_schema),
        annotations=_hints(name, options.get("annotations")),
        icons=None if icons is None else list(icons),
        meta=check_meta(options.get("meta")),
        execution=None if task == "forbidden" else {"taskSupport": task},
    )


# The names that some SDKs have for the members of `ToolAnnotations` in Python.
_HINTS = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}


_MEMBERS = frozenset(("title", *_HINTS.values()))


def _hints(tool: str, given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The annotations of a tool by their names on the wire. A warning names a misspelt one, which
    clients do not read."""
    if given is None or given.keys() <= _MEMBERS:
        return given
    from difflib import get_close_matches

    found = {_HINTS.get(name, name): value for name, value in given.items()}
    for name in found.keys() - _MEMBERS:
        if near := get_close_matches(name, _MEMBERS, n=1, cutoff=0.8):
            text = "tool %r: clients do not know the annotation %r; did you mean %r?"
            logger.warning(text, tool, name, near[0])
    return found


def limit_tool(
    spec: ToolSpec, max_concurrency: int | None, queue: int | None, *, inline: bool
) -> None:
    """Make a tool's function one that waits for a place first. ValueError: see `Limiter`."""
    limiter = Limiter(f"tool {spec.name}", max_concurrency, queue)
    function, names = spec.function, spec.kwnames
    inner = launchers.at_once if inline else launchers.launcher_of(spec)

    async def call(*values: Any, **named: Any) -> Any:
        if not await limiter.enter():
            return busy(limiter)
        return await limiter.run(inner(function, [*values, *named.values()], names))

    spec.replace_function(call)


def limit_raw(
    name: str,
    handler: Callable[..., Any],
    max_concurrency: int | None,
    queue: int | None,
    *,
    inline: bool,
    launch: Launch,
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The same for the handler of a raw tool. ``launch``: how a plain function runs."""
    limiter = Limiter(f"tool {name}", max_concurrency, queue)
    inner: Launch = launchers.at_once if inline else launch
    if is_coroutine_function(handler):
        inner = launchers.coroutine

    async def call(*values: Any) -> Any:
        if not await limiter.enter():
            return busy(limiter)
        return await limiter.run(inner(handler, list(values), None))

    return call


def busy(limiter: Limiter) -> Any:
    """The result of a call that is refused."""
    return ToolResult(content=[Text(text=limiter.refusal)], is_error=True)

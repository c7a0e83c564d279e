"""The tools of a server: registered, listed, taken away."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from wirespeed.protocol import shapes
from wirespeed.protocol.blocks import Icon
from wirespeed.protocol.meta import check_meta
from wirespeed.server.content import ResultPlan, plan_result
from wirespeed.server.context import Context
from wirespeed.server.features import check_timeout
from wirespeed.server.limiter import limit_raw, limit_tool
from wirespeed.server.registry import Registry
from wirespeed.server.signature import inspect_tool
from wirespeed.server.tasks import Tasks, TaskSupport
from wirespeed.server.tool import Tool

if TYPE_CHECKING:
    from wirespeed.server.dependencies import Dependencies
    from wirespeed.server.server import Server

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("wirespeed.server")

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ToolEntry(msgspec.Struct, omit_defaults=True):
    """A tool as tools/list shows it; what a revision has of it: `wirespeed.protocol.shapes`."""

    name: str
    inputSchema: Mapping[str, Any]  # noqa: N815
    title: str | None = None
    description: str | None = None
    outputSchema: Mapping[str, Any] | None = None  # noqa: N815
    annotations: Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)
    execution: Mapping[str, Any] | None = None


class Tools(Tasks):
    """What a server has for tools (server/tools)."""

    _tools: Registry[Tool]
    _injecting: Callable[[], Dependencies | None]

    def _setup_tools(self) -> None:
        self._tools = self._registry("tools", "tools", shapes.fit_tool)
        self._offers["tools"] = lambda: {"listChanged": True}

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        inline: bool = False,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        queue: int | None = None,
        task: TaskSupport = "forbidden",
        task_after: float | None = None,
    ) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Make a function a tool; as ``@server.tool`` or ``@server.tool(title=…)``.

        Its name, docstring and signature become the tool's name, description and input schema.
        Options are those of `add_tool`.
        """
        if function is not None:
            self.add_tool(function)
            return function

        def decorate(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return decorate

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        inline: bool = False,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        queue: int | None = None,
        task: TaskSupport = "forbidden",
        task_after: float | None = None,
    ) -> Tool:
        """Register a function as a tool, now or while the server runs (clients are told).

        Args:
            function: A coroutine function, or a plain one, which runs in a worker thread.
            name, title, description: Instead of what the function says itself.
            annotations: Hints such as ``{"readOnlyHint": True}`` (server/tools).
            icons, meta: For tools/list.
            structured: Whether results have structured content; by default the return type says.
            inline: Run a plain function on the event loop's thread. Nothing else happens
                meanwhile: for functions of microseconds.
            timeout: Seconds after which a call is cancelled and answered with an error; waiting
                for other calls and for dependencies counts.
            max_concurrency, queue: Calls that run at a time, and that wait beyond these (100 by
                default); more are refused with an error. See `wirespeed.server.limiter`.
            task: Whether a call may or must run as a task that outlives its request; for clients
                of 2025-11-25, and of 2026-07-28 with the tasks extension (see `use_tasks`).
            task_after: With ``task="optional"``, the seconds that a call of a modern client may
                take before it becomes a task; 2 by default, 0 for at once.

        Raises:
            SignatureError: The signature cannot be a tool's; the text says why.
            ValueError: There is a tool of this name, an option cannot be right, or options do not
                go together.
        """
        check_timeout(timeout)
        spec = inspect_tool(
            function,
            name=name,
            title=title,
            description=description,
            context_class=Context,
            structured=structured,
            dependencies=self._injecting(),
        )
        entry = ToolEntry(
            name=spec.name,
            title=spec.title,
            description=spec.description,
            inputSchema=spec.input_schema,
            outputSchema=spec.output_schema,
            annotations=annotations,
            icons=None if icons is None else list(icons),
            meta=check_meta(meta),
            execution=None if task == "forbidden" else {"taskSupport": task},
        )
        if inline and spec.injection is not None and spec.injection.run_inline():
            inline = False  # the function around it is a coroutine function
        if inline and (spec.is_async or spec.is_async_generator or spec.is_generator):
            raise ValueError(f"tool {spec.name!r}: only a plain function can be inline")
        if max_concurrency is not None or queue is not None:
            limit_tool(spec, max_concurrency, queue, inline=inline)
            inline = False
        tool = Tool(entry, spec, spec.function, inline=inline, timeout=timeout)
        tool.tasks = self._task_tool(spec.name, task, task_after, inline)
        return self._register(tool)

    def tool_raw(
        self,
        name: str,
        schema: Mapping[str, Any],
        handler: Callable[..., Any],
        *,
        title: str | None = None,
        description: str | None = None,
        output_schema: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        context: bool = False,
        inline: bool = False,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        queue: int | None = None,
        task: TaskSupport = "forbidden",
        task_after: float | None = None,
    ) -> Tool:
        """Register a handler that gets its arguments undecoded.

        ``handler(arguments)``, or with ``context=True`` ``handler(arguments, ctx)``, where
        ``arguments`` is a bytes-like view of the JSON object that came in. The view pins input
        memory: keep it only after ``copy()``. ``schema`` is announced, not enforced; its type is
        ``"object"`` (server/tools, "Tool"). The result is treated like that of a function without a
        return annotation. Errors as of `add_tool`; TypeError for a schema that is no JSON.
        """
        if schema.get("type") != "object":
            raise ValueError(f'tool {name!r}: the type of its schema must be "object"')
        check_timeout(timeout)
        entry = ToolEntry(
            name=name,
            title=title,
            description=description,
            inputSchema=dict(schema),
            outputSchema=None if output_schema is None else dict(output_schema),
            annotations=annotations,
            icons=None if icons is None else list(icons),
            meta=check_meta(meta),
            execution=None if task == "forbidden" else {"taskSupport": task},
        )
        plan: ResultPlan = plan_result(msgspec.UNSET, f"tool {name!r}: result", None)
        if max_concurrency is not None or queue is not None:
            handler = limit_raw(name, handler, max_concurrency, queue, inline=inline)
            inline = False
        tool = Tool(
            entry,
            None,
            handler,
            inline=inline,
            timeout=timeout,
            wants_context=context,
            encode=plan.encode,
        )
        tool.tasks = self._task_tool(name, task, task_after, inline)
        return self._register(tool)

    def remove_tool(self, name: str) -> None:
        """Take a tool away; calls under way go on. KeyError if there is none of this name."""
        self._tools.remove(name)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        return dict(self._tools.items)

    def _register(self, tool: Tool) -> Tool:
        if not _NAME.fullmatch(tool.name):
            logger.warning(
                "tool %r: clients may refuse this name; use 1 to 128 letters, digits, _ - . "
                "(server/tools, Tool Names)",
                tool.name,
            )
        tool.owner = cast("Server", self)
        self._tools.add(tool.name, tool.entry, tool)
        return tool

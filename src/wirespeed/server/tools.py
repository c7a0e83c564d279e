"""The tools of a server: registered, listed, taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

import msgspec

from wirespeed.protocol import shapes
from wirespeed.server.content import Icon, ResultPlan, plan_result
from wirespeed.server.context import Context
from wirespeed.server.part import Part
from wirespeed.server.registry import Registry
from wirespeed.server.signature import inspect_tool
from wirespeed.server.tool import Tool

F = TypeVar("F", bound=Callable[..., Any])

_encode = msgspec.json.Encoder().encode


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


class Tools(Part):
    """What a server has for tools (server/tools)."""

    _tools: Registry[Tool]

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
            timeout: Seconds after which a call is cancelled and answered with an error.

        Raises:
            SignatureError: The signature cannot be a tool's; the text says why.
            ValueError: There is a tool of this name.
        """
        spec = inspect_tool(
            function,
            name=name,
            title=title,
            description=description,
            context_class=Context,
            structured=structured,
        )
        entry = ToolEntry(
            name=spec.name,
            title=spec.title,
            description=spec.description,
            inputSchema=spec.input_schema,
            outputSchema=spec.output_schema,
            annotations=annotations,
            icons=None if icons is None else list(icons),
            meta=meta,
        )
        if inline and (spec.is_async or spec.is_async_generator or spec.is_generator):
            raise ValueError(f"tool {spec.name!r}: only a plain function can be inline")
        return self._register(Tool(entry, spec, spec.function, inline=inline, timeout=timeout))

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
    ) -> Tool:
        """Register a handler that gets its arguments undecoded.

        ``handler(arguments)``, or with ``context=True`` ``handler(arguments, ctx)``, where
        ``arguments`` is a bytes-like view of the JSON object that came in. The view pins input
        memory: keep it only after ``copy()``. ``schema`` is announced, not enforced. The result is
        treated like that of a function without a return annotation.
        """
        entry = ToolEntry(
            name=name,
            title=title,
            description=description,
            inputSchema=dict(schema),
            outputSchema=None if output_schema is None else dict(output_schema),
            annotations=annotations,
            icons=None if icons is None else list(icons),
            meta=meta,
        )
        _encode(entry)  # what is not JSON is said now
        plan: ResultPlan = plan_result(msgspec.UNSET, f"tool {name!r}: result", None)
        return self._register(
            Tool(
                entry,
                None,
                handler,
                inline=inline,
                timeout=timeout,
                wants_context=context,
                encode=plan.encode,
            )
        )

    def remove_tool(self, name: str) -> None:
        """Take a tool away; calls under way go on. KeyError if there is none of this name."""
        self._tools.remove(name)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        return dict(self._tools.items)

    def _register(self, tool: Tool) -> Tool:
        self._tools.add(tool.name, tool.entry, tool)
        return tool

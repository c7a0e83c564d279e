"""Tools that wait for a place before they run: `max_concurrency` and `queue` of a tool.

A call beyond both gets a result with ``isError``, so that a model can try again later.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from wirespeed.protocol.blocks import Text
from wirespeed.server.requests import launchers
from wirespeed.server.requests.limiter import Limiter
from wirespeed.server.tools.results import ToolResult
from wirespeed.transport.loop import is_coroutine_function

if TYPE_CHECKING:
    from wirespeed.server.requests.limiter import Launch
    from wirespeed.server.tools.signature import ToolSpec


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
    """The result of a tool's call that is refused."""
    return ToolResult(content=[Text(text=limiter.refusal)], is_error=True)

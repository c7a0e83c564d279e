"""Operations of functions: what tools, prompts, resources and completions share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wirespeed.server.requests import launchers
from wirespeed.server.requests.feature import Feature
from wirespeed.server.requests.limiter import Limiter, limited
from wirespeed.transport.loop import is_coroutine_function

if TYPE_CHECKING:
    from wirespeed.protocol.revisions import Revision
    from wirespeed.server.catalog import LimitOptions
    from wirespeed.server.context import Context
    from wirespeed.server.requests.reply import Body
    from wirespeed.server.service import McpService
    from wirespeed.server.tools.signature import ToolSpec

__all__ = ["call_from", "check_timeout", "invoke", "make_feature"]


def check_timeout(timeout: float | None) -> None:
    """ValueError: it is not a positive number of seconds."""
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")


def make_feature(
    spec: ToolSpec,
    kind: str,
    encode: Callable[[Any, Revision], Body],
    owner: McpService,
    options: LimitOptions,
) -> Feature:
    """The operation of a function that is registered at a server, its owner. ValueError: the
    timeout or a limit is not valid."""
    timeout = options.get("timeout")
    check_timeout(timeout)
    max_concurrency, queue = options.get("max_concurrency"), options.get("queue")
    launcher = None if is_coroutine_function(spec.function) else launchers.launcher_of(spec)
    if max_concurrency is not None or queue is not None:
        limiter = Limiter(f"{kind} {spec.name}", max_concurrency, queue)
        launcher = limited(limiter, launchers.launcher_of(spec))
    feature = Feature(
        spec.name,
        kind,
        spec.function,
        encode=encode,
        timeout=timeout,
        wants_context=spec.context_index >= 0,
        launch=launcher,
    )
    feature.owner = owner
    return feature


async def call_from(
    context: Context, feature: Feature, spec: ToolSpec, values: Mapping[str, Any]
) -> Any:
    """Call the function for another handler of the server, within the request of that handler.
    TimeoutError: the time limit of the function is over."""
    async with asyncio.timeout(feature.timeout):
        value = await invoke(feature, spec, values, context)
    if context.cancelled:  # the request was answered with a question of the function
        raise asyncio.CancelledError
    return value


def invoke(feature: Feature, spec: ToolSpec, values: Mapping[str, Any], context: Any) -> Any:
    """A coroutine that calls the function; *values* by attribute of the spec's struct."""
    vector = [values[name] for name in spec.fields]
    if spec.context_index >= 0:
        vector.insert(spec.context_index, context)
    return feature.invoke(vector, spec.kwnames or None)

"""Operations of functions, and params of requests: for tools, prompts, resources, completions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

import msgspec

from wirespeed.errors import ProtocolError, shortened
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ListParams
from wirespeed.server.requests import launchers
from wirespeed.server.requests.call import Feature
from wirespeed.server.requests.launchers import InspectedFunction, Limiter, limited
from wirespeed.transport.loop import is_coroutine_function

if TYPE_CHECKING:
    import inspect

    from wirespeed._core.envelope import Message
    from wirespeed.protocol.revisions import Revision
    from wirespeed.server.requests.call import Call
    from wirespeed.server.requests.reply import Body

Handler: TypeAlias = "Callable[[Call, Message], Body | Coroutine[Any, Any, Body] | None]"

# Names that an unknown one is compared with: each costs some 10 µs.
MAX_COMPARED = 100


class LimitOptions(TypedDict, total=False):
    """Bounds of the calls of one function.

    Attributes:
        timeout: Seconds after which a call is given up, including the wait for other calls.
        max_concurrency: The most calls that run at a time. See
            `wirespeed.server.requests.launchers`.
        queue: The most calls that wait beyond these, 100 by default; more are refused with -31000.
    """

    timeout: float | None
    max_concurrency: int | None
    queue: int | None


class HandlerContext(Protocol):
    """The context of a handler (`wirespeed.Context`), for what runs the handler."""

    _call: Call

    @property
    def cancelled(self) -> bool: ...

    @property
    def request_id(self) -> int | str: ...

    @property
    def client_capabilities(self) -> dict[str, Any]: ...


class Injected(Protocol):
    """A function that takes dependencies besides its arguments."""

    def run_inline(self) -> bool:
        """Call it on the loop's thread; False if it is not a plain function."""


class Injector(Protocol):
    """The dependencies of functions (`wirespeed.server.dependencies.registry.Dependencies`)."""

    def find(self, annotation: Any, parameter: inspect.Parameter, where: str) -> Any:
        """The provider of what a parameter takes; None for an argument. DependencyError."""

    def bind(self, spec: InspectedFunction, injected: Mapping[int, Any]) -> Injected:
        """Turn a spec into that of a function of the arguments and the context. ``injected``: the
        providers of the other parameters, by their index."""


def check_timeout(timeout: float | None) -> None:
    """ValueError: it is not a positive number of seconds."""
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")


def make_feature(
    spec: InspectedFunction,
    kind: str,
    encode: Callable[[Any, Revision], Body],
    owner: object,
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
    context: HandlerContext, feature: Feature, spec: InspectedFunction, values: Mapping[str, Any]
) -> Any:
    """Call the function for another handler of the server, within the request of that handler.
    TimeoutError: the time limit of the function is over."""
    async with asyncio.timeout(feature.timeout):
        value = await invoke(feature, spec, values, context)
    if context.cancelled:  # the request was answered with a question of the function
        raise asyncio.CancelledError
    return value


def invoke(
    feature: Feature, spec: InspectedFunction, values: Mapping[str, Any], context: Any
) -> Any:
    """A coroutine that calls the function; *values* by attribute of the spec's struct."""
    vector = [values[name] for name in spec.fields]
    if spec.context_index >= 0:
        vector.insert(spec.context_index, context)
    return feature.invoke(vector, spec.kwnames or None)


# -- params ---------------------------------------------------------------------------------------


def params_of(message: Message, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode the params. ProtocolError -32602 names the member that does not fit."""
    raw = message.params
    try:
        return decoder.decode(b"{}" if raw is None else raw)
    except msgspec.DecodeError as exc:
        text = str(exc).replace("`$", "`params").replace("$.", "params.")
        raise ProtocolError(codes.INVALID_PARAMS, f"Invalid params: {text}") from None


def unknown(kind: str, name: str, known: Collection[str]) -> ProtocolError:
    """-32602 for a name that nothing has, with the nearest one that something has."""
    text = f"Unknown {kind}: {shortened(name)}"
    if len(name) <= 64 and len(known) <= MAX_COMPARED:
        import difflib

        if near := difflib.get_close_matches(name, known, n=1):
            text += f"; did you mean {near[0]}?"
    return ProtocolError(codes.INVALID_PARAMS, text)


def cursor_of(message: Message) -> str | None:
    """Return the cursor of the page that a list request asks for. ProtocolError -32602."""
    cursor: str | None = params_of(message, _list).cursor
    return cursor


_list = msgspec.json.Decoder(ListParams)


def saved(call: Call, result: bytes = b"{}") -> bytes | Coroutine[Any, Any, bytes]:
    """Return the result of a request that has changed the state of its session. With several hosts
    it comes when the others know the state, or cannot know it."""
    session: Any = getattr(call.connection.link, "session", None)
    kept = session is not None and session.keeper is not None
    return _saved(session, result) if kept else result


async def _saved(session: Any, result: bytes) -> bytes:
    await session.save()
    return result

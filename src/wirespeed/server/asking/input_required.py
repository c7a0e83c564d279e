"""`InputRequired`: a handler returns its questions as its result."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wirespeed._exports import set_public_home
from wirespeed.errors import SignatureError
from wirespeed.server.requests.launchers import launcher_of

if TYPE_CHECKING:
    from wirespeed.server.asking.asker import InputRequest
    from wirespeed.server.requests.launchers import InspectedFunction


class InputRequired:
    """The result of a handler that needs input of the client (2026-07-28 basic/patterns/mrtr,
    "InputRequiredResult")::

        @server.tool
        async def book(ctx: Context, to: str) -> str | InputRequired:
            answer = ctx.input_responses.get("seat")
            if answer is None:
                return InputRequired({"seat": ElicitRequest("Which seat?", Seat)})
            return f"booked {answer.as_form(Seat)}"

    The handler is called again with the same arguments. ``ctx.input_responses`` has the answers of
    the last round by the same keys (an answer may be missing: ask again), ``ctx.request_state`` the
    state. Clients of older revisions get the questions as requests; the handler sees no difference.
    Its return annotation must name this class, and it must take a `Context`.

    Args:
        requests: `ElicitRequest`, `SampleRequest` and `RootsRequest` by keys of your choice.
        state: A JSON value for the next round. The client keeps it: it can read the value, but not
            change it. With None a client of 2026-07-28 gets no ``requestState``, and its answers
            are taken as they come: also those to questions that the server did not ask, or asked
            for other arguments. So a handler with a state looks for ``ctx.request_state``, too.
            With ``Server(state_single_use=True)``, and where the handler also asks through its
            `Context`, there is always a ``requestState``.

    ValueError: neither is given. TypeError: a value of *requests* is not a request.
    """

    __slots__ = ("requests", "state")

    def __init__(
        self, requests: Mapping[str, InputRequest] | None = None, state: Any = None
    ) -> None:
        if not requests and state is None:
            raise ValueError("InputRequired takes requests, or state, or both")
        self.requests: dict[str, InputRequest] = dict(requests or {})
        for key, question in self.requests.items():
            if not isinstance(key, str) or not hasattr(question, "encoded"):
                raise TypeError(f"{key!r}: {question!r} is not a request with a string key")
        self.state = state

    def __repr__(self) -> str:
        return f"InputRequired({', '.join(self.requests)})"


def split_annotation(returns: Any) -> tuple[bool, Any]:
    """Whether a return annotation names `InputRequired`, and the rest of the annotation; None if
    there is no other type."""
    if returns is InputRequired:
        return True, None
    if typing.get_origin(returns) not in (typing.Union, types.UnionType):
        return False, returns
    members = typing.get_args(returns)
    rest = tuple(member for member in members if member is not InputRequired)
    if len(rest) == len(members):
        return False, returns
    return True, typing.Union[rest]  # noqa: UP007


def explicit(spec: InspectedFunction, where: str) -> None:
    """Call the function of a spec again, with the answers, when it returns `InputRequired`."""
    if spec.context_index < 0:
        raise SignatureError(
            f"{where}: a function that returns InputRequired must take a Context for the answers"
        )
    function, names, index = spec.function, spec.kwnames, spec.context_index
    start = None if spec.is_async else launcher_of(spec)

    async def rounds(*args: Any, **kwargs: Any) -> Any:
        context = (*args, *kwargs.values())[index]
        while True:
            if start is None:
                value = await function(*args, **kwargs)
            else:
                value = await start(function, [*args, *kwargs.values()], names or None)
            if type(value) is not InputRequired:
                return value
            if not await context._asking().require(value):
                return None  # the request was answered

    spec.replace_function(rounds)


set_public_home(globals())

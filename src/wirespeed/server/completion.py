"""Completion of arguments of prompts and of variables of resource templates (completion/complete).
Loaded with the first prompt or resource.

A function completes an argument: it gets what the user has typed, and, if it takes a second
parameter, the arguments that have values already; and a context for a parameter annotated so::

    @server.completion("review", "language")
    def languages(value: str, others: dict[str, str]) -> list[str]:
        return [name for name in LANGUAGES if name.startswith(value)]

It returns strings, the best first, or a `Completion`. A known argument without a completer gets no
values; an unknown one is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from wirespeed.errors import ProtocolError, SignatureError, shortened
from wirespeed.protocol import codes
from wirespeed.protocol.messages import CompleteContext, CompleteParams, PromptReference, given
from wirespeed.protocol.results import Completion
from wirespeed.protocol.revisions import has_member
from wirespeed.server.catalog import Registrar, check_options
from wirespeed.server.permissions import check_scopes
from wirespeed.server.requests.call import context_class
from wirespeed.server.requests.operation import LimitOptions, invoke, make_feature, params_of
from wirespeed.server.tools.results import ResultError, to_json
from wirespeed.server.tools.signature import inspect_tool
from wirespeed.transport.options import checked_scopes

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.protocol.revisions import Revision
    from wirespeed.server.requests.call import Call
    from wirespeed.server.requests.reply import Body

F = TypeVar("F", bound=Callable[..., Any])

MAX_VALUES = 100  # in one answer (server/utilities/completion, "Completion Results")


class _Values(msgspec.Struct, omit_defaults=True):
    values: list[str]
    total: int | None = None
    hasMore: bool | None = None  # noqa: N815


class _Result(msgspec.Struct):
    completion: _Values


class Completer:
    """A function that completes one argument."""

    __slots__ = ("feature", "spec")

    def __init__(
        self, function: Callable[..., Any], where: str, service: Registrar, options: LimitOptions
    ) -> None:
        self.spec = inspect_tool(
            function,
            name=where,
            context_class=context_class(),
            kind="completion",
            dependencies=service.injecting(),
            threads=service.threads,
        )
        if not 1 <= len(self.spec.fields) <= 2:
            raise SignatureError(
                f"completion {where!r}: the function takes the value, and at most the arguments "
                "that are known already"
            )
        self.feature = make_feature(self.spec, "completion", _encode, service, options)

    def start(self, call: Call, message: Message, value: str, others: Mapping[str, str]) -> None:
        """Begin the call that answers."""
        call.begin(self.feature, message)
        values = dict(zip(self.spec.fields, (value, others), strict=False))
        call.start(invoke(self.feature, self.spec, values, call.context))


def _encode(value: Any, revision: Revision) -> bytes:
    """The result object. ResultError: a completer did not return strings."""
    total: int | None = None
    has_more: bool | None = None
    if isinstance(value, Completion):
        count, has_more, value = value.total, value.has_more, value.values
        if isinstance(count, float):  # of another server: schema.json asks for an integer
            count = int(count) if count.is_integer() else None
        total = count
    if value is None:
        value = ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ResultError(f"a completer returns strings, not {type(value).__name__}")
    if total is None and has_more is None and isinstance(value, Sized):
        total = len(value)
    values: list[str] = []
    for item in value:
        if len(values) == MAX_VALUES:
            has_more = True
            break
        if not isinstance(item, str):
            raise ResultError(f"a completer returns strings, not {type(item).__name__}")
        values.append(item)
    if has_more is None:
        has_more = total is not None and total > len(values)
    return to_json(_Result(_Values(values, total, has_more)))


class Completable:
    """Something with arguments that can be completed: a prompt or a resource template.

    Attributes:
        key: What it is registered under.
        function: What was registered.
        scopes: What a client's token must permit; None for nothing in particular.
    """

    __slots__ = ("_completers", "_names", "_service", "function", "key", "scopes")

    def __init__(
        self,
        key: str,
        function: Callable[..., Any],
        arguments: Iterable[str],
        scopes: Iterable[str],
    ) -> None:
        self.key = key
        self.function = function
        self.scopes = checked_scopes(scopes) or None
        self._names = frozenset(arguments)
        self._completers: dict[str, Completer] = {}
        self._service: Registrar | None = None

    @property
    def completes(self) -> bool:
        """Whether any argument can be completed."""
        return bool(self._completers)

    def registered(self, service: Registrar) -> None:
        """A server registered this; the server is told when an argument can be completed."""
        self._service = service
        if self.completes:
            service.enable("completions")

    def complete(self, argument: str, **options: Unpack[LimitOptions]) -> Callable[[F], F]:
        """Complete an argument by a function: ``@prompt.complete("language")``.

        A second function replaces the first. The options are those of `Server.completion`.

        Raises:
            ValueError: There is no such argument, or an option is out of its range.
            SignatureError: The function does not take a value and, perhaps, the known arguments.
        """
        check_options("complete()", options, LimitOptions)
        if argument not in self._names:
            raise ValueError(f"{self!r} has no argument {argument!r}")

        def decorate(function: F) -> F:
            service = self._service
            assert service is not None
            self._completers[argument] = Completer(
                function, f"{self.key} {argument}", service, options
            )
            service.enable("completions")
            return function

        return decorate

    def remove_completer(self, argument: str) -> None:
        """Remove the function of an argument. KeyError: it has none."""
        del self._completers[argument]

    def answer(self, call: Call, message: Message, params: CompleteParams) -> Body | None:
        """Answer a request, now or later (None). ProtocolError -32602: no such argument."""
        name, value = params.argument.name, params.argument.value
        if name not in self._names:
            raise ProtocolError(codes.INVALID_PARAMS, f"Unknown argument: {name}")
        completer = self._completers.get(name)
        if completer is not None:
            others: dict[str, str] = {}
            if has_member("CompleteParams", "context", call.revision.version):
                others = _known(params.context)
            completer.start(call, message, value, others)
            return None
        return _encode((), call.revision)


def _known(context: msgspec.Raw) -> dict[str, str]:
    try:
        found = _context.decode(context)
    except msgspec.DecodeError as exc:
        text, at, path = str(exc).partition(" - at `$")
        text = f"{text} - at `params.context{path if at else '`'}"
        raise ProtocolError(codes.INVALID_PARAMS, f"Invalid params: {text}") from None
    return given(found.arguments) if isinstance(found, CompleteContext) else {}


def complete(call: Call, message: Message) -> Body | None:
    """completion/complete."""
    params: CompleteParams = params_of(message, _params)
    service = call.connection.service
    found: Completable | None
    if isinstance(params.ref, PromptReference):
        found = service.prompts.get(params.ref.name)
        if found is None or service.visibility.hides("prompts", found.key, found, call):
            raise ProtocolError(
                codes.INVALID_PARAMS, f"Unknown prompt: {shortened(params.ref.name)}"
            )
    else:
        uri = params.ref.uri
        found = service.resources.find_template(uri, call)
        if found is None:
            raise ProtocolError(
                codes.INVALID_PARAMS, f"Unknown resource template: {shortened(uri)}"
            )
    if found.scopes is not None:
        check_scopes(call, found.scopes, f"the completion of {shortened(found.key)}")
    return found.answer(call, message, params)


_params = msgspec.json.Decoder(CompleteParams)
_context = msgspec.json.Decoder(CompleteContext | tuple[()] | None)

"""A prompt: its entry in prompts/list, its arguments, its messages (server/prompts). Loaded by the
first `Server.add_prompt`.

The return values of a function, and the messages that they become:

================================  =============================================================
value                             messages
================================  =============================================================
``str``, a content block          one of the user
`PromptMessage`                   as it is; with a list of contents, one for each
a mapping with ``role`` and       the same
``content``
a list or tuple                   each item by these rules
`PromptResult`                    its ``messages`` by these rules, with description and ``_meta``
`GetPromptResult`                 the same, as a client got it
anything else                     one of the user: its JSON as text
================================  =============================================================

Content that the client's revision does not have (audio before 2025-03-26, resource links before
2025-06-18) becomes a text that says what it was; members that it does not have are left out
(`wirespeed.protocol.revisions`).

Arguments are strings on the wire. Arguments of other types are decoded: numbers,
``true``, members of an `Enum` or ``Literal``, dates; lists, dicts and structs from their JSON.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.blocks import Block, ContentBlock, Icon
from wirespeed.protocol.messages import GetPromptParams, given
from wirespeed.protocol.meta import check_meta, passed_on
from wirespeed.protocol.results import WHOLE, GetPromptResult, PromptMessage
from wirespeed.protocol.revisions import LATEST_MODERN
from wirespeed.schema.from_strings import ArgumentError, TextSlot, decode_strings, slots_of
from wirespeed.server.catalog import PromptArgumentEntry, PromptEntry, Registrar
from wirespeed.server.completion import Completable
from wirespeed.server.permissions import check_scopes
from wirespeed.server.requests.call import context_class
from wirespeed.server.requests.operation import (
    HandlerContext,
    LimitOptions,
    call_from,
    cursor_of,
    invoke,
    make_feature,
    params_of,
    unknown,
)
from wirespeed.server.tools.results import ResultError, as_block, to_json
from wirespeed.server.tools.signature import ToolSpec, inspect_tool

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.protocol.revisions import Revision
    from wirespeed.server.requests.call import Call
    from wirespeed.server.requests.reply import Body


class PromptOptions(LimitOptions, total=False):
    """The options of `Server.prompt`; `Server.add_prompt` describes them."""

    name: str | None
    title: str | None
    description: str | None
    icons: Iterable[Icon] | None
    meta: Mapping[str, Any] | None
    scopes: Iterable[str]
    tags: Iterable[str]


class PromptResult(msgspec.Struct, kw_only=True):
    """The whole result of a prompt, for full control.

    *messages* is anything that a prompt may return. *description* replaces the prompt's own;
    *meta* is the result's ``_meta``.
    """

    messages: Any
    description: str | None = None
    meta: dict[str, Any] | None = None


class _Message(msgspec.Struct):
    role: str
    content: ContentBlock


class Prompt(Completable):
    """A prompt; its `key` is its name. `wirespeed.Server` makes them.

    Attributes:
        entry: Its entry in prompts/list.
    """

    __slots__ = ("_feature", "_list", "_spec", "entry")

    def __init__(
        self,
        entry: PromptEntry,
        spec: ToolSpec,
        slots: list[TextSlot],
        function: Callable[..., Any],
        service: "Registrar",
        options: PromptOptions,
    ) -> None:
        super().__init__(
            entry.name, function, (slot.name for slot in slots), options.get("scopes", ())
        )
        self.entry = entry
        self._list = slots
        self._spec = spec
        self._feature = make_feature(spec, "prompt", self._encode, service, options)

    def __repr__(self) -> str:
        return f"<Prompt {self.key!r}>"

    def get(self, call: "Call", message: "Message", arguments: Mapping[str, str]) -> None:
        """Begin the call that answers. ProtocolError -32602: the arguments do not fit."""
        values = self._decode(arguments)
        call.begin(self._feature, message)
        call.start(invoke(self._feature, self._spec, values, call.context))

    async def fetch(self, context: HandlerContext, arguments: Mapping[str, Any]) -> GetPromptResult:
        """See `Context.get_prompt`."""
        texts = {
            name: value if isinstance(value, str) else to_json(value).decode()
            for name, value in arguments.items()
        }
        values = self._decode(texts)
        value = await call_from(context, self._feature, self._spec, values)
        messages, description, meta = self._parts(value, LATEST_MODERN)
        told = [PromptMessage(message.role, message.content) for message in messages]  # type: ignore[arg-type]
        return GetPromptResult(told, description, meta)

    def _decode(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        try:
            return decode_strings(self._list, arguments)
        except ArgumentError as exc:
            raise ProtocolError(codes.INVALID_PARAMS, f"Prompt {self.key}: {exc}") from None

    def _encode(self, value: Any, revision: "Revision") -> "Body":
        messages, description, meta = self._parts(value, revision.version)
        body = b'{"messages":%b}' % to_json(messages)
        if description is not None:
            body = b'{"description":%b,%b' % (to_json(description), body[1:])
        return body if meta is None else (body, to_json(meta))

    def _parts(
        self, value: Any, version: str
    ) -> tuple[list[_Message], str | None, dict[str, Any] | None]:
        """The messages, the description and the ``_meta`` of a result."""
        description, meta = self.entry.description, None
        if isinstance(value, (PromptResult, GetPromptResult)):
            if value.description is not None:
                description = value.description
            meta = value.meta if isinstance(value, PromptResult) else passed_on(value.meta)
            value = value.messages
        if value is None:
            raise ResultError(f"prompt {self.key!r} returned nothing")
        return list(_messages(value, version)), description, meta


def _messages(value: Any, version: str) -> Iterator[_Message]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _one(item, version)
    else:
        yield from _one(value, version)


def _one(value: Any, version: str) -> Iterator[_Message]:
    if isinstance(value, Mapping) and value.keys() == {"role", "content"}:
        try:
            value = PromptMessage(value["role"], value["content"])
        except ValueError as exc:
            raise ResultError(f"a message of the prompt: {exc}") from None
    if isinstance(value, WHOLE):
        raise ResultError(f"{type(value).__name__} is not what a prompt returns")
    if not isinstance(value, PromptMessage):
        yield _Message("user", as_block(value, version))
        return
    contents = value.content if isinstance(value.content, (list, tuple)) else (value.content,)
    for content in contents:
        if isinstance(content, Mapping) and "type" in content:
            try:
                content = msgspec.convert(content, Block)
            except msgspec.ValidationError as exc:
                raise ResultError(f"content of a message of the prompt: {exc}") from None
        yield _Message(value.role, as_block(content, version))


# -- registration ---------------------------------------------------------------------------------


def make_prompt(
    service: "Registrar", function: Callable[..., Any], options: PromptOptions
) -> Prompt:
    """Make a prompt; `Server.add_prompt` describes the options and the errors."""
    spec = inspect_tool(
        function,
        name=options.get("name"),
        title=options.get("title"),
        description=options.get("description"),
        context_class=context_class(),
        kind="prompt",
        dependencies=service.injecting(),
        threads=service.threads,
    )
    slots = slots_of(spec)
    icons = options.get("icons")
    entry = PromptEntry(
        name=spec.name,
        title=spec.title,
        description=spec.description,
        arguments=[_argument(slot) for slot in slots] or None,
        icons=None if icons is None else list(icons),
        meta=check_meta(options.get("meta")),
    )
    return Prompt(entry, spec, slots, function, service, options)


def _argument(slot: TextSlot) -> PromptArgumentEntry:
    description = slot.schema.get("description")
    if slot.takes_text:
        hint = ""
    elif slot.is_json:
        hint = f"JSON: {slot.shown}"
    else:
        hint = slot.shown
    if hint:  # a prompt has no schema: words describe what an argument looks like
        description = f"{description} ({hint})" if description else hint
    return PromptArgumentEntry(
        slot.name, slot.schema.get("title"), description, slot.default is None
    )


# -- requests -------------------------------------------------------------------------------------


def list_prompts(call: "Call", message: "Message") -> "Body":
    """prompts/list: pre-encoded pages."""
    service = call.connection.service
    shows = service.visibility.of("prompts", call)
    return service.prompts.page(call.revision, cursor_of(message), shows)


def get(call: "Call", message: "Message") -> None:
    """prompts/get."""
    params: GetPromptParams = params_of(message, _get)
    service = call.connection.service
    prompts, shows = service.prompts, service.visibility.of("prompts", call)
    prompt = prompts.get(params.name)
    if prompt is None or (shows is not None and not shows(prompt.key, prompt.entry)):
        raise unknown("prompt", params.name, prompts.items if shows is None else ())
    if prompt.scopes is not None:
        check_scopes(call, prompt.scopes, f"the prompt {prompt.key}")
    prompt.get(call, message, given(params.arguments))


_get = msgspec.json.Decoder(GetPromptParams)


set_public_home(globals())

"""Extensions of MCP, for clients that declare them, too.

2026-07-28 basic/index and docs/extensions/overview: both sides name their extensions, with
settings, under ``capabilities.extensions``; the client does so on every request. A request of an
extension that the client did not declare is answered with -32021, unless the extension is not
``required``; a request of one that the server does not have with -32601. The revisions before have
no extensions.
"""

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.meta import LABEL, check_json
from wirespeed.protocol.revisions import MODERN_VERSIONS, REVISIONS, Revision
from wirespeed.server.requests.call import Feature, context_class
from wirespeed.server.requests.reply import COMPLETE, Body
from wirespeed.transport.loop import is_coroutine_function

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.discovery import ServerDiscovery
    from wirespeed.server.requests.call import Call
    from wirespeed.server.requests.operation import Handler, HandlerContext
    from wirespeed.server.subscriptions import ListenStream

_NAME = re.compile(rf"{LABEL}(?:\.{LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder().encode
_params = msgspec.json.Decoder(dict[str, Any]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ExtensionResult(msgspec.Struct):
    """A result with a ``resultType`` of an extension; ``members`` is what else the object has."""

    result_type: str
    members: Mapping[str, Any] = {}


class Listening(Protocol):
    """The part of an extension in subscriptions/listen: a member of ``notifications``."""

    def honoured(self, message: "Message", value: Any) -> Any:
        """Return the part of the value that is honoured, for the acknowledgement. ProtocolError."""

    def started(self, subscription: "ListenStream") -> None:
        """The subscription was acknowledged; ``subscription.extras`` has what is honoured."""


class Extension:
    """An extension of MCP, to be given to `Server.add_extension`::

        class Weight(msgspec.Struct):
            grams: int

        async def weigh(params: Weight, ctx: Context) -> dict[str, Any]:
            return {"pounds": params.grams / 453.6}

        server.add_extension(Extension("com.example/scales", requests={"scales/weigh": weigh}))

    Args:
        name: Its identifier, ``vendor-prefix/name``, with your own domain in reverse order.
        settings: The settings that the server declares; ``{}`` is "supported".
        requests: Methods that a client may call, and the functions that serve them. A function
            gets the params in the type of its first parameter (a msgspec struct, or a dict; without
            ``_meta``), and a `Context` where a second parameter is annotated so; it returns a
            mapping or a struct, or an `ExtensionResult`. A plain function runs in a worker thread.
        notifications: Methods that a client may notify the server by, and functions that get the
            params of each, as a dict, on the loop's thread. Notifications carry no capabilities,
            so nothing is checked; what a function raises is logged.
        result_types: Values of ``resultType`` that its results may have besides ``"complete"``.
        listening: Members that it adds to ``notifications`` of subscriptions/listen.
        required: Whether a client must declare the extension to call its methods. With False every
            modern client may call them; `settings_of` is None for those that did not declare it,
            and these know none of its result types.

    ValueError: the name is not valid, or a method is one of MCP's own.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        *,
        requests: Mapping[str, Callable[..., Any]] | None = None,
        notifications: Mapping[str, Callable[[dict[str, Any]], object]] | None = None,
        result_types: Iterable[str] = (),
        listening: Mapping[str, Listening] | None = None,
        required: bool = True,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an extension: vendor-prefix/name")
        self.name = name
        self.required = required
        self.settings: dict[str, Any] = dict(settings or {})
        check_json(f"extension {name}", {"settings": self.settings})
        self.result_types = frozenset(result_types)
        if self.result_types & {"complete", "input_required"}:
            raise ValueError(f"extension {name}: MCP itself has these result types")
        self.notifications = dict(notifications or {})
        self.listening = dict(listening or {})
        own = set[str]().union(*(REVISIONS[version].requests for version in MODERN_VERSIONS))
        self.handlers: dict[str, Handler] = {}
        for method, function in (requests or {}).items():
            if method in own:
                raise ValueError(f"extension {name}: {method} is a method of MCP itself")
            self.handlers[method] = self._handler(method, function)

    def __repr__(self) -> str:
        return f"<Extension {self.name}>"

    # -- what the client declared ----------------------------------------------------------------

    def settings_of(self, context: "HandlerContext") -> dict[str, Any] | None:
        """The client's settings for this extension, from this request; None if the client did not
        declare it."""
        declared = context.client_capabilities.get("extensions")
        settings = declared.get(self.name) if isinstance(declared, dict) else None
        return settings if isinstance(settings, dict) else None

    def require(self, message: "Message") -> None:
        """ProtocolError -32021 unless the request declares this extension."""
        if not declares(message, self.name):
            raise missing(self.name)

    # -- serving ---------------------------------------------------------------------------------

    def _handler(self, method: str, function: Callable[..., Any]) -> "Handler":
        params_type, wants_context = _signature(method, function)
        decoder = msgspec.json.Decoder(params_type)
        feature = Feature(
            method, "request", function, encode=self._encode_result, wants_context=wants_context
        )
        blocking = None if is_coroutine_function(function) else function
        return _Serve(self, feature, decoder, blocking)

    def _encode_result(self, value: Any, revision: Revision) -> Body:
        result_type = None
        if isinstance(value, ExtensionResult):
            result_type, value = value.result_type, value.members
            if result_type not in self.result_types:
                raise ValueError(f"extension {self.name} has no result type {result_type!r}")
        text = _encode({} if value is None else value)
        if not text.startswith(b"{"):
            raise TypeError(f"the result must be an object, not {type(value).__name__}")
        if text.find(b"null") >= 0:  # `in` takes twice as long
            from wirespeed.schema.json_schema import nonfinite_in

            if found := nonfinite_in(value):
                raise ValueError(f"the result holds {found}: JSON has no NaN and no Infinity")
        meta = b"{}"
        if b'"_meta"' in text or b'"resultType"' in text:  # perhaps deeper inside
            members = _members(text)
            meta = bytes(members.pop("_meta", meta)).strip()
            if not meta.startswith(b"{") or "resultType" in members:
                raise TypeError("_meta must be an object, and resultType is an ExtensionResult's")
            text = _encode(members)
        return text, meta, COMPLETE if result_type is None else _encode(result_type)


class _Serve:
    """The handler of one method of an extension."""

    def __init__(
        self,
        extension: Extension,
        feature: Feature,
        decoder: msgspec.json.Decoder[Any],
        blocking: Callable[..., Any] | None,
    ) -> None:
        self._extension = extension
        self._feature = feature
        self._decoder = decoder
        self._blocking = blocking

    def __call__(self, call: "Call", message: "Message") -> None:
        from wirespeed.server.requests.operation import params_of

        if self._extension.required:
            self._extension.require(message)
        params = params_of(message, self._decoder)
        if isinstance(params, dict):
            params.pop("_meta", None)
        call.begin(self._feature, message)
        values = [params, call.context] if self._feature.wants_context else [params]
        if self._blocking is None:
            call.start(self._feature.invoke(values))
        else:
            threads = call.connection.service.threads
            call.start(threads.in_thread(self._blocking, values, None))


def _signature(method: str, function: Callable[..., Any]) -> tuple[Any, bool]:
    """The type of a function's params, and whether it takes a context. TypeError."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) not in (1, 2):
        raise TypeError(f"{method}: its function takes the params, and perhaps a Context")
    hints = get_type_hints(function if inspect.isroutine(function) else type(function).__call__)
    wants_context = len(parameters) == 2
    if wants_context and hints.get(parameters[1].name, parameters) is not context_class():
        raise TypeError(f"{method}: the second parameter of its function must be a Context")
    return hints.get(parameters[0].name, dict[str, Any]), wants_context


class _Capabilities(msgspec.Struct):
    extensions: dict[str, msgspec.Raw] | tuple[()] | None = None


_capabilities = msgspec.json.Decoder(_Capabilities).decode


def declares(message: "Message", name: str) -> bool:
    """Whether a modern request declares an extension. ProtocolError -32602: its capabilities are
    malformed."""
    lease = message.lease("params._meta.io.modelcontextprotocol/clientCapabilities")
    try:
        extensions = None if lease is None else _capabilities(lease).extensions
    except msgspec.DecodeError as exc:
        raise ProtocolError(
            codes.INVALID_PARAMS, f"Invalid io.modelcontextprotocol/clientCapabilities: {exc}"
        ) from None
    settings = bytes(dict(extensions or ()).get(name, b""))
    if settings.startswith(b"["):
        return not msgspec.json.decode(settings)
    return settings.startswith(b"{")


def missing(name: str) -> ProtocolError:
    """-32021: the client did not declare the extension."""
    return ProtocolError(
        codes.MISSING_CLIENT_CAPABILITY,
        f"Missing required client capability: the extension {name}",
        {"requiredCapabilities": {"extensions": {name: {}}}},
    )


class ExtensionCatalog:
    """The extensions of a server.

    Attributes:
        by_name: The extensions.
        handlers: What serves their requests, by method; for modern clients.
        heard: What gets their notifications, by method.
        listening: What they add to subscriptions, by member of ``notifications``.
    """

    def __init__(self, discovery: "ServerDiscovery") -> None:
        self._discovery = discovery
        self.by_name: dict[str, Extension] = {}
        self.handlers: dict[str, Handler] = {}
        self.heard: dict[str, Callable[[dict[str, Any]], object]] = {}
        self.listening: dict[str, Listening] = {}
        discovery.offers["extensions"] = lambda: (
            {name: extension.settings for name, extension in self.by_name.items()} or None
        )

    def add(self, extension: Extension) -> Extension:
        """See `Server.add_extension`."""
        if extension.name in self.by_name:
            raise ValueError(f"there is an extension {extension.name} already")
        for ours, theirs in (
            (self.handlers, extension.handlers),
            (self.heard, extension.notifications),
            (self.listening, extension.listening),
        ):
            if clash := sorted(ours.keys() & theirs.keys()):
                raise ValueError(f"another extension has {', '.join(clash)} already")
        self.by_name[extension.name] = extension
        self.handlers |= extension.handlers
        self.heard |= extension.notifications
        self.listening |= extension.listening
        self._discovery.forget()
        return extension

    def hear(self, message: "Message") -> None:
        """A notification that is not MCP's own: an extension's, or one to ignore."""
        function = self.heard.get(message.method or "")
        if function is None:
            return
        raw = message.params
        try:
            function(_params(b"{}" if raw is None else raw))
        except msgspec.DecodeError as exc:
            logger.warning("a %s of the client is not valid: %s", message.method, exc)
        except Exception:
            logger.exception("the extension's handler of %s failed", message.method)


set_public_home(globals())

"""Extensions of MCP, for clients that declare them, too.

2026-07-28 basic/index and docs/extensions/overview: both sides name their extensions, with
settings, under ``capabilities.extensions``; the client does so on every request. A request of an
extension that the client did not declare is answered with -32021, unless the extension is not
``required``; a request of one that the server does not have with -32601. The revisions before have
no extensions; one that is offered there all the same (``eras``) is declared in ``initialize``, by
the same member, on both sides.

An extension that a side knows in another ``revision`` than the other one (SEP-3392) is off.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_type_hints

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError, StartupError, Unsupported
from wirespeed.protocol import codes
from wirespeed.protocol.extensions import (
    NotificationHook,
    SeenNotification,
    check_code,
    check_name,
    revision_of,
)
from wirespeed.protocol.meta import check_json
from wirespeed.protocol.revisions import (
    META_SUBSCRIPTION_ID,
    MODERN_VERSIONS,
    REVISIONS,
    Revision,
)
from wirespeed.server.requests.call import Feature, context_class
from wirespeed.server.requests.reply import COMPLETE, Body
from wirespeed.transport.loop import is_coroutine_function

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.discovery import ServerDiscovery
    from wirespeed.server.requests.call import Call, Serving
    from wirespeed.server.requests.launchers import Threads
    from wirespeed.server.requests.operation import Handler, HandlerContext
    from wirespeed.server.subscriptions import ListenStream

EraName: TypeAlias = Literal["legacy", "modern"]

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder().encode
_params = msgspec.json.Decoder(dict[str, Any]).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ExtensionClient(Protocol):
    """A client (`wirespeed.Client`), as an extension sees it."""

    @property
    def server_capabilities(self) -> dict[str, Any]: ...


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
        stays_open: Those of its requests that stay open, as ``subscriptions/listen`` does. They do
            not count against the limits of requests at once; 100 of a connection may be open. What
            `notify` says about them carries their id in ``_meta``, as
            ``io.modelcontextprotocol/subscriptionId``. Their functions are ``async`` and take a
            `Context`. A server that shuts down cancels them; what a function returns then is the
            answer.
        result_types: Values of ``resultType`` that its results may have besides ``"complete"``.
        listening: Members that it adds to ``notifications`` of subscriptions/listen.
        required: Whether a client must declare the extension to call its methods. With False every
            modern client may call them; `settings_of` is None for those that did not declare it,
            and these know none of its result types.
        revision: The revision that this is of an extension in beta (SEP-3392). ``settings`` then
            name it. None stands for the first revision, which has no name.
        understands: Further revisions that the other side may have; None stands for the first.
        depends: The identifiers of other extensions that this one needs on its own side. Without
            one of them a server does not start, and a client is not made.
        eras: The eras in which it is offered: ``"modern"`` (2026-07-28 on), ``"legacy"``, or both.
        codes: The error codes that it invents, outside -32768 to -32000. Its functions may raise a
            `ProtocolError` with these and with codes that JSON-RPC and MCP define; another code of
            that range is a fault, which is logged and answered with -32603.
        middleware: As of `Server.add_middleware`.
        ask_middleware: As of `Server.add_ask_middleware`.
        client_middleware: As ``Client(middleware=…)``.
        client_requests: Methods that a legacy server may call on a client with this extension, and
            functions that get the params as a dict and return the result as a mapping.
        client_notifications: Methods that a server may notify such a client by, and functions that
            get the params of each as a dict.
        on_notification: Called with each `SeenNotification` of the server, or of the client: those
            that it sends, progress and messages of a stream among them, and those that it receives.

    A server takes it by `Server.add_extension`, a client by ``Client(extensions=[…])``. Hooks of
    several extensions run in the order in which these were added, the first one outermost, and in
    one line with other middleware that was added to the server; a client has those of its
    extensions behind its own.

    ValueError: the name is not valid, a method is one of MCP's own, or a code is reserved.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        *,
        requests: Mapping[str, Callable[..., Any]] | None = None,
        notifications: Mapping[str, Callable[[dict[str, Any]], object]] | None = None,
        stays_open: Iterable[str] = (),
        result_types: Iterable[str] = (),
        listening: Mapping[str, Listening] | None = None,
        required: bool = True,
        revision: str | None = None,
        understands: Iterable[str | None] = (),
        depends: Iterable[str] = (),
        eras: Iterable[EraName] = ("modern",),
        codes: Iterable[int] = (),
        middleware: Callable[[Any, Any], Awaitable[Any]] | None = None,
        ask_middleware: Callable[[Any, Any], Awaitable[Any]] | None = None,
        client_middleware: Callable[[Any, Any], Awaitable[Any]] | None = None,
        client_requests: Mapping[str, Callable[[dict[str, Any]], Any]] | None = None,
        client_notifications: Mapping[str, Callable[[dict[str, Any]], object]] | None = None,
        on_notification: NotificationHook | None = None,
    ) -> None:
        check_name(name)
        self.name = name
        self.required = required
        self.settings: dict[str, Any] = dict(settings or {})
        if revision is not None:
            self.settings["revision"] = revision
        self.revision = revision_of(self.settings)
        self.revisions = frozenset({self.revision, *understands})
        check_json(f"extension {name}", {"settings": self.settings})
        self.depends = tuple(depends)
        self.eras = frozenset(eras)
        if not self.eras or not self.eras <= {"legacy", "modern"}:
            raise ValueError(f'extension {name}: eras are "legacy" and "modern"')
        self.codes = frozenset(codes)
        for code in self.codes:
            check_code(name, code)
        self.result_types = frozenset(result_types)
        if self.result_types & {"complete", "input_required"}:
            raise ValueError(f"extension {name}: MCP itself has these result types")
        self.notifications = dict(notifications or {})
        self.listening = dict(listening or {})
        self.middleware = middleware
        self.ask_middleware = ask_middleware
        self.client_middleware = client_middleware
        self.client_requests = dict(client_requests or {})
        self.client_notifications = dict(client_notifications or {})
        self.on_notification = on_notification
        self._told: set[str] = set()  # the unknown revisions that were logged
        self.stays_open = frozenset(stays_open)
        if lacks := sorted(self.stays_open.difference(requests or ())):
            raise ValueError(f"extension {name} has no request {', '.join(lacks)} to stay open")
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
        declare it, or in a revision that this side does not work with."""
        settings = _settings_in(context.client_capabilities, self.name)
        return settings if settings is not None and self.knows(settings, "the client") else None

    def knows(self, settings: Mapping[str, Any], whose: str) -> bool:
        """Whether this side works with the revision in the other side's settings. An unknown
        revision is logged once."""
        revision = revision_of(settings)
        if revision in self.revisions:
            return True
        word = "the first" if revision is None else revision[:100]
        if word not in self._told and len(self._told) < 100:
            self._told.add(word)
            logger.warning(
                "the extension %s is off: %s has its revision %s", self.name, whose, word
            )
        return False

    def settings_at(self, client: "ExtensionClient") -> dict[str, Any] | None:
        """The settings of a client's server for this extension; None if the server does not have
        it, or in a revision that this side does not work with."""
        settings = _settings_in(client.server_capabilities, self.name)
        return settings if settings is not None and self.knows(settings, "the server") else None

    def require(self, message: "Message") -> None:
        """ProtocolError -32021 unless the modern request declares this extension."""
        self._require(_declared_settings(message, self.name))

    def check_call(self, call: "Call", message: "Message") -> None:
        """ProtocolError -32021: the client cannot call the methods of the extension."""
        if call.revision.modern:
            settings = _declared_settings(message, self.name)
        else:
            settings = _settings_in(call.connection.state.capabilities, self.name)
        if self.required or settings is not None:
            self._require(settings)

    def _require(self, settings: dict[str, Any] | None) -> None:
        if settings is None or not self.knows(settings, "the client"):
            raise missing(self.name, self.revision)

    # -- to the client ---------------------------------------------------------------------------

    def notify(
        self, context: "HandlerContext", method: str, params: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification about the request of a handler, on the thread of the loop. It does
        nothing once the request has ended. About a request that stays open it carries the id."""
        if context._call.operation.name in self.stays_open:
            meta = {**((params or {}).get("_meta") or {}), META_SUBSCRIPTION_ID: context.request_id}
            params = {**(params or {}), "_meta": meta}
        context._call.notify(method, None if params is None else _object(method, params))

    async def ask(
        self,
        context: "HandlerContext",
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Send a request to the client, and wait for its result. Unsupported: a modern server sends
        no requests. RemoteError: the client refuses."""
        call = context._call
        if call.revision.modern:
            raise Unsupported(f"{call.revision.version} has no requests of servers")
        body = None if params is None else _object(method, params)
        return _params(await call.connection.ask(method, body, timeout=timeout, about=call.ref))

    # -- serving ---------------------------------------------------------------------------------

    def _handler(self, method: str, function: Callable[..., Any]) -> "Handler":
        params_type, wants_context = _signature(method, function)
        decoder = msgspec.json.Decoder(params_type)
        feature = Feature(
            method, "request", function, encode=self._encode_result, wants_context=wants_context
        )
        blocking = None if is_coroutine_function(function) else function
        if method in self.stays_open and (blocking is not None or not wants_context):
            raise TypeError(
                f"{method}: the function of a request that stays open is async, and takes a Context"
            )
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
        kind = COMPLETE if result_type is None else _encode(result_type)
        if revision.modern:
            return text, meta, kind
        if result_type is not None:  # an ordinary member there
            text = _encode({**_members(text), "resultType": msgspec.Raw(kind)})
        return text if meta == b"{}" else (text, meta)


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

        self._extension.check_call(call, message)
        params = params_of(message, self._decoder)
        if isinstance(params, dict):
            params.pop("_meta", None)
        opens = self._feature.name in self._extension.stays_open
        if opens:
            call.connection.changes.check_open()
        call.begin(self._feature, message)
        values = [params, call.context] if self._feature.wants_context else [params]
        work = self._run(values, call.connection.service.threads)
        call.start(call.connection.changes.keep_open(call, work) if opens else work)

    async def _run(self, values: list[Any], threads: "Threads") -> Any:
        """Call the function. Its errors have codes that the extension may use."""
        try:
            if self._blocking is None:
                return await self._feature.invoke(values)
            return await threads.in_thread(self._blocking, values, None)
        except ProtocolError as exc:
            if exc.code not in self._extension.codes:
                try:
                    check_code(self._extension.name, exc.code, known=True)
                except ValueError as fault:
                    raise fault from exc
            raise


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


def _declared(message: "Message", name: str) -> bytes:
    """The JSON text of the settings of an extension that a modern request declares; empty if it
    does not. ProtocolError -32602: the capabilities are malformed."""
    lease = message.lease("params._meta.io.modelcontextprotocol/clientCapabilities")
    try:
        extensions = None if lease is None else _capabilities(lease).extensions
    except msgspec.DecodeError as exc:
        raise ProtocolError(
            codes.INVALID_PARAMS, f"Invalid io.modelcontextprotocol/clientCapabilities: {exc}"
        ) from None
    settings = bytes(dict(extensions or ()).get(name, b""))
    if settings.startswith(b"["):  # an object without members, of some encoders
        return b"" if msgspec.json.decode(settings) else b"{}"
    return settings if settings.startswith(b"{") else b""


def declares(message: "Message", name: str) -> bool:
    """Whether a modern request declares an extension. ProtocolError -32602: its capabilities are
    malformed."""
    return bool(_declared(message, name))


def _declared_settings(message: "Message", name: str) -> dict[str, Any] | None:
    text = _declared(message, name)
    return _params(text) if text else None


def _settings_in(capabilities: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    declared = capabilities.get("extensions")
    settings = declared.get(name) if isinstance(declared, dict) else None
    return settings if isinstance(settings, dict) else None


def _object(method: str, params: Mapping[str, Any]) -> bytes:
    check_json(method, {"params": params})
    return _encode(dict(params))


def missing(name: str, revision: str | None = None) -> ProtocolError:
    """The error -32021: the client did not declare the extension, or declared another revision."""
    settings = {} if revision is None else {"revision": revision}
    return ProtocolError(
        codes.MISSING_CLIENT_CAPABILITY,
        f"Missing required client capability: the extension {name}",
        {"requiredCapabilities": {"extensions": {name: settings}}},
    )


class Hooked(Protocol):
    """The middleware of a server (`wirespeed.server.middleware.stack.MiddlewareStack`)."""

    watch: Any

    def add(self, middleware: Any) -> Any:
        """Put a function around every request of a client."""

    def add_ask(self, middleware: Any) -> Any:
        """Put a function around every request to a client."""


class ExtensionCatalog:
    """The extensions of a server.

    Attributes:
        by_name: The extensions.
        handlers: The handlers of their requests, by method; for modern clients.
        legacy_handlers: The same for clients of legacy revisions.
        heard: The handlers of their notifications, by method.
        listening: What they add to subscriptions, by member of ``notifications``.
    """

    def __init__(self, discovery: "ServerDiscovery", middleware: Hooked) -> None:
        self._discovery = discovery
        self._middleware = middleware
        self._hooks: tuple[NotificationHook, ...] = ()
        self.by_name: dict[str, Extension] = {}
        self.handlers: dict[str, Handler] = {}
        self.legacy_handlers: dict[str, Handler] = {}
        self.heard: dict[str, Callable[[dict[str, Any]], object]] = {}
        self.listening: dict[str, Listening] = {}
        discovery.offers["extensions"] = lambda: self._settings("modern")
        discovery.legacy_extensions = lambda: self._settings("legacy")

    def _settings(self, era: EraName) -> dict[str, Any] | None:
        return {
            name: extension.settings
            for name, extension in self.by_name.items()
            if era in extension.eras
        } or None

    def add(self, extension: Extension) -> Extension:
        """See `Server.add_extension`."""
        if extension.name in self.by_name:
            raise ValueError(f"there is an extension {extension.name} already")
        for ours, theirs in (
            ({**self.legacy_handlers, **self.handlers}, extension.handlers),
            (self.heard, extension.notifications),
            (self.listening, extension.listening),
        ):
            if clash := sorted(ours.keys() & theirs.keys()):
                raise ValueError(f"another extension has {', '.join(clash)} already")
        self.by_name[extension.name] = extension
        if "modern" in extension.eras:
            self.handlers |= extension.handlers
            self.listening |= extension.listening
        if "legacy" in extension.eras:
            self.legacy_handlers |= extension.handlers
        self.heard |= extension.notifications
        if extension.middleware is not None:
            self._middleware.add(extension.middleware)
        if extension.ask_middleware is not None:
            self._middleware.add_ask(extension.ask_middleware)
        if extension.on_notification is not None:
            self._hooks = (*self._hooks, extension.on_notification)
            self._middleware.watch = self._watch
        self._discovery.forget()
        return extension

    def drop_handler(self, method: str) -> None:
        """Stop serving a method of an extension: a part of it that is not declared."""
        self.handlers.pop(method, None)
        self.legacy_handlers.pop(method, None)

    def check(self) -> None:
        """Check that no dependency is missing. StartupError: an extension depends on one that the
        server does not have."""
        for extension in self.by_name.values():
            lacks = [name for name in extension.depends if name not in self.by_name]
            if lacks:
                raise StartupError(
                    f"the extension {extension.name} depends on {', '.join(lacks)}, which the "
                    "server does not have"
                )

    def _watch(self, connection: "Serving", sent: bool, method: str, params: bytes | None) -> None:
        """Show a notification to the hooks."""
        seen = SeenNotification(sent, method, params, connection.serial)
        for hook in self._hooks:
            try:
                hook(seen)
            except Exception:
                logger.exception("the hook of an extension failed at %.100s", method)

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

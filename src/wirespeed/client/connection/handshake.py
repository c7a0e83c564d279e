"""The handshakes of both eras: the era of a server (`agree`), and the revision that it and the
client speak.

Source: basic/versioning and basic/transports/stdio ("Backward Compatibility") of 2026-07-28;
basic/lifecycle of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from wirespeed.client.http.answers import NO_VERDICT
from wirespeed.client.results.decode import complete
from wirespeed.errors import (
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    TransportError,
    VersionMismatch,
)
from wirespeed.protocol import codes
from wirespeed.protocol.messages import DiscoverResult, InitializeResult
from wirespeed.protocol.meta import TASKS_EXTENSION
from wirespeed.protocol.revisions import (
    ANSWERED,
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
    META_SERVER_INFO,
    MODERN_VERSIONS,
    REVISIONS,
    Revision,
    declared,
    understood,
)

if TYPE_CHECKING:
    from wirespeed.client.answering.answerer import Answering
    from wirespeed.client.connection.channels import Channel
    from wirespeed.client.connection.connection import ClientConnection

# Seconds after which `first_answer` sends ``initialize`` as well.
SILENCE = 1.0
# ``_meta`` of that ``initialize``. Legacy servers ignore it; for the others it says that a modern
# client sends a method which they do not have.
ENVELOPE: dict[str, Any] = {META_PROTOCOL_VERSION: LATEST_MODERN, META_CLIENT_CAPABILITIES: {}}

Era: TypeAlias = Literal["auto", "legacy", "modern"]

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
_initialized = msgspec.json.Decoder(InitializeResult).decode


class _Discovered(DiscoverResult):
    resultType: str | None = None  # noqa: N815


_discovery = msgspec.json.Decoder(_Discovered).decode


def _discovered(data: Any) -> DiscoverResult:
    result = _discovery(data)
    complete(result.resultType or "complete")
    return result


class ModernServer(VersionMismatch):
    """A server refuses ``initialize`` with an error of modern servers only."""


class FallBack(Exception):
    """The probe found a legacy server."""


class Verdict(NamedTuple):
    """The era of a server, as far as the probe shows it.

    Attributes:
        is_modern: Whether it is of the era of 2026-07-28.
        answer: What it answered to ``server/discover`` or, of a legacy era, to ``initialize``; None
            if a handshake has to follow.
        greeting: What a server of the modern era has answered to ``initialize``, if it has accepted
            that, too: it may refuse modern requests on this connection.
    """

    is_modern: bool
    answer: Any = None
    greeting: Any = None

    @property
    def is_mixed(self) -> bool:
        """Whether the server has said that it is of both eras."""
        return self.greeting is not None


class Opening(Protocol):
    """A link that is being opened, as its handshake sees it."""

    identity: Identity

    @property
    def connection(self) -> ClientConnection:
        """The connection: another one after `start_again`."""

    @property
    def channel(self) -> Channel:
        """The channel of the connection."""

    @property
    def left(self) -> float:
        """The seconds of the handshake's time that are left."""

    @property
    def over_http(self) -> bool:
        """Whether the server answers each request, at least with a status."""

    async def negotiate(self, negotiation: Coroutine[Any, Any, T]) -> T:
        """Run a step of the handshake. Its error says why the link was lost."""

    async def start_again(self) -> None:
        """Open another link to the server."""


async def agree(opening: Opening, era: Era, found: Era | None, probe_timeout: float) -> Agreement:
    """Find out the era of a server (2026-07-28 basic/transports/stdio, "Backward Compatibility"),
    and agree with it on a revision.

    ``era``: The option of the client. ``found``: The era that an earlier link has shown.
    ``probe_timeout``: Seconds after which a server that does not answer counts as a legacy one.
    """
    probed = opening.channel
    if era == "legacy":
        return await _initialize(opening)
    if era == "modern":
        return await _discover(opening, opening.left, fall_back=False)
    if found == "modern":
        with contextlib.suppress(FallBack):
            return await _discover(opening, opening.left, fall_back=True)
    elif found is None:
        try:
            agreement = await _probe(opening, min(probe_timeout, opening.left))
        except TransportError:
            if not probed.probe_was_read:
                raise
            # the era is still unknown: some legacy servers exit on an unknown first message
            await opening.start_again()
        else:
            if agreement is not None:
                return agreement
    try:
        return await _initialize(opening)
    except ModernServer:
        # the server answered the probe too late, or a modern server has replaced a legacy one
        return await _discover(opening, opening.left, fall_back=False)


async def _probe(opening: Opening, timeout: float) -> Agreement | None:
    """Find out the era. None: it is a legacy one, and ``initialize`` has to follow."""
    connection, identity = opening.connection, opening.identity
    probe = modern(connection, identity, timeout, fall_back=True)
    if opening.over_http:
        try:
            return await opening.negotiate(probe)
        except FallBack:
            return None

    async def ask() -> Verdict:
        return await first_answer(
            probe, lambda: initialize(connection, identity, opening.left, as_well=True)
        )

    verdict = await opening.negotiate(ask())
    if verdict.answer is None:
        return None
    if not verdict.is_modern:
        return agreed(connection, identity, verdict.answer)
    if verdict.is_mixed:
        await opening.start_again()
        return await _discover(opening, opening.left, fall_back=False)
    agreement: Agreement = verdict.answer
    return agreement


async def _discover(opening: Opening, timeout: float, *, fall_back: bool) -> Agreement:
    return await opening.negotiate(
        modern(opening.connection, opening.identity, timeout, fall_back=fall_back)
    )


async def _initialize(opening: Opening) -> Agreement:
    return await opening.negotiate(legacy(opening.connection, opening.identity, opening.left))


async def first_answer(
    probe: Coroutine[Any, Any, Any],
    greet: Callable[[], Coroutine[Any, Any, Any]],
    silence: float = SILENCE,
) -> Verdict:
    """Find out the era of a server that may never answer ``server/discover``.

    After ``silence`` seconds ``initialize`` is sent as well. The first answer decides; what is said
    later is dropped. Servers of the modern era refuse this ``initialize``, because it has their
    envelope. So a server that starts slowly is of the era that it is.

    ``probe``: Sends ``server/discover``, and returns its result. It raises `FallBack` for a server
    of a legacy era; what else it raises passes. ``greet``: Sends ``initialize`` with `ENVELOPE`.
    """
    asked = asyncio.ensure_future(probe)
    greeted: asyncio.Future[Any] | None = None

    async def as_well() -> Any:
        # an answer that came before this task began has set the revision of the connection
        return None if asked.done() else await greet()

    try:
        await asyncio.wait((asked,), timeout=silence)
        if not asked.done():
            greeted = asyncio.ensure_future(as_well())
            await asyncio.wait((asked, greeted), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done() and greeted.exception() is None:
                return Verdict(False, greeted.result())
            await asyncio.wait((asked,))
        try:
            answer = asked.result()
        except FallBack:
            if greeted is not None:
                await asyncio.wait((greeted,))
            if greeted is None or isinstance(greeted.exception(), RemoteError):
                return Verdict(False)
            return Verdict(False, greeted.result())
        if greeted is None:
            return Verdict(True, answer)
        await asyncio.wait((greeted,), timeout=silence)
        accepted = greeted.done() and greeted.exception() is None
        return Verdict(True, answer, greeted.result() if accepted else None)
    finally:
        for one in (asked, greeted):
            if one is not None and not one.cancel() and not one.cancelled():
                one.exception()  # for those who do not look at it


class Agreement(msgspec.Struct):
    """The result of a handshake."""

    revision: Revision
    server_info: dict[str, Any] | None
    capabilities: dict[str, Any]
    instructions: str | None


class Identity(msgspec.Struct):
    """The client's ``clientInfo`` and capabilities.

    Attributes:
        info: ``clientInfo``.
        capabilities: Capabilities besides those of the handlers, in the form of the newest
            revision. A capability without its handler is declared to modern servers only: the user
            can answer their questions by `Client.resume`.
        log_level: The least severe level of the log messages that the server sends.
        answering: The handlers for requests of servers, or None.
        extensions: The extensions that legacy servers are told, with their settings.
        requests: The handlers of the requests that these extensions add, by method.
    """

    info: dict[str, Any]
    capabilities: dict[str, Any]
    log_level: str | None = None
    answering: Answering | None = None
    extensions: Mapping[str, Mapping[str, Any]] = {}
    requests: Mapping[str, Callable[[dict[str, Any]], Any]] = {}

    def declared(self, version: str) -> dict[str, Any]:
        """``ClientCapabilities`` for one revision."""
        own = {} if self.answering is None else self.answering.capabilities
        full = dict(own)
        for name, settings in self.capabilities.items():
            if name in own:
                full[name] = own[name] | settings
            elif REVISIONS[version].modern or name not in ANSWERED:
                full[name] = settings
        found = declared(full, version) if full else {}
        if self.extensions and not REVISIONS[version].modern:
            found["extensions"] = dict(self.extensions)
        return found

    def declare(self, connection: ClientConnection, version: str) -> None:
        """Have each request on a modern connection declare the client. Requests about tasks also
        declare their extension."""
        capabilities = self.declared(version)
        extensions = {TASKS_EXTENSION: {}} | capabilities.get("extensions", {})
        connection.use(
            REVISIONS[version],
            self._meta(version, capabilities),
            self._meta(version, capabilities | {"extensions": extensions}),
        )

    def _meta(self, version: str, capabilities: dict[str, Any]) -> bytes:
        """The members that every modern request's ``_meta`` carries, without the braces."""
        members: dict[str, Any] = {
            META_PROTOCOL_VERSION: version,
            META_CLIENT_CAPABILITIES: capabilities,
            META_CLIENT_INFO: self.info,
        }
        if self.log_level is not None:
            members[META_LOG_LEVEL] = self.log_level
        return encode(members)[1:-1]


def is_legacy(exc: BaseException) -> bool:
    """Whether an error in the place of the answer to ``server/discover`` shows a server of a legacy
    era. One that names its versions says more (`supported_by`)."""
    if isinstance(exc, RemoteError):
        return exc.code not in codes.MODERN_ERRORS and exc.code not in codes.UNAVAILABLE
    if isinstance(exc, HttpStatusError):
        return exc.status >= 400 and exc.status not in NO_VERDICT
    return isinstance(exc, TimeoutError | InvalidResponse)


def supported_by(exc: RemoteError) -> list[str]:
    """Return the versions that an error of a server names."""
    data = exc.data if isinstance(exc.data, dict) else {}
    supported = data.get("supported")
    return [v for v in supported if isinstance(v, str)] if isinstance(supported, list) else []


async def modern(
    connection: ClientConnection, identity: Identity, timeout: float, *, fall_back: bool
) -> Agreement:
    """Send server/discover. A probe raises `FallBack` for a legacy server.

    A probe is not cancelled on the wire: a legacy server must not receive a further unknown message
    before ``initialize``. An error without an id can only answer this first request.
    """
    version = LATEST_MODERN
    refused: set[str] = set()
    for _ in range(len(MODERN_VERSIONS) + 1):
        identity.declare(connection, version)
        waiter = connection.request(
            "server/discover", None, _discovered, timeout=timeout, cancellable=not fall_back
        )
        connection.probing = waiter.id
        try:
            result: DiscoverResult = await waiter.future
        except (RemoteError, TimeoutError, InvalidResponse, HttpStatusError) as exc:
            if isinstance(exc, RemoteError) and exc.code == codes.UNSUPPORTED_PROTOCOL_VERSION:
                supported = supported_by(exc)
                other = _newest(supported, MODERN_VERSIONS, exclude=version)
                if other:
                    version = other
                    continue
                if version in supported:
                    if version not in refused:  # the server contradicts itself: one more attempt
                        refused.add(version)
                        continue
                    raise VersionMismatch(
                        f"the server refuses {version}, but lists it as supported", supported
                    ) from exc
                if fall_back and _newest(supported, LEGACY_VERSIONS):
                    raise FallBack from exc
                raise VersionMismatch(_speaks(supported, MODERN_VERSIONS), supported) from exc
            if not is_legacy(exc):
                raise
            if fall_back:
                raise FallBack from exc
            if isinstance(exc, RemoteError):
                raise VersionMismatch(
                    f"the server does not speak {' or '.join(MODERN_VERSIONS)}: "
                    f"it answered server/discover with {exc}",
                    [],
                ) from exc
            raise
        except BaseException:
            if waiter.future.cancelled():
                connection.abandon(waiter)
            raise
        finally:
            connection.probing = 0
        chosen = _newest(result.supportedVersions, MODERN_VERSIONS)
        if not chosen:
            if fall_back:
                raise FallBack
            supported = result.supportedVersions
            raise VersionMismatch(_speaks(supported, MODERN_VERSIONS), supported)
        identity.declare(connection, chosen)
        connection.session.answers_requests = connection.session.batches = False
        info = dict(result.meta or ()).get(META_SERVER_INFO)
        return Agreement(
            REVISIONS[chosen],
            info if isinstance(info, dict) else None,
            understood(result.capabilities),
            result.instructions,
        )
    raise VersionMismatch("the server refuses every version it names", [])


async def legacy(
    connection: ClientConnection, identity: Identity, timeout: float, version: str = LATEST_LEGACY
) -> Agreement:
    """The initialize handshake. It is never cancelled on the wire.

    A server may refuse with an error that names its versions, instead of offering a version
    (2024-11-05 basic/lifecycle, "Error Handling"). The client then sends one more initialize, with
    one of these versions. VersionMismatch: there is no common version. `ModernServer`: the error is
    the one of 2026-07-28 basic/versioning.
    """
    try:
        result = await initialize(connection, identity, timeout, version)
    except RemoteError as exc:
        supported = supported_by(exc)
        if not supported and exc.code != codes.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        text = _speaks(supported, LEGACY_VERSIONS) + " for initialize"
        if not supported or _newest(supported, MODERN_VERSIONS):
            raise ModernServer(text, supported) from exc
        other = _newest(supported, LEGACY_VERSIONS, exclude=version)
        if not other:
            raise VersionMismatch(text, supported) from exc
        result = await initialize(connection, identity, timeout, other)
    return agreed(connection, identity, result)


def agreed(connection: ClientConnection, identity: Identity, result: InitializeResult) -> Agreement:
    """Take the server's answer to ``initialize``. VersionMismatch: there is no common version."""
    if result.protocolVersion not in LEGACY_VERSIONS:
        raise VersionMismatch(
            f"the server wants protocol version {result.protocolVersion!r}; "
            f"this client speaks {', '.join(LEGACY_VERSIONS)}",
            [result.protocolVersion],
        )
    revision = REVISIONS[result.protocolVersion]
    connection.use(revision)
    if identity.answering is not None or identity.requests:
        from wirespeed.client.answering.server_requests import Inbox

        mine = identity.declared(revision.version)
        connection.answerer = Inbox(
            connection, identity.answering, mine, revision.version, identity.requests
        )
    connection.notify("notifications/initialized")
    return Agreement(
        revision, result.serverInfo, understood(result.capabilities), result.instructions
    )


async def initialize(
    connection: ClientConnection,
    identity: Identity,
    timeout: float,
    version: str = LATEST_LEGACY,
    *,
    as_well: bool = False,
) -> InitializeResult:
    """Send ``initialize``. ``as_well``: Beside ``server/discover``, see `first_answer`."""
    connection.use(REVISIONS[version])
    connection.session.batches = True  # servers of 2025-03-26 may answer in a batch
    params: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": identity.declared(version),
        "clientInfo": identity.info,
    }
    if as_well:
        params["_meta"] = {**ENVELOPE, META_CLIENT_INFO: identity.info}
    waiter = connection.request(
        "initialize", encode(params), _initialized, timeout=timeout, cancellable=False
    )
    try:
        result: InitializeResult = await waiter.future
    except asyncio.CancelledError:
        connection.abandon(waiter)
        raise
    return result


def _speaks(supported: list[str], ours: tuple[str, ...]) -> str:
    return (
        f"the server speaks {', '.join(supported) or 'none that it names'}; "
        f"this client {', '.join(ours)}"
    )


def _newest(offered: list[str], ours: tuple[str, ...], exclude: str | None = None) -> str:
    """Return the newest of our versions that the server offers; "" if it offers none of them."""
    return next((v for v in reversed(ours) if v in offered and v != exclude), "")

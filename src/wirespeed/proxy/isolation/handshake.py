"""The proxy's own handshakes with a server that clients share."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.connection.handshake import (
    SILENCE,
    FallBack,
    first_answer,
    is_legacy,
    supported_by,
)
from wirespeed.client.http.answers import Challenged
from wirespeed.errors import (
    HttpStatusError,
    InvalidResponse,
    RemoteError,
    TransportError,
    VersionMismatch,
    WirespeedError,
)
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import (
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_VERSIONS,
    MODERN_VERSIONS,
    REVISIONS,
    understood,
)
from wirespeed.proxy.own_requests import envelope, own_info, pages
from wirespeed.proxy.supervision.supervisor import StartAgain

if TYPE_CHECKING:
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.supervision.resilience import Retries
    from wirespeed.proxy.upstream import Upstream


logger = logging.getLogger("wirespeed.proxy")

# Servers on the SDK for Python write sixty lines to stderr about the question.
_LEGACY = (
    '%s: it is of a legacy era; with "era": "legacy" in its entry it is not asked for the new one, '
    "about which some servers complain on stderr"
)


async def discover(
    upstream: Upstream,
    timeout: float,
    greet: Callable[[], Coroutine[Any, Any, Any]] | None = None,
    silence: float = SILENCE,
) -> tuple[str, ...]:
    """Return the versions that a server names in the modern era; none: it is of a legacy era.

    ``timeout``: Seconds after which a server that does not answer counts as a legacy one. Source:
    basic/transports/stdio of 2026-07-28, "Backward Compatibility". ``greet``: Asks a server that
    was silent for ``silence`` seconds something else as well, as `hello_to` does; an answer to
    ``initialize`` becomes `Upstream.greeting`. TransportError: the connection was lost.
    RemoteError: a modern server refuses.
    """
    upstream.speak(REVISIONS[LATEST_MODERN])
    probe = _versions(upstream, timeout)
    if greet is None or upstream.over_http:
        try:
            return await probe
        except FallBack:
            upstream.speak(None)
            return ()
    verdict = await first_answer(probe, greet, silence)
    if verdict.is_modern:
        found: tuple[str, ...] = verdict.answer
        if verdict.is_mixed:
            upstream.greeted(verdict.greeting)
        return found
    if verdict.answer is not None:
        upstream.greeted(verdict.answer)
    upstream.speak(None)
    return ()


async def hello_to(upstream: Upstream, capabilities: dict[str, Any], info: object = None) -> Any:
    """Send ``initialize`` beside ``server/discover``. ``info``: That of a client, in place of the
    proxy's."""
    params = {**_hello(capabilities, info), "_meta": envelope()}
    return await upstream.ask("initialize", params)


async def ping_or_hello_to(upstream: Upstream, patience: float) -> Any:
    """Send ``ping`` beside ``server/discover`` to a server whose first client will send
    ``initialize``. A server that starts slowly answers it when it is there, with an error if it is
    of 2026-07-28. Only one that answers nothing for ``patience`` seconds gets that of the proxy."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            await upstream.ask("ping", {"_meta": envelope()})
        return None
    return await hello_to(upstream, {})


async def _versions(upstream: Upstream, timeout: float) -> tuple[str, ...]:
    """Return the versions that a server names in the modern era. `FallBack`: it is of another."""
    answer: Any = None
    try:
        async with asyncio.timeout(timeout):
            answer = await upstream.ask("server/discover", {"_meta": envelope()})
        versions = answer.get("supportedVersions") if isinstance(answer, dict) else None
    except RemoteError as exc:
        if exc.code != codes.UNSUPPORTED_PROTOCOL_VERSION and not is_legacy(exc):
            raise
        versions = supported_by(exc)
    except (TimeoutError, InvalidResponse, HttpStatusError) as exc:
        if not is_legacy(exc):
            raise
        versions = None
    known = (*LEGACY_VERSIONS, *MODERN_VERSIONS)
    if not isinstance(versions, list) or not any(one in MODERN_VERSIONS for one in versions):
        raise FallBack
    upstream.discovered(answer)
    return tuple(one for one in known if one in versions)


class Probe:
    """Asks a server which eras it speaks, and asks it once.

    Args:
        config: The server: one that does not answer in half of its time counts as a legacy one.
        capabilities: What the server may ask the proxy, which shakes hands with it. None: a client
            will do so.

    Attributes:
        was_fatal: Whether the server has ended at the question.
    """

    def __init__(self, config: BackendConfig, capabilities: dict[str, Any] | None) -> None:
        self._timeout = config.start_timeout / 2
        self._delays = config.delays
        self._capabilities = capabilities
        self.was_fatal = False
        self._found: tuple[str, ...] | None = None

    async def ask(self, upstream: Upstream) -> tuple[str, ...]:
        """Return the versions as `discover` does. StartAgain: the server ended at the question, as
        some legacy servers do; or it speaks both eras and has accepted ``initialize``, which would
        keep it from serving the modern one."""
        if self._found is not None:
            return self._found
        self._found = ()
        greet = (
            partial(ping_or_hello_to, upstream, self._delays.ping)
            if self._capabilities is None
            else partial(hello_to, upstream, self._capabilities)
        )
        try:
            self._found = await discover(upstream, self._timeout, greet, self._delays.silence)
            if not self._found:
                logger.info(_LEGACY, upstream.name)
        except TransportError as exc:
            if upstream.closed.done():
                self.was_fatal = True
                raise StartAgain(str(exc)) from exc
            self._found = None  # a server elsewhere that is not there yet
            raise
        if self._found and upstream.greeting is not None:
            raise StartAgain("it has accepted initialize as well")
        return self._found


async def ping(upstream: Upstream, timeout: float) -> None:
    """Wait until a server shows that it is there, but no longer than ``timeout`` seconds.
    TransportError: it has ended."""
    with contextlib.suppress(RemoteError, TimeoutError):
        async with asyncio.timeout(timeout):
            await upstream.ask("ping")


async def learn_tools(upstream: Upstream, retries: Retries, timeout: float) -> None:
    """Learn from the list of its tools which arguments of a server over HTTP are header fields,
    too, and which tools change nothing, where either is needed. What it does not say within
    ``timeout`` seconds is not known. TransportError: it has ended."""
    from wirespeed.client.results.features import ToolInfo

    learn = getattr(getattr(upstream.link, "mirrored", None), "learn", None)
    if learn is None and not retries.learns:
        return
    found: list[Any] = []
    modern = upstream.revision is not None and upstream.revision.modern
    params: dict[str, Any] = {"_meta": envelope()} if modern else {}

    async def ask(method: str, params: object) -> Any:
        page = await upstream.ask(method, params)
        tools = page.get("tools", [])
        found.extend(tools)
        if learn is not None and modern:
            learn(msgspec.convert(tools, list[ToolInfo]))
        return page

    try:
        async with asyncio.timeout(timeout):
            await pages(ask, "tools/list", params, upstream.session.limits.max_message)
    except (
        WirespeedError,
        TimeoutError,
        msgspec.ValidationError,
        AttributeError,
        TypeError,
    ) as exc:
        logger.info("%s: its tools cannot be listed: %r", upstream.name, exc)
    if upstream.closed.done():
        raise TransportError("it ended in its handshake")
    if retries.learns:
        retries.learn(found)


async def initialize(
    upstream: Upstream, capabilities: dict[str, Any], info: object = None
) -> dict[str, Any]:
    """Shake hands with a server of a legacy era, and return what it says of itself.

    ``capabilities``: What the server may ask. ``info``: That of a client, in place of the proxy's.
    VersionMismatch: the server wants another version. RemoteError: it refuses. InvalidResponse: its
    capabilities are not an object.
    """
    upstream.speak(None, batches=True)  # a server of 2025-03-26 may answer in a batch
    answer: Any = upstream.greeting
    for n in itertools.count():
        if answer is not None:
            break
        try:
            answer = await upstream.ask("initialize", _hello(capabilities, info)) or {}
        except Challenged as exc:  # over HTTP: a token is got
            if not await exc.answer(n):
                raise
    hello: dict[str, Any] = answer if isinstance(answer, dict) else {}
    version = hello.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        raise VersionMismatch(f"the server wants protocol version {version!r}", [])
    offered = hello.get("capabilities")
    if offered and not isinstance(offered, dict):
        raise InvalidResponse("the capabilities of the server are not an object")
    hello["capabilities"] = understood(offered)
    upstream.speak(REVISIONS[version], batches=version == "2025-03-26")
    upstream.tell("notifications/initialized")
    return hello


def _hello(capabilities: dict[str, Any], info: object) -> dict[str, Any]:
    """Return the params of ``initialize``."""
    return {
        "protocolVersion": LATEST_LEGACY,
        "capabilities": capabilities,
        "clientInfo": info if isinstance(info, dict) else own_info(),
    }

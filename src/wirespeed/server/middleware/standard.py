"""Middleware that many servers need: for `Server.add_middleware`, in `wirespeed.middleware`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.server.middleware.inbound import InboundRequest, Reply
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.token_buckets import TokenBuckets

if TYPE_CHECKING:
    from wirespeed.server.middleware.functions import CallNext

_LOGGER = logging.getLogger("wirespeed.server")

# The methods that call a function of the server's author.
_CALLS = ("tools/call", "prompts/get", "resources/read", "completion/complete")
_MOST_KEPT = 65_536  # results of a `CacheResults`
_encode = msgspec.json.Encoder(order="sorted").encode


class Timing:
    """Logs how long each request took, and whether it failed: ``tools/call add: 1.2 ms``.

    Args:
        logger: The logger; ``wirespeed.server`` by default.
        level: The level.
        slow: Seconds. Requests that take longer are logged at WARNING.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        level: int = logging.INFO,
        *,
        slow: float = math.inf,
    ) -> None:
        self._logger = _LOGGER if logger is None else logger
        self._level = level
        self._slow = slow

    async def __call__(self, request: InboundRequest, call_next: CallNext) -> Reply | None:
        what = request.method if request.name is None else f"{request.method} {request.name}"
        what = what[:300] if what.isprintable() else ascii(what[:300])  # one line, whatever it is
        began = time.perf_counter()
        failed = " failed"
        try:
            reply = await call_next(request)
            failed = " failed" if reply is not None and reply.is_error else ""
            return reply
        finally:
            took = time.perf_counter() - began
            level = logging.WARNING if took > self._slow else self._level
            self._logger.log(level, "%s%s: %.1f ms", what, failed, 1000 * took)


class LimitResponses:
    """Keeps results from being too long for a model. A longer result of a tool becomes a failure
    that says so; with ``cut``, a result of texts alone is cut. Any other longer result becomes the
    error -32603.

    Args:
        max_bytes: Bytes of the JSON text of a result.
        tools: The tools that are limited; None: all results.
        cut: Whether texts are cut. Results with structured content are not.
    """

    def __init__(
        self, max_bytes: int, *, tools: Collection[str] | None = None, cut: bool = False
    ) -> None:
        if max_bytes < 200:
            raise ValueError(f"max_bytes must be at least 200, not {max_bytes!r}")
        self._max = max_bytes
        self._tools = _names(tools)
        self._cut = cut

    async def __call__(self, request: InboundRequest, call_next: CallNext) -> Reply | None:
        reply = await call_next(request)
        if reply is None or len(reply.data) <= self._max:
            return reply
        is_call = request.method == "tools/call"
        if self._tools is not None and not (is_call and request.name in self._tools):
            return reply
        text = f"the result has {len(reply.data)} bytes, and at most {self._max} are sent"
        if not is_call:
            raise ProtocolError(codes.INTERNAL_ERROR, text)
        if self._cut and (shorter := self._shortened(reply)) is not None:
            return shorter
        return Reply.result(_failure(f"{text}: ask for less"))

    def _shortened(self, reply: Reply) -> Reply | None:
        """The reply with its texts cut; None if it has more than texts, or is too long still."""
        result = reply.decode()
        blocks = result.get("content")
        if "structuredContent" in result or not blocks:
            return None
        if not all(block.get("type") == "text" for block in blocks):
            return None
        note = "… (cut)"
        kept, room = [], self._max - (len(reply.data) - len(_encode(blocks))) - len(_encode(note))
        for block in blocks:
            size = len(_encode(block)) + 1
            if size > room:
                block["text"] = _cut(block["text"], room - (size - len(_encode(block["text"]))))
                block["text"] += note
                kept.append(block)
                break
            kept.append(block)
            room -= size
        shorter = Reply.result({**result, "content": kept})
        return shorter if len(shorter.data) <= self._max else None  # images may be long, too


class CacheResults:
    """Answers a request that was answered before from memory, without the handler. Failures and
    questions are not kept, nor is a result that not every client may have: of a tool, prompt or
    resource that needs scopes, or while a filter or what was disabled decides who sees what
    (`InboundRequest.open_to_all`). Each server needs a `CacheResults` of its own.

    Args:
        ttl: Seconds for which a result is kept.
        tools: The tools whose results are kept. Only their authors know that a call changes
            nothing.
        resources: Whether the contents of resources are kept.
        prompts: Whether prompts are kept.
        shared: Whether a result for one user is a result for all. By default each user
            (`InboundRequest.principal`) has results of their own, and clients without a credential
            have theirs together.
        max_bytes: Bytes of all results that are kept; the oldest go first. At most 65,536 results
            are kept.
        clock: Seconds.
    """

    def __init__(
        self,
        ttl: float,
        *,
        tools: Collection[str] = (),
        resources: bool = False,
        prompts: bool = False,
        shared: bool = False,
        max_bytes: int = 67_108_864,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl = _positive("ttl", ttl)
        self._tools = _names(tools) or frozenset()
        self._methods = {"resources/read": resources, "prompts/get": prompts}
        self._shared = shared
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, Reply]] = OrderedDict()
        self.n_bytes = 0

    async def __call__(self, request: InboundRequest, call_next: CallNext) -> Reply | None:
        key = self._key(request)
        if key is None:
            return await call_next(request)
        now = self._clock()
        until, kept = self._kept.get(key, (now, None))
        if kept is not None and until > now:
            return kept
        self._forget(key)
        reply = await call_next(request)
        if reply is not None and _is_whole(reply) and len(reply.data) <= self._max_bytes:
            self._forget(key)  # another call was faster
            self._kept[key] = self._clock() + self._ttl, reply
            self.n_bytes += len(reply.data)
            while self.n_bytes > self._max_bytes or len(self._kept) > _MOST_KEPT:
                self._forget(next(iter(self._kept)))
        return reply

    def clear(self) -> None:
        """Forget all results."""
        self._kept.clear()
        self.n_bytes = 0

    def _key(self, request: InboundRequest) -> Hashable:
        """The key of a request's result; None if the result is not kept."""
        method = request.method
        if not (
            request.name in self._tools if method == "tools/call" else self._methods.get(method)
        ):
            return None
        if not request.open_to_all:  # the handler's end of the chain checks who may
            return None
        params = request.decode()
        if "inputResponses" in params or "requestState" in params or "task" in params:
            return None
        params.pop("_meta", None)
        who = None if self._shared else request.principal
        # a client chooses how long its params are
        return method, request.protocol_version, who, hashlib.sha256(_encode(params)).digest()

    def _forget(self, key: Hashable) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.n_bytes -= len(found[1].data)


class Retry:
    """Calls a handler again that failed, after a pause that doubles.

    Args:
        tools: The tools that may run twice: their authors know that this is harmless.
        attempts: The most calls for one request.
        wait: Seconds before the second call.
        when: A function of the `Reply` with ``is_error``, or of the
            `wirespeed.errors.ProtocolError`, which tells whether to call again. By default all
            failed replies, and the errors -31000 (busy), -31007 (its store is away) and -32603
            (internal error).
    """

    def __init__(
        self,
        tools: Collection[str],
        *,
        attempts: int = 3,
        wait: float = 0.1,
        when: Callable[[Reply | ProtocolError], bool] | None = None,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {attempts!r}")
        self._tools = _names(tools) or frozenset()
        self._attempts = attempts
        self._backoff = Backoff(wait, 30.0)
        self._when = _may_pass if when is None else when

    async def __call__(self, request: InboundRequest, call_next: CallNext) -> Reply | None:
        if request.method != "tools/call" or request.name not in self._tools:
            return await call_next(request)
        for n in range(self._attempts - 1):
            try:
                reply = await call_next(request)
            except ProtocolError as exc:
                if not self._when(exc):
                    raise
            else:
                if reply is None or not reply.is_error or not self._when(reply):
                    return reply
            await asyncio.sleep(self._backoff.pause(n))
        return await call_next(request)


class SharedBuckets(Protocol):
    """Token buckets that have to be awaited."""

    async def delay(self, key: Hashable, rate: float, burst: int) -> float:
        """See `wirespeed.transport.token_buckets.TokenBuckets.delay`."""


class LimitRate:
    """Limits how many requests a client may send: a token bucket for each. A request that comes too
    early gets error -31000, whose data has ``retryAfterMs``, as from the proxy.

    Args:
        rate: Requests a second.
        burst: The most requests at once, after a pause; by default as many as in a second.
        by: A function of the request that tells whose bucket counts. By default that of the user
            (`InboundRequest.principal`), else of the address, else of the connection.
        methods: The methods that count; by default those that run a function: calls of tools,
            prompts, resources and completions.
        buckets: Where the buckets are, such as `wirespeed.cluster.RedisTokenBuckets`, which several
            hosts share; by default in the memory of this process.
        clock: Seconds, of buckets in memory.
    """

    def __init__(
        self,
        rate: float,
        burst: int | None = None,
        *,
        by: Callable[[InboundRequest], Hashable] | None = None,
        methods: Collection[str] = _CALLS,
        buckets: SharedBuckets | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = _positive("rate", rate)
        self._burst = max(1, math.ceil(rate)) if burst is None else burst
        if self._burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst!r}")
        self._by = _client_of if by is None else by
        self._methods = _names(methods) or frozenset()
        self._buckets = TokenBuckets(clock)
        self._shared = buckets

    async def __call__(self, request: InboundRequest, call_next: CallNext) -> Reply | None:
        if request.method in self._methods:
            owner = self._by(request)
            if self._shared is None:
                delay = self._buckets.delay(owner, self._rate, self._burst)
            else:
                delay = await self._shared.delay(owner, self._rate, self._burst)
            if delay:
                raise ProtocolError(
                    codes.OVERLOADED,
                    "too many requests: the limit is a rate",
                    {"retryAfterMs": math.ceil(1000 * delay)},
                )
        return await call_next(request)


def _client_of(request: InboundRequest) -> Hashable:
    if request.principal is not None:
        return request.principal
    peer = request.peer
    if peer is None:
        return request.connection_id
    # without the port, which each connection has of its own
    return peer.partition("]")[0] if peer.startswith("[") else peer.rpartition(":")[0] or peer


def _may_pass(failure: Reply | ProtocolError) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(failure, ProtocolError):
        return failure.code in (codes.OVERLOADED, codes.STORE_AWAY, codes.INTERNAL_ERROR)
    return True


def _is_whole(reply: Reply) -> bool:
    """Whether a reply is a final result: not an error, a question or a task."""
    if reply.is_error:
        return False
    if b'"resultType"' not in reply.data and b'"task"' not in reply.data:
        return True
    result = reply.decode()
    return result.get("resultType", "complete") == "complete" and "task" not in result


def _failure(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _cut(text: str, room: int) -> str:
    """As much of a text as fits into ``room`` bytes of JSON."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if len(_encode(text[:middle])) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _names(names: Collection[str] | None) -> frozenset[str] | None:
    if isinstance(names, str):
        raise TypeError(f"a collection of names, not the text {names!r}")
    return None if names is None else frozenset(names)


def _positive(what: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{what} must be a number above 0, not {value!r}")
    return float(value)


set_public_home(globals())

"""Hooks, which check calls of some tools: before the call is sent to the server, and before its
result is sent to the client. A hook is a function of this process or an HTTP service.

A call is held while its hooks work on it, and holds up no other request. Of all other calls the
proxy compares the tool's name, and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from wirespeed._core.envelope import parse
from wirespeed._exports import set_public_home
from wirespeed.auth.fetch import Fetcher
from wirespeed.errors import ProtocolError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.downstream import DeferredRequest, name_of, outermost
from wirespeed.transport.loop import is_coroutine_function
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.hook_config import HookConfig

quiet = RateLimitedLog(logging.getLogger("wirespeed.proxy"))

MAX_KNOWN = 1000  # names of tools whose hooks are remembered
MAX_NAME = 200  # bytes of the JSON text of such a name
MAX_CONNECTIONS = 64  # to the service of a hook
MAX_OF_CLIENT = 16  # of these, for the calls of one principal or address
MAX_THREADS = 8  # of each hook that is a plain function
MAX_TEXT = 1000  # characters of a refusal
MAX_DEPTH = 1024  # of the JSON that a hook returns

# The `resultType` of a result that asks the client for input.
_ASKS = b'"input_required"'

_members = msgspec.json.Decoder(dict[str, Raw]).decode


class HookRefusal(WirespeedError):
    """A hook refuses a call, or withholds its result. The client gets the text."""


class HookCall:
    """A call of a tool, as hooks see it.

    Attributes:
        server: The name of the server.
        tool: The server's own name of the tool.
        principal: The principal of the client, or else its user; None: neither is known.
        address: The address of the client; None on stdio.
    """

    def __init__(
        self, server: str, tool: str, principal: str | None, address: str | None, text: Raw
    ) -> None:
        self.server = server
        self.tool = tool
        self.principal = principal
        self.address = address
        self.text = text  # of the arguments

    def __repr__(self) -> str:
        return f"<HookCall of {self.tool} at {self.server}>"

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments, decoded."""
        found: dict[str, Any] = msgspec.json.decode(self.text)
        return found

    def edited(self, text: Raw) -> HookCall:
        """Return the call with other arguments."""
        return HookCall(self.server, self.tool, self.principal, self.address, text)


class _Verdict(msgspec.Struct):
    """The answer of a service."""

    action: Literal["allow", "refuse", "edit"] = "allow"
    message: str = ""
    arguments: Raw = Raw(b"")
    result: Raw = Raw(b"")


_verdict = msgspec.json.Decoder(_Verdict).decode


class ServiceHook:
    """A hook that is an HTTP service. It gets a POST of JSON for each phase of a call."""

    def __init__(self, config: HookConfig) -> None:
        assert config.url is not None
        self._url = config.url
        self._headers = (
            [] if config.token is None else [("Authorization", f"Bearer {config.token}")]
        )
        self._phases = config.phases
        self._fetcher = Fetcher(
            config.url,
            max_bytes=1 << 26,
            timeout=config.timeout,
            max_connections=MAX_CONNECTIONS,
        )
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def has(self, phase: str) -> bool:
        """Whether the hook takes part in a phase."""
        return phase in self._phases

    async def ask(self, phase: str, call: HookCall, result: Raw | None) -> Raw | None:
        """Return the new arguments, or the new result; None: they stay as they are.
        HookRefusal: the hook refuses. Any other exception: the hook failed."""
        asked: dict[str, Any] = {
            "phase": phase,
            "server": call.server,
            "tool": call.tool,
            "principal": call.principal,
            "address": call.address,
            "arguments": call.text,
        }
        if result is not None:
            asked["result"] = result
        async with self._turn(call):
            found = await self._fetcher.post(self._url, json=asked, headers=self._headers)
        if found.status == 204:
            return None
        if found.status != 200:
            raise ValueError(f"it answered with the HTTP status {found.status}")
        verdict = _verdict(found.body)
        if verdict.action == "refuse":
            raise HookRefusal(verdict.message or "the call is refused")
        if verdict.action == "allow":
            return None
        return verdict.arguments if result is None else verdict.result

    def _turn(self, call: HookCall) -> asyncio.Semaphore:
        """Return what holds back a client whose calls the service has in large numbers."""
        who = call.principal or (call.address or "").rpartition(":")[0]  # without the port
        turn = self._turns.get(who)
        if turn is None:
            turn = self._turns[who] = asyncio.Semaphore(MAX_OF_CLIENT)
        return turn

    async def close(self) -> None:
        """End the connections."""
        await self._fetcher.close()


class FunctionHook:
    """A hook in this process: a function, which is ``before``, or an object with the methods
    ``before`` and ``after``. Plain functions run in threads."""

    def __init__(self, config: HookConfig) -> None:
        function: Any = config.function
        methods = {name: getattr(function, name, None) for name in config.phases}
        if not any(map(callable, methods.values())):
            methods = {"before": function}
        self._functions: dict[str, Callable[..., Any]] = {
            name: one for name, one in methods.items() if callable(one)
        }
        self._threads: ThreadPoolExecutor | None = None
        self._free = asyncio.Semaphore(MAX_THREADS)

    def has(self, phase: str) -> bool:
        """Whether the hook takes part in a phase."""
        return phase in self._functions

    async def ask(self, phase: str, call: HookCall, result: Raw | None) -> Raw | None:
        """As of `ServiceHook`."""
        given = [call] if result is None else [call, msgspec.json.decode(result)]
        function = self._functions[phase]
        if is_coroutine_function(function):
            found = await function(*given)
        else:
            found = await self._in_thread(function, given)
        return None if found is None else Raw(msgspec.json.encode(found))

    async def _in_thread(self, function: Callable[..., Any], given: list[Any]) -> Any:
        """Call a plain function in a thread of this hook. A late function keeps its thread, so
        that at most calls of this hook have to wait."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MAX_THREADS, "wirespeed hook")
        loop = asyncio.get_running_loop()
        await self._free.acquire()
        run = partial(contextvars.copy_context().run, function, *given)
        work = self._threads.submit(run)
        work.add_done_callback(partial(_release, loop, self._free))
        return await asyncio.wrap_future(work)

    async def close(self) -> None:
        """Let the threads end."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None


def _release(loop: asyncio.AbstractEventLoop, free: asyncio.Semaphore, _: object) -> None:
    with contextlib.suppress(RuntimeError):  # a late function ended after the loop
        loop.call_soon_threadsafe(free.release)


class Hook:
    """One hook of a server, with its deadline.

    Attributes:
        config: Its tools, phases and deadline.
    """

    def __init__(self, config: HookConfig) -> None:
        self.config = config
        self.asked = FunctionHook(config) if config.url is None else ServiceHook(config)

    async def ask(self, phase: str, call: HookCall, result: Raw | None) -> Raw | None:
        """Return the new arguments, or the new result; None: they stay as they are.
        HookRefusal: the hook refuses. Any other exception: the hook failed."""
        async with asyncio.timeout(self.config.timeout):
            found = await self.asked.ask(phase, call, result)
        return None if found is None else _object(found, _WORDS[phase])


_WORDS = {"before": "arguments", "after": "result"}


def _object(found: Raw, word: str) -> Raw:
    """Return the JSON object that a hook returned, on one line. ValueError: it is not a JSON
    object."""
    text = bytes(found).strip()
    if text[:1] != b"{":
        raise ValueError(f"it gave no object in place of the {word}")
    text = msgspec.json.format(text, indent=-1)
    answer = parse(b'{"jsonrpc":"2.0","id":0,"result":%b}' % text, max_depth=MAX_DEPTH)
    if answer.kind != "result":
        raise ValueError(f"what it gave in place of the {word} is {answer.reason}")
    return Raw(text)


class HookedTools(dict[bytes, tuple[Hook, ...]]):
    """The hooks of one server, by the JSON text of the name of a tool; () for a tool without any.

    Args:
        config: The server.

    Attributes:
        n_held: The calls that were held.
        n_refused: The calls that a hook refused, before or after.
        n_failed: The failures of hooks.
    """

    def __init__(self, config: BackendConfig) -> None:
        super().__init__()
        self._server = config.name
        self._hooks = tuple(map(Hook, config.hooks))
        self._works: set[DeferredRequest] = set()
        self.n_held = 0
        self.n_refused = 0
        self.n_failed = 0

    def __missing__(self, text: bytes) -> tuple[Hook, ...]:
        try:
            name = msgspec.json.decode(text, type=str)
        except msgspec.DecodeError:
            return ()  # the server refuses it
        found = tuple(one for one in self._hooks if one.config.fits(name))
        if len(text) <= MAX_NAME:
            if len(self) >= MAX_KNOWN:
                self.clear()
            self[text] = found
        return found

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts so far, for the status."""
        return {"held": self.n_held, "refused": self.n_refused, "failed": self.n_failed}

    async def close(self) -> None:
        """End the connections to services, when they have answered about the held calls."""
        while self._works:
            await asyncio.wait([one.task for one in self._works])
        for hook in self._hooks:
            await hook.asked.close()

    # -- before a call -----------------------------------------------------------------------------

    def hold(self, downstream: Downstream, message: Message, hooks: tuple[Hook, ...]) -> None:
        """Hold a call until its hooks have seen it."""
        self.n_held += 1
        DeferredRequest(downstream, message, self._before(downstream, message, hooks), self._works)

    async def _before(
        self, downstream: Downstream, message: Message, hooks: tuple[Hook, ...]
    ) -> None:
        members = _members(message.params or b"{}")
        client = outermost(downstream)
        principal = name_of(client)
        call = first = HookCall(
            self._server,
            message.text("params.name") or "",
            None if principal is None else str(principal),
            None if client.peer is None else client.peer.address,
            members.get("arguments", Raw(b"{}")),
        )
        for hook in hooks:
            if hook.asked.has("before"):
                edited = await self._ask(hook, "before", call, None)
                call = call if edited is None else call.edited(edited)
        if call is not first:
            members["arguments"] = call.text
            message = downstream.instead(message, "tools/call", msgspec.json.encode(members))
        after = tuple(one for one in hooks if one.asked.has("after"))
        if after and downstream.is_open(message):
            downstream.give_result_to(message, _Result(self, call, message, after))
        downstream.forward(message, hooked=False)

    async def _ask(
        self, hook: Hook, phase: Literal["before", "after"], call: HookCall, result: Raw | None
    ) -> Raw | None:
        """As `Hook.ask`. ProtocolError: the hook refuses, or it failed and calls do not pass
        without it."""
        try:
            return await hook.ask(phase, call, result)
        except HookRefusal as exc:
            self.n_refused += 1
            raise ProtocolError(codes.INVALID_REQUEST, str(exc)[:MAX_TEXT]) from None
        except Exception as exc:
            self.n_failed += 1
            why = f"no answer within {hook.config.timeout:g} s" if _is_late(exc) else repr(exc)
            quiet.log(logging.WARNING, "%s: a hook of %s failed: %s", self._server, call.tool, why)
            if hook.config.on_failure == "pass":
                return None
            raise ProtocolError(
                codes.INTERNAL_ERROR, f"the call of {call.tool} cannot be checked now"
            ) from None

    # -- after a call ------------------------------------------------------------------------------

    def hold_result(
        self, downstream: Downstream, message: Message, call: HookCall, hooks: Any, text: Any
    ) -> None:
        """Hold a result until the hooks have seen it."""
        work = self._after(downstream, message, call, hooks, Raw(bytes(text)))
        DeferredRequest(downstream, message, work, self._works)

    async def _after(
        self,
        downstream: Downstream,
        message: Message,
        call: HookCall,
        hooks: tuple[Hook, ...],
        result: Raw,
    ) -> None:
        for hook in hooks:
            edited = await self._ask(hook, "after", call, result)
            result = result if edited is None else edited
        if downstream.is_open(message):
            downstream.answer(message, bytes(result))


class _Result:
    """The taker of the result of a call with hooks for its result."""

    def __init__(
        self, tools: HookedTools, call: HookCall, message: Message, hooks: tuple[Hook, ...]
    ) -> None:
        self._message = message
        self._hold = partial(tools.hold_result, call=call, hooks=hooks)

    def take(self, downstream: Downstream, ref: int, text: Any) -> None:
        """Take the result. ``ref``: of the request; a new one, if the client has sent it again
        meanwhile."""
        assert downstream.takers is not None
        for one in (self._message.ref, ref):
            downstream.takers.pop(one, None)
        message = self._message
        if message.ref != ref:
            message = downstream.instead(message, "tools/call", bytes(message.params or b"{}"), ref)
        if bytes(_members(text).get("resultType", b"")) == _ASKS:  # the client calls again
            downstream.answer(message, bytes(text))
        else:
            self._hold(downstream, message, text=text)


def _is_late(exc: Exception) -> bool:
    return isinstance(exc, TimeoutError)


set_public_home(globals())

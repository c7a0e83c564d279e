"""Answers of a client to its server's questions: elicitation, sampling, roots.

The handlers are the same for both eras. Up to 2025-11-25 a server sends requests of its own
(`wirespeed.client.answering.server_requests`). In 2026-07-28 a result contains the questions
(``inputRequests``), and the client repeats the call with the answers
(`wirespeed.client.requests.rounds`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from wirespeed.client.answering.progress import Reporter, telling
from wirespeed.client.answering.types import ElicitParams, elicit_result, sample_result
from wirespeed.errors import Declined, HandlerFailed, ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.asking import (
    ELICIT,
    LIST_ROOTS,
    PARAMS,
    RULES,
    AskingRules,
    ElicitRequestParams,
    ElicitResult,
    ListRootsParams,
    ListRootsResult,
    Params,
    Root,
    SampleParams,
    elicit_fault,
    messages_fault,
    missing_capability,
)
from wirespeed.protocol.revisions import CAPABILITY_OF, fit_struct
from wirespeed.transport.loop import Workers, is_coroutine_function

__all__ = [
    "MAX_THREADS",
    "Answering",
    "AnyRoot",
    "HandlerThreads",
    "Question",
    "Root",
    "Roots",
    "answer_text",
    "as_root",
    "handler_threads",
    "question_of",
]

Handler = Callable[[Any], Any]
AnyRoot: TypeAlias = "Root | str | os.PathLike[str]"

# The most handlers nested in each other in the modern era: a handler may call a tool whose question
# starts another handler. For legacy servers ``Limits.max_in_flight`` is the limit.
MAX_NESTED = 32
# The most plain functions that run at once for all clients of the process; further ones wait.
MAX_THREADS = 64

_nested: ContextVar[int] = ContextVar("wirespeed_nested_handlers", default=0)

encode = msgspec.json.Encoder().encode
_decoders = {method: msgspec.json.Decoder(kind).decode for method, kind in PARAMS.items()}

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Question(msgspec.Struct, frozen=True):
    """A valid request of a server, of a kind that the client has declared."""

    method: str
    params: Params
    rules: AskingRules

    @property
    def request(self) -> ElicitParams | SampleParams | ListRootsParams:
        """The argument of the handler."""
        if isinstance(self.params, ElicitRequestParams):
            return ElicitParams.of(self.params)
        return self.params


def question_of(
    method: str, params: Any, capabilities: Mapping[str, Any], version: str
) -> Question:
    """The question in a request of a server.

    *params* is JSON text, bytes-like, or None. *capabilities* are those that the client has
    declared. ProtocolError is the answer to an invalid request: -32601 for a method that the
    revision or the client lacks, -32602 for malformed params, and for a mode or a use of tools that
    was not declared (client/elicitation of 2025-11-25, "Error Handling";
    `CreateMessageRequestParams` of its schema).
    """
    rules = RULES[version]
    if method not in rules.methods:
        raise ProtocolError(codes.METHOD_NOT_FOUND, f"Method not found in {version}: {method}")
    top = CAPABILITY_OF[method]
    if top not in capabilities:
        reason = {"reason": f"Client does not have {top} capability"}
        raise ProtocolError(codes.METHOD_NOT_FOUND, f"Method not found: {method}", reason)
    if params is None and method != LIST_ROOTS:
        raise ProtocolError(codes.INVALID_PARAMS, f"{method} needs params")
    try:
        decoded: Params = _decoders[method](b"{}" if params is None else params)
    except (msgspec.DecodeError, RecursionError, ValueError) as exc:
        raise ProtocolError(codes.INVALID_PARAMS, f"Invalid params of {method}: {exc}") from None
    missing = missing_capability(method, decoded, capabilities, version)
    if missing is not None:
        part = ".".join((top, *missing[top]))
        raise ProtocolError(codes.INVALID_PARAMS, f"The client has not declared {part}")
    fault = None
    if isinstance(decoded, ElicitRequestParams):
        fault = elicit_fault(decoded)
    elif isinstance(decoded, SampleParams):
        fault = messages_fault(decoded.messages)
    if fault is not None:
        raise ProtocolError(codes.INVALID_PARAMS, fault)
    return Question(method, decoded, rules)


def answer_text(question: Question, answer: Any) -> bytes:
    """The JSON text of the result for an answer, in any form that handlers may return.

    Declined: the answer declines sampling, for which the specification has no result. TypeError,
    ValueError: the answer does not fit the question.
    """
    params = question.params
    if isinstance(params, ElicitRequestParams):
        return encode(elicit_result(answer, ElicitParams.of(params)))
    if isinstance(params, SampleParams):
        if isinstance(answer, str) and answer == "decline":
            raise Declined("the sampling that the server asked for was declined")
        return encode(sample_result(answer, params, question.rules))
    if isinstance(answer, ListRootsResult):
        answer = answer.roots
    if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
        raise TypeError(f"roots must be a list of roots, not {type(answer).__name__}")
    version = question.rules.version
    return encode(ListRootsResult([fit_struct(as_root(root), version) for root in answer]))


class Answering:
    """The handlers of one client, and the capabilities that follow from them.

    Args:
        on_elicit: Called with each `ElicitParams` in form mode.
        on_elicit_url: Called with each `ElicitParams` in url mode (2025-11-25 on).
        on_elicit_complete: Called with the id of each completed elicitation in url mode
            (2025-11-25 only).
        on_sample: Called with each `SampleParams`.
        sampling_tools: Whether ``on_sample`` supports ``tools`` (2025-11-25 on).
        roots: The roots, or a function that returns them.
    """

    def __init__(
        self,
        *,
        on_elicit: Handler | None = None,
        on_elicit_url: Handler | None = None,
        on_elicit_complete: Callable[[str], object] | None = None,
        on_sample: Handler | None = None,
        sampling_tools: bool = False,
        roots: Iterable[AnyRoot] | Callable[[], Any] | None = None,
    ) -> None:
        for name, handler in (
            ("on_elicit", on_elicit),
            ("on_elicit_url", on_elicit_url),
            ("on_elicit_complete", on_elicit_complete),
            ("on_sample", on_sample),
        ):
            if handler is not None and not callable(handler):
                raise TypeError(f"{name} must be a function, not {type(handler).__name__}")
        if sampling_tools and on_sample is None:
            raise ValueError("sampling_tools needs on_sample")
        self._on_elicit = on_elicit
        self._on_elicit_url = on_elicit_url
        self.on_elicit_complete = on_elicit_complete
        self._on_sample = on_sample
        self._sampling_tools = sampling_tools
        self.roots = None if roots is None else Roots(roots)

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities for the handlers, in the form of the newest revision."""
        full: dict[str, Any] = {}
        if self.roots is not None:
            full["roots"] = {"listChanged": True}
        if self._on_sample is not None:
            full["sampling"] = {"tools": {}} if self._sampling_tools else {}
        modes = {"form": self._on_elicit, "url": self._on_elicit_url}
        declared = [mode for mode, handler in modes.items() if handler is not None]
        if declared:
            full["elicitation"] = {mode: {} for mode in declared}
        return full

    def can(self, question: Question) -> bool:
        """Whether the client has a handler for a question."""
        return self._handler(question)[1] is not None

    def _handler(self, question: Question) -> tuple[str, Handler | None]:
        params = question.params
        if isinstance(params, ElicitRequestParams):
            if params.mode == "url":
                return "on_elicit_url", self._on_elicit_url
            return "on_elicit", self._on_elicit
        if isinstance(params, SampleParams):
            return "on_sample", self._on_sample
        roots = self.roots
        if roots is None:
            return "roots", None
        if roots.function is None:
            return "roots", _async(roots.current)
        function = roots.function
        return "roots", _async(function) if is_coroutine_function(function) else _plain(function)

    async def answer(self, question: Question, reporter: Reporter | None = None) -> bytes:
        """Run the handler, and return the JSON text of the result. ``reporter`` receives progress.

        Declined: `on_sample` declined. HandlerFailed: the client has no handler, the handler raised
        an exception (the cause), its answer does not fit, or too many handlers are nested.
        """
        name, handler = self._handler(question)
        if handler is None:
            raise HandlerFailed(f"the client has no {name}")
        nested = _nested.get()
        if nested >= MAX_NESTED:
            raise HandlerFailed(f"{name} is nested in {nested} other handlers (the limit)")
        reset = _nested.set(nested + 1)
        try:
            with telling(reporter):
                value = await self._run(handler, question.request)
            return answer_text(question, value)
        except Declined as exc:
            if question.method == ELICIT:
                return encode(ElicitResult("decline"))
            raise Declined(*exc.args) from None
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # raised by the handler itself: the caller was not cancelled
            raise HandlerFailed(f"{name} was cancelled") from exc
        except Exception as exc:
            raise HandlerFailed(f"{name} failed: {type(exc).__name__}: {exc}") from exc
        finally:
            _nested.reset(reset)

    async def _run(self, handler: Handler, request: Any) -> Any:
        """Call a handler: a coroutine function on the event loop, a plain function in a worker
        thread, where it may block and use a `SyncClient`."""
        if is_coroutine_function(handler):
            return await handler(request)
        value = await handler_threads.call(handler, request)
        return await value if inspect.isawaitable(value) else value


def _plain(function: Callable[[], Any]) -> Handler:
    return lambda _: function()


def _async(function: Callable[[], Any]) -> Handler:
    async def run(_: Any) -> Any:
        value = function()
        return await value if inspect.isawaitable(value) else value

    return run


# -- roots -----------------------------------------------------------------------------------------


def as_root(root: AnyRoot) -> Root:
    """A root from a path (relative to the current directory), a ``file://`` URI or a `Root`.

    ValueError: the root is not a path or an absolute ``file://`` URI, or the URI contains ``..``
    (clients must validate URIs: client/roots, "Security Considerations"). TypeError: the root is of
    another type.
    """
    if isinstance(root, Root):
        return root if root.uri == _checked(root.uri) else Root(_checked(root.uri), root.name)
    if isinstance(root, str) and _SCHEME.match(root) and not os.path.splitdrive(root)[0]:
        return Root(_checked(root))
    if not isinstance(root, (str, os.PathLike)):
        raise TypeError(f"a root is a path, a file:// URI or a Root, not {type(root).__name__}")
    path = os.fspath(root)
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"not a path: {path!r}")
    return Root(Path(os.path.abspath(path)).as_uri())


def _checked(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme != "file" or not uri[5:].startswith("//"):
        raise ValueError(f"a root is a file:// URI or a path, not {uri!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"the URI of a root cannot have a query or fragment: {uri!r}")
    path = unquote(parts.path)
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"the URI of a root needs an absolute path: {uri!r}")
    if ".." in re.split(r"[/\\]", path):
        raise ValueError(f"the URI of a root cannot have '..' in it: {uri!r}")
    return uri


class Roots:
    """A list of roots that can change, or a function that is called each time.

    The function takes no argument. It may be a coroutine function; a plain function runs in a
    worker thread.
    """

    def __init__(self, roots: Iterable[AnyRoot] | Callable[[], Any]) -> None:
        self.function: Callable[[], Any] | None = None
        self._list: list[Root] = []
        if callable(roots):
            self.function = roots
        elif isinstance(roots, (str, bytes, Root)):
            raise TypeError("roots is a list of roots, or a function that returns one")
        else:
            for root in roots:
                self.add(root)

    def current(self) -> list[Root]:
        """The roots of the list."""
        return list(self._list)

    def add(self, root: AnyRoot) -> bool:
        """Add a root, or rename it. False: nothing changed."""
        self._changeable()
        new = as_root(root)
        for at, old in enumerate(self._list):
            if old.uri == new.uri:
                self._list[at] = new
                return old != new
        self._list.append(new)
        return True

    def remove(self, root: AnyRoot) -> bool:
        """Remove a root. False: it is not in the list."""
        self._changeable()
        uri = as_root(root).uri
        before = len(self._list)
        self._list = [old for old in self._list if old.uri != uri]
        return len(self._list) != before

    def _changeable(self) -> None:
        if self.function is not None:
            raise TypeError("the roots are a function: change its result and call roots_changed")


# -- worker threads --------------------------------------------------------------------------------


class _Job:
    """A call in a thread, which cannot be stopped once it runs."""

    __slots__ = ("abandoned", "argument", "context", "function", "loop", "threads", "waiter")

    def __init__(
        self, threads: HandlerThreads, function: Callable[[Any], Any], argument: Any
    ) -> None:
        self.threads = threads
        self.function = function
        self.argument = argument
        self.abandoned = False
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[Any] = self.loop.create_future()

    def work(self) -> None:
        """Call the function. Runs in the worker thread."""
        value: Any = None
        failure: BaseException | None = None
        try:
            if not self.abandoned:
                value = self.context.run(self.function, self.argument)
        except StopIteration as exc:  # a future cannot hold StopIteration
            failure = RuntimeError(f"the handler raised {exc!r}")
        except BaseException as exc:
            failure = exc
        self.threads.over()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._settle, value, failure)

    def _settle(self, value: Any, failure: BaseException | None) -> None:
        if self.waiter.done():
            return
        if failure is not None:
            self.waiter.set_exception(failure)
        else:
            self.waiter.set_result(value)


class HandlerThreads:
    """Threads that run plain handlers, ``most`` at once. The others wait."""

    def __init__(self, most: int) -> None:
        self.workers = Workers(most)
        self._most = most
        # reentrant: a finalizer may use a client in a thread that holds the lock
        self._lock = threading.RLock()
        self._waiting: dict[_Job, None] = {}  # in order
        self._running = 0

    async def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Call a function in a thread, in a copy of this context.

        After a cancellation the result is dropped, and a function that still waits is not called. A
        running function keeps its thread until it returns, so a server that sends and cancels
        requests in turn cannot run more functions at once than there are threads.
        """
        job = _Job(self, function, argument)
        self._enter(job)
        try:
            return await job.waiter
        except BaseException:
            self._leave(job)
            raise

    def _enter(self, job: _Job) -> None:
        """Run a job as soon as a thread is free."""
        with self._lock:
            if self._running < self._most:
                self.workers.submit(job.work)
                self._running += 1
            else:
                self._waiting[job] = None

    def _leave(self, job: _Job) -> None:
        """The caller of a job was cancelled: drop the job."""
        job.abandoned = True
        with self._lock:
            self._waiting.pop(job, None)

    def over(self) -> None:
        """A job has ended: start the next one."""
        with self._lock:
            if self._waiting:
                job = next(iter(self._waiting))
                del self._waiting[job]
                self.workers.submit(job.work)
            else:
                self._running -= 1


# Of all clients of the process.
handler_threads = HandlerThreads(MAX_THREADS)

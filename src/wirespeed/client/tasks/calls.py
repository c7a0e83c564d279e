"""Calls of tools as tasks, and calls that have become tasks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from wirespeed.client.callback_queue import CallbackQueue
from wirespeed.client.requests.middleware import OutboundRequest
from wirespeed.client.requests.rounds import InputRounds
from wirespeed.client.requests.send import (
    PROGRESS,
    Meta,
    OnProgress,
    Request,
    Sender,
    encode,
    meta_text,
    params_text,
    rising,
    tool_params,
)
from wirespeed.client.results.decode import (
    Unfinished,
    decode_call_result,
    decode_legacy_call_result,
)
from wirespeed.client.results.features import Progress
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout, timed_out
from wirespeed.errors import (
    CallTimeout,
    InputNeeded,
    InvalidResponse,
    LocalError,
    RemoteError,
    WirespeedError,
)
from wirespeed.protocol import codes
from wirespeed.protocol.meta import TASKS_EXTENSION
from wirespeed.protocol.results import CallToolResult

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.subscriptions.router import SubscriptionRouter
    from wirespeed.client.tasks.messages import TaskState
    from wirespeed.client.tasks.task import TaskHandles, ToolTask

__all__ = ["TASKS", "TaskCalls"]

TASKS = TASKS_EXTENSION
"""The extension for tasks of 2026-07-28."""

# Where a server of 2025-11-25 declares that it runs tools/call as tasks, and where an error -32021
# of 2026-07-28 names the extension.
_TASKS_OF_TOOLS: tuple[str, ...] = ("tasks", "requests", "tools", "call")
_MISSING_EXTENSION: tuple[str, ...] = ("requiredCapabilities", "extensions", TASKS)

logger = logging.getLogger("wirespeed.client")

_tokens = itertools.count(1)


class _Created(msgspec.Struct):
    """The answer of a server of 2025-11-25 to a call as a task."""

    task: msgspec.Raw = msgspec.Raw(b"")


_created = msgspec.json.Decoder(_Created).decode
_progress = msgspec.json.Decoder(Progress).decode


def _created_or_done(data: Any) -> CallToolResult | _Created:
    """Decode the created task, or the result of a server that ignores ``params.task``."""
    text = bytes(data)
    created = _created(text)
    return created if bytes(created.task) else decode_legacy_call_result(text)


class _Start(Request, frozen=True):
    """A call that returns its task instead of waiting for the result."""


class _Named(msgspec.Struct):
    name: str | None = None


_named = msgspec.json.Decoder(_Named).decode


class ProgressSink:
    """The progress of a task of 2025-11-25. Only its handle refers to this object."""

    __slots__ = ("__weakref__", "on_progress")

    def __init__(self, on_progress: OnProgress) -> None:
        self.on_progress = on_progress

    def told(self, message: Message) -> None:
        """A progress notification arrived."""
        raw = message.params
        try:
            progress = _progress(b"{}" if raw is None else raw)
        except msgspec.DecodeError as exc:
            logger.warning("a progress notification is not valid: %s", exc)
        else:
            self.on_progress(progress.progress, progress.total, progress.message)


class TaskCalls:
    """The tasks of one client: calls that outlive their request.

    Attributes:
        sender: Sends the requests.
        rounds: Drives calls that ask for input.
        router: Receives the notifications.
        handles, progress: Tasks of 2025-11-25 whose `ToolTask` exists, by id and by progress
            token.
    """

    def __init__(self, sender: Sender, rounds: InputRounds, router: SubscriptionRouter) -> None:
        self.sender = sender
        self.rounds = rounds
        self.router = router
        self.handles: WeakValueDictionary[str, TaskHandles] = WeakValueDictionary()
        self.progress: WeakValueDictionary[str, ProgressSink] = WeakValueDictionary()

    async def start(
        self,
        name: str,
        arguments: Any,
        ttl: float | None,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> ToolTask:
        """See `Client.start_tool`."""
        if ttl is not None and not ttl >= 0:
            raise ValueError(f"ttl must be seconds, not {ttl!r}")
        through = self.sender.middleware
        if through is None:
            return await self._start_past(name, arguments, ttl, timeout, on_progress, meta)

        async def send(passed: OutboundRequest) -> ToolTask:
            return await self._start_past(
                name, passed.arguments, ttl, passed.timeout, on_progress, passed.meta
            )

        outbound = OutboundRequest(self.sender, "tools/call", name, None, arguments, meta, timeout)
        started: ToolTask = await through.run(outbound, send)
        return started

    async def _start_past(
        self,
        name: str,
        arguments: Any,
        ttl: float | None,
        timeout: Timeout,
        on_progress: OnProgress | None,
        meta: Meta | None,
        *,
        plain_next: bool = True,
    ) -> ToolTask:
        """`start` without the middleware. ``plain_next``: call the tool without a task if the
        server of 2025-11-25 refuses the task."""
        from wirespeed.client.tasks.task import ToolTask

        sender = self.sender
        limit = sender.seconds(timeout)
        until = sender.until(limit)
        params = tool_params(name, arguments_text(arguments))
        members = None if meta is None else meta_text(meta)
        if on_progress is not None:
            on_progress = CallbackQueue(on_progress, PROGRESS, sender.life.spawn)
        plain = _Start(
            "tools/call",
            params,
            decode_call_result,
            on_progress,
            members,
            until,
            limit,
            f"tool {name}",
            tasks=True,
        )
        check = None if sender.checks is None else await sender.checks.of(name, until)
        await sender.ready(f"tool {name}", sender.seconds_until(until))
        agreed = sender.agreed
        if agreed.revision.modern or not _has(agreed.capabilities, _TASKS_OF_TOOLS):
            answer = await self._start_once(plain)
            return ToolTask(self, name, answer, modern=True, check=check)
        self.router.other = self._told_of_task
        wish: dict[str, Any] = {} if ttl is None else {"ttl": round(ttl * 1000)}
        sink = None
        if on_progress is not None:
            sink, token = ProgressSink(rising(on_progress)), f"task-{next(_tokens)}"
            self.progress[token] = sink
            member = b'"progressToken":%b' % encode(token)
            members = member if members is None else members + b"," + member
        params = params[:-1] + b',"task":' + encode(wish) + b"}"
        asked = msgspec.structs.replace(
            plain, params=params, decode=_created_or_done, on_progress=None, meta=members
        )
        try:
            answer = await self._start_once(asked)
        except BaseException as exc:
            sink = None  # else the traceback would keep the sink alive
            refused = isinstance(exc, RemoteError) and exc.code == codes.METHOD_NOT_FOUND
            if not refused or not plain_next:
                raise
            # the server refused to run the tool as a task, so the tool has not run
            answer = await self._start_once(plain)
        return ToolTask(self, name, answer, modern=False, check=check, sink=sink)

    async def call_tool(
        self,
        name: str,
        arguments: Any,
        timeout: Timeout = CLIENT_DEFAULT,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> CallToolResult:
        """Call a tool that only runs as a task, without the middleware, and return its result."""
        limit = self.sender.seconds(timeout)
        until = self.sender.until(limit)
        task = await self._start_past(
            name, arguments, None, self.sender.rest(until), on_progress, meta
        )
        task._private = True
        return await self.wait_for(task, until, limit)

    async def after_refusal(
        self,
        refusal: RemoteError,
        name: str,
        arguments: Any,
        until: float,
        limit: float,
        on_progress: OnProgress | None,
        meta: Meta | None,
    ) -> CallToolResult:
        """The result of a tool that only runs as a task, after the server refused a plain call of
        it. Raises the refusal if it has another reason.

        2025-11-25: -32601 (basic/utilities/tasks, "Tool-Level Negotiation"). 2026-07-28: -32021,
        which names the extension. Plain calls do not declare the extension by themselves, because a
        call that becomes a task loses its progress.
        """
        agreed = self.sender.agreed
        if agreed.revision.modern:
            code, where, path = codes.MISSING_CLIENT_CAPABILITY, refusal.data, _MISSING_EXTENSION
        else:
            code, where, path = codes.METHOD_NOT_FOUND, agreed.capabilities, _TASKS_OF_TOOLS
        if refusal.code != code or not _has(where, path):
            raise refusal
        left = self.sender.rest(until)
        try:
            task = await self._start_past(
                name, arguments, None, left, on_progress, meta, plain_next=False
            )
        except RemoteError as exc:
            raise (refusal if exc.code == code else exc) from None
        self.sender.listed.task_only.add(name)
        task._private = True
        return await self.wait_for(task, until, limit)

    async def get(self, task_id: str, timeout: Timeout = CLIENT_DEFAULT) -> ToolTask:
        """See `Client.get_task`."""
        from wirespeed.client.tasks.messages import seen_of
        from wirespeed.client.tasks.task import ToolTask

        await self.sender.ready("tasks/get", self.sender.seconds(timeout))
        modern = self.sender.agreed.revision.modern
        self._check_method("tasks/get")
        if not modern:
            self.router.other = self._told_of_task
        seen = await self.sender.send(
            "tasks/get", params_text("tasks/get", {"taskId": task_id}), seen_of, timeout
        )
        if seen.task_id != task_id:
            raise InvalidResponse(
                f"the server was asked about the task {task_id!r:.80} and returned another task"
            )
        return ToolTask(self, None, seen, modern=modern)

    async def list(self, timeout: Timeout) -> list[TaskState]:
        """See `Client.list_tasks`."""
        from wirespeed.client.tasks.messages import list_of

        await self.sender.ready("tasks/list", self.sender.seconds(timeout))
        self._check_method("tasks/list")
        found: list[TaskState] = []
        cursors: set[str | None] = {None}
        cursor: str | None = None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            page = await self.sender.send("tasks/list", encode(params), list_of, timeout)
            found += page[0]
            cursor = page[1]
            if cursor is None:
                return found
            if cursor in cursors or len(cursors) > 10_000:
                raise InvalidResponse("the pages of tasks/list do not end")
            cursors.add(cursor)

    def _check_method(self, method: str) -> None:
        """LocalError: neither the revision nor an extension has this method."""
        agreed = self.sender.agreed
        if method in agreed.revision.requests or (method == "tasks/get" and agreed.revision.modern):
            return
        raise LocalError(f"the server has no {method} in {agreed.revision.version}")

    # -- within a call ---------------------------------------------------------------------------

    async def finish(self, request: Request, answer: Unfinished) -> Any:
        """The result of a call that became a task, or whose answer asks for input."""
        declared = request.tasks or self._declares_tasks()
        if answer.result_type != "task" or request.method != "tools/call" or not declared:
            return await self.rounds.finish(request, answer)
        if isinstance(request, _Start):
            return answer
        from wirespeed.client.tasks.task import ToolTask

        task = ToolTask(self, _named(request.params).name, answer, modern=True)
        task._private = True
        return await self.wait_for(task, request.until, request.limit)

    async def wait_for(self, task: ToolTask, until: float, limit: float) -> CallToolResult:
        """Wait for the result of a task until the loop's time `until`, which is `limit` seconds
        after the start of the call.

        A task that only this call knows is cancelled when the call fails before the task ends,
        except by `InputNeeded`.
        """
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                return await task.result()
        except InputNeeded:
            raise  # the caller may resume the task
        except BaseException as exc:
            forgotten = isinstance(exc, RemoteError) and exc.code == codes.INVALID_PARAMS
            if task._private and not task.state.over and not forgotten:
                self.sender.life.spawn(task._let_go())
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)  # send the request before the caller closes the client
            if isinstance(exc, TimeoutError) and not isinstance(exc, CallTimeout):
                raise timed_out(f"tool {task.tool}" if task.tool else "task", limit) from None
            raise

    def unwanted(self, answer: asyncio.Future[Any]) -> None:
        """Cancel the task of a call whose caller was cancelled."""
        from wirespeed.client.tasks.task import ToolTask

        made = None if answer.exception() else answer.result()
        modern = isinstance(made, Unfinished)
        if isinstance(made, _Created):
            made = Unfinished("task", bytes(made.task))
        if isinstance(made, Unfinished) and made.result_type == "task":
            with contextlib.suppress(WirespeedError):  # malformed
                if self.sender.agreed.revision.modern or not modern:
                    task = ToolTask(self, None, made, modern=modern)
                    self.sender.life.spawn(task._let_go())

    def _declares_tasks(self) -> bool:
        agreed = self.sender.agreed
        declared = self.rounds.identity.declared(agreed.revision.version).get("extensions", {})
        return agreed.revision.modern and TASKS in declared

    async def _start_once(self, request: _Start) -> CallToolResult | Unfinished:
        """Send tools/call until the server returns a result or a task."""
        answer = await self.rounds.send_once(request, further=False)
        if isinstance(answer, _Created):
            return Unfinished("task", bytes(answer.task))
        if isinstance(answer, Unfinished):
            answer = await self.finish(request, answer)
        result: CallToolResult | Unfinished = answer
        return result

    # -- notifications (2025-11-25) --------------------------------------------------------------

    def _told_of_task(self, message: Message) -> None:
        """Route a notification that belongs to no request to its task, if it has one."""
        if message.method == "notifications/tasks/status":
            from wirespeed.client.tasks.messages import seen_of

            raw = message.params
            try:
                seen = seen_of(b"{}" if raw is None else raw)
            except msgspec.DecodeError:
                return  # the next poll raises the error
            known = self.handles.get(seen.task_id)
            for task in () if known is None else tuple(known.handles):
                task._hear(seen)
        elif message.method == "notifications/progress":
            token = message.text("params.progressToken")
            sink = self.progress.get(token or "")
            if sink is not None:
                sink.told(message)


def _has(found: Any, path: Iterable[str]) -> bool:
    """Whether JSON has an object at a path of members."""
    for member in path:
        found = found.get(member) if isinstance(found, dict) else None
    return isinstance(found, dict)


def arguments_text(arguments: Any) -> bytes | None:
    """The arguments of a call as the JSON text of an object on one line; None without arguments.
    TypeError, ValueError: the arguments are not a JSON object."""
    if arguments is None:
        return None
    if isinstance(arguments, bytes | bytearray | memoryview):
        try:
            text = encode(msgspec.json.decode(arguments, type=dict[str, msgspec.Raw]))
        except msgspec.DecodeError as exc:
            raise ValueError(f"the arguments are not a JSON object: {exc}") from None
        # a raw newline in JSON is always white space
        return text.replace(b"\n", b" ")
    text = encode(dict(arguments) if isinstance(arguments, Mapping) else arguments)
    if not text.startswith(b"{"):
        raise TypeError(
            f"arguments must be a mapping, a struct or bytes, not {type(arguments).__name__}"
        )
    return text

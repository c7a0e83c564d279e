"""The part of a client that calls tools as tasks, and goes on with calls that have become some."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.client.calls import Meta, OnProgress, Request, encode, meta_text, rising
from wirespeed.client.requests import Requests
from wirespeed.client.results import CallToolResult, Unfinished, decode_call_result
from wirespeed.errors import CallTimeout, InvalidResponse, LocalError, RemoteError
from wirespeed.protocol import codes

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.client.handshake import Identity
    from wirespeed.client.hub import Hub
    from wirespeed.client.tasks import TaskState, ToolTask

__all__ = ["TASKS", "TaskCalls"]

TASKS = "io.modelcontextprotocol/tasks"
"""The extension of 2026-07-28 that tasks are."""

# What a server of 2025-11-25 may ask for as tasks, by capability.
_REQUESTS: dict[str, dict[str, Any]] = {
    "sampling": {"createMessage": {}},
    "elicitation": {"create": {}},
}

_tokens = itertools.count(1)


class _Created(msgspec.Struct):
    """What a server of 2025-11-25 answers to who asks for a task."""

    task: msgspec.Raw = msgspec.Raw(b"")


_created = msgspec.json.Decoder(_Created).decode


def _created_or_done(data: Any) -> CallToolResult | Unfinished:
    """A task; or the result itself, of a server that took no notice."""
    text = bytes(data)
    task = bytes(_created(text).task)
    return Unfinished("task", task) if task else decode_call_result(text)


class TaskCalls(Requests):
    """Tasks of a client: calls that outlive their request."""

    _hub: Hub
    _identity: Identity
    _task_news: dict[str, set[ToolTask]]  # by id, of 2025-11-25
    _task_progress: dict[str, OnProgress]  # by token, of 2025-11-25

    def _set_up_tasks(
        self,
        extensions: Iterable[str] | Mapping[str, Mapping[str, Any]],
        asked: Mapping[str, object] | None,
    ) -> dict[str, Any]:
        """``capabilities`` that declare these extensions, and that what has a handler among *asked*
        may be asked for as tasks. TypeError, ValueError: they are none."""
        self._task_news = {}
        self._task_progress = {}
        if isinstance(extensions, str):
            raise TypeError("extensions are several names, or a mapping of them to settings")
        if not isinstance(extensions, Mapping):
            extensions = {name: {} for name in extensions}
        for name, settings in extensions.items():
            if not isinstance(name, str) or not isinstance(settings, Mapping):
                raise TypeError(f"extensions[{name!r}] must be a mapping of settings")
        found: dict[str, Any] = {"extensions": dict(extensions)} if extensions else {}
        if asked is not None:
            requests = {top: _REQUESTS[top] for top, handler in asked.items() if handler}
            if not requests:
                raise ValueError(
                    "task_requests is about on_sample and on_elicit, which are missing"
                )
            found["tasks"] = {"list": {}, "cancel": {}, "requests": requests}
        return found

    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | bytes | None = None,
        *,
        ttl: float | None = None,
        timeout: float | None = -1.0,
        on_progress: OnProgress | None = None,
        meta: Meta | None = None,
    ) -> ToolTask:
        """Call a tool as a task: the call returns at once, and the result is fetched later.

        >>> task = await client.start_tool("crawl", {"url": "https://example.org/"})
        >>> async for state in task:
        ...     print(state.status, state.message)
        >>> result = await task.result()

        A server of 2025-11-25 is asked for a task. One of 2026-07-28 decides itself, and only for
        clients that have the extension (``Client(..., extensions=[TASKS])``); where it gives the
        result at once, so does any server that has no tasks, the `ToolTask` is over from the start.

        Args:
            name, arguments, meta: As of `call_tool`.
            ttl: Seconds that the task is to be kept (2025-11-25; the server may decide otherwise).
            timeout: Seconds for the answer that the task is there, as of `call_tool`; the task
                itself has no time limit but its own.
            on_progress: Called as of `call_tool`; in 2025-11-25 for as long as the task lives, in
                2026-07-28 until the call has become a task.

        Raises:
            WirespeedError: As of `call_tool`.
        """
        from wirespeed.client.tasks import ToolTask

        if ttl is not None and not ttl >= 0:
            raise ValueError(f"ttl must be seconds, not {ttl!r}")
        text = arguments_text(arguments)
        params: dict[str, Any] = {"name": name}
        if text is not None:
            params["arguments"] = msgspec.Raw(text)
        members = None if meta is None else meta_text(meta)
        limit = self._seconds(timeout)
        if on_progress is not None:
            on_progress = rising(on_progress)
        _, limit = await self._ready("tools/call", limit)
        agreed = self._agreed
        if agreed.revision.modern or not _runs_tasks(agreed.capabilities):
            answer = await self._send_call(params, limit, on_progress, members)
            return ToolTask(self, name, answer, modern=True)
        self._hub.other = self._told_of_task
        task: dict[str, Any] = {} if ttl is None else {"ttl": round(ttl * 1000)}
        token = None
        if on_progress is not None:
            token = f"task-{next(_tokens)}"
            self._task_progress[token] = on_progress
            member = b'"progressToken":%b' % encode(token)
            members = member if members is None else members + b"," + member
        try:
            answer = await self._send_call(
                params | {"task": task}, limit, None, members, _created_or_done
            )
        except BaseException as exc:
            if token is not None:
                del self._task_progress[token]
            if isinstance(exc, RemoteError) and exc.code == codes.METHOD_NOT_FOUND:
                # this tool does not run as a task; nothing has run
                plain = await self._send_call(params, limit, on_progress, members)
                return ToolTask(self, name, plain, modern=False)
            raise
        return ToolTask(self, name, answer, modern=False, token=token)

    async def get_task(self, task_id: str, *, timeout: float | None = -1.0) -> ToolTask:
        """A task by its id, of this client or of one before it. RemoteError -32602: there is none
        that this client may see. LocalError: client and server have no tasks in common."""
        from wirespeed.client.tasks import ToolTask, seen_of

        await self._ready("tasks/get", self._seconds(timeout))
        modern = self._agreed.revision.modern
        self._check_method("tasks/get")
        if not modern:
            self._hub.other = self._told_of_task
        seen = await self._call(
            "tasks/get", encode({"taskId": task_id}), seen_of, timeout, None, None
        )
        return ToolTask(self, None, seen, modern=modern)

    async def list_tasks(self, *, timeout: float | None = -1.0) -> list[TaskState]:
        """The tasks of this client that the server still has. LocalError: it has no such list;
        2025-11-25 alone has one."""
        from wirespeed.client.tasks import list_of

        await self._ready("tasks/list", self._seconds(timeout))
        self._check_method("tasks/list")
        found: list[TaskState] = []
        cursors: set[str | None] = {None}
        cursor: str | None = None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            page = await self._call("tasks/list", encode(params), list_of, timeout, None, None)
            found += page[0]
            cursor = page[1]
            if cursor is None:
                return found
            if cursor in cursors or len(cursors) > 10_000:
                raise InvalidResponse("the pages of tasks/list never end")
            cursors.add(cursor)

    def _check_method(self, method: str) -> None:
        """LocalError: neither the revision nor an extension has this."""
        agreed = self._agreed
        if method in agreed.revision.requests or (method == "tasks/get" and self._has_tasks()):
            return
        raise LocalError(f"{agreed.revision.version} has no {method} here")

    # -- within a call ---------------------------------------------------------------------------

    async def _finish(self, request: Request, answer: Unfinished) -> Any:
        """A plain call that has become a task is waited for as if it had not."""
        if answer.result_type != "task" or request.method != "tools/call" or not self._has_tasks():
            return await super()._finish(request, answer)
        from wirespeed.client.tasks import ToolTask

        task = ToolTask(self, None, answer, modern=True)
        try:
            until = None if request.until == math.inf else request.until
            async with asyncio.timeout_at(until):
                return await task.result()
        except TimeoutError as exc:
            self._life.spawn(task.let_go())
            if isinstance(exc, CallTimeout):
                raise
            raise CallTimeout(f"no answer to {request.method} within its time limit") from None
        except asyncio.CancelledError:
            self._life.spawn(task.let_go())
            raise

    def _has_tasks(self) -> bool:
        agreed = self._agreed
        declared = self._identity.declared(agreed.revision.version).get("extensions", {})
        return agreed.revision.modern and TASKS in declared

    async def _send_call(
        self,
        params: dict[str, Any],
        limit: float,
        on_progress: OnProgress | None,
        members: bytes | None,
        decode: Any = decode_call_result,
    ) -> Any:
        """tools/call, as far as its first answer that is no round of questions."""
        connection, limit = await self._ready("tools/call", limit)
        body = encode(params)
        waiter = connection.request(
            "tools/call", body, decode, timeout=limit, on_progress=on_progress, meta=members
        )
        try:
            result = await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                connection.abandon(waiter)
            raise
        self._life.crashes = 0
        if isinstance(result, Unfinished) and result.result_type != "task":
            request = Request("tools/call", body, decode, on_progress, members, waiter.deadline)
            return await self._finish(request, result)
        if isinstance(result, Unfinished) and decode is decode_call_result:
            self._check_negotiated()
        return result

    def _check_negotiated(self) -> None:
        if not self._has_tasks():
            raise InvalidResponse("the result has resultType 'task', which was not negotiated")

    # -- news (2025-11-25) -----------------------------------------------------------------------

    def _told_of_task(self, message: Message) -> None:
        """A notification that belongs to no request: may it be about a task?"""
        if message.method == "notifications/tasks/status":
            from wirespeed.client.tasks import seen_of

            raw = message.params
            try:
                seen = seen_of(b"{}" if raw is None else raw)
            except msgspec.DecodeError:
                return  # polling will tell
            for task in list(self._task_news.get(seen.task_id, ())):
                task.told(seen)
        elif message.method == "notifications/progress":
            token = message.text("params.progressToken")
            on_progress = self._task_progress.get(token or "")
            if on_progress is not None:
                from wirespeed.client.tasks import call_progress

                call_progress(self._life, on_progress, message)


def _runs_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Whether a server of 2025-11-25 takes tools/call as tasks."""
    found: Any = capabilities
    for member in ("tasks", "requests", "tools", "call"):
        found = found.get(member) if isinstance(found, dict) else None
    return isinstance(found, dict)


def arguments_text(arguments: Any) -> bytes | None:
    """Arguments of a call as the JSON text of an object on one line; None for none. TypeError,
    ValueError: they are none."""
    if arguments is None:
        return None
    if isinstance(arguments, bytes | bytearray | memoryview):
        try:
            text = encode(msgspec.json.decode(arguments, type=dict[str, msgspec.Raw]))
        except msgspec.DecodeError as exc:
            raise ValueError(f"the arguments are no JSON object: {exc}") from None
        # in JSON a raw newline is only ever white space
        return text.replace(b"\n", b" ")
    text = encode(dict(arguments) if isinstance(arguments, Mapping) else arguments)
    if not text.startswith(b"{"):
        raise TypeError(
            f"arguments must be a mapping, a struct or bytes, not {type(arguments).__name__}"
        )
    return text

"""The server that the page uses, over its restarts.

A restart first starts a new process, or opens a new connection. When the new server is ready, it
takes the place of the earlier one, which ends once its calls are answered. If the new server
cannot be started, the earlier one goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from wirespeed.cli.failures import cannot_start, describe, printable
from wirespeed.cli.features.lists import KINDS, Features, features_of
from wirespeed.errors import (
    ConnectionClosed,
    InvalidResponse,
    LocalError,
    RemoteError,
    TransportError,
    WirespeedError,
)

if TYPE_CHECKING:
    from wirespeed import Client
    from wirespeed.types import LogMessage

MAX_LINES = 200  # of stderr and of the log
LAST_CALLS = 30.0  # seconds for the calls that an earlier server still has
MAX_LINE = 2000  # characters
_OWN = "wirespeed: "
_LISTS = ("tools", "prompts", "resources")


class LogLine(NamedTuple):
    """A line of the server's stderr, or a message of its log.

    Attributes:
        number: Its number in this process.
        at: When it came, in Unix seconds.
        level: The level; "" for stderr.
        text: The line.
    """

    number: int
    at: float
    level: str
    text: str


class InspectedServer:
    """The server that the page uses.

    Args:
        make: Makes a client that is not open yet, with `log` and `stderr_line` as its callbacks.
        changed: Called when something of the server has changed.
        log_level: The level of log messages that a server with logging is asked for.

    Attributes:
        client: The client; None before the first start.
        features: The lists of the server.
        list_faults: The errors of lists that the server could not give.
        starts: The number of starts.
        started: The time of the last start, in Unix seconds.
        starting: Whether a start is going on.
        problem: The error of the last start, if it failed; else "".
        detail: The end of the stderr of that start.
        lines: The last lines of stderr and of the log, the oldest first.
    """

    def __init__(
        self, make: Callable[[], Client], changed: Callable[[], object], log_level: str
    ) -> None:
        self.client: Client | None = None
        self.features = Features()
        self.list_faults: list[str] = []
        self.starts = 0
        self.started = 0.0
        self.starting = False
        self.problem = ""
        self.detail: list[str] = []
        self.lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self._n_lines = 0
        self._make = make
        self._changed = changed
        self._log_level = log_level
        self._one_at_a_time = asyncio.Lock()
        self._is_lost = False
        self._open: set[Client] = set()
        self._calls: Counter[Client] = Counter()
        self._watch: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._starters: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> bool:
        """Whether the server runs, as far as is known."""
        return self.client is not None and not self._is_lost

    # -- its life --------------------------------------------------------------------------------

    async def start(self) -> bool:
        """Start the server, in place of an earlier one. Returns whether that worked."""
        task = asyncio.current_task()
        assert task is not None
        self._starters.add(task)
        try:
            async with self._one_at_a_time:
                self.starting = True
                self._changed()
                try:
                    return await self._start()
                finally:
                    self.starting = False
                    self._changed()
        finally:
            self._starters.discard(task)

    async def _start(self) -> bool:
        client: Client | None = None
        try:
            client = self._make()
            await client.open()
            if "logging" in client.server_capabilities:
                with contextlib.suppress(RemoteError, LocalError):
                    await client.set_log_level(self._log_level)
            features, faults = await _listed(client)
        except BaseException as exc:
            if client is not None:
                await client.close()
            if not isinstance(exc, WirespeedError | ValueError):
                raise
            self._fails(exc)
            return False
        earlier, self.client = self.client, client
        self.features, self.list_faults = features, faults
        self._open.add(client)
        self._is_lost = False
        self.starts, self.started = self.starts + 1, time.time()
        self.problem, self.detail = "", []
        if self._watch is not None:
            self._watch.cancel()
        self._watch = asyncio.ensure_future(self._follow(client))
        if earlier is not None:
            leaving = asyncio.ensure_future(self._leave(earlier))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
        return True

    def _fails(self, exc: BaseException) -> None:
        if isinstance(exc, WirespeedError):
            self.problem, detail = describe(exc)
            if detail and detail[-1].startswith(_OWN):  # the last words of `wirespeed serve`
                self.problem = printable(detail.pop().removeprefix(_OWN))
            self.detail = [printable(line) for line in detail]
        else:
            self.problem, self.detail = printable(str(exc)), []

    async def _leave(self, client: Client) -> None:
        """Close the client of an earlier server, once its calls are answered."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LAST_CALLS
        while self._calls[client] and loop.time() < until:
            await asyncio.sleep(0.05)
        await client.close()
        self._open.discard(client)

    async def _follow(self, client: Client) -> None:
        """Follow the server's changes: list again what has changed."""
        has = client.server_capabilities
        wanted: Any = {name: True for name in _LISTS if _reports(has.get(name))}
        if not wanted:
            return
        try:
            async with client.subscribe(**wanted) as events:
                async for _ in events:
                    await asyncio.sleep(0.05)  # several changes at once
                    await self.refresh()
        except (TransportError, ConnectionClosed) as exc:
            self._lose(client, exc)
        except WirespeedError:  # a server without subscriptions: the lists stay as they are
            return

    async def refresh(self) -> None:
        """Ask the server for all lists again."""
        client = self.client
        if client is None:
            return
        try:
            client.clear_cache()
            features, faults = await _listed(client)
        except WirespeedError as exc:
            self._fails(exc)
        else:
            if client is self.client:
                self.features, self.list_faults = features, faults
        self._changed()

    async def close(self) -> None:
        """End the server, and starts that are going on."""
        tasks = {*self._leaving, *self._starters, *([] if self._watch is None else [self._watch])}
        tasks.discard(asyncio.current_task())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        while self._open:
            with contextlib.suppress(WirespeedError):  # the other clients are closed as well
                await self._open.pop().close()

    # -- its use ---------------------------------------------------------------------------------

    async def use(self, send: Callable[[Client], Awaitable[Any]]) -> Any:
        """Send a request. If the server was lost, it is started again first. Failure: that
        failed."""
        if (self.client is None or self._is_lost) and not await self.start():
            raise cannot_start(self.problem)
        client = self.client
        assert client is not None
        self._calls[client] += 1
        try:
            return await send(client)
        except (TransportError, ConnectionClosed) as exc:
            self._lose(client, exc)
            raise
        finally:
            self._calls[client] -= 1
            if not self._calls[client]:
                del self._calls[client]

    def _lose(self, client: Client, exc: WirespeedError) -> None:
        """Note that the connection has ended. The next request makes a new one."""
        if client is self.client:
            self._is_lost = True
            self._fails(exc)
            self._changed()

    # -- its stderr and log ----------------------------------------------------------------------

    def stderr_line(self, line: str) -> None:
        """Keep a line of the server's stderr."""
        self._keep("", line)

    def log(self, message: LogMessage) -> None:
        """Keep a log message of the server."""
        import msgspec

        data = message.data
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        self._keep(message.level, f"{message.logger}: {text}" if message.logger else text)

    def _keep(self, level: str, text: str) -> None:
        self._n_lines += 1
        text = printable(text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…", lines=True)
        self.lines.append(LogLine(self._n_lines, time.time(), level, text))
        self._changed()


async def _listed(client: Client) -> tuple[Features, list[str]]:
    """Return the lists of a server, and the errors of those that it could not give."""
    found: dict[str, Any] = {}
    faults = []
    for kind in KINDS:
        try:
            one = await features_of(client, (kind,))
        except (RemoteError, InvalidResponse) as exc:
            faults.append(f"{kind}: {describe(exc)[0]}")
        else:
            found[kind] = getattr(one, kind)
    return Features(**found), faults


def _reports(declared: Any) -> bool:
    return isinstance(declared, dict) and declared.get("listChanged") is True

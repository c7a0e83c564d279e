"""The audit log: who did what, and how it ended. One JSON object a line, no arguments.

A thread writes the lines, so that a slow disk does not hold up the event loop. At most 10,000 lines
wait. Further lines are dropped, and the log says how many.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import queue
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from wirespeed.errors import TransportError
from wirespeed.protocol import codes
from wirespeed.proxy.downstream import name_of
from wirespeed.proxy.own_requests import CANCELLED
from wirespeed.proxy.side import Audits
from wirespeed.transport.address import host_of
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.config import AuditConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.upstream import Upstream
    from wirespeed.transport.options import HttpRequest, Refusal

logger = logging.getLogger("wirespeed.proxy")

MAX_WAITING = 10_000  # lines
MAX_NAME = 200  # characters of the name of a tool or prompt, or of a URI
_MAX_A_WRITE = 256  # lines
_LAST_WAIT = 5.0  # seconds for the last lines at the end
_GIVEN_ID = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")
# The event of a request, and the member of its line that says what it is about.
_REQUESTS = {
    "tools/call": ("call", "tool"),
    "resources/read": ("read", "uri"),
    "prompts/get": ("prompt", "prompt"),
}
_BITS = {"call": Audits.CALLS, "read": Audits.READS, "prompt": Audits.PROMPTS}


class AuditLog:
    """The audit log of a proxy.

    Args:
        config: Where it is, and what is noted. A new file has mode 0600.
        name: Of the proxy. It is in each line.

    Attributes:
        written: The lines that were written.
        dropped: The lines that were left out.
        requests: Which requests are noted, as `Audits` of a side.
        notes_sessions: Whether sessions and connections of clients are noted.
    """

    def __init__(self, config: AuditConfig, name: str) -> None:
        self._name = name
        self._events = frozenset(config.events)
        self.requests = sum(bit for event, bit in _BITS.items() if event in self._events)
        self.notes_sessions = "session" in self._events
        self.written = 0
        self.dropped = 0
        self._target = config.to
        self._told = 0  # of `dropped`
        self._lines: queue.Queue[Callable[[], str] | None] = queue.Queue(MAX_WAITING)
        self._fd = -1
        self._holders = 0
        self._thread: threading.Thread | None = None
        self._stale = False
        self._quiet = RateLimitedLog(logger)
        self._prefix = ""
        self._n = 0

    # -- its life --------------------------------------------------------------------------------

    def hold(self) -> None:
        """Open it, for the first that needs it. TransportError: it cannot be written."""
        self._holders += 1
        if self._holders > 1:
            return
        try:
            self._open()
        except OSError as exc:
            self._holders = 0
            raise TransportError(f"the audit log {self._target}: {_reason(exc)}") from None
        self._prefix = os.urandom(4).hex()
        self._thread = threading.Thread(target=self._write, name="wirespeed-audit", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Write the last lines and close it, after the last that needs it."""
        self._holders -= 1
        if self._holders == 0 and self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._lines.put(None, timeout=_LAST_WAIT)
            self._thread.join(_LAST_WAIT)
            self._thread = None

    def reopen(self) -> None:
        """Go on in a new file: the old one has been given another name."""
        self._stale = True

    def _open(self) -> None:
        if self._target == "stderr":
            self._fd = os.dup(2)
        else:
            # O_NONBLOCK: a pipe that nobody reads is an error, and must not hold us
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            fd = os.open(self._target, flags, 0o600)
            os.set_blocking(fd, True)  # for the thread
            self._fd = fd

    # -- requests --------------------------------------------------------------------------------

    def arrive(self, asker: Downstream, message: Message) -> None:
        """A request has come over HTTP from a client without a session. It may have to wait before
        it is passed on, and its header fields are gone then."""
        asker.request_id = _given_id(asker, message)

    def begin(self, asker: Downstream, answerer: Upstream, message: Message, size: int) -> Record:
        """A request is passed on to a server."""
        return Record(self, self._facts(asker, message, size), answerer.name)

    def refuse(self, asker: Downstream, message: Message, size: int, code: int) -> None:
        """A request is refused."""
        facts = self._facts(asker, message, size)
        server = asker.service.server_of(message.text("params.name"))
        self.add(lambda: _line(facts, server, "refused", code, None, 1, 0))

    def answer(self, asker: Downstream, message: Message, size_out: int, seconds: float) -> None:
        """The proxy itself has answered a call."""
        if self.requests & Audits.CALLS:
            facts, ms = (
                self._facts(asker, message, len(message.raw or b"")),
                round(seconds * 1000, 3),
            )
            self.add(lambda: _line(facts, None, "ok", 0, ms, 1, size_out))

    def _facts(self, asker: Downstream, message: Message, size: int) -> tuple[Any, ...]:
        event, key = _REQUESTS[message.method or ""]
        return (
            time(),
            self._name,
            event,
            self._next_id(),
            _given_id(asker, message),
            name_of(asker),
            getattr(asker.peer, "address", None),
            key,
            message.text("params.uri" if event == "read" else "params.name"),
            size,
        )

    def _next_id(self) -> str:
        self._n += 1
        return f"{self._prefix}-{self._n}"

    # -- other events ----------------------------------------------------------------------------

    def refuse_client(self, request: HttpRequest, refusal: Refusal, server: str | None) -> None:
        """A client was not let in. ``server``: the one that it wanted; None: all of them."""
        if "refusal" in self._events:
            given = request.headers.get("x-request-id", "")
            self._note(
                "refusal",
                id=self._next_id(),
                request_id=given if _GIVEN_ID.fullmatch(given) else None,
                peer=host_of(request.peer),
                server=server,
                status=refusal.status,
                reason=refusal.reason,
            )

    def watch(self, client: Downstream) -> None:
        """Note the session or connection of a client: in a later turn of the loop, in which it is
        known who the client is, and at its end."""
        client.loop.call_soon(self._watch, client, self._next_id(), monotonic())

    def _watch(self, client: Downstream, id: str, began: float) -> None:
        known = {
            "id": id,
            "principal": None if (who := name_of(client)) is None else str(who),
            "peer": None if client.peer is None else host_of(client.peer.address),
            "server": None if client.service.config is None else client.service.name,
        }

        def over(closed: object) -> None:
            ms = round((monotonic() - began) * 1000, 3)
            self._note("session", **known, outcome="ended", ms=ms)

        self._note("session", **known, outcome="begun")
        client.closed.add_done_callback(over)

    def identity(
        self, server: str, kind: str, principal: str, outcome: str, reason: str | None
    ) -> None:
        """Credentials of a principal at a server were got, refused or given up."""
        if "identity" in self._events:
            self._note(
                "identity",
                id=self._next_id(),
                principal=principal,
                server=server,
                type=kind,
                outcome=outcome,
                reason=reason,
            )

    def reload(self, changes: str | None, error: str | None) -> None:
        """The configuration was read again. ``changes``: what changed; None: it was refused."""
        if "reload" in self._events:
            outcome = "refused" if changes is None else "ok"
            self._note("reload", id=self._next_id(), outcome=outcome, changes=changes, error=error)

    def _note(self, event: str, **members: Any) -> None:
        head = {"proxy": self._name, "event": event}
        at = time()
        self.add(lambda: _text({"time": _text_of(at), **head, **members}))

    def add(self, line: Callable[[], str]) -> None:
        """Write a line later. It is left out if too many wait."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    # -- the thread ------------------------------------------------------------------------------

    def _write(self) -> None:
        ended = False
        while not ended:
            lines = [self._lines.get()]
            while len(lines) < _MAX_A_WRITE and not self._lines.empty():
                lines.append(self._lines.get())
            ended = None in lines
            texts = [text for line in lines if line is not None and (text := self._text(line))]
            dropped = self.dropped - self._told
            if dropped:
                self._told += dropped
                texts.append(json.dumps({"time": _text_of(time()), "dropped": dropped}))
            try:
                if self._stale:
                    self._reopen()
                _write_all(self._fd, "".join(f"{text}\n" for text in texts).encode())
                self.written += len(texts)
            except OSError as exc:
                self.dropped += len(texts)
                self._quiet.log(logging.ERROR, "the audit log cannot be written: %s", exc)
        os.close(self._fd)
        self._fd = -1

    def _text(self, line: Callable[[], str]) -> str:
        """Return a line; "" if it cannot be made."""
        try:
            return line()
        except Exception as exc:
            self.dropped += 1
            self._quiet.log(logging.ERROR, "a line of the audit log is lost: %r", exc)
            return ""

    def _reopen(self) -> None:
        """Go on in a new file. If it cannot be opened, the next write tries again."""
        old = self._fd
        self._stale = False
        try:
            self._open()
        except OSError as exc:
            self._stale = True
            self._quiet.log(logging.ERROR, "the audit log cannot be opened: %s", _reason(exc))
        else:
            os.close(old)


class Record:
    """A request that was passed on.

    Attributes:
        bytes_out: The size of its answer; 0 without one.
    """

    __slots__ = ("_attempts", "_began", "_facts", "_goes_on", "_log", "_server", "bytes_out")

    def __init__(self, log: AuditLog, facts: tuple[Any, ...], server: str) -> None:
        self._log = log
        self._facts = facts
        self._server = server
        self._began = monotonic()
        self._attempts = 1
        self._goes_on = False
        self.bytes_out = 0

    def again(self, answerer: Upstream) -> None:
        """The request is sent again: its server was lost, or the proxy goes on (`defer`)."""
        self._server = answerer.name
        self._attempts += not self._goes_on
        self._goes_on = False

    def defer(self) -> None:
        """The server has answered, and the proxy goes on with the call in the same attempt."""
        self._goes_on = True

    def end(self, code: int) -> None:
        """The request is over: see `wirespeed.server.requests.observer` for the codes."""
        ms = round((monotonic() - self._began) * 1000, 3)
        outcome = "error" if code else "ok"
        if code == CANCELLED:
            outcome, code = "cancelled", 0
        elif code == codes.SERVER_LOST:
            outcome = "lost"
        facts, server, n, size = self._facts, self._server, self._attempts, self.bytes_out
        self._log.add(lambda: _line(facts, server, outcome, code, ms, n, size))


def _line(
    facts: tuple[Any, ...],
    server: str | None,
    outcome: str,
    code: int,
    ms: float | None,
    attempts: int,
    bytes_out: int,
) -> str:
    at, proxy, event, id, given, who, peer, key, named, bytes_in = facts
    line = {
        "time": _text_of(at),
        "proxy": proxy,
        "event": event,
        "id": id,
        "request_id": given,
        "principal": None if who is None else str(who),
        "peer": None if peer is None else host_of(peer),
        "server": server,
        key: None if named is None else named[:MAX_NAME],
        "outcome": outcome,
        "code": code or None,
        "ms": ms,
        "attempts": attempts if attempts > 1 else None,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
    }
    return _text(line)


def fault_of(target: str) -> str | None:
    """Why an audit log could not be opened, as far as that can be seen; None: it can. Nothing is
    opened or made."""
    if target == "stderr":
        return None
    folder = os.path.dirname(target) or "."
    if os.path.isdir(target):
        return f"{target} is a folder"
    if os.path.exists(target):
        return None if os.access(target, os.W_OK) else f"{target} may not be written"
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"no file may be made in {folder}"


def _reason(exc: OSError) -> str:
    return "nobody reads this pipe" if exc.errno == errno.ENXIO else exc.strerror or str(exc)


def _text(line: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in line.items() if value is not None})


def _text_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _given_id(asker: Downstream, message: Message) -> str | None:
    """The id that a client, or a proxy before this one, has given to its HTTP request."""
    head = asker.head_of(message)
    if head is None:
        return asker.request_id if asker.shared else None
    found = [value for name, value in head.fields if name.lower() == "x-request-id"]
    return found[0] if len(found) == 1 and _GIVEN_ID.fullmatch(found[0]) else None


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]

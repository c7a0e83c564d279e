"""A watchdog of event loops: it names the handler that holds one, while no other request is served.

A thread looks twice a second at what the thread of each loop executes. Only where that is a handler
of a server, it asks the loop to answer; a loop that does not answer for a second is held. So calls
cost nothing, and a loop that waits is not woken.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, Protocol

logger = logging.getLogger("wirespeed.server")

# Seconds between two looks, and those for which a loop may be held.
LOOK, HOLD = 0.5, 1.0

_LISTS = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "resource template",
}
_MAX_WRAPPERS = 64


class Registered(Protocol):
    """A server that has handlers (`wirespeed.server.service.McpService`)."""

    @property
    def name(self) -> str: ...

    @property
    def middleware(self) -> Any: ...

    def catalog(self, name: str) -> Any:
        """One of its lists by name."""


class _Watched:
    """A server, and the loop that serves it."""

    def __init__(self, service: Registered) -> None:
        self.service = service
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.idle: tuple[CodeType, ...] = ()  # what the thread executed when it was no handler


class Watchdog:
    """The thread that watches the loops of this process, while there is a server to watch.

    Args:
        look: Seconds between two looks.
        hold: Seconds for which a loop may be held.
        name: The name of the thread.
    """

    def __init__(
        self, look: float = LOOK, hold: float = HOLD, name: str = "wirespeed-watchdog"
    ) -> None:
        self._name = name
        self._look = look
        self._hold = hold
        self._watched: dict[_Watched, None] = {}
        self._named: weakref.WeakSet[CodeType] = weakref.WeakSet()
        self._over: threading.Event | None = None
        self._pid = 0

    @contextlib.contextmanager
    def watching(self, service: Registered) -> Iterator[None]:
        """Watch the running loop for a server."""
        watched = _Watched(service)
        if self._pid != os.getpid():  # a fork does not copy the thread
            self._pid, self._over, self._watched = os.getpid(), None, {}
        self._watched[watched] = None
        if self._over is None and _can_look():
            over = threading.Event()
            try:
                threading.Thread(
                    target=self._run, args=(over,), name=self._name, daemon=True
                ).start()
            except RuntimeError as exc:  # there may be no more threads; a server needs none
                logger.debug("there is no watchdog: %s", exc)
            else:
                self._over = over
        try:
            yield
        finally:
            self._watched.pop(watched, None)
            if not self._watched and self._over is not None:
                self._over.set()
                self._over = None

    def _run(self, over: threading.Event) -> None:
        while not over.wait(self._look):
            for watched in list(self._watched):
                try:
                    self._look_at(watched, over)
                except Exception:  # what it reads is changed by other threads
                    logger.debug("the watchdog failed", exc_info=True)

    def _look_at(self, watched: _Watched, over: threading.Event) -> None:
        codes = _executed(watched.thread)
        if codes == watched.idle:
            return
        if _handler(watched.service, codes) is None:
            watched.idle = codes
            return
        turned = threading.Event()
        try:
            watched.loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # the loop is closed
            return
        if turned.wait(self._hold) or over.is_set():
            return
        frames = _frames(watched.thread)
        found = _handler(watched.service, [frame.f_code for frame in frames])
        if found is None or turned.is_set():
            return
        label, code = found
        held = next(frame for frame in frames if frame.f_code is code)
        place = f"{os.path.basename(code.co_filename)}:{held.f_lineno}"
        if code not in self._named:
            self._named.add(code)
            logger.warning(
                "%s: %s has held the event loop for more than %g s, and no other request is "
                "served meanwhile (%s): make it a plain def that is not inline, which runs in a "
                "worker thread, or await what takes long",
                watched.service.name,
                label,
                self._hold,
                place,
            )


def _can_look() -> bool:
    """Whether frames of another thread can be read: not while it runs without the GIL. With
    ``WIRESPEED_WATCHDOG=0`` nothing is watched."""
    if os.environ.get("WIRESPEED_WATCHDOG") == "0":
        return False
    locked = getattr(sys, "_is_gil_enabled", None)
    return hasattr(sys, "_current_frames") and (locked is None or bool(locked()))


def _frames(thread: int) -> list[FrameType]:
    """The frames of a thread, the innermost first."""
    frame = sys._current_frames().get(thread)
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _executed(thread: int) -> tuple[CodeType, ...]:
    return tuple(frame.f_code for frame in _frames(thread))


def _handler(service: Registered, codes: Iterable[CodeType]) -> tuple[str, CodeType] | None:
    """The innermost handler of a server among what a thread executes: its name and its code."""
    names = _names(service)
    for code in codes:
        label = names.get(code)
        if label is not None:
            return label, code
    return None


def _names(service: Registered) -> dict[CodeType, str]:
    """The names of handlers by their code. Several of one code have the name of the function."""
    found: dict[CodeType, str] = {}
    for name, kind in _LISTS.items():
        for key, item in list(service.catalog(name).items.items()):
            _note(found, item.function, f"{kind} {key}")
    for link in service.middleware.links:
        _note(found, link, "middleware")
    return found


def _note(found: dict[CodeType, str], function: Any, label: str) -> None:
    code = _code_of(function)
    if code is not None:
        several = code in found or label == "middleware"
        found[code] = f"{label.partition(' ')[0]} {code.co_qualname}" if several else label


def _code_of(function: Any) -> CodeType | None:
    """The code that the author of a handler wrote; None for a fixed value or compiled code."""
    for _ in range(0 if function is None else _MAX_WRAPPERS):
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__func__"):
            function = function.__func__
        elif isinstance(code := getattr(function, "__code__", None), CodeType):
            return code
        elif (call := getattr(type(function), "__call__", None)) is not function:  # noqa: B004
            function = call
        else:
            break
    return None


WATCHDOG = Watchdog()

"""Byte streams on descriptors that cannot be polled: regular files and terminals.

Two threads do blocking reads and writes, so that a terminal is never made non-blocking (the shell
shares its open file description) and a regular file never blocks the loop.
"""

from __future__ import annotations

import asyncio
import os
import queue
import select
import threading
from typing import Any

from wirespeed._exports import set_public_home
from wirespeed.transport.link import Endpoint, Link

READ_SIZE = 128 * 1024


class FileLink(Link):
    """Joins an endpoint to a pair of blocking file descriptors."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, endpoint: Endpoint, read_fd: int, write_fd: int
    ) -> None:
        super().__init__(loop, endpoint)
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._may_read = threading.Event()
        self._may_read.set()
        self._to_write: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(
            target=self._write_all, name="wirespeed-writer", daemon=True
        )
        self._writing = False
        self._lost = False
        self._saw_eof = False

    def start(self) -> None:
        """Begin to read and write."""
        threading.Thread(target=self._read_all, name="wirespeed-reader", daemon=True).start()
        self._writer.start()

    # -- in the threads --------------------------------------------------------------------------

    def _call(self, function: Any, *args: Any) -> bool:
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _read_all(self) -> None:
        while True:
            self._may_read.wait()
            if self._lost:
                return
            try:
                data = os.read(self._read_fd, READ_SIZE)
            except BlockingIOError:  # another process made it non-blocking
                select.select([self._read_fd], [], [])
                continue
            except OSError as exc:
                self._call(self._lose, exc)
                return
            # one read at a time: the session says whether it wants another
            self._may_read.clear()
            if self._lost or not self._call(self._received, data) or not data:
                return

    def _write_all(self) -> None:
        while True:
            chunks = self._to_write.get()
            if chunks is None:
                return
            try:
                for chunk in chunks:
                    view = memoryview(chunk)
                    while view:
                        try:
                            view = view[os.write(self._write_fd, view) :]
                        except BlockingIOError:
                            select.select([], [self._write_fd], [])
            except OSError as exc:
                self._call(self._lose, exc)
                return
            if not self._call(self._written):
                return

    # -- on the loop -----------------------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        if self._lost:
            return
        wire = self.endpoint.wire
        try:
            if data:
                wire.receive_data(data)
            else:
                self._saw_eof = True
                wire.receive_eof()
            self.deliver()
            if not data and not self._lost:
                self.ended()
        except Exception as exc:
            self.failed(exc)

    def update_reading(self) -> None:
        if self._saw_eof or self._lost or self.closing or not self.endpoint.wire.want_read:
            return
        self._may_read.set()

    def flush(self) -> None:
        wire = self.endpoint.wire
        if self._writing or self._lost or not len(wire.outbox):
            return
        self._writing = True
        self._to_write.put(wire.data_to_send())

    def _written(self) -> None:
        self._writing = False
        if self._lost:
            return
        try:
            self.flush()
            self.check_drained()
            self.deliver()
        except Exception as exc:
            self.failed(exc)

    @property
    def idle(self) -> bool:
        """Whether everything queued is written."""
        return not self._writing and not len(self.endpoint.wire.outbox)

    def _lose(self, exc: BaseException | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._may_read.set()
        self._to_write.put(None)
        self.detach()
        self.endpoint.on_lost(exc)

    def lose(self, exc: BaseException | None) -> None:
        """Stop now, because of ``exc``; ``on_lost(exc)`` follows at once."""
        self._lose(exc)

    def close(self) -> None:
        """Stop now; ``on_lost(None)`` follows at once."""
        self._lose(None)

    def join(self, seconds: float) -> None:
        """After the end: wait for the end of the last write, so that the descriptors may be
        closed. A write that blocks longer than this is left behind."""
        if self._writer.is_alive():
            self._writer.join(seconds)


set_public_home(globals())

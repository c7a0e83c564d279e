"""Taps: messages pass between a client and a server, are written down, and meet faults.

Without faults bytes pass as they are, as soon as they arrive, and messages are read from a copy.
With faults whole messages pass. Either way no more is read while the other end does not take it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from wirespeed._core.framing.line import LineFramer
from wirespeed._core.framing.websocket import WebSocketFramer
from wirespeed._core.streams import FrameStream
from wirespeed.errors import LaunchError
from wirespeed.transport.child.process import launch_reason

if TYPE_CHECKING:
    from wirespeed.bench.faults import Fate, Faults
    from wirespeed.bench.tap_file import From, TapFile
    from wirespeed.transport.child.command import Stdio

READ_SIZE = 65536
# Bytes of a message. A longer one is not written down, and with faults it does not pass.
MAX_MESSAGE = 64 * 1024 * 1024
# Bytes of messages that are held for their time, in each direction of a connection.
_MOST_HELD = 4 * 1024 * 1024
# Seconds that a server has to end after its connection was cut, and again after SIGTERM; in which
# other processes may write behind its end to a client that says nothing more.
_GRACE = 2.0
_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


class ByteSource(Protocol):
    """A source of bytes."""

    async def read(self, n: int, /) -> bytes:
        """Return at most n bytes; none at the end. OSError: the connection broke."""


class ByteSink(Protocol):
    """A destination of bytes."""

    async def send(self, data: bytes, /) -> None:
        """Return when there is room for more. OSError: the connection broke."""

    def end(self) -> None:
        """Tell the peer that nothing follows."""


class StreamSink:
    """An asyncio stream as a `ByteSink`."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, data: bytes, /) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def end(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            else:
                self._writer.close()


class FileSource:
    """A blocking file descriptor, which a thread reads: stdin may be a file or a terminal."""

    def __init__(self, fd: int) -> None:
        self._thread = _BlockingCalls(lambda n: os.read(fd, n))

    async def read(self, n: int, /) -> bytes:
        return await self._thread.call(n)  # type: ignore[no-any-return]


class FileSink:
    """A blocking file descriptor, which a thread writes."""

    def __init__(self, fd: int) -> None:
        self.busy = False  # whether the reader has to read first
        self._fd = fd
        self._thread = _BlockingCalls(self._write)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    async def send(self, data: bytes, /) -> None:
        self.busy = True
        await self._thread.call(data)
        self.busy = False

    def end(self) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._fd)  # the number stays taken
        os.close(nothing)


class _BlockingCalls:
    """A thread that makes one blocking call at a time. It does not keep the process alive."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[Any, asyncio.Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="wirespeed-tap", daemon=True).start()

    def call(self, argument: Any) -> asyncio.Future[Any]:
        """Call the function in the thread."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls.put((argument, future))
        return future

    def _run(self) -> None:
        while True:
            argument, future = self._calls.get()
            try:
                result, error = self._function(argument), None
            except OSError as exc:
                result, error = None, exc
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: OSError | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class Codec:
    """The messages in the bytes of one end of a connection. Abstract."""

    def decode(self, data: bytes) -> list[bytes]:
        """Take in bytes, and return the messages that end in them. Without bytes: the end."""
        raise NotImplementedError

    def encode(self, message: bytes) -> bytes:
        """Return the bytes that carry a message to this end."""
        raise NotImplementedError

    def replies(self) -> bytes:
        """Return the bytes with which the framing itself answers this end."""
        return b""

    def farewell(self) -> tuple[int, str] | None:
        """Return how this end said goodbye; None: it has not."""
        return None

    def goodbye(self, code: int, reason: str) -> bytes:
        """Return the bytes that say goodbye to this end."""
        return b""


class LineCodec(Codec):
    """One message a line."""

    def __init__(self) -> None:
        self._stream = FrameStream(LineFramer(MAX_MESSAGE))

    def decode(self, data: bytes) -> list[bytes]:
        if data:
            self._stream.receive_data(data)
        else:
            self._stream.receive_eof()
        return [bytes(frame) for frame in self._stream if frame is not None]

    def encode(self, message: bytes) -> bytes:
        return message + b"\n"


class WebSocketCodec(Codec):
    """The frames of RFC 6455, from behind the opening handshake.

    Args:
        role: What we are at this end.
    """

    def __init__(self, role: Literal["server", "client"]) -> None:
        self._framer = WebSocketFramer(role, max_message=MAX_MESSAGE)
        self._stream = FrameStream(self._framer)

    def decode(self, data: bytes) -> list[bytes]:
        self._framer.allow_control()
        if data:
            self._stream.receive_data(data)
        else:
            self._stream.receive_eof()
        return [bytes(frame) for frame in self._stream if frame is not None]

    def encode(self, message: bytes) -> bytes:
        try:
            self._framer.send_text(message)
        except ValueError:  # it is not UTF-8
            self._framer.send_binary(message)
        return self.replies()

    def replies(self) -> bytes:
        return b"".join(self._stream.data_to_send())

    def farewell(self) -> tuple[int, str] | None:
        code = self._framer.close_code
        return None if code is None else (code, self._framer.close_reason)

    def goodbye(self, code: int, reason: str) -> bytes:
        try:
            self._framer.goodbye(code, reason)
        except ValueError:  # a code that is not sent, such as that of a stream that just ended
            self._framer.goodbye(1001)
        return self.replies()


class Cut(Exception):
    """A fault: the connection ends in the midst of a message."""


class Tap:
    """The treatment of messages: they are written down, and meet faults.

    Args:
        file: Where they are written down; None for nowhere.
        faults: The faults that they meet; None for none.
    """

    def __init__(self, file: TapFile | None, faults: Faults | None) -> None:
        self.file = file
        self.faults = faults
        self._connections = 0

    def connection(self) -> int:
        """Return the number of a new connection."""
        self._connections += 1
        return self._connections

    def note(self, sender: From, connection: int, messages: list[bytes]) -> None:
        """Write messages down."""
        if self.file is not None:
            for message in messages:
                self.file.message(sender, connection, message)

    def lane(self, sender: From, connection: int) -> Lane:
        """Return one direction of a connection."""
        return Lane(self, sender, connection)


class Lane:
    """One direction of a connection."""

    def __init__(self, tap: Tap, sender: From, connection: int) -> None:
        self._tap = tap
        self._sender: From = sender
        self._connection = connection
        if tap.faults is not None:
            self._random = tap.faults.source(connection, sender)

    async def run(
        self,
        source: ByteSource,
        sink: ByteSink,
        decoder: Codec,
        encoder: Codec,
        back: ByteSink | None = None,
    ) -> None:
        """Pass what comes until its end. OSError: one of the two broke. Cut: so says a fault.

        Args:
            decoder: Of the sender.
            encoder: Of the receiver.
            back: To the sender.
        """
        if self._tap.faults is not None:
            await self._with_faults(source, sink, decoder, encoder, back)
            return
        while data := await source.read(READ_SIZE):
            # written down first: an answer is later than its request
            self._tap.note(self._sender, self._connection, decoder.decode(data))
            decoder.replies()  # those of the ends pass
            await sink.send(data)
        self._tap.note(self._sender, self._connection, decoder.decode(b""))

    async def _with_faults(
        self,
        source: ByteSource,
        sink: ByteSink,
        decoder: Codec,
        encoder: Codec,
        back: ByteSink | None,
    ) -> None:
        held = Held(sink)
        sending = asyncio.ensure_future(held.run())
        try:
            over = False
            while not over:
                data = await source.read(READ_SIZE)
                over = not data
                for message in decoder.decode(data):
                    self._tap.note(self._sender, self._connection, [message])
                    if not await self.meet(encoder.encode(message), held):
                        over = True
                        break
                if back is not None and (replies := decoder.replies()):
                    await back.send(replies)
            if (farewell := decoder.farewell()) is not None:
                await held.put(encoder.goodbye(*farewell), 0.0)
            held.end()
            await sending
        finally:
            sending.cancel()
            await asyncio.wait((sending,))

    def fate(self, *, once: bool = False) -> tuple[Fate, float]:
        """Return what happens to the next message, and the seconds for which it is held. ``once``:
        It cannot be passed twice."""
        assert self._tap.faults is not None
        return self._tap.faults.next(self._random, once=once)

    async def meet(self, data: bytes, held: Held) -> bool:
        """Let one message meet the faults. Whether others follow."""
        fate, seconds = self.fate()
        if fate == "cut":
            await held.put(data[: len(data) // 2], seconds, last=True)
        elif fate != "drop":
            await held.put(data * 2 if fate == "duplicate" else data, seconds)
        return fate != "cut"


class Held:
    """The messages of one direction that are on their way to a sink, in their order."""

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[float, bytes, bool] | None] = asyncio.Queue()
        self._size = 0
        self._room = asyncio.Event()
        self._room.set()
        self._failure: BaseException | None = None

    async def put(self, data: bytes, seconds: float, *, last: bool = False) -> None:
        """Send bytes after some seconds, and behind those that were put before. Waits for room.
        ``last``: cut the connection behind them."""
        await self._room.wait()
        if self._failure is not None:
            raise self._failure
        self._size += len(data)
        if self._size >= _MOST_HELD:
            self._room.clear()
        self._queue.put_nowait((self._loop.time() + seconds, data, last))

    def end(self) -> None:
        """Nothing follows: `run` returns when all is sent."""
        self._queue.put_nowait(None)

    async def run(self) -> None:
        """Send each at its time. OSError: the sink broke. Cut."""
        try:
            while (one := await self._queue.get()) is not None:
                at, data, last = one
                await asyncio.sleep(at - self._loop.time())
                await self._sink.send(data)
                if last:
                    raise Cut
                self._size -= len(data)
                if self._size < _MOST_HELD:
                    self._room.set()
        except (OSError, Cut) as exc:
            self._failure = exc
            raise
        finally:
            self._room.set()


# -- a command -------------------------------------------------------------------------------------


async def tap_command(tap: Tap, target: Stdio) -> int:
    """Stand between this process's stdin and stdout and a server that is started as a child.
    Returns the child's exit status, 128 + N after signal N.

    Signals go on to the child. Behind its end its output is read on while another process has it.
    LaunchError: the child cannot be started.
    """
    child, output, pipe = await _launched(target)
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()  # to end, when the child is gone

    def forward(number: int) -> None:
        if not _sent(child, number) and not told.done():
            told.set_result(None)

    for name in _FORWARDED:
        number = getattr(signal, name)
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP, for the child too
            loop.add_signal_handler(number, forward, number)
    assert child.stdin is not None
    connection = tap.connection()
    client, server = LineCodec(), LineCodec()
    stdin, stdout = StreamSink(child.stdin), FileSink(1)
    sent = asyncio.ensure_future(
        tap.lane("client", connection).run(FileSource(0), stdin, client, server)
    )
    received = asyncio.ensure_future(
        tap.lane("server", connection).run(output, stdout, server, client)
    )
    ended = asyncio.ensure_future(child.wait())
    waiting: set[asyncio.Future[Any]] = {sent, received, ended}
    try:
        while not ended.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if any(_was_cut(task) for task in done - {ended}):
                received.cancel()
                stdin.end()
                stdout.end()
                await _end(child, ended)
                break
            if sent in done:
                stdin.end()
            if received in done:
                stdout.end()
                pipe.close()  # nobody reads it
        while not (received.done() or told.done()):
            await asyncio.wait(
                (received, told), timeout=_GRACE, return_when=asyncio.FIRST_COMPLETED
            )
            if sent.done() and not stdout.busy:
                break
    finally:
        for task in (sent, received):
            task.cancel()
        await asyncio.wait((sent, received))
        pipe.close()
    for task in (sent, received):
        if not task.cancelled() and not isinstance(task.exception(), OSError | Cut):
            task.result()
    status = ended.result()
    return status if status >= 0 else 128 - status


async def _launched(
    target: Stdio,
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.ReadTransport]:
    """Start a child. Returns it, and its output."""
    environ = target.environment()
    ours, theirs = os.pipe()
    output = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(ours, "rb", buffering=0)
    )
    try:
        child = await asyncio.create_subprocess_exec(
            *target.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=theirs,
            env=environ,
            start_new_session=True,  # a signal of the terminal comes once, from this process
        )
    except (OSError, ValueError) as exc:
        pipe.close()
        reason = launch_reason(target, target.directory, environ, exc)
        raise LaunchError(f"{reason}: command {target.command_line}") from None
    finally:
        os.close(theirs)
    return child, output, pipe


def _sent(child: asyncio.subprocess.Process, number: int) -> bool:
    """Send a signal to a child. Whether it is there."""
    if child.returncode is not None:
        return False
    try:
        if number in (signal.SIGINT, signal.SIGQUIT):
            os.killpg(child.pid, number)  # as a terminal does
        else:
            os.kill(child.pid, number)
    except ProcessLookupError:
        return False
    return True


def _was_cut(task: asyncio.Future[Any]) -> bool:
    return not task.cancelled() and isinstance(task.exception(), Cut)


async def _end(child: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
    """End a child whose connection was cut."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        await asyncio.wait((ended,), timeout=_GRACE)
        if ended.done():
            return
        child.send_signal(number)
    await ended

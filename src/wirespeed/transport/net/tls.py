"""TLS: the event loop's own transport, as a stream for the handshake and then as a link; and the
certificate of a server, read from files.

Decrypted bytes are read into the wire's memory (``asyncio.BufferedProtocol``).
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import ssl as ssl_
import struct
import termios
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self, cast

from wirespeed.contents import contents_of
from wirespeed.transport.link import Endpoint, Link

RECLAIM_AFTER = 1.0  # seconds
MAX_BUFFERED = 65536  # bytes that wait to be read by the handshake
SCRATCH = 16384
LAST_BYTES = 60.0  # seconds that a client has to read the last bytes of a server


def n_unsent(fd: int) -> int:
    """The bytes of a socket that its peer has not acknowledged; 0 where the system cannot tell."""
    try:
        (n,) = struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)))
    except (OSError, ValueError):
        return 0
    return int(n)


class TlsStream(asyncio.BufferedProtocol):
    """A connection over TLS. Made by `accept` and `connect`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: str) -> None:
        self.peer = peer
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._link: TlsLink | None = None
        self._scratch: bytearray | None = bytearray(SCRATCH)
        self._arrived = bytearray()
        self._ended = False
        self._writable = True
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    @classmethod
    async def accept(
        cls,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        context: ssl_.SSLContext,
        *,
        peer: str,
        timeout: float,
    ) -> Self:
        """Do the server's side of the handshake. The stream owns the socket from now on, also after
        a failure. OSError (with ``ssl.SSLError``), TimeoutError: the handshake failed."""
        stream = cls(loop, peer)
        try:
            await loop.connect_accepted_socket(
                lambda: stream,
                sock,
                ssl=context,
                ssl_handshake_timeout=timeout,
                ssl_shutdown_timeout=LAST_BYTES,  # our links have their own, shorter times
            )
        except BaseException:
            stream.close()
            sock.close()
            raise
        return stream

    @classmethod
    async def connect(
        cls,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        context: ssl_.SSLContext,
        host: str,
        *,
        peer: str,
        timeout: float,
        close_timeout: float,
    ) -> Self:
        """Do the client's side of the handshake. The certificate must be for ``host``. See
        `accept`."""
        stream = cls(loop, peer)
        try:
            await loop.create_connection(
                lambda: stream,
                sock=sock,
                ssl=context,
                server_hostname=host,
                ssl_handshake_timeout=timeout,
                ssl_shutdown_timeout=close_timeout,
            )
        except BaseException:
            stream.close()
            sock.close()
            raise
        return stream

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the peer (DER), where it showed one and the context asked for it."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if tls is None else tls.getpeercert(binary_form=True)

    # -- by hand -----------------------------------------------------------------------------------

    async def read(self) -> bytes:
        while not self._arrived:
            if self._ended:
                return b""
            await self._wait()
        data = bytes(self._arrived)
        self._arrived.clear()
        self._resume()
        return data

    async def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        while not self._writable:
            if self._failure is not None or self._ended:
                raise ConnectionResetError("the connection is closed")
            await self._wait()

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # -- as a link ---------------------------------------------------------------------------------

    def make_link(self, endpoint: Endpoint) -> Link:
        if self._transport is None or self._ended:
            raise ConnectionResetError("the connection is closed")
        self._transport.pause_reading()
        self._link = TlsLink(self._loop, endpoint, self._transport)
        self._link.arrived = bytes(self._arrived)
        self._arrived.clear()
        self._scratch = None
        if not self._writable:
            self._link.pause()
        return self._link

    def take_back(self, link: Link) -> None:
        assert link is self._link
        self._link.leaves = True
        link.close()
        self._link = None
        self._resume()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- callbacks of the transport ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # called at the first waiting byte, and when no byte waits
        self._transport.set_write_buffer_limits(high=1, low=0)

    def get_buffer(self, sizehint: int) -> Any:
        if self._link is not None and not self._link.gone:
            try:
                return self._link.lend()
            except MemoryError as exc:
                self._link.failed(exc)
        if self._scratch is None:
            self._scratch = bytearray(SCRATCH)
        # asyncio reads a second record into a slice, which is a copy of anything but a view
        return memoryview(self._scratch)

    def buffer_updated(self, n: int) -> None:
        if self._link is not None:
            if not self._link.gone and self._scratch is None:
                self._link.received(n)
            self._scratch = None  # of a link that is lost
            return
        assert self._scratch is not None
        self._arrived += self._scratch[:n]
        if len(self._arrived) > MAX_BUFFERED and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        if self._link is not None:
            self._link.input_ended()
        self._ended = True
        self._wake()
        return False

    def pause_writing(self) -> None:
        self._writable = False
        if self._link is not None:
            self._link.pause()

    def resume_writing(self) -> None:
        self._writable = True
        if self._link is not None:
            self._link.resume()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._ended = True
        self._failure = exc
        if self._link is not None:
            self._link.lose(exc)
        self._wake()


class TlsLink(Link):
    """Joins an endpoint to a transport of the event loop. Made by `TlsStream.make_link`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, endpoint: Endpoint, transport: asyncio.Transport
    ) -> None:
        super().__init__(loop, endpoint)
        self.arrived = b""  # before there was a link
        self.gone = False
        self.leaves = False  # closing leaves the transport to the stream
        self._transport = transport
        self._reading = False
        self._held_up = False  # the transport's buffer is full
        self._saw_eof = False
        self._ended = 0.0  # when our side was closed
        self._reclaim_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to read."""
        arrived, self.arrived = self.arrived, b""
        self._reading = True
        self._transport.resume_reading()
        if arrived:
            self.endpoint.wire.receive_data(arrived)
            self.deliver()

    def lend(self) -> Any:
        """Return the wire's memory for the next bytes. The TLS layer asks for memory before bytes
        have arrived, so a timer takes unused memory back."""
        if self._reclaim_timer is None:
            self._reclaim_timer = self.loop.call_later(RECLAIM_AFTER, self._reclaim)
        return self.wire.get_buffer()

    def _reclaim(self) -> None:
        self._reclaim_timer = None
        self.wire.reclaim_buffer()

    def received(self, n: int) -> None:
        """``n`` bytes were read into the memory of the wire's ``get_buffer``."""
        if not self.gone:
            self.endpoint.wire.buffer_updated(n)
            self.deliver()

    def input_ended(self) -> None:
        """The peer has closed its side. Over TLS it no longer reads, either."""
        if self.gone or self._saw_eof:
            return
        self._saw_eof = True
        self.endpoint.wire.receive_eof()
        self.deliver()
        if not self.gone:
            self.ended()

    def update_reading(self) -> None:
        if self.gone or self._saw_eof:
            return
        want = (not self.closing or self.ending) and self.endpoint.wire.want_read
        if want != self._reading and not self._transport.is_closing():
            self._reading = want
            if want:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def flush(self) -> None:
        if self.gone or self._held_up:
            return
        chunks = self.endpoint.wire.data_to_send()
        if chunks and not self._transport.is_closing():
            self._transport.write(b"".join(chunks))
        if not self.gone:
            self.check_drained()

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._held_up = True

    def resume(self) -> None:
        """The transport has sent everything."""
        self._held_up = False
        try:
            self.flush()
            if not self.gone:
                self.deliver()
        except Exception as exc:
            self.failed(exc)

    @property
    def idle(self) -> bool:
        """Whether everything queued was sent."""
        return not self._held_up and not len(self.endpoint.wire.outbox)

    def half_close(self) -> None:
        """Close TLS in order: send its closing alert, and close when the peer has answered."""
        # not from inside its own call: the TLS layer is not made for that
        self.loop.call_soon(self._transport.close)
        self._ended = self.loop.time()

    def still_sends(self) -> bool:
        """Whether the peer has not read all yet, and has time left for it. The transport may hold
        any number of bytes, and does not tell how many; it holds none if the system has none."""
        sock = self._transport.get_extra_info("socket")
        return self.loop.time() - self._ended < LAST_BYTES and n_unsent(sock.fileno()) > 0

    def lose(self, exc: BaseException | None) -> None:
        """Stop now, because of ``exc``; ``on_lost(exc)`` follows at once."""
        if self.gone:
            return
        self.gone = True
        if self._reclaim_timer is not None:
            self._reclaim_timer.cancel()
        if not self.leaves:
            self._transport.abort()
        self.detach()
        self.endpoint.on_lost(exc)

    def close(self) -> None:
        """Stop now, and drop queued bytes. ``on_lost(None)`` follows at once."""
        self.lose(None)


_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
_SEQUENCE, _UTC_TIME = 0x30, 0x17


class ServerContext(ssl.SSLContext):
    """A context of TLS that knows its certificate.

    Attributes:
        certificate: What it serves.
    """

    certificate: Certificate


class Certificate:
    """A certificate and its key, in a context of TLS.

    Args:
        certfile: The certificate and its chain (PEM).
        keyfile: The key; None: it is in ``certfile``, too.
        password: Returns the password of the key by its path, if it is encrypted. It is asked once.
        option: What names the file of the key, for errors.

    Attributes:
        files: The paths of both.
        context: Serves it.
        expires: When it expires, in Unix seconds; None: that cannot be read.

    Raises:
        ValueError: A file cannot be read, or is not what it should be.
    """

    def __init__(
        self,
        certfile: str,
        keyfile: str | None = None,
        password: Callable[[str], str] | None = None,
        *,
        option: str = "keyfile",
    ) -> None:
        self.files = [certfile] if keyfile is None else [certfile, keyfile]
        self._password = password
        self._option = option
        self._asked = False
        self._known: str | None = None
        self._read: list[bytes] = []
        self.context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.certificate = self
        self.expires: float | None = None
        self.use(self.read())

    def read(self) -> list[bytes]:
        """Read the files and try them, in any thread. ValueError: they cannot be used."""
        found = [self._contents(path) for path in self.files]
        if found != self._read:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return found

    def use(self, found: list[bytes]) -> bool:
        """Serve the handshakes that come with what `read` returned. Returns whether it differs from
        what was served. ValueError: it cannot be used."""
        if found == self._read:
            return False
        self._load(self.context)
        self._read = found
        self.expires = expiry_of(found[0].decode("latin-1"))
        return True

    def _contents(self, path: str) -> bytes:
        try:
            return contents_of(path)
        except OSError as exc:
            key = "certfile" if path == self.files[0] else "keyfile"
            raise ValueError(f"cannot read the {key} {path}: {exc.strerror}") from None

    def _load(self, context: ssl.SSLContext) -> None:
        self._asked = False
        try:
            context.load_cert_chain(self.files[0], self.files[-1], self._ask)
        except ssl.SSLError as exc:
            raise ValueError(self._why(exc)) from None

    def _ask(self) -> str:
        self._asked = True
        if self._known is None:
            if self._password is None:
                raise ValueError(f"the key {self.files[-1]} is encrypted")
            self._known = self._password(self.files[-1])
        return self._known

    def _why(self, exc: Any) -> str:
        """Return the fault of a certificate or key. OpenSSL reports most faults as the same
        error."""
        certfile, keyfile = self.files[0], self.files[-1]
        if exc.reason == "KEY_VALUES_MISMATCH":
            return (
                f"the key in {keyfile} does not belong to the certificate in {certfile}; "
                f"{self._option} is the key of this certificate"
            )
        if b"-----BEGIN CERTIFICATE-----" not in self._contents(certfile):
            return f"{certfile} has no certificate (PEM)"
        if b"PRIVATE KEY-----" not in self._contents(keyfile):
            name = self._option.partition(" ")[0]
            more = "" if len(self.files) > 1 else f"; name the file that has it with {name}"
            return f"{keyfile} has no private key (PEM){more}"
        if self._asked:
            return f"the password does not open the key {keyfile}"
        return f"{certfile} and its key cannot be used: {exc.reason or exc}"


def expiry_of(text: str) -> float | None:
    """Return when the first certificate of a PEM text expires, in Unix seconds. None: that cannot
    be read (RFC 5280 section 4.1)."""
    start, end = text.find(_BEGIN), text.find(_END)
    try:
        der = ssl.PEM_cert_to_DER_cert(text[start : end + len(_END)])
        certificate, _ = _element(der, _SEQUENCE)
        rest, _ = _element(certificate, _SEQUENCE)
        if rest[0] == 0xA0:  # the version
            _, rest = _element(rest)
        for _ in range(3):  # the serial number, the algorithm, the issuer
            _, rest = _element(rest)
        validity, _ = _element(rest, _SEQUENCE)
        _, after = _element(validity)
        written, _ = _element(after)
        digits = written.decode("ascii")
        if after[0] == _UTC_TIME:
            digits = ("19" if digits >= "5" else "20") + digits
        return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except (ValueError, IndexError):
        return None


def _element(der: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """Split DER into the content of its first element and the rest. ValueError: it has another
    tag."""
    if tag is not None and der[0] != tag:
        raise ValueError(f"not the tag {tag}")
    start, length = 2, der[1]
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    return der[start : start + length], der[start + length :]

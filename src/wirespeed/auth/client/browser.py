"""The user's way to an authorization server and back: by a browser, with a redirect to this machine
(RFC 8252 section 7.3), or by addresses on the terminal."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import html
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Self, TypeVar
from urllib.parse import urlsplit

from wirespeed.errors import AuthorizationError
from wirespeed.transport.address import is_loopback, parse

T = TypeVar("T")

MAX_URL = 16384  # characters of an address that is opened
MAX_PASTED = 16384  # characters of a pasted redirect
MAX_HEAD = 16384  # bytes of a request to the loopback
MAX_CONNECTIONS = 16  # at once; further ones are closed
READ_TIMEOUT = 10.0  # seconds for the head of a request
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
# The characters of a URI (RFC 3986 section 2), without the apostrophe: no program that is handed
# the address can take a part of it for something else.
_URI = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&()*+,;=%]+\Z")

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body></html>
"""
DONE = "Login received", "You can close this page and go back to your program."
REFUSED = "Login refused", "The authorization server refused the login. Your program says why."
UNKNOWN = "Not found", "This address is for the answer to a login, and this is not one."


def check_endpoint(url: str, what: str) -> str:
    """Return the address of a page for the user. AuthorizationError: the address is neither an
    https URL nor a URL of this machine, so it is not opened."""
    try:
        address = parse(url)
        good = address.secure or (address.is_http and is_loopback(address.host))
    except ValueError:
        good = False
    if not good or len(url) > MAX_URL or _URI.match(url) is None:
        scheme = re.match(r"[A-Za-z][A-Za-z0-9+.\-]{0,20}:", url)
        kind = f" ({scheme[0]})" if scheme else ""
        raise AuthorizationError(f"{what} is not an https URL{kind}, and is not opened")
    return url


def browser(url: str) -> bool:
    """Open a page in the user's browser, without a shell. Returns whether there is a browser."""
    import webbrowser

    if sys.platform.startswith(("linux", "freebsd")) and not any(map(os.environ.get, _DISPLAYS)):
        return False  # a browser for terminals would take the terminal over
    try:
        return webbrowser.open(url)
    except (OSError, webbrowser.Error):
        return False


def has_terminal() -> bool:
    """Whether a user reads stderr and writes stdin."""
    with contextlib.suppress(AttributeError, ValueError):
        return sys.stdin.isatty() and sys.stderr.isatty()
    return False


async def from_terminal(url: str) -> str | None:
    """Print an address and return what the user pastes: the address to which the browser was
    redirected, on whatever machine. None: stdin ended."""
    print(
        "Open this address in a browser and log in:",
        "",
        f"  {url}",
        "",
        "The browser ends at an address that begins with the redirect URI of this login. If the "
        "program does not continue by itself, paste that whole address here:",
        sep="\n",
        file=sys.stderr,
        flush=True,
    )
    loop = asyncio.get_running_loop()
    file = sys.stdin.fileno()
    pasted = b""
    while b"\n" not in pasted.lstrip():
        ready = asyncio.Event()
        try:
            loop.add_reader(file, ready.set)
        except OSError:  # a file, or the null device: a user cannot paste there
            return None
        try:
            await ready.wait()
        finally:
            loop.remove_reader(file)
        data = os.read(file, MAX_PASTED)
        pasted += data
        if not data or len(pasted) > MAX_PASTED:
            return None
    return pasted.decode(errors="replace").strip()


async def in_daemon(function: Callable[[], T]) -> T:
    """Call a function that blocks in a thread which does not hold the process up."""
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def work() -> None:
        try:
            result = function()
        except BaseException as exc:
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                done.set_exception(exc)
        else:
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                done.set_result(result)

    threading.Thread(target=work, name="wirespeed-login", daemon=True).start()
    return await asyncio.wrap_future(done)


class Loopback:
    """A listening socket for one redirect: an asynchronous context manager.

    Attributes:
        uri: The redirect URI.
    """

    def __init__(self, redirect_uri: str, port: int = 0) -> None:
        """``redirect_uri``: ``http://127.0.0.1[:port]/path``, or the same with ``localhost`` or
        ``[::1]``. ``port``: tried first where the URI has none."""
        parts = urlsplit(redirect_uri)
        self._host = parts.hostname or ""
        self._path = parts.path or "/"
        self._fixed = parts.port
        self._port = parts.port or port
        self._accepts: Callable[[str], str] | None = None
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self.uri = ""

    async def __aenter__(self) -> Self:
        hosts = ["127.0.0.1", "::1"] if self._host == "localhost" else [self._host]
        port = await self._listen(hosts[0])
        for host in hosts[1:]:  # a browser may look localhost up as ::1
            with contextlib.suppress(OSError):
                await self._start(host, port)
        name = f"[{self._host}]" if ":" in self._host else self._host
        self.uri = f"http://{name}:{port}{self._path}"
        return self

    async def _start(self, host: str, port: int) -> int:
        server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _listen(self, host: str) -> int:
        try:
            return await self._start(host, self._port)
        except OSError as exc:
            if self._fixed is None and self._port:
                return await self._start(host, 0)
            raise AuthorizationError(
                f"the redirect cannot be received at {host}:{self._port} ({exc.strerror}): end the "
                "program that uses the port, or choose another redirect_uri"
            ) from exc

    async def __aexit__(self, *exc: object) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.close()

    async def receive(self, accepts: Callable[[str], str]) -> str:
        """Wait for the redirect. ``accepts`` is called with the query of a request: it returns ""
        for one of another login, which is refused, else ``"done"`` or ``"refused"``."""
        self._accepts = accepts
        return await self._answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if len(self._writers) <= MAX_CONNECTIONS:
                async with asyncio.timeout(READ_TIMEOUT):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._respond(head))
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _respond(self, head: bytes) -> bytes:
        line = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        target = urlsplit(line[1]) if len(line) == 3 else urlsplit("")
        if line[0] != "GET" or target.path != self._path or self._accepts is None:
            return _page(404, UNKNOWN)
        verdict = self._accepts(target.query)
        if not verdict:
            return _page(400, UNKNOWN)
        if not self._answer.done():
            self._answer.set_result(f"{self.uri}?{target.query}")
        return _page(200, DONE if verdict == "done" else REFUSED)


def _page(status: int, words: tuple[str, str]) -> bytes:
    title, text = words
    body = _PAGE.format(title=html.escape(title), text=html.escape(text)).encode()
    return (
        f"HTTP/1.1 {status} {title}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
        "Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    ).encode() + body


def is_loopback_redirect(uri: str) -> bool:
    """Whether a redirect URI leads to this machine."""
    parts = urlsplit(uri)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")


def port_of(uri: str) -> int:
    """The port of a redirect URI; 0 if it has none."""
    try:
        return urlsplit(uri).port or 0
    except ValueError:
        return 0

"""The user is sent to an authorization server: by a browser, or by an address on the terminal."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from wirespeed.errors import AuthorizationError
from wirespeed.transport.address import is_loopback, parse

__all__ = ["browser", "check_endpoint", "from_terminal", "has_terminal"]

T = TypeVar("T")

MAX_URL = 16384  # characters of an address that is opened
MAX_PASTED = 16384  # characters of a pasted redirect
# The characters of a URI (RFC 3986 section 2), without the apostrophe: no program that is handed
# the address can take a part of it for something else.
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_URI = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&()*+,;=%]+\Z")


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

"""Listening sockets: bound without harm to other servers, and cleaned up afterwards."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from wirespeed.errors import TransportError
from wirespeed.transport.address import Address
from wirespeed.transport.net import activation
from wirespeed.transport.net.sockets import identity, sockets_of
from wirespeed.transport.options import ListenOptions


class ListeningSockets:
    """Sockets that listen at an address; a context manager that closes them.

    ``passed``: They belong to a service manager, which removes a socket's file.

    Attributes:
        address: The address, with the port that was bound.
        sockets: Non-blocking, one for each address of the host.
        local: Whether only this machine can reach them.
    """

    def __init__(
        self, address: Address, sockets: list[socket.socket], *, passed: bool = False
    ) -> None:
        self.address = address
        self.sockets = sockets
        self.local = all(_is_local(sock) for sock in sockets)
        self._name = activation.MANAGER if passed else activation.OWN
        self._file: tuple[int, int] | None = None
        if address.file and not passed:
            self._file = identity(address.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def passable(self) -> list[activation.Passed]:
        """The sockets for another process, with their names: whose they are."""
        return [activation.Passed(sock, self._name) for sock in self.sockets]

    def leave(self) -> None:
        """Another process listens with the sockets: their file stays."""
        self._file = None

    def close(self) -> None:
        """Stop listening. A socket's file is removed if it is still ours."""
        if self._file is not None:
            if identity(self.address.file) == self._file:
                with contextlib.suppress(OSError):
                    os.unlink(self.address.file)
            self._file = None
        for sock in self.sockets:
            sock.close()


def resolve(address: Address) -> list[Any]:
    """Resolve an address to listen at. Blocks on DNS. TransportError: the resolution failed."""
    try:
        return sockets_of(address).resolve(address)
    except (OSError, UnicodeError) as exc:
        raise _cannot(address, exc) from exc


def listen(
    address: Address, found: Sequence[Any], options: ListenOptions, *, reserve: bool = False
) -> ListeningSockets:
    """Listen at all results of `resolve`, or with the sockets that a service manager has passed.

    ``reserve``: Bind the port only, for processes that will listen there with ``reuse_port``.
    TransportError: the server cannot listen there.
    """
    sockets, own = activation.listening_at(address, found, shared=reserve)
    if sockets:
        return ListeningSockets(address, sockets, passed=not own)
    if address.file:  # the working directory may change
        field = "socket" if address.socket else "path"
        address = msgspec.structs.replace(address, **{field: os.path.abspath(address.file)})
    try:
        sockets = sockets_of(address).listen(address, found, options, reserve=reserve)
    except OSError as exc:
        raise _cannot(address, exc) from exc
    bound = sockets[0].getsockname()
    if isinstance(bound, tuple):
        address = msgspec.structs.replace(address, port=bound[1])
    return ListeningSockets(address, sockets)


def _is_local(sock: socket.socket) -> bool:
    if sock.family == socket.AF_UNIX:
        return True
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback


def _cannot(address: Address, exc: Exception) -> TransportError:
    reason = getattr(exc, "strerror", None) or str(exc)
    if isinstance(exc, UnicodeError):
        reason = "its host is not a host name"
    elif getattr(exc, "errno", None) == errno.EADDRINUSE:
        reason = f"{os.strerror(errno.EADDRINUSE)}; choose another port, or 0 for any that is free"
    # CPython adds its own text to some errors: "[Errno 98] error while attempting to bind …"
    return TransportError(f"cannot listen at {address}: {reason[:1].lower()}{reason[1:]}")

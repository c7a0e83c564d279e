"""The size of pipes."""

from __future__ import annotations

import contextlib


def enlarge(fd: int, size: int) -> None:
    """Give a pipe room for ``size`` bytes, for fewer switches between the two processes. Linux
    only. Without effect on what is not a pipe, has the room already, or may not be enlarged."""
    import fcntl

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < size:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)

"""The contents of files that belong to others: bounded, and never waited for without end; and
private files, which are replaced as wholes.

What stands at a path may be replaced by anything: a folder, a pipe without a writer, an endless
device.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import stat
import time

MAX_BYTES = 4 * 1024 * 1024
PATIENCE = 10.0  # seconds for all that a pipe brings


def contents_of(
    path: str | os.PathLike[str], *, pipes: bool = False, most: int = MAX_BYTES
) -> bytes:
    """Return the bytes of a regular file, at most ``most``. ``pipes``: or what a pipe brings until
    its end, such as ``<(command)`` of a shell.

    Raises:
        OSError: It cannot be read, is something else or is longer.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(fd).st_mode
        is_pipe = stat.S_ISFIFO(mode)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not (stat.S_ISREG(mode) or (pipes and is_pipe)):
            kinds = "neither a regular file nor a pipe" if pipes else "not a regular file"
            raise OSError(errno.EINVAL, f"it is {kinds}")
        found = bytearray()
        until = time.monotonic() + PATIENCE
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while len(found) <= most:
            if is_pipe and not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError(errno.ETIMEDOUT, f"the pipe has no end after {PATIENCE:g} s")
            more = os.read(fd, most + 1 - len(found))
            if not more:
                return bytes(found)
            found += more
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB")
    finally:
        os.close(fd)


def replace_private(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file of mode 0600 in the place of another one, or of none. Readers see the old bytes
    or the new ones. OSError: it cannot be written, and the old file stays."""
    folder, name = os.path.split(os.fspath(path))
    new = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise

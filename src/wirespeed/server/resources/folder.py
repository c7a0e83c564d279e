"""Files below one folder, and no others, for `Server.add_folder`.

"Servers MUST sanitize file paths to prevent directory traversal attacks" (server/resources of
2026-07-28, "Security Considerations"). A path is refused by its text first (`relative_path`); then
it is resolved, must lie below the root, and is opened one directory at a time without following
links, so that a link that is created in between leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import PurePosixPath

from wirespeed.protocol.uri_template import is_path_escape

MAX_FILE = 16 << 20  # bytes of a file that is served, by default
_MAX_NAMES = 1000  # entries of one directory that are looked at to complete a path

# Errors that a client sees as "not found", as for files that it must not see.
_ABSENT = frozenset(
    {
        errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM,
        errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ENXIO,
    }
)  # fmt: skip

_TEXT_TYPES = frozenset(
    {
        "application/javascript", "application/json", "application/sql", "application/toml",
        "application/x-sh", "application/x-yaml", "application/xml", "application/yaml",
        "image/svg+xml",
    }
)  # fmt: skip


def relative_path(text: str) -> PurePosixPath:
    """A path from a client, to be used below a folder. ValueError: it is empty or absolute, or
    has a segment ``.`` or ``..``, an empty segment, a backslash or a NUL."""
    if is_path_escape(text) or "\\" in text:
        raise ValueError("the path leaves its folder")
    if any(segment in ("", ".") for segment in text.split("/")):
        raise ValueError("not a plain relative path")
    return PurePosixPath(text)


class FolderFile:
    """A file that was read: its bytes, its media type, and whether it is text."""

    __slots__ = ("data", "is_text", "mime_type")

    def __init__(self, name: str, data: bytes) -> None:
        self.data = data
        self.mime_type, self.is_text = _kind(name, data)


def _kind(name: str, data: bytes) -> tuple[str, bool]:
    import mimetypes

    guessed, encoding = mimetypes.guess_type(name)
    if encoding is not None:
        return f"application/{encoding}", False
    textual = (
        guessed is None
        or guessed.startswith("text/")
        or guessed in _TEXT_TYPES
        or guessed.endswith(("+json", "+xml"))
    )
    is_text = textual and b"\0" not in data and _is_utf8(data)
    if guessed is None:
        return ("text/plain" if is_text else "application/octet-stream"), is_text
    return guessed, is_text


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class Folder:
    """A folder whose files may be read.

    Args:
        root: The folder; links in this path itself are followed, once.
        hidden: Whether names that begin with a dot are served.
        max_size: Bytes of the longest file.

    NotADirectoryError: *root* is not a folder.
    """

    __slots__ = ("hidden", "max_size", "root")

    def __init__(
        self, root: str | os.PathLike[str], *, hidden: bool = False, max_size: int = MAX_FILE
    ) -> None:
        self.root = os.path.realpath(root)
        self.hidden = hidden
        self.max_size = max_size
        if not os.path.isdir(self.root):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", os.fspath(root))

    def read(self, path: PurePosixPath) -> FolderFile | None:
        """A file's bytes; None if there is no such file, or it must not be seen.

        Links are followed as long as they stay below the root. OSError: reading failed, or the file
        is longer than `max_size` (EFBIG).
        """
        try:
            fd = self._open(path)
        except (OSError, ValueError) as exc:
            if isinstance(exc, OSError) and exc.errno not in _ABSENT:
                raise
            return None
        if fd is None:
            return None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return None
            data = None
            if status.st_size <= self.max_size:
                with open(fd, "rb", closefd=False) as file:
                    data = file.read(self.max_size + 1)
        finally:
            os.close(fd)
        if data is None or len(data) > self.max_size:
            raise OSError(errno.EFBIG, f"longer than {self.max_size} bytes")
        return FolderFile(path.name, data)

    def _parts(self, path: PurePosixPath | str) -> list[str] | None:
        """The directories from the root to the file of a path; None: it is not below the root."""
        parts = self._seen(PurePosixPath(path).parts)
        if parts is None:
            return None
        real = os.path.realpath(os.path.join(self.root, *parts))
        below = os.path.join(self.root, "")
        if real == self.root:
            return []
        if not real.startswith(below):
            return None
        return self._seen(tuple(real[len(below) :].split(os.sep)))

    def _seen(self, parts: tuple[str, ...]) -> list[str] | None:
        if any(p == ".." or os.path.isabs(p) for p in parts):
            return None
        if not self.hidden and any(p.startswith(".") for p in parts):
            return None
        return list(parts)

    def _open(self, path: PurePosixPath | str) -> int | None:
        parts = self._parts(path)
        if parts is None:
            return None
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for at, part in enumerate(parts):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                # O_NONBLOCK: a FIFO without a writer must not hold us
                flags |= os.O_DIRECTORY if at < len(parts) - 1 else os.O_NONBLOCK
                inner = os.open(part, flags, dir_fd=folder)
                os.close(folder)
                folder = inner
        except BaseException:
            os.close(folder)
            raise
        return folder

    def complete(self, value: str) -> list[str]:
        """Paths that begin with *value*, one level at a time; folders end in ``/``."""
        above, slash, start = value.rpartition("/")
        try:
            if slash:
                relative_path(above)
            fd = self._open(above)
        except (OSError, ValueError):
            return []
        if fd is None:
            return []
        found: list[str] = []
        try:
            with os.scandir(fd) as entries:
                for _, entry in zip(range(_MAX_NAMES), entries, strict=False):
                    name = entry.name
                    if not name.startswith(start) or (not self.hidden and name[:1] == "."):
                        continue
                    if "\\" in name or not _is_plain(name):
                        continue
                    path = above + slash + name
                    if entry.is_symlink() and self._parts(path) is None:
                        continue
                    try:
                        found.append(path + ("/" if entry.is_dir() else ""))
                    except OSError:
                        continue  # a link to itself, or a file that was just removed
        except OSError:
            return []
        finally:
            os.close(fd)
        return sorted(found)


def _is_plain(name: str) -> bool:
    """Whether a file's name is text: a lone surrogate stands for a byte that is not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

"""A folder of skills, read as a snapshot: the digests are those of the bytes that are kept.

The folder is opened one directory at a time without following links, so that a link that is created
meanwhile leads nowhere. A link, a device, a FIFO, a name that is not UTF-8, or a file that changes
while it is read costs the skills whose folders it is in. Each gets one warning; the other skills
stay. Links in the path of the folder itself are followed.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from dataclasses import dataclass

from wirespeed._exports import set_public_home
from wirespeed.errors import LimitExceeded
from wirespeed.skills.model import MAX_BYTES, MAX_FILES, SKILL_FILE

MAX_DEPTH = 32
MAX_FOLDERS = 1 << 17
MAX_NAMES = 1 << 16  # of a folder outside of skills
SPARE_NAMES = 1024  # of a folder of a skill, beyond the number of files that a skill may have

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # to open a FIFO must not block

logger = logging.getLogger("wirespeed.server")


Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SkillLimits:
    """The limits of what `Server.add_skills` reads. Hosts take skills of the default size; larger
    ones may be refused.

    Attributes:
        files: The most files of one skill.
        size: The most bytes of one skill.
        skills: The most skills of one folder.
        total_size: The most bytes that one folder may have together.
    """

    files: int = MAX_FILES
    size: int = MAX_BYTES
    skills: int = 4096
    total_size: int = 256 << 20


class FoundSkill:
    """A folder with a ``SKILL.md``, and the files below it.

    Attributes:
        place: The path of the folder, below the folder that was read.
        data: The bytes of its files by their paths below it.
        fault: Why it cannot be served, with the path of the file; None if no fault is known.
    """

    def __init__(self, root: str, place: Path) -> None:
        self._root = root
        self.place = place
        self.data: dict[Path, bytes] = {}
        self.size = 0
        self.fault: str | None = None

    def described(self, text: str, line: int | None = None) -> str:
        """Return the text of a fault of the ``SKILL.md``, with its path and the line."""
        shown = _shown(self._root, (*self.place, SKILL_FILE))
        return f"{shown}{'' if line is None else f':{line}'}: {text}"


def skills_in(
    root: str | os.PathLike[str], limits: SkillLimits, *, is_skill: bool = False
) -> list[FoundSkill]:
    """Read the skills below a folder, outer skills before the skills in them. ``is_skill``: The
    folder itself may be a skill, too.

    OSError: the folder cannot be read. LimitExceeded: it has too many skills, or too many bytes.
    """
    return _Walk(os.fspath(root), limits).run(is_skill)


def _shown(root: str, place: Path) -> str:
    return os.path.join(root, *place).encode(errors="backslashreplace").decode()


class _Walk:
    """One reading of everything below a folder."""

    def __init__(self, root: str, limits: SkillLimits) -> None:
        self._root = root
        self._limits = limits
        self._found: list[FoundSkill] = []
        self._folders = 0
        self._total = 0

    def run(self, is_skill: bool) -> list[FoundSkill]:
        """See `skills_in`."""
        fd = os.open(self._root, _DIRECTORY)
        try:
            self._folder(fd, (), (), is_skill)
        finally:
            os.close(fd)
        return self._found

    def _folder(self, fd: int, place: Path, around: tuple[FoundSkill, ...], may_be: bool) -> None:
        self._folders += 1
        if self._folders > MAX_FOLDERS:
            raise LimitExceeded(f"{self._root} has more than {MAX_FOLDERS} folders")
        before = os.fstat(fd)
        most = self._limits.files + SPARE_NAMES if around else MAX_NAMES
        names: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) > most:
                    self._spoil(around, place, f"more than {most} names are in one folder")
                    return
        names.sort()
        if SKILL_FILE in names:
            if may_be:
                if len(self._found) >= self._limits.skills:
                    raise LimitExceeded(f"{self._root} has more than {self._limits.skills} skills")
                found = FoundSkill(self._root, place)
                self._found.append(found)
                around = (*around, found)
            elif not place:
                text = "it is in the folder of all skills, and not in one of its own"
                self._spoil((), (SKILL_FILE,), text)
        for name in names:
            if not name.startswith("."):
                self._entry(fd, name, (*place, name), around)
        if _differs(before, os.fstat(fd)):
            self._spoil(around, place, "the folder changed while it was read")

    def _entry(self, fd: int, name: str, place: Path, around: tuple[FoundSkill, ...]) -> None:
        try:
            name.encode()
        except UnicodeEncodeError:
            self._spoil(around, place, "the name is not UTF-8")
            return
        try:
            kind = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                if len(place) > MAX_DEPTH:
                    self._spoil(around, place, f"folders are nested deeper than {MAX_DEPTH} levels")
                    return
                inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                try:
                    self._folder(inner, place, around, True)
                finally:
                    os.close(inner)
            elif stat.S_ISREG(kind):
                if around:
                    self._file(fd, name, place, around)
            else:
                what = "a link" if stat.S_ISLNK(kind) else "neither a file nor a folder"
                self._spoil(around, place, f"it is {what}")
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
                self._spoil(around, place, "it changed while it was read")
            else:
                self._spoil(around, place, exc.strerror or type(exc).__name__)

    def _file(self, fd: int, name: str, place: Path, around: tuple[FoundSkill, ...]) -> None:
        wanted = [one for one in around if one.fault is None]
        if not wanted:
            return
        limits = self._limits
        for one in wanted:
            if len(one.data) >= limits.files:
                self._spoil((one,), place, f"the skill has more than {limits.files} files")
        file = os.open(name, _FILE, dir_fd=fd)
        try:
            before = os.fstat(file)
            if not stat.S_ISREG(before.st_mode):
                self._spoil(around, place, "it changed while it was read")
                return
            for one in wanted:
                if one.size + before.st_size > limits.size:
                    self._spoil((one,), place, f"the skill has more than {limits.size} bytes")
            wanted = [one for one in wanted if one.fault is None]
            if not wanted:
                return
            with open(file, "rb", closefd=False) as stream:
                data = stream.read(before.st_size + 1)
            if len(data) != before.st_size or _differs(before, os.fstat(file)):
                self._spoil(around, place, "the file changed while it was read")
                return
        finally:
            os.close(file)
        self._total += len(data)
        if self._total > limits.total_size:
            raise LimitExceeded(f"{self._root} has more than {limits.total_size} bytes of skills")
        for one in wanted:
            one.data[place[len(one.place) :]] = data
            one.size += len(data)

    def _spoil(self, around: tuple[FoundSkill, ...], place: Path, text: str) -> None:
        """Leave out the skills around a fault. Each keeps its first fault."""
        fault = f"{_shown(self._root, place)}: {text}"
        for one in around:
            if one.fault is None:
                one.fault = fault
                one.data.clear()
        if not around:
            logger.warning("skipped among skills: %s", fault)


def _differs(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns, before.st_ctime_ns) != (
        after.st_size,
        after.st_mtime_ns,
        after.st_ctime_ns,
    )


set_public_home(globals())

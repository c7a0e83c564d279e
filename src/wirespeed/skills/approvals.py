"""Approvals of skills: a set of files, each with its digest, that somebody has looked at; and the
file in which they are kept.

An approval is bound to the manifest that it was given for. A manifest with another set of URIs and
digests is not approved, and a skill without digests (``"dynamic"``) cannot be (the extension's
specification, "Content-bound approval").
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.contents import contents_of, replace_private
from wirespeed.skills.model import SkillEntry, differing, same_json

MAX_FILE = 64 << 20  # bytes of a file of approvals


class SkillChanges(msgspec.Struct, frozen=True):
    """The differences between a skill and what was approved of it.

    Attributes:
        added, removed, changed: Files, by their URIs.
        frontmatter: The fields of the front matter that are others. If no file differs, the entry
            says something else than the file that was approved.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    frontmatter: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.frontmatter)


class SkillApproval(msgspec.Struct, frozen=True):
    """The approval of one skill of one server; `to_json` makes it a text to store.

    Attributes:
        server: The label of the server. The same URI at another server is another skill.
        uri: The URI of the skill's ``SKILL.md``.
        files: The URI and the digest of each file, in order.
        frontmatter: The front matter of the ``SKILL.md``: what an entry says of the skill is
            compared with it, because the entry is read before the file.
    """

    server: str
    uri: str
    files: tuple[tuple[str, str], ...]
    frontmatter: dict[str, Any]

    @classmethod
    def of(cls, server: str, entry: SkillEntry) -> "SkillApproval":
        """The approval of a skill as it is now. ValueError: it has no digests."""
        if isinstance(entry.resources, str):
            raise ValueError(f"{entry.uri} is dynamic: it has no digests to approve")
        return cls(server, entry.uri, _files(entry), entry.frontmatter)

    @classmethod
    def from_json(cls, text: str | bytes) -> "SkillApproval":
        """Read what `to_json` wrote. msgspec.DecodeError: it is something else."""
        return msgspec.json.decode(text, type=cls)

    def to_json(self) -> bytes:
        """The approval as JSON."""
        return msgspec.json.encode(self)

    def covers(self, server: str, entry: SkillEntry) -> bool:
        """Whether this is the approval of a skill, and its files are still the same."""
        return (
            server == self.server
            and entry.uri == self.uri
            and not isinstance(entry.resources, str)
            and _files(entry) == self.files
            and same_json(entry.frontmatter, self.frontmatter)
        )

    def changes(self, entry: SkillEntry) -> SkillChanges:
        """The differences between a skill and what was approved."""
        before = dict(self.files)
        now: dict[Any, Any] = {} if isinstance(entry.resources, str) else dict(_files(entry))
        return SkillChanges(
            tuple(uri for uri in now if uri not in before),
            tuple(uri for uri in before if uri not in now),
            tuple(uri for uri, digest in now.items() if before.get(uri, digest) != digest),
            tuple(differing(entry.frontmatter, self.frontmatter)),
        )


def _files(entry: SkillEntry) -> tuple[tuple[str, str], ...]:
    assert not isinstance(entry.resources, str)
    return tuple(sorted((file.uri, file.digest) for file in entry.resources))


# -- the file --------------------------------------------------------------------------------------

Key = tuple[str, str]  # the label of a server, and the URI of a skill


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    approvals: list[SkillApproval]


class ApprovalFile:
    """A file of approvals, one for each skill. It is written whole or not at all, and has mode
    0600. A file that is not there has none.

    Args:
        path: The file. The file of its lock has the same name with ``.lock`` behind it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def load(self) -> dict[Key, SkillApproval]:
        """The approvals, by server and URI. ValueError: the file cannot be read, others may write
        it, or it has something else."""
        try:
            state = os.stat(self.path)
            if state.st_uid not in (0, os.geteuid()) or stat.S_IMODE(state.st_mode) & 0o022:
                raise ValueError(f"others may write the approvals in {self.path}")
            kept = msgspec.json.decode(contents_of(self.path, most=MAX_FILE), type=_Kept)
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise ValueError(f"{self.path}: {exc.strerror or exc}") from None
        except (msgspec.DecodeError, RecursionError) as exc:
            raise ValueError(f"{self.path} is not a file of approvals: {exc}") from None
        return {(one.server, one.uri): one for one in kept.approvals}

    def approve(self, approval: SkillApproval) -> None:
        """Keep an approval in the place of the earlier one of the skill. ValueError as of `load`;
        OSError: the file cannot be written."""
        with self._changed() as found:
            found[approval.server, approval.uri] = approval

    def revoke(self, server: str, uri: str) -> bool:
        """Remove the approval of a skill. Returns whether there was one. Raises as `approve`."""
        with self._changed() as found:
            return found.pop((server, uri), None) is not None

    @contextlib.contextmanager
    def _changed(self) -> Iterator[dict[Key, SkillApproval]]:
        """Let one process at a time change the approvals."""
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self.load()
            before = dict(found)
            yield found
            if found != before:
                kept = _Kept([found[key] for key in sorted(found)])
                text = msgspec.json.format(msgspec.json.encode(kept), indent=2)
                replace_private(self.path, text + b"\n")
        finally:
            os.close(lock)  # which unlocks


set_public_home(globals())

"""Approvals of skills: a set of files, each with its digest, that somebody has looked at.

An approval is bound to the manifest that it was given for. A manifest with another set of URIs and
digests is not approved, and a skill without digests (``"dynamic"``) cannot be (the extension's
specification, "Content-bound approval").
"""

from typing import Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.skills.model import SkillEntry


class SkillChanges(msgspec.Struct, frozen=True):
    """The files in which a skill differs from what was approved, by their URIs."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


class SkillApproval(msgspec.Struct, frozen=True):
    """The approval of one skill of one server; `to_json` makes it a text to store.

    Attributes:
        server: The label of the server. The same URI at another server is another skill.
        uri: The URI of the skill's ``SKILL.md``.
        files: The URI and the digest of each file, in order.
    """

    server: str
    uri: str
    files: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, server: str, entry: SkillEntry) -> "SkillApproval":
        """The approval of a skill as it is now. ValueError: it has no digests."""
        if isinstance(entry.resources, str):
            raise ValueError(f"{entry.uri} is dynamic: it has no digests to approve")
        return cls(server, entry.uri, _files(entry))

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
        )

    def changes(self, entry: SkillEntry) -> SkillChanges:
        """In which files a skill differs from what was approved."""
        before = dict(self.files)
        now: dict[Any, Any] = {} if isinstance(entry.resources, str) else dict(_files(entry))
        return SkillChanges(
            tuple(uri for uri in now if uri not in before),
            tuple(uri for uri in before if uri not in now),
            tuple(uri for uri, digest in now.items() if before.get(uri, digest) != digest),
        )


def _files(entry: SkillEntry) -> tuple[tuple[str, str], ...]:
    assert not isinstance(entry.resources, str)
    return tuple(sorted((file.uri, file.digest) for file in entry.resources))


set_public_home(globals())

"""A skill that a server has in memory, and the interface of catalogs that read files on demand."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.skills.folder import FoundSkill, Path, SkillLimits, skills_in
from wirespeed.skills.frontmatter import FrontmatterError, checked_frontmatter, require_yaml
from wirespeed.skills.model import (
    SKILL_FILE,
    SkillEntry,
    SkillResource,
    check_frontmatter,
    digest_of,
    excess,
    key_of,
    same_json,
    uri_of,
)

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder().encode
_PLAIN = re.compile(r"[a-z]+(?:-[a-z]+)*")
# Characters that YAML 1.1 forbids, or takes for the end of a line.
_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def _key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else _yaml(name)


def _yaml(value: Any) -> str:
    """Return a value on one line of YAML, which is its JSON."""
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", _encode(value).decode())


class Skill:
    """A skill with all its files, for `Server.add_skills`::

        Skill(
            "refunds",
            "Process refund requests as the company's policy says",
            {"SKILL.md": "Use the template in templates/.", "templates/mail.md": "Dear …"},
        )

    Args:
        name: The name: small letters and digits, with single hyphens between them.
        description: What the skill is for, and when to use it.
        files: Texts or bytes by relative path. A ``SKILL.md`` without front matter gets one, made
            of the name, the description and the fields. If it has front matter, that must say the
            same.
        path: The path before the name in the URI, such as ``"acme/billing"``.
        fields: Further members of the front matter, such as ``{"license": "MIT"}``.
        limits: The limits of the skill.

    Attributes:
        entry: The skill as clients see it.
        files: The bytes of its files by their URIs.

    Raises:
        ValueError: A name, a path or the front matter is not valid, or a limit is exceeded.
        ModuleNotFoundError: There is front matter to read, and PyYAML is not installed.
    """

    def __init__(
        self,
        name: str,
        description: str,
        files: Mapping[str, str | bytes],
        *,
        path: str = "",
        fields: Mapping[str, Any] | None = None,
        limits: SkillLimits | None = None,
    ) -> None:
        wanted: dict[str, Any] = {"name": name, "description": description}
        if clash := wanted.keys() & (fields or {}).keys():
            raise ValueError(
                f"fields cannot have {', '.join(sorted(clash))}: there is an argument for it"
            )
        wanted |= fields or {}
        check_frontmatter(wanted)
        data = {
            tuple(place.split("/")): one.encode() if isinstance(one, str) else bytes(one)
            for place, one in files.items()
        }
        head = data.get((SKILL_FILE,), b"")
        if head.removeprefix(b"\xef\xbb\xbf").startswith(b"---"):
            found = checked_frontmatter(head)
            if any(key not in found or not same_json(found[key], wanted[key]) for key in wanted):
                raise ValueError(
                    f"the front matter of {name} says something else than its arguments"
                )
            wanted = found
        else:
            lines = "".join(f"{_key(name)}: {_yaml(value)}\n" for name, value in wanted.items())
            data[(SKILL_FILE,)] = f"---\n{lines}---\n\n".encode() + head
        self._fill((*prefix_of(path), name), data, wanted, limits or SkillLimits())

    @classmethod
    def made_of(
        cls,
        path: Path,
        data: Mapping[Path, bytes],
        frontmatter: dict[str, Any],
        limits: SkillLimits,
    ) -> Skill:
        """The skill at a path, of its files by relative path and of front matter that was checked.
        ValueError: the name is not that of the folder, or a limit is exceeded."""
        skill = cls.__new__(cls)
        skill._fill(path, data, frontmatter, limits)
        return skill

    @classmethod
    def from_folder(
        cls, folder: str | os.PathLike[str], *, path: str = "", limits: SkillLimits | None = None
    ) -> Skill:
        """The skill in a folder, which is named as the skill. ValueError: the folder holds no skill
        that can be served. OSError: it cannot be read."""
        require_yaml()
        limits = limits or SkillLimits()
        place = os.path.abspath(folder)
        found = next(
            (one for one in skills_in(place, limits, is_skill=True) if not one.place), None
        )
        if found is None:
            raise ValueError(f"{place} has no {SKILL_FILE}")
        return _skill_of(found, (*prefix_of(path), os.path.basename(place)), limits)

    @classmethod
    def from_package(
        cls, package: str, folder: str, *, path: str = "", limits: SkillLimits | None = None
    ) -> Skill:
        """The skill in a folder of the data of a Python package, as ``importlib.resources`` finds
        it. Errors as of `from_folder`."""
        from importlib.resources import files

        limits = limits or SkillLimits()
        found: dict[Path, bytes] = {}
        place = files(package).joinpath(folder)
        if not place.is_dir():
            raise ValueError(f"the package {package} has no folder {folder}")
        _gather(place, (), found, limits)
        if (SKILL_FILE,) not in found:
            raise ValueError(f"{folder} of the package {package} has no {SKILL_FILE}")
        fields = checked_frontmatter(found[(SKILL_FILE,)])
        return cls.made_of((*prefix_of(path), place.name), found, fields, limits)

    def __repr__(self) -> str:
        return f"<Skill {self.entry.uri}: {len(self.files)} files>"

    def _fill(
        self,
        path: Path,
        data: Mapping[Path, bytes],
        frontmatter: dict[str, Any],
        limits: SkillLimits,
    ) -> None:
        if path[-1] != frontmatter["name"]:
            raise ValueError(
                f"the name {frontmatter['name']!r} differs from that of the folder, {path[-1]!r}"
            )
        self.files: Mapping[str, bytes] = {
            uri_of((*path, *place)): one for place, one in sorted(data.items())
        }
        for uri in self.files:
            key_of(uri)  # a ValueError for "..", an empty segment …
        self.entry = SkillEntry(
            uri_of((*path, SKILL_FILE)),
            frontmatter,
            tuple(SkillResource(uri, digest_of(one), len(one)) for uri, one in self.files.items()),
        )
        if problem := excess(self.entry, limits.files, limits.size):
            raise ValueError(problem)


def read_folder(
    folder: str | os.PathLike[str], prefix: Path, limits: SkillLimits
) -> dict[str, Skill]:
    """The skills below a folder by their URIs. One that cannot be served is left out, with a
    warning. Errors as of `wirespeed.skills.folder.skills_in`; ModuleNotFoundError."""
    require_yaml()
    skills: dict[str, Skill] = {}
    for found in skills_in(folder, limits):
        try:
            skill = _skill_of(found, (*prefix, *found.place), limits)
        except ValueError as exc:
            logger.warning("a skill is left out: %s", exc)
        else:
            skills[skill.entry.uri] = skill
    return skills


def _skill_of(found: FoundSkill, path: Path, limits: SkillLimits) -> Skill:
    """The skill that a folder holds. ValueError: it cannot be served; the text names the file."""
    if found.fault is not None:
        raise ValueError(found.fault)
    head = found.data.get((SKILL_FILE,))
    if head is None:
        raise ValueError(found.described("it is not a file"))
    try:
        return Skill.made_of(path, found.data, checked_frontmatter(head), limits)
    except FrontmatterError as exc:
        raise ValueError(found.described(str(exc), exc.line)) from None
    except ValueError as exc:
        raise ValueError(found.described(str(exc), 1)) from None


def prefix_of(path: str) -> Path:
    """Return the segments of a path before names. ValueError: it is not valid."""
    parts = tuple(path.split("/")) if path else ()
    if parts:
        key_of(uri_of(parts))
    return parts


def _gather(
    folder: Traversable, place: Path, found: dict[Path, bytes], limits: SkillLimits
) -> None:
    for one in folder.iterdir():
        if one.name.startswith(".") or one.name == "__pycache__":
            continue
        if one.is_dir():
            _gather(one, (*place, one.name), found, limits)
        else:
            found[(*place, one.name)] = one.read_bytes()
        if len(found) > limits.files:
            raise ValueError(f"it has more than {limits.files} files")


class SkillCatalog:
    """A store of skills that knows their digests beforehand, such as a bucket or a database, for
    `Server.add_skills`. A file is read when a client asks for it, and compared with its digest.

    Attributes:
        prefix: The beginning of the URIs of its skills. Requests for other URIs do not reach it.
    """

    prefix: str = "skill://"

    async def entries(self) -> Iterable[SkillEntry]:
        """The skills that are listed."""
        return ()

    async def entry(self, uri: str) -> SkillEntry | None:
        """The skill whose ``SKILL.md`` has this URI, listed or not; None if there is no such
        skill."""
        raise NotImplementedError

    async def read(self, uri: str) -> bytes | None:
        """The bytes of a file that a skill's entry names; None if the file is gone."""
        raise NotImplementedError


set_public_home(globals())

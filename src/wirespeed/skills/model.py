"""The wire model of skills: entries, the URIs of their files, and the rules for entries.

Source: the extension ``io.modelcontextprotocol/skills`` (SEP-2640; repository
modelcontextprotocol/ext-skills, ``specification/beta/skills.mdx``). It is in beta, so a later
revision may change it: everything that depends on the form of its messages is in this module.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import quote, unquote_to_bytes

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.meta import META_PREFIX

SKILLS_EXTENSION = META_PREFIX + "skills"
# The revisions of the extension that this package knows; None stands for the first.
REVISIONS: frozenset[str | None] = frozenset({None})

LIST = "skills/list"
GET = "skills/get"
READ_DIRECTORY = "resources/directory/read"
DIRECTORY_READ = "directoryRead"  # the setting that says whether a server has the method

SKILL_FILE = "SKILL.md"
MARKDOWN = "text/markdown"
DIRECTORY_TYPE = "inode/directory"
DYNAMIC = "dynamic"

# Every host takes a skill within these limits ("Limits").
MAX_FILES = 512
MAX_BYTES = 16 << 20
MAX_SEGMENTS = 64  # of the URI of a file whose skill is looked for

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_NAME = 64
_MAX_DESCRIPTION = 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([\x21-\x7e\x80-\U0010ffff]+)")

Key = tuple[str, ...]


class SkillResource(msgspec.Struct, frozen=True):
    """A file of a skill: its URI, the SHA-256 digest of its bytes (``sha256:`` and 64 hexadecimal
    digits), and its size in bytes."""

    uri: str
    digest: str
    size: int


class SkillEntry(msgspec.Struct, frozen=True):
    """A skill as ``skills/list`` and ``skills/get`` show it.

    Attributes:
        uri: The URI of its ``SKILL.md``.
        frontmatter: The YAML front matter of that file, as JSON.
        resources: All its files, or ``"dynamic"`` if its content has no stable digests.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: tuple[SkillResource, ...] | Literal["dynamic"]

    @property
    def name(self) -> str:
        """The name in the front matter: a label, which other skills may have, too."""
        return str(self.frontmatter.get("name", ""))

    @property
    def description(self) -> str:
        """The purpose of the skill, and when to use it."""
        return str(self.frontmatter.get("description", ""))

    @property
    def root(self) -> str:
        """The URI of its folder."""
        return self.uri.removesuffix("/" + SKILL_FILE)


_decode_entry = msgspec.json.Decoder(SkillEntry).decode


def digest_of(data: bytes) -> str:
    """The digest of a file, as entries have it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


# -- URIs ------------------------------------------------------------------------------------------


def uri_of(parts: Iterable[str]) -> str:
    """The URI of a path: ``skill://`` and its segments, percent-encoded."""
    return "skill://" + "/".join(quote(part, safe="") for part in parts)


def key_of(uri: str) -> Key:
    """The scheme of a URI and its decoded segments: URIs of the same file have the same key.

    ValueError: a segment is empty, ``.`` or ``..``, or has a slash, a backslash or a control
    character; or the URI has a query or a fragment.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise ValueError(f"{_shown(uri)} is not the URI of a file of a skill")
    scheme, path = found[1].lower(), found[2]
    if "?" in path or "#" in path:
        raise ValueError(f"{_shown(uri)} has a query or a fragment")
    return (scheme, *(_segment(part, uri) for part in path.split("/")))


def _segment(text: str, uri: str) -> str:
    try:
        segment = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{_shown(uri)} has a segment that is not UTF-8") from None
    if segment in ("", ".", ".."):
        raise ValueError(f"{_shown(uri)} has an empty segment or one of dots")
    if any(c in "/\\" or c < " " or c == "\x7f" for c in segment):
        raise ValueError(f"{_shown(uri)} has a segment that cannot be the name of a file")
    return segment


def is_below(key: Key, folder: Key) -> bool:
    """Whether a key is that of something inside of a folder."""
    return len(key) > len(folder) and key[: len(folder)] == folder


def roots_above(uri: str) -> list[str]:
    """Return the URIs of the skills that may have a file or a folder, the innermost first; none
    for a path of more than `MAX_SEGMENTS`."""
    scheme, slashes, path = uri.partition("://")
    if path.count("/") >= MAX_SEGMENTS:
        return []
    parts = path.split("/")
    if parts[-1] == SKILL_FILE:
        parts.pop()
    return [
        f"{scheme}{slashes}{'/'.join(parts[:n])}/{SKILL_FILE}" for n in range(len(parts), 0, -1)
    ]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "…")


# -- entries ---------------------------------------------------------------------------------------


def check_frontmatter(fields: Mapping[str, Any]) -> None:
    """Check the front matter against the Agent Skills specification. ValueError."""
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str):
        raise ValueError("the front matter has no name")
    check_name(name)
    if not isinstance(description, str) or not description.strip():
        raise ValueError("the front matter has no description")
    if len(description) > _MAX_DESCRIPTION:
        raise ValueError(f"the description is longer than {_MAX_DESCRIPTION} characters")


def check_name(name: str) -> None:
    """Check the name of a skill. ValueError: it is not valid."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise ValueError(
            f"the name {_shown(name)} is not 1 to {_MAX_NAME} small letters and digits, with "
            "single hyphens between them"
        )


def check_entry(entry: SkillEntry) -> None:
    """Check an entry of another side. ValueError: it is invalid; the text says why.

    The manifest is complete in form (its ``SKILL.md`` is in it, each file once, each inside of the
    folder). Files are compared with it when they are read.
    """
    key = key_of(entry.uri)
    if len(key) < 3 or key[-1] != SKILL_FILE or not entry.uri.endswith("/" + SKILL_FILE):
        raise ValueError(f"{_shown(entry.uri)} is not the URI of a {SKILL_FILE}")
    name, description = entry.frontmatter.get("name"), entry.frontmatter.get("description")
    if not isinstance(name, str) or not isinstance(description, str):
        raise ValueError("the front matter has no name or no description")
    check_name(name)
    if key[-2] != name:
        raise ValueError(f"the folder {_shown(key[-2])} is not named as its skill, {_shown(name)}")
    if isinstance(entry.resources, str):
        return
    seen = set()
    for file in entry.resources:
        found = key_of(file.uri)
        if not is_below(found, key[:-1]):
            raise ValueError(f"{_shown(file.uri)} is not inside of the folder of the skill")
        if found in seen:
            raise ValueError(f"{_shown(file.uri)} is in the manifest twice")
        if not _DIGEST.fullmatch(file.digest):
            raise ValueError(f"the digest of {_shown(file.uri)} is not sha256: and 64 digits")
        if file.size < 0:
            raise ValueError(f"the size of {_shown(file.uri)} is negative")
        seen.add(found)
    if key not in seen:
        raise ValueError(f"the manifest does not have its own {SKILL_FILE}")


def entry_of(data: Any) -> SkillEntry:
    """Decode an entry and check it. ValueError: the entry is invalid."""
    try:
        entry = _decode_entry(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ValueError(str(exc)) from None
    check_entry(entry)
    return entry


def excess(entry: SkillEntry, files: int = MAX_FILES, size: int = MAX_BYTES) -> str | None:
    """Return the limit that the manifest of an entry exceeds, in words; None if it keeps both."""
    if isinstance(entry.resources, str):
        return None
    if len(entry.resources) > files:
        return f"it has {len(entry.resources)} files, and the limit is {files}"
    total = sum(file.size for file in entry.resources)
    if total > size:
        return f"its files have {total} bytes, and the limit is {size}"
    return None


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. A number equals another one of the same value, but not
    a boolean."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and bool(one == other)


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The members in which two objects differ, in order."""
    return sorted(
        name
        for name in one.keys() | other.keys()
        if name not in one or name not in other or not same_json(one[name], other[name])
    )


set_public_home(globals())

"""Skills of a server, from the client's side: listed, got, read and verified.

Each file is compared with the skill's entry before it is handed out: its size and digest, and the
front matter of ``SKILL.md`` (the extension's specification, "Integrity and Verification"). A file
that the entry does not name is not read. A match means that the two are consistent, not that
either is trustworthy.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Protocol, Unpack
from urllib.parse import quote

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.client.feature_requests import FeatureRequests, ListMethod
from wirespeed.client.requests.send import RequestOptions
from wirespeed.client.results.decode import ResultDecoder
from wirespeed.client.results.features import ResourceInfo, SkillFile
from wirespeed.client.timeouts import CLIENT_DEFAULT
from wirespeed.errors import InvalidResponse, SkillChanged, Unsupported
from wirespeed.protocol.extensions import revision_of
from wirespeed.skills.approvals import SkillApproval
from wirespeed.skills.frontmatter import FrontmatterError, frontmatter_of, require_yaml
from wirespeed.skills.model import (
    DIRECTORY_READ,
    GET,
    LIST,
    MAX_BYTES,
    MAX_SEGMENTS,
    READ_DIRECTORY,
    REVISIONS,
    SKILL_FILE,
    SKILLS_EXTENSION,
    SkillEntry,
    SkillResource,
    differing,
    digest_of,
    entry_of,
    excess,
    is_below,
    key_of,
)
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.protocol.results import ReadResourceResult

__all__ = ["RemoteSkill", "SkillRequests"]

logger = logging.getLogger("wirespeed.client")

_WRITTEN = "/%!$&'()*+,;=:@"  # stay as they are in a path, besides letters, digits and _.-~


class _Page(msgspec.Struct, rename="camel"):
    skills: list[msgspec.Raw]
    next_cursor: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    digest: str | None = None
    result_type: str = "complete"


class SkillsPage(msgspec.Struct):
    """One page of skills/list. Entries that are not valid are left out."""

    skills: list[SkillEntry]
    next_cursor: str | None
    ttl_ms: int
    digest: str | None = None
    result_type: str = "complete"


class _Got(msgspec.Struct, rename="camel"):
    skill: msgspec.Raw
    ttl_ms: int = 0
    cache_scope: str = "private"
    result_type: str = "complete"


class _GotEntry(msgspec.Struct):
    entry: SkillEntry
    ttl_ms: int
    result_type: str = "complete"


class _Children(msgspec.Struct, rename="camel"):
    resources: list[ResourceInfo]
    next_cursor: str | None = None
    result_type: str = "complete"


def _take_got(got: _Got) -> _GotEntry:
    try:
        return _GotEntry(entry_of(got.skill), got.ttl_ms)
    except ValueError as exc:
        raise InvalidResponse(f"the skill is not valid: {exc}") from None


class _Listing(ListMethod[SkillsPage, SkillEntry]):
    """The list of skills of one client's server."""

    def __init__(self) -> None:
        self.method = LIST
        self.items = lambda page: page.skills
        self.key = lambda entry: entry.uri
        self.decode = ResultDecoder(msgspec.json.Decoder(_Page).decode, self._take)
        self._quiet = RateLimitedLog(logger)

    def _take(self, page: _Page) -> SkillsPage:
        found = [entry for entry in map(self._valid, page.skills) if entry is not None]
        return SkillsPage(found, page.next_cursor, page.ttl_ms, page.digest)

    def _valid(self, text: msgspec.Raw) -> SkillEntry | None:
        try:
            return entry_of(text)
        except ValueError as exc:
            what = "%s: left out a skill that is not valid: %s"
            self._quiet.log(logging.WARNING, what, LIST, exc)
            return None


_decode_got: ResultDecoder[_GotEntry] = ResultDecoder(msgspec.json.Decoder(_Got).decode, _take_got)
_decode_children: ResultDecoder[_Children] = ResultDecoder(msgspec.json.Decoder(_Children).decode)


class RemoteSkill:
    """A skill of a server, as its entry was when it was listed or got: `Client.list_skills` and
    `Client.get_skill` make it.

    Two servers may have skills with the same URI: a skill is known by the label of its server and
    its URI together.

    Attributes:
        server: The label of the server, which the client gave it.
        entry: The skill's entry, as the server sent it.
    """

    __slots__ = ("_requests", "entry", "server")

    def __init__(self, requests: SkillRequests, server: str, entry: SkillEntry) -> None:
        self._requests = requests
        self.server = server
        self.entry = entry

    def __repr__(self) -> str:
        return f"<RemoteSkill {self.uri} of {self.server}>"

    @property
    def uri(self) -> str:
        """The URI of its ``SKILL.md``."""
        return self.entry.uri

    @property
    def name(self) -> str:
        """Its name: a label, which other skills may have, too."""
        return self.entry.name

    @property
    def description(self) -> str:
        """Its purpose, and when to use it."""
        return self.entry.description

    @property
    def resources(self) -> tuple[SkillResource, ...] | None:
        """Its files; None if its content is made as it is read, without digests."""
        return None if isinstance(self.entry.resources, str) else self.entry.resources

    @property
    def excess(self) -> str | None:
        """The limit of the specification (512 files, 16 MiB) that it exceeds; None if it keeps
        both."""
        return excess(self.entry)

    def approval(self) -> SkillApproval:
        """An approval of the skill with the files that it has now, to be stored. ValueError: it has
        no digests, so that an approval would cover anything."""
        return SkillApproval.of(self.server, self.entry)

    async def read(self, path: str = SKILL_FILE, **options: Unpack[RequestOptions]) -> SkillFile:
        """Read one of its files, by the path from its folder or by the URI, and verify it.

        SkillChanged: the file differs from the entry, or the entry does not name it.
        RemoteError: the server does not have the file.
        """
        return await self._requests.read(self, path, **options)

    async def to_directory(
        self, folder: str | os.PathLike[str], **options: Unpack[RequestOptions]
    ) -> None:
        """Read all its files, verify them, and write them into a new folder. The folder is there at
        the end with all files, or not at all.

        FileExistsError: the path exists. SkillChanged: a file differs from the entry.
        Unsupported: the skill has no list of its files. ValueError: it exceeds a limit, or two of
        its files cannot be in one folder.
        """
        await self._requests.save(self, folder, **options)


class SkillClient(Protocol):
    """A client (`wirespeed.Client`), as its requests for skills see it."""

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """The capabilities of its server."""


class SkillRequests:
    """The requests of one client for the skills of its server."""

    def __init__(self, client: SkillClient, features: FeatureRequests, label: str) -> None:
        self._client = client
        self._features = features
        self._label = label
        self._listing = _Listing()
        self._told = False

    async def _settings(self) -> dict[str, Any]:
        """Return the settings of the server's skills. Unsupported: it has none, or a revision that
        this client does not know."""
        await self._features._sender.revision()
        declared = self._client.server_capabilities.get("extensions")
        settings = declared.get(SKILLS_EXTENSION) if isinstance(declared, dict) else None
        if not isinstance(settings, dict):
            raise Unsupported("the server has no skills")
        revision = revision_of(settings)
        if revision not in REVISIONS:
            if not self._told:
                self._told = True
                logger.warning("skills are off: the server has their revision %.100s", revision)
            raise Unsupported(f"the server has skills of the revision {revision!s:.100}")
        return settings

    async def listed(
        self, server: str | None = None, **options: Unpack[RequestOptions]
    ) -> list[RemoteSkill]:
        """See `Client.list_skills`."""
        await self._settings()
        label = server or self._label
        found = await self._features.whole(self._listing, **options)
        return [RemoteSkill(self, label, entry) for entry in found]

    async def get(
        self, uri: str, server: str | None = None, **options: Unpack[RequestOptions]
    ) -> RemoteSkill:
        """See `Client.get_skill`."""
        await self._settings()
        if not isinstance(uri, str):
            raise TypeError(f"uri must be a string, not {type(uri).__name__}")
        got = await self._features.fetch(GET, {"uri": uri}, _decode_got, **options)
        if not _same(got.entry.uri, uri):
            raise InvalidResponse(f"the server returned another skill: {got.entry.uri:.200}")
        return RemoteSkill(self, server or self._label, got.entry)

    async def directory(self, uri: str, **options: Unpack[RequestOptions]) -> list[ResourceInfo]:
        """See `Client.list_skill_folder`."""
        settings = await self._settings()
        if settings.get(DIRECTORY_READ) is not True:
            raise Unsupported("the server does not list folders")
        sender = self._features._sender
        until = sender.until(sender.seconds(options.get("timeout", CLIENT_DEFAULT)))
        found: dict[str, ResourceInfo] = {}
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            params = {"uri": uri} if cursor is None else {"uri": uri, "cursor": cursor}
            page: _Children = await sender.send(
                READ_DIRECTORY,
                msgspec.json.encode(params),
                _decode_children,
                sender.rest(until),
                meta=options.get("meta"),
            )
            for child in page.resources:
                if child.uri.startswith(uri + "/"):
                    found.setdefault(child.uri, child)
            cursor = page.next_cursor
            if cursor is None or cursor in seen:
                return list(found.values())
            seen.add(cursor)

    # -- reading -----------------------------------------------------------------------------------

    async def read(
        self, skill: RemoteSkill, path: str, **options: Unpack[RequestOptions]
    ) -> SkillFile:
        """See `RemoteSkill.read`."""
        uri, wanted = _file_of(skill.entry, path)
        is_head = key_of(uri) == key_of(skill.uri)
        if is_head:
            require_yaml()  # before anything is asked for
        result = await self._features.read(uri, **options)
        try:
            data, kind = _contents(result, uri)
            _verify(skill.entry, uri, wanted, data, is_head)
        except SkillChanged:
            if not self._features.forget_read(uri):
                raise
            # what was kept may be older than the entry
            data, kind = _contents(await self._features.read(uri, **options), uri)
            _verify(skill.entry, uri, wanted, data, is_head)
        return SkillFile(skill.server, uri, data, kind)

    async def save(
        self,
        skill: RemoteSkill,
        folder: str | os.PathLike[str],
        **options: Unpack[RequestOptions],
    ) -> None:
        """See `RemoteSkill.to_directory`."""
        if skill.resources is None:
            raise Unsupported(f"{skill.uri} is dynamic: it has no list of its files")
        if problem := skill.excess:
            raise ValueError(f"{skill.uri}: {problem}")
        if os.path.lexists(folder):
            raise FileExistsError(f"there is something at {os.fspath(folder)} already")
        root = len(key_of(skill.uri)) - 1
        files: dict[tuple[str, ...], bytes] = {}
        for file in skill.resources:
            if file.uri.count("/") > MAX_SEGMENTS + 1:  # two of the scheme
                raise ValueError(f"{file.uri:.200} has more than {MAX_SEGMENTS} segments")
        for file in skill.resources:
            read = await self.read(skill, file.uri, **options)
            files[key_of(file.uri)[root:]] = read.data
        await asyncio.get_running_loop().run_in_executor(None, write_folder, folder, files)


def _same(one: str, other: str) -> bool:
    try:
        return one == other or key_of(one) == key_of(other)
    except ValueError:
        return False


def _file_of(entry: SkillEntry, path: str) -> tuple[str, SkillResource | None]:
    """Return the URI of a file of a skill, and its row in the entry. SkillChanged: the entry does
    not name it."""
    uri = path if "://" in path else f"{entry.root}/{quote(path, safe=_WRITTEN)}"
    try:
        key = key_of(uri)
    except ValueError as exc:
        raise SkillChanged(str(exc), entry.uri) from None
    if isinstance(entry.resources, str):
        if not is_below(key, key_of(entry.uri)[:-1]):
            raise SkillChanged(f"{uri:.200} is not inside of the folder of the skill", entry.uri)
        return uri, None
    for file in entry.resources:
        if key_of(file.uri) == key:
            return file.uri, file
    raise SkillChanged(f"{uri:.200} is not a file that the entry of the skill names", entry.uri)


def _contents(result: ReadResourceResult, uri: str) -> tuple[bytes, str | None]:
    """Return the bytes of the file that was asked for."""
    for one in result.contents:
        if not _same(one.uri, uri):
            continue
        data = one.text.encode() if one.text is not None else one.blob
        return data or b"", one.mime_type
    raise SkillChanged(f"the server returned another resource than {uri:.200}", uri)


def _verify(
    entry: SkillEntry, uri: str, wanted: SkillResource | None, data: bytes, is_head: bool
) -> None:
    """Compare a file with its row in the entry. SkillChanged: they differ."""
    if wanted is None:
        if len(data) > MAX_BYTES:
            raise SkillChanged(f"{uri:.200} has more than {MAX_BYTES} bytes", entry.uri)
    else:
        found = digest_of(data)
        if len(data) != wanted.size or found != wanted.digest:
            raise SkillChanged(
                f"{uri:.200} is not the file that the entry names: {len(data)} bytes, {found}; "
                f"expected {wanted.size} bytes, {wanted.digest}",
                entry.uri,
                wanted.digest,
                found,
            )
    if is_head:
        try:
            fields = frontmatter_of(data)
        except FrontmatterError as exc:
            raise SkillChanged(f"{uri:.200}:{exc.line}: {exc}", entry.uri) from None
        if names := differing(fields, entry.frontmatter):
            raise SkillChanged(
                f"the front matter of {uri:.200} says something else than the entry: "
                f"{', '.join(names):.200}",
                entry.uri,
            )


def write_folder(folder: str | os.PathLike[str], files: dict[tuple[str, ...], bytes]) -> None:
    """Write files into a new folder, all or none. The paths are those of keys
    (`wirespeed.skills.model.key_of`), so that none leads out. FileExistsError: the folder is there.
    ValueError: two of the files cannot be in one folder."""
    place = os.path.abspath(folder)
    above = os.path.dirname(place)
    made = tempfile.mkdtemp(prefix=".skill-", dir=above)
    try:
        for path, data in files.items():
            inner = os.path.join(made, *path[:-1])
            try:
                os.makedirs(inner, exist_ok=True)
                with open(os.path.join(inner, path[-1]), "xb") as file:
                    file.write(data)
            except (FileExistsError, NotADirectoryError, IsADirectoryError) as exc:
                text = f"two files of the skill have the same place: {'/'.join(path)}"
                raise ValueError(text) from exc
        os.chmod(made, 0o755)
        os.mkdir(place)  # FileExistsError: nothing is overwritten
        try:
            os.rename(made, place)  # over the empty folder of our own
        except OSError:
            os.rmdir(place)
            raise
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def label_of(target: Any) -> str:
    """Return the default label of a server: its URL, its command, or its name."""
    for name in ("where", "command", "name"):
        found = getattr(target, name, None)
        if isinstance(found, str) and found:
            return found
    return "server"


set_public_home(globals())

"""Files of skills: in memory, with the folders above them; and as resources."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from wirespeed.errors import ResourceNotFound
from wirespeed.protocol.blocks import ResourceContents
from wirespeed.protocol.results import ReadResourceResult
from wirespeed.server.catalog import ResourceEntry
from wirespeed.server.requests.call import Call
from wirespeed.server.requests.operation import HandlerContext
from wirespeed.server.resources.contents import ContentsPlan
from wirespeed.server.resources.folder import FolderFile
from wirespeed.server.resources.resource import Resource, not_found
from wirespeed.skills.model import DIRECTORY_TYPE, MARKDOWN, SKILL_FILE, SkillEntry
from wirespeed.skills.skill import Skill

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.server.requests.call import Serving
    from wirespeed.server.requests.reply import Body


class ServedFile:
    """A file, in its wire form."""

    __slots__ = ("data", "is_text", "mime_type", "owners", "uri")

    def __init__(self, uri: str, data: bytes) -> None:
        self.uri = uri
        self.data = data
        name = uri.rpartition("/")[2]
        kind = FolderFile(name, data)
        self.mime_type = MARKDOWN if name == SKILL_FILE else kind.mime_type
        self.is_text = kind.is_text
        self.owners: tuple[SkillEntry, ...] = ()  # the skills that have it


class SkillFiles:
    """Skills that are in memory, with all their files. A source replaces it as a whole."""

    def __init__(self, skills: Mapping[str, Skill]) -> None:
        self.entries = {uri: skill.entry for uri, skill in skills.items()}
        self.files: dict[str, ServedFile] = {}
        for skill in skills.values():
            for uri, data in skill.files.items():
                file = self.files.get(uri) or self.files.setdefault(uri, ServedFile(uri, data))
                file.owners = (*file.owners, skill.entry)
        self._folders: dict[str, dict[str, ResourceEntry]] | None = None

    def folder(self, uri: str, sees: Callable[[SkillEntry], bool] | None) -> list[ResourceEntry]:
        """The direct children of a folder; none if there is no such folder. ``sees``: Whether the
        client sees a skill; None: it sees all."""
        if sees is None:
            if self._folders is None:
                self._folders = _tree(self.files.values(), self.entries)
            return list(self._folders.get(uri, {}).values())
        below = uri + "/"
        seen = (
            file
            for file in self.files.values()
            if file.uri.startswith(below) and any(map(sees, file.owners))
        )
        return list(_tree(seen, self.entries).get(uri, {}).values())


def _tree(
    files: Iterable[ServedFile], skills: Mapping[str, SkillEntry]
) -> dict[str, dict[str, ResourceEntry]]:
    """The children of each folder above some files, by its URI."""
    folders: dict[str, dict[str, ResourceEntry]] = {}
    for file in files:
        entry, uri = entry_of_file(file.uri, file.mime_type, len(file.data), skills), file.uri
        while True:
            parent, _, _ = uri.rpartition("/")
            if parent.endswith(":/"):  # of the scheme
                break
            children = folders.setdefault(parent, {})
            if uri in children:
                break
            children[uri] = entry
            uri = parent
            name = uri.rpartition("/")[2]
            entry = ResourceEntry(uri, name, mime_type=DIRECTORY_TYPE)
    return folders


def entry_of_file(
    uri: str, mime_type: str, size: int | None, skills: Mapping[str, SkillEntry]
) -> ResourceEntry:
    """A file as a resource. ``SKILL.md`` has the name and the description of its skill."""
    skill = skills.get(uri)
    if skill is None:
        return ResourceEntry(uri, uri.rpartition("/")[2], mime_type=mime_type, size=size)
    return ResourceEntry(
        uri, skill.name, description=skill.description, mime_type=MARKDOWN, size=size
    )


# -- as resources ----------------------------------------------------------------------------------


class CatalogFile(Resource):
    """A file of a catalog. It is read when a client asks for it."""

    __slots__ = ("_fetch",)

    def __init__(
        self, uri: str, fetch: Callable[[], Coroutine[Any, Any, ServedFile | None]]
    ) -> None:
        super().__init__(ResourceEntry(uri, uri.rpartition("/")[2]))
        self._fetch = fetch

    def read(self, call: Call, message: Message) -> Any:
        return self._read(call)

    async def _read(self, call: Call) -> Body:
        file = await self._fetch()
        if file is None:
            raise not_found(self.uri, call.revision)
        return resource_of(file, {}, {"ttlMs": 0, "cacheScope": "private"}).encoded(call.revision)

    async def fetch(self, context: HandlerContext) -> ReadResourceResult:
        file = await self._fetch()
        if file is None:
            raise ResourceNotFound(self.uri)
        return await resource_of(file, {}, {"ttlMs": 0, "cacheScope": "private"}).fetch(context)


class ListedHead(Resource):
    """A ``SKILL.md`` in the list of resources."""

    __slots__ = ("_find", "_own")

    def __init__(
        self,
        entry: ResourceEntry,
        find: Callable[[str, Call | Serving | None], Resource | None],
        scopes: Iterable[str],
    ) -> None:
        super().__init__(entry, scopes=scopes)
        self._find = find
        self._own = entry.uri  # a server on which this one is mounted may change the entry's URI

    def read(self, call: Call, message: Message) -> Any:
        found = self._find(self._own, call)
        if found is None:
            raise not_found(self.uri, call.revision)
        return found.read(call, message)

    async def fetch(self, context: HandlerContext) -> ReadResourceResult:
        found = self._find(self._own, None)
        if found is None:
            raise ResourceNotFound(self.uri)
        return await found.fetch(context)


def resource_of(
    file: ServedFile, skills: Mapping[str, SkillEntry], hints: Mapping[str, Any]
) -> Resource:
    """A file as the resource that ``resources/read`` answers with."""
    entry = entry_of_file(file.uri, file.mime_type, len(file.data), skills)
    fixed = ResourceContents(
        file.uri,
        file.mime_type,
        text=file.data.decode() if file.is_text else None,
        blob=None if file.is_text else file.data,
    )
    return Resource(entry, ContentsPlan(file.mime_type, hints), fixed=fixed)

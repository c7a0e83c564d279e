"""Skills of a server: what `Server.add_skills` takes, served in both eras.

``skills/list``, ``skills/get`` and ``resources/directory/read`` of the extension
``io.modelcontextprotocol/skills`` (`wirespeed.skills.model`), and the files by ``resources/read``.
Requests pass middleware, scopes and the filter of the server as those of its resources do; the
filter gets the entry of the resource ``SKILL.md``. In the legacy eras, which the specification does
not speak of, the results have no ``ttlMs`` and no ``cacheScope``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError, ResourceNotFound, shortened
from wirespeed.protocol import codes
from wirespeed.protocol.blocks import ResourceContents
from wirespeed.protocol.messages import ResourceParams
from wirespeed.protocol.results import ReadResourceResult
from wirespeed.protocol.revisions import fit
from wirespeed.server.catalog import ResourceEntry, check_options, page_of
from wirespeed.server.extensions import Extension
from wirespeed.server.permissions import check_scopes, grants
from wirespeed.server.requests.call import Call
from wirespeed.server.requests.operation import HandlerContext, check_timeout, cursor_of, params_of
from wirespeed.server.resources.contents import ContentsPlan, cache_hints
from wirespeed.server.resources.folder import FolderFile
from wirespeed.server.resources.resource import Resource, not_found
from wirespeed.skills.folder import SkillLimits
from wirespeed.skills.model import (
    DIRECTORY_READ,
    DIRECTORY_TYPE,
    GET,
    LIST,
    MARKDOWN,
    READ_DIRECTORY,
    SKILL_FILE,
    SKILLS_EXTENSION,
    SkillEntry,
    SkillResource,
    digest_of,
    entry_of,
    excess,
    roots_above,
)
from wirespeed.skills.skill import Skill, SkillCatalog, prefix_of, read_folder
from wirespeed.transport.options import checked_scopes
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.auth.resource_server import ResourceServer
    from wirespeed.protocol.revisions import Revision
    from wirespeed.server.catalog import Shows
    from wirespeed.server.discovery import ServerDiscovery
    from wirespeed.server.extensions import ExtensionCatalog
    from wirespeed.server.feature_catalogs import ResourceCatalog
    from wirespeed.server.permissions import Visibility
    from wirespeed.server.requests.call import Serving
    from wirespeed.server.requests.reply import Body

PAGE = 100  # entries of a page, where the server does not say
CATALOG_TIMEOUT = 10.0  # seconds
MAX_PAGES = 1024  # that are kept encoded

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder().encode
_uri = msgspec.json.Decoder(ResourceParams)


class SkillOptions(TypedDict, total=False):
    """The options of `Server.add_skills`, which describes them."""

    path: str
    listed: bool
    scopes: Iterable[str]
    tags: Iterable[str]
    ttl_ms: int | None
    cache_scope: str | None
    limits: SkillLimits | None
    timeout: float


# -- sources ---------------------------------------------------------------------------------------


class _File:
    """A file of skills, as it is sent."""

    __slots__ = ("data", "is_text", "mime_type", "owners", "uri")

    def __init__(self, uri: str, data: bytes) -> None:
        self.uri = uri
        self.data = data
        name = uri.rpartition("/")[2]
        kind = FolderFile(name, data)
        self.mime_type = MARKDOWN if name == SKILL_FILE else kind.mime_type
        self.is_text = kind.is_text
        self.owners: tuple[SkillEntry, ...] = ()  # the skills that it is a part of


class _Content:
    """Skills that are in memory, with all their files. A source replaces it as a whole."""

    def __init__(self, skills: Mapping[str, Skill]) -> None:
        self.entries = {uri: skill.entry for uri, skill in skills.items()}
        self.files: dict[str, _File] = {}
        for skill in skills.values():
            for uri, data in skill.files.items():
                file = self.files.get(uri) or self.files.setdefault(uri, _File(uri, data))
                file.owners = (*file.owners, skill.entry)
        self._folders: dict[str, dict[str, ResourceEntry]] | None = None

    def folder(self, uri: str, sees: Callable[[SkillEntry], bool] | None) -> list[ResourceEntry]:
        """The direct children of a folder; none if there is no such folder. ``sees``: whether the
        client sees a skill; None: every one."""
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
    files: Iterable[_File], skills: Mapping[str, SkillEntry]
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


class SkillSource:
    """What one call of `Server.add_skills` added."""

    def __init__(self, service: SkillService, options: SkillOptions) -> None:
        self._service = service
        self.scopes = checked_scopes(options.get("scopes", ())) or None
        tags = options.get("tags", ())
        if isinstance(tags, str):
            raise TypeError("tags of skills are a list of strings, not one string")
        self.tags = frozenset(tags)
        self.listed = options.get("listed", True)
        self.hints = cache_hints(
            service.server.discovery.hints, options.get("ttl_ms"), options.get("cache_scope")
        )
        self.limits = options.get("limits") or SkillLimits()

    @property
    def skills(self) -> Mapping[str, SkillEntry]:
        """The skills that are in memory, by their URIs; none of a catalog."""
        return {}

    def reload(self) -> bool:
        """Read the folder again, from any thread: clients get the old skills or the new ones, never
        a mixture. Returns whether something changed. If the folder cannot be read, or exceeds a
        limit, the old skills stay, and the error is raised. Of other sources it does nothing."""
        return False


class _Kept(SkillSource):
    """Skills that are in memory."""

    def __init__(
        self,
        service: SkillService,
        options: SkillOptions,
        load: Callable[[], Mapping[str, Skill]],
        again: bool,
    ) -> None:
        super().__init__(service, options)
        self._load = load
        self._again = again
        self._lock = threading.Lock()
        self.content = _Content(load())

    def __repr__(self) -> str:
        return f"<SkillSource of {len(self.content.entries)} skills>"

    @property
    def skills(self) -> Mapping[str, SkillEntry]:
        return dict(self.content.entries)

    def reload(self) -> bool:
        if not self._again:
            return False
        with self._lock:
            old, new = self.content, _Content(self._load())
            if old.entries == new.entries:
                return False
            self.content = new
        self._service.changed(_changed_files(old, new))
        return True


def _changed_files(old: _Content, new: _Content) -> Iterator[str]:
    for uri in old.files.keys() | new.files.keys():
        one, other = old.files.get(uri), new.files.get(uri)
        if one is None or other is None or one.data != other.data:
            yield uri


class _Lazy(SkillSource):
    """The skills of a catalog. What it returns is checked as what a server returns to a client."""

    def __init__(self, service: SkillService, options: SkillOptions, catalog: SkillCatalog) -> None:
        super().__init__(service, options)
        self.catalog = catalog
        self._timeout = options.get("timeout", CATALOG_TIMEOUT)
        check_timeout(self._timeout)
        self._quiet = RateLimitedLog(logger)

    def __repr__(self) -> str:
        return f"<SkillSource of {self.catalog!r}>"

    def has(self, uri: str) -> bool:
        """Whether a URI may be one of the catalog's."""
        return uri.startswith(self.catalog.prefix)

    async def _bounded(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await work
        except TimeoutError as exc:
            text = f"the catalog of skills did not answer within {self._timeout:g} s"
            raise ProtocolError(codes.INTERNAL_ERROR, text) from exc

    def _checked(self, entry: SkillEntry | None) -> SkillEntry | None:
        if entry is None:
            return None
        try:
            entry_of(_encode(entry))
            problem = excess(entry, self.limits.files, self.limits.size)
        except (ValueError, TypeError, RecursionError) as exc:  # or it has no form in JSON
            problem = str(exc)
        if problem is None:
            return entry
        self._quiet.log(
            logging.WARNING, "a skill of %r is left out: %.200s: %s", self.catalog,
            getattr(entry, "uri", entry), problem,
        )  # fmt: skip
        return None

    async def entries(self) -> list[SkillEntry] | None:
        """The listed skills that are valid; None if the catalog cannot be asked now."""
        try:
            found = list(await self._bounded(self.catalog.entries()))
        except Exception as exc:
            self._quiet.log(
                logging.WARNING, "the skills of %r are missing in the list: %s", self.catalog, exc
            )
            return None
        checked = [entry for entry in map(self._checked, found[: self.limits.skills]) if entry]
        if len(found) > self.limits.skills:
            self._quiet.log(
                logging.WARNING, "%r has more than %d skills: the others are not listed",
                self.catalog, self.limits.skills,
            )  # fmt: skip
        return checked

    async def entry(self, uri: str) -> SkillEntry | None:
        """A skill by its URI."""
        if not self.has(uri):
            return None
        entry = self._checked(await self._bounded(self.catalog.entry(uri)))
        return entry if entry is not None and entry.uri == uri else None

    async def around(self, uri: str) -> AsyncIterator[SkillEntry]:
        """The skills that a file or a folder may be a part of, the innermost first."""
        for root in roots_above(uri):
            entry = await self.entry(root)
            if entry is not None:
                yield entry

    async def read(self, uri: str, sees: Callable[[SkillEntry], bool]) -> bytes | None:
        """The bytes of a file that a skill which the client sees names; None if there is none.
        ProtocolError: they are other bytes than the skill says."""
        async for entry in self.around(uri):
            if not sees(entry):
                continue
            wanted = None
            if not isinstance(entry.resources, str):
                wanted = next((file for file in entry.resources if file.uri == uri), None)
                if wanted is None:
                    continue
            data: bytes | None = await self._bounded(self.catalog.read(uri))
            if data is None:
                return None
            if wanted is None:
                if len(data) > self.limits.size:
                    raise ProtocolError(codes.INTERNAL_ERROR, "The file is too large")
            elif len(data) != wanted.size or digest_of(data) != wanted.digest:
                logger.error("%s of %r is not the file that its entry names", uri, self.catalog)
                raise ProtocolError(
                    codes.INTERNAL_ERROR, "The file is not the one that the skill names"
                )
            return data
        return None


# -- the service -----------------------------------------------------------------------------------


class _LazyFile(Resource):
    """A file of a catalog, which is read when it is asked for."""

    __slots__ = ("_fetch",)

    def __init__(self, uri: str, fetch: Callable[[], Coroutine[Any, Any, _File | None]]) -> None:
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


class _Head(Resource):
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
        self._own = entry.uri  # a server that this one is mounted on may show another

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
    file: _File, skills: Mapping[str, SkillEntry], hints: Mapping[str, Any]
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


class SkillHost(Protocol):
    """The server that has skills (`wirespeed.server.service.McpService`)."""

    auth: ResourceServer | None
    discovery: ServerDiscovery
    extensions: ExtensionCatalog
    page_size: int | None
    resources: ResourceCatalog
    visibility: Visibility

    def enable(self, feature: str) -> None:
        """Offer resources."""

    def resource_updated(self, uri: str) -> None:
        """A resource changed."""


class SkillService:
    """The skills of one server. `Server.add_skills` makes it.

    Attributes:
        server: The server.
        items: The skills that are in memory, by their URIs: what `Visibility` looks at.
        tags: Their tags.
    """

    def __init__(self, server: SkillHost) -> None:
        self.server = server
        self.items: dict[str, Any] = {}
        self.tags: dict[str, frozenset[str]] = {}
        self._sources: list[SkillSource] = []
        self._heads: dict[str, SkillEntry] = {}  # in the list of resources
        self._lock = threading.Lock()
        self._pages: dict[tuple[str, str | None], Body] = {}
        self._extension = Extension(
            SKILLS_EXTENSION, {DIRECTORY_READ: True}, required=False, eras=("legacy", "modern")
        )
        self._extension.handlers |= {
            LIST: self._list,
            GET: self._get,
            READ_DIRECTORY: self._directory,
        }

    def scopes(self) -> set[str]:
        """The scopes that its skills need."""
        return {scope for source in self._sources for scope in source.scopes or ()}

    def add(self, source: Any, options: SkillOptions) -> SkillSource:
        """See `Server.add_skills`."""
        check_options("add_skills()", options, SkillOptions)
        made = self._source(source, options)
        for other in self._sources:
            if taken := sorted(made.skills.keys() & other.skills.keys()):
                raise ValueError(f"there is a skill {taken[0]} already")
        fixed = self.server.resources.fixed
        if made.listed and (taken := sorted(made.skills.keys() & fixed.items.keys())):
            raise ValueError(f"there is a resource {taken[0]} already")
        if not self._sources:
            self.server.extensions.add(self._extension)
            self.server.resources.skill_files = self._find
            self.server.enable("resources")
        self._sources.append(made)
        if isinstance(made, _Lazy):  # the children of its folders are not known
            self._extension.settings.pop(DIRECTORY_READ, None)
            self.server.extensions.drop_handler(READ_DIRECTORY)
            self.server.discovery.forget()
        self.changed(())
        return made

    def _source(self, source: Any, options: SkillOptions) -> SkillSource:
        path = options.get("path", "")
        if isinstance(source, SkillCatalog):
            if path:
                raise ValueError("path is for folders: a catalog names its skills itself")
            return _Lazy(self, options, source)
        if isinstance(source, str | os.PathLike):
            folder, prefix = os.path.abspath(source), prefix_of(path)
            limits = options.get("limits") or SkillLimits()
            return _Kept(self, options, lambda: read_folder(folder, prefix, limits), True)
        if path:
            raise ValueError("path is for folders: a Skill has its own")
        skills = [source] if isinstance(source, Skill) else list(source)
        if not all(isinstance(skill, Skill) for skill in skills):
            raise TypeError("skills are a folder, a Skill, several Skills or a SkillCatalog")
        by_uri = {skill.entry.uri: skill for skill in skills}
        if len(by_uri) < len(skills):
            raise ValueError("two of the skills have the same URI")
        return _Kept(self, options, lambda: by_uri, False)

    def changed(self, uris: Iterable[str]) -> None:
        """Skills were added or read again; from any thread. ``uris``: files that are others now."""
        self._pages = {}
        self.tags = {
            uri: source.tags for source in self._sources if source.tags for uri in source.skills
        }
        with self._lock:
            self._show_heads()
        for uri in uris:
            self.server.resource_updated(uri)

    def _show_heads(self) -> None:
        """List each ``SKILL.md`` that is listed as a skill as a resource, too: clients that do not
        know the extension find it there."""
        wanted: dict[str, tuple[SkillSource, SkillEntry]] = {}
        for source in self._sources:
            for uri, entry in source.skills.items() if source.listed else ():
                wanted.setdefault(uri, (source, entry))
        fixed = self.server.resources.fixed
        for uri, shown in list(self._heads.items()):
            if uri not in wanted or wanted[uri][1] != shown:
                del self._heads[uri]
                fixed.remove(uri)
        for uri, (source, entry) in wanted.items():
            if uri not in self._heads:
                size = next((one.size for one in _files_of(entry) if one.uri == uri), None)
                shown_as = entry_of_file(uri, MARKDOWN, size, {uri: entry})
                head = _Head(shown_as, self._find, source.scopes or ())
                try:
                    fixed.add(uri, shown_as, head, source.tags)
                except ValueError as exc:  # of what was added since
                    logger.warning("%s is not listed among the resources: %s", uri, exc)
                else:
                    self._heads[uri] = entry

    # -- who sees what -----------------------------------------------------------------------------

    def _shows(self, client: Call | Serving) -> Shows | None:
        return self.server.visibility.of("skills", client)

    def _sees(
        self, source: SkillSource, client: Call | Serving, shows: Shows | None
    ) -> Callable[[SkillEntry], bool] | None:
        """Whether a client sees a skill of a source, as a function; None: it sees all of them."""
        if shows is None:
            return None
        auth, peer = self.server.auth, client.peer
        user = None if peer is None else peer.user
        filters = auth is not None and auth.filter_lists and peer is not None
        if filters and not grants(user, source.scopes):
            return lambda entry: False
        return lambda entry: shows(
            entry.uri, entry_of_file(entry.uri, MARKDOWN, None, {entry.uri: entry})
        )

    # -- skills/list -------------------------------------------------------------------------------

    def _list(self, call: Call, message: Message) -> Any:
        cursor = cursor_of(message)
        shows = self._shows(call)
        if any(isinstance(source, _Lazy) for source in self._sources):
            return self._list_all(call, cursor, shows)
        key = (call.revision.version, cursor)
        pages = self._pages if shows is None else {}
        page = pages.get(key)
        if page is None:
            listed: list[tuple[SkillSource, list[SkillEntry]]] = [
                (source, list(source.content.entries.values()))
                for source in self._sources
                if isinstance(source, _Kept)
            ]
            page, regular = self._page(call, cursor, listed, shows, False)
            if regular and len(pages) < MAX_PAGES:
                pages[key] = page
        return page

    async def _list_all(self, call: Call, cursor: str | None, shows: Shows | None) -> Body:
        listed: list[tuple[SkillSource, list[SkillEntry]]] = []
        partial = False
        for source in self._sources:
            if isinstance(source, _Kept):
                listed.append((source, list(source.content.entries.values())))
            elif isinstance(source, _Lazy) and source.listed:
                found = await source.entries()
                partial = partial or found is None
                listed.append((source, found or []))
        return self._page(call, cursor, listed, shows, partial)[0]

    def _page(
        self,
        call: Call,
        cursor: str | None,
        listed: list[tuple[SkillSource, list[SkillEntry]]],
        shows: Shows | None,
        partial: bool,
    ) -> tuple[Body, bool]:
        entries: dict[str, SkillEntry] = {}
        hints = [source.hints for source, _ in listed if source.listed]
        for source, found in listed:
            if source.listed:
                sees = self._sees(source, call, shows)
                for entry in found:
                    if sees is None or sees(entry):
                        entries.setdefault(entry.uri, entry)
        page = page_of(list(entries.items()), cursor, self.server.page_size or PAGE)
        result: dict[str, Any] = {"skills": page.entries}
        if page.next_cursor is not None:
            result["nextCursor"] = page.next_cursor
        private = shows is not None or any(one["cacheScope"] == "private" for one in hints)
        ttl = 0 if partial else min((one["ttlMs"] for one in hints), default=0)
        return self._body(result, call.revision, ttl, private or not hints), page.is_regular

    def _body(self, result: dict[str, Any], revision: Revision, ttl: int, private: bool) -> Body:
        if not revision.modern:
            return _encode(result)
        result |= {"ttlMs": ttl, "cacheScope": "private" if private else "public"}
        return self.server.discovery.finish(_encode(result))

    # -- skills/get --------------------------------------------------------------------------------

    def _get(self, call: Call, message: Message) -> Any:
        uri: str = params_of(message, _uri).uri
        shows = self._shows(call)
        for source in self._sources:
            if isinstance(source, _Kept) and uri in source.content.entries:
                return self._got(call, source, source.content.entries[uri], shows)
        for source in self._sources:
            if isinstance(source, _Lazy) and source.has(uri):
                return self._get_lazily(call, uri, shows)
        raise _no_skill(uri)

    async def _get_lazily(self, call: Call, uri: str, shows: Shows | None) -> Body:
        for source in self._sources:
            entry = await source.entry(uri) if isinstance(source, _Lazy) else None
            if entry is not None:
                return self._got(call, source, entry, shows)
        raise _no_skill(uri)

    def _got(self, call: Call, source: SkillSource, entry: SkillEntry, shows: Shows | None) -> Body:
        sees = self._sees(source, call, shows)
        if sees is not None and not sees(entry):
            raise _no_skill(entry.uri)
        if source.scopes is not None:
            check_scopes(call, source.scopes, f"the skill {shortened(entry.uri)}")
        hints = source.hints
        private = shows is not None or hints["cacheScope"] == "private"
        return self._body({"skill": entry}, call.revision, hints["ttlMs"], private)

    # -- resources/directory/read ------------------------------------------------------------------

    def _directory(self, call: Call, message: Message) -> Body:
        uri: str = params_of(message, _uri).uri
        cursor = cursor_of(message)
        shows = self._shows(call)
        children: dict[str, ResourceEntry] = {}
        refused: SkillSource | None = None
        for source in self._sources:
            if isinstance(source, _Kept):
                found = source.content.folder(uri, self._sees(source, call, shows))
                if found and not _permits(call, source):
                    refused = source
                    continue
                for child in found:
                    children.setdefault(child.uri, child)
        if not children:
            if refused is not None and refused.scopes is not None:
                check_scopes(call, refused.scopes, f"the folder {shortened(uri)}")
            text = f"{shortened(uri)} is not a directory resource"
            raise ProtocolError(codes.INVALID_PARAMS, text)
        page = page_of(sorted(children.items()), cursor, self.server.page_size or PAGE * 10)
        version = call.revision.version
        result: dict[str, Any] = {
            "resources": [
                fit("Resource", msgspec.to_builtins(entry), version) for entry in page.entries
            ]
        }
        if page.next_cursor is not None:
            result["nextCursor"] = page.next_cursor
        return _encode(result)

    # -- resources/read ----------------------------------------------------------------------------

    def _find(self, uri: str, client: Call | Serving | None) -> Resource | None:
        """The file under a URI, if the client sees a skill that it is a part of. The file of a
        catalog is looked for when it is read."""
        shows = None if client is None else self._shows(client)
        for source in self._sources:
            if not isinstance(source, _Kept):
                continue
            content = source.content
            file = content.files.get(uri)
            if file is None:
                continue
            sees = None if client is None else self._sees(source, client, shows)
            if sees is None or any(map(sees, file.owners)):
                found = resource_of(file, content.entries, source.hints)
                found.scopes = source.scopes
                return found
        for source in self._sources:
            if isinstance(source, _Lazy) and source.has(uri):
                sees = None if client is None else self._sees(source, client, shows)
                lazy = _LazyFile(uri, _fetcher(source, uri, sees or (lambda entry: True)))
                lazy.scopes = source.scopes
                return lazy
        return None


def _files_of(entry: SkillEntry) -> tuple[SkillResource, ...]:
    return () if isinstance(entry.resources, str) else entry.resources


def _fetcher(
    source: _Lazy, uri: str, sees: Callable[[SkillEntry], bool]
) -> Callable[[], Coroutine[Any, Any, _File | None]]:
    async def fetch() -> _File | None:
        data = await source.read(uri, sees)
        return None if data is None else _File(uri, data)

    return fetch


def _permits(call: Call, source: SkillSource) -> bool:
    return call.peer is None or grants(call.peer.user, source.scopes)


def _no_skill(uri: str) -> ProtocolError:
    text = f"No skill is served at {shortened(uri)}"
    return ProtocolError(codes.INVALID_PARAMS, text, {"uri": shortened(uri)})


set_public_home(globals())

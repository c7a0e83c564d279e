"""The requests for skills of a server (`Server.add_skills`), in both eras.

``skills/list``, ``skills/get`` and ``resources/directory/read`` of the extension
``io.modelcontextprotocol/skills`` (`wirespeed.skills.model`), and the files by ``resources/read``.
Requests pass middleware, scopes and the filter of the server as those of its resources do; the
filter gets the entry of the resource ``SKILL.md``. In the legacy eras, which the specification does
not speak of, the results have no ``ttlMs`` and no ``cacheScope``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.errors import ProtocolError, shortened
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ResourceParams
from wirespeed.protocol.revisions import fit
from wirespeed.server.catalog import ResourceEntry, check_options, page_of
from wirespeed.server.extensions import Extension
from wirespeed.server.permissions import check_scopes, grants
from wirespeed.server.requests.call import Call
from wirespeed.server.requests.operation import cursor_of, params_of
from wirespeed.server.resources.resource import Resource
from wirespeed.server.skills.files import (
    CatalogFile,
    ListedHead,
    ServedFile,
    entry_of_file,
    resource_of,
)
from wirespeed.server.skills.sources import CatalogSkills, KeptSkills, SkillOptions, SkillSource
from wirespeed.skills.folder import SkillLimits
from wirespeed.skills.model import (
    DIRECTORY_READ,
    GET,
    LIST,
    MARKDOWN,
    READ_DIRECTORY,
    SKILLS_EXTENSION,
    SkillEntry,
    SkillResource,
)
from wirespeed.skills.skill import Skill, SkillCatalog, prefix_of, read_folder

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
MAX_PAGES = 1024  # that are kept encoded
MAX_ENTRIES = 1024  # as answers of skills/get, too

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder().encode
_uri = msgspec.json.Decoder(ResourceParams)


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
        items: The skills in memory, by their URIs. `Visibility` reads it.
        tags: The tags of these skills.
    """

    def __init__(self, server: SkillHost) -> None:
        self.server = server
        self.items: dict[str, Any] = {}
        self.tags: dict[str, frozenset[str]] = {}
        self._sources: list[SkillSource] = []
        self._heads: dict[str, SkillEntry] = {}  # in the list of resources
        self._lock = threading.Lock()
        self._pages: dict[tuple[str, str | None], Body] = {}
        self._entries: dict[tuple[bool, bool, str], tuple[SkillEntry, Body]] = {}
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
        if isinstance(made, CatalogSkills):  # the children of its folders are not known
            self._extension.settings.pop(DIRECTORY_READ, None)
            self.server.extensions.drop_handler(READ_DIRECTORY)
            self.server.discovery.forget()
        self.changed(())
        return made

    def _source(self, source: Any, options: SkillOptions) -> SkillSource:
        path, hints = options.get("path", ""), self.server.discovery.hints
        if isinstance(source, SkillCatalog):
            if path:
                raise ValueError("path is for folders: a catalog names its skills itself")
            return CatalogSkills(options, hints, source)
        if isinstance(source, str | os.PathLike):
            folder, prefix = os.path.abspath(source), prefix_of(path)
            limits = options.get("limits") or SkillLimits()
            load = partial(read_folder, folder, prefix, limits)
            return KeptSkills(options, hints, load, self.changed)
        if path:
            raise ValueError("path is for folders: a Skill has its own")
        skills = [source] if isinstance(source, Skill) else list(source)
        if not all(isinstance(skill, Skill) for skill in skills):
            raise TypeError("skills are a folder, a Skill, several Skills or a SkillCatalog")
        by_uri = {skill.entry.uri: skill for skill in skills}
        if len(by_uri) < len(skills):
            raise ValueError("two of the skills have the same URI")
        return KeptSkills(options, hints, lambda: by_uri, None)

    def changed(self, uris: Iterable[str]) -> None:
        """Take note that skills were added or read again. Any thread may call it. ``uris``: The
        files that changed."""
        self._pages, self._entries = {}, {}
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
                head = ListedHead(shown_as, self._find, source.scopes or ())
                try:
                    fixed.add(uri, shown_as, head, source.tags)
                except ValueError as exc:  # another resource has the URI meanwhile
                    logger.warning("%s is not listed among the resources: %s", uri, exc)
                else:
                    self._heads[uri] = entry

    # -- visibility --------------------------------------------------------------------------------

    def _shows(self, client: Call | Serving) -> Shows | None:
        return self.server.visibility.of("skills", client)

    def _sees(
        self, source: SkillSource, client: Call | Serving, shows: Shows | None
    ) -> Callable[[SkillEntry], bool] | None:
        """Return the function that tells whether a client sees a skill of a source; None: it sees
        all."""
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
        if any(isinstance(source, CatalogSkills) for source in self._sources):
            return self._list_all(call, cursor, shows)
        key = (call.revision.version, cursor)
        pages = self._pages if shows is None else {}
        page = pages.get(key)
        if page is None:
            listed: list[tuple[SkillSource, list[SkillEntry]]] = [
                (source, list(source.content.entries.values()))
                for source in self._sources
                if isinstance(source, KeptSkills)
            ]
            page, regular = self._page(call, cursor, listed, shows, False)
            if regular and len(pages) < MAX_PAGES:
                pages[key] = page
        return page

    async def _list_all(self, call: Call, cursor: str | None, shows: Shows | None) -> Body:
        listed: list[tuple[SkillSource, list[SkillEntry]]] = []
        partial = False
        for source in self._sources:
            if isinstance(source, KeptSkills):
                listed.append((source, list(source.content.entries.values())))
            elif isinstance(source, CatalogSkills) and source.listed:
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
            entry = source.content.entries.get(uri) if isinstance(source, KeptSkills) else None
            if entry is not None:
                return self._got(call, source, entry, shows)
        for source in self._sources:
            if isinstance(source, CatalogSkills) and source.has(uri):
                return self._get_lazily(call, uri, shows)
        raise _no_skill(uri)

    async def _get_lazily(self, call: Call, uri: str, shows: Shows | None) -> Body:
        for source in self._sources:
            entry = await source.entry(uri) if isinstance(source, CatalogSkills) else None
            if entry is not None:
                return self._got(call, source, entry, shows)
        raise _no_skill(uri)

    def _got(self, call: Call, source: SkillSource, entry: SkillEntry, shows: Shows | None) -> Body:
        sees = self._sees(source, call, shows)
        if sees is not None and not sees(entry):
            raise _no_skill(entry.uri)
        if source.scopes is not None:
            check_scopes(call, source.scopes, f"the skill {shortened(entry.uri)}")
        hints, entries = source.hints, self._entries
        private = shows is not None or hints["cacheScope"] == "private"
        key = call.revision.modern, private, entry.uri
        kept = entries.get(key)
        if kept is not None and kept[0] is entry:  # not what a reload in a thread has replaced
            return kept[1]
        body = self._body({"skill": entry}, call.revision, hints["ttlMs"], private)
        if isinstance(source, KeptSkills) and (kept is not None or len(entries) < MAX_ENTRIES):
            entries[key] = entry, body
        return body

    # -- resources/directory/read ------------------------------------------------------------------

    def _directory(self, call: Call, message: Message) -> Body:
        uri: str = params_of(message, _uri).uri
        cursor = cursor_of(message)
        shows = self._shows(call)
        children: dict[str, ResourceEntry] = {}
        refused: SkillSource | None = None
        for source in self._sources:
            if isinstance(source, KeptSkills):
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
        """Return the file with a URI, if the client sees a skill that has it. A file of a catalog
        is looked up when it is read."""
        shows = None if client is None else self._shows(client)
        for source in self._sources:
            if not isinstance(source, KeptSkills):
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
            if isinstance(source, CatalogSkills) and source.has(uri):
                sees = None if client is None else self._sees(source, client, shows)
                lazy = CatalogFile(uri, _fetcher(source, uri, sees or (lambda entry: True)))
                lazy.scopes = source.scopes
                return lazy
        return None


def _files_of(entry: SkillEntry) -> tuple[SkillResource, ...]:
    return () if isinstance(entry.resources, str) else entry.resources


def _fetcher(
    source: CatalogSkills, uri: str, sees: Callable[[SkillEntry], bool]
) -> Callable[[], Coroutine[Any, Any, ServedFile | None]]:
    async def fetch() -> ServedFile | None:
        data = await source.read(uri, sees)
        return None if data is None else ServedFile(uri, data)

    return fetch


def _permits(call: Call, source: SkillSource) -> bool:
    return call.peer is None or grants(call.peer.user, source.scopes)


def _no_skill(uri: str) -> ProtocolError:
    text = f"No skill is served at {shortened(uri)}"
    return ProtocolError(codes.INVALID_PARAMS, text, {"uri": shortened(uri)})

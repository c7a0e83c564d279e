"""Sources of skills, one for each call of `Server.add_skills`: memory, folders and catalogs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypedDict

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.server.requests.operation import check_timeout
from wirespeed.server.resources.contents import cache_hints
from wirespeed.server.skills.files import SkillFiles
from wirespeed.skills.folder import SkillLimits
from wirespeed.skills.model import SkillEntry, digest_of, entry_of, excess, roots_above
from wirespeed.skills.skill import Skill, SkillCatalog
from wirespeed.transport.options import checked_scopes
from wirespeed.transport.rate_limited_log import RateLimitedLog

CATALOG_TIMEOUT = 10.0  # seconds

logger = logging.getLogger("wirespeed.server")

_encode = msgspec.json.Encoder().encode


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


class SkillSource:
    """The skills that one call of `Server.add_skills` added."""

    def __init__(self, options: SkillOptions, hints: Mapping[str, Any]) -> None:
        self.scopes = checked_scopes(options.get("scopes", ())) or None
        tags = options.get("tags", ())
        if isinstance(tags, str):
            raise TypeError("tags of skills are a list of strings, not one string")
        self.tags = frozenset(tags)
        self.listed = options.get("listed", True)
        self.hints = cache_hints(hints, options.get("ttl_ms"), options.get("cache_scope"))
        self.limits = options.get("limits") or SkillLimits()

    @property
    def skills(self) -> Mapping[str, SkillEntry]:
        """The skills in memory, by their URIs; empty for a catalog."""
        return {}

    def reload(self) -> bool:
        """Read the folder again. Any thread may call it: clients get the old skills or the new
        ones, never a mixture. Returns whether something changed. If the folder cannot be read, or
        exceeds a limit, the old skills stay, and the error is raised. It does nothing for other
        sources."""
        return False


class KeptSkills(SkillSource):
    """Skills that are in memory.

    Args:
        load: Reads them.
        changed: Called with the URIs of files that changed, after they were read again; None: they
            are never read again.
    """

    def __init__(
        self,
        options: SkillOptions,
        hints: Mapping[str, Any],
        load: Callable[[], Mapping[str, Skill]],
        changed: Callable[[Iterable[str]], None] | None,
    ) -> None:
        super().__init__(options, hints)
        self._load = load
        self._changed = changed
        self._lock = threading.Lock()
        self.content = SkillFiles(load())

    def __repr__(self) -> str:
        return f"<SkillSource of {len(self.content.entries)} skills>"

    @property
    def skills(self) -> Mapping[str, SkillEntry]:
        return dict(self.content.entries)

    def reload(self) -> bool:
        if self._changed is None:
            return False
        with self._lock:
            old, new = self.content, SkillFiles(self._load())
            if old.entries == new.entries:
                return False
            self.content = new
        self._changed(_changed_files(old, new))
        return True


def _changed_files(old: SkillFiles, new: SkillFiles) -> Iterator[str]:
    for uri in old.files.keys() | new.files.keys():
        one, other = old.files.get(uri), new.files.get(uri)
        if one is None or other is None or one.data != other.data:
            yield uri


class CatalogSkills(SkillSource):
    """The skills of a catalog. Its entries are checked as a client checks those of a server."""

    def __init__(
        self, options: SkillOptions, hints: Mapping[str, Any], catalog: SkillCatalog
    ) -> None:
        super().__init__(options, hints)
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
        except (ValueError, TypeError, RecursionError) as exc:  # or a value has no form in JSON
            problem = str(exc)
        if problem is None:
            return entry
        self._quiet.log(
            logging.WARNING, "a skill of %r is left out: %.200s: %s", self.catalog,
            getattr(entry, "uri", entry), problem,
        )  # fmt: skip
        return None

    async def entries(self) -> list[SkillEntry] | None:
        """Return the listed skills that are valid; None if the catalog fails."""
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
        """Return the skills that may have a file or a folder, the innermost first."""
        for root in roots_above(uri):
            entry = await self.entry(root)
            if entry is not None:
                yield entry

    async def read(self, uri: str, sees: Callable[[SkillEntry], bool]) -> bytes | None:
        """Return the bytes of a file, if a skill that the client sees names it; else None.
        ProtocolError: they differ from the skill's entry."""
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


set_public_home(globals())

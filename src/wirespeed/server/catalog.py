"""Lists of a server: the entries that they show, the catalogs that hold these, and their pages.

A page is encoded once a revision. Its cursor names the last entry of the page before it: it needs
no state, and survives changes elsewhere in the list (server/utilities/pagination). The catalogs of
each feature are in `wirespeed.server.feature_catalogs` and `wirespeed.server.tools.catalog`.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
)

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.blocks import Annotations, Icon
from wirespeed.protocol.meta import check_json
from wirespeed.protocol.revisions import Revision
from wirespeed.protocol.structs import nearest
from wirespeed.server.requests.reply import Body

if TYPE_CHECKING:
    from wirespeed.server.discovery import ServerDiscovery
    from wirespeed.server.requests.launchers import Threads
    from wirespeed.server.requests.operation import Injector

T = TypeVar("T")

Fit = Callable[[dict[str, Any], str], dict[str, Any]]

_encode = msgspec.json.Encoder().encode


# -- entries --------------------------------------------------------------------------------------


class ToolAnnotations(TypedDict, total=False):
    """The annotations of a tool (server/tools, "ToolAnnotations"): hints for its users, which prove
    nothing. A call makes a dict: ``ToolAnnotations(readOnlyHint=True)``.

    Attributes:
        title: A name for people.
        readOnlyHint: It changes nothing.
        destructiveHint: It may delete or overwrite; true by default.
        idempotentHint: A second call with the same arguments changes nothing more.
        openWorldHint: It deals with things outside, such as the Web; true by default.
    """

    title: str
    readOnlyHint: bool
    destructiveHint: bool
    idempotentHint: bool
    openWorldHint: bool


class ToolEntry(msgspec.Struct, omit_defaults=True):
    """A tool as tools/list shows it. Clients of older revisions get fewer of the members."""

    name: str
    inputSchema: Mapping[str, Any]  # noqa: N815
    title: str | None = None
    description: str | None = None
    outputSchema: Mapping[str, Any] | None = None  # noqa: N815
    annotations: Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)
    execution: Mapping[str, Any] | None = None


class PromptArgumentEntry(msgspec.Struct, omit_defaults=True):
    """An argument as prompts/list shows it."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class PromptEntry(msgspec.Struct, omit_defaults=True):
    """A prompt as prompts/list shows it. Clients of older revisions get fewer of the members."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgumentEntry] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)


class ResourceEntry(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A resource as resources/list shows it; *size* is in bytes. Clients of older revisions get
    fewer of the members."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)


class TemplateEntry(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A template as resources/templates/list shows it. Clients of older revisions get fewer of the
    members."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(name="_meta", default=None)


Entry: TypeAlias = ToolEntry | PromptEntry | ResourceEntry | TemplateEntry
"""An entry that `Server(filter=…)` judges."""

Shows: TypeAlias = Callable[[str, Entry], bool]
"""A function that tells whether a client sees an entry, given its key and the entry."""


# -- catalogs -------------------------------------------------------------------------------------


class Registrar(Protocol):
    """The server at which a function or an entry is registered
    (`wirespeed.server.service.McpService`)."""

    @property
    def discovery(self) -> "ServerDiscovery": ...

    @property
    def page_size(self) -> int | None: ...

    @property
    def threads(self) -> "Threads": ...

    def injecting(self) -> "Injector | None": ...

    def list_changed(self, kind: str) -> None: ...

    def enable(self, feature: str) -> None: ...


def check_options(where: str, given: Mapping[str, Any], known: type) -> None:
    """TypeError: an option has a name that none of the known ones has."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            hint = nearest(name, names)
            raise TypeError(f"{where} got an unexpected keyword argument {name!r}; {hint}")


class Catalog(Generic[T]):
    """The entries of one list method, in the order of their registration.

    Args:
        kind: What one entry is called, for people: ``"tool"``.
        member: What the result calls the list: ``"tools"``, ``"resourceTemplates"`` …
        fit: Cuts an entry, as built-in types, to a revision.
        discovery: What the server says of itself; its hints stand on modern pages.
        page_size: Entries on a page; None for all on one.
        changed: Called after each change. A ValueError undoes an addition.

    Attributes:
        items: What was registered, by key; always the same dict, to be read only.
        tags: The tags of what has some, by key.

    Entries may be added and removed from any thread: each step on the dicts is one step.
    """

    def __init__(
        self,
        kind: str,
        member: str,
        fit: Fit,
        *,
        discovery: "ServerDiscovery",
        page_size: int | None,
        changed: Callable[[], None],
    ) -> None:
        self.items: dict[str, T] = {}
        self.tags: dict[str, frozenset[str]] = {}
        self._entries: dict[str, Any] = {}
        self.n_changes = 0
        self._kind = kind
        self._member = member
        self._fit = fit
        self._discovery = discovery
        self._page_size = page_size
        self._report_change = changed
        self._pages: dict[tuple[str, str | None], Body] = {}
        self._digests: dict[str, str] = {}  # by revision, until something changes

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __contains__(self, key: object) -> bool:
        return key in self.items

    def get(self, key: str) -> T | None:
        """Return what is registered under a key; None if nothing is."""
        return self.items.get(key)

    def add(self, key: str, entry: Any, item: T, tags: Iterable[str] = ()) -> None:
        """Register ``item``, shown as ``entry`` (a struct), from any thread.

        Raises:
            ValueError: The key is taken, here or where the list shows as well, or a text of the
                entry is not valid.
            TypeError: A member of the entry has no JSON form, or the tags are one string.
        """
        if isinstance(tags, str):
            raise TypeError(f"tags of {self._kind} {key!r} are a list of strings, not one string")
        kept = frozenset(tags)
        try:
            _encode(entry)
        except (UnicodeEncodeError, TypeError):
            check_json(f"{self._kind} {key!r}", msgspec.structs.asdict(entry))
            raise
        if self.items.setdefault(key, item) is not item:
            noun = self._kind.partition(" ")[0]
            raise ValueError(
                f"there is a {self._kind} {key!r} already: remove_{noun}({key!r}) first, "
                f"or give this one another {'URI' if noun == 'resource' else 'name'}"
            )
        if kept:
            self.tags[key] = kept
        self._entries[key] = entry
        try:
            self._change()
        except ValueError:
            self.tags.pop(key, None)
            del self._entries[key], self.items[key]
            raise

    def remove(self, key: str) -> T:
        """Remove an item. KeyError: there is none under this key."""
        item = self.items.pop(key)
        self.tags.pop(key, None)
        del self._entries[key]
        self._change()
        return item

    def entries(self) -> list[tuple[str, Any]]:
        """Return the entries by their keys, in their order."""
        return list(self._entries.items())

    def _change(self) -> None:
        self.n_changes += 1
        self._pages = {}
        self._digests = {}
        self._report_change()

    @property
    def n_encoded(self) -> int:
        """Pages that are kept encoded."""
        return len(self._pages)

    def digest(self, revision: Revision) -> str:
        """The digest of all entries (`wirespeed.protocol.digests`), made once a revision."""
        digests = self._digests  # a change in another thread, meanwhile, replaces the dict
        found = digests.get(revision.version)
        if found is None:
            from wirespeed.protocol.digests import digest_of

            found = digests[revision.version] = digest_of(
                _encode(self._fit(msgspec.to_builtins(entry), revision.version))
                for entry in list(self._entries.values())
            )
        return found

    def page(self, revision: Revision, cursor: str | None, shows: Shows | None = None) -> Body:
        """One page, encoded once. ProtocolError -32602: the cursor was not given out.

        ``shows``: which entries the client sees (`wirespeed.server.permissions`); such a page is
        private, and made anew each time.
        """
        key = (revision.version, cursor)
        # a change in another thread, meanwhile, replaces the dict
        pages = self._pages if shows is None else {}
        encoded = pages.get(key)
        if encoded is not None:
            return encoded
        # one step: other threads may change the dict
        entries = list(self._entries.items())
        hints = self._discovery.hints
        if shows is not None:
            entries = [(key, entry) for key, entry in entries if shows(key, entry)]
            hints = {**hints, "cacheScope": "private"}
        page = page_of(entries, cursor, self._page_size)
        result: dict[str, Any] = {
            self._member: [
                self._fit(msgspec.to_builtins(entry), revision.version) for entry in page.entries
            ]
        }
        if page.next_cursor is not None:
            result["nextCursor"] = page.next_cursor
        if revision.modern:
            if self._discovery.digests and shows is None:
                result["digest"] = self.digest(revision)
            encoded = self._discovery.finish(_encode(result | hints))
        else:
            encoded = _encode(result)
        if page.is_regular:
            pages[key] = encoded
        return encoded


# -- pages ----------------------------------------------------------------------------------------


class CatalogPage(NamedTuple):
    """The entries of one page.

    ``is_regular``: the page starts at a multiple of the page size, so it is kept encoded.
    """

    entries: list[Any]
    next_cursor: str | None
    is_regular: bool


def page_of(
    entries: Sequence[tuple[str, Any]], cursor: str | None, size: int | None
) -> CatalogPage:
    """The page behind a cursor, of entries by key. ``size``: entries on a page; None for all.

    ProtocolError -32602: the cursor was not given out.
    """
    start = 0
    if cursor is not None:
        start = _start(entries, cursor) if size is not None else _refuse()
    end = len(entries) if size is None else start + size
    shown = entries[start:end]
    more = end < len(entries)
    return CatalogPage(
        [entry for _, entry in shown],
        _cursor(shown[-1][0]) if more else None,
        start % (size or 1) == 0,
    )


def _start(entries: Sequence[tuple[str, Any]], cursor: str) -> int:
    try:
        last = base64.urlsafe_b64decode(cursor.encode()).decode()
        start = [key for key, _ in entries].index(last) + 1
    except ValueError:
        _refuse()
    if _cursor(last) != cursor:  # decoding is lenient: one spelling only
        _refuse()
    return start


def _refuse() -> NoReturn:
    raise ProtocolError(codes.INVALID_PARAMS, "Invalid cursor") from None


def _cursor(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


set_public_home(globals())

"""A catalog: the entries of one list method by key, and its pages, encoded once a revision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import msgspec

from wirespeed.protocol.meta import check_json
from wirespeed.protocol.revisions import Revision
from wirespeed.server.requests.reply import Body

if TYPE_CHECKING:
    from wirespeed.server.discovery import Discovery
    from wirespeed.server.visibility import Shows

T = TypeVar("T")

Fit = Callable[[dict[str, Any], str], dict[str, Any]]

_encode = msgspec.json.Encoder().encode


class LimitOptions(TypedDict, total=False):
    """How calls of one function are bounded.

    Attributes:
        timeout: Seconds after which a call is given up, including the wait for other calls.
        max_concurrency: The most calls that run at a time. See
            `wirespeed.server.requests.limiter`.
        queue: The most calls that wait beyond these, 100 by default; more are refused with -31000.
    """

    timeout: float | None
    max_concurrency: int | None
    queue: int | None


def check_options(where: str, given: Mapping[str, Any], known: type) -> None:
    """TypeError: an option has a name that none of the known ones has."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            import difflib

            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(names)}"
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

    Entries may be added and removed from any thread: each step on the dicts is one step.
    """

    def __init__(
        self,
        kind: str,
        member: str,
        fit: Fit,
        *,
        discovery: Discovery,
        page_size: int | None,
        changed: Callable[[], None],
    ) -> None:
        self.items: dict[str, T] = {}
        self._entries: dict[str, Any] = {}
        self._kind = kind
        self._member = member
        self._fit = fit
        self._discovery = discovery
        self._page_size = page_size
        self._report_change = changed
        self._pages: dict[tuple[str, str | None], Body] = {}

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __contains__(self, key: object) -> bool:
        return key in self.items

    def get(self, key: str) -> T | None:
        """What is registered under a key; None if nothing is."""
        return self.items.get(key)

    def add(self, key: str, entry: Any, item: T) -> None:
        """Register ``item``, shown as ``entry`` (a struct), from any thread.

        Raises:
            ValueError: The key is taken, here or where the list shows as well, or a text of the
                entry is not valid.
            TypeError: A member of the entry has no JSON form.
        """
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
        self._entries[key] = entry
        try:
            self._change()
        except ValueError:
            del self._entries[key], self.items[key]
            raise

    def remove(self, key: str) -> T:
        """Remove an item. KeyError: there is none under this key."""
        item = self.items.pop(key)
        del self._entries[key]
        self._change()
        return item

    def _change(self) -> None:
        self._pages = {}
        self._report_change()

    @property
    def n_encoded(self) -> int:
        """Pages that are kept encoded."""
        return len(self._pages)

    def page(self, revision: Revision, cursor: str | None, shows: Shows | None = None) -> Body:
        """One page, encoded once; see `wirespeed.server.pagination`. ProtocolError -32602: the
        cursor was not given out.

        ``shows``: which entries the client sees (`wirespeed.server.visibility`); such a page is
        private, and made anew each time.
        """
        key = (revision.version, cursor)
        # a change in another thread, meanwhile, replaces the dict
        pages = self._pages if shows is None else {}
        encoded = pages.get(key)
        if encoded is not None:
            return encoded
        from wirespeed.server.pagination import page_of

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
            encoded = self._discovery.finish(_encode(result | hints))
        else:
            encoded = _encode(result)
        if page.is_regular:
            pages[key] = encoded
        return encoded

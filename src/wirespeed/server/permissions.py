"""Permissions of clients: the scopes that a request needs (``scopes=`` of tools, prompts, resources
and templates), and the entries that a list shows (``Server(filter=…)``,
`ResourceServer.filter_lists`, and what was disabled by name or tag, for all or for a session)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from wirespeed.errors import LimitExceeded, ProtocolError
from wirespeed.protocol import codes
from wirespeed.server.requests.call import Call
from wirespeed.transport.loop import is_coroutine_function

if TYPE_CHECKING:
    from wirespeed.auth.resource_server import ResourceServer
    from wirespeed.server.catalog import Catalog, Entry, Shows
    from wirespeed.server.requests.call import Serving
    from wirespeed.transport.options import User

Filter: TypeAlias = "Callable[[User | None, Entry], bool]"


def grants(user: User | None, scopes: Iterable[str] | None) -> bool:
    """Whether a user of a listener has scopes. A client without a name has none."""
    return not scopes or (user is not None and user.scopes.issuperset(scopes))


def check_scopes(call: Call, scopes: tuple[str, ...], what: str) -> None:
    """ProtocolError -31003: the access token of a request lacks scopes. Over HTTP the response is
    403 with a challenge (RFC 6750 section 3.1).

    Clients of stdio and of the same process are not asked: no transport tells who they are.

    Args:
        call: The request.
        scopes: What it needs besides the scopes of every request.
        what: What needs them, for people.
    """
    peer = call.peer
    if peer is None or grants(peer.user, scopes):
        return
    authority = call.connection.service.auth
    text = f"{what} needs the scopes {' '.join(scopes)}"
    data: dict[str, Any] = {"error": "insufficient_scope", "scope": " ".join(scopes)}
    if authority is None:
        challenge = f'Bearer error="insufficient_scope", scope="{data["scope"]}"'
    else:
        needed = dict.fromkeys((*authority.scopes, *scopes))
        data["scope"] = " ".join(needed)
        data["resource_metadata"] = authority.metadata_url
        challenge = authority.challenge("insufficient_scope", None, needed)
    tell = getattr(call.route, "challenge", None)  # of a request over HTTP
    if tell is not None:
        tell(challenge)
    raise ProtocolError(codes.INSUFFICIENT_SCOPE, text, data)


def is_open_to_all(connection: Serving, method: str, name: str | None) -> bool:
    """Whether every client may use the tool, prompt or resource of a request: it needs no scopes,
    and no filter and nothing that was disabled decides who sees it."""
    service = connection.service
    if name is None or connection.state.shown is not None or service.visibility.limited:
        return False
    item: Any = None
    if method == "tools/call":
        item = service.catalog("tools").items.get(name)
    elif method == "prompts/get":
        item = service.catalog("prompts").items.get(name)
    elif method == "resources/read":
        found = service.resources.find(name)
        item = found[0] if isinstance(found, tuple) else found
    return item is not None and item.scopes is None


class Mounted(Protocol):
    """A server that is mounted on this one (`wirespeed.server.mounting.Mount`)."""

    @property
    def visibility(self) -> Visibility: ...

    def inner_item(self, name: str, key: str) -> tuple[str, Any] | None: ...


# Names and tags for which a session or a server keeps what was said.
MAX_RULES = 10_000


class Shown:
    """The names and tags that were enabled and disabled. The last call decides."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], bool] = {}

    def __bool__(self) -> bool:
        return bool(self._said)

    def rules(self) -> list[tuple[str, str, bool]]:
        """The rules, the earliest first: kind, name or tag, and whether it is shown."""
        return [(*rule, shown) for rule, shown in self._said.items()]

    def restore(self, rules: Iterable[tuple[str, str, bool]]) -> None:
        """Say what `rules` returned."""
        for kind, word, shown in rules:
            self.say(shown, *(([word], ()) if kind == "tag" else ((), [word])))

    def say(self, shown: bool, tags: Iterable[str], names: Iterable[str]) -> None:
        """Enable or disable what has one of these tags or names. LimitExceeded: too many were
        named."""
        said = dict(self._said)
        for rule in (*(("tag", tag) for tag in tags), *(("name", name) for name in names)):
            said.pop(rule, None)
            said[rule] = shown
        if len(said) > MAX_RULES:
            raise LimitExceeded(f"more than {MAX_RULES} names and tags were enabled or disabled")
        self._said = said  # at once, for other threads

    def verdict(self, key: str, tags: Collection[str]) -> bool | None:
        """Whether an entry was enabled (True) or disabled (False) last; None: neither."""
        for (kind, word), shown in reversed(self._said.items()):
            if word in tags if kind == "tag" else word == key:
                return shown
        return None


def checked_words(tags: Iterable[str], names: Iterable[str]) -> tuple[list[str], list[str]]:
    """The tags and the names to enable or disable. TypeError, ValueError: there are none."""
    for what, words in (("tags", tags), ("names", names)):
        if isinstance(words, str):
            raise TypeError(f"{what} is a list of strings, not one string")
    found = list(tags), list(names)
    if not any(found):
        raise ValueError("say which: tags=[…] or names=[…]")
    return found


class Visibility:
    """The filter of one server, and those of the servers that are mounted on it; what was enabled
    and disabled.

    Args:
        filter: The server's own filter.
        auth: Which access tokens clients must bring.
        catalog: Returns a list of the server by its name.
        mounts: The servers that are mounted on it, at each moment.

    TypeError: the filter is not a plain function.
    """

    def __init__(
        self,
        filter: Filter | None,
        auth: ResourceServer | None,
        catalog: Callable[[str], Catalog[Any]],
        mounts: Sequence[Mounted],
    ) -> None:
        if filter is not None and (not callable(filter) or is_coroutine_function(filter)):
            raise TypeError(
                f"filter is a plain function of a user and an entry, which returns a bool; not "
                f"{filter!r}"
            )
        self._filter = filter
        self._auth = auth
        self._catalog = catalog
        self._mounts = mounts
        self.shown = Shown()

    @property
    def limited(self) -> bool:
        """Whether somebody may not see something, here or of a mounted server."""
        return (
            self._filter is not None
            or bool(self.shown)
            or (self._auth is not None and self._auth.filter_lists)
            or any(mount.visibility.limited for mount in self._mounts)
        )

    def of(self, name: str, client: Call | Serving) -> Shows | None:
        """A function that tells whether a client sees an entry of the list ``name``; None without a
        filter, where everyone sees everything. ``client``: its request, or its connection."""
        connection = client.connection if isinstance(client, Call) else client
        session: Shown | None = connection.state.shown
        if session is None and not self.limited:
            return None
        user = None if client.peer is None else client.peer.user
        if self._auth is None or not self._auth.filter_lists or client.peer is None:
            return lambda key, entry: self._shows(name, key, entry, user, session)
        items = self._catalog(name).items

        def permits(key: str, entry: Any) -> bool:
            item = items.get(key)
            needed = None if item is None else item.scopes
            return grants(user, needed) and self._shows(name, key, entry, user, session)

        return permits

    def touched(self, tags: Collection[str], names: Collection[str]) -> list[str]:
        """The kinds of lists ("tools", "prompts", "resources") that have entries with one of these
        tags or names."""
        found: dict[str, None] = {}
        for name in ("tools", "prompts", "resources", "templates"):
            catalog = self._catalog(name)
            tagged = any(not kept.isdisjoint(tags) for kept in list(catalog.tags.values()))
            if tagged or any(key in catalog for key in names):
                found["resources" if name == "templates" else name] = None
        return list(found)

    def hides(self, name: str, key: str, item: Any, client: Call | Serving) -> bool:
        """Whether a client does not see what is registered under a key of the list ``name``."""
        shows = self.of(name, client)
        return shows is not None and not shows(key, item.entry)

    def _shows(
        self, name: str, key: str, entry: Any, user: User | None, session: Shown | None
    ) -> bool:
        tags = self._catalog(name).tags.get(key, ())
        said = None if session is None else session.verdict(key, tags)
        return said is not False and self._lets(name, key, entry, user, said is True)

    def _lets(self, name: str, key: str, entry: Any, user: User | None, enabled: bool) -> bool:
        """``enabled``: Whether the session has it, whatever was disabled for all."""
        if not enabled and self.shown:
            tags = self._catalog(name).tags.get(key, ())
            if self.shown.verdict(key, tags) is False:
                return False
        if self._filter is not None:
            shown = self._filter(user, entry)
            if not isinstance(shown, bool):  # a forgotten `return` must not show or hide anything
                raise TypeError(f"the filter must return a bool, not {shown!r:.50}")
            if not shown:
                return False
        for mount in self._mounts:
            found = mount.inner_item(name, key)
            if found is not None:
                inner, item = found
                return item is not None and mount.visibility._lets(
                    name, inner, item.entry, user, enabled
                )
        return True

"""Permissions of clients: the scopes that a request needs (``scopes=`` of tools, prompts, resources
and templates), and the entries that a list shows (``Server(filter=…)`` and
`ResourceServer.filter_lists`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.transport.loop import is_coroutine_function

if TYPE_CHECKING:
    from wirespeed.auth.resource_server import ResourceServer
    from wirespeed.server.catalog import Catalog, Entry, Shows
    from wirespeed.server.requests.call import Call, Serving
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


class Mounted(Protocol):
    """A server that is mounted on this one (`wirespeed.server.mounting.Mount`)."""

    @property
    def visibility(self) -> Visibility: ...

    def inner_item(self, name: str, key: str) -> tuple[str, Any] | None: ...


class Visibility:
    """The filter of one server, and those of the servers that are mounted on it.

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

    @property
    def limited(self) -> bool:
        """Whether there is a filter, here or at a mounted server."""
        return (
            self._filter is not None
            or (self._auth is not None and self._auth.filter_lists)
            or any(mount.visibility.limited for mount in self._mounts)
        )

    def of(self, name: str, client: Call | Serving) -> Shows | None:
        """A function that tells whether a client sees an entry of the list ``name``; None without a
        filter, where everyone sees everything. ``client``: its request, or its connection."""
        if not self.limited:
            return None
        user = None if client.peer is None else client.peer.user
        if self._auth is None or not self._auth.filter_lists or client.peer is None:
            return lambda key, entry: self._shows(name, key, entry, user)
        items = self._catalog(name).items

        def permits(key: str, entry: Any) -> bool:
            item = items.get(key)
            needed = None if item is None else item.scopes
            return grants(user, needed) and self._shows(name, key, entry, user)

        return permits

    def hides(self, name: str, key: str, item: Any, client: Call | Serving) -> bool:
        """Whether a client does not see what is registered under a key of the list ``name``."""
        shows = self.of(name, client)
        return shows is not None and not shows(key, item.entry)

    def _shows(self, name: str, key: str, entry: Any, user: User | None) -> bool:
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
                return item is not None and mount.visibility._shows(name, inner, item.entry, user)
        return True

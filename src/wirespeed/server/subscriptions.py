"""Change notifications: subscriptions/listen, resources/subscribe and resources/unsubscribe.

Legacy clients are told after the handshake; of a resource only when they subscribed to it
(server/resources, "Subscriptions"). Modern clients are told on a subscriptions/listen only
(2026-07-28 basic/patterns/subscriptions). Changes of one tick are
reported once; changes that a slow client has not read yet are merged.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from wirespeed.errors import ProtocolError
from wirespeed.peer.connection import FAREWELL
from wirespeed.protocol import codes
from wirespeed.protocol.messages import ListenParams, ResourceParams
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.server.requests.call import Handshake
from wirespeed.server.requests.operation import params_of, saved
from wirespeed.server.requests.reply import finished

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from wirespeed._core.envelope import Message
    from wirespeed.server.requests.call import Call, Serving

T = TypeVar("T")

# What one connection may keep: requests that stay open (subscriptions, and those of extensions),
# URIs in all, and the characters of these and of the ids of subscriptions.
MAX_OPEN = 100
MAX_URIS = 10_000
MAX_CHARACTERS = 4_000_000

# URIs that one changed resource is looked up by.
MAX_ENCLOSING = 1_000

# Lists, by the capability that has them, and how a subscription asks for their changes.
LISTS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}

encode = msgspec.json.Encoder().encode


class ChangeNotifier:
    """Tells the client of one connection of changes.

    Attributes:
        listens: Each subscriptions/listen that is open, by the id of its request.
        open_calls: The requests of extensions that stay open.
        offered: The capabilities that the handshake told of (legacy).
        uris: Resources that a legacy client subscribed to.
        n_uris: The number of URIs of all its subscriptions, subscriptions/listen included.
        n_characters: The length of these URIs together, with the ids of the requests.
    """

    __slots__ = (
        "_connection",
        "_kinds",
        "_scheduled",
        "_updated",
        "listens",
        "n_characters",
        "n_uris",
        "offered",
        "open_calls",
        "uris",
    )

    def __init__(self, connection: Serving) -> None:
        self._connection = connection
        self.listens: dict[bytes, ListenStream] = {}
        self.open_calls: set[Call] = set()
        self._kinds: set[str] = set()
        self._updated: dict[str, None] = {}
        self._scheduled = False
        self.offered: frozenset[str] = frozenset()
        self.uris: set[str] = set()
        self.n_uris = 0
        self.n_characters = 0

    def check_open(self) -> None:
        """ProtocolError: one more request cannot stay open, because the connection drains, or as
        many do as may. With ``data.open``, their number, there is room as soon as one ends."""
        if self._connection.draining:  # it came before that, but was delayed
            raise ProtocolError(codes.SHUTTING_DOWN, FAREWELL)
        n_open = len(self.listens) + len(self.open_calls)
        # the handler of a call that was cancelled may take a while to end
        n_cancelled = sum(call.ended for call in self.open_calls)
        if n_open - n_cancelled >= MAX_OPEN or n_open >= 2 * MAX_OPEN:
            raise ProtocolError(
                codes.OVERLOADED,
                f"Too many subscriptions at once (the limit is {MAX_OPEN})",
                {"open": n_open - n_cancelled} if n_open < 2 * MAX_OPEN else None,
            )

    async def keep_open(self, call: Call, work: Coroutine[Any, Any, T]) -> T:
        """Await the work of a request that stays open: it does not count against the limits of
        requests at once, and ends when the connection drains."""
        session = self._connection.session
        self.open_calls.add(call)
        session.keep_open(call.ref)
        self._connection.wrote()  # there is room for another request
        try:
            return await work
        finally:
            session.open_done()
            self.open_calls.discard(call)

    def take(self, n_uris: int, n_characters: int) -> None:
        """Count what a subscription keeps. ProtocolError: that exceeds a limit. With ``data.open``,
        the number of requests that stay open, it does so only together with these."""
        if self.n_uris + n_uris > MAX_URIS or self.n_characters + n_characters > MAX_CHARACTERS:
            fits_alone = n_uris <= MAX_URIS and n_characters <= MAX_CHARACTERS
            raise ProtocolError(
                codes.OVERLOADED,
                f"Too many subscriptions to resources (the limit is {MAX_URIS}, of "
                f"{MAX_CHARACTERS} characters together)",
                {"open": len(self.listens) + len(self.open_calls)} if fits_alone else None,
            )
        self.n_uris += n_uris
        self.n_characters += n_characters

    def give(self, n_uris: int, n_characters: int) -> None:
        """Count what a subscription that ended kept."""
        self.n_uris -= n_uris
        self.n_characters -= n_characters

    def all_uris(self) -> set[str]:
        """The resources that the client subscribed to, in any way."""
        return self.uris.union(*(one.uris for one in self.listens.values()))

    def forget(self) -> None:
        """Forget the subscriptions of a legacy client: its request is answered, and no other one
        of it comes on this connection."""
        self.uris.clear()
        self.n_uris = self.n_characters = 0

    def list_changed(self, kind: str) -> None:
        """From any thread: a list changed."""
        self._on_loop(self._note_list, kind)

    def resource_updated(self, uri: str) -> None:
        """From any thread: a resource changed."""
        self._on_loop(self._note_update, uri)

    def _on_loop(self, note: Callable[[str], None], what: str) -> None:
        """Note a change on the thread of the loop: nothing else touches the sets."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the connection too
            if threading.get_ident() == self._connection.thread:
                note(what)
            else:
                self._connection.loop.call_soon_threadsafe(note, what)

    def _note_list(self, kind: str) -> None:
        self._kinds.add(kind)
        self._schedule()

    def _note_update(self, uri: str) -> None:
        self._updated[uri] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._connection.loop.call_soon(self._tell)

    def _tell(self) -> None:
        connection = self._connection
        room = connection.wait_for_room()
        if room is not None and not connection.draining:
            # a client that does not read must not make us grow: it is told later, once a change
            room.add_done_callback(lambda _: self._tell())
            return
        self._scheduled = False
        kinds, self._kinds = self._kinds, set()
        updated, self._updated = self._updated, {}
        if connection.link is None or connection.draining:
            return
        for kind in sorted(kinds):
            method = f"notifications/{kind}/list_changed"
            if connection.handshake == Handshake.INITIALIZED and kind in self.offered:
                connection.send_notification(method)
            for subscription in list(self.listens.values()):
                if kind in subscription.kinds:
                    subscription.notify(method)
        for uri in updated:
            params = b'{"uri":%b}' % encode(uri)
            around = enclosing(uri)
            if not self.uris.isdisjoint(around):
                connection.send_notification("notifications/resources/updated", params)
            for subscription in list(self.listens.values()):
                if not subscription.uris.isdisjoint(around):
                    subscription.notify("notifications/resources/updated", params)
        connection.wrote()

    def end(self) -> None:
        """The server shuts down: every subscription gets its end."""
        for subscription in list(self.listens.values()):
            subscription.end()
        for call in list(self.open_calls):
            call.end()


def enclosing(uri: str) -> set[str]:
    """The URIs whose subscribers are told of a change of this resource: its own, and those of the
    resources that it is a part of, which end before or behind one of its slashes (schema of
    2026-07-28, ResourceUpdatedNotificationParams)."""
    found = {uri}
    at = uri.find("/")
    while at >= 0 and len(found) < MAX_ENCLOSING:
        found.update((uri[:at], uri[: at + 1]))
        at = uri.find("/", at + 1)
    return found


class ListenStream:
    """One subscriptions/listen that stays open.

    Attributes:
        kinds: The lists whose changes were asked for.
        uris: The resources whose updates were asked for.
        extras: What is honoured of an extension's members of ``notifications``.
        on_over: Called when either side has ended it; not when the connection was lost.
    """

    __slots__ = ("_changes", "connection", "extras", "kinds", "on_over", "raw_id", "ref", "uris")

    def __init__(
        self,
        connection: Serving,
        changes: ChangeNotifier,
        request: Message,
        kinds: frozenset[str],
        uris: frozenset[str],
        extras: dict[str, Any],
    ) -> None:
        self.connection = connection
        self._changes = changes
        self.ref = request.ref
        raw_id = request.raw_id
        assert raw_id is not None
        self.raw_id: bytes = raw_id
        self.kinds = kinds
        self.uris = uris
        self.extras = extras
        self.on_over: Callable[[], None] | None = None

    def meta(self) -> bytes:
        """The ``_meta`` that ties a message to this subscription: the id in its own JSON type."""
        return b'{"%b":%b}' % (META_SUBSCRIPTION_ID.encode(), self.raw_id)

    def notify(self, method: str, params: bytes = b"{}") -> None:
        """Send a notification of this subscription; ``params`` is a JSON object without _meta."""
        tail = b'"_meta":%b}' % self.meta()
        tail = tail if params == b"{}" else b"," + tail
        self.connection.send_notification(method, params[:-1] + tail, about=self.ref)
        self.connection.wrote()

    @property
    def n_characters(self) -> int:
        """The length of its URIs and its id together."""
        return len(self.raw_id) + sum(map(len, self.uris))

    @property
    def is_over(self) -> bool:
        """Whether it, or its connection, has ended."""
        return self._changes.listens.get(self.raw_id) is not self

    def cancel(self) -> None:
        """The client ended it: nothing further is sent."""
        self._over()
        self.connection.session.cancelled_done()

    def _over(self) -> None:
        if self._changes.listens.pop(self.raw_id, None) is self:
            self._changes.give(len(self.uris), self.n_characters)
            self.connection.session.open_done()
        if self.on_over is not None:
            self.on_over()

    def end(self) -> None:
        """End the subscription from the server: notifications/cancelled, then the result, as on
        stdio."""
        self._over()
        session = self.connection.session
        params = b'{"requestId":%b}' % self.raw_id
        self.connection.send_notification("notifications/cancelled", params, about=self.ref)
        end = self.connection.service.discovery.modern_end
        session.send_result(self.ref, finished((b"{}", self.meta()), end))
        self.connection.wrote()


def listen(call: Call, message: Message) -> None:
    """subscriptions/listen: acknowledge what is honoured, then keep the request open."""
    connection = call.connection
    wanted: dict[str, Any] = dict(params_of(message, _listen).notifications)
    changes = connection.changes
    changes.check_open()
    service = connection.service
    offered = service.discovery.offered
    kinds = frozenset(
        kind for kind, name in LISTS.items() if wanted.get(name) is True and offered(kind)
    )
    uris = _uris(wanted.get("resourceSubscriptions")) if offered("resources") else ()
    extras = {
        name: listening.honoured(message, wanted[name])
        for name, listening in service.extensions.listening.items()
        if wanted.get(name) is not None
    }
    subscription = ListenStream(connection, changes, message, kinds, frozenset(uris), extras)
    service.resources.check_scopes(uris, call)
    changes.take(len(subscription.uris), subscription.n_characters)
    changes.listens[subscription.raw_id] = subscription
    if kinds or uris:
        service.follow_changes()
    connection.session.set_token(message, subscription)
    connection.session.keep_open(message)
    honoured: dict[str, Any] = {LISTS[kind]: True for kind in LISTS if kind in kinds}
    honoured |= extras
    if uris:
        honoured["resourceSubscriptions"] = list(dict.fromkeys(uris))
    subscription.notify(
        "notifications/subscriptions/acknowledged", b'{"notifications":%b}' % encode(honoured)
    )
    for name in extras:
        service.extensions.listening[name].started(subscription)
    end_at_expiry = getattr(call.route, "end_at_expiry", None)  # of a request over HTTP
    if end_at_expiry is not None:
        end_at_expiry(subscription.end)


def _uris(wanted: Any) -> tuple[str, ...]:
    if wanted is None:
        return ()
    if not isinstance(wanted, list) or not all(isinstance(uri, str) for uri in wanted):
        raise ProtocolError(
            codes.INVALID_PARAMS,
            "Invalid params: params.notifications.resourceSubscriptions must be an array of URIs",
        )
    for uri in wanted:
        _check_length(uri)
    return tuple(wanted)


def _check_length(uri: str) -> None:
    """ProtocolError -32602: the URI is longer than any resource's."""
    from wirespeed.protocol.uri_template import MAX_URI

    if len(uri) > MAX_URI:
        raise ProtocolError(
            codes.INVALID_PARAMS, f"Invalid params: a URI is longer than {MAX_URI} characters"
        )


def subscribe(call: Call, message: Message) -> bytes | Coroutine[Any, Any, bytes]:
    """resources/subscribe of the legacy revisions; a second time changes nothing."""
    uri = params_of(message, _resource).uri
    _check_length(uri)
    call.connection.service.resources.check_scopes((uri,), call)
    changes = call.connection.changes
    if uri not in changes.uris:
        changes.take(1, len(uri))
        changes.uris.add(uri)
        call.connection.service.follow_changes()
    return saved(call)


def unsubscribe(call: Call, message: Message) -> bytes | Coroutine[Any, Any, bytes]:
    """resources/unsubscribe of the legacy revisions; also of what was not subscribed to."""
    uri = params_of(message, _resource).uri
    changes = call.connection.changes
    if uri in changes.uris:
        changes.uris.remove(uri)
        changes.give(1, len(uri))
    return saved(call)


_listen = msgspec.json.Decoder(ListenParams)
_resource = msgspec.json.Decoder(ResourceParams)

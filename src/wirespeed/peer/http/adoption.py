"""Requests of sessions that no other process serves now: the session is looked for, and adopted
where its host is gone. Until that is certain, the request is held."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._core.envelope import parse
from wirespeed._core.reply_route import MemoryReply
from wirespeed.errors import ProtocolError
from wirespeed.peer.http.exchange import BUSY, SESSION_OVER, not_passed, refuse
from wirespeed.peer.http.sessions import SessionLimit
from wirespeed.protocol import codes
from wirespeed.transport.address import host_of
from wirespeed.transport.options import NotPassed
from wirespeed.transport.service import Peer

if TYPE_CHECKING:
    from wirespeed.peer.http.endpoint import StreamableHttp
    from wirespeed.peer.http.http_session import HttpSession
    from wirespeed.peer.http.sessions import Sessions
    from wirespeed.transport.http.exchange import Exchange
    from wirespeed.transport.http.options import SessionDirectory

logger = logging.getLogger("wirespeed.server")

MAX_TRIES = 4  # to pass one request on
MAX_HELD = 16 * 1024 * 1024  # bytes of the requests of one client that wait for their sessions
AT_ONCE = 256  # sessions that are looked for
MESSAGE_TIMEOUT = 10.0  # seconds for a message to a session that is made again


class SearchTurns:
    """The turns to look for a session, n at a time. The clients that wait get them one after
    another, and each turn is for the request of the client that came first. So requests of a client
    that sends many wait for each other, and those of others do not."""

    def __init__(self, n: int) -> None:
        self._n_free = n
        # by client, the one that is next first
        self._waiting: OrderedDict[bytes | str, OrderedDict[asyncio.Future[None], None]]
        self._waiting = OrderedDict()

    async def take(self, client: bytes | str) -> None:
        """Wait for a turn, which `give` ends."""
        if self._n_free:
            self._n_free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, OrderedDict())[turn] = None
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.give()
            elif turns := self._waiting.get(client):
                turns.pop(turn, None)
                if not turns:
                    del self._waiting[client]
            raise

    def give(self) -> None:
        """Let the next one have a turn."""
        while self._waiting:
            client, turns = self._waiting.popitem(last=False)
            turn, _ = turns.popitem(last=False)
            if turns:
                self._waiting[client] = turns
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._n_free += 1


class Adoption:
    """Finds the sessions of one endpoint that this process does not have.

    Args:
        endpoint: Serves the sessions.
        sessions: Those that this process has.
        directory: Knows the other processes.
    """

    def __init__(
        self,
        endpoint: StreamableHttp,
        sessions: Sessions[HttpSession],
        directory: SessionDirectory,
    ) -> None:
        self.endpoint = endpoint
        self.sessions = sessions
        self.directory = directory
        # by id and principal
        self._finding: dict[tuple[str, bytes | None], asyncio.Task[bool | str | None]] = {}
        self._adopting: set[HttpSession] = set()
        self._turns = SearchTurns(AT_ONCE)
        self._held: Counter[bytes | str] = Counter()  # bytes, by client

    def seek(self, exchange: Exchange, id: str, body: bytes) -> None:
        """Answer a request of a session of which nothing is known here."""
        _Search(self, exchange, id, body).begin()

    def not_passed(
        self, exchange: Exchange, id: str, asked: tuple[str, int], body: bytes, why: NotPassed
    ) -> None:
        """Answer a request that a process, ``asked``, did not answer that should have its session.
        ``asked``: As of `SessionDirectory.owner_of`."""
        _Search(self, exchange, id, body, n_tries=1).not_passed(asked, why)

    def not_here(self, exchange: Exchange, id: str, body: bytes) -> None:
        """Answer a request of another process, for a session that this one does not have: it looks
        for the session then."""
        known = self._finding.get((id, exchange.principal))
        if not self.directory.has(id) or id in self.sessions:
            exchange.respond(421)  # in the second case the session is of another principal
        elif known is None:
            refuse(exchange, *BUSY)
        else:
            _Search(self, exchange, id, body).begin()  # the session is being adopted here

    def renew_first(self, exchange: Exchange, body: bytes) -> None:
        """Answer `initialize` at a process without a lease: the others may not know its host, and
        would say that nobody has the session."""
        _Search(self, exchange, "", body).renew_first()

    async def found(self, search: _Search) -> bool | str | None:
        """Find the session of a request, or adopt it, once for all that ask meanwhile. Return True:
        a process has it; False: nobody has; None: that may be known later; the name of a host: that
        depends on whether this one is gone."""
        key = (search.id, search.exchange.principal)
        if key not in self._finding:
            await self._turns.take(_client_of(search.exchange))
            if key in self._finding:  # another request of the session had an earlier turn
                self._turns.give()
            else:
                known = self._finding[key] = self.endpoint.streams.run(self._find(search))
                known.add_done_callback(lambda _: self._finding.pop(key, None))
        return await asyncio.shield(self._finding[key])

    async def _find(self, search: _Search) -> bool | str | None:
        try:
            try:
                self.sessions.check_room(search.exchange.principal)
                found = await search.find()
            finally:
                self._turns.give()
            if isinstance(found, bool | str):
                return found
            session = self.endpoint.new_session(search.id, found.state.streams, found.epoch)
            self._adopting.add(session)
            try:
                return await self._adopt(session, search.exchange, found.state)
            except BaseException:
                session.connection.abort()
                self.directory.own.ended(search.id, for_good=False)
                raise
            finally:
                self._adopting.discard(session)
        except (ProtocolError, SessionLimit):
            return None
        except Exception as exc:
            logger.error("internal error while a session is looked for", exc_info=exc)
            return None

    def close(self) -> None:
        """Adopt no session any more: another host adopts those that this one was adopting."""
        for session in self._adopting:
            session.connection.abort()

    async def _adopt(self, session: HttpSession, exchange: Exchange, state: Any) -> bool | None:
        """Make a session again from its state. Return whether that succeeded; None: it may later,
        here or at another host."""
        failure = None
        id, client = session.id, session.connection
        client.principal = exchange.principal
        client.peer = Peer(exchange.address, exchange.user)
        for message in state.messages:
            if client.link is None:
                break
            answered = self.endpoint.loop.create_future()
            reply = MemoryReply(on_done=partial(_set, answered))
            client.session.receive_message(message, reply)
            client.link.deliver()
            ends = (answered, client.closed)
            await asyncio.wait(ends, timeout=MESSAGE_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if client.revision is None:
                failure = reply.data
                break
        if client.revision is None or client.link is None or self.endpoint.draining:
            client.abort()
            later = failure is None or _is_unavailable(failure)
            self.directory.own.ended(id, for_good=not later)
            return None if later else False
        if not self.directory.has(id):  # the lease was over meanwhile
            client.abort()
            return None
        session.keep_at(self.endpoint)
        if state.kept:
            self.endpoint.service.restore_session(client, state.kept)
            session.keep_state()
        self.sessions.add(session, exchange.principal)
        return True

    def keeps(self, client: bytes | str, n: int) -> bool:
        """Keep a body of n bytes, until `let_go`. Return False: too much of its client is kept."""
        if n and self._held[client] and self._held[client] + n > MAX_HELD:
            return False
        self._held[client] += n
        return True

    def let_go(self, client: bytes | str, n: int) -> None:
        """End a `keeps`."""
        self._held[client] -= n
        if not self._held[client]:
            del self._held[client]

    async def hold(self, host: str, until: float) -> bool:
        """Wait until it is decided whether a host is gone. Return False: it is not decided."""
        if self.endpoint.draining:
            return False
        try:
            async with asyncio.timeout_at(until):
                return await self.directory.decided(host)
        except (ProtocolError, TimeoutError):
            return False


class _Search:
    """The search for the session of one request, which was passed on ``n_tries`` times before."""

    def __init__(
        self, adoption: Adoption, exchange: Exchange, id: str, body: bytes, n_tries: int = 0
    ) -> None:
        self._adoption = adoption
        self.exchange = exchange
        self.id = id
        self._body = body
        self._n_tries = n_tries
        self._was_lost = False  # a process may have seen the request
        self._lost_by: tuple[str, int] | None = None  # as of `SessionDirectory.find`
        self._unreached: str | None = None
        self._until = adoption.endpoint.loop.time() + adoption.directory.patience

    def begin(self, lost_by: tuple[str, int] | None = None, unreached: str | None = None) -> None:
        """Answer the request when the session is found."""
        self._lost_by, self._unreached = lost_by, unreached
        self._start(self._run)

    def renew_first(self) -> None:
        """Answer the request when this process has a lease."""
        self._start(self._renew_first)

    async def find(self) -> Any:
        """Ask the directory. Its answer is that of `SessionDirectory.find`."""
        directory, principal = self._adoption.directory, self.exchange.principal
        return await directory.find(self.id, principal, self._lost_by, self._unreached)

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._adoption.endpoint.draining:
            refuse(self.exchange, *BUSY)  # a session that was adopted now would have no end
            return
        task = self._adoption.endpoint.streams.run(self._answer(work))
        self.exchange.on_gone = task.cancel
        self.exchange.on_drain = partial(self._drain, task)

    def _drain(self, task: asyncio.Task[None]) -> None:
        """The server of the client shuts down."""
        task.cancel()
        self._leave()
        refuse(self.exchange, *BUSY)

    def _leave(self) -> None:
        self.exchange.on_gone = self.exchange.on_drain = None

    async def _answer(self, work: Callable[[], Awaitable[None]]) -> None:
        client, n = _client_of(self.exchange), len(self._body)
        if not self._adoption.keeps(client, n):
            self._leave()
            refuse(self.exchange, *BUSY)
            return
        try:
            await work()
        except Exception as exc:
            logger.error("internal error while a session is looked for", exc_info=exc)
            self._leave()
            if not self.exchange.status:
                refuse(self.exchange, *BUSY)
        finally:
            self._adoption.let_go(client, n)

    async def _renew_first(self) -> None:
        is_known = await self._adoption.directory.renewed()
        self._leave()
        if is_known:
            carrier: Any = self.exchange.carrier
            carrier.take_again(self.exchange, self._body)
        else:
            refuse(self.exchange, *BUSY)

    async def _run(self) -> None:
        adoption, exchange = self._adoption, self.exchange
        found: bool | str | None = ""
        while isinstance(found, str):
            if found and not await adoption.hold(found, self._until):
                found = None
            else:
                found = await adoption.found(self)
                self._lost_by = self._unreached = None
        self._leave()
        carrier: Any = exchange.carrier
        passed = carrier.passed
        host = None
        if found and self.id not in adoption.sessions and (passed is None or passed.far):
            host = adoption.directory.host_of(self.id, None if passed is None else passed.worker)
            if host is None and adoption.directory.has(self.id):
                found = False  # it is a session of another endpoint of this process
        if found is False and self._was_lost and exchange.method == "DELETE":
            exchange.respond(204)
        elif found is None or self._n_tries >= MAX_TRIES:
            refuse(exchange, *BUSY)
        elif not found and passed is not None and self._n_tries:
            refuse(exchange, *BUSY)  # the worker that another host names may have it
        elif not found and passed is None:
            refuse(exchange, 404, SESSION_OVER)
        elif host is None:
            carrier.take_again(exchange, self._body)
        else:
            self._n_tries += 1
            asked = adoption.directory.owner_of(self.id, host)
            otherwise = partial(self.not_passed, asked)
            adoption.endpoint.pass_on(exchange, self.id, host, self._body, otherwise)

    def not_passed(self, asked: tuple[str, int], why: NotPassed) -> None:
        """The process that should have the session does not answer."""
        exchange = self.exchange
        if exchange.carrier is None:
            return  # the client is gone
        self._was_lost = self._was_lost or why is NotPassed.LOST
        if why is NotPassed.FULL or (why is NotPassed.LOST and not self._may_come_twice()):
            not_passed(exchange, self._body, why)
        elif why is not NotPassed.NOT_HERE:
            # once more at once: it may take requests on another connection
            self.begin(unreached=asked[0] if self._n_tries > 1 else None)
        elif exchange.carrier.passed is not None:
            self._adoption.not_here(exchange, self.id, self._body)
        else:
            self.begin(lost_by=asked)

    def _may_come_twice(self) -> bool:
        """Whether the request does the same twice as once: a GET, a DELETE, an answer to a
        question and a cancellation do."""
        if self.exchange.method != "POST":
            return True
        message = parse(self._body)
        return message.kind in ("result", "error") or message.method == "notifications/cancelled"


def _client_of(exchange: Exchange) -> bytes | str:
    """Return what stands for the client of a request."""
    return exchange.principal or host_of(exchange.address)


def _set(answered: asyncio.Future[None], _: object) -> None:
    if not answered.done():
        answered.set_result(None)


def _is_unavailable(answer: bytes) -> bool:
    """Whether an answer says that the server cannot serve now."""
    try:
        return msgspec.json.decode(answer)["error"]["code"] in codes.UNAVAILABLE
    except (msgspec.DecodeError, LookupError, TypeError):
        return False

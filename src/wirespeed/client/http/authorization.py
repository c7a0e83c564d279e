"""The exchanges of a link that need a token: those that wait for one, and those that the server
refused for want of one."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from wirespeed.client.http.answers import CHALLENGES, Challenged
from wirespeed.errors import AuthorizationError, WirespeedError

if TYPE_CHECKING:
    import asyncio

    from wirespeed.auth.client.session import AuthorizationSession
    from wirespeed.client.http.exchanges import ClientExchange
    from wirespeed.client.http.link import HttpLink

# How often a message that the server challenged is sent again.
MAX_CHALLENGES = 3
# The messages whose answers are streams that last.
STREAMS = frozenset({"a stream of events", "subscriptions/listen"})


class AuthorizedExchanges:
    """The exchanges of one link, and the token that they carry.

    Attributes:
        session: Where the token comes from.
    """

    def __init__(self, link: HttpLink, origin: str, session: AuthorizationSession) -> None:
        self.session = session
        self._link = link
        self._origin = origin
        self._held: list[ClientExchange] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def fields(self, method: str, place: str, exchange: ClientExchange) -> bytes | None:
        """The header lines of a request that is about to be sent. None: the exchange is held until
        its token is there, and then sent."""
        long = exchange.what in STREAMS
        found = self.session.fields(method, self._origin + place, long=long)
        if found is None:
            self._held.append(exchange)
            if len(self._held) == 1:
                self._spawn(self._prepare())
        exchange.n_tokens = self.session.n_tokens
        return found

    def refused(self, exchange: ClientExchange) -> bool:
        """Whether the answer to an exchange is a challenge that is being answered."""
        if exchange.status not in CHALLENGES or exchange.n_challenges >= MAX_CHALLENGES:
            return False
        if exchange.what == "initialize" or self._link.connection.probing:
            self._refuse(exchange)
        else:
            self._spawn(self._answer(exchange))
        return True

    def _refuse(self, exchange: ClientExchange) -> None:
        """End the handshake, which begins again when there is a token: its time limits do not run
        while a user logs in."""
        status, headers, n_tokens = exchange.status, exchange.headers, exchange.n_tokens

        async def answer(n: int) -> bool:
            return n < MAX_CHALLENGES and await self.session.challenged(
                status, headers, n_tokens, n
            )

        exchange.n_challenges = MAX_CHALLENGES
        exchange.on_end(Challenged(self._link.status_error(exchange), answer), False)

    async def fields_now(self, method: str, place: str) -> bytes | None:
        """The header lines of the last request of a link, for which no user is asked. None: there
        is no token."""
        found = self.session.fields(method, self._origin + place)
        if found is None:
            with contextlib.suppress(Exception):
                await self.session.prepare()
            found = self.session.fields(method, self._origin + place)
        return found

    def close(self) -> None:
        """Stop all work."""
        self._held.clear()
        for task in self._tasks:
            task.cancel()

    # -- work ------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._link.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prepare(self) -> None:
        """Get the token that exchanges wait for."""
        failure: WirespeedError | None = None
        try:
            await self.session.prepare()
        except Exception as exc:
            failure = described(exc)
        held, self._held = self._held, []
        for exchange in held:
            if exchange.over:
                continue
            if failure is None:
                exchange.send()
            else:
                _end(exchange, failure)

    async def _answer(self, exchange: ClientExchange) -> None:
        n, exchange.n_challenges = exchange.n_challenges, exchange.n_challenges + 1
        try:
            again = await self.session.challenged(
                exchange.status, exchange.headers, exchange.n_tokens, n
            )
        except Exception as exc:
            if not exchange.over:
                _end(exchange, described(exc))
            return
        if exchange.over:
            return
        if again:
            exchange.send()
        else:
            exchange.n_challenges = MAX_CHALLENGES
            exchange.on_end(None, True)


def _end(exchange: ClientExchange, failure: WirespeedError) -> None:
    """An exchange fails without an answer."""
    exchange.n_challenges = MAX_CHALLENGES
    exchange.status = exchange.status or 401  # no stream is opened again without a token
    exchange.on_end(failure, False)


def described(exc: Exception) -> WirespeedError:
    """The error of exchanges whose token is not there. A storage or a handler of the user may raise
    anything."""
    if isinstance(exc, WirespeedError):
        return exc
    failed = AuthorizationError(f"getting a token failed: {type(exc).__name__}")
    failed.__cause__ = exc
    return failed

"""The connection of one host to the store that hosts share: Valkey or Redis.

Commands of one turn of the loop leave together, in one round trip. While a round trip is under way,
further commands wait for the next one. So one connection is enough, and commands arrive in the
order in which they were given. In a Redis Cluster each command goes to its shard by itself.

The states of a connection:

==========  =====================================================  ==========
state       event                                                  next
==========  =====================================================  ==========
idle        a command                                              connecting
connecting  the store answers                                      up
connecting  the store does not answer within ``store_timeout``     down
up          a round trip fails, or takes longer                    down
down        a pause is over, and the store answers                 up
any         the last user has gone, or the loop has                idle
==========  =====================================================  ==========

Commands wait in the states connecting and up, ``store_timeout`` at most, and fail at once in the
state down. The log has one line for each loss and one for each return.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, Literal, NamedTuple, Self, TypeAlias
from urllib.parse import quote

from wirespeed._exports import set_public_home
from wirespeed.cluster.clients import Command, Script, StoreClient, Word, clients_of
from wirespeed.errors import ProtocolError, StoreUnavailable
from wirespeed.protocol import codes
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.rate_limited_log import RateLimitedLog

# the second, behind the module that says how to get it
from redis.exceptions import (  # isort: skip
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MaxConnectionsError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TimeoutError,
    TryAgainError,
)

logger = logging.getLogger("wirespeed.cluster")

State: TypeAlias = Literal["idle", "connecting", "up", "down"]

STORE_TIMEOUT = 0.25  # seconds
MIN_SECRET = 16  # bytes of the secret of stores that name owners by digests
CLOSE_TIMEOUT = 1.0  # seconds
ENDS_IN = 0.1  # seconds before a task is cancelled once more
READING = 0.05  # seconds to read an answer that came while this process did something else
RETURNS = Backoff(0.05, 1.0, jitter=True)  # at most as many attempts as a host has renewals
SETTLED = 10.0  # seconds up, after which a loss is the first in a row

# Answers of a server that cannot serve: the connection is made anew.
# RuntimeError: uvloop raises it where redis-py writes to a connection that was reset.
_LOSSES = (ConnectionError, TimeoutError, OSError, RuntimeError, ReadOnlyError, BusyLoadingError)
# Answers to a command that may succeed later.
_LATER = (*_LOSSES, ClusterDownError, TryAgainError, OutOfMemoryError, MaxConnectionsError)

_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class _Waiting(NamedTuple):
    command: Command
    deadline: float
    answer: asyncio.Future[Any]


class Cluster:
    """The store that the hosts of one deployment share, on Valkey or Redis 7.

    Args:
        url: ``redis://[user:password@]host[:port][/db]``; ``rediss://`` with TLS;
            ``unix://[user:password@]/path``;
            ``redis+sentinel://host[:port],…/service[/db]`` for the master that Sentinels name;
            ``redis+cluster://host[:port],…`` for a Redis Cluster; ``rediss+sentinel://`` and
            ``rediss+cluster://`` with TLS. A query may have ``ssl_ca_certs``, ``ssl_certfile``,
            ``ssl_keyfile`` (files), ``db``, ``sentinel_username`` and ``sentinel_password``.
        prefix: All keys begin with it: deployments that share a store have different ones. At most
            64 letters, digits and ``_.:-``.
        store_timeout: The longest time in seconds that a request waits for the store.
        returns: The pauses before each attempt to reach a store that is lost.

    A connection is made at the first use, and closed when the last user has gone. ``async with``
    is such a user. Nothing that shows a cluster (its `repr`, the log, errors) has the user or the
    password.

    Attributes:
        name: The URL without user, password and query.
        n_losses: How often the store was lost.

    Raises:
        ValueError: An argument is out of its range. The text does not repeat the URL.
        ModuleNotFoundError: It needs ``pip install 'wirespeed[cluster]'``.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "wirespeed",
        store_timeout: float = STORE_TIMEOUT,
        returns: Backoff = RETURNS,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError("the prefix of a cluster is at most 64 letters, digits and _.:-")
        if not 0 < store_timeout < math.inf:
            raise ValueError("store_timeout must be seconds above 0")
        self.prefix = prefix
        self.store_timeout = store_timeout
        self._returns = returns
        self._make, self.name = clients_of(url, store_timeout)
        self.n_losses = 0
        self._users: set[object] = set()
        self._refusals = RateLimitedLog(logger, lines=1, seconds=60.0)
        self._forget()

    def _forget(self) -> None:
        self._state: State = "idle"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: StoreClient | None = None
        self._waiting: list[_Waiting] = []
        self._sending = False
        self._doubted = False
        self._work: set[asyncio.Task[None]] = set()
        self._changed = -math.inf  # when the state became up or down
        self._attempts = 0  # to come back, in a row
        self._hurried = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Cluster {self.name} {self._state}>"

    @property
    def state(self) -> State:
        """``up`` or ``down``; ``idle`` while nothing was asked yet, ``connecting`` while nothing
        was answered."""
        return self._state

    @property
    def up_for(self) -> float:
        """Seconds since the store answered first, or came back; 0 while it is not up."""
        return time.monotonic() - self._changed if self._state == "up" else 0.0

    def new_client(self, wait: float | None) -> StoreClient:
        """Make a further connection, which waits ``wait`` seconds for an answer; None: who waits
        ends that."""
        return self._make(wait)

    def hurry(self) -> None:
        """Try at once to reach a store that is lost: another host reaches it."""
        self._hurried.set()

    # -- users -----------------------------------------------------------------------------------

    def hold(self, user: object) -> None:
        """Keep the connection for one more user. A second call for a user does nothing."""
        self._users.add(user)

    async def release(self, user: object) -> None:
        """End a `hold`. The last one closes the connection; it is made again for the next
        command."""
        self._users.discard(user)
        if not self._users:
            await self._close()

    async def __aenter__(self) -> Self:
        self.hold(self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.release(self)

    async def _close(self) -> None:
        client, work, waiting = self._client, self._work, self._waiting
        here = self._loop is asyncio.get_running_loop()  # else the connection went with its loop
        self._forget()
        if here:
            _fail(waiting)
            await end_tasks(work)
            if client is not None:
                await _close(client)

    # -- commands --------------------------------------------------------------------------------

    def base(self, kind: str, *names: str) -> str:
        """The beginning of the keys of one store of one server, or of a part of it. All of them are
        in one hash slot."""
        parts = ":".join((kind, *(quote(name, safe="") for name in names)))
        return f"{self.prefix}:{{{parts}}}:"

    async def run(self, script: Script, base: str, *args: Word) -> Any:
        """Run a script with a base of keys and arguments, and return its answer.

        StoreUnavailable: the store is down, or did not answer in time. The script may have run.
        ProtocolError -32603: the store refused, as it does where its keys hold something else.
        UnicodeEncodeError: A text has a lone surrogate.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._forget()  # what another loop had went with that loop
            self._loop = loop
            self._client = self.new_client(None)
            self._state = "connecting"
        if self._state == "down":
            raise StoreUnavailable
        # here: what cannot be encoded fails no other command of the round trip
        words = [word.encode() if isinstance(word, str) else word for word in args]
        command = Command(script, (1, base, *words))
        deadline = loop.time() + self.store_timeout
        waiting = _Waiting(command, deadline, loop.create_future())
        self._waiting.append(waiting)
        if not self._sending:
            self._sending = True
            self._begin(self._send())
        return await waiting.answer

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _send(self) -> None:
        """Send what waits, until nothing waits."""
        assert self._client is not None
        batch: list[_Waiting] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                async with _in_time(batch[0].deadline):
                    if self._state == "connecting":
                        await self._client.check()
                        self._is_up()
                    if self._client.sharded:
                        alone, batch = batch, []
                        for one in alone:
                            self._begin(self._send_alone(self._client, one))
                    else:
                        self._settle(batch, await self._client.run([one[0] for one in batch]))
        except Exception as exc:
            _fail(batch)
            self._lost(exc)
        finally:
            _fail(batch)  # where this task is cancelled
            self._sending = False

    def _settle(self, batch: list[_Waiting], answers: list[Any]) -> None:
        """Give each command its answer. Raises the answer of a server that cannot serve."""
        for one, answer in zip(batch, answers, strict=True):
            if isinstance(answer, _LOSSES):
                raise answer
            self._settle_one(one, answer)

    async def _send_alone(self, client: StoreClient, one: _Waiting) -> None:
        """Send a command to its shard. A shard that is away costs its commands only."""
        answer: Any = StoreUnavailable()  # where this task is cancelled
        try:
            async with _in_time(one.deadline):
                (answer,) = await client.run([one.command])
        except Exception as exc:  # AttributeError, too, where redis-py closes what we use
            answer = exc
            if isinstance(exc, (*_LOSSES, RedisClusterException)) and not self._doubted:
                self._doubted = True
                self._begin(self._doubt())
        finally:
            self._settle_one(one, answer)

    async def _doubt(self) -> None:
        """See whether any shard is left."""
        assert self._client is not None
        try:
            async with _in_time(asyncio.get_running_loop().time() + self.store_timeout):
                await self._client.check()
        except Exception as exc:
            if self._state == "up":
                self._lost(exc)
        finally:
            self._doubted = False

    def _settle_one(self, one: _Waiting, answer: Any) -> None:
        if isinstance(answer, Exception):
            self._fail_one(one, answer)
        elif not one.answer.done():
            one.answer.set_result(answer)

    def _fail_one(self, one: _Waiting, exc: Exception) -> None:
        self._refusals.log(
            logging.ERROR, "the store %s refused a command: %s", self.name, _text(exc)
        )
        later = isinstance(exc, (*_LATER, RedisClusterException)) or not isinstance(exc, RedisError)
        _fail([one], None if later else ProtocolError(codes.INTERNAL_ERROR, "Internal error"))

    def log_refused(self, what: str, why: str) -> None:
        """Log a record that is not read: one line a minute."""
        self._refusals.log(
            logging.ERROR, "%s in the store %s is not read: %s", what, self.name, why
        )

    # -- states ----------------------------------------------------------------------------------

    def _is_up(self) -> None:
        if self._state == "down":
            away = time.monotonic() - self._changed
            logger.warning("the store %s is back after %.1f s", self.name, away)
        self._state = "up"
        self._changed = time.monotonic()

    def _lost(self, exc: Exception) -> None:
        if self.up_for > SETTLED:
            self._attempts = 0
        self._state = "down"
        self._changed = time.monotonic()
        self.n_losses += 1
        logger.error("the store %s is lost: %s", self.name, _text(exc))
        waiting, self._waiting = self._waiting, []
        _fail(waiting)
        self._begin(self._return())

    async def _return(self) -> None:
        """Try to reach the store until it answers."""
        assert self._client is not None
        await _close(self._client)
        while True:
            self._hurried.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(self._returns.pause(self._attempts)):
                    await self._hurried.wait()
            self._attempts += 1
            client = self.new_client(None)
            try:
                async with _in_time(asyncio.get_running_loop().time() + self.store_timeout):
                    await client.check()
            except Exception:
                await _close(client)
            except BaseException:
                await _close(client)
                raise
            else:
                self._client = client
                self._is_up()
                return


@contextlib.asynccontextmanager
async def _in_time(deadline: float) -> AsyncIterator[None]:
    """Wait for the store until a time of the loop's clock. A process that was busy or stopped then
    reads first what has come: TimeoutError only if the store has not answered."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        limit.reschedule(max(deadline, loop.time() + READING))

    async with asyncio.timeout_at(max(deadline, loop.time() + READING)) as limit:
        looking = loop.call_at(deadline - READING, look)
        try:
            yield
        finally:
            looking.cancel()


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks that use a client of the store, and wait for their end. Each is cancelled until
    it ends: redis-py writes within `asyncio.wait_for`, which loses on Python 3.11 a cancellation
    that comes as the write ends."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=ENDS_IN)


def _fail(waiting: Iterable[_Waiting], exc: ProtocolError | None = None) -> None:
    """Fail commands that have no answer yet, by default because the store is away."""
    for one in waiting:
        if not one.answer.done():
            one.answer.set_exception(StoreUnavailable() if exc is None else exc)


def _text(exc: Exception) -> str:
    return str(exc) or type(exc).__name__


async def _close(client: StoreClient) -> None:
    """Close connections that may be broken."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await client.close()


set_public_home(globals())

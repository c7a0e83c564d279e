"""Changes of lists and resources, of which each host tells its subscribers, in the store.

The key ``changes`` is a stream of at most `MAX_KEPT` changes: number, process, kind and what; the
key ``serial`` has the number of the last one. Each process that has subscribers reads the stream
over a connection of its own. One that misses a number, because it was away for long, because the
store has lost its data or because another process had too many changes to tell, says so: then it
may have missed any change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
from collections.abc import Callable

from wirespeed.cluster.clients import Script, StoreClient
from wirespeed.cluster.store import Cluster, end_tasks
from wirespeed.errors import ProtocolError, StoreUnavailable
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.rate_limited_log import RateLimitedLog

logger = logging.getLogger("wirespeed.cluster")

VERSION = "1"
MAX_KEPT = 1000  # changes in the store
MAX_WAITING = 1000  # changes of this process that the store does not have yet
LIFETIME = 3600.0  # seconds after which the store forgets changes that nobody reads
# Seconds for which a process waits for a change, before it asks again. A connection that is broken
# unnoticed, as when the master's machine is gone, is given up after twice that time.
WAIT = 5.0
AGAIN = Backoff(0.1, 1.0, jitter=True)
TEXT = "utf-8", "surrogatepass"  # a server may name a resource by any str

# ARGV: process, most changes, milliseconds of life, the number of changes that are not told (the
# others miss their numbers), pairs of kind and what.
_TELL = Script(
    """
local stream, serial = KEYS[1] .. 'changes', KEYS[1] .. 'serial'
redis.call('INCRBY', serial, ARGV[4])
for i = 5, #ARGV, 2 do
  redis.call('XADD', stream, 'MAXLEN', ARGV[2], '*', 'n', redis.call('INCR', serial),
    'by', ARGV[1], 'kind', ARGV[i], 'what', ARGV[i + 1])
end
redis.call('PEXPIRE', stream, ARGV[3])
redis.call('PEXPIRE', serial, ARGV[3])
return 1
"""
)
# ARGV: milliseconds of life. Returns the number and the id of the last change.
_LAST = Script(
    """
local stream, serial = KEYS[1] .. 'changes', KEYS[1] .. 'serial'
local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
redis.call('PEXPIRE', stream, ARGV[1])
redis.call('PEXPIRE', serial, ARGV[1])
return {tonumber(redis.call('GET', serial) or 0), last and last[1] or '0-0'}
"""
)


class SharedChanges:
    """The changes that the hosts of one server tell each other.

    Args:
        cluster: The store.
        name: The name of the server.
        on_change: Called with kind and what of each change that another process has told.
        on_missed: Called without arguments when changes may have been missed.
        wait: Seconds for which the store is asked at once for a change.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        on_change: Callable[[str, str], object],
        on_missed: Callable[[], object],
        *,
        wait: float = WAIT,
    ) -> None:
        self._cluster = cluster
        self._base = cluster.base(f"changes{VERSION}", name)
        self._on_change = on_change
        self._on_missed = on_missed
        self._wait = wait
        self._id = secrets.token_urlsafe(9)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._has_subscribers = False
        self._waiting: dict[tuple[str, str], None] = {}
        self._n_dropped = 0  # changes that nobody is told of
        self._quiet = RateLimitedLog(logger, lines=1, seconds=60.0)
        self._telling: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._client: StoreClient | None = None
        self._n = -1  # the number of the last change that was read; -1: none was yet
        self._at = "0-0"  # its id

    def begin(self) -> None:
        """Changes are told from now on, on the loop that runs."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        if self._has_subscribers:
            self.follow()

    def follow(self) -> None:
        """There are subscribers: read what the other hosts tell, once changes are told. A second
        call does nothing."""
        self._has_subscribers = True
        if self._following is None and self._loop is not None:
            self._cluster.hold(self)
            self._following = self._loop.create_task(self._follow())

    def tell(self, kind: str, what: str) -> None:
        """From any thread: tell the other hosts of a change. Changes of one turn of the loop leave
        together."""
        if self._loop is None:
            return  # nobody is served yet
        if threading.get_ident() == self._thread:
            self._note(kind, what)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._note, kind, what)

    async def close(self) -> None:
        """Neither tell nor read any more."""
        tasks = [task for task in (self._telling, self._following) if task is not None]
        self._loop = self._telling = self._following = None
        self._has_subscribers = False
        self._n = -1
        await end_tasks(tasks)
        await self._drop()
        await self._cluster.release(self)

    # -- what this process tells -------------------------------------------------------------------

    def _note(self, kind: str, what: str) -> None:
        if self._loop is None:
            return
        if len(self._waiting) >= MAX_WAITING and (kind, what) not in self._waiting:
            self._n_dropped += 1
            self._quiet.log(
                logging.WARNING, "too many changes wait for the store: hosts are not told which"
            )
            return
        self._waiting[kind, what] = None
        if self._telling is None:
            self._cluster.hold(self)
            self._telling = self._loop.create_task(self._tell())

    async def _tell(self) -> None:
        n_failures = 0
        while self._waiting:
            told, self._waiting = self._waiting, {}
            n_dropped, self._n_dropped = self._n_dropped, 0
            words = [word.encode(*TEXT) for change in told for word in change]
            try:
                await self._cluster.run(
                    _TELL, self._base, self._id, MAX_KEPT, round(LIFETIME * 1000), n_dropped, *words
                )
                n_failures = 0
            except StoreUnavailable:  # it may have them: then they are told twice
                self._waiting = told | self._waiting
                self._n_dropped += n_dropped
                await asyncio.sleep(AGAIN.pause(n_failures))
                n_failures += 1
            except ProtocolError as exc:
                logger.error("hosts are not told of %d changes: %s", len(told), exc)
        self._telling = None

    # -- what the others tell ----------------------------------------------------------------------

    async def _follow(self) -> None:
        n_failures = 0
        found: list[tuple[bytes, dict[bytes, bytes]]] = []
        while True:
            try:
                if not found:
                    await self._check()
                if self._client is None:
                    self._client = self._cluster.new_client(2 * self._wait)
                found = await self._client.read(self._base + "changes", self._at, self._wait)
                n_failures = 0
                if not all(self._take(id, fields) for id, fields in found):
                    self._n = -1  # all that the store has was missed
                    await self._check()
                    self._missed()
            except asyncio.CancelledError:
                raise
            except Exception as exc:
                if n_failures == 0 and not isinstance(exc, StoreUnavailable):
                    logger.warning("changes of other hosts are not read: %s", exc)
                found = []
                await self._drop()
                await asyncio.sleep(AGAIN.pause(n_failures))
                n_failures += 1

    async def _check(self) -> None:
        """See whether the store still has what is read next."""
        n, at = await self._cluster.run(_LAST, self._base, round(LIFETIME * 1000))
        at = at.decode()
        if self._n < 0:
            self._n, self._at = n, at
        elif n < self._n or (n > self._n and _order(at) <= _order(self._at)):
            self._n, self._at = n, at
            self._missed()

    def _take(self, id: bytes, fields: dict[bytes, bytes]) -> bool:
        """Take a change. Returns whether it is the next one."""
        self._at = id.decode()
        try:
            n, by, kind, what = (
                fields[one].decode(*TEXT) for one in (b"n", b"by", b"kind", b"what")
            )
            number = int(n)
        except (KeyError, ValueError):
            self._cluster.log_refused("a change", "another program wrote it")
            return True
        if number != self._n + 1:
            return False
        self._n = number
        if by != self._id:
            self._on_change(kind, what)
        return True

    def _missed(self) -> None:
        logger.warning("changes of other hosts may have been missed")
        self._on_missed()

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()


def _order(id: str) -> tuple[int, ...]:
    """The key by which the ids of a stream are ordered."""
    return tuple(map(int, id.split("-")))

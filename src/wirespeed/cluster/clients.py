"""The URLs of stores, and a client of redis-py for each kind of store.

A client makes its connections when they are needed, tries nothing twice, and raises the errors of
redis-py.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

try:
    from redis.asyncio import Redis, RedisCluster
except ModuleNotFoundError as exc:
    raise ModuleNotFoundError(
        "a cluster needs the package redis: pip install 'wirespeed[cluster]'", name="redis"
    ) from exc
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, NoScriptError, RedisError, ResponseError

PORT = 6379
SENTINEL_PORT = 26379
GRAMMAR = (
    "the URL of a cluster is redis://[user:password@]host[:port][/db], rediss://… with TLS, "
    "unix://[user:password@]/path, redis+sentinel://host[:port],…/service[/db] or "
    "redis+cluster://host[:port],…"
)
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
SENTINEL_OPTIONS = {"sentinel_username": "username", "sentinel_password": "password"}

MOST_READ = 100  # entries of a stream at once

Word: TypeAlias = str | bytes | int


class Script:
    """A function of the store, in Lua. All its keys begin with one base, its ``KEYS[1]``, so that
    they are in one hash slot."""

    __slots__ = ("sha", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Command(NamedTuple):
    """A script, and its words: the number of keys, the base and arguments."""

    script: Script
    words: Sequence[Word]


class StoreClient(Protocol):
    """A store, as a `wirespeed.cluster.Cluster` uses it.

    Attributes:
        sharded: Whether commands go to different servers, of which some may be away.
    """

    sharded: bool

    async def check(self) -> None:
        """Connect where that is to be done, and see that the store answers, or a part of it."""

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to commands, or the errors with which the store answered."""

    async def read(
        self, stream: str, after: str, seconds: float
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Wait for entries of a stream behind an id, and return these: their ids and fields."""

    async def close(self) -> None:
        """Close all connections."""


class SingleServer:
    """One server, or the master that Sentinels name."""

    sharded = False

    def __init__(self, redis: Redis, guards: Sequence[Redis] = ()) -> None:
        self._redis = redis
        self._guards = guards

    async def check(self) -> None:
        await self._redis.execute_command("PING")

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) == 1:  # half of the work of a pipeline
            return [await _answer(self._redis, commands[0])]
        pipeline = self._redis.pipeline(transaction=False)
        for script, words in commands:
            pipeline.execute_command("EVALSHA", script.sha, *words)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        for number, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):
                answers[number] = await _answer(self._redis, commands[number])
        return answers

    async def read(
        self, stream: str, after: str, seconds: float
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return await _read(self._redis, stream, after, seconds)

    async def close(self) -> None:
        await asyncio.gather(
            *(one.aclose(close_connection_pool=True) for one in (self._redis, *self._guards))
        )


class ShardedServers:
    """A Redis Cluster. Its pipelines take no scripts, so each command is sent by itself."""

    sharded = True

    def __init__(self, redis: RedisCluster) -> None:
        self._redis = redis

    async def check(self) -> None:
        await self._redis.initialize()
        pings = [asyncio.create_task(self._ping(node)) for node in self._redis.get_primaries()]
        try:
            for ping in asyncio.as_completed(pings):
                if await ping:
                    return
        finally:
            for one in pings:
                one.cancel()
        raise ConnectionError("no master of the Redis Cluster answers")

    async def _ping(self, node: ClusterNode) -> bool:
        try:
            await self._redis.execute_command("PING", target_nodes=node)
        except Exception:  # AttributeError, too, where redis-py closes what we use
            return False
        return True

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        return await asyncio.gather(*(_answer(self._redis, command) for command in commands))

    async def read(
        self, stream: str, after: str, seconds: float
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return await _read(self._redis, stream, after, seconds)

    async def close(self) -> None:
        if self._redis.get_nodes():
            # After a failure `aclose` leaves connections open, until the nodes are looked for anew.
            with contextlib.suppress(RedisError, OSError):
                await self._redis.initialize()
        await self._redis.aclose()


async def _read(
    redis: Redis | RedisCluster, stream: str, after: str, seconds: float
) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: Any = await redis.xread({stream: after}, count=MOST_READ, block=round(seconds * 1000))
    entries: list[tuple[bytes, dict[bytes, bytes]]] = found[0][1] if found else []
    return entries


async def _answer(redis: Redis | RedisCluster, command: Command) -> Any:
    """The answer to one command, or the error with which the store answered."""
    script, words = command
    try:
        try:
            return await redis.execute_command("EVALSHA", script.sha, *words)
        except NoScriptError:  # its first use, or the store was restarted
            return await redis.execute_command("EVAL", script.text, *words)
    except ResponseError as exc:
        return exc


def clients_of(url: str, timeout: float) -> tuple[Callable[[float | None], StoreClient], str]:
    """Return a function and the URL without user and password. The function makes a client; its
    argument is the seconds that the client waits for an answer; None: without end.

    Args:
        url: As `GRAMMAR` says. A query may have `TLS_OPTIONS`, ``db`` and `SENTINEL_OPTIONS`.
        timeout: Seconds for a connection.

    ValueError: The URL is wrong. The text does not repeat it.
    """
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise _wrong() from None
    scheme, _, kind = parts.scheme.partition("+")
    user, _, place = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    path = unquote(parts.path)
    options: dict[str, Any] = {
        "socket_connect_timeout": timeout,
        "protocol": 2,  # without notices of maintenance, which another version asks for
        "retry": Retry(NoBackoff(), 0),
    }
    tls: dict[str, Any] = {key: query.pop(key) for key in TLS_OPTIONS if key in query}
    if scheme == "rediss":
        tls["ssl"] = True
    elif scheme not in ("redis", "unix") or tls or parts.fragment:
        raise _wrong()
    guarding = {
        key: query.pop(option) for option, key in SENTINEL_OPTIONS.items() if option in query
    }
    if name:
        options["username"] = unquote(name)
    if password:
        options["password"] = unquote(password)
    make: Callable[[float | None], StoreClient]
    if scheme == "unix" and not kind:
        options["db"] = _database(query.pop("db", "0"))
        if place or not path.strip("/"):
            raise _wrong()

        def make(wait: float | None) -> StoreClient:
            return SingleServer(Redis(unix_socket_path=path, socket_timeout=wait, **options))

    elif scheme == "unix":
        raise _wrong()
    elif kind == "cluster":
        hosts = [_host(one, PORT) for one in place.split(",")]
        if path.strip("/"):
            raise _wrong()

        def make(wait: float | None) -> StoreClient:
            nodes = [ClusterNode(*host) for host in hosts]
            return ShardedServers(
                RedisCluster(startup_nodes=nodes, socket_timeout=wait, **options, **tls)
            )

    elif kind == "sentinel":
        hosts = [_host(one, SENTINEL_PORT) for one in place.split(",")]
        service, _, number = path.strip("/").partition("/")
        options["db"] = _database(number or query.pop("db", "0"))
        if not service:
            raise _wrong()

        def make(wait: float | None) -> StoreClient:
            own = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
            guards = Sentinel(
                hosts,
                sentinel_kwargs={**own, **tls, **guarding},
                socket_timeout=wait,
                **options,
                **tls,
            )
            return SingleServer(guards.master_for(service), guards.sentinels)

    elif not kind and not guarding:
        host, port = _host(place, PORT)
        options["db"] = _database(path.strip("/") or query.pop("db", "0"))

        def make(wait: float | None) -> StoreClient:
            return SingleServer(Redis(host=host, port=port, socket_timeout=wait, **options, **tls))

    else:
        raise _wrong()
    if query or (guarding and kind != "sentinel"):
        raise _wrong()
    return make, f"{parts.scheme}://{place}{parts.path}"


def _wrong() -> ValueError:
    return ValueError(GRAMMAR)


def _host(text: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        found = parts.port
    except ValueError:
        raise _wrong() from None
    if not parts.hostname or parts.path or "@" in text or "," in text:
        raise _wrong()
    return parts.hostname, port if found is None else found


def _database(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise _wrong()
    return int(text)

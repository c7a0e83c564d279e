"""A Redis or Valkey of this machine: one for each file of tests, emptied for each test.

The server's program is $WIRESPEED_REDIS, which must then be there, or a ``redis-server`` or
``valkey-server`` on the path.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

if TYPE_CHECKING:
    from redis import Redis

    from wirespeed.cluster import Cluster

NAMES = ("redis-server", "valkey-server")
MISSING = "no Redis: install redis-server, or name the program in WIRESPEED_REDIS"
SECONDS = 20.0
# Options of a server that answers scripts with lists.
LISTS_FOR_SCRIPTS = (
    *("--rename-command", "EVALSHA", "SCRIPT_OF_SHA"),
    *("--rename-command", "MGET", "EVALSHA"),
)


@cache
def find() -> str | None:
    """The server's program; None when there is none."""
    return os.environ.get("WIRESPEED_REDIS") or next(filter(None, map(shutil.which, NAMES)), None)


class StoreServer:
    """A server at a socket of a folder, which keeps nothing on disk.

    Args:
        folder: For the socket. Its path must be short.
        port: A TCP port of 127.0.0.1 as well; 0 for none.
        password: Of the user "default".
        config: The file of a Sentinel.
        inside: The command that runs another one on the store's machine.
        options: Of the server's command line.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        port: int = 0,
        password: str | None = None,
        config: Path | None = None,
        inside: Sequence[str] = (),
    ) -> None:
        self.path = folder / "redis.sock"
        self.port = port
        self._folder = folder
        self._options = options if password is None else (*options, "--requirepass", password)
        self._password = password
        self._config = config
        self._inside = inside
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.path}"

    def start(self) -> None:
        program = find()
        assert program is not None, MISSING
        self.process = subprocess.Popen(
            [
                *self._inside,
                program,
                *(("--save", "", "--appendonly", "no") if self._config is None else self._guard),
                *("--dir", str(self._folder)),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.path)),
                *self._options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + SECONDS
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except Exception:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.01)

    @property
    def _guard(self) -> tuple[str, ...]:
        return str(self._config), "--sentinel"

    def client(self) -> Redis:
        """A client for the test itself."""
        from redis import Redis

        return Redis(
            unix_socket_path=str(self.path),
            password=self._password,
            decode_responses=True,
            protocol=2,
        )

    def cluster(self, **options: Any) -> Cluster:
        """What a test has that does not lose the store: a slow machine is no loss."""
        from wirespeed.cluster import Cluster

        return Cluster(self.url, store_timeout=SECONDS, **options)

    def ask(self, *command: Any) -> Any:
        with self.client() as client:
            return client.execute_command(*command)

    def calls(self) -> dict[str, int]:
        """How often each command was called since the last reset, but for those of a handshake."""
        found = self.ask("INFO", "commandstats")
        own = ("cmdstat_info", "cmdstat_config", "cmdstat_client", "cmdstat_ping", "cmdstat_hello")
        return {
            name.removeprefix("cmdstat_"): fields["calls"]
            for name, fields in found.items()
            if not name.startswith(own)
        }

    def forget(self) -> None:
        """Remove what it has written down, so that it is empty when it starts again."""
        (self._folder / "dump.rdb").unlink(missing_ok=True)

    def freeze(self) -> None:
        self._kill(signal.SIGSTOP)

    def thaw(self) -> None:
        self._kill(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self._kill(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _kill(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


MakeServer = Callable[..., StoreServer]


@pytest.fixture
def new_store_server() -> Iterator[MakeServer]:
    """``new_store_server(*options, port=0, password=None)``: a server of this test alone."""
    if find() is None:
        pytest.skip(MISSING)
    servers: list[StoreServer] = []
    with tempfile.TemporaryDirectory(prefix="ws-") as folder:

        def new(*options: str, **more: Any) -> StoreServer:
            own = Path(folder, str(len(servers)))
            own.mkdir()
            servers.append(StoreServer(own, *options, **more))
            return servers[-1]

        try:
            yield new
        finally:
            for server in servers:
                server.kill()


@pytest.fixture(scope="module")
def _shared_store() -> Iterator[StoreServer]:
    if find() is None:
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="ws-") as folder:
        server = StoreServer(Path(folder))
        yield server
        server.kill()


@pytest.fixture
def store_server(_shared_store: StoreServer) -> StoreServer:
    """A server that is empty, for tests that leave it running."""
    _shared_store.ask("FLUSHALL")
    _shared_store.ask("CONFIG", "RESETSTAT")
    return _shared_store


class Cable:
    """The way of one host to a store, while it is entered.

    Attributes:
        url: Of its end at the host.
        is_cut: Whether nothing passes.
        is_mute: Whether the answers of the store do not pass.
    """

    def __init__(self, store: StoreServer) -> None:
        self._store = store
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_cut = self.is_mute = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.close()
            return
        others = await asyncio.open_unix_connection(self._store.path)
        self._writers |= {writer, others[1]}
        ways = self._pass(reader, others[1], False), self._pass(others[0], writer, True)
        await asyncio.gather(*ways, return_exceptions=True)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if not (answers and self.is_mute):
                    writer.write(data)
        finally:
            writer.close()

    def cut(self) -> None:
        self.is_cut = True
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def __aexit__(self, *exc_info: object) -> None:
        self.cut()
        self._server.close()
        await self._server.wait_closed()

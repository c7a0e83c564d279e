"""``wirespeed proxy --config`` as a process, and clients of bare bytes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.proxy import BACKEND
from lab.raw import FOREVER, surroundings

PORTS = random.SystemRandom()


def free_port() -> int:
    """A port that is free now, of those that nobody gets who asks for any."""
    while True:
        port = PORTS.randrange(10_000, 32_768)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class ProcessLab:
    """The proxy as a process, with servers of the proxy's lab.

    Attributes:
        file: Its configuration.
        log: What it has written to stderr.
        process: It.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "backend.py").write_text(BACKEND)
        self.file = folder / "proxy.json"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes]

    def write(
        self,
        *names: str,
        mark: str = "",
        versions: str = "",
        isolation: str = "shared",
        lite: tuple[str, ...] = (),
        **top: Any,
    ) -> None:
        """Write the configuration: these servers, and keys of the file's ``proxy``. ``lite``: Tools
        for clients of LiteMCP."""
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in lite]
        servers = {
            name: {
                "command": sys.executable,
                "args": ["-S", str(self.folder / "backend.py"), str(self.folder / f"seen-{name}")],
                "env": {
                    "MARK": mark,
                    "VERSIONS": versions,
                    "TOOLS": json.dumps(tools) if lite else "",
                },
                "proxy": {"isolation": isolation, "lite": lite},
            }
            for name in names
        }
        new = self.folder / "new.json"
        new.write_text(json.dumps({"mcpServers": servers, "proxy": top}))
        os.replace(new, self.file)

    @contextlib.contextmanager
    def running(
        self, *options: str, passed: socket.socket | None = None, **env: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The process, from when it serves until its end. ``passed``: a socket of a service
        manager."""
        words = ["proxy", "--config", str(self.file), *options]
        with self.running_command(*words, passed=passed, **env) as process:
            yield process

    @contextlib.contextmanager
    def running_command(
        self, *words: str, passed: socket.socket | None = None, **env: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The same of any command line."""
        word, *others = words
        fds = [] if passed is None else [passed.fileno()]
        launch = ["-c", LAUNCH, "1", *map(str, fds)] if fds else []
        with (
            self.log.open("wb") as log,
            subprocess.Popen(
                [sys.executable, *launch, "-m", "wirespeed", word, "--log-level", "info", *others],
                stderr=log,
                pass_fds=fds,
                env={**surroundings(), **env},
            ) as process,
        ):
            self.process = process
            try:
                self.until("Ctrl-C ends it")
                yield process
            finally:
                process.kill()

    def until(self, text: str, n: int = 1) -> str:
        """Wait until the log has a text ``n`` times. Returns the log."""
        until = time.monotonic() + FOREVER
        while (found := self.log.read_text()).count(text) < n:
            assert time.monotonic() < until, found
            time.sleep(0.01)
        return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


HELLO = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}


def ask(sock: socket.socket, message: Any) -> Any:
    """Send a message, and return the next one."""
    sock.sendall(json.dumps(message).encode() + b"\n")
    data = b""
    while not data.endswith(b"\n"):
        more = sock.recv(65536)
        if not more:
            raise ConnectionError("the connection was closed before the answer")
        data += more
    return json.loads(data)


def call(id: Any, tool: str, **arguments: Any) -> Any:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


@contextlib.contextmanager
def unix(path: Path) -> Iterator[socket.socket]:
    """A client at a UNIX socket, after its handshake."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(FOREVER)
        sock.connect(str(path))
        ask(sock, HELLO)
        yield sock


def pid(sock: socket.socket, tool: str = "echo") -> int:
    """The process of the server that answers."""
    answer = ask(sock, call(1, tool))
    found = answer["result"]["_meta"]["pid"]
    assert isinstance(found, int)
    return found


BOTH = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def new_process(log: str) -> int:
    """The last process that has taken the place of another."""
    return int(re.findall(r"process (\d+) takes the place of this one", log)[-1])


# A service manager starts a program with its sockets as descriptors 3, 4, ...
LAUNCH = """
import os, sys
n = int(sys.argv[1])
given = [os.dup(int(fd)) for fd in sys.argv[2:2 + n]]
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(n), LISTEN_FDNAMES="x")
for i, fd in enumerate(given):
    os.dup2(fd, 50 + i)
for i in range(n):
    os.dup2(50 + i, 3 + i)
os.execv(sys.executable, [sys.executable, *sys.argv[2 + n:]])
"""

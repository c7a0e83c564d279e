"""Servers on a socket, started for a measurement and ended after it."""

import contextlib
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from harness import RIVALS, Sample, Settings

STARTING_S = 30.0
ENDING_S = 10.0


@dataclass
class Listening:
    port: int
    pid: int
    url: str  # of WebSocket

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


@contextlib.contextmanager
def listening(command: Sequence[str]) -> Iterator[Listening]:
    """Starts a server that prints its port; ends it by SIGTERM, and its input by closing it.

    Raises:
        RuntimeError: It told no port, ended before its time, or did not end.
    """
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
        )
        try:
            port = read_port(child, errors)
            yield Listening(port, child.pid, f"ws://127.0.0.1:{port}/")
            if child.poll() is not None:
                raise RuntimeError(f"the server ended: {last_words(errors) or child.returncode}")
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(ENDING_S)
            except subprocess.TimeoutExpired:
                raise RuntimeError("the server did not end at SIGTERM") from None
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe:
                    pipe.close()


def read_port(child: subprocess.Popen[bytes], errors: IO[bytes]) -> int:
    assert child.stdout
    line = b""
    deadline = time.monotonic() + STARTING_S
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        ready = select.select([child.stdout], [], [], max(0, left))[0]
        got = child.stdout.read(64) if ready else b""
        if not got:
            raise RuntimeError(f"the server told no port: {last_words(errors) or 'no word'}")
        line += got
    return int(line)


def last_words(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def script(settings: Settings, environment: str, name: str) -> list[str]:
    """The command of a script in rivals/; `environment` "" is wirespeed's own."""
    return [settings.rival(environment), str(RIVALS / name)]


def against(command: Sequence[str], measure: Callable[[Listening], Sample]) -> Sample:
    """A sample taken against a server; one that did not start or end gives a wrong sample."""
    try:
        with listening(command) as server:
            sample = measure(server)
    except (OSError, RuntimeError, ValueError) as error:
        return {"correct": False, "error": f"{type(error).__name__}: {error}"}
    return sample

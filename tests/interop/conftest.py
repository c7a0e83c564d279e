"""Sessions with what others wrote: held once, a peer's all in one go, looked at by many tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pairings
import peers
import pytest
import wire
from pairings import Held, Pairing

pytest.register_assert_rewrite("checks")

Validate = Callable[[wire.Run, str], list[str]]


@pytest.fixture(scope="session")
def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Pairing], Held]]:
    """Holds the sessions that the collected tests ask for, two peers at a time."""
    groups: dict[tuple[str, bool], dict[Pairing, None]] = {}
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        pairing = None if callspec is None else callspec.params.get("pairing")
        if isinstance(pairing, Pairing):
            groups.setdefault(pairing.group, {})[pairing] = None
    folder = tmp_path_factory.mktemp("interop")
    with ThreadPoolExecutor(2, "interop") as pool:
        held: dict[tuple[str, bool], Future[dict[Pairing, Held]]] = {}
        for group, wanted in groups.items():
            place = folder / f"{group[0]}-{'client' if group[1] else 'server'}"
            held[group] = pool.submit(pairings.hold, list(wanted), place)
        yield lambda pairing: held[pairing.group].result()[pairing]
        for future in held.values():
            future.cancel()


@pytest.fixture
def held(pairing: Pairing, sessions: Callable[[Pairing], Held]) -> Held:
    """The session of the test's pairing."""
    return sessions(pairing)


@pytest.fixture(scope="session")
def validate() -> Iterator[Validate]:
    """Has mcp 2's own models of each revision read what one side wrote: "<" server, ">" client."""
    command = [peers.python("python2"), str(peers.PROGRAMS / "python2_validate.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        source, sink = child.stdout, child.stdin

        def ask(run: wire.Run, writer: str) -> list[str]:
            sink.write(json.dumps({"wire": run.wire, "writer": writer}) + "\n")
            sink.flush()
            found: list[str] = json.loads(source.readline())
            return found

        yield ask
        sink.close()
        assert child.wait(10) == 0

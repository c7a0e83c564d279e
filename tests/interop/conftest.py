"""Sessions with what others wrote: held once, looked at by many tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pairings
import peers
import pytest
import transcripts
from pairings import Held, Outcome, Pairing, Validate

pytest.register_assert_rewrite("checks")


@pytest.fixture(scope="session")
def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Pairing, Outcome]:
    """The sessions that the collected tests ask for, held."""
    wanted: dict[Pairing, None] = {}
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        pairing = None if callspec is None else callspec.params.get("pairing")
        if isinstance(pairing, Pairing):
            wanted[pairing] = None
    return pairings.hold(list(wanted), tmp_path_factory.mktemp("interop"))


@pytest.fixture
def held(pairing: Pairing, sessions: dict[Pairing, Outcome]) -> Held:
    """The session of the test's pairing."""
    outcome = sessions[pairing]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@pytest.fixture(scope="session")
def validate() -> Iterator[Validate]:
    """Has mcp 2's own models of each revision read what one side wrote: "<" server, ">" client."""
    command = [peers.python("python2"), str(peers.PROGRAMS / "python2_validate.py")]
    with subprocess.Popen(
        command,
        env=peers.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        source, sink = child.stdout, child.stdin

        def ask(run: transcripts.Run, writer: str) -> list[str]:
            sink.write(json.dumps({"wire": run.wire, "writer": writer}) + "\n")
            sink.flush()
            found: list[str] = json.loads(source.readline())
            return found

        yield ask
        sink.close()
        assert child.wait(10) == 0

"""Programs of other SDKs under our adapters, unchanged: they see what they see without one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest

import wirespeed

# By the adapter: the environment that has its SDK and what we need, and whose programs run.
PEERS = {"mcp1": ("adapter1", "python1")}
ENDS = ["client", "server", "both"]


def place_of_ours(folder: Path) -> Path:
    """A folder that has our package and no other, for the environments of peers."""
    place = folder / "ours"
    place.mkdir(exist_ok=True)
    link = place / "wirespeed"
    if not link.exists():
        link.symlink_to(Path(wirespeed.__file__).parent, target_is_directory=True)
    return place


def commands(adapter: str) -> tuple[list[str], list[str]]:
    """The client and the server of an SDK."""
    environment, programs = PEERS[adapter]
    python = peers.python(environment)
    client, server = (
        [python, str(peers.PROGRAMS / f"{programs}_{end}.py")] for end in ("client", "server")
    )
    return client, server


def under(adapter: str, command: list[str], folder: Path) -> list[str]:
    """The command of a Python program, under an adapter."""
    python, *rest = command
    launcher = str(peers.PROGRAMS / "under_adapter.py")
    return [python, launcher, str(place_of_ours(folder)), adapter, *rest]


async def report_of(client: list[str], server: list[str], folder: Path) -> dict[str, Any]:
    """What a client's program says of a session with a server's."""
    folder.mkdir()
    job, report = folder / "job.json", folder / "report.json"
    sessions = [{"name": "it", "mode": "legacy", "command": server}]
    job.write_text(json.dumps({"sessions": sessions, "report": str(report)}))
    await pairings.run_program(client, job, report)
    found: dict[str, Any] = json.loads(report.read_text())["it"]
    return found


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The reports of sessions without an adapter."""
    folder = tmp_path_factory.mktemp("stock")

    async def main() -> dict[str, dict[str, Any]]:
        found = {}
        for adapter in PEERS:
            found[adapter] = await report_of(*commands(adapter), folder / adapter)
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("adapter", PEERS)
async def test_a_session_is_what_it_is_without(
    adapter: str, ends: str, stock: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    client, server = commands(adapter)
    if ends != "server":
        client = under(adapter, client, tmp_path)
    if ends != "client":
        server = under(adapter, server, tmp_path)
    found = await report_of(client, server, tmp_path / "session")
    assert found["closing"]
    assert found == stock[adapter]

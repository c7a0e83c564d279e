"""Programs of other SDKs under our adapters, unchanged: they see what they see without one."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest

import wirespeed
from wirespeed import Client, Stdio

# By the adapter: the environment that has its SDK and what we need, and whose programs run.
PEERS = {"mcp1": ("adapter1", "python1"), "mcp": ("adapter2", "python2")}
ENDS = ["client", "server", "both"]
# Servers that others published: their adapter, environment, arguments, and calls of their tools.
SERVERS: dict[str, tuple[str, str, list[str], list[tuple[str, dict[str, Any]]]]] = {
    "sqlite": (
        "mcp1",
        "adapter1",
        ["{bin}/mcp-server-sqlite", "--db-path", "{folder}/it.db"],
        [
            ("create_table", {"query": "CREATE TABLE words (word TEXT)"}),
            ("write_query", {"query": "INSERT INTO words VALUES ('x'), ('y')"}),
            ("read_query", {"query": "SELECT word FROM words ORDER BY word"}),
            ("list_tables", {}),
            ("read_query", {"query": "DROP TABLE words"}),
        ],
    ),
}
# Those of the next generation of the SDK.
SERVERS |= {
    "time": (
        "mcp",
        "adapter2",
        ["-m", "mcp_server_time", "--local-timezone", "UTC"],
        [
            (
                "convert_time",
                {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"},
            ),
            ("convert_time", {"source_timezone": "Nowhere", "time": "1", "target_timezone": "UTC"}),
        ],
    ),
    "git": (
        "mcp",
        "adapter2",
        ["-m", "mcp_server_git"],
        [
            ("git_status", {"repo_path": "{repository}"}),
            ("git_log", {"repo_path": "{repository}"}),
        ],
    ),
}
# Clients that others published: their adapter, environment, program and its arguments.
CLIENTS = {
    "langchain": ("mcp1", "adapter1", ["adapted_client.py", "langchain"]),
    "opentelemetry": ("mcp1", "adapter1", ["traced_client.py"]),
    "openai": ("mcp", "adapter2", ["adapted_client.py", "openai"]),
}


# Those of every run; the others are for one with --full.
ALWAYS = {"both", "time", "sqlite", "opentelemetry"}


def sampled(names: Iterable[str]) -> list[Any]:
    """The values of a parameter, most of them only with --full."""
    full = pytest.mark.full("another program that somebody published")
    return [pytest.param(name, marks=[] if name in ALWAYS else [full]) for name in names]


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


def server_of(adapter: str) -> list[str]:
    """The SDK's own server, which clients call."""
    return commands(adapter)[1]


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


@pytest.mark.parametrize("ends", sampled(ENDS))
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


def fastmcp_command(folder: Path) -> list[str]:
    """The checks of the adapter of FastMCP, under it."""
    command = [peers.python("adapter_fastmcp"), str(peers.PROGRAMS / "fastmcp_checks.py")]
    return under("fastmcp", command, folder)


async def test_fastmcp_on_the_adapter(tmp_path: Path) -> None:
    command = await asyncio.to_thread(fastmcp_command, tmp_path)
    found = await peers.report(command)
    assert len(found) == 7
    assert {name: said for name, said in found.items() if said != "passed"} == {}


async def seen_of(command: list[str], calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """What a server's client sees: tools, and results of calls."""
    async with Client(Stdio(command[0], command[1:]), timeout=60, handshake_timeout=60) as client:
        seen: list[Any] = [client.protocol_version, client.server_info, client.server_capabilities]
        seen += [
            (tool.name, tool.description, tool.input_schema) for tool in await client.list_tools()
        ]
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            seen.append((result.is_error, result.content, result.structured_content))
        return seen


@pytest.mark.parametrize("name", sampled(SERVERS))
async def test_a_published_server_answers_as_without(name: str, tmp_path: Path) -> None:
    adapter, environment, arguments, calls = SERVERS[name]
    python = await asyncio.to_thread(peers.python, environment)
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    (repository / "new.txt").write_text("new\n")
    seen = []
    for kind in ("stock", "adapted"):
        folder = tmp_path / kind
        folder.mkdir()
        places = {"folder": folder, "bin": Path(python).parent, "repository": repository}
        command = [python, *(word.format(**places) for word in arguments)]
        if kind == "adapted":
            command = under(adapter, command, tmp_path)
        told = [
            (tool, {key: value.format(**places) for key, value in given.items()})
            for tool, given in calls
        ]
        seen.append(await seen_of(command, told))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", sampled(CLIENTS))
async def test_a_published_client_sees_what_it_saw(name: str, tmp_path: Path) -> None:
    adapter, environment, (program, *arguments) = CLIENTS[name]
    python = await asyncio.to_thread(peers.python, environment)
    client = [python, str(peers.PROGRAMS / program), *arguments]
    server = await asyncio.to_thread(server_of, adapter)
    stock = await peers.report([*client, *server])
    assert stock
    adapted = under(adapter, client, tmp_path)
    assert await peers.report([*adapted, *server]) == stock
    assert await peers.report([*adapted, *under(adapter, server, tmp_path)]) == stock

"""Programs of other SDKs under our adapters, unchanged: they see what they see without one."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pairings
import peers
import pytest
from asgi_servers import Running
from ours import Ours

from wirespeed import Client, Http, Stdio, serve
from wirespeed.errors import RemoteError
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

# By the adapter: the environment that has its SDK and what we need, and whose programs run.
PEERS = {"mcp1": ("adapter1", "python1"), "mcp": ("adapter2", "python2")}
ENDS = ["client", "server", "both"]
# Servers that others published: their adapter, environment, arguments, and calls of their tools.
# Each has its name in its distribution, as `mcp-server-git`.
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
    "fetch": (
        "mcp",
        "adapter2",
        ["-m", "mcp_server_fetch", "--ignore-robots-txt"],
        [
            ("fetch", {"url": "{page}"}),
            ("fetch", {"url": "{page}", "raw": True, "max_length": 9}),
            ("fetch", {"url": "nowhere"}),
        ],
    ),
}
# Clients that others published: their adapter, environment, program and its arguments.
CLIENTS = {
    "langchain": ("mcp1", "adapter1", ["adapted_client.py", "langchain"]),
    "opentelemetry": ("mcp1", "adapter1", ["traced_client.py"]),
    "openai": ("mcp", "adapter2", ["adapted_client.py", "openai"]),
    "pydantic": ("mcp", "adapter_pydantic", ["adapted_client.py", "pydantic"]),
    "adk": ("mcp", "adapter_adk", ["adapted_client.py", "adk"]),
}


# Those of every run; the others are for one with --full.
ALWAYS = {"both", "time", "sqlite", "opentelemetry", "mcp"}


def sampled(names: Iterable[str]) -> list[Any]:
    """The values of a parameter, most of them only with --full."""
    full = pytest.mark.full("another program that somebody published")
    return [pytest.param(name, marks=[] if name in ALWAYS else [full]) for name in names]


def commands(adapter: str, older: str | None = None) -> tuple[list[str], list[str]]:
    """The client and the server of an SDK; ``older``: the environment of an older version."""
    environment, programs = PEERS[adapter]
    python = peers.python(older or environment)
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
    return [python, launcher, str(peers.ours(folder)), adapter, *rest]


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


# Checks of adapters in one process: their environment, program and number.
PROGRAMS = {
    "fastmcp": ("adapter_fastmcp", "fastmcp_checks.py", 8),
    "mcp1": ("adapter1", "sdk1_checks.py", 6),
}


def checks_of(adapter: str, folder: Path, older: str | None = None) -> list[str]:
    """The command of the checks of an adapter, under it."""
    environment, program, _ = PROGRAMS[adapter]
    python = peers.python(older or environment)
    return under(adapter, [python, str(peers.PROGRAMS / program)], folder)


async def check_in_one_process(adapter: str, folder: Path, older: str | None = None) -> None:
    command = await asyncio.to_thread(checks_of, adapter, folder, older)
    found = await peers.report(command)
    assert len(found) == PROGRAMS[adapter][2]
    assert {name: said for name, said in found.items() if said != "passed"} == {}


@pytest.mark.parametrize("adapter", PROGRAMS)
async def test_an_adapter_in_one_process(adapter: str, tmp_path: Path) -> None:
    await check_in_one_process(adapter, tmp_path)


@pytest.mark.parametrize("older", sampled(["adapter1_27", "adapter1_28", "adapter1_29"]))
async def test_an_older_version_is_known(older: str, tmp_path: Path) -> None:
    ends = await asyncio.to_thread(commands, "mcp1", older)
    stock = await report_of(*ends, tmp_path / "stock")
    assert stock["closing"]
    adapted = [under("mcp1", end, tmp_path) for end in ends]
    assert await report_of(adapted[0], adapted[1], tmp_path / "adapted") == stock
    await check_in_one_process("mcp1", tmp_path, older)


async def seen_of(
    command: list[str], calls: list[tuple[str, dict[str, Any]]], **options: Any
) -> list[Any]:
    """What a server's client sees: tools, and results of calls. ``options``: Of `Stdio`."""
    target = Stdio(command[0], command[1:], **options)
    async with Client(target, timeout=60, handshake_timeout=60) as client:
        seen: list[Any] = [client.protocol_version, client.server_info, client.server_capabilities]
        seen += [
            (tool.name, tool.description, tool.input_schema) for tool in await client.list_tools()
        ]
        for name, arguments in calls:
            try:
                result = await client.call_tool(name, arguments)
            except RemoteError as exc:
                seen.append((exc.code, exc.message))
            else:
                seen.append((result.is_error, result.content, result.structured_content))
        return seen


PAGE = b"<html><head><title>A page</title></head><body><main><p>Read me.</p></main></body></html>"


class Pages(http.server.BaseHTTPRequestHandler):
    """One page, at every path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def page() -> Iterator[str]:
    """The URL of a page."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{site.server_port}/"
        finally:
            site.shutdown()
            thread.join()


def filled(given: dict[str, Any], places: dict[str, Any]) -> dict[str, Any]:
    """Arguments with the places of this run."""
    return {
        key: value.format(**places) if isinstance(value, str) else value
        for key, value in given.items()
    }


@pytest.mark.parametrize("name", sampled(SERVERS))
async def test_a_published_server_answers_as_without(name: str, tmp_path: Path) -> None:
    adapter, environment, arguments, calls = SERVERS[name]
    python = await asyncio.to_thread(peers.python, environment)
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    (repository / "new.txt").write_text("new\n")
    seen = []
    with page() as url:
        for kind in ("stock", "adapted"):
            folder = tmp_path / kind
            folder.mkdir()
            places = {"folder": folder, "bin": Path(python).parent, "repository": repository}
            places["page"] = url
            command = [python, *(word.format(**places) for word in arguments)]
            if kind == "adapted":
                command = under(adapter, command, tmp_path)
            seen.append(
                await seen_of(command, [(tool, filled(given, places)) for tool, given in calls])
            )
    assert seen[0] == seen[1]


# Those of published.toml: their adapters.
PUBLISHED = {
    **dict.fromkeys(("calculator", "shell", "arxiv"), "mcp1"),
    **dict.fromkeys(("aws_docs", "excel", "markitdown", "pandoc"), "mcp"),
    **dict.fromkeys(("motherduck", "wikipedia"), "fastmcp"),
}
NO_SUCH_TOOL = [("there is no such tool", {})]


async def published(name: str, home: Path) -> tuple[list[str], dict[str, str]]:
    """The Python, program and arguments of a published server, and its variables."""
    program, *arguments = await asyncio.to_thread(peers.published, name)
    python = str(Path(program).with_name("python"))
    env = {**peers.PUBLISHED[name].get("env", {}), "HOME": str(home)}
    return [python, program, *arguments], env


@pytest.mark.parametrize("name", sampled(PUBLISHED))
async def test_another_published_server_answers_as_without(name: str, tmp_path: Path) -> None:
    command, env = await published(name, tmp_path)
    options = {"env": env, "cwd": tmp_path}
    stock = await seen_of(command, NO_SUCH_TOOL, **options)
    assert len(stock) == 4 + peers.PUBLISHED[name]["tools"]
    adapted = under(PUBLISHED[name], command, tmp_path)
    assert await seen_of(adapted, NO_SUCH_TOOL, **options) == stock


@pytest.mark.parametrize("name", sampled(["neo4j"]))
async def test_an_older_generation_stays_stock(name: str, tmp_path: Path) -> None:
    """A server on `mcp` 1.22 runs as it is, which one warning says."""
    command, env = await published(name, tmp_path)
    said: list[str] = []
    options = {"env": env, "cwd": tmp_path}
    stock = await seen_of(command, NO_SUCH_TOOL, **options)
    python, *rest = command
    env["PYTHONPATH"] = str(peers.ours(tmp_path))
    module = [python, "-m", "wirespeed.adapters.mcp1", *rest]
    assert await seen_of(module, NO_SUCH_TOOL, **options, stderr=said.append) == stock
    told = [line for line in said if "wirespeed.adapters.mcp1" in line]
    assert len(told) == 1
    assert told[0].endswith("is for mcp 1.27 to before 2: mcp 1.22.0 stays as it is")


CHANGED_FILES = """
import base64, hashlib, importlib.metadata, json, sys

changed = []
files = importlib.metadata.files(sys.argv[1])
for file in files:
    if file.hash is not None:
        digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != file.hash.value:
            changed.append(str(file))
print(json.dumps({"changed": changed, "files": sum(file.suffix == ".py" for file in files)}))
"""


@pytest.mark.parametrize("name", sampled(SERVERS))
async def test_no_line_of_a_published_server_is_changed(name: str) -> None:
    """Its files are those that its maintainers published."""
    python = await asyncio.to_thread(peers.python, SERVERS[name][1])
    found = await peers.report([python, "-c", CHANGED_FILES, f"mcp-server-{name}"])
    assert found["files"] >= 2
    assert found["changed"] == []


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


@contextlib.asynccontextmanager
async def litellm(server: list[str], adapter: str | None, folder: Path) -> AsyncIterator[str]:
    """The URL of LiteLLM's gateway before a server on stdio; it may run under an adapter."""
    folder.mkdir()
    behind = {"transport": "stdio", "command": server[0], "args": server[1:]}
    config = {
        "mcp_servers": {"it": {**behind, "allow_all_keys": True}},
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
    }
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML, too
    python = await asyncio.to_thread(peers.python, "adapter_litellm")
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    options = ["--config", str(folder / "config.yaml"), "--host", "127.0.0.1"]
    program = [python, str(Path(python).with_name("litellm")), *options, "--port", str(port)]
    variables = {"LITELLM_ENABLE_MCP_STDIO": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
    child = await asyncio.create_subprocess_exec(
        *(program if adapter is None else under(adapter, program, folder)),
        env=peers.environment() | variables | {"HOME": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    gateway = Running(child, port)
    try:
        await gateway.until("Uvicorn running on", 2 * pairings.START_SECONDS)
        yield gateway.url("/mcp/")
    finally:
        await gateway.end()


@pytest.mark.full("another program that somebody published")
async def test_a_gateway_shows_what_it_did(tmp_path: Path) -> None:
    """A proxy that somebody published: the tools of a server, and what their calls answer."""
    server = await asyncio.to_thread(server_of, "mcp")
    seen = []
    for adapter in (None, "mcp"):
        async with (
            litellm(server, adapter, tmp_path / str(adapter)) as url,
            Client(url, timeout=60, handshake_timeout=60) as client,
        ):
            tools = sorted((tool.name, tool.input_schema) for tool in await client.list_tools())
            answers = [
                (answer.is_error, answer.content)
                for name, given in (("add", {"a": 2, "b": 3}), ("fail", {}), ("add", {"a": "x"}))
                for answer in [await client.call_tool(f"it-{name}", given)]
            ]
            seen.append((tools, answers))
    assert "it-add" in dict(seen[0][0])
    assert [is_error for is_error, _ in seen[0][1]] == [False, True, True]
    assert seen[1] == seen[0]


@contextlib.asynccontextmanager
async def proxied(target: Stdio | Http) -> AsyncIterator[str]:
    """The URL of our proxy before a server, for clients of both eras."""
    backend = BackendConfig(target=target, name="it", start_timeout=pairings.START_SECONDS)
    proxy = Proxy(ProxyConfig(backends=(backend,), listen=()))
    listening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve("http://127.0.0.1:0/mcp", proxy.services["it"], on_listening=listening.set_result)
    )
    await asyncio.wait([serving, listening], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    try:
        yield listening.result()[0]
    finally:
        serving.cancel()
        await asyncio.wait([serving])


@pytest.mark.parametrize("mode", ["legacy", "modern"])
@pytest.mark.parametrize("adapter", sampled(PEERS))
async def test_a_server_behind_our_proxy(adapter: str, mode: str, tmp_path: Path) -> None:
    """What a client of each era sees is what it sees of the server without the adapter."""
    server = await asyncio.to_thread(server_of, adapter)
    seen = []
    for command in (server, under(adapter, server, tmp_path)):
        target = Stdio(command[0], command[1:], env=peers.environment())
        async with proxied(target) as url:
            seen.append(await Ours(url, mode).hold())
    assert seen[0]["version"] == (pairings.MODERN if mode == "modern" else pairings.LATEST_LEGACY)
    assert seen[0]["closing"]
    assert seen[1] == seen[0]


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_fastmcp_behind_our_proxy(mode: Any, tmp_path: Path) -> None:
    command = [*await asyncio.to_thread(checks_of, "fastmcp", tmp_path), "serve"]
    target = Stdio(command[0], command[1:], env=peers.environment())
    noted: list[Any] = []
    async with proxied(target) as url, Client(url, era=mode) as client:
        assert (client.protocol_version == pairings.MODERN) == (mode == "modern")
        assert {"add", "steps"} <= {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
        await client.call_tool("steps", {"n": 2}, on_progress=lambda *values: noted.append(values))
        assert (await client.call_tool("add", {"a": "x", "b": 3})).is_error
    assert [values[0] for values in noted] == [0, 1]

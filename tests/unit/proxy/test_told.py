"""What clients are told of a server that is down: its name, and nothing of how it is reached."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.merge import MergeLab

from wirespeed import Client, Http, Stdio
from wirespeed.errors import WirespeedError
from wirespeed.litemcp import LiteClient
from wirespeed.proxy import BackendConfig, Mirror
from wirespeed.proxy.operation.snapshot import _target

pytestmark = pytest.mark.off_schema

SECRET = "sk-LITERAL"
SAID = "it-said-a-password"
# A server that ends at once, and one that ends at the first call.
ENDS = f"import sys; sys.stderr.write('{SAID}'); sys.exit(3)"
DIES = f"""
import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    answer = {{"jsonrpc": "2.0", "id": m.get("id")}}
    if m["method"] == "initialize":
        said = {{"name": "b", "version": "1"}}
        answer["result"] = {{"protocolVersion": "2025-11-25", "serverInfo": said,
                           "capabilities": {{"tools": {{}}}}}}
    elif m["method"] == "tools/list":
        schema = {{"type": "object"}}
        answer["result"] = {{"tools": [{{"name": "die", "inputSchema": schema}}]}}
    elif m["method"] == "tools/call":
        sys.stderr.write("{SAID}")
        os._exit(3)
    else:
        answer["error"] = {{"code": -32601, "message": "no"}}
    if "id" in m:
        print(json.dumps(answer), flush=True)
"""


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server of HTTP that redirects to a place of its own network."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b"/redirect" in head:
        writer.write(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://10.1.2.3/inner\r\n")
    else:
        writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n")
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(SAID), SAID.encode()))
    writer.close()


def _targets(folder: Path, port: int) -> dict[str, Any]:
    return {
        "missing": Stdio(str(folder / "tool"), ["--api-key", SECRET], cwd=folder),
        "ends": Stdio(sys.executable, ["-c", ENDS, SECRET], cwd=folder),
        "dies": Stdio(sys.executable, ["-c", DIES, SECRET], cwd=folder),
        "refuses": Http("http://127.0.0.1:9/inner?key=" + SECRET),
        "redirects": Http(f"http://127.0.0.1:{port}/redirect/inner?key={SECRET}"),
        "fails": Http(f"http://127.0.0.1:{port}/inner?key={SECRET}"),
    }


@contextlib.asynccontextmanager
async def _inner() -> AsyncIterator[int]:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _error(client: Any, work: Any) -> str:
    """What a client is told on its way to an answer."""
    try:
        async with client:
            result = await work(client)
    except WirespeedError as exc:
        return str(exc)
    assert result.error  # LiteMCP has errors in the place of results
    return str(result.text)


def _kinds(*kinds: str, isolations: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(kind, isolation) for kind in kinds for isolation in isolations]


@pytest.mark.parametrize(
    ("kind", "isolation"),
    _kinds("missing", "fails", isolations=("auto", "session", "shared", "pool", "translate"))
    + _kinds("ends", "dies", "refuses", "redirects", isolations=("auto", "session")),
)
async def test_clients_learn_the_name_only(tmp_path: Path, kind: str, isolation: Any) -> None:
    """Over HTTP and WebSocket, in both eras, of MCP and of LiteMCP."""
    own = {"translate": True} if isolation == "translate" else {"isolation": isolation}
    lab = MergeLab(tmp_path, "good")
    async with _inner() as port:
        target = _targets(tmp_path, port)[kind]
        lab.backends.append(
            BackendConfig(target=target, name="calc", lite=("die",), start_timeout=3, **own)
        )
        texts = []
        async with lab.serving("http://127.0.0.1:0/mcp") as urls:
            http = urls[0].removesuffix("/mcp")
            ways: list[tuple[str, Any]] = [("http", "legacy"), ("http", "modern"), ("ws", "legacy")]
            for scheme, era in ways:
                at = http.replace("http", scheme, 1)
                client = Client(f"{at}/servers/calc", era=era, timeout=10)
                texts.append(await _error(client, lambda c: c.call_tool("die", {})))
                if era == "legacy":
                    lite = LiteClient(f"{at}/lite/calc/die")
                    texts.append(await _error(lite, lambda c: c.invoke([])))
        for text in texts:
            for secret in (SECRET, SAID, str(tmp_path), sys.executable, "10.1.2.3", "inner", ":9/"):
                assert secret not in text
        assert any("the server calc" in text for text in texts)


@pytest.mark.parametrize("kind", ["dies", "fails"])
async def test_clients_of_all_servers(tmp_path: Path, kind: str) -> None:
    lab = MergeLab(tmp_path, "good")
    async with _inner() as port:
        lab.backends.append(
            BackendConfig(target=_targets(tmp_path, port)[kind], name="calc", era="legacy")
        )
        async with lab.serving("http://127.0.0.1:0/mcp") as urls:
            client = Client(urls[0], era="legacy", timeout=10)
            text = await _error(client, lambda c: c.call_tool("calc_die", {}))
            assert SECRET not in text
            assert SAID not in text


async def test_clients_of_a_mirror(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mirror = Mirror(Stdio(sys.executable, ["-c", DIES, SECRET], cwd=tmp_path), name="front")
    text = await _error(Client(mirror.server), lambda c: c.call_tool("die", {}))
    assert text == "the server behind this one was lost before it answered (code -31004)"
    assert SECRET in caplog.text  # the log has what an operator needs


async def test_operators_see_variables_as_they_are_written(tmp_path: Path) -> None:
    command = tmp_path / "sk-secret-command"
    target = Stdio(str(command), shown=["${COMMAND}"])
    assert _target(target) == "${COMMAND}"
    assert _target(Stdio("plain", [SECRET])) == "plain"

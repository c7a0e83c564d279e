"""The admin listener of the command, the numbers of several workers, and ``wirespeed top``."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.operation import TOKEN, Watched, basic, fetch
from lab.proxy import BACKEND, call
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from wirespeed import Client
from wirespeed.cli.top import _screen
from wirespeed.litemcp import LiteClient

pytestmark = pytest.mark.own_environment


@contextlib.asynccontextmanager
async def running(folder: Path, *words: str, **env: str) -> AsyncIterator[dict[str, Any]]:
    """``wirespeed proxy``: its URLs, its token if it made one, its process. Without ``--config``
    the server is the one of these tests."""
    (folder / "backend.py").write_text(BACKEND)
    command = ["--", sys.executable, str(folder / "backend.py"), str(folder / "seen")]
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wirespeed", "proxy", *words),
        *(() if "--config" in words else command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
        start_new_session=True,
    )
    assert child.stderr is not None
    found: dict[str, Any] = {"process": child, "token": TOKEN}
    try:
        async with asyncio.timeout(60):
            while "admin" not in found or len(found) < 3 + ("--listen" in words):
                line = (await child.stderr.readline()).decode()
                assert line, "it ended"
                if token := re.search(r"token of the admin listener is (\S+)", line):
                    found["token"] = token[1]
                if url := re.search(r"serving (\S+) .*on (\S+?)(;|$)", line):
                    found[url[1]] = url[2]
        yield found
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await child.communicate()


def port_of(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2])


async def test_the_numbers_of_workers_are_summed_up(tmp_path: Path) -> None:
    words = ["--listen", "ws://127.0.0.1:0/mcp", "--admin", "http://127.0.0.1:0", "--workers", "3"]
    name = re.sub(r"[^A-Za-z0-9._~-]+", "-", Path(sys.executable).name)
    async with running(tmp_path, *words, "--isolation", "shared") as found:
        port, token = port_of(found["admin"]), found["token"]
        assert len(token) == 32

        async def metrics() -> dict[tuple[str, ...], float]:
            got = await fetch(port, "/metrics", basic(token))
            assert got.status == 200
            return {
                (
                    sample.name.removeprefix("wirespeed_proxy_"),
                    *sample.labels.values(),
                ): sample.value
                for family in text_string_to_metric_families(got.text)
                for sample in family.samples
            }

        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(found[name])) for _ in range(12)]
            for client in clients:
                for _ in range(5):
                    await client.call_tool("echo", {})
            for _ in range(6):  # whichever worker answers
                got = await metrics()
                assert got["workers",] == 3 and got["workers_missing",] == 0
                assert got["request_duration_seconds_count", name, "tools/call"] == 60
                assert got["clients", name] == 12
                assert got["servers", name, "up"] == 3
            status = (await fetch(port, "/status", basic(token))).json
            assert [len(status["workers"]), status["totals"]["clients"]] == [3, 12]
            assert len({one["worker"] for one in status["clients"]}) > 1
            pids = [one["pid"] for one in status["workers"]]
            os.kill(pids[-1], signal.SIGSTOP)  # the last of the list did not answer itself
            try:
                lost = 0
                for _ in range(8):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(5):  # the port is that of the stopped one, too
                            got = await metrics()
                            assert got["workers",] == 2 and got["workers_missing",] == 1
                            assert got["request_duration_seconds_count", name, "tools/call"] < 61
                            lost += 1
                            break
                assert lost
            finally:
                os.kill(pids[-1], signal.SIGCONT)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_admin_listener_ends_last(workers: str, tmp_path: Path) -> None:
    words = ["--listen", "ws://127.0.0.1:0/mcp", "--admin", "http://127.0.0.1:0"]
    name = re.sub(r"[^A-Za-z0-9._~-]+", "-", Path(sys.executable).name)
    async with running(tmp_path, *words, "--workers", workers, "--isolation", "shared") as found:
        port = port_of(found["admin"])
        async with Client(found[name]) as client:
            asking = asyncio.ensure_future(client.call_tool("sleep", {"seconds": 1.5}))
            seen = tmp_path / "seen"
            while "tools/call" not in (seen.read_text() if seen.exists() else ""):
                await asyncio.sleep(0.02)
            found["process"].send_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)
            got = await fetch(port, "/readyz", {})
            assert (got.status, got.text) == (503, "the proxy is shutting down\n")
            assert not asking.done()
            assert not (await asking).is_error
        async with asyncio.timeout(20):
            assert await found["process"].wait() == 0
    with pytest.raises(OSError):
        await fetch(port, "/readyz", {})


async def test_the_ways_out_of_a_balancer(tmp_path: Path) -> None:
    """Readiness of the proxy and of one server, and the delay before the end. A file with tools for
    clients of LiteMCP is served, too."""
    echo = {"name": "echo", "inputSchema": {"type": "object"}}
    servers = {
        "good": {
            "command": sys.executable,
            "args": [str(tmp_path / "backend.py"), str(tmp_path / "seen")],
            "env": {"TOOLS": json.dumps([echo])},
            "proxy": {"isolation": "shared", "lite": ["echo"]},
        },
        "bad": {
            "command": "/no/such/command",
            "proxy": {"isolation": "shared", "required": False},
        },
    }
    top = {
        "listen": ["http://127.0.0.1:0/mcp"],
        "admin": {"listen": "http://127.0.0.1:0", "token": TOKEN},
        "drainDelay": 1.5,
        "readyWithin": 60,
    }
    config = tmp_path / "proxy.json"
    config.write_text(json.dumps({"mcpServers": servers, "proxy": top}))
    words = ["--config", str(config), "--listen", "http://127.0.0.1:0/mcp"]
    async with running(tmp_path, *words) as found:
        port = port_of(found["admin"])
        url = found["proxy"]
        async with Client(url) as client:
            assert "good_echo" in {tool.name for tool in await client.list_tools()}
        async with LiteClient(url.replace("/mcp", "/lite/good/echo")) as lite:
            assert (await lite.info()).name
        for path, status in (("", 200), ("/good", 200), ("/bad", 503), ("/none", 404)):
            assert (await fetch(port, f"/readyz{path}", {})).status == status, path
        found["process"].send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while (await fetch(port, "/readyz", {})).status != 503:
                await asyncio.sleep(0.02)
        async with Client(url) as client:  # the listeners accept still
            assert "good_echo" in {tool.name for tool in await client.list_tools()}
        async with asyncio.timeout(20):
            assert await found["process"].wait() == 0


async def test_a_proxy_on_stdio_has_an_admin_listener(tmp_path: Path) -> None:
    config = tmp_path / "proxy.json"
    server = {"command": sys.executable, "args": [str(tmp_path / "backend.py"), os.devnull]}
    admin = {"listen": "http://127.0.0.1:0", "token": "${SECRET}"}
    config.write_text(json.dumps({"mcpServers": {"b": server}, "proxy": {"admin": admin}}))
    (tmp_path / "backend.py").write_text(BACKEND)
    from wirespeed import Stdio

    # port 0 cannot be read from here: that it listens is seen by the token that it does not make
    target = Stdio(
        sys.executable,
        ["-m", "wirespeed", "proxy", "--config", str(config)],
        {"SECRET": "s" * 20},
        inherit_env=True,
    )
    async with Client(target) as client:
        result = await client.call_tool("echo", {"nonce": 1})
        assert not result.is_error


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--admin", "ws://127.0.0.1:1"], "--admin: the admin listener has an http:// URL"),
        (["--admin", "http://127.0.0.1:1/x"], "--admin: the admin listener has an http:// URL"),
        (["--admin-token-file", "x"], "--admin-token-file needs --admin URL"),
    ],
)
async def test_wrong_options_are_refused(words: list[str], text: str, tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wirespeed", "proxy", *words, "--", "true"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await child.communicate()
    assert child.returncode == 2 and text in said.decode()


# -- top ------------------------------------------------------------------------------------------


async def top(*words: str, token: str = TOKEN) -> tuple[int | None, str, str]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wirespeed", "top", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "WIRESPEED_TOKEN": token, "COLUMNS": "100"},
    )
    out, said = await child.communicate()
    return child.returncode, out.decode(), said.decode()


def status_of(*backends: dict[str, Any], endpoints: Any = ()) -> dict[str, Any]:
    totals = dict.fromkeys(("rate", "error_rate", "in_flight", "waiting", "clients", "refused"), 0)
    return {
        "name": "east",
        "ready": True,
        "uptime": 1.0,
        "workers": [{}],
        "workers_missing": [],
        "totals": {**totals, "p50": None, "p99": None},
        "backends": backends,
        "endpoints": endpoints,
        "clients": [
            {
                "user": "anne",
                "address": "127.0.0.1:50112",
                "endpoint": "proxy",
                "version": "2025-11-25",
                "in_flight": 2,
                "bytes_in": 12345678,
                "bytes_out": 12345678,
            }
        ],
        "events": [],
    }


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_top_cuts_no_number_in_a_narrow_terminal(width: int) -> None:
    backend = {
        "name": "search-server",
        "state": "up",
        "breakers": {},
        "rate": 12345.0,
        "error_rate": 12.0,
        "p50": 0.0123,
        "p99": 0.1234,
        "in_flight": 1234,
        "waiting": 4321,
        "clients": 2345,
        "refused": {"rate": 123456},
        "restarts": 17,
        "servers": [],
    }
    all_servers = {"name": "proxy", "clients": 77, "refused": {"access": 4711}}
    console = Console(width=width, file=io.StringIO())
    console.print(_screen(status_of(backend, endpoints=[all_servers]), "http://a", width))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    table = text[text.index("SERVER") :]
    assert "…" not in table
    assert re.search(r"^search-server +up +12", table, re.MULTILINE)
    (row,) = re.findall(r"^all servers .*$", table, re.MULTILINE)
    assert "4.71" in row or "4,711" in row or "4711" in row
    assert ("RESTARTS" in table) == (width >= 120)


async def test_q_ends_top(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        ours, theirs = os.openpty()
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "wirespeed", "top", f"http://127.0.0.1:{lab.port}"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "WIRESPEED_TOKEN": TOKEN, "TERM": "xterm"},
        )
        os.close(theirs)
        text = b""
        loop = asyncio.get_running_loop()
        while b"wirespeed proxy" not in text:
            text += await loop.run_in_executor(None, os.read, ours, 4096)
        os.write(ours, b"q")
        assert await child.wait() == 0
        os.close(ours)


async def test_top_prints_once_in_a_pipe(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "echo"))
        (service,) = lab.proxy.services.values()
        next(iter(service.downstreams)).peer.user = "anne\x1b[31m"
        url = f"http://127.0.0.1:{lab.port}"
        status, out, said = await top(url)
        assert (status, said) == (0, "")
        assert out.startswith(f"wirespeed proxy {lab.proxy.name} ready")
        assert re.search(r"^b +up +\d", out, re.MULTILINE)
        assert r"anne\x1b[31m" in out and "\x1b" not in out
        status, out, said = await top(url + "/", "--json")
        assert status == 0 and json.loads(out)["backends"][0]["name"] == "b"
        status, out, said = await top(url, token="wrong")
        assert status == 3 and "needs its token" in said and TOKEN not in said
        status, out, said = await top(f"{url}/else")
        assert status == 3 and "is not the admin listener of a proxy" in said
    status, out, said = await top(url)
    assert status == 3 and "connection refused" in said
    for wrong in ("unix:x", "nonsense"):
        assert (await top(wrong))[0] == 2

"""``wirespeed serve --metrics`` and ``--tracing``."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from lab.cli import DEADLINE, Serving, environment, forked, one_line, serving
from lab.rows import every

from wirespeed import SyncClient

FILE = """
import os
from wirespeed import Server

server = Server("counted")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def token() -> str | None:
    return os.environ.get("WIRESPEED_METRICS_TOKEN")
"""
COUNT = 'wirespeed_server_request_duration_seconds_count{method="tools/call",name="add"'


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "counted.py"
    path.write_text(FILE)
    return str(path)


def fetched(url: str, status: int = 200, **headers: str) -> str:
    """The text of a URL."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=DEADLINE)
    try:
        connection.request("GET", place.path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == status
        assert answer.headers["Content-Type"].startswith("text/plain")
        return answer.read().decode()
    finally:
        connection.close()


def announced(running: Serving) -> dict[str, str]:
    """The URLs of the server and of the metrics, which are ready in any order."""
    found = [running.line(r"serving (\S+).* on ([^\s;]+)") for _ in range(2)]
    return {one[1]: one[2] for one in found}


def test_metrics_beside_a_listener(file: str) -> None:
    places = ("--on", "tcp://127.0.0.1:0", "--metrics", "http://127.0.0.1:0")
    with serving(file, *places) as running:
        urls = announced(running)
        assert urls["metrics"].endswith("/metrics")
        with SyncClient(urls["counted"]) as client:
            client.call_tool("add", {"a": 1, "b": 2})
        text = fetched(urls["metrics"])
        assert f'{COUNT},peer="counted"}} 1.0' in text
        assert "python_info" in text  # of prometheus_client's own registry
        fetched(urls["metrics"], 403, Host="evil.example")
        assert running.end() == 0


def test_metrics_beside_stdio(file: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "wirespeed", "serve", file, "--metrics", "http://127.0.0.1:0/m"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stderr.readline().decode()
            url = line.rpartition(" on ")[2].strip()
            assert url.endswith("/m")
            assert f"{COUNT}" not in fetched(url)
            process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == 1
            assert 'method="ping"' in fetched(url)
            process.stdin.close()
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_other_machines_need_a_token(file: str, tmp_path: Path) -> None:
    done = forked("serve", file, "--metrics", "http://0.0.0.0:0/metrics")
    assert done.returncode == 2
    assert "WIRESPEED_METRICS_TOKEN" in one_line(done)
    token = tmp_path / "token"
    token.write_text("secret\n")
    for option, env in (
        (("--metrics-token-file", str(token)), {}),
        ((), {"WIRESPEED_METRICS_TOKEN": "secret"}),
    ):
        places = ("--on", "tcp://127.0.0.1:0", "--metrics", "http://127.0.0.1:0/metrics")
        with serving(file, *places, *option, **env) as running:
            urls = announced(running)
            url = urls["metrics"]
            with SyncClient(urls["counted"]) as client:  # tools do not see it
                assert client.call_tool("token").data is None
            fetched(url, 401)
            assert "wirespeed_server" in fetched(url, Authorization="Bearer secret")
            assert running.end() == 0


@every(
    ("options", "text"),
    [
        (("--metrics-token-file", "x"), "--metrics-token-file needs --metrics URL"),
        (("--metrics", "ws://127.0.0.1:1/"), "--metrics takes http://HOST:PORT/PATH"),
        (("--metrics", "https://127.0.0.1:1/"), "--metrics takes http://HOST:PORT/PATH"),
        (("--metrics", "no url"), "--metrics: "),
        (
            ("--metrics", "http://127.0.0.1:0", "--on", "tcp://127.0.0.1:0", "--workers", "2"),
            "--metrics needs --workers 1",
        ),
    ],
)
def test_options_that_do_not_go_together(options: tuple[str, ...], text: str) -> None:
    done = forked("serve", "no.py", *options)
    assert done.returncode == 2
    assert text in one_line(done)


def test_lite_servers_have_no_metrics(tmp_path: Path) -> None:
    path = tmp_path / "lite.py"
    path.write_text(
        "from wirespeed.litemcp import LiteServer\nserver = LiteServer('x')\n"
        "@server.tool\ndef add(a: int) -> int:\n    return a\n"
    )
    done = forked("serve", str(path), "--lite", "--metrics", "http://127.0.0.1:0")
    assert done.returncode == 2
    assert "--metrics is for MCP" in one_line(done)


def test_spans_of_a_served_file(file: str) -> None:
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "wirespeed", "serve", file, "--tracing"),
            "--on",
            "tcp://127.0.0.1:0",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(OTEL_TRACES_EXPORTER="console"),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = process.stderr.readline().decode().rpartition(" on ")[2].partition(";")[0]
            with SyncClient(url) as client:
                client.call_tool("add", {"a": 1, "b": 2})
            process.terminate()
            out = process.stdout.read().decode()
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert '"name": "tools/call add"' in out
    assert '"service.name": "counted"' in out


def test_what_traces_need_is_said(file: str) -> None:
    done = forked("serve", file, "--tracing", OTEL_TRACES_EXPORTER="nothing")
    assert done.returncode == 3
    assert "--tracing: the exporter nothing is not installed" in one_line(done)

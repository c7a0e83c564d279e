"""``wirespeed proxy``: on stdio, at a URL, and command lines that are wrong."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cli import environment, one_line, wirespeed
from lab.raw import call, initialize, tool_server

from wirespeed import SyncClient

pytestmark = pytest.mark.smoke


def check(file: Path, *options: str, **env: str) -> tuple[int, list[str]]:
    """The status of ``--check``, and its lines."""
    done = wirespeed("proxy", "--config", str(file), *options, "--check", **env)
    assert done.stdout == ""
    assert all(line.startswith("wirespeed: ") for line in done.stderr.splitlines()), done.stderr
    return done.returncode, [line.removeprefix("wirespeed: ") for line in done.stderr.splitlines()]


ANNE = {"name": "anne", "tokenSha256": "ab" * 32}


def test_on_stdio() -> None:
    lines = [initialize(1), call("x", "add", {"a": 1, "b": 2})]
    for isolation in ("session", "shared"):
        done = wirespeed(
            "proxy",
            "--isolation",
            isolation,
            "--",
            *tool_server(),
            stdin="".join(json.dumps(line) + "\n" for line in lines),
        )
        assert done.returncode == 0, done.stderr
        hello, answer = (json.loads(line) for line in done.stdout.splitlines())
        assert hello["result"]["protocolVersion"] == "2025-06-18"
        assert answer["id"] == "x"
        assert answer["result"]["content"][0]["text"] == "3"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["proxy"], 2, "give the command of the server after --"),
        (["proxy", "--check", "--", "x"], 2, "--check needs --config FILE"),
        (["proxy", "--config", "f", "--", "x"], 2, "either --config FILE or a command"),
        (["proxy", "--config", "f", "--isolation", "shared"], 2, "is a key of each server"),
        (["proxy", "--config", "none.json"], 3, "none.json: cannot read the file"),
        (["proxy", "--token-file", "f", "--", "x"], 2, "--token-file needs --listen URL"),
        (["proxy", "--listen", "unix:s", "--origin", "https://a", "--", "x"], 2, "--origin is for"),
        (["proxy", "--isolation", "shared", "--", "/no/such"], 3, "'/no/such' does not exist"),
        (
            ["proxy", "--isolation", "shared", "--", sys.executable, "-c", "raise SystemExit(7)"],
            3,
            "exited with status 7",
        ),
    ],
)
def test_what_is_wrong(tmp_path: Path, words: list[str], code: int, text: str) -> None:
    done = wirespeed(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert text in one_line(done)


@pytest.mark.parametrize(
    ("top", "problem"),
    [
        ({"principals": [ANNE]}, "principals and auth need a URL to listen at"),
        ({"listen": ["ws://h:1/a", "ws://h:1/a"]}, "ws://h:1/a and ws://h:1/a have the same addr"),
        (
            {"listen": ["http://h:1"], "admin": {"listen": "http://h:1"}},
            "same address, h:1",
        ),
        ({"listen": ["unix:s", "unix:s"]}, "have the same address"),
        (
            {"auth": {"resource": "ftp://x", "issuers": ["https://i"]}, "listen": ["http://h:1"]},
            "proxy.auth: ",
        ),
    ],
)
def test_check_finds_it(tmp_path: Path, top: dict[str, Any], problem: str) -> None:
    file = tmp_path / "proxy.json"
    file.write_text(json.dumps({"mcpServers": {"one": {"command": sys.executable}}, "proxy": top}))
    code, (fault, usable) = check(file)
    assert code == 3
    assert fault.startswith(f"{file}: ")
    assert problem in fault
    assert usable.startswith(f"servers of {file} that can be used: ")
    if top == {"principals": [ANNE]}:  # a URL of the command line will do
        words = "--config", str(file), "--listen", "ws://127.0.0.1:0/mcp", "--check"
        assert wirespeed("proxy", *words).returncode == 0


def test_the_server_does_not_get_the_token_of_the_admin_listener() -> None:
    program = "import os; raise SystemExit(7 + ('WIRESPEED_ADMIN_TOKEN' in os.environ))"
    command = [sys.executable, "-c", program]
    done = wirespeed("proxy", "--isolation", "shared", "--", *command, WIRESPEED_ADMIN_TOKEN="x")
    assert "exited with status 7" in one_line(done)


def test_a_file(tmp_path: Path) -> None:
    command, *args = tool_server()
    servers = {"mcpServers": {"one": {"command": command, "args": args}}}
    file = tmp_path / "proxy.json"
    file.write_text(json.dumps(servers))
    lines = [initialize(1), call("x", "add", {"a": 1, "b": 2})]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    done = wirespeed("proxy", "--config", str(file), stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[1])["result"]["content"][0]["text"] == "3"

    assert check(file) == (0, [f"{file} is valid: 1 server"])

    file.write_text(json.dumps(servers | {"proxy": {"listen": ["unix:a", "ftp://b"]}}))
    code, lines = check(file)
    assert code == 3
    assert f"{file}: proxy.listen[1]: " in lines[0]
    done = wirespeed("proxy", "--config", str(file))
    assert done.returncode == 3
    assert f"{file}: proxy.listen[1]: " in one_line(done)


@pytest.mark.parametrize(
    ("listen", "more", "problem"),
    [
        ({"url": "https://127.0.0.1:0/mcp"}, {}, "needs ssl"),
        ({"url": "wss://127.0.0.1:0/mcp", "certfile": "none.pem"}, {}, "cannot read"),
        ({"url": "wss://127.0.0.1:0/mcp", "certfile": "proxy.json"}, {}, "has no certificate"),
        ({"url": "ws://127.0.0.1:0/mcp", "certfile": "proxy.json"}, {}, "certfile is for"),
        ({"url": "ws://127.0.0.1:0/mcp", "ssePath": "/sse"}, {}, "ssePath is for"),
        ({"url": "ws://127.0.0.1:0/mcp", "response": "sse"}, {}, "response is for"),
        ({"url": "ws://127.0.0.1:0/mcp", "accessLogSample": 0.5}, {}, "accessLogSample is for"),
        ({"url": "http://127.0.0.1:0/mcp", "trustedProxies": ["x"]}, {}, "trustedProxies"),
        ({"url": "unix:s", "token": "t"}, {}, "token is for HTTP"),
        ({"url": "http://127.0.0.1:0/mcp", "trustedProxies": ["x"]}, {}, "'x'"),
        (
            {"url": "http://127.0.0.1:0/mcp", "token": "t"},
            {"principals": [ANNE]},
            ": auth or principals decide",
        ),
        ("unix:s", {"principals": [ANNE]}, "auth are for HTTP and WebSocket only"),
    ],
)
def test_a_listener_of_a_file(
    tmp_path: Path, listen: Any, more: dict[str, Any], problem: str
) -> None:
    file = tmp_path / "proxy.json"
    servers = {"mcpServers": {"one": {"command": sys.executable}}}
    file.write_text(json.dumps(servers | {"proxy": {"listen": [listen], **more}}))
    code, (fault, usable) = check(file)
    assert code == 3
    assert fault.startswith(f"{file}: proxy.listen[0]")
    assert problem in fault
    assert usable == f"servers of {file} that can be used: one"


def test_check_reports_the_fault_of_each_entry(tmp_path: Path) -> None:
    file = tmp_path / "proxy.json"
    entries = {
        "good": {"command": sys.executable},
        "shape": {"command": 5},
        "key": {"command": "x", "proxy": {"isolaton": "shared"}},
    }
    file.write_text(json.dumps({"mcpServers": entries}))
    assert check(file) == (
        3,
        [
            f"{file}: mcpServers.shape.command: expected `str | null`, got `int`",
            f"{file}: mcpServers.key.proxy: object contains unknown field `isolaton`; "
            "did you mean 'isolation'?",
            f"servers of {file} that can be used: good",
        ],
    )


def test_check_looks_for_commands_folders_and_files(tmp_path: Path) -> None:
    file = tmp_path / "proxy.json"
    own = tmp_path / "bin"
    own.mkdir()
    (own / "mine").write_text("#!/bin/sh\n")
    (own / "mine").chmod(0o755)
    (own / "mute").write_text("#!/no/such/shell\n")
    (own / "mute").chmod(0o755)
    (own / "plain").write_text("")
    os.mkfifo(own / "pipe", 0o777)
    entries: dict[str, Any] = {
        "good": {"command": sys.executable, "cwd": str(own)},
        "found": {"command": "mine", "env": {"PATH": str(own)}},
        "lost": {"command": "mine"},
        "path": {"command": "./bin/mime"},
        "plain": {"command": "./bin/plain"},
        "mute": {"command": "./bin/mute"},
        "pipe": {"command": "./bin/pipe"},
        "folder": {"command": sys.executable, "cwd": "./gone"},
        "who": {"command": sys.executable, "proxy": {"process": {"user": "no-such"}}},
        "remote": {"url": "http://127.0.0.1:9/mcp"},
        "off": {"command": "nowhere", "enabled": False},
    }
    top = {
        "audit": "logs/audit.log",
        "listen": [
            {"url": "wss://127.0.0.1:0/a", "certfile": "none.pem"},
            {"url": "wss://127.0.0.1:0/b", "certfile": "bin/pipe"},
        ],
    }
    file.write_text(json.dumps({"mcpServers": entries, "proxy": top}))
    at = f"{file}: mcpServers"
    assert check(file) == (
        3,
        [
            f"{file}: proxy.audit: there is no folder {tmp_path}/logs",
            f"{at}.lost.command: 'mine' was not found on the server's PATH; install it, or write "
            "its whole path",
            f"{at}.path.command: '{tmp_path}/bin/mime' does not exist",
            f"{at}.plain.command: '{own}/plain' is not executable",
            f"{at}.mute.command: the interpreter '/no/such/shell' that '{own}/mute' names is "
            "missing",
            f"{at}.pipe.command: '{own}/pipe' is not a file",
            f"{at}.folder.cwd: the working directory does not exist",
            f"{at}.who.proxy.process: there is no user 'no-such'",
            f"{file}: proxy.listen[0]: cannot read the certfile {tmp_path}/none.pem: "
            "No such file or directory",
            f"{file}: proxy.listen[1]: cannot read the certfile {own}/pipe: "
            "it is not a regular file",
            f"servers of {file} that can be used: good, found, remote",
        ],
    )


def test_check_reads_the_files_of_options(tmp_path: Path) -> None:
    file = tmp_path / "proxy.json"
    file.write_text(json.dumps({"mcpServers": {"one": {"command": sys.executable}}}))
    at = "--listen", "http://127.0.0.1:0"
    gone = str(tmp_path / "gone")
    for options in (
        ("--token-file", gone),
        ("--admin", "http://127.0.0.1:0", "--admin-token-file", gone),
    ):
        code, (fault,) = check(file, *at, *options)
        assert code == 2
        assert f"cannot read the {options[-2]} {gone}" in fault


def test_the_file_may_be_a_pipe_but_has_an_end(tmp_path: Path) -> None:
    """A shell passes the output of a command so."""
    text = json.dumps({"mcpServers": {"one": {"command": sys.executable}}})
    done = wirespeed("proxy", "--config", "/dev/stdin", "--check", stdin=text)
    assert done.returncode == 0, done.stderr

    code, lines = check(Path("/dev/zero"))
    assert code == 3
    assert lines[0] == ("/dev/zero: cannot read the file: it is neither a regular file nor a pipe")
    os.mkfifo(tmp_path / "pipe")
    code, lines = check(tmp_path / "pipe")
    assert code == 3
    with (tmp_path / "long.json").open("wb") as long:
        long.truncate(1 << 32)
    code, lines = check(tmp_path / "long.json")
    assert code == 3
    assert lines[0].endswith("cannot read the file: it has more than 4 MiB")


def traced(folder: Path, **top: Any) -> Path:
    command, *args = tool_server()
    file = folder / "proxy.json"
    servers = {"one": {"command": command, "args": args, "proxy": {"isolation": "shared"}}}
    file.write_text(json.dumps({"mcpServers": servers, "proxy": {"tracing": True, **top}}))
    return file


NO_PACKAGE = """
import sys
for name in [%s]:
    sys.modules[name] = None
"""


def test_check_says_what_lists_of_tools_take(tmp_path: Path) -> None:
    command, *args = tool_server()
    server = {"command": command, "args": args}
    file = tmp_path / "proxy.json"
    top = {
        "mcpServers": {"a": server, "b": server},
        "proxy": {"toolSearch": {"visible": ["a_add"]}},
    }
    file.write_text(json.dumps(top))
    code, (of_a, of_b, of_all, searched, valid) = check(file, "--catalog")
    assert code == 0
    assert valid == f"{file} is valid: 2 servers"
    n, tokens = numbers(of_a, r"a: (\d+) tools, about ([\d,]+) tokens in a list")
    assert numbers(of_b, r"b: (\d+) tools, about ([\d,]+) tokens in a list")[0] == n
    assert numbers(of_all, r"all servers: (\d+) tools, about ([\d,]+) tokens in a list")[0] == 2 * n
    shown, few = numbers(searched, r"with toolSearch: (\d+) tools, about ([\d,]+) tokens")
    assert shown == 3
    assert few > 0 and tokens > 0

    # a server that knows principals is not asked
    identity = {"type": "header", "file": "keys/{principal}"}
    top["mcpServers"]["b"] = {"url": "http://127.0.0.1:9/mcp", "proxy": {"identity": identity}}
    users = {"principals": [{"name": "anne", "token": "x" * 32}], "listen": ["http://127.0.0.1:0/"]}
    file.write_text(json.dumps({**top, "proxy": {**top["proxy"], **users}}))
    code, lines = check(file, "--catalog")
    assert (code, lines[1]) == (0, "b: not counted, as each principal has a list of its own")

    top["mcpServers"]["b"] = {"command": sys.executable, "args": ["-c", "pass"]}
    file.write_text(json.dumps(top))
    code, lines = check(file, "--catalog")
    assert code == 3
    assert any("b: its tools cannot be listed: " in line for line in lines)

    done = wirespeed("proxy", "--config", str(file), "--catalog")
    assert done.returncode == 2
    assert "--catalog goes with --check" in one_line(done)


def numbers(line: str, pattern: str) -> list[int]:
    """The numbers in a line."""
    found = re.fullmatch(pattern, line)
    assert found is not None, line
    return [int(one.replace(",", "")) for one in found.groups()]


@pytest.mark.parametrize(
    ("hidden", "remedy"),
    [
        ("'opentelemetry'", "pip install 'wirespeed[otel]' opentelemetry-sdk"),
        ("'opentelemetry.sdk.trace'", "needs the SDK of OpenTelemetry: pip install opentelem"),
        ("", "the exporter otlp is not installed: pip install opentelemetry-exporter-otlp"),
    ],
)
def test_tracing_needs_packages(tmp_path: Path, hidden: str, remedy: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_PACKAGE % hidden)
    file = traced(tmp_path)
    code, (fault, usable) = check(file, PYTHONPATH=str(tmp_path))
    assert code == 3
    assert fault.startswith(f"{file}: proxy.tracing: ") and remedy in fault
    assert usable.endswith(": one")
    done = wirespeed("proxy", "--config", str(file), PYTHONPATH=str(tmp_path))
    assert done.returncode == 3
    assert one_line(done) == fault


@pytest.mark.parametrize("workers", ["1", "2"])
def test_requests_are_traced(tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    file = traced(tmp_path, listen=[url])
    with subprocess.Popen(
        [sys.executable, "-m", "wirespeed", "proxy", "--config", str(file), "--workers", workers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(OTEL_TRACES_EXPORTER="console"),
    ) as process:
        try:
            assert process.stderr is not None
            while "Ctrl-C ends it" not in process.stderr.readline():
                pass
            with SyncClient(url) as client:
                client.call_tool("add", {"a": 1, "b": 2})
            process.terminate()
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert '"peer.service": "one"' in out
    assert '"service.name": "wirespeed-proxy"' in out
    assert '"name": "tools/call"' in out

"""``wirespeed proxy``: on stdio, at a URL, and command lines that are wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_lab import one_line, wirespeed
from raw import call, initialize, tool_server

pytestmark = pytest.mark.smoke


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
    file.write_text(json.dumps({"mcpServers": {"one": {"command": "x"}}, "proxy": top}))
    done = wirespeed("proxy", "--config", str(file), "--check")
    assert done.returncode == 3
    assert one_line(done).startswith(f"{file}: ")
    assert problem in one_line(done)
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

    done = wirespeed("proxy", "--config", str(file), "--check")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"wirespeed: {file} is valid: 1 server\n"

    file.write_text(json.dumps(servers | {"proxy": {"listen": ["unix:a", "ftp://b"]}}))
    done = wirespeed("proxy", "--config", str(file), "--check")
    assert done.returncode == 3
    assert f"{file}: proxy.listen[1]: " in one_line(done)
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
    servers = {"mcpServers": {"one": {"command": "x"}}}
    file.write_text(json.dumps(servers | {"proxy": {"listen": [listen], **more}}))
    done = wirespeed("proxy", "--config", str(file), "--check")
    assert done.returncode == 3
    assert f"{file}: proxy.listen[0]" in one_line(done)
    assert problem in one_line(done)


def test_check_reports_the_fault_of_each_entry(tmp_path: Path) -> None:
    file = tmp_path / "proxy.json"
    entries = {
        "good": {"command": "x"},
        "shape": {"command": 5},
        "key": {"command": "x", "proxy": {"isolaton": "shared"}},
    }
    file.write_text(json.dumps({"mcpServers": entries}))
    done = wirespeed("proxy", "--config", str(file), "--check")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines() == [
        f"wirespeed: {file}: mcpServers.shape.command: expected `str | null`, got `int`",
        f"wirespeed: {file}: mcpServers.key.proxy: object contains unknown field `isolaton`",
    ]

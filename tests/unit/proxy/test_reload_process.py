"""The proxy as a process: its file and its certificates are read again."""

from __future__ import annotations

import json
import signal
import socket
import ssl
from pathlib import Path

import pytest
from raw import FOREVER

from tests.unit.proxy.process_lab import HELLO, ProcessLab, ask, call, free_port, pid, unix
from wirespeed import SyncClient

pytestmark = [pytest.mark.own_environment]


@pytest.mark.parametrize("how", ["SIGHUP", "watch"])
def test_the_file_is_read_again(tmp_path: Path, how: str) -> None:
    lab = ProcessLab(tmp_path)
    listen = [f"unix:{tmp_path / 's'}"]
    lab.write("a", "b", listen=listen, watch=how == "watch")
    with lab.running(), unix(tmp_path / "s") as client:
        before = pid(client, "a_echo"), pid(client, "b_echo")
        lab.write("a", "c", listen=listen, watch=how == "watch")
        if how == "SIGHUP":
            lab.signal(signal.SIGHUP)
        log = lab.until("reloaded: added: c; removed: b")
        assert log.count("reloaded") == 1
        with unix(tmp_path / "s") as other:
            assert pid(other, "a_echo") == before[0]
            assert pid(other, "c_echo") not in before


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "line 1"),
        ('{"mcpServers": {}}', "no server is enabled"),
        (
            '{"mcpServers": {"a": {"command": "x", "proxy": {"isolation": "none"}}}}',
            "mcpServers.a.proxy",
        ),
        ('{"mcpServers": {"a": {"command": "x"}}, "proxy": {"lissten": []}}', "proxy"),
        ('{"mcpServers": {"a": {"command": "x"}}, "proxy": {"listen": ["what://x"]}}', "what"),
    ],
)
def test_a_bad_file_changes_nothing(tmp_path: Path, text: str, fault: str) -> None:
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"unix:{tmp_path / 's'}"], watch=False)
    with lab.running(), unix(tmp_path / "s") as client:
        before = pid(client)
        lab.file.write_text(text)
        lab.signal(signal.SIGHUP)
        log = lab.until("the configuration stays as it was")
        (line,) = [one for one in log.splitlines() if "stays as it was" in one]
        assert fault in line
        assert pid(client) == before
        lab.write("a", "b", listen=[f"unix:{tmp_path / 's'}"], watch=False)
        lab.signal(signal.SIGHUP)
        lab.until("reloaded: added: b")


def test_reloads_that_come_at_once_are_one(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"unix:{tmp_path / 's'}"], watch=False)
    with lab.running(), unix(tmp_path / "s") as client:
        pid(client)
        for _ in range(50):
            lab.signal(signal.SIGHUP)
        lab.until("reloaded: nothing")
        lab.write("a", "b", listen=[f"unix:{tmp_path / 's'}"], watch=False)
        lab.signal(signal.SIGHUP)
        assert lab.until("reloaded: added: b").count("reloaded") < 10


def test_certificates_are_read_again(tmp_path: Path, certificates: Path) -> None:
    pytest.skip("")


def test_reload_in_all_workers(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    ports = free_port(), free_port()
    listen = [f"tcp://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}/mcp"]
    lab.write("a", listen=listen, watch=False)
    with lab.running("--workers", "2") as process:
        before = _pids(ports[0], "echo")
        assert len(before) == 2  # each worker has a server of its own
        with SyncClient(f"http://127.0.0.1:{ports[1]}/mcp") as client:
            for _ in range(20):  # reaches the worker of its session
                client.call_tool("echo", {})
        lab.write("a", listen=listen, watch=False, mark="new")
        process.send_signal(signal.SIGHUP)
        lab.until("reloaded: changed: a", 2)
        after = _pids(ports[0], "echo")
        assert len(after) == 2 and not before & after
        with SyncClient(f"http://127.0.0.1:{ports[1]}/mcp") as client:
            result = client.call_tool("echo", {})
            assert result.meta is not None and result.meta["pid"] in after
        process.send_signal(signal.SIGTERM)
        assert process.wait(FOREVER) == 0


def _pids(port: int, tool: str) -> set[int]:
    """The servers behind the workers of a port."""
    found = set()
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.settimeout(FOREVER)
            ask(sock, HELLO)
            found.add(pid(sock, tool))
        if len(found) == 2:
            break
    return found


__all__ = ["call", "json", "ssl"]

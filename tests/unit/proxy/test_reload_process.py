"""The proxy as a process: its file and its certificates are read again."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from lab.process import HELLO, ProcessLab, ask, free_port, pid, unix
from lab.raw import FOREVER
from lab.wording import raises

from wirespeed import Http, SyncClient
from wirespeed.errors import WirespeedError
from wirespeed.litemcp import SyncLiteClient
from wirespeed.transport.signals import INTERVAL

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


def test_a_fault_costs_its_own_server(tmp_path: Path) -> None:
    """A server whose entry has got a fault stays as it was; a new one is left out."""
    lab = ProcessLab(tmp_path)
    lab.write("a", "b", listen=[f"unix:{tmp_path / 's'}"], watch=False)
    with lab.running(), unix(tmp_path / "s") as client:
        before = pid(client, "a_echo"), pid(client, "b_echo")
        document = json.loads(lab.file.read_text())
        document["mcpServers"]["b"]["command"] = 5
        document["mcpServers"]["c"] = {"command": []}
        lab.file.write_text(json.dumps(document))
        lab.signal(signal.SIGHUP)
        log = lab.until("reloaded")
        assert "mcpServers.b.command: expected `str | null`, got `int`; the server b stays" in log
        assert "mcpServers.c.command: expected a program to start; the server c is left out" in log
        assert (pid(client, "a_echo"), pid(client, "b_echo")) == before


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


def test_reloads_that_come_one_after_the_other_are_few(tmp_path: Path) -> None:
    make_certificate(tmp_path, "first")
    port = free_port()
    listen = {"url": f"https://127.0.0.1:{port}", "certfile": "cert.pem", "keyfile": "key.pem"}
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[listen], watch=False)
    with lab.running():
        began = time.monotonic()
        for n in range(50):
            lab.signal(signal.SIGHUP)
            if n == 0:
                lab.until("reloaded: nothing")
            time.sleep(0.01)
        took = time.monotonic() - began
        lab.write("a", "b", listen=[listen], watch=False)
        lab.signal(signal.SIGHUP)
        log = lab.until("reloaded: added: b")
        assert log.count("reloaded") <= took / INTERVAL + 3
        assert "the certificate" not in log  # which has not changed


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_without_a_file(tmp_path: Path, workers: str) -> None:
    lab = ProcessLab(tmp_path)
    lab.write("a")
    server = json.loads(lab.file.read_text())["mcpServers"]["a"]
    command = server["command"], *server["args"]
    url = f"http://127.0.0.1:{free_port()}/mcp"
    options = "--listen", url, "--isolation", "shared", "--workers", workers
    with lab.running_command("proxy", *options, "--", *command), SyncClient(url) as client:
        before = client.call_tool("echo", {}).meta
        for _ in range(20):
            lab.signal(signal.SIGHUP)
        log = lab.until("there is no file to read again", int(workers))
        assert client.call_tool("echo", {}).meta == before
        assert log.count("there is no file to read again") <= 2 * int(workers)
        lab.signal(signal.SIGTERM)
        assert lab.process.wait(FOREVER) == 0


def test_certificates_are_read_again_without_a_file(tmp_path: Path) -> None:
    first = make_certificate(tmp_path, "first")
    port = free_port()
    lab = ProcessLab(tmp_path)
    lab.write("a")
    server = json.loads(lab.file.read_text())["mcpServers"]["a"]
    files = "--certfile", str(tmp_path / "cert.pem"), "--keyfile", str(tmp_path / "key.pem")
    url = f"https://127.0.0.1:{port}/mcp"
    with lab.running_command(
        "proxy", "--listen", url, *files, "--", server["command"], *server["args"]
    ):
        assert shown(port) == first
        second = make_certificate(tmp_path, "second")
        lab.signal(signal.SIGHUP)
        log = lab.until("the certificate was read again")
        assert shown(port) == second
        assert "no file" not in log


@pytest.mark.parametrize("how", ["SIGHUP", "watch"])
@pytest.mark.parametrize("what", ["pipe", "endless", "long"])
def test_a_file_that_is_not_one_holds_nobody_up(tmp_path: Path, what: str, how: str) -> None:
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"unix:{tmp_path / 's'}"], watch=how == "watch")
    with lab.running(), unix(tmp_path / "s") as client:
        before = pid(client)
        other = tmp_path / "other.json"
        if what == "pipe":
            os.mkfifo(other)
        elif what == "endless":
            other.symlink_to("/dev/zero")
        else:
            with other.open("wb") as file:
                file.truncate(1 << 40)
        other.rename(lab.file)
        if how == "SIGHUP":
            lab.signal(signal.SIGHUP)
        lab.until("the configuration stays as it was")
        assert pid(client) == before
        lab.signal(signal.SIGTERM)
        assert lab.process.wait(FOREVER) == 0


def test_a_pipe_that_is_written_for_ever_holds_nobody_up(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"unix:{tmp_path / 's'}"], watch=False)
    with lab.running(), unix(tmp_path / "s") as client:
        before = pid(client)
        lab.file.unlink()
        os.mkfifo(lab.file)
        writer = os.open(lab.file, os.O_RDWR)  # it writes nothing, and does not end
        lab.signal(signal.SIGHUP)
        time.sleep(0.5)
        assert pid(client) == before
        lab.signal(signal.SIGTERM)
        assert lab.process.wait(FOREVER) == 0
        os.close(writer)


def test_a_certificate_that_is_a_pipe_stays_as_it_was(tmp_path: Path) -> None:
    first = make_certificate(tmp_path, "first")
    port = free_port()
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"wss://127.0.0.1:{port}/mcp"], watch=False)
    files = "--certfile", str(tmp_path / "cert.pem"), "--keyfile", str(tmp_path / "key.pem")
    with lab.running(*files):
        assert shown(port) == first
        (tmp_path / "cert.pem").unlink()
        os.mkfifo(tmp_path / "cert.pem")
        lab.signal(signal.SIGHUP)
        log = lab.until("the certificate stays as it was")
        assert "it is not a regular file" in log
        assert shown(port) == first


def test_a_listener_that_a_reload_adds(tmp_path: Path) -> None:
    ports = free_port(), free_port(), free_port()
    plain = f"http://127.0.0.1:{ports[0]}/mcp"
    listen: list[Any] = [plain]
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=listen, watch=False, lite=("echo",))
    admin = "--admin", f"http://127.0.0.1:{free_port()}"
    secrets = {"WIRESPEED_TOKEN": "sesame", "WIRESPEED_ADMIN_TOKEN": "of-the-operator"}
    with lab.running(*admin, **secrets):
        listen.append(f"http://127.0.0.1:{ports[1]}/mcp")
        listen.append({"url": f"http://127.0.0.1:{ports[2]}/mcp", "token": "${WIRESPEED_TOKEN}"})
        lab.write("a", listen=listen, watch=False, lite=("echo",))
        lab.signal(signal.SIGHUP)
        log = lab.until("reloaded: listening")
        assert "admin changes" not in log
        for port in ports:
            url = f"http://127.0.0.1:{port}/mcp"
            with raises(WirespeedError), SyncClient(url):
                pass
            with SyncClient(Http(url, token="sesame")) as client:
                client.call_tool("echo", {})
            path = url.replace("/mcp", "/lite/a/echo")
            with SyncLiteClient(path, token="sesame") as lite:
                assert not lite.call().error


def test_the_listener_that_a_reload_closes(tmp_path: Path) -> None:
    """Those with options are started after the others, whatever their order in the file."""
    first, second = f"unix:{tmp_path / 'a'}", f"unix:{tmp_path / 'b'}"
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[{"url": first, "maxConnections": 5}, second], watch=False)
    with lab.running():
        lab.write("a", listen=[second], watch=False)
        lab.signal(signal.SIGHUP)
        lab.until(f"reloaded: closed: {first}")
        with unix(tmp_path / "b") as client:
            pid(client)
        while (tmp_path / "a").exists():
            time.sleep(0.01)


def test_the_end_and_the_token_of_the_command_line_are_told_once(tmp_path: Path) -> None:
    """A reload adds a listener with the token, whose file is not read again."""
    ports = free_port(), free_port(), free_port()
    listen = [f"http://127.0.0.1:{ports[0]}/mcp", f"ws://127.0.0.1:{ports[1]}/mcp"]
    lab = ProcessLab(tmp_path)
    lab.write("a", "b", listen=listen, watch=False)
    admin = "--admin", f"http://127.0.0.1:{free_port()}"
    with lab.running("--token", "sesame", *admin):
        for n, port in enumerate(ports[2:], 1):
            listen.append(f"http://127.0.0.1:{port}/mcp")
            lab.write("a", "b", listen=listen, watch=False)
            lab.signal(signal.SIGHUP)
            lab.until("reloaded: listening", n)
        with SyncClient(Http(listen[-1], token="sesame")) as client:
            client.call_tool("a_echo", {})
        log = lab.log.read_text()
    assert log.count("serving ") == 3 * len(listen) + 1
    assert log.count("Ctrl-C ends it") == 1
    assert log.count("process lists show --token") == 1


def test_two_listeners_with_the_same_options(tmp_path: Path) -> None:
    lab = ProcessLab(tmp_path)
    listen = [{"url": "http://127.0.0.1:0/mcp", "maxConnections": 5}] * 2
    lab.write("a", listen=listen, watch=False)
    with lab.running():
        lab.signal(signal.SIGHUP)
        lab.until("reloaded")


def test_a_fault_of_the_command_line_is_a_refused_reload(tmp_path: Path) -> None:
    port = free_port()
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"unix:{tmp_path / 's'}"], watch=False)
    token = tmp_path / "token"
    token.write_text("of-the-operator")
    words = "--admin", f"http://127.0.0.1:{port}", "--admin-token-file", str(token)
    with lab.running(*words):
        token.unlink()
        lab.signal(signal.SIGHUP)
        lab.until("the configuration stays as it was: cannot read the --admin-token-file")
        headers = {"Authorization": "Bearer of-the-operator"}
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
        with urllib.request.urlopen(asked) as answer:
            text = answer.read().decode()
        assert 'reloads_total{result="refused"} 1' in text


def make_certificate(folder: Path, name: str) -> bytes:
    """Write a certificate and its key. Returns the certificate (DER)."""
    key, cert = folder / "new.key", folder / "new.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", str(key)]
    subprocess.run([*command, "-out", str(cert)], check=True, capture_output=True)
    text = cert.read_text()
    key.rename(folder / "key.pem")
    cert.rename(folder / "cert.pem")
    return ssl.PEM_cert_to_DER_cert(text)


def shown(port: int) -> bytes:
    """The certificate that the proxy shows."""
    text = ssl.get_server_certificate(("127.0.0.1", port), timeout=FOREVER)
    return ssl.PEM_cert_to_DER_cert(text)


@pytest.mark.parametrize("watch", [True, False])
def test_certificates_are_read_again(tmp_path: Path, watch: bool) -> None:
    first = make_certificate(tmp_path, "first")
    port = free_port()
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[f"wss://127.0.0.1:{port}/mcp"], watch=watch)
    files = "--certfile", str(tmp_path / "cert.pem"), "--keyfile", str(tmp_path / "key.pem")
    with lab.running(*files):
        assert shown(port) == first
        (tmp_path / "cert.pem").write_text("no certificate")
        if not watch:
            lab.signal(signal.SIGHUP)
        log = lab.until("the certificate stays as it was")
        assert "has no certificate (PEM)" in log
        assert shown(port) == first
        second = make_certificate(tmp_path, "second")
        if not watch:
            lab.signal(signal.SIGHUP)
        lab.until("the certificate was read again")
        assert shown(port) == second != first


def test_one_bad_certificate_does_not_keep_the_others(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    listen = []
    for name, port in zip("ab", ports, strict=True):
        (tmp_path / name).mkdir()
        make_certificate(tmp_path / name, name)
        files = {"certfile": f"{name}/cert.pem", "keyfile": f"{name}/key.pem"}
        listen.append({"url": f"https://127.0.0.1:{port}/mcp", **files})
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=listen, watch=False)
    with lab.running():
        lab.until("serving a", 4)
        (tmp_path / "a" / "cert.pem").write_text("no certificate")
        second = make_certificate(tmp_path / "b", "b")
        lab.signal(signal.SIGHUP)
        log = lab.until("reloaded")
        assert log.count("the certificate stays as it was") == 1
        assert log.count("the certificate was read again") == 1
        assert shown(ports[1]) == second
        lab.write("a", listen=listen[1:], watch=False)
        for n in (2, 3):  # the listener of the first has ended after that
            lab.signal(signal.SIGHUP)
            lab.until("reloaded", n)
        before = lab.log.read_text().count("the certificate stays as it was")
        lab.signal(signal.SIGHUP)
        assert lab.until("reloaded", 4).count("the certificate stays as it was") == before


def test_http_sse(tmp_path: Path) -> None:
    port = free_port()
    lab = ProcessLab(tmp_path)
    lab.write("a", listen=[{"url": f"http://127.0.0.1:{port}/mcp", "ssePath": "/sse"}])
    with lab.running():
        for path in ("mcp", "sse", "servers/a"):
            with SyncClient(f"http://127.0.0.1:{port}/{path}") as client:
                client.call_tool("echo", {})


def test_a_server_reads_its_certificate_again(tmp_path: Path) -> None:
    first = make_certificate(tmp_path, "first")
    port = free_port()
    lab = ProcessLab(tmp_path)
    file = tmp_path / "server.py"
    file.write_text("from wirespeed import Server\nserver = Server('s')\n")
    command = ["serve", str(file), "--on", f"https://127.0.0.1:{port}/mcp", "--certfile"]
    command += [str(tmp_path / "cert.pem"), "--keyfile", str(tmp_path / "key.pem")]
    with lab.running_command(*command):
        assert shown(port) == first
        second = make_certificate(tmp_path, "second")
        lab.signal(signal.SIGHUP)
        lab.until("the certificate was read again")
        assert shown(port) == second


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

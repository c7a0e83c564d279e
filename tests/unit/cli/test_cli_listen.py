"""``wirespeed serve --on URL``, and ``list``, ``call`` and ``info`` that connect to it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from lab.cli import (
    CONTROLS,
    Serving,
    error_of,
    listening,
    on_terminal,
    one_line,
    serving,
    wirespeed,
)

SECRET = "open-Sesame.123"
HERE = Path(__file__).parent
# a certificate for localhost that is its own authority, with its key
CERTIFICATE = HERE.parent / "client" / "certificate.pem"
ENCRYPTED = HERE / "encrypted_key.pem"  # the same key; the password is SECRET
OTHER_KEY = HERE / "other_key.pem"

ANYWHERE = "ws://127.0.0.1:0/mcp"
HTTP = "http://127.0.0.1:0/mcp"
TOKEN = {"WIRESPEED_TOKEN": SECRET}

ROUTES = """
from wirespeed import Server
first, second = Server("first"), Server("second")
server = Server("unused")
routes = {"/1": first, "/2": second}
"""


def name_at(url: str, *more: str, **env: str) -> str:
    """The name of the server that answers."""
    done = wirespeed("info", "--json", url, *more, **env)
    assert (done.returncode, done.stderr) == (0, "")
    name: str = json.loads(done.stdout)["server"]["name"]
    return name


# -- all that can be listened at ------------------------------------------------------------------


@pytest.mark.parametrize("url", [ANYWHERE, "http://127.0.0.1:0/mcp", "tcp://127.0.0.1:0", "unix"])
def test_serve_and_call(server_file: Path, tmp_path: Path, url: str) -> None:
    if url == "unix":
        url = f"unix:{tmp_path}/lab.sock"
    with serving(str(server_file), "--on", url) as running:
        found = running.line("^wirespeed: serving lab (.*) on (.*); Ctrl-C ends it$")
        assert found[1] == "(7 tools)"
        real = found[2]
        if url.startswith("unix"):
            assert real == url
            assert stat.S_IMODE(os.stat(f"{tmp_path}/lab.sock").st_mode) == 0o600
        else:
            assert not real.startswith(url.partition(":0")[0] + ":0")
        done = wirespeed("list", real)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Give it back." in done.stdout
        done = wirespeed("call", real, "echo", '{"text": "caf\\u00e9"}')
        assert (done.returncode, done.stdout, done.stderr) == (0, "café\n", "")
        for era in ("legacy", "modern"):
            facts = json.loads(wirespeed("info", "--json", "--era", era, real).stdout)
            assert (facts["server"]["name"], facts["era"]) == ("lab", era)
        assert running.end() == 0
        assert len(running.lines) == 1, running.said
    assert not os.path.exists(f"{tmp_path}/lab.sock")


def test_several_urls(server_file: Path, tmp_path: Path) -> None:
    http, unix = "http://127.0.0.1:0/mcp", f"unix:{tmp_path}/lab.sock"
    options = ["--access-log", "json", "--origin", "https://app.example"]
    with serving(str(server_file), "--on", http, "--on", unix, *options) as running:
        url = running.line(r" on (http[^\s;]+)")[1]
        running.line(r" on unix:.*; Ctrl-C ends it$")
        done = wirespeed("call", url, "echo", '{"text": "a"}')
        assert (done.returncode, done.stdout) == (0, "a\n")
        done = wirespeed("call", unix, "echo", '{"text": "b"}')
        assert (done.returncode, done.stdout) == (0, "b\n")
        assert running.end() == 0
        logged = [json.loads(line) for line in running.lines if line.startswith("{")]
    assert {line["path"] for line in logged} == {"/mcp"}
    assert "tools/call" in [line.get("rpc") for line in logged]


def test_several_urls_of_which_one_is_taken(server_file: Path, tmp_path: Path) -> None:
    taken = f"unix:{tmp_path}/s"
    with listening(str(server_file), "--on", taken):
        done = wirespeed("serve", str(server_file), "--on", ANYWHERE, "--on", taken)
        assert done.returncode == 3
        assert f"cannot listen at {taken}: another server does" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(
    server_file: Path, tmp_path: Path, number: signal.Signals
) -> None:
    hasty = tmp_path / "hasty.py"
    hasty.write_text(server_file.read_text() + "server.service.shutdown_grace = 0.1\n")
    with serving(str(hasty), "--on", ANYWHERE) as running:
        url = running.line(r" on (\S+);")[1]
        with Waiting(url, tmp_path / "mark") as waiting:
            assert running.end(number) == 0
            status, said = waiting.result()
    assert status == 4
    why = "The server is shutting down: the request was cut off, and may have taken effect"
    assert said == f"wirespeed: the server answered with error -31006: {why}\n"


class Waiting:
    """A ``wirespeed call`` that waits for an answer."""

    def __init__(self, url: str, mark: Path) -> None:
        arguments = json.dumps({"mark": str(mark)})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wirespeed", "call", url, "wait", arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.mark = mark

    def __enter__(self) -> Self:
        until = time.monotonic() + 60
        while not self.mark.exists():
            assert time.monotonic() < until
            assert self.process.poll() is None
            time.sleep(0.01)
        return self

    def result(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def test_several_workers_share_a_port(server_file: Path) -> None:
    with serving(str(server_file), "--on", ANYWHERE, "--workers", "2") as running:
        url = running.line(r"^wirespeed: serving lab \(7 tools\) with 2 workers on (\S+); ")[1]
        for _ in range(3):
            assert name_at(url) == "lab"
        assert running.end(signal.SIGINT) == 0
        assert len(running.lines) == 1, running.said


def test_http(server_file: Path) -> None:
    with listening(str(server_file), "--on", HTTP, WIRESPEED_TOKEN=SECRET) as url:
        assert url.startswith("http://127.0.0.1:")
        for era in ("auto", "legacy", "modern"):
            done = wirespeed("call", url, "echo", '{"text": "ü"}', "--era", era, **TOKEN)
            assert (done.returncode, done.stdout, done.stderr) == (0, "ü\n", "")
        done = wirespeed("list", url)
        assert done.returncode == 3
        assert one_line(done) == (
            f"{url} answered server/discover with 401 Unauthorized (a bearer token is needed); "
            "log in with wirespeed login, or set WIRESPEED_TOKEN or give --token-file"
        )
        done = wirespeed("list", url.replace("/mcp", "/other"), **TOKEN)
        assert done.returncode == 3
        assert "/other answered initialize with 404 Not Found" in one_line(done)
        done = wirespeed("call", "--lite", url, "echo", "[1]", **TOKEN)
        assert done.returncode == 3
        assert one_line(done).endswith("for an MCP server leave out --lite")


def test_several_servers_on_paths(tmp_path: Path) -> None:
    path = tmp_path / "routes.py"
    path.write_text(ROUTES)
    with serving(str(path), "--on", "ws://127.0.0.1:0") as running:
        one = running.line(r"^wirespeed: serving first \(0 tools\) on (\S+/1)$")[1]
        two = running.line(r"^wirespeed: serving second \(0 tools\) on (\S+/2); Ctrl-C ends it$")[1]
        assert (name_at(one), name_at(two)) == ("first", "second")
        done = wirespeed("info", one[:-1] + "3")
        assert (done.returncode, "404" in one_line(done)) == (3, True)
    # where there are no paths, the dict is not looked at
    with listening(str(path), "--on", "tcp://127.0.0.1:0") as url:
        assert name_at(url) == "unused"
    with serving(str(path), "--on", "http://127.0.0.1:0") as running:
        one = running.line(r"^wirespeed: serving first \(0 tools\) on (\S+/1)$")[1]
        two = running.line(r"^wirespeed: serving second \(0 tools\) on (\S+/2);")[1]
        assert (name_at(one), name_at(two)) == ("first", "second")
    with listening(f"{path}:first", "--on", ANYWHERE) as url:
        assert name_at(url) == "first"
    done = wirespeed("serve", f"{path}:routes", "--on", ANYWHERE)
    assert done.returncode == 2
    assert "the paths are given with the servers" in one_line(done)


def test_a_terminal_shows_no_more_than_a_pipe(server_file: Path) -> None:
    with listening(str(server_file), "--on", ANYWHERE) as url:
        written, status = on_terminal(["call", url, "echo", '{"text": "a\\u001b[1mb"}'])
        assert (status, written) == (0, "a\\x1b[1mb\r\n")


# -- TLS ------------------------------------------------------------------------------------------


def secured(*more: str, **env: str) -> list[str]:
    return ["--on", "wss://localhost:0/mcp", "--certfile", str(CERTIFICATE), *more]


def test_wss(server_file: Path) -> None:
    with listening(str(server_file), *secured()) as url:
        assert url.startswith("wss://localhost:")
        assert name_at(url, "--ca", str(CERTIFICATE)) == "lab"
        done = wirespeed("list", url)
        assert done.returncode == 3
        text = one_line(done)
        assert text.startswith(f"cannot connect to {url}: its certificate is not accepted: self")
        assert text.endswith("certificate; --ca FILE trusts a private authority")
        done = wirespeed("list", url.replace("wss", "ws"), "--timeout", "5")
        assert done.returncode == 3
        assert one_line(done).startswith("cannot connect to ws://localhost:")


def test_an_encrypted_key(server_file: Path) -> None:
    words = secured("--keyfile", str(ENCRYPTED))
    with listening(str(server_file), *words, WIRESPEED_KEY_PASSWORD=SECRET) as url:
        assert name_at(url, "--ca", str(CERTIFICATE)) == "lab"
    done = wirespeed("serve", str(server_file), *words, WIRESPEED_KEY_PASSWORD=SECRET + "x")
    assert done.returncode == 3
    assert one_line(done) == f"the password does not open the key {ENCRYPTED}"
    done = wirespeed("serve", str(server_file), *words)
    assert done.returncode == 3
    assert one_line(done) == (
        f"the key {ENCRYPTED} is encrypted, and its password is not in WIRESPEED_KEY_PASSWORD"
    )


def test_the_password_of_a_key_is_asked_for_on_a_terminal(server_file: Path) -> None:
    words = ["serve", str(server_file), *secured("--keyfile", str(ENCRYPTED))]
    prompt = f"Password of {ENCRYPTED}: "
    written, status = on_terminal(words, prompt=prompt, answer=b"wrong-Sesame\n", NO_COLOR="1")
    assert status == 3
    assert written.startswith(prompt)
    assert "Sesame" not in written
    words = f"wirespeed: the password does not open the key {ENCRYPTED}".split()
    assert written.split()[-len(words) :] == words  # on as many lines as it takes


BAD_CERTIFICATES = [
    (["--certfile", "none.pem"], "there is no file none.pem"),
    (["--certfile", str(HERE)], f"{HERE} is not a file"),
    (["--certfile", str(OTHER_KEY)], f"{OTHER_KEY} has no certificate (PEM)"),
    (
        ["--certfile", str(CERTIFICATE), "--keyfile", str(HERE / "conftest.py")],
        f"{HERE / 'conftest.py'} has no private key (PEM)",
    ),
    (
        ["--certfile", str(CERTIFICATE), "--keyfile", str(OTHER_KEY)],
        f"the key in {OTHER_KEY} does not belong to the certificate in {CERTIFICATE}; "
        "--keyfile FILE is the key of this certificate",
    ),
]


@pytest.mark.parametrize(("words", "text"), BAD_CERTIFICATES, ids=[t for _, t in BAD_CERTIFICATES])
def test_certificates_that_cannot_be(server_file: Path, words: list[str], text: str) -> None:
    done = wirespeed("serve", str(server_file), "--on", "wss://127.0.0.1:0/", *words)
    assert (done.returncode, one_line(done)) == (3, text)


# -- who may come in ------------------------------------------------------------------------------


def test_a_token_is_wanted_and_never_told(server_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"older\n{SECRET}\n")
    with serving(str(server_file), "--on", ANYWHERE, "--token-file", str(file)) as running:
        url = running.line(r" on (\S+);")[1]
        assert name_at(url, WIRESPEED_TOKEN=SECRET) == "lab"
        assert name_at(url, WIRESPEED_TOKEN="older") == "lab"
        header = f"Authorization: Bearer {SECRET}"
        assert name_at(url, "--header", header, "--header", "X-Other: x") == "lab"
        file.write_text(SECRET)
        assert name_at(url, "--token-file", str(file)) == "lab"
        for words in (
            [],
            ["--token", SECRET + "x"],
            ["--json", "--debug", "--token", SECRET + "x"],
        ):
            done = wirespeed("list", url, *words)
            assert done.returncode == 3
            said = error_of(done)["message"] if "--json" in words else done.stderr.splitlines()[-1]
            assert f"{url} refused the WebSocket: 401 " in said
            assert said.endswith("; set WIRESPEED_TOKEN or give --token-file")
            assert SECRET not in done.stdout + done.stderr
        assert running.end() == 0
        assert SECRET not in running.said


def test_a_token_on_the_command_line_works_with_a_warning(server_file: Path) -> None:
    with serving(str(server_file), "--on", ANYWHERE, "--token", SECRET) as running:
        assert running.line("process lists show --token")
        url = running.line(r" on (\S+);")[1]
        done = wirespeed("call", url, "echo", "--token", SECRET)
        assert (done.returncode, done.stdout, done.stderr) == (0, "nothing\n", "")
        said, status = on_terminal(["call", url, "echo", "--token", SECRET])
        assert status == 0 and "process lists show --token; use WIRESPEED_TOKEN" in said
        assert running.end() == 0
        assert SECRET not in running.said + said


def test_the_token_of_the_environment_does_not_go_on(server_file: Path) -> None:
    """It is taken out of the environment, which tools and their children see."""
    with listening(str(server_file), "--on", ANYWHERE, WIRESPEED_TOKEN=SECRET) as url:
        arguments = '{"name": "WIRESPEED_TOKEN"}'
        done = wirespeed("call", url, "environment", arguments, WIRESPEED_TOKEN=SECRET)
        assert (done.returncode, done.stdout) == (0, "unset\n")


def test_origins_and_host_names(server_file: Path) -> None:
    words = ["--origin", "https://app.example", "--host-name", "tools.example"]
    with listening(str(server_file), "--on", ANYWHERE, *words) as url:
        # the Host of this URL is none of those
        done = wirespeed("list", url)
        assert (done.returncode, "refused the WebSocket: 403" in one_line(done)) == (3, True)
    with listening(str(server_file), "--on", ANYWHERE, *words, "--host-name", "127.0.0.1") as url:
        assert name_at(url) == "lab"
        assert name_at(url, "--header", "Origin: https://app.example") == "lab"
        done = wirespeed("list", url, "--header", "Origin: https://other.example")
        assert (done.returncode, "refused the WebSocket: 403" in one_line(done)) == (3, True)


def test_no_more_than_max_connections(server_file: Path, tmp_path: Path) -> None:
    with listening(str(server_file), "--on", ANYWHERE, "--max-connections", "1") as url:
        with Waiting(url, tmp_path / "mark"):
            done = wirespeed("list", url)
        assert (done.returncode, "refused the WebSocket: 503" in one_line(done)) == (3, True)


def warned(running: Serving) -> list[str]:
    """What is said besides that it serves."""
    running.line("; Ctrl-C ends it$")
    assert running.end() == 0
    return [line for line in running.lines if " serving " not in line]


def test_what_everybody_can_reach_is_told(server_file: Path, tmp_path: Path) -> None:
    with serving(str(server_file), "--on", "ws://0.0.0.0:0/") as running:
        (line,) = warned(running)
        assert re.fullmatch(
            r"\S+ WARNING wirespeed\.server: every client that reaches ws://0\.0\.0\.0:[1-9]\d*/ "
            "may call the tools: no token is required",
            line,
        )
    with serving(str(server_file), "--on", "tcp://0.0.0.0:0") as running:
        (line,) = warned(running)
        assert line.endswith(" may call the tools: tcp: has no tokens")
    with serving(str(server_file), "--on", "ws://0.0.0.0:0/", WIRESPEED_TOKEN=SECRET) as running:
        assert warned(running) == [
            "wirespeed: ws:// is not encrypted, and neither is the token: use wss://"
        ]
    words = ["--on", f"unix:{tmp_path}/s"]
    with serving(str(server_file), *words, WIRESPEED_TOKEN=SECRET) as running:
        assert warned(running) == [
            "wirespeed: WIRESPEED_TOKEN is for HTTP and WebSocket; unix: has no handshake that "
            "could check it"
        ]


# -- what cannot be -------------------------------------------------------------------------------


def test_an_address_in_use(server_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for scheme in ("ws", "tcp"):
            url = f"{scheme}://127.0.0.1:{port}"
            for words in ([], ["--workers", "2"]):
                done = wirespeed("serve", str(server_file), "--on", url, *words)
                assert done.returncode == 3
                assert one_line(done).startswith(f"cannot listen at {url}")
                assert ": address already in use; choose another port" in one_line(done)


def test_sockets_that_cannot_be(server_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    url = f"unix:{file}"
    done = wirespeed("serve", str(server_file), "--on", url)
    assert (done.returncode, file.exists()) == (3, True)
    assert one_line(done) == f"cannot listen at {url}: the file there is not a socket"
    url = f"unix:{tmp_path}/none/s"
    done = wirespeed("serve", str(server_file), "--on", url)
    assert done.returncode == 3
    assert one_line(done) == f"cannot listen at {url}: no such file or directory"
    with listening(str(server_file), "--on", f"unix:{tmp_path}/s") as url:
        done = wirespeed("serve", str(server_file), "--on", url)
        assert (done.returncode, one_line(done)) == (
            3,
            f"cannot listen at {url}: another server does",
        )


def test_a_host_that_is_not_ours(server_file: Path) -> None:
    done = wirespeed("serve", str(server_file), "--on", "ws://192.0.2.1:0/")
    assert done.returncode == 3
    assert one_line(done).startswith("cannot listen at ws://192.0.2.1:0/: cannot assign requested")


WRONG = [
    (["--on", ""], "--on: '' is not a URL to listen at"),
    (["--on", "8765"], "--on: '8765' is not a URL to listen at"),
    (["--on", "ws://h:0/", "--on", "unix:x", "--workers", "2"], "several workers need a port"),
    (["--on", "ws://127.0.0.1:0/", "--stateless"], "--stateless is for http:// and https://, not"),
    (["--on", "unix:x", "--access-log", "text"], "--access-log is for http:// and https://, not"),
    (["--on", "http://h:0/", "--trusted-proxy", "p"], "--trusted-proxy: trusted_proxies: 'p' does"),
    (["--on", "http://h:0/", "--card", "h"], "--card: card is the https:// URL by which clients"),
    (["--on", "ws://h:0/", "--card", "https://h"], "--card is for http:// and https://, not"),
    (["--on", "unix:x", "--on", "tcp://h"], "--on: 'tcp://h' has no port"),
    (["--on", "ws://127.0.0.1:0/?key=open-Sesame.123"], "a URL to listen at has no query"),
    (["--on", "tcp://127.0.0.1"], "--on: 'tcp://127.0.0.1' has no port"),
    (["--on", "https://127.0.0.1:0/"], "https:// needs --certfile FILE, and --keyfile FILE unless"),
    (["--on", "wss://127.0.0.1:0/"], "wss:// needs --certfile FILE, and --keyfile FILE unless"),
    (
        ["--on", "ws://127.0.0.1:0/", "--certfile", "x"],
        "--certfile is for https:// and wss://, not for ws:",
    ),
    (["--on", "unix:x", "--workers", "2"], "several workers need a port"),
    (["--on", "unix:x", "--origin", "https://x"], "--origin is for HTTP and WebSocket; unix:"),
    (["--on", "tcp://127.0.0.1:0", "--host-name", "x"], "--host-name is for HTTP and WebSocket"),
    (["--on", "ws://127.0.0.1:0/", "--workers", "0"], "0 is not in the range"),
    (["--on", "ws://127.0.0.1:0/", "--max-connections", "x"], "'x' is not a valid integer"),
    (["--workers", "2"], "--workers needs --on URL"),
    (["--certfile", "x"], "--certfile needs --on URL"),
    (["--origin", "x"], "--origin needs --on URL"),
    (["--max-connections", "5"], "--max-connections needs --on URL"),
]


@pytest.mark.parametrize(("words", "text"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_wrong_line(server_file: Path, words: list[str], text: str) -> None:
    done = wirespeed("serve", str(server_file), *words)
    assert done.returncode == 2
    assert text in one_line(done)
    assert SECRET not in done.stderr


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for url in (f"ws://127.0.0.1:{port}/x", f"tcp://127.0.0.1:{port}", f"unix:{tmp_path}/none"):
        reason = "no such file or directory" if url.startswith("unix") else "connection refused"
        reason += "; start a server there, or correct the URL"
        done = wirespeed("list", f"{url}?key={SECRET}" if "ws" in url else url)
        assert (done.returncode, one_line(done)) == (3, f"cannot connect to {url}: {reason}")
        error = error_of(wirespeed("call", "--json", url, "add"))
        assert (error["type"], error["message"]) == (
            "TransportError",
            f"cannot connect to {url}: {reason}",
        )


def test_what_answers_is_something_else(server_file: Path) -> None:
    with listening(str(server_file), "--on", "tcp://127.0.0.1:0") as url:
        done = wirespeed("list", url.replace("tcp", "ws"), "--timeout", "1")
        assert done.returncode == 3
        assert one_line(done).startswith(f"cannot connect to {url.replace('tcp', 'ws')}/: ")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/"
        done = wirespeed("list", url, "--timeout", "0.3")
        assert done.returncode == 3
        assert one_line(done) == f"cannot connect to {url}: no answer within 0.3 s"


def test_a_server_that_dies(server_file: Path) -> None:
    for url in (ANYWHERE, "tcp://127.0.0.1:0"):
        with serving(str(server_file), "--on", url) as running:
            real = running.line(r" on (\S+);")[1]
            done = wirespeed("call", real, "die")
            assert done.returncode == 3
            assert one_line(done).startswith(f"{real}: the server ")
            assert not CONTROLS.search(done.stderr)
            assert running.process.wait(60) == 9

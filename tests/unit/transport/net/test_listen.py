"""Addresses that are listened at, and options that do not go together."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab.child import Run
from lab.raw import encode, initialize, strict
from lab.rows import every
from lab.serve import Bare, Place, descriptors, exchange, lab_server, serving, upgrade
from lab.wording import raises
from rich.pretty import pretty_repr

import wirespeed
from wirespeed import ListenOptions, Refusal, Server
from wirespeed.errors import TransportError
from wirespeed.litemcp import LiteServer
from wirespeed.transport.address import parse
from wirespeed.transport.headers import Headers
from wirespeed.transport.net import listener
from wirespeed.transport.net.connections import MAX_KEPT, MemoryReturn
from wirespeed.transport.net.serve import plan
from wirespeed.transport.net.sockets import listen, resolve
from wirespeed.transport.options import HttpRequest, ListenFields


def resolved(name: str, *addresses: str) -> Any:
    """What the system would say of a name."""
    return [
        (socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_STREAM, 6, "", place(a))
        for a in addresses
    ]


def place(address: str) -> tuple[Any, ...]:
    return (address, 0, 0, 0) if ":" in address else (address, 0)


# -- ports -----------------------------------------------------------------------------------------


def test_a_name_is_listened_at_with_all_its_addresses_and_one_port(run: Run) -> None:
    found = resolved("both", "127.0.0.1", "127.0.0.2", "127.0.0.1")
    with listen(parse("ws://both:0/mcp"), found, ListenOptions()) as listening:
        names = [sock.getsockname() for sock in listening.sockets]
        assert [host for host, _ in names] == ["127.0.0.1", "127.0.0.2"]
        assert {port for _, port in names} == {listening.address.port} != {0}
        assert str(listening.address) == f"ws://both:{listening.address.port}/mcp"
        assert listening.local


def test_ipv6_beside_ipv4() -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        found = resolved("both", "127.0.0.1")
    else:
        found = resolved("both", "::1", "127.0.0.1")
    with listen(parse("tcp://localhost:0"), found, ListenOptions()) as listening:
        for sock in listening.sockets:
            with socket.create_connection(sock.getsockname()[:2], timeout=10):
                pass


def test_an_address_that_this_machine_does_not_have() -> None:
    with raises(TransportError):
        listen(parse("tcp://192.0.2.1:0"), resolved("x", "192.0.2.1"), ListenOptions())


def test_a_name_that_nobody_knows(run: Run) -> None:
    with raises(TransportError):
        run(wirespeed.serve("ws://nobody.invalid:0", Server("x")))


async def test_a_port_that_is_taken() -> None:
    async with serving(lab_server()) as taken:
        before = descriptors()
        with pytest.raises(TransportError) as caught:
            await lab_server().serve(taken.url)
        assert str(caught.value) == (
            f"cannot listen at {taken.url}: address already in use; "
            "choose another port, or 0 for any that is free"
        )
        assert descriptors() <= before


def test_local_or_not() -> None:
    for host, local in (("127.0.0.1", True), ("0.0.0.0", False)):
        address = parse(f"ws://{host}:0")
        with listen(address, resolve(address), ListenOptions()) as listening:
            assert listening.local == local


async def test_beyond_this_machine_every_host_is_good_but_no_page_is() -> None:
    """Any name may be made to point here (DNS rebinding): a page's own name says nothing."""
    async with serving(lab_server(), "ws://0.0.0.0:0/mcp") as place:
        await (await Bare.connect(place.port, Host="api.example")).close()
        for fields in (
            {"Host": "evil.example", "Origin": "http://evil.example"},
            {"Origin": "http://localhost"},
        ):
            assert (await exchange(place.port, upgrade(**fields))).status == 403
        own = {"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:1"}
        await (await Bare.connect(place.port, **own)).close()


async def test_no_descriptors_left(caplog: Any) -> None:
    """Accepting pauses, is not tried again and again meanwhile, and goes on by itself."""

    class Full:
        """A listening socket of a process that has no descriptor left."""

        def __init__(self, sock: socket.socket) -> None:
            self.sock = sock
            self.tries = 0

        def accept(self) -> Any:
            self.tries += 1
            if self.tries <= 2:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return self.sock.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.sock, name)

    async with serving(lab_server()) as place:
        place.listener.accept_pause = 0.05
        (sock,) = place.listener.listening.sockets
        full = Full(sock)
        place.listener.stop_accepting()
        place.listener.listening.sockets[:] = [full]  # type: ignore[list-item]
        place.listener.start()
        peer = await Bare.connect(place.port)
        assert 3 <= full.tries <= 4
        await peer.close()
    lines = [r.message for r in caplog.records if "no connections are accepted" in r.message]
    assert len(lines) == 2


async def come(place: Place, n: int) -> list[Bare]:
    """More clients, which are served."""
    n_before = place.listener.n_connections
    peers = [await Bare.connect(place.port) for _ in range(n)]
    await place.until(lambda: place.listener.n_connections == n_before + n)
    return peers


async def go(place: Place, peers: list[Bare]) -> None:
    """These clients leave."""
    n_left = place.listener.n_connections - len(peers)
    for peer in peers:
        await peer.close()
    await place.until(lambda: place.listener.n_connections == n_left)


async def test_memory_goes_back_after_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each, and not when a few clients leave."""
    given: list[int] = []
    made = partial(MemoryReturn, burst=8, quiet=0.02, give=given.append)
    monkeypatch.setattr(listener, "MemoryReturn", made)
    async with serving(lab_server()) as place:
        for n in (1, 2):
            for _ in range(3):
                await go(place, await come(place, 4))
            await asyncio.sleep(0.1)
            many = await come(place, 8)
            await go(place, many[:3])
            await asyncio.sleep(0.1)
            assert len(given) == n - 1
            await go(place, many[3:])
            await place.until(lambda n=n: len(given) == n)  # type: ignore[misc]
    assert given == [MAX_KEPT] * 2


# -- files -----------------------------------------------------------------------------------------


async def talk(path: Path) -> Any:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(encode(initialize(0)))
    answer = strict((await reader.readline()).rstrip(b"\n"))
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_sockets_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving(lab_server(), "unix:tools.sock") as place:
        path = tmp_path / "tools.sock"
        assert place.url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        monkeypatch.chdir("/")
        assert (await talk(path))["id"] == 0
    assert not path.exists()


async def test_mode_of_a_sockets_file(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(lab_server(), f"unix:{path}", socket_mode=0o660):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


async def test_a_file_that_a_dead_server_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.exists()
    async with serving(lab_server(), f"unix:{path}"):
        assert (await talk(path))["id"] == 0


async def test_a_live_server_is_not_pushed_aside(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(lab_server(), f"unix:{path}"):
        with raises(TransportError):
            await lab_server().serve(f"unix:{path}")
        assert (await talk(path))["id"] == 0


def test_a_file_that_is_no_socket_is_left_alone(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with raises(TransportError):
        run(lab_server().serve(f"unix:{path}"))
    assert path.read_text() == "precious"


async def test_somebody_elses_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(lab_server(), f"unix:{path}"):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


def test_a_folder_that_is_not_there(run: Run, tmp_path: Path) -> None:
    with raises(TransportError):
        run(lab_server().serve(f"unix:{tmp_path}/no/s"))
    with raises(TransportError):
        run(lab_server().serve(f"unix:{tmp_path}/{'x' * 200}"))


# -- options ---------------------------------------------------------------------------------------


@every(
    ("url", "options", "words"),
    [
        ("wss://h:1", {}, "needs ssl"),
        ("ws://h:1", {"ssl": object()}, "for https:// and wss:// only"),
        ("ws://h:1?q=1", {}, "no query"),
        ("tcp://h:1", {"token": "x"}, "token is for HTTP and WebSocket"),
        ("unix:/x", {"authenticate": print}, "authenticate is for HTTP and WebSocket"),
        ("unix:/x", {"origins": ["x"]}, "origins is for HTTP and WebSocket"),
        ("unix:/x", {"hosts": ["x"]}, "hosts is for HTTP and WebSocket"),
        ("unix:/x", {"reuse_port": True}, "reuse_port"),
        ("ws://h:1", {"token": "x", "authenticate": print}, "not both"),
        ("ws://h:1", {"token": ""}, "a token is"),
        ("ws://h:1", {"token": "a b"}, "a token is"),
        ("ws://h:1", {"token": []}, "a token is"),
        ("ws://h:1", {"max_connections": 0}, "max_connections"),
        ("ws://h:1", {"open_timeout": 0}, "open_timeout"),
        ("ws://h:1", {"ping_timeout": float("inf")}, "ping_timeout"),
        ("ws://h:1", {"headers": {"Upgrade": "x"}}, "Upgrade"),
        ("ws://h:1", {"headers": {"Sec-WebSocket-Accept": "x"}}, "Sec-WebSocket-Accept"),
        ("ws://h:1", {"headers": {"X": "s3cret\r\nY: z"}}, "has a line break"),
        ("ws://h:1", {"headers": {"X Y": "z"}}, "a bad name"),
        ("https://h", {}, "needs ssl"),
    ],
)
def test_what_does_not_go_together(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        plan(url, Server("x"), None, options)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("options", [{"origins": "x"}, {"hosts": "x"}, {"no_such": 1}])
def test_wrong_types(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        plan("ws://h:1", Server("x"), None, options)


@every(
    ("url", "services", "words"),
    [
        ("ws://h:1", {}, "nothing to serve"),
        ("ws://h:1/mcp", {"/a": Server("a")}, "not in the URL"),
        ("ws://h:1", {"a": Server("a")}, "begins with a slash"),
        ("ws://h:1", {"/a?b": Server("a")}, "begins with a slash"),
        ("ws://h:1", {"/a#b": Server("a")}, "nor fragment"),
        ("ws://h:1", {"/a b": Server("a")}, "nor spaces"),
        ("ws://h:1", {"/é": Server("a"), "/%C3%A9": Server("b")}, "the same"),
        ("tcp://h:1", {"/a": Server("a"), "/b": Server("b")}, "one server"),
    ],
)
def test_paths_that_cannot_be(url: str, services: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plan(url, services, None, {})


def test_options_and_their_fields_together() -> None:
    options = ListenOptions(token="a", max_connections=5)
    _, _, chosen = plan("ws://h:1", Server("x"), options, {"max_connections": 6})
    assert (chosen.token, chosen.max_connections) == ("a", 6)


def test_stdio_has_no_options(run: Run) -> None:
    with raises(ValueError):
        Server("x").run(workers=2)
    with raises(ValueError):
        run(Server("x").serve(token="t"))
    lite = LiteServer("x")
    lite.tool_raw([], print)
    with raises(ValueError):
        lite.run(workers=2)


@every(
    ("options", "hint"),
    [
        ({"transport": "http"}, "run('http://127.0.0.1:8000/mcp')"),
        ({"transport": "streamable-http", "port": 9}, "run('http://127.0.0.1:9/mcp')"),
        ({"host": "::", "path": "x"}, "run('http://[::]:8000/x')"),
        ({"transport": "ws", "host": "0.0.0.0"}, "run('ws://0.0.0.0:8000/mcp')"),
        ({"url": "http://127.0.0.1:0/mcp", "port": 9}, "run('http://127.0.0.1:9/mcp')"),
        ({"url": "streamable-http"}, "run('http://127.0.0.1:8000/mcp')"),
        ({"url": "sse", "port": 9}, "run('http://127.0.0.1:9/mcp')"),
    ],
)
def test_parts_of_a_url_are_put_together(options: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=re.escape(hint)):
        Server("x").run(**options)


@pytest.mark.parametrize("call", ["run('stdio')", "run(transport='stdio')"])
def test_stdio_may_be_said_in_words(call: str) -> None:
    text = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    code = f"from wirespeed import Server; Server('x').{call}"
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, check=True, timeout=60
    )
    assert strict(done.stdout)["id"] == 1


async def test_serving_takes_a_url_too() -> None:
    with raises(TypeError):
        await Server("x").serve(transport="stdio")  # type: ignore[call-arg]


def test_what_is_shown_holds_no_secret() -> None:
    options = ListenOptions(token="s3cret", headers={"X": "s3cret"}, max_connections=3)
    assert repr(options) == "ListenOptions(token=…, headers=…, max_connections=3)"
    headers = Headers([("Authorization", "s3cret"), ("X", "1"), ("x", "2")])
    assert headers["X"] == headers["x"] == "1, 2"
    assert "Authorization".lower() in headers
    request = HttpRequest("/p", "q=s3cret", headers, "peer", "s3cret")
    assert "s3cret" not in repr(request) + repr(headers)
    shown = [pretty_repr(one) for one in (options, headers, request, parse("ws://h/p?s3cret"))]
    assert not any("s3cret" in one for one in shown), shown
    assert "max_connections=3" in shown[0]


@pytest.mark.parametrize(
    ("status", "reason", "headers"),
    [(200, "ok", {}), (399, "x", {}), (600, "x", {}), (403, "a\nb", {}), (403, "x", {"A": "\n"})],
)
def test_refusals_that_cannot_be_said(status: int, reason: str, headers: Any) -> None:
    with pytest.raises(ValueError):
        Refusal(status, reason, headers)


# -- what people are told --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("ws://0.0.0.0:0", {}, "no token is required"),
        ("tcp://0.0.0.0:0", {}, "tcp: has no tokens"),
        ("ws://0.0.0.0:0", {"token": "t"}, None),
        ("ws://0.0.0.0:0", {"authenticate": lambda request: True}, None),
        ("ws://127.0.0.1:0", {}, None),
        ("tcp://localhost:0", {}, None),
    ],
)
async def test_who_can_reach_a_server_without_a_token(
    url: str, options: dict[str, Any], why: str | None, caplog: Any
) -> None:
    listens = asyncio.get_running_loop().create_future()
    serving = lab_server().serve(url, on_listening=listens.set_result, **options)
    task = asyncio.create_task(serving)
    (found,) = await listens
    task.cancel()
    await asyncio.wait([task])
    said = [r.getMessage() for r in caplog.records if "may call the tools" in r.getMessage()]
    expected = [f"every client that reaches {found} may call the tools: {why}"]
    assert said == (expected if why else [])


@pytest.mark.parametrize(
    ("terminal", "level", "word"),
    [(True, "INFO", "wirespeed"), (False, "INFO", "log"), (False, "WARNING", "wirespeed")],
)
def test_run_says_where_it_listens(terminal: bool, level: str, word: str) -> None:
    """In the log where the log takes it, but never only there when a person looks on."""
    code = (
        "import logging, wirespeed\n"
        f"logging.basicConfig(level='{level}', format='log: %(message)s')\n"
        "wirespeed.Server('x').run('ws://127.0.0.1:0/mcp')\n"
    )
    ours, theirs = os.openpty() if terminal else os.pipe()
    with subprocess.Popen([sys.executable, "-c", code], stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while b"Ctrl-C ends it" not in said:
            data = os.read(ours, 4096)
            assert data, said
            said += data
        process.terminate()
        assert process.wait(30) == 0
    os.close(ours)
    url = r"ws://127\.0\.0\.1:[1-9]\d*/mcp"
    assert re.search(f"^{word}: listening at {url}; Ctrl-C ends it", said.decode(), re.MULTILINE)


def test_the_keyword_arguments_are_the_fields_of_the_options() -> None:
    """By name and by type: type checkers read keyword arguments from a `TypedDict` alone."""
    fields = ListenFields.__annotations__.items()
    types = {name: getattr(one, "__forward_arg__", one) for name, one in fields}
    assert types == ListenOptions.__annotations__

"""The registry of schemes: its tables hold together, and a new scheme is a row."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pytest
from lab.serve import lab_server

from wirespeed import Client
from wirespeed.client.targets import TARGETS, Socket, WebSocket
from wirespeed.config import shapes
from wirespeed.transport.address import Address, parse
from wirespeed.transport.net import sockets
from wirespeed.transport.net.serve import serve
from wirespeed.transport.options import ListenOptions
from wirespeed.transport.schemes import (
    SCHEMES,
    Scheme,
    Speaks,
    forms,
    names,
    read_file_and_url,
    read_port,
)


def test_each_row_has_what_its_words_name() -> None:
    assert {row.sockets for row in SCHEMES.values()} == sockets.SOCKETS.keys()
    assert {row.speaks for row in SCHEMES.values()} == TARGETS.keys() == {*get_args(Speaks)}
    assert shapes.SCHEMES.keys() == SCHEMES.keys()
    transports = {one for allowed in shapes.SCHEMES.values() for one in allowed}
    assert {"stdio"} | transports == {*get_args(shapes.Transport)}
    assert transports <= shapes.TYPES.keys()
    for kind in TARGETS.values():
        assert all(TARGETS[SCHEMES[name].speaks] is kind for name in kind.SCHEMES)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_address_of_each_row(scheme: str) -> None:
    row = SCHEMES[scheme]
    address = parse(f"{scheme}:{row.form.partition(':')[2].replace('port', '1')}")
    assert address.row is row
    assert parse(str(address)) == address
    assert row.form in forms()
    assert scheme in names(row.speaks)


class NumberedSockets:
    """Sockets with names and numbers, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, address: Address) -> str:
        return str(self.folder / f"{address.host}-{address.port}")

    def resolve(self, address: Address) -> list[Any]:
        return []

    def listen(
        self, address: Address, found: Sequence[Any], options: ListenOptions, *, reserve: bool
    ) -> list[socket.socket]:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        sock.bind(self.file(address))
        sock.listen(options.backlog)
        return [sock]

    async def connect(
        self, loop: asyncio.AbstractEventLoop, address: Address, may_reach: Any = None
    ) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        await loop.sock_connect(sock, self.file(address))
        return sock


async def _used(url: str) -> None:
    """Serve at a URL, and call a tool there."""
    listens: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(url, lab_server(), on_listening=listens.set_result))
    await asyncio.wait((serving, listens), return_when=asyncio.FIRST_COMPLETED)
    try:
        assert listens.result() == (url,)
        async with Client(url) as client:
            assert (await client.call_tool("echo", {"text": "hi"})).data == "hi"
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


async def test_a_new_kind_of_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sockets.SOCKETS, "numbered", NumberedSockets(tmp_path))
    row = Scheme("numbered", "lines", "numbered", read_port, "numbered://name:number")
    monkeypatch.setitem(SCHEMES, row.name, row)
    assert isinstance(Client("numbered://notes:7").target, Socket)
    assert "numbered://name:number" in forms()
    await _used("numbered://notes:7")


async def test_a_row_of_what_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    form = "ws+unix://%2Fpath/path"
    row = Scheme("ws+unix", "websocket", "unix", read_file_and_url, form, 80)
    monkeypatch.setitem(SCHEMES, row.name, row)
    url = f"ws+unix://{quote(str(tmp_path / 's'), safe='')}/mcp"
    assert isinstance(Client(url).target, WebSocket)
    await _used(url)

"""The link over trio of the page "Depend on the core"."""

from __future__ import annotations

import socket
from types import ModuleType
from typing import Any

import pytest
import trio
import trio.testing
from guide import blocks

from wirespeed.core import Limits, Session
from wirespeed.transport import Endpoint

REQUEST = b'{"jsonrpc":"2.0","id":%d,"method":"echo","params":{"text":"%b"}}\n'


@pytest.fixture(scope="module")
def page() -> ModuleType:
    module = ModuleType("trio_link")
    (code,) = (
        one.code
        for one in blocks("docs/how-to/depend-on-the-core.md")
        if one.title == "trio_link.py"
    )
    exec(compile(code, "trio_link.py", "exec"), vars(module))
    return module


class Echo(Endpoint):
    """Answers a request with its params."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.wire = self.session = Session(limits=limits)
        self.lost: list[object] = []
        self.drained = 0

    def on_data(self) -> None:
        for message in self.session:
            self.session.send_result(message, bytes(message.params or b"{}"))

    def on_eof(self) -> None:
        if self.link is not None:
            self.link.close()

    def on_drained(self) -> None:
        self.drained += 1

    def on_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)


def run(main: Any, *args: Any) -> None:
    async def bounded() -> None:
        with trio.fail_after(30):
            await main(*args)

    trio.run(bounded)


def pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    ours, theirs = (trio.socket.from_stdlib_socket(one) for one in socket.socketpair())
    return trio.SocketStream(ours), trio.SocketStream(theirs)


async def lines(stream: trio.SocketStream, n: int) -> list[bytes]:
    data = b""
    while data.count(b"\n") < n:
        part = await stream.receive_some(65536)
        assert part
        data += part
    return data.splitlines()


def test_requests_are_answered_until_the_end(page: ModuleType) -> None:
    async def main() -> None:
        ours, theirs = pair()
        endpoint = Echo()
        async with trio.open_nursery() as nursery:
            page.TrioLink(nursery, endpoint, theirs).start()
            await ours.send_all(b"".join(REQUEST % (n, b"a") for n in range(100)))
            answers = await lines(ours, 100)
            assert answers[7] == b'{"jsonrpc":"2.0","id":7,"result":{"text":"a"}}'
            await ours.send_eof()
            assert await ours.receive_some(100) == b""
        assert endpoint.lost == [None]
        await ours.aclose()

    run(main)


def test_output_of_another_turn_leaves(page: ModuleType) -> None:
    async def main() -> None:
        ours, theirs = pair()
        endpoint = Echo()
        async with trio.open_nursery() as nursery:
            link = page.TrioLink(nursery, endpoint, theirs)
            link.start()
            endpoint.session.send_notification("hello")
            link.wrote()
            assert await lines(ours, 1) == [b'{"jsonrpc":"2.0","method":"hello"}']
            link.close()
            assert await ours.receive_some(100) == b""
        assert endpoint.lost == [None]
        await ours.aclose()

    run(main)


def test_a_peer_that_does_not_read_is_not_read(page: ModuleType) -> None:
    async def main() -> None:
        ours, theirs = pair()
        endpoint = Echo(Limits(output_high=20_000, output_low=5_000, max_waiting=4))
        request = REQUEST % (1, b"x" * 10_000)

        async def ask() -> None:
            for n in range(400):
                await ours.send_all(request.replace(b":1,", b":%d," % n, 1))

        async with trio.open_nursery() as nursery:
            page.TrioLink(nursery, endpoint, theirs).start()
            nursery.start_soon(ask)
            while endpoint.session.outbox.size < 20_000:
                await trio.sleep(0.001)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert endpoint.session.messages_in < 400  # the writes of the peer wait
            assert len(await lines(ours, 400)) == 400
            await trio.testing.wait_all_tasks_blocked()  # the task of the last send ends
            await ours.aclose()
        assert endpoint.drained
        assert len(endpoint.lost) == 1

    run(main)


def test_a_peer_that_is_gone_is_a_loss(page: ModuleType) -> None:
    async def main() -> None:
        ours, theirs = pair()
        endpoint = Echo()
        async with trio.open_nursery() as nursery:
            link = page.TrioLink(nursery, endpoint, theirs)
            await ours.aclose()
            endpoint.session.send_notification("hello")
            link.wrote()
        (exc,) = endpoint.lost
        assert isinstance(exc, trio.BrokenResourceError)

    run(main)

"""Callers in another project's compiled code hold no reference to what they call.

What a call drops must live until the call returns. A sanitizer sees it where that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import extension

from wirespeed.core import Limits, Session
from wirespeed.transport.fd import FdLink
from wirespeed.transport.link import Link
from wirespeed.transport.taskpool import TaskPool
from wirespeed.transport.taskpool_choice import open_pool

SOURCE = Path(__file__).with_name("compiled_caller.pyx").read_text()
REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"x"}\n'


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("caller")
    extension.build(folder, "compiled_caller", SOURCE)
    return extension.load(folder, "compiled_caller")


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


class Shut(Link):
    """A link in Python, of which the endpoint has the only reference."""

    def flush(self) -> None:
        pass

    def update_reading(self) -> None:
        pass

    def close(self) -> None:
        self.detach()
        self.endpoint.on_lost(None)

    def lose(self, exc: BaseException | None) -> None:
        self.close()


@pytest.mark.parametrize("flush", ["flush", "flush_now"])
async def test_a_write_that_fails(
    caller: Any, sockets: tuple[socket.socket, ...], flush: str
) -> None:
    ours, theirs = sockets
    endpoint = caller.Closer()
    FdLink(asyncio.get_running_loop(), endpoint, ours.fileno(), ours.fileno()).start()
    endpoint.session.send_notification("x")
    theirs.close()
    getattr(caller, flush)(endpoint)
    assert endpoint.told == ["lost"]
    assert endpoint.link is None


@pytest.mark.parametrize("closes_at", [None, "data"])
async def test_links_that_end_when_they_are_flushed_after_another(
    caller: Any, sockets: tuple[socket.socket, ...], closes_at: str | None
) -> None:
    """The endpoints have the only references, and the one that delivers may close its link."""
    loop = asyncio.get_running_loop()
    ours, _ = sockets
    endpoint = caller.Closer(closes_at)
    FdLink(loop, endpoint, ours.fileno(), ours.fileno()).start()
    with contextlib.ExitStack() as stack:
        for _i in range(3):
            near, far = (stack.enter_context(end) for end in socket.socketpair())
            near.setblocking(False)
            endpoint.others.append(caller.Closer())
            FdLink(loop, endpoint.others[-1], near.fileno(), near.fileno()).start()
            far.close()
        caller.deliver(endpoint)
    assert [other.told for other in endpoint.others] == [["lost"]] * 3
    assert endpoint.told == ["data", "lost"][: 1 + (closes_at is not None)]


@pytest.mark.parametrize(("messages", "size"), [(1, 5_000), (100, 50_000)])
async def test_output_whose_owner_closes_the_link(
    caller: Any, sockets: tuple[socket.socket, ...], messages: int, size: int
) -> None:
    """The owner of bytes is freed when they are sent, with or without more output behind them."""
    ours, _ = sockets
    endpoint = caller.Closer()

    class Text(bytearray):
        def __del__(self) -> None:
            if endpoint.link is not None:
                endpoint.link.close()

    FdLink(asyncio.get_running_loop(), endpoint, ours.fileno(), ours.fileno()).start()
    for _i in range(messages):
        endpoint.session.send_notification("x", Text(b'"%s"' % (b"x" * size)))
    caller.flush(endpoint)
    assert endpoint.told == ["lost"]


@pytest.mark.parametrize("make", [FdLink, Shut])
@pytest.mark.parametrize(
    ("call", "event"), [("deliver", "data"), ("check_drained", "drained"), ("ended", "eof")]
)
async def test_an_event_that_closes_the_link(
    caller: Any, sockets: tuple[socket.socket, ...], make: Any, call: str, event: str
) -> None:
    ours, _ = sockets
    endpoint = caller.Closer(event)
    fds = (ours.fileno(), ours.fileno()) if make is FdLink else ()
    link = make(asyncio.get_running_loop(), endpoint, *fds)
    if event == "drained":
        endpoint.session.send_notification("x", b'"%s"' % (b"x" * Limits().output_high))
        link.check_drained()
        endpoint.session.data_to_send()
    del link
    getattr(caller, call)(endpoint)
    assert endpoint.link is None
    assert endpoint.told == [event, "lost"]


def drops(holder: Any, name: str, base: Callable[..., Any] = object) -> Any:
    """An object whose end drops what a holder has under a name."""

    class Dropping(base):  # type: ignore[misc, valid-type]
        def __del__(self) -> None:
            setattr(holder, name, None)

    return Dropping


async def test_a_session_that_is_dropped_while_it_reads(caller: Any) -> None:
    """By the end of a token, which a cancelled request had."""
    holder = caller.Holder()
    holder.session = Session()
    holder.session.receive_data(REQUEST)
    message = holder.next_event()
    holder.session.set_token(message, drops(holder, "session")())
    del message
    cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n'
    holder.session.receive_data(cancelled + 3 * REQUEST)
    event = holder.next_event()
    assert event.method == "notifications/cancelled"
    del event  # the reader uses it again, and frees the token
    for _ in range(2):
        if holder.session is not None:
            holder.next_event()
    assert holder.session is None


async def test_a_session_that_is_dropped_by_its_input(caller: Any) -> None:
    holder = caller.Holder()
    holder.session = Session()
    holder.session.receive_data(drops(holder, "session", bytearray)(b"\n\n"))
    assert holder.next_event() is None
    assert holder.session is None


@pytest.mark.parametrize("body", [b"{}", b"{%s}" % (b" " * 5000)])
async def test_a_session_that_is_dropped_while_it_answers(caller: Any, body: bytes) -> None:
    holder = caller.Holder()
    holder.session = Session()
    holder.session.receive_data(REQUEST)
    ref = holder.next_event().ref
    holder.session.set_token(ref, drops(holder, "session")())
    assert holder.answer(ref, body)
    assert holder.session is None


async def test_a_pool_that_is_dropped_while_a_handler_starts(caller: Any) -> None:
    holder = caller.Holder()

    async def handler() -> int:
        holder.pool = None
        gc.collect()
        return 7

    for make in (TaskPool, open_pool):
        holder.pool = make(asyncio.get_running_loop())
        holder.result = None
        await asyncio.sleep(0)
        holder.start(handler())
        while holder.result is None:
            await asyncio.sleep(0)
        assert (holder.result, holder.pool) == (7, None)

"""Requests of the proxy itself whose results it passes on as text."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.proxy.backend import remote_error
from wirespeed.proxy.failures import ServerLost
from wirespeed.proxy.ongoing import Ongoing

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend


class _Answer(Ongoing):
    """The answer to a request of the proxy, as text."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.text: asyncio.Future[bytes] = loop.create_future()

    def answered(self, message: Message | None) -> None:
        """Take the answer."""
        if self.text.done():
            return
        if message is None:
            self.text.set_exception(ServerLost("the server is not there"))
        elif message.error is not None:
            self.text.set_exception(remote_error(message.error))
        else:
            self.text.set_result(bytes(message.result or b"{}"))


async def ask(backend: Backend | None, method: str, params: bytes) -> bytes:
    """Send a request of the proxy itself. Returns the JSON text of the result. A caller that is
    cancelled cancels the request. A wait for the end of a task has no deadline. RemoteError,
    TransportError: there is no result. ProtocolError: it took too long."""
    if backend is None or backend.link is None:
        raise ServerLost("the server is not there")
    answer = _Answer(backend.loop)
    id = backend.session.send_request(method, params, token=answer)
    backend.link.wrote()
    try:
        async with deadline(math.inf if method == "tasks/result" else backend.deadline):
            return await answer.text
    finally:
        if backend.link is not None and backend.awaits(id):
            backend.session.forget(id)
            backend.cancel(id, "the answer is not needed any more")


@contextlib.asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Enter while a server has a time to answer; ``inf``: it has all time. ProtocolError: it took
    too long."""
    try:
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            yield
    except TimeoutError:
        text = f"no answer within {seconds:g} s"
        raise ProtocolError(codes.REQUEST_TIMEOUT, text) from None

"""Requests that the proxy answers later, and those that it sends to the server for that."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

import msgspec

from wirespeed.errors import ProtocolError, RemoteError, TransportError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.backend import remote_error
from wirespeed.proxy.ongoing import Ongoing

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend
    from wirespeed.proxy.translation.translator import Translator

logger = logging.getLogger("wirespeed.proxy")


class Work(Ongoing):
    """A request that is answered later. It is the token of the request.

    What ``work`` raises is the answer. A cancellation by the client cancels ``work``.
    """

    def __init__(
        self, client: Translator, message: Message, work: Coroutine[Any, Any, None]
    ) -> None:
        self._client = client
        self.task = asyncio.ensure_future(self._run(message, work))

        def done(task: asyncio.Task[None]) -> None:
            work.close()  # it may have been cancelled before it began
            if task.cancelled():
                client.refuse(message, codes.SERVER_LOST, "the server is not there")

        self.task.add_done_callback(done)

    async def _run(self, message: Message, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (ProtocolError, RemoteError) as exc:
            self._client.refuse(message, exc.code, exc.message, exc.data)
        except WirespeedError as exc:
            self._client.refuse(message, codes.SERVER_LOST, str(exc).partition("\n")[0])
        except msgspec.DecodeError as exc:
            text = f"the server's answer is malformed: {exc}"
            self._client.refuse(message, codes.INTERNAL_ERROR, text)
        except Exception:
            logger.exception("internal error of the proxy at %s", message)
            self._client.refuse(message, codes.INTERNAL_ERROR, "Internal error")

    def notified(self, message: Message) -> None:
        """The client has cancelled its request."""
        self.task.cancel()
        self._client.front.session.cancelled_done()


class _Answer(Ongoing):
    """The answer to a request of the proxy, as text."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.text: asyncio.Future[bytes] = loop.create_future()

    def answered(self, message: Message | None) -> None:
        """Take the answer."""
        if self.text.done():
            return
        if message is None:
            self.text.set_exception(TransportError("the server is not there"))
        elif message.error is not None:
            self.text.set_exception(remote_error(message.error))
        else:
            self.text.set_result(bytes(message.result or b"{}"))


async def ask(backend: Backend | None, method: str, params: bytes) -> bytes:
    """Send a request of the proxy itself. Returns the JSON text of the result. A caller that is
    cancelled cancels the request. A wait for the end of a task has no deadline. RemoteError,
    TransportError: there is no result. ProtocolError: it took too long."""
    if backend is None or backend.link is None:
        raise TransportError("the server is not there")
    answer = _Answer(backend.loop)
    id = backend.session.send_request(method, params, token=answer)
    backend.link.wrote()
    seconds = math.inf if method == "tasks/result" else backend.deadline
    try:
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            return await answer.text
    except TimeoutError:
        text = f"no answer within {seconds:g} s"
        raise ProtocolError(codes.REQUEST_TIMEOUT, text) from None
    finally:
        if backend.link is not None and backend.awaits(id):
            backend.session.forget(id)
            backend.cancel(id, "the answer is not needed any more")

"""Tokens of requests that the proxy itself answers or makes. They get what is said about these."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ProtocolError, RemoteError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.failures import told

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.access.audit import Record
    from wirespeed.proxy.front import Front

logger = logging.getLogger("wirespeed.proxy")

CANCELLED = 1  # as of `wirespeed.server.requests.observer`


class Ongoing:
    """The token of a request that the proxy itself answers or makes.

    Attributes:
        record: What notes the end of the request for the audit log, if the request was passed on
            before; or None.
        sent: Whether the request was ever sent to a server.
        request: The request, if it may be one that the audit log notes; or None.
        waits: Whether the proxy does nothing for the request yet.
    """

    record: Record | None = None
    sent = False
    request: Message | None = None
    waits = False

    def notified(self, message: Message) -> None:
        """Take a notification about the request, or its cancellation by the asker."""

    def answered(self, message: Message | None) -> None:
        """Take the answer to a request of the proxy; None: there will be none."""

    def note(self, code: int) -> None:
        """Note the end of the request, unless it was passed on again."""
        record, self.record = self.record, None
        if record is not None:
            record.end(code)


class Work(Ongoing):
    """A request of a client that the proxy answers later. A cancelled task refuses the request.

    Args:
        front: The client.
        message: The request.
        work: What answers it. What it raises is the answer.
        works: All that the client waits for; it is one of these until it is done.

    Attributes:
        task: What does the work.
    """

    def __init__(
        self,
        front: Front,
        message: Message,
        work: Coroutine[Any, Any, None],
        works: set[Work],
    ) -> None:
        self.request = message
        self._front = front
        self._works = works
        works.add(self)
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(partial(self._ended, message))
        front.give_token(message, self)

    def _ended(self, message: Message, task: asyncio.Task[None]) -> None:
        self._works.discard(self)
        refuse = self._front.refuse
        if not self._front.is_open(message):  # it was answered, or the client has given it up
            failed = task.cancelled() or task.exception() is not None
            self.note(CANCELLED if failed else 0)
            return
        try:
            task.result()
            self.note(0)
        except asyncio.CancelledError:
            refuse(message, codes.SERVER_LOST, "the server is not there")
        except (ProtocolError, RemoteError) as exc:
            refuse(message, exc.code, exc.message, exc.data)
        except WirespeedError as exc:
            logger.info("%s: %s: %s", self._front.service.name, message.method, exc)
            refuse(message, codes.SERVER_LOST, told(self._front.service.name, exc))
        except msgspec.DecodeError as exc:
            refuse(message, codes.INTERNAL_ERROR, f"the server's answer is malformed: {exc}")
        except Exception as exc:
            logger.error("internal error of the proxy at %s", message, exc_info=exc)
            refuse(message, codes.INTERNAL_ERROR, "Internal error")

    def notified(self, message: Message) -> None:
        """The client has cancelled its request."""
        self.task.cancel()
        self._front.session.cancelled_done()

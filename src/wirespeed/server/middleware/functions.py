"""The types of middleware functions of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from wirespeed.server.middleware.inbound import InboundRequest, Reply
from wirespeed.server.middleware.stack import ServerRequest

CallNext: TypeAlias = Callable[[InboundRequest], Awaitable[Reply | None]]
"""The function that a middleware calls for the answer of the next one, or of the handler. The
answer is None for subscriptions/listen alone."""

Middleware: TypeAlias = Callable[[InboundRequest, CallNext], Awaitable[Reply | None]]
"""A middleware of a server (`Server.add_middleware`): an ``async`` function."""

AskNext: TypeAlias = Callable[[ServerRequest], Awaitable[bytes]]
"""The function that a middleware of questions calls for the JSON text of the client's result."""

AskMiddleware: TypeAlias = Callable[[ServerRequest, AskNext], Awaitable[bytes]]
"""A middleware of questions (`Server.add_ask_middleware`): an ``async`` function."""

"""The arguments of a server's tools that are header fields, too, as its list of tools says."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from wirespeed.client.results.features import ToolInfo
from wirespeed.errors import WirespeedError
from wirespeed.protocol.header_values import ParamField, param_fields
from wirespeed.proxy.own_requests import envelope, pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.side import Side
    from wirespeed.proxy.upstream import Upstream, UpstreamOwner

logger = logging.getLogger("wirespeed.proxy")

# Seconds that the server has for its list, and how many tools of that are kept.
TIMEOUT = 10.0
MAX_TOOLS = 10_000


class ToolSchemas:
    """The `UpstreamOwner` of a connection that a server is asked by: one more client of it.

    Args:
        name: The server's.
        join: A function that makes such a connection for a client.
    """

    def __init__(self, name: str, join: Callable[[UpstreamOwner, Downstream], Upstream]) -> None:
        self._name = name
        self._join = join
        self._complaint = ""

    async def ask(self, downstream: Downstream) -> dict[str, tuple[ParamField, ...]] | None:
        """Return the arguments that are header fields, by the name of each tool; None: the server
        does not say, which is logged once for each reason."""
        found: dict[str, tuple[ParamField, ...]] = {}
        params = {"_meta": envelope()}
        max_bytes = downstream.service.limits.max_message
        complaint = ""
        upstream = self._join(self, downstream)
        try:
            async with asyncio.timeout(TIMEOUT):
                listed = await pages(upstream.ask, "tools/list", params, max_bytes)
            for page in listed:
                for tool in msgspec.convert(page["tools"], list[ToolInfo]):
                    if len(found) < MAX_TOOLS:
                        found[tool.name] = fields_of(tool)
        except (WirespeedError, TimeoutError, msgspec.ValidationError, LookupError, TypeError) as e:
            complaint = repr(e)
        finally:
            upstream.abort()
        if complaint not in ("", self._complaint):
            logger.info(
                "%s: header fields are compared with the arguments that are known, as the tools "
                "cannot be listed: %.500s", self._name, complaint,
            )  # fmt: skip
        self._complaint = complaint
        return None if complaint else found

    # -- the connection --------------------------------------------------------------------------

    async def opened(self, upstream: Upstream) -> None:
        """Not called: a server of the proxy opens no connection here."""

    def closed(self, upstream: Upstream) -> None:
        """Fail the requests that have no answer."""

    def failed(self) -> None:
        """The service of the server counts its failures."""

    def again(self, asker: Side, message: Message) -> bool:
        """The service of the server sends it again."""
        return False

    def down(self, reason: str | None) -> None:
        """Not called."""

    def server_asks(self, upstream: Upstream, message: Message) -> None:
        """Refuse it: it is not about a request of a client."""
        upstream.refuse(message, "the proxy itself cannot be asked")

    def server_said(self, upstream: Upstream, message: Message) -> None:
        """Drop it."""


def fields_of(tool: ToolInfo) -> tuple[ParamField, ...]:
    """The arguments of a tool that are header fields. None are, where a mark breaks the rules:
    clients leave such a tool out."""
    try:
        return param_fields(tool.input_schema)
    except ValueError:
        return ()

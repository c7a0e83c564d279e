"""A LiteMCP server behind the proxy, as a server of MCP in this process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from wirespeed.litemcp.bridge import as_mcp_tool
from wirespeed.litemcp.client import LiteClient
from wirespeed.server.server import Server

if TYPE_CHECKING:
    from wirespeed.limits import Limits


def lite_server(name: str, target: Any, limits: Limits) -> Server:
    """Return a server that has the tool of a LiteMCP server. Its parameters are strings.

    While it is served, it is a client of that server, which is started, or asked what its tool is,
    at the start. A LiteMCP server that ended is started again at the next call.
    """

    @contextlib.asynccontextmanager
    async def life(server: Server) -> AsyncIterator[None]:
        async with LiteClient(target, limits=limits) as client:
            tool = await as_mcp_tool(server, client)
            try:
                yield
            finally:
                server.remove_tool(tool.name)

    return Server(name, lifespan=life)

"""FastMCP clients on every target of wirespeed: `Transport` and `Client`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import fastmcp
from fastmcp.client.transports import ClientTransport
from fastmcp.client.transports.base import TransportOptions
from fastmcp.client.transports.config import MCPConfigTransport
from fastmcp.mcp_config import MCPConfig, RemoteMCPServer
from pydantic import PrivateAttr

from wirespeed.adapters.mcp import client as sdk
from wirespeed.config import loads
from wirespeed.limits import Limits


class Transport(ClientTransport):  # type: ignore[misc]
    """A transport of a `fastmcp.Client` to a target of wirespeed.

    >>> async with fastmcp.Client(Transport("ws://127.0.0.1:8765/mcp")) as client:
    ...     await client.list_tools()

    Args:
        target: What a `wirespeed.Client` takes: a URL, `wirespeed.Stdio`, `wirespeed.Http`,
            `wirespeed.WebSocket` or `wirespeed.Socket`, with restarts and logins.
        limits: The limits of the connection.
    """

    def __init__(self, target: Any, *, limits: Limits | None = None) -> None:
        self.target = target
        self.limits = limits

    @contextlib.asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        """Connect: a session of the SDK that is not initialized."""
        options = TransportOptions() if transport_options is None else transport_options
        async with (
            sdk.connect(self.target, limits=self.limits) as dispatcher,
            options.session_class(dispatcher=dispatcher, **session_kwargs) as session,
        ):
            yield session

    def __repr__(self) -> str:
        return f"Transport({self.target!r})"


class _Entry(RemoteMCPServer):  # type: ignore[misc]
    """An entry of FastMCP's own configuration that leads to a target."""

    _target: Any = PrivateAttr()

    def to_transport(self) -> Any:
        return Transport(self._target)


def _entry(target: Any) -> _Entry:
    entry = _Entry(url="http://wirespeed.invalid/")
    entry._target = target
    return entry


class Client(fastmcp.Client[Any]):  # type: ignore[misc]
    """`fastmcp.Client` on every target of wirespeed.

    Args:
        target: As of `Transport`; or a dictionary with ``mcpServers``, which is read as a
            configuration file of wirespeed. Several servers are one for the client, with the name
            of the server before those of its tools, as in FastMCP.
        options: Those of `fastmcp.Client`.
    """

    def __init__(self, target: Any, **options: Any) -> None:
        super().__init__(_transport(target), **options)


def _transport(target: Any) -> Any:
    if isinstance(target, ClientTransport | fastmcp.FastMCP):
        return target
    if not isinstance(target, Mapping):
        return Transport(target)
    servers = {name: one for name, one in loads(json.dumps(target)).items() if one.enabled}
    if not servers:
        raise ValueError("the configuration has no server that is enabled")
    if len(servers) == 1:
        (only,) = servers.values()
        return Transport(only.target())
    entries = {name: _entry(one.target()) for name, one in servers.items()}
    return MCPConfigTransport(MCPConfig(mcpServers=entries))

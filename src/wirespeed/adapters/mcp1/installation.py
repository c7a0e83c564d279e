"""`install()` of the adapter of `mcp` 1.x: it replaces the stdio transports, what a session does for
each message, and checks of schemas."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

from referencing import Registry

from wirespeed.adapters import programs
from wirespeed.adapters.mcp1 import session
from wirespeed.adapters.mcp1.schemas import CheckedOnce
from wirespeed.adapters.mcp1.stdio import (
    child_streams,
    on_asyncio,
    own_descriptors,
    serve_stdio_streams,
)
from wirespeed.adapters.mcp1.streams import ConnectionEnd
from wirespeed.adapters.seams import Installation, Seam

# Digests of the bodies that replacements stand for, by the versions that have them.
RECEIVE_LOOP: tuple[str, ...] = ()
SEND_REQUEST: tuple[str, ...] = ()
SEND_NOTIFICATION: tuple[str, ...] = ()
SEND_RESPONSE: tuple[str, ...] = ()
HANDLE_INCOMING: tuple[str, ...] = ()
RESPONDER: tuple[str, ...] = ()


def make_end(role: str) -> ConnectionEnd:
    return ConnectionEnd(role, missing=installation.missing)


def stdio_server(stock: Any) -> Any:
    @contextlib.asynccontextmanager
    async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[Any]:
        ours = stdin is None and stdout is None and on_asyncio() and own_descriptors()
        async with serve_stdio_streams(make_end) if ours else stock(stdin, stdout) as streams:
            yield streams

    return stdio_server


def stdio_client(stock: Any) -> Any:
    @contextlib.asynccontextmanager
    async def stdio_client(server: Any, errlog: Any = sys.stderr) -> AsyncIterator[Any]:
        ours = on_asyncio() and server.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        async with child_streams(server, errlog, make_end) if ours else stock(server, errlog) as s:
            yield s

    return stdio_client


def validate_tool_result(stock: Any) -> Any:
    checked = CheckedOnce(registry=Registry())  # references lead into the schema itself

    async def _validate_tool_result(self: Any, name: str, result: Any) -> None:
        schema = self._tool_output_schemas.get(name)
        if schema is not None and result.structuredContent is not None:
            try:
                if checked.is_valid(result.structuredContent, schema):
                    return
            except Exception:
                pass  # the stock method says what is wrong
        await stock(self, name, result)

    return _validate_tool_result


def seams() -> list[Seam]:
    base = "mcp.shared.session:BaseSession."
    return [
        Seam("mcp.server.stdio:stdio_server", stdio_server, takes=("stdin", "stdout")),
        Seam("mcp.client.stdio:stdio_client", stdio_client, takes=("server", "errlog")),
        Seam(base + "_receive_loop", session.receive_loop, digests=RECEIVE_LOOP),
        Seam(base + "send_request", session.send_request, digests=SEND_REQUEST),
        Seam(base + "send_notification", session.send_notification, digests=SEND_NOTIFICATION),
        Seam(base + "_send_response", session.send_response, digests=SEND_RESPONSE),
        Seam("mcp.server.session:ServerSession.__init__", session.server_session_init),
        Seam("mcp.server.session:ServerSession._handle_incoming", None, digests=HANDLE_INCOMING),
        Seam("mcp.shared.session:RequestResponder", None, digests=RESPONDER),
        Seam("mcp.server.lowlevel.server:jsonschema", lambda stock: CheckedOnce()),
        Seam(
            "mcp.client.session:ClientSession._validate_tool_result",
            validate_tool_result,
            takes=("self", "name", "result"),
        ),
    ]


installation = Installation(
    "wirespeed.adapters.mcp1", "mcp", ("1.27", "2"), seams, extra="mcp1"
)


def install() -> bool:
    """Put the engine below `mcp` 1.x, in this process, from now on. Idempotent.

    Everything that is replaced is checked first. Of a version that is not known nothing is
    replaced: the SDK stays as it is, one warning says why, and False is returned.
    """
    return installation.install()


def uninstall() -> None:
    """Restore what `install` replaced. Connections that are open stay as they are."""
    installation.uninstall()


def installed() -> bool:
    """Whether `install` has replaced what it replaces."""
    return installation.installed


def environment() -> dict[str, str]:
    """Two variables for child processes, in which `install` runs when they import the SDK:
    ``StdioServerParameters(command=…, env=environment())``."""
    return programs.environment("mcp")

"""The installation of the adapter of FastMCP: that of `wirespeed.adapters.mcp`, and work below the
public API of FastMCP that nobody sees."""

from __future__ import annotations

import importlib
from typing import Any

from wirespeed.adapters import programs
from wirespeed.adapters.mcp.used_names import missing
from wirespeed.adapters.seams import Installation, Seam

# Digests of the bodies that replacements stand for, of the versions that are known.
GATHER = ("c26c6577d02af001",)
MONITORING = ("ccdabfe7d6016afa",)
SEAM_SPAN = ("264d62837106f261",)
SERVER_SPAN = ("1a842b30671bec6a",)
CLIENT_SPAN = ("49229dab8e76b0c2",)


def seams() -> list[Seam]:
    """Return the places that are replaced; those of the SDK that are missing, if there are any."""
    if gone := missing():
        return [Seam(place, lambda stock: stock) for place in gone]
    # these import FastMCP and the SDK, which are as known by now
    from wirespeed.adapters.fastmcp import calls, idle_spans

    server, client = "fastmcp.server.telemetry:", "fastmcp.client.telemetry:"
    return [
        Seam(server + "seam_span", idle_spans.request_span, digests=SEAM_SPAN),
        Seam(server + "server_span", idle_spans.request_span, digests=SERVER_SPAN),
        Seam(client + "client_span", idle_spans.call_span, digests=CLIENT_SPAN),
        Seam("fastmcp.utilities.async_utils:gather", calls.gather, digests=GATHER),
        Seam(
            "fastmcp.client.client:Client._await_with_session_monitoring",
            calls.await_monitored,
            digests=MONITORING,
        ),
    ]


installation = Installation(
    "wirespeed.adapters.fastmcp", "fastmcp", ("4.2", "5"), seams, extra="fastmcp"
)


def _sdk() -> Any:
    return importlib.import_module("wirespeed.adapters.mcp")


def install() -> bool:
    """Put the engine below FastMCP and the SDK that it is made of, in this process. Idempotent.

    Everything that is replaced is checked first. Where FastMCP or the SDK is not as known, both
    stay as they are, one warning says why, and False is returned.
    """
    had = installation.installed
    if not installation.install():
        return False
    done = False
    try:
        done = _sdk().install()
    finally:
        if not done and not had:
            installation.uninstall()
    return bool(done)


def uninstall() -> None:
    """Restore what `install` replaced, in FastMCP and in the SDK. Open connections stay."""
    _sdk().uninstall()
    installation.uninstall()


def installed() -> bool:
    """Whether `install` has replaced what it replaces."""
    return installation.installed


def environment() -> dict[str, str]:
    """Two variables for child processes, in which `install` runs when they import FastMCP, and that
    of the SDK when they import the SDK."""
    return programs.environment("mcp", "fastmcp")

"""The installation of the adapter of `mcp` 1.x: the stdio transports are replaced, what sessions do
for each message, and checks of schemas."""

from __future__ import annotations

from wirespeed.adapters import programs
from wirespeed.adapters.seams import Installation, Seam

# Digests of the bodies that replacements stand for, or rely upon, of the versions that are known.
RECEIVE_LOOP = ("e749333a46ebf7fe",)
SEND_REQUEST = ("26c7cc35f374cb97",)
SEND_NOTIFICATION = ("9f66050dae1b804d",)
SEND_RESPONSE = ("7520263a50e23746",)
HANDLE_INCOMING = ("07d8a4bcf8e17ac0",)
RESPONDER = ("e97a940cfe1df6d4",)


def seams() -> list[Seam]:
    """Return the places that are replaced, and those that are relied upon."""
    # these import the SDK, whose version is known by now
    from wirespeed.adapters.mcp1 import schemas, session, stdio

    base = "mcp.shared.session:BaseSession."
    return [
        Seam("mcp.server.stdio:stdio_server", stdio.server_transport, takes=("stdin", "stdout")),
        Seam("mcp.client.stdio:stdio_client", stdio.client_transport, takes=("server", "errlog")),
        Seam(base + "_receive_loop", session.receive_loop, digests=RECEIVE_LOOP),
        Seam(base + "send_request", session.send_request, digests=SEND_REQUEST),
        Seam(base + "send_notification", session.send_notification, digests=SEND_NOTIFICATION),
        Seam(base + "_send_response", session.send_response, digests=SEND_RESPONSE),
        Seam("mcp.server.session:ServerSession.__init__", session.server_session_init),
        Seam("mcp.server.session:ServerSession._handle_incoming", None, digests=HANDLE_INCOMING),
        Seam("mcp.shared.session:RequestResponder", None, digests=RESPONDER),
        Seam("mcp.client.stdio:PROCESS_TERMINATION_TIMEOUT", None),
        Seam("mcp.client.stdio:_get_executable_command", None, takes=("command",)),
        Seam(
            "mcp.client.stdio:_terminate_process_tree", None, takes=("process", "timeout_seconds")
        ),
        Seam("mcp.client.stdio:get_default_environment", None, takes=()),
        Seam("mcp.server.lowlevel.server:jsonschema", lambda stock: schemas.CheckedOnce()),
        Seam(
            "mcp.client.session:ClientSession._validate_tool_result",
            schemas.validate_tool_result,
            takes=("self", "name", "result"),
        ),
    ]


installation = Installation("wirespeed.adapters.mcp1", "mcp", ("1.27", "2"), seams, extra="mcp1")


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

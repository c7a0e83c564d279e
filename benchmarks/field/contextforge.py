"""ContextForge: its start, and the registration of a server with it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import builder
from contenders import python
from processes import Fault

if TYPE_CHECKING:
    from proxies import Behind

# Seconds until the server's tools must be found.
_READY = 60.0
# For tokens that nobody else takes: it listens on this machine, and only while it is measured.
_KEY = "a-key-for-a-benchmark-on-this-machine-only"
_USER = "admin@example.com"


def command(port: int, _behind: Behind, _folder: Path) -> list[str]:
    """The command: one worker, as the other proxies have one process."""
    program = Path(python("contextforge")).with_name("mcpgateway")
    return [str(program), "mcpgateway.main:app", "--host", "127.0.0.1", "--port", str(port)]


def variables(folder: Path) -> dict[str, str]:
    """Its settings: MCP needs no login, no log, no page, a database of its own."""
    return {
        "MCP_REQUIRE_AUTH": "false",
        "MCPGATEWAY_UI_ENABLED": "false",
        "PLUGINS_ENABLED": "false",
        "LOG_LEVEL": "ERROR",
        "RATE_LIMITING_ENABLED": "false",
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
        "DATABASE_URL": f"sqlite:///{folder / 'mcp.db'}",
        "JWT_SECRET_KEY": _KEY,
        "AUTH_ENCRYPTION_SECRET": _KEY,
        "ENVIRONMENT": "development",
    }


@contextlib.contextmanager
def registered(port: int, behind: Behind) -> Iterator[None]:
    """Register the server, and wait until its tool is there. Fault: it does not come."""
    token = _token()
    until = time.monotonic() + _READY
    server = {"name": "echo", "url": behind, "transport": "STREAMABLEHTTP", "visibility": "public"}
    try:
        _ask(port, "/gateways", token, server)
        while not _ask(port, "/tools", token, None):
            if time.monotonic() > until:
                raise Fault("/tools: the tool did not come")
            time.sleep(0.3)
    except urllib.error.HTTPError as exc:
        raise Fault(f"{exc.url}: status {exc.code}: {exc.read()[:200]!r}") from None
    except OSError as exc:
        raise Fault(f"it does not take the server: {exc}") from None
    yield


def _token() -> str:
    """A token of an administrator, made by its own program."""
    program = [python("contextforge"), "-m", "mcpgateway.utils.create_jwt_token"]
    done = subprocess.run(
        [*program, "--username", _USER, "--admin", "--exp", "60", "--secret", _KEY],
        env=builder.environment() | {"JWT_SECRET_KEY": _KEY},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise Fault(f"it makes no token: {done.stderr[-200:]}")
    return lines[0]


def _ask(port: int, path: str, token: str, value: object) -> Any:
    data = None if value is None else json.dumps(value).encode()
    fields = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, fields)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)

"""``wirespeed proxy``: many clients on the server that a command starts."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from wirespeed.cli import logs
from wirespeed.cli.failures import usage
from wirespeed.cli.serve import Settings, places_of

if TYPE_CHECKING:
    from wirespeed.proxy.config import Isolation


def run_proxy(
    command: list[str] | None,
    urls: tuple[str, ...],
    *,
    isolation: Isolation,
    settings: Settings,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve until the client leaves, or the process is told to end.

    Failure (2 or 3): the command line is wrong, or the server cannot be started.
    """
    from wirespeed import Stdio
    from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

    logs.set_up(log_level, log_format)
    if not command:
        raise usage("give the command of the server after --")
    places = places_of(urls, settings, "--listen")
    target = Stdio(command[0], command[1:], inherit_env=True)
    backend = BackendConfig(target=target, name=_name(command[0]), isolation=isolation)
    proxy = Proxy(ProxyConfig(backends=(backend,), listen=urls))
    if places:
        from wirespeed.cli.listen import serve_at

        found: list[Any] = []
        for place in places:
            place.url, routes = proxy.routes(place.url)
            found.append((place, routes))
        serve_at(found, settings.workers)
    else:
        from wirespeed.transport.loop import run

        run(proxy.serve())
    return 0


def _name(command: str) -> str:
    """A name for the server of a command, fit for a path."""
    return (
        re.sub(r"[^A-Za-z0-9._~-]+", "-", os.path.basename(command)).lstrip("._~-")[:64] or "server"
    )

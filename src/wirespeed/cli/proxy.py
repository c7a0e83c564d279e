"""``wirespeed proxy``: many clients on the server that a command starts, or on those of a file."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wirespeed.cli import credentials, logs
from wirespeed.cli.failures import complain, usage
from wirespeed.cli.serve import Settings, places_of
from wirespeed.errors import ConfigError

if TYPE_CHECKING:
    from wirespeed.proxy import Proxy
    from wirespeed.proxy.config import Isolation, ProxyConfig


TOKEN = "WIRESPEED_ADMIN_TOKEN"


def run_proxy(
    command: list[str] | None,
    urls: tuple[str, ...],
    *,
    file: str | None,
    check: bool,
    isolation: Isolation | None,
    admin: str | None,
    admin_token_file: str | None,
    settings: Settings,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve until the client leaves, or the process is told to end.

    ``file``: The configuration, in place of ``command``. ``check``: only check it. ``admin``: the
    URL of the admin listener.
    Failure (2 or 3), ConfigError: the command line or the file is wrong, or the server cannot be
    started.
    """
    from wirespeed.proxy import Proxy

    logs.set_up(log_level, log_format)
    config = _config(command, file, isolation, check)
    if urls:
        config = replace(config, listen=urls)
    config = _with_admin(config, admin, admin_token_file)
    proxy = Proxy(config)
    if check:
        for i, url in enumerate(config.listen):
            _routes(proxy, url, "--listen" if urls else f"{file}: proxy.listen[{i}]")
        n = len(config.backends)
        complain(f"{file} is valid: {n} server{'s' * (n > 1)}", level="note")
        return 0
    of_file = config.listen and not urls
    option = f"{file}: proxy.listen" if of_file else "--listen"
    places = places_of(config.listen, settings, option)
    if places:
        from wirespeed.cli.listen import Listening, serve_at

        found: list[Any] = []
        for place in places:
            place.url, routes = _routes(proxy, place.url, option)
            found.append((place, routes))
        if config.admin is not None:
            found.append((Listening(config.admin.listen, Settings(), None), proxy.admin))
        serve_at(found, settings.workers)
    else:
        from wirespeed.transport.loop import run

        run(proxy.serve())
    return 0


def _config(
    command: list[str] | None, file: str | None, isolation: Isolation | None, check: bool
) -> ProxyConfig:
    from wirespeed import Stdio
    from wirespeed.proxy import BackendConfig, ProxyConfig

    if file is not None:
        if command:
            raise usage("give either --config FILE or a command after --")
        if isolation is not None:
            raise usage("--isolation is for a command; in a file it is a key of each server")
        from wirespeed.proxy.file import load

        return load(file)
    if check:
        raise usage("--check needs --config FILE")
    if not command:
        raise usage("give the command of the server after --, or --config FILE")
    target = Stdio(command[0], command[1:], inherit_env=True)
    backend = BackendConfig(target=target, name=_name(command[0]), isolation=isolation or "session")
    return ProxyConfig(backends=(backend,), listen=())


def _with_admin(config: ProxyConfig, url: str | None, token_file: str | None) -> ProxyConfig:
    """The configuration with what the command line says of the admin listener."""
    from wirespeed.proxy import AdminConfig

    if url is None and config.admin is None:
        if token_file is not None:
            raise usage("--admin-token-file needs --admin URL")
        return config
    admin = config.admin or AdminConfig()
    token = credentials.one_line(token_file, "--admin-token-file", TOKEN) or admin.token
    try:
        return replace(config, admin=AdminConfig(listen=url or admin.listen, token=token))
    except ValueError as exc:
        raise usage(f"--admin: {exc}") from None


def _routes(proxy: Proxy, url: str, place: str) -> tuple[str, Any]:
    try:
        return proxy.routes(url)
    except ValueError as exc:
        raise ConfigError(f"{place}: {exc}") from None


def _name(command: str) -> str:
    """A name for the server of a command, fit for a path."""
    return (
        re.sub(r"[^A-Za-z0-9._~-]+", "-", os.path.basename(command)).lstrip("._~-")[:64] or "server"
    )

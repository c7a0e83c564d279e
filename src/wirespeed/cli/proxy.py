"""``wirespeed proxy``: many clients on the server that a command starts, or on those of a file."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wirespeed.cli import logs
from wirespeed.cli.failures import complain, usage
from wirespeed.cli.serve import Settings, places_of
from wirespeed.errors import ConfigError

if TYPE_CHECKING:
    from wirespeed.proxy import ListenConfig, Proxy
    from wirespeed.proxy.config import Isolation, ProxyConfig
    from wirespeed.transport.options import ListenFields


def run_proxy(
    command: list[str] | None,
    urls: tuple[str, ...],
    *,
    file: str | None,
    check: bool,
    isolation: Isolation | None,
    settings: Settings,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve until the client leaves, or the process is told to end.

    ``file``: The configuration, in place of ``command``. ``check``: only check it.
    Failure (2 or 3), ConfigError: the command line or the file is wrong, or the server cannot be
    started.
    """
    from wirespeed.proxy import Proxy

    logs.set_up(log_level, log_format)
    config = _config(command, file, isolation, check)
    if urls:
        config = replace(config, listen=urls)
    try:
        proxy = Proxy(config)
    except ValueError as exc:
        raise ConfigError(f"{file}: proxy.auth: {exc}") from None
    of_file = bool(config.listen) and not urls
    option = f"{file}: proxy.listen" if of_file else "--listen"
    plain, configured = [], []
    for i, one in enumerate(config.listen):
        place = f"{option}[{i}]" if of_file else option
        if isinstance(one, str):
            if of_file:
                _routes(proxy, one, place)
            plain.append(one)
        else:
            configured.append((one, _options(place, proxy, one)))
    if check:
        n = len(config.backends)
        complain(f"{file} is valid: {n} server{'s' * (n > 1)}", level="note")
        return 0
    places = places_of(tuple(plain), settings, option) if plain or not configured else []
    if places or configured:
        from wirespeed.cli.listen import Listening, serve_at

        forms = [one.access_log for one, _ in configured if one.access_log is not None]
        if forms:
            logs.show_requests(forms[0])
        places += [Listening(one.url, settings, None, options) for one, options in configured]
        found: list[Any] = []
        for listening in places:
            listening.url, routes = _routes(proxy, listening.url, option)
            found.append((listening, routes))
        serve_at(found, settings.workers)
    else:
        from wirespeed.transport.loop import run

        run(proxy.serve())
    return 0


def _options(place: str, proxy: Proxy, listen: ListenConfig) -> ListenFields:
    """The options of a listener of the file. ConfigError: they are wrong."""
    from wirespeed.cli.listen import key_password
    from wirespeed.proxy.listening import options_of
    from wirespeed.transport.net.serve import plan

    try:
        options = options_of(listen, key_password)
        plan(*proxy.routes(listen.url), None, options)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{place}: {exc}") from None
    return options


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

"""``wirespeed serve``: serves the servers of a Python file, on stdio or at a URL."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from wirespeed.cli import credentials, logs, modules
from wirespeed.cli.failures import cannot_start, usage
from wirespeed.cli.targets import check_file
from wirespeed.client.python_file import python_file

if TYPE_CHECKING:
    from wirespeed.cli.listen import Listening
    from wirespeed.cli.modules import Service


@dataclass(frozen=True, repr=False)
class Settings:
    """The options of ``serve`` for listening. They need ``--on``."""

    workers: int = 1
    name: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    token: str | None = None
    token_file: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    max_connections: int | None = None
    stateless: bool = False
    access_log: Literal["text", "json"] | None = None
    trusted_proxies: tuple[str, ...] = ()

    @cached_property
    def secret(self) -> credentials.Secret | None:
        """The tokens of the options or of the environment, read once. Failure as of
        `credentials.find`."""
        return credentials.find(self.token, self.token_file, serves=True)

    def given(self) -> list[str]:
        """Return the given options, as the user types them."""
        return [_OPTIONS[f.name] for f in fields(self) if getattr(self, f.name) != f.default]


_OPTIONS = {
    "workers": "--workers",
    "name": "--name",
    "certfile": "--certfile",
    "keyfile": "--keyfile",
    "token": "--token",
    "token_file": "--token-file",
    "origins": "--origin",
    "hosts": "--host-name",
    "max_connections": "--max-connections",
    "stateless": "--stateless",
    "access_log": "--access-log",
    "trusted_proxies": "--trusted-proxy",
}


def serve(
    word: str,
    urls: tuple[str, ...],
    *,
    lite: bool,
    settings: Settings,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve ``FILE.py[:NAME]`` until the client leaves, or the process is told to end.

    Failure (2 or 3): the file cannot be served.
    """
    from wirespeed.transport.loop import loop_factory
    from wirespeed.transport.stdio import claimed

    logs.set_up(log_level, log_format)
    try:
        loop_factory()
    except ValueError as exc:
        raise usage(str(exc)) from None
    # Errors in the command line are reported before the file is imported.
    places = places_of(urls, settings, "--on")
    path, name = python_file(word) or (word, None)
    check_file(path)
    if places:
        from wirespeed.cli.listen import serve_at

        module = modules.load(path)
        routes = all(place.has_paths for place in places)
        found = modules.pick(module, path, name, lite=lite, routes=routes)
        for service in found.values() if isinstance(found, dict) else [found]:
            check(service, path)
        serve_at([(place, found) for place in places], settings.workers)
        return 0
    # The import of the file must not read or write the streams of the protocol.
    with claimed():
        module = modules.load(path)
    served = modules.pick(module, path, name, lite=lite)
    assert not isinstance(served, dict)
    check(served, path)
    served.run()
    return 0


def places_of(urls: tuple[str, ...], settings: Settings, option: str) -> list[Listening]:
    """Return where to listen; nowhere for stdio. ``option`` names the URLs. Failure (2 or 3): an
    option is wrong, or fits none of them."""
    if not urls:
        if given := settings.given():
            raise usage(f"{given[0]} needs {option} URL: stdio has no such option")
        return []
    from wirespeed.cli.listen import Listening, check_used, parsed

    secret = settings.secret
    check_used([parsed(url, option) for url in urls], settings, secret)
    places = [Listening(url, settings, secret) for url in urls]
    if settings.access_log is not None:
        logs.show_requests(settings.access_log)
    return places


def check(service: Service, path: str) -> None:
    """Raise Failure (3) for a LiteServer without a tool."""
    from wirespeed import Server

    if not isinstance(service, Server):
        try:
            _ = service.info
        except ValueError:
            raise cannot_start(f"{path}: the LiteServer {service.name} has no tool") from None

"""``wirespeed serve``: serves the servers of a Python file, on stdio or at a URL."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from wirespeed.cli import credentials, logs, modules
from wirespeed.cli.failures import cannot_start, usage
from wirespeed.cli.targets import check_file
from wirespeed.client.targets.python_file import python_file

if TYPE_CHECKING:
    from wirespeed.cli.listen import Listening
    from wirespeed.cli.modules import Service


@dataclass(frozen=True, repr=False)
class Settings:
    """The options of ``serve`` for listening. They need ``--on``."""

    workers: int = 1
    certfile: str | None = None
    keyfile: str | None = None
    token: str | None = None
    token_file: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    max_connections: int | None = None

    def given(self) -> list[str]:
        """Return the given options, as the user types them."""
        return [_OPTIONS[f.name] for f in fields(self) if getattr(self, f.name) != f.default]


_OPTIONS = {
    "workers": "--workers",
    "certfile": "--certfile",
    "keyfile": "--keyfile",
    "token": "--token",
    "token_file": "--token-file",
    "origins": "--origin",
    "hosts": "--host-name",
    "max_connections": "--max-connections",
}


def serve(
    word: str,
    url: str | None,
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
    listening = None if url is None else _listening(url, settings)
    if listening is None and (given := settings.given()):
        raise usage(f"{given[0]} needs --on URL: stdio has no such option")
    path, name = python_file(word) or (word, None)
    check_file(path)
    if listening is not None:
        module = modules.load(path)
        found = modules.pick(module, path, name, lite=lite, routes=listening.has_paths)
        for service in found.values() if isinstance(found, dict) else [found]:
            check(service, path)
        listening.serve(found)
        return 0
    # The import of the file must not read or write the streams of the protocol.
    with claimed():
        module = modules.load(path)
    served = modules.pick(module, path, name, lite=lite)
    assert not isinstance(served, dict)
    check(served, path)
    served.run()
    return 0


def _listening(url: str, settings: Settings) -> Listening:
    from wirespeed.cli.listen import Listening

    return Listening(url, settings, credentials.find(settings.token, settings.token_file))


def check(service: Service, path: str) -> None:
    """Raise Failure (3) for a LiteServer without a tool."""
    from wirespeed import Server

    if not isinstance(service, Server):
        try:
            _ = service.info
        except ValueError:
            raise cannot_start(f"{path}: the LiteServer {service.name} has no tool") from None

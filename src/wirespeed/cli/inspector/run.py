"""``wirespeed dev`` and ``wirespeed inspect --web``: serve the page of the inspector on this
machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wirespeed.cli.failures import Exit, cannot_start, complain, printable, usage
from wirespeed.cli.inspector.access import PageAccess
from wirespeed.cli.inspector.service import InspectorService
from wirespeed.cli.session import Options, client_of, pass_through, run, show_log, show_warnings
from wirespeed.client.targets import python_file
from wirespeed.transport.address import is_loopback, parse
from wirespeed.transport.signals import FileWatch

if TYPE_CHECKING:
    from wirespeed import Client, Stdio
    from wirespeed.proxy import ProxyConfig
    from wirespeed.transport.net.serve import Place

MAX_WATCHED = 500  # files
_MAX_LOOKED_AT = 5000  # names of files and folders
_MAX_DEPTH = 6
_VARIABLE = "WIRESPEED_DEV_START"  # a new value makes the proxy restart the server
_SKIPPED = {"node_modules", "site-packages", "venv", "env", "build", "dist"}


def dev(options: Options, port: int, watched: Sequence[str], urls: Sequence[str]) -> int:
    """Serve a page that uses the server of a file, and start the server again when the file, or
    another source beside it, was saved. Failure (2 or 3): it is not a Python file, or the port is
    taken.

    watched: Further files and folders that are watched.
    urls: The URLs at which other clients may use the server.
    """
    assert options.word is not None
    found = python_file(options.word)
    if found is None:
        raise usage(f"{options.word} is not a Python file; wirespeed inspect --web takes others")
    options.target()  # reports what is wrong
    folder = os.path.dirname(os.path.abspath(found[0]))
    for path in watched:
        if not os.path.exists(path):
            raise usage(f"--watch: {path} does not exist")
    roots = [os.path.abspath(found[0]), folder, *map(os.path.abspath, watched)]
    name = os.path.basename(options.word)
    others: OtherClients | None = None
    if urls:
        target = cast("Stdio", options.target(pass_through).endpoint)
        others = OtherClients(urls, target, name)
    return run(_serve(options, name, port, lambda: sources(roots), others))


def inspect_on_page(options: Options, port: int) -> int:
    """Serve a page that uses a server. Failure (2 or 3), ConfigError: the target is wrong, or
    cannot be reached."""
    options.target()
    if options.command is not None:
        name = os.path.basename(options.command[0])
    elif options.word is not None and "://" in options.word:
        from wirespeed.transport.schemes import public

        name = public(options.word)  # a query may hold a secret
    else:
        name = os.path.basename(options.word or "")
    return run(_serve(options, name, port, None, None))


async def _serve(
    options: Options,
    name: str,
    port: int,
    files: Callable[[], Sequence[str]] | None,
    others: OtherClients | None,
) -> int:
    """Serve until a signal. ``files``: Returns the files to watch; None: no files are watched."""
    from wirespeed.transport.net.serve import serve_together

    show_warnings()
    port = port or free_port()
    access = PageAccess(port)

    def make(service: InspectorService) -> Client:
        def on_stderr(line: str) -> None:
            pass_through(line)
            service.server.stderr_line(line)

        def on_log(message: Any) -> None:
            show_log(message)
            service.server.log(message)

        target = options.target(on_stderr)
        return client_of(options, target, on_log=on_log, **service.questions.handlers())

    service = InspectorService(
        access,
        name,
        reloads=files is not None,
        log_level=options.log_level or "info",
        make=make,
    )
    service.wire.start()
    server = service.server

    async def start() -> None:
        if not await server.start():
            complain(f"{printable(server.problem)}; save the file to try again")

    async def reload() -> None:
        complain(f"{name} was saved; starting it again", level="note")
        if await server.start():
            complain("started again: what the server kept in memory is gone", level="note")
            if others is not None:
                await others.restart()
        else:
            then = "the version before it goes on" if server.running else "save it to try again"
            complain(f"{printable(server.problem)}; {then}")

    def announce(urls: object) -> None:
        complain(f"the page of {name}: {access.url}", level="note")
        complain("the URL is a key to all that the server can do; Ctrl-C ends it", level="note")

    try:
        async with contextlib.AsyncExitStack() as stack:
            if files is None:
                if not await server.start():
                    raise cannot_start(server.problem)
            else:
                # The page is there at once, and shows the progress of the start.
                stack.enter_context(FileWatch(files, reload, on_hangup=False).running())
                stack.callback(asyncio.ensure_future(start()).cancel)
            page: Any = (access.origin, service, announce, access.listen_fields)
            if others is None:
                await serve_together([page])
            else:
                await serve_together([*others.places(), page], observer=others.proxy.listening)
    finally:
        await service.release(None)
    return Exit.OK


# -- other clients ---------------------------------------------------------------------------------


class OtherClients:
    """The listeners for clients other than the page: ``wirespeed dev --on URL``. A proxy starts
    the server processes of these clients, and replaces the processes when the file was saved.

    Args:
        urls: Their URLs, on this machine.
        target: The command of the server.
        name: Its name in the log.

    Failure (2): a URL is wrong, or other machines could reach it.
    """

    def __init__(self, urls: Sequence[str], target: Stdio, name: str) -> None:
        from wirespeed.proxy import Proxy

        for url in urls:
            try:
                address = parse(url)
            except ValueError as exc:
                raise usage(f"--on: {exc}") from None
            if address.secure or not (address.file or is_loopback(address.host)):
                raise usage(
                    "--on of wirespeed dev is for this machine, without encryption; for others: "
                    "wirespeed serve --on"
                )
        self._urls = tuple(urls)
        self._target = target
        self._starts = 0
        self._name = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")[:64] or "server"
        try:
            self.proxy = Proxy(self._config())
        except ValueError as exc:
            raise usage(f"--on: {exc}") from None

    def _config(self) -> ProxyConfig:
        from wirespeed.proxy import BackendConfig, ProxyConfig

        env = {_VARIABLE: str(self._starts)}
        target = msgspec.structs.replace(self._target, env=env)
        return ProxyConfig(
            backends=(BackendConfig(target=target, name=self._name),), listen=self._urls
        )

    def places(self) -> list[Place]:
        """Return the places that are served. Failure (2): a URL is wrong."""

        def announce(urls: tuple[str, ...]) -> None:
            complain(f"other clients: {urls[0]}", level="note")

        try:
            found: list[Any] = [
                (*self.proxy.routes(url), announce, self.proxy.listen_fields(url, {}))
                for url in self._urls
            ]
        except ValueError as exc:
            raise usage(f"--on: {exc}") from None
        self.proxy.listening.expect(self._urls)
        return found

    async def restart(self) -> None:
        """Start new processes. They take the place of the earlier ones when they are ready."""
        self._starts += 1
        await self.proxy.reload(self._config())


# -- ports and files -------------------------------------------------------------------------------


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


def sources(roots: Sequence[str]) -> list[str]:
    """Return the given files, and the Python files below the given folders; at most `MAX_WATCHED`.
    Hidden folders and folders of installed packages are left out."""
    found: list[str] = []
    left = _MAX_LOOKED_AT
    waiting = [(root, 0) for root in reversed(roots)]
    while waiting and left > 0 and len(found) < MAX_WATCHED:
        path, depth = waiting.pop()
        if not os.path.isdir(path):
            found.append(path)
            continue
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                left -= 1
                if left <= 0:
                    break
                if entry.name.startswith((".", "__")) or entry.name in _SKIPPED:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if depth < _MAX_DEPTH and not _is_environment(entry.path):
                        waiting.append((entry.path, depth + 1))
                elif entry.name.endswith(".py") and len(found) < MAX_WATCHED:
                    found.append(entry.path)
    return sorted({*found})


def _is_environment(path: str) -> bool:
    return os.path.exists(os.path.join(path, "pyvenv.cfg"))

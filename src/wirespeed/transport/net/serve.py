"""Serving at a URL: `wirespeed.serve` and `wirespeed.run`."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, Unpack

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.transport.address import Address, is_loopback, parse, quote_path
from wirespeed.transport.gate import authority_of, check_authorities
from wirespeed.transport.http.options import HttpOptions, SessionDirectory
from wirespeed.transport.net import activation
from wirespeed.transport.net.activation import HotRestart
from wirespeed.transport.net.group import ListenerGroup, ListenerObserver, ListenPlan
from wirespeed.transport.net.listener import Obey
from wirespeed.transport.options import ListenFields, ListenOptions, OnListening
from wirespeed.transport.service import Servable, Service, has_capability, service_of
from wirespeed.transport.signals import signals_drain

Servers: TypeAlias = "Servable | Service | Mapping[str, Servable | Service]"
# URL, servers, on_listening, options
Place: TypeAlias = "tuple[str, Servers, OnListening | None, ListenFields]"

logger = logging.getLogger("wirespeed.server")


async def serve(
    url: str,
    services: Servers,
    *,
    on_listening: OnListening | None = None,
    options: ListenOptions | None = None,
    **more: Unpack[ListenFields],
) -> None:
    """Serve at a URL inside a running loop, until SIGTERM, SIGINT or a cancellation.

    >>> await wirespeed.serve("ws://127.0.0.1:8765", {"/mcp": server, "/add": lite_server})

    The first signal stops accepting, and requests in flight have the ``shutdown_grace`` of their
    server to finish. The second signal ends the server at once. Port 0 binds any free port.

    Args:
        url: ``http://host:port/path``, ``https://…``, ``ws://…``, ``wss://…``, ``tcp://host:port``
            or ``unix:/path``. A host name stands for all its addresses.
        services: A server, or for HTTP and WebSocket a mapping of paths to servers (the URL then
            has no path).
        on_listening: Called with the URLs and their bound ports as soon as clients can connect.
        options: A `ListenOptions`, or its fields as keyword arguments.

    Raises:
        ValueError: The URL or an option is wrong, or the option does not apply to the URL.
        TransportError: The server cannot listen at the address. The text is the reason.
        StartupError: The lifespan of a server failed.
    """
    address, by_path, options = plan(url, services, options, more)
    on_listening = _warning(address, by_path, options, on_listening)
    await ListenerGroup().run([ListenPlan(address, by_path, options, on_listening)])


def run(
    url: str,
    services: Servers,
    *,
    workers: int = 1,
    on_listening: OnListening | None = None,
    options: ListenOptions | None = None,
    **more: Unpack[ListenFields],
) -> None:
    """Serve as `serve` does, on a new event loop (uvloop where it is installed), in one or several
    processes.

    ``workers``: The number of processes that share the port; not for ``unix:``. Workers are forked
    from this process and have its state, which must not need threads or an event loop. SIGTERM and
    SIGINT to this process end the workers in order. A worker that dies is replaced. Without
    ``on_listening`` the URLs are written to stderr; where the log takes records of INFO and stderr
    is not a terminal, the log gets them instead.
    """
    if workers < 1:
        raise ValueError("workers must be at least 1")
    address, by_path, options = plan(url, services, options, more)
    (on_listening,) = activation.telling_ready([on_listening or announce])
    if workers > 1:
        from wirespeed.transport.net.forks import run_workers

        on_listening = _warning(address, by_path, options, on_listening)
        run_workers(workers, [ListenPlan(address, by_path, options, on_listening)])
        return
    from wirespeed.transport.loop import run as run_loop

    run_loop(serve(url, services, on_listening=on_listening, options=options))


def run_together(
    places: Sequence[Place],
    *,
    workers: int = 1,
    observer: ListenerObserver | None = None,
    hot_restart: HotRestart | None = None,
) -> None:
    """Serve at several URLs, each with its servers and options, until all have ended or one has
    failed.

    Args:
        places: URLs, and what is served there.
        workers: The number of processes, as of `run`.
        observer: Knows the listeners.
        hot_restart: Starts the process that takes the place of this one at SIGUSR2.

    Raises:
        ValueError: An argument is wrong.
    """
    from wirespeed.transport.loop import run as run_loop

    plans = planned(places)
    told = activation.telling_ready([plan.on_listening for plan in plans])
    plans = [one._replace(on_listening=on) for one, on in zip(plans, told, strict=True)]
    if workers > 1:
        from wirespeed.transport.net.forks import run_workers

        run_workers(workers, plans, observer, hot_restart)
    else:
        run_loop(ListenerGroup(observer, hot_restart=hot_restart).run(plans))


async def serve_together(
    places: Sequence[Place], *, observer: ListenerObserver | None = None, signals: bool = True
) -> None:
    """The same inside a running loop, in this process. ``signals``: whether SIGTERM and SIGINT end
    it."""
    obey: Obey = signals_drain if signals else lambda loop, served: contextlib.nullcontext()
    await ListenerGroup(observer).run(planned(places), obey=obey)


def planned(places: Sequence[Place]) -> list[ListenPlan]:
    """Check the arguments for several listeners. ValueError: one is wrong."""
    plans = []
    for url, services, on_listening, fields in places:
        address, by_path, options = plan(url, services, None, fields)
        on_listening = _warning(address, by_path, options, on_listening)
        plans.append(ListenPlan(address, by_path, options, on_listening))
    return plans


def announce(urls: Sequence[str]) -> None:
    """Write the URLs to the log if it takes records of INFO and stderr is not a terminal, otherwise
    to stderr."""
    text = f"listening at {' and '.join(urls)}; Ctrl-C ends it"
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if not terminal and logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info("%s", text)
    elif sys.stderr is not None:
        sys.stderr.write(f"wirespeed: {text}\n")
        sys.stderr.flush()


def _warning(
    address: Address,
    services: Mapping[str, Service],
    options: ListenOptions,
    on_listening: OnListening | None,
) -> OnListening | None:
    """Return ``on_listening``, preceded by a warning where every client may call the tools."""
    if address.file or is_loopback(address.host):
        return on_listening
    if not address.has_paths:
        why = "tcp: has no tokens"
    elif (
        options.token is None
        and options.authenticate is None
        and not all(map(authority_of, services.values()))
    ):
        why = "no token is required"
    else:
        return on_listening

    def listens(urls: tuple[str, ...]) -> None:
        places = " and ".join(urls)
        logger.warning("every client that reaches %s may call the tools: %s", places, why)
        if on_listening is not None:
            on_listening(urls)

    return listens


def plan(
    url: str, services: Any, options: ListenOptions | None, more: ListenFields
) -> tuple[Address, dict[str, Service], ListenOptions]:
    """Check the arguments of `serve`. ValueError, TypeError: an argument is wrong."""
    address = parse(url)
    if options is None:
        options = ListenOptions(**more)
    elif more:
        options = msgspec.structs.replace(options, **more)
    if address.query:
        raise ValueError(f"{address}: a URL to listen at has no query")
    if isinstance(services, Mapping):
        by_path = {path: service_of(server) for path, server in services.items()}
        if not by_path:
            raise ValueError("there is nothing to serve")
        if address.has_paths:
            if address.path != "/":
                raise ValueError(f"{address}: the paths are given with the servers, not in the URL")
            n = len(by_path)
            by_path = {quote_path(path): service for path, service in by_path.items()}
            if len(by_path) < n:
                raise ValueError("two of the paths are the same in a URL")
        elif len(by_path) > 1:
            raise ValueError(
                f"{address}: only HTTP and WebSocket have paths, so there can be one server"
            )
    else:
        by_path = {address.path if address.has_paths else "/": service_of(services)}
    if address.is_http:
        from wirespeed.transport.http.routes import OverHttp, sse_service

        for path in by_path.keys() & {*options.http.by_path, options.http.healthz}:
            raise ValueError(
                f"{path} is the path of a server, and cannot be one of http.routes or http.healthz"
            )
        for service in by_path.values():
            if not has_capability(service, OverHttp):
                raise ValueError(f"{address}: {service!r} cannot be served over HTTP")
        if options.http.sse_path is not None:
            sse_service(by_path.values())
        options = _with_directory(by_path, options)
    _check_options(address, options)
    check_authorities(by_path.values(), options)
    if not address.has_paths and any(map(authority_of, by_path.values())):
        raise ValueError(f"auth is for HTTP and WebSocket only, not for {address.scheme}:")
    return address, by_path, options


class SharesSessions(Protocol):
    """A service whose hosts may share sessions."""

    def session_directory(self, url: str) -> SessionDirectory:
        """What finds the sessions of other hosts, for a host that these reach at a URL. ValueError:
        there is no store to share them by, or the URL is wrong."""
        ...


def _with_directory(services: Mapping[str, Service], options: ListenOptions) -> ListenOptions:
    """Return the options with what ``host_url`` makes. ValueError: the servers have no store."""
    http = options.http
    if http.host_url is None or http.directory is not None:
        return options
    able = [one for one in services.values() if has_capability(one, SharesSessions)]
    if not able:
        raise ValueError("host_url needs a Server with cluster")
    http = msgspec.structs.replace(http, directory=able[0].session_directory(http.host_url))
    return msgspec.structs.replace(options, http=http)


def _check_options(address: Address, options: ListenOptions) -> None:
    if address.secure and options.ssl is None:
        raise ValueError(
            f"{address.scheme}:// needs ssl, an ssl.SSLContext with the server's certificate"
        )
    if not address.is_http and options.http != HttpOptions():
        raise ValueError(f"http is for http:// and https:// only, not for {address.scheme}:")
    if options.ssl is not None and not address.secure:
        raise ValueError(f"ssl is for https:// and wss:// only, not for {address.scheme}:")
    if options.reuse_port and address.file:
        raise ValueError("reuse_port is not for the sockets of files")
    if address.has_paths:
        return
    # these options would protect nothing there
    for name in ("token", "authenticate", "origins", "hosts"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} is for HTTP and WebSocket only, not for {address.scheme}:")


set_public_home(globals())

"""``wirespeed serve``: serves the servers of a Python file, on stdio or at URLs. Checks the options
of listening, for ``wirespeed proxy`` too, loads certificates, and announces the server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from wirespeed.cli import credentials, modules
from wirespeed.cli.credentials import ENVIRON
from wirespeed.cli.failures import Failure, cannot_start, complain, usage
from wirespeed.cli.log_lines import set_up_log, show_access_log
from wirespeed.cli.modules import title
from wirespeed.cli.targets import check_file
from wirespeed.client.targets import python_file
from wirespeed.errors import LimitExceeded
from wirespeed.transport.address import Address, is_loopback, parse
from wirespeed.transport.signals import FileWatch

if TYPE_CHECKING:
    from wirespeed import HttpOptions
    from wirespeed.cli.credentials import Secret
    from wirespeed.cli.modules import Routes, Service
    from wirespeed.cli.observability import SpanExporter
    from wirespeed.transport.net.group import ListenerObserver
    from wirespeed.transport.net.serve import Place
    from wirespeed.transport.net.tls import Certificate
    from wirespeed.transport.options import ListenFields

logger = logging.getLogger("wirespeed.server")

KEY_PASSWORD = "WIRESPEED_KEY_PASSWORD"


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
    card: str | None = None
    host_url: str | None = None
    drain_delay: float = 0.0

    @cached_property
    def secret(self) -> credentials.Secret | None:
        """The tokens of the options or of the environment, read once. Failure as of
        `credentials.find`."""
        return credentials.find(self.token, self.token_file, serves=True)

    def given(self) -> list[str]:
        """Return the given options, as the user types them."""
        names = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        return [_OPTIONS.get(name, f"--{name.replace('_', '-')}") for name in names]


_OF_HTTP = (
    *("--name", "--stateless", "--access-log", "--trusted-proxy", "--card", "--host-url"),
    "--drain-delay",
)
# Options with another name than their field: they may be repeated.
_OPTIONS = {"origins": "--origin", "hosts": "--host-name", "trusted_proxies": "--trusted-proxy"}


def serve(
    word: str | None,
    urls: tuple[str, ...],
    *,
    skills: tuple[str, ...] = (),
    lite: bool,
    cluster: str | None = None,
    settings: Settings,
    log_level: str | None,
    log_format: str | None,
    watching: Watching,
) -> int:
    """Serve ``FILE.py[:NAME]``, or folders of skills, until the client leaves, or the process is
    told to end.

    Failure (2 or 3), ConfigError: the file or a folder cannot be served.
    """
    from wirespeed.transport.loop import loop_factory
    from wirespeed.transport.stdio import claimed

    set_up_log(log_level, log_format)
    try:
        loop_factory()
    except ValueError as exc:
        raise usage(str(exc)) from None
    # Errors in the command line are reported before the file is imported.
    if settings.host_url is not None and settings.stateless:
        raise usage("--host-url is for sessions, which --stateless has not")
    places = places_of(urls, settings, "--on")
    watching.check(settings.workers)
    cluster = credentials.one_of(cluster, credentials.CLUSTER)
    if lite and cluster:
        raise usage("--cluster is for MCP: LiteMCP shares nothing")
    if settings.host_url is not None and not cluster:
        raise usage("--host-url needs --cluster URL")
    if lite and skills:
        raise usage("--skills is for MCP: LiteMCP has no skills")
    found: Service | Routes
    if word is None:
        if not skills:
            raise usage("Missing argument 'FILE.py[:NAME]', or --skills FOLDER")
        from wirespeed import Server

        found = Server("skills")
    else:
        path, name = python_file(word) or (word, None)
        check_file(path)
        # On stdio, the import of the file must not read or write the streams of the protocol.
        with contextlib.nullcontext() if places else claimed():
            module = modules.load(path)
        routes = bool(places) and all(place.has_paths for place in places)
        found = modules.pick(module, path, name, lite=lite, routes=routes)
        for service in found.values() if isinstance(found, dict) else [found]:
            check(service, path)
    add_skills(found, skills)
    if cluster:
        share([*found.values()] if isinstance(found, dict) else [found], cluster)
    if places:
        watching.begin([*found.values()] if isinstance(found, dict) else [found], settings.name)
        serve_at(
            [*((place, found) for place in places), *watching.places],
            settings.workers,
            spans=watching.spans,
        )
        return 0
    assert not isinstance(found, dict)
    watching.begin([found], None)
    if not watching.places:
        found.run()
    else:
        _run_beside(found, watching.places)
    watching.end()
    return 0


def _run_beside(served: Service, places: Sequence[tuple[ListenSpec, Any]]) -> None:
    """Serve on stdio, and at the places until stdio ends."""
    from wirespeed.transport.loop import run
    from wirespeed.transport.net.serve import serve_together
    from wirespeed.transport.stdio import serve_stdio

    async def both() -> None:
        listening = [place.with_services(found) for place, found in places]
        beside = asyncio.ensure_future(serve_together(listening, signals=False))
        serving = asyncio.ensure_future(serve_stdio(served))
        try:
            await asyncio.wait((beside, serving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (beside, serving):
                task.cancel()
            await asyncio.wait((beside, serving))
        for task in (beside, serving):
            if not task.cancelled():
                task.result()

    run(both())


@dataclass
class Watching:
    """The options ``--metrics`` and ``--tracing``.

    Attributes:
        metrics: The URL of the metrics; None for none.
        token_file: The file with the token for the metrics.
        tracing: Whether requests are traced.
        places: The listeners of the metrics, once `check` was called.
        spans: The provider of the spans, once `begin` was called.
    """

    metrics: str | None = None
    token_file: str | None = None
    tracing: bool = False
    places: Sequence[tuple[ListenSpec, Any]] = ()
    spans: SpanExporter | None = None

    def check(self, workers: int) -> None:
        """Failure (2): the options do not go together."""
        credentials.taken(credentials.METRICS)  # tools must not see it in the environment
        if self.metrics is None and self.token_file is not None:
            raise usage("--metrics-token-file needs --metrics URL")
        if self.metrics is not None and workers > 1:
            raise usage("--metrics needs --workers 1: each process counts for itself")
        if self.metrics is None:
            return
        from wirespeed.cli.observability import MetricsService, metrics_at

        url, fields = metrics_at(self.metrics, self.token_file)
        place = ListenSpec(url, Settings(), None)
        place.options |= fields
        self.places = [(place, MetricsService())]

    def begin(self, services: Sequence[Any], instance: str | None) -> None:
        """Count and trace the requests. Failure (2): a server has no counts. ConfigError: a package
        is missing. ``instance``: the name of this instance."""
        if self.metrics is None and not self.tracing:
            return
        from wirespeed import Server
        from wirespeed.cli.observability import count_requests, trace_requests

        if not all(isinstance(service, Server) for service in services):
            option = "--tracing" if self.metrics is None else "--metrics"
            raise usage(f"{option} is for MCP: a LiteServer has neither metrics nor traces")
        servers = list({id(one): one for one in services}.values())
        if self.metrics is not None:
            count_requests(servers)
        if self.tracing:
            self.spans = trace_requests(servers, instance)

    def end(self) -> None:
        """Let the last spans leave."""
        if self.spans is not None:
            from wirespeed.cli.observability import LAST_SPANS

            self.spans.force_flush(LAST_SPANS)


def share(services: Iterable[Any], url: str) -> None:
    """Share what servers keep with other hosts. Failure (2 or 3): the URL is wrong, or a server
    cannot share. ConfigError: a package is missing."""
    from wirespeed import Server
    from wirespeed.cluster import Cluster

    try:
        cluster = Cluster(url)
    except ValueError as exc:
        raise usage(f"--cluster: {exc}") from None
    for server in {id(one): one for one in services}.values():
        if not isinstance(server, Server):
            raise usage("--cluster is for MCP: a LiteServer shares nothing")
        try:
            server.service.use_cluster(cluster)
        except (ValueError, RuntimeError) as exc:
            raise cannot_start(f"--cluster: {exc}") from None


def add_skills(found: Service | Routes, folders: Iterable[str]) -> None:
    """Serve the skills of folders as well. Failure (2 or 3): a folder cannot be read, or there are
    several servers."""
    from wirespeed import Server

    for folder in folders:
        if not isinstance(found, Server):
            raise usage("--skills needs one server of MCP: name it, as in FILE.py:NAME")
        try:
            source = found.add_skills(folder)
        except OSError as exc:
            raise cannot_start(f"cannot read the skills of {folder}: {exc.strerror}") from None
        except (ValueError, LimitExceeded) as exc:
            raise cannot_start(f"cannot serve the skills of {folder}: {exc}") from None
        if not source.skills:
            complain(f"{folder} has no skill that can be served", level="warning")


def places_of(urls: tuple[str, ...], settings: Settings, option: str) -> list[ListenSpec]:
    """Return where to listen; nowhere for stdio. ``option`` names the URLs. Failure (2 or 3): an
    option is wrong, or fits none of them."""
    if not urls:
        if given := settings.given():
            raise usage(f"{given[0]} needs {option} URL: stdio has no such option")
        return []
    secret = settings.secret
    check_used([parsed(url, option) for url in urls], settings, secret)
    places = [ListenSpec(url, settings, secret) for url in urls]
    if settings.access_log is not None:
        show_access_log(settings.access_log)
    return places


def check(service: Service, path: str) -> None:
    """Raise Failure (3) for a LiteServer without a tool."""
    from wirespeed import Server

    if not isinstance(service, Server):
        try:
            _ = service.info
        except ValueError:
            raise cannot_start(f"{path}: the LiteServer {service.name} has no tool") from None


def parsed(url: str, option: str = "--on") -> Address:
    """The address of a URL. Failure (2): it is not one."""
    try:
        return parse(url)
    except ValueError as exc:
        raise usage(f"{option}: {exc}") from None


def serve_at(
    places: Sequence[tuple[ListenSpec, Service | Routes]],
    workers: int,
    observer: ListenerObserver | None = None,
    spans: SpanExporter | None = None,
) -> None:
    """Serve at all places, each with its servers, until the process is told to end. Certificates
    are read again when they change, and on SIGHUP.

    ``observer``: Knows the listeners, and does that for the places itself. ``spans``: What has the
    spans of requests; without ``observer`` the last ones leave at the end.
    """
    from wirespeed.transport.net.activation import HotRestart
    from wirespeed.transport.net.serve import run_together

    os.environ.pop(KEY_PASSWORD, None)  # not for tools and their child processes
    n = itertools.count(1)
    if observer is None and (spans or any(place.certificate for place, _ in places)):
        observer = _Observer([place for place, _ in places], spans)
    try:
        run_together(
            [place.with_services(found, lambda: next(n) == len(places)) for place, found in places],
            workers=workers,
            observer=observer,
            hot_restart=HotRestart([sys.executable, *sys.orig_argv[1:]], ENVIRON),
        )
    except ValueError as exc:
        raise usage(f"--on: {exc}") from None


class _Observer:
    """A `ListenerObserver` that reads certificates again, and lets the last spans leave."""

    def __init__(self, places: Sequence[ListenSpec], spans: SpanExporter | None) -> None:
        found = [place.certificate for place in places if place.certificate is not None]
        self._watch: FileWatch | None = None
        if found:
            self._watch = FileWatch(lambda: found[0].files, lambda: renew(found))
        self._spans = spans
        self._n = 0  # listeners

    drain_delay = 0.0

    def begin(self, group: object) -> None:
        """The watch begins with the first listener."""

    @contextlib.contextmanager
    def attend(self, group: object, number: int, listener: object) -> Iterator[None]:
        self._n += 1
        with self._watch.running() if self._watch else contextlib.nullcontext():
            yield
        self._n -= 1
        if self._n == 0 and self._spans is not None:
            from wirespeed.cli.observability import LAST_SPANS

            self._spans.force_flush(LAST_SPANS)


async def renew(certificates: Iterable[Certificate]) -> None:
    """Read certificates again, in a thread. One that cannot be used is logged, and the earlier one
    stays."""
    loop = asyncio.get_running_loop()
    for certificate in certificates:
        try:
            changed = certificate.use(await loop.run_in_executor(None, certificate.read))
        except (Failure, ValueError) as exc:
            logger.error("the certificate stays as it was: %s", exc)
        else:
            if changed:
                logger.info("the certificate was read again: %s", certificate.files[0])


def check_used(addresses: Sequence[Address], settings: Settings, secret: Secret | None) -> None:
    """Check that each option is for one of the URLs. Failure (2): one is for none."""
    schemes = ", ".join(f"{scheme}:" for scheme in dict.fromkeys(a.scheme for a in addresses))
    given = settings.given()
    if not any(address.has_paths for address in addresses):
        only = f"is for HTTP and WebSocket; {schemes} has no handshake that could check it"
        if secret is not None:
            if secret.from_option:
                raise usage(f"a token {only}")
            complain(f"{secret.source} {only}", level="warning")
        for option in ("--origin", "--host-name"):
            if option in given:
                raise usage(f"{option} {only}")
    if not any(address.secure for address in addresses):
        for option in ("--certfile", "--keyfile"):
            if option in given:
                raise usage(f"{option} is for https:// and wss://, not for {schemes}")
    if not any(address.is_http for address in addresses):
        for option in _OF_HTTP:
            if option in given:
                raise usage(f"{option} is for http:// and https://, not for {schemes}")


class ListenSpec:
    """The address and the options of a listener. They are checked before the user's file is
    imported.

    Args:
        options: These options and this certificate, in place of those of the command line.

    Failure (2 or 3): an option is wrong.
    """

    def __init__(
        self,
        url: str,
        settings: Settings,
        secret: Secret | None,
        options: tuple[ListenFields, Certificate | None] | None = None,
    ) -> None:
        self.address = parsed(url)
        self.url = url
        self.settings = settings
        self.scheme = self.address.scheme
        self.options: ListenFields = {}
        self.certificate: Certificate | None = None
        if options is not None:
            self.options, self.certificate = options
            return
        if settings.max_connections is not None:
            self.options["max_connections"] = settings.max_connections
        if self.has_paths:
            if secret is not None:
                self.options["token"] = secret.tokens
            if settings.origins:
                self.options["origins"] = settings.origins
            if settings.hosts:
                self.options["hosts"] = settings.hosts
        if self.address.secure:
            self.certificate = self._certificate()
            self.options["ssl"] = self.certificate.context
        if self.address.is_http:
            self.options["http"] = self._http()

    @property
    def has_paths(self) -> bool:
        """Whether several servers can share the address, each with a path of its own."""
        return self.address.has_paths

    def with_services(
        self, found: Service | Routes, is_last: Callable[[], bool] = lambda: False
    ) -> Place:
        """The services, options and announcement of this place. ``is_last``: Returns whether all
        others are announced."""
        return self.url, found, lambda urls: self._announce(found, urls, is_last()), self.options

    def _http(self) -> HttpOptions:
        from wirespeed import HttpOptions
        from wirespeed.transport.http.options import check_host_url, check_name
        from wirespeed.transport.http.server_card import card_host

        settings = self.settings
        for option, check, value in (
            ("--name", check_name, settings.name),
            ("--card", card_host, settings.card),
            ("--host-url", check_host_url, settings.host_url),
        ):
            try:
                if value is not None:
                    check(value)
            except ValueError as exc:
                raise usage(f"{option}: {exc}") from None
        try:
            return HttpOptions(
                name=settings.name,
                stateless=settings.stateless,
                access_log=settings.access_log,
                trusted_proxies=settings.trusted_proxies,
                card=settings.card,
                host_url=settings.host_url,
                drain_delay=settings.drain_delay,
            )
        except ValueError as exc:
            raise usage(f"--trusted-proxy: {exc}") from None

    def _announce(self, found: Service | Routes, urls: Sequence[str], is_last: bool) -> None:
        """Print the address, with the last one how to end the server, and warn about an unencrypted
        token."""
        n = self.settings.workers
        workers = f" with {n} workers" if n > 1 else ""
        services = list(found.values()) if isinstance(found, dict) else [found]
        for service, url in zip(services, urls, strict=True):
            end = "; Ctrl-C ends it" if is_last and url == urls[-1] else ""
            complain(f"serving {title(service)}{workers} on {url}{end}", level="note")
        if self.address.file or is_loopback(self.address.host):
            return
        if "token" in self.options and not self.address.secure:
            plain, secure = f"{self.scheme}://", f"{self.scheme}s://"
            complain(
                f"{plain} is not encrypted, and neither is the token: use {secure}", level="warning"
            )

    # -- TLS ---------------------------------------------------------------------------------------

    def _certificate(self) -> Certificate:
        from wirespeed.transport.net.tls import Certificate

        certfile, keyfile = self.settings.certfile, self.settings.keyfile
        if certfile is None:
            raise usage(
                f"{self.scheme}:// needs --certfile FILE, and --keyfile FILE unless both are in one"
            )
        for path in filter(None, (certfile, keyfile)):
            check_file(path)
        try:
            return Certificate(certfile, keyfile, key_password, option="--keyfile FILE")
        except ValueError as exc:
            raise cannot_start(str(exc)) from None


def key_password(path: str) -> str:
    """Return the password of a key. Failure (3): nobody knows it."""
    password = ENVIRON.get(KEY_PASSWORD)
    if password is not None:
        return password
    if not sys.stdin.isatty():
        raise cannot_start(
            f"the key {path} is encrypted, and its password is not in {KEY_PASSWORD}"
        )
    import getpass

    return getpass.getpass(f"Password of {path}: ")

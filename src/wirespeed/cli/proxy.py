"""``wirespeed proxy``: many clients on the server that a command starts, or on those of a file."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.cli import credentials
from wirespeed.cli.failures import Exit, Failure, complain, usage
from wirespeed.cli.log_lines import set_up_log, show_access_log
from wirespeed.cli.observability import LAST_SPANS, traced
from wirespeed.cli.serve import (
    ListenSpec,
    Settings,
    key_password,
    places_of,
    renew,
    serve_at,
)
from wirespeed.errors import ConfigError, WirespeedError
from wirespeed.proxy.config import ListenConfig
from wirespeed.transport.signals import FileWatch

if TYPE_CHECKING:
    from wirespeed.cli.observability import SpanExporter
    from wirespeed.client.results.features import ToolInfo
    from wirespeed.proxy import Proxy
    from wirespeed.proxy.backend_config import BackendConfig, Isolation
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.transport.net.group import ListenerGroup
    from wirespeed.transport.net.listener import Listener
    from wirespeed.transport.net.serve import Place
    from wirespeed.transport.net.tls import Certificate
    from wirespeed.transport.options import ListenFields


TOKEN = "WIRESPEED_ADMIN_TOKEN"

logger = logging.getLogger("wirespeed.proxy")


def run_proxy(
    command: list[str] | None,
    urls: tuple[str, ...],
    *,
    file: str | None,
    check: bool,
    catalog: bool = False,
    isolation: Isolation | None,
    admin: str | None,
    admin_token_file: str | None,
    tracing: bool,
    settings: Settings,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve until the client leaves, or the process is told to end.

    ``file``: The configuration, in place of ``command``. ``check``: only check it. ``catalog``:
    and print the size of its lists of tools. ``admin``: the URL of the admin listener.
    ``tracing``: make spans, whether the file asks for them or not.
    Failure (2 or 3), ConfigError: the command line or the file is wrong, or the server cannot be
    started.
    """
    from wirespeed.proxy import Proxy

    set_up_log(log_level, log_format)
    if catalog and not check:
        raise usage("--catalog goes with --check")
    for variable in (credentials.ENVIRONMENT, credentials.CLUSTER, TOKEN):
        credentials.taken(variable)  # servers must not inherit it, whether it is used or not

    name, settings = settings.name, replace(settings, name=None)  # also for what is not HTTP

    def admin_token() -> str | None:
        return credentials.one_line(admin_token_file, "--admin-token-file", TOKEN)

    proxy: Proxy | None = None
    checking = _Check(file) if check and file is not None else None

    def on_fault(name: str, fault: ConfigError) -> BackendConfig | None:
        """A server whose entry has a fault stays as it was, if it was there."""
        if checking is not None:
            checking.found(name, str(fault))
            return None
        before = () if proxy is None else proxy.config.backends
        kept = next((one for one in before if one.name == name), None)
        then = "is left out" if kept is None else "stays as it was"
        logger.error("%s; the server %s %s", fault, name, then)
        return kept

    def load() -> ProxyConfig:
        on_missing = None if checking is None else checking.found
        found = _config(command, file, isolation, check, on_fault, on_missing)
        try:
            found = replace(found, listen=urls) if urls else found
        except ValueError as exc:
            raise usage(f"--listen: {exc}") from None
        if name is not None:
            try:
                found = replace(found, name=name)
            except ValueError as exc:
                raise usage(f"--name: {exc}") from None
        found = replace(found, tracing=found.tracing or tracing)
        return _with_admin(found, admin, admin_token, admin_token_file)

    of_file = file is not None and not urls
    option = f"{file}: proxy.listen" if of_file else "--listen"
    trace_option = "--tracing" if tracing else f"{file}: proxy.tracing"
    observer = _Observer(file, load)  # notes the state of the file
    guard = contextlib.nullcontext if checking is None else checking.guard
    with guard():
        config = load()
        try:
            proxy = Proxy(config)
            if not config.listen:
                proxy.check_stdio()
        except ValueError as exc:
            raise ConfigError(f"{file}: {exc}") from None
    if proxy is None:
        assert checking is not None
        return checking.end(())
    configured: list[tuple[str, tuple[ListenFields, Certificate | None]]] = []
    for i, one in enumerate(config.listen):
        with guard():
            if isinstance(one, str):
                _routes(proxy, one, f"{option}[{i}]" if of_file else option)
            else:
                configured.append((one.url, _options(f"{option}[{i}]", proxy, one)))
    if checking is not None and config.tracing:
        with guard():
            _traced(trace_option, proxy)
    if checking is not None and checking.faults:
        return checking.end(config.backends)
    plain = tuple(one for one in config.listen if isinstance(one, str))
    places = places_of(plain, settings, option) if plain or not configured else []
    if checking is not None:
        if catalog:
            from wirespeed.transport.loop import run

            for line in run(_catalog(config, checking)):
                complain(line, level="note")
        return checking.end(config.backends)
    observer.serves(proxy, places, _traced(trace_option, proxy) if config.tracing else None)
    if places or configured:
        for form in {one.access_log for one in config.listeners if one.access_log is not None}:
            show_access_log(form)
        places += [ListenSpec(url, settings, None, one) for url, one in configured]
        proxy.listening.expect(place.url for place in places)
        found: list[Any] = []
        for place in places:
            place.url, routes = _routes(proxy, place.url, option)
            place.options = proxy.listen_fields(place.url, place.options)
            found.append((place, routes))

        def place_of(listen: ListenConfig, url: str, routes: Any) -> Place:
            if listen == ListenConfig(url=listen.url):
                try:
                    (place,) = places_of((url,), settings, option)
                except Failure as exc:
                    raise ConfigError(str(exc)) from None
            else:
                place = ListenSpec(url, settings, None, _options(listen.url, proxy, listen))
            place.options = proxy.listen_fields(listen.url, place.options)
            places.append(place)
            return place.with_services(routes)

        proxy.listening.place = place_of
        if config.admin is not None:
            place = ListenSpec(config.admin.listen, Settings(), None)
            place.options |= proxy.admin_fields
            found.append((place, proxy.admin))
        serve_at(found, settings.workers, observer)
    else:
        from wirespeed.transport.loop import run

        run(observer.serve())
    return 0


async def _catalog(config: ProxyConfig, checking: _Check) -> list[str]:
    """Start the servers, and return the sizes of their lists of tools, a line each. A server that
    does not list its tools is a fault."""
    from wirespeed import Client
    from wirespeed.proxy.merge.lists import ShownNames
    from wirespeed.tool_search import tokens_of

    lines: list[str] = []
    sizes: dict[str, int] = {}
    several = len(config.backends) > 1
    for one in config.backends:
        if one.protocol != "mcp":
            continue
        if one.identity is not None:
            lines.append(f"{one.name}: not counted, as each principal has a list of its own")
            continue
        names = ShownNames(one)
        try:
            async with Client(one.target, handshake_timeout=one.start_timeout) as client:
                tools = await client.list_tools()
        except WirespeedError as exc:
            why = str(exc).partition("\n")[0]
            checking.found(one.name, f"{one.name}: its tools cannot be listed: {why}")
            continue
        found = {}
        for tool in tools:
            shown = names.shown("tools", tool.name)
            if shown is not None:
                name = shown if several else tool.name
                entry = {"description": one.tools.describe.get(tool.name, tool.description)}
                found[name] = _size_of(tool, name=name, **entry)
        lines.append(_takes(one.name, len(found), sum(found.values())))
        sizes |= found
    if several:
        lines.append(_takes("all servers", len(sizes), sum(sizes.values())))
    if (search := config.tool_search) is not None:
        own = sum(len(msgspec.json.encode(entry)) for entry in search.entries())
        shown_sizes = [size for name, size in sizes.items() if search.shows(name)]
        tokens = tokens_of(own + sum(shown_sizes))
        lines.append(f"with toolSearch: {2 + len(shown_sizes)} tools, about {tokens:,} tokens")
    return lines


def _size_of(tool: ToolInfo, **changed: Any) -> int:
    """The bytes of a tool in a list, with other members."""
    entry = {**msgspec.to_builtins(tool), **changed}
    return len(msgspec.json.encode({k: v for k, v in entry.items() if v is not None}))


def _takes(name: str, n: int, n_bytes: int) -> str:
    from wirespeed.tool_search import tokens_of

    return f"{name}: {n} tool{'s' * (n != 1)}, about {tokens_of(n_bytes):,} tokens in a list"


class _Check:
    """The findings of ``--check``.

    Args:
        file: The file.

    Attributes:
        faults: What is wrong, each with its place.
    """

    def __init__(self, file: str) -> None:
        self.faults: list[str] = []
        self._file = file
        self._servers: set[str] = set()  # that cannot be used

    def found(self, server: str | None, fault: str) -> None:
        """Something is wrong with a server, or with what holds for all (None)."""
        if fault not in self.faults:
            self.faults.append(fault)
        if server is not None:
            self._servers.add(server)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Find a ConfigError, which goes no further."""
        try:
            yield
        except ConfigError as exc:
            self.found(None, str(exc))

    def end(self, servers: Iterable[BackendConfig]) -> int:
        """Write what was found, and which servers can be used. Returns the exit code."""
        for fault in self.faults:
            complain(fault)
        usable = [one.name for one in servers if one.name not in self._servers]
        n = len(usable)
        if not self.faults:
            complain(f"{self._file} is valid: {n} server{'s' * (n > 1)}", level="note")
            return Exit.OK
        names = ", ".join(usable) or "none"
        complain(f"servers of {self._file} that can be used: {names}", level="note")
        return Exit.UNREACHABLE


class _Observer:
    """Reads the file of a proxy again when it changes, and on SIGHUP, and certificates with it.

    Args:
        file: The file, if there is one.
        load: Reads it.
    """

    def __init__(self, file: str | None, load: Callable[[], ProxyConfig]) -> None:
        self._file = file
        self._folder: str | None = None  # with files of servers
        self._load = load
        self._places: list[ListenSpec] = []
        self._traces: SpanExporter | None = None
        self._n = 0  # listeners
        self._watch = FileWatch(self._files, self._read)
        self._proxy: Proxy

    def serves(self, proxy: Proxy, places: list[ListenSpec], traces: SpanExporter | None) -> None:
        """Take what is served at which places. ``traces``: The provider of its spans."""
        self._proxy, self._places, self._traces = proxy, places, traces
        proxy.source = self._file
        self._adopt(proxy.config)

    def _adopt(self, config: ProxyConfig) -> None:
        """Watch what a configuration says."""
        self._watch.polls = config.watch
        if self._file is not None:
            self._folder = config.servers_folder
        self._watch.notice()

    def _files(self) -> list[str]:
        own = [] if self._file is None else [self._file]
        if self._folder is not None:
            from wirespeed.proxy.file import files_in

            own.append(self._folder)  # it changes when a file comes or goes
            with contextlib.suppress(OSError):
                own += files_in(self._folder)
        return [*own, *(file for one in self._certificates() for file in one.files)]

    def _certificates(self) -> list[Certificate]:
        return [one.certificate for one in self._places if one.certificate is not None]

    async def _read(self) -> None:
        self._proxy.reopen_logs()
        if certificates := self._certificates():
            await renew(certificates)
        if self._file is None:
            if not certificates:
                logger.warning("SIGHUP: there is no file to read again; --config FILE names one")
            return
        await self._proxy.reload_from(self._load)
        self._adopt(self._proxy.config)

    @property
    def drain_delay(self) -> float:
        """As of a `ListenerObserver`."""
        return self._proxy.listening.drain_delay

    def begin(self, group: ListenerGroup) -> None:
        """As a `ListenerObserver`."""
        self._proxy.listening.begin(group)

    @contextlib.contextmanager
    def attend(self, group: ListenerGroup, number: int, listener: Listener) -> Iterator[None]:
        """As a `ListenerObserver`."""
        self._n += 1
        with self._proxy.listening.attend(group, number, listener), self._watch.running():
            yield
        self._n -= 1
        if self._n == 0 and self._traces is not None:
            self._traces.force_flush(LAST_SPANS)
        ended = listener.options.ssl
        self._places[:] = [
            one
            for one in self._places
            if one.certificate is None or one.certificate.context is not ended
        ]

    async def serve(self) -> None:
        """Serve on stdio."""
        with self._watch.running():
            await self._proxy.serve()
        if self._traces is not None:
            self._traces.force_flush(LAST_SPANS)


def _traced(place: str, proxy: Proxy) -> SpanExporter:
    """Trace a proxy as the environment says. Returns the provider of the spans. ``place``: the key
    of the file, or the option, that asks for traces."""

    def instrument(otel: Any, provider: Any) -> None:
        otel.instrument(proxy, tracer_provider=provider)

    return traced(place, "wirespeed-proxy", proxy.name, instrument)


def _options(
    place: str, proxy: Proxy, listen: ListenConfig
) -> tuple[ListenFields, Certificate | None]:
    """The options of a listener of the file, and its certificate. ConfigError: they are wrong."""
    from wirespeed.proxy.listening import options_of
    from wirespeed.transport.net.serve import plan

    try:
        options, certificate = options_of(listen, key_password)
        plan(*proxy.routes(listen.url), None, options)
    except (TypeError, ValueError) as exc:
        text = re.sub(r"\b[a-z]+(_[a-z]+)+\b", lambda name: _key(name[0]), str(exc))
        raise ConfigError(f"{place}: {text}") from None
    return options, certificate


def _key(name: str) -> str:
    """Return the name of a listener's field in the file. Other words stay as they are."""
    if name not in ListenConfig.__dataclass_fields__:
        return name
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


def _config(
    command: list[str] | None,
    file: str | None,
    isolation: Isolation | None,
    check: bool,
    on_fault: Callable[[str, ConfigError], BackendConfig | None],
    on_missing: Callable[[str | None, str], None] | None,
) -> ProxyConfig:
    from wirespeed import Stdio
    from wirespeed.proxy import BackendConfig, ProxyConfig

    if file is not None:
        if command:
            raise usage("give either --config FILE or a command after --")
        if isolation is not None:
            raise usage("--isolation is for a command; in a file it is a key of each server")
        from wirespeed.proxy.file import load

        return load(file, credentials.ENVIRON, on_fault=on_fault, on_missing=on_missing)
    if check:
        raise usage("--check needs --config FILE")
    if not command:
        raise usage("give the command of the server after --, or --config FILE")
    target = Stdio(command[0], command[1:], inherit_env=True)
    backend = BackendConfig(target=target, name=_name(command[0]), isolation=isolation or "auto")
    return ProxyConfig(backends=(backend,), listen=())


def _with_admin(
    config: ProxyConfig, url: str | None, token: Callable[[], str | None], token_file: str | None
) -> ProxyConfig:
    """The configuration with what the command line says of the admin listener."""
    from wirespeed.proxy import AdminConfig

    if url is None and config.admin is None:
        if token_file is not None:
            raise usage("--admin-token-file needs --admin URL")
        return config
    admin = config.admin or AdminConfig()
    try:
        made = AdminConfig(listen=url or admin.listen, token=token() or admin.token)
        return replace(config, admin=made)
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

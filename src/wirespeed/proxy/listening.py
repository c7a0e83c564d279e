"""The listeners of a proxy, and what becomes of them when the configuration changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from wirespeed.errors import ConfigError
from wirespeed.proxy.config import ListenConfig
from wirespeed.transport.address import parse
from wirespeed.transport.http.options import HttpOptions
from wirespeed.transport.options import ListenOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.proxy.lite import LiteFront
    from wirespeed.proxy.service import ProxyService
    from wirespeed.transport.address import Address
    from wirespeed.transport.net.group import ListenerGroup, ListenPlan
    from wirespeed.transport.net.listener import Listener
    from wirespeed.transport.net.serve import Place
    from wirespeed.transport.net.tls import Certificate, ServerContext
    from wirespeed.transport.options import ListenFields

# Fields of the same names.
_SAME, _SAME_OF_HTTP = (
    [name for name in ListenConfig.__dataclass_fields__ if name in options.__struct_fields__]
    for options in (ListenOptions, HttpOptions)
)
_OF_HTTP = (
    *("response", "trusted_proxies", "sse_path"),
    *("session_idle", "access_log_sample", "card"),
)


def options_of(
    listen: ListenConfig, password: Callable[[str], str] | None = None
) -> tuple[ListenFields, Certificate | None]:
    """Return the options of a listener, and its certificate as the files are now, if it has one.

    ``password``: Returns that of an encrypted key, by the path of the key.

    Raises:
        ValueError: The URL, an option or a file is wrong.
    """
    address = parse(listen.url)
    given = {name: getattr(listen, name) for name in _SAME}
    fields = cast("ListenFields", {name: one for name, one in given.items() if one is not None})
    certificate: Certificate | None = None
    if listen.tokens:
        fields["token"] = listen.tokens
    if address.is_http:
        http = {name: getattr(listen, name) for name in _SAME_OF_HTTP}
        if listen.session_idle is not None:
            http["session_ttl"] = listen.session_idle
        fields["http"] = HttpOptions(**http)
    else:
        for name in _OF_HTTP:
            if getattr(listen, name) != ListenConfig.__dataclass_fields__[name].default:
                only = "is for http:// and https:// only"
                raise ValueError(f"{name} {only}, not for {address.scheme}:")
    if listen.certfile is not None:
        from wirespeed.transport.net.tls import Certificate

        if not address.secure:
            raise ValueError(f"certfile is for https:// and wss:// only, not for {address.scheme}:")
        certificate = Certificate(listen.certfile, listen.keyfile, password)
        fields["ssl"] = certificate.context
    elif listen.keyfile is not None:
        raise ValueError("keyfile needs certfile")
    return fields, certificate


logger = logging.getLogger("wirespeed.proxy")

Routes: TypeAlias = "dict[str, ProxyService | LiteFront]"


def routes(
    url: str,
    backends: Iterable[BackendConfig],
    services: Mapping[str, ProxyService],
    whole: ProxyService,
) -> tuple[str, Routes]:
    """Return a URL to listen at without its path, and what is served there by path. ``services``:
    those of the servers that are there. ``whole``: all servers as one. ValueError: the URL is
    wrong."""
    address = parse(url)
    found: Routes = {}
    if not address.has_paths or address.path != "/" or whole.config is not None:
        found[address.path if address.has_paths else "/"] = whole
    if address.has_paths:
        address = msgspec.structs.replace(address, path="/")
        found |= {f"/servers/{name}": service for name, service in services.items()}
        for one in backends:
            if one.name in services:
                for tool, path in one.lite_paths.items():
                    found[path] = services[one.name].lite(tool)
    return str(address), found


def shared_at(config: ProxyConfig) -> str | None:
    """Return the first listener over HTTP, without its path: other hosts reach its sessions. None:
    there is none."""
    for one in config.listeners:
        with contextlib.suppress(ValueError):  # whoever listens there says why
            if parse(one.url).is_http:
                return base_of(one.url)
    return None


@dataclass
class Moves:
    """The changes of listeners.

    Attributes:
        stay: What those serve that stay, by number.
        end: The others.
        begin: New ones.
        refusal: Why some URLs stay as they are; None: all change.
    """

    stay: dict[int, Routes] = field(default_factory=dict)
    end: list[int] = field(default_factory=list)
    begin: list[tuple[str, ListenPlan]] = field(default_factory=list)
    refusal: str | None = None


class ProxyListeners:
    """A `wirespeed.transport.net.group.ListenerObserver`.

    Args:
        delay: Returns `drain_delay`.

    Attributes:
        place: Makes the `Place` of a listener that is added, of the listener, its URL without
            the path, and what is served there.
    """

    def __init__(self, delay: Callable[[], float] = lambda: 0.0) -> None:
        self._delay = delay
        self.place: Callable[[ListenConfig, str, Routes], Place] = _place
        self._places: dict[int, str] = {}  # URLs by the number of the listener
        self._open: dict[int, tuple[ListenerGroup, Listener]] = {}
        self._group: ListenerGroup | None = None
        self._kept: set[asyncio.Task[None]] = set()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Cancel a task when the last listener has ended, if it goes on so long."""
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def certificates(self) -> list[tuple[str, Certificate]]:
        """The certificates of the listeners that are open, and their URLs."""
        return [
            (self._places[number], context.certificate)
            for number, (_, listener) in self._open.items()
            if (context := cast("ServerContext | None", listener.options.ssl)) is not None
        ]

    @property
    def draining(self) -> bool:
        """Whether they were told to end."""
        return self._group is not None and self._group.together.draining

    @property
    def drain_delay(self) -> float:
        """Seconds for which they serve as before when the process is told to end."""
        return self._delay()

    def expect(self, urls: Iterable[str]) -> None:
        """Take the URLs of the listeners, in the order in which they are started."""
        self._places = dict(enumerate(urls))

    def begin(self, group: ListenerGroup) -> None:
        """Listeners start."""
        self._group = group

    async def settled(self) -> None:
        """Wait until each listener of the start is open, or they have ended. Before that, no change
        would reach those that open later. Returns at once if they do not serve."""
        if self._group is not None:
            await self._group.settled()

    @contextlib.contextmanager
    def attend(self, group: ListenerGroup, number: int, listener: Listener) -> Iterator[None]:
        """Know a listener while it serves. That of the admin is none of them."""
        if number not in self._places:
            yield
            return
        self._open[number] = group, listener
        try:
            yield
        finally:
            del self._open[number]
            if not self._open:
                for task in self._kept:
                    task.cancel()

    def plan(self, listeners: list[tuple[ListenConfig, str, Routes]]) -> Moves:
        """Return what becomes of the listeners. ``listeners``: those that there are to be, their
        URLs without a path, and what is served there.

        Raises:
            ConfigError: An option does not fit.
            TransportError: A URL cannot be listened at.
        """
        from wirespeed.transport.net.serve import plan, planned
        from wirespeed.transport.net.sockets import listen, resolve

        moves = Moves()
        if not self._open:
            return moves
        wanted = {base: found for _, base, found in listeners}
        bases = {number: base_of(self._places[number]) for number in self._open}
        new = [one for one in listeners if one[1] not in bases.values()]
        try:
            for number, base in bases.items():
                if base in wanted:
                    plan(base, wanted[base], self._open[number][1].options, {})
                    moves.stay[number] = wanted[base]
                else:
                    moves.end.append(number)
            plans = planned([self.place(*one) for one in new])
        except ValueError as exc:
            raise ConfigError(str(exc)) from None
        group = next(iter(self._open.values()))[0]
        if (new and not group.may_grow) or not wanted:
            moves.end.clear()
            moves.refusal = "the URLs to listen at change at a restart only"
            return moves
        freed = {_place_of(self._open[number][1].address) for number in moves.end}
        for (_, base, _), one in zip(new, plans, strict=True):
            if _place_of(one.address) not in freed or not _place_of(one.address):
                with listen(one.address, resolve(one.address), one.options):
                    moves.begin.append((base, one))
            else:
                moves.begin.append((base, one))
        return moves

    async def change(self, moves: Moves) -> None:
        """Let the listeners do as planned."""
        for number, found in moves.stay.items():
            if number in self._open:
                await self._open[number][1].replace(found)
        if not self._open or not (moves.end or moves.begin):
            return
        group = next(iter(self._open.values()))[0]
        for number in moves.end:
            if number in self._open:
                self._open[number][1].drain()
        for base, plan in moves.begin:
            number = max(self._places) + 1
            self._places[number] = base
            listens: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            task = group.add(_telling(plan, listens), number)
            await asyncio.wait((task, listens), return_when=asyncio.FIRST_COMPLETED)
            if task.done() and (error := task.exception()) is not None:
                logger.error("%s", error)


def _place(listen: ListenConfig, url: str, found: Routes) -> Place:
    return url, found, None, options_of(listen)[0]


def _place_of(address: Address) -> str | int:
    return address.file or address.port


def base_of(url: str) -> str:
    """Return a URL to listen at without its path."""
    address = parse(url)
    return str(msgspec.structs.replace(address, path="/") if address.has_paths else address)


def _telling(plan: ListenPlan, listens: asyncio.Future[Any]) -> ListenPlan:
    def on_listening(urls: tuple[str, ...]) -> None:
        if plan.on_listening is not None:
            plan.on_listening(urls)
        listens.set_result(urls)

    return plan._replace(on_listening=on_listening)

"""The lists of the servers of a `ClientGroup` as one, the owners of entries, and the callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec

from wirespeed.client.client import Client
from wirespeed.errors import WirespeedError
from wirespeed.merging import KINDS, Kind, PrefixedNames, merge_entries, owner_of

logger = logging.getLogger("wirespeed.client")

TOOLS, PROMPTS = KINDS["tools/list"], KINDS["prompts/list"]
RESOURCES, TEMPLATES = KINDS["resources/list"], KINDS["resources/templates/list"]

# The attribute of an entry's key.
_KEYS = {TOOLS: "name", PROMPTS: "name", RESOURCES: "uri", TEMPLATES: "uri_template"}

# The callback of a client for changes of a kind.
CHANGES = {
    "on_tools_changed": TOOLS,
    "on_prompts_changed": PROMPTS,
    "on_resources_changed": RESOURCES,
}
# The calls of callbacks that this task runs in.
_calls: ContextVar[tuple[object, ...]] = ContextVar("calls", default=())

# Asks a server for its list of a kind, with the options of a request.
Ask = Callable[[Kind, Client, Mapping[str, Any]], Awaitable[list[Any]]]


class MergedLists:
    """The lists of the servers, merged in the order of the servers.

    Args:
        prefixes: The prefix of each server's tools and prompts, by the server's name.
        ask: Asks a server.
    """

    def __init__(self, prefixes: Mapping[str, str], ask: Ask) -> None:
        self._ask = ask
        self._names = {name: PrefixedNames(prefix) for name, prefix in prefixes.items()}
        self._listed: dict[Kind, dict[str, list[Any]]] = {kind: {} for kind in _KEYS}
        self._owners: dict[Kind, dict[str, str]] = {}

    @property
    def prefixes(self) -> list[str]:
        return [names.prefix for names in self._names.values()]

    async def ask(
        self, kind: Kind, clients: Mapping[str, Client], options: Mapping[str, Any]
    ) -> list[Any]:
        """Ask the servers, and return the merged list. A server that fails is left out, which is
        logged. If all fail, the error of the first is raised."""
        listed = self._listed[kind]
        errors: dict[str, WirespeedError] = {}

        async def one(name: str, client: Client) -> None:
            try:
                listed[name] = await self._ask(kind, client, options)
            except WirespeedError as exc:
                listed.pop(name, None)
                errors[name] = exc

        await together(one(name, client) for name, client in clients.items())
        failed = {name: errors[name] for name in clients if name in errors}
        if len(failed) == len(clients):
            raise next(iter(failed.values()))
        for name, exc in failed.items():
            self._missing(kind, name, exc)
        return self._merge(kind)

    async def complete(
        self, kind: Kind, clients: Mapping[str, Client], changed: Mapping[str, list[Any]]
    ) -> list[Any]:
        """Return the merged list with changed lists of servers. Those that have not listed yet are
        asked."""
        listed = self._listed[kind]
        listed.update(changed)
        for name, client in clients.items():
            if name not in listed:
                try:
                    listed[name] = await self._ask(kind, client, {})
                except WirespeedError as exc:
                    self._missing(kind, name, exc)
        return self._merge(kind)

    def holders(self, kind: Kind, shown: str) -> dict[str, str]:
        """Return the servers that may have a tool or prompt, by its prefix; and its name at
        each."""
        return {
            server: real
            for server, names in self._names.items()
            if (real := names.real(kind.name, shown)) is not None
        }

    def owner(self, kind: Kind, key: str) -> str | None:
        """Return the server whose entry is listed under a name or URI."""
        return self._owners.get(kind, {}).get(key)

    def longest_prefix(self, servers: Iterable[str]) -> str:
        """Return the server with the longest prefix of a name, among some servers."""
        return max(servers, key=lambda server: len(self._names[server].prefix))

    def resource_owner(self, uri: str) -> str | None:
        """Return the server that lists a resource, or a template that fits. None: no server does,
        or there is no list yet."""
        return owner_of(uri, self._owners.get(RESOURCES), self._owners.get(TEMPLATES))

    def _merge(self, kind: Kind) -> list[Any]:
        key = _KEYS[kind]
        listed = self._listed[kind]

        def seen() -> Iterable[tuple[str, str, Any]]:
            for server, names in self._names.items():
                for entry in listed.get(server, ()):
                    if key != "name":
                        yield server, getattr(entry, key), entry
                        continue
                    shown = names.shown(kind.name, entry.name)
                    assert shown is not None
                    yield server, shown, msgspec.structs.replace(entry, name=shown)

        entries, self._owners[kind], _ = merge_entries(kind.name, seen(), logger)
        return list(entries.values())

    def _missing(self, kind: Kind, server: str, exc: Exception) -> None:
        logger.warning("the %s of %s are missing: %s", kind.name, server, first_line(exc))


class ListCallbacks:
    """The callbacks for changed lists, which get merged lists. Those of one kind are called one
    after the other.

    Args:
        callbacks: The callback of each kind that has one.
        lists: The merged lists.
        opened: Returns the clients that have agreed with their servers, by name.
    """

    def __init__(
        self,
        callbacks: Mapping[Kind, Callable[[list[Any]], Any]],
        lists: MergedLists,
        opened: Callable[[], Mapping[str, Client]],
    ) -> None:
        self._callbacks = callbacks
        self._lists = lists
        self._opened = opened
        self._telling = {kind: asyncio.Lock() for kind in callbacks}
        self._calls: dict[Kind, object] = {}  # that run

    async def changed(self, kind: Kind, name: str, entries: list[Any] | None = None) -> None:
        """Tell the callback of a list about a change at one server. None: the server came later."""
        if self._calls.get(kind) in _calls.get():  # called by the callback, which waits for this
            await self._tell(kind, name, entries)
            return
        async with self._telling[kind]:
            call = self._calls[kind] = object()
            token = _calls.set((*_calls.get(), call))
            try:
                await self._tell(kind, name, entries)
            finally:
                _calls.reset(token)
                del self._calls[kind]

    async def came_late(self, name: str) -> None:
        """Tell all callbacks about a server that could not be opened at first."""
        for kind in self._callbacks:
            try:
                await self.changed(kind, name)
            except Exception:
                logger.exception("the callback for changed %s failed", kind.name)

    async def _tell(self, kind: Kind, name: str, entries: list[Any] | None) -> None:
        changed = {} if entries is None else {name: entries}
        merged = await self._lists.complete(kind, self._opened(), changed)
        told = self._callbacks[kind](merged)
        if isinstance(told, Awaitable):
            await told


async def together(work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Wait for all; the first error is raised when the others have ended."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        for one in tasks:
            await asyncio.wait((one,))
    except BaseException:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    for one in tasks:
        one.result()


def first_line(exc: Exception) -> str:
    """Return the first line of an error's text, or its class."""
    return str(exc).partition("\n")[0] or type(exc).__name__

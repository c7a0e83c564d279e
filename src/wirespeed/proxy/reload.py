"""A proxy with another configuration: what differs, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import WirespeedError

if TYPE_CHECKING:
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.config import ProxyConfig
    from wirespeed.proxy.service import ProxyService

logger = logging.getLogger("wirespeed.proxy")

# What concerns the endpoint of all servers and the paths only: no process and no session of a
# server.
SHOWN = frozenset({"prefix", "tools", "lite", "required", "tool_search", "hooks", "skills"})
# What holds from the next connection of a client on, or at once.
LIVE = frozenset(
    {
        *("backends", "servers_folder", "listen", "limits", "shutdown_grace", "drain_delay"),
        *(
            "page_size",
            "watch",
            "ready_within",
            "rate",
            "quotas",
            "principals",
            "auth",
            "tool_search",
        ),
        *("approvals", "extensions"),
    }
)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The differences between two configurations of a proxy.

    Attributes:
        added, removed: Servers, by name.
        changed: Servers that are started anew.
        shown: Servers that are the same, but their tools or names are shown otherwise.
        addressed: Servers that are the same, and have other URLs, weights or percentages.
        listening, closed: URLs.
        settings: What else changes, by its name in `ProxyConfig`.
        pending: What needs a restart, as sentences.
        kept: Changed servers of which the earlier one goes on, because the new one cannot be
            started. It is tried again, and takes its place when it is ready.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    addressed: tuple[str, ...] = ()
    listening: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        """Return what has changed, in one line."""
        parts = [
            f"{field.name}: {', '.join(found)}"
            for field in fields(self)
            if field.name not in ("pending", "kept") and (found := getattr(self, field.name))
        ]
        return "; ".join(parts) or "nothing has changed"


@dataclass
class Reloads:
    """The results of reloads.

    Attributes:
        ok: How many succeeded.
        failed: How many failed, most of them because of a fault in the configuration.
        last: When the last one ended, in Unix seconds; None before the first.
        error: The fault of the last one; None if it succeeded.
    """

    ok: int = 0
    failed: int = 0
    last: float | None = None
    error: str | None = None

    def count(self, error: Exception | None) -> None:
        """Count a reload that has ended. ``error``: what it failed with; None: it succeeded."""
        self.ok += error is None
        self.failed += error is not None
        self.last = time.time()
        self.error = None if error is None else str(error) or type(error).__name__


class IncomingServer:
    """A server that is started, until it takes its place.

    Args:
        service: Its service.
        replace: Lets it take the place.
        replaces: Whether another one has the place. If not, the server takes it even if it cannot
            be started: nothing is lost.

    Attributes:
        started: Done when its first start has ended.
        is_ready: Whether it is to take the place now.
        tried: Done when the server has taken its place, or its first start has failed.
        error: Why it could not be started; "" as long as none of its starts has failed.
    """

    def __init__(
        self,
        service: ProxyService,
        replace: Callable[[IncomingServer], Awaitable[None]],
        replaces: bool,
    ) -> None:
        self.service = service
        self.error = ""
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        self.is_ready = False
        self.tried: asyncio.Future[None] = loop.create_future()
        self._replace = replace
        self._replaces = replaces
        self.task = asyncio.ensure_future(self._run())

    def end(self) -> None:
        """The server is not wanted any more."""
        self.task.cancel()

    async def _run(self) -> None:
        name = self.service.name
        try:
            try:
                await self.service.life.prove()
            except WirespeedError as exc:
                self.error = str(exc).partition("\n")[0]
            _done(self.started)
            if self.error and self._replaces:
                logger.error(
                    "%s: the changed server cannot be started, so the earlier one goes on: %s; "
                    "it is tried again",
                    name,
                    self.error,
                )
                _done(self.tried)
                await self.service.life.revived()
                logger.info("%s: the changed server was started, and takes its place", name)
            elif self.error:
                logger.warning("%s: %s", name, self.error)
            self.is_ready = True
            await self._replace(self)
        except WirespeedError as exc:
            logger.error("%s: %s", name, exc)
        finally:
            _done(self.started)
            _done(self.tried)
            await self.service.release(None)  # whoever serves it holds it now


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def compare(old: ProxyConfig, new: ProxyConfig) -> Changes:
    """Return what differs."""
    before = {one.name: one for one in old.backends}
    after = {one.name: one for one in new.backends}
    both = [name for name in after if name in before]
    changed = [name for name in both if not same_server(before[name], after[name])]
    here = {one.url: one for one in old.listeners}
    there = {one.url: one for one in new.listeners}
    settings = [field.name for field in fields(new) if field.name not in ("backends", "listen")]
    differ = [name for name in settings if getattr(old, name) != getattr(new, name)]
    return Changes(
        added=_not_in(after, before),
        removed=_not_in(before, after),
        changed=tuple(changed),
        shown=tuple(
            name
            for name in both
            if name not in changed and _differ(before[name], after[name]) & SHOWN
        ),
        addressed=tuple(
            name for name in both if name not in changed and before[name].urls != after[name].urls
        ),
        listening=_not_in(there, here),
        closed=_not_in(here, there),
        settings=tuple(name for name in differ if name in LIVE),
        pending=(
            *(f"{name} changes at a restart only" for name in differ if name not in LIVE),
            *(
                f"the options of {url} change at a restart only"
                for url, one in there.items()
                if url in here and here[url] != one
            ),
        ),
    )


def same_server(old: BackendConfig, new: BackendConfig) -> bool:
    """Whether the processes and sessions of a server can stay."""
    return _differ(old, new) <= SHOWN


def _differ(old: BackendConfig, new: BackendConfig) -> set[str]:
    """What differs, but for the addresses of a server that has several."""
    found = {
        field.name
        for field in fields(new)
        if not _same(getattr(old, field.name), getattr(new, field.name))
    }
    if old.urls and new.urls:
        before: Any = old.target
        after: Any = new.target
        found.discard("urls")
        if type(before) is type(after) and _same(
            before, msgspec.structs.replace(after, url=before.url, shown=before.shown)
        ):
            found.discard("target")
    return found


def _same(old: Any, new: Any) -> bool:
    """Whether two values mean the same. A file that is read again makes other objects of its
    ``auth``, with the tokens that they have got."""
    if old == new:
        return True
    if type(old) is not type(new):
        return False
    names = getattr(old, "__struct_fields__", ())
    if any(name != "auth" and getattr(old, name) != getattr(new, name) for name in names):
        return False
    one = getattr(getattr(old, "auth", None), "origin", None)
    return one is not None and one == getattr(getattr(new, "auth", None), "origin", None)


def _not_in(these: Iterable[str], those: Iterable[str]) -> tuple[str, ...]:
    known = set(those)
    return tuple(one for one in these if one not in known)


set_public_home(globals())

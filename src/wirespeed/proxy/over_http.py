"""The service of a proxy over HTTP: sessions of this host and of others, and the server card."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wirespeed.peer.service import HttpService
from wirespeed.proxy.own_requests import own_info

if TYPE_CHECKING:
    from wirespeed.peer.http.endpoint import StreamableHttp
    from wirespeed.peer.http.http_session import HttpSession
    from wirespeed.peer.http.sessions import Sessions
    from wirespeed.proxy.access.principals import ProxyAuthority
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.hosts.client_state import ClientState
    from wirespeed.proxy.hosts.stores import ProxyStores
    from wirespeed.proxy.identity.logins import Logins
    from wirespeed.proxy.isolation.assignment import Assignment
    from wirespeed.proxy.merge.merged import Merged
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.http.options import HttpOptions, SessionDirectory
    from wirespeed.transport.http.server_card import ServerIdentity
    from wirespeed.transport.taskpool import TaskPool


class ServedOverHttp(HttpService):
    """The base of `wirespeed.proxy.service.ProxyService`, which describes the fields."""

    name: str
    proxy_name: str | None
    config: BackendConfig | None
    assignment: Assignment
    auth: ProxyAuthority | None
    logins: Logins | None
    stores: ProxyStores | None
    is_alone: bool

    def __init__(self) -> None:
        self._over_http: list[StreamableHttp] = []

    def identity(self, guarded: bool) -> ServerIdentity | None:
        """The server as its card describes it, by the name that the proxy has for it and the
        version of the proxy. Where clients need a token, the names of servers are not told."""
        from wirespeed.transport.http.server_card import ServerIdentity

        if self.config is None:
            return ServerIdentity(
                own_info(), (*self.modern_versions[::-1], *self.legacy_versions[::-1])
            )
        if guarded and not self.is_alone:
            return None
        return ServerIdentity({**own_info(), "name": self.name}, ())

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """Return the targets of further paths, where it is served at ``path``."""
        found = {} if self.auth is None else dict(self.auth.well_known(path))
        return found if self.logins is None else {**found, **self.logins.targets()}

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """Return what answers HTTP requests. ValueError: an option is not for the proxy."""
        from wirespeed.peer.http.endpoint import StreamableHttp

        if options.stateless:
            raise ValueError("the proxy needs sessions: it cannot be stateless")
        found = StreamableHttp(self, self._named(options), loop, pool)
        self._over_http.append(found)
        return found

    def session_directory(self, url: str) -> SessionDirectory:
        """Return the directory of sessions. ``url``: Where other hosts reach this one. ValueError:
        the proxy has no cluster, or the URL is not that of a host."""
        if self.stores is None:
            raise ValueError("host_url needs a cluster")
        return self.stores.session_hosts(url)

    def session_messages(self, connection: Any, /) -> tuple[bytes, ...] | None:
        """As `HttpService.session_messages`. A session whose server is its client's own stays."""
        downstream: Downstream = connection
        state: ClientState | None = downstream.state
        if state is None or downstream.revision is None:
            return None
        if self.config is None:
            moves = cast("Merged", self.assignment).may_move(downstream)
        else:
            moves = downstream.router.is_shared
        return state.messages() if moves else None

    @property
    def sessions(self) -> list[Sessions[HttpSession]]:
        """The tables of sessions of its listeners over HTTP."""
        self._over_http = [one for one in self._over_http if not one.draining]
        return [one.sessions for one in self._over_http if one.sessions is not None]

    def sse_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """Return what answers HTTP requests of clients of 2024-11-05."""
        from wirespeed.peer.http.sse import SseEndpoint

        return SseEndpoint(self, self._named(options), loop, pool)

    def _named(self, options: HttpOptions) -> HttpOptions:
        """Return the options with the name of the proxy for ids of sessions."""
        return msgspec.structs.replace(options, name=self.proxy_name or options.name)

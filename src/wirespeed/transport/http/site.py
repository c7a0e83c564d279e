"""What a door of HTTP serves: the endpoints of services, routes, the state of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from wirespeed.transport.address import Address
from wirespeed.transport.gate import Gate, authority_of
from wirespeed.transport.http.exchange import HttpTarget
from wirespeed.transport.http.routes import Health, Route
from wirespeed.transport.http.targets import HttpSite
from wirespeed.transport.options import ListenOptions
from wirespeed.transport.taskpool import TaskPool


def no_paths(path: str) -> Mapping[str, HttpTarget]:
    """The well-known paths of a service that has none."""
    return {}


def make_site(
    services: Mapping[str, Any],
    options: ListenOptions,
    address: Address,
    *,
    local: bool,
    loop: asyncio.AbstractEventLoop,
    pool: TaskPool,
) -> HttpSite:
    """Return what is served at the paths of an address.

    Args:
        services: The services by path.
        options: The options of the door.
        address: The address of the URL.
        local: Whether only this machine can reach it.
        loop: The event loop.
        pool: Runs handlers.
    """
    http = options.http
    targets: dict[str, HttpTarget] = {
        path: Route(handlers, loop) for path, handlers in http.by_path.items()
    }
    if http.healthz is not None:
        targets[http.healthz] = Health()
    for path, service in services.items():
        targets[path] = service.http_target(http, loop=loop, pool=pool)
        targets[path].authority = authority_of(service)
        for place, target in getattr(service, "well_known", no_paths)(path).items():
            targets.setdefault(place, target)
    if http.sse_path is not None:
        served = [one for one in services.values() if hasattr(one, "sse_target")]
        if len(services) != 1 or not served:
            raise ValueError("sse_path needs one server of MCP at the address")
        targets[http.sse_path] = served[0].sse_target(http, loop=loop, pool=pool)
        targets[http.sse_path].authority = authority_of(served[0])
    limits = [service.limits for service in services.values()]
    return HttpSite(
        targets,
        options=http,
        # a connection tells every service when its client has read
        limits=structs.replace(
            max(limits, key=lambda one: one.max_message),
            output_high=min(one.output_high for one in limits),
            output_low=min(one.output_low for one in limits),
        ),
        gate=Gate(options, address, local=local),
        loop=loop,
    )

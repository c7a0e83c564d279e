"""What a door of HTTP serves: the endpoints of services, routes, the state of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from wirespeed._core.slab import InputBudget
from wirespeed.limits import Limits
from wirespeed.transport.address import Address
from wirespeed.transport.gate import Gate, authority_of
from wirespeed.transport.http.exchange import HttpTarget
from wirespeed.transport.http.options import HttpOptions
from wirespeed.transport.http.routes import Health, Route
from wirespeed.transport.http.targets import HttpSite
from wirespeed.transport.options import ListenOptions
from wirespeed.transport.service import sse_service
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
    targets |= service_targets(services, http, {}, loop=loop, pool=pool)
    return HttpSite(
        targets,
        options=http,
        limits=limits_of(services),
        gate=Gate(options, address, local=local),
        budget=InputBudget(options.max_input_bytes),
        loop=loop,
    )


def service_targets(
    services: Mapping[str, Any],
    http: HttpOptions,
    known: Mapping[str, HttpTarget],
    *,
    loop: asyncio.AbstractEventLoop,
    pool: TaskPool,
) -> dict[str, HttpTarget]:
    """Return the targets of services by path. ``known``: those that there are already.
    ValueError: the options do not fit the services."""
    targets = dict(known)
    for path, service in services.items():
        if path not in known:
            targets[path] = service.http_target(http, loop=loop, pool=pool)
            targets[path].authority = authority_of(service)
        for place, target in getattr(service, "well_known", no_paths)(path).items():
            targets.setdefault(place, target)
    if http.sse_path is not None and http.sse_path not in known:
        served = sse_service(services.values())
        targets[http.sse_path] = served.sse_target(http, loop=loop, pool=pool)
        targets[http.sse_path].authority = authority_of(served)
    return targets


def limits_of(services: Mapping[str, Any]) -> Limits:
    """The limits of a connection to services."""
    limits: list[Limits] = [service.limits for service in services.values()]
    # a connection tells every service when its client has read
    return structs.replace(
        max(limits, key=lambda one: one.max_message),
        output_high=min(one.output_high for one in limits),
        output_low=min(one.output_low for one in limits),
    )

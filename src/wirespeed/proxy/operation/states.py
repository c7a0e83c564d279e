"""How an endpoint is, in one word, from the states of its servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.proxy.backend import Owner
    from wirespeed.proxy.service import ProxyService
    from wirespeed.proxy.supervision.upstream import State, Upstream

# Of one server.
STATES = ("up", "starting", "crash-loop", "leaving")
# Of an endpoint. Where several servers are in different states, it is "degraded" if one is up.
IDLE = "idle"
DEGRADED = "degraded"
READY = frozenset({"up", DEGRADED, IDLE})


_WORDS: dict[State, str] = {
    "ready": "up",
    "starting": "starting",
    "restarting": "starting",
    "crash loop": "crash-loop",
    "stopped": IDLE,
}


def word_of(upstream: Upstream) -> str:
    """Return the state of one server. A server that was replaced has the state "leaving"."""
    if upstream.retired:
        return "leaving"
    return _WORDS[upstream.status.state]


def state_of(service: ProxyService) -> str:
    """Return the state of an endpoint. A server of one client fails for that client alone. While
    a server is replaced, two run in one place: it is enough that one of them is up."""
    upstreams = [one for one in service.upstreams if not one.retired]
    if service.config is None or (upstreams and not any(one.restarts for one in upstreams)):
        return "up"
    if not upstreams and not service.is_held:
        return "starting"
    places: dict[Owner, set[str]] = {}
    for one in upstreams:
        if one.restarts:
            places.setdefault(one.owner, set()).add(word_of(one))
    return summary({"up" if "up" in words else min(words) for words in places.values()})


def is_required(service: ProxyService) -> bool:
    """Return whether the proxy is not ready without it."""
    return service.config is None or service.config.required


def summary(states: set[str]) -> str:
    """The state of an endpoint whose servers have these states. One without a server is idle: a
    server is started when a client needs it."""
    if not states:
        return IDLE
    if len(states) == 1:
        (state,) = states
        return state
    return DEGRADED if "up" in states else "down"

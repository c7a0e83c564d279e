"""The assignment of clients to servers, as the isolation of a server says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wirespeed.proxy.downstream import Router

if TYPE_CHECKING:
    from wirespeed.limits import Limits
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.supervision.supervisor import ServerMeter, Supervisor


class Assignment(Router, Protocol):
    """Joins clients to connections of servers, and knows what the two may see of each other.

    Attributes:
        refuses_lanes: Why it does not serve requests of 2026-07-28 that come one by one over HTTP,
            from any client, and what to set; "" if it serves them.
    """

    @property
    def refuses_lanes(self) -> str:
        """See above."""

    @property
    def supervisors(self) -> list[Supervisor]:
        """The servers that it keeps running."""

    async def start(self) -> None:
        """Get ready for clients. TransportError: the server cannot be started; `stop` is due all
        the same."""

    async def prove(self) -> None:
        """See that a server can be started, where `start` has not done so. WirespeedError: none
        can, and it is tried again."""

    async def stop(self) -> None:
        """End all servers."""


def assignment_of(config: BackendConfig, limits: Limits, meter: ServerMeter) -> Assignment:
    """Return what assigns clients to a server as its isolation says."""
    if config.isolation == "auto" and config.era != "modern":
        from wirespeed.proxy.isolation.auto import Auto

        return Auto(config, limits, meter)
    if config.isolation == "session":
        from wirespeed.proxy.isolation.per_client import PerClient

        return PerClient(config, limits, meter)
    from wirespeed.proxy.isolation.pool import Pool

    return Pool(config, limits, meter)

"""Ends of connections and Streamable HTTP, for authors of SDKs.

A `SessionConnection` is the end of a client's connection at a server: it takes messages, runs
handlers, drains and is lost. A `HttpService` makes one for each client, and can be served at every
URL that `wirespeed.serve` takes: over HTTP by a `StreamableHttp`, whose requests are `McpExchange`.
A `DrainingConnection` is an end with any other wire.

``from wirespeed.peer.connection cimport SessionConnection`` works in Cython code.
"""

from __future__ import annotations

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)


def __dir__() -> list[str]:
    return sorted(__all__)

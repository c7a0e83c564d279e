"""The IP addresses to which a URL in a document of another host may lead.

A protected resource metadata document names authorization servers, and their metadata name keys
and endpoints. A document of a public server must not make this machine send requests into its own
networks (MCP 2025-11-25 security best practices, "Server-Side Request Forgery").
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from enum import IntEnum


class Reach(IntEnum):
    """How far inside a network an IP address lies. The URLs in a document must not lead further
    inside than the server of the document lies."""

    PUBLIC = 0
    PRIVATE = 1
    """RFC 1918, RFC 6598 (behind a provider's NAT) and unique local IPv6 addresses (RFC 4193)."""
    LOOPBACK = 2
    SPECIAL = 3
    """Link-local (metadata services of clouds), multicast, reserved and unspecified addresses."""


_PRIVATE = [
    ipaddress.ip_network(network)
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052 section 2.1
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215; global to older Pythons


def reach_of(address: str) -> Reach:
    """The reach of an IP address as text, IPv6 without brackets. An IPv6 address that holds an IPv4
    address (mapped, 6to4, Teredo, NAT64) reaches as far as the address in it."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return Reach.SPECIAL
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found.teredo is not None:
            inner = found.teredo[1]
        elif found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return reach_of(str(inner))
    if found.is_loopback:
        return Reach.LOOPBACK
    if any(found in network for network in _PRIVATE):
        return Reach.PRIVATE
    if isinstance(found, ipaddress.IPv6Address) and (found.is_site_local or found in _LOCAL_NAT64):
        return Reach.SPECIAL
    if found.is_global and not found.is_multicast and not found.is_reserved:
        return Reach.PUBLIC
    return Reach.SPECIAL


async def reach_of_host(host: str) -> Reach:
    """The reach of that address of a host that lies least far inside. A name that cannot be looked
    up here counts as public, because a proxy may know the name."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return Reach.PUBLIC
    return min((reach_of(str(place[0])) for *_, place in found), default=Reach.PUBLIC)

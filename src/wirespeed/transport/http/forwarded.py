"""Who the client is behind proxies (RFC 7239, and X-Forwarded-For)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from wirespeed.transport.address import networks
from wirespeed.transport.options import Headers


class Forwarded:
    """Finds clients behind trusted proxies.

    Args:
        trusted: The addresses and networks of the proxies.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = networks(trusted)

    def peer(self, sender: str, headers: Headers) -> str:
        """The address of the client: the nearest one that is not a trusted proxy.

        The fields are read from the right, as far as proxies are trusted that wrote them. Where
        both fields are there and name different clients, one of them was not written by the proxy:
        then neither counts.

        Args:
            sender: Who sent the request, as ``address:port``.
            headers: The header fields of the request.
        """
        found = {
            self._client(sender, list(read(headers[name])))
            for name, read in (("x-forwarded-for", _plain), ("forwarded", _forwarded))
            if name in headers
        }
        return found.pop() if len(found) == 1 else sender

    def _client(self, sender: str, chain: list[str]) -> str:
        nearest = sender
        while self._trusts(nearest) and chain:
            hop = _address(chain.pop())
            if hop is None:
                break  # hidden, or not an address: the proxy is all that is known
            nearest = str(hop)
        return nearest

    def _trusts(self, place: str) -> bool:
        address = _address(place)
        return address is not None and any(address in network for network in self._trusted)


def _plain(value: str) -> Iterator[str]:
    return map(str.strip, value.split(","))


def _forwarded(value: str) -> Iterator[str]:
    """Each node of ``for=``. A comma always divides: no address has one, and a quotation mark that
    a client left open must not swallow what a proxy added behind it."""
    for element in value.split(","):
        pairs = (pair.strip().partition("=") for pair in element.split(";"))
        nodes = [node.strip('"') for name, _, node in pairs if name.lower() == "for"]
        yield nodes[0] if len(nodes) == 1 else ""


def _address(place: str) -> IPv4Address | IPv6Address | None:
    """The address of a hop, with or without a port; None for any other text."""
    if place.startswith("["):
        place = place[1:].partition("]")[0]
    elif place.count(":") == 1:
        place = place.partition(":")[0]
    try:
        found = ip_address(place)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found

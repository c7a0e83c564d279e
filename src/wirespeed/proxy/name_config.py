"""Checks what the configuration of a server says of DNS: `BackendConfig.resolve` and
`BackendConfig.resolver`."""

from __future__ import annotations

import ipaddress
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from wirespeed.transport.address import is_name, read_via

if TYPE_CHECKING:
    from wirespeed.transport.address import Address

_DNS_PORT = 53


def nameserver(text: str) -> tuple[str, int]:
    """Return the IP address and the port of a nameserver, which is 53 unless the text has one.
    ValueError: the text is neither an IP address nor one with a port."""
    try:
        return str(ipaddress.ip_address(text)), _DNS_PORT
    except ValueError:
        host, _, port = read_via(text).rpartition(":")
        return host.strip("[]"), int(port)


def without_service(url: str) -> str:
    """Return the URL by which a server of SRV records is known: without the labels before the name
    that begin with ``_``."""
    parts = urlsplit(url)
    labels = parts.netloc.split(".")
    while labels and labels[0].startswith("_"):
        del labels[0]
    return parts._replace(netloc=".".join(labels)).geturl()


def check_named(address: Address, url: str, *, is_srv: bool) -> None:
    """Check that the addresses of a URL can be looked up. ValueError: they cannot."""
    if find_spec("dns") is None:
        raise ValueError("resolve needs the package dnspython: pip install 'wirespeed[dns]'")
    if address.file or address.via or not is_name(address.host):
        raise ValueError("resolve is for a URL whose host is a name")
    if not is_srv:
        return
    if address.port != address.row.port:
        raise ValueError('with resolve "srv", the records have the port: leave it out of the URL')
    if not urlsplit(without_service(url)).netloc:
        raise ValueError('with resolve "srv", a host is a name, or _service._tcp. and a name')

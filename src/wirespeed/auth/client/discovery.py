"""Finds the authorization server of an MCP server by the metadata of both.

2026-07-28 basic/authorization/authorization-server-discovery; 2025-03-26 basic/authorization for
servers without metadata of a protected resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from wirespeed.auth.fetch import FetchError
from wirespeed.auth.metadata import (
    ResourceMetadata,
    ServerMetadata,
    fetch_document,
    fetch_server_metadata,
    first_document,
    resource_metadata_urls,
)
from wirespeed.errors import AuthorizationError, shortened
from wirespeed.transport.address import as_http, parse

if TYPE_CHECKING:
    from wirespeed.auth.fetch import Fetcher
    from wirespeed.auth.metadata import Challenge


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The authorization server and the resource of an MCP server.

    Attributes:
        resource: The MCP server's name for tokens (RFC 8707).
        server: The metadata of the authorization server.
        scopes: What the metadata of the resource names as ``scopes_supported``; None if it names
            none.
        bare: The authorization server has no metadata: its endpoints are those of 2025-03-26.
    """

    resource: str
    server: ServerMetadata
    scopes: tuple[str, ...] | None = None
    bare: bool = False


def canonical(url: str) -> str:
    """The canonical URL of an MCP server (2026-07-28 basic/authorization, "Canonical Server URI"):
    in lower case where case has no meaning, and without query and the slash of an empty path. A
    WebSocket has that of the request that opens it."""
    url = as_http(url)
    address = parse(url)
    path = "" if address.path == "/" else address.path
    return f"{origin_of(url)}{path}"


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL."""
    address = parse(url)
    return f"{address.scheme}://{address.authority.lower()}"


async def discover(
    fetcher: Fetcher,
    url: str,
    challenge: Challenge | None,
    issuer: str | None = None,
    used: str = "",
) -> Found:
    """Find the authorization server of an MCP server. AuthorizationError: there is none, or what
    the documents say does not fit together.

    Args:
        fetcher: What sends the requests.
        url: The URL of the MCP server.
        challenge: The challenge of a 401 or 403, or None.
        issuer: The authorization server to use, where the MCP server names several.
        used: The one of an earlier login, which is used as long as the MCP server names it.
    """
    named = None if challenge is None else challenge.params.get("resource_metadata")
    try:
        resource = await _resource_metadata(fetcher, url, named)
        if resource is None:
            return await _without_resource_metadata(fetcher, url)
        chosen = _choose(resource, url, issuer, used)
        server = await fetch_server_metadata(fetcher, chosen)
    except FetchError as exc:
        raise AuthorizationError(f"no login to {canonical(url)} is possible: {exc}") from exc
    if server is None:
        raise AuthorizationError(
            f"the authorization server {chosen} of {canonical(url)} has no metadata (RFC 8414)"
        )
    scopes = resource.scopes_supported
    return Found(
        resource=resource.resource, server=server, scopes=None if scopes is None else tuple(scopes)
    )


async def server_metadata(fetcher: Fetcher, issuer: str, *, bare: bool) -> ServerMetadata:
    """The metadata of a known authorization server. ``bare``: as of `Found`. AuthorizationError: it
    has none."""
    try:
        found = await fetch_server_metadata(fetcher, issuer)
    except FetchError as exc:
        raise AuthorizationError(f"the authorization server cannot be asked: {exc}") from exc
    if found is None and bare:
        return endpoints_of_2025_03_26(issuer)
    if found is None:
        raise AuthorizationError(f"the authorization server {issuer} no longer has metadata")
    return found


async def _resource_metadata(
    fetcher: Fetcher, url: str, named: str | None
) -> ResourceMetadata | None:
    """The metadata of the MCP server, from the URL in the challenge, else from the well-known
    places. A document that is missing at the URL in the challenge is an error, because the server
    wants that document to be used."""
    if named is not None:
        found = await fetch_document(fetcher, named, ResourceMetadata)
        if found is None:
            raise FetchError(
                f"{canonical(url)} names metadata at {shortened(named.partition('?')[0])}, where "
                "there is none"
            )
        return _checked(found, url)
    first = await first_document(fetcher, resource_metadata_urls(url), ResourceMetadata)
    return None if first is None else _checked(first[1], url)


def _checked(found: ResourceMetadata, url: str) -> ResourceMetadata:
    """The metadata, if it is of this server (RFC 9728 section 3.3): of its origin, and of its path
    or a folder above it."""
    try:
        same = origin_of(found.resource) == origin_of(url)
    except ValueError:
        same = False
    path, mine = urlsplit(found.resource).path.rstrip("/"), urlsplit(url).path.rstrip("/")
    if not same or not f"{mine}/".startswith(f"{path}/"):
        raise AuthorizationError(
            f"the metadata of {canonical(url)} is that of another resource, "
            f"{shortened(found.resource.partition('?')[0])!r}: no token is asked for"
        )
    return found


def _choose(resource: ResourceMetadata, url: str, issuer: str | None, used: str) -> str:
    servers = resource.authorization_servers or []
    if not servers:
        raise AuthorizationError(f"the metadata of {canonical(url)} names no authorization server")
    if issuer is None:
        return used if used in servers else servers[0]
    if issuer in servers:
        return issuer
    raise AuthorizationError(
        f"{canonical(url)} does not use the authorization server {issuer} but "
        f"{shortened(', '.join(servers))}: the client is not registered there; correct issuer "
        "and client_id"
    )


async def _without_resource_metadata(fetcher: Fetcher, url: str) -> Found:
    """A server of 2025-03-26, which is its own authorization server."""
    issuer = origin_of(url)
    server = await fetch_server_metadata(fetcher, issuer)
    return Found(
        resource=canonical(url),
        server=endpoints_of_2025_03_26(issuer) if server is None else server,
        bare=server is None,
    )


def endpoints_of_2025_03_26(issuer: str) -> ServerMetadata:
    """The endpoints of a server without metadata (2025-03-26 basic/authorization, "Fallbacks for
    Servers without Metadata Discovery"). PKCE is required there."""
    return ServerMetadata(
        issuer=issuer,
        authorization_endpoint=f"{issuer}/authorize",
        token_endpoint=f"{issuer}/token",
        registration_endpoint=f"{issuer}/register",
        code_challenge_methods_supported=["S256"],
        token_endpoint_auth_methods_supported=["client_secret_post", "none"],
    )

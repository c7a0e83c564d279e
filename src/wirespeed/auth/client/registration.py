"""Dynamic client registration (RFC 7591)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from wirespeed.auth.client.tokens import BASIC, NONE, POST, ClientIdentity, _Refusal, refused
from wirespeed.auth.fetch import FetchError
from wirespeed.errors import AuthorizationError
from wirespeed.transport.schemes import public

if TYPE_CHECKING:
    from wirespeed.auth.fetch import Fetcher
    from wirespeed.auth.metadata import ServerMetadata

__all__ = ["is_current", "register"]


class _Registered(msgspec.Struct):
    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None


def is_current(client: ClientIdentity) -> bool:
    """Whether the secret of a registered client is still valid."""
    return client.secret_expires == 0 or client.secret_expires > time.time()


async def register(
    fetcher: Fetcher,
    server: ServerMetadata,
    *,
    name: str,
    redirect_uri: str,
    scopes: tuple[str, ...],
) -> ClientIdentity:
    """Register this client. AuthorizationError: the server refused."""
    endpoint = server.registration_endpoint
    assert endpoint is not None
    where = f"the registration endpoint {public(endpoint)}"
    method = _method(server)
    asked = {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "application_type": "native",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    try:
        found = await fetcher.post(endpoint, json=asked)
    except FetchError as exc:
        raise AuthorizationError(f"this client cannot be registered: {exc}") from exc
    if found.status not in (200, 201):
        try:
            refusal = msgspec.json.decode(found.body, type=_Refusal)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            refusal = _Refusal("")
        failed = refused(where, found.status, refusal)
        raise AuthorizationError(f"{failed}; {give_client(server)}", failed.error)
    try:
        answer = msgspec.json.decode(found.body, type=_Registered)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AuthorizationError(f"{where} answered without a client_id") from None
    return ClientIdentity(
        client_id=answer.client_id,
        issuer=server.issuer,
        client_secret=answer.client_secret,
        method=answer.token_endpoint_auth_method or method,
        secret_expires=answer.client_secret_expires_at or 0,
        redirect_uri=redirect_uri,
    )


def give_client(server: ServerMetadata) -> str:
    """The advice to a user where a client cannot register itself."""
    return (
        f"register a client at {server.issuer} by hand, and give its id: "
        "OAuth(client_id=…, client_secret=…)"
    )


def _method(server: ServerMetadata) -> str:
    """The method by which a registered client authenticates itself: none if the server allows that,
    because a program on a user's machine cannot keep a secret (RFC 8252 section 8.4)."""
    supported = server.token_endpoint_auth_methods_supported
    if supported is None:
        return BASIC  # RFC 8414 section 2
    return next((one for one in (NONE, BASIC, POST) if one in supported), NONE)

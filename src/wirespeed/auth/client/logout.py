"""Ends a login: revokes its tokens (RFC 7009)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from wirespeed.auth.client.discovery import server_metadata
from wirespeed.auth.fetch import Fetcher, FetchError
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from wirespeed.auth.client.grant import Grant
    from wirespeed.auth.client.session import Login

__all__ = ["revoke"]

logger = logging.getLogger("wirespeed.client")


async def revoke(grant: Grant, login: Login, fetcher: Fetcher) -> bool:
    """Revoke the tokens of a login at the authorization server that issued them. Returns whether
    the tokens were revoked; the log has the reason if they were not."""
    try:
        return await _revoke(grant, login, fetcher)
    except (AuthorizationError, FetchError) as exc:
        logger.warning("%s: its tokens were not revoked: %s", login.server, exc)
        return False


async def _revoke(grant: Grant, login: Login, fetcher: Fetcher) -> bool:
    assert login.tokens is not None
    server = await server_metadata(fetcher, login.issuer, bare=login.bare)
    client = grant.client(login, login.issuer)
    if server.revocation_endpoint is None or client is None:
        return False
    # A refresh token ends the access tokens of its grant with it, where the server can do that.
    named = {"refresh_token": login.tokens.refresh_token, "access_token": login.tokens.access_token}
    for kind, token in named.items():
        if token is None:
            continue
        form = {"token": token, "token_type_hint": kind}
        headers = client.authenticate(server, form)
        found = await fetcher.post(server.revocation_endpoint, form=form, headers=headers)
        if found.status != 200:
            raise AuthorizationError(f"{login.issuer} answered {found.status}")
    return True

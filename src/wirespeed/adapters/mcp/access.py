"""The client of a request as the SDK's handlers know it: the user whom the listener has let in is
that of ``get_access_token()`` and of the HTTP request, and the SDK binds ``requestState`` to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken


def user_of(user: Any, headers: Mapping[str, str]) -> AuthenticatedUser | None:
    """The SDK's user of a client; None: it has no name.

    Args:
        user: The user that ``authenticate`` returned, or None.
        headers: The header fields, of which one may have the token.
    """
    if user is None:
        return None
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return AuthenticatedUser(
        AccessToken(
            token=token.strip() if scheme.lower() == "bearer" else "",
            client_id=str(user),
            subject=str(user),
            scopes=sorted(getattr(user, "scopes", None) or ()),
        )
    )


def enter(user: Any, headers: Mapping[str, str]) -> None:
    """Serve the rest of this context for a client; the arguments are those of `user_of`."""
    auth_context_var.set(user_of(user, headers))

"""The user of a request, for handlers of the SDK. ``get_access_token()`` and the HTTP request name
the user whom the listener let in, and the SDK binds ``requestState`` to that user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken


def user_of(user: Any, headers: Mapping[str, str]) -> AuthenticatedUser | None:
    """Return the SDK's user for a client; None for a client without a name.

    Args:
        user: The user that ``authenticate`` returned, or None.
        headers: The header fields of the request. One of them may have the token.
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
    """Set the user of a client in this context. The arguments are those of `user_of`."""
    auth_context_var.set(user_of(user, headers))

"""Scopes of OAuth: what an access token permits."""

from __future__ import annotations

import re
from collections.abc import Iterable

# RFC 6749 section 3.3, scope-token
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def checked_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """The scopes that something needs, each once. TypeError, ValueError: one cannot be a scope."""
    if isinstance(scopes, str):
        raise TypeError("scopes is a sequence of strings, not one string")
    found = tuple(dict.fromkeys(scopes))
    for scope in found:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ValueError(f"{scope!r} is not a scope: printable ASCII without blanks and quotes")
        if scope == "offline_access":
            # MCP 2026-07-28 basic/authorization: it asks for a refresh token, at the issuer alone
            raise ValueError("offline_access is not a scope of a server")
    return found

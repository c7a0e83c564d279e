"""The logins that ``wirespeed login`` stored, as other commands use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

import msgspec

from wirespeed.auth.client.discovery import canonical
from wirespeed.auth.client.oauth import OAuth
from wirespeed.auth.client.session import stored_login
from wirespeed.auth.client.storage import FileStorage
from wirespeed.config import AuthConfig
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import TokenGrant, TokenSession


class StoredLogin(OAuth):
    """Uses stored tokens and renews them. It never shows a page: a command may run in a script."""

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Never:
        """As `TokenGrant.obtain`."""
        before = session.login.asked or scopes
        more = "".join(f" --scope {scope}" for scope in scopes if scope not in before)
        if self.dpop:
            more += " --dpop"
        raise AuthorizationError(
            f"{session.server} needs a login: wirespeed login {session.server}{more}"
        )


def stored(url: str, config: AuthConfig | None) -> TokenGrant | None:
    """Return what gets the tokens of a server without a page; None if there was no login.

    ValueError: the configuration cannot be used. AuthorizationError: the store is not safe.
    """
    if config is not None and config.type != "oauth":
        return config.grant()
    login = stored_login(FileStorage(), canonical(url))
    if config is None:
        return None if login is None else StoredLogin(dpop=login.is_bound)
    if login is not None and login.is_bound:
        config = msgspec.structs.replace(config, dpop=True)  # by ``wirespeed login --dpop``
    return config.grant(StoredLogin)

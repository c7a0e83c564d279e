"""``wirespeed login`` and ``wirespeed logout``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.auth.client.discovery import canonical
from wirespeed.auth.client.oauth import OAuth
from wirespeed.auth.client.session import Login, stored_login
from wirespeed.auth.client.storage import FileStorage
from wirespeed.cli import credentials, session, targets
from wirespeed.cli.failures import Exit, complain, print_json, printable, usage
from wirespeed.config import AuthConfig

if TYPE_CHECKING:
    from wirespeed import Http, WebSocket
    from wirespeed.auth.client.session import TokenGrant

SECRET = "WIRESPEED_CLIENT_SECRET"
_TIMEOUT = 300.0


@dataclass(frozen=True, repr=False)
class Choices:
    """The options of ``wirespeed login``."""

    client_id: str | None = None
    client_secret_file: str | None = None
    scopes: Sequence[str] = ()
    redirect_uri: str | None = None
    dpop: bool = False
    no_browser: bool = False
    timeout: float | None = None
    ca: str | None = None

    def over(self, config: AuthConfig | None) -> AuthConfig:
        """Return what a configuration says, with these options in place of it. Failure (2): the
        options do not go together."""
        secret = credentials.one_line(self.client_secret_file, "--client-secret-file", SECRET)
        if self.client_id is None and self.client_secret_file is not None:
            raise usage("--client-secret-file needs --client-id")
        given = {
            "client_id": self.client_id,
            "client_secret": secret if self.client_id is not None else None,
            "redirect_uri": self.redirect_uri,
            "scopes": tuple(self.scopes) or None,
            "dpop": self.dpop or None,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        return msgspec.structs.replace(config or AuthConfig(), **changes)


# -- login ----------------------------------------------------------------------------------------


class _Anew:
    """A store whose tokens are not seen: a login asks the person, although there are tokens. The
    client that is registered stays."""

    def __init__(self, under: FileStorage) -> None:
        self.under = under
        self.login: Login | None = None

    def load(self, server: str) -> str | None:
        if self.login is not None:
            return self.under.load(server)
        login = stored_login(self.under, server)
        if login is None:
            return None
        login.tokens = None
        return msgspec.json.encode(login).decode()

    def save(self, server: str, text: str) -> None:
        login = msgspec.json.decode(text, type=Login)
        if login.tokens is not None:
            self.login = login
        self.under.save(server, text)

    def delete(self, server: str) -> None:
        self.under.delete(server)

    def servers(self) -> list[str]:
        return self.under.servers()

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        return self.under.lock(server)


def login(word: str, choices: Choices, *, as_json: bool) -> int:
    """Let a person log in, and store the tokens.

    Failure (2 or 3): the target is wrong. AuthorizationError (3): there is no login.
    """
    return session.run(_login(word, choices, as_json))


async def _login(word: str, choices: Choices, as_json: bool) -> int:
    from wirespeed import Client

    storage = _Anew(FileStorage())
    seconds = _TIMEOUT if choices.timeout is None else choices.timeout or targets.FOREVER

    def grant(url: str, config: AuthConfig | None) -> TokenGrant:
        return choices.over(config).grant(
            functools.partial(
                OAuth,
                storage=storage,
                headless=True if choices.no_browser else None,
                login_timeout=seconds,
            )
        )

    session.show_warnings()
    target, endpoint = _remote(word, choices.ca, grant)
    async with Client(endpoint, era=target.era, name="wirespeed-cli"):  # type: ignore[arg-type]
        pass
    done = storage.login
    if done is None:
        if as_json:
            print_json({"server": canonical(endpoint.url), "login": False})
        else:
            complain(f"{endpoint.where} asks for no login", level="note")
        return Exit.OK
    _show(done, storage.under, as_json)
    return Exit.OK


def _show(done: Login, storage: FileStorage, as_json: bool) -> None:
    tokens = done.tokens
    assert tokens is not None
    if as_json:
        expires = None if tokens.expires is None else datetime.fromtimestamp(tokens.expires, UTC)
        said: dict[str, Any] = {
            "server": done.server,
            "login": True,
            "issuer": done.issuer,
            "scopes": tokens.scopes,
            "expires": None if expires is None else expires.isoformat(timespec="seconds"),
            "renewable": tokens.refresh_token is not None,
            "folder": str(storage.folder),
        }
        print_json(said)
        return
    print(printable(f"logged in to {done.server} at {done.issuer}"))
    if tokens.scopes:
        print(printable(f"scopes: {' '.join(tokens.scopes)}"))
    if tokens.refresh_token is None and tokens.expires is not None:
        ends = datetime.fromtimestamp(tokens.expires).astimezone()
        complain(f"the login ends at {ends:%Y-%m-%d %H:%M}", level="note")


# -- logout ---------------------------------------------------------------------------------------


def logout(word: str, ca: str | None, *, as_json: bool) -> int:
    """Delete the stored tokens of a server, and revoke them. Failure (2 or 3): the target is
    wrong."""
    return session.run(_logout(word, ca, as_json))


async def _logout(word: str, ca: str | None, as_json: bool) -> int:
    grants: list[TokenGrant] = []

    def grant(url: str, config: AuthConfig | None) -> TokenGrant:
        config = config or AuthConfig()
        if config.type == "oauth":
            login = stored_login(FileStorage(), canonical(url))
            bound = login is not None and login.is_bound  # whatever the configuration says now
            config = msgspec.structs.replace(config, dpop=bound)
        grants.append(config.grant())
        return grants[0]

    session.show_warnings()
    _, endpoint = _remote(word, ca, grant)
    revoked = await grants[0].log_out(endpoint.url, ssl=endpoint.ssl)
    server = canonical(endpoint.url)
    if as_json:
        print_json({"server": server, "login": revoked is not None, "revoked": bool(revoked)})
    elif revoked is None:
        complain(f"there is no login at {server}", level="note")
    else:
        print(printable(f"logged out of {server}"))
        if not revoked:
            complain(
                "the tokens were deleted here; the authorization server did not revoke them, and "
                "they end by themselves",
                level="note",
            )
    return Exit.OK


def _remote(
    word: str, ca: str | None, grant: targets.Grants
) -> tuple[targets.Target, Http | WebSocket]:
    """Return the target of a command line. Failure (2): it takes no login."""
    from wirespeed import Http, WebSocket

    credentials.taken(credentials.ENVIRONMENT)
    access = targets.RemoteAccess(ca=ca, grant=grant)
    target = targets.find(word, None, stderr="discard", access=access)
    endpoint = target.endpoint
    if not isinstance(endpoint, (Http, WebSocket)) or not isinstance(endpoint.auth, OAuth):
        raise usage(
            f"{word} takes no login: a login is for URLs of HTTP and WebSocket, and for "
            'servers of a configuration whose "auth" is "oauth"'
        )
    return target, endpoint

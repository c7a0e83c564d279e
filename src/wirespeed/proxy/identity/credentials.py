"""The credentials of each principal at one server: exchanged tokens, a stored login, or a header
field with the user's own value. The token with which the user came to the proxy is never one of
them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wirespeed.auth.access_token import AccessToken
from wirespeed.auth.client.client_credentials import MachineGrant
from wirespeed.auth.client.discovery import canonical
from wirespeed.auth.client.jwt_bearer import EnterpriseManaged
from wirespeed.auth.client.oauth import OAuth
from wirespeed.auth.client.session import stored_login
from wirespeed.auth.client.storage import FileStorage
from wirespeed.auth.client.token_exchange import TokenExchange
from wirespeed.errors import AuthorizationError, ProtocolError, WirespeedError
from wirespeed.protocol import codes
from wirespeed.proxy.backend_config import NAME
from wirespeed.transport.address import as_http
from wirespeed.transport.gate import bearer
from wirespeed.transport.options import check_headers

if TYPE_CHECKING:
    from ssl import SSLContext

    from wirespeed.auth.client.discovery import Found
    from wirespeed.auth.client.session import Authorization, TokenSession
    from wirespeed.auth.client.storage import TokenStorage
    from wirespeed.auth.client.tokens import Tokens
    from wirespeed.proxy.backend_config import BackendConfig, IdentityConfig
    from wirespeed.transport.headers import Headers
    from wirespeed.transport.service import Peer

logger = logging.getLogger("wirespeed.proxy")

MAX_SUBJECTS = 10_000  # remembered tokens of users

Note = Callable[[str, str, str | None], None]
"""Writes to the audit log: the name of a principal, what happened to its credentials, and the
reason of a refusal."""


class Who(NamedTuple):
    """A principal.

    Attributes:
        digest: The digest of its credentials at the proxy.
        name: Its name, or the subject of its access tokens.
        owner: Its name, with the issuer of its tokens in front.
    """

    digest: bytes
    name: str
    owner: str

    @classmethod
    def of(cls, digest: bytes, name: str, peer: Peer | None) -> Who:
        """Return the principal of a client."""
        issuer = None if peer is None else _issuer_of(peer)
        return cls(digest, name, name if issuer is None else f"{issuer} {name}")


class Credentials:
    """The base of the credentials of the principals at one server.

    Args:
        backend: The server.
        note: Writes to the audit log.
    """

    def __init__(self, backend: BackendConfig, note: Note) -> None:
        assert backend.identity is not None
        self.server = backend.name
        self.config: IdentityConfig = backend.identity
        self.url = as_http(backend.target.url)  # type: ignore[union-attr]
        self._note = note

    def see(self, who: Who, peer: Peer | None) -> None:
        """Take note of a principal's request, from this peer."""

    def missing(self, who: Who) -> ProtocolError | None:
        """Return the error for a principal that has no credentials; None: it may have some."""
        return None

    def authorization(self, who: Who, lost: Callable[[], None]) -> Authorization:
        """Return the authorization of a principal's connections. ``lost``: called when its
        credentials have ended and the principal has to act."""
        raise NotImplementedError

    def told(self, who: Who, outcome: str, reason: object = None) -> None:
        """Note in the audit log what happened to a principal's credentials."""
        self._note(who.name, outcome, None if reason is None else str(reason).partition("\n")[0])


def credentials_of(backend: BackendConfig, note: Note) -> Credentials:
    """Return the credentials at a server, as its configuration says."""
    assert backend.identity is not None
    kind = backend.identity.type
    if kind == "header":
        return HeaderCredentials(backend, note)
    if kind == "login":
        return LoginCredentials(backend, note)
    return ExchangedCredentials(backend, note)


# -- an exchange -----------------------------------------------------------------------------------


class ExchangedCredentials(Credentials):
    """Tokens that an authorization server gives in exchange for the user's. The token of the
    user's last request is exchanged."""

    def __init__(self, backend: BackendConfig, note: Note) -> None:
        super().__init__(backend, note)
        self._subjects: OrderedDict[bytes, str] = OrderedDict()

    def see(self, who: Who, peer: Peer | None) -> None:
        """Remember the token of the request."""
        if peer is None or _issuer_of(peer) is None:
            return
        token = bearer(peer.headers.get("authorization", ""))
        if token:
            self._subjects.pop(who.digest, None)
            self._subjects[who.digest] = token
            while len(self._subjects) > MAX_SUBJECTS:
                self._subjects.popitem(last=False)

    def missing(self, who: Who) -> ProtocolError | None:
        """Refuse a principal whose token does not come from an authorization server."""
        if who.digest in self._subjects:
            return None
        text = f"{self.server} needs an access token of an authorization server, to exchange it"
        return ProtocolError(codes.INVALID_REQUEST, text)

    def authorization(self, who: Who, lost: Callable[[], None]) -> Authorization:
        """As of the base class."""
        config = self.config
        assert config.client_id is not None

        def subject(issuer: str) -> str:
            return self._subjects[who.digest]

        common: dict[str, Any] = {
            "issuer": config.issuer,
            "scopes": config.scopes or None,
            "allow_private": config.allow_private,
        }
        if config.type == "exchange":
            exchange = _Exchange(
                config.client_id,
                config.client_secret,
                subject=subject,
                audience=config.audience,
                **common,
            )
            exchange.note = lambda *said: self.told(who, *said)
            return exchange
        enterprise = _Enterprise(
            config.client_id,
            config.client_secret,
            identity=subject,
            identity_type="access_token",
            idp=config.idp,
            idp_client_id=config.idp_client_id,
            idp_client_secret=config.idp_client_secret,
            **common,
        )
        enterprise.note = lambda *said: self.told(who, *said)
        return enterprise


def _issuer_of(peer: Peer) -> str | None:
    """Return the authorization server that issued the token of a client; None for other tokens."""
    token = getattr(peer.user, "data", None)
    issuer = token.issuer if isinstance(token, AccessToken) else None
    return None if issuer is None or issuer.startswith("wirespeed:") else issuer


class _Noted(MachineGrant):
    """A grant whose outcomes are noted."""

    note: Callable[..., None]

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        """As of the base class."""
        try:
            tokens = await super().obtain(session, found, scopes)
        except AuthorizationError as exc:
            self.note("refused", exc)
            raise
        self.note("exchanged")
        return tokens


class _Exchange(_Noted, TokenExchange):
    pass


class _Enterprise(_Noted, EnterpriseManaged):
    pass


# -- a login ---------------------------------------------------------------------------------------


class LoginCredentials(Credentials):
    """Tokens from logins: each user logs in once. They are stored sealed.

    Attributes:
        link: Returns the link of a login for a principal (`wirespeed.proxy.identity.logins`).
    """

    link: Callable[[Who], str]

    def _storage(self, who: Who) -> TokenStorage:
        from wirespeed.auth.client.sealed_storage import SealedStorage

        return SealedStorage(
            FileStorage(self.config.folder), *self.config.keys, owner=f"{self.server} {who.owner}"
        )

    def grant(self, who: Who, redirect: Callable[[str], Awaitable[str]]) -> OAuth:
        """Return the grant of a principal. ``redirect``: Leads the user through the login."""
        return _Login(self, who, redirect)

    def is_logged_in(self, who: Who) -> bool:
        """Whether a login is stored. AuthorizationError: it cannot be opened."""
        login = stored_login(self._storage(who), canonical(self.url))
        return login is not None and login.tokens is not None

    def missing(self, who: Who) -> ProtocolError | None:
        """Return the error with a link, for a principal who has not logged in."""
        try:
            if self.is_logged_in(who):
                return None
        except AuthorizationError as exc:
            logger.warning("%s: the login of %s: %s", self.server, who.name, exc)
        return self.refusal(who)

    def refusal(self, who: Who) -> ProtocolError:
        """Return the error that has the link of a login."""
        url = self.link(who)
        asked = {
            "mode": "url",
            "elicitationId": url.rpartition("=")[2],
            "url": url,
            "message": f"Log in to {self.server}",
        }
        return ProtocolError(
            codes.URL_ELICITATION_REQUIRED,
            f"log in to {self.server}: open {url}",
            {"elicitations": [asked]},
        )

    def authorization(self, who: Who, lost: Callable[[], None]) -> Authorization:
        """As of the base class. A request does not wait for a login: it fails."""

        async def refuse(url: str) -> str:
            self._storage(who).delete(canonical(self.url))
            lost()
            self.told(who, "lost", "the login has ended")
            raise AuthorizationError(f"{who.name} has to log in to {self.server} again")

        return self.grant(who, refuse)

    async def log_out(self, who: Who) -> bool:
        """Delete the login of a principal, and revoke its tokens. Returns whether there was one."""

        async def refuse(url: str) -> str:
            raise AuthorizationError(f"{who.name} is being logged out")

        found = await self.grant(who, refuse).log_out(self.url)
        if found is not None:
            self.told(who, "logged out")
        return found is not None


class _Login(OAuth):
    """The grant of one principal."""

    def __init__(
        self, credentials: LoginCredentials, who: Who, redirect: Callable[[str], Awaitable[str]]
    ) -> None:
        config = credentials.config
        assert config.redirect_uri is not None
        super().__init__(
            config.client_id,
            config.client_secret,
            issuer=config.issuer,
            client_name="wirespeed proxy",
            scopes=config.scopes or None,
            storage=credentials._storage(who),
            redirect_uri=config.redirect_uri,
            redirect=redirect,
            allow_private=config.allow_private,
        )


# -- a header field --------------------------------------------------------------------------------


class HeaderCredentials(Credentials):
    """A value for each principal, such as a secret that a vault wrote into a file."""

    def missing(self, who: Who) -> ProtocolError | None:
        """Refuse a principal whose name could lead out of the folder."""
        if self.config.file is None or NAME.fullmatch(who.name):
            return None
        text = f"{self.server} has no credentials for this client"
        return ProtocolError(codes.INVALID_REQUEST, text)

    def authorization(self, who: Who, lost: Callable[[], None]) -> Authorization:
        """As of the base class."""

        async def read() -> str:
            try:
                value = await self._value(who.name)
                name = self.config.header
                check_headers({name: value})
            except Exception as exc:
                self.told(who, "refused", "the value cannot be read")
                if isinstance(exc, WirespeedError):
                    raise
                # the exception's text could have the value
                text = f"the credentials of {who.name} at {self.server} cannot be read"
                raise AuthorizationError(f"{text}: {type(exc).__name__}") from None
            self.told(who, "read")
            return f"Bearer {value}" if name.lower() == "authorization" else value

        return HeaderAuthorization(self.config.header, read, self.config.refresh)

    async def _value(self, name: str) -> str:
        if self.config.file is not None:
            path = Path(self.config.file.replace("{principal}", name))
            text = await asyncio.to_thread(path.read_text)
        else:
            credential: Any = self.config.credential
            found = credential(name)
            text = await found if inspect.isawaitable(found) else found
        text = text.strip()
        if not text:
            raise ValueError("it is empty")
        return str(text)


class HeaderAuthorization:
    """An `Authorization` by one header field. Its value is read again after some time, and when
    the server refuses it.

    Args:
        name: The name of the field.
        read: Returns the value. AuthorizationError: it cannot be read.
        refresh: Seconds until the value is read again.
    """

    def __init__(self, name: str, read: Callable[[], Awaitable[str]], refresh: float) -> None:
        self.name = name
        self.read = read
        self.refresh = refresh

    def session(self, url: str, *, ssl: SSLContext | None = None) -> HeaderSession:
        """As of `Authorization`."""
        return HeaderSession(self)


class HeaderSession:
    """An `AuthorizationSession`."""

    def __init__(self, owner: HeaderAuthorization) -> None:
        self.n_tokens = 0
        self._owner = owner
        self._value = ""
        self._line = b""
        self._due = 0.0
        self._lock = asyncio.Lock()

    def fields(self, method: str, url: str, *, long: bool = False) -> bytes | None:
        """As of `AuthorizationSession`."""
        return None if time.monotonic() >= self._due else self._line

    async def prepare(self) -> None:
        """Read the value, if it is time. The earlier value stays in use if it cannot be read."""
        async with self._lock:
            if time.monotonic() >= self._due:
                await self._read()

    async def _read(self) -> None:
        try:
            value = await self._owner.read()
        except AuthorizationError as exc:
            if not self._value:
                raise
            logger.warning("%s; the earlier value is used", exc)
            value = self._value
        if value != self._value:
            self._value = value
            self._line = f"{self._owner.name}: {value}\r\n".encode("latin-1")
            self.n_tokens += 1
        self._due = time.monotonic() + self._owner.refresh

    def answered(self, headers: Headers) -> None:
        """Do nothing: answers have nothing for it."""

    async def challenged(self, status: int, headers: Headers, n_tokens: int, n: int) -> bool:
        """As of `AuthorizationSession`: the value may have changed."""
        async with self._lock:
            if n_tokens == self.n_tokens and status == 401 and n == 0:
                await self._read()
            return n_tokens != self.n_tokens

    def secrets(self) -> list[str]:
        """As of `AuthorizationSession`."""
        return [self._value] if self._value else []

    async def close(self) -> None:
        """Do nothing: it holds nothing open."""

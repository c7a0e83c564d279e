"""The credentials of each principal at one server: by an exchange of tokens, by a stored login, or
a header field of the user's own. None of them is the token with which the user came to the proxy.
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

MAX_SUBJECTS = 10_000  # tokens of users that are remembered

Note = Callable[[str, str, str | None], None]
"""Notes for the audit log what became of the identity of a principal: its name, the outcome and the
reason of a refusal."""


class Who(NamedTuple):
    """A principal.

    Attributes:
        digest: Of its credentials at the proxy.
        name: Its name, or the subject of its access tokens.
        owner: Its name among those of all issuers.
    """

    digest: bytes
    name: str
    owner: str

    @classmethod
    def of(cls, digest: bytes, name: str, peer: Peer | None) -> Who:
        """Make that of a client."""
        user = None if peer is None else peer.user
        token = getattr(user, "data", None)
        issuer = token.issuer if isinstance(token, AccessToken) else None
        return cls(digest, name, name if issuer is None else f"{issuer} {name}")


class Credentials:
    """The base of the ways to be a principal at one server.

    Args:
        backend: The server.
        note: For the audit log.
    """

    def __init__(self, backend: BackendConfig, note: Note) -> None:
        assert backend.identity is not None
        self.server = backend.name
        self.config: IdentityConfig = backend.identity
        self.url = as_http(backend.target.url)  # type: ignore[union-attr]
        self._note = note

    def see(self, who: Who, peer: Peer | None) -> None:
        """A principal has sent a request."""

    def missing(self, who: Who) -> ProtocolError | None:
        """Return why the principal cannot use the server now; None: it may try."""
        return None

    def authorization(self, who: Who, lost: Callable[[], None]) -> Authorization:
        """Return what gets the principal's tokens. ``lost``: called when there are none any more,
        and the principal has to do something about that."""
        raise NotImplementedError

    def told(self, who: Who, outcome: str, reason: object = None) -> None:
        """Note what became of the identity of a principal."""
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
    """Tokens that an authorization server gives for the user's own. That of the last request is the
    one that is exchanged."""

    def __init__(self, backend: BackendConfig, note: Note) -> None:
        super().__init__(backend, note)
        self._subjects: OrderedDict[bytes, str] = OrderedDict()

    def see(self, who: Who, peer: Peer | None) -> None:
        """Remember the user's token."""
        if peer is None or not _is_issued(peer):
            return
        token = bearer(peer.headers.get("authorization", ""))
        if token:
            self._subjects.pop(who.digest, None)
            self._subjects[who.digest] = token
            while len(self._subjects) > MAX_SUBJECTS:
                self._subjects.popitem(last=False)

    def missing(self, who: Who) -> ProtocolError | None:
        """A principal with a token of the configuration has none that could be exchanged."""
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


def _is_issued(peer: Peer) -> bool:
    """Whether the token of a client is one of an authorization server."""
    token = getattr(peer.user, "data", None)
    return isinstance(token, AccessToken) and not (token.issuer or "wirespeed:").startswith(
        "wirespeed:"
    )


class _Exchange(TokenExchange):
    note: Callable[..., None]

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        try:
            tokens = await super().obtain(session, found, scopes)
        except AuthorizationError as exc:
            self.note("refused", exc)
            raise
        self.note("exchanged")
        return tokens


class _Enterprise(EnterpriseManaged):
    note: Callable[..., None]

    async def obtain(self, session: TokenSession, found: Found, scopes: tuple[str, ...]) -> Tokens:
        try:
            tokens = await super().obtain(session, found, scopes)
        except AuthorizationError as exc:
            self.note("refused", exc)
            raise
        self.note("exchanged")
        return tokens


# -- a login ---------------------------------------------------------------------------------------


class LoginCredentials(Credentials):
    """Tokens that users have got by logging in, each once. They are stored sealed.

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
        """Return the grant of a principal, who logs in by a function."""
        return _Login(self, who, redirect)

    def is_logged_in(self, who: Who) -> bool:
        """Whether there is a login. AuthorizationError: it cannot be read."""
        login = stored_login(self._storage(who), canonical(self.url))
        return login is not None and login.tokens is not None

    def missing(self, who: Who) -> ProtocolError | None:
        """A principal who has not logged in gets a link."""
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
        """As of the base class. Nobody can log in while a request waits."""

        async def refuse(url: str) -> str:
            self._storage(who).delete(canonical(self.url))
            lost()
            self.told(who, "lost", "the login has ended")
            raise AuthorizationError(f"{who.name} has to log in to {self.server} again")

        return self.grant(who, refuse)

    async def log_out(self, who: Who) -> None:
        """Forget the login of a principal, and revoke its tokens."""
        await self.authorization(who, lambda: None).log_out(self.url)  # type: ignore[attr-defined]
        self.told(who, "logged out")


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
    """A value for each principal, such as the secret that a vault has put into a file."""

    def missing(self, who: Who) -> ProtocolError | None:
        """A principal whose name could lead out of the folder has no file."""
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
                # the text could hold the value
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
    """An `Authorization` by one header field, whose value is read again from time to time, and when
    the server refuses it.

    Args:
        name: Of the field.
        read: Returns the value. AuthorizationError: there is none.
        refresh: Seconds for which it is good.
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
        """Read the value. One that could be read before stays in use if it cannot be read now."""
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
        """Nothing is read of answers."""

    async def challenged(self, status: int, headers: Headers, n_tokens: int, n: int) -> bool:
        """As of `AuthorizationSession`: another value may be there."""
        async with self._lock:
            if n_tokens == self.n_tokens and status == 401 and n == 0:
                await self._read()
            return n_tokens != self.n_tokens

    def secrets(self) -> list[str]:
        """As of `AuthorizationSession`."""
        return [self._value] if self._value else []

    async def close(self) -> None:
        """Nothing is held."""

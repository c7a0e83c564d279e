"""Tokens as an authorization server issues them, and requests to its token endpoint."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote_plus

import msgspec

from wirespeed.auth.fetch import FetchError
from wirespeed.errors import AuthorizationError, shortened
from wirespeed.transport.options import is_token
from wirespeed.transport.schemes import public

if TYPE_CHECKING:
    from wirespeed.auth.fetch import Fetcher
    from wirespeed.auth.metadata import ServerMetadata
    from wirespeed.transport.headers import Headers

MAX_TOKEN = 16384  # characters of an access token, which is sent with every request
NONE, BASIC, POST = "none", "client_secret_basic", "client_secret_post"
# Parameters of token requests that no text shows.
_SECRET = (
    "assertion",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "refresh_token",
    "subject_token",
)


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of a token endpoint (RFC 6749 section 5.1).

    Attributes:
        access_token: Sent with each request to the MCP server.
        token_type: ``Bearer`` or ``DPoP``.
        refresh_token: For the next access token; None if there is none.
        issued: When it arrived, in Unix seconds.
        expires: When the access token ends, in Unix seconds; None if the server has not said.
        scopes: The scopes that were granted; those that were asked for, where the server has not
            said.
    """

    access_token: str
    token_type: str = "Bearer"
    refresh_token: str | None = None
    issued: float = 0.0
    expires: float | None = None
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Tokens {self.token_type}, scopes {' '.join(self.scopes) or 'unknown'}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        return [("token_type", self.token_type), ("scopes", self.scopes)]


class Proofs(Protocol):
    """Proofs that the client holds the key of its tokens (RFC 9449)."""

    def field(self, method: str, url: str, token: str | None = None) -> str:
        """The value of the field DPoP of one request. ``token``: the access token that the request
        carries."""

    def note(self, url: str, headers: Headers) -> bool:
        """Take the nonce of a response. Returns whether the response has one."""


Authenticate = Callable[["ServerMetadata", dict[str, str]], list[tuple[str, str]]]
"""Adds a client to the form of a token request, and returns header fields of the request."""


class ClientIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The identity of a client at one authorization server.

    Attributes:
        client_id: The name of the client there.
        issuer: The authorization server that knows the client. "" if every server does, as with the
            URL of a client metadata document.
        client_secret: None for a public client.
        method: How it authenticates itself at the token endpoint: ``none``,
            ``client_secret_basic``, ``client_secret_post``; "" for what the server supports.
        secret_expires: When the secret ends, in Unix seconds; 0 for never (RFC 7591 section 3.2.1).
        redirect_uri: The registered redirect URI of a client that registered itself.
    """

    client_id: str
    issuer: str = ""
    client_secret: str | None = None
    method: str = ""
    secret_expires: float = 0
    redirect_uri: str = ""

    def __repr__(self) -> str:
        return f"<ClientIdentity {shortened(self.client_id)}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        return [("client_id", self.client_id), ("issuer", self.issuer)]

    def method_for(self, server: ServerMetadata) -> str:
        """The method by which the client authenticates itself at the token endpoint (RFC 8414
        section 2)."""
        if self.client_secret is None:
            return NONE
        if self.method:
            return self.method
        supported = server.token_endpoint_auth_methods_supported
        if supported is None or BASIC in supported:
            return BASIC
        if POST in supported:
            return POST
        return NONE if NONE in supported else BASIC

    def authenticate(self, server: ServerMetadata, form: dict[str, str]) -> list[tuple[str, str]]:
        """Add the client to the form of a token request. Returns header fields of the request (RFC
        6749 section 2.3.1)."""
        method = self.method_for(server)
        if method == BASIC:
            pair = f"{_form(self.client_id)}:{_form(self.client_secret or '')}"
            return [("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")]
        form["client_id"] = self.client_id
        if method == POST and self.client_secret is not None:
            form["client_secret"] = self.client_secret
        return []


class _TokenResponse(msgspec.Struct):
    access_token: str
    token_type: str = "Bearer"
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


class _Refusal(msgspec.Struct):
    error: str
    error_description: str = ""


async def request_tokens(
    fetcher: Fetcher,
    server: ServerMetadata,
    form: Mapping[str, str],
    authenticate: Authenticate,
    *,
    scopes: tuple[str, ...] = (),
    proofs: Proofs | None = None,
) -> Tokens:
    """Ask the token endpoint of an authorization server for tokens (RFC 6749 section 3.2).

    AuthorizationError: as of `ask_token_endpoint`, or the answer has no token that can be used.

    Args:
        fetcher: What sends the request.
        server: The metadata of the server.
        form: The parameters of the grant.
        authenticate: Adds the client: `ClientIdentity.authenticate` or another.
        scopes: The scopes that were asked for.
        proofs: The proofs of possession; None for bearer tokens.
    """
    url, body = await ask_token_endpoint(fetcher, server, form, authenticate, proofs)
    return _tokens(body, url, scopes, dpop=proofs is not None)


async def ask_token_endpoint(
    fetcher: Fetcher,
    server: ServerMetadata,
    form: Mapping[str, str],
    authenticate: Authenticate,
    proofs: Proofs | None = None,
) -> tuple[str, bytes]:
    """Return the URL of a token endpoint and the body of its answer of success.

    AuthorizationError: the server refused (``error`` has its code), or cannot be asked.
    """
    url = server.token_endpoint
    if url is None:
        raise AuthorizationError(f"the authorization server {server.issuer} has no token endpoint")
    for again in (False, True):
        full = dict(form)
        headers = authenticate(server, full)
        if proofs is not None:
            headers.append(("DPoP", proofs.field("POST", url)))
        try:
            found = await fetcher.post(url, form=full, headers=headers)
        except FetchError as exc:
            raise AuthorizationError(f"the token endpoint cannot be asked: {exc}") from exc
        nonce = proofs is not None and proofs.note(url, found.headers)
        refusal = _refusal(found.body)
        if found.status == 200 and not refusal.error:
            return url, found.body
        if not (nonce and not again and refusal.error == "use_dpop_nonce"):
            break
    where = f"the token endpoint {public(url)}"
    secrets = [full[name] for name in _SECRET if name in full]
    secrets += [_password(value) for name, value in headers if name == "Authorization"]
    raise refused(where, found.status, refusal, secrets)


def _tokens(body: bytes, url: str, scopes: tuple[str, ...], *, dpop: bool) -> Tokens:
    where = f"the token endpoint {public(url)}"
    try:
        answer = msgspec.json.decode(body, type=_TokenResponse)
        seconds = None if answer.expires_in is None else float(answer.expires_in)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise AuthorizationError(f"{where} answered without a token") from None
    if not is_token(answer.access_token) or len(answer.access_token) > MAX_TOKEN:
        raise AuthorizationError(f"{where} sent a token that cannot be a header field")
    kind = answer.token_type.lower()
    if kind not in ("bearer", "dpop") or (kind == "dpop" and not dpop):
        raise AuthorizationError(
            f"{where} sent a token of the type {shortened(answer.token_type)!r}, which this client "
            "did not ask for"
        )
    if dpop and kind != "dpop":
        raise AuthorizationError(
            f"{where} sent a bearer token, although dpop=True asks for a token that is bound to a "
            "key; leave dpop out for this server"
        )
    now = time.time()
    return Tokens(
        access_token=answer.access_token,
        token_type="DPoP" if kind == "dpop" else "Bearer",
        refresh_token=answer.refresh_token or None,
        issued=now,
        expires=None if seconds is None or not seconds >= 0 else now + seconds,
        scopes=scopes if answer.scope is None else tuple(answer.scope.split()),
    )


def _refusal(body: bytes) -> _Refusal:
    try:
        return msgspec.json.decode(body, type=_Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Refusal("")


def refused(
    where: str, status: int, refusal: _Refusal, secrets: Iterable[str] = ()
) -> AuthorizationError:
    """The error of an answer that has no tokens. It quotes the server, which says what to change,
    without the secrets of the request."""
    said = oauth_words(refusal.error, refusal.error_description, secrets)
    return AuthorizationError(f"{where} answered {status}{said}", refusal.error)


def oauth_words(error: str, description: str, secrets: Iterable[str] = ()) -> str:
    """The part of an error text that quotes an OAuth error of a server."""
    words = "".join(c if c.isprintable() else " " for c in f"{error}: {description}".strip(": "))
    for secret in filter(None, secrets):
        words = words.replace(secret, "…")
    return f" ({shortened(words)})" if words else ""


def _password(value: str) -> str:
    """The secret of HTTP Basic, as `ClientIdentity.authenticate` wrote it."""
    pair = base64.b64decode(value.partition(" ")[2]).decode()
    return unquote_plus(pair.partition(":")[2])


def _form(text: str) -> str:
    """A text as a form has it: RFC 6749 appendix B."""
    return quote(text, safe="-._~ ").replace(" ", "+")

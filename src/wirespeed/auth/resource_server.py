"""A server whose clients bring access tokens: the value of ``Server(auth=…)`` (OAuth 2.1, "resource
server").

A request is judged by its header fields alone. A token that was verified is known by its digest
for a while, so that most requests cost one lookup. Sources: MCP basic/authorization, RFC 6750
section 3, RFC 9728.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import json
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, TypeAlias

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.access_token import AccessToken, Verifier
from wirespeed.auth.fetch import FetchError, checked_url
from wirespeed.auth.metadata import (
    RESOURCE,
    ResourceMetadata,
    resource_metadata_urls,
    write_challenge,
)
from wirespeed.errors import CannotVerify, InvalidToken, StoreUnavailable
from wirespeed.transport.gate import NOBODY, Admission, Gate, Refused, digest
from wirespeed.transport.http.exchange import Exchange, HttpTarget
from wirespeed.transport.options import HttpRequest, Refusal, User, checked_scopes
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed.auth.dpop import DpopProofs, Proof
    from wirespeed.single_use import SingleUse

logger = logging.getLogger("wirespeed.server")

KEEP = 60.0  # seconds
MAX_KEPT = 10_000
RETRY_AFTER = "5"  # seconds, when the verifier is down

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750 section 2.1, b64token

Verify: TypeAlias = "Callable[[str], Awaitable[AccessToken | None] | AccessToken | None]"


class _Known(NamedTuple):
    """A token that was verified, and the admission of its client."""

    token: AccessToken
    admission: Admission


class ResourceServer:
    """The access check of a server: the tokens that it accepts, and its answers to clients without
    one::

        server = Server(
            "notes",
            auth=ResourceServer(
                "https://notes.example.com/mcp",
                ["https://login.example.com"],
                scopes=["notes:read"],
            ),
        )

    The `User` of a request (`Context.user`) is the subject of its token. ``user.scopes`` has the
    scopes of the token and those that they imply, ``user.data`` is the `AccessToken`. Sessions,
    tasks and ``requestState`` belong to the issuer and the subject together.

    Args:
        resource: The URL of the MCP endpoint as clients know it. Tokens are issued for it.
        authorization_servers: The issuers whose tokens are accepted. Clients find them in the
            metadata of the resource. If empty, there is no metadata.
        verifier: What checks a token: a `Verifier`, or a function of the token that returns an
            `AccessToken`, or None to refuse it, or an awaitable of either. It has to check that the
            token was issued for this resource. By default a `JwtVerifier` for the only
            authorization server, with the resource as the audience.
        scopes: The scopes that every request needs.
        scopes_supported: The scopes that the metadata names. By default ``scopes``, and those of
            tools, prompts and resources.
        name, documentation: Of the resource, for people, in its metadata.
        dpop: Whether tokens may (``"accepted"``) or must (``"required"``) be bound to a key of the
            client (RFC 9449). A token that is bound is never accepted without its proof. A proof is
            accepted once by each process: with several workers, once by each of them.
        dpop_nonces: Whether the proofs of keys must have a nonce that the server gave out (RFC 9449
            section 9).
        certificate_bound: Whether tokens must be bound to the client certificate of the TLS
            connection (RFC 8705). A token that is bound is never accepted without the certificate.
        filter_lists: Whether lists leave out what needs scopes that the client's token lacks; such
            tools, prompts and resources are then unknown to the client. By default lists show
            everything, and a call without the scopes is answered with a challenge.
        implied: By scope, the narrower scopes that it includes.
        keep: Seconds for which a verified token is accepted without being verified again, but not
            after it expires or after `AccessToken.fresh_until`. 0: verify for each request.
        max_kept: Verified tokens that are remembered at a time.

    Raises:
        ValueError: A URL, a scope or a number cannot be used.
        ModuleNotFoundError: JWTs and ``dpop`` need ``pip install 'wirespeed[auth]'``.
    """

    def __init__(
        self,
        resource: str,
        authorization_servers: Sequence[str],
        *,
        verifier: Verifier | Verify | None = None,
        scopes: Iterable[str] = (),
        scopes_supported: Iterable[str] | None = None,
        name: str | None = None,
        documentation: str | None = None,
        dpop: Literal["off", "accepted", "required"] = "off",
        dpop_nonces: bool = False,
        certificate_bound: bool = False,
        filter_lists: bool = False,
        implied: Mapping[str, Iterable[str]] | None = None,
        keep: float = KEEP,
        max_kept: int = MAX_KEPT,
    ) -> None:
        if isinstance(authorization_servers, str):
            raise TypeError("authorization_servers is a sequence of URLs, not one string")
        if dpop not in ("off", "accepted", "required"):
            raise ValueError('dpop must be "off", "accepted" or "required"')
        if not 0 <= keep < math.inf:
            raise ValueError("keep must be seconds, 0 or more")
        if max_kept < 1:
            raise ValueError("max_kept must be at least 1")
        self.resource = resource
        self.authorization_servers = tuple(authorization_servers)
        self.scopes = checked_scopes(scopes)
        self.scopes_supported = (
            None if scopes_supported is None else checked_scopes(scopes_supported)
        )
        self.filter_lists = filter_lists
        try:
            self.metadata_url = resource_metadata_urls(resource)[0]
            for issuer in self.authorization_servers:
                checked_url(issuer)
        except FetchError as exc:
            raise ValueError(str(exc)) from None
        self._needed = frozenset(self.scopes)
        self._implied = {
            scope: checked_scopes(narrower) for scope, narrower in (implied or {}).items()
        }
        self._name = name
        self._documentation = documentation
        self._dpop = dpop
        self._certificate_bound = certificate_bound
        self._proofs: DpopProofs | None = None
        if dpop != "off":
            from wirespeed.auth.dpop import DpopProofs, Nonces

            self._proofs = DpopProofs(nonces=Nonces() if dpop_nonces else None)
        if verifier is None:
            if len(self.authorization_servers) != 1:
                raise ValueError("without a verifier there must be one authorization server")
            from wirespeed.auth.verifiers.jwt import JwtVerifier

            verifier = JwtVerifier(self.authorization_servers[0], resource)
        verify = getattr(verifier, "verify", verifier)
        if not callable(verify):
            raise TypeError("verifier must have a method verify, or be a function of a token")
        self._verify: Verify = verify
        self._keep = keep
        self._max_kept = max_kept
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._quiet = RateLimitedLog(logger)

    def __repr__(self) -> str:
        return f"<ResourceServer {self.resource}>"

    def share(self, single_use: SingleUse, secret: bytes) -> None:
        """Accept each DPoP proof once on all hosts, not in each process. Nonces are those of all
        hosts with this secret. A server with a cluster calls it."""
        if self._proofs is not None:
            self._proofs.share(single_use, secret)

    # -- requests --------------------------------------------------------------------------------

    def check(self, request: HttpRequest) -> Admission | Awaitable[Admission]:
        """Return the admission of a client. Refused: its token does not let it in."""
        field = request.headers.get("authorization", "")
        key = hashlib.blake2b(field.encode(), digest_size=32).digest()
        known = self._known.get(key)
        if known is not None and known.admission.until > time.time():
            self._known.move_to_end(key)
            return self._admit(request, field, known)
        token = self._token_of(field)
        try:
            verified = self._verify(token)
        except Exception as exc:
            self._refuse_because(request, exc)
        if inspect.isawaitable(verified):
            return self._wait(request, field, key, verified)
        return self._admit(request, field, self._note(request, key, verified))

    async def _wait(
        self, request: HttpRequest, field: str, key: bytes, verified: Awaitable[AccessToken | None]
    ) -> Admission:
        try:
            found = await verified
        except Exception as exc:
            self._refuse_because(request, exc)
        admission = self._admit(request, field, self._note(request, key, found))
        return await admission if inspect.isawaitable(admission) else admission

    def _token_of(self, field: str) -> str:
        """The token of an Authorization field. Refused: there is none (RFC 6750 section 3.1: no
        error code for a client that brings no credentials)."""
        scheme, token = _parts(field)
        if not scheme:
            raise self._refused(401, "an access token is needed")
        if scheme == "dpop" and self._proofs is not None:
            pass
        elif scheme != "bearer" or self._dpop == "required":
            wanted = "DPoP" if self._dpop == "required" else "Bearer"
            raise self._refused(401, f"an access token of the scheme {wanted} is needed")
        if not _TOKEN.fullmatch(token):  # two fields of this name are joined by a comma
            raise self._refused(400, "Authorization is malformed", "invalid_request")
        return token

    def _note(self, request: HttpRequest, key: bytes, found: AccessToken | None) -> _Known:
        """Remember what the verifier returned. Refused: that is not a valid token."""
        now = time.time()
        try:
            if found is None:
                raise InvalidToken("the verifier returned None")
            if not isinstance(found, AccessToken):
                raise TypeError(f"a verifier returns an AccessToken or None, not {found!r:.50}")
            expires = math.inf if found.expires is None else found.expires
            # later than expires if the verifier allows for clocks that differ
            fresh = expires if found.fresh_until is None else found.fresh_until
            if max(expires, fresh) <= now:
                raise InvalidToken("the token has expired")
        except Exception as exc:
            self._refuse_because(request, exc)
        user = User(found.subject, self._with_implied(found.scopes), found)
        principal = digest("subject", json.dumps([found.issuer, found.subject]))
        until = min(fresh, now + self._keep)
        known = _Known(found, Admission(user, principal, until, max(expires, until)))
        if self._keep:
            self._known[key] = known
            self._known.move_to_end(key)
            if len(self._known) > self._max_kept:
                self._known.popitem(last=False)
        return known

    def _admit(
        self, request: HttpRequest, field: str, known: _Known
    ) -> Admission | Awaitable[Admission]:
        """Check what depends on more than the token."""
        use: Callable[[], Awaitable[None]] | None = None
        said, admission = known
        if said.certificate_thumbprint is not None or self._certificate_bound:
            self._check_certificate(request, said)
        if said.key_thumbprint is not None or (
            self._proofs is not None and _parts(field)[0] == "dpop"
        ):
            proof = self._check_proof(request, *_parts(field), said)
            use = proof.use
            fields = () if proof.nonce is None else (("DPoP-Nonce", proof.nonce),)
            # each request has a proof of its own
            admission = admission._replace(until=0.0, fields=fields)
        assert admission.user is not None
        if not self._needed <= admission.user.scopes:
            raise self._refused(403, "the access token lacks scopes", "insufficient_scope")
        return admission if use is None else self._admit_once(request, admission, use)

    async def _admit_once(
        self, request: HttpRequest, admission: Admission, use: Callable[[], Awaitable[None]]
    ) -> Admission:
        try:
            await use()
        except StoreUnavailable as exc:  # logged where it was found
            raise Refused(Refusal(503, exc.message, {"Retry-After": "1"})) from None
        except Exception as exc:
            self._refuse_because(request, exc)
        return admission

    def _check_certificate(self, request: HttpRequest, said: AccessToken) -> None:
        """Refused: the token is not bound to the certificate of the connection (RFC 8705 section
        3)."""
        shown = hashlib.sha256(request.certificate or b"").digest()
        thumbprint = base64.urlsafe_b64encode(shown).rstrip(b"=")
        bound = (said.certificate_thumbprint or "").encode("utf-8", "replace")
        if request.certificate is None or not hmac.compare_digest(thumbprint, bound):
            exc = InvalidToken("the token is not bound to the certificate of the connection")
            self._refuse_because(request, exc)

    def _check_proof(
        self, request: HttpRequest, scheme: str, token: str, said: AccessToken
    ) -> Proof:
        """Return the proof of a request. Refused: the request does not prove that the client has
        the key of its token (RFC 9449 section 7)."""
        if scheme != "dpop" or said.key_thumbprint is None or self._proofs is None:
            why = "is not bound to a key" if said.key_thumbprint is None else "needs a proof"
            self._refuse_because(request, InvalidToken(f"the token {why}"))
        try:
            # what was signed is the URL as clients know it, not that behind a proxy
            return self._proofs.check(
                request.headers.get("dpop", ""),
                method=request.method,
                url=self.resource,
                token=token,
                thumbprint=said.key_thumbprint,
            )
        except Exception as exc:
            self._refuse_because(request, exc)

    def _with_implied(self, granted: Iterable[str]) -> frozenset[str]:
        found: set[str] = set()
        new = list(granted)
        while new:
            scope = new.pop()
            if scope not in found:
                found.add(scope)
                new += self._implied.get(scope, ())
        return frozenset(found)

    # -- refusals --------------------------------------------------------------------------------

    def _refuse_because(self, request: HttpRequest, exc: Exception) -> NoReturn:
        """Refuse a client because its token is not good, or could not be verified."""
        if isinstance(exc, InvalidToken):
            self._quiet.log(logging.INFO, "an access token of %s: %s", request.peer, exc)
            error = getattr(exc, "error", "invalid_token")  # of an `InvalidProof`
            nonce = getattr(exc, "nonce", None)
            what = "access token" if error == "invalid_token" else "DPoP proof"
            fields = {} if nonce is None else {"DPoP-Nonce": nonce}
            raise self._refused(401, f"the {what} is not valid", error, fields) from None
        if isinstance(exc, CannotVerify):
            self._quiet.log(logging.ERROR, "access tokens cannot be verified: %s", exc)
            busy = {"Retry-After": RETRY_AFTER}
            raise Refused(Refusal(503, "access tokens cannot be verified now", busy)) from None
        logger.error("the verifier failed for %s", request.peer, exc_info=exc)
        raise Refused(Refusal(500, "internal error")) from None

    def _refused(
        self,
        status: int,
        reason: str,
        error: str | None = None,
        fields: Mapping[str, str] = MappingProxyType({}),
    ) -> Refused:
        field = self.challenge(error, None if error is None else reason, self.scopes)
        return Refused(Refusal(status, reason, {**fields, "WWW-Authenticate": field}))

    def challenge(self, error: str | None, description: str | None, scopes: Iterable[str]) -> str:
        """The value of ``WWW-Authenticate`` (RFC 6750 section 3; RFC 9728 section 5.1).

        Args:
            error: A code of RFC 6750 section 3.1; None for a client that brought no token.
            description: What is wrong, for people.
            scopes: All scopes that the request needs.
        """
        params = {
            "error": error,
            "error_description": description,
            "scope": " ".join(scopes) or None,
            "resource_metadata": self.metadata_url if self.authorization_servers else None,
        }
        fields = []
        if self._dpop != "required":
            fields.append(write_challenge("Bearer", params))
        if self._proofs is not None:
            algorithms = " ".join(self._proofs.algorithms)
            fields.append(write_challenge("DPoP", {**params, "algs": algorithms}))
        return ", ".join(fields)

    # -- metadata --------------------------------------------------------------------------------

    def metadata(self, scopes: Iterable[str] = ()) -> bytes:
        """The metadata of the resource (RFC 9728 section 2) as JSON text. ``scopes``: what tools,
        prompts and resources need."""
        supported = self.scopes_supported
        if supported is None:
            supported = tuple(dict.fromkeys((*self.scopes, *sorted(scopes))))
        return msgspec.json.encode(
            ResourceMetadata(
                resource=self.resource,
                authorization_servers=list(self.authorization_servers),
                scopes_supported=list(supported) or None,
                bearer_methods_supported=["header"],
                resource_name=self._name,
                resource_documentation=self._documentation,
                dpop_signing_alg_values_supported=(
                    None if self._proofs is None else list(self._proofs.algorithms)
                ),
                dpop_bound_access_tokens_required=self._dpop == "required" or None,
                tls_client_certificate_bound_access_tokens=self._certificate_bound or None,
            )
        )

    def well_known(
        self, path: str, scopes: Callable[[], Iterable[str]]
    ) -> Mapping[str, HttpTarget]:
        """The targets of the metadata by path: for the path of the resource's URL, for the path at
        which it is served, and at the root. ``scopes``: as of `metadata`."""
        if not self.authorization_servers:
            return {}
        target = MetadataTarget(lambda: self.metadata(scopes()))
        own = RESOURCE + self.metadata_url.partition(RESOURCE)[2].partition("?")[0]
        paths = (own, own + "/", RESOURCE + path.rstrip("/"), RESOURCE)
        return dict.fromkeys(paths, target)


def _parts(field: str) -> tuple[str, str]:
    """The scheme of an Authorization field in lower case, and what follows it."""
    scheme, _, token = field.strip().partition(" ")
    return scheme.lower(), token.strip()


class MetadataTarget(HttpTarget):
    """Answers with the metadata of a resource, to everyone."""

    methods = ("GET", "HEAD")

    def __init__(self, text: Callable[[], bytes]) -> None:
        self._text = text
        self.for_pages = True

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Admit every client: one without a token has to find out where to get one."""
        return NOBODY

    def take(self, exchange: Exchange, body: bytes) -> None:
        if exchange.method not in self.methods:
            exchange.respond(405, b"", [("Allow", "GET, HEAD, OPTIONS")])
            return
        fields = [
            ("Content-Type", "application/json"),
            ("Cache-Control", "public, max-age=300"),
            ("Access-Control-Allow-Origin", "*"),
        ]
        exchange.respond(200, self._text(), fields)


set_public_home(globals())

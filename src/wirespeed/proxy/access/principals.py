"""The principals of a proxy: the access check of each server asks who a client is, and whether it
may use the server."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.auth.access_token import PREFIX, AccessToken, AnyOf, TokenHash, TokenHashes
from wirespeed.auth.resource_server import ResourceServer
from wirespeed.proxy.access.grants import Grants, PrincipalGrant
from wirespeed.transport.gate import Admission, Refused, digest
from wirespeed.transport.options import Refusal, User

if TYPE_CHECKING:
    from wirespeed.auth.access_token import Verifier
    from wirespeed.proxy.config import AuthorizationConfig, PrincipalConfig, ProxyConfig
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.options import HttpRequest

# The issuer of the tokens in the configuration: no authorization server has this name.
_STATIC = "wirespeed:static"


class Principals:
    """The principals of a proxy.

    Attributes:
        rates: How many requests those may send that have a rate of their own, by their digests.
        quotas: The calls of tools in a day of those that have quotas of their own.

    Raises:
        ValueError: A URL, a scope or a hash cannot be used.
        ModuleNotFoundError: JWTs need ``pip install 'wirespeed[auth]'``.
    """

    def __init__(self, config: ProxyConfig) -> None:
        auth = config.auth
        verifiers: list[Verifier] = []
        hashes = [
            TokenHash(
                hash=PREFIX + one.token_sha256,
                subject=one.name,
                scopes=frozenset(() if auth is None else auth.scopes),
            )
            for one in config.principals
            if one.token_sha256 is not None
        ]
        if hashes:
            verifiers.append(_Static(hashes))
        if auth is not None:
            verifiers += _verifiers(auth)
        self._resource = ResourceServer(
            "http://localhost" if auth is None else auth.resource,
            () if auth is None else auth.issuers,
            verifier=AnyOf(*verifiers),
            scopes=() if auth is None else auth.scopes,
        )
        self._known: dict[tuple[str, str], PrincipalConfig] = {}
        for one in config.principals:
            if one.subject is None:
                self._known[_STATIC, one.name] = one
                continue
            assert auth is not None
            self._known[one.issuer or auth.issuers[0], one.subject] = one
        self._all = config.principals
        self.rates = {_digest(one): one.rate for one in config.principals if one.rate is not None}
        self.quotas = {
            _digest(one): one.quotas for one in config.principals if one.quotas is not None
        }

    def authority(self, server: str | None) -> ProxyAuthority:
        """Return what decides who may use a server. ``server`` is None for the endpoint of all
        servers."""
        return ProxyAuthority(self, server)

    def grants(
        self,
        server: str | None,
        names: Callable[[str], Iterable[str]],
        shows: Callable[[str], bool] | None,
    ) -> Grants | None:
        """Return what principals may use at the endpoint of a server. Returns None if there are no
        principals: then each client may use the same.

        Args:
            server: None for the endpoint of all servers.
            names: Returns the names of a tool, by its name at this endpoint. The first is its name
                at the endpoint of all servers.
            shows: Whether anyone may use a tool; None: all tools may be used.
        """
        if not self._all:
            return None
        found = {}
        for one in self._all:
            if server is not None and not one.may_use(server):
                continue
            allows = shows
            if one.tools.restricts:
                allows = _by_names(one, names, shows)
            found[_digest(one)] = PrincipalGrant(one.name, one.may_use, allows)
        return Grants(found)

    def check(self, request: HttpRequest) -> Admission | Awaitable[Admission]:
        """Return the admission of a client by its token. Refused: the token does not let it in."""
        return self._resource.check(request)

    def identified(self, admission: Admission, server: str | None) -> Admission:
        """Return the admission of a client as its principal. Refused: the principal may not use the
        server, or there is none."""
        if not self._all:
            return admission
        assert admission.user is not None
        token: AccessToken = admission.user.data
        principal = self._known.get((token.issuer or "", token.subject))
        if principal is None:
            raise Refused(Refusal(403, "this client may use no server"))
        if server is not None and not principal.may_use(server):
            raise Refused(Refusal(403, "this client may not use this server"))
        user = User(principal.name, admission.user.scopes, token)
        return admission._replace(user=user, principal=_digest(principal))

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """The targets of the metadata of the resource, by path."""
        return self._resource.well_known(path, tuple)


class ProxyAuthority:
    """A `wirespeed.transport.gate.Authority` of one server, or of the endpoint of all."""

    def __init__(self, principals: Principals, server: str | None) -> None:
        self._principals = principals
        self._server = server

    def adopt(self, principals: Principals) -> None:
        """Ask others from now on. What the gate has decided holds for a minute at most."""
        self._principals = principals

    def check(self, request: HttpRequest) -> Admission | Awaitable[Admission]:
        """Return the admission of a client. Refused: it may not come in."""
        found = self._principals.check(request)
        if inspect.isawaitable(found):
            return self._wait(found)
        return self._principals.identified(found, self._server)

    async def _wait(self, found: Awaitable[Admission]) -> Admission:
        return self._principals.identified(await found, self._server)

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """The targets of the metadata of the resource, by path."""
        return self._principals.well_known(path)


class _Static:
    """Verifies the tokens in the configuration. Nobody else issues tokens in its name."""

    def __init__(self, tokens: list[TokenHash]) -> None:
        self._hashes = TokenHashes(tokens)

    def verify(self, token: str) -> AccessToken:
        return msgspec.structs.replace(self._hashes.verify(token), issuer=_STATIC)

    async def close(self) -> None:
        await self._hashes.close()


def _digest(principal: PrincipalConfig) -> bytes:
    """Return the digest of a principal. It depends on the token, so that a reload which changes
    the token ends the connections that used the old one."""
    return digest("principal", f"{principal.name} {principal.token_sha256}")


def _by_names(
    principal: PrincipalConfig,
    names: Callable[[str], Iterable[str]],
    shows: Callable[[str], bool] | None,
) -> Callable[[str], bool]:
    return lambda name: (shows is None or shows(name)) and principal.tools.allows(*names(name))


def _verifiers(auth: AuthorizationConfig) -> list[Verifier]:
    if auth.introspection is not None:
        from wirespeed.auth.verifiers.introspection import IntrospectionVerifier

        asked = auth.introspection
        how: dict[str, Any] = {"token": asked.token} if asked.token is not None else {}
        if asked.client_id is not None:
            how = {"client_id": asked.client_id, "client_secret": asked.client_secret, **how}
        how["issuer"] = auth.issuers[0]
        return [IntrospectionVerifier(asked.url, audience=auth.resource, **how)]
    from wirespeed.auth.verifiers.jwt import JwtVerifier

    return [JwtVerifier(issuer, auth.resource, jwks_url=auth.jwks_url) for issuer in auth.issuers]

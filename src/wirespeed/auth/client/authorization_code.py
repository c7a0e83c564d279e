"""One authorization request and its response (OAuth 2.1 section 4.1, RFC 7636, RFC 9207)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from wirespeed.auth.client.browser import check_endpoint
from wirespeed.auth.client.tokens import oauth_words
from wirespeed.errors import AuthorizationError

if TYPE_CHECKING:
    from wirespeed.auth.client.discovery import Found

__all__ = ["AuthorizationRequest"]

MAX_CODE = 8192  # characters of an authorization code


class AuthorizationRequest:
    """One authorization request, and what its response must match.

    AuthorizationError: the authorization server cannot be used.

    Attributes:
        url: The page at which the user logs in.
        verifier: Proves to the token endpoint that this client began the login (RFC 7636).
    """

    def __init__(
        self, found: Found, client_id: str, redirect_uri: str, scopes: tuple[str, ...]
    ) -> None:
        server = found.server
        where = f"the authorization server {server.issuer}"
        endpoint = server.authorization_endpoint
        if endpoint is None:
            raise AuthorizationError(f"{where} has no authorization endpoint")
        check_endpoint(endpoint, f"the authorization endpoint of {where}")
        if "S256" not in (server.code_challenge_methods_supported or ()):
            raise AuthorizationError(
                f"{where} does not say that it supports PKCE with S256 "
                "(code_challenge_methods_supported): the login would not be safe"
            )
        self._issuer = server.issuer
        self._has_issuer = bool(server.authorization_response_iss_parameter_supported)
        self._state = secrets.token_urlsafe(32)
        self._redirect_uri = redirect_uri
        self.verifier = secrets.token_urlsafe(64)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": redirect_uri,
            "state": self._state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": found.resource,
        }
        if scopes:
            query["scope"] = " ".join(scopes)
        own = urlsplit(endpoint)
        if own.fragment or {name for name, _ in parse_qsl(own.query)} & query.keys():
            raise AuthorizationError(
                f"the authorization endpoint of {where} has parameters of a login already"
            )
        mark = "&" if own.query else "?"
        url = endpoint + mark + urlencode(query)
        self.url = check_endpoint(url, f"the authorization endpoint of {where}")

    def accepts(self, query: str) -> str:
        """Return "done" or "refused" if the query of a redirect answers this request, "" if it
        answers another request."""
        values = parse_qs(query)
        state = values.get("state", [""])
        if len(state) != 1 or not hmac.compare_digest(state[0].encode(), self._state.encode()):
            return ""
        return "done" if "code" in values else "refused"

    def code(self, redirected: str) -> str:
        """The code in the address to which the user was redirected. AuthorizationError: the
        response is of another request or of another server, or refuses."""
        parts = urlsplit(redirected)
        values = parse_qs(parts.query)
        twice = [name for name, found in values.items() if len(found) > 1]
        if not self.accepts(parts.query) or twice:
            raise AuthorizationError(
                "the redirect does not answer this login (its state differs): begin again, and "
                "paste the whole address"
            )
        issuer = values.get("iss", [""])[0]
        if issuer != self._issuer and (issuer or self._has_issuer):
            said = "another authorization server" if issuer else "no authorization server"
            raise AuthorizationError(
                f"the response to the login at {self._issuer} names {said} (iss): it may be forged "
                "(RFC 9207), and its code is not used"
            )
        if "error" in values:
            error = values["error"][0]
            said = oauth_words(error, values.get("error_description", [""])[0])
            raise AuthorizationError(f"the login at {self._issuer} was refused{said}", error)
        code = values.get("code", [""])[0]
        if not code or len(code) > MAX_CODE:
            raise AuthorizationError(f"the response to the login at {self._issuer} has no code")
        return code

    def form(self, code: str, resource: str) -> dict[str, str]:
        """The token request (RFC 6749 section 4.1.3, RFC 8707)."""
        return {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": self.verifier,
            "resource": resource,
        }

"""Metadata of protected resources (RFC 9728) and of authorization servers (RFC 8414, OpenID Connect
Discovery 1.0): the documents, where they lie, and how they are fetched; and the challenges in
``WWW-Authenticate`` that lead to them (RFC 9110 section 11.6.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from wirespeed.auth.fetch import Fetcher, FetchError, checked_url

MAX_LENGTH = 16384  # characters of a field that is read
MAX_CHALLENGES = 16  # of one field

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAM = re.compile(
    rf'(?P<name>{_TOKEN})[ \t]*=[ \t]*(?:(?P<word>{_TOKEN})|"(?P<text>(?:[^"\\]|\\.)*+)")'
    r"(?=[ \t]*(?:,|\Z))"
)
_SCHEME = re.compile(
    rf"(?P<scheme>{_TOKEN})(?:[ \t]+(?P<token68>[A-Za-z0-9\-._~+/]+=*)(?=[ \t]*(?:,|\Z)))?"
    r"(?=[ \t]|,|\Z)"
)
_BETWEEN = re.compile(r"[ \t,]*")
_WRITABLE = re.compile(r"[\x20-\x7e]*\Z")


class Challenge(msgspec.Struct, frozen=True):
    """One challenge.

    Attributes:
        scheme: In lower case: ``bearer``, ``dpop``, ``basic``.
        params: The parameters by their names in lower case. Of a name that comes twice, the first.
        token68: What stands behind the scheme in place of parameters.
    """

    scheme: str
    params: Mapping[str, str] = msgspec.field(default_factory=dict)
    token68: str = ""

    @property
    def scopes(self) -> list[str]:
        """The scopes that the parameter ``scope`` names (RFC 6750 section 3)."""
        return self.params.get("scope", "").split()


def read_challenges(field: str) -> list[Challenge]:
    """The challenges of a field, in order; several fields are joined by commas. Challenges
    from the first malformed one on are left out; a malformed field is not an error."""
    field = field[:MAX_LENGTH]
    found: list[Challenge] = []
    params: dict[str, str] | None = None
    at = _BETWEEN.match(field, 0).end()  # type: ignore[union-attr]
    while at < len(field):
        match = _PARAM.match(field, at)
        if match is not None and params is not None:
            text = match["text"]
            value = match["word"] if text is None else re.sub(r"\\(.)", r"\1", text)
            params.setdefault(match["name"].lower(), value)
        else:
            match = _SCHEME.match(field, at)
            if match is None or len(found) == MAX_CHALLENGES:
                break
            params = {}
            found.append(Challenge(match["scheme"].lower(), params, match["token68"] or ""))
        at = _BETWEEN.match(field, match.end()).end()  # type: ignore[union-attr]
    return found


def find_challenge(field: str, scheme: str) -> Challenge | None:
    """The first challenge of a scheme (in lower case), or None."""
    return next((one for one in read_challenges(field) if one.scheme == scheme), None)


def write_challenge(scheme: str, params: Mapping[str, str | None]) -> str:
    """A challenge as a field's value; parameters that are None are left out, the others are quoted.
    ValueError: a value has a character outside printable ASCII."""
    parts = []
    for name, value in params.items():
        if value is None:
            continue
        if not _WRITABLE.match(value):
            raise ValueError(f"the parameter {name} of a challenge is not printable ASCII")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'{name}="{quoted}"')
    return f"{scheme} {', '.join(parts)}" if parts else scheme


T = TypeVar("T")

RESOURCE = "/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


class ResourceMetadata(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The metadata of a protected resource (RFC 9728 section 2), here an MCP server. Members that
    are absent are None."""

    resource: str
    authorization_servers: list[str] | None = None
    jwks_uri: str | None = None
    scopes_supported: list[str] | None = None
    bearer_methods_supported: list[str] | None = None
    resource_name: str | None = None
    resource_documentation: str | None = None
    resource_policy_uri: str | None = None
    resource_tos_uri: str | None = None
    tls_client_certificate_bound_access_tokens: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None


class ServerMetadata(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The metadata of an authorization server (RFC 8414 section 2; OpenID Connect Discovery 1.0
    section 3). Members that are absent are None."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    jwks_uri: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    response_types_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    revocation_endpoint: str | None = None
    introspection_endpoint: str | None = None
    introspection_endpoint_auth_methods_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_grant_profiles_supported: list[str] | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    end_session_endpoint: str | None = None


def resource_metadata_urls(resource: str) -> list[str]:
    """The URLs at which the metadata of a protected resource may lie: the well-known path before
    the path of the resource (RFC 9728 section 3.1), then at the root. FetchError: not such a
    URL."""
    origin, path = _split(resource)
    query = checked_url(resource).query
    with_path = f"{origin}{RESOURCE}{path}" + (f"?{query}" if query else "")
    return list(dict.fromkeys([with_path, f"{origin}{RESOURCE}"]))


def server_metadata_urls(issuer: str) -> list[str]:
    """The URLs at which the metadata of an authorization server may lie, in the order of MCP
    (2025-11-25 basic/authorization, "Authorization Server Metadata Discovery"). FetchError: not
    such a URL."""
    origin, path = _split(issuer)
    found = [f"{origin}{OAUTH}{path}", f"{origin}{OPENID}{path}"]
    return [*found, f"{origin}{path}{OPENID}"] if path else found


async def fetch_document(fetcher: Fetcher, url: str, type: type[T]) -> T | None:
    """A metadata document; None where there is none (a status of 400 to 499). FetchError: it was
    not fetched, or is not such a document."""
    found = await fetcher.get(url)
    if 400 <= found.status < 500:
        return None
    address = checked_url(url)
    if found.status != 200:
        raise FetchError(f"{address} answered {found.status}")
    try:
        members = msgspec.json.decode(found.body, type=dict[str, Any])
        known = {name: value for name, value in members.items() if value is not None}
        return msgspec.convert(known, type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        reason = str(exc) if isinstance(exc, msgspec.ValidationError) else "it is not JSON"
        raise FetchError(f"the document at {address} is not metadata: {reason}") from None


async def first_document(
    fetcher: Fetcher, urls: Iterable[str], type: type[T]
) -> tuple[str, T] | None:
    """The first of several URLs that has a document, and the document; None where none has one.
    FetchError: none has one, and one of them failed."""
    failure: FetchError | None = None
    for url in urls:
        try:
            found = await fetch_document(fetcher, url, type)
        except FetchError as exc:  # servers answer unknown paths with pages and redirects, too
            failure = failure or exc
            continue
        if found is not None:
            return url, found
    if failure is not None:
        raise failure
    return None


async def fetch_server_metadata(fetcher: Fetcher, issuer: str) -> ServerMetadata | None:
    """The metadata of an authorization server from the first place that has some; None where no
    place has. FetchError: a document is of another issuer (RFC 8414 section 3.3), or no place has a
    document and one of them failed."""
    first = await first_document(fetcher, server_metadata_urls(issuer), ServerMetadata)
    if first is None:
        return None
    url, found = first
    if found.issuer != issuer:
        raise FetchError(
            f"the metadata at {checked_url(url)} has the issuer {found.issuer[:256]!r}, "
            f"not {issuer!r}"
        )
    return found


def _split(url: str) -> tuple[str, str]:
    """The origin and the path of a URL, the path without the slash at its end."""
    address = checked_url(url)
    return f"{address.scheme}://{address.authority}", address.path.rstrip("/")

"""Access tokens of tests, and servers that take them."""

from __future__ import annotations

from typing import Any

from lab.http import Response

from wirespeed import Context, Server, User
from wirespeed.auth import AccessToken, ResourceServer
from wirespeed.auth.metadata import Challenge, read_challenges

RESOURCE = "https://notes.example/mcp"
ISSUER = "https://login.example"
METADATA = "https://notes.example/.well-known/oauth-protected-resource/mcp"
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def token(subject: str, *scopes: str, **more: Any) -> AccessToken:
    more.setdefault("issuer", ISSUER)
    return AccessToken(subject=subject, scopes=frozenset(scopes), **more)


TOKENS = {
    "anne": token("anne", "notes:read", claims={"tenant": 7}),
    "bob": token("bob", "notes:read"),
    "chief": token("anne", "notes:read", "notes:write", "notes:delete"),
    "stranger": token("anne", "notes:read", issuer="https://other.example"),
    "poor": token("carl", "other"),
}


def notes(verifier: Any, **options: Any) -> Server:
    """A server that says who calls."""
    options.setdefault("scopes", ["notes:read"])
    server = Server("notes", auth=ResourceServer(RESOURCE, [ISSUER], verifier=verifier, **options))

    @server.tool
    async def who(ctx: Context) -> str:
        user = ctx.user
        assert isinstance(user, User)
        return f"{user} {' '.join(sorted(user.scopes))} {user.data.claims.get('tenant')}"

    @server.tool(scopes=["notes:write", "notes:delete"])
    async def clear() -> str:
        return "cleared"

    return server


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


def challenge_of(response: Response, status: int) -> Challenge:
    """The only challenge of a refusal."""
    assert response.status == status, (response.status, response.body)
    (challenge,) = read_challenges(response.headers["www-authenticate"])
    assert challenge.params["resource_metadata"] == METADATA
    return challenge

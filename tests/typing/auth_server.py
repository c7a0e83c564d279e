"""A server's authorization, as a typed user writes it."""

from __future__ import annotations

from typing import assert_type

from wirespeed import Context, Server, User
from wirespeed.auth import AccessToken, ResourceServer


async def look_up(token: str) -> AccessToken | None:
    return AccessToken(subject="anne") if token == "a" else None


auth = ResourceServer(
    "https://notes.example/mcp",
    ["https://login.example"],
    verifier=look_up,
    scopes=["notes:read"],
    implied={"notes:admin": ["notes:read"]},
    dpop="off",
    filter_lists=True,
)
server = Server("notes", auth=auth)


@server.tool(scopes=["notes:admin"])
async def clear(ctx: Context) -> str:
    assert_type(ctx.user, User | None)
    return "" if ctx.user is None else " ".join(ctx.user.scopes)


@server.prompt(scopes=["notes:read"])
def ask() -> str:
    return "?"


server.add_resource("notes://all", "text", scopes=["notes:read"])
server.tool_raw("raw", {"type": "object"}, lambda arguments: None, scopes=["notes:admin"])
assert_type(auth.metadata(), bytes)

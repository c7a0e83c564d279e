"""Clients without a user, as a typed user writes them."""

from __future__ import annotations

from pathlib import Path

from wirespeed import Client
from wirespeed.auth import (
    ClientCredentials,
    EnterpriseManaged,
    JwtBearer,
    MemoryStorage,
    SealedStorage,
    TokenExchange,
)

TOKEN = Path("/var/run/secrets/tokens/mcp")


def platform(issuer: str) -> str:
    return TOKEN.read_text() if issuer else ""


async def signed_in(issuer: str) -> str:
    return issuer


async def machines() -> None:
    secret = ClientCredentials("app", "s3cret", method="client_secret_post", scopes=["notes"])
    key = ClientCredentials(
        "app",
        key=Path("key.pem").read_bytes(),
        key_id="2026",
        algorithm="EdDSA",
        issuer="https://as.example.com",
        dpop=True,
    )
    workload = JwtBearer(platform, client_id="app", allow_private=True)
    person = EnterpriseManaged(
        "app",
        "s3cret",
        identity=signed_in,
        identity_type="refresh_token",
        idp="https://idp.example.com",
        idp_client_id="app",
        idp_client_secret="0ther",
        storage=MemoryStorage(),
    )
    user = TokenExchange(
        "app",
        "s3cret",
        subject=signed_in,
        audience="bank",
        storage=SealedStorage(MemoryStorage(), "a key of at least thirty-two characters"),
    )
    for auth in (secret, key, workload, person, user):
        async with Client("https://mcp.example.com/mcp", auth=auth) as client:
            await client.list_tools()

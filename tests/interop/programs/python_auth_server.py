"""A server of mcp 2 or FastMCP whose tokens an authorization server issues; it prints its URL.

python python_auth_server.py python2|fastmcp ISSUER READER
    (READER: id:secret, with which mcp's asks about tokens; FastMCP's verifies JWTs)
"""

import json
import socket
import sys
from typing import Any

KIND, ISSUER, READER = sys.argv[1:]

listener = socket.create_server(("127.0.0.1", 0))
ORIGIN = f"http://127.0.0.1:{listener.getsockname()[1]}"
URL = f"{ORIGIN}/mcp"


def of_mcp() -> Any:
    import httpx2
    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import MCPServer

    class Introspection:
        async def verify_token(self, token: str) -> AccessToken | None:
            reader, _, secret = READER.partition(":")
            async with httpx2.AsyncClient(auth=(reader, secret)) as http:
                said = (await http.post(f"{ISSUER}/introspect", data={"token": token})).json()
            if not said["active"]:
                return None
            return AccessToken(
                token=token,
                client_id=said["client_id"],
                scopes=said["scope"].split(),
                expires_at=said["exp"],
                resource=said["aud"],
                subject=said["sub"],
            )

    server: Any = MCPServer(
        "protected",
        log_level="WARNING",
        token_verifier=Introspection(),
        auth=AuthSettings(
            issuer_url=ISSUER,
            resource_server_url=URL,
            required_scopes=["mcp"],
            validate_token_resource=True,
        ),
    )

    @server.tool()
    async def whoami() -> str:
        token = get_access_token()
        return json.dumps({"user": token.subject, "scopes": sorted(token.scopes)})

    return server.streamable_http_app()


def of_fastmcp() -> Any:
    from fastmcp import FastMCP
    from fastmcp.server.auth import RemoteAuthProvider
    from fastmcp.server.auth.providers.jwt import JWTVerifier
    from fastmcp.server.dependencies import get_access_token

    verifier = JWTVerifier(
        jwks_uri=f"{ISSUER}/jwks", issuer=ISSUER, audience=URL, required_scopes=["mcp"]
    )
    auth = RemoteAuthProvider(verifier, authorization_servers=[ISSUER], base_url=ORIGIN)
    server = FastMCP("protected", auth=auth)

    @server.tool(output_schema=None)
    async def whoami() -> str:
        token = get_access_token()
        return json.dumps({"user": token.claims["sub"], "scopes": sorted(token.scopes)})

    return server.http_app()


app = {"python2": of_mcp, "fastmcp": of_fastmcp}[KIND]()

import uvicorn  # noqa: E402

print(URL, flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on")).run(sockets=[listener])

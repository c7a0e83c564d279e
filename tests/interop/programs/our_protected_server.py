"""Our server, whose tokens an authorization server issues; it prints its URL.

python our_protected_server.py ISSUER [READER]

It verifies JWTs; with READER (id:secret) it asks the authorization server about each token.
"""

import json
import socket
import sys

from wirespeed import Context, Server
from wirespeed.auth import IntrospectionVerifier, JwtVerifier, ResourceServer, Verifier

ISSUER = sys.argv[1]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    URL = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"

verifier: Verifier = JwtVerifier(ISSUER, URL)
keep = 60.0
if len(sys.argv) > 2:
    reader, _, secret = sys.argv[2].partition(":")
    verifier = IntrospectionVerifier(
        f"{ISSUER}/introspect",
        audience=URL,
        client_id=reader,
        client_secret=secret,
        cache_seconds=0,
    )
    keep = 0.0  # each request is asked about

server = Server(
    "protected",
    auth=ResourceServer(URL, [ISSUER], verifier=verifier, scopes=["mcp"], keep=keep),
)


def caller(ctx: Context) -> str:
    """Whose call it is."""
    return json.dumps({"user": ctx.user, "scopes": sorted(ctx.user.scopes)})


@server.tool
async def whoami(ctx: Context) -> str:
    """Tell the caller's name and scopes."""
    return caller(ctx)


@server.tool(scopes=["tools:write"])
async def write(ctx: Context) -> str:
    """Tell the same, for callers with a scope of its own."""
    return caller(ctx)


if __name__ == "__main__":
    server.run(URL, on_listening=lambda urls: print(urls[0], flush=True))

"""A client of mcp 2 or FastMCP logs in to a protected server, and calls it, as JSON.

python python_auth_client.py python2|fastmcp URL
"""

import asyncio
import json
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import login
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

KIND, URL = sys.argv[1:]
logins: list[str] = []


class Storage:
    """Of this process."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client: OAuthClientInformationFull) -> None:
        self.client = client


async def call(client: Any) -> dict[str, Any]:
    """What the server says of the caller, again after a tool with a scope of its own."""
    found = []
    tools = await client.list_tools()
    names = [tool.name for tool in getattr(tools, "tools", tools)]
    for name in (name for name in ("whoami", "write") if name in names):
        said = (await client.call_tool(name, {})).content[0].text
        found.append({**json.loads(said), "logins": len(logins)})
    return {"calls": found}


async def of_mcp() -> dict[str, Any]:
    import httpx2
    from mcp import ClientSession
    from mcp.client.auth import AuthorizationCodeResult
    from mcp.client.streamable_http import streamable_http_client

    async def redirect(url: str) -> None:
        logins.append(await asyncio.to_thread(login.log_in, url))

    async def callback() -> AuthorizationCodeResult:
        found = parse_qs(urlsplit(logins[-1]).query)
        return AuthorizationCodeResult(
            **{
                name: values[0]
                for name, values in found.items()
                if name in ("code", "state", "iss")
            }
        )

    auth = OAuthClientProvider(
        URL,
        OAuthClientMetadata(
            client_name="mcp",
            redirect_uris=["http://127.0.0.1:4711/callback"],
            token_endpoint_auth_method="none",
        ),
        Storage(),
        redirect_handler=redirect,
        callback_handler=callback,
    )
    async with (
        httpx2.AsyncClient(auth=auth, follow_redirects=True, timeout=60) as http,
        streamable_http_client(URL, http_client=http) as (source, sink, *_),
        ClientSession(source, sink) as session,
    ):
        await session.initialize()
        return await call(session)


async def of_fastmcp() -> dict[str, Any]:
    import warnings

    from fastmcp import Client
    from fastmcp.client.auth import OAuth

    warnings.simplefilter("ignore")  # tokens are kept in memory

    class Person(OAuth):
        async def redirect_handler(self, authorization_url: str) -> None:
            logins.append(authorization_url)
            asyncio.get_running_loop().call_later(1.0, _go, authorization_url)

    def _go(url: str) -> None:
        asyncio.create_task(asyncio.to_thread(login.go, url))  # noqa: RUF006

    async with Client(URL, auth=Person()) as client:
        return await call(client)


print(json.dumps(asyncio.run({"python2": of_mcp, "fastmcp": of_fastmcp}[KIND]())))

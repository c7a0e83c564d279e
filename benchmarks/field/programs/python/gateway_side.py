"""The servers around the proxy while its features are measured: at one port a server that wants
tokens, its authorization server, and a hook's service. The first argument is the port."""

import json
import sys
from urllib.parse import parse_qs

from wirespeed import HttpOptions, HttpRequest, HttpResponse, Server
from wirespeed.auth import AccessToken, ResourceServer

PORT = int(sys.argv[1])
HERE = f"http://127.0.0.1:{PORT}"


def answer(found: object) -> HttpResponse:
    return HttpResponse(body=json.dumps(found), headers={"Content-Type": "application/json"})


def form(request: HttpRequest) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(bytes(request.body).decode()).items()}


async def metadata(request: HttpRequest) -> HttpResponse:
    return answer({"issuer": HERE, "token_endpoint": f"{HERE}/token"})


async def introspect(request: HttpRequest) -> HttpResponse:
    """A token of the proxy's users is ``user-NAME``."""
    name = form(request)["token"].removeprefix("user-")
    return answer({"active": True, "sub": name, "iss": HERE, "aud": "http://127.0.0.1/proxy"})


async def exchange(request: HttpRequest) -> HttpResponse:
    """The server's token of a user is ``server-NAME``."""
    name = form(request)["subject_token"].removeprefix("user-")
    kind = "urn:ietf:params:oauth:token-type:access_token"
    said = {"access_token": f"server-{name}", "token_type": "Bearer", "expires_in": 3600}
    return answer({**said, "issued_token_type": kind})


async def hook(request: HttpRequest) -> HttpResponse:
    return HttpResponse(204)


async def verify(token: str) -> AccessToken | None:
    name = token.removeprefix("server-")
    return None if name == token else AccessToken(subject=name)


server = Server("side", auth=ResourceServer(f"{HERE}/mcp", [HERE], verifier=verify))


@server.tool(structured=False)
async def echo(text: str) -> str:
    """Return the text."""
    return text


routes = {
    "/.well-known/oauth-authorization-server": metadata,
    "POST /introspect": introspect,
    "POST /token": exchange,
    "POST /hook": hook,
}
server.run(f"{HERE}/mcp", http=HttpOptions(routes=routes))

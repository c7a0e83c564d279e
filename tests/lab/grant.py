"""An MCP server, its authorization server and an identity provider, at one port."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from lab.client import text_result
from lab.origin import JSON, Origin, Request, ok
from lab.peer import MODERN_PEER

from wirespeed import Client
from wirespeed.auth import Authorization
from wirespeed.auth.dpop import DpopProofs, InvalidProof
from wirespeed.transport.headers import Headers

Answer = tuple[int, dict[str, Any]]


class Asked(NamedTuple):
    """A request to a token endpoint."""

    form: dict[str, str]
    headers: Headers


class Site:
    """What a test looks at, and may change.

    Attributes:
        asked: The requests to the token endpoint of the authorization server.
        exchanged: Those to the token endpoint of the identity provider.
        valid: The access tokens that the MCP server takes, with the keys that they are bound to.
        used: The tokens of the requests that the MCP server took, in order.
        answer: What the authorization server answers in place of a token.
        idp_answer: What the identity provider answers in place of an ID-JAG.
        more: Further members of the answer with a token.
        needed: Scopes that a call of a tool needs.
        proofs: What checks the proofs of both servers; None for bearer tokens.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.exchanged: list[Asked] = []
        self.valid: dict[str, str | None] = {}
        self.used: list[str] = []
        self.answer: Answer | None = None
        self.idp_answer: Answer | None = None
        self.more: dict[str, Any] = {}
        self.needed = ""
        self.proofs: DpopProofs | None = None
        self.methods = ["client_secret_basic", "client_secret_post", "private_key_jwt"]
        self.origin: Origin

    @property
    def issuer(self) -> str:
        return f"http://localhost:{self.origin.port}"  # another origin than that of the MCP server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.origin.port}/mcp"

    @property
    def idp(self) -> str:
        return f"{self.issuer}/idp"

    @property
    def n_refused(self) -> int:
        """How many requests the MCP server did not take."""
        sent = [one for one in self.origin.requests if one.target == "/mcp"]
        return len(sent) - len(self.used)

    def client(self, auth: Authorization) -> Client:
        return Client(self.url, auth=auth, timeout=5.0)

    async def call(self, auth: Authorization) -> str:
        """Connect, call a tool and return its text."""
        async with self.client(auth) as client:
            return (await client.call_tool("echo")).text

    # -- the servers -----------------------------------------------------------------------------

    async def serve(self, request: Request) -> None:
        path = request.target.partition("?")[0]
        if request.method == "POST" and path == "/mcp":
            await request.write(self._mcp(request))
        elif request.method == "POST":
            ask = Asked(dict(parse_qsl(request.body.decode())), request.headers)
            await request.write(self._token(ask) if path == "/token" else self._idp(ask))
        else:
            found = self._documents().get(path)
            await request.write(_json(404, {}) if found is None else _json(200, found))

    def _documents(self) -> dict[str, Any]:
        issuer = self.issuer
        return {
            "/.well-known/oauth-protected-resource/mcp": {
                "resource": self.url,
                "authorization_servers": [issuer],
            },
            "/.well-known/oauth-authorization-server": {
                "issuer": issuer,
                "token_endpoint": f"{issuer}/token",
                "token_endpoint_auth_methods_supported": self.methods,
            },
            "/idp/.well-known/openid-configuration": {
                "issuer": self.idp,
                "token_endpoint": f"{self.idp}/token",
            },
        }

    def _token(self, ask: Asked) -> bytes:
        self.asked.append(ask)
        bound = None
        if self.proofs is not None:
            try:
                proof = ask.headers["dpop"]
                url = f"{self.issuer}/token"
                bound = self.proofs.check(proof, method="POST", url=url).thumbprint
            except InvalidProof as exc:
                return _json(400, {"error": exc.error}, nonce=exc.nonce)
        if self.answer is not None:
            return _json(*self.answer)
        token = f"token-{len(self.asked)}"
        self.valid[token] = bound
        kind = "Bearer" if bound is None else "DPoP"
        scope = ask.form.get("scope", "")
        return _json(200, {"access_token": token, "token_type": kind, "scope": scope, **self.more})

    def _idp(self, ask: Asked) -> bytes:
        self.exchanged.append(ask)
        kind = "urn:ietf:params:oauth:token-type:id-jag"
        good = {"access_token": "the-id-jag", "issued_token_type": kind, "token_type": "N_A"}
        return _json(*(self.idp_answer or (200, good)))

    def _mcp(self, request: Request) -> bytes:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        challenge = "Bearer" if self.proofs is None else "DPoP"
        if scheme != challenge or token not in self.valid:
            return _json(401, {}, challenge=f'{challenge} error="invalid_token"')
        fresh = None
        if self.proofs is not None:
            try:
                proof = self.proofs.check(
                    request.headers.get("dpop", ""),
                    method="POST",
                    url=self.url,
                    token=token,
                    thumbprint=self.valid[token],
                )
                fresh = proof.nonce
            except InvalidProof as exc:
                said = f'DPoP error="{exc.error}"'
                return _json(401, {}, challenge=said, nonce=exc.nonce)
        message = json.loads(request.body)
        if message["method"] == "tools/call" and self.needed:
            scopes = self.asked[int(token.partition("-")[2]) - 1].form.get("scope", "").split()
            if self.needed not in scopes:
                said = f'{challenge} error="insufficient_scope", scope="{self.needed}"'
                return _json(403, {}, challenge=said)
        self.used.append(token)
        if "id" not in message:
            return ok(b"", status=b"202 Accepted")
        result: Any = MODERN_PEER.get(message["method"])
        if message["method"] == "tools/call":
            result = text_result("ok") | {"resultType": "complete"}
        found = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return _json(200, found, nonce=fresh)


def _json(
    status: int, value: Any, *, challenge: str | None = None, nonce: str | None = None
) -> bytes:
    fields = JSON
    if challenge is not None:
        fields += f"WWW-Authenticate: {challenge}\r\n".encode()
    if nonce is not None:
        fields += f"DPoP-Nonce: {nonce}\r\n".encode()
    return ok(json.dumps(value).encode(), fields, f"{status} X".encode())


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """The servers, at a free port."""
    found = Site()
    async with Origin(found.serve) as found.origin:
        yield found

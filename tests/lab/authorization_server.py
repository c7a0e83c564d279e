"""An authorization server and a protected MCP server in the test's own loop, and a user.

They follow the specifications until a test changes what they do.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from lab.web import LEGACY_HTTP, MODERN_HTTP, Exchange, HttpPeer, listening

from wirespeed.auth import FileStorage, MemoryStorage, OAuth
from wirespeed.auth.dpop import DpopProofs, InvalidProof

OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
RESOURCE = "/.well-known/oauth-protected-resource"
ECHO = "echo", {"text": "hello"}


class Token:
    """An access token that was issued."""

    key: str | None = None
    """The thumbprint of the key that it is bound to."""

    def __init__(self, client_id: str, scopes: list[str], resource: str, expires: float) -> None:
        self.client_id = client_id
        self.scopes = scopes
        self.resource = resource
        self.expires = expires


class AuthorizationServer(HttpPeer):
    """Authorization codes with PKCE, refresh tokens that are used once, dynamic registration.

    Attributes:
        path: The path of the issuer.
        places: Where the metadata lies.
        changes: Members of the metadata in place of the usual; None leaves a member out.
        clients: The registered clients, by their ids: what they said.
        tokens: The access tokens, by their texts.
        life: Seconds of an access token.
        requests: What was asked: ``"authorize"``, ``"token"``, ``"register"``, ``"revoke"`` with
            the parameters.
        redirect: Changes the parameters of a redirect.
        refuse: Returns the OAuth error of a token request, or "".
        answer: Members of a token response in place of the usual.
        proofs: What checks proofs of possession; None for bearer tokens.
        issues_refresh: Whether there are refresh tokens.
        unknown: The answer at unknown paths: its status, and its page.
    """

    def __init__(self, path: str = "", **changes: Any) -> None:
        super().__init__({}, None)
        self.path = path
        self.changes = changes
        self.places = [f"{OAUTH}{path}"]
        self.clients: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, Token] = {}
        self.life = 3600.0
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.redirect: Callable[[dict[str, str]], dict[str, str]] = lambda found: found
        self.refuse: Callable[[dict[str, str]], str] = lambda form: ""
        self.answer: dict[str, Any] = {}
        self.proofs: DpopProofs | None = None
        self.issues_refresh = True
        self.unknown = 404, ""
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, Token] = {}

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def issuer(self) -> str:
        return f"{self.origin}{self.path}"

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata document."""
        usual = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
        }
        return {k: v for k, v in (usual | self.changes).items() if v is not None}

    def asked(self, what: str) -> list[dict[str, Any]]:
        """The parameters of all requests of a kind."""
        return [found for name, found in self.requests if name == what]

    def issue(self, scopes: list[str], resource: str, client_id: str = "c") -> str:
        """A new access token."""
        text = secrets.token_urlsafe(24)
        self.tokens[text] = Token(client_id, scopes, resource, time.time() + self.life)
        return text

    async def _answer(self, exchange: Exchange) -> None:
        target = urlsplit(exchange.target)
        if target.path in self.places:
            exchange.json(self.metadata)
            return
        name = target.path.removeprefix(self.path).strip("/")
        if name == "authorize" and exchange.method == "GET":
            self._authorize(exchange, dict(parse_qsl(target.query)))
        elif name == "token" and exchange.method == "POST":
            self._token(exchange)
        elif name == "revoke" and exchange.method == "POST":
            self.requests.append(("revoke", dict(parse_qsl(exchange.body.decode()))))
            exchange.reply(200)
        elif name == "register" and exchange.method == "POST":
            self.requests.append(("register", exchange.message))
            client_id = f"client-{len(self.clients)}@{self.port}"
            self.clients[client_id] = exchange.message
            said = {"client_id": client_id, **exchange.message}
            if exchange.message["token_endpoint_auth_method"] != "none":
                said["client_secret"] = "s3cret-of-the-client"
            exchange.json(said, 201)
        else:
            exchange.reply(*self.unknown, content_type="text/html")

    def _authorize(self, exchange: Exchange, query: dict[str, str]) -> None:
        self.requests.append(("authorize", query))
        code = f"code-{secrets.token_urlsafe(16)}"
        self._codes[code] = query
        found = self.redirect({"code": code, "state": query["state"], "iss": self.issuer})
        location = f"{query['redirect_uri']}?{urlencode(found)}"
        exchange.reply(302, location=location)

    def _token(self, exchange: Exchange) -> None:
        form = dict(parse_qsl(exchange.body.decode()))
        basic = exchange.headers.get("authorization", "")
        if basic.startswith("Basic "):
            pair = base64.b64decode(basic[6:]).decode().split(":")
            form["client_id"], form["client_secret"] = map(unquote_plus, pair)
            form["by"] = "basic"
        self.requests.append(("token", form))
        error = self.refuse(form)
        if error:
            said = " ".join(["that is why", *form.values()])  # which a server must not say
            exchange.json({"error": error, "error_description": said}, 400)
            return
        key: str | None = None
        if self.proofs is not None:
            proof, url = exchange.headers.get("dpop", ""), f"{self.issuer}/token"
            try:
                key = self.proofs.check(proof, method="POST", url=url).thumbprint
            except InvalidProof as exc:
                exchange.json({"error": exc.error}, 400)
                return
        scopes = form.get("scope", "").split()
        if form["grant_type"] == "authorization_code":
            asked = self._codes.pop(form.get("code", ""), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            same = ("client_id", "redirect_uri", "resource")
            if (
                asked is None
                or asked["code_challenge"] != challenge
                or any(asked[name] != form.get(name) for name in same)
            ):
                exchange.json({"error": "invalid_grant"}, 400)
                return
            scopes = asked.get("scope", "").split()
        elif form["grant_type"] == "refresh_token":
            old = self._refresh.pop(form["refresh_token"], None)
            if old is None or (old.client_id, old.key) != (form["client_id"], key):
                exchange.json({"error": "invalid_grant"}, 400)
                return
            scopes = old.scopes
        text = self.issue(scopes, form.get("resource", ""), form.get("client_id", ""))
        self.tokens[text].key = key
        said: dict[str, Any] = {
            "access_token": text,
            "token_type": "Bearer" if key is None else "DPoP",
            "expires_in": self.life,
        }
        if scopes:
            said["scope"] = " ".join(scopes)
        if self.issues_refresh:
            said["refresh_token"] = secrets.token_urlsafe(24)
            self._refresh[said["refresh_token"]] = self.tokens[text]
        exchange.json(said | self.answer)


class ProtectedServer(HttpPeer):
    """A scripted MCP server that demands tokens.

    Attributes:
        servers: Its authorization servers.
        changes: Members of its metadata in place of the usual; None leaves a member out.
        places: Where the metadata lies; none for a server of 2025-03-26.
        others: Documents that lie elsewhere, by path.
        resource: What tokens are for; None for the URL.
        challenge: Parameters of each challenge: by default the place of the metadata.
        scopes: The scopes that each method needs, or each ``"tools/call:NAME"``; "" for all.
        open: Methods that need no token.
        unknown: The answer at unknown paths: its status, and its page.
        own: The authorization server that lies at the same origin, as in 2025-03-26.
    """

    def __init__(self, *servers: AuthorizationServer, legacy: bool = False) -> None:
        super().__init__(dict(LEGACY_HTTP if legacy else MODERN_HTTP), "s-1" if legacy else None)
        self.servers = list(servers)
        self.changes: dict[str, Any] = {}
        self.places = [f"{RESOURCE}/mcp"]
        self.others: dict[str, Any] = {}
        self.resource: str | None = None
        self.challenge: dict[str, str] | None = None
        self.scopes: dict[str, list[str]] = {}
        self.open: set[str] = set()
        self.unknown = 404, ""
        self.own: AuthorizationServer | None = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata document."""
        usual = {"resource": self.url, "authorization_servers": [s.issuer for s in self.servers]}
        return {k: v for k, v in (usual | self.changes).items() if v is not None}

    def used(self) -> list[str]:
        """The tokens of all messages, in their order; "" for none."""
        return [
            one.headers.get("authorization", "").removeprefix("Bearer ")
            for one in self.exchanges
            if urlsplit(one.target).path == "/mcp"
        ]

    async def _answer(self, exchange: Exchange) -> None:
        path = urlsplit(exchange.target).path
        if path in self.places:
            exchange.json(self.metadata)
        elif path in self.others:
            exchange.json(self.others[path])
        elif path != "/mcp" and self.own is not None:
            self.own.port = self.port
            await self.own._answer(exchange)
        elif path != "/mcp":
            exchange.reply(*self.unknown, content_type="text/html")
        elif not self._refused(exchange):
            await super()._answer(exchange)

    def _refused(self, exchange: Exchange) -> bool:
        method = exchange.message.get("method", "")
        if method in self.open:
            return False
        text = exchange.headers.get("authorization", "").removeprefix("Bearer ")
        token = next((s.tokens[text] for s in self.servers if text in s.tokens), None)
        tool = (exchange.message.get("params") or {}).get("name", "")
        needed = self.scopes.get(f"{method}:{tool}", self.scopes.get(method, self.scopes.get("")))
        params = self.challenge
        if params is None and not self.places:
            params = {}
        elif params is None:
            params = {"resource_metadata": f"{self.origin}{self.places[0]}"}
        wanted = self.url if self.resource is None else self.resource
        if token is None or token.expires < time.time() or token.resource != wanted:
            status = 401
            if text:
                params = params | {"error": "invalid_token"}
        elif set(needed or ()) <= set(token.scopes):
            return False
        else:
            status, params = 403, params | {"error": "insufficient_scope"}
        if needed:
            params = params | {"scope": " ".join(needed)}
        listed = ", ".join(f'{name}="{value}"' for name, value in params.items())
        exchange.reply(status, www_authenticate=f"Bearer {listed}" if listed else "Bearer")
        return True


async def get(url: str) -> tuple[int, dict[str, str], str]:
    """What a browser gets at an address: status, header fields in lower case, and body."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        writer.write(
            f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split(" ")[1]), headers, body.decode()
    finally:
        writer.close()


class User:
    """Somebody with a browser who agrees to everything.

    Attributes:
        pages: The addresses that were opened.
        seen: The last page: its status and text.
    """

    def __init__(self) -> None:
        self.pages: list[str] = []
        self.seen = 0, ""

    async def browse(self, url: str) -> None:
        """Open an address, and follow all redirects: for ``OAuth(open_url=…)``."""
        self.pages.append(url)
        for _ in range(5):
            status, headers, body = await get(url)
            if status != 302:
                self.seen = status, body
                return
            url = headers["location"]

    async def follow(self, url: str) -> str:
        """Return where an address redirects to: for ``OAuth(redirect=…)``."""
        self.pages.append(url)
        return (await get(url))[1]["location"]


@contextlib.asynccontextmanager
async def lab(
    path: str = "", *, legacy: bool = False, **changes: Any
) -> AsyncIterator[tuple[AuthorizationServer, ProtectedServer, User]]:
    """An authorization server, an MCP server that it protects, and a user."""
    server = AuthorizationServer(path, **changes)
    async with listening(server), listening(ProtectedServer(server, legacy=legacy)) as protected:
        yield server, protected, User()


def auth(user: User, **options: Any) -> OAuth:
    """What logs this user in, without a file."""
    if "redirect" not in options and "headless" not in options:
        options.setdefault("open_url", user.browse)
    return OAuth(**({"storage": MemoryStorage()} | options))


async def call(protected: ProtectedServer, value: OAuth, n: int = 1) -> None:
    """Open a client, and call a tool."""
    async with protected.client(auth=value) as client:
        await asyncio.gather(*(client.call_tool(*ECHO) for _ in range(n)))


def age(storage: MemoryStorage | FileStorage, server: str) -> None:
    """Make the token of a stored login old."""
    login = json.loads(storage.load(server) or "")
    login["tokens"] |= {"issued": 1.0, "expires": 2.0}
    storage.save(server, json.dumps(login))

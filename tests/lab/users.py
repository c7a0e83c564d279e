"""A server that demands a token and says whose it is, and an authorization server that exchanges
the tokens of users and logs them in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from lab.authorization_server import AuthorizationServer, Token
from lab.web import Exchange, listening

from wirespeed import Context, HttpRequest, Refusal, Server, User
from wirespeed.auth import AccessToken, ResourceServer


class Exchanger(AuthorizationServer):
    """An authorization server that knows whose its tokens are.

    Attributes:
        users: The user of each token that it has issued.
        whose: The user of a token that it exchanges; None: the exchange is refused.
        browsing: The user who is logged in at it in the browser.
    """

    def __init__(self, **changes: Any) -> None:
        super().__init__(**changes)
        self.users: dict[str, str] = {}
        self.whose: dict[str, str] = {}
        self.browsing = ""
        self.kind = "urn:ietf:params:oauth:token-type:access_token"
        self._next = ""
        self._by_code: dict[str, str] = {}
        self._issued: list[tuple[Token, str]] = []

    def _authorize(self, exchange: Exchange, query: dict[str, str]) -> None:
        before = set(self._codes)
        super()._authorize(exchange, query)
        for code in set(self._codes) - before:
            self._by_code[code] = self.browsing

    def _token(self, exchange: Exchange) -> None:
        form = dict(parse_qsl(exchange.body.decode()))
        self._next = ""
        if "subject_token" in form or "assertion" in form:
            given = form.get("subject_token", form.get("assertion", ""))
            if given not in self.whose:
                self.requests.append(("token", form))
                exchange.json({"error": "invalid_request"}, 400)
                return
            self._next = self.whose[given]
            self.answer = {"issued_token_type": self.kind}
        elif "code" in form:
            self._next = self._by_code.pop(form["code"], "")
        elif "refresh_token" in form and form["refresh_token"] in self._refresh:
            old = self._refresh[form["refresh_token"]]
            self._next = next(user for one, user in self._issued if one is old)
        super()._token(exchange)

    def issue(self, scopes: list[str], resource: str, client_id: str = "c") -> str:
        text = super().issue(scopes, resource, client_id)
        self.users[text] = self._next
        self._issued.append((self.tokens[text], self._next))
        return text


class Bank:
    """A server that says whose a call is.

    Attributes:
        seen: The credentials of all its requests, as they came.
        valid: The tokens that it takes, and whose they are.
    """

    def __init__(self, issuer: Exchanger | None = None, **options: Any) -> None:
        self.seen: list[str] = []
        self.valid: dict[str, str] = {}
        self.issuer = issuer
        self.sessions: list[str] = []
        self.server: Server
        self._options = options

    def _build(self, url: str) -> None:
        auth = None
        if self.issuer is not None:
            auth = ResourceServer(url, [self.issuer.issuer], verifier=self._verify, keep=0)
        server = self.server = Server("bank", auth=auth, **self._options)

        @server.tool
        async def whoami(ctx: Context) -> str:
            return str(ctx.user)

        @server.tool
        async def session(ctx: Context) -> str:
            """The id of the session: a legacy one belongs to one user."""
            ctx.session_state.setdefault("user", str(ctx.user))
            self.sessions.append(ctx.session_id)
            return str(ctx.session_state["user"])

        @server.tool
        async def slow(ctx: Context) -> str:
            await asyncio.sleep(0.01)
            return str(ctx.user)

    def _verify(self, token: str) -> AccessToken | None:
        self.seen.append(token)
        assert self.issuer is not None
        user = self.issuer.users.get(token)
        if user is None or token not in self.issuer.tokens:
            return None
        return AccessToken(subject=user)

    def _authenticate(self, request: HttpRequest) -> User | Refusal:
        for field in ("authorization", "x-key"):
            given = request.headers.get(field, "")
            if given:
                self.seen.append(given)
                user = self.valid.get(given.removeprefix("Bearer "))
                if user is not None:
                    return User(user)
        return Refusal(401, "no such user")

    @contextlib.asynccontextmanager
    async def serving(self, scheme: str = "http") -> AsyncIterator[str]:
        """Serve it. Gives its URL."""
        port = 0
        if self.issuer is not None:  # whose tokens are for its URL
            probe = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
            port = probe.sockets[0].getsockname()[1]
            probe.close()
            await probe.wait_closed()
        url = f"{scheme}://127.0.0.1:{port}/mcp"
        self._build(url.replace("ws:", "http:"))
        listens: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        options: dict[str, Any] = {"on_listening": listens.set_result}
        if self.issuer is None:
            options["authenticate"] = self._authenticate
        task = asyncio.ensure_future(self.server.serve(url, **options))
        await asyncio.wait((task, listens), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        try:
            yield str(listens.result()[0])
        finally:
            task.cancel()
            await asyncio.wait((task,))


@contextlib.asynccontextmanager
async def exchanger(**changes: Any) -> AsyncIterator[Exchanger]:
    """An authorization server at a free port."""
    async with listening(Exchanger(**changes)) as found:
        yield found


async def ask(
    method: str, url: str, form: dict[str, str] | None = None, cookie: str = ""
) -> tuple[int, Any, str]:
    """What a browser gets: the status, the header fields in lower case, and the text."""
    parts = urlsplit(url)
    body = b"" if form is None else urlencode(form).encode()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Connection: close",
            f"Content-Length: {len(body)}",
        ]
        if cookie:
            lines.append(f"Cookie: {cookie}")
        if form is not None:
            lines.append("Content-Type: application/x-www-form-urlencoded")
            lines.append(f"Origin: {parts.scheme}://{parts.netloc}")
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.removesuffix("\r\n\r\n").split("\r\n")
        pairs = [line.split(": ", 1) for line in rest]
        headers = {name.lower(): value for name, value in pairs}
        found = await reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split(" ")[1]), headers, found.decode()
    finally:
        writer.close()

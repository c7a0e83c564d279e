"""The logins of principals at one server: a link that the user opens, a page that names the
principal, and the way back from the authorization server.

Anyone who has a link can use it, once, within ten minutes, and logs in for the principal to whom
the link was given. So the page names that principal, and warns a user who got the link from
somebody else. A cookie holds the whole login to the browser that was shown the page, so that
nobody can send a user past the page.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import logging
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from wirespeed.errors import WirespeedError
from wirespeed.proxy.identity.credentials import Who
from wirespeed.transport.headers import Headers
from wirespeed.transport.http.routes import CustomRoute, HttpResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wirespeed.proxy.identity.credentials import LoginCredentials
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.options import HttpRequest

logger = logging.getLogger("wirespeed.proxy")

LIFE = 600.0  # seconds that a link, or a login that was begun, is valid
MAX_LINKS = 1000
PATIENCE = 30.0  # seconds for the authorization server to answer

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action {}; frame-ancestors 'none'"
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:3rem auto;padding:0 1rem}}
button{{font:inherit;padding:.5rem 1rem}}</style></head>
<body><h1>{title}</h1>{body}</body></html>
"""


class PendingLogin:
    """A login that was offered.

    Attributes:
        id: The secret in its link.
        state: The ``state`` of the authorization request; "" before there is one.
        browser: The secret of the browser that began the login.
        cookie: The name of the cookie with that secret.
    """

    def __init__(self, who: Who) -> None:
        self.who = who
        self.id = secrets.token_urlsafe(24)
        self.until = time.monotonic() + LIFE
        self.state = ""
        self.browser = ""
        self.cookie = f"login-{hashlib.sha256(self.id.encode()).hexdigest()[:16]}"
        self.address: asyncio.Future[str] | None = None
        self.redirected: asyncio.Future[str] | None = None
        self.task: asyncio.Task[None] | None = None


class Logins:
    """The logins of one server.

    Args:
        credentials: The credentials at the server, which keep the logins.
        proxy: Returns the name of the proxy.
        done: Called when a principal has logged in, or out.
    """

    def __init__(
        self, credentials: LoginCredentials, proxy: Callable[[], str], done: Callable[[Who], None]
    ) -> None:
        self._credentials = credentials
        self._proxy = proxy
        self._done = done
        self._pending: OrderedDict[str, PendingLogin] = OrderedDict()
        uri = credentials.config.redirect_uri
        assert uri is not None
        self._uri = uri
        self.path = urlsplit(uri).path or "/"
        credentials.link = self.link

    def link(self, who: Who) -> str:
        """Return the link of a login for a principal: the same link, as long as it can be used."""
        self._forget()
        found = next((one for one in self._pending.values() if one.who == who), None)
        if found is None or found.task is not None:
            found = PendingLogin(who)
            self._pending[found.id] = found
            if len(self._pending) > MAX_LINKS:
                self._end(next(iter(self._pending.values())))
        return f"{self._uri}?login={found.id}"

    async def log_out(self, owner: str) -> bool:
        """Delete the login of a principal, and revoke its tokens. ``owner``: as of `Who`. Returns
        whether there was a login."""
        who = Who(b"", owner.rpartition(" ")[2], owner)
        found = await self._credentials.log_out(who)
        self._done(who)
        return found

    def targets(self) -> Mapping[str, HttpTarget]:
        """Return the target of the logins, by its path."""
        handlers = {"GET": self._get, "POST": self._post}
        return {self.path: CustomRoute(handlers, asyncio.get_running_loop())}

    def close(self) -> None:
        """End all links, and all logins that were begun."""
        for one in list(self._pending.values()):
            self._end(one)

    def _forget(self) -> None:
        now = time.monotonic()
        for one in [one for one in self._pending.values() if one.until <= now]:
            self._end(one)

    def _end(self, one: PendingLogin) -> None:
        self._pending.pop(one.id, None)
        if one.task is not None:
            one.task.cancel()

    def _find(self, request: HttpRequest) -> PendingLogin | None:
        self._forget()
        found = parse_qs(request.query).get("login", [""])
        return self._pending.get(found[0]) if len(found) == 1 else None

    # -- pages -------------------------------------------------------------------------------------

    async def _get(self, request: HttpRequest) -> HttpResponse:
        """Return the page of a link, or of the return from the authorization server."""
        query = parse_qs(request.query)
        if "state" in query:
            return await self._back(request, query["state"][0])
        one = self._find(request)
        if one is None or one.task is not None:
            return page(404, "This link is over", "<p>Ask for a new one: call the tool again.</p>")
        is_known = await asyncio.to_thread(self._is_logged_in, one.who)
        known = (
            "<p>You are logged in already. A new login replaces that one.</p>"
            '<p><button name="do" value="out">Log out</button></p>'
            if is_known
            else ""
        )
        browser = secrets.token_urlsafe(24)
        body = (
            f"<p>The proxy {_shown(self._proxy())} will use this login for "
            f"<b>{_shown(one.who.name)}</b>.</p>"
            "<p>Go on only if that is you, and you have asked for this link a moment ago. If "
            "somebody else sent it to you, close this page: they would work with your login.</p>"
            f'<form method="post"><input type="hidden" name="browser" value="{browser}">'
            f'<p><button name="do" value="in">Log in</button></p>{known}</form>'
        )
        title = f"Log in to {_shown(self._credentials.server)}"
        return page(200, title, body, {"Set-Cookie": self._cookie(one, browser)})

    def _cookie(self, one: PendingLogin, browser: str) -> str:
        """Return the cookie for a browser that is shown the page of a link."""
        secure = "; Secure" if self._uri.lower().startswith("https:") else ""
        return (
            f"{one.cookie}={browser}; Path={self.path}; Max-Age={int(LIFE)}; HttpOnly; "
            f"SameSite=Lax{secure}"
        )

    async def _post(self, request: HttpRequest) -> HttpResponse:
        """Begin a login, or log out."""
        one = self._find(request)
        if one is None or one.task is not None:
            return page(404, "This link is over", "<p>Ask for a new one: call the tool again.</p>")
        form = parse_qs(request.body.decode("latin-1"))
        (browser, *_) = form.get("browser", [""])
        if not _is_of(request, one, browser):
            return _another_browser()
        for other in list(self._pending.values()):
            if other.who == one.who and other.task is not None:
                self._end(other)  # this login would wait for it
        if form.get("do") == ["out"]:
            self._end(one)
            try:
                await self._credentials.log_out(one.who)
            except WirespeedError as exc:
                return self._failed(one.who, exc)
            self._done(one.who)
            return page(200, "Logged out", "<p>The login is deleted.</p>")
        one.browser = browser
        loop = asyncio.get_running_loop()
        one.address, one.redirected = loop.create_future(), loop.create_future()
        one.task = asyncio.ensure_future(self._log_in(one))
        await asyncio.wait(
            (one.task, one.address), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
        )
        if one.address.done():
            fields = {**_FIELDS, "Location": one.address.result()}
            return HttpResponse(303, "", fields)
        self._end(one)
        error: BaseException | None = None
        if one.task.done() and not one.task.cancelled():
            error = one.task.exception()
        return self._failed(one.who, error)

    async def _log_in(self, one: PendingLogin) -> None:
        """Get the tokens of a principal, and store them."""

        async def redirect(url: str) -> str:
            assert one.address is not None and one.redirected is not None
            one.state = parse_qs(urlsplit(url).query)["state"][0]
            one.address.set_result(url)
            return await one.redirected

        session = self._credentials.grant(one.who, redirect).session(self._credentials.url)
        try:
            await session.prepare()
            await session.challenged(401, Headers(), session.n_tokens, 1)
        finally:
            await session.close()

    async def _back(self, request: HttpRequest, state: str) -> HttpResponse:
        """Take the user's return: exchange the code for tokens."""
        found = [
            one
            for one in self._pending.values()
            if one.state and secrets.compare_digest(one.state.encode(), state.encode())
        ]
        if not found or found[0].redirected is None or found[0].redirected.done():
            return page(
                404, "This login is over", "<p>Ask for a new link: call the tool again.</p>"
            )
        (one,) = found
        if not _is_of(request, one, one.browser):
            return _another_browser()
        assert one.task is not None and one.redirected is not None
        one.redirected.set_result(f"{self._uri}?{request.query}")
        await asyncio.wait((one.task,), timeout=PATIENCE)
        self._pending.pop(one.id, None)
        if not one.task.done() or one.task.cancelled():
            one.task.cancel()
            return self._failed(one.who, None)
        if (error := one.task.exception()) is not None:
            return self._failed(one.who, error)
        self._credentials.told(one.who, "logged in")
        self._done(one.who)
        return page(200, "Logged in", "<p>You can close this page, and call the tool again.</p>")

    def _failed(self, who: Who, error: BaseException | None) -> HttpResponse:
        why = "no answer in time" if error is None else str(error).partition("\n")[0]
        if error is not None and not isinstance(error, WirespeedError):
            logger.error("internal error of the proxy at a login", exc_info=error)
            why = "internal error"
        logger.warning("%s: the login of %s failed: %s", self._credentials.server, who.name, why)
        self._credentials.told(who, "refused", why)
        return page(502, "The login failed", "<p>The log of the proxy says why. Try it again.</p>")

    def _is_logged_in(self, who: Who) -> bool:
        try:
            return self._credentials.is_logged_in(who)
        except WirespeedError:
            return False


# Under the policy "no-referrer" a browser sends the form with "Origin: null", which is refused.
_FIELDS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def _is_of(request: HttpRequest, one: PendingLogin, browser: str) -> bool:
    """Whether a request comes from the browser that was shown the page of a link."""
    cookies = request.headers.get("cookie", "").split(";")
    pairs = (cookie.strip().partition("=") for cookie in cookies)
    return browser != "" and any(
        name == one.cookie and secrets.compare_digest(value.encode(), browser.encode())
        for name, _, value in pairs
    )


def _another_browser() -> HttpResponse:
    text = "<p>This login was not begun on its page in this browser. Open the link again.</p>"
    return page(403, "Not in this browser", text)


def page(status: int, title: str, body: str, more: Mapping[str, str] | None = None) -> HttpResponse:
    """Return a page. ``title`` and ``body`` are HTML. ``more``: further header fields."""
    # a browser applies form-action to the redirection to the authorization server as well
    policy = _POLICY.format("'self' https: http://127.0.0.1:* http://localhost:*")
    fields = {**_FIELDS, "Content-Security-Policy": policy, **(more or {})}
    text = _PAGE.format(title=title, body=body)
    return HttpResponse(status, text, fields, "text/html; charset=utf-8")


def _shown(text: str) -> str:
    return html.escape("".join(c if c.isprintable() else "?" for c in text)[:200])

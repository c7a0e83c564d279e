"""A person at the page of `authlib_server.py`, without a browser: requests follow its form."""

from __future__ import annotations

import urllib.error
import urllib.request
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urljoin

SECONDS = 30
ADA = {"user": "ada", "password": "lovelace", "consent": "yes"}


class _Form(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.method = ""
        self.action = ""
        self.fields: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form":
            self.method = found.get("method") or "get"
            self.action = found.get("action") or ""
        elif tag in ("input", "button") and (name := found.get("name")):
            self.fields.add(name)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Follow no redirect."""


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)


def fetched(url: str, form: dict[str, str] | None = None) -> tuple[int, str, str]:
    """The status of a response, where it leads to, and its text."""
    data = None if form is None else urlencode(form).encode()
    try:
        response = _opener.open(url, data, timeout=SECONDS)
    except urllib.error.HTTPError as exc:
        response = exc
    with response:
        return response.status, response.headers.get("Location", ""), response.read().decode()


def log_in(url: str, form: dict[str, str] = ADA) -> str:
    """Fill in the form at an authorization URL; the URL that the browser is sent to."""
    status, _, page = fetched(url)
    assert status == 200, (status, page)
    found = _Form()
    found.feed(page)
    assert found.method == "post"
    assert found.fields >= set(form), found.fields
    status, location, page = fetched(urljoin(url, found.action) if found.action else url, form)
    assert status in (302, 303), (status, page)
    return location


def go(url: str, form: dict[str, str] = ADA) -> None:
    """Log in, and follow the redirect to a client that listens."""
    status, _, page = fetched(log_in(url, form))
    assert status == 200, (status, page)

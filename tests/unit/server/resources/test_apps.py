"""Apps: the resource of a page, the tools that it belongs to, and what a host may do (SEP-1865,
specification/2026-01-26/apps.mdx of modelcontextprotocol/ext-apps)."""

from __future__ import annotations

from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Server
from wirespeed.protocol.apps import MIME_TYPE
from wirespeed.types import App, AppCsp, ReadResourceResult, ResourceContents

URI = "ui://clock/page.html"
PAGE = "<!doctype html><title>Ünïcode</title>"
WHOLE = App(
    URI,
    PAGE,
    name="clock",
    title="A clock",
    csp=AppCsp(connect=("https://api.example.com",), resources=("https://*.example.com:8443",)),
    permissions=("camera", "clipboardWrite"),
    domain="abc.host.example",
    prefers_border=False,
)
UI = {
    "csp": {
        "connectDomains": ["https://api.example.com"],
        "resourceDomains": ["https://*.example.com:8443"],
    },
    "permissions": {"camera": {}, "clipboardWrite": {}},
    "domain": "abc.host.example",
    "prefersBorder": False,
}


@pytest.mark.off_schema("extensions in capabilities of a legacy era")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_host_gets_what_a_server_serves(era: Any) -> None:
    server = Server("clocks")
    server.add_app(WHOLE)
    plain = App("ui://clock/plain.html", PAGE)
    server.add_app(plain)

    @server.tool(meta=WHOLE.meta())
    async def now() -> str:
        return "noon"

    @server.tool(meta=plain.meta(["app"]))
    async def tick() -> str:
        return "tick"

    async with Client(server, era=era) as client:
        assert client.server_capabilities["extensions"] == {"io.modelcontextprotocol/ui": {}}
        tools = {tool.name: tool.meta for tool in await client.list_tools()}
        assert tools["now"] == {"ui": {"resourceUri": URI}}
        assert tools["tick"] == {"ui": {"resourceUri": plain.uri, "visibility": ["app"]}}
        listed = {one.uri: one for one in await client.list_resources()}
        assert listed[URI].mime_type == MIME_TYPE == "text/html;profile=mcp-app"
        assert listed[URI].title == "A clock"
        assert listed[URI].size == len(PAGE.encode())
        assert listed[URI].meta == {"ui": UI}
        assert listed[plain.uri].meta is None
        result = await client.read_resource(URI)
        assert result.contents[0].meta == {"ui": UI}
        app = App.of(result)
        assert (app.html, app.csp, app.permissions) == (PAGE, WHOLE.csp, WHOLE.permissions)
        assert (app.policy, app.allow) == (WHOLE.policy, "camera; clipboard-write")
        assert App.of(await client.read_resource(plain.uri)) == plain


def test_what_a_host_may_do() -> None:
    assert App(URI, PAGE).policy == (
        "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; media-src 'self' data:; connect-src 'none'; "
        "frame-src 'none'; object-src 'none'; base-uri 'self'; form-action 'none'"
    )
    assert App(URI, PAGE).allow == ""
    csp = AppCsp(
        ("wss://a.example",), ("https://b.example",), ("https://c.example",), ("http://d",)
    )
    assert App(URI, PAGE, csp=csp).policy == (
        "default-src 'none'; script-src 'self' 'unsafe-inline' https://b.example; "
        "style-src 'self' 'unsafe-inline' https://b.example; "
        "img-src 'self' data: https://b.example; font-src 'self' https://b.example; "
        "media-src 'self' data: https://b.example; connect-src wss://a.example; "
        "frame-src https://c.example; object-src 'none'; base-uri http://d; form-action 'none'"
    )


def given(**changes: Any) -> ReadResourceResult:
    contents = ResourceContents(URI, MIME_TYPE, text=PAGE, meta={"ui": UI})
    for name, value in changes.items():
        setattr(contents, name, value)
    return ReadResourceResult([contents])


def test_what_servers_give_instead() -> None:
    assert App.of(given(text=None, blob=PAGE.encode())).html == PAGE
    assert App.of(given(meta={"ui": {"permissions": {"usb": {}}}})).permissions == ()
    for changes in (
        {"mime_type": "text/html"},
        {"text": None, "blob": b"\xff"},
        {"uri": "https://clock.example"},
        {"meta": {"ui": {"csp": {"connectDomains": ["https://a.example; script-src *"]}}}},
        {"meta": {"ui": {"csp": {"connectDomains": "https://a.example"}}}},
        {"meta": {"ui": 7}},
        {"meta": {"ui": {"domain": "a\r\nX: y"}}},
    ):
        with raises(ValueError):
            App.of(given(**changes))


def test_what_is_no_app() -> None:
    permissions: Any = ("usb",)
    with raises(ValueError):
        App("https://clock.example", PAGE)
    with raises(ValueError):
        App(URI, PAGE, permissions=permissions)
    for visibility in ((), ("user",)):
        with raises(ValueError):
            App(URI, PAGE).meta(visibility)  # type: ignore[arg-type]
    for origin in (
        "example.com",
        "https://a b",
        "'unsafe-eval'",
        "https://a/path",
        "*",
        "https://a:٣",
    ):
        with raises(ValueError):
            AppCsp((origin,))
    origins: Any = "https://a.example"
    with raises(TypeError):
        AppCsp(connect=origins)
    server = Server("twice")
    server.add_app(App(URI, PAGE))
    with raises(ValueError):
        server.add_app(App(URI, PAGE))

"""Server cards and the catalog of a listener: what they say, and to whom. Members and paths are of
modelcontextprotocol/experimental-ext-server-card (docs/discovery.md, schema.ts)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab.merge import MergeLab
from lab.principals import PRINCIPALS
from lab.serve import Answer, exchange, lab_server, serving
from lab.wording import raises

from wirespeed import HttpOptions, Server, __version__
from wirespeed.proxy import ListenConfig

HTTP = "http://127.0.0.1:0/mcp"
URL = "https://tools.example.com"
CATALOG = "/.well-known/ai-catalog.json"
TYPE = "application/mcp-server-card+json"


async def get(port: int, path: str, method: str = "GET", **fields: str) -> Answer:
    named = {"Host": "127.0.0.1", "Connection": "close", **fields}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return await exchange(port, "\r\n".join(lines).encode() + b"\r\n\r\n")


async def document(port: int, path: str) -> Any:
    answer = await get(port, path)
    assert answer.status == 200
    return json.loads(answer.body)


async def test_the_card_of_a_server() -> None:
    server = Server(
        "Weather & more",
        version="1.2.3",
        title="Weather",
        description="A" * 150,
        instructions="a secret of the house",
        website_url="https://weather.example",
    )

    @server.tool
    async def forecast() -> str:
        return "rain"

    async with serving(server, HTTP, http=HttpOptions(card=f"{URL}/")) as place:
        answer = await get(place.port, "/mcp/server-card", Accept=TYPE)
        assert answer.headers["content-type"] == TYPE
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["cache-control"] == "public, max-age=3600"
        assert json.loads(answer.body) == {
            "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
            "name": "com.example.tools/Weather-more",
            "version": "1.2.3",
            "description": "A" * 99 + "…",
            "title": "Weather",
            "websiteUrl": "https://weather.example",
            "remotes": [
                {
                    "type": "streamable-http",
                    "url": f"{URL}/mcp",
                    "supportedProtocolVersions": [
                        "2026-07-28",
                        "2025-11-25",
                        "2025-06-18",
                        "2025-03-26",
                        "2024-11-05",
                    ],
                }
            ],
        }
        assert await document(place.port, CATALOG) == {
            "specVersion": "1.0",
            "entries": [
                {
                    "identifier": "urn:air:tools.example.com:mcp:Weather-more",
                    "type": TYPE,
                    "url": f"{URL}/mcp/server-card",
                }
            ],
        }
        tag = answer.headers["etag"]
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = await get(place.port, "/mcp/server-card", **{"If-None-Match": known})
            assert (again.status, again.body) == (304, b"")
        head = await get(place.port, "/mcp/server-card", "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert (await get(place.port, "/mcp/server-card", "POST")).status == 405
        page = await get(place.port, CATALOG, "OPTIONS", Origin="https://any.example")
        assert page.headers["access-control-allow-origin"] == "*"


async def test_names_and_places() -> None:
    own = Server("org.weather/forecast", version="1")
    plain = Server("///", version="1")
    same = HttpOptions(card="http://127.0.0.1:8000")
    async with serving(
        {"/": own, "/b": plain, "/c": own}, url="http://127.0.0.1:0", http=same
    ) as at:
        card = await document(at.port, "/server-card")
        assert card["name"] == "org.weather/forecast"
        assert card["description"] == "The MCP server org.weather/forecast."
        assert card["remotes"][0]["url"] == "http://127.0.0.1:8000/"
        assert (await document(at.port, "/b/server-card"))["name"] == "127.0.0.1/server"
        assert (await get(at.port, "/c/server-card")).status == 404  # it has one already
        listed = (await document(at.port, CATALOG))["entries"]
        assert [one["identifier"] for one in listed] == [
            "urn:air:weather.org:mcp:forecast",
            "urn:air:127.0.0.1:mcp:server",
        ]


async def test_without_a_word_there_is_none() -> None:
    async with serving(lab_server(), HTTP) as place:
        for path in ("/mcp/server-card", CATALOG):
            assert (await get(place.port, path)).status == 404


async def test_a_token_is_asked_for_and_not_needed() -> None:
    server = Server("calm", version="1")
    async with serving(server, HTTP, token="t" * 40, http=HttpOptions(card=URL)) as place:
        assert (await get(place.port, "/mcp")).status == 401
        (remote,) = (await document(place.port, "/mcp/server-card"))["remotes"]
        (header,) = remote["headers"]
        assert header["name"] == "Authorization"
        assert header["isRequired"] is header["isSecret"] is True


@pytest.mark.parametrize("guard", ["none", "token", "principals"])
async def test_the_cards_of_a_proxy(tmp_path: Path, guard: str) -> None:
    options = {"principals": PRINCIPALS} if guard == "principals" else {}
    tokens = ("t" * 40,) if guard == "token" else ()
    lab = MergeLab(tmp_path, "a", "b", **options)
    listen = ListenConfig(url="http://127.0.0.1:0/mcp", card=URL, tokens=tokens)
    async with lab.serving(listen) as urls:  # type: ignore[arg-type]
        port = int(urls[0].rpartition(":")[2].partition("/")[0])
        card = await document(port, "/mcp/server-card")
        assert card["name"] == "com.example.tools/wirespeed-proxy"
        assert card["version"] == __version__
        assert ("headers" in card["remotes"][0]) == (guard != "none")
        names = [one["url"] for one in (await document(port, CATALOG))["entries"]]
        own = f"{URL}/mcp/server-card"
        if guard == "none":
            assert names == [own, f"{URL}/servers/a/server-card", f"{URL}/servers/b/server-card"]
            card = await document(port, "/servers/a/server-card")
            assert card["remotes"] == [{"type": "streamable-http", "url": f"{URL}/servers/a"}]
        else:  # who may use which server is nobody's business
            assert names == [own]
            assert (await get(port, "/servers/a/server-card")).status == 404


def test_urls_that_cannot_be_of_a_listener() -> None:
    def fails(url: Any) -> None:
        with raises(ValueError):
            HttpOptions(card=url)

    for url in ("tools.example", "ws://tools.example", "https://", "https://a@b.example"):
        fails(url)
    fails("https://tools.example?x=1")

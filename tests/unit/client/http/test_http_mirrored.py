"""Arguments of tools that a client repeats in header fields (``x-mcp-header``)."""

from __future__ import annotations

import logging
from typing import Any

from lab.rows import every
from lab.web import Exchange, legacy, modern
from lab.wording import raises

from wirespeed import Client, Server
from wirespeed.errors import RemoteError


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def listing(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"tools": list(tools), "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}


REGION = {"type": "string", "x-mcp-header": "Region"}
INNER = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
YES = {"type": "boolean", "x-mcp-header": "Yes"}


def mirrored(exchange: Exchange) -> dict[str, str]:
    """The header fields of a call."""
    return {k: v for k, v in exchange.headers.items() if k.startswith("mcp-param-")}


@every(
    ("arguments", "fields"),
    [
        ({"region": "eu"}, {"mcp-param-region": "eu"}),
        ({"region": ""}, {"mcp-param-region": ""}),
        ({"region": "größe"}, {"mcp-param-region": "=?base64?Z3LDtsOfZQ==?="}),
        ({"region": "a\r\nX: b"}, {"mcp-param-region": "=?base64?YQ0KWDogYg==?="}),
        ({"region": "=?base64?eA==?="}, {"mcp-param-region": "=?base64?PT9iYXNlNjQ/ZUE9PT89?="}),
        ({"region": None}, {}),
        ({}, {}),
        (None, {}),
        ({"in": {"n": -5}, "yes": True}, {"mcp-param-n": "-5", "mcp-param-yes": "true"}),
        ({"in": {"n": 2**60}, "yes": False, "other": "x"}, {"mcp-param-yes": "false"}),
        ({"in": 7, "region": {"a": 1}}, {}),
    ],
)
async def test_arguments_in_header_fields(arguments: Any, fields: dict[str, str]) -> None:
    listed = listing(tool("place", region=REGION, yes=YES, **{"in": INNER}), tool("plain"))
    async with modern(**{"tools/list": listed}) as peer, peer.client() as client:
        await client.list_tools()
        await client.call_tool("place", arguments)
        await client.call_tool("plain", {"region": "eu"})
        assert [mirrored(exchange) for exchange in peer.sent("tools/call")] == [fields, {}]


async def test_tools_with_bad_header_parameters_are_left_out(caplog: Any) -> None:
    listed = listing(
        tool("good", region=REGION),
        tool("number", n={"type": "number", "x-mcp-header": "N"}),
        tool("twice", a=REGION, b={"type": "string", "x-mcp-header": "rEGION"}),
        tool("blank", a={"type": "string", "x-mcp-header": "a b"}),
    )
    async with modern(**{"tools/list": listed}) as peer, peer.client() as client:
        with caplog.at_level(logging.WARNING, "wirespeed.client"):
            for _ in range(2):
                assert [one.name for one in await client.list_tools()] == ["good"]
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 3
    assert told[0].startswith("the tool 'number' is left out of the list: property 'n': x-mcp-")
    caplog.clear()


async def test_other_servers_may_break_the_rules() -> None:
    """The keyword is one of HTTP, and of 2026-07-28."""
    bad = tool("number", n={"type": "number", "x-mcp-header": "N"})
    rules = {"tools/list": {"tools": [bad]}}
    async with legacy(**rules) as peer, peer.client(era="legacy") as client:
        assert [one.name for one in await client.list_tools()] == ["number"]
        await client.call_tool("number", {"n": 1.5})
    assert mirrored(peer.sent("tools/call")[0]) == {}
    server = Server("memory")

    @server.tool
    async def number(n: float) -> float:
        return n

    async with Client(server) as client:
        assert len(await client.list_tools()) == 1


async def test_refused_header_fields_list_the_tools_again() -> None:
    async def call(exchange: Exchange, message: dict[str, Any]) -> None:
        if "mcp-param-region" in exchange.headers:
            exchange.text(exchange.headers["mcp-param-region"])
        else:
            exchange.error(-32020, "Mcp-Param-Region is missing", 400)

    rules = {"tools/call": call, "tools/list": listing(tool("place"))}
    async with modern(**rules) as peer, peer.client() as client:
        await client.list_tools()
        peer.rules["tools/list"] = listing(tool("place", region=REGION))
        result = await client.call_tool("place", {"region": "eu"})
        assert result.content[0].text == "eu"
        assert len(peer.sent("tools/list")) == 2 and len(peer.sent("tools/call")) == 2
        # once
        with raises(RemoteError, code=-32020):
            await client.call_tool("place", {})
        assert len(peer.sent("tools/list")) == 3 and len(peer.sent("tools/call")) == 4

"""Header fields of a request against its body (2026-07-28 basic/transports/streamable-http)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.http import LEGACY, MODERN, Peer, message, serving
from lab.rows import every

from wirespeed import Client, HeaderParam, Server
from wirespeed._core.framing.http.head import HttpHead
from wirespeed.core import Message, parse
from wirespeed.errors import ProtocolError
from wirespeed.peer.http.headers import check_headers, check_params
from wirespeed.protocol.header_values import encode_text, param_fields
from wirespeed.types import CallNext, InboundRequest, Reply

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def head_of(fields: list[tuple[str, str]]) -> HttpHead:
    lines = ["POST /mcp HTTP/1.1", "Host: a", *(f"{name}: {value}" for name, value in fields)]
    data = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    head = HttpHead()
    assert head.scan(data) == len(data)
    return head


def message_of(method: str, *, id: int | None = 1, **params: Any) -> Message:
    body = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": META}}
    return parse(json.dumps(body if id is None else {**body, "id": id}).encode())


def fields_of(method: str, name: str | None = None) -> list[tuple[str, str]]:
    found = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)]
    return found if name is None else [*found, ("Mcp-Name", name)]


def refused(head: HttpHead, message: Message) -> str:
    with pytest.raises(ProtocolError) as failure:
        check_headers(head, message)
    assert failure.value.code == -32020
    text = failure.value.message
    assert text.startswith("Header mismatch: ")
    return text.removeprefix("Header mismatch: ")


NAMED = {
    "tools/call": {"name": "add", "arguments": {}},
    "prompts/get": {"name": "add"},
    "resources/read": {"uri": "add", "name": "other"},
    "tasks/get": {"taskId": "add", "name": "other"},
    "tasks/update": {"taskId": "add", "inputResponses": {}},
    "tasks/cancel": {"taskId": "add"},
}


@every("method", NAMED)
def test_an_encoded_name_is_decoded_and_matches_the_method(method: str) -> None:
    message = message_of(method, **NAMED[method])
    check_headers(head_of(fields_of(method, "add")), message)
    check_headers(head_of(fields_of(method, "=?base64?YWRk?=")), message)
    if method.startswith("tasks/"):  # some clients of the extension leave it out
        check_headers(head_of(fields_of(method)), message)
    else:
        assert refused(head_of(fields_of(method)), message) == "the Mcp-Name header is missing"
    assert refused(head_of(fields_of(method, "other")), message) == (
        "Mcp-Name header value 'other' does not match body value 'add'"
    )


@pytest.mark.parametrize("method", ["tools/list", "server/discover", "tasks/other", "initialize"])
def test_other_methods_have_no_name(method: str) -> None:
    message = message_of(method, name="add", uri="add", taskId="add")
    check_headers(head_of(fields_of(method)), message)
    check_headers(head_of(fields_of(method, "else")), message)


@pytest.mark.parametrize("names", [str.lower, str.upper, str.title])
def test_routing_headers_match_in_any_case_with_white_space_around_values(names: Any) -> None:
    fields = [(names(name), f" \t{value}\t ") for name, value in fields_of("tools/call", "add")]
    check_headers(head_of(fields), message_of("tools/call", name="add"))


@every(
    ("field", "value"),
    [
        ("MCP-Protocol-Version", "2026-07-29"),
        ("MCP-Protocol-Version", ""),
        ("MCP-Protocol-Version", "=?base64?MjAyNi0wNy0yOA==?="),
        ("Mcp-Method", "TOOLS/CALL"),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Method", "tools\\/call"),
        ("Mcp-Method", "=?base64?dG9vbHMvY2FsbA==?="),
        ("Mcp-Name", "ADD"),
        ("Mcp-Name", ""),
        ("Mcp-Name", '"add"'),
        ("Mcp-Name", "ad\\u0064"),
        ("Mcp-Name", "=?base64?QURE?="),
    ],
)
def test_another_value_is_refused(field: str, value: str) -> None:
    fields = [(n, value if n == field else v) for n, v in fields_of("tools/call", "add")]
    text = refused(head_of(fields), message_of("tools/call", name="add"))
    assert text.startswith(f"{field} header value '")
    assert " does not match body value '" in text


@pytest.mark.parametrize("value", ["=?base64?YWR?=", "=?base64?YW!k?=", "caf\xe9"])
def test_a_name_whose_encoding_is_broken_is_refused(value: str) -> None:
    text = refused(head_of(fields_of("tools/call", value)), message_of("tools/call", name="add"))
    assert text.startswith("Mcp-Name header value '")
    assert text.endswith((": it is not Base64 of UTF-8 text", ": it has invalid characters"))


def test_a_byte_is_not_a_character_of_a_body() -> None:
    text = refused(head_of(fields_of("caf\xe9")), message_of("café"))
    assert text == "Mcp-Method header value 'caf\\xe9' does not match body value 'caf\\xe9'"


@pytest.mark.parametrize("field", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
def test_a_field_must_be_there_once(field: str) -> None:
    message = message_of("tools/call", name="add")
    fields = fields_of("tools/call", "add")
    without = [pair for pair in fields if pair[0] != field]
    assert refused(head_of(without), message) == f"the {field} header is missing"
    twice = [*fields, *(pair for pair in fields if pair[0] == field)]
    check_headers(head_of(twice), message)  # they say one thing
    twice[-1] = (field, "other")
    assert refused(head_of(twice), message) == f"the {field} header occurs more than once"


def test_a_body_may_spell_its_strings_with_escapes() -> None:
    text = (
        r'{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":{"name":"\u0061dd","_meta":'
        r'{"io.modelcontextprotocol\/protocolVersion":"2026\u002d07-28"}}}'
    )
    message = parse(text.encode())
    check_headers(head_of(fields_of("tools/call", "add")), message)
    assert refused(head_of(fields_of("tools/call", r"\u0061dd")), message)


def test_a_field_never_has_the_bytes_of_the_body_by_chance() -> None:
    """The same bytes have another meaning in JSON, in UTF-8, and between the markers."""
    for name, json_text in [
        (r"a\\b", r'"a\\b"'),
        ("caf\xc3\xa9", '"café"'),
        ("=?base64?YWRk?=", '"=?base64?YWRk?="'),
    ]:
        body = (
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%s,"_meta":'
            '{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}'
        )
        message = parse((body % json_text).encode())
        assert refused(head_of(fields_of("tools/call", name)), message)
        right = encode_text(json.loads(json_text))
        check_headers(head_of(fields_of("tools/call", right)), message)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans(), st.booleans())
def test_every_name_is_found_equal_however_it_is_spelled(
    name: str, ascii: bool, same: bool
) -> None:
    body = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": META},
    }  # fmt: skip
    message = parse(json.dumps(body, ensure_ascii=ascii).encode())
    if same:
        check_headers(head_of(fields_of("tools/call", encode_text(name))), message)
    else:
        assert refused(head_of(fields_of("tools/call", encode_text(name + "!"))), message)


@every("n", [0, 1, 6, 7, 8, 9, 15, 16, 17, 200])
def test_values_of_every_length_are_compared_whole(n: int) -> None:
    name = "abcdefghij" * 20
    name = name[:n]
    message = message_of("tools/call", name=name)
    check_headers(head_of(fields_of("tools/call", name)), message)
    for i in range(n):
        other = f"{name[:i]}X{name[i + 1 :]}"
        assert refused(head_of(fields_of("tools/call", other)), message)


@pytest.mark.parametrize("params", [{}, {"name": None}, {"name": 7}, {"name": ["add"]}])
def test_a_request_without_a_target_is_refused_for_that(params: dict[str, Any]) -> None:
    """By its method, with -32602."""
    for method in NAMED:
        given = {"uri": params["name"], "taskId": params["name"], **params} if params else {}
        check_headers(head_of(fields_of(method)), message_of(method, **given))


def test_a_long_value_is_cut_in_the_error() -> None:
    text = refused(
        head_of(fields_of("tools/call", "x" * 5000)), message_of("tools/call", name="y" * 5000)
    )
    assert len(text) < 600


# -- arguments that are mirrored -------------------------------------------------------------------

FIELDS = param_fields(
    {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "where": {
                "type": "object",
                "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}},
            },
        },
    }
)


def check(fields: list[tuple[str, str]], arguments: bytes | None) -> None:
    if arguments is None:
        lease = None
    else:
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":%b}}'
        lease = parse(body % arguments).lease("params.arguments")
        assert lease is not None
    check_params(head_of(fields), FIELDS, lease)


def refused_params(fields: list[tuple[str, str]], arguments: bytes | None) -> str:
    with pytest.raises(ProtocolError) as failure:
        check(fields, arguments)
    assert failure.value.code == -32020
    assert failure.value.message.startswith("Header mismatch: ")
    return failure.value.message.removeprefix("Header mismatch: ")


REGION = "Mcp-Param-Region"
ALL = [(REGION, "us west"), ("mcp-param-COUNT", "42.0"), ("Mcp-Param-Dry", "true")]


@every(
    ("fields", "arguments"),
    [
        (ALL, b'{"dry":true,"count":42,"region":"us west","other":[1]}'),
        (ALL, b'{"dry":true,"count":42.0,"region":"us\\u0020west"}'),
        ([(REGION, "=?base64?SGVsbG8=?=")], b'{"region":"Hello"}'),
        ([(REGION, "=?base64?SGVsbG8=")], b'{"region":"=?base64?SGVsbG8="}'),
        ([(REGION, "")], b'{"region":""}'),
        ([("Mcp-Param-Zone", "=?base64?5pel?=")], '{"where":{"zone":"日"}}'.encode()),
        ([("Mcp-Param-Other", "caf\xe9"), ("Mcp-Param-Other", "=?base64?!?=")], b"{}"),
        ([], None),
        ([], b"{}"),
        ([], b'{"region":null,"count":null,"where":null}'),
        ([], b'{"where":{"zone":null}}'),
        ([], b'{"where":"elsewhere"}'),
        # of a type that the tool refuses: no client has a field for it
        ([], b'{"region":["us"],"count":4.5,"dry":{}}'),
    ],
)
def test_arguments_match_their_headers(
    fields: list[tuple[str, str]], arguments: bytes | None
) -> None:
    check(fields, arguments)


@every(
    ("fields", "arguments", "text"),
    [
        ([], b'{"region":"us"}', f"the {REGION} header is missing"),
        ([], b'{"region":""}', f"the {REGION} header is missing"),
        ([], b'{"count":0}', "the Mcp-Param-Count header is missing"),
        ([], b'{"count":7.0}', "the Mcp-Param-Count header is missing"),
        ([], b'{"dry":false}', "the Mcp-Param-Dry header is missing"),
        ([], b'{"region":7}', f"the {REGION} header is missing"),
        ([], b'{"where":{"zone":"a"}}', "the Mcp-Param-Zone header is missing"),
        (
            [(REGION, "us")],
            b'{"region":"eu"}',
            f"{REGION} header value 'us' does not match body value 'eu'",
        ),
        (
            [(REGION, "US")],
            b'{"region":"us"}',
            f"{REGION} header value 'US' does not match body value 'us'",
        ),
        (
            [("Mcp-Param-Count", "42.5")],
            b'{"count":42}',
            "Mcp-Param-Count header value '42.5' does not match body value 42",
        ),
        (
            [("Mcp-Param-Dry", "True")],
            b'{"dry":true}',
            "Mcp-Param-Dry header value 'True' does not match body value True",
        ),
        (
            [(REGION, "us")],
            b'{"region":["us"]}',
            f"{REGION} header value 'us' does not match body value ['us']",
        ),
        ([(REGION, "us")], None, f"{REGION} header value 'us' has no value in the body"),
        ([(REGION, "")], b"{}", f"{REGION} header value '' has no value in the body"),
        (
            [(REGION, "null")],
            b'{"region":null}',
            f"{REGION} header value 'null' has no value in the body",
        ),
        (
            [(REGION, "=?base64?SGVsbG8?=")],
            b'{"region":"Hello"}',
            f"{REGION} header value '=?base64?SGVsbG8?=': it is not Base64 of UTF-8 text",
        ),
        (
            [(REGION, "caf\xe9")],
            b'{"region":"caf\xc3\xa9"}',
            f"{REGION} header value 'caf\\xe9': it has invalid characters",
        ),
        (
            [(REGION, "us"), (REGION.lower(), "us")],
            b'{"region":"us"}',
            f"the {REGION} header occurs more than once",
        ),
        (
            [],
            b'{"count":9007199254740992}',
            "no Mcp-Param-Count header has room for the value 9007199254740992",
        ),
        (
            [("Mcp-Param-Count", "9007199254740992")],
            b'{"count":9007199254740992}',
            "Mcp-Param-Count header value '9007199254740992' does not match body value "
            "9007199254740992",
        ),
    ],
)
def test_arguments_that_differ_from_their_headers_are_refused(
    fields: list[tuple[str, str]], arguments: bytes | None, text: str
) -> None:
    assert refused_params(fields, arguments) == text


@pytest.mark.parametrize("arguments", [b'{"region":"\\ud800"}', b'{"\\ud800":1,"region":"a"}'])
def test_arguments_that_decoders_read_differently_are_refused(arguments: bytes) -> None:
    assert "cannot be compared" in refused_params([(REGION, "a")], arguments)


# -- as a client sees it ---------------------------------------------------------------------------


@dataclass
class Place:
    region: Annotated[str, HeaderParam("Place-Region")] = "anywhere"


def make(**options: Any) -> Server:
    server = Server("headers", version="1", **options)

    @server.tool
    async def query(
        sql: str,
        region: Annotated[Literal["us", "eu"], HeaderParam("Region")],
        limit: Annotated[int, HeaderParam("Limit")] = 10,
    ) -> str:
        return f"{sql} {region} {limit}"

    schema = {
        "type": "object",
        "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}},
    }
    server.tool_raw("raw", schema, lambda arguments: bytes(arguments).decode())
    return server


QUERY = {"name": "query", "arguments": {"sql": "select 1", "region": "us"}}


async def refusal(peer: Peer, method: str, params: dict[str, Any], **fields: Any) -> str:
    response = await peer.modern(method, params, **fields)
    assert response.status == 400
    assert response.headers["content-type"] == "application/json"
    assert response.json["id"] == 1
    assert response.json["error"]["code"] == -32020
    return str(response.json["error"]["message"]).removeprefix("Header mismatch: ")


async def text_of(peer: Peer, params: dict[str, Any], **fields: Any) -> str:
    response = await peer.modern("tools/call", params, **fields)
    assert response.status == 200, response.body
    return str(response.json["result"]["content"][0]["text"])


async def test_routing_headers_that_do_not_match_are_refused_and_the_connection_goes_on() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        assert (await refusal(peer, "tools/call", QUERY, mcp_method=None)).endswith("is missing")
        assert (await refusal(peer, "tools/call", QUERY, mcp_name=None)).endswith("is missing")
        assert "'TOOLS/CALL'" in await refusal(peer, "tools/call", QUERY, mcp_method="TOOLS/CALL")
        assert "'raw'" in await refusal(peer, "tools/call", QUERY, mcp_name="raw")
        assert "'tools/call'" in await refusal(peer, "tools/list", {}, mcp_method="tools/call")
        for region in (None, "eu", "=?base64?dXM?="):
            assert REGION in await refusal(peer, "tools/call", QUERY, mcp_param_region=region)
        assert await text_of(peer, QUERY, mcp_param_region="=?base64?dXM=?=") == "select 1 us 10"
        raw = {"name": "raw", "arguments": {"zone": "a"}}
        assert (await refusal(peer, "tools/call", raw)).endswith("Zone header is missing")
        assert await text_of(peer, raw, mcp_param_zone="a") == '{"zone": "a"}'


async def test_a_default_makes_an_argument_and_its_field_optional() -> None:
    async with serving(make()) as place:
        peer = await place.connect()
        more = {**QUERY, "arguments": {**QUERY["arguments"], "limit": 5}}  # type: ignore[dict-item]
        assert await text_of(peer, QUERY, mcp_param_region="us") == "select 1 us 10"
        found = await text_of(peer, more, mcp_param_region="us", mcp_param_limit="5.0")
        assert found == "select 1 us 5"


async def test_marked_fields_of_objects_are_compared() -> None:
    server = make()

    @server.tool
    async def deliver(place: Place, parcels: int = 1) -> str:
        return f"{parcels} to {place.region}"

    async with serving(server) as place:
        peer = await place.connect()
        params = {"name": "deliver", "arguments": {"place": {"region": "us"}}}
        field = "Mcp-Param-Place-Region"
        assert (await refusal(peer, "tools/call", params)).endswith(f"{field} header is missing")
        assert field in await refusal(peer, "tools/call", params, mcp_param_place_region="eu")
        assert await text_of(peer, params, mcp_param_place_region="us") == "1 to us"
        bare = {"name": "deliver", "arguments": {"place": {}}}
        assert await text_of(peer, bare) == "1 to anywhere"

        async with Client(place.url, era="modern", timeout=5.0) as client:
            await client.list_tools()  # says which arguments are header fields
            result = await client.call_tool("deliver", {"place": {"region": "eu"}})
            assert result.text == "1 to eu"


async def test_legacy_requests_need_no_fields() -> None:
    async with serving(make()) as place:
        peer, session = await place.session(LEGACY)
        body = message("tools/call", QUERY, 7)
        response = await peer.ask(body=body, mcp_session_id=session, mcp_protocol_version=LEGACY)
        assert response.json["result"]["content"][0]["text"] == "select 1 us 10"


@pytest.mark.parametrize("waits", [False, True])
async def test_fields_are_compared_before_middleware(waits: bool) -> None:
    """It may replace the request, and wait until the head of the request is gone."""
    server = make()
    seen = []

    @server.add_middleware
    async def rewrite(request: InboundRequest, call_next: CallNext) -> Reply | None:
        seen.append(request.method)
        if waits:
            await asyncio.sleep(0.02)
        arguments = {"sql": "select 2", "region": "eu"}
        return await call_next(request.replace(arguments=arguments))

    async with serving(server) as place:
        peer = await place.connect()
        assert REGION in await refusal(peer, "tools/call", QUERY, mcp_param_region="eu")
        assert "Mcp-Name" in await refusal(peer, "tools/call", QUERY, mcp_name="raw")
        assert "Mcp-Name" in await refusal(
            peer, "tools/call", {**QUERY, "name": "no"}, mcp_name="a"
        )
        assert not seen
        assert await text_of(peer, QUERY, mcp_param_region="us") == "select 2 eu 10"
        unknown = await peer.modern("tools/call", {**QUERY, "name": "no"})
        assert unknown.json["error"]["code"] == -32602


async def test_a_mounted_tool_keeps_its_fields() -> None:
    server = Server("outer", version="1")
    server.mount("sub", make())
    async with serving(server) as place:
        peer = await place.connect()
        (name,) = [
            tool["name"]
            for tool in (await peer.modern("tools/list")).json["result"]["tools"]
            if tool["name"].endswith("query")
        ]
        params = {**QUERY, "name": name}
        assert REGION in await refusal(peer, "tools/call", params)
        assert await text_of(peer, params, mcp_param_region="us") == "select 1 us 10"


@pytest.mark.parametrize("middleware", [False, True])
async def test_a_hidden_tool_is_unknown_whatever_its_fields(middleware: bool) -> None:
    server = make(filter=lambda user, entry: entry.name != "query")

    async def passing(request: InboundRequest, call_next: CallNext) -> Reply | None:
        return await call_next(request)

    if middleware:
        server.add_middleware(passing)
    async with serving(server) as place:
        peer = await place.connect()
        response = await peer.modern("tools/call", QUERY)
        assert response.json["error"]["code"] == -32602
        raw = {"name": "raw", "arguments": {"zone": "a"}}
        assert (await refusal(peer, "tools/call", raw)).endswith("Zone header is missing")

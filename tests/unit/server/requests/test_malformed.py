"""What malformed input gets: the table of docs/architecture.md, row by row, in every revision."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab.raw import Raw, call, initialize, modern, notification, request, tool_server
from lab.rows import every
from lab.server import LEGACY, MODERN, Peer, text_of

from wirespeed import Server
from wirespeed.limits import Limits
from wirespeed.server.requests.call import Handshake

pytestmark = pytest.mark.compiled

ABSENT = object()
NULL_IDS = ("2024-11-05", "2025-03-26", "2025-06-18")

# name: (line, code, id of the answer, part of its text); ABSENT for what has no readable id
ROWS: dict[str, tuple[bytes, int, Any, str]] = {
    "not JSON": (b"hello", -32700, ABSENT, "not JSON at byte 0"),
    "cut off": (b'{"jsonrpc":"2.0","id":1,"method":"pi', -32700, ABSENT, "not JSON"),
    "two values": (b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}', -32700, ABSENT, "not JSON"),
    "single quotes": (b"{'jsonrpc':'2.0'}", -32700, ABSENT, "not JSON"),
    "NaN": (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', -32700, ABSENT, "not JSON"),
    "a trailing comma": (b'{"jsonrpc":"2.0","id":1,"method":"ping",}', -32700, ABSENT, "JSON"),
    "a raw tab in a string": (b'{"jsonrpc":"2.0","id":"\t","method":"ping"}', -32700, ABSENT, ""),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}', -32700, ABSENT, "UTF-8"),
    "overlong UTF-8": (b'{"jsonrpc":"2.0","id":"\xc0\xaf","method":"x"}', -32700, ABSENT, "UTF-8"),
    "a surrogate as UTF-8": (b'{"id":"\xed\xa0\x80","method":"x"}', -32700, ABSENT, "UTF-8"),
    "a NUL": (b"\0", -32700, ABSENT, "not JSON"),
    "a number": (b"1", -32600, ABSENT, "not a JSON object"),
    "a string": (b'"ping"', -32600, ABSENT, "not a JSON object"),
    "null": (b"null", -32600, ABSENT, "not a JSON object"),
    "an empty object": (b"{}", -32600, ABSENT, "not a message"),
    "jsonrpc missing": (b'{"id":5,"method":"ping"}', -32600, 5, "jsonrpc"),
    "jsonrpc 1.0": (b'{"jsonrpc":"1.0","id":"a","method":"ping"}', -32600, "a", "jsonrpc"),
    "jsonrpc a number": (b'{"jsonrpc":2.0,"id":5,"method":"ping"}', -32600, 5, "jsonrpc"),
    "no method": (b'{"jsonrpc":"2.0","id":5}', -32600, 5, "neither method"),
    "method in capitals": (b'{"jsonrpc":"2.0","id":5,"METHOD":"ping"}', -32600, 5, "neither"),
    "jsonrpc in capitals": (b'{"JsonRPC":"2.0","id":5,"method":"ping"}', -32600, 5, "jsonrpc"),
    "method a number": (b'{"jsonrpc":"2.0","id":5,"method":1}', -32600, 5, "method"),
    "method null": (b'{"jsonrpc":"2.0","id":5,"method":null}', -32600, 5, "method"),
    "params an array": (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}', -32600, 5, "par"),
    "params a text": (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":""}', -32600, 5, "params"),
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, ABSENT, "id"),
    "id true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, ABSENT, "id"),
    "id 1.5": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, ABSENT, "id"),
    "id 1e0": (b'{"jsonrpc":"2.0","id":1e0,"method":"ping"}', -32600, ABSENT, "id"),
    "id an object": (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, ABSENT, "id"),
    "id an array": (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600, ABSENT, "id"),
    "id twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600, ABSENT, "twice"),
    "method twice": (b'{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}', -32600, 1, "twice"),
    "method twice, once escaped": (
        b'{"jsonrpc":"2.0","id":1,"method":"a","m\\u0065thod":"b"}', -32600, 1, "twice",
    ),
    "name twice": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}',
        -32600, 1, "twice",
    ),
    "unknown method": (b'{"jsonrpc":"2.0","id":5,"method":"nope"}', -32601, 5, "nope"),
    "nested too deeply": (
        b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":' + b"[" * 128 + b"]" * 128 + b"}}",
        -32600, 5, "deeper than 128",
    ),
    "both a request and a response": (
        b'{"jsonrpc":"2.0","id":5,"method":"ping","result":{}}', -32600, 5, "both",
    ),
}  # fmt: skip

# What is never answered.
SILENT: dict[str, bytes] = {
    "an empty line": b"",
    "blanks": b" \t \r",
    "unknown notification": b'{"jsonrpc":"2.0","method":"notifications/nope"}',
    "notification of a request's name": b'{"jsonrpc":"2.0","method":"tools/list"}',
    "notification with bad params": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}'
    ),
    "notification without jsonrpc": b'{"method":"notifications/initialized"}',
    "cancel of an unknown id": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}'
    ),
    "cancel without id": b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    "cancel of null": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}'
    ),
    "response with an unknown id": b'{"jsonrpc":"2.0","id":99,"result":{}}',
    "error with an unknown id": b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}',
    "error without id": b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}',
    "error with id null": b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    "both result and error": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
    "error a string": b'{"jsonrpc":"2.0","id":1,"error":"x"}',
    "progress without params": b'{"jsonrpc":"2.0","method":"notifications/progress"}',
}


def enter(peer: Any, version: str | None) -> None:
    """Bring a connection into an era."""
    if version == MODERN:
        assert "result" in peer.ask(modern("enter", "tools/list"))
    elif version is not None:
        peer.handshake(version)


def check(answer: Any, version: str | None, row: tuple[bytes, int, Any, str]) -> None:
    _, code, id, text = row
    assert answer["jsonrpc"] == "2.0"
    assert answer["error"]["code"] == code
    assert text in answer["error"]["message"]
    if id is not ABSENT:
        assert answer["id"] == id
    elif version is None or version in NULL_IDS:
        assert answer["id"] is None
    else:
        assert "id" not in answer
    assert set(answer) <= {"jsonrpc", "id", "error"}


@pytest.mark.parametrize("version", [None, *LEGACY, MODERN])
@pytest.mark.parametrize("name", ROWS)
def test_row_is_answered_and_the_connection_lives(
    name: str, version: str | None, modern_peer: Any
) -> None:
    enter(modern_peer, version)
    check(modern_peer.ask(ROWS[name][0] + b"\n"), version, ROWS[name])
    assert modern_peer.fence() == []


@pytest.mark.parametrize("version", [None, *LEGACY, MODERN])
@pytest.mark.parametrize("name", SILENT)
def test_row_is_never_answered(name: str, version: str | None, modern_peer: Any) -> None:
    enter(modern_peer, version)
    modern_peer.send(SILENT[name] + b"\n")
    assert modern_peer.fence() == []


@every("version", [None, *LEGACY, MODERN])
@every("loop", ["uvloop", "asyncio"])
def test_every_row_over_the_pipes_of_a_process(version: str | None, loop: str) -> None:
    with Raw(tool_server(), env={"WIRESPEED_LOOP": loop}) as peer:
        enter(peer, version)
        for silent in SILENT.values():
            peer.send(silent + b"\n")
        for row in ROWS.values():
            check(peer.ask(row[0] + b"\n"), version, row)
        assert peer.end() == 0
        assert "bad input" in peer.stderr()


def test_a_flood_of_bad_lines_is_answered_but_not_logged_without_end() -> None:
    with Raw(tool_server()) as peer:
        for _ in range(150):
            assert peer.ask(b"junk\n")["error"]["code"] == -32700
        assert peer.end() == 0
        assert peer.stderr().count("bad input: ") == 100
        assert "further bad input on this connection is not logged" in peer.stderr()


def test_every_row_in_one_write_is_answered_in_order(peer: Any) -> None:
    peer.send(b"".join(row[0] + b"\n" for row in ROWS.values()))
    for row in ROWS.values():
        check(peer.recv(), "2025-06-18", row)
    assert peer.fence() == []


def test_a_server_that_knows_only_new_revisions_leaves_the_id_out_from_the_start(
    connect: Any,
) -> None:
    peer = connect(to=Server("new", versions=["2025-11-25", "2026-07-28"]))
    assert "id" not in peer.ask(b"hello\n")


# -- lines ----------------------------------------------------------------------------------------


def test_an_oversize_line_gets_one_error_that_names_the_limit(connect: Any) -> None:
    peer = connect("2025-06-18", to=Server("small", limits=Limits(max_message=1000)))
    peer.send(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 300_000 + b'"}\n')
    answer = peer.recv()
    assert answer["id"] is None
    assert answer["error"]["code"] == -32600
    assert "1000 bytes" in answer["error"]["message"]
    assert peer.fence() == []


def test_a_line_of_exactly_the_limit_passes(connect: Any) -> None:
    peer = connect("2025-06-18", to=Server("small", limits=Limits(max_message=1000)))
    line = json.dumps(request(1, "ping")).encode().ljust(1000)
    assert len(line) == 1000
    assert peer.ask(line + b"\n")["result"] == {}
    assert peer.ask(line + b"\r\n")["result"] == {}
    assert peer.ask(line + b" \n")["error"]["code"] == -32600


def test_an_oversize_line_that_never_ends_is_answered_before_its_newline(connect: Any) -> None:
    peer = connect("2025-06-18", to=Server("small", limits=Limits(max_message=1000)))
    peer.send(b"x" * 100_000)
    assert peer.recv()["error"]["code"] == -32600
    peer.send(b"x" * 100_000 + b"\n")
    assert peer.fence() == []


def test_a_request_of_too_many_values_gets_an_error_with_its_id(connect: Any) -> None:
    peer = connect("2025-06-18", to=Server("small", limits=Limits(max_values=100)))
    answer = peer.ask(request(1, "ping", {"x": [0] * 200}))
    assert answer["error"]["code"] == -32600
    assert "the limit of 100 JSON values" in answer["error"]["message"]
    assert peer.ask(request(2, "ping", {"x": [0] * 50}))["result"] == {}


@pytest.mark.parametrize("depth", [5, 128, 1024])
def test_nesting_up_to_the_bound_passes(depth: int, connect: Any) -> None:
    peer = connect("2025-06-18", to=Server("deep", limits=Limits(max_depth=depth)))

    def nested(levels: int) -> bytes:  # the message and params are two
        inside = b"[" * (levels - 2) + b"]" * (levels - 2)
        return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":%b}}\n' % inside

    assert peer.ask(nested(depth))["result"] == {}
    answer = peer.ask(nested(depth + 1))
    assert answer["error"]["code"] == -32600
    assert f"deeper than {depth}" in answer["error"]["message"]


def test_a_byte_order_mark_is_tolerated_once_at_the_start(modern_peer: Any) -> None:
    assert (
        modern_peer.ask(b"\xef\xbb\xbf" + json.dumps(request(1, "ping")).encode() + b"\n")["id"]
        == 1
    )
    assert modern_peer.ask(b"\xef\xbb\xbf{}\n")["error"]["code"] == -32700


def test_a_carriage_return_before_the_newline_is_tolerated(modern_peer: Any) -> None:
    modern_peer.send(json.dumps(request(1, "ping")).encode() + b"\r\n")
    modern_peer.send(b"\r\n", json.dumps(request(2, "ping")).encode() + b"\r\n")
    assert [modern_peer.recv()["id"], modern_peer.recv()["id"]] == [1, 2]


def test_a_carriage_return_alone_ends_no_line(connect: Any) -> None:
    peer = connect()
    one = json.dumps(request(1, "ping")).encode()
    assert peer.ask(one + b"\r" + one + b"\n")["error"]["code"] == -32700


@pytest.mark.parametrize(
    "odd", ["\u2028", "\u2029", "\x85", "\\r", "\x7f", "\U0001f600", "\\u0000"]
)
def test_only_a_newline_ends_a_line(odd: str, connect: Any, server: Server) -> None:
    @server.tool
    async def echo(text: str) -> str:
        return text

    peer = connect("2025-06-18")
    line = json.dumps(call(1, "echo", {"text": "@"})).replace("@", odd).encode()
    got = peer.ask(line + b"\n")
    assert text_of(got["result"]) == json.loads(f'"{odd}"')


def test_a_message_may_be_split_at_every_byte(connect: Any, server: Server) -> None:
    @server.tool(inline=True)
    def echo(text: str) -> str:
        return text

    peer = connect("2025-06-18")
    line = json.dumps(call("é", "echo", {"text": "añ€\U0001f600"}), ensure_ascii=False).encode()
    for at in range(1, len(line)):
        before = peer.connection.session.counters["bytes_in"]
        peer.send(line[:at])
        peer.wait_for(lambda n=before: peer.connection.session.counters["bytes_in"] > n)
        answer = peer.ask(line[at:] + b"\n")
        assert answer["id"] == "é"
        assert text_of(answer["result"]) == "añ€\U0001f600"


def test_messages_may_come_byte_by_byte(peer: Peer) -> None:
    for byte in json.dumps(request("añ", "ping"), ensure_ascii=False).encode() + b"\n":
        before = peer.connection.session.counters["bytes_in"]
        peer.send(bytes([byte]))
        peer.wait_for(lambda n=before: peer.connection.session.counters["bytes_in"] > n)
    assert peer.recv() == {"jsonrpc": "2.0", "id": "añ", "result": {}}


# -- ids ------------------------------------------------------------------------------------------

IDS = [
    "0", "-1", "9007199254740993", "12345678901234567890123", "-" + "9" * 50,
    '""', '"1"', '"null"', '"\\u0000"', '"\\ud800"', '"a\\/b"', '"' + "x" * 1000 + '"', '"é€"',
]  # fmt: skip


@pytest.mark.parametrize("id", IDS)
def test_ids_come_back_as_they_came(id: str, peer: Peer) -> None:
    peer.send(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}\n' % id.encode())
    assert peer.line() == b'{"jsonrpc":"2.0","id":%b,"result":{}}' % id.encode()
    peer.send(b'{"jsonrpc":"2.0","id":%b,"method":"nope"}\n' % id.encode())
    assert b'"id":%b,"error":' % id.encode() in peer.line()


def test_a_number_and_a_string_are_two_ids(peer: Any, server: Server) -> None:
    @server.tool
    async def hang() -> None:
        import asyncio

        await asyncio.Event().wait()

    peer.send(call(1, "hang"), call("1", "hang"), call(1, "hang"))
    assert peer.recv()["id"] == 1  # the duplicate
    assert peer.fence() == []
    assert peer.connection.session.counters["requests_in_flight"] == 2


def test_a_duplicate_id_in_flight_is_refused_and_the_first_goes_on(
    peer: Any, server: Server
) -> None:
    @server.tool
    async def slow(text: str) -> str:
        import asyncio

        await asyncio.sleep(0.01)
        return text

    peer.send(call(7, "slow", {"text": "first"}), call(7, "slow", {"text": "second"}))
    refused, answer = peer.recv(), peer.recv()
    assert refused["id"] == 7
    assert refused["error"]["code"] == -32600
    assert "in flight" in refused["error"]["message"]
    assert text_of(answer["result"]) == "first"
    # after the answer the id is free
    assert text_of(peer.result(call(7, "slow", {"text": "third"}))) == "third"


# -- escapes --------------------------------------------------------------------------------------


def slashes(message: Any) -> bytes:
    """As encoders write it that escape the slash (PHP's does by default)."""
    return json.dumps(message).replace("/", "\\/").encode() + b"\n"


def test_escaped_slashes_mean_the_same_in_the_legacy_era(modern_peer: Any, server: Server) -> None:
    @server.tool
    async def hang() -> None:
        import asyncio

        await asyncio.Event().wait()

    @server.tool
    async def echo(text: str) -> str:
        return text

    modern_peer.ask(slashes(initialize(0)))
    modern_peer.send(slashes(notification("notifications/initialized")))
    assert len(modern_peer.ask(slashes(request(1, "tools/list")))["result"]["tools"]) == 2
    answer = modern_peer.ask(slashes(call(2, "echo", {"text": "a/b"})))
    assert text_of(answer["result"]) == "a/b"
    modern_peer.send(call(3, "hang"))
    modern_peer.send(slashes(notification("notifications/cancelled", {"requestId": 3})))
    assert modern_peer.fence() == []
    assert modern_peer.connection.session.counters["cancelled"] == 1
    assert modern_peer.connection.handshake == Handshake.INITIALIZED


def test_escaped_slashes_mean_the_same_in_the_modern_era(modern_peer: Any, server: Server) -> None:
    @server.tool
    async def echo(text: str) -> str:
        return text

    assert "supportedVersions" in modern_peer.ask(slashes(modern(1, "server/discover")))["result"]
    params = {"name": "echo", "arguments": {"text": "x"}}
    answer = modern_peer.ask(slashes(modern(2, "tools/call", params)))["result"]
    assert text_of(answer) == "x"
    assert answer["resultType"] == "complete"


def test_a_method_may_be_spelled_with_unicode_escapes(modern_peer: Any) -> None:
    assert modern_peer.ask(b'{"jsonrpc":"2.0","id":1,"method":"\\u0070ing"}\n')["result"] == {}
    assert modern_peer.ask(b'{"jsonrpc":"\\u0032.0","id":1,"method":"ping"}\n')["result"] == {}


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
def test_errors_quote_the_beginning_of_long_names(connect: Any, version: str) -> None:
    peer = connect(version)
    long = "x" * 1_000_000
    make = modern if version == MODERN else request
    for method, params in (
        (long, {}),
        ("tools/call", {"name": long}),
        ("prompts/get", {"name": long}),
        ("resources/read", {"uri": f"x://{long}"}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": long},
                "argument": {"name": "a", "value": ""},
            },
        ),
    ):
        answer = peer.ask(make(method[:20], method, params))
        assert len(json.dumps(answer)) < 2_000, method[:20]


def test_an_unknown_version_is_quoted_in_part(connect: Any) -> None:
    message = modern(1, "tools/list")
    key = "io.modelcontextprotocol/protocolVersion"
    message["params"]["_meta"][key] = "2" * 1_000_000
    answer = connect(None).ask(message)
    assert answer["error"]["code"] == -32022
    assert len(json.dumps(answer)) < 2_000


def test_a_forged_request_state_is_refused_though_the_tool_takes_no_context(connect: Any) -> None:
    server, ran = Server("lab"), []

    @server.tool
    async def plain() -> str:
        ran.append(1)
        return "x"

    params = {"name": "plain", "arguments": {}, "requestState": "forged"}
    code, text = connect(to=server).error(modern(1, "tools/call", params))
    assert (code, text) == (-32602, "requestState is not valid for this request")
    assert ran == []

"""The two eras on one connection: handshake, per-request envelopes, discovery, pinning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab.raw import META, call, envelope, initialize, modern, notification, request
from lab.server import LEGACY, MODERN, text_of
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.types import Icon

pytestmark = [pytest.mark.every_revision, pytest.mark.compiled]
INFO = META + "serverInfo"


@pytest.fixture
def peer(modern_peer: Any) -> Any:
    return modern_peer


@pytest.fixture
def server() -> Server:
    server = Server(
        "eras",
        "2.1",
        title="Eras",
        description="A server",
        website_url="https://example.org",
        icons=[Icon("https://example.org/i.png")],
        instructions="Be kind.",
    )

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def client(ctx: Context) -> dict[str, Any]:
        return {
            "info": ctx.client_info,
            "capabilities": ctx.client_capabilities,
            "version": ctx.protocol_version,
        }

    return server


# -- legacy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEGACY)
def test_initialize_echoes_a_version_that_is_served(version: str, connect: Any) -> None:
    result = connect().handshake(version)
    assert result["protocolVersion"] == version
    assert result["instructions"] == "Be kind."
    assert result["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}
    info = result["serverInfo"]
    assert (info["name"], info["version"]) == ("eras", "2.1")
    assert ("title" in info) == (version >= "2025-06-18")
    for newer in ("description", "websiteUrl", "icons"):
        assert (newer in info) == (version >= "2025-11-25")


@pytest.mark.parametrize("asked", ["1.0.0", "v999", "zzz", "", "2026-07-29", "9999-12-31"])
def test_an_unknown_version_gets_the_latest_legacy_one(asked: str, connect: Any) -> None:
    assert connect().handshake(asked)["protocolVersion"] == "2025-11-25"


def test_initialize_is_never_answered_a_modern_version(connect: Any) -> None:
    assert connect().handshake(MODERN)["protocolVersion"] == "2025-11-25"


def test_an_unknown_version_gets_the_latest_of_those_that_are_switched_on(connect: Any) -> None:
    old = Server("old", versions=["2024-11-05", "2025-03-26"])
    assert connect(to=old).handshake("2025-11-25")["protocolVersion"] == "2025-03-26"


@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
def test_initialize_needs_its_three_params(missing: str, connect: Any) -> None:
    peer = connect()
    message = initialize(1)
    del message["params"][missing]
    code, text = peer.error(message)
    assert code == -32602
    assert missing in text
    assert peer.handshake()["protocolVersion"] == "2025-06-18"  # nothing was settled


def test_initialize_without_params(connect: Any) -> None:
    assert connect().error(request(1, "initialize"))[0] == -32602


def test_a_second_initialize_is_refused_and_the_first_holds(connect: Any) -> None:
    peer = connect("2025-03-26")
    assert peer.error(initialize(1, "2025-11-25"))[0] == -32600
    (entry, _) = peer.result(request(2, "tools/list"))["tools"]
    assert "outputSchema" not in entry


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "logging/setLevel"])
def test_a_request_before_initialize_is_refused(method: str, connect: Any) -> None:
    code, text = connect().error(request(1, method, {"name": "echo"}))
    assert code == -32602
    assert "initialize" in text


def test_ping_is_answered_at_any_time(peer: Any) -> None:
    assert peer.result(request(1, "ping")) == {}
    peer.ask(initialize(2))
    assert peer.result(request(3, "ping")) == {}
    peer.send(notification("notifications/initialized"))
    assert peer.result(request(4, "ping")) == {}


def test_a_cancelled_initialize_is_answered(peer: Any) -> None:
    peer.send(initialize(1), notification("notifications/cancelled", {"requestId": 1}))
    assert peer.recv()["result"]["protocolVersion"] == "2025-06-18"
    assert "tools" in peer.result(request(2, "tools/list"))


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_a_modern_method_in_legacy_is_unknown(version: str, method: str, connect: Any) -> None:
    code, text = connect(version).error(request(1, method, {"notifications": {}}))
    assert code == -32601
    assert method in text


@pytest.mark.parametrize("version", LEGACY)
def test_legacy_results_carry_nothing_modern(version: str, connect: Any) -> None:
    peer = connect(version)
    for message in (
        request(1, "tools/list"),
        call(2, "echo", {"text": "x"}),
        request(3, "ping"),
        request(4, "logging/setLevel", {"level": "error"}),
    ):
        assert not {"resultType", "ttlMs", "cacheScope", "_meta"} & set(peer.result(message))


def test_legacy_client_info_and_capabilities_are_those_of_the_handshake(connect: Any) -> None:
    peer = connect("2025-06-18")
    assert peer.result(call(1, "client", {}))["structuredContent"] == {
        "info": {"name": "raw", "version": "1"},
        "capabilities": {},
        "version": "2025-06-18",
    }


# -- batches --------------------------------------------------------------------------------------


def test_a_batch_in_2025_03_26_is_answered_by_one_array(connect: Any) -> None:
    peer = connect("2025-03-26")
    batch = [
        call(1, "echo", {"text": "one"}),
        notification("notifications/nope"),
        request("two", "ping"),
        request(3, "nope"),
        17,
        request(None, "ping"),
    ]
    answers = peer.ask(batch)
    assert isinstance(answers, list)
    by_id = {answer["id"]: answer for answer in answers if answer["id"] is not None}
    assert len(answers) == 5
    assert text_of(by_id[1]["result"]) == "one"
    assert by_id["two"]["result"] == {}
    assert by_id[3]["error"]["code"] == -32601
    assert [a["error"]["code"] for a in answers if a["id"] is None] == [-32600, -32600]


def test_a_batch_waits_for_its_slowest_and_leaves_out_the_cancelled(
    connect: Any, server: Server
) -> None:
    import asyncio

    gate = asyncio.Event()

    @server.tool
    async def wait() -> str:
        await gate.wait()
        return "released"

    @server.tool
    async def release() -> str:
        gate.set()
        return "done"

    peer = connect("2025-03-26")
    peer.send([call(1, "wait"), call(2, "wait"), request(3, "ping")])
    assert peer.fence() == []
    peer.send(notification("notifications/cancelled", {"requestId": 1}))
    assert peer.fence() == []
    peer.send(call(4, "release"))
    first, second = peer.recv(), peer.recv()
    (batch,) = [m for m in (first, second) if isinstance(m, list)]
    assert [answer["id"] for answer in sorted(batch, key=lambda a: a["id"])] == [2, 3]


def test_a_batch_of_notifications_gets_nothing(connect: Any) -> None:
    peer = connect("2025-03-26")
    peer.send([notification("notifications/a"), notification("notifications/b")])
    assert peer.fence() == []


def test_a_batch_whose_requests_are_all_cancelled_gets_nothing(
    connect: Any, server: Server
) -> None:
    @server.tool
    async def hang() -> None:
        import asyncio

        await asyncio.Event().wait()

    peer = connect("2025-03-26")
    peer.send([call(1, "hang"), notification("notifications/cancelled", {"requestId": 1})])
    assert peer.fence() == []


def test_an_empty_batch_and_a_broken_one_get_one_error(connect: Any) -> None:
    peer = connect("2025-03-26")
    for line, code in ((b"[]", -32600), (b'[{"jsonrpc":"2.0"},', -32700), (b"[1,]", -32700)):
        answer = peer.ask(line + b"\n")
        assert (answer["error"]["code"], answer["id"]) == (code, None)


def test_a_batch_inside_a_batch_is_no_message(connect: Any) -> None:
    (answer,) = connect("2025-03-26").ask([[request(1, "ping")]])
    assert answer["error"]["code"] == -32600


def test_a_batch_longer_than_the_limit_gets_one_error(connect: Any) -> None:
    from wirespeed.limits import Limits

    peer = connect("2025-03-26", to=Server("few", limits=Limits(max_batch=3)))
    assert len(peer.ask([request(i, "ping") for i in range(3)])) == 3
    answer = peer.ask([request(i, "ping") for i in range(4)])
    assert answer["error"]["code"] == -32600
    assert "more than 3" in answer["error"]["message"]


@pytest.mark.parametrize("version", [None, "2024-11-05", "2025-06-18", "2025-11-25", MODERN])
def test_an_array_elsewhere_gets_one_error(version: str | None, connect: Any) -> None:
    peer = connect()
    if version == MODERN:
        peer.result(modern(0, "tools/list"))
    elif version is not None:
        peer.handshake(version)
    answer = peer.ask([request(1, "ping"), request(2, "ping")])
    assert answer["error"]["code"] == -32600
    assert "batches" in answer["error"]["message"]
    assert peer.fence() == []


@pytest.mark.parametrize("spelling", ["initialize", "initiali\\u007ae"])
def test_initialize_in_a_batch_is_refused(spelling: str, connect: Any) -> None:
    peer = connect()
    line = b'[{"jsonrpc":"2.0","id":1,"method":"%b"}]\n' % spelling.encode()
    assert peer.ask(line)["error"]["code"] == -32600  # the first message is no array
    peer.handshake("2025-03-26")
    (answer,) = peer.ask(line)
    assert answer["id"] == 1
    assert answer["error"]["code"] == -32600
    assert "batch" in answer["error"]["message"]


# -- modern ---------------------------------------------------------------------------------------


def test_discover_needs_no_message_before_it(connect: Any) -> None:
    result = connect().result(modern(1, "server/discover"))
    assert result["supportedVersions"] == [MODERN, *reversed(LEGACY)]
    assert result["resultType"] == "complete"
    assert result["capabilities"]["tools"] == {"listChanged": True}
    assert result["instructions"] == "Be kind."
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    assert result["_meta"][INFO]["name"] == "eras"
    assert result["_meta"][INFO]["icons"] == [{"src": "https://example.org/i.png"}]


def test_modern_results_carry_their_type_and_who_answers(connect: Any) -> None:
    peer = connect()
    for message in (
        modern(1, "server/discover"),
        modern(2, "tools/list"),
        modern(3, "tools/call", {"name": "echo", "arguments": {"text": "x"}}),
        modern(4, "tools/call", {"name": "client"}),
        modern(5, "tools/call", {"name": "echo", "arguments": {"text": 5}}),
    ):
        result = peer.result(message)
        assert result["resultType"] == "complete"
        assert result["_meta"][INFO]["version"] == "2.1"


def test_caching_hints_are_those_of_the_server(connect: Any) -> None:
    peer = connect(to=Server("cached", list_ttl_ms=60000, cache_scope="public"))
    for method in ("server/discover", "tools/list"):
        result = peer.result(modern(1, method))
        assert (result["ttlMs"], result["cacheScope"]) == (60000, "public")


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "ping"])
def test_a_half_built_envelope_is_modern_and_invalid(missing: str, method: str, peer: Any) -> None:
    meta = envelope()
    del meta[META + missing]
    code, text = peer.error(request(1, method, {"name": "echo"}, **meta))
    assert code == -32602
    assert missing in text
    assert peer.handshake()["protocolVersion"] == "2025-06-18"  # and pins nothing


def test_client_info_may_be_missing(connect: Any) -> None:
    meta = envelope()
    del meta[META + "clientInfo"]
    result = connect().result(request(1, "tools/call", {"name": "client"}, **meta))
    assert result["structuredContent"]["info"] is None


def test_client_info_alone_is_an_envelope_too(connect: Any) -> None:
    meta = {META + "clientInfo": {"name": "x", "version": "1"}}
    assert connect().error(request(1, "tools/list", **meta))[0] == -32602


@pytest.mark.parametrize(
    "key, value",
    [
        ("protocolVersion", 1),
        ("protocolVersion", None),
        ("clientCapabilities", None),
        ("clientCapabilities", [1]),
        ("clientCapabilities", "{}"),
        ("clientInfo", "x"),
        ("logLevel", "loud"),
        ("logLevel", 1),
    ],
)
def test_a_broken_envelope_is_refused(key: str, value: Any, connect: Any) -> None:
    code, text = connect().error(modern(1, "tools/list", **{META + key: value}))
    assert code == -32602
    assert key in text


@pytest.mark.parametrize("asked", ["2099-01-01", "zzz", "", "2025-06-18"])
def test_an_unsupported_version_names_those_to_choose_from(asked: str, peer: Any) -> None:
    error = peer.ask(modern(1, "tools/list", version=asked))["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": [MODERN, *reversed(LEGACY)], "requested": asked}
    assert peer.handshake()["protocolVersion"] == "2025-06-18"


@pytest.mark.parametrize("observed", [False, True])
def test_a_version_with_half_a_surrogate_pair_is_refused_alone(
    observed: bool, server: Server, connect: Any
) -> None:
    if observed:
        server.observe()
    peer = connect(to=server)
    bad = json.dumps(modern(1, "tools/list", version="\ud800")).encode()
    peer.send(bad + b"\n", modern(2, "tools/list"))
    answers = peer.answers(1, 2)
    assert answers[1]["error"]["code"] == -32022
    assert answers[1]["error"]["data"]["requested"] == r"\ud800"
    assert "tools" in answers[2]["result"]


def test_nothing_is_inferred_from_requests_before(connect: Any) -> None:
    peer = connect()
    for id, client, capabilities in (
        (1, "one", {"sampling": {}}),
        (2, "two", {}),
        (3, "one", {"elicitation": {"form": {}}}),
        (4, "two", {"sampling": {}}),
    ):
        meta = envelope(client=client, **{META + "clientCapabilities": capabilities})
        result = peer.result(request(id, "tools/call", {"name": "client"}, **meta))
        assert result["structuredContent"] == {
            "info": {"name": client, "version": "1"},
            "capabilities": capabilities,
            "version": MODERN,
        }


def test_two_modern_conversations_may_be_under_way_at_once(peer: Any, server: Server) -> None:
    import asyncio

    both = asyncio.Barrier(2)

    @server.tool
    async def meet(ctx: Context) -> str:
        await both.wait()
        assert ctx.client_info is not None
        return str(ctx.client_info["name"])

    peer.send(
        modern(1, "tools/call", {"name": "meet"}, client="one"),
        modern("1", "tools/call", {"name": "meet"}, client="two"),
    )
    got = peer.answers(1, "1")
    assert text_of(got[1]["result"]) == "one"
    assert text_of(got["1"]["result"]) == "two"


@pytest.mark.parametrize(
    "method",
    ["ping", "logging/setLevel", "initialize", "resources/subscribe", "resources/unsubscribe"],
)
def test_legacy_methods_are_unknown_in_modern(method: str, connect: Any) -> None:
    params = initialize(0)["params"] | {"level": "info", "uri": "a:b"}
    code, text = connect().error(modern(1, method, params))
    assert code == -32601
    assert method in text


def test_a_modern_request_without_an_envelope_is_invalid(peer: Any) -> None:
    peer.result(modern(1, "tools/list"))
    for id, message in enumerate((request(2, "tools/list"), request(3, "server/discover")), 2):
        answer = peer.ask(message)
        assert (answer["id"], answer["error"]["code"]) == (id, -32602)


# -- pinning --------------------------------------------------------------------------------------


def test_after_initialize_modern_requests_are_refused(connect: Any) -> None:
    peer = connect("2025-06-18")
    for method in ("tools/list", "subscriptions/listen"):
        code, text = peer.error(modern(1, method, {"notifications": {}}))
        assert code == -32600
        assert "2025-06-18" in text
    assert "tools" in peer.result(request(2, "tools/list"))


def test_discover_is_answered_before_and_after_initialize(peer: Any) -> None:
    before = peer.result(modern(1, "server/discover"))
    peer.handshake("2025-06-18")
    assert peer.result(modern(2, "server/discover")) == before
    assert "resultType" not in peer.result(request(3, "tools/list"))


def test_after_a_modern_success_initialize_names_the_versions(peer: Any) -> None:
    peer.result(modern(1, "tools/list"))
    error = peer.ask(initialize(2))["error"]
    assert error["code"] == -32022
    assert error["data"]["requested"] == "2025-06-18"
    assert MODERN in error["data"]["supported"]
    assert "tools" in peer.result(modern(3, "tools/list"))


@pytest.mark.parametrize(
    "message",
    [
        modern(1, "tools/call", {"name": "nope"}),
        modern(1, "nope"),
        modern(1, "ping"),
        modern(1, "tools/list", {"cursor": "nope"}),
        modern(1, "subscriptions/listen"),
    ],
)
def test_a_modern_failure_pins_nothing(message: Any, peer: Any) -> None:
    assert "error" in peer.ask(message)
    assert peer.handshake("2025-06-18")["protocolVersion"] == "2025-06-18"


# -- one era only ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [initialize(1), request(1, "initialize")],
)
def test_a_modern_only_server_names_its_versions(message: Any, connect: Any) -> None:
    peer = connect(to=Server("modern", versions=[MODERN]))
    error = peer.ask(message)["error"]
    assert error["code"] == -32022
    assert error["data"]["supported"] == [MODERN]
    assert MODERN in error["message"]
    assert peer.result(modern(2, "server/discover"))["supportedVersions"] == [MODERN]


def test_a_modern_only_server_tells_what_is_missing(connect: Any) -> None:
    code, text = connect(to=Server("modern", versions=[MODERN])).error(request(1, "tools/list"))
    assert code == -32602
    assert "protocolVersion" in text


def test_a_legacy_only_server_has_no_modern_version(connect: Any) -> None:
    peer = connect(to=Server("legacy", versions=LEGACY))
    error = peer.ask(modern(1, "server/discover"))["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": list(reversed(LEGACY)), "requested": MODERN}
    code, text = peer.error(request(2, "tools/list"))
    assert code == -32602
    assert "initialize" in text
    assert peer.handshake("2025-11-25")["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("versions", [[], ["2020-01-01"], ["2025-06-18", "x"]])
def test_unknown_versions_are_refused_when_the_server_is_made(versions: list[str]) -> None:
    with raises(ValueError):
        Server("x", versions=versions)


def test_errors_of_ours_stay_out_of_the_reserved_range(connect: Any) -> None:
    from wirespeed.protocol import codes

    assert not -32768 <= codes.OVERLOADED <= -32000
    assert not -32768 <= codes.SHUTTING_DOWN <= -32000

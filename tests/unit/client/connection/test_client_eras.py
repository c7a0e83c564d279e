"""Which era a server speaks: protocol.md section 2.5 row by row, with real children."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from lab.client import (
    LEGACY,
    META,
    MODERN,
    TOOLS,
    Fake,
    Run,
    alive,
    discovered,
    failed,
    fill,
    initialized,
    text_result,
    until,
)
from lab.wording import raises

from wirespeed import Client
from wirespeed.errors import (
    CallTimeout,
    ChildExited,
    ConnectionClosed,
    InvalidResponse,
    RemoteError,
    VersionMismatch,
)

Make = Callable[..., Fake]
SHORT = 0.15  # a probe timeout that a test waits for

LEGACY_START = ["server/discover", "initialize", "notifications/initialized"]


async def meet(server: Fake, **options: Any) -> str:
    """Open, make one call, close; the version that was agreed on."""
    async with Client(server.target, **options) as client:
        assert (await client.call_tool("echo")).text == "ok"
        return client.protocol_version


def version_met(run: Run, server: Fake, **options: Any) -> str:
    version: str = run(meet(server, **options))
    return version


# -- the probe's outcomes --------------------------------------------------------------------------


async def test_discover_result_is_modern(fake: Make) -> None:
    server = fake(MODERN)
    async with Client(server.target, name="me", version="7") as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info == {"name": "fake", "version": "2"}
        assert client.server_capabilities == TOOLS
        assert client.instructions is None
        await client.call_tool("echo")
    assert server.methods == ["server/discover", "tools/call"]
    for message in server.lines[1:]:
        assert message["params"]["_meta"] == {
            META + "protocolVersion": "2026-07-28",
            META + "clientCapabilities": {},
            META + "clientInfo": {"name": "me", "version": "7"},
        }


async def test_discovery_tells_instructions(once: Run, fake: Make) -> None:
    server = fake(MODERN | {"server/discover": discovered(instructions="be kind", _meta={})})
    async with Client(server.target) as client:
        assert client.instructions == "be kind"
        assert client.server_info is None


def test_the_modern_version_is_chosen_among_others(once: Run, fake: Make) -> None:
    versions = ["2027-01-01", "2026-07-28", "2025-11-25"]
    server = fake(MODERN | {"server/discover": discovered(*versions)})
    assert version_met(once, server) == "2026-07-28"


@pytest.mark.parametrize(
    "code", [-32601, -32602, -32000, -32603, -32600, -32700, -32001, -32099, 0, 1, 404]
)
def test_a_probe_falls_back_after_any_other_error(once: Run, fake: Make, code: int) -> None:
    server = fake(LEGACY | {"server/discover": failed(code)})
    assert version_met(once, server) == "2025-11-25"
    assert server.methods == [*LEGACY_START, "tools/call"]
    assert len(server.pids) == 1


def test_unsupported_version_with_nothing_in_common_does_not_fall_back(
    once: Run, fake: Make
) -> None:
    data = {"supported": ["2027-01-01"], "requested": "2026-07-28"}
    server = fake(LEGACY | {"server/discover": failed(-32022, "no", data)})
    with raises(VersionMismatch) as caught:
        once(meet(server))
    assert caught.value.supported == ["2027-01-01"]
    assert server.methods == ["server/discover"]
    assert not alive(server.pids[0])


@pytest.mark.parametrize("data", [None, {}, {"supported": None}, {"supported": [1]}, "odd", []])
def test_unsupported_version_without_versions_does_not_fall_back(
    once: Run, fake: Make, data: Any
) -> None:
    server = fake(LEGACY | {"server/discover": failed(-32022, "no", data)})
    with raises(VersionMismatch):
        once(meet(server))
    assert server.methods == ["server/discover"]


@pytest.mark.parametrize("code", [-32020, -32021])
def test_other_modern_errors_do_not_fall_back(once: Run, fake: Make, code: int) -> None:
    server = fake(LEGACY | {"server/discover": failed(code, "modern says no")})
    with pytest.raises(RemoteError, match="modern says no") as caught:
        once(meet(server))
    assert caught.value.code == code
    assert server.methods == ["server/discover"]


def test_only_legacy_versions_in_an_error_lead_to_initialize(once: Run, fake: Make) -> None:
    data = {"supported": ["2025-11-25"], "requested": "2026-07-28"}
    server = fake(LEGACY | {"server/discover": failed(-32022, "no", data)})
    assert version_met(once, server) == "2025-11-25"
    assert server.methods == [*LEGACY_START, "tools/call"]


def test_only_legacy_versions_in_a_discovery_lead_to_initialize(once: Run, fake: Make) -> None:
    server = fake(LEGACY | {"server/discover": discovered("2025-06-18", "2024-11-05")})
    assert version_met(once, server) == "2025-11-25"
    assert server.methods == [*LEGACY_START, "tools/call"]


@pytest.mark.parametrize("result", [{}, {"supportedVersions": 1}, {"supportedVersions": [None]}])
def test_a_result_that_is_no_discovery_falls_back(once: Run, fake: Make, result: Any) -> None:
    server = fake(LEGACY | {"server/discover": [["result", result]]})
    assert version_met(once, server) == "2025-11-25"


def test_an_unknown_result_type_is_no_discovery(once: Run, fake: Make) -> None:
    server = fake(LEGACY | {"server/discover": discovered(resultType="task")})
    assert version_met(once, server) == "2025-11-25"


@pytest.mark.parametrize("id_text", ["", '"id":null,'])
def test_an_error_without_an_id_answers_the_probe(once: Run, fake: Make, id_text: str) -> None:
    raw = fill('{"jsonrpc":"2.0",%s"error":{"code":-32600,"message":"what?"}}', id_text)
    server = fake(LEGACY | {"server/discover": [["raw", raw]]})
    # no waiting: the probe would take longer than a test may
    assert version_met(once, server, probe_timeout=3600.0) == "2025-11-25"


def test_silence_falls_back_and_is_not_cancelled_on_the_wire(run: Run, fake: Make) -> None:
    server = fake(LEGACY | {"server/discover": []})
    assert version_met(run, server, probe_timeout=SHORT) == "2025-11-25"
    assert server.methods == [*LEGACY_START, "tools/call"]


async def test_a_late_discovery_is_ignored(fake: Make) -> None:
    server = fake(
        LEGACY
        | {
            "server/discover": [["later", discovered()]],
            "tools/call": [["release"], ["result", text_result()]],
        }
    )
    async with Client(server.target, probe_timeout=SHORT) as client:
        await client.call_tool("echo")
        assert client.protocol_version == "2025-11-25"
        assert client.counters["late_responses"] == 1
        await client.call_tool("echo")
        assert "_meta" not in server.sent("tools/call")[-1]["params"]


def test_a_late_discovery_before_initialize_is_answered(once: Run, fake: Make) -> None:
    server = fake(
        LEGACY
        | {
            "server/discover": [["later", discovered()]],
            "initialize": [["release"], *initialized()],
        }
    )
    assert version_met(once, server, probe_timeout=SHORT) == "2025-11-25"


def test_a_child_that_dies_of_the_probe_is_started_again_once(run: Run, fake: Make) -> None:
    dies = LEGACY | {"server/discover": [["stderr", "what is that?"], ["exit", 3]]}
    server = fake(dies)
    assert version_met(run, server) == "2025-11-25"
    assert len(server.pids) == 2
    assert server.methods == [
        "server/discover", "initialize", "notifications/initialized", "tools/call",
    ]  # fmt: skip
    assert not any(map(alive, server.pids))


def test_a_child_that_dies_of_initialize_too_is_reported(once: Run, fake: Make) -> None:
    server = fake({"*": [["stderr", "I give up"], ["exit", 3]]})
    with pytest.raises(ChildExited) as caught:
        once(meet(server))
    assert caught.value.status == 3
    assert "exited with status 3" in str(caught.value)
    assert "I give up" in str(caught.value)
    assert len(server.pids) == 2 and not any(map(alive, server.pids))


def test_initialize_refused_as_modern_leads_to_a_second_probe(run: Run, fake: Make) -> None:
    server = fake(MODERN | {"server/discover#1": [], "server/discover": discovered()})
    assert version_met(run, server, probe_timeout=SHORT) == "2026-07-28"
    assert server.methods == ["server/discover", "initialize", "server/discover", "tools/call"]


def test_the_second_probe_is_the_last(once: Run, fake: Make) -> None:
    refuses = failed(-32022, "no", {"supported": ["2027-01-01"], "requested": "x"})
    server = fake(
        {"server/discover#1": [], "server/discover": refuses, "initialize": MODERN["initialize"]}
    )
    with raises(VersionMismatch):
        once(meet(server, probe_timeout=SHORT))
    assert server.methods == ["server/discover", "initialize", "server/discover"]


def test_a_bare_modern_refusal_of_initialize_leads_to_a_second_probe(once: Run, fake: Make) -> None:
    server = fake(
        MODERN
        | {"server/discover#1": [], "server/discover": discovered(), "initialize": failed(-32022)}
    )
    assert version_met(once, server, probe_timeout=SHORT) == "2026-07-28"


# -- eras that are asked for -----------------------------------------------------------------------


def test_era_legacy_never_probes(once: Run, fake: Make) -> None:
    server = fake(LEGACY)
    assert version_met(once, server, era="legacy") == "2025-11-25"
    assert server.methods == ["initialize", "notifications/initialized", "tools/call"]


def test_era_legacy_does_not_probe_a_modern_server(once: Run, fake: Make) -> None:
    server = fake(MODERN)
    with raises(VersionMismatch) as caught:
        once(meet(server, era="legacy"))
    assert caught.value.supported == ["2026-07-28"]
    assert server.methods == ["initialize"]


def test_era_modern_sends_discover_only(once: Run, fake: Make) -> None:
    server = fake(MODERN)
    assert version_met(once, server, era="modern") == "2026-07-28"


@pytest.mark.parametrize("code", [-32601, -32000])
def test_era_modern_never_falls_back_from_an_error(once: Run, fake: Make, code: int) -> None:
    server = fake(LEGACY | {"server/discover": failed(code, "unheard of")})
    with raises(VersionMismatch):
        once(meet(server, era="modern"))
    assert server.methods == ["server/discover"]


def test_era_modern_never_falls_back_from_versions(once: Run, fake: Make) -> None:
    server = fake(LEGACY | {"server/discover": discovered("2025-11-25")})
    with raises(VersionMismatch):
        once(meet(server, era="modern"))
    assert server.methods == ["server/discover"]


def test_era_modern_never_falls_back_from_silence(run: Run, fake: Make) -> None:
    server = fake(LEGACY | {"server/discover": []})
    with raises(CallTimeout):
        run(meet(server, era="modern", handshake_timeout=SHORT, probe_timeout=30.0))
    assert server.methods in (
        ["server/discover"],
        ["server/discover", "notifications/cancelled"],  # no probe, so it is cancelled
    )
    run(until(lambda: not alive(server.pids[0])))  # it ends in the background


def test_era_modern_does_not_start_a_dead_server_again(once: Run, fake: Make) -> None:
    server = fake({"*": [["exit", 4]]})
    with raises(ChildExited):
        once(meet(server, era="modern"))
    assert len(server.pids) == 1


@pytest.mark.parametrize("era", ["Legacy", "", None, "2026-07-28"])
def test_unknown_eras_are_refused(era: Any, fake: Make) -> None:
    with raises(ValueError):
        Client(fake(LEGACY).target, era=era)


# -- what was found out is kept --------------------------------------------------------------------


async def test_a_legacy_verdict_is_kept_over_a_restart(once: Run, fake: Make) -> None:
    server = fake(LEGACY)
    async with Client(server.target) as client:
        await client.restart()
        assert client.protocol_version == "2025-11-25"
        await client.close()
        await client.open()
        await client.call_tool("echo")
    assert server.methods.count("server/discover") == 1
    assert server.methods.count("initialize") == 3 == len(server.pids)


async def test_a_modern_verdict_is_kept_over_a_restart(once: Run, fake: Make) -> None:
    # silent for longer than a probe would wait: a known modern server is waited for
    slow = MODERN | {"server/discover": [["sleep", 3 * SHORT], *discovered()]}
    server = fake(MODERN, slow)
    async with Client(server.target, probe_timeout=SHORT) as client:
        before = server.methods
        await client.restart()
        assert client.protocol_version == "2026-07-28"
    assert server.methods == [*before, "server/discover"]


async def test_a_server_that_became_modern_is_asked_again(once: Run, fake: Make) -> None:
    server = fake(LEGACY, MODERN)
    async with Client(server.target) as client:
        assert client.protocol_version == "2025-11-25"
        await client.restart()
        assert client.protocol_version == "2026-07-28"
    assert server.methods[3:] == ["initialize", "server/discover"]


async def test_a_server_that_became_legacy_falls_back(once: Run, fake: Make) -> None:
    server = fake(MODERN, LEGACY)
    async with Client(server.target) as client:
        await client.restart()
        assert client.protocol_version == "2025-11-25"


async def test_a_failed_opening_settles_no_era(once: Run, fake: Make) -> None:
    server = fake({"*": [["exit", 1]]}, {"*": [["exit", 1]]}, MODERN)
    client = Client(server.target)
    with pytest.raises(ChildExited):
        await client.open()
    async with client:
        assert client.protocol_version == "2026-07-28"


# -- initialize ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_the_servers_legacy_version_is_taken(once: Run, fake: Make, version: str) -> None:
    server = fake(LEGACY | {"initialize": initialized(version, instructions="hello")})
    async with Client(server.target, name="me", version="7") as client:
        assert client.protocol_version == version
        assert client.instructions == "hello"
        assert client.server_info == {"name": "fake", "version": "1"}
        assert client.server_capabilities == TOOLS
        await client.call_tool("echo", {"a": 1})
        assert server.sent("tools/call")[0]["params"] == {"name": "echo", "arguments": {"a": 1}}
    assert server.sent("initialize")[0]["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "me", "version": "7"},
    }


@pytest.mark.parametrize("version", ["1.0.0", "v999", "zzz", "2026-07-28", "draft", ""])
def test_a_version_that_nobody_asked_for_ends_the_child(
    once: Run, fake: Make, version: str
) -> None:
    server = fake(LEGACY | {"initialize": initialized(version)})
    with pytest.raises(VersionMismatch) as caught:
        once(meet(server))
    assert str(caught.value) == (
        f"the server wants protocol version {version!r}; "
        "this client speaks 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25"
    )
    assert server.methods == ["server/discover", "initialize"]
    assert not alive(server.pids[0])


def test_a_refusal_that_names_a_legacy_version_is_followed(once: Run, fake: Make) -> None:
    data = {"supported": ["2024-11-05"], "requested": "2025-11-25"}
    server = fake(
        LEGACY
        | {
            "initialize#1": failed(-32602, "Unsupported protocol version", data),
            "initialize": initialized("2024-11-05"),
        }
    )
    assert version_met(once, server) == "2024-11-05"
    assert [m["params"]["protocolVersion"] for m in server.sent("initialize")] == [
        "2025-11-25",
        "2024-11-05",
    ]


def test_a_refusal_that_names_no_known_version_is_a_mismatch(once: Run, fake: Make) -> None:
    refusal = failed(-32602, "Unsupported protocol version", {"supported": ["1.0.0"]})
    server = fake(LEGACY | {"initialize": refusal})
    with raises(VersionMismatch):
        once(meet(server))
    assert len(server.sent("initialize")) == 1


def test_a_refusal_of_every_version_ends(once: Run, fake: Make) -> None:
    refusal = failed(-32602, "no", {"supported": ["2025-11-25", "2025-06-18"]})
    server = fake(LEGACY | {"initialize": refusal})
    with pytest.raises(RemoteError):
        once(meet(server))
    assert len(server.sent("initialize")) == 2


def test_an_error_of_initialize_is_told(once: Run, fake: Make) -> None:
    server = fake(LEGACY | {"initialize": failed(-32603, "no licence", {"help": 1})})
    with pytest.raises(RemoteError, match="no licence") as caught:
        once(meet(server))
    assert (caught.value.code, caught.value.data) == (-32603, {"help": 1})
    assert not alive(server.pids[0])


@pytest.mark.parametrize("result", [{}, {"protocolVersion": 1}, []])
def test_an_invalid_result_of_initialize_is_told(once: Run, fake: Make, result: Any) -> None:
    server = fake(LEGACY | {"initialize": [["result", result]]})
    with raises(InvalidResponse):
        once(meet(server))


def test_initialize_is_not_cancelled_on_timeout(run: Run, fake: Make) -> None:
    server = fake(LEGACY | {"initialize": []})
    with raises(CallTimeout) as caught:
        run(meet(server, era="legacy", handshake_timeout=SHORT))
    assert isinstance(caught.value, TimeoutError)
    assert server.methods in ([], ["initialize"])
    run(until(lambda: not any(map(alive, server.pids))))  # it ends in the background


async def test_initialize_is_not_cancelled_with_its_task(fake: Make) -> None:
    server = fake(LEGACY | {"initialize": []})
    task = asyncio.create_task(Client(server.target, era="legacy").open())
    await server.got("initialize")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.methods == ["initialize"]
    assert not alive(server.pids[0])


async def test_nothing_is_sent_for_callers_before_the_handshake_is_over(
    once: Run, fake: Make
) -> None:
    server = fake(LEGACY | {"initialize": []})
    client = Client(server.target, era="legacy")
    task = asyncio.create_task(client.open())
    await server.got("initialize")
    with raises(ConnectionClosed):
        await client.call_tool("echo")
    with raises(ConnectionClosed):
        _ = client.protocol_version
    task.cancel()
    await asyncio.wait([task])
    assert server.methods == ["initialize"]


@pytest.mark.parametrize("era", ["auto", "modern"])
@pytest.mark.parametrize("code", [-31000, -31001, -31004])
def test_a_server_that_cannot_serve_now_says_nothing_of_its_era(
    once: Run, fake: Make, era: Any, code: int
) -> None:
    server = fake(LEGACY | {"server/discover": failed(code, "not now")})
    with pytest.raises(RemoteError, match="not now") as caught:
        once(meet(server, era=era))
    assert caught.value.code == code
    assert server.methods == ["server/discover"]

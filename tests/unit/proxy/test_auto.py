"""The isolation that suits the era of each client and of the server."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Lab, call, said
from lab.wording import raises

from wirespeed import Client
from wirespeed.errors import WirespeedError
from wirespeed.proxy.proxy import Proxy

pytestmark = pytest.mark.off_schema


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def pids(*clients: Any) -> list[int]:
    return [said(await client.ask(call(1, "echo")))["pid"] for client in clients]


async def test_a_legacy_server_is_for_one_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The process that was asked for its era is that of the first client. The log says how it is
    not asked."""
    caplog.set_level("INFO", "wirespeed.proxy")
    lab = Lab(tmp_path, "auto")
    async with lab.serving():
        (spare,) = lab.assignment.supervisors
        pid = spare.status.pid
        one, two = await lab.connect(), await lab.connect()
        first, second = await pids(one, two)
        assert first == pid != second
        assert len(lab.read("server/discover")) == 1
        assert len(lab.read("initialize")) == 2  # each client's own
        # everything passes, as with isolation "session"
        await one.send(call(2, "ask", its="q", method="sampling/createMessage"))
        assert (await one.recv())["method"] == "sampling/createMessage"
    (line,) = [one for one in caplog.messages if "of a legacy era" in one]
    assert line.startswith("b: ") and '"era": "legacy" in its entry' in line


async def test_a_modern_server_is_pooled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "wirespeed.proxy")
    lab = Lab(tmp_path, "auto", versions=MODERN)
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        first, second = await pids(one, two)
        assert first == second
        legacy = await lab.connect(None)
        assert "result" in await legacy.initialize()  # it is translated
        third = said(await legacy.ask(call(1, "echo", nonce=1)))
        assert third["nonce"] == 1 and third["pid"] != first
    assert "of a legacy era" not in caplog.text


@pytest.mark.parametrize("isolation", ["session", "auto"])
@pytest.mark.parametrize("versions", ["2025-11-25", MODERN])
async def test_a_client_that_does_not_wait_for_the_answer_to_initialize(
    tmp_path: Path, isolation: str, versions: str
) -> None:
    """Its server hears that the client is initialized, once, behind the answer."""
    lab = Lab(tmp_path, isolation, versions=versions)
    async with lab.serving():
        client = await lab.connect(None)
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        await client.send(hello, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert "result" in await client.recv()
        assert said(await client.ask(call(1, "echo", nonce=1)))["nonce"] == 1
        assert len(lab.read("notifications/initialized")) == (versions != MODERN)


async def test_a_modern_server_without_translation(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "auto", versions=MODERN, config={"translate": False})
    async with lab.serving():
        legacy = await lab.connect(None)
        answer = await legacy.initialize()
        assert answer["error"]["code"] == -32022  # the server's own words
        assert answer["error"]["message"] == "modern only"


async def test_a_server_of_both_eras(tmp_path: Path) -> None:
    """A client that uses `initialize` has a server of its own."""
    lab = Lab(tmp_path, "auto", versions=f"2025-11-25 {MODERN}")
    async with lab.serving():
        modern = [await lab.connect(MODERN) for _ in range(2)]
        legacy = [await lab.connect() for _ in range(2)]
        found = await pids(*modern, *legacy)
        assert found[0] == found[1]
        assert len(set(found)) == 3
        await legacy[0].send(call(2, "ask", its="q", method="roots/list"))
        assert (await legacy[0].recv())["method"] == "roots/list"


async def test_a_client_that_does_not_wait_for_a_modern_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says ``initialize`` before its first request is answered, which is refused then."""
    lab = Lab(tmp_path, "auto", versions=f"2025-11-25 {MODERN}", size=1, env={"SLOW": "0.5"})
    async with lab.serving():
        await (await lab.connect(MODERN)).silent()
        (supervisor,) = lab.assignment.supervisors
        one = await lab.connect(MODERN)
        os.kill(supervisor.status.pid, signal.SIGKILL)
        while supervisor.upstream is not None:
            await asyncio.sleep(0)
        await one.send(request("probe", "server/discover"))
        one.is_modern = False
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        await one.send(request("hello", "initialize", **params))
        got = {answer["id"]: answer for answer in [await one.recv(), await one.recv()]}
        assert got["probe"]["error"]["code"] == -32022
        assert got["hello"]["result"]["protocolVersion"] == "2025-11-25"
        await one.silent()
    assert "internal error" not in caplog.text


async def test_a_server_that_ends_at_the_question(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "auto", versions="dies")
    async with lab.serving():
        one, two = await lab.connect(), await lab.connect()
        assert len(set(await pids(one, two))) == 2
        assert len(lab.read("server/discover")) == 1


# The first question is followed by the second before a slow server is there.
SOON = {"silence": 0.01}


@pytest.mark.parametrize("versions", ["", "silent"])
async def test_a_legacy_server_that_starts_slowly_is_started_once(
    tmp_path: Path, versions: str
) -> None:
    """Its first client is the first that sends `initialize`."""
    lab = Lab(tmp_path, "auto", versions=versions, env={"SLOW": "0.3"}, delays=SOON)
    async with lab.serving():
        (spare,) = lab.assignment.supervisors
        one = await lab.connect()
        assert await pids(one) == [spare.status.pid]
        assert len(lab.read("started")) == len(lab.read("server/discover")) == 1
        assert len(lab.read("ping")) == 1
        (hello,) = lab.read("initialize")
        assert hello["params"]["clientInfo"]["name"] == "raw"


@pytest.mark.parametrize("versions", [MODERN, f"2025-11-25 {MODERN}"])
async def test_a_modern_server_that_starts_slowly_is_started_once(
    tmp_path: Path, versions: str
) -> None:
    lab = Lab(tmp_path, "auto", versions=versions, env={"SLOW": "0.3"}, delays=SOON)
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        assert len(set(await pids(one, two))) == 1
        assert len(lab.read("started")) == len(lab.read("ping")) == 1
        assert lab.read("initialize") == []


async def test_a_server_that_is_mute_before_initialize(tmp_path: Path) -> None:
    """It is sent that of the proxy, and another process is for the client."""
    delays = {**SOON, "ping": 0.01}
    lab = Lab(tmp_path, "auto", versions="mute", config={"start_timeout": 600.0}, delays=delays)
    async with asyncio.timeout(60), lab.serving():
        one = await lab.connect()
        assert await pids(one) == [lab.read("started")[1]["pid"]]
        names = [hello["params"]["clientInfo"]["name"] for hello in lab.read("initialize")]
        assert names == ["wirespeed-proxy", "raw"]


async def test_a_spare_that_has_ended(tmp_path: Path) -> None:
    """The first client gets a new server."""
    lab = Lab(tmp_path, "auto")
    async with lab.serving():
        (spare,) = lab.assignment.supervisors
        os.kill(spare.status.pid, signal.SIGKILL)
        while spare.status.state != "stopped":
            await asyncio.sleep(0.01)
        one = await lab.connect()
        assert said(await one.ask(call(1, "echo", nonce=1)))["nonce"] == 1
        assert spare not in lab.assignment.supervisors


async def test_the_era_may_be_given(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "auto", era="legacy")
    async with lab.serving():
        assert lab.assignment.supervisors == []
        one, two = await lab.connect(), await lab.connect()
        assert len(set(await pids(one, two))) == 2
        assert lab.read("server/discover") == []


async def test_a_server_that_cannot_be_started(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "auto", "4")
    with raises(WirespeedError):
        async with lab.serving():
            pass


async def test_clients_wait_until_the_era_is_known(tmp_path: Path) -> None:
    """Also one that leaves meanwhile."""
    for versions, version in (("", "2025-11-25"), (MODERN, MODERN)):
        lab = Lab(tmp_path, "auto", versions=versions)
        (service,) = lab.proxy.services.values()
        service._alone = False  # a listener does not wait for one of several servers
        script = tmp_path / "backend.py"
        script.write_text("import time\ntime.sleep(0.4)\n" + script.read_text())
        async with lab.serving():
            one, gone = await lab.connect(None), await lab.connect(None)
            one.is_modern = version == MODERN
            await gone.send(request(1, "tools/list"))
            await gone.close()
            if version != MODERN:
                await one.initialize(version)
            assert said(await one.ask(call(1, "echo", nonce=1)))["nonce"] == 1


@pytest.mark.parametrize("versions", ["", MODERN, f"2025-11-25 {MODERN}"])
@pytest.mark.parametrize("era", ["legacy", "modern", "auto"])
async def test_over_http(tmp_path: Path, versions: str, era: Any) -> None:
    """Sessions have servers of their own. Requests without a session share one, of any era."""
    lab = Lab(tmp_path, "auto", versions=versions)
    config = lab.proxy.config
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    proxy = Proxy(type(config)(backends=config.backends, listen=("http://127.0.0.1:0/mcp",)))
    serving = asyncio.ensure_future(
        proxy.serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    url = await listening
    try:
        async with Client(url, era=era) as one, Client(url, era=era) as two:
            answers = [await client.call_tool("echo", {}) for client in (one, two)]
            found = {(answer.meta or {})["pid"] for answer in answers}
            assert len(found) == (2 if era == "legacy" else 1)
    finally:
        serving.cancel()
        await asyncio.wait((serving,))

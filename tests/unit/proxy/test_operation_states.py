"""What the admin listener tells of limits, of servers that fail, and of what is ready."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.operation import Watched, fetch
from lab.proxy import call, said
from lab.wording import raises
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from wirespeed import Client, Stdio, WebSocket
from wirespeed.auth import hash_token
from wirespeed.errors import RemoteError, TransportError
from wirespeed.proxy import (
    BreakerConfig,
    FlowConfig,
    PrincipalConfig,
    Proxy,
    RateConfig,
    RecycleConfig,
    ToolRules,
)

# off_schema: the proxy passes on what its test servers say, which is not always in the schema.
pytestmark = pytest.mark.off_schema

SLOW = "import time; time.sleep(0.7)\n"  # before a server reads anything


async def metrics(lab: Watched) -> dict[tuple[str, ...], float]:
    """The value of each line, by its name and the values of its labels."""
    return {
        (sample.name.removeprefix("wirespeed_proxy_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families((await lab.get("/metrics")).text)
        for sample in family.samples
    }


async def until(holds: Callable[[Any], bool], lab: Watched, path: str = "/status") -> Any:
    """Wait for an answer of a kind."""
    async with asyncio.timeout(20):
        while True:
            got = await lab.get(path)
            found = got.json if path == "/status" else got
            if holds(found):
                return found
            await asyncio.sleep(0.02)


def backend_of(status: Any) -> Any:
    (found,) = status["backends"]
    return found


def shown(status: Any) -> str:
    """What ``wirespeed top`` shows."""
    from wirespeed.cli.top import _screen

    out = io.StringIO()
    Console(file=out, width=200).print(_screen(status, "http://h:1", 200))
    return out.getvalue()


# -- limits ---------------------------------------------------------------------------------------


async def test_requests_that_wait_for_their_turn(tmp_path: Path) -> None:
    flow = FlowConfig(max_in_flight=1, max_queued=1)
    lab = Watched(tmp_path, "shared", config={"flow": flow})
    async with lab.serving():
        client = await lab.connect()
        await client.send(call(1, "hold", token="t", **{"as": "x"}))
        await client.recv()  # its progress
        await client.send(call(2, "echo"))
        assert (await client.ask(call(3, "echo")))["error"]["code"] == -31000
        found = await metrics(lab)
        assert found["requests_admitted", "b"] == 1
        assert found["requests_queued", "b"] == found["requests_waiting", "b"] == 1
        assert found["queued_bytes", "b"] > 0
        assert found["requests_refused_total", "b", "queue"] == 1
        status = (await lab.get("/status")).json
        assert backend_of(status)["flow"]["queued"] == backend_of(status)["waiting"] == 1
        assert status["totals"]["refused"] == 1
        assert "1 requests refused so far" in shown(status)


async def test_requests_over_the_rate_outlast_their_client_and_a_reload(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared", rate=RateConfig(requests=0.01, burst=2))
    key = "requests_refused_total", "b", "rate"
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "echo"))
        for id in (2, 3):
            assert (await client.ask(call(id, "echo")))["error"]["code"] == -31000
        assert (await metrics(lab))[key] == 2
        await client.close()
        await lab.proxy.reload(replace(lab.proxy.config, rate=RateConfig(requests=5)))
        await until(lambda status: not status["totals"]["clients"], lab)
        found = await metrics(lab)
        assert found[key] == 2
        assert found["requests_refused_total", "b", "access"] == 0
        assert ("requests_queued", "b") not in found  # it has no limits
        assert backend_of((await lab.get("/status")).json)["flow"] is None


async def test_principals_and_the_audit_log(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared", audit=str(tmp_path / "audit"))
    only = PrincipalConfig(
        name="anne",
        token_sha256=hash_token("t" * 32).removeprefix("sha256:"),
        tools=ToolRules(allow=("echo",)),
    )
    listen = ("ws://127.0.0.1:0/mcp",)
    lab.proxy = Proxy(replace(lab.proxy.config, principals=(only,), listen=listen))
    async with lab.serving():
        (url,) = [one for one in lab.urls if one.endswith("/mcp")]
        async with Client(WebSocket(url, token="t" * 32)) as client:
            await client.call_tool("echo", {})
            with raises(RemoteError, code=-32602):
                await client.call_tool("other", {})
            status = await until(lambda found: found["audit"]["written"] == 2, lab)
            assert [one["user"] for one in status["clients"]] == ["anne"]
            found = await metrics(lab)
        assert found["requests_refused_total", "b", "access"] == 1
        assert found["audit_lines_total", "written"] == 2
        assert found["audit_lines_total", "dropped"] == 0
        page = (await lab.get("/")).text
        assert "Audit log: 2 lines, 0 left out" in page


async def test_reloads(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        found = await metrics(lab)
        assert found["reloads_total", "ok"] == found["reloads_total", "refused"] == 0
        assert found["last_reload_ok",] == 1
        assert ("last_reload_time_seconds",) not in found
        await lab.proxy.reload(lab.proxy.config)
        with pytest.raises(TransportError):
            await lab.proxy.reload(replace(lab.proxy.config, listen=(f"unix:{tmp_path}/no/s",)))
        found = await metrics(lab)
        assert found["reloads_total", "ok"] == found["reloads_total", "refused"] == 1
        assert found["last_reload_ok",] == 0
        status = (await lab.get("/status")).json
        assert found["last_reload_time_seconds",] == status["config"]["last"] > status["started"]
        assert status["config"]["error"]


async def test_a_reload_at_work(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        (one,) = lab.proxy.config.backends
        for target, text in (
            (Stdio("sleep", ("1000",)), '<p class="card">A reload is at work: b is started</p>'),
            (
                Stdio("/no/<such>"),
                "at work: the changed server b cannot be started, so the earlier one goes on: ",
            ),
        ):
            changed = replace(lab.proxy.config, backends=(replace(one, target=target),))
            reload = asyncio.ensure_future(lab.proxy.reload(changed))
            page = (await until(lambda got, text=text: text in got.text, lab, "/")).text
            assert "/no/<such>" not in page
            starting = (await lab.get("/status")).json["config"]["starting"]
            assert list(starting) == ["b"]
            assert ("/no/<such>" in starting["b"]) == ("cannot" in text)
            if "cannot" in text:
                await reload
        await lab.proxy.reload(replace(lab.proxy.config, backends=(one,)))
        assert "A reload is at work" not in (await lab.get("/")).text


# -- servers that fail ----------------------------------------------------------------------------


async def test_an_open_breaker(tmp_path: Path) -> None:
    config = {"breaker": BreakerConfig(failures=2, pause=0.8), "request_timeout": 0.1}
    lab = Watched(tmp_path, "shared", config=config)
    async with lab.serving():
        client = await lab.connect()
        for id in (1, 2):
            await client.ask(call(id, "hold", **{"as": id}))
        found = await metrics(lab)
        assert found["breakers", "b", "open"] == 1
        assert found["breaker_opened_total", "b"] == 1
        status = (await lab.get("/status")).json
        assert status["ready"]  # the server is there
        assert "up, breaker open" in shown(status)
        page = (await lab.get("/")).text
        assert "breaker open" in page and "b failed too often" in page
        await until(lambda found: backend_of(found)["breakers"]["half open"], lab)
        assert (await metrics(lab))["breakers", "b", "open"] == 0
        await client.ask(call(3, "echo"))
        await client.ask(call(4, "echo"))
        found = await metrics(lab)
        assert found["breakers", "b", "half open"] == 0
        assert found["breaker_opened_total", "b"] == 1
        assert found["request_errors_total", "b", "tools/call", "-31005"] == 2


@pytest.mark.parametrize("isolation", ["auto", "session"])
async def test_the_breaker_of_servers_of_single_clients(isolation: str, tmp_path: Path) -> None:
    config = {"breaker": BreakerConfig(failures=1, pause=30)}
    lab = Watched(tmp_path, isolation, config=config)
    async with lab.serving():
        client = await lab.connect()
        await client.send(call(1, "crash"))
        await until(lambda found: backend_of(found)["breakers"]["open"] == 1, lab)


async def test_garbage_and_retries_outlast_the_connection(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "raw", text="nonsense"))
        await client.ask(call(2, "raw", text='{"jsonrpc":"2.0","id":12345,"result":{}}'))
        for _ in range(2):
            found = await metrics(lab)
            assert found["garbage_total", "b", "bad message"] == 1
            assert found["garbage_total", "b", "unknown id"] == 1
            again = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
            await client.ask({**again, "params": {"_meta": {"once": "x"}}})
        assert (await metrics(lab))["retries_total", "b"] == 1
        page = (await lab.get("/")).text
        assert "Garbage: unknown id" in page and "Sent again" in page


# -- what is ready --------------------------------------------------------------------------------


async def test_ready_while_a_process_is_replaced(tmp_path: Path) -> None:
    """An old and a new process are one server."""
    lab = Watched(tmp_path, "shared", config={"recycle": RecycleConfig(max_requests=3)})
    async with lab.serving():
        script = tmp_path / "backend.py"
        script.write_text(SLOW + script.read_text())
        client = await lab.connect()
        await client.send(call("held", "hold", token="t", **{"as": "x"}))
        await client.recv()
        for id in range(4):
            await client.ask(call(id, "echo"))
        status = await until(lambda found: backend_of(found)["starts"] == 2, lab)
        assert backend_of(status)["state"] == "up" and status["ready"]
        assert backend_of(status)["servers_by_state"] == {"up": 1, "starting": 1}
        assert (await lab.get("/readyz", {})).status == 200
        status = await until(lambda found: backend_of(found)["replacements"] == 1, lab)
        status = await until(
            lambda found: backend_of(found)["servers_by_state"] == {"leaving": 1, "up": 1}, lab
        )
        assert backend_of(status)["state"] == "up"
        found = await metrics(lab)
        assert found["server_replacements_total", "b"] == 1
        assert found["servers", "b", "leaving"] == 1
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await client.send({**cancel, "params": {"requestId": "held"}})
        await until(lambda found: backend_of(found)["servers_by_state"] == {"up": 1}, lab)


async def test_ready_where_an_idle_server_is_stopped(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared", versions="2026-07-28", config={"idle_timeout": 0.2})
    async with lab.serving():
        client = await lab.connect("2026-07-28")
        status = await until(lambda found: backend_of(found)["state"] == "idle", lab)
        assert status["ready"] and backend_of(status)["servers_by_state"] == {}
        assert (await lab.get("/readyz", {})).text == "ready\n"
        assert said(await client.ask(call(1, "echo", nonce=1)))["nonce"] == 1
        assert backend_of((await lab.get("/status")).json)["starts"] == 2


@pytest.mark.parametrize("isolation", ["auto", "shared"])
async def test_not_ready_before_the_era_is_known(isolation: str, tmp_path: Path) -> None:
    lab = Watched(tmp_path, isolation)
    script = tmp_path / "backend.py"
    script.write_text(SLOW + script.read_text())
    admin: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_listening(urls: tuple[str, ...]) -> None:
        lab.urls += urls
        if urls[0].startswith("http") and not admin.done():
            admin.set_result(urls[0])

    serving = asyncio.ensure_future(lab.proxy.serve(on_listening=on_listening))
    try:
        await admin
        got = await lab.get("/readyz", {})
        assert (got.status, got.text) == (503, "not ready: b\n")
        assert backend_of((await lab.get("/status")).json)["state"] == "starting"
        await until(lambda got: got.status == 200, lab, "/readyz")
        # of a legacy server with auto, the one that was asked waits for the first client
        assert backend_of((await lab.get("/status")).json)["state"] == "up"
        client = await lab.connect()
        await client.ask(call(1, "echo"))
        await client.close()
        rest = "idle" if isolation == "auto" else "up"
        status = await until(lambda found: not found["totals"]["clients"], lab)
        status = await until(lambda found: backend_of(found)["state"] == rest, lab)
        assert status["ready"]
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


async def test_a_proxy_that_nobody_serves_is_starting(tmp_path: Path) -> None:
    from wirespeed.proxy.operation.snapshot import state_of

    lab = Watched(tmp_path, "session")
    (service,) = lab.proxy.services.values()
    assert state_of(service) == "starting"
    async with lab.serving():
        assert state_of(service) == "idle"
        assert (await lab.get("/readyz", {})).status == 200


async def test_the_admin_listener_answers_until_the_others_have_drained(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared", shutdown_grace=5.0)
    async with lab.serving():
        client = await lab.connect()
        await client.send(call(1, "sleep", seconds=0.7))
        await lab.until_read("tools/call", 1)
        ((group, _),) = lab.proxy.listening._open.values()
        group.together.drain()
        got = await lab.get("/readyz", {})
        assert (got.status, got.text) == (503, "the proxy is shutting down\n")
        assert (await lab.get("/healthz", {})).status == 200
        status = (await lab.get("/status")).json
        assert status["draining"] and not status["ready"] and not status["not_ready"]
        assert backend_of(status)["in_flight"] == 1
        assert "shutting down" in shown(status)
        assert "Shutting down" in (await lab.get("/")).text
        assert said(await client.recv())["pid"]
        await client.ended()
        async with asyncio.timeout(10):
            while True:
                try:
                    await fetch(lab.port, "/healthz", {})
                except (OSError, IndexError, ValueError):
                    break
                await asyncio.sleep(0.02)

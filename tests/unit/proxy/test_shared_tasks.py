"""Tasks whose requests reach another host of a proxy than the call did."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.extension_tasks import DECLARED
from lab.http import Response
from lab.proxy_hosts import ProxyHosts, elsewhere, proxies, tea
from lab.raw import FOREVER, META
from lab.store import StoreServer
from lab.wording import raises

from wirespeed.errors import ProtocolError
from wirespeed.proxy.affinity import Seals
from wirespeed.proxy.hosts.membership import Membership

SHARED = b"s" * 32


async def ask(
    hosts: ProxyHosts, host: str, method: str, path: str = "/mcp", **params: Any
) -> Response:
    peer = await hosts.connect(host)
    try:
        more = {"mcp_name": params["taskId"]} if "taskId" in params else {}
        more["path"] = path
        return await peer.modern(method, {**params, "_meta": DECLARED}, **more)
    finally:
        peer.close()


async def made(hosts: ProxyHosts, host: str, path: str = "/mcp") -> str:
    """The id of a task that was made at a host."""
    call = {"name": "brew", "arguments": {}}
    found = (await ask(hosts, host, "tools/call", path, **call)).json["result"]
    assert found["resultType"] == "task"
    return str(found["taskId"])


@pytest.mark.own_environment
@pytest.mark.parametrize("endpoint", ["/mcp", "/servers/tea"])
@pytest.mark.parametrize("isolation", ["shared", "pool", "auto"])
async def test_a_task_of_a_process_leads_to_its_host(
    tmp_path: Path, store_server: StoreServer, isolation: str, endpoint: str
) -> None:
    names = ["tea"] if endpoint == "/mcp" else ["tea", "other"]
    servers = {name: tea(tmp_path, isolation) for name in names}
    async with proxies(tmp_path, "a", "b", servers=servers, store=store_server) as hosts:
        task = await made(hosts, "a", path=endpoint)
        for method in ("get", "cancel", "get"):
            for name in "ba":
                found = await ask(hosts, name, f"tasks/{method}", taskId=task, path=endpoint)
                assert "error" not in found.json, (method, name)
        await hosts.kill("a")
        error = (await ask(hosts, "b", "tasks/get", taskId=task, path=endpoint)).json["error"]
        assert error["code"] in (-32602, -31006)  # it is known that the host is gone, or not yet


@pytest.mark.own_environment
@pytest.mark.parametrize("names", ["a", "ab"])
async def test_a_task_of_a_process_leads_to_its_worker(
    tmp_path: Path, store_server: StoreServer, names: str
) -> None:
    cluster = {"store": store_server} if len(names) > 1 else {}
    async with proxies(tmp_path, *names, words=("--workers", "2"), **cluster) as hosts:
        tasks = [await made(hosts, name) for name in names for _ in range(4)]
        for task in tasks:
            for name in names * 4:
                found = await ask(hosts, name, "tasks/get", taskId=task)
                assert found.json["result"]["taskId"] == task
        assert {task.partition("~")[0] for task in tasks} <= {
            f"{name if len(names) > 1 else ''}.{worker}" for name in names for worker in (0, 1)
        }


PAGES = """
import asyncio, os, pathlib, sys
from wirespeed import Context, Server

server = Server("pages", page_size=1)

@server.tool
async def confirm(ctx: Context) -> str:
    answer = await ctx.elicit("really?", bool)
    return f"{answer.content} {os.getpid()}"

async def other() -> None: ...

server.add_tool(other, description=f"runs in {os.getpid()}")
server.add_tool(other, name="last", description=f"runs in {os.getpid()}")
@server.tool
async def wait(ctx: Context, file: str) -> None:
    await ctx.elicit("really?", bool)
    await ctx.progress(0)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        pathlib.Path(file).write_text("cancelled")
        raise

server.run(*sys.argv[1:])
"""
ELICITS = {META + "clientCapabilities": {"elicitation": {"form": {}}}}


def pages(folder: Path, isolation: str) -> dict[str, Any]:
    script = folder / "pages.py"
    script.write_text(PAGES)
    proxy = {"isolation": isolation}
    return {"pages": {"command": sys.executable, "args": [str(script)], "proxy": proxy}}


def answered(asked: Any) -> dict[str, Any]:
    """The members of a request that answers the question of the one before it."""
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"value": True}}}
    return {"requestState": asked["requestState"], "inputResponses": answers}


@pytest.mark.own_environment
async def test_a_client_leaves_while_another_process_answers(
    tmp_path: Path, store_server: StoreServer
) -> None:
    servers, done = pages(tmp_path, "shared"), tmp_path / "done"
    async with proxies(tmp_path, "a", "b", servers=servers, store=store_server) as hosts:
        peer = await hosts.connect("a")
        call = {"name": "wait", "arguments": {"file": str(done)}, "_meta": ELICITS}
        asked = (await peer.modern("tools/call", call)).json["result"]
        peer.close()
        peer = await hosts.connect("b")
        call["_meta"] = {**ELICITS, "progressToken": 1}
        peer.send_modern("tools/call", {**call, **answered(asked)})
        await peer.until(await peer.head(), 1)
        assert not done.exists()
        peer.close()
        async with asyncio.timeout(FOREVER):
            while not done.exists():
                await asyncio.sleep(0.02)


@pytest.mark.own_environment
@pytest.mark.parametrize("isolation", ["shared", "pool"])
async def test_states_and_cursors_lead_to_their_process(
    tmp_path: Path, store_server: StoreServer, isolation: str
) -> None:
    servers = pages(tmp_path, isolation)
    words = ("--workers", "2")
    options = {"servers": servers, "store": store_server, "words": words}

    async def result(host: str, method: str, **params: Any) -> Any:
        params["_meta"] = ELICITS
        peer = await hosts.connect(host)
        try:
            found = (await peer.modern(method, params)).json
        finally:
            peer.close()
        assert "result" in found, found
        return found["result"]

    async with proxies(tmp_path, "a", "b", **options) as hosts:
        for name in "abba":
            called = await result("a", "tools/call", name="confirm", arguments={})
            again = {"name": "confirm", "arguments": {}, **answered(called)}
            done = await result(name, "tools/call", **again)
            assert done["content"][0]["text"].startswith("True ")
        for name in "abba":
            page = await result("a", "tools/list")
            page = await result("b", "tools/list", cursor=page["nextCursor"])
            first = page["tools"][0]["description"]
            page = await result(name, "tools/list", cursor=page["nextCursor"])
            assert page["tools"][0]["description"] == first


@pytest.mark.own_environment
async def test_a_subscription_to_tasks_leads_to_their_host(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with proxies(tmp_path, "a", "b", store=store_server) as hosts:
        task = await made(hosts, "a")
        peer = await hosts.connect("b")
        peer.send_modern(
            "subscriptions/listen", {"notifications": {"taskIds": [task]}, "_meta": DECLARED}
        )
        head = await peer.head()
        assert head.status == 200
        (event,) = await peer.until(head, 1)
        assert event["method"] == "notifications/subscriptions/acknowledged"
        assert event["params"]["notifications"] == {"taskIds": [task]}


@pytest.mark.own_environment
async def test_a_subscription_at_another_host_does_not_hold_up_the_end_of_this_one(
    tmp_path: Path, store_server: StoreServer
) -> None:
    options = {"store": store_server, "shutdownGrace": 600}
    async with proxies(tmp_path, "a", "b", **options) as hosts:
        task = await made(hosts, "a")
        peer = await hosts.connect("b")
        peer.send_modern(
            "subscriptions/listen", {"notifications": {"taskIds": [task]}, "_meta": DECLARED}
        )
        head = await peer.head()
        await peer.until(head, 1)
        host = hosts.hosts["b"]
        host.signal(signal.SIGTERM)
        *_, cancelled, answer = await peer.until(head, 4)
        assert cancelled["method"] == "notifications/cancelled"
        assert answer["result"]["resultType"] == "complete"
        async with asyncio.timeout(FOREVER):
            while host.process.poll() is None:
                await asyncio.sleep(0.02)


@pytest.mark.own_environment
async def test_a_task_of_a_server_elsewhere_is_known_to_all_hosts(
    tmp_path: Path, store_server: StoreServer
) -> None:
    ProxyHosts(tmp_path)  # writes the server
    async with elsewhere(tmp_path / "tea.py") as url:
        servers = {"tea": {"url": url, "proxy": {"isolation": "shared"}}}
        async with proxies(tmp_path, "a", "b", servers=servers, store=store_server) as hosts:
            task = await made(hosts, "a")
            for name in "ba":
                found = await ask(hosts, name, "tasks/get", taskId=task)
                assert found.json["result"]["taskId"] == task
            error = (await ask(hosts, "b", "tasks/get", taskId=task[:-1])).json["error"]
            assert error["code"] == -32602


def test_seals() -> None:
    """A process may give an id that another one has given to somebody else."""
    hosts = [Membership(SHARED, "a"), Membership(SHARED, "b"), Membership(SHARED, "a")]
    hosts[2].share(1)
    own = [Seals("tea", keys, is_process=True) for keys in hosts]
    far = [Seals("tea", keys, is_process=False) for keys in hosts]
    mine, theirs = own[0].seal("job-1", b"anne"), far[0].seal("job-1", b"anne")
    assert own[0].open(mine, b"anne") == "job-1" and mine.startswith("a.0~")
    assert [one.open(theirs, b"anne") for one in far] == ["job-1"] * 3
    for one, id, who in (
        (own[0], mine, b"bob"),
        (own[1], mine, b"anne"),
        (own[2], mine, b"anne"),
        (own[1], mine.replace("a.0~", "b.0~"), b"anne"),
        (far[0], mine, b"anne"),
        (own[0], theirs, b"anne"),
        (far[0], theirs, b"bob"),
        (own[0], "", b"anne"),
        (own[0], "a.0~", b"anne"),
        (own[0], mine.removeprefix("a.0~"), b"anne"),
    ):
        with raises(ProtocolError, code=-32602):
            one.open(id, who)
    workers = [Membership(), Membership()]
    for n, member in enumerate(workers):
        member.fork(2)
        member.share(n)
    alone = [Seals("tea", keys, is_process=True) for keys in workers]
    assert alone[0].seal("job-1", None).endswith("job-1")
    with raises(ProtocolError, code=-32602):
        alone[1].open(alone[0].seal("job-1", None), None)

"""Tasks whose requests reach another host of a proxy than the call did."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.extension_tasks import DECLARED
from lab.http import Response
from lab.process import free_port
from lab.proxy_hosts import ProxyHosts, proxies
from lab.raw import surroundings
from lab.store import StoreServer
from lab.wording import raises

from wirespeed.errors import ProtocolError
from wirespeed.proxy.affinity import Seals
from wirespeed.proxy.hosts.membership import Membership

SHARED = b"s" * 32


async def ask(hosts: ProxyHosts, host: str, method: str, **params: Any) -> Response:
    peer = await hosts.connect(host)
    try:
        more = {"mcp_name": params["taskId"]} if "taskId" in params else {}
        return await peer.modern(method, {**params, "_meta": DECLARED}, **more)
    finally:
        peer.close()


async def made(hosts: ProxyHosts, name: str) -> str:
    """The id of a task that was made at a host."""
    found = (await ask(hosts, name, "tools/call", name="brew", arguments={})).json["result"]
    assert found["resultType"] == "task"
    return str(found["taskId"])


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    """The server, which both hosts reach at a URL."""
    url = f"http://127.0.0.1:{free_port()}/mcp"
    process = subprocess.Popen(
        [sys.executable, str(folder / "tea.py"), url], env=surroundings(), stderr=subprocess.DEVNULL
    )
    try:
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@pytest.mark.own_environment
@pytest.mark.parametrize("isolation", ["shared", "pool"])
async def test_a_task_of_a_process_is_known_to_its_host(
    tmp_path: Path, store_server: StoreServer, isolation: str
) -> None:
    hosts = ProxyHosts(tmp_path)
    servers = {"tea": {**hosts.servers["tea"], "proxy": {"isolation": isolation}}}
    cluster = {"url": store_server.url}
    async with proxies(tmp_path, "a", "b", servers=servers, cluster=cluster) as hosts:
        task = await made(hosts, "a")
        found = await ask(hosts, "a", "tasks/get", taskId=task)
        assert found.json["result"]["taskId"] == task
        error = (await ask(hosts, "b", "tasks/get", taskId=task)).json["error"]
        assert error["code"] == -32602
        assert error["message"] == "the task is known to worker 0 of the host a alone"


@pytest.mark.own_environment
async def test_a_task_of_a_server_elsewhere_is_known_to_all_hosts(
    tmp_path: Path, store_server: StoreServer
) -> None:
    ProxyHosts(tmp_path)  # writes the server
    async with serving(tmp_path) as url:
        servers = {"tea": {"url": url, "proxy": {"isolation": "shared"}}}
        cluster = {"url": store_server.url}
        async with proxies(tmp_path, "a", "b", servers=servers, cluster=cluster) as hosts:
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
    assert own[0].open(mine, b"anne") == "job-1" and "a.0~job-1" in mine
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
    ):
        with raises(ProtocolError, code=-32602):
            one.open(id, who)
    workers = [Membership(), Membership()]
    workers[1].share(1)
    alone = [Seals("tea", keys, is_process=True) for keys in workers]
    assert alone[0].seal("job-1", None).endswith("job-1")
    with raises(ProtocolError, code=-32602):
        alone[1].open(alone[0].seal("job-1", None), None)

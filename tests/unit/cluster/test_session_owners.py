"""Whose a session is: one process has it at most, whatever hosts and the store go through."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import time
from pathlib import Path

import pytest
from lab.hosts import TOKENS, Visitor, deployed
from lab.http import FOREVER, LEGACY, call
from lab.store import Cable, MakeServer, StoreServer

from wirespeed import HttpOptions
from wirespeed.cluster.presence import member_of
from wirespeed.cluster.store import STORE_TIMEOUT

pytestmark = pytest.mark.compiled


async def n_saved(store: StoreServer, n: int) -> list[str]:
    """The keys of the records, when there are n."""
    until = time.monotonic() + 10
    while True:
        keys: list[str] = store.ask("KEYS", "*{session1:*record")
        if len(keys) == n:
            return keys
        assert time.monotonic() < until, keys
        await asyncio.sleep(0.05)


async def test_a_session_that_a_worker_has_adopted(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """Hosts that pass its requests on find the worker."""
    async with deployed(tmp_path, store_server.url, "a", "b", "c", workers=2) as hosts:
        visitors = [Visitor(hosts) for _ in range(6)]
        for one in visitors:
            await one.initialize("a")
        keys = await n_saved(store_server, 6)
        await hosts.kill("a")
        for one in visitors:
            assert await one.answer("b", "who") == "b"
        for one in visitors:
            assert [await one.answer("c", "who") for _ in range(8)] == ["b"] * 8
        assert {store_server.ask("HGET", key, "epoch") for key in keys} == {"1"}


async def test_a_worker_that_its_host_does_not_reach(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """It keeps its sessions."""
    async with deployed(tmp_path, store_server.url, "a", "b", workers=2) as hosts:
        visitors = [Visitor(hosts) for _ in range(8)]
        ids = [await one.initialize("a") for one in visitors]
        assert {id[:4] for id in ids} == {"a.0.", "a.1."}
        await n_saved(store_server, 8)
        pid = hosts.hosts["a"].process.pid
        workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        for worker in map(int, workers):  # there is no room for a connection to another one
            opened = [int(file.name) for file in Path(f"/proc/{worker}/fd").iterdir()]
            resource.prlimit(worker, resource.RLIMIT_NOFILE, (max(opened) + 1, before[1]))
        said = [await one.call("b", "who") for one in visitors]
        assert {answer.status for answer in said} == {200, 503}
        for worker in map(int, workers):
            resource.prlimit(worker, resource.RLIMIT_NOFILE, before)
        for one in visitors:
            assert [await one.answer(host, "who") for host in "ab"] == ["a", "a"]


async def test_a_host_that_comes_back_with_fewer_workers(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b", workers=2) as hosts:
        visitors = [Visitor(hosts) for _ in range(8)]
        ids = [await one.initialize("a") for one in visitors]
        assert {id[:4] for id in ids} == {"a.0.", "a.1."}
        await n_saved(store_server, 8)
        port = hosts.hosts["a"].port
        await hosts.kill("a")
        await hosts.start("a", port=port)
        for one in visitors:
            for host in "ab":
                assert await one.answer(host, "who") in ("a", "b")


async def test_hosts_come_back_to_the_store_one_by_one(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """The first does not take the others for gone: their sessions went on meanwhile."""
    async with (
        Cable(store_server) as one_way,
        Cable(store_server) as other_way,
        deployed(tmp_path, store_server.url) as hosts,
    ):
        await hosts.start("a", store=one_way.url)
        await hosts.start("b", store=other_way.url)
        await asyncio.sleep(1.2)  # a has read of b
        one = Visitor(hosts)
        await one.initialize("a")
        await n_saved(store_server, 1)
        assert await one.answer("b", "who") == "a"
        (key,) = store_server.ask("KEYS", "*{sessions1:*hosts")
        one_way.cut()
        other_way.cut()
        # a host that none of them reaches, which has the store
        life = round(time.time() * 1000) + 60_000
        url = "http://127.0.0.1:9"
        store_server.ask("HSET", key, member_of("x", url), f"{life} 60000 1 1 1 x {url}")
        until = time.monotonic() + 5
        while time.monotonic() < until:
            assert await one.answer("a", "who") == "a"
            await asyncio.sleep(0.1)
        other_way.is_cut = False
        until = time.monotonic() + 3
        while time.monotonic() < until:
            direct, other = await asyncio.gather(one.call("a", "who"), one.call("b", "who"))
            assert b'"text":"b"' not in other.body or direct.status == 503
            await asyncio.sleep(0.05)


async def test_a_record_that_was_written_and_not_confirmed(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with Cable(store_server) as cable, deployed(tmp_path, store_server.url, "b") as hosts:
        await hosts.start("a", store=cable.url, store_timeout=STORE_TIMEOUT)
        await Visitor(hosts).initialize("a")
        await n_saved(store_server, 1)  # the store has the script
        cable.is_mute = True
        peer = await hosts.connect("a")
        assert (await peer.initialize(**Visitor(hosts).fields)).status == 503
        await n_saved(store_server, 2)
        cable.cut()
        cable.is_cut = cable.is_mute = False
        await n_saved(store_server, 1)


@pytest.mark.parametrize("workers", [1, 2])
async def test_sessions_of_a_host_that_was_alone(
    tmp_path: Path, store_server: StoreServer, workers: int
) -> None:
    """One that nobody can have adopted goes on."""
    async with Cable(store_server) as cable, deployed(tmp_path, store_server.url) as hosts:
        await hosts.start("a", store=cable.url, workers=workers)
        cable.cut()
        while "is lost" not in hosts.hosts["a"].log.read_text():
            await asyncio.sleep(0.05)
        one = Visitor(hosts)
        while "mcp_session_id" not in one.fields:
            with contextlib.suppress(KeyError):  # it does not know yet that it is alone
                await one.initialize("a")
        await asyncio.sleep(4.5)
        assert await one.answer("a", "who") == "a"
        cable.is_cut = False
        await n_saved(store_server, 1)
        await hosts.start("b")
        assert await one.answer("a", "who") == "a"
        assert await one.answer("b", "who") == "a"


async def test_another_client_that_asks_for_a_session(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    """Its principal says nothing of who owns the session."""
    store = new_store_server()
    async with deployed(tmp_path, store.url, "a", "b", tokens=TOKENS) as hosts:
        anne, bob = (Visitor(hosts, TOKENS[name]) for name in ("anne", "bob"))
        bob.fields["mcp_session_id"] = await anne.initialize("a")
        await n_saved(store, 1)
        port = hosts.hosts["a"].port
        await hosts.kill("a")
        (key,) = store.ask("KEYS", "*{sessions1:*hosts")
        entry = store.ask("HGET", key, member_of("a", f"http://127.0.0.1:{port}"))
        while round(time.time() * 1000) < int(entry.split()[0]):
            await asyncio.sleep(0.05)
        assert store.process is not None
        store.process.send_signal(signal.SIGSTOP)
        first = await bob.send("b", body=call("who"))
        await asyncio.sleep(0.02)
        second = await anne.send("b", body=call("who"))
        await asyncio.sleep(0.02)
        store.process.send_signal(signal.SIGCONT)
        assert (await first.response()).status == 404
        assert (await second.response()).status == 200


async def test_the_record_of_an_adopted_session_lives_as_long_as_a_new_one(
    tmp_path: Path, store_server: StoreServer
) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        (key,) = store_server.ask("KEYS", "*{session1:*record")
        life = store_server.ask("PTTL", key)
        # longer than the session: no use of it is noted while the store is away
        assert life > 1.9 * HttpOptions().session_ttl * 1000
        await hosts.kill("a")
        store_server.ask("PEXPIRE", key, 60_000)  # as one that was idle for most of its life
        assert await one.answer("b", "who") == "b"
        async with asyncio.timeout(FOREVER):
            while store_server.ask("PTTL", key) < life / 2:
                await asyncio.sleep(0.05)


async def test_a_host_that_drains(tmp_path: Path, store_server: StoreServer) -> None:
    """A session without requests is adopted, though another one of its host has a long request;
    with what was changed last."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one, other = Visitor(hosts), Visitor(hosts)
        await one.initialize("a")
        await other.initialize("a")
        await n_saved(store_server, 2)
        assert await one.answer("b", "who") == "a"
        long = await other.send("a", body=call("wait", {"seconds": 3}))
        await asyncio.sleep(0.2)
        assert (await one.request("a", "resources/subscribe", uri="stock://tea")).status == 200
        hosts.hosts["a"].signal(signal.SIGTERM)
        await asyncio.sleep(0.2)
        assert await one.answer("b", "who") == "b"
        assert hosts.hosts["a"].process.poll() is None
        get = await one.send("b", "GET", accept="text/event-stream")
        opened = await get.head()
        assert await one.answer("b", "sell") == "b"
        heard = await get.until(opened, 1)
        assert heard[0]["params"] == {"uri": "stock://tea"}
        assert b'"text":"a"' in (await long.response()).body
        assert await other.answer("b", "who") == "b"


async def test_a_session_with_a_request_at_work_while_its_host_drains(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """It goes on there until the request has ended, and then elsewhere: nothing is refused."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await asyncio.sleep(1.5)  # b is connected to a
        long = await one.send("a", body=call("wait", {"seconds": 2}, 999))
        await asyncio.sleep(0.2)
        hosts.hosts["a"].signal(signal.SIGTERM)
        heard: list[str] = []
        while "b" not in heard:
            response = await one.call("b", "who")
            assert response.status == 200, response.body
            messages = response.messages if response.is_stream else [response.json]
            heard.append(messages[-1]["result"]["content"][0]["text"])
            await asyncio.sleep(0.02)
        assert heard.count("a") > 10
        assert b'"text":"a"' in (await long.response()).body
        await asyncio.to_thread(hosts.hosts["a"].process.wait)
        assert await one.answer("b", "who") == "b"


async def test_a_session_that_ends_while_the_store_is_away(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    """Nobody adopts it, then and later."""
    store = new_store_server()
    async with deployed(tmp_path, store.url, "a", "b", store_timeout=STORE_TIMEOUT) as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await n_saved(store, 1)
        assert await one.answer("b", "who") == "a"
        assert store.process is not None
        store.process.send_signal(signal.SIGSTOP)
        while "is lost" not in hosts.hosts["a"].log.read_text():
            await asyncio.sleep(0.05)
        assert (await one.ask("a", "DELETE")).status == 204
        store.process.send_signal(signal.SIGCONT)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert (await one.call("b", "who")).status in (404, 503)
            assert (await one.call("a", "who")).status == 404
            await asyncio.sleep(0.05)
        await n_saved(store, 0)


async def test_entries_of_others_in_the_store(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await n_saved(store_server, 1)
        (key,) = store_server.ask("KEYS", "*{sessions1:*hosts")
        for name, url in (
            ("x", "nothing"),
            ("\xff", "http://127.0.0.1:9"),
            ("y", "ftp://127.0.0.1"),
            ("z@00000000", "http://127.0.0.1:9"),
        ):
            entry = f"99999999999999 60000 1 1 1 i {url}"
            store_server.ask("HSET", key, name.encode("latin-1"), entry)
            store_server.ask("HSET", key, name.encode("latin-1") + b"1", "junk")
        await asyncio.sleep(1.5)
        x = Visitor(hosts)
        x.fields["mcp_session_id"] = "x.0." + "A" * 32
        while (status := (await x.call("b", "who")).status) == 503:
            await asyncio.sleep(0.05)  # the data of the store are new
        assert status == 404
        await asyncio.sleep(5)
        assert await one.answer("a", "who") == "a"
        assert await one.answer("b", "who") == "a"


async def test_a_target_that_is_not_ascii(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await n_saved(store_server, 1)
        peer = await hosts.connect("b")
        body = call("who")
        head = (
            f"POST /mcp?q=\xfc HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"Mcp-Session-Id: {one.fields['mcp_session_id']}\r\n"
            f"MCP-Protocol-Version: {LEGACY}\r\n\r\n"
        )
        peer.writer.write(head.encode("latin-1") + body)
        assert b"400" in await peer.line()
        assert "internal error" not in hosts.hosts["b"].log.read_text()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=str)
async def test_streams_of_a_session_that_moves(
    tmp_path: Path, store_server: StoreServer, end: signal.Signals
) -> None:
    """The new owner has their events, whatever the old one does at its end."""
    async with deployed(tmp_path, store_server.url, "a", "b") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        await n_saved(store_server, 1)
        whole = await one.ask("a", body=call("who", {"steps": 2}, _meta={"progressToken": 1}))
        await asyncio.sleep(0.2)  # the store has the events
        hosts.hosts["a"].signal(end)
        if end == signal.SIGTERM:  # before it notices, it answers
            await asyncio.to_thread(hosts.hosts["a"].process.wait)
        assert await one.answer("b", "who") == "b"
        if end == signal.SIGSTOP:
            hosts.hosts["a"].signal(signal.SIGCONT)
            await asyncio.sleep(1.2)  # it has found out
        again = await one.ask(
            "b", "GET", accept="text/event-stream", last_event_id=whole.events[0]["id"]
        )
        assert again.messages == whole.messages

"""The connection of a host to the store: its URL, its states, what it sends, what fails."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.rows import every
from lab.store import MakeServer, StoreServer, free_port
from lab.wording import raises

from wirespeed.cluster import Cluster
from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import end_tasks
from wirespeed.errors import ProtocolError, StoreUnavailable
from wirespeed.transport.backoff import Backoff

ECHO = Script("return ARGV[1]")
PUT = Script("return redis.call('SET', KEYS[1] .. ARGV[1], ARGV[2], 'PX', 60000)")
APPEND = Script("return redis.call('RPUSH', KEYS[1] .. 'list', ARGV[1])")
LIST = Script("return redis.call('LRANGE', KEYS[1] .. 'list', 0, -1)")
SOON = Backoff(0.01, 0.05)


def a_cluster(server: StoreServer, **options: float) -> Cluster:
    return Cluster(server.url, returns=SOON, **options)


async def come_back(cluster: Cluster) -> None:
    while cluster.state != "up":
        await asyncio.sleep(0.01)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What the cluster logs."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("wirespeed.cluster").addHandler(handler)
    yield found
    logging.getLogger("wirespeed.cluster").removeHandler(handler)


# -- URLs -----------------------------------------------------------------------------------------


@every(
    ("url", "shown"),
    [
        ("redis://store", "redis://store"),
        ("redis://user:secret@store:7000/3", "redis://store:7000/3"),
        ("redis://:secret@[::1]:7000", "redis://[::1]:7000"),
        ("redis://store?db=3", "redis://store"),
        ("rediss://:secret@store?ssl_ca_certs=/ca.pem", "rediss://store"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("unix://:secret@/run/redis.sock?db=2", "unix:///run/redis.sock"),
        ("redis+sentinel://:secret@a,b:1/main", "redis+sentinel://a,b:1/main"),
        ("rediss+sentinel://a/main/2?sentinel_password=secret", "rediss+sentinel://a/main/2"),
        ("redis+cluster://u:secret@a:7000,b:7000", "redis+cluster://a:7000,b:7000"),
        ("rediss+cluster://a", "rediss+cluster://a"),
    ],
)
def test_urls(url: str, shown: str) -> None:
    assert repr(Cluster(url)) == f"<Cluster {shown} idle>"


@every(
    "url",
    [
        "",
        "store",
        "http://:secret@store",
        "redis://",
        "redis://:secret@store:x",
        "redis://:secret@store:70000",
        "redis://:secret@a,b",
        "redis://:secret@store/x",
        "redis://:secret@store/1/2",
        "redis://:secret@store#x",
        "redis://:secret@store?timeout=1",
        "redis://:secret@store?ssl_ca_certs=/ca.pem",
        "redis://:secret@store?sentinel_password=secret",
        "redis://:secret@store?x",
        "redis://se@cret@store/x",
        "unix://",
        "unix://store/path",
        "unix+cluster:///path",
        "redis+sentinel://:secret@a",
        "redis+sentinel://:secret@a/main/x",
        "redis+cluster://:secret@a/1",
        "redis+cluster://:secret@a?db=1",
        "redis+other://:secret@a",
    ],
)
def test_urls_that_are_wrong_are_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="the URL of a cluster is") as caught:
        Cluster(url)
    assert "secret" not in str(caught.value)


def test_options_are_checked() -> None:
    for prefix in ("", "a b", "{a}", "x" * 65):
        with raises(ValueError):
            Cluster("redis://store", prefix=prefix)
    for seconds in (0, -1, float("inf"), float("nan")):
        with raises(ValueError):
            Cluster("redis://store", store_timeout=seconds)


def test_the_keys_of_a_server_are_in_one_slot_whatever_its_name() -> None:
    base = Cluster("redis://store", prefix="p").base("tasks1", "a}{b: ü")
    assert base == "p:{tasks1:a%7D%7Bb%3A%20%C3%BC}:"


# -- commands --------------------------------------------------------------------------------------


async def test_commands_of_one_turn_take_one_round_trip(store_server: StoreServer) -> None:
    async with a_cluster(store_server) as cluster:
        assert (cluster.state, cluster.up_for) == ("idle", 0.0)
        assert await cluster.run(ECHO, "b:", "x") == b"x"
        await cluster.run(APPEND, "b:", "first")
        assert cluster.state == "up" and cluster.up_for > 0
        before = store_server.ask("INFO", "stats")["total_reads_processed"]
        await asyncio.gather(*(cluster.run(APPEND, "b:", i) for i in range(50)))
        after = store_server.ask("INFO", "stats")["total_reads_processed"]
        assert after - before < 20  # also those of this test's own questions
        found = await cluster.run(LIST, "b:")
        assert found == [b"first", *(b"%d" % i for i in range(50))]
    assert cluster.state == "idle"


async def test_a_store_that_forgot_its_scripts_learns_them_again(store_server: StoreServer) -> None:
    async with a_cluster(store_server) as cluster:
        for _ in range(2):
            answers = await asyncio.gather(*(cluster.run(ECHO, "b:", i) for i in range(3)))
            assert answers == [b"0", b"1", b"2"]
            store_server.ask("SCRIPT", "FLUSH")


async def test_a_cancelled_command_disturbs_no_other(store_server: StoreServer) -> None:
    async with a_cluster(store_server) as cluster:
        await cluster.run(ECHO, "b:", "x")
        one, two = (asyncio.ensure_future(cluster.run(ECHO, "b:", i)) for i in range(2))
        await asyncio.sleep(0)
        one.cancel()
        assert await two == b"1" and await cluster.run(ECHO, "b:", "y") == b"y"
        assert cluster.n_losses == 0


def test_it_goes_from_one_loop_to_the_next(store_server: StoreServer) -> None:
    cluster = a_cluster(store_server)

    async def use() -> None:
        async with cluster:
            assert await cluster.run(ECHO, "b:", "x") == b"x"

    asyncio.run(use())
    asyncio.run(use())


async def test_the_last_user_closes_the_connection(store_server: StoreServer) -> None:
    cluster, other = a_cluster(store_server), object()
    cluster.hold(other)
    async with cluster:
        await cluster.run(ECHO, "b:", "x")
    assert cluster.state == "up"
    await cluster.release(other)
    await cluster.release(other)
    assert cluster.state == "idle"
    assert store_server.ask("INFO", "clients")["connected_clients"] == 1  # the one that asks
    assert await cluster.run(ECHO, "b:", "x") == b"x"
    await cluster.release(other)


async def test_what_the_store_refuses_concerns_one_command(
    store_server: StoreServer, lines: list[str]
) -> None:
    store_server.ask("SET", "b:list", "of somebody else")
    async with a_cluster(store_server) as cluster:
        for _ in range(3):
            wrong = cluster.run(APPEND, "b:", "x")
            right = cluster.run(ECHO, "b:", "x")
            refused, answer = await asyncio.gather(wrong, right, return_exceptions=True)
            assert answer == b"x" and cluster.state == "up"
            with raises(ProtocolError, code=-32603):
                raise refused
    assert len(lines) == 1 and "WRONGTYPE" in lines[0]


async def test_a_text_that_is_not_unicode_concerns_one_command(store_server: StoreServer) -> None:
    async with a_cluster(store_server) as cluster:
        await cluster.run(ECHO, "b:", "x")
        first = asyncio.ensure_future(cluster.run(ECHO, "b:", "1"))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(cluster.run(ECHO, "b:", one)) for one in ("\ud800", "2")]
        await asyncio.wait([first])
        others.append(asyncio.ensure_future(cluster.run(ECHO, "b:", "3")))
        wrong, *found = await asyncio.gather(*others, return_exceptions=True)
        assert isinstance(wrong, UnicodeEncodeError)
        assert found == [b"2", b"3"] and cluster.n_losses == 0


async def test_a_full_store_may_have_room_later(
    new_store_server: MakeServer, lines: list[str]
) -> None:
    server = new_store_server("--maxmemory", "1")
    async with a_cluster(server) as cluster:
        with raises(StoreUnavailable, code=-31007):
            await cluster.run(PUT, "b:", "x", "y")
        assert cluster.state == "up"
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert await cluster.run(PUT, "b:", "x", "y") == b"OK"
    assert len(lines) == 1 and "maxmemory" in lines[0]


# -- losses ----------------------------------------------------------------------------------------


async def test_a_store_that_ends_and_returns(
    new_store_server: MakeServer, lines: list[str]
) -> None:
    server = new_store_server()
    async with a_cluster(server) as cluster:
        await cluster.run(ECHO, "b:", "x")
        server.kill()
        for _ in range(5):
            with raises(StoreUnavailable, code=-31007):
                await cluster.run(ECHO, "b:", "x")
        assert (cluster.state, cluster.n_losses) == ("down", 1)
        server.start()
        await come_back(cluster)
        assert await cluster.run(ECHO, "b:", "x") == b"x"
    lost, back = lines
    assert f"the store {server.url} is lost: " in lost and "is back after" in back


async def test_a_store_that_is_not_there_at_first(
    new_store_server: MakeServer, lines: list[str]
) -> None:
    server = new_store_server()
    server.kill()
    async with a_cluster(server) as cluster:
        found = await asyncio.gather(
            *(cluster.run(ECHO, "b:", "x") for _ in range(5)), return_exceptions=True
        )
        assert {type(one) for one in found} == {StoreUnavailable}
        assert len(lines) == 1
        server.start()
        await come_back(cluster)


@pytest.mark.both_loops
async def test_a_store_that_resets_connections_for_a_while() -> None:
    """As a load balancer does whose store is away. The loop has other work."""

    async def work() -> None:
        while True:
            time.sleep(0.001)
            await asyncio.sleep(0)

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(9):
                reset, _ = listening.accept()
                reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                reset.close()
            served, _ = listening.accept()
            with served:
                while data := served.recv(4096):
                    served.sendall(data.count(b"*") * b"+OK\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        place = f"redis://127.0.0.1:{listening.getsockname()[1]}"
        async with Cluster(place, returns=Backoff(0.001, 0.001)) as cluster:
            with raises(StoreUnavailable, code=-31007):
                await cluster.run(ECHO, "b:", "x")
            working = asyncio.create_task(work())
            await come_back(cluster)
            working.cancel()
        await asyncio.to_thread(thread.join)


async def test_a_store_whose_answer_cannot_be_read(lines: list[str]) -> None:
    answers = [b"HTTP/1.1 400 Bad Request\r\n\r\n"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            is_script = b"EVALSHA" in data
            writer.write(answers.pop() if is_script and answers else data.count(b"*") * b"+OK\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        place = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Cluster(place, returns=SOON) as cluster:
            with raises(StoreUnavailable, code=-31007):
                await cluster.run(ECHO, "b:", "x")
            assert (cluster.state, cluster.n_losses) == ("down", 1)
            await come_back(cluster)
            assert await cluster.run(ECHO, "b:", "x") == b"OK"
    assert len(lines) == 2 and f"the store {place} is lost: " in lines[0]


async def test_nobody_waits_for_a_frozen_store(
    new_store_server: MakeServer, lines: list[str]
) -> None:
    """It is frozen until all calls have ended."""
    server = new_store_server()
    async with a_cluster(server, store_timeout=0.1) as cluster:
        await cluster.run(ECHO, "b:", "x")
        server.freeze()
        found = await asyncio.gather(
            *(cluster.run(ECHO, "b:", "x") for _ in range(20)), return_exceptions=True
        )
        assert {type(one) for one in found} == {StoreUnavailable} and cluster.state == "down"
        with raises(StoreUnavailable, code=-31007):
            await cluster.run(ECHO, "b:", "x")
        server.thaw()
        await come_back(cluster)
        assert await cluster.run(ECHO, "b:", "y") == b"y"
    assert len(lines) == 2


@pytest.mark.both_loops
async def test_an_answer_that_came_while_the_process_was_busy_is_read(
    store_server: StoreServer, lines: list[str]
) -> None:
    async with a_cluster(store_server) as cluster:
        base = cluster.base("test")
        await cluster.run(ECHO, base, "first")
        for turns in range(6):
            answer = asyncio.create_task(cluster.run(ECHO, base, "a"))
            for _ in range(turns):
                await asyncio.sleep(0)
            time.sleep(3 * cluster.store_timeout)
            assert await answer == b"a"
    assert lines == []


async def test_what_waits_behind_a_frozen_round_trip_fails_with_it(
    new_store_server: MakeServer,
) -> None:
    server = new_store_server()
    async with a_cluster(server, store_timeout=0.1) as cluster:
        await cluster.run(ECHO, "b:", "x")
        server.freeze()
        first = asyncio.ensure_future(cluster.run(ECHO, "b:", "x"))
        await asyncio.sleep(0.05)
        second = asyncio.ensure_future(cluster.run(ECHO, "b:", "x"))
        found = await asyncio.gather(first, second, return_exceptions=True)
        assert {type(one) for one in found} == {StoreUnavailable} and cluster.n_losses == 1
        server.thaw()


async def test_the_end_of_a_user_while_the_store_is_away(new_store_server: MakeServer) -> None:
    server = new_store_server()
    async with a_cluster(server, store_timeout=0.1) as cluster:
        await cluster.run(ECHO, "b:", "x")
        server.freeze()
        waiting = asyncio.ensure_future(cluster.run(ECHO, "b:", "x"))
        await asyncio.sleep(0)
    with raises(StoreUnavailable, code=-31007):
        await waiting
    assert cluster.state == "idle"
    server.thaw()


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost: list[bool] = []

    async def work() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append(True)

    tasks = [asyncio.create_task(work()) for _ in range(2)]
    await asyncio.sleep(0)
    await end_tasks(tasks)
    assert lost and all(task.cancelled() for task in tasks)
    await end_tasks([])


# -- secrets, TLS ----------------------------------------------------------------------------------


async def test_a_password(new_store_server: MakeServer, lines: list[str]) -> None:
    server = new_store_server(password="correct horse")
    server.ask("ACL", "SETUSER", "anne", "on", ">battery", "~*", "+@all")
    for right in (":correct%20horse@", "anne:battery@", "default:correct%20horse@"):
        async with Cluster(server.url.replace("//", f"//{right}")) as cluster:
            assert await cluster.run(ECHO, "b:", "x") == b"x"
    assert not lines
    for wrong in ("", ":staple@", "anne:staple@"):
        async with Cluster(server.url.replace("//", f"//{wrong}")) as cluster:
            with raises(StoreUnavailable, code=-31007):
                await cluster.run(ECHO, "b:", "x")
            assert "staple" not in repr(cluster) + "".join(lines)
    assert len(lines) == 3


async def test_a_user_who_may_do_too_little(new_store_server: MakeServer, lines: list[str]) -> None:
    server = new_store_server()
    server.ask("ACL", "SETUSER", "anne", "on", ">battery", "~other*", "+@all")
    async with Cluster(server.url.replace("//", "//anne:battery@")) as cluster:
        with raises(ProtocolError, code=-32603):
            await cluster.run(PUT, "b:", "x", "y")
        assert await cluster.run(PUT, "other:", "x", "y") == b"OK"
    assert len(lines) == 1


async def test_tls(new_store_server: MakeServer, tmp_path: Path, lines: list[str]) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-keyout", str(key), "-out", str(certificate), "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    port = free_port()
    new_store_server(
        *("--tls-port", str(port), "--tls-auth-clients", "no"),
        *("--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
    )
    async with Cluster(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}") as cluster:
        assert await cluster.run(ECHO, "b:", "x") == b"x"
    async with Cluster(f"rediss://127.0.0.1:{port}") as cluster:  # it is nobody's certificate
        with raises(StoreUnavailable, code=-31007):
            await cluster.run(ECHO, "b:", "x")
    assert len(lines) == 1 and "certificate" in lines[0].lower()

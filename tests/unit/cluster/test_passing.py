"""The connection over which a host passes requests on: who may open one, and what either end gets
for what the other does wrong. One end is a host, the other one is played."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import ssl
import subprocess
import time
from pathlib import Path

import h11
import pytest
from lab.hosts import TOKENS, Visitor, deployed, join
from lab.http import BOTH, LEGACY, call, message, serving
from lab.member import (
    ANSWER,
    CUT,
    END,
    GONE,
    KEY,
    LAST,
    PART,
    PAUSE,
    PROOF,
    REQUEST,
    RESUME,
    STATE,
    End,
    answer_of,
    answering,
    asking,
    request_of,
    said,
    tool_call,
)
from lab.process import free_port
from lab.store import StoreServer

from wirespeed import HttpOptions, Server
from wirespeed.cluster import Cluster, SessionHosts
from wirespeed.transport.gate import digest

pytestmark = pytest.mark.compiled


# -- who may pass requests on ----------------------------------------------------------------------


async def test_who_is_not_a_member(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        port = hosts.ports["a"]
        for path, fields in (
            ("/.wirespeed/hosts", {}),
            ("/.wirespeed/hosts", {"upgrade": "wirespeed-1", "connection": "upgrade"}),
            ("/.wirespeed/hosts", {"upgrade": "wirespeed-0", "wirespeed_member": "x"}),
        ):
            refused = await Visitor(hosts).ask("a", "GET", path=path, **fields)
            assert (refused.status, refused.body) == (426, b"this path is for other hosts\n")
        with pytest.raises(ValueError, match="it is not a member of this deployment"):
            async with asking(port, key=b"x" * 32):
                pass
        with pytest.raises(ValueError, match="it has the name a"):
            async with asking(port, "b"):
                pass
        for proof in (b"", b"x" * 32):
            async with asking(port, proof=proof) as end:
                end.send(STATE)
                await end.over()
        async with asking(port) as end:
            end.send(STATE)
            assert (await end.frame())[2].startswith(b"up")
        log = hosts.hosts["a"].log.read_text()
        assert log.count("it is not a member") == 2


async def test_a_request_before_the_proof(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        session = await Visitor(hosts).initialize("a")
        reader, writer = await asyncio.open_connection("127.0.0.1", hosts.ports["a"])
        writer.write(
            b"GET /.wirespeed/hosts HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
            b"Upgrade: wirespeed-1\r\nWirespeed-Member: nonce\r\n\r\n"
        )
        end = End(reader, writer)
        end.send(REQUEST, 1, tool_call(session, "who", said()))
        assert b"101" in await reader.readuntil(b"\r\n\r\n")
        await end.over()
        writer.close()


async def test_what_is_said_of_a_client(tmp_path: Path, store_server: StoreServer) -> None:
    """It ends with the client's credentials, and lets the client in at its own session alone."""
    async with deployed(tmp_path, store_server.url, "a", tokens=TOKENS) as hosts:
        anne = Visitor(hosts, TOKENS["anne"])
        session = await anne.initialize("a")
        principal = digest("user", "anne")
        async with asking(hosts.ports["a"]) as end:
            for number, (client, status) in enumerate(
                (
                    (said(user="anne", principal=principal), 200),
                    (said(user="anne", principal=principal, expires=time.time() + 60), 200),
                    (said(user="anne", principal=principal, expires=time.time() - 1), 401),
                    (said(user="bob", principal=digest("user", "bob")), 421),
                    (said(), 421),
                ),
                1,
            ):
                end.send(REQUEST, number, tool_call(session, "who", client))
                assert (await end.answer(number))[0] == status
        # a field of a client says nothing
        nobody = Visitor(hosts)
        nobody.fields["mcp_session_id"] = session
        assert (await nobody.call("a", "who")).status == 401


@pytest.mark.parametrize(
    "frame",
    [
        (PROOF, 0, b""),
        (ANSWER, 1, b""),
        (77, 1, b""),
        (REQUEST, 0, b"\0\0\0\0"),
        (REQUEST, 1, b""),
        (REQUEST, 1, b"\xff\0\0\0"),
        (REQUEST, 1, b"\1\0\0\0\xc1"),
        (REQUEST, 1, request_of(b"", b"", b"\x90")),
        (REQUEST, 1, request_of(b"", b"", said(worker=-1))),
    ],
    ids=repr,
)
async def test_frames_that_break_a_rule(
    tmp_path: Path, store_server: StoreServer, frame: tuple[int, int, bytes]
) -> None:
    """They cost the connection that they come by."""
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        one = Visitor(hosts)
        await one.initialize("a")
        async with asking(hosts.ports["a"]) as end, asking(hosts.ports["a"]) as other:
            end.send(*frame)
            await end.over()
            other.send(STATE)
            assert (await other.frame())[2].startswith(b"up")
        assert await one.answer("a", "who") == "a"


async def test_requests_that_are_not_whole(tmp_path: Path, store_server: StoreServer) -> None:
    """Each is answered, and others of the connection go on."""
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        session = await Visitor(hosts).initialize("a")
        async with asking(hosts.ports["a"]) as end:
            for number, text in enumerate(
                (b"", b"GET /", b"POST /mcp HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}"), 1
            ):
                end.send(REQUEST, number, request_of(text, b"", said()))
                status, _, _ = await end.answer(number)
                assert status in (0, 400)
            end.send(REQUEST, 9, tool_call(session, "who", said()))
            assert (await end.answer(9))[0] == 200


async def test_a_client_that_does_not_read(tmp_path: Path, store_server: StoreServer) -> None:
    """Its stream waits at the host of the session; others of the connection go on."""
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        session = await Visitor(hosts).initialize("a")
        async with asking(hosts.ports["a"]) as end:
            end.send(REQUEST, 1, tool_call(session, "wait", said(), seconds=0.2))
            kind, number, _ = await end.frame()
            assert (kind, number) == (ANSWER, 1)
            end.send(PAUSE, 1)
            end.send(REQUEST, 2, tool_call(session, "who", said(), steps=1))
            frames = []
            while (kind, number) != (END, 2):
                kind, number, data = await end.frame()
                frames.append((number, data))
            await asyncio.sleep(0.4)
            assert not any(b'"result"' in data for number, data in frames if number == 1)
            end.send(RESUME, 1)
            rest = b""
            while (kind, number) != (END, 1):
                kind, number, data = await end.frame()
                rest += data
            assert b'"result"' in rest


async def test_a_client_that_leaves(tmp_path: Path, store_server: StoreServer) -> None:
    async with deployed(tmp_path, store_server.url, "a") as hosts:
        session = await Visitor(hosts).initialize("a")
        async with asking(hosts.ports["a"]) as end:
            end.send(REQUEST, 1, tool_call(session, "wait", said(), seconds=60))
            assert (await end.frame())[0] == ANSWER
            end.send(GONE, 1)
            end.send(GONE, 1)
            end.send(RESUME, 7)
            end.send(REQUEST, 2, tool_call(session, "who", said()))
            while (frame := await end.frame())[1] != 2:
                assert frame[0] == PART
            assert frame[0] == ANSWER


# -- what the host of the client does with answers -------------------------------------------------


async def test_answers_of_a_host(tmp_path: Path, store_server: StoreServer) -> None:
    """The client gets what is said; for what breaks off, an error that tells it so."""

    async def serve(end: End) -> None:
        while True:
            kind, number, data = await end.frame()
            if kind != REQUEST:
                continue
            text = data.partition(b"\r\n\r\n")[2]
            tool = json.loads(text)["params"]["name"]
            if tool == "whole":
                end.send(ANSWER, number, answer_of(200, 4, b"X-Of: x\r\n"))
                end.send(PART, number, b"wh")
                end.send(PART, number, b"ol")
                end.send(END, number)
            elif tool == "empty":
                end.send(ANSWER, number, answer_of(202, 0))
                end.send(END, number)
            elif tool in ("stream", "withdrawn"):
                end.send(ANSWER, number, answer_of(200, -1, b"Content-Type: text/event-stream\r\n"))
                end.send(PART, number, b"data: 1\n\n")
                if tool == "stream":
                    end.send(CUT, number)
                else:
                    end.send(LAST, number - 1)  # that it was not taken
            elif tool == "short":
                end.send(ANSWER, number, answer_of(200, 9))
                end.send(PART, number, b"sh")
                end.send(END, number)
            elif tool == "nothing":
                end.send(END, number)
            elif tool == "cut":
                end.send(CUT, number)

    async with deployed(tmp_path, store_server.url, "b") as hosts, answering(serve) as url:
        one = await join(store_server, hosts, url)
        whole = await one.call("b", "whole")
        assert (whole.status, whole.body, whole.headers["x-of"]) == (200, b"whol", "x")
        assert (await one.call("b", "empty")).status == 202
        for tool in ("stream", "withdrawn"):
            assert (await one.call("b", tool)).messages == [1]
        for tool in ("nothing", "cut"):
            lost = await one.call("b", tool)
            assert (lost.status, lost.json["error"]["code"]) == (200, -31006)
        peer = await one.send("b", body=call("short", {}, 1))
        with pytest.raises(h11.RemoteProtocolError):  # before the head, or in the body
            head = await peer.head()
            while await peer.more(head):
                pass


@pytest.mark.parametrize("way", ["close", "break", "last"])
async def test_a_connection_that_ends(tmp_path: Path, store_server: StoreServer, way: str) -> None:
    """What was sent may have run; what was not is decided anew."""
    served: list[tuple[int, int]] = []
    n_connections = 0

    async def serve(end: End) -> None:
        nonlocal n_connections
        n_connections += 1
        _, number, _ = await end.frame()
        served.append((n_connections, number))
        if n_connections > 1:
            end.send(ANSWER, number, answer_of(200, 2))
            end.send(PART, number, b"ok")
            end.send(END, number)
        elif way == "break":
            end.send(77)
        elif way == "last":
            end.send(LAST, 0)
        if n_connections == 1 and way == "close":
            return
        await end.over()

    async with deployed(tmp_path, store_server.url, "b") as hosts, answering(serve) as url:
        one = await join(store_server, hosts, url)
        first = await one.call("b", "who")
        if way == "last":  # it was not taken, so it is sent again
            assert (first.status, first.body) == (200, b"ok")
        else:
            assert (first.status, first.json["error"]["code"]) == (200, -31006)
            assert (await one.call("b", "who")).body == b"ok"
        assert [n for n, _ in served] == [1, 2]


@pytest.mark.parametrize("lie", ["name", "key"])
async def test_a_host_that_is_not_who_it_says(
    tmp_path: Path, store_server: StoreServer, lie: str
) -> None:
    async def serve(end: End) -> None:
        raise AssertionError("it gets no request")

    name, key = ("y", KEY) if lie == "name" else ("x", b"k" * 32)
    async with (
        deployed(tmp_path, store_server.url, "b") as hosts,
        answering(serve, name, key) as url,
    ):
        one = await join(store_server, hosts, url)
        assert (await one.call("b", "who")).status == 503
        why = "it has the name y" if lie == "name" else "it is not a member of this deployment"
        assert why in hosts.hosts["b"].log.read_text()


async def test_a_client_that_leaves_and_one_that_is_slow(
    tmp_path: Path, store_server: StoreServer
) -> None:
    """The host of the session is told, and streams of other clients go on."""
    heard: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    async def serve(end: End) -> None:
        async def flood(number: int) -> None:
            while True:
                end.send(PART, number, b":" + 60_000 * b"x" + b"\n\n")
                await end.writer.drain()
                await asyncio.sleep(0.001)

        flooding: dict[int, asyncio.Task[None]] = {}
        while True:
            kind, number, data = await end.frame()
            if kind == REQUEST and b'"who"' in data:
                end.send(ANSWER, number, answer_of(202, 0))
                end.send(END, number)
                continue
            if kind == REQUEST:
                stream = answer_of(200, -1, b"Content-Type: text/event-stream\r\n")
                end.send(ANSWER, number, stream)
                flooding[number] = asyncio.create_task(flood(number))
                continue
            heard.put_nowait((kind, number))
            if kind in (PAUSE, GONE):
                flooding.pop(number).cancel()

    async with deployed(tmp_path, store_server.url, "b") as hosts, answering(serve) as url:
        one = await join(store_server, hosts, url)
        slow = await one.send("b", body=call("flood", {}, 1))
        async with asyncio.timeout(20):
            assert await heard.get() == (PAUSE, 1)
            assert (await one.call("b", "who")).status == 202
            reading = asyncio.create_task(slow.response())
            assert await heard.get() == (RESUME, 1)
            reading.cancel()
            slow.close()
            assert await heard.get() == (GONE, 1)


# -- TLS -------------------------------------------------------------------------------------------


def _tls(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a host: for those that connect, who need a certificate, and for others."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=host"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    listening = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(cert))
    listening.verify_mode = ssl.CERT_REQUIRED
    connecting = ssl.create_default_context(cafile=str(cert))
    for context in (listening, connecting):
        context.load_cert_chain(cert, key)
    return listening, connecting


async def test_hosts_with_certificates(tmp_path: Path, store_server: StoreServer) -> None:
    """Each shows its own; one without is not let in, as no client is."""
    listening, connecting = _tls(tmp_path)

    async def host(stack: contextlib.AsyncExitStack, name: str, own: ssl.SSLContext) -> int:
        cluster = Cluster(store_server.url)
        server = Server("shop", cluster=cluster, state_secret=b"s" * 16)

        @server.tool
        async def who(steps: int = 0) -> str:
            return name

        port = free_port()
        url = f"https://127.0.0.1:{port}"
        hosts = SessionHosts(cluster, "shop", url, secret=b"s" * 16, ssl=own)
        options = HttpOptions(name=name, directory=hosts)
        await stack.enter_async_context(
            serving(server, url=f"{url}/mcp", ssl=listening, http=options)
        )
        return port

    def ask(port: int, body: bytes, session: str | None) -> tuple[int, str | None, bytes]:
        way = http.client.HTTPSConnection("127.0.0.1", port, context=connecting, timeout=20)
        fields = {"Content-Type": "application/json", "Accept": BOTH}
        if session is not None:
            fields |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
        with contextlib.closing(way):
            way.request("POST", "/mcp", body, fields)
            response = way.getresponse()
            return response.status, response.headers["mcp-session-id"], response.read()

    async with contextlib.AsyncExitStack() as stack:
        without = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        ports = [
            await host(stack, name, own)
            for name, own in (("a", connecting), ("b", connecting), ("c", without))
        ]
        hello = {"protocolVersion": LEGACY, "capabilities": {}}
        hello["clientInfo"] = {"name": "one", "version": "1"}
        status, session, _ = await asyncio.to_thread(
            ask, ports[0], message("initialize", hello, 0), None
        )
        assert status == 200
        await asyncio.sleep(1.5)  # the others have read of a
        for port, expected in zip(ports, (200, 200, 503), strict=True):
            status, _, body = await asyncio.to_thread(ask, port, call("who"), session)
            assert status == expected
            assert (b'"text":"a"' in body) == (expected == 200)

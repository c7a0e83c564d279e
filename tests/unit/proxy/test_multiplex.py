"""Five id spaces: what clients call alike stays apart, and comes back as they wrote it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
import websockets
from lab.proxy import MODERN, Lab, call, said
from websockets.typing import Subprotocol

from wirespeed.proxy import Proxy, ProxyConfig

# off_schema: the proxy passes on what its test servers say, which is not always in the schema.
pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

# Isolation, the versions that the server speaks, and the one that clients use.
CASES = (
    ("shared", "", "2025-11-25"),
    ("shared", MODERN, MODERN),
    ("session", "", "2025-11-25"),
    ("session", MODERN, MODERN),
)
# JSON texts of ids: integers, beyond 64 bits, strings that look like numbers, with escapes.
IDS = ("1", '"1"', "123456789012345678901234567890", r'"a\u0062"', "0", "-7", r'"\"}"')


@pytest.mark.parametrize(("isolation", "versions", "version"), CASES)
async def test_the_same_ids_and_tokens_of_many_clients(
    tmp_path: Path, isolation: str, versions: str, version: str
) -> None:
    lab = Lab(tmp_path, isolation, versions=versions)

    async def client(n: int) -> None:
        one = await lab.connect(version)
        texts = [
            one.text_of(call(0, "echo", "t", nonce=f"{n}/{k}")).replace('"id": 0', f'"id": {id}')
            for k, id in enumerate(IDS)
        ]
        await one.send(*texts)
        for k, id in enumerate(IDS):
            progress, answer = await one.text(), await one.text()
            assert json.loads(progress)["params"] == {
                "progressToken": "t",
                "progress": 1,
                "message": f"{n}/{k}",
            }
            assert f'"id": {id},' in answer  # the text, not only the value
            assert said(json.loads(answer))["nonce"] == f"{n}/{k}"
        await one.close()

    async with lab.serving():
        await asyncio.gather(*(client(n) for n in range(12)))
    ids = [m["id"] for m in lab.read("tools/call")]
    if isolation == "shared":
        assert len(set(ids)) == len(ids) == 12 * len(IDS)
    n_servers = 1 if isolation == "shared" else 12
    assert len(lab.read("initialize")) == (0 if versions else n_servers)


@pytest.mark.parametrize(("isolation", "versions", "version"), CASES)
async def test_an_id_is_free_again_after_the_answer(
    tmp_path: Path, isolation: str, versions: str, version: str
) -> None:
    lab = Lab(tmp_path, isolation, versions=versions)
    async with lab.serving():
        one = await lab.connect(version)
        for n in range(50):
            assert said(await one.ask(call(7, "echo", nonce=n)))["nonce"] == n
        await one.send(call(7, "hold", "t", **{"as": "x"}))
        assert (await one.recv())["params"]["progressToken"] == "t"
        refused = await one.ask(call(7, "echo"))
        assert refused["id"] == 7
        assert refused["error"]["code"] == -32600
        await one.send(call(8, "free", **{"as": "x"}))
        assert (await one.recv())["params"]["progress"] == 2
        assert said(await one.recv()) == {"said": "x"}
        assert (await one.recv())["id"] == 8  # the second answer to 7 is dropped
        await one.silent()


@pytest.mark.parametrize(("isolation", "versions", "version"), CASES)
async def test_a_cancellation_names_the_server_s_id(
    tmp_path: Path, isolation: str, versions: str, version: str
) -> None:
    lab = Lab(tmp_path, isolation, versions=versions)
    async with lab.serving():
        one, two = await lab.connect(version), await lab.connect(version)
        for client in (one, two):
            await client.send(call("x", "hold", 5, **{"as": str(id(client))}))
            await client.recv()
        await one.send(
            '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1048577}}',
            '{"jsonrpc":"2.0","method":"notifications/cancelled",'
            '"params":{"reason":"why","requestId":"x","more":[1]}}',
        )
        (cancelled,) = await lab.until_read("notifications/cancelled", 1)
        first, _ = lab.read("tools/call")
        assert cancelled["params"] == {"reason": "why", "requestId": first["id"], "more": [1]}
        assert said(await one.ask(call("x", "echo", nonce=1)))["nonce"] == 1
        await two.send(call("y", "free", **{"as": str(id(two))}))
        assert (await two.recv())["params"]["progressToken"] == 5
        assert said(await two.recv()) == {"said": str(id(two))}


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_what_a_client_left_behind_reaches_nobody(tmp_path: Path, version: str) -> None:
    lab = Lab(tmp_path, "shared", versions=f"2025-11-25 {MODERN}")
    async with lab.serving():
        one = await lab.connect(version)
        await one.send(call(1, "hold", 1, **{"as": "left"}))
        await one.recv()
        await one.close()
        (cancelled,) = await lab.until_read("notifications/cancelled", 1)
        assert cancelled["params"]["requestId"] == lab.read("tools/call")[0]["id"]
        two = await lab.connect(version)
        await two.send(call(1, "hold", 1, **{"as": "mine"}))
        assert (await two.recv())["params"]["message"] == "mine"
        assert (await two.ask(call(2, "free", **{"as": "left"})))["id"] == 2
        await two.silent()


async def test_a_batch(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        one = await lab.connect("2025-03-26")
        batch = [call(1, "echo", nonce="a"), call("1", "echo", nonce="b")]
        answers = await one.ask(json.dumps(batch))
        assert {(m["id"], said(m)["nonce"]) for m in answers} == {(1, "a"), ("1", "b")}
        two = await lab.connect()
        refused = await two.ask(json.dumps(batch))
        assert refused["error"]["code"] == -32600


@pytest.mark.parametrize("size", [100, 5_000, 1 << 20])
async def test_the_rest_of_a_message_stays_as_it_is(tmp_path: Path, size: int) -> None:
    lab = Lab(tmp_path, "shared")
    text = "\\u00e9\u00e9" * (size // 4)
    async with lab.serving():
        one = await lab.connect()
        for id in ("1", '"' + "i" * 1000 + '"'):
            await one.send(
                f'{{ "x":1e5,"params" :{{"name":"echo","_meta":{{"progressToken": {id},"a":null}},'
                f'"arguments":{{"nonce":"{text}"}}}},"method":"tools\\/call","id": {id} ,'
                '"jsonrpc":"2.0"}'
            )
            progress, answer = await one.recv(), await one.recv()
            assert progress["params"]["progressToken"] == answer["id"] == json.loads(id)
            assert said(answer)["nonce"] == "éé" * (size // 4)
    lines = [line for line in lab.seen.read_text().splitlines() if "1e5" in line]
    number = re.compile(r"\d+")
    for line in lines:
        sent = json.loads(line)
        assert sent["params"]["_meta"]["progressToken"] == sent["id"]
        before, after = line.split(f'"nonce":"{text}"')
        assert number.sub("N", before) == (
            '{ "x":NeN,"params" :{"name":"echo","_meta":{"progressToken": N,"a":null},"arguments":{'
        )
        assert number.sub("N", after) == '}},"method":"tools\\/call","id": N ,"jsonrpc":"N.N"}'


async def test_a_message_of_several_lines(tmp_path: Path) -> None:
    """A WebSocket message may hold newlines between its tokens; a line must not."""
    lab = Lab(tmp_path, "shared")
    config = ProxyConfig(backends=lab.proxy.config.backends, listen=("ws://127.0.0.1:0/mcp",))
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        Proxy(config).serve(on_listening=lambda urls: listening.set_result(urls[0]))
    )
    try:
        async with websockets.connect(await listening, subprotocols=[Subprotocol("mcp")]) as ws:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
            for size in (10, 10_000):
                message = call("a\nb", "echo", nonce="n" * size)
                for first in (
                    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
                    message,
                ):
                    await ws.send(json.dumps(first, indent=2).replace("\n", "\r\n"))
                    answer = json.loads(await ws.recv())
                assert answer["id"] == "a\nb"
                assert said(answer)["nonce"] == "n" * size
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


async def test_a_question_of_the_server(tmp_path: Path) -> None:
    """With a server of its own, a client is asked: the ids of the server's requests stay apart from
    its own."""
    lab = Lab(tmp_path, "session")
    async with lab.serving():
        one = await lab.connect()
        for id in (3, "3", 2**70):
            await one.send(call(3, "ask", its=id, method="sampling/createMessage"))
            question = await one.recv()
            assert question["method"] == "sampling/createMessage"
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"role": "assistant"}}
            got = await one.ask(answer)
            assert got["id"] == 3
            assert said(got)["got"] == {**answer, "id": id}


async def test_a_notification_of_each_side_passes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "session")
    async with lab.serving():
        one = await lab.connect()
        await one.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await lab.until_read("notifications/roots/list_changed", 1)
        said = {"level": "info", "data": "x"}
        await one.send(call(1, "note", method="message", params=said))
        assert await one.recv() == {
            "jsonrpc": "2.0",
            "method": "notifications/message",
            "params": said,
        }
        assert (await one.recv())["id"] == 1

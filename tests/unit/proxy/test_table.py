"""What clients of one server may see of each other, row by row: docs/explanation/multiplexing.md.

Each test is a row of the table there, for every isolation, front and era. Clients use the same ids
and tokens at the same time, again at once after an answer, and after a client that left.
"""

from __future__ import annotations

import asyncio
import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from lab.front import Case, FrontLab
from lab.proxy import MODERN, Raw, call, said

from wirespeed.protocol.codes import SERVER_LOST
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID

# off_schema: the proxy passes on what its test servers say, which is not always in the schema.
pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

LEGACY = "2025-11-25"
CASES = [
    Case(front, isolation, version)
    for front in ("unix", "ws", "http", "sse", "stdio")
    for isolation in ("session", "shared", "pool")
    for version in (LEGACY, MODERN)
    # a client of 2026-07-28 has no session over HTTP, and HTTP+SSE is older
    if not (version == MODERN and (front == "sse" or (front, isolation) == ("http", "session")))
]
BATCHES = [case._replace(version="2025-03-26") for case in CASES if not case.is_modern]
# JSON texts of ids and tokens.
IDS = {
    "integers": ("1", "0", "-7"),
    "strings": ('"1"', '"b c"', '"é"'),
    "beyond 64 bits": ("18446744073709551616", "-123456789012345678901234567890"),
    "escaped": (r'"a\u0062"', r'"\"}\\"', r'"\ud83d\ude00\/"'),
}
every_case = pytest.mark.parametrize("case", CASES, ids=str)


async def connected(lab: FrontLab, n: int) -> list[Raw]:
    """So many clients; on stdio there is one."""
    return [await lab.connect() for _ in range(1 if lab.case.front == "stdio" else n)]


def spelled(client: Raw, message: dict[str, Any], id: str, token: str | None = None) -> str:
    """A request whose id and token are these JSON texts, in the places of 0 and "t"."""
    text = client.text_of(message).replace('"id": 0', f'"id": {id}')
    return (
        text if token is None else text.replace('"progressToken": "t"', f'"progressToken": {token}')
    )


async def until(client: Raw, id: str) -> tuple[list[str], str]:
    """What comes before an answer, and the answer, which has the id as it was spelled."""
    notes: list[str] = []
    while True:
        text = await client.text()
        message = json.loads(text)
        if "method" not in message and message.get("id") == json.loads(id):
            assert f'"id": {id},' in text or f'"id":{id},' in text
            return notes, text
        notes.append(text)


async def echoed(client: Raw, id: str, nonce: str, token: str = '"t"') -> int:
    """Call a tool, whose progress and answer come back. Returns the process that has answered."""
    await client.send(spelled(client, call(0, "echo", "t", nonce=nonce), id, token))
    notes, answer = await until(client, id)
    assert len(notes) == 1
    assert f'"progressToken": {token},' in notes[0]
    assert json.loads(notes[0])["params"]["message"] == nonce
    assert said(json.loads(answer))["nonce"] == nonce
    return int(said(json.loads(answer))["pid"])


async def held(client: Raw, id: str, name: str, token: str = '"t"') -> None:
    """Have a request in flight. The server says that it has it."""
    await client.send(spelled(client, call(0, "hold", "t", **{"as": name}), id, token))
    note = await client.text()
    assert f'"progressToken": {token},' in note
    assert json.loads(note)["params"]["message"] == name


async def freed(client: Raw, name: str, case: Case) -> list[str]:
    """Let the server answer a request. Returns what this client is told meanwhile."""
    told = []
    for process in range(2 if case.isolation == "pool" and case.is_modern else 1):
        message = call(0, "free", **{"as": name})
        if case.isolation == "pool" and case.is_modern:  # to each process in turn
            message["params"]["requestState"] = f"{process}~"
        await client.send(spelled(client, message, '"free"'))
        notes, _ = await until(client, '"free"')
        told += notes
    return told


async def by_process(clients: list[Raw]) -> dict[int, list[Raw]]:
    """Clients of a legacy era by the process that they have."""
    found: dict[int, list[Raw]] = {}
    for client in clients:
        found.setdefault(await echoed(client, "1", "who"), []).append(client)
    return found


@every_case
async def test_ids(tmp_path: Path, case: Case) -> None:
    lab = FrontLab(tmp_path, case)
    async with lab.serving():
        clients = await connected(lab, 3)
        for n, ids in enumerate(IDS.values(), 1):

            async def work(client: Raw, name: str, ids: tuple[str, ...] = ids) -> None:
                for turn in range(2):
                    for id in ids:
                        await echoed(client, id, f"{name}/{turn}")

            await asyncio.gather(*(work(client, str(n)) for n, client in enumerate(clients)))
            if case.front == "stdio":
                continue
            for client in clients[:2]:  # they leave with requests in flight
                await held(client, ids[0], "left")
                await client.close()
                lab.clients.remove(client)
            clients = [clients[2], await lab.connect()]
            await asyncio.gather(work(clients[0], "stayed"), work(clients[1], "new"))
            await lab.until_read("notifications/cancelled", 2 * n)
            clients.append(await lab.connect())


@every_case
async def test_progress(tmp_path: Path, case: Case) -> None:
    lab = FrontLab(tmp_path, case)
    async with lab.serving():
        clients = await connected(lab, 2)
        for token in chain.from_iterable(IDS.values()):
            for n, client in enumerate(clients):
                await held(client, "5", f"{n}", token)
            for n, client in reversed(list(enumerate(clients))):
                told = await freed(client, f"{n}", case)
                while len(told) < 2:
                    told.append(await client.text())
                progress, answer = sorted(told, key=lambda text: '"method"' not in text)
                assert f'"progressToken": {token},' in progress
                assert json.loads(progress)["params"]["progress"] == 2
                assert json.loads(answer)["id"] == 5
                assert said(json.loads(answer)) == {"said": f"{n}"}
        for client in clients:
            await client.silent()


@every_case
async def test_cancellation(tmp_path: Path, case: Case) -> None:
    lab = FrontLab(tmp_path, case)
    async with lab.serving():
        clients = await connected(lab, 2)
        for n, client in enumerate(clients):
            await held(client, r'"\u0078"', f"{n}")
        one = clients[0]
        cancellation = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await one.send({**cancellation, "params": {"requestId": "x"}})
        (told,) = await lab.until_read("notifications/cancelled", 1)
        (request,) = [m for m in lab.read("tools/call") if m["params"]["arguments"]["as"] == "0"]
        assert told["params"]["requestId"] == request["id"]
        await echoed(one, '"x"', "again")  # its id and token are free
        assert await freed(one, "0", case) == []
        for client in clients[1:]:
            told = await freed(client, "1", case)
            while len(told) < 2:
                told.append(await client.text())
            (answer,) = [text for text in told if '"method"' not in text]
            assert said(json.loads(answer)) == {"said": "1"}
        for client in clients:
            await client.silent()


@every_case
async def test_questions_of_the_server(tmp_path: Path, case: Case) -> None:
    """With a server of its own, a client is asked. Clients that share one are not."""
    lab = FrontLab(tmp_path, case)
    async with lab.serving():
        clients = await connected(lab, 2)
        for its in (3, "3", 2**70, "é"):
            for client in clients:
                await client.send(call(3, "ask", its=its, method="sampling/createMessage"))
                if case.isolation == "session":
                    question = await client.recv()
                    assert question["method"] == "sampling/createMessage"
                    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"role": "user"}}
                    await client.send(json.dumps(answer))
                elif case.is_modern:  # it may not ask: nobody answers
                    await echoed(client, "4", "after")
                    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
                    await client.send({**cancelled, "params": {"requestId": 3}})
                    continue
                _, text = await until(client, "3")
                got = said(json.loads(text))["got"]
                assert got["id"] == its
                if case.isolation == "session":
                    assert got["result"] == {"role": "user"}
                else:
                    assert got["error"]["code"] == -32601
        for client in clients:
            await client.silent()


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_modern], ids=str)
async def test_what_a_server_says_unasked(tmp_path: Path, case: Case) -> None:
    """List changes are for all clients of a server, updates for subscribers, log messages for a
    client that is alone."""
    lab = FrontLab(tmp_path, case)

    async def say(client: Raw, hearers: list[Raw], method: str, **params: Any) -> None:
        await client.send(call(0, "note", method=method, params=params))
        answer = asyncio.ensure_future(until(client, "0"))
        for hearer in hearers:
            if hearer is not client:
                assert (await hearer.recv())["params"] == params
        notes, _ = await answer
        if client in hearers and not notes:  # over HTTP it may come by another connection
            notes = [await client.text()]
        assert [json.loads(note)["params"] for note in notes] == [params] * (client in hearers)

    async with lab.serving():
        clients = await connected(lab, 3)
        groups = list((await by_process(clients)).values())
        assert sorted(map(len, groups)) == {
            "session": [1] * len(clients), "shared": [len(clients)], "pool": [1, 2][-len(clients) :]
        }[case.isolation] or case.front == "stdio"  # fmt: skip
        for group in groups:
            one = group[-1]
            await say(one, group, "tools/list_changed", of=1)
            await say(one, group if len(group) == 1 else [], "message", level="error", data="x")
            subscribe = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe"}
            await group[0].send({**subscribe, "params": {"uri": "u:1"}})
            await until(group[0], "2")
            await say(one, [group[0]], "resources/updated", uri="u:1")
            await say(
                one, [] if case.isolation != "session" else [one], "resources/updated", uri="u:2"
            )
        for client in clients:
            await client.silent()


@pytest.mark.parametrize("case", [case for case in CASES if case.is_modern], ids=str)
async def test_what_a_server_says_to_subscriptions(tmp_path: Path, case: Case) -> None:
    """Each client has its own, all with one id. A log message is for a client that is alone."""
    lab = FrontLab(tmp_path, case)
    listen = {"notifications": {"toolsListChanged": True}}
    async with lab.serving():
        clients = await connected(lab, 2)
        for client in clients:
            request = {
                "jsonrpc": "2.0",
                "id": 0,
                "method": "subscriptions/listen",
                "params": listen,
            }
            await client.send(spelled(client, request, r'"s\u0031"'))
            acknowledged = await client.text()
            assert '"s\\u0031"' in acknowledged
        for client in clients:
            hearers = [client] if case.isolation == "session" else clients
            await client.send(call(0, "change"))
            # over HTTP each message comes by the connection of its request
            heard = {id(hearer): 0 for hearer in hearers} | {id(client): 0}
            answered = False
            for hearer in hearers:
                while heard[id(hearer)] < 2 or (hearer is client and not answered):
                    text = await hearer.text()
                    if "method" in json.loads(text):
                        assert '"s\\u0031"' in text
                        assert json.loads(text)["params"]["_meta"][META_SUBSCRIPTION_ID] == "s1"
                        heard[id(hearer)] += 1
                    else:
                        answered = True
        one = clients[-1]
        line = {"level": "error", "data": "x"}
        await one.send(call(0, "note", method="message", params=line))
        notes, _ = await until(one, "0")
        alone = case.isolation == "session" or (len(clients) == 1 and case.front != "http")
        assert len(notes) == alone
        for client in clients:
            await client.silent()


@pytest.mark.parametrize("case", [case for case in CASES if not case.is_modern], ids=str)
async def test_tasks(tmp_path: Path, case: Case) -> None:
    """A task is known to the client that has made it, and to no other one. Each process counts its
    tasks from 1."""
    lab = FrontLab(tmp_path, case)

    async def ask(client: Raw, method: str, **params: Any) -> Any:
        await client.send({"jsonrpc": "2.0", "id": 0, "method": method, "params": params})
        return json.loads((await until(client, "0"))[1])

    async with lab.serving():
        clients = await connected(lab, 3)
        made = [await ask(one, "tools/call", name="make", task={}) for one in clients]
        ids = [answer["result"]["task"]["taskId"] for answer in made]
        assert (
            sorted(ids)
            == {"session": ["1", "1", "1"], "pool": ["1", "1", "2"]}.get(
                case.isolation, ["1", "2", "3"]
            )[: len(clients)]
        )
        for client, its in zip(clients, ids, strict=True):
            (listed,) = (await ask(client, "tasks/list"))["result"]["tasks"]
            assert listed["taskId"] == its
            for other in ("1", "2", "3", "4"):
                for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                    answer = await ask(client, method, taskId=other)
                    if other == its or case.isolation == "session":
                        assert "result" in answer
                    else:
                        assert answer["error"]["code"] == -32602


@every_case
async def test_crash(tmp_path: Path, case: Case) -> None:
    """Requests in flight fail once. A client with a server of its own leaves, and others do not
    notice; a shared server is started again."""
    lab = FrontLab(tmp_path, case)
    async with lab.serving():
        clients = await connected(lab, 3)
        for n, client in enumerate(clients):
            await held(client, "1", f"{n}")
        one, *others = clients
        await one.send(call(2, "crash"))
        notes, error = await until(one, "2")
        assert json.loads(error)["error"]["code"] == SERVER_LOST
        if case.isolation == "session":
            notes = notes or [await one.text()]
            assert [json.loads(note)["id"] for note in notes] == [1]
            await one.ended()
        else:
            others = clients
        for n, client in enumerate(clients):
            if client not in others:
                continue
            told = notes if client is one else []
            told += await freed(client, f"{n}", case)
            while not (ends := [json.loads(text) for text in told if '"method"' not in text]):
                told.append(await client.text())
            (end,) = ends
            assert end["id"] == 1
            if "error" in end:
                assert end["error"]["code"] == SERVER_LOST
            assert case.isolation == "pool" or ("error" in end) == (case.isolation == "shared")
        for client in others:
            await echoed(client, "7", "back")
            await client.silent()


@pytest.mark.parametrize("case", BATCHES, ids=str)
async def test_batches(tmp_path: Path, case: Case) -> None:
    lab = FrontLab(tmp_path, case)
    texts = [text for found in IDS.values() for text in found]
    async with lab.serving():
        clients = await connected(lab, 3)

        async def work(client: Raw, name: str) -> None:
            for turn in range(2):
                batch = [
                    spelled(client, call(0, "echo", nonce=f"{name}/{turn}/{k}"), id)
                    for k, id in enumerate(texts)
                ]
                await client.send(f"[{','.join(batch)}]")
                answer = await client.text()
                found = {json.dumps(m["id"]): said(m)["nonce"] for m in json.loads(answer)}
                assert found == {
                    json.dumps(json.loads(id)): f"{name}/{turn}/{k}" for k, id in enumerate(texts)
                }
                assert all(f'"id": {id},' in answer for id in texts)

        await asyncio.gather(*(work(client, str(n)) for n, client in enumerate(clients)))

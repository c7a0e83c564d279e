"""Where parts of the proxy meet: limits, translation, and texts that Python cannot hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.proxy import MODERN, Lab, call, said
from lab.translation import EraLab, request, tool
from lab.wording import raises

from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.proxy import FlowConfig
from wirespeed.proxy.downstream import DeferredRequest, Downstream
from wirespeed.proxy.own_requests import CANCELLED

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

WAITS_FOR_A_FILE = """import os, time
while not os.path.exists("{path}"):
    time.sleep(0.01)
"""
LIST = {"jsonrpc": "2.0", "id": "list", "method": "tools/list"}
SURROGATE = '"\\ud800"'
HELLO = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":{},"clientInfo":{"name":%s,"version":"1"}}}'
)


async def until(found: Callable[[], Any]) -> Any:
    """Wait until there is something, and return it."""
    while not (it := found()):
        await asyncio.sleep(0.01)
    return it


@pytest.mark.parametrize("text", [SURROGATE, "1e400"])
async def test_a_greeting_that_python_cannot_hold(tmp_path: Path, text: str) -> None:
    """It is refused, and the server stays for the others."""
    lab = Lab(tmp_path, "shared", era="legacy")
    async with lab.serving():
        bad = await lab.connect(None)
        good = await lab.connect()
        assert "error" in await bad.ask(HELLO % text)
        await good.send(call(1, "crash"))
        assert (await good.recv())["error"]["code"] == -31004
        late = await lab.connect(None)
        await late.send(HELLO % text)  # it waits for the next server
        assert "error" in await late.recv()
        assert said(await good.ask(call(2, "echo", nonce=2)))["nonce"] == 2


@pytest.mark.parametrize("code", ["[]", "null", '"x"', "1e400", "1099511627776"])
async def test_an_error_whose_code_is_none(tmp_path: Path, code: str) -> None:
    """A server that refuses to say its era so is of a legacy one, and its client is served."""
    lab = Lab(tmp_path, "session")
    script = tmp_path / "backend.py"
    script.write_text(
        script.read_text().replace(
            """send({"jsonrpc": "2.0", "id": i, "error": {"code": -32601, "message": "no"}})""",
            f"""send('{{"jsonrpc":"2.0","id":%d,"error":{{"code":{code},"message":"no"}}}}' % i)""",
        )
    )
    async with lab.serving():
        one = await lab.connect(MODERN)
        assert "result" in await one.ask(LIST)
        assert len(lab.read("server/discover")) == 1


async def test_a_fault_of_the_proxy_at_the_era_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that has caused the question gets an error, and does not wait for ever."""

    async def fails(*args: Any) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr("wirespeed.proxy.isolation.per_client.discover", fails)
    lab = Lab(tmp_path, "session")
    async with lab.serving():
        one = await lab.connect(MODERN)
        for _ in range(2):
            assert (await one.ask(LIST))["error"] == {"code": -32603, "message": "Internal error"}


async def test_a_hello_without_meaning(tmp_path: Path) -> None:
    """Such a server is started again, and the clients wait for it."""
    lab = Lab(tmp_path, "shared", era="legacy")
    script = tmp_path / "backend.py"
    works = script.read_text()
    async with lab.serving():
        one, late = await lab.connect(), await lab.connect(None)
        script.write_text(works.replace("capabilities={", 'capabilities=["tools"], was={'))
        assert "error" in await one.ask(call(1, "crash"))
        await late.send(HELLO % '"late"')
        (supervisor,) = lab.assignment.supervisors
        await until(lambda: "capabilities" in supervisor.status.error)
        script.write_text(works)
        assert "tools" in (await late.recv())["result"]["capabilities"]
        assert said(await one.ask(call(2, "echo", nonce=2)))["nonce"] == 2


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_an_error_that_python_cannot_hold(tmp_path: Path, version: str) -> None:
    """It passes as it came, and the request has ended for the limits."""
    flow = {"flow": FlowConfig(max_in_flight=1)}
    lab = Lab(tmp_path, "shared", versions=f"2025-11-25 {MODERN}", config=flow)
    async with lab.serving():
        one = await lab.connect(version)
        for data in (SURROGATE, "1e400"):
            error = f'{{"code":-5,"message":"m","data":{data}}}'
            text = f'{{"jsonrpc":"2.0","id":"$id","error":{error}}}'
            await one.send(call(1, "fail", text=text))
            assert data in await one.text()
        assert said(await one.ask(call(2, "echo", nonce=2)))["nonce"] == 2


@pytest.mark.parametrize("waits", [True, False])
async def test_a_cursor_that_python_cannot_hold(
    tmp_path: Path, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes to a process of the pool as it came, and what waits with it is not lost."""
    lab = Lab(tmp_path, "pool", versions=MODERN, size=2)
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        if waits:
            await one.send(call(0, "crash"))
            assert (await one.recv())["error"]["code"] == -31004
        await one.send({**LIST, "params": {"cursor": "x\ud800"}})
        await two.send(LIST)
        assert (await one.recv())["result"]["_meta"] == {"cursor": "x\ud800"}
        assert (await two.recv())["result"]["nextCursor"][1] == "~"
        assert lab.assignment.supervisors[0].status.restarts == waits
    assert "internal error" not in caplog.text


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_fault_of_the_proxy_at_a_request_that_waits(
    tmp_path: Path,
    version: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is for the client of that request, not for the server and the others."""
    pass_request = Downstream.pass_request

    def fails(front: Downstream, message: Any, *args: Any, **options: Any) -> None:
        if b"faulty" in bytes(message.params):
            raise ValueError("a fault")
        pass_request(front, message, *args, **options)

    monkeypatch.setattr(Downstream, "pass_request", fails, raising=False)
    lab = Lab(tmp_path, "shared", versions=f"2025-11-25 {MODERN}")
    async with lab.serving():
        one, two = await lab.connect(version), await lab.connect(version)
        await one.send({**LIST, "params": {"_meta": {"faulty": 1, "once": "x"}}})
        await lab.until_read("tools/list", 1)
        await two.send({**LIST, "params": {"_meta": {"once": "x"}}})
        error = {"code": -32603, "message": "Internal error"}
        assert await one.recv() == {"jsonrpc": "2.0", "id": "list", "error": error}
        assert "result" in await two.recv()
    assert caplog.text.count("a fault") == 1
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("where", ["the pool", "an instance", "a translator"])
async def test_requests_that_wait_for_a_server_may_be_given_up(tmp_path: Path, where: str) -> None:
    """Then nothing of them is kept."""
    versions = "" if where == "a translator" else MODERN
    lab = Lab(tmp_path, "shared", versions=versions, shutdown_grace=0.2)
    script = tmp_path / "backend.py"
    late = WAITS_FOR_A_FILE.format(path=tmp_path / "go") + script.read_text()
    if where == "the pool":
        script.write_text(late)
        lab.proxy.services["b"].is_alone = False  # so that its start is not waited for
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        if where != "the pool":
            assert "result" in await one.ask(LIST)
            script.write_text(late)
            assert "error" in await one.ask(call(1, "crash"))
        if where == "a translator":
            one = await lab.connect(MODERN)  # which has not met the server yet

        def waiting() -> Any:
            if where == "the pool":
                return lab.assignment._waiting
            if where == "an instance":
                return lab.assignment.modern[0]._waiting
            return front.router._waiting  # type: ignore[attr-defined]

        for n in range(100):
            gone = {"requestId": n}
            await one.send(
                {**LIST, "id": n},
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone},
            )
        await one.send({**LIST, "id": "stays"})
        (front,) = await until(
            lambda: [
                each
                for each in lab.fronts
                if each.session.cancelled_in == 100 and each.session.inflight.live == 1
            ]
        )
        assert len(waiting()) == 1
        if where != "a translator":  # which is the client's own
            await two.send(LIST)
            await until(lambda: len(waiting()) == 2)
            await two.close()
            await until(lambda: len(waiting()) == 1)
        (tmp_path / "go").touch()
        assert (await one.recv())["id"] == "stays"


async def test_the_last_word_on_a_subscription_that_python_cannot_hold(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", versions=MODERN)
    async with lab.serving():
        one = await lab.connect(MODERN)
        params = {"notifications": {"toolsListChanged": True}}
        await one.send(
            {"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": params}
        )
        assert (await one.recv())["method"] == "notifications/subscriptions/acknowledged"
        listening = (await lab.until_read("subscriptions/listen", 1))[0]["id"]
        result = f'{{"resultType":"complete","said":{SURROGATE}}}'
        text = f'{{"jsonrpc":"2.0","id":{listening},"result":{result}}}'
        await one.send(call(1, "raw", text=text))
        last = await one.recv()
        assert last["id"] == "s" and last["result"]["_meta"] == {META_SUBSCRIPTION_ID: "s"}
        assert (await one.recv())["id"] == 1


async def test_a_client_changes_its_era_with_a_request_in_flight(tmp_path: Path) -> None:
    """The limits know of both requests until they end."""
    config: dict[str, Any] = {"flow": FlowConfig(max_in_flight=8)}
    lab = Lab(tmp_path, "pool", versions=MODERN, config=config)
    async with lab.serving():
        one = await lab.connect(MODERN)
        await one.send(call(1, "hold", "t", **{"as": "x"}))
        assert (await one.recv())["params"]["progress"] == 1
        one.is_modern = False
        assert "result" in await one.initialize()
        await one.close()
        flow = lab.proxy.services["b"].flow
        assert flow is not None
        async with asyncio.timeout(10):
            while flow.n_in_flight:
                await asyncio.sleep(0.01)


async def test_a_client_changes_its_era_while_the_server_works_for_it(tmp_path: Path) -> None:
    """What the server says of that request is not for the one client that stays in the era."""
    lab = Lab(tmp_path, "shared", versions=f"2025-11-25 {MODERN}", shutdown_grace=0.2)
    line = {"level": "warning", "data": "secret of one"}
    async with lab.serving():
        one, two = await lab.connect(MODERN), await lab.connect(MODERN)
        await one.send(call(1, "hold", "t", **{"as": "x"}))
        assert (await one.recv())["params"]["progress"] == 1
        one.is_modern = False
        assert "result" in await one.initialize()
        assert (await two.ask(call(1, "note", method="message", params=line)))["id"] == 1
        await one.close()
        while len(lab.fronts) > 1:
            await asyncio.sleep(0.01)
        assert (await two.ask(call(2, "note", method="message", params=line)))["id"] == 2
        assert lab.assignment.modern[0].dropped["not attributed"] == 2


async def test_a_round_that_nobody_ends_frees_its_place(tmp_path: Path) -> None:
    config: dict[str, Any] = {"flow": FlowConfig(max_in_flight=1)}
    lab = Lab(tmp_path, "session", era="legacy", config=config)
    async with lab.serving():
        for _ in range(2):
            one = await lab.connect(MODERN)
            message = call(1, "ask", its=3, method="roots/list")
            message["params"]["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
            }
            one.is_modern = False
            got = await one.ask(message)
            assert got["result"]["resultType"] == "input_required"
            await one.close()
            flow = lab.proxy.services["b"].flow
            assert flow is not None
            async with asyncio.timeout(10):
                while flow.n_in_flight or flow.n_clients:
                    await asyncio.sleep(0.01)


# A server that writes `text` again and again, and reads nothing meanwhile.
FLOODING = """
import os, sys

hello = (
    '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    '"serverInfo":{"name":"x","version":"1"}}}\\n'
)
for line in sys.stdin:
    if '"initialize"' in line:
        sys.stdout.write(hello % line.partition('"id":')[2].split(",")[0].rstrip("}\\n"))
        sys.stdout.flush()
    elif '"tools/call"' in line:
        break
n = 0
while True:
    lines = b""
    for n in range(n, n + 500):
        lines += b'{"jsonrpc":"2.0","id":%d,"method":"%s"}\\n' % (n, os.environb[b"METHOD"])
    n += 1
    os.write(1, lines)
"""


@pytest.mark.parametrize("isolation", ["shared", "session"])
@pytest.mark.parametrize("method", ["ping", "sampling/createMessage"])
async def test_a_server_that_asks_and_does_not_read(
    tmp_path: Path, method: str, isolation: str
) -> None:
    """It is ended, before the proxy keeps more for it than its limit."""
    lab = Lab(tmp_path, isolation, era="legacy", env={"METHOD": method})
    (tmp_path / "backend.py").write_text(FLOODING)
    async with lab.serving():
        one = await lab.connect()
        sessions: set[Any] = set()
        sizes: list[int] = []

        async def watch() -> None:
            while True:
                sessions.update(
                    up.upstream.session for up in lab.assignment.supervisors if up.upstream
                )
                for session in sessions:  # also of one that has ended
                    sizes.append(session.outbox.size)
                    assert session.counters["requests_in_flight"] <= 3 * 1024
                await asyncio.sleep(0.001)

        watching = asyncio.ensure_future(watch())
        while not sessions:  # of the handshake, before the flood
            await asyncio.sleep(0.001)
        await one.send(call(1, "flood"))
        async with asyncio.timeout(20):
            answer = await one.recv()
            while "method" in answer:  # a server of its own may ask its client
                answer = await one.recv()
        assert answer["error"]["code"] == -31004 and "bad messages" in answer["error"]["message"]
        watching.cancel()
        assert max(sizes) < 1024 * 1024


async def test_cancellations_with_long_reasons(tmp_path: Path) -> None:
    """They are passed on without their reasons to a server that does not read."""
    lab = Lab(tmp_path, "shared", era="legacy")
    async with lab.serving():
        one = await lab.connect()
        await one.send(call("h", "hang"))
        await lab.until_read("tools/call", 1)
        await one.send(*(call(i, "x") for i in range(300)))
        for i in range(300):
            params = {"requestId": i, "reason": "r" * 100_000}
            await one.send(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            )
        front = next(iter(lab.fronts))
        async with asyncio.timeout(20):
            while front.session.counters["requests_in_flight"] > 1:
                await asyncio.sleep(0.01)
        assert front.across.session.outbox.size < 1024 * 1024
        assert front.across.session.pending.live == 1


async def test_names_and_limits_that_python_cannot_hold(tmp_path: Path) -> None:
    """The name of a tool that is not valid text leaves nothing of its client behind."""
    config: dict[str, Any] = {"flow": FlowConfig(tools={"x*": 1})}
    lab = Lab(tmp_path, "shared", era="legacy", config=config)
    async with lab.serving():
        one = await lab.connect()
        text = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%s}}'
        assert (await one.ask(text % SURROGATE))["id"] == 1
        flow = lab.proxy.services["b"].flow
        assert flow is not None and (flow.n_clients, flow.n_in_flight) == (0, 0)


async def test_a_tracer_that_fails(tmp_path: Path) -> None:
    """Its requests get an error, and take no place for ever."""

    class Tracer:
        def begin(self, *_: Any) -> Any:
            raise ValueError("no span")

    config: dict[str, Any] = {"flow": FlowConfig(max_in_flight=1)}
    lab = Lab(tmp_path, "shared", era="legacy", config=config)
    async with lab.serving():
        one = await lab.connect()
        front = next(iter(lab.fronts))
        front.tracer = Tracer()
        for i in range(3):
            assert (await one.ask(call(i, "echo")))["error"]["code"] == -32603
        flow = lab.proxy.services["b"].flow
        assert flow is not None and (flow.n_clients, flow.n_in_flight) == (0, 0)
        assert front.across.session.pending.live == 0
        front.tracer = None
        assert "result" in await one.ask(call(4, "echo"))


async def test_a_hello_that_python_cannot_hold(tmp_path: Path) -> None:
    """A server of a client's own may have any text in its answer to `initialize`."""
    lab = Lab(tmp_path, "session", era="legacy")
    backend = tmp_path / "backend.py"
    backend.write_text(
        backend.read_text().replace(
            "answer(i, protocolVersion=agreed,",
            'answer(i, instructions="\\ud83d", protocolVersion=agreed,',
        )
    )
    async with lab.serving():
        one = await lab.connect(None)
        await one.send(HELLO % '"x"')
        assert "\\ud83d" in await one.text()
        assert "result" in await one.ask(call(1, "echo"))


async def test_the_end_of_a_subscription_that_python_cannot_hold(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "shared", versions=MODERN)
    backend = tmp_path / "backend.py"
    backend.write_text(
        backend.read_text().replace(
            'held.setdefault("listening", []).append(i)',
            'answer(i, resultType="complete", reason="\\ud83d"); continue',
        )
    )
    async with lab.serving():
        one = await lab.connect(MODERN)
        listen = {"method": "subscriptions/listen", "params": {"notifications": {}}}
        answer = await one.ask({"jsonrpc": "2.0", "id": "s", **listen})
        assert answer["id"] == "s" and answer["result"]["resultType"] == "complete"


async def test_a_clients_error_that_python_cannot_hold(tmp_path: Path) -> None:
    """What it answers to a question of the proxy is passed on as an error."""
    lab = Lab(tmp_path, "shared", versions=MODERN)
    async with lab.serving():
        one = await lab.connect()
        front = next(iter(lab.fronts))
        asked = asyncio.ensure_future(front.ask("roots/list", b"{}", about=0))
        request = await one.recv()
        error = f'{{"code":-1,"message":{SURROGATE}}}'
        await one.send(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"error":{error}}}')
        with raises(RemoteError, code=-32603):
            await asked


async def test_a_first_request_that_python_cannot_hold(tmp_path: Path) -> None:
    """It waits for the handshake of its translator. It is refused, and what follows is answered."""
    lab = EraLab(tmp_path, "shared", modern=False)
    async with lab.serving():
        one = await lab.client()
        first = tool(1, "echo")
        first["params"]["requestState"] = "beyond"
        await one.send(one.text_of(first).replace('"beyond"', "1e400"), tool(2, "echo"))
        answers = {answer["id"]: answer for answer in [await one.recv(), await one.recv()]}
        assert answers[1]["error"]["code"] == -32603 and "result" in answers[2]


@pytest.mark.parametrize("error", ['{"code": -32000}', '{"code": [], "message": "no"}', "[]"])
async def test_an_error_of_a_subscription_that_is_not_valid(tmp_path: Path, error: str) -> None:
    """The client of a legacy era is told that it has no subscription."""
    lab = EraLab(tmp_path, "shared", modern=True)
    script = tmp_path / "backend.py"
    bad = f'if "u:bad" in str(p): send({{"id": i, "error": {error}}}); continue'
    wanted = '        wanted = p["notifications"]\n'
    script.write_text(script.read_text().replace(wanted, f"{wanted}        {bad}\n"))
    async with lab.serving():
        one, _ = await lab.legacy()
        got = await one.ask(request(1, "resources/subscribe", uri="u:bad"))
        assert isinstance(got["error"]["code"], int)
        assert "result" in await one.ask(request(2, "resources/subscribe", uri="u:1"))


async def test_a_granted_resource_that_is_not_a_name(tmp_path: Path) -> None:
    """The other resources of the subscription are granted."""
    lab = EraLab(tmp_path, "shared", modern=True)
    script = tmp_path / "backend.py"
    uris = '"resourceSubscriptions": uris}'
    assert uris in script.read_text()
    script.write_text(script.read_text().replace(uris, '"resourceSubscriptions": [{}, *uris]}'))
    async with lab.serving():
        one, _ = await lab.legacy()
        assert "result" in await one.ask(request(1, "resources/subscribe", uri="u:1"))


async def test_a_work_that_fails_after_its_client_has_cancelled_it() -> None:
    """The request was cancelled before the failure is seen, so it is neither refused nor lost."""
    found: list[Any] = []

    class Ended:
        def end(self, code: int) -> None:
            found.append(code)

    class Gone:
        def is_open(self, message: Any) -> bool:
            return False

        def give_token(self, message: Any, token: Any) -> None: ...

        def refuse(self, message: Any, *error: Any) -> None:
            found.append(error)

    async def fail() -> None:
        raise ProtocolError(-32603, "no")

    front: Any = Gone()
    message: Any = None
    works: set[DeferredRequest] = set()
    work = DeferredRequest(front, message, fail(), works)
    record: Any = Ended()
    work.record = record
    await asyncio.wait((work.task,))
    while works:
        await asyncio.sleep(0)
    assert found == [CANCELLED]

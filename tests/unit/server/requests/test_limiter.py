"""How many calls run at a time, who waits, and who is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest
from lab.raw import call, cancel, request
from lab.server import text_of
from lab.wording import raises

from wirespeed import Server
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.server.dependencies.provider import Depends
from wirespeed.server.requests import launchers
from wirespeed.server.requests.launchers import DEFAULT_QUEUE, Limiter, limited

pytestmark = pytest.mark.smoke


@pytest.fixture
def peer(newest_peer: Any) -> Any:
    return newest_peer


class Gate:
    """Handlers that wait until they are let go, one by one."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.events: dict[int, asyncio.Event] = {}

    async def work(self, n: int) -> int:
        self.started.append(n)
        event = self.events[n] = asyncio.Event()
        try:
            await event.wait()
        finally:
            del self.events[n]
        return n

    def open(self, n: int) -> None:
        self.events[n].set()


@pytest.fixture
def gate() -> Gate:
    return Gate()


def test_so_many_run_and_the_rest_waits_in_order(peer: Any, server: Server, gate: Gate) -> None:
    server.add_tool(gate.work, max_concurrency=2, queue=3)
    peer.send(*(call(n, "work", {"n": n}) for n in range(5)))
    assert peer.fence() == []
    assert gate.started == [0, 1]
    for n in (1, 0, 2, 3, 4):
        gate.open(n)
        assert peer.recv()["result"]["structuredContent"] == {"result": n}
        peer.fence()
    assert gate.started == [0, 1, 2, 3, 4]


def test_too_many_hear_that_the_tool_is_busy(
    peer: Any, server: Server, gate: Gate, caplog: Any
) -> None:
    server.add_tool(gate.work, max_concurrency=1, queue=1)
    peer.send(*(call(n, "work", {"n": n}) for n in range(6)))
    for answer in peer.answers(2, 3, 4, 5).values():
        result = answer["result"]
        assert result["isError"] is True
        assert text_of(result) == (
            "Tool work is busy: 1 calls run and 1 wait already; try again later"
        )
    assert [r.getMessage() for r in caplog.records] == ["tool work is busy: calls are refused"]
    gate.open(0)
    assert peer.recv()["id"] == 0
    peer.fence()
    gate.open(1)
    assert peer.recv()["id"] == 1
    peer.fence()
    peer.send(call(7, "work", {"n": 7}))
    assert peer.fence() == []
    gate.open(7)
    assert peer.recv()["result"]["structuredContent"] == {"result": 7}


def test_connections_share_the_limit(connect: Any, server: Server, gate: Gate) -> None:
    server.add_tool(gate.work, max_concurrency=1, queue=0)
    one, other = connect("2025-11-25"), connect("2025-11-25")
    one.send(call(1, "work", {"n": 1}))
    assert one.fence() == []
    assert other.result(call(2, "work", {"n": 2}))["isError"] is True
    gate.open(1)
    assert one.recv()["id"] == 1


def test_cancelled_while_waiting_gives_up_the_place(peer: Any, server: Server, gate: Gate) -> None:
    server.add_tool(gate.work, max_concurrency=1, queue=1)
    peer.send(call(0, "work", {"n": 0}), call(1, "work", {"n": 1}))
    assert peer.fence() == []
    peer.send(cancel(1), call(2, "work", {"n": 2}))
    assert peer.fence() == []  # it took the place in the line
    gate.open(0)
    assert peer.recv()["id"] == 0
    peer.fence()
    gate.open(2)
    assert peer.recv()["id"] == 2
    assert gate.started == [0, 2]


def test_cancelled_while_running_lets_the_next_in(peer: Any, server: Server, gate: Gate) -> None:
    server.add_tool(gate.work, max_concurrency=1)
    peer.send(call(0, "work", {"n": 0}), call(1, "work", {"n": 1}))
    assert peer.fence() == []
    peer.send(cancel(0))
    peer.wait_for(lambda: gate.started == [0, 1])
    gate.open(1)
    assert peer.until(1)[-1]["result"]["structuredContent"] == {"result": 1}


@pytest.mark.parametrize("how", ["tool", "generator", "raw", "provider", "manager"])
@pytest.mark.parametrize("end", ["cancelled", "timeout"])
def test_a_thread_keeps_its_place_until_it_ends(
    peer: Any, server: Server, how: str, end: str
) -> None:
    lock = threading.Lock()
    release = threading.Event()
    running: list[int] = []
    most: list[int] = []

    def work() -> str:
        with lock:
            running.append(1)
            most.append(len(running))
        release.wait(20)
        with lock:
            running.pop()
        return "done"

    @contextmanager
    def opened() -> Iterator[str]:
        yield work()

    options: Any = {"name": "work", "max_concurrency": 1, "queue": 10}
    if end == "timeout":
        options["timeout"] = 0.3  # the thread of call 0 must have begun
    if how == "tool":
        server.add_tool(work, **options)
    elif how == "generator":

        def words() -> Any:
            yield work()

        server.add_tool(words, **options)
    elif how == "raw":
        del options["name"]
        server.tool_raw("work", {"type": "object"}, lambda arguments: {"a": work()}, **options)
    else:

        async def provided(word: str) -> str:
            return word

        source = work if how == "provider" else opened
        provided.__annotations__["word"] = Annotated[str, Depends(source)]
        server.add_tool(provided, **options)
    peer.send(*(call(n, "work", {}) for n in range(3)))
    if end == "timeout":
        assert all(answer["result"]["isError"] for answer in peer.answers(0, 1, 2).values())
    else:
        peer.wait_for(lambda: most == [1])
        peer.send(*(cancel(n) for n in range(3)))
    peer.fence()
    peer.send(call(3, "work", {}))
    peer.fence()
    assert most == [1]  # the thread of call 0 goes on, so call 3 waits
    release.set()
    if end == "cancelled":
        assert peer.until(3)[-1]["result"].get("isError") is not True
        assert most == [1, 1]


def test_a_timeout_counts_the_waiting(peer: Any, server: Server, gate: Gate, caplog: Any) -> None:
    server.add_tool(gate.work, max_concurrency=1, timeout=0.05)
    peer.send(call(0, "work", {"n": 0}), call(1, "work", {"n": 1}))
    for answer in peer.answers(0, 1).values():
        assert text_of(answer["result"]) == "Tool work timed out after 0.05 s"
    assert gate.started[0] == 0
    peer.send(call(2, "work", {"n": 2}))
    assert peer.fence() == []
    gate.open(2)
    assert peer.recv()["result"]["structuredContent"] == {"result": 2}


def test_a_failure_gives_the_place_back(connect: Any, server: Server) -> None:
    @server.tool(max_concurrency=1, queue=0)
    async def fail() -> str:
        raise ValueError("no")

    peer = connect("2025-11-25")
    for n in range(3):
        assert text_of(peer.result(call(n, "fail"))) == "no"


def test_every_kind_of_tool_can_be_limited(peer: Any, server: Server) -> None:
    main = threading.get_ident()

    @server.tool(max_concurrency=1)
    def thread(a: int, *, b: int = 2) -> str:
        return f"{a} {b} {threading.get_ident() == main}"

    @server.tool(max_concurrency=1, inline=True)
    def inline(a: int, *, b: int = 2) -> str:
        return f"{a} {b} {threading.get_ident() == main}"

    @server.tool(max_concurrency=1)
    async def generator(a: int) -> Any:
        for n in range(a):
            yield n

    async def raw(arguments: Any, ctx: Any) -> str:
        return f"{bytes(arguments).decode()} {ctx.request_id}"

    def raw_thread(arguments: Any) -> str:
        return f"{bytes(arguments).decode()} {threading.get_ident() == main}"

    server.tool_raw("raw", {"type": "object"}, raw, context=True, max_concurrency=1)
    server.tool_raw("raw_thread", {"type": "object"}, raw_thread, max_concurrency=1)
    server.tool_raw("raw_inline", {"type": "object"}, raw_thread, max_concurrency=1, inline=True)
    assert text_of(peer.result(call(1, "thread", {"a": 1, "b": 3}))) == "1 3 False"
    assert text_of(peer.result(call(2, "inline", {"a": 1}))) == "1 2 True"
    assert text_of(peer.result(call(3, "generator", {"a": 2}))) == "[0,1]"
    assert text_of(peer.result(call(4, "raw", {"a": 2}))) == '{"a": 2} 4'
    assert text_of(peer.result(call(5, "raw_thread", {}))) == "{} False"
    assert text_of(peer.result(call(6, "raw_inline", {}))) == "{} True"


def number() -> int:
    return 42


def test_who_waits_holds_no_dependencies(peer: Any, server: Server, gate: Gate) -> None:
    made: list[int] = []

    async def resource() -> list[int]:
        made.append(1)
        return made

    async def work(n: int, r: Any) -> int:
        return await gate.work(n)

    work.__annotations__ = {"n": int, "r": Annotated[list, Depends(resource)], "return": int}
    server.add_tool(work, max_concurrency=1)
    peer.send(call(0, "work", {"n": 0}), call(1, "work", {"n": 1}))
    peer.wait_for(lambda: gate.started)
    assert peer.fence() == []
    assert made == [1]
    gate.open(0)
    assert peer.recv()["id"] == 0
    peer.wait_for(lambda: gate.started == [0, 1])
    assert made == [1, 1]
    gate.open(1)
    assert peer.recv()["id"] == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_concurrency": 0}, "max_concurrency must be at least 1"),
        ({"max_concurrency": 1, "queue": -1}, "queue must not be negative"),
        ({"queue": 3}, "queue goes with max_concurrency"),
    ],
)
def test_wrong_numbers_are_refused(server: Server, options: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=f"tool number: {why}"):
        server.add_tool(number, **options)
    with pytest.raises(ValueError, match=why):
        server.tool_raw("number", {"type": "object"}, number, **options)


def test_other_requests_are_refused_with_an_error(runner: asyncio.Runner, gate: Gate) -> None:
    limiter = Limiter("prompt work", 1, 0)
    work = limited(limiter, launchers.coroutine)

    async def main() -> None:
        first = asyncio.ensure_future(work(gate.work, [1], None))
        await asyncio.sleep(0)
        with pytest.raises(ProtocolError) as caught:
            await work(gate.work, [2], None)
        assert caught.value.code == codes.OVERLOADED
        assert caught.value.message.startswith("Prompt work is busy")
        gate.open(1)
        assert await first == 1

    runner.run(main())


def test_prompts_and_resources_can_be_limited(connect: Any, server: Server, gate: Gate) -> None:
    @server.prompt(max_concurrency=1, queue=0)
    async def ask(n: int) -> str:
        return str(await gate.work(n))

    @server.resource("gate://{n}", max_concurrency=1, queue=0)
    async def stay(n: int) -> str:
        return str(await gate.work(n))

    def prompt(id: int) -> Any:
        return request(id, "prompts/get", {"name": "ask", "arguments": {"n": str(id)}})

    def resource(id: int) -> Any:
        return request(id, "resources/read", {"uri": f"gate://{id}"})

    peer = connect("2025-11-25")
    for make, first, label in ((prompt, 10, "Prompt ask"), (resource, 20, "Resource stay")):
        peer.send(make(first))
        assert peer.fence() == []
        code, text = peer.error(make(first + 1))
        assert code == codes.OVERLOADED
        assert text.startswith(f"{label} is busy")
        gate.open(first)
        assert peer.recv()["id"] == first
    with raises(ValueError):
        server.add_prompt(ask, name="other", queue=1)
    with raises(ValueError):
        server.add_resource("gate://x", number, max_concurrency=0)


def test_completions_can_be_limited_each(peer: Any, server: Server, gate: Gate) -> None:
    @server.prompt
    def ask(n: int, m: int) -> str:
        return ""

    @server.completion("ask", "n", max_concurrency=1, queue=1, timeout=60)
    async def numbers(value: str) -> list[str]:
        return [str(await gate.work(int(value)))]

    def complete(id: int, name: str = "n") -> Any:
        argument = {"name": name, "value": str(id)}
        ref = {"type": "ref/prompt", "name": "ask"}
        return request(id, "completion/complete", {"ref": ref, "argument": argument})

    peer.send(complete(1), complete(2))
    assert peer.fence() == []
    code, text = peer.error(complete(3))
    assert code == codes.OVERLOADED
    assert text.startswith("Completion ask n is busy: 1 calls run and 1 wait")
    assert peer.result(complete(4, "m"))["completion"]["values"] == []
    peer.send(cancel(2), complete(5))
    assert peer.fence() == []
    for id in (1, 5):
        gate.open(id)
        answer = peer.recv()
        assert (answer["id"], answer["result"]["completion"]["values"]) == (id, [str(id)])
    assert gate.started == [1, 5]
    with raises(ValueError):
        server.completion("ask", "m", queue=1)(numbers)
    with raises(ValueError):
        server.completion("ask", "m", timeout=0)(numbers)


def test_the_limiter_counts(runner: asyncio.Runner) -> None:
    limiter = Limiter("tool x", 1)
    assert limiter.queue == DEFAULT_QUEUE

    async def main() -> None:
        assert await limiter.enter()
        waiting = [asyncio.ensure_future(limiter.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        assert (limiter.n_running, limiter.n_waiting) == (1, 3)
        assert repr(limiter) == "<Limiter of tool x: 1 of 1 run, 3 of 100 wait>"
        waiting[1].cancel()
        for _ in range(3):
            limiter.leave()
        assert await waiting[0]
        assert await waiting[2]
        await asyncio.wait(waiting)
        assert (limiter.n_running, limiter.n_waiting, limiter.n_refused) == (0, 0, 0)

    runner.run(main())


@pytest.mark.parametrize("moment", ["before", "behind"])
def test_a_place_given_to_who_is_cancelled_goes_on(runner: asyncio.Runner, moment: str) -> None:
    limiter = Limiter("tool x", 1)

    async def main() -> None:
        assert await limiter.enter()
        first = asyncio.ensure_future(limiter.enter())
        second = asyncio.ensure_future(limiter.enter())
        await asyncio.sleep(0)
        limiter.leave()  # to the first, which does not know it yet
        if moment == "behind":
            await asyncio.sleep(0)
        first.cancel()
        assert await second
        if not first.cancelled():
            assert moment == "behind"
            limiter.leave()
        limiter.leave()
        assert limiter.n_running == 0

    runner.run(main())


def test_a_limit_holds_across_loops() -> None:
    limiter = Limiter("tool x", 2)
    most: list[int] = []
    running = 0
    lock = threading.Lock()

    async def work() -> None:
        nonlocal running
        assert await limiter.enter()
        with lock:
            running += 1
            most.append(running)
        await asyncio.sleep(0)
        with lock:
            running -= 1
        limiter.leave()

    async def main() -> None:
        await asyncio.gather(*(work() for _ in range(30)))

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(most) == 90
    assert max(most) <= 2
    assert limiter.n_running == limiter.n_waiting == 0

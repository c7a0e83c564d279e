"""The worker threads of a server: how many, what they run, when they are free."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest
from lab.raw import call, cancel, modern
from lab.server import MODERN, text_of

from wirespeed import Client, Depends, Extension, Server

pytestmark = pytest.mark.smoke


class Doors:
    """Functions that block until they are let go, and how many are inside."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.release = threading.Event()
        self.inside = 0
        self.entered = 0

    def wait(self) -> str:
        with self.lock:
            self.inside += 1
            self.entered += 1
        assert self.release.wait(20)
        with self.lock:
            self.inside -= 1
        return "out"


@pytest.fixture
def doors() -> Iterator[Doors]:
    made = Doors()
    yield made
    made.release.set()


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_as_many_run_as_the_server_has_threads(version: str, connect: Any, doors: Doors) -> None:
    server, other = Server("lab", threads=2), Server("other", threads=1)
    for one in (server, other):
        one.add_tool(doors.wait, name="wait")
        one.add_tool(lambda: "here", name="inline", inline=True)
    make = call if version != MODERN else _modern_call
    peer, elsewhere = connect(version, to=server), connect(version, to=other)
    peer.send(*(make(n, "wait") for n in range(4)))
    peer.wait_for(lambda: doors.inside == 2)
    assert text_of(peer.result(make(10, "inline"))) == "here"
    assert doors.entered == 2
    elsewhere.send(make(1, "wait"))
    elsewhere.wait_for(lambda: doors.inside == 3)  # threads of its own
    doors.release.set()
    assert set(peer.answers(0, 1, 2, 3)) == {0, 1, 2, 3}
    assert elsewhere.recv()["id"] == 1
    assert doors.entered == 5


def _modern_call(id: Any, tool: str) -> Any:
    return modern(id, "tools/call", {"name": tool, "arguments": {}})


def _tool(server: Server, work: Callable[..., str]) -> Any:
    server.add_tool(work, name="work")
    return "tools/call", {"name": "work", "arguments": {}}


def _generator(server: Server, work: Callable[..., str]) -> Any:
    def words() -> Iterator[str]:
        yield work()

    server.add_tool(words, name="work")
    return "tools/call", {"name": "work", "arguments": {}}


def _raw(server: Server, work: Callable[..., str]) -> Any:
    server.tool_raw("work", {"type": "object"}, lambda arguments: work())
    return "tools/call", {"name": "work", "arguments": {}}


def _limited(server: Server, work: Callable[..., str]) -> Any:
    server.add_tool(work, name="work", max_concurrency=10)
    return "tools/call", {"name": "work", "arguments": {}}


def _limited_raw(server: Server, work: Callable[..., str]) -> Any:
    server.tool_raw("work", {"type": "object"}, lambda arguments: work(), max_concurrency=10)
    return "tools/call", {"name": "work", "arguments": {}}


def _provider(server: Server, work: Callable[..., str]) -> Any:
    async def takes(word: str) -> str:
        return word

    takes.__annotations__["word"] = Annotated[str, Depends(work)]
    server.add_tool(takes, name="work")
    return "tools/call", {"name": "work", "arguments": {}}


def _manager(server: Server, work: Callable[..., str]) -> Any:
    @contextmanager
    def opened() -> Iterator[str]:
        yield work()

    async def takes(word: str) -> str:
        return word

    takes.__annotations__["word"] = Annotated[str, Depends(opened)]
    server.add_tool(takes, name="work")
    return "tools/call", {"name": "work", "arguments": {}}


def _prompt(server: Server, work: Callable[..., str]) -> Any:
    server.add_prompt(work, name="work")
    return "prompts/get", {"name": "work"}


def _resource(server: Server, work: Callable[..., str]) -> Any:
    server.add_resource("work://1", work, name="work")
    return "resources/read", {"uri": "work://1"}


def _completion(server: Server, work: Callable[..., str]) -> Any:
    server.add_prompt(lambda a: "", name="work")

    @server.completion("work", "a")
    def words(value: str) -> list[str]:
        return [work()]

    reference = {"ref": {"type": "ref/prompt", "name": "work"}}
    return "completion/complete", {**reference, "argument": {"name": "a", "value": ""}}


def _extension(server: Server, work: Callable[..., str]) -> Any:
    def weigh(params: dict[str, Any]) -> dict[str, Any]:
        return {"word": work()}

    server.add_extension(Extension("com.example/lab", requests={"lab/work": weigh}))
    return "lab/work", {}


KINDS = [
    _tool, _generator, _raw, _limited, _limited_raw, _provider, _manager, _prompt, _resource,
    _completion, _extension,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_a_cancelled_function_keeps_its_thread_until_it_ends(
    kind: Any, connect: Any, doors: Doors
) -> None:
    server = Server("lab", threads=1)
    method, params = kind(server, doors.wait)
    server.add_tool(lambda: str(doors.inside), name="next")
    peer = connect(MODERN, to=server)
    capabilities = {"extensions": {"com.example/lab": {}}}
    begin = modern(1, method, params)
    begin["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities
    peer.send(begin)
    peer.wait_for(lambda: doors.inside == 1)
    peer.send(cancel(1), _modern_call(2, "next"))
    assert peer.fence() == []  # the only thread works
    assert doors.inside == 1
    doors.release.set()
    assert text_of(peer.recv()["result"]) == "0"


def test_a_function_that_timed_out_keeps_its_thread_too(connect: Any, doors: Doors) -> None:
    server = Server("lab", threads=1)
    server.add_tool(doors.wait, name="work", timeout=0.3)
    server.add_tool(lambda: str(doors.inside), name="next")
    peer = connect("2025-11-25", to=server)
    assert peer.result(call(1, "work"))["isError"] is True
    peer.send(call(2, "next"))
    assert peer.fence() == []
    doors.release.set()
    assert text_of(peer.recv()["result"]) == "0"


def test_a_call_that_never_got_a_thread_gives_its_place_back(connect: Any, doors: Doors) -> None:
    server = Server("lab", threads=1)
    server.add_tool(doors.wait, name="work")
    server.add_tool(lambda: str(doors.inside), name="one", max_concurrency=1, queue=0)
    peer = connect("2025-11-25", to=server)
    peer.send(call(1, "work"))
    peer.wait_for(lambda: doors.inside == 1)
    peer.send(call(2, "one"))
    assert peer.result(call(3, "one"))["isError"] is True  # call 2 has the only place
    peer.send(cancel(2), call(4, "one"))
    assert peer.fence() == []  # it has the place now, and waits for the thread
    doors.release.set()
    assert {id: text_of(answer["result"]) for id, answer in peer.answers(1, 4).items()} == {
        1: "out",
        4: "0",
    }


def test_a_mounted_server_has_threads_of_its_own(connect: Any, doors: Doors) -> None:
    server, inner = Server("outer", threads=1), Server("inner", threads=1)
    server.add_tool(doors.wait, name="work")
    inner.add_tool(lambda: "free", name="tool")
    server.mount("in", inner)
    peer = connect("2025-11-25", to=server)
    peer.send(call(1, "work"))
    peer.wait_for(lambda: doors.inside == 1)
    assert text_of(peer.result(call(2, "in_tool"))) == "free"


def workers() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("wirespeed-worker")}


async def test_the_threads_end_with_the_server() -> None:
    before = workers()
    server = Server("lab", threads=3)
    server.add_tool(lambda: "done", name="work")
    async with Client(server) as client:
        assert (await client.call_tool("work")).text == "done"
    (started,) = workers() - before
    del server, client
    gc.collect()
    started.join(20)
    assert not started.is_alive()


@pytest.mark.parametrize("threads", [0, -1])
def test_a_server_has_at_least_one_thread(threads: int) -> None:
    with pytest.raises(ValueError, match=f"threads must be at least 1, not {threads}"):
        Server("lab", threads=threads)

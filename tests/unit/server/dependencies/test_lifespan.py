"""Lifespans: entered before the first client is served, left after the last is gone."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from lab.raw import CHILDREN, Raw, call
from lab.server import text_of
from lab.wording import raises

import wirespeed
from wirespeed import Client, Context, Server, SyncClient
from wirespeed.errors import StartupError, TransportError

FOREVER = 20.0


class State:
    """What the lifespans here yield."""

    def __init__(self, name: str) -> None:
        self.name = name


class Database:
    """Lives as long as the server."""


class Story:
    """A lifespan that tells what happens."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fails_at: str | None = None

    async def lifespan(self, server: Server) -> AsyncIterator[State]:
        self.events.append(f"begin {server.name}")
        await asyncio.sleep(0)
        self.fail("begin")
        async with anyio.create_task_group() as group:  # begins and ends in one task
            yield State(server.name)
            group.cancel_scope.cancel()
        self.fail("end")
        self.events.append(f"end {server.name}")

    def fail(self, at: str) -> None:
        if self.fails_at == at:
            raise OSError(f"no way to {at}")


@pytest.fixture
def story() -> Story:
    return Story()


def lively(story: Story, name: str = "lively") -> Server:
    server = Server(name, lifespan=story.lifespan)

    @server.tool
    async def state(ctx: Context) -> str:
        story.events.append("call")
        return str(ctx.lifespan_state.name)

    return server


@contextlib.asynccontextmanager
async def serving(services: Any, url: str = "ws://127.0.0.1:0") -> AsyncIterator[tuple[str, ...]]:
    """`wirespeed.serve`, ended by a cancellation as `asyncio.run` does it."""
    listens: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(wirespeed.serve(url, services, on_listening=listens.set_result))
    try:
        await asyncio.wait((task, listens), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield listens.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# -- running --------------------------------------------------------------------------------------


def test_running_enters_and_leaves_and_gives_the_state(run: Any, story: Story) -> None:
    server = lively(story)

    async def main() -> None:
        async with server.running() as state:
            assert story.events == ["begin lively"]
            assert state.name == "lively"
        assert story.events == ["begin lively", "end lively"]
        async with server.running():  # a second life
            pass
        assert story.events == ["begin lively", "end lively"] * 2

    run(main())
    assert server.service.life is None


def test_holders_share_one_life(run: Any, story: Story) -> None:
    server = lively(story)

    async def hold(ready: asyncio.Barrier, go: asyncio.Event) -> State:
        async with server.running() as state:
            await ready.wait()
            await go.wait()
        return state

    async def main() -> None:
        ready, go = asyncio.Barrier(6), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(hold(ready, go)) for _ in range(5)]
            await ready.wait()
            assert story.events == ["begin lively"]
            go.set()
        assert len({task.result() for task in tasks}) == 1

    run(main())
    assert story.events == ["begin lively", "end lively"]


def test_a_new_life_waits_for_the_end_of_the_last(run: Any, story: Story) -> None:
    server = lively(story)

    async def main() -> None:
        running = server.running()
        await running.__aenter__()
        ending = asyncio.create_task(running.__aexit__(None, None, None))
        await asyncio.sleep(0)
        async with server.running():
            assert story.events == ["begin lively", "end lively", "begin lively"]
        await ending

    run(main())
    assert len(story.events) == 4


def test_an_async_context_manager_function_will_do(run: Any) -> None:
    events: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[int]:
        events.append("begin")
        yield 42
        events.append("end")

    async def main() -> None:
        async with Server("managed", lifespan=lifespan).running() as state:
            assert state == 42

    run(main())
    assert events == ["begin", "end"]


def test_a_server_without_lifespan_has_no_state(run: Any) -> None:
    async def main() -> None:
        async with Server("plain").running() as state:
            assert state is None

    run(main())


@pytest.mark.parametrize("cause", [OSError("no way to begin"), OSError()])
def test_a_start_that_fails_says_why_and_leaves_nothing(run: Any, cause: OSError) -> None:
    events: list[str] = []

    async def lifespan(server: Server) -> AsyncIterator[None]:
        events.append("begin")
        raise cause
        yield

    server = Server("sick", lifespan=lifespan)

    async def main() -> None:
        for _ in range(2):  # nothing is kept of it
            with pytest.raises(StartupError) as caught:
                async with server.running():
                    raise AssertionError("not reached")
            words = "OSError: no way to begin" if cause.args else "OSError"
            assert str(caught.value) == f"server 'sick' cannot be started: {words}"
            assert caught.value.__cause__ is cause

    run(main())
    assert events == ["begin", "begin"]
    assert server.service.life is None


def test_an_end_that_fails_is_logged(run: Any, story: Story, caplog: Any) -> None:
    server = lively(story)
    story.fails_at = "end"

    async def main() -> None:
        async with server.running():
            pass

    run(main())
    (record,) = caplog.records
    assert "the end of" in record.getMessage()
    assert server.service.life is None


def test_a_lifespan_that_ends_early_is_logged_and_the_rest_still_ends(
    run: Any, caplog: Any
) -> None:
    events: list[str] = []

    async def breaks() -> None:
        raise OSError("the watcher broke")

    async def lifespan(server: Server) -> AsyncIterator[str]:
        async with asyncio.TaskGroup() as group:
            group.create_task(breaks())
            yield "state"

    server = Server("short", lifespan=lifespan)

    @server.provide(scope="server")
    async def database() -> AsyncIterator[State]:
        yield State("of the server")
        events.append("closed")

    @server.tool
    async def name(db: State, ctx: Context) -> str:
        return f"{db.name} {ctx.lifespan_state}"

    async def main() -> None:
        async with server.running():
            while not caplog.records:
                await asyncio.sleep(0)
            async with Client(server) as client:
                result = await client.call_tool("name")
                assert result.content[0].text == "of the server state"

    run(main())
    assert events == ["closed"]
    assert "ended early" in caplog.records[0].getMessage()


def test_a_cancelled_start_is_undone(run: Any) -> None:
    events: list[str] = []

    async def lifespan(server: Server) -> AsyncIterator[None]:
        try:
            events.append("begin")
            await asyncio.Event().wait()
            yield
        finally:
            events.append("undone")

    server = Server("slow", lifespan=lifespan)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), server.running():
                pass

    run(main())
    assert events == ["begin", "undone"]
    assert server.service.life is None


def test_an_annotation_that_cannot_be_read_does_no_harm(run: Any) -> None:
    async def lifespan(server):  # type: ignore[no-untyped-def]
        yield "state"

    async def main() -> None:
        for words in ("AsyncIterator[Unknown]", "AsyncIterator[dict[str, int]]", "Unknown", None):
            lifespan.__annotations__["return"] = words
            async with Server("vague", lifespan=lifespan).running() as state:
                assert state == "state"

    run(main())


@pytest.mark.parametrize("wrong", [42, "lifespan"])
def test_a_lifespan_is_a_function(wrong: Any) -> None:
    with raises(TypeError):
        Server("wrong", lifespan=wrong)


def test_a_function_that_is_no_context_manager_is_told_at_the_start(run: Any) -> None:
    wrong: Any = lambda server: [server]  # noqa: E731

    async def main() -> None:
        with raises(StartupError):
            async with Server("wrong", lifespan=wrong).running():
                pass

    run(main())


def test_the_state_wants_a_life(connect: Any, story: Story) -> None:
    peer = connect("2025-06-18", to=lively(story))
    assert "see `Server.running`" in text_of(peer.result(call(1, "state")))


def test_a_second_loop_at_the_same_time_is_refused(story: Story) -> None:
    server = lively(story)

    async def elsewhere() -> None:
        async with server.running():
            pass

    async def main() -> None:
        async with asyncio.timeout(FOREVER), server.running():
            with raises(RuntimeError):
                await asyncio.to_thread(asyncio.run, elsewhere())
            with raises(RuntimeError):
                await asyncio.to_thread(SyncClient(server).__enter__)

    asyncio.run(main())
    assert story.events == ["begin lively", "end lively"]
    asyncio.run(elsewhere())  # one loop after another
    assert story.events == ["begin lively", "end lively"] * 2


def test_threads_share_one_blocking_client(story: Story) -> None:
    server = lively(story)
    names: list[str] = []
    with SyncClient(server) as client:
        threads = [
            threading.Thread(target=lambda: names.append(client.call_tool("state").content[0].text))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(FOREVER)
    assert names == ["lively"] * 4


# The generator behind `running` is lost with its loop: 3.13 says so.
@pytest.mark.filterwarnings("ignore:coroutine method 'aclose' of 'running':RuntimeWarning")
def test_what_a_closed_loop_left_is_void(caplog: Any) -> None:
    server = Server("left")

    async def left() -> None:
        await server.running().__aenter__()

    async def fine() -> None:
        async with server.running():
            pass

    loop = asyncio.new_event_loop()
    loop.run_until_complete(left())
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    assert server.service.life is not None
    asyncio.run(fine())
    assert server.service.life is None
    del task
    gc.collect()
    assert not caplog.records


# -- in memory ------------------------------------------------------------------------------------


def test_clients_in_the_same_process_hold_it_alive(run: Any, story: Story) -> None:
    server = lively(story)

    async def main() -> None:
        async with Client(server) as one:
            async with Client(server) as other:
                for client in (one, other):
                    result = await client.call_tool("state")
                    assert result.content[0].text == "lively"
            assert "end lively" not in story.events
        assert story.events == ["begin lively", "call", "call", "end lively"]

    run(main())


def test_a_client_hears_why_its_server_does_not_start(run: Any, story: Story) -> None:
    server = lively(story)
    story.fails_at = "begin"

    async def main() -> None:
        with pytest.raises(StartupError, match="no way to begin"):
            async with Client(server):
                pass
        story.fails_at = None
        async with Client(server) as client:
            assert (await client.call_tool("state")).content[0].text == "lively"

    run(main())


def test_running_outlives_clients(run: Any, story: Story) -> None:
    server = lively(story)

    async def main() -> None:
        async with server.running():
            for _ in range(2):
                async with Client(server) as client:
                    await client.call_tool("state")

    run(main())
    assert story.events == ["begin lively", "call", "call", "end lively"]


def test_what_lives_as_long_as_the_server_ends_before_its_lifespan(run: Any, story: Story) -> None:
    server = lively(story)

    @server.provide(scope="server")
    async def database(state: State) -> AsyncIterator[Database]:
        story.events.append(f"open for {state.name}")
        yield Database()
        story.events.append("close")

    @server.tool
    async def use(db: Database) -> str:
        return "used"

    async def main() -> None:
        async with Client(server) as client:
            await client.call_tool("use")

    run(main())
    assert story.events == ["begin lively", "open for lively", "close", "end lively"]


# -- listening ------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["ws://127.0.0.1:0", "tcp://127.0.0.1:0", "unix"])
def test_a_listener_holds_its_servers_alive(
    run: Any, story: Story, tmp_path: Any, url: str
) -> None:
    server = lively(story)
    place = f"unix:{tmp_path}/s" if url == "unix" else url

    async def main() -> None:
        async with serving(server, place) as (reached,):
            assert story.events == ["begin lively"]
            for _ in range(2):
                async with Client(reached) as client:
                    await client.call_tool("state")
            assert story.events == ["begin lively", "call", "call"]

    run(main())
    assert story.events[-1] == "end lively"


def test_several_servers_of_a_listener_each_have_their_own(run: Any, story: Story) -> None:
    one, other = lively(story, "one"), lively(story, "other")

    async def main() -> None:
        async with serving({"/a": one, "/b": other, "/c": one}) as urls:
            for url, name in zip(urls, ("one", "other", "one"), strict=True):
                async with Client(url) as client:
                    assert (await client.call_tool("state")).content[0].text == name

    run(main())
    assert story.events[:2] == ["begin one", "begin other"]
    assert story.events[-2:] == ["end other", "end one"]


def test_a_server_that_does_not_start_is_not_listened_for(run: Any, story: Story) -> None:
    other = Story()
    story.fails_at = "begin"

    async def main() -> None:
        with pytest.raises(StartupError, match="no way to begin"):
            async with serving({"/a": lively(other, "other"), "/b": lively(story)}):
                raise AssertionError("not reached")

    run(main())
    assert other.events == ["begin other", "end other"]


# -- processes ------------------------------------------------------------------------------------


def child(*argv: str) -> list[str]:
    return [sys.executable, str(CHILDREN / "lifespan_server.py"), *argv]


def test_stdio_enters_it_before_and_leaves_it_after(tmp_path: Any) -> None:
    with Raw(child("well")) as server:
        server.handshake()
        assert server.ask(call(1, "pid"))["result"]["content"][0]["text"] == str(server.process.pid)
        server.end_input()
        assert server.wait() == 0
        assert server.stderr() == "begins lively\nprinted by the lifespan\nends lively\n"


def test_stdio_at_a_signal(tmp_path: Any) -> None:
    with Raw(child("well")) as server:
        server.handshake()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert server.stderr().endswith("ends lively\n")


@pytest.mark.parametrize("where", [(), ("tcp://127.0.0.1:0",), ("tcp://127.0.0.1:0", "2")])
def test_a_start_that_fails_ends_the_process_with_words(where: tuple[str, ...]) -> None:
    with Raw(child("badly", *where)) as server:
        assert server.wait() == 1
        errors = server.stderr()
        assert "StartupError: server 'lively' cannot be started: OSError: no database" in errors
        assert "ends lively" not in errors


@pytest.mark.parametrize("where", [(), ("tcp://127.0.0.1:0",)])
def test_a_lifespan_may_end_the_process(where: tuple[str, ...]) -> None:
    with Raw(child("exits", *where)) as server:
        assert server.wait() == 7


def test_every_worker_has_its_own(run: Any) -> None:
    with Raw(child("well", "tcp://127.0.0.1:0", "2")) as server:
        url = server.line().decode()

        async def ask() -> str:
            async with Client(url) as client:
                return str((await client.call_tool("pid")).content[0].text)

        pid = run(ask())
        assert pid != str(server.process.pid)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert server.stderr().count("begins lively") == 2
        assert server.stderr().count("ends lively") == 2


def test_the_command_line_says_in_one_line_why_a_server_does_not_start(tmp_path: Any) -> None:
    file = tmp_path / "sick.py"
    file.write_text(
        "from wirespeed import Server\n"
        "async def lifespan(server):\n"
        "    raise OSError('no database')\n"
        "    yield\n"
        "server = Server('sick', lifespan=lifespan)\n"
    )
    with Raw([sys.executable, "-m", "wirespeed", "serve", str(file)]) as served:
        assert served.wait() == 3
        text = "wirespeed: server 'sick' cannot be started: OSError: no database\n"
        assert served.stderr() == text


def test_errors_are_of_the_family() -> None:
    assert issubclass(StartupError, wirespeed.errors.LocalError)
    assert not issubclass(StartupError, TransportError)

"""Tasks of our own clients and servers of one era each, through the proxy."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from raw import surroundings

from tests.unit.proxy.eras_lab import OTHER, VERSIONS, elicited, serving
from wirespeed import Client, Http, Server, Stdio, WebSocket
from wirespeed.auth import hash_token, new_token
from wirespeed.errors import RemoteError, TaskCancelled
from wirespeed.proxy import BackendConfig, PrincipalConfig

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

SERVER = """
import asyncio, os, sys
from wirespeed import Context, Server
from wirespeed.errors import ToolError

server = Server("mill", "1", versions=sys.argv[1].split(","))
server.use_tasks(poll_interval=0.02)


@server.tool(task="optional", task_after=0)
async def grind(bags: int) -> int:
    await asyncio.sleep(0.1)
    return bags


@server.tool
async def plain(n: int) -> int:
    return n + 1


@server.tool(task="required")
async def harvest() -> str:
    return f"wheat {os.getpid()}"


@server.tool(task="required")
async def forever() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        with open(sys.argv[2], "a") as file:
            file.write("stopped\\n")


@server.tool(task="required")
async def fail() -> None:
    raise ToolError("no wheat")


@server.tool(task="required")
async def order(ctx: Context) -> str:
    answer = await ctx.elicit("How many bags?", int)
    return f"{answer.content} bags"


server.run()
"""


async def until_stopped(folder: Path) -> None:
    """Wait until the server has stopped a tool."""
    while not (folder / "seen").exists():
        await asyncio.sleep(0.01)


CASES = [
    ("modern", "shared", "ws"),
    ("modern", "pool", "ws"),
    ("modern", "session", "ws"),
    ("modern", "shared", "http"),
    ("legacy", "shared", "ws"),
    ("legacy", "pool", "ws"),
    ("legacy", "session", "ws"),
    ("legacy", "shared", "http"),
    ("legacy", "pool", "http"),
]


@pytest.mark.parametrize(("era", "isolation", "listen"), CASES)
async def test_tasks(tmp_path: Path, era: str, isolation: str, listen: str) -> None:
    """``era``: the server's."""
    async with (
        serving(tmp_path, SERVER, isolation, era, listen, size=2) as url,
        Client(url, era=OTHER[era]) as client,
    ):
        task = await client.start_tool("grind", {"bags": 3})
        assert (task.id is None) is (era == "legacy")  # which runs what may be a plain call as one
        assert (await task.result()).text == "3"
        task = await client.start_tool("harvest")
        assert task.id is not None
        assert (await task.result()).text.startswith("wheat")
        assert (await client.get_task(task.id)).state.status == "completed"
        task = await client.start_tool("plain", {"n": 1})
        assert (await task.result()).text == "2"
        found = await asyncio.gather(
            *(client.call_tool("harvest") for _ in range(5)),
            *(client.call_tool("plain", {"n": n}) for n in range(5)),
        )
        assert [one.text[:5] for one in found[:5]] == ["wheat"] * 5
        assert [one.text for one in found[5:]] == [str(n + 1) for n in range(5)]
        failed = await client.start_tool("fail")
        result = await failed.result()
        assert result.is_error
        assert "no wheat" in result.text
        with pytest.raises(RemoteError):
            await client.call_tool("nothing")


@pytest.mark.parametrize(("era", "isolation", "listen"), CASES)
async def test_cancellation(tmp_path: Path, era: str, isolation: str, listen: str) -> None:
    async with (
        serving(tmp_path, SERVER, isolation, era, listen, size=2) as url,
        Client(url, era=OTHER[era]) as client,
    ):
        task = await client.start_tool("forever")
        waiting = asyncio.ensure_future(task.result())
        await asyncio.sleep(0.05)
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await waiting
        await until_stopped(tmp_path)


@pytest.mark.parametrize(
    ("era", "isolation", "listen"),
    [("modern", "shared", "ws"), ("modern", "session", "http"), ("legacy", "session", "ws")],
)
async def test_questions(tmp_path: Path, era: str, isolation: str, listen: str) -> None:
    async with (
        serving(tmp_path, SERVER, isolation, era, listen) as url,
        Client(url, era=OTHER[era], on_elicit=elicited) as client,
    ):
        assert (await client.call_tool("order")).text == "12 bags"
        task = await client.start_tool("order")
        states = [state.status async for state in task]
        assert states[-1] == "completed"
        assert (await task.result()).text == "12 bags"


TOKENS = {name: new_token() for name in ("anne", "bob")}


@pytest.mark.parametrize("listen", ["ws", "http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("tool", ["harvest", "plain"])
async def test_principals(tmp_path: Path, era: str, listen: str, tool: str) -> None:
    """A task is its principal's, over any connection: also one whose result the proxy holds."""
    principals = tuple(
        PrincipalConfig(name=name, token_sha256=hash_token(token).removeprefix("sha256:"))
        for name, token in TOKENS.items()
    )
    kind = WebSocket if listen == "ws" else Http
    async with serving(tmp_path, SERVER, "shared", era, listen, principals=principals) as url:

        def client(name: str) -> Client:
            return Client(kind(url, token=TOKENS[name]), era=OTHER[era])

        async with client("anne") as anne, client("bob") as bob:
            task = await anne.start_tool(tool, {"n": 1} if tool == "plain" else {})
            if task.id is None:
                assert (era, tool) == ("legacy", "plain")
                return
            with pytest.raises(RemoteError) as refused:
                await bob.get_task(task.id)
            assert refused.value.code == -32602
        async with client("anne") as anne:
            assert (await (await anne.get_task(task.id)).result()).text


@pytest.mark.parametrize(
    ("era", "isolation", "listen"),
    [
        ("legacy", "shared", "ws"),
        ("legacy", "shared", "http"),
        ("legacy", "session", "ws"),
        ("modern", "shared", "ws"),
        ("modern", "shared", "http"),
    ],
)
async def test_a_server_over_http(tmp_path: Path, era: str, isolation: str, listen: str) -> None:
    server = Server("mill", versions=VERSIONS[era].split(","))
    server.use_tasks(poll_interval=0.02)

    @server.tool(task="required")
    async def harvest() -> str:
        await asyncio.sleep(0.05)
        return "wheat"

    behind: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(
        server.serve("http://127.0.0.1:0/mcp", on_listening=lambda urls: behind.set_result(urls[0]))
    )
    async with (
        serving(tmp_path, SERVER, isolation, era, listen, target=Http(await behind)) as url,
        Client(url, era=OTHER[era]) as client,
    ):
        assert (await client.call_tool("harvest")).text == "wheat"
        started = await client.start_tool("harvest")
        assert started.id is not None
        states = [state.status async for state in started]
        assert states[-1] == "completed"
        assert (await started.result()).text == "wheat"
    task.cancel()
    await asyncio.wait((task,))


PLAIN = """
import sys
from wirespeed import Server

server = Server("plain", versions=sys.argv[1].split(","))


@server.tool
def say() -> str:
    return "said"


server.run()
"""


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_one_server_of_several(tmp_path: Path, era: str) -> None:
    """At the endpoint of all servers, where one has tasks."""
    (tmp_path / "plain.py").write_text(PLAIN)
    command = [str(tmp_path / "plain.py"), VERSIONS[era]]
    target = Stdio(sys.executable, command, env=surroundings())
    other = BackendConfig(target=target, name="other")
    async with (
        serving(tmp_path, SERVER, "shared", era, "ws", others=(other,)) as url,
        Client(url, era=OTHER[era]) as client,
    ):
        names = {tool.name for tool in await client.list_tools()}
        assert {"b_harvest", "other_say"} <= names
        assert (await client.call_tool("other_say")).text == "said"
        assert (await client.call_tool("b_harvest")).text.startswith("wheat")
        if era == "modern":
            task = await client.start_tool("b_grind", {"bags": 3})
            assert task.id is not None
            assert (await task.result()).text == "3"

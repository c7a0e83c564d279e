"""A client in the same process that is a user of the server."""

from __future__ import annotations

from typing import Any

import pytest
from lab.wording import raises

from wirespeed import Client, Context, Server, Stdio, SyncClient, User
from wirespeed.auth import ResourceServer
from wirespeed.errors import HttpStatusError, RemoteError

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])
pytestmark = pytest.mark.compiled


@pytest.fixture
def server() -> Server:
    server = Server("notes", filter=lambda user, entry: user is not None or entry.name != "mine")

    @server.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.user} {ctx.peer} {None if ctx.user is None else ctx.user.data}"

    @server.tool(scopes=["notes:write"])
    async def wipe() -> str:
        return "wiped"

    @server.tool
    async def mine() -> str:
        return "mine"

    return server


@ERAS
async def test_handlers_see_the_user(server: Server, era: Any) -> None:
    async with Client(server, user=User("ada", data=7), era=era) as client:
        assert (await client.call_tool("who")).text == "ada memory 7"
    async with Client(server, user="bob", era=era) as client:
        assert (await client.call_tool("who")).text == "bob memory None"
        assert len(await client.list_tools()) == 3


@ERAS
async def test_scopes_are_checked(server: Server, era: Any) -> None:
    async with Client(server, user=User("ada", ["notes:read"]), era=era) as client:
        with raises(RemoteError, code=-31003):
            await client.call_tool("wipe")
    async with Client(server, user=User("ada", ["notes:write"]), era=era) as client:
        assert (await client.call_tool("wipe")).text == "wiped"


async def test_without_a_user_nothing_is_asked(server: Server) -> None:
    async with Client(server) as client:
        assert (await client.call_tool("wipe")).text == "wiped"
        assert (await client.call_tool("who")).text == "None None None"
        assert [tool.name for tool in await client.list_tools()] == ["who", "wipe"]


async def test_scopes_of_every_request_let_the_user_in() -> None:
    auth = ResourceServer(
        "https://notes.example/mcp", [], verifier=lambda token: None, scopes=["notes:read"]
    )
    server = Server("notes", auth=auth)
    server.add_tool(lambda: "here", name="ping")
    with raises(HttpStatusError):
        await Client(server, user=User("ada")).open()
    async with Client(server, user=User("ada", ["notes:read"])) as client:
        assert (await client.call_tool("ping")).text == "here"


def test_a_blocking_client_may_be_a_user(server: Server) -> None:
    with SyncClient(server, user=User("ada")) as client:
        assert client.call_tool("who").text == "ada memory None"


def test_only_a_server_in_this_process_takes_a_user(server: Server) -> None:
    with raises(TypeError):
        Client(Stdio("python"), user="ada")
    with raises(TypeError):
        Client("http://127.0.0.1:1/mcp", user="ada")
    with raises(TypeError):
        Client(server, user=5)  # type: ignore[arg-type]
    with raises(TypeError):
        Client(server, user="ada", token="t")
    assert "as 'ada'" in repr(Client(server, user="ada"))

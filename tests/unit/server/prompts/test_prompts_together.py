"""Prompts, resources and completions with the other features of a server."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from caller_lab import Caller
from raw import META, modern
from server_lab import MODERN

from wirespeed import Context, Server
from wirespeed.server.asking.elicitation import ElicitRequest
from wirespeed.server.asking.input_required import InputRequired


class Seat(msgspec.Struct):
    seat: str


class Database:
    name = "database"


ANSWER = {"action": "accept", "content": {"seat": "4A"}}
ELICITS = {META + "clientCapabilities": {"elicitation": {}}}
READ = ("resources/read", {"uri": "seats://5"})
GET = ("prompts/get", {"name": "book", "arguments": {"n": "5"}})


def text(result: Any) -> str:
    (found,) = result["contents"] if "contents" in result else result["messages"]
    value: str = found["text"] if "text" in found else found["content"]["text"]
    return value


@pytest.fixture
def asking(server: Server) -> Server:
    @server.resource("seats://{n}", ttl_ms=1000)
    @server.prompt
    async def book(n: int, ctx: Context) -> str:
        answer = await ctx.elicit("Which seat?", Seat)
        return f"{n} {answer.content.seat}"

    return server


@pytest.fixture
def asking_explicitly(server: Server) -> Server:
    @server.resource("seats://{n}", ttl_ms=1000)
    @server.prompt
    async def book(n: int, ctx: Context) -> str | InputRequired:
        answer = ctx.input_responses.get("seat")
        if answer is None:
            return InputRequired({"seat": ElicitRequest("Which seat?", Seat)}, state={"n": n})
        assert ctx.request_state == {"n": n}
        return f"{n} {answer.as_form(Seat).seat}"

    return server


@pytest.mark.parametrize("kind", ["asking", "asking_explicitly"])
@pytest.mark.parametrize(("method", "params"), [READ, GET])
def test_trap_64_prompts_and_resources_may_ask_a_modern_client(
    kind: str, method: str, params: Any, request: pytest.FixtureRequest, connect: Any
) -> None:
    server = request.getfixturevalue(kind)
    peer = connect(to=server)
    asked = peer.result(modern(1, method, params, **ELICITS))
    assert asked["resultType"] == "input_required"
    # an interim result says nothing of caching (server/utilities/caching)
    assert not asked.keys() & {"ttlMs", "cacheScope", "contents", "messages"}
    ((key, question),) = asked["inputRequests"].items()
    assert question["method"] == "elicitation/create" and "id" not in question
    again = {**params, "inputResponses": {key: ANSWER}, "requestState": asked["requestState"]}
    result = peer.result(modern(2, method, again, **ELICITS))
    assert result["resultType"] == "complete" and text(result) == "5 4A"
    if method == "resources/read":
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


@pytest.mark.parametrize("kind", ["asking", "asking_explicitly"])
@pytest.mark.parametrize(("method", "params"), [READ, GET])
def test_trap_64_a_client_that_cannot_be_asked_is_told_what_it_lacks(
    kind: str, method: str, params: Any, request: pytest.FixtureRequest, connect: Any
) -> None:
    peer = connect(to=request.getfixturevalue(kind))
    error = peer.ask(modern(1, method, params))["error"]
    assert error["code"] == -32021
    assert "elicitation" in error["data"]["requiredCapabilities"]


def test_dependencies_are_no_arguments(caller: Any, server: Server) -> None:
    @server.provide
    async def database() -> Database:
        return Database()

    @server.prompt
    async def ask(question: str, db: Database) -> str:
        return f"{question} {db.name}"

    @server.resource("rows://all")
    def rows(db: Database) -> str:
        return f"all {db.name}"

    @server.resource("rows://{n}")
    def row(db: Database, n: int) -> str:
        return f"{n} {db.name}"

    @server.completion(ask, "question")
    def questions(value: str, db: Database) -> list[str]:
        return [f"{value} {db.name}"]

    client = caller()
    (prompt,) = client.plain("prompts/list")["prompts"]
    assert [argument["name"] for argument in prompt["arguments"]] == ["question"]
    assert text(client.result("prompts/get", name="ask", arguments={"question": "?"})) == (
        "? database"
    )
    assert text(client.result("resources/read", uri="rows://all")) == "all database"
    assert text(client.result("resources/read", uri="rows://5")) == "5 database"
    found = client.result(
        "completion/complete",
        ref={"type": "ref/prompt", "name": "ask"},
        argument={"name": "question", "value": "?"},
    )
    assert found["completion"]["values"] == ["? database"]


def test_one_connection_serves_many_requests_at_once(connect: Any, server: Server) -> None:
    @server.resource("n://{n}")
    async def number(n: int) -> str:
        return str(n)

    @server.prompt
    def echo(n: int) -> str:
        return str(n)

    client = Caller(connect(), MODERN)
    ids = range(1, 101)
    for n in ids:
        if n % 2:
            message = client.message("resources/read", {"uri": f"n://{n}"})
        else:
            message = client.message("prompts/get", {"name": "echo", "arguments": {"n": str(n)}})
        client.peer.send(message)
    got = client.peer.answers(*ids)
    assert {n: text(answer["result"]) for n, answer in got.items()} == {n: str(n) for n in ids}


def test_a_server_of_tools_does_not_load_the_rest() -> None:
    code = (
        "import sys\n"
        "from wirespeed import Server\n"
        "server = Server('x')\n"
        "server.add_tool(lambda: 1, name='t')\n"
        "print(*sorted(m for m in sys.modules if m.startswith('wirespeed.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "wirespeed.server.tools.catalog" in loaded
    for name in ("resource", "prompt", "completer", "templates", "folders", "contents", "strings"):
        assert f"wirespeed.server.{name}" not in loaded
    assert "wirespeed.protocol.uri_template" not in loaded

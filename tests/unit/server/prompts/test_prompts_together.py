"""Prompts, resources and completions with the other features of a server."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

from lab.caller import Caller
from lab.server import MODERN

from wirespeed import Server


class Database:
    name = "database"


def text(result: Any) -> str:
    (found,) = result["contents"] if "contents" in result else result["messages"]
    value: str = found["text"] if "text" in found else found["content"]["text"]
    return value


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
    for name in (
        "server.resources.resource",
        "server.resources.folder",
        "server.resources.contents",
        "server.prompts",
        "server.completion",
        "schema.from_strings",
        "protocol.uri_template",
    ):
        assert importlib.util.find_spec(f"wirespeed.{name}")
        assert f"wirespeed.{name}" not in loaded

"""``wirespeed serve``: which server of a file is meant, and files that cannot be served."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from lab.cli import listening, on_terminal, one_line, wirespeed
from lab.hosts import Visitor, Ways
from lab.process import free_port
from lab.store import StoreServer

pytestmark = pytest.mark.smoke

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "0"},
    },
}

TWO = """
from wirespeed import Server
first, second = Server("first"), Server("second")
"""


def served(path: Path | str, *, cwd: Path | None = None) -> str:
    """The name of the server that answers; its stdout must have the one answer only."""
    done = wirespeed("serve", str(path), stdin=json.dumps(INITIALIZE) + "\n", cwd=cwd)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    name: str = json.loads(line)["result"]["serverInfo"]["name"]
    return name


def refused(path: Path | str) -> str:
    done = wirespeed("serve", str(path))
    assert done.returncode == 3
    return one_line(done)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tools.py"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("anything = Server('only')", "only"),
        ("a = b = Server('twice')", "twice"),
        ("mcp, app, other = map(Server, ['mcp', 'app', 'other'])", "mcp"),
        ("app, server, mcp = map(Server, ['app', 'server', 'mcp'])", "server"),
        ("app, z = Server('app'), Server('z')", "app"),
        ("a, b = Server('a'), Server('b'); b.mount('a', a)", "b"),
        ("app, b = Server('app'), Server('b'); b.mount('app', app)", "b"),
        ("a = Server('part'); Server('hidden').mount('a', a)", "part"),
    ],
)
def test_the_server_that_is_meant(file: Path, text: str, name: str) -> None:
    file.write_text(f"from wirespeed import Server\n{text}\n")
    assert served(file) == name


def test_a_name_chooses(file: Path) -> None:
    file.write_text(TWO + "class Box:\n    inside = Server('boxed')\n")
    assert served(f"{file}:second") == "second"
    assert served(f"{file}:Box.inside") == "boxed"


def test_what_is_imported_behaves_like_a_program(tmp_path: Path) -> None:
    folder = tmp_path / "json"
    folder.mkdir()
    # a name of the standard library, neighbours, printing and reading at import, run() unguarded
    (folder / "helper.py").write_text("NAME = 'helped'\n")
    (folder / "json.py").write_text(
        "import os, subprocess, sys, dataclasses\n"
        "from wirespeed import Server\n"
        "from helper import NAME\n"
        "print('loud'); os.write(1, b'louder'); subprocess.run(['echo', 'loudest'])\n"
        "assert sys.stdin.read() == ''\n"
        "assert __name__ != '__main__' and sys.modules[__name__].NAME\n"
        "assert sys.argv == ['json.py']\n"
        "server = Server(NAME)\n"
        "server.run()\n"
    )
    assert served("json.py", cwd=folder) == "helped"


def test_no_server_or_several(file: Path) -> None:
    assert refused(file) == f"there is no file {file}"
    file.write_text("server = 'none'\n")
    assert refused(file) == f"{file} has no Server at module level; make one: Server('a name')"
    assert refused(f"{file}:server").startswith(f"{file} has no Server called server; it has no")
    assert refused(f"{file}:x").startswith(f"{file} has nothing called x")
    file.write_text(TWO)
    text = f"{file} has several servers; name one of them, as in {file}:NAME: first, second"
    assert refused(file) == text
    assert refused(f"{file}:third") == f"{file} has nothing called third; it has first, second"


def test_an_exception_shows_the_users_part_of_the_traceback(file: Path) -> None:
    file.write_text("def broken():\n    return {}['x']\n\nbroken()\n")
    done = wirespeed("serve", str(file))
    assert (done.returncode, done.stdout) == (3, "")
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{file}", line 4, in <module>'
    assert lines[-1] == f"wirespeed: {file} cannot be imported: line 2: KeyError: 'x'"
    assert "importlib" not in done.stderr
    assert "cli/serve.py" not in done.stderr


def test_frames_of_libraries_are_not_shown(file: Path) -> None:
    text = "from wirespeed import Server\nserver = Server('x')\n"
    file.write_text(text + "@server.tool\ndef f(x: 'Foo') -> int:\n    return 1\n")
    for words in (["serve", str(file)], ["list", str(file)]):
        done = wirespeed(*words)
        assert done.returncode == 3
        lines = done.stderr.splitlines()
        assert lines[-1] == (
            f"wirespeed: {file} cannot be imported: line 3: tool 'f' (f): parameter 'x': "
            "cannot resolve annotation 'Foo': name 'Foo' is not defined; "
            "import or define Foo first, and not for type checkers alone"
        )
        files = {line for line in lines if line.startswith("  File ")}
        assert files == {f'  File "{file}", line 3, in <module>'}


def test_a_syntax_error_shows_the_line(file: Path) -> None:
    file.write_text("def f(:\n")
    done = wirespeed("serve", str(file))
    assert done.returncode == 3
    assert f'File "{file}", line 1' in done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"wirespeed: {file} cannot be imported: line 1: SyntaxError: invalid syntax"
    )


def test_a_file_that_exits(file: Path) -> None:
    file.write_text("raise SystemExit('no licence')\n")
    assert refused(file) == (
        f"{file} ended itself while it was imported: exit(no licence); what only a program does "
        'goes below if __name__ == "__main__":'
    )


def test_a_file_that_is_none(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path} is not a file"


def test_a_terminal_is_told_what_happens(file: Path) -> None:
    file.write_text("from wirespeed import Server\nserver = Server('lonely')\n")
    written, status = on_terminal(["serve", str(file)], typed=b"\x04", NO_COLOR="1")
    assert status == 0
    assert (
        "wirespeed: lonely waits on stdin for the messages of a host; Ctrl-D ends it\r\n" in written
    )


SHARED = """
import os

from wirespeed import Server
from wirespeed.litemcp import LiteServer

server = Server("shared", state_secret=b"the same on all hosts")
alone = Server("alone")
lite = LiteServer("lite")

@server.tool(task="optional", task_after=0)
async def variable() -> str | None:
    return os.environ.get("WIRESPEED_CLUSTER")

@lite.tool
def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.mark.parametrize("by", ["option", "variable"])
def test_hosts_share_a_store(file: Path, by: str, store_server: StoreServer) -> None:
    file.write_text(SHARED)
    url = store_server.url
    messages = [
        INITIALIZE | {"params": INITIALIZE["params"] | {"protocolVersion": "2025-11-25"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "variable", "arguments": {}, "task": {}},
        },
    ]
    done = wirespeed(
        *("serve", f"{file}:server"),
        *(("--cluster", url) if by == "option" else ()),
        stdin="".join(json.dumps(one) + "\n" for one in messages),
        **({} if by == "option" else {"WIRESPEED_CLUSTER": url}),
    )
    assert done.returncode == 0, done.stderr
    task = json.loads(done.stdout.splitlines()[1])["result"]["task"]["taskId"]
    key = f"wirespeed:{{tasks1:shared}}:t:{task}"
    with store_server.client() as client:
        assert client.exists(key)
        assert "redis" not in str(client.dump(key))  # the tool has not seen the variable


def test_any_host_answers_for_a_session(file: Path, store_server: StoreServer) -> None:
    file.write_text(SHARED)
    ways = Ways({"a": free_port(), "b": free_port()})
    with contextlib.ExitStack() as stack:
        for name, port in ways.ports.items():
            url = f"http://127.0.0.1:{port}"
            arguments = ("--on", f"{url}/mcp", "--name", name, "--host-url", url)
            variable = {"WIRESPEED_CLUSTER": store_server.url}
            stack.enter_context(listening(f"{file}:server", *arguments, **variable))

        async def visit() -> None:
            one = Visitor(ways)
            assert (await one.initialize("a")).startswith("a.")
            assert (await one.request("b", "ping")).json["result"] == {}
            ways.close()

        asyncio.run(visit())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--host-url", "http://10.0.0.5:80"), "--host-url needs --cluster URL"),
        (("--cluster", "redis://s", "--host-url", "tcp://h:1"), "--host-url: the URL of a host is"),
        (
            ("--cluster", "redis://s", "--host-url", "http://h:1", "--stateless"),
            "--host-url is for sessions",
        ),
    ],
)
def test_a_host_that_cannot_be_one(file: Path, arguments: tuple[str, ...], text: str) -> None:
    file.write_text(SHARED)
    on = ("--on", "http://127.0.0.1:0/mcp")
    done = wirespeed("serve", f"{file}:server", *on, *arguments)
    assert done.returncode == 2
    assert one_line(done).startswith(text)


@pytest.mark.parametrize(
    ("name", "url", "code"),
    [
        ("server", "redis://:secret@store/x", 2),
        ("alone", "redis://:secret@store", 3),
        ("lite", "redis://:secret@store", 2),
    ],
)
def test_what_cannot_share_a_store(file: Path, name: str, url: str, code: int) -> None:
    file.write_text(SHARED)
    done = wirespeed("serve", f"{file}:{name}", "--cluster", url)
    assert done.returncode == code
    line = one_line(done)
    assert line.startswith("--cluster") and "secret@" not in line

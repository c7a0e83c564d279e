"""Mistakes of people who write a first server: the last line says what to do."""

from __future__ import annotations

from pathlib import Path

from lab.cli import forked
from lab.rows import every

HEAD = """
from wirespeed import Client, Context, Depends, Http, Server, Stdio
from wirespeed.types import Image, ToolResult
server = Server("s")
"""
TOOL = "@server.tool\nasync def t({}) -> {}:\n    return 'x'\n"

# What is below HEAD, and what to do.
FILES = [
    (TOOL.format("ctx", "str"), "to get the Context, annotate it: ctx: Context"),
    (TOOL.format("a", "str"), "say what it takes, such as a: str"),
    ("import socket\n" + TOOL.format("s: socket.socket", "str"), "an argument takes a JSON type"),
    ("class Db: ...\n" + TOOL.format("db: Db", "str"), "register its provider first"),
    (TOOL.format("a: Foo", "str"), "import or define Foo first"),
    (TOOL.format("*args: int", "str"), "replace it by named parameters"),
    (TOOL.format("**options", "str"), "replace it by named parameters"),
    (TOOL.format("", "bytes"), "return Image, Audio or EmbeddedResource"),
    (TOOL.format("", "str") * 2, "or give this one another name"),
    (TOOL.format("", "str").replace("tool", "tool(descripton='x')"), "did you mean 'description'?"),
    ("async def t() -> str: ...\nserver.add_tool(t())\n", "give the function itself"),
    ("server.add_tool(3)\n", "a tool is a function or a callable object"),
    ("server.mount(Server('b'), 'x')\n", "the prefix comes first, then the server"),
    ("server.mount(server=Server('b'), prefix='x')\n", "write mount(prefix, server) or mount(ser"),
    ("server.mount(Server('b'), namspace='x')\n", "write mount(prefix, server) or mount(server"),
    (
        "from wirespeed.proxy import Mirror\nserver.mount('x', Mirror(Stdio('a'), name='a'))\n",
        "the prefix comes first, then the server; write Mirror.server",
    ),
    (
        "b = Server('b')\n" + TOOL.format("", "str").replace("server", "b")
        + "server.mount('x', b)\n" + TOOL.format("", "str").replace("tool", "tool(name='x_t')"),
        "or give this one another name",
    ),
    (
        "b = Server('b')\n" + TOOL.format("", "str").replace("server", "b")
        + TOOL.format("", "str").replace("tool", "tool(name='x_t')") + "server.mount('x', b)\n",
        "mount it with another prefix",
    ),
    (
        "@server.resource('note://{id}')\ndef n() -> str: ...\n",
        "the function has no parameter of this name",
    ),
    ("@server.resource('note://x')\ndef n(id: str) -> str: ...\n", "has no variable {id} for it"),
    ("server.add_resource('no uri', 'x')\n", "it does not begin with a scheme, such as 'file:'"),
    ("import no_such_module\n", "install the package that has it for "),
    ("Image(path='x.png')\n", "write data=Path(…).read_bytes()"),
    ("Image(b'')\n", 'write Image(Path(…).read_bytes(), "image/png")'),
    ("Image(data=b'', format='png')\n", 'write mime_type="image/png"'),
    ("ToolResult([1])\n", "ToolResult takes keyword arguments only: content=…"),
    ("server.run('http://127.0.0.1:1/mcp', tokn='x')\n", "did you mean 'token'?"),
    ("server.run(transport='http', port=8000)\n", "write a URL instead: run('http://127.0.0.1:8"),
    ("server.run('http')\n", "write a URL instead: run('http://127.0.0.1:8000/mcp')"),
    ("server.run('https://127.0.0.1:1/mcp')\n", "needs ssl, an ssl.SSLContext"),
    ("del server\n", "make one: Server('a name')"),
    ("import sys\nsys.exit(2)\n", 'what only a program does goes below if __name__ == "__main__":'),
    ("Server('x', tools=[print])\n", "server.add_tool(function) registers a tool"),
    ("Server('x', instuctions='a')\n", "did you mean 'instructions'?"),
    (
        "@server.completion('p', 'name')\ndef p(value: str) -> list[str]: ...\n",
        "register it before its completion",
    ),
    (
        "import asyncio\nasync def main() -> None:\n    server.run()\nasyncio.run(main())\n",
        "await serve(…) in place of run(…)",
    ),
    (
        "Client({'command': 'python', 'args': ['x.py']})\n",
        '{"mcpServers": {"a name": {"command": …}}}',
    ),
    ("Client(server).call_tool('add', a=1)\n", "call_tool('add', {'a': …})"),
    ("Client(['x'])\n", "a target is Stdio(command, args)"),
    ("with Client(server) as c: ...\n", 'use "async with", or SyncClient'),
    ("import asyncio\nasyncio.run(Client(server).list_tools())\n", 'use "async with Client(…) as'),
]  # fmt: skip


@every(("code", "remedy"), FILES)
def test_the_last_line_says_what_to_do(tmp_path: Path, code: str, remedy: str) -> None:
    path = tmp_path / "mistaken.py"
    path.write_text(HEAD + code)
    done = forked("serve", str(path))
    assert remedy in done.stderr.strip().rpartition("\n")[2], done.stderr

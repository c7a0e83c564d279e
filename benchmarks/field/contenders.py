"""The contenders: servers, clients and proxies, and the commands that start them.

Each SDK is measured as its documentation writes a server (`documented`), and on its fastest
documented settings (`fastest`): answers in JSON, tools without structured output or checks of
arguments where an interface without them is documented, no log, uvloop and httptools in Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import builder

PROGRAMS = builder.PROGRAMS
DOCUMENTED, FASTEST, EVENTS = "documented", "fastest", "events"
# The key and the name of wirespeed, and of the reference that is no SDK.
OURS, REFERENCE = "wirespeed", "c"


@dataclass(frozen=True)
class Server:
    """An echo server with one SDK and one setting.

    Attributes:
        key: The name of the SDK in results.
        name: The same for readers, with the version.
        language: The language.
        setting: `documented`, `fastest`, or `events` (streams of events over HTTP).
        target: The target of builder.py that it needs; None: nothing.
        command: Returns the command without the arguments that every program takes.
        transports: Those that it has.
        announces: Whether it chooses its port and prints it.
    """

    key: str
    name: str
    language: str
    setting: str
    target: str | None
    command: Callable[[], list[str]]
    transports: tuple[str, ...] = ("stdio", "http")
    announces: bool = False

    @property
    def id(self) -> str:
        """The name of the SDK with the setting."""
        return f"{self.key}/{self.setting}"

    def stdio(self, tools: int = 0) -> list[str]:
        """The command of the server over stdio. NotBuilt: it is not there."""
        if self.key == REFERENCE:
            return [str(builder.find("c") / "echo_child")]
        return [*self.command(), "stdio", self.setting, str(tools)]

    def listening(self, transport: str, port: int) -> list[str]:
        """The command of the server over HTTP or WebSocket. NotBuilt: it is not there."""
        if self.key == REFERENCE:
            return [
                str(builder.find("c") / {"http": "echo_http", "websocket": "echo_ws"}[transport])
            ]
        return [*self.command(), transport, self.setting, "0", str(port)]


def _own(program: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, str(PROGRAMS / "python" / program)]


def _python(environment: str, program: str) -> Callable[[], list[str]]:
    return lambda: [python(environment), str(PROGRAMS / "python" / program)]


def python(environment: str) -> str:
    """The interpreter of an environment. NotBuilt: it is not there."""
    return str(builder.find(f"python-{environment}") / "venv" / "bin" / "python")


def _node(program: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        folder = builder.find("npm-typescript")
        return [node(folder), str(folder / program)]

    return command


def node(folder: Path) -> str:
    """The Node.js of a folder of npm packages."""
    return str((folder / "node_modules" / ".bin" / "node").resolve())


def _native(target: str, program: str) -> Callable[[], list[str]]:
    return lambda: [str(builder.find(target) / "bin" / program)]


def _java(program: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        target = builder.find("java") / "target"
        return ["java", "-cp", f"{target / 'field-1.jar'}:{target / 'lib'}/*", f"field.{program}"]

    return command


def _pin(environment: str, package: str) -> str:
    pins: list[str] = builder.PINS["python"][environment]
    found = [pin.partition("==")[2] for pin in pins if pin.partition("==")[0] == package]
    return found[0]


_NPM = builder.PINS["npm"]["typescript"]
_GO = builder.PINS["go"]
# key, name, language, target, command of the server, command of the client, further transports
_SDKS = [
    (
        *("mcp2", f"mcp {_pin('mcp2', 'mcp')}", "Python", "python-mcp2"),
        *(_python("mcp2", "mcp2_server.py"), _python("mcp2", "mcp2_client.py"), ()),
    ),
    (
        *("mcp1", f"mcp {builder.PINS['python']['mcp1'][0].partition('==')[2]}", "Python"),
        *("python-mcp1", _python("mcp1", "mcp1_server.py"), _python("mcp1", "mcp1_client.py")),
        ("websocket",),
    ),
    (
        *("fastmcp", f"FastMCP {_pin('fastmcp', 'fastmcp')}", "Python", "python-fastmcp"),
        *(_python("fastmcp", "fastmcp_server.py"), _python("fastmcp", "fastmcp_client.py"), ()),
    ),
    (
        *("ts1", f"TypeScript SDK {_NPM['@modelcontextprotocol/sdk']}", "Node.js"),
        *("npm-typescript", _node("ts1_server.mjs"), _node("ts1_client.mjs"), ()),
    ),
    (
        *("ts2", f"TypeScript SDK {_NPM['@modelcontextprotocol/server']}", "Node.js"),
        *("npm-typescript", _node("ts2_server.mjs"), _node("ts2_client.mjs"), ()),
    ),
    (
        *("rmcp", f"rmcp {builder.PINS['rust']['rmcp']}", "Rust", "rust"),
        *(_native("rust", "server"), _native("rust", "client"), ()),
    ),
    (
        *("gosdk", f"go-sdk {_GO['github.com/modelcontextprotocol/go-sdk'][1:]}", "Go", "go"),
        *(_native("go", "gosdk_server"), _native("go", "gosdk_client"), ()),
    ),
    (
        *("mcpgo", f"mcp-go {_GO['github.com/mark3labs/mcp-go'][1:]}", "Go", "go"),
        *(_native("go", "mcpgo_server"), _native("go", "mcpgo_client"), ()),
    ),
    (
        *("java", f"Java SDK {builder.PINS['java']['mcp']}", "Java", "java"),
        *(_java("EchoServer"), _java("EchoClient"), ()),
    ),
]


def servers() -> list[Server]:
    """Return all servers: wirespeed first, the reference last."""
    own = ("stdio", "http", "websocket")
    found = [
        Server(OURS, "wirespeed", "Python", setting, None, _own("wirespeed_server.py"), own)
        for setting in (DOCUMENTED, FASTEST)
    ]
    found.append(
        Server(OURS, "wirespeed", "Python", EVENTS, None, _own("wirespeed_server.py"), ("http",))
    )
    for key, name, language, target, server, _, more in _SDKS:
        transports = ("stdio", "http", *more)
        found += [
            Server(key, name, language, setting, target, server, transports)
            for setting in (DOCUMENTED, FASTEST)
        ]
    rmcp = next(one for one in found if one.key == "rmcp")
    found.append(replace(rmcp, setting=EVENTS, transports=("http",)))
    found.append(Server(REFERENCE, "echo in C", "C", FASTEST, "c", list, own, announces=True))
    return found


@dataclass(frozen=True)
class Client:
    """A program that calls a server over stdio: CALLS WARMUP IN_FLIGHT COMMAND…"""

    key: str
    name: str
    language: str
    target: str | None
    command: Callable[[], list[str]]


def clients() -> list[Client]:
    """Return all clients, wirespeed first."""
    own = Client(OURS, "wirespeed", "Python", None, _own("wirespeed_client.py"))
    rest = [Client(key, name, lang, target, of) for key, name, lang, target, _, of, _ in _SDKS]
    return [own, *rest]

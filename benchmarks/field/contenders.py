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
# What a program is told for 2026-07-28, if that needs another interface than its fastest settings.
APART = "modern"
LEGACY, MODERN = "legacy", "modern"
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
        modern: The setting with which its program serves 2026-07-28; None: it does not.
    """

    key: str
    name: str
    language: str
    setting: str
    target: str | None
    command: Callable[[], list[str]]
    transports: tuple[str, ...] = ("stdio", "http")
    announces: bool = False
    modern: str | None = None

    @property
    def id(self) -> str:
        """The name of the SDK with the setting."""
        return f"{self.key}/{self.setting}"

    def stdio(self, tools: int = 0, era: str = LEGACY) -> list[str]:
        """The command of the server over stdio. NotBuilt: it is not there."""
        if self.key == REFERENCE:
            return [str(builder.find("c") / "echo_child"), "--era", era]
        return [*self.command(), "stdio", self._setting(era), str(tools)]

    def listening(self, transport: str, port: int, era: str = LEGACY) -> list[str]:
        """The command of the server over HTTP or WebSocket. NotBuilt: it is not there."""
        if self.key == REFERENCE:
            program = {"http": "echo_http", "websocket": "echo_ws"}[transport]
            return [str(builder.find("c") / program), "--era", era]
        return [*self.command(), transport, self._setting(era), "0", str(port)]

    def _setting(self, era: str) -> str:
        return self.modern or self.setting if era == MODERN else self.setting


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
# key, name, language, target, command of the server, command of the client, further transports,
# the setting for 2026-07-28
_SDKS = [
    (
        *(OURS, "wirespeed", "Python", None),
        *(_own("wirespeed_server.py"), _own("wirespeed_client.py")),
        *(("websocket", "sse"), FASTEST),
    ),
    (
        *("mcp2", f"mcp {_pin('mcp2', 'mcp')}", "Python", "python-mcp2"),
        *(_python("mcp2", "mcp2_server.py"), _python("mcp2", "mcp2_client.py")),
        *(("sse",), FASTEST),
    ),
    (
        *("mcp1", f"mcp {builder.PINS['python']['mcp1'][0].partition('==')[2]}", "Python"),
        *("python-mcp1", _python("mcp1", "mcp1_server.py"), _python("mcp1", "mcp1_client.py")),
        *(("websocket", "sse"), None),
    ),
    (
        *("fastmcp", f"FastMCP {_pin('fastmcp', 'fastmcp')}", "Python", "python-fastmcp"),
        *(_python("fastmcp", "fastmcp_server.py"), _python("fastmcp", "fastmcp_client.py")),
        *(("sse",), FASTEST),
    ),
    (
        *("ts1", f"TypeScript SDK {_NPM['@modelcontextprotocol/sdk']}", "Node.js"),
        *("npm-typescript", _node("ts1_server.mjs"), _node("ts1_client.mjs"), ("sse",), None),
    ),
    (
        *("ts2", f"TypeScript SDK {_NPM['@modelcontextprotocol/server']}", "Node.js"),
        *("npm-typescript", _node("ts2_server.mjs"), _node("ts2_client.mjs"), (), APART),
    ),
    (
        *("rmcp", f"rmcp {builder.PINS['rust']['rmcp']}", "Rust", "rust"),
        *(_native("rust", "server"), _native("rust", "client"), (), FASTEST),
    ),
    (
        *("gosdk", f"go-sdk {_GO['github.com/modelcontextprotocol/go-sdk'][1:]}", "Go", "go"),
        *(_native("go", "gosdk_server"), _native("go", "gosdk_client"), ("sse",), APART),
    ),
    (
        *("mcpgo", f"mcp-go {_GO['github.com/mark3labs/mcp-go'][1:]}", "Go", "go"),
        *(_native("go", "mcpgo_server"), _native("go", "mcpgo_client"), ("sse",), FASTEST),
    ),
    (
        *("java", f"Java SDK {builder.PINS['java']['mcp']}", "Java", "java"),
        *(_java("EchoServer"), _java("EchoClient"), ("sse",), None),
    ),
]


def servers() -> list[Server]:
    """Return all servers: wirespeed first, the reference last."""
    found = []
    for key, name, language, target, server, _, more, modern in _SDKS:
        transports = ("stdio", "http", *more)
        documented = Server(key, name, language, DOCUMENTED, target, server, transports)
        found += [documented, replace(documented, setting=FASTEST, modern=modern)]
        if key in (OURS, "rmcp"):
            found.append(replace(documented, setting=EVENTS, transports=("http",)))
    raw = ("stdio", "http", "websocket")
    reference = Server(REFERENCE, "echo in C", "C", FASTEST, "c", list, raw, announces=True)
    return [*found, replace(reference, modern=FASTEST)]


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
    return [Client(key, name, lang, target, of) for key, name, lang, target, _, of, *_ in _SDKS]

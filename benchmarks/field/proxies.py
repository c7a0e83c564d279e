"""The proxies, and the commands that start them before an echo server in C."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import builder
import contextforge
from contenders import OURS, PROGRAMS, node, python

# What is behind a proxy: the command of a server on stdio, or the URL of one on HTTP.
Behind = Sequence[str] | str


@dataclass(frozen=True)
class Proxy:
    """A proxy in front of one server.

    Attributes:
        key: Its name in results.
        name: The same for readers, with the version.
        behind: `stdio` or `http`: what the server speaks.
        sharing: `shared`: all clients have one server or one session with it; `session`: each has
            its own.
        command: Returns the command for a port, a server and a folder for files.
        tool: The name that echo has behind it.
        path: The path of its endpoint.
        ready: What is to be done when it listens, with the port and the server.
        variables: Further variables of its environment, for a folder for files.
    """

    key: str
    name: str
    behind: str
    sharing: str
    command: Callable[[int, Behind, Path], list[str]]
    tool: str = "echo"
    path: str = "/mcp"
    ready: Callable[[int, Behind], AbstractContextManager[object]] = field(
        default=lambda _port, _behind: nullcontext()
    )
    variables: Callable[[Path], dict[str, str]] = field(default=lambda _folder: {})

    @property
    def id(self) -> str:
        """The name with what is behind it and how it is shared."""
        return f"{self.key}/{self.behind}/{self.sharing}"


def _words(behind: Behind) -> list[str]:
    return [behind] if isinstance(behind, str) else list(behind)


def _ours(isolation: str) -> Callable[[int, Behind, Path], list[str]]:
    def command(port: int, behind: Behind, folder: Path) -> list[str]:
        if isinstance(behind, str):
            server: dict[str, object] = {"url": behind}
        else:
            server = {"command": behind[0], "args": list(behind[1:])}
        server["proxy"] = {"isolation": isolation, "maxClients": 2000}
        config = folder / "servers.json"
        config.write_text(json.dumps({"mcpServers": {"echo": server}}))
        start = [sys.executable, "-m", "wirespeed", "proxy", "--config", str(config)]
        return [*start, "--listen", f"http://127.0.0.1:{port}/mcp"]

    return command


def _supergateway(port: int, behind: Behind, _folder: Path) -> list[str]:
    packages = builder.find("npm-supergateway")
    return [
        *(node(packages), str(packages / "node_modules/supergateway/dist/index.js")),
        *("--stdio", shlex.join(_words(behind)), "--outputTransport", "streamableHttp"),
        *("--stateful", "--port", str(port), "--logLevel", "none"),
    ]


def _punkpeye(port: int, behind: Behind, _folder: Path) -> list[str]:
    packages = builder.find("npm-punkpeye")
    program = (packages / "node_modules" / ".bin" / "mcp-proxy").resolve()
    options = ["--host", "127.0.0.1", "--port", str(port), "--server", "stream", "--no-eventStore"]
    return [node(packages), str(program), *options, "--", *_words(behind)]


def _sparfenyuk(port: int, behind: Behind, _folder: Path) -> list[str]:
    program = Path(python("mcp_proxy")).with_name("mcp-proxy")
    options = ["--port", str(port), "--log-level", "ERROR"]
    return [str(program), *options, "--", *_words(behind)]


def _fastmcp(port: int, behind: Behind, _folder: Path) -> list[str]:
    program = PROGRAMS / "python" / "fastmcp_proxy.py"
    return [python("fastmcp"), str(program), str(port), *_words(behind)]


def _litellm(port: int, behind: Behind, folder: Path) -> list[str]:
    if isinstance(behind, str):
        server = {"url": behind, "transport": "http"}
    else:
        server = {"transport": "stdio", "command": behind[0], "args": list(behind[1:])}
    server["allow_all_keys"] = True
    # JSON is YAML, too
    config = folder / "config.yaml"
    settings = {"dangerously_permit_weak_or_unset_master_key": True}
    made = {"model_list": [], "mcp_servers": {"echo": server}, "general_settings": settings}
    config.write_text(json.dumps(made))
    program = Path(python("litellm")).with_name("litellm")
    options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    return [str(program), *options, "--telemetry", "False"]


def _agentgateway(program: str) -> Callable[[int, Behind, Path], list[str]]:
    def command(port: int, behind: Behind, folder: Path) -> list[str]:
        if isinstance(behind, str):
            target = {"name": "echo", "mcp": {"host": behind}}
        else:
            words = list(behind)
            target = {"name": "echo", "stdio": {"cmd": words[0], "args": words[1:]}}
        route = {"backends": [{"mcp": {"targets": [target]}}]}
        config = folder / "config.yaml"
        binds = [{"port": port, "listeners": [{"routes": [route]}]}]
        config.write_text(json.dumps({"binds": binds}))
        return [program, "-f", str(config)]

    return command


def proxies(agentgateway: str | None) -> list[Proxy]:
    """Return all proxies, wirespeed first.

    agentgateway: The path of its program; None: it is not measured.
    """
    npm, pins = builder.PINS["npm"], builder.PINS["python"]

    def version(environment: str) -> str:
        return str(pins[environment][0].partition("==")[2])

    fastmcp = f"FastMCP {version('fastmcp')} proxy"
    found = [
        Proxy(OURS, "wirespeed proxy", "stdio", "session", _ours("session")),
        Proxy(OURS, "wirespeed proxy", "stdio", "shared", _ours("shared")),
        Proxy(OURS, "wirespeed proxy", "http", "session", _ours("session")),
        Proxy(
            *("supergateway", f"supergateway {npm['supergateway']['supergateway']}"),
            *("stdio", "session", _supergateway),
        ),
        Proxy(
            *("punkpeye", f"punkpeye/mcp-proxy {npm['punkpeye']['mcp-proxy']}"),
            *("stdio", "shared", _punkpeye),
        ),
        Proxy(
            *("sparfenyuk", f"sparfenyuk/mcp-proxy {version('mcp_proxy')}"),
            *("stdio", "shared", _sparfenyuk),
        ),
        Proxy("fastmcp", fastmcp, "stdio", "shared", _fastmcp),
        Proxy("fastmcp", fastmcp, "http", "shared", _fastmcp),
        Proxy(
            *("litellm", f"LiteLLM {version('litellm')}", "http", "session", _litellm),
            tool="echo-echo",
            path="/mcp/",
        ),
        Proxy(
            *("contextforge", f"ContextForge {version('contextforge')}", "http", "session"),
            command=contextforge.command,
            tool="echo-echo",
            path="/mcp/",
            ready=contextforge.registered,
            variables=contextforge.variables,
        ),
    ]
    if agentgateway is not None:
        command = _agentgateway(agentgateway)
        found += [
            Proxy("agentgateway", "agentgateway", "stdio", "session", command),
            Proxy("agentgateway", "agentgateway", "http", "session", command),
        ]
    return found

"""The hosts: where each keeps its servers, and in which form."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from wirespeed.cli.failures import usage


class Launch(NamedTuple):
    """A server that a host starts."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]


class Remote(NamedTuple):
    """A server that a host reaches by its URL."""

    url: str
    headers: Mapping[str, str]

    @property
    def is_websocket(self) -> bool:
        return self.url.startswith(("ws://", "wss://"))


class Host(NamedTuple):
    """A program that uses servers.

    Attributes:
        name: Its name on the command line.
        title: Its name for people.
        user: Its file for all projects: below the folder of a variable of the environment, or
            below the default.
        mac: The folder in place of both on macOS, where that is another one.
        project: Its file in the folder of a project; None if it has none.
        path: The keys that lead to its servers in the file.
        local: Additional members of a server that it starts.
        remote: The name of the URL, and additional members of a server elsewhere; None if it
            reaches none.
        then: What a person does next.
    """

    name: str
    title: str
    user: tuple[str, str, str]
    mac: str | None
    project: str | None
    path: tuple[str, ...]
    local: Mapping[str, Any]
    remote: tuple[str, Mapping[str, Any]] | None
    then: str

    def file(self, project: bool) -> str:
        """Return the path of the file. Failure (2): the host has no file in projects."""
        if project:
            if self.project is None:
                raise usage(f"{self.title} has no file in projects: leave --project out")
            return os.path.abspath(self.project)
        variable, default, rest = self.user
        if sys.platform == "darwin" and self.mac is not None:
            return os.path.join(os.path.expanduser(self.mac), rest)
        return _in(variable, default, rest)

    def entry(self, server: Launch | Remote) -> dict[str, Any]:
        """Return the entry of a server in the form of the host. Failure (2): the host does not
        reach such a server."""
        if self.name == "opencode":
            return _of_opencode(server)
        if isinstance(server, Launch):
            env = {"env": dict(server.env)} if server.env else {}
            return {
                **self.local,
                "command": server.command,
                "args": list(server.args),
                **env,
                **({"tools": ["*"]} if self.name == "copilot" else {}),
            }
        if self.remote is None:
            raise usage(
                f"{self.title} starts the servers of its file itself; a server at a URL is added "
                "in its settings, under Connectors"
            )
        if server.is_websocket and self.name not in ("claude-code", "generic"):
            raise usage(f"{self.title} reaches servers at http:// and https:// URLs only")
        key, members = self.remote
        if server.is_websocket:
            members = {"type": "ws"}
        named = "http_headers" if self.name == "codex" else "headers"
        headers = {named: dict(server.headers)} if server.headers else {}
        tools = {"tools": ["*"]} if self.name == "copilot" else {}
        return {**members, key: server.url, **headers, **tools}


def _of_opencode(server: Launch | Remote) -> dict[str, Any]:
    """The form of OpenCode, which its second version reads, too."""
    if isinstance(server, Launch):
        env = {"environment": dict(server.env)} if server.env else {}
        return {"type": "local", "command": [server.command, *server.args], **env}
    if server.is_websocket:
        raise usage("OpenCode reaches servers at http:// and https:// URLs only")
    headers = {"headers": dict(server.headers)} if server.headers else {}
    return {"type": "remote", "url": server.url, **headers}


def _in(variable: str, default: str, rest: str) -> str:
    """Return a path below the folder that a variable of the environment names."""
    return os.path.join(os.path.expanduser(os.environ.get(variable) or default), rest)


_MAC = "~/Library/Application Support"
_CONFIG = ("XDG_CONFIG_HOME", "~/.config")
_HTTP: Mapping[str, Any] = {"type": "http"}
_NONE: Mapping[str, Any] = {}
_STDIO: Mapping[str, Any] = {"type": "stdio"}

HOSTS = {
    host.name: host
    for host in (
        Host(
            "claude-desktop", "Claude Desktop",
            (*_CONFIG, "Claude/claude_desktop_config.json"), _MAC,
            None, ("mcpServers",), _NONE, None,
            "end Claude Desktop completely and start it again",
        ),
        Host(
            "claude-code", "Claude Code",
            ("CLAUDE_CONFIG_DIR", "~", ".claude.json"), None,
            ".mcp.json", ("mcpServers",), _STDIO, ("url", _HTTP),
            "start claude again; /mcp shows the server",
        ),
        Host(
            "cursor", "Cursor",
            ("", "~/.cursor", "mcp.json"), None,
            ".cursor/mcp.json", ("mcpServers",), _NONE, ("url", _NONE),
            "switch the server on in the settings of Cursor, under MCP",
        ),
        Host(
            "vscode", "VS Code",
            (*_CONFIG, "Code/User/mcp.json"), _MAC,
            ".vscode/mcp.json", ("servers",), _STDIO, ("url", _HTTP),
            'run the command "MCP: List Servers" in VS Code, and start the server',
        ),
        Host(
            "codex", "Codex",
            ("CODEX_HOME", "~/.codex", "config.toml"), None,
            ".codex/config.toml", ("mcp_servers",), _NONE, ("url", _NONE),
            "start codex again; /mcp shows the server",
        ),
        Host(
            "gemini", "Gemini CLI",
            ("", "~/.gemini", "settings.json"), None,
            ".gemini/settings.json", ("mcpServers",), _NONE, ("httpUrl", _NONE),
            "start gemini again; /mcp shows the server",
        ),
        Host(
            "zed", "Zed",
            (*_CONFIG, "zed/settings.json"), "~/.config",
            ".zed/settings.json", ("context_servers",), _NONE, ("url", _NONE),
            "Zed reads the file at once; the settings of its agent show the server",
        ),
        Host(
            "opencode", "OpenCode",
            (*_CONFIG, "opencode/opencode.json"), None,
            "opencode.json", ("mcp",), _NONE, ("url", _NONE),
            "start opencode again; opencode mcp list shows the server",
        ),
        Host(
            "copilot", "Copilot CLI",
            ("COPILOT_HOME", "~/.copilot", "mcp-config.json"), None,
            None, ("mcpServers",), {"type": "local"}, ("url", _HTTP),
            "start copilot again; /mcp shows the server",
        ),
        Host(
            "windsurf", "Windsurf",
            ("", "~/.codeium/windsurf", "mcp_config.json"), None,
            None, ("mcpServers",), _NONE, ("serverUrl", _NONE),
            "reload the servers in the settings of Windsurf, under Cascade",
        ),
        Host(
            "lm-studio", "LM Studio",
            ("", "~/.lmstudio", "mcp.json"), None,
            None, ("mcpServers",), _NONE, ("url", _NONE),
            "LM Studio reads the file at once",
        ),
    )
}  # fmt: skip

# The form that most programs read.
GENERIC = Host(
    "generic", "another host", ("", "", ""), None, None, ("mcpServers",), _NONE, ("url", _HTTP), ""
)

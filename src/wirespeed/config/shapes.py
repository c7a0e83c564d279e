"""Tables of the names that hosts have for things in their configurations."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, cast

from wirespeed.transport.schemes import names

Transport: TypeAlias = Literal["stdio", "ws", "http", "sse", "unix", "tcp"]


class Place(NamedTuple):
    """The place of the servers in a file.

    Attributes:
        path: The keys that lead to the object of all servers.
        hosts: Who writes it.
        unit: Of a plain ``timeout``, in seconds; None: as `SECONDS_UP_TO` says.
    """

    path: tuple[str, ...]
    hosts: str
    unit: float | None = None


# The first one that a file has counts.
PLACES = (
    Place(("mcpServers",), "Claude, Cursor, Cline, Gemini CLI, LM Studio, LibreChat and others"),
    Place(("servers",), "VS Code"),
    Place(("mcp", "servers"), "settings of VS Code"),
    Place(("mcp.servers",), "settings of VS Code"),
    Place(("amp.mcpServers",), "Amp"),
    Place(("context_servers",), "Zed"),
    Place(("mcp_servers",), "Codex"),
    Place(("extensions",), "Goose", 1.0),
    Place(("mcp",), "OpenCode", 0.001),
)
# A file without any of these keys is the object of all servers itself, if a member has one of these
# keys.
STARTS = ("command", "cmd", "url", "serverUrl", "httpUrl", "uri")

# Keys that only Gemini CLI writes, and its folder. In its files ``$NAME`` is a variable, and a
# ``timeout`` is milliseconds.
OF_GEMINI = frozenset(("httpUrl", "trust", "includeTools", "excludeTools"))
GEMINI_FOLDER = ".gemini"

# Hosts disagree about the unit of ``timeout``. A file of a host whose unit is known by its place,
# or by a key that only this host writes, has that unit. Elsewhere a number up to this one is
# seconds, as no host takes more, and a larger one is milliseconds.
SECONDS_UP_TO = 3600
SECONDS_WITH = frozenset(("alwaysAllow", "autoApprove"))  # Cline, Roo Code

# Another host's name of a key, and ours.
NAMES = {
    "cmd": "command",
    "environment": "env",
    "envs": "env",
    "serverUrl": "url",
    "httpUrl": "url",
    "uri": "url",
    "http_headers": "headers",
    "transportType": "transport",
    "tool_timeout_sec": "timeout",
    "startup_timeout_sec": "startTimeout",
    "startup_timeout_ms": "startTimeout",
    "initTimeout": "startTimeout",
}
# The unit of those keys that have one, in seconds.
UNITS = {
    "tool_timeout_sec": 1.0,
    "startup_timeout_sec": 1.0,
    "startup_timeout_ms": 0.001,
    "initTimeout": 0.001,
}
# Keys whose values are names of variables of the environment.
TOKEN_FROM = "bearer_token_env_var"
HEADERS_FROM = "env_http_headers"
VARIABLES_FROM = ("env_vars", "env_keys")

# Words of ``type``, in small letters without "-", "_" and blanks.
TYPES: dict[str, Transport | None] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "streamable": "http",
    "remote": None,  # the URL says which
    "sse": "sse",
    "ws": "ws",
    "websocket": "ws",
    **{name: cast(Transport, name) for name in names("lines")},
}
# Servers that are part of their host.
BUILT_IN = frozenset(("builtin", "platform", "frontend", "inlinepython"))

# The transports of each scheme, the one of a URL alone first.
SCHEMES: dict[str, tuple[Transport, ...]] = {
    **dict.fromkeys(names("websocket"), ("ws",)),
    **dict.fromkeys(names("http"), ("http", "sse")),
    **{name: (cast(Transport, name),) for name in names("lines")},
}

# What changes how a host reaches or uses a server, and is not read here.
UNREAD = frozenset(
    (
        "oauth", "envFile", "headersHelper", "trust", "alwaysAllow", "autoApprove", "alwaysLoad",
        "includeTools", "excludeTools", "enabled_tools", "disabled_tools", "disabledTools",
        "available_tools", "oauth_resource", "scopes", "sandbox", "sandboxEnabled", "requestInit",
        "settings", "dev", "required",
    )
)  # fmt: skip

# Folders in which hosts keep their files inside a workspace.
FOLDERS = frozenset(
    (".vscode", ".cursor", ".gemini", ".roo", ".kiro", ".zed", ".codex", ".amazonq")
)
# Variables of hosts that only a host can fill.
ASKED = {
    "input": "which only VS Code asks for",
    "command": "which only VS Code runs",
    "config": "which only VS Code knows",
    "file": "whose file is not read",
}

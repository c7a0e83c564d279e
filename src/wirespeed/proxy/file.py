"""The configuration of a proxy in a file: an ``mcpServers`` file with keys of its own.

Each server may have an object ``proxy``, and so may the file. Other keys that mean nothing to
wirespeed are a host's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wirespeed.config import Document, Entry, ServerConfig
from wirespeed.errors import ConfigError
from wirespeed.limits import Limits
from wirespeed.proxy.config import (
    NAME,
    PREFIX,
    AdminConfig,
    BackendConfig,
    Isolation,
    ProxyConfig,
    ToolsConfig,
)

T = TypeVar("T")

_Seconds = Annotated[float, Meta(gt=0, le=1e9)]
_Count = Annotated[int, Meta(ge=1, le=1 << 31)]


class _Keys(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Keys of the proxy. What is not given has the default of the class that it makes."""

    def given(self) -> dict[str, Any]:
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not UNSET
        }


class Tools(_Keys):
    """Which tools clients see at the endpoint of all servers, by the names of the server."""

    allow: Annotated[tuple[str, ...], Meta(description="Globs: others are hidden.")] | UnsetType = (
        UNSET
    )
    deny: Annotated[tuple[str, ...], Meta(description="Globs: these are hidden.")] | UnsetType = (
        UNSET
    )
    rename: Annotated[dict[str, str], Meta(description="Other names.")] | UnsetType = UNSET
    describe: Annotated[dict[str, str], Meta(description="Other descriptions.")] | UnsetType = UNSET


class Backend(_Keys):
    """How the proxy uses a server."""

    isolation: (
        Annotated[
            Isolation,
            Meta(
                description="session: a server for each client. shared: one for all clients. "
                "pool: several for all clients."
            ),
        ]
        | UnsetType
    ) = UNSET
    size: (
        Annotated[int, Meta(ge=1, le=1000, description="The most servers of a pool.")] | UnsetType
    ) = UNSET
    start_timeout: (
        Annotated[_Seconds, Meta(description="Seconds for its handshake.")] | UnsetType
    ) = UNSET
    max_clients: (
        Annotated[_Count, Meta(description="Clients at a time with isolation session.")] | UnsetType
    ) = UNSET
    prefix: (
        Annotated[
            str,
            Meta(
                pattern=f"^{PREFIX.pattern}$",
                description="Stands before the names of its tools and prompts at the endpoint of "
                "all servers; its name and _ by default.",
            ),
        ]
        | UnsetType
    ) = UNSET
    tools: Tools | UnsetType = UNSET


LimitKeys: Any = msgspec.defstruct(
    "Limits",
    [(field.name, _Count | UnsetType, UNSET) for field in msgspec.structs.fields(Limits)],
    bases=(_Keys,),
    rename="camel",
    forbid_unknown_fields=True,
    namespace={"__doc__": "Limits of each client's connection."},
)


class Admin(_Keys):
    """The admin listener: state, metrics and the status page."""

    listen: (
        Annotated[str, Meta(description="Its URL; http://127.0.0.1:9464 by default.")] | UnsetType
    ) = UNSET
    token: (
        Annotated[
            str, Meta(description="What its clients must bring; made at the start if absent.")
        ]
        | UnsetType
    ) = UNSET


class Top(_Keys):
    """What holds for all servers."""

    listen: (
        Annotated[tuple[str, ...], Meta(description="URLs to listen at; none: stdio.")] | UnsetType
    ) = UNSET
    limits: LimitKeys | UnsetType = UNSET
    shutdown_grace: (
        Annotated[_Seconds, Meta(description="Seconds for requests in flight at the end.")]
        | UnsetType
    ) = UNSET
    page_size: (
        Annotated[_Count, Meta(description="Entries on a page of a list of several servers.")]
        | UnsetType
    ) = UNSET
    admin: Admin | UnsetType = UNSET


def load(path: str | os.PathLike[str]) -> ProxyConfig:
    """Read the configuration of a proxy: JSON, or TOML if the name ends so.

    Raises:
        ConfigError: It names the file, the place in it and what is expected there.
    """
    document = Document.load(path)
    servers = [server for server in document.servers.values() if server.enabled]
    if not servers:
        raise ConfigError(f"{document.source}: no server is enabled")
    top = document.convert("proxy", document.content.get("proxy", {}), Top).given()
    if "listen" in top:
        top["listen"] = tuple(
            document.expand(f"proxy.listen[{i}]", url) for i, url in enumerate(top["listen"])
        )
    if "limits" in top:
        top["limits"] = _made(document, "proxy.limits", Limits, top["limits"].given())
    if "admin" in top:
        own = {
            name: document.expand(f"proxy.admin.{name}", text)
            for name, text in top["admin"].given().items()
        }
        top["admin"] = _made(document, "proxy.admin", AdminConfig, own)
    top.setdefault("listen", ())
    top["backends"] = tuple(_backend(document, server) for server in servers)
    return _made(document, "", ProxyConfig, top)


def _backend(document: Document, server: ServerConfig) -> BackendConfig:
    place = document.place(server.name)
    if server.auth is not None and server.auth.type == "oauth":
        raise ConfigError(
            f"{document.source}: {place}.auth: nobody can log in to the proxy: "
            "use client_credentials or a token"
        )
    own = document.convert(f"{place}.proxy", server.extra.get("proxy", {}), Backend).given()
    if "tools" in own:
        own["tools"] = _made(document, f"{place}.proxy.tools", ToolsConfig, own["tools"].given())
    own["target"] = server.target()
    own["name"] = server.name
    own["era"] = server.era
    return _made(document, place, BackendConfig, own)


def _made(document: Document, place: str, kind: Callable[..., T], fields: dict[str, Any]) -> T:
    try:
        return kind(**fields)
    except ValueError as exc:
        where = f"{place}: " if place else ""
        raise ConfigError(f"{document.source}: {where}{exc}") from None


class Server(Entry, rename="camel"):
    """A server. Further keys are a host's."""

    proxy: Backend | UnsetType = UNSET


class File(msgspec.Struct, rename="camel"):
    """Configuration of wirespeed proxy. Further keys are a host's."""

    mcp_servers: dict[Annotated[str, Meta(pattern=f"^{NAME.pattern}$")], Server]
    proxy: Top | UnsetType = UNSET


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the file."""
    found = msgspec.json.schema(File)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}

"""The configuration of a proxy in a file: an ``mcpServers`` file with keys of its own.

Each server may have an object ``proxy``, and so may the file. Other keys that mean nothing to
wirespeed are a host's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wirespeed.auth.verifiers.hashes import PREFIX as PREFIX_OF_HASHES
from wirespeed.auth.verifiers.hashes import hash_token
from wirespeed.config import ServerConfig
from wirespeed.config.document import Document
from wirespeed.config.entry import Entry
from wirespeed.errors import ConfigError
from wirespeed.limits import Limits
from wirespeed.proxy.config import (
    LITE,
    NAME,
    PREFIX,
    SHA256,
    AdminConfig,
    AuditConfig,
    AuditEvent,
    AuthorizationConfig,
    BackendConfig,
    BreakerConfig,
    FlowConfig,
    HealthConfig,
    IntrospectionConfig,
    Isolation,
    ListenConfig,
    PrincipalConfig,
    ProxyConfig,
    RateConfig,
    RecycleConfig,
    RetryConfig,
    ToolRules,
    ToolsConfig,
)
from wirespeed.transport.child.command import Stdio
from wirespeed.transport.child.privileges import ProcessLimits

T = TypeVar("T")

logger = logging.getLogger("wirespeed.proxy")

_Seconds = Annotated[float, Meta(gt=0, le=1e9)]
_Count = Annotated[int, Meta(ge=1, le=1 << 31)]
_Size = Annotated[int, Meta(ge=1, le=1 << 61)]


class _Keys(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Keys of the proxy. What is not given has the default of the class that it makes."""

    def given(self) -> dict[str, Any]:
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not UNSET
        }


class Tools(_Keys):
    """Which tools clients may use, and how those are shown at the endpoint of all servers, by the
    names of the server."""

    allow: (
        Annotated[tuple[str, ...], Meta(description="Globs: nobody may use others.")] | UnsetType
    ) = UNSET
    deny: (
        Annotated[tuple[str, ...], Meta(description="Globs: nobody may use these.")] | UnsetType
    ) = UNSET
    rename: Annotated[dict[str, str], Meta(description="Other names.")] | UnsetType = UNSET
    describe: Annotated[dict[str, str], Meta(description="Other descriptions.")] | UnsetType = UNSET


class Flow(_Keys):
    """How many requests a server gets at once. Others wait."""

    max_in_flight: (
        Annotated[_Count, Meta(description="Requests at once, of all clients.")] | UnsetType
    ) = UNSET
    max_in_flight_per_client: (
        Annotated[_Count, Meta(description="Requests at once, of one client.")] | UnsetType
    ) = UNSET
    tools: (
        Annotated[
            dict[str, _Count],
            Meta(description="Globs of tools, and how many calls of these run at once."),
        ]
        | UnsetType
    ) = UNSET
    max_queued: (
        Annotated[int, Meta(ge=0, le=1 << 31, description="Requests that wait.")] | UnsetType
    ) = UNSET
    max_queued_bytes: (
        Annotated[int, Meta(ge=0, le=1 << 40, description="Bytes of the requests that wait.")]
        | UnsetType
    ) = UNSET


class Rate(_Keys):
    """How many requests a client may send."""

    requests: Annotated[float, Meta(gt=0, le=1e9, description="Requests a second.")]
    burst: (
        Annotated[_Count, Meta(description="Requests at once; as many as in a second.")] | UnsetType
    ) = UNSET


ProcessKeys: Any = msgspec.defstruct(
    "ProcessLimits",
    [(field.name, _Size | UnsetType, UNSET) for field in msgspec.structs.fields(ProcessLimits)],
    bases=(_Keys,),
    rename="camel",
    forbid_unknown_fields=True,
    namespace={"__doc__": "Limits of each process: bytes of memory, seconds of CPU, counts."},
)


class Process(_Keys):
    """As whom a server runs that the proxy starts, and how much it may use."""

    user: Annotated[str, Meta(description="Its user; it needs root.")] | UnsetType = UNSET
    group: Annotated[str, Meta(description="Its group; the user's by default.")] | UnsetType = UNSET
    limits: ProcessKeys | UnsetType = UNSET


class Health(_Keys):
    """How the proxy finds a server that hangs: it sends `ping`, or `server/discover`."""

    interval: (
        Annotated[_Seconds, Meta(description="Seconds of silence, while requests wait.")]
        | UnsetType
    ) = UNSET
    timeout: (
        Annotated[_Seconds, Meta(description="Seconds for the answer; then it is ended.")]
        | UnsetType
    ) = UNSET


class Recycle(_Keys):
    """When a process that clients share is replaced by a new one."""

    max_age: Annotated[_Seconds, Meta(description="Seconds since its start.")] | UnsetType = UNSET
    max_requests: (
        Annotated[_Count, Meta(description="Requests that it has answered.")] | UnsetType
    ) = UNSET
    max_memory: (
        Annotated[int, Meta(ge=1, description="Bytes in memory, with its children.")] | UnsetType
    ) = UNSET


class Retry(_Keys):
    """Which calls of tools are sent again when a server ends before it has answered."""

    tools: (
        Annotated[tuple[str, ...], Meta(description="Globs of tools that may run twice.")]
        | UnsetType
    ) = UNSET
    trust_annotations: (
        Annotated[
            bool,
            Meta(description="Whether tools may that the server calls read-only or idempotent."),
        ]
        | UnsetType
    ) = UNSET


class Breaker(_Keys):
    """When requests to a server are refused for a while."""

    failures: Annotated[_Count, Meta(description="Failures in a row.")] | UnsetType = UNSET
    pause: Annotated[_Seconds, Meta(description="Seconds.")] | UnsetType = UNSET


class Backend(_Keys):
    """How the proxy uses a server."""

    protocol: (
        Annotated[Literal["mcp", "litemcp"], Meta(description="What it speaks.")] | UnsetType
    ) = UNSET
    isolation: (
        Annotated[
            Isolation,
            Meta(
                description="auto: session for clients of legacy eras, pool for requests of "
                "2026-07-28. session: a server for each client. shared: one for all clients. "
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
    session_idle: (
        Annotated[
            _Seconds,
            Meta(
                description="Seconds of silence after which an HTTP client of isolation session"
                " loses its process."
            ),
        ]
        | UnsetType
    ) = UNSET
    spares: (
        Annotated[
            int,
            Meta(ge=0, le=1000, description="Servers that wait for clients, isolation session."),
        ]
        | UnsetType
    ) = UNSET
    idle_timeout: (
        Annotated[
            _Seconds,
            Meta(description="Seconds without work after which a shared server is stopped."),
        ]
        | UnsetType
    ) = UNSET
    recycle: Recycle | UnsetType = UNSET
    ask: (
        Annotated[
            bool,
            Meta(description="Whether a shared server may ask a client that is alone."),
        ]
        | UnsetType
    ) = UNSET
    health: Health | UnsetType = UNSET
    request_timeout: (
        Annotated[_Seconds, Meta(description="Seconds that the server has for a request.")]
        | UnsetType
    ) = UNSET
    retry: Retry | UnsetType = UNSET
    breaker: Breaker | UnsetType = UNSET
    translate: (
        Annotated[bool, Meta(description="Serve clients of an era that the server does not speak.")]
        | UnsetType
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
    flow: Flow | UnsetType = UNSET
    required: (
        Annotated[bool, Meta(description="Whether /readyz says no while the server is down.")]
        | UnsetType
    ) = UNSET
    lite: (
        Annotated[
            tuple[Annotated[str, Meta(pattern=f"^{LITE.pattern}$")], ...],
            Meta(description="Its tools that clients of LiteMCP may use, at /lite/SERVER/TOOL."),
        ]
        | UnsetType
    ) = UNSET
    process: Process | UnsetType = UNSET


LimitKeys: Any = msgspec.defstruct(
    "Limits",
    [(field.name, _Count | UnsetType, UNSET) for field in msgspec.structs.fields(Limits)],
    bases=(_Keys,),
    rename="camel",
    forbid_unknown_fields=True,
    namespace={"__doc__": "Limits of each client's connection."},
)


_Names: TypeAlias = tuple[str, ...] | UnsetType


class Listen(_Keys):
    """A listener. Variables are replaced in all texts."""

    url: str
    token: Annotated[str, Meta(description="The bearer token of clients.")] | UnsetType = UNSET
    tokens: (
        Annotated[tuple[str, ...], Meta(min_length=1, description="Several of them.")] | UnsetType
    ) = UNSET
    certfile: (
        Annotated[str, Meta(description="The certificate and its chain (PEM).")] | UnsetType
    ) = UNSET
    keyfile: Annotated[str, Meta(description="Its key, if elsewhere.")] | UnsetType = UNSET
    origins: Annotated[_Names, Meta(description="Web pages that may connect.")] = UNSET
    hosts: Annotated[_Names, Meta(description="Names of the proxy.")] = UNSET
    headers: (
        Annotated[
            dict[str, str],
            Meta(description="Header fields of the answer that accepts a WebSocket."),
        ]
        | UnsetType
    ) = UNSET
    max_connections: Annotated[_Count, Meta(description="Connections at once.")] | UnsetType = UNSET
    max_input_bytes: (
        Annotated[_Count, Meta(description="Bytes of all requests that are not complete.")]
        | UnsetType
    ) = UNSET
    session_idle: (
        Annotated[
            _Seconds, Meta(description="Seconds of silence after which an HTTP session ends.")
        ]
        | UnsetType
    ) = UNSET
    trusted_proxies: Annotated[_Names, Meta(description="Proxies that name the client.")] = UNSET
    sse_path: Annotated[str, Meta(description="The path of HTTP+SSE.")] | UnsetType = UNSET
    access_log: Literal["text", "json"] | UnsetType = UNSET
    access_log_sample: (
        Annotated[float, Meta(gt=0, le=1, description="The share of requests that is logged.")]
        | UnsetType
    ) = UNSET


class Rules(_Keys):
    """Which tools a principal may see and call, by the names at the endpoint of all servers."""

    allow: Annotated[_Names, Meta(description="Globs: others are not allowed.")] = UNSET
    deny: Annotated[_Names, Meta(description="Globs: these are not allowed.")] = UNSET


class Principal(_Keys):
    """Who may use what. It has one of token, tokenSha256 and subject."""

    name: Annotated[str, Meta(pattern=f"^{NAME.pattern}$")]
    token: (
        Annotated[str, Meta(description="Its token, mostly a variable: at least 32 characters.")]
        | UnsetType
    ) = UNSET
    token_sha256: Annotated[str, Meta(pattern=f"^{SHA256.pattern}$")] | UnsetType = msgspec.field(
        default=UNSET, name="tokenSha256"
    )
    subject: Annotated[str, Meta(description="Of its access tokens.")] | UnsetType = UNSET
    issuer: Annotated[str, Meta(description="Of these, among several.")] | UnsetType = UNSET
    servers: Annotated[_Names, Meta(description="Globs of servers that it may use.")] = UNSET
    tools: Rules | UnsetType = UNSET
    rate: Rate | UnsetType = UNSET


class Introspection(_Keys):
    """An authorization server that is asked about tokens: with a client or a token."""

    url: str
    client_id: str | UnsetType = UNSET
    client_secret: str | UnsetType = UNSET
    token: str | UnsetType = UNSET


class Authorization(_Keys):
    """Which access tokens let clients in."""

    resource: Annotated[str, Meta(description="The URL of the proxy as clients know it.")]
    issuers: Annotated[tuple[str, ...], Meta(min_length=1)]
    jwks_url: Annotated[str, Meta(description="Where the keys are.")] | UnsetType = UNSET
    introspection: Introspection | UnsetType = UNSET
    scopes: Annotated[_Names, Meta(description="What every client needs.")] = UNSET


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


class Audit(_Keys):
    """What is noted of clients, and where."""

    to: Annotated[str, Meta(min_length=1, description="stderr, or a file.")]
    events: (
        Annotated[
            tuple[AuditEvent, ...],
            Meta(description="What is noted; call and refusal by default."),
        ]
        | UnsetType
    ) = UNSET


class Top(_Keys):
    """What holds for all servers."""

    listen: (
        Annotated[tuple[str | Listen, ...], Meta(description="Where to listen; nowhere: stdio.")]
        | UnsetType
    ) = UNSET
    principals: tuple[Principal, ...] | UnsetType = UNSET
    auth: Authorization | UnsetType = UNSET
    audit: (
        Annotated[str, Meta(min_length=1, description="stderr, or a file.")] | Audit | UnsetType
    ) = UNSET
    limits: LimitKeys | UnsetType = UNSET
    shutdown_grace: (
        Annotated[_Seconds, Meta(description="Seconds for requests in flight at the end.")]
        | UnsetType
    ) = UNSET
    drain_delay: (
        Annotated[_Seconds, Meta(description="Seconds before the end in which /readyz says no.")]
        | UnsetType
    ) = UNSET
    page_size: (
        Annotated[_Count, Meta(description="Entries on a page of a list of several servers.")]
        | UnsetType
    ) = UNSET
    ready_within: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=1e9,
                description="Seconds that clients of several servers wait for those that are not "
                "ready.",
            ),
        ]
        | UnsetType
    ) = UNSET
    watch: Annotated[bool, Meta(description="Read the file again when it changes.")] | UnsetType = (
        UNSET
    )
    rate: Rate | UnsetType = UNSET
    slow_client_timeout: (
        Annotated[
            _Seconds,
            Meta(description="Seconds until a client that does not read is disconnected."),
        ]
        | UnsetType
    ) = UNSET
    admin: Admin | UnsetType = UNSET
    name: (
        Annotated[
            str,
            Meta(description="Its name: in session ids, metrics and the audit log. Not secret."),
        ]
        | UnsetType
    ) = UNSET


# Keys of a server whose values are objects, and what is made of them.
_OBJECTS: dict[str, Callable[..., Any]] = {
    "breaker": BreakerConfig,
    "flow": FlowConfig,
    "health": HealthConfig,
    "recycle": RecycleConfig,
    "retry": RetryConfig,
    "tools": ToolsConfig,
}


def load(
    path: str | os.PathLike[str],
    environ: Mapping[str, str] | None = None,
    *,
    on_fault: Callable[[str, ConfigError], BackendConfig | None] | None = None,
) -> ProxyConfig:
    """Read the configuration of a proxy: JSON, or TOML if the name ends so.

    A server whose entry has a fault is left out, and the fault is logged.

    Args:
        path: The file.
        environ: Where variables are looked up (default: ``os.environ``).
        on_fault: Called with the name of such a server and its fault, in place of the log. It may
            return the configuration that the server has then.

    Raises:
        ConfigError: The file cannot be read, what holds for all servers has a fault, or there is no
            server without one. The text names the file, the place in it and what is expected there.
    """
    document = Document.load(path, environ)
    servers = [server for server in document.servers.values() if server.enabled]
    if not servers:
        raise ConfigError(f"{document.source}: no server is enabled")
    top = document.convert("proxy", document.content.get("proxy", {}), Top).given()
    if "listen" in top:
        top["listen"] = tuple(
            _listen(document, f"proxy.listen[{i}]", one) for i, one in enumerate(top["listen"])
        )
    if "principals" in top:
        top["principals"] = tuple(
            _principal(document, f"proxy.principals[{i}]", one)
            for i, one in enumerate(top["principals"])
        )
    if "auth" in top:
        top["auth"] = _authorization(document, "proxy.auth", top["auth"])
    if "audit" in top:
        top["audit"] = _audit(document, top["audit"])
    if "name" in top:
        top["name"] = document.expand("proxy.name", top["name"])
    if "limits" in top:
        top["limits"] = _made(document, "proxy.limits", Limits, top["limits"].given())
    if "rate" in top:
        top["rate"] = _made(document, "proxy.rate", RateConfig, top["rate"].given())
    if "admin" in top:
        own = {
            name: document.expand(f"proxy.admin.{name}", text)
            for name, text in top["admin"].given().items()
        }
        top["admin"] = _made(document, "proxy.admin", AdminConfig, own)
    top.setdefault("listen", ())
    top["backends"] = tuple(_backends(document, servers, on_fault or _left_out))
    return _made(document, "", ProxyConfig, top)


def _left_out(name: str, fault: ConfigError) -> None:
    logger.error("%s; the server %s is left out", fault, name)


def _backends(
    document: Document,
    servers: list[ServerConfig],
    on_fault: Callable[[str, ConfigError], BackendConfig | None],
) -> Iterator[BackendConfig]:
    """The servers, as far as their entries are right. ConfigError: none is."""
    first: ConfigError | None = None
    n_found = 0
    for server in servers:
        try:
            found: BackendConfig | None = _backend(document, server)
        except ConfigError as exc:
            first = first or exc
            if len(servers) == 1:
                raise
            found = on_fault(server.name, exc)
        if found is not None:
            n_found += 1
            yield found
    if n_found == 0 and first is not None:
        raise first


def _audit(document: Document, keys: str | Audit) -> AuditConfig:
    place = "proxy.audit" if isinstance(keys, str) else "proxy.audit.to"
    given = {"to": keys} if isinstance(keys, str) else keys.given()
    to = document.expand(place, given["to"])
    given["to"] = to if to == "stderr" else document.resolve(to)
    return AuditConfig(**given)


def _listen(document: Document, place: str, keys: str | Listen) -> str | ListenConfig:
    if isinstance(keys, str):
        return document.expand(place, keys)
    given = _expanded(document, place, keys)
    if "token" in given and "tokens" in given:
        raise ConfigError(f'{document.source}: {place}: give either "token" or "tokens"')
    if "token" in given:
        given["tokens"] = (given.pop("token"),)
    for name in ("certfile", "keyfile"):
        if name in given:
            given[name] = document.resolve(given[name])
    return _made(document, place, ListenConfig, given)


def _principal(document: Document, place: str, keys: Principal) -> PrincipalConfig:
    given = _expanded(document, place, keys)
    if "token" in given and "token_sha256" in given:
        raise ConfigError(f'{document.source}: {place}: give either "token" or "tokenSha256"')
    if "token" in given:
        token = given.pop("token")
        hashed = _made(document, f"{place}.token", hash_token, {"token": token})
        given["token_sha256"] = hashed.removeprefix(PREFIX_OF_HASHES)
    if "tools" in given:
        given["tools"] = ToolRules(**given["tools"].given())
    if "rate" in given:
        given["rate"] = _made(document, f"{place}.rate", RateConfig, given["rate"].given())
    return _made(document, place, PrincipalConfig, given)


def _authorization(document: Document, place: str, keys: Authorization) -> AuthorizationConfig:
    given = _expanded(document, place, keys)
    if "introspection" in given:
        inner = f"{place}.introspection"
        found = _expanded(document, inner, given["introspection"])
        given["introspection"] = _made(document, inner, IntrospectionConfig, found)
    return _made(document, place, AuthorizationConfig, given)


def _expanded(document: Document, place: str, keys: _Keys) -> dict[str, Any]:
    """The keys that are given, with variables replaced in their texts."""
    found = keys.given()
    names = {field.name: field.encode_name for field in msgspec.structs.fields(keys)}
    for name, value in found.items():
        path = f"{place}.{names[name]}"
        if isinstance(value, str):
            found[name] = document.expand(path, value)
        elif isinstance(value, tuple):
            found[name] = tuple(document.expand(f"{path}[{i}]", one) for i, one in enumerate(value))
        elif isinstance(value, dict):
            found[name] = {key: document.expand(f"{path}.{key}", one) for key, one in value.items()}
    return found


def _backend(document: Document, server: ServerConfig) -> BackendConfig:
    place = document.place(server.name)
    if server.auth is not None and server.auth.type == "oauth":
        raise ConfigError(
            f"{document.source}: {place}.auth: nobody can log in to the proxy: "
            "use client_credentials or a token"
        )
    own = document.convert(f"{place}.proxy", server.extra.get("proxy", {}), Backend).given()
    for name, kind in _OBJECTS.items():
        if name in own:
            own[name] = _made(document, f"{place}.proxy.{name}", kind, own[name].given())
    own["target"] = server.target()
    if "process" in own:
        own["target"] = _process(
            document, f"{place}.proxy.process", own.pop("process"), own["target"]
        )
    if server.start_timeout is not None:
        own.setdefault("start_timeout", server.start_timeout)
    own["name"] = server.name
    own["era"] = server.era
    return _made(document, place, BackendConfig, own)


def _process(document: Document, place: str, keys: Process, target: Any) -> Stdio:
    if not isinstance(target, Stdio):
        raise ConfigError(f"{document.source}: {place}: the proxy does not start this server")
    given = keys.given()
    if "limits" in given:
        given["limits"] = ProcessLimits(**given["limits"].given())
    return msgspec.structs.replace(target, **given)


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

"""The file of a proxy: its keys, its JSON Schema, and how it is read. It is an ``mcpServers`` file.

Each server may have an object ``proxy``, and so may the file. Other keys are a host's. Most keys
are fields of a configuration, which has their types; bounds and descriptions are here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import reduce
from operator import or_
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wirespeed.auth.access_token import PREFIX as PREFIX_OF_HASHES
from wirespeed.auth.access_token import hash_token
from wirespeed.config import ServerConfig
from wirespeed.config.document import Document
from wirespeed.config.entry import Entry
from wirespeed.errors import ConfigError
from wirespeed.limits import Limits
from wirespeed.proxy.backend_config import (
    LITE,
    NAME,
    PREFIX,
    BackendConfig,
    BreakerConfig,
    FlowConfig,
    HealthConfig,
    RateConfig,
    RecycleConfig,
    RetryConfig,
    ToolRules,
    ToolsConfig,
    kinds_of,
)
from wirespeed.proxy.config import (
    SHA256,
    AdminConfig,
    AuditConfig,
    AuthorizationConfig,
    IntrospectionConfig,
    ListenConfig,
    PrincipalConfig,
    ProxyConfig,
)
from wirespeed.transport.child.command import ProcessLimits, Stdio
from wirespeed.transport.child.process import launch_faults

T = TypeVar("T")

logger = logging.getLogger("wirespeed.proxy")


class Keys(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Keys of the proxy. What is not given has the default of the class that it makes."""

    def given(self) -> dict[str, Any]:
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not UNSET
        }


def _keys(name: str, config: Any, doc: str, /, **keys: Any) -> Any:
    """Return the class of an object of the file.

    Args:
        name: Its name in the JSON Schema.
        config: The configuration that is made of it. Keys of fields without a default are required.
        doc: Its description.
        keys: For a field of the configuration its description, or a `Meta` with bounds. For another
            key, or one of another type than the field, its type.
    """
    kinds = kinds_of(config)
    required = {f.name for f in fields(config) if f.default is f.default_factory is MISSING}
    found: list[Any] = []
    for key, value in keys.items():
        if not isinstance(value, str | Meta):
            found.append((key, value | UnsetType, UNSET))
            continue
        meta = Meta(description=value) if isinstance(value, str) else value
        kind: Any = Annotated[_without_none(kinds[key]), meta]
        found.append((key, kind) if key in required else (key, kind | UnsetType, UNSET))
    return _struct(name, doc, found)


def _struct(name: str, doc: str, keys: list[Any]) -> Any:
    return msgspec.defstruct(
        name,
        keys,
        bases=(Keys,),
        rename="camel",
        forbid_unknown_fields=True,
        namespace={"__doc__": doc},
    )


def _without_none(kind: Any) -> Any:
    given = [one for one in get_args(kind) if one is not NoneType]
    return reduce(or_, given) if NoneType in get_args(kind) else kind


def _seconds(description: str) -> Meta:
    return Meta(gt=0, le=1e9, description=description)


def _count(description: str) -> Meta:
    return Meta(ge=1, le=1 << 31, description=description)


_Count = Annotated[int, Meta(ge=1, le=1 << 31)]
_Size = Annotated[int, Meta(ge=1, le=1 << 61)]

# -- a server --------------------------------------------------------------------------------------

ToolsKeys = _keys(
    "Tools",
    ToolsConfig,
    "The tools that clients may use, and their names at the endpoint of all servers.",
    allow="Globs: nobody may use others.",
    deny="Globs: nobody may use these.",
    rename="Other names.",
    describe="Other descriptions.",
)

FlowKeys = _keys(
    "Flow",
    FlowConfig,
    "How many requests a server gets at once. Others wait.",
    max_in_flight=_count("Requests at once, of all clients."),
    max_in_flight_per_client=_count("Requests at once, of one client."),
    tools=Annotated[
        dict[str, _Count],
        Meta(description="Globs of tools, and how many calls of these run at once."),
    ],
    max_queued=Meta(ge=0, le=1 << 31, description="Requests that wait."),
    max_queued_bytes=Meta(ge=0, le=1 << 40, description="Bytes of the requests that wait."),
)

RateKeys = _keys(
    "Rate",
    RateConfig,
    "How many requests a client may send.",
    requests=_seconds("Requests a second."),
    burst=_count("Requests at once; as many as in a second."),
)

ProcessLimitKeys: Any = _struct(
    "ProcessLimits",
    "Limits of each process: bytes of memory, seconds of CPU, counts.",
    [(one.name, _Size | UnsetType, UNSET) for one in msgspec.structs.fields(ProcessLimits)],
)


class ProcessKeys(Keys):
    """As whom a server runs that the proxy starts, and how much it may use."""

    user: Annotated[str, Meta(description="Its user; it needs root.")] | UnsetType = UNSET
    group: Annotated[str, Meta(description="Its group; the user's by default.")] | UnsetType = UNSET
    limits: ProcessLimitKeys | UnsetType = UNSET


HealthKeys = _keys(
    "Health",
    HealthConfig,
    "How the proxy finds a server that hangs: it sends `ping`, or `server/discover`.",
    interval=_seconds("Seconds of silence, while requests wait."),
    timeout=_seconds("Seconds for the answer; then it is ended."),
)

RecycleKeys = _keys(
    "Recycle",
    RecycleConfig,
    "When a process that clients share is replaced by a new one.",
    max_age=_seconds("Seconds since its start."),
    max_requests=_count("Requests that it has answered."),
    max_memory=Meta(ge=1, description="Bytes in memory, with its children."),
)

RetryKeys = _keys(
    "Retry",
    RetryConfig,
    "Which calls of tools are sent again when a server ends before it has answered.",
    tools="Globs of tools that may run twice.",
    trust_annotations="Whether tools may that the server calls read-only or idempotent.",
)

BreakerKeys = _keys(
    "Breaker",
    BreakerConfig,
    "When requests to a server are refused for a while.",
    failures=_count("Failures in a row."),
    pause=_seconds("Seconds."),
)

BackendKeys: Any = _keys(
    "Backend",
    BackendConfig,
    "How the proxy uses a server.",
    protocol="What it speaks.",
    isolation="auto: session for clients of legacy eras, pool for requests of 2026-07-28. "
    "session: a server for each client. shared: one for all clients. "
    "pool: several for all clients.",
    size=Meta(ge=1, le=1000, description="The most servers of a pool."),
    start_timeout=_seconds("Seconds for its handshake."),
    max_clients=_count("Clients at a time with isolation session."),
    session_idle=_seconds(
        "Seconds of silence after which an HTTP client of isolation session loses its process."
    ),
    spares=Meta(ge=0, le=1000, description="Servers that wait for clients, isolation session."),
    idle_timeout=_seconds("Seconds without work after which a shared server is stopped."),
    recycle=RecycleKeys,
    ask="Whether a shared server may ask a client that is alone.",
    health=HealthKeys,
    request_timeout=_seconds("Seconds that the server has for a request."),
    retry=RetryKeys,
    breaker=BreakerKeys,
    translate="Serve clients of an era that the server does not speak.",
    prefix=Meta(
        pattern=f"^{PREFIX.pattern}$",
        description="Stands before the names of its tools and prompts at the endpoint of all "
        "servers; its name and _ by default.",
    ),
    tools=ToolsKeys,
    flow=FlowKeys,
    required="Whether /readyz says no while the server is down.",
    lite=Annotated[
        tuple[Annotated[str, Meta(pattern=f"^{LITE.pattern}$")], ...],
        Meta(description="Its tools that clients of LiteMCP may use, at /lite/SERVER/TOOL."),
    ],
    process=ProcessKeys,
)

# -- the proxy -------------------------------------------------------------------------------------

LimitKeys = _struct(
    "Limits",
    "Limits of each client's connection.",
    [(name, _Count | UnsetType, UNSET) for name in Limits.__slots__],
)

ListenKeys: Any = _keys(
    "Listen",
    ListenConfig,
    "A listener. Variables are replaced in all texts.",
    url=Meta(),
    token=Annotated[str, Meta(description="The bearer token of clients.")],
    tokens=Meta(min_length=1, description="Several of them."),
    certfile="The certificate and its chain (PEM).",
    keyfile="Its key, if elsewhere.",
    origins="Web pages that may connect.",
    hosts="Names of the proxy.",
    headers="Header fields of the answer that accepts a WebSocket.",
    max_connections=_count("Connections at once."),
    max_input_bytes=_count("Bytes of all requests that are not complete."),
    session_idle=_seconds("Seconds of silence after which an HTTP session ends."),
    trusted_proxies="Proxies that name the client.",
    sse_path="The path of HTTP+SSE.",
    access_log=Meta(),
    access_log_sample=Meta(gt=0, le=1, description="The share of requests that is logged."),
)

RulesKeys = _keys(
    "Rules",
    ToolRules,
    "Which tools a principal may see and call, by the names at the endpoint of all servers.",
    allow="Globs: others are not allowed.",
    deny="Globs: these are not allowed.",
)

PrincipalKeys: Any = _keys(
    "Principal",
    PrincipalConfig,
    "Who may use what. It has one of token, tokenSha256 and subject.",
    name=Meta(pattern=f"^{NAME.pattern}$"),
    token=Annotated[str, Meta(description="Its token, mostly a variable: at least 32 characters.")],
    token_sha256=Meta(pattern=f"^{SHA256.pattern}$"),
    subject="Of its access tokens.",
    issuer="Of these, among several.",
    servers="Globs of servers that it may use.",
    tools=RulesKeys,
    rate=RateKeys,
)

IntrospectionKeys = _keys(
    "Introspection",
    IntrospectionConfig,
    "An authorization server that is asked about tokens: with a client or a token.",
    url=Meta(),
    client_id=Meta(),
    client_secret=Meta(),
    token=Meta(),
)

AuthorizationKeys: Any = _keys(
    "Authorization",
    AuthorizationConfig,
    "Which access tokens let clients in.",
    resource="The URL of the proxy as clients know it.",
    issuers=Meta(min_length=1),
    jwks_url="Where the keys are.",
    introspection=IntrospectionKeys,
    scopes="What every client needs.",
)

AdminKeys = _keys(
    "Admin",
    AdminConfig,
    "The admin listener: state, metrics and the status page.",
    listen="Its URL; http://127.0.0.1:9464 by default.",
    token="What its clients must bring; made at the start if absent.",
)

_AUDIT_TO = Meta(min_length=1, description="stderr, or a file.")

AuditKeys: Any = _keys(
    "Audit",
    AuditConfig,
    "What is noted of clients, and where.",
    to=_AUDIT_TO,
    events="What is noted; call and refusal by default.",
)

TopKeys: Any = _keys(
    "Top",
    ProxyConfig,
    "What holds for all servers.",
    listen=Annotated[
        tuple[str | ListenKeys, ...], Meta(description="Where to listen; nowhere: stdio.")
    ],
    principals=tuple[PrincipalKeys, ...],
    auth=AuthorizationKeys,
    audit=Annotated[str, _AUDIT_TO] | AuditKeys,
    limits=LimitKeys,
    shutdown_grace=_seconds("Seconds for requests in flight at the end."),
    drain_delay=_seconds("Seconds before the end in which /readyz says no."),
    page_size=_count("Entries on a page of a list of several servers."),
    ready_within=Meta(
        ge=0,
        le=1e9,
        description="Seconds that clients of several servers wait for those that are not ready.",
    ),
    watch="Read the file again when it changes.",
    rate=RateKeys,
    slow_client_timeout=_seconds("Seconds until a client that does not read is disconnected."),
    admin=AdminKeys,
    tracing="Whether requests are traced with OpenTelemetry; OTEL_… says how.",
    name="Its name: in session ids, metrics and the audit log. Not secret.",
)


class ServerKeys(Entry, rename="camel"):
    """A server. Further keys are a host's."""

    proxy: BackendKeys | UnsetType = UNSET


class File(msgspec.Struct, rename="camel"):
    """Configuration of wirespeed proxy. Further keys are a host's."""

    mcp_servers: dict[Annotated[str, Meta(pattern=f"^{NAME.pattern}$")], ServerKeys]
    proxy: TopKeys | UnsetType = UNSET


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the file. Its names are those of the classes without ``Keys``."""
    text = msgspec.json.encode(msgspec.json.schema(File)).replace(b'Keys"', b'"')
    found: dict[str, Any] = msgspec.json.decode(text)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


# -- how it is read --------------------------------------------------------------------------------

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
    on_missing: Callable[[str | None, str], None] | None = None,
) -> ProxyConfig:
    """Read the configuration of a proxy: JSON, or TOML if the name ends so.

    A server whose entry has a fault is left out, and the fault is logged.

    Args:
        path: The file.
        environ: Where variables are looked up (default: ``os.environ``).
        on_fault: Called with the name of such a server and its fault, in place of the log. It may
            return the configuration that the server has then.
        on_missing: Called for each command, folder and file that the configuration needs and that
            this process cannot use: with the name of the server, None for all of them, and a text
            as that of an error. By default nobody looks for these.

    Raises:
        ConfigError: The file cannot be read, what holds for all servers has a fault, or there is no
            server without one. The text names the file, the place in it and what is expected there.
    """
    document = Document.load(path, environ)
    servers = [server for server in document.servers.values() if server.enabled]
    if not servers:
        raise ConfigError(f"{document.source}: no server is enabled")
    top = document.convert("proxy", document.content.get("proxy", {}), TopKeys).given()
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
    if on_missing is not None:
        _look(document, servers, top, on_missing)
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


def _look(
    document: Document,
    servers: list[ServerConfig],
    top: dict[str, Any],
    on_missing: Callable[[str | None, str], None],
) -> None:
    """Look for what the configuration needs of this machine. Listeners look for their files."""
    from wirespeed.proxy.access.audit import fault_of

    if (audit := top.get("audit")) is not None and (fault := fault_of(audit.to)) is not None:
        on_missing(None, f"{document.source}: proxy.audit: {fault}")
    targets = {one.name: one.target for one in top["backends"]}
    for server in servers:
        target = targets.get(server.name)
        if isinstance(target, Stdio):
            for field, reason in launch_faults(target):
                key = "proxy.process" if field == "user" else field
                place = f"{document.place(server.name)}.{key}"
                on_missing(server.name, f"{document.source}: {place}: {reason}")


def _audit(document: Document, keys: str | AuditKeys) -> AuditConfig:
    place = "proxy.audit" if isinstance(keys, str) else "proxy.audit.to"
    given = {"to": keys} if isinstance(keys, str) else keys.given()
    to = document.expand(place, given["to"])
    given["to"] = to if to == "stderr" else document.resolve(to)
    return AuditConfig(**given)


def _listen(document: Document, place: str, keys: str | ListenKeys) -> str | ListenConfig:
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


def _principal(document: Document, place: str, keys: PrincipalKeys) -> PrincipalConfig:
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


def _authorization(document: Document, place: str, keys: AuthorizationKeys) -> AuthorizationConfig:
    given = _expanded(document, place, keys)
    if "introspection" in given:
        inner = f"{place}.introspection"
        found = _expanded(document, inner, given["introspection"])
        given["introspection"] = _made(document, inner, IntrospectionConfig, found)
    return _made(document, place, AuthorizationConfig, given)


def _expanded(document: Document, place: str, keys: Keys) -> dict[str, Any]:
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
    own = document.convert(f"{place}.proxy", server.extra.get("proxy", {}), BackendKeys).given()
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


def _process(document: Document, place: str, keys: ProcessKeys, target: Any) -> Stdio:
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

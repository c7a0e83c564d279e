"""The keys of the file of a proxy, and its JSON Schema. It is an ``mcpServers`` file.

Each server may have an object ``proxy``, and so may the file. Other keys are a host's. Most keys
are fields of a configuration, which has their types; bounds and descriptions are here.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import reduce
from operator import or_
from types import NoneType
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wirespeed.config.entry import Entry
from wirespeed.limits import Limits
from wirespeed.proxy.backend_config import (
    LITE,
    NAME,
    PREFIX,
    BackendConfig,
    BreakerConfig,
    FlowConfig,
    HealthConfig,
    IdentityConfig,
    RateConfig,
    RecycleConfig,
    RetryConfig,
    ToolRules,
    ToolsConfig,
)
from wirespeed.proxy.config import (
    SHA256,
    AdminConfig,
    AuditConfig,
    AuthorizationConfig,
    ClusterConfig,
    IntrospectionConfig,
    ListenConfig,
    PrincipalConfig,
    ProxyConfig,
)
from wirespeed.proxy.config_types import kinds_of
from wirespeed.proxy.hook_config import HookConfig
from wirespeed.tool_search import MAX_FOUND, ToolSearch
from wirespeed.transport.child.command import ProcessLimits


class Keys(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Keys of the proxy. A key that is absent has the default of the configuration's class."""

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
        config: The class of the configuration that is made of it. Keys of fields without a default
            are required.
        doc: Its description.
        keys: For a field of the configuration, its description, or a `Meta` with bounds. For a key
            that has no field, or another type than the field, its type.
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

SearchKeys: Any = _keys(
    "ToolSearch",
    ToolSearch,
    "A search in place of a list of tools: clients list one that searches and one that calls.",
    visible="Globs of tools that the list shows besides.",
    limit=Meta(ge=1, le=MAX_FOUND, description="The tools of one answer; 5."),
    search_name="The name of the tool that searches.",
    call_name="The name of the tool that calls.",
)

_Quotas = Annotated[
    dict[str, _Count],
    Meta(description="Globs of tools, and how many calls of these a client has in a day (UTC)."),
]

HookKeys: Any = _keys(
    "Hook",
    HookConfig,
    "What calls of some tools pass: an HTTP service, or functions in Python. It has url or call.",
    tools=Meta(min_length=1, description="Globs of the server's names of the tools."),
    url="The service, which gets a POST before a call and after its result.",
    call=Annotated[
        str, Meta(description="MODULE:NAME of an object with the methods before and after.")
    ],
    phases=Meta(min_length=1, description="When it is asked: before and after by default."),
    token="Sent to the service as a bearer token.",
    timeout=_seconds("Seconds that it has (5)."),
    on_failure="What becomes of the call if it fails: refuse (default) or pass.",
)

IdentityKeys: Any = _keys(
    "Identity",
    IdentityConfig,
    "Who each principal is at a server elsewhere.",
    type="exchange: the user's token is exchanged (RFC 8693). enterprise: the same by the "
    "identity provider of an organization (ID-JAG). login: the user logs in. header: a value of "
    "each user's own.",
    client_id=Meta(),
    client_secret=Meta(),
    issuer="The authorization server.",
    scopes="What to ask for.",
    audience="The server's name there.",
    idp="The identity provider.",
    idp_client_id=Meta(),
    idp_client_secret=Meta(),
    redirect_uri="Where users come back after a login, at a listener of the proxy.",
    keys="Seal stored logins, at least 32 characters each; the first one seals.",
    folder="Where logins are stored.",
    header="The name of the header field; Authorization by default.",
    file="The file with the value; {principal} in it is the name of the principal.",
    credential=Annotated[
        str, Meta(description="MODULE:NAME of a function of the name of a principal.")
    ],
    refresh=_seconds("Seconds after which the value is read again (60)."),
    max_principals=_count("Principals with connections at once (256)."),
    idle_timeout=_seconds("Seconds without a client until connections are closed (300)."),
    allow_private="Whether metadata may lead to private addresses.",
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
    resolve="How the addresses of the host of the URL are looked up: a: A and AAAA records; "
    "srv: SRV records.",
    resolver=Meta(description="Nameservers that are asked: IP addresses, with a port if not 53."),
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
    tool_search=SearchKeys,
    hooks=tuple[HookKeys, ...],
    identity=IdentityKeys,
    skills="all, or approved: those that are in the file of proxy.approvals.",
    cache_lists="Keep lists of a shared server until it says that they have changed, or as long as "
    "it says.",
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
    response="What answers a request over HTTP: JSON, a stream, or what fits.",
    trusted_proxies="Proxies that name the client.",
    sse_path="The path of HTTP+SSE.",
    access_log=Meta(),
    access_log_sample=Meta(gt=0, le=1, description="The share of requests that is logged."),
    card="Experimental: the URL of this listener as clients reach it, for server cards.",
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
    quotas=_Quotas,
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

ClusterKeys: Any = _keys(
    "Cluster",
    ClusterConfig,
    "The store that several hosts of the proxy share, Valkey or Redis.",
    secret="The same on all hosts, at least 16 bytes; mostly a variable.",
    url=Annotated[str, Meta(description="Of the store; WIRESPEED_CLUSTER by default.")],
    prefix="With which keys in the store begin.",
    host_url="Where the other hosts reach a listener of this one: http://HOST:PORT.",
    hosts=_count("How many hosts there are (1)."),
    store_timeout=_seconds("Seconds that a request waits for the store (0.25)."),
    on_store_loss="While the store is away: local counts on each host, refuse refuses.",
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
    quotas=_Quotas,
    slow_client_timeout=_seconds("Seconds until a client that does not read is disconnected."),
    admin=AdminKeys,
    cluster=ClusterKeys,
    tracing="Whether requests are traced with OpenTelemetry; OTEL_… says how.",
    servers_folder="A folder with a file for each of further servers, which is watched as well.",
    approvals="The file with the skills that are approved, for servers with skills approved.",
    extensions=Annotated[
        tuple[str, ...],
        Meta(description="MODULE:NAME of each extension that passes at the endpoint of all."),
    ],
    name="Its name: in session ids, metrics and the audit log. Not secret.",
    tool_search=SearchKeys,
    list_digests="Experimental: keep a list of a server while it has the same digest.",
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

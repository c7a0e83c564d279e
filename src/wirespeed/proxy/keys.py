"""The keys of a proxy's file, and its JSON Schema.

Each server may have an object ``proxy``, and so may the file. Other keys that mean nothing to
wirespeed are a host's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from wirespeed.config.entry import Entry
from wirespeed.limits import Limits
from wirespeed.proxy.backend_config import (
    LITE,
    NAME,
    PREFIX,
    Isolation,
)
from wirespeed.proxy.config import SHA256, AuditEvent
from wirespeed.transport.child.command import ProcessLimits

_Seconds = Annotated[float, Meta(gt=0, le=1e9)]
_Count = Annotated[int, Meta(ge=1, le=1 << 31)]
_Size = Annotated[int, Meta(ge=1, le=1 << 61)]


class Keys(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Keys of the proxy. What is not given has the default of the class that it makes."""

    def given(self) -> dict[str, Any]:
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not UNSET
        }


class ToolsKeys(Keys):
    """The tools that clients may use, and their names at the endpoint of all servers."""

    allow: (
        Annotated[tuple[str, ...], Meta(description="Globs: nobody may use others.")] | UnsetType
    ) = UNSET
    deny: (
        Annotated[tuple[str, ...], Meta(description="Globs: nobody may use these.")] | UnsetType
    ) = UNSET
    rename: Annotated[dict[str, str], Meta(description="Other names.")] | UnsetType = UNSET
    describe: Annotated[dict[str, str], Meta(description="Other descriptions.")] | UnsetType = UNSET


class FlowKeys(Keys):
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


class RateKeys(Keys):
    """How many requests a client may send."""

    requests: Annotated[float, Meta(gt=0, le=1e9, description="Requests a second.")]
    burst: (
        Annotated[_Count, Meta(description="Requests at once; as many as in a second.")] | UnsetType
    ) = UNSET


ProcessLimitKeys: Any = msgspec.defstruct(
    "ProcessLimits",
    [(field.name, _Size | UnsetType, UNSET) for field in msgspec.structs.fields(ProcessLimits)],
    bases=(Keys,),
    rename="camel",
    forbid_unknown_fields=True,
    namespace={"__doc__": "Limits of each process: bytes of memory, seconds of CPU, counts."},
)


class ProcessKeys(Keys):
    """As whom a server runs that the proxy starts, and how much it may use."""

    user: Annotated[str, Meta(description="Its user; it needs root.")] | UnsetType = UNSET
    group: Annotated[str, Meta(description="Its group; the user's by default.")] | UnsetType = UNSET
    limits: ProcessLimitKeys | UnsetType = UNSET


class HealthKeys(Keys):
    """How the proxy finds a server that hangs: it sends `ping`, or `server/discover`."""

    interval: (
        Annotated[_Seconds, Meta(description="Seconds of silence, while requests wait.")]
        | UnsetType
    ) = UNSET
    timeout: (
        Annotated[_Seconds, Meta(description="Seconds for the answer; then it is ended.")]
        | UnsetType
    ) = UNSET


class RecycleKeys(Keys):
    """When a process that clients share is replaced by a new one."""

    max_age: Annotated[_Seconds, Meta(description="Seconds since its start.")] | UnsetType = UNSET
    max_requests: (
        Annotated[_Count, Meta(description="Requests that it has answered.")] | UnsetType
    ) = UNSET
    max_memory: (
        Annotated[int, Meta(ge=1, description="Bytes in memory, with its children.")] | UnsetType
    ) = UNSET


class RetryKeys(Keys):
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


class BreakerKeys(Keys):
    """When requests to a server are refused for a while."""

    failures: Annotated[_Count, Meta(description="Failures in a row.")] | UnsetType = UNSET
    pause: Annotated[_Seconds, Meta(description="Seconds.")] | UnsetType = UNSET


class BackendKeys(Keys):
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
    recycle: RecycleKeys | UnsetType = UNSET
    ask: (
        Annotated[
            bool,
            Meta(description="Whether a shared server may ask a client that is alone."),
        ]
        | UnsetType
    ) = UNSET
    health: HealthKeys | UnsetType = UNSET
    request_timeout: (
        Annotated[_Seconds, Meta(description="Seconds that the server has for a request.")]
        | UnsetType
    ) = UNSET
    retry: RetryKeys | UnsetType = UNSET
    breaker: BreakerKeys | UnsetType = UNSET
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
    tools: ToolsKeys | UnsetType = UNSET
    flow: FlowKeys | UnsetType = UNSET
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
    process: ProcessKeys | UnsetType = UNSET


LimitKeys: Any = msgspec.defstruct(
    "Limits",
    [(field.name, _Count | UnsetType, UNSET) for field in msgspec.structs.fields(Limits)],
    bases=(Keys,),
    rename="camel",
    forbid_unknown_fields=True,
    namespace={"__doc__": "Limits of each client's connection."},
)


_Names: TypeAlias = tuple[str, ...] | UnsetType


class ListenKeys(Keys):
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


class RulesKeys(Keys):
    """Which tools a principal may see and call, by the names at the endpoint of all servers."""

    allow: Annotated[_Names, Meta(description="Globs: others are not allowed.")] = UNSET
    deny: Annotated[_Names, Meta(description="Globs: these are not allowed.")] = UNSET


class PrincipalKeys(Keys):
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
    tools: RulesKeys | UnsetType = UNSET
    rate: RateKeys | UnsetType = UNSET


class IntrospectionKeys(Keys):
    """An authorization server that is asked about tokens: with a client or a token."""

    url: str
    client_id: str | UnsetType = UNSET
    client_secret: str | UnsetType = UNSET
    token: str | UnsetType = UNSET


class AuthorizationKeys(Keys):
    """Which access tokens let clients in."""

    resource: Annotated[str, Meta(description="The URL of the proxy as clients know it.")]
    issuers: Annotated[tuple[str, ...], Meta(min_length=1)]
    jwks_url: Annotated[str, Meta(description="Where the keys are.")] | UnsetType = UNSET
    introspection: IntrospectionKeys | UnsetType = UNSET
    scopes: Annotated[_Names, Meta(description="What every client needs.")] = UNSET


class AdminKeys(Keys):
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


class AuditKeys(Keys):
    """What is noted of clients, and where."""

    to: Annotated[str, Meta(min_length=1, description="stderr, or a file.")]
    events: (
        Annotated[
            tuple[AuditEvent, ...],
            Meta(description="What is noted; call and refusal by default."),
        ]
        | UnsetType
    ) = UNSET


class TopKeys(Keys):
    """What holds for all servers."""

    listen: (
        Annotated[
            tuple[str | ListenKeys, ...], Meta(description="Where to listen; nowhere: stdio.")
        ]
        | UnsetType
    ) = UNSET
    principals: tuple[PrincipalKeys, ...] | UnsetType = UNSET
    auth: AuthorizationKeys | UnsetType = UNSET
    audit: (
        Annotated[str, Meta(min_length=1, description="stderr, or a file.")] | AuditKeys | UnsetType
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
    rate: RateKeys | UnsetType = UNSET
    slow_client_timeout: (
        Annotated[
            _Seconds,
            Meta(description="Seconds until a client that does not read is disconnected."),
        ]
        | UnsetType
    ) = UNSET
    admin: AdminKeys | UnsetType = UNSET
    tracing: (
        Annotated[
            bool,
            Meta(description="Whether requests are traced with OpenTelemetry; OTEL_… says how."),
        ]
        | UnsetType
    ) = UNSET
    name: (
        Annotated[
            str,
            Meta(description="Its name: in session ids, metrics and the audit log. Not secret."),
        ]
        | UnsetType
    ) = UNSET


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

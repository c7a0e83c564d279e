"""What a proxy does, as values."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from wirespeed._exports import set_public_home
from wirespeed.limits import Limits
from wirespeed.transport.address import parse, quote_path
from wirespeed.transport.http.options import check_name, default_name
from wirespeed.transport.options import is_token

if TYPE_CHECKING:
    from wirespeed.client.targets.remote import Http, Socket, WebSocket
    from wirespeed.transport.child.command import Stdio

Era: TypeAlias = Literal["auto", "legacy", "modern"]
Isolation: TypeAlias = Literal["auto", "session", "shared", "pool"]

PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,65}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")
LITE = re.compile(r"[^\x00-\x20?#%\x7f]{1,200}")
SHA256 = re.compile(r"[0-9A-Fa-f]{64}")


@dataclass(frozen=True, kw_only=True)
class ToolRules:
    """Which tools are allowed.

    Attributes:
        allow: Globs of names; what none matches is not allowed.
        deny: Globs of names; what one matches is not allowed.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    @property
    def restricts(self) -> bool:
        """Whether there is a tool that is not allowed."""
        return self.allow != ("*",) or bool(self.deny)

    def allows(self, name: str, *others: str) -> bool:
        """Whether a tool is allowed. ``others``: its other names, which only ``deny`` counts."""
        return any(fnmatchcase(name, glob) for glob in self.allow) and not any(
            fnmatchcase(one, glob) for glob in self.deny for one in (name, *others)
        )


@dataclass(frozen=True, kw_only=True)
class ToolsConfig(ToolRules):
    """Which tools of a server clients may use, and how they see them.

    ``allow`` and ``deny`` hold at each endpoint that has the server, the others where its endpoint
    is shared with other servers.

    Attributes:
        allow: Globs of the server's names; what none matches can neither be seen nor called.
        deny: Globs of the server's names; what one matches can neither be seen nor called.
        rename: Names of the server's tools, and what clients call them, without a prefix.
        describe: Names of the server's tools, and their descriptions instead of its own.
    """

    rename: dict[str, str] = field(default_factory=dict)
    describe: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FlowConfig:
    """How many requests a server gets at once. The others wait in the proxy: the clients take
    turns, a request each. A request for which there is no place is refused with ``-31000``, over
    HTTP with status 503.

    A client is a connection or a session. Requests of 2026-07-28 over HTTP have neither: there it
    is the principal, or else the address.

    Attributes:
        max_in_flight: Requests at once that all processes of the server work on; None: any number.
        max_in_flight_per_client: The same of one client.
        tools: Globs of names of tools, and how many calls of those that match run at once. For each
            tool the first glob that matches it decides its limit.
        max_queued: Requests that wait.
        max_queued_bytes: Bytes of these.
    """

    max_in_flight: int | None = None
    max_in_flight_per_client: int | None = None
    tools: dict[str, int] = field(default_factory=dict)
    max_queued: int = 1024
    max_queued_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        limits = self.max_in_flight, self.max_in_flight_per_client, *self.tools.values()
        if any(limit is not None and limit < 1 for limit in limits):
            raise ValueError("a limit of requests in flight must be at least 1")
        if self.max_queued < 0 or self.max_queued_bytes < 0:
            raise ValueError("the limits of what waits must not be negative")

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return bool(self.max_in_flight or self.max_in_flight_per_client or self.tools)


@dataclass(frozen=True, kw_only=True)
class RateConfig:
    """How many requests a client may send: a token bucket.

    Attributes:
        requests: Requests a second.
        burst: Requests at once, after a pause; by default as many as in a second.
    """

    requests: float
    burst: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.requests <= 1e9:
            raise ValueError("requests must be above 0 and at most 1e9")
        if self.burst < 0:
            raise ValueError("burst must be at least 1")
        if self.burst == 0:
            object.__setattr__(self, "burst", max(1, int(self.requests)))


@dataclass(frozen=True, kw_only=True)
class HealthConfig:
    """How a server that hangs is found.

    Attributes:
        interval: Seconds without a message of the server, while requests wait for it, after which
            the proxy sends it `ping`, or `server/discover`.
        timeout: Seconds that it has to answer. Then it is ended, and started again.
    """

    interval: float = 30.0
    timeout: float = 10.0


@dataclass(frozen=True, kw_only=True)
class RecycleConfig:
    """When a process that clients share is replaced. None: never for this reason.

    Attributes:
        max_age: Seconds since its start.
        max_requests: Requests that it has answered.
        max_memory: Bytes in memory, of the process and of those that it has started. They are
            looked at every few seconds, where the system tells them.
    """

    max_age: float | None = None
    max_requests: int | None = None
    max_memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class RetryConfig:
    """Which calls of tools are sent again when a server that clients share ends before it has
    answered. Lists and reads always are.

    Attributes:
        tools: Globs of the names of tools that may run twice.
        trust_annotations: Whether those may as well that the server calls read-only or idempotent.
    """

    tools: tuple[str, ...] = ()
    trust_annotations: bool = False


@dataclass(frozen=True, kw_only=True)
class BreakerConfig:
    """When requests to a server are refused for a while.

    Attributes:
        failures: How many in a row: ends of the server, starts that failed, requests that took
            longer than they may.
        pause: Seconds for which requests are refused. Then one is passed on: its answer ends the
            refusal.
    """

    failures: int = 5
    pause: float = 10.0

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError(f"failures is 1 or more, not {self.failures}")


@dataclass(frozen=True, kw_only=True)
class BackendConfig:
    """One server behind the proxy.

    Attributes:
        target: How to start or reach it.
        name: Its name in paths, errors and logs: letters, digits and ``._~-``, at most 64.
        protocol: What it speaks: ``"mcp"``, or ``"litemcp"`` (1.0.0), whose one tool is shown as a
            tool of MCP with strings as parameters. Clients share a server of LiteMCP.
        isolation: ``"session"``: each client has a server of its own, and everything passes.
            ``"shared"``: one server for all clients. What such a server says without naming a
            request reaches a client only while that client is alone. ``"pool"``: the same with
            several servers. A client of a legacy era stays with one of them. ``"auto"``: clients
            of a legacy era get ``"session"``, requests of 2026-07-28 a ``"pool"``.
        size: The most servers of a pool, for each era.
        era: What a shared server speaks: ``"auto"`` to ask it, ``"legacy"`` (with ``initialize``),
            ``"modern"`` (2026-07-28). In a file this key stands beside ``proxy``.
        start_timeout: Seconds for its handshake.
        max_clients: The most clients at a time with isolation ``"session"``, so the most processes.
            For a further client the session is ended that was silent for the longest, of the
            principal or the address with the most sessions. If all clients work, the further one is
            refused.
        session_idle: With isolation ``"session"``, seconds without a request or an open stream
            after which the session of a client over HTTP ends, and its process with it. The client
            opens another one. None: `HttpOptions.session_ttl` alone limits it.
        spares: With isolation ``"session"``, how many servers wait for clients to come.
        idle_timeout: Seconds without requests and clients after which a shared server is stopped.
            The next request starts it. None: it runs on.
        recycle: When a shared server is replaced by a new one.
        ask: Whether a shared server of a legacy era may ask clients (sampling, elicitation,
            roots). A question reaches a client only while that client is alone.
        health: How a server that hangs is found. None: by deadlines only.
        request_timeout: Seconds that the server has for a request. Then the client gets an error,
            and the server a cancellation. Progress does not extend it. None: as long as it takes.
        retry: Which requests are sent again when a shared server ends.
        breaker: When requests are refused for a while. None: only while starts fail.
        translate: Whether clients of an era that the server does not speak are served all the same:
            the proxy translates between the eras. Otherwise they are refused.
        prefix: What stands before the names of its tools and prompts, where its endpoint is shared
            with others; by default its name and ``_``. Letters, digits and ``_-`` fit all hosts.
        tools: Which of its tools clients may use, and how those are shown there.
        flow: How many requests it gets at once.
        required: Whether the proxy is not ready, by ``/readyz``, while the server is not.
        lite: Its tools that clients of LiteMCP may use, by the server's names: each at
            ``/lite/``, the name of the server, ``/`` and its own, where URLs have paths.
    """

    target: Stdio | Http | WebSocket | Socket
    name: str = "server"
    protocol: Literal["mcp", "litemcp"] = "mcp"
    isolation: Isolation = "auto"
    size: int = 4
    era: Era = "auto"
    start_timeout: float = 30.0
    max_clients: int = 256
    session_idle: float | None = 300.0
    spares: int = 0
    idle_timeout: float | None = None
    recycle: RecycleConfig = field(default_factory=RecycleConfig)
    ask: bool = False
    health: HealthConfig | None = None
    request_timeout: float | None = None
    retry: RetryConfig = field(default_factory=RetryConfig)
    breaker: BreakerConfig | None = None
    translate: bool = True
    prefix: str | None = None
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    flow: FlowConfig = field(default_factory=FlowConfig)
    required: bool = True
    lite: tuple[str, ...] = ()

    @property
    def lite_paths(self) -> dict[str, str]:
        """The tools for clients of LiteMCP, and their paths."""
        return {tool: quote_path(f"/lite/{self.name}/{tool}") for tool in self.lite}

    @property
    def shown_prefix(self) -> str:
        """The prefix, or its default."""
        return re.sub(r"[.~]", "_", self.name) + "_" if self.prefix is None else self.prefix

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"a name has at most 64 letters, digits and ._~-, not {self.name!r}")
        if self.isolation not in ("auto", "session", "shared", "pool"):
            raise ValueError(
                f'isolation is "auto", "session", "shared" or "pool", not {self.isolation!r}'
            )
        if self.protocol not in ("mcp", "litemcp"):
            raise ValueError(f'protocol is "mcp" or "litemcp", not {self.protocol!r}')
        if not 0 <= self.spares <= 1000:
            raise ValueError(f"spares is 0 to 1000, not {self.spares}")
        if not 1 <= self.size <= 1000:
            raise ValueError(f"size is 1 to 1000, not {self.size}")
        if self.era not in ("auto", "legacy", "modern"):
            raise ValueError(f'era is "auto", "legacy" or "modern", not {self.era!r}')
        if not PREFIX.fullmatch(self.shown_prefix):
            raise ValueError(f"a prefix has letters, digits and _.-, not {self.prefix!r}")
        for tool in self.lite:
            if not LITE.fullmatch(tool) or not {"", ".", ".."}.isdisjoint(tool.split("/")):
                raise ValueError(f"the name of the tool cannot be a part of a URL: {tool!r}")
            if not self.tools.allows(tool):
                raise ValueError(f"a tool for clients of LiteMCP is not allowed: {tool}")
        if len(set(self.lite)) < len(self.lite):
            raise ValueError("a tool for clients of LiteMCP is named twice")


@dataclass(frozen=True, kw_only=True)
class ListenConfig:
    """A listener of the proxy. `wirespeed.ListenOptions` and `wirespeed.HttpOptions` describe the
    fields of the same names.

    Attributes:
        url: Where to listen.
        tokens: The bearer tokens of which clients must bring one; empty for none. With principals,
            these have the tokens.
        certfile: The file of the certificate and its chain (PEM), for ``https://`` and ``wss://``.
        keyfile: The file of its key; None: it is in ``certfile``.
        origins: Web pages that may connect; None for the default.
        hosts: Names of the server; None for the default.
        headers: More header fields of the answer that accepts a WebSocket.
        max_connections: Connections at once.
        max_input_bytes: Bytes of all connections together, of requests and messages that are not
            complete: `ListenOptions.max_input_bytes`.
        session_idle: Seconds without a request or an open stream after which the session of a
            client over HTTP ends: `HttpOptions.session_ttl`.
        trusted_proxies: Proxies whose ``X-Forwarded-For`` or ``Forwarded`` names the client.
        sse_path: The path of HTTP+SSE (2024-11-05).
        access_log: One line for each request over HTTP, and for each other connection.
        access_log_sample: The share of requests over HTTP that is logged.
    """

    url: str
    tokens: tuple[str, ...] = field(default=(), repr=False)
    certfile: str | None = None
    keyfile: str | None = None
    origins: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    max_connections: int | None = None
    max_input_bytes: int | None = None
    session_idle: float | None = None
    trusted_proxies: tuple[str, ...] = ()
    sse_path: str | None = None
    access_log: Literal["text", "json"] | None = None
    access_log_sample: float = 1.0


@dataclass(frozen=True, kw_only=True)
class PrincipalConfig:
    """Who may use what. A principal is known by a token, or by the subject of its access tokens.

    Attributes:
        name: Its name in the audit log.
        token_sha256: The SHA-256 of its token, as 64 hexadecimal digits, which
            `wirespeed.auth.hash_token` returns after ``sha256:``.
        subject: The subject (``sub``) of its access tokens, which `AuthorizationConfig` verifies.
        issuer: Who issues these tokens; needed where there are several issuers.
        servers: Globs of the names of the servers that it may use.
        tools: Which of their tools it may see and call, by the names at the endpoint of all
            servers; ``deny`` also by the server's own names. They hold at ``/servers/NAME`` as
            well, where names have no prefix.
        rate: How many requests it may send, in place of the rate of the proxy.
    """

    name: str
    token_sha256: str | None = field(default=None, repr=False)
    subject: str | None = None
    issuer: str | None = None
    servers: tuple[str, ...] = ("*",)
    tools: ToolRules = field(default_factory=ToolRules)
    rate: RateConfig | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"a name has at most 64 letters, digits and ._~-, not {self.name!r}")
        if (self.token_sha256 is None) == (self.subject is None):
            raise ValueError("a principal has either a token or a subject")
        if self.token_sha256 is not None and not SHA256.fullmatch(self.token_sha256):
            raise ValueError("the SHA-256 of a token has 64 hexadecimal digits")
        if self.subject is None and self.issuer is not None:
            raise ValueError("an issuer goes with a subject")

    def may_use(self, server: str) -> bool:
        """Whether it may use a server."""
        return any(fnmatchcase(server, glob) for glob in self.servers)


@dataclass(frozen=True, kw_only=True)
class IntrospectionConfig:
    """An authorization server that is asked about access tokens (RFC 7662):
    `wirespeed.auth.IntrospectionVerifier` describes the fields."""

    url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class AuthorizationConfig:
    """Which access tokens let clients in. `wirespeed.auth.ResourceServer` checks them.

    Attributes:
        resource: The URL of the proxy as clients know it. It is the audience of tokens. Where
            clients use ``/servers/NAME``, it is the part of the URL before that.
        issuers: The authorization servers. Their tokens are JWTs, unless ``introspection`` is
            given.
        jwks_url: Where the keys of the only issuer are; None: its metadata names them.
        introspection: Who is asked about tokens of the only issuer.
        scopes: The scopes that every client needs.
    """

    resource: str
    issuers: tuple[str, ...]
    jwks_url: str | None = None
    introspection: IntrospectionConfig | None = None
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.issuers:
            raise ValueError("there must be an issuer")
        if len(self.issuers) > 1 and (self.jwks_url or self.introspection):
            raise ValueError("jwksUrl and introspection are for one issuer")
        if self.jwks_url and self.introspection:
            raise ValueError("give either jwksUrl or introspection")


AuditEvent: TypeAlias = Literal["call", "read", "prompt", "refusal", "session", "reload"]


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """The audit log of a proxy.

    Attributes:
        to: ``"stderr"``, or the path of a file.
        events: What is noted: calls of tools, resources that were read, prompts that were got,
            clients that were not let in, sessions and connections, reloads.
    """

    to: str
    events: tuple[AuditEvent, ...] = ("call", "refusal")

    def __post_init__(self) -> None:
        known = get_args(AuditEvent)
        for event in self.events:
            if event not in known:
                raise ValueError(f"events are {', '.join(known)}, not {event!r}")


@dataclass(frozen=True, kw_only=True)
class AdminConfig:
    """The admin listener of a proxy.

    Attributes:
        listen: An ``http://`` URL without a path.
        token: What clients of it must bring, but probes; without one, a token is made at the start.
    """

    listen: str = "http://127.0.0.1:9464"
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        address = parse(self.listen)
        if address.scheme != "http" or address.path != "/" or address.query:
            raise ValueError(f"the admin listener has an http:// URL without a path: {self.listen}")
        if self.token is not None and not is_token(self.token):
            raise ValueError("a token is one or more printable ASCII characters without spaces")


@dataclass(frozen=True, kw_only=True)
class ProxyConfig:
    """A proxy.

    Attributes:
        backends: The servers behind it. Their names differ.
        listen: URLs to listen at, such as ``ws://127.0.0.1:8765/mcp``, ``tcp://…``, ``unix:…``, or
            a `ListenConfig` for each. Where URLs have paths, each server is at ``/servers/`` and
            its name, too. At a URL with a path of its own, and at one that has no paths, several
            servers are merged.
        limits: The limits of each client's connection.
        shutdown_grace: Seconds that requests in flight have when the proxy ends.
        drain_delay: Seconds for which listeners accept as before when the process is told to end,
            while ``/readyz`` says that it is not ready: load balancers look elsewhere meanwhile.
        page_size: Entries on a page of a list that was merged of several servers.
        ready_within: Seconds that clients of several servers wait for those that are not ready.
            What comes later they learn by ``list_changed``.
        watch: Whether ``wirespeed proxy`` reads its file again when it changes; after SIGHUP it
            does so anyway.
        rate: How many requests each principal may send; without principals, each address. None: any
            number.
        slow_client_timeout: Seconds for which a client may leave `Limits.output_high` bytes unread.
            Then its connection is closed, and its requests are cancelled.
        principals: Who may use what; empty: whoever a listener lets in may use everything.
        auth: Which access tokens let clients in, besides the tokens of principals.
        audit: Where is noted what clients do: ``"stderr"`` or the path of a file, or an
            `AuditConfig`, which also says what is noted; None: nowhere.
        admin: Where people and programs watch the proxy; None: nowhere.
        name: The name of the proxy among others: session ids begin with it, so that a load balancer
            finds the proxy of a session, and metrics and the audit log have it. At most 64 letters,
            digits, ``-`` and ``_``. None makes one of the host's name and ``listen``.
    """

    backends: tuple[BackendConfig, ...]
    listen: tuple[str | ListenConfig, ...]
    limits: Limits = field(default_factory=Limits)
    shutdown_grace: float = 5.0
    drain_delay: float = 0.0
    page_size: int = 1000
    ready_within: float = 2.0
    watch: bool = True
    rate: RateConfig | None = None
    slow_client_timeout: float = 30.0
    principals: tuple[PrincipalConfig, ...] = ()
    auth: AuthorizationConfig | None = None
    audit: str | AuditConfig | None = None
    admin: AdminConfig | None = None
    name: str | None = None

    @property
    def shown_name(self) -> str:
        """The name, or its default."""
        if self.name is not None:
            return self.name
        return default_name(" ".join(one.url for one in self.listeners))

    @property
    def listeners(self) -> tuple[ListenConfig, ...]:
        """What ``listen`` says, as values of one kind."""
        return tuple(ListenConfig(url=one) if isinstance(one, str) else one for one in self.listen)

    def __post_init__(self) -> None:
        if not self.backends:
            raise ValueError("a proxy needs a server behind it")
        if self.name is not None:
            check_name(self.name)
        if not 0 <= self.drain_delay < math.inf:
            raise ValueError("drain_delay must be seconds >= 0")
        if self.slow_client_timeout <= 0:
            raise ValueError("slow_client_timeout must be above 0")
        names = [backend.name for backend in self.backends]
        if len(set(names)) < len(names):
            raise ValueError(f"two servers have the same name: {', '.join(sorted(names))}")
        _check_differ(
            "the servers {} and {} have the same prefix, {}: set another prefix",
            [(one.shown_prefix, one.name) for one in self.backends if one.shown_prefix],
        )
        _check_differ(
            "the servers {} and {} have tools with the same new name, {}: change tools.rename",
            [(name, one.name) for one in self.backends for name in one.tools.rename.values()],
        )
        self._check_listeners()
        self._check_principals()

    def _check_listeners(self) -> None:
        urls = [one.url for one in self.listeners]
        if self.admin is not None:
            urls.append(self.admin.listen)
        places = []
        for url in urls:
            with contextlib.suppress(ValueError):  # whoever listens there says why
                address = parse(url)
                place = address.file or address.port
                if place != 0:  # any free port
                    places.append((f"{address.host}:{place}", url))
        _check_differ("{} and {} have the same address, {}", places)

    def _check_principals(self) -> None:
        names = [one.name for one in self.principals]
        if len(set(names)) < len(names):
            raise ValueError(f"two principals have the same name: {', '.join(sorted(names))}")
        tokens = [one.token_sha256.lower() for one in self.principals if one.token_sha256]
        if len(set(tokens)) < len(tokens):
            raise ValueError("two principals have the same token")
        subjects = [one for one in self.principals if one.subject is not None]
        if subjects and self.auth is None:
            raise ValueError(f"the principal {subjects[0].name} has a subject, which needs auth")
        issuers = () if self.auth is None else self.auth.issuers
        for one in subjects:
            if one.issuer is None and len(issuers) > 1:
                raise ValueError(f"the principal {one.name} needs an issuer: there are several")
            if one.issuer is not None and one.issuer not in issuers:
                raise ValueError(f"the issuer of the principal {one.name} is not one of auth")
        if len({(one.issuer or issuers[0], one.subject) for one in subjects}) < len(subjects):
            raise ValueError("two principals have the same subject")


def _check_differ(text: str, found: Iterable[tuple[str, str]]) -> None:
    """ValueError: two of the owners have the same value. ``found``: values and their owners."""
    known: dict[str, str] = {}
    for value, owner in found:
        if value in known:
            raise ValueError(text.format(known[value], owner, value))
        known[value] = owner


set_public_home(globals())

"""The configuration of a proxy, as values."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from wirespeed._exports import set_public_home
from wirespeed.limits import Limits
from wirespeed.protocol.meta import APPS_EXTENSION, TASKS_EXTENSION
from wirespeed.proxy.backend_config import NAME, BackendConfig, RateConfig, ToolRules
from wirespeed.proxy.config_types import check_types
from wirespeed.skills.model import SKILLS_EXTENSION
from wirespeed.tool_search import ToolSearch
from wirespeed.transport.address import parse
from wirespeed.transport.http.options import check_host_url, check_name, default_name
from wirespeed.transport.options import is_token

if TYPE_CHECKING:
    from wirespeed.server.extensions import Extension

SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
MIN_SECRET = 16  # bytes of the secret of hosts
# The extensions that the endpoint of all servers knows by itself.
_OWN = frozenset({APPS_EXTENSION, SKILLS_EXTENSION, TASKS_EXTENSION})


def check_quotas(quotas: dict[str, int]) -> None:
    """ValueError: a number of calls is out of its range."""
    for glob, limit in quotas.items():
        if limit < 1:
            raise ValueError(f"the quota of {glob} must be at least 1")


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
        response: What answers a request over HTTP.
        trusted_proxies: Proxies whose ``X-Forwarded-For`` or ``Forwarded`` names the client.
        sse_path: The path of HTTP+SSE (2024-11-05).
        access_log: One line for each request over HTTP, and for each other connection.
        access_log_sample: The share of requests over HTTP that is logged.
        card: Experimental: the URL of this listener as clients reach it, for server cards.
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
    response: Literal["auto", "json", "sse"] = "auto"
    trusted_proxies: tuple[str, ...] = ()
    sse_path: str | None = None
    access_log: Literal["text", "json"] | None = None
    access_log_sample: float = 1.0
    card: str | None = None

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class PrincipalConfig:
    """A principal, and what it may use. A token says who it is, or the subject of an access token.

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
        quotas: How many calls of tools it may have in a day, in place of the quotas of the proxy;
            None: those.
    """

    name: str
    token_sha256: str | None = field(default=None, repr=False)
    subject: str | None = None
    issuer: str | None = None
    servers: tuple[str, ...] = ("*",)
    tools: ToolRules = field(default_factory=ToolRules)
    rate: RateConfig | None = None
    quotas: dict[str, int] | None = None

    def __post_init__(self) -> None:
        check_types(self)
        check_quotas(self.quotas or {})
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

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class AuthorizationConfig:
    """The access tokens that let clients in. `wirespeed.auth.ResourceServer` checks them.

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
        check_types(self)
        if not self.issuers:
            raise ValueError("there must be an issuer")
        if len(self.issuers) > 1 and (self.jwks_url or self.introspection):
            raise ValueError("jwksUrl and introspection are for one issuer")
        if self.jwks_url and self.introspection:
            raise ValueError("give either jwksUrl or introspection")


AuditEvent: TypeAlias = Literal[
    "call", "read", "prompt", "refusal", "session", "reload", "identity"
]


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """The audit log of a proxy.

    Attributes:
        to: ``"stderr"``, or the path of a file.
        events: The events that are noted: calls of tools, resources that were read, prompts that
            were got,
            clients that were not let in, sessions and connections, reloads, credentials of
            principals at servers.
    """

    to: str
    events: tuple[AuditEvent, ...] = ("call", "refusal", "identity")

    def __post_init__(self) -> None:
        check_types(self)
        known = get_args(AuditEvent)
        for event in self.events:
            if event not in known:
                raise ValueError(f"events are {', '.join(known)}, not {event!r}")


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The store that several hosts of a proxy share: `wirespeed.cluster.Cluster`.

    Attributes:
        url: Of the store.
        secret: The same text on all hosts, at least 16 bytes. The keys of digests, of ids of tasks
            and of the proofs between hosts are derived from it.
        prefix: The beginning of all keys in the store.
        host_url: The URL at which the other hosts reach the first HTTP listener of this host:
            ``http://host:port`` or ``https://host:port``. With it, any host answers requests of
            any session of that listener. None: each host knows its own sessions alone.
        hosts: How many hosts there are. While the store is away, each has an equal part of
            `BackendConfig.max_clients`, of rates and of quotas.
        store_timeout: The longest time in seconds that a request waits for the store.
        on_store_loss: While the store is away, ``"local"`` counts on each host for itself, and
            ``"refuse"`` refuses requests that a rate or quota is to count, and further clients
            with servers of their own.
    """

    url: str = field(repr=False)
    secret: str = field(repr=False)
    prefix: str = "wirespeed"
    host_url: str | None = None
    hosts: int = 1
    store_timeout: float = 0.25
    on_store_loss: Literal["local", "refuse"] = "local"

    def __post_init__(self) -> None:
        check_types(self)
        if len(self.secret.encode()) < MIN_SECRET:
            raise ValueError(f"the secret has at least {MIN_SECRET} bytes")
        if self.hosts < 1:
            raise ValueError("hosts must be at least 1")
        if self.on_store_loss not in ("local", "refuse"):
            raise ValueError('onStoreLoss is "local" or "refuse"')
        if self.host_url is not None:
            check_host_url(self.host_url)


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
        check_types(self)
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
        quotas: How many calls of tools each principal may have in a day (UTC); without principals,
            each address. Globs of tools, by the names at the endpoint of all servers, and numbers:
            the first glob that matches a tool decides, and counts the calls of all tools that it
            decides about.
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
        servers_folder: The folder with a file for each of further servers, which the file of a
            proxy names; ``backends`` has these, too. The command watches it. None: there is none.
        approvals: The file with the skills that are approved, for servers whose ``skills`` is
            ``"approved"``. ``wirespeed skill approve`` writes it. What is changed there holds from
            the next request on. Without the file, or with one that is not valid, nothing is
            approved.
        extensions: Extensions whose methods pass at the endpoint of all servers. It declares one of
            them to a client if exactly one server has it that the client may use; an extension
            without methods, if any has it. The functions of an `Extension` are not called here:
            those of the server are. The extensions for tasks, skills and apps are known.
        tool_search: A search in place of the list of tools, at the endpoint of all servers.
        list_digests: Experimental: whether, at the endpoint of all servers, a list of a server is
            kept as long as the server gives the same ``digest`` for it.
        tracing: Whether ``wirespeed proxy`` makes spans of requests with OpenTelemetry, as the
            variables of its environment say. In Python, call `wirespeed.ext.otel.instrument`.
        cluster: The store that several hosts of the proxy share; None: each is for itself.
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
    quotas: dict[str, int] = field(default_factory=dict)
    slow_client_timeout: float = 30.0
    principals: tuple[PrincipalConfig, ...] = ()
    auth: AuthorizationConfig | None = None
    audit: str | AuditConfig | None = None
    admin: AdminConfig | None = None
    name: str | None = None
    tracing: bool = False
    cluster: ClusterConfig | None = None
    servers_folder: str | None = None
    approvals: str | None = None
    extensions: tuple[Extension, ...] = ()
    tool_search: ToolSearch | None = None
    list_digests: bool = False

    @property
    def shown_name(self) -> str:
        """The name, or its default."""
        if self.name is not None:
            return self.name
        return default_name(" ".join(one.url for one in self.listeners))

    @property
    def listeners(self) -> tuple[ListenConfig, ...]:
        """The listeners, as values of one kind."""
        return tuple(ListenConfig(url=one) if isinstance(one, str) else one for one in self.listen)

    def __post_init__(self) -> None:
        check_types(self)
        check_quotas(self.quotas)
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
        held = [one.name for one in self.backends if one.skills == "approved"]
        if held and self.approvals is None:
            raise ValueError(f"the skills of {held[0]} need approvals: the file that has these")
        self._check_extensions()
        self._check_listeners()
        self._check_principals()
        self._check_identities()

    def _check_listeners(self) -> None:
        cluster = self.cluster
        if cluster is not None and cluster.host_url is not None and self.listen:
            schemes = [one.url.partition(":")[0] for one in self.listeners]
            if not {"http", "https"} & {*schemes}:
                raise ValueError("hostUrl of cluster needs a listener over HTTP")
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

    @property
    def opens(self) -> frozenset[str] | None:
        """The methods of its extensions whose requests stay open; None: there are none."""
        return frozenset[str]().union(*(one.stays_open for one in self.extensions)) or None

    def _check_extensions(self) -> None:
        names: set[str] = set()
        methods: set[str] = set()
        for one in self.extensions:
            if one.name in _OWN:
                raise ValueError(f"the proxy has the extension {one.name} by itself")
            if one.name in names:
                raise ValueError(f"there are two extensions {one.name}")
            of_one = {*one.handlers, *one.notifications}
            if clash := sorted(methods & of_one):
                raise ValueError(f"two extensions have {', '.join(clash)}")
            names.add(one.name)
            methods |= of_one
        for one in self.extensions:
            if lacks := sorted({*one.depends} - names - _OWN):
                raise ValueError(
                    f"the extension {one.name} depends on {', '.join(lacks)}, which the proxy does "
                    "not have"
                )

    def _check_identities(self) -> None:
        found = [one for one in self.backends if one.identity is not None]
        if found and not self.principals and self.auth is None:
            raise ValueError(f"the identity at {found[0].name} needs principals or auth")
        if self.auth is not None and len(self.auth.issuers) > 1 and not self.principals:
            for one in found:
                if one.identity is not None and one.identity.type == "header":
                    raise ValueError(
                        f"the identity at {one.name} needs principals: users of several issuers "
                        "may have the same name"
                    )
        paths = [
            (urlsplit(one.identity.redirect_uri).path, one.name)
            for one in found
            if one.identity is not None and one.identity.redirect_uri is not None
        ]
        _check_differ("the logins at {} and {} have the same path, {}", paths)

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

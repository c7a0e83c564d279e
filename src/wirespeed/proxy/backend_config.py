"""The configuration of a server behind the proxy, as a value."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.fetch import named_url
from wirespeed.client.connection.handshake import SILENCE
from wirespeed.config.servers import ServerUrl
from wirespeed.merging import prefix_of
from wirespeed.proxy.config_types import check_types
from wirespeed.proxy.hook_config import HookConfig
from wirespeed.proxy.name_config import check_named, nameserver
from wirespeed.tool_search import ToolSearch
from wirespeed.transport.address import quote_path
from wirespeed.transport.backoff import Backoff
from wirespeed.transport.options import HANDSHAKE, check_headers

if TYPE_CHECKING:
    from wirespeed.client.targets import Http, Socket, WebSocket
    from wirespeed.server.server import Server
    from wirespeed.transport.child.command import Stdio


Era: TypeAlias = Literal["auto", "legacy", "modern"]
Isolation: TypeAlias = Literal["auto", "session", "shared", "pool"]

PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,65}")
MAX_URLS = 100
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")
LITE = re.compile(r"[^\x00-\x20?#%\x7f]{1,200}")


@dataclass(frozen=True, kw_only=True)
class ToolRules:
    """Rules for tools: those that are allowed.

    Attributes:
        allow: Globs of names; what none matches is not allowed.
        deny: Globs of names; what one matches is not allowed.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_types(self)

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
    """The tools of a server that clients may use, and how they see them.

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

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class FlowConfig:
    """Limits of the requests that a server gets at once. The others wait in the proxy: the clients
    take turns, a request each. A request for which there is no place is refused with ``-31000``,
    over HTTP with status 503.

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
        check_types(self)
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
    """The rate at which a client may send requests: a token bucket.

    Attributes:
        requests: Requests a second.
        burst: Requests at once, after a pause; by default as many as in a second.
    """

    requests: float
    burst: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.requests <= 1e9:
            raise ValueError("requests must be above 0 and at most 1e9")
        if self.burst < 0:
            raise ValueError("burst must be at least 1")
        if self.burst == 0:
            object.__setattr__(self, "burst", max(1, int(self.requests)))


# Characters of the shortest key that seals logins.
MIN_KEY = 32

IdentityType: TypeAlias = Literal["exchange", "enterprise", "login", "header"]


@dataclass(frozen=True, kw_only=True)
class IdentityConfig:
    """The identity of each principal at a server elsewhere: the server sees the user, and never the
    token with which the user came to the proxy. Each principal has connections of its own.

    Attributes:
        type: ``"exchange"``: the user's access token is exchanged at the server's authorization
            server (RFC 8693). ``"enterprise"``: the organization's identity provider exchanges it
            for a grant, and the server's authorization server that for a token (ID-JAG).
            ``"login"``: the user logs in once, by a link. ``"header"``: a value of each user's own,
            from a file or a function.
        client_id, client_secret: The proxy's name and secret at the server's authorization server.
            With ``"login"`` the proxy registers itself if there is no name.
        issuer: The server's authorization server. Tokens are sent to no other.
        scopes: The scopes to ask for; by default those that the server demands.
        audience: The server's name at the authorization server, for ``"exchange"``, besides its
            URL.
        idp: The issuer of the identity provider, for ``"enterprise"``.
        idp_client_id, idp_client_secret: The proxy's name and secret at the identity provider.
        redirect_uri: The URL to which users come back after a login: at a listener of the proxy,
            as browsers reach it. Its path is served at each listener over HTTP. The links of
            logins lead there, too.
        keys: The keys of stored logins, at least 32 characters each. The first key seals, all of
            them open.
        folder: The folder of stored logins.
        header: The name of the header field, for ``"header"``. ``"Authorization"`` gets
            ``Bearer`` before the value.
        file: The path of the file with the value; ``{principal}`` in it is replaced by the name of
            the principal.
        credential: In place of a file: a function that gets the name of a principal, and returns
            the value or an awaitable of it.
        refresh: Seconds after which the value is read again.
        max_principals: The most principals with connections at once.
        idle_timeout: Seconds without a client after which the connections of a principal are
            closed.
        allow_private: Whether metadata of a server with a public address may lead to private
            addresses.
    """

    type: IdentityType
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    audience: str | None = None
    idp: str | None = None
    idp_client_id: str = ""
    idp_client_secret: str | None = field(default=None, repr=False)
    redirect_uri: str | None = None
    keys: tuple[str, ...] = field(default=(), repr=False)
    folder: str | None = None
    header: str = "Authorization"
    file: str | None = None
    credential: Callable[[str], str | Awaitable[str]] | None = field(default=None, repr=False)
    refresh: float = 60.0
    max_principals: int = 256
    idle_timeout: float = 300.0
    allow_private: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        if self.type not in get_args(IdentityType):
            raise ValueError(f"type is one of {', '.join(get_args(IdentityType))}")
        needed = {
            "exchange": ("client_id", "issuer"),
            "enterprise": ("client_id", "issuer", "idp"),
            "login": ("redirect_uri", "keys", "folder"),
            "header": (),
        }[self.type]
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f'the type "{self.type}" needs {name}')
        if self.type == "header":
            if (self.file is None) == (self.credential is None):
                raise ValueError('the type "header" has either a file or a credential')
            if self.file is not None and "{principal}" not in self.file:
                raise ValueError("the file of a value has {principal} in its path")
            check_headers({self.header: "x"}, HANDSHAKE)
        if any(len(key) < MIN_KEY for key in self.keys):
            raise ValueError(f"a key has at least {MIN_KEY} characters")
        for name in ("issuer", "idp", "redirect_uri"):
            url = getattr(self, name)
            if url is not None:
                named_url(url)
        for name in ("refresh", "max_principals", "idle_timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")


@dataclass(frozen=True, kw_only=True)
class HealthConfig:
    """The search for a server that hangs.

    Attributes:
        interval: Seconds without a message of the server, while requests wait for it, after which
            the proxy sends it `ping`, or `server/discover`.
        timeout: Seconds that it has to answer. Then it is ended, and started again.
    """

    interval: float = 30.0
    timeout: float = 10.0

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class RecycleConfig:
    """Reasons to replace a process that clients share. None: never for this reason.

    Attributes:
        max_age: Seconds since its start.
        max_requests: Requests that it has answered.
        max_memory: Bytes in memory, of the process and of those that it has started. They are
            looked at every few seconds, where the system tells them.
    """

    max_age: float | None = None
    max_requests: int | None = None
    max_memory: int | None = None

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class RetryConfig:
    """The calls of tools that are sent again when a server that clients share ends before it has
    answered. Lists and reads always are.

    Attributes:
        tools: Globs of the names of tools that may run twice.
        trust_annotations: Whether those may as well that the server calls read-only or idempotent.
    """

    tools: tuple[str, ...] = ()
    trust_annotations: bool = False

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class BreakerConfig:
    """The circuit breaker: requests to a server are refused for a while.

    Attributes:
        failures: How many in a row: ends of the server, starts that failed, requests that took
            longer than they may.
        pause: Seconds for which requests are refused. Then one is passed on: its answer ends the
            refusal.
    """

    failures: int = 5
    pause: float = 10.0

    def __post_init__(self) -> None:
        check_types(self)
        if self.failures < 1:
            raise ValueError(f"failures is 1 or more, not {self.failures}")


class NameDelays(NamedTuple):
    """Times of the look-ups of a DNS name, in seconds.

    Attributes:
        least, most: The bounds of the time between two look-ups; the records may say less or more.
        timeout: After which a look-up has failed.
        stays: For which the addresses stay while answers have none.
    """

    least: float = 5.0
    most: float = 60.0
    timeout: float = 5.0
    stays: float = 30.0


class BackendDelays(NamedTuple):
    """The delays around a server that are no options, in seconds.

    Attributes:
        silence: Until a server that does not answer ``server/discover`` is sent something else too.
        ping: Until a server that starts slowly and answers no ping is sent ``initialize``.
        start: Until a start does not hold up others: a server that says nothing costs them this.
        first_answer: The same for the first answer to a client.
        retry: The time in which a merged endpoint does not try a server again that failed.
        linger: The time in which a shared server may still work for a client that has left.
        idle: The silence after which any client may take the place of a session.
        unused: The same for a session in which nothing followed ``initialize``.
        lite: The time without a request after which a client of LiteMCP loses its connection.
        gather: The time that a change waits for the other servers of the pool to tell of it, too.
        answer: The time that a client of 2026-07-28 has to answer a question.
        rounds: The pauses before a round without questions.
        address: When one of several addresses is asked whether it works.
        slow_start: The time in which an address that has come gets less than its weight.
        names: Of look-ups of a DNS name.
    """

    silence: float = SILENCE
    ping: float = 3.0
    start: float = 3.0
    first_answer: float = 3.0
    retry: float = 1.0
    linger: float = 60.0
    idle: float = 10.0
    unused: float = 1.0
    lite: float = 60.0
    gather: float = 0.2
    answer: float = 600.0
    rounds: Backoff = Backoff(0.05, 5.0)
    address: HealthConfig = HealthConfig(interval=10.0, timeout=5.0)
    slow_start: float = 10.0
    names: NameDelays = NameDelays()


DELAYS = BackendDelays()


@dataclass(frozen=True, kw_only=True)
class BackendConfig:
    """One server behind the proxy.

    Attributes:
        target: How to start or reach it; or a `wirespeed.Server` of this process.
        urls: All URLs of a server that has several, that of `target` among them: each is text, or a
            `wirespeed.config.ServerUrl` with a weight. Each is reached with the other options of
            `target`. Requests go to the URL with the fewest in flight, and a client of a legacy era
            stays with one URL. Isolation is ``"auto"`` or ``"pool"`` then.
        resolve: Which DNS records of the URL's host have the addresses of the server, which are
            used as those of `urls` are. ``"a"``: A and AAAA records. ``"srv"``: SRV records, of
            a name such as ``_mcp._tcp.mill.internal``; Host and TLS have the part after the
            labels with ``_``. None: each connection looks the host up.
        resolver: The IP addresses of the nameservers, with a port if it is not 53. By default
            those of ``/etc/resolv.conf``.
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
            It holds for all workers, and with a cluster for all hosts together.
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
        health: How a server that hangs is found, and ended. None: by deadlines only. One of several
            `urls` that answers nothing within 15 seconds gets no requests then, and is not ended.
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
        tool_search: A search in place of the list of its tools, at its own endpoint. None: the
            proxy's search, if it is the only server.
        hooks: The hooks that check calls of its tools, in this order.
        identity: The identity of each principal at a server over HTTP or WebSocket. None: the
            server sees the proxy. With isolation ``"auto"`` or ``"shared"`` all clients of a
            principal share a connection.
        skills: Which of its skills clients see: ``"all"``, or ``"approved"``: those whose files,
            with these digests, are in `ProxyConfig.approvals`. A skill that is ``"dynamic"`` has no
            digests, so it is never one of these.
        cache_lists: Whether lists of a server that clients share are kept: those of a server of a
            legacy era until it says that they have changed, where it says so over a connection of
            its own; those of 2026-07-28 for as long as it says, for each principal where it calls
            them private.
    """

    target: Stdio | Http | WebSocket | Socket | Server
    urls: tuple[str | ServerUrl, ...] = ()
    resolve: Literal["a", "srv"] | None = None
    resolver: tuple[str, ...] = ()
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
    tool_search: ToolSearch | None = None
    hooks: tuple[HookConfig, ...] = ()
    identity: IdentityConfig | None = None
    skills: Literal["all", "approved"] = "all"
    cache_lists: bool = True

    delays = DELAYS

    @property
    def has_addresses(self) -> bool:
        """Whether the server has several addresses, or its name may have."""
        return bool(self.urls) or self.resolve is not None

    @property
    def lite_paths(self) -> dict[str, str]:
        """The tools for clients of LiteMCP, and their paths."""
        return {tool: quote_path(f"/lite/{self.name}/{tool}") for tool in self.lite}

    @property
    def shown_prefix(self) -> str:
        """The prefix, or its default."""
        return prefix_of(self.name) if self.prefix is None else self.prefix

    def __post_init__(self) -> None:
        check_types(self)
        if not NAME.fullmatch(self.name):
            raise ValueError(f"a name has at most 64 letters, digits and ._~-, not {self.name!r}")
        if self.isolation not in ("auto", "session", "shared", "pool"):
            raise ValueError(
                f'isolation is "auto", "session", "shared" or "pool", not {self.isolation!r}'
            )
        if self.protocol not in ("mcp", "litemcp"):
            raise ValueError(f'protocol is "mcp" or "litemcp", not {self.protocol!r}')
        if self.skills not in ("all", "approved"):
            raise ValueError(f'skills is "all" or "approved", not {self.skills!r}')
        if not 0 <= self.spares <= 1000:
            raise ValueError(f"spares is 0 to 1000, not {self.spares}")
        if not 1 <= self.size <= 1000:
            raise ValueError(f"size is 1 to 1000, not {self.size}")
        if self.era not in ("auto", "legacy", "modern"):
            raise ValueError(f'era is "auto", "legacy" or "modern", not {self.era!r}')
        if not PREFIX.fullmatch(self.shown_prefix):
            raise ValueError(f"a prefix has letters, digits and _.-, not {self.prefix!r}")
        if self.has_addresses:
            self._check_addresses()
        if self.urls:
            self._check_urls()
        if self.resolver and self.resolve is None:
            raise ValueError("resolver is for a server with resolve")
        if self.identity is not None:
            self._check_identity()
        for tool in self.lite:
            if not LITE.fullmatch(tool) or not {"", ".", ".."}.isdisjoint(tool.split("/")):
                raise ValueError(f"the name of the tool cannot be a part of a URL: {tool!r}")
            if not self.tools.allows(tool):
                raise ValueError(f"a tool for clients of LiteMCP is not allowed: {tool}")
        if len(set(self.lite)) < len(self.lite):
            raise ValueError("a tool for clients of LiteMCP is named twice")

    def _check_addresses(self) -> None:
        from wirespeed.client.targets import Http, Socket, WebSocket

        key = "urls" if self.urls else "resolve"
        target = self.target
        if not isinstance(target, Http | WebSocket | Socket) or self.protocol != "mcp":
            raise ValueError(f"{key} is for servers of MCP that have a URL")
        if self.isolation not in ("auto", "pool"):
            raise ValueError(f'with {key}, isolation is "auto" or "pool"')
        if self.spares:
            raise ValueError(f"{key} and spares do not go together")
        if self.resolve is None:
            return
        if self.urls:
            raise ValueError("urls and resolve do not go together")
        if self.resolve not in ("a", "srv"):
            raise ValueError(f'resolve is "a" or "srv", not {self.resolve!r}')
        check_named(target.address, target.url, is_srv=self.resolve == "srv")
        for one in self.resolver:
            nameserver(one)

    def _check_urls(self) -> None:
        target: Any = self.target
        urls = tuple(ServerUrl(one) if isinstance(one, str) else one for one in self.urls)
        names = [one.url for one in urls]
        if len(names) > MAX_URLS:
            raise ValueError(f"a server has at most {MAX_URLS} urls")
        if len(set(names)) < len(names):
            raise ValueError("a URL is in urls twice")
        if target.url not in names:
            raise ValueError("the URL of the target is not in urls")
        if sum(one.percent or 0.0 for one in urls) > 100:
            raise ValueError("the percentages of the urls are more than 100 together")
        if all(one.percent is not None for one in urls):
            raise ValueError("a URL without percent gets the other requests: there must be one")
        for one in urls:
            msgspec.structs.replace(target, url=one.url, shown=one.shown)
        object.__setattr__(self, "urls", urls)

    def _check_identity(self) -> None:
        from wirespeed.client.targets import Http, WebSocket

        if not isinstance(self.target, Http | WebSocket) or self.protocol != "mcp":
            raise ValueError("identity is for servers over HTTP and WebSocket")
        if self.isolation == "session":
            raise ValueError('with identity, isolation is "auto", "shared" or "pool"')
        if own := _credentials_of(self.target):
            raise ValueError(f"identity and {own[0]} of the server say different things")


def _credentials_of(target: Any) -> list[str]:
    """The credentials of a target, by their names."""
    names = [name for name in ("auth", "token") if getattr(target, name, None) is not None]
    named = (name.lower() for name in getattr(target, "headers", None) or ())
    return [*names, *(["headers"] if "authorization" in named else [])]


set_public_home(globals())

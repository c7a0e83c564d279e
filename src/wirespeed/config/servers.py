"""The servers of a configuration."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Never, TypeAlias

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.config.shapes import Transport
from wirespeed.errors import ConfigError
from wirespeed.transport.options import Names
from wirespeed.transport.schemes import public

if TYPE_CHECKING:
    from wirespeed import ClientGroup
    from wirespeed.auth.client.oauth import OAuth
    from wirespeed.auth.client.session import TokenGrant
    from wirespeed.client.client import Client
    from wirespeed.client.targets import Http, Socket, WebSocket
    from wirespeed.transport.child.command import StderrTarget, Stdio

AuthType: TypeAlias = Literal["oauth", "client_credentials", "bearer"]
Era: TypeAlias = Literal["auto", "legacy", "modern"]


class AuthConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which a client gets the tokens of a server.

    Attributes:
        type: ``oauth``: a person logs in, with `wirespeed.auth.OAuth`. ``client_credentials``: a
            program is the client, with `wirespeed.auth.ClientCredentials`. ``bearer``: ``token`` is
            sent.
        client_id: Of a client that the authorization server knows; None for a client that registers
            itself.
        client_secret: The secret of that client; None for a public client.
        private_key: The key of a client of the type ``client_credentials``, in place of a secret:
            PEM text.
        client_metadata_url: The URL of a client metadata document, which is the client's id.
        issuer: The authorization server, where the server names several.
        scopes: The scopes to ask for; empty for those that the server names.
        redirect_uri: Where the authorization server sends the browser; None for a free port.
        dpop: Whether tokens are bound to a key of this client (RFC 9449).
        token: Of the type ``bearer``.
    """

    type: AuthType = "oauth"
    client_id: str | None = None
    client_secret: str | None = None
    private_key: str | None = None
    client_metadata_url: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    redirect_uri: str | None = None
    dpop: bool = False
    token: str | None = None

    def grant(self, oauth: "Callable[..., OAuth] | None" = None) -> "TokenGrant":
        """The value of ``Client(url, auth=…)``. ``oauth``: makes that of the type ``oauth``.
        TypeError or ValueError: the type has none, or its arguments do not go together."""
        given: dict[str, Any] = {
            "key" if name == "private_key" else name: value
            for name in self.__struct_fields__
            if name not in ("type", "token") and (value := getattr(self, name))
        }
        if self.type == "oauth":
            from wirespeed.auth import OAuth

            return (oauth or OAuth)(**given)
        if self.type == "client_credentials":
            from wirespeed.auth import ClientCredentials

            grant = ClientCredentials(**given)
            grant.origin = self
            return grant
        raise ValueError("a bearer token needs no authorization server")

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        shown: list[tuple[str, Any]] = [("type", self.type)]
        for name in self.__struct_fields__[1:]:
            value = getattr(self, name)
            if value:
                hidden = name in ("client_secret", "private_key", "token")
                shown.append((name, Names("…") if hidden else value))
        return shown

    def __repr__(self) -> str:
        return f"AuthConfig({', '.join(f'{k}={v!r}' for k, v in self.__rich_repr__())})"


class ServerUrl(msgspec.Struct, frozen=True):
    """One of several URLs of a server behind the proxy.

    Attributes:
        url: The URL.
        weight: How many requests it gets at once, against the others: 1 to 1000.
        percent: A canary: it gets this share of all requests, 0 to 100, and no others. A principal
            is served by it always or never. None: it has no share of its own.
        shown: The URL in errors and logs, where it holds a secret.

    Raises ValueError for a weight or a percentage that cannot be.
    """

    url: str
    weight: float = 1.0
    percent: float | None = None
    shown: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= 1000:
            raise ValueError(f"weight is 1 to 1000, not {self.weight:g}")
        if self.percent is not None and not 0 <= self.percent <= 100:
            raise ValueError(f"percent is 0 to 100, not {self.percent:g}")

    def __repr__(self) -> str:
        parts = [repr(public(self.shown or self.url))]
        if self.weight != 1:
            parts.append(f"weight={self.weight:g}")
        if self.percent is not None:
            parts.append(f"percent={self.percent:g}")
        return f"ServerUrl({', '.join(parts)})"


class ServerConfig(msgspec.Struct, frozen=True):
    """One server of a configuration file, checked, with variables and paths resolved.

    Attributes:
        name: Its key in the file.
        transport: How it is reached.
        command, args, env, cwd: Of a child.
        url, headers, auth: Of a server elsewhere.
        urls: All its URLs, if there are several. `url` is the first one, which a client uses.
        enabled: False: it is not to be used.
        auto_start: False: it is to be started at its first use.
        timeout: Seconds for one call; None for the client's default.
        era: Which revisions the client tries.
        extra: The keys that mean nothing to wirespeed, as they were read.
        source: The file.
        shown: The command and its arguments, or the URL, as the file writes them.
        problem: Why it cannot be used: a fault of its entry, or a variable that is not set. Empty
            if it can.
        start_timeout: Seconds for its start; None for the default.
        unread: The keys of its host that would change how it is used, and that wirespeed does not
            read.
    """

    name: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    auth: AuthConfig | None = None
    enabled: bool = True
    auto_start: bool = True
    timeout: float | None = None
    era: Era = "auto"
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    source: str = "<string>"
    shown: tuple[str, ...] = ()
    problem: str = ""
    start_timeout: float | None = None
    unread: tuple[str, ...] = ()
    urls: tuple[ServerUrl, ...] = ()

    def target(
        self, *, stderr: "StderrTarget" = "inherit", auth: "TokenGrant | None" = None
    ) -> "Stdio | Http | WebSocket | Socket":
        """The target of a client: a ``Stdio`` (with this ``stderr``), an ``Http`` or
        ``WebSocket`` with the file's headers and ``auth``, or a ``Socket``. ``auth`` goes before
        the file's. ConfigError: its entry has a fault, a variable is not set, or the URL, a header
        or ``auth`` cannot be."""
        if self.problem:
            raise ConfigError(f"{self.source}: {self.problem}")
        if self.transport == "stdio":
            from wirespeed.transport.child.command import Stdio

            assert self.command is not None
            shown = self.shown if _has_variable(self.shown) else None
            return Stdio(
                *(self.command, self.args, self.env or None, self.cwd), stderr=stderr, shown=shown
            )
        assert self.url is not None
        from wirespeed.client.targets import Http, Socket, WebSocket

        written = self.shown[0] if _has_variable(self.shown) else ""
        try:
            given = self.auth
            token = None if given is None else given.token
            if self.transport in ("http", "sse", "ws"):
                if auth is None and given is not None and token is None:
                    auth = given.grant()
                kind = WebSocket if self.transport == "ws" else Http
                return kind(self.url, headers=self.headers, token=token, auth=auth, shown=written)
            if self.headers:
                raise ValueError(f"headers mean nothing to {self.transport}:")
            if given is not None:
                raise ValueError(f"auth means nothing to {self.transport}:")
            return Socket(self.url, shown=written)
        except (TypeError, ValueError) as exc:
            raise self._fail(str(exc)) from None

    def _fail(self, problem: str) -> ConfigError:
        return ConfigError(f'{self.source}: the server "{self.name}": {problem}')

    def client(self, *, stderr: "StderrTarget" = "inherit", **options: Any) -> "Client":
        """A `wirespeed.Client` for it, not opened yet: with the file's ``era`` and ``timeout``, and
        with ``autoStart: false`` started at its first use. ``options`` are the client's, and go
        before the file's. ConfigError as of `target`."""
        from wirespeed.client.client import Client

        fromfile: dict[str, Any] = {"era": self.era, "auto_start": self.auto_start}
        if self.timeout is not None:
            fromfile["timeout"] = self.timeout
        if self.start_timeout is not None:
            fromfile["handshake_timeout"] = self.start_timeout
        return Client(self.target(stderr=stderr), **(fromfile | options))

    def __hash__(self) -> int:
        return hash((self.source, self.name))

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        # Names of variables and headers only: their values, and unknown keys, may be secret.
        shown: list[tuple[str, Any]]
        if self.command is None and self.url is None:  # nothing could be read
            shown = [("problem", self.problem)]
        elif self.transport == "stdio":
            command, *args = self.shown or (self.command or "", *self.args)
            shown = [("command", command), ("args", args)]
        else:
            shown = [("url", public(self.shown[0] if self.shown else self.url or ""))]
        shown += [
            (key, Names(names)) for key in ("env", "headers") if (names := getattr(self, key))
        ]
        if self.auth is not None:
            shown.append(("auth", self.auth))
        if self.cwd is not None:
            shown.append(("cwd", self.cwd))
        if not self.enabled:
            shown.append(("enabled", False))
        return [("name", self.name), *shown]

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self.__rich_repr__()[1:]]
        return f"ServerConfig({', '.join([repr(self.name), *shown])})"


class Servers(dict[str, ServerConfig]):
    """The servers of one source by name, in its order. The KeyError of another name lists the
    names."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def __missing__(self, name: object) -> Never:
        raise KeyError(f'{self._source} has no server "{name}"; it has {", ".join(self) or "none"}')

    def clients(
        self, *, at_once: int = 8, prefixes: Mapping[str, str] | None = None, **options: Any
    ) -> "ClientGroup":
        """All enabled servers as one client, not opened yet: see `wirespeed.ClientGroup`. Options
        are those of `wirespeed.Client`, and go before the file's."""
        from wirespeed import ClientGroup

        return ClientGroup(self, at_once=at_once, prefixes=prefixes, **options)


def _has_variable(texts: tuple[str, ...]) -> bool:
    return any("$" in text or "{env:" in text for text in texts)


set_public_home(globals())

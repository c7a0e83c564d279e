"""Reads ``mcpServers`` files, the configuration that MCP hosts share: JSON, or the same in TOML.

.. code-block:: json

    {"mcpServers": {"time": {"command": "mcp-server-time", "args": ["--utc"],
                             "env": {"TOKEN": "${TOKEN}"}, "cwd": "."}}}

A file whose name ends in ``.toml`` has the same in TOML: ``[mcpServers.time]``.

Keys of a server: ``command``, ``args``, ``env``, ``cwd`` for a child; ``url``, ``headers`` and
``auth`` for a server elsewhere; ``type`` (or ``transport``), ``enabled`` (or its opposite,
``disabled``), ``autoStart``, ``timeout`` in seconds, ``era`` (or ``protocolEra``). Others are
kept in ``ServerConfig.extra``. URLs: ``http://``, ``https://``, ``ws://``, ``wss://``, ``unix:``
and ``tcp://``. The types ``http`` and ``sse`` mean the same: the client finds out which of the two
the server speaks. VS Code's ``servers`` is read where ``mcpServers`` is absent.

``auth`` is ``"oauth"``, or an object with ``type``, ``clientId``, ``clientSecret``,
``privateKey``, ``clientMetadataUrl``, ``issuer``, ``scopes``, ``redirectUri`` and ``dpop``, or a
bearer token. The keys ``CLIENT_ID`` and ``CLIENT_SECRET`` of Cursor are read, too.

Paths: a relative ``cwd`` or ``unix:`` path, and a relative ``command`` with a slash in it, are
relative to the folder of the file, wherever the program is started; a leading ``~/`` is the home
directory.
Without ``cwd`` the child gets the caller's directory. Arguments are never taken as paths.

Variables: ``${NAME}`` (or ``${env:NAME}``) and ``${NAME:-default}`` (for unset or empty, as in
a shell) in ``command``, ``args``, ``env``, ``cwd``, ``url``, ``headers`` and ``auth``; ``$${`` is
a plain ``${``. A server with a variable that is not set can be looked at, but not used. Errors,
logs and ``repr`` show the command and the URL with their variables as they are written.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Never, TypeAlias, TypeVar

import msgspec

from wirespeed.errors import ConfigError
from wirespeed.transport.address import public
from wirespeed.transport.options import Names

if TYPE_CHECKING:
    from wirespeed.auth.client.grant import Grant
    from wirespeed.auth.client.oauth import OAuth
    from wirespeed.client.client import Client
    from wirespeed.client.targets.remote import Http, Socket, WebSocket
    from wirespeed.transport.child.command import StderrTarget, Stdio

__all__ = ["AuthConfig", "Era", "ServerConfig", "Transport", "load", "loads"]

AuthType: TypeAlias = Literal["oauth", "client_credentials", "bearer"]
Era: TypeAlias = Literal["auto", "legacy", "modern"]
Transport: TypeAlias = Literal["stdio", "ws", "http", "sse", "unix", "tcp"]
T = TypeVar("T")

# The names that hosts write in "type", and the URL schemes, by transport.
_TYPES: dict[str, Transport] = {
    "stdio": "stdio",
    "ws": "ws",
    "websocket": "ws",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
    "unix": "unix",
    "tcp": "tcp",
}
_SCHEMES: dict[str, tuple[Transport, ...]] = {
    "ws": ("ws",),
    "wss": ("ws",),
    "http": ("http", "sse"),
    "https": ("http", "sse"),
    "unix": ("unix",),
    "tcp": ("tcp",),
}

_VARIABLE = re.compile(r"\$?\$\{([^}]*)(\}?)")
_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


class AuthConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a client gets the tokens of a server.

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

    def grant(self, oauth: Callable[..., OAuth] | None = None) -> Grant:
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


class ServerConfig(msgspec.Struct, frozen=True):
    """One server of a configuration file, checked, with variables and paths resolved.

    Attributes:
        name: Its key in the file.
        transport: How it is reached.
        command, args, env, cwd: Of a child.
        url, headers, auth: Of a server elsewhere.
        enabled: False: it is not to be used.
        auto_start: False: it is to be started at its first use.
        timeout: Seconds for one call; None for the client's default.
        era: Which revisions the client tries.
        extra: The keys that mean nothing to wirespeed, as they were read.
        source: The file.
        shown: The command and its arguments, or the URL, as the file writes them.
        problem: Why it cannot be used: a variable that is not set. Empty if it can.
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

    def target(
        self, *, stderr: StderrTarget = "inherit", auth: Grant | None = None
    ) -> Stdio | Http | WebSocket | Socket:
        """What a client connects to: a ``Stdio`` (with this ``stderr``), an ``Http`` or
        ``WebSocket`` with the file's headers and ``auth``, or a ``Socket``. ``auth`` goes before
        the file's. ConfigError for a variable that is not set, and a URL, header or ``auth`` that
        cannot be."""
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
        from wirespeed.client.targets.remote import Http, Socket, WebSocket

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

    def client(self, *, stderr: StderrTarget = "inherit", **options: Any) -> Client:
        """A `wirespeed.Client` for it, not opened yet: with the file's ``era`` and ``timeout``, and
        with ``autoStart: false`` started at its first use. ``options`` are the client's, and go
        before the file's. ConfigError as of `target`."""
        from wirespeed.client.client import Client

        fromfile: dict[str, Any] = {"era": self.era, "auto_start": self.auto_start}
        if self.timeout is not None:
            fromfile["timeout"] = self.timeout
        return Client(self.target(stderr=stderr), **(fromfile | options))

    def __hash__(self) -> int:
        return hash((self.source, self.name))

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        # Names of variables and headers only: their values, and unknown keys, may be secret.
        if self.transport == "stdio":
            command, *args = self.shown or (self.command or "", *self.args)
            shown: list[tuple[str, Any]] = [("command", command), ("args", args)]
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


def load(path: str | os.PathLike[str]) -> dict[str, ServerConfig]:
    """Reads a file, ``.toml`` or JSON; its servers by name, in the file's order, those not enabled
    included. The KeyError of another name lists the names.

    Raises ConfigError, which names the file, the place in it and what is expected there.
    """
    return Document.load(path).servers


def loads(
    text: str | bytes,
    *,
    source: str = "<string>",
    folder: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, ServerConfig]:
    """Like :func:`load`, for JSON text.

    ``source`` is its name in errors; ``folder`` is what relative paths start from (default:
    the current directory); ``environ`` is where variables are looked up (default:
    ``os.environ``).
    """
    return Document(text, source, folder, environ).servers


class Document:
    """A file as a whole, for what has keys of its own in it.

    Attributes:
        source: Its name in errors.
        content: Its object.
        servers: Its servers by name.
    """

    def __init__(
        self,
        text: str | bytes,
        source: str,
        folder: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        toml: bool = False,
    ) -> None:
        self.source = source
        self._folder = os.path.abspath(os.fspath(folder) if folder is not None else ".")
        self._environ = os.environ if environ is None else environ
        try:
            self._read((_parse_toml if toml else _parse)(_decoded(text)))
            return
        except _Fault as exc:
            problem = str(exc)
        # Out of the handler: as a context, an error of the parser would carry the text and its
        # secrets.
        raise ConfigError(f"{source}: {problem}")

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], environ: Mapping[str, str] | None = None
    ) -> Document:
        """Read a file. ConfigError as of `wirespeed.config.load`."""
        source = os.fspath(path)
        try:
            with open(source, "rb") as file:
                data = file.read()
        except OSError as exc:
            raise ConfigError(f"{source}: cannot read the file: {exc.strerror}") from exc
        folder = os.path.dirname(os.path.abspath(source))
        return cls(data, source, folder, environ, toml=source.lower().endswith(".toml"))

    def _read(self, document: Any) -> None:
        if not isinstance(document, dict):
            raise _Fault("", 'expected an object with "mcpServers"')
        key = "mcpServers" if "mcpServers" in document else "servers"
        if key not in document:
            raise _Fault("", 'expected a key "mcpServers" (or "servers")')
        servers = document[key]
        if not isinstance(servers, dict):
            raise _Fault(key, "expected an object")
        self.content = document
        self._key = key
        self.servers = _Servers(self.source)
        for name, raw in servers.items():
            reader = _Reader(self.place(name), self._folder, self._environ)
            self.servers[name] = reader.server(name, raw, self.source)

    def place(self, name: str) -> str:
        """Return the path to a server in the file."""
        return _join(self._key, name)

    def convert(self, path: str, raw: Any, kind: type[T]) -> T:
        """Return a value of the file as a ``kind``. ConfigError, with ``path``: it is not one."""
        try:
            return _converted(path, raw, kind)
        except _Fault as exc:
            raise ConfigError(f"{self.source}: {exc}") from None

    def resolve(self, path: str) -> str:
        """Return a path of the file: a relative one is relative to the folder of the file."""
        return _Reader("", self._folder, self._environ).resolve(path)

    def expand(self, path: str, text: str) -> str:
        """Return a text with its variables replaced. ConfigError: one is not set."""
        head, _, key = path.rpartition(".")
        reader = _Reader(head, self._folder, self._environ)
        try:
            text = reader.expand(key, text)
        except _Fault as exc:
            raise ConfigError(f"{self.source}: {exc}") from None
        if reader.problem:
            raise ConfigError(f"{self.source}: {reader.problem}")
        return text


class _Servers(dict[str, ServerConfig]):
    """The servers of one source."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def __missing__(self, name: object) -> Never:
        raise KeyError(f'{self._source} has no server "{name}"; it has {", ".join(self) or "none"}')


class _Fault(Exception):
    """What is wrong, and where in the document."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)


class Entry(msgspec.Struct, rename="camel"):
    """The keys of a server in the file. null is as good as absent."""

    type: str | None = None
    transport: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, Any] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, Any] | None = None
    auth: str | dict[str, Any] | None = None
    enabled: bool | None = None
    disabled: bool | None = None
    auto_start: bool | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    era: Era | None = None
    protocol_era: Era | None = None


_KEYS = {field.encode_name for field in msgspec.structs.fields(Entry)}


class _Auth(msgspec.Struct, rename="camel"):
    """``auth`` as the file has it."""

    type: AuthType | None = None
    client_id: str | None = None
    client_secret: str | None = None
    private_key: str | None = None
    client_metadata_url: str | None = None
    issuer: str | None = None
    dpop: bool | None = None
    scopes: list[str] | str | None = None
    redirect_uri: str | None = None
    token: str | None = None


# The keys of ``auth`` that Cursor writes.
_CURSOR = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret"}


class _Reader:
    """Turns an entry into a server; every error knows its place."""

    def __init__(self, path: str, folder: str, environ: Mapping[str, str]) -> None:
        self.path = path
        self.folder = folder
        self.environ = environ
        self.problem = ""

    def server(self, name: str, raw: Any, source: str) -> ServerConfig:
        """The server of an entry."""
        entry = _converted(self.path, raw, Entry)
        args = entry.args or []
        if entry.command is not None:
            shown = (entry.command, *args)
        else:
            shown = () if entry.url is None else (entry.url,)
        command = self.optional("command", entry.command)
        url = self.optional("url", entry.url)
        cwd = self.optional("cwd", entry.cwd)
        transport = self.transport(entry, url)
        if transport != "stdio" and entry.url is not None:
            shown = (entry.url,)
        if transport == "unix" and url is not None and not url.lower().startswith("unix://"):
            url = f"unix:{self.resolve(url.partition(':')[2])}"
        if entry.enabled is not None and entry.disabled is not None:
            raise _Fault(self.path, 'has both "enabled" and "disabled"; leave one out')
        return ServerConfig(
            name=name,
            transport=transport,
            command=None if command is None else self.resolve(command, only_slash=True),
            args=tuple(self.expand(f"args[{i}]", arg) for i, arg in enumerate(args)),
            env=self.strings("env", entry.env),
            cwd=None if cwd is None else self.resolve(cwd),
            url=url,
            headers=self.strings("headers", entry.headers),
            auth=None if entry.auth is None else self.auth(entry.auth),
            enabled=entry.enabled is not False and not entry.disabled,
            auto_start=entry.auto_start is not False,
            timeout=entry.timeout,
            era=entry.era or entry.protocol_era or "auto",
            extra={key: value for key, value in raw.items() if key not in _KEYS},
            source=source,
            shown=shown,
            problem=self.problem,
        )

    def transport(self, entry: Entry, url: str | None) -> Transport:
        named = [word for word in (entry.type, entry.transport) if word is not None]
        for word in named:
            if word not in _TYPES:
                raise _Fault(f"{self.path}.type", f"expected {_choice(_TYPES)}")
        kinds = {_TYPES[word] for word in named}
        if len(kinds) > 1:
            raise _Fault(self.path, '"type" and "transport" say different things')
        kind = next(iter(kinds), None)
        if entry.command is None and url is None:
            raise _Fault(self.path, 'expected "command" (a program to start) or "url"')
        if kind == "stdio" or (kind is None and url is None):
            if entry.command is None:
                raise _Fault(self.path, 'expected "command", because its type is "stdio"')
            return "stdio"
        if kind is None and entry.command is not None:
            raise _Fault(self.path, 'has both "command" and "url"; leave one out or add "type"')
        if url is None:
            raise _Fault(self.path, f'expected "url", because its type is "{kind}"')
        scheme = url.partition(":")[0].lower()
        allowed = _SCHEMES.get(scheme)
        if allowed is None and not self.problem:  # a variable may still stand in the URL
            raise _Fault(f"{self.path}.url", f"expected a URL with {_choice(_SCHEMES)}")
        if kind is not None and allowed is not None and kind not in allowed:
            raise _Fault(f"{self.path}.url", f'"{scheme}:" does not go with the type "{kind}"')
        return kind or (allowed[0] if allowed else "http")

    def auth(self, raw: str | dict[str, Any]) -> AuthConfig:
        """How tokens are got: an object, "oauth", or a token itself."""
        if isinstance(raw, str):
            if raw == "oauth":
                return AuthConfig()
            return AuthConfig(type="bearer", token=self.optional("auth", raw))
        named = {_CURSOR.get(key, key): value for key, value in raw.items()}
        entry = _converted(f"{self.path}.auth", named, _Auth)
        kind = entry.type or ("bearer" if entry.token is not None else "oauth")
        if (kind == "bearer") != (entry.token is not None):
            raise _Fault(f"{self.path}.auth", '"token" is for the type "bearer", which needs it')
        scopes = entry.scopes.split() if isinstance(entry.scopes, str) else entry.scopes or ()
        texts = {
            field.name: self.optional(f"auth.{field.encode_name}", getattr(entry, field.name))
            for field in msgspec.structs.fields(_Auth)
            if field.name not in ("type", "scopes", "dpop")
        }
        expanded = tuple(self.expand(f"auth.scopes[{i}]", text) for i, text in enumerate(scopes))
        return AuthConfig(type=kind, scopes=expanded, dpop=entry.dpop is True, **texts)

    def strings(self, key: str, pairs: dict[str, Any] | None) -> dict[str, str]:
        """An object of secret strings."""
        found = {}
        for name, value in (pairs or {}).items():
            path = _join(key, name)
            if not isinstance(value, str):
                raise _Fault(f"{self.path}.{path}", "expected a string; write it in quotes")
            if key == "env" and (not name or "=" in name or "\0" in name):
                raise _Fault(f"{self.path}.{path}", "not a possible variable")
            found[name] = self.expand(path, value)
        return found

    def optional(self, key: str, text: str | None) -> str | None:
        if text is None:
            return None
        if not (text := self.expand(key, text)):
            raise _Fault(f"{self.path}.{key}", "expected a string that is not empty")
        return text

    def expand(self, key: str, text: str) -> str:
        path = f"{self.path}.{key}"

        def replace(match: re.Match[str]) -> str:
            if match[0].startswith("$$"):
                return match[0][1:]
            name = _NAME.match(match[1]) if match[2] and "${" not in match[1] else None
            if name is None:
                raise _Fault(path, "expected ${NAME} or ${NAME:-default}")
            value = self.environ.get(name[1])
            if name[2] is not None:
                return value or name[2]
            if value is None:
                self.problem = self.problem or (
                    f"{path}: the environment variable {name[1]} is not set; "
                    f"write ${{{name[1]}:-}} if it may be empty"
                )
                return match[0]
            return value

        text = _VARIABLE.sub(replace, text)
        if "\0" in text:
            raise _Fault(path, "contains a null character")
        return text

    def resolve(self, path: str, *, only_slash: bool = False) -> str:
        """A path of the file as an absolute one; a bare command is left to PATH."""
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)
        if only_slash and "/" not in path:
            return path
        joined = os.path.join(self.folder, path)
        # Where a folder is a symbolic link, only the system knows what is above it.
        return joined if ".." in path.split("/") else os.path.normpath(joined)


def _converted(path: str, raw: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, OverflowError) as exc:
        what, _, where = str(exc).partition(" - at `$")
        problem = what[:1].lower() + what[1:]
    # Out of the handler: as a context, the error would carry the value.
    raise _Fault(path + where.removesuffix("`"), problem)


def _has_variable(texts: tuple[str, ...]) -> bool:
    return any("${" in text for text in texts)


def _join(path: str, key: str) -> str:
    if not _PLAIN_KEY.match(key):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}"


def _choice(words: Any) -> str:
    return "one of " + ", ".join(f'"{word}"' for word in words)


# -- text ----------------------------------------------------------------------------------------

_TRAILING = re.compile(r",\s*([}\]])")
_HINTS = (
    ("//", "JSON has no comments"),
    ("/*", "JSON has no comments"),
    ("#", "JSON has no comments"),
    ("'", 'strings and keys go in double quotes (")'),
)


def _decoded(text: str | bytes) -> str:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            line = exc.object.count(b"\n", 0, exc.start) + 1
            raise _Fault("", f"line {line}: the file is not UTF-8") from None
    return text.removeprefix("\ufeff")


_TOML_PLACE = re.compile(r" \(at (.*)\)\Z")


def _parse_toml(text: str) -> Any:
    """The document. The parser's errors name keys, never values."""
    if not text.strip():
        raise _Fault("", "the file is empty")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        message, place, _ = (*_TOML_PLACE.split(str(exc)), "", "")[:3]
        problem = f"{place}: {message[:1].lower()}{message[1:]}" if place else message
    except RecursionError:
        problem = "nested too deeply"
    raise _Fault("", problem)


def _parse(text: str) -> Any:
    """The document. No error holds a part of it: it may be secret."""

    def constant(word: str) -> Any:
        raise _Fault("", f"{word} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=constant)
    except json.JSONDecodeError as exc:
        problem = _syntax_fault(text, exc.pos, exc.msg)
    except RecursionError:
        problem = "nested too deeply"
    except ValueError as exc:  # an integer of thousands of digits
        problem = str(exc)
    raise _Fault("", problem)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Fault("", f"the key {json.dumps(twice, ensure_ascii=False)} is there twice")
    return found


def _syntax_fault(text: str, pos: int, message: str) -> str:
    if not text.strip():
        return "the file is empty"
    # From Python 3.13 on the parser points at the comma, before at what follows it.
    comma = len(text[:pos].rstrip()) - 1
    for start in (pos, comma):
        if start >= 0 and (found := _TRAILING.match(text, start)) is not None:
            pos, problem = start, f'trailing comma before "{found[1]}"; JSON allows none'
            break
    else:
        # Some of the parser's messages end in "at", to be followed by the position.
        problem = (message[0].lower() + message[1:]).removesuffix(" at").removesuffix(" starting")
        problem = next((hint for mark, hint in _HINTS if text.startswith(mark, pos)), problem)
    line = text.count("\n", 0, pos) + 1
    return f"line {line}, column {pos - text.rfind(chr(10), 0, pos)}: {problem}"

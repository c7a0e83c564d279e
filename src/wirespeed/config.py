"""Reads ``mcpServers`` JSON, the configuration that MCP hosts share.

.. code-block:: json

    {"mcpServers": {"time": {"command": "mcp-server-time", "args": ["--utc"],
                             "env": {"TOKEN": "${TOKEN}"}, "cwd": "."}}}

Keys of a server: ``command``, ``args``, ``env``, ``cwd`` for a child; ``url``, ``headers``
for a server elsewhere; ``type`` (or ``transport``), ``enabled`` (or its opposite,
``disabled``), ``autoStart``, ``timeout`` in seconds, ``era`` (or ``protocolEra``). Others are
kept in ``ServerConfig.extra``. URLs: ``ws://``, ``wss://``, ``unix:`` and ``tcp://``; those of
HTTP are read, but this version cannot connect to them. VS Code's ``servers`` is read where
``mcpServers`` is absent.

Paths: a relative ``cwd`` or ``unix:`` path, and a relative ``command`` with a slash in it, are
relative to the folder of the file, wherever the program is started; a leading ``~/`` is the home
directory.
Without ``cwd`` the child gets the caller's directory. Arguments are never taken as paths.

Variables: ``${NAME}`` (or ``${env:NAME}``) and ``${NAME:-default}`` (for unset or empty, as in
a shell) in ``command``, ``args``, ``env``, ``cwd``, ``url`` and ``headers``; ``$${`` is a plain
``${``. A variable that is not set is an error, except in a server that is not enabled.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from wirespeed.errors import ConfigError

if TYPE_CHECKING:
    from wirespeed.client.client import Client
    from wirespeed.client.remote import Socket, WebSocket
    from wirespeed.client.target import StderrTarget, Stdio

__all__ = ["Era", "ServerConfig", "Transport", "load", "loads"]

Era: TypeAlias = Literal["auto", "legacy", "modern"]
Transport: TypeAlias = Literal["stdio", "ws", "http", "sse", "unix", "tcp"]

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
_ERAS: tuple[Era, ...] = ("auto", "legacy", "modern")
_MAX_TIMEOUT = 1e9
_SECRET = ("env", "headers")

_VARIABLE = re.compile(r"\$?\$\{([^}]*)(\}?)")
_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\Z", re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True, repr=False)
class ServerConfig:
    """One server of a configuration file, checked, with variables and paths resolved."""

    name: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    enabled: bool = True
    auto_start: bool = True
    """False: to be started at its first use."""
    timeout: float | None = None
    """Seconds for one call; None for the client's default."""
    era: Era = "auto"
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The keys that mean nothing to wirespeed, as they were read."""
    source: str = "<string>"

    def target(self, *, stderr: StderrTarget = "inherit") -> Stdio | WebSocket | Socket:
        """What a client connects to: a ``Stdio`` (with this ``stderr``), a ``WebSocket`` with the
        file's headers, or a ``Socket``. ConfigError for a URL or header that cannot be, and for a
        transport that this version does not speak (``http``, ``sse``)."""
        if self.transport == "stdio":
            from wirespeed.client.target import Stdio

            assert self.command is not None
            return Stdio(self.command, self.args, self.env or None, self.cwd, stderr=stderr)
        assert self.url is not None
        from wirespeed.client.remote import Socket, WebSocket

        if self.transport in ("http", "sse"):
            raise self._fail(f"this version speaks stdio, ws, unix and tcp, not {self.transport}")
        try:
            if self.transport == "ws":
                return WebSocket(self.url, headers=self.headers)
            if self.headers:
                raise ValueError(f"headers mean nothing to {self.transport}:")
            return Socket(self.url)
        except ValueError as exc:
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

    def __repr__(self) -> str:
        # Names of variables and headers only: their values, and unknown keys, may be secret.
        what = [f"command={self.command!r}, args={list(self.args)!r}"]
        if self.transport != "stdio":
            what = [f"url={_public(self.url or '')!r}"]
        for key in _SECRET:
            if names := getattr(self, key):
                what.append(f"{key}=<{', '.join(names)}>")
        if self.cwd is not None:
            what.append(f"cwd={self.cwd!r}")
        if not self.enabled:
            what.append("enabled=False")
        return f"ServerConfig({self.name!r}, {', '.join(what)})"


def load(path: str | os.PathLike[str]) -> dict[str, ServerConfig]:
    """Reads a file; its servers by name, in the file's order, those not enabled included.

    Raises ConfigError, which names the file, the place in it and what is expected there.
    """
    source = os.fspath(path)
    try:
        with open(source, "rb") as file:
            data = file.read()
    except OSError as exc:
        raise ConfigError(f"{source}: cannot read the file: {exc.strerror}") from exc
    return loads(data, source=source, folder=os.path.dirname(os.path.abspath(source)))


def loads(
    text: str | bytes,
    *,
    source: str = "<string>",
    folder: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, ServerConfig]:
    """Like :func:`load`, for text.

    ``source`` is its name in errors; ``folder`` is what relative paths start from (default:
    the current directory); ``environ`` is where variables are looked up (default:
    ``os.environ``).
    """
    document = _parse(text, source)
    reader = _Reader(
        source,
        os.path.abspath(os.fspath(folder) if folder is not None else "."),
        os.environ if environ is None else environ,
    )
    return reader.document(document)


class _Object(dict[str, Any]):
    """A JSON object that remembers that a key came twice."""

    twice: str | None = None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    result = _Object()
    for key, value in pairs:
        if key in result:
            result.twice = key
        result[key] = value
    return result


def _parse(text: str | bytes, source: str) -> Any:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            line = exc.object.count(b"\n", 0, exc.start) + 1
            raise ConfigError(f"{source}: line {line}: the file is not UTF-8") from None
    text = text.removeprefix("\ufeff")

    def constant(word: str) -> Any:
        raise ConfigError(f"{source}: {word} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=constant)
    except json.JSONDecodeError as exc:
        problem = _syntax_error(text, exc.pos, exc.msg)
    except RecursionError:
        problem = "nested too deeply"
    except ConfigError:
        raise
    except ValueError as exc:  # an integer of thousands of digits
        problem = str(exc)
    # Out of the handler: as a context, JSONDecodeError would carry the text, secrets and all.
    raise ConfigError(f"{source}: {problem}")


class _Reader:
    """Turns a parsed document into servers; every error knows its place."""

    def __init__(self, source: str, folder: str, environ: Mapping[str, str]) -> None:
        self.source = source
        self.folder = folder
        self.environ = environ
        self.lenient = False  # leave unset variables as they are written

    def fail(self, path: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.source}: {path + ': ' if path else ''}{problem}")

    def expect(self, path: str, what: str, value: Any, *, secret: bool = False) -> ConfigError:
        return self.fail(path, f"expected {what}, got {_got(value, secret)}")

    def document(self, document: Any) -> dict[str, ServerConfig]:
        if not isinstance(document, dict):
            raise self.expect("", 'an object with "mcpServers"', document)
        self.unique("", document)
        key = "mcpServers" if "mcpServers" in document else "servers"
        if key not in document:
            raise self.fail("", 'expected a key "mcpServers" (or "servers")')
        servers = self.object(key, document[key])
        return {name: self.server(_join(key, name), name, servers[name]) for name in servers}

    def server(self, path: str, name: str, value: Any) -> ServerConfig:
        raw = dict(self.object(path, value))
        enabled = self.enabled(path, raw)
        self.lenient = not enabled
        command = self.optional(path, "command", raw.pop("command", None))
        args = self.args(f"{path}.args", raw.pop("args", None))
        env = self.strings(f"{path}.env", raw.pop("env", None))
        for variable, text in env.items():
            if not variable or "=" in variable or "\0" in variable + text:
                raise self.fail(_join(f"{path}.env", variable), "not a possible variable")
        cwd = self.optional(path, "cwd", raw.pop("cwd", None))
        url = self.optional(path, "url", raw.pop("url", None))
        headers = self.strings(f"{path}.headers", raw.pop("headers", None))
        transport = self.transport(path, raw, command, url)
        if transport == "unix" and url is not None and not url.lower().startswith("unix://"):
            url = f"unix:{self.resolve(url.partition(':')[2])}"
        auto_start = self.boolean(f"{path}.autoStart", raw.pop("autoStart", None), True)
        timeout = self.timeout(f"{path}.timeout", raw.pop("timeout", None))
        era = self.era(path, raw)
        return ServerConfig(
            name,
            transport,
            command=None if command is None else self.resolve(command, only_slash=True),
            args=args,
            env=env,
            cwd=None if cwd is None else self.resolve(cwd),
            url=url,
            headers=headers,
            enabled=enabled,
            auto_start=auto_start,
            timeout=timeout,
            era=era,
            extra=raw,
            source=self.source,
        )

    def enabled(self, path: str, raw: dict[str, Any]) -> bool:
        """``enabled``, or Cline's and Windsurf's ``disabled``."""
        if "enabled" in raw and "disabled" in raw:
            raise self.fail(path, 'has both "enabled" and "disabled"; leave one out')
        if "disabled" in raw:
            return not self.boolean(f"{path}.disabled", raw.pop("disabled"), False)
        return self.boolean(f"{path}.enabled", raw.pop("enabled", None), True)

    def transport(
        self, path: str, raw: dict[str, Any], command: str | None, url: str | None
    ) -> Transport:
        kind: Transport | None = None
        for key in ("type", "transport"):
            value = raw.pop(key, None)
            if value is None:
                continue
            if not isinstance(value, str) or value not in _TYPES:
                raise self.expect(f"{path}.{key}", _choice(_TYPES), value)
            if kind not in (None, _TYPES[value]):
                raise self.fail(path, '"type" and "transport" say different things')
            kind = _TYPES[value]
        if command is None and url is None:
            raise self.fail(path, 'expected "command" (a program to start) or "url"')
        if kind is None:
            if command is not None and url is not None:
                raise self.fail(path, 'has both "command" and "url"; leave one out or add "type"')
            if command is not None:
                return "stdio"
        elif kind == "stdio":
            if command is None:
                raise self.fail(path, 'expected "command", because its type is "stdio"')
            return kind
        if url is None:
            raise self.fail(path, f'expected "url", because its type is "{kind}"')
        scheme = url.partition(":")[0].lower()
        allowed = _SCHEMES.get(scheme)
        # A disabled server may still have a variable here.
        if allowed is None and not (self.lenient and "${" in url):
            raise self.fail(f"{path}.url", f"expected a URL with {_choice(_SCHEMES)}")
        if kind is not None and allowed is not None and kind not in allowed:
            raise self.fail(f"{path}.url", f'"{scheme}:" does not go with the type "{kind}"')
        return kind or (allowed[0] if allowed else "http")

    def args(self, path: str, value: Any) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.expect(path, "an array of strings", value)
        return tuple(self.string(f"{path}[{i}]", item) for i, item in enumerate(value))

    def strings(self, path: str, value: Any) -> dict[str, str]:
        """An object of secret strings."""
        if value is None:
            return {}
        pairs = self.object(path, value, secret=True)
        return {k: self.string(_join(path, k), v, secret=True) for k, v in pairs.items()}

    def timeout(self, path: str, value: Any) -> float | None:
        if value is None:
            return None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value <= _MAX_TIMEOUT:
            raise self.expect(path, "a number of seconds above 0", value)
        return float(value)

    def era(self, path: str, raw: dict[str, Any]) -> Era:
        for key in ("era", "protocolEra"):
            value = raw.pop(key, None)
            if value is not None:
                if value not in _ERAS:
                    raise self.expect(f"{path}.{key}", _choice(_ERAS), value)
                return cast(Era, value)
        return "auto"

    def boolean(self, path: str, value: Any, default: bool) -> bool:
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.expect(path, "true or false", value)
        return value

    def optional(self, path: str, key: str, value: Any) -> str | None:
        if value is None:
            return None
        text = self.string(f"{path}.{key}", value)
        if not text:
            raise self.fail(f"{path}.{key}", "expected a string that is not empty")
        return text

    def string(self, path: str, value: Any, *, secret: bool = False) -> str:
        if not isinstance(value, str):
            raise self.expect(path, "a string", value, secret=secret)
        text = self.expand(path, value, secret)
        if "\0" in text:
            raise self.fail(path, "contains a null character")
        return text

    def object(self, path: str, value: Any, *, secret: bool = False) -> _Object:
        if not isinstance(value, _Object):
            raise self.expect(path, "an object", value, secret=secret)
        self.unique(path, value)
        return value

    def unique(self, path: str, value: dict[str, Any]) -> None:
        twice = getattr(value, "twice", None)
        if twice is not None:
            raise self.fail(_join(path, twice), "the key is there twice")

    def expand(self, path: str, text: str, secret: bool) -> str:
        def replace(match: re.Match[str]) -> str:
            if match[0].startswith("$$"):
                return match[0][1:]
            name = _NAME.match(match[1]) if match[2] and "${" not in match[1] else None
            if name is None:
                shown = "something else" if secret else repr(match[0])
                raise self.fail(path, f"expected ${{NAME}} or ${{NAME:-default}}, got {shown}")
            value = self.environ.get(name[1])
            if name[2] is not None:
                return value or name[2]
            if value is None:
                if self.lenient:
                    return match[0]
                raise self.fail(path, f"the environment variable {name[1]} is not set")
            return value

        return _VARIABLE.sub(replace, text)

    def resolve(self, path: str, *, only_slash: bool = False) -> str:
        """A path of the file as an absolute one; a bare command is left to PATH."""
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)
        if only_slash and "/" not in path:
            return path
        joined = os.path.join(self.folder, path)
        # Where a folder is a symbolic link, only the system knows what is above it.
        return joined if ".." in path.split("/") else os.path.normpath(joined)


def _join(path: str, key: str) -> str:
    if not _PLAIN_KEY.match(key):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def _public(url: str) -> str:
    """A URL without user, password and query."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])


def _choice(words: Any) -> str:
    return "one of " + ", ".join(f'"{word}"' for word in words)


def _got(value: Any, secret: bool) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if secret:
        return "a string" if isinstance(value, str) else "a number"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:59] + "…"


# -- syntax errors -----------------------------------------------------------------------

# A string that is not finished where the search ends is a token too.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_KEY_END = re.compile(r"\s*:")
_NEXT = re.compile(r'"[^"\n]{0,40}"?|[^\s{}\[\]:,"]{1,40}|[{}\[\]:,]+')
_TRAILING = re.compile(r",(\s*)([}\]])")


def _syntax_error(text: str, pos: int, message: str) -> str:
    """Line, column, place and the line itself up to the fault, without secret values."""
    if not text.strip():
        return "the file is empty"
    # Some of the parser's messages end in "at", to be followed by the position.
    problem = (message[0].lower() + message[1:]).removesuffix(" at").removesuffix(" starting")
    # The comma is the fault, though the parser stumbles over what follows it (or, from
    # Python 3.13 on, says so itself).
    comma = len(text[:pos].rstrip()) - 1
    for start in (pos, comma):
        trailing = _TRAILING.match(text, start) if start >= 0 else None
        if trailing:
            pos = start
            problem = f'trailing comma before "{trailing[2]}"; JSON allows none'
            break
    else:
        if text.startswith(("//", "/*", "#"), pos):
            problem = "JSON has no comments"
        elif text.startswith("'", pos):
            problem = 'strings and keys go in double quotes (")'
        elif "escape" in problem:
            problem += r"; write \\ for a backslash"
        elif problem.startswith("expecting ',' delimiter"):
            problem += "; is a comma or a quote missing?"
        elif problem.startswith("invalid control character"):
            problem += "; is a closing quote missing?"
    line = text.count("\n", 0, pos) + 1
    begin = text.rfind("\n", 0, pos) + 1
    path, hidden = _survey(text, pos)
    inside = any(key in _SECRET for key in path)
    shown = list(text[begin:pos])
    for first, last in hidden:
        for i in range(max(first, begin), min(last, pos)):
            if not shown[i - begin].isspace():
                shown[i - begin] = "*"
    after = _NEXT.match(text, pos)
    rest = text[pos:].partition("\n")[0]
    if after and not (inside and after[0][0] not in "{}[]:,"):
        shown.append(after[0])
        rest = rest[len(after[0]) :]
    if rest.strip():
        shown.append(" …")
    prefix = "".join(shown).replace("\t", " ").replace("\r", "")
    column = pos - begin
    if column > 80:  # a file that is one long line
        prefix, column = "…" + prefix[column - 79 :], 80
    place = ""
    for key in path:
        place = f"{place}[{key}]" if isinstance(key, int) else _join(place, key)
    where = f" (in {place})" if place else ""
    return (
        f"line {line}, column {pos - begin + 1}{where}: {problem}\n"
        f"    {prefix.rstrip()}\n    {' ' * column}^"
    )


def _survey(text: str, pos: int) -> tuple[list[str | int], list[tuple[int, int]]]:
    """The JSON path at ``pos``, and the secret values before it.

    The text before ``pos`` is valid as far as it goes: the parser has been there.
    """
    # One entry an open container: the key, or the index, of what is next in it.
    stack: list[str | int | None] = []
    hidden: list[tuple[int, int]] = []
    word = ""
    for token in _TOKEN.finditer(text, 0, pos):
        last, word = word, token[0]
        if word in "{[":
            stack.append(0 if word == "[" else None)
        elif word in "}]":
            del stack[-1:]
        elif word == ":":
            if stack:
                stack[-1] = json.loads(last)
        elif word == ",":
            if stack:
                stack[-1] = stack[-1] + 1 if isinstance(stack[-1], int) else None
        # The keys inside of env and headers are shown, the values are not.
        elif any(part in _SECRET for part in stack) and not _KEY_END.match(text, token.end(), pos):
            hidden.append(token.span())
    return [part for part in stack if part is not None], hidden

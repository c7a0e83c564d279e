"""One entry of a configuration as a server."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from wirespeed.config import shapes
from wirespeed.config.servers import AuthConfig, AuthType, Era, ServerConfig, ServerUrl
from wirespeed.config.shapes import Transport
from wirespeed.config.text import Fault, Texts, is_there_twice, twice_in
from wirespeed.protocol.structs import nearest
from wirespeed.schema.json_schema import choices

T = TypeVar("T")

_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class UrlKeys(msgspec.Struct, forbid_unknown_fields=True):
    """One of several URLs of a server."""

    url: str
    weight: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 1.0
    percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None


class Entry(msgspec.Struct, rename="camel"):
    """The keys of a server in the file. null is as good as absent."""

    type: str | None = None
    transport: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    urls: list[str | UrlKeys] | None = None
    headers: dict[str, str] | None = None
    auth: str | dict[str, Any] | None = None
    enabled: bool | None = None
    disabled: bool | None = None
    auto_start: bool | None = None
    timeout: _Seconds | None = None
    start_timeout: _Seconds | None = None
    era: Era | None = None
    protocol_era: Era | None = None


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


# -- values in the spellings of hosts --------------------------------------------------------------
# Each gets the place of a value and the value, and returns ours. What it does not know it returns
# as it is, for `Entry` to refuse.


def _text(value: Any) -> Any:
    """A number or a boolean as the text that an environment has."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, int | float) else value


def _arguments(path: str, value: Any) -> Any:
    """Arguments, which may be one text as in a shell."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as exc:
            problem = str(exc)
        raise Fault(path, problem[:1].lower() + problem[1:])
    return [_text(one) for one in value] if isinstance(value, list) else value


def _texts(path: str, value: Any) -> Any:
    """Variables or header fields. null: there is none."""
    if not isinstance(value, dict):
        return value
    found = {name: _text(one) for name, one in value.items() if one is not None}
    for name, one in found.items():
        if not isinstance(one, str):
            raise Fault(join(path, name), "expected a string")
    return found


def _flag(_: str, value: Any) -> Any:
    """A boolean, also as a text."""
    words = {"true": True, "false": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


def _number(_: str, value: Any) -> Any:
    """A number, also as a text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    return value


def _address(_: str, value: Any) -> Any:
    """A URL without blanks around it."""
    return value.strip() if isinstance(value, str) else value


_READ: dict[str, Callable[[str, Any], Any]] = {
    "args": _arguments,
    "env": _texts,
    "headers": _texts,
    "enabled": _flag,
    "disabled": _flag,
    "autoStart": _flag,
    "timeout": _number,
    "startTimeout": _number,
    "url": _address,
}
_KEYS = {field.encode_name for field in msgspec.structs.fields(Entry)}
_OURS = _KEYS | shapes.NAMES.keys() | {shapes.TOKEN_FROM, shapes.HEADERS_FROM}
_OURS |= {*shapes.VARIABLES_FROM}


class EntryReader:
    """Turns an entry into a server; every fault knows its place.

    Args:
        path: Of the entry.
        texts: What replaces its variables.
        unit: Of its ``timeout``, in seconds; None: as `shapes.SECONDS_UP_TO` says.
    """

    def __init__(self, path: str, texts: Texts, unit: float | None = None) -> None:
        self.path = path
        self.texts = texts
        self.unit = unit
        self.names: dict[str, str] = {}  # what the file calls our keys
        self.literal: list[str] = []  # places of values that are ``$NAME``, and stay so

    def server(self, name: str, raw: Any, source: str) -> ServerConfig:
        """The server of an entry. One whose entry has a fault cannot be used."""
        try:
            for key in twice_in(raw):
                raise Fault(self.path, is_there_twice(key))
            return self._server(name, raw, source)
        except Fault as exc:
            problem = str(exc)
        read = raw if isinstance(raw, dict) else {}
        off = _flag("", read.get("enabled")) is False or _flag("", read.get("disabled")) is True
        extra = {key: value for key, value in read.items() if key not in _OURS}
        return ServerConfig(
            name, "stdio", enabled=not off, extra=extra, source=source, problem=problem
        )

    def _server(self, name: str, raw: Any, source: str) -> ServerConfig:
        if not isinstance(raw, dict):
            converted(self.path, raw, dict)
        ours = self._ours(raw)
        entry = converted(self.path, ours, Entry, self.names)
        args = entry.args or []
        if entry.command is not None:
            shown = (entry.command, *args)
        else:
            shown = () if entry.url is None else (entry.url,)
        command = self.optional("command", entry.command)
        urls = self.urls(entry)
        url = urls[0].url if urls else self.optional("url", entry.url)
        cwd = self.optional("cwd", entry.cwd)
        transport = self.transport(entry, url)
        if transport != "stdio" and entry.url is not None:
            shown = (entry.url,)
        elif urls:
            shown = (urls[0].shown or urls[0].url,)
        if transport == "unix" and url is not None and not url.lower().startswith("unix://"):
            url = f"unix:{self.texts.resolve(url.partition(':')[2])}"
        if entry.enabled is not None and entry.enabled is entry.disabled:
            raise Fault(self.path, '"enabled" and "disabled" contradict each other')
        return ServerConfig(
            name=name,
            transport=transport,
            command=None if command is None else self.texts.resolve(command, only_slash=True),
            args=tuple(self.expand(f"args[{i}]", arg) for i, arg in enumerate(args)),
            env=self.pairs("env", entry.env),
            cwd=None if cwd is None else self.texts.resolve(cwd),
            url=url,
            headers=self.pairs("headers", entry.headers),
            auth=None if entry.auth is None else self.auth(entry.auth),
            enabled=entry.enabled is not False and not entry.disabled,
            auto_start=entry.auto_start is not False,
            timeout=entry.timeout,
            era=entry.era or entry.protocol_era or "auto",
            extra={key: value for key, value in raw.items() if key not in _OURS},
            source=source,
            shown=shown,
            problem=self.texts.problem,
            start_timeout=entry.start_timeout,
            urls=urls,
            unread=tuple(key for key in raw if key in shapes.UNREAD),
        )

    # -- the shapes of hosts ---------------------------------------------------------------------

    def _ours(self, raw: dict[str, Any]) -> dict[str, Any]:
        """The keys of an entry by our names, with values as `Entry` has them."""
        found: dict[str, Any] = {}
        for key, value in raw.items():
            if value is None or key not in _OURS:
                continue
            ours = shapes.NAMES.get(key, key)
            if ours not in _KEYS:
                continue
            if value == "" and ours in ("command", "url"):
                self.names.setdefault(ours, key)
                continue  # beside the other of the two
            path = f"{self.path}.{key}"
            if (reader := _READ.get(ours)) is not None:
                value = reader(path, value)
            if ours in ("timeout", "startTimeout"):
                value = self._in_seconds(raw, key, value)
            if ours in found and found[ours] != value:
                raise Fault(self.path, f'has both "{self.names[ours]}" and "{key}"; leave one out')
            found[ours], self.names[ours] = value, key
        self._command(found)
        self._from_environment(raw, found)
        if not found.keys() & {"command", "url", "urls"} and self.names.keys() & {"command", "url"}:
            key = next(key for ours, key in self.names.items() if ours in ("command", "url"))
            raise Fault(f"{self.path}.{key}", "expected a string that is not empty")
        return found

    def _in_seconds(self, raw: dict[str, Any], key: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        unit = shapes.UNITS.get(key, self.unit)
        if key == "startTimeout":
            unit = 1.0
        if unit is None and raw.keys() & shapes.OF_GEMINI:
            unit = 0.001
        elif unit is None and raw.keys() & shapes.SECONDS_WITH:
            unit = 1.0
        elif unit is None:
            unit = 1.0 if not value > shapes.SECONDS_UP_TO else 0.001
        return value if unit == 1.0 or value > 1e15 else value * unit

    def _command(self, found: dict[str, Any]) -> None:
        """A command as a list with its arguments, or as an object of Zed."""
        command = found.get("command")
        if isinstance(command, dict):
            key = self.names["command"]
            for name in ("args", "env"):
                if command.get(name) is not None and name not in found:
                    found[name] = _READ[name](f"{self.path}.{key}.{name}", command[name])
            found["command"] = command.get("path")
        elif isinstance(command, list):
            texts = [_text(one) for one in command]
            if not texts or not isinstance(texts[0], str):
                raise Fault(f"{self.path}.{self.names['command']}", "expected a program to start")
            found["command"] = texts[0]
            if texts[1:] or "args" in found:
                found["args"] = [*texts[1:], *(found.get("args") or ())]

    def _from_environment(self, raw: dict[str, Any], found: dict[str, Any]) -> None:
        """The keys that a host reads from variables of the environment."""
        variable = raw.get(shapes.TOKEN_FROM)
        if variable is not None:
            found.setdefault("auth", f"${{{self._variable(shapes.TOKEN_FROM, variable)}}}")
        headers = raw.get(shapes.HEADERS_FROM)
        if headers is not None:
            named = converted(f"{self.path}.{shapes.HEADERS_FROM}", headers, dict[str, str])
            given = {
                name: f"${{{self._variable(shapes.HEADERS_FROM, one)}}}"
                for name, one in named.items()
            }
            found["headers"] = {**given, **(found.get("headers") or {})}
        for key in shapes.VARIABLES_FROM:
            if raw.get(key) is not None:
                names = converted(f"{self.path}.{key}", raw[key], list[str])
                given = {one: f"${{{self._variable(key, one)}}}" for one in names}
                found["env"] = {**given, **(found.get("env") or {})}

    def _variable(self, key: str, name: Any) -> str:
        if not isinstance(name, str) or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            raise Fault(f"{self.path}.{key}", "expected names of variables of the environment")
        return name

    def transport(self, entry: Entry, url: str | None) -> Transport:
        """The transport and the URL or command of the server."""
        kinds: set[Transport] = set()
        for key, word in (("type", entry.type), ("transport", entry.transport)):
            if word is None:
                continue
            plain = re.sub("[-_ ]", "", word.lower())
            if plain in shapes.BUILT_IN:
                raise Fault(self.path, "is a part of its host, and no server of its own")
            if plain not in shapes.TYPES:
                raise Fault(f"{self.path}.{self.names[key]}", f"expected {_choice(shapes.TYPES)}")
            if (named := shapes.TYPES[plain]) is not None:
                kinds.add(named)
            elif url is None:
                raise Fault(self.path, f'expected "url", because its type is "{word}"')
        if len(kinds) > 1:
            raise Fault(self.path, '"type" and "transport" say different things')
        kind = next(iter(kinds), None)
        if entry.command is None and url is None:
            raise Fault(self.path, 'expected "command" (a program to start) or "url"')
        if kind == "stdio" or (kind is None and url is None):
            if entry.command is None:
                raise Fault(self.path, 'expected "command", because its type is "stdio"')
            return "stdio"
        if kind is None and entry.command is not None:
            raise Fault(self.path, 'has both "command" and "url"; leave one out or add "type"')
        if url is None:
            raise Fault(self.path, f'expected "url", because its type is "{kind}"')
        scheme = url.partition(":")[0].lower()
        allowed = shapes.SCHEMES.get(scheme)
        place = f"{self.path}.{self.names.get('url', 'urls')}"
        if allowed is None and not self.texts.problem:  # a variable may still stand in the URL
            raise Fault(place, f"expected a URL with {_choice(shapes.SCHEMES)}")
        if kind is not None and allowed is not None and kind not in allowed:
            raise Fault(place, f'"{scheme}:" does not go with the type "{kind}"')
        return kind or (allowed[0] if allowed else "http")

    # -- values ----------------------------------------------------------------------------------

    def urls(self, entry: Entry) -> tuple[ServerUrl, ...]:
        """All URLs of a server that has several."""
        if entry.urls is None:
            return ()
        path = f"{self.path}.urls"
        if not entry.urls:
            raise Fault(path, "expected a URL")
        if entry.url is not None:
            raise Fault(self.path, 'has both "url" and "urls"; leave one out')
        found = []
        for i, one in enumerate(entry.urls):
            given = UrlKeys(one) if isinstance(one, str) else one
            url = self.optional(f"urls[{i}]", given.url)
            assert url is not None
            shown = given.url if "$" in given.url or "{env:" in given.url else ""
            found.append(ServerUrl(url, given.weight, given.percent, shown))
        return tuple(found)

    def auth(self, raw: str | dict[str, Any]) -> AuthConfig:
        """The source of tokens: an object, "oauth", or a token itself."""
        if isinstance(raw, str):
            if raw == "oauth":
                return AuthConfig()
            return AuthConfig(type="bearer", token=self.optional("auth", raw))
        named = {_CURSOR.get(key, key): value for key, value in raw.items()}
        entry = converted(f"{self.path}.auth", named, _Auth)
        kind = entry.type or ("bearer" if entry.token is not None else "oauth")
        if (kind == "bearer") != (entry.token is not None):
            raise Fault(f"{self.path}.auth", '"token" is for the type "bearer", which needs it')
        scopes = entry.scopes.split() if isinstance(entry.scopes, str) else entry.scopes or ()
        texts = {
            field.name: self.optional(f"auth.{field.encode_name}", getattr(entry, field.name))
            for field in msgspec.structs.fields(_Auth)
            if field.name not in ("type", "scopes", "dpop")
        }
        expanded = tuple(self.expand(f"auth.scopes[{i}]", text) for i, text in enumerate(scopes))
        return AuthConfig(type=kind, scopes=expanded, dpop=entry.dpop is True, **texts)

    def pairs(self, key: str, pairs: Mapping[str, str] | None) -> dict[str, str]:
        """An object of secret strings."""
        found = {}
        for name, value in (pairs or {}).items():
            path = join(key, name)
            if key == "env" and (not name or "=" in name or "\0" in name):
                raise Fault(f"{self.path}.{path}", "not a possible variable")
            found[name] = self.expand(path, value)
            if self.texts.is_literal(value):
                self.literal.append(f"{self.path}.{self.names.get(key, key)}{path[len(key) :]}")
        return found

    def optional(self, key: str, text: str | None) -> str | None:
        """A text that is not empty, or None."""
        if text is None:
            return None
        if not (text := self.expand(key, text)):
            raise Fault(
                f"{self.path}.{self.names.get(key, key)}", "expected a string that is not empty"
            )
        return text

    def expand(self, key: str, text: str) -> str:
        """A text with its variables replaced."""
        first = re.match(r"[A-Za-z]+", key)
        name = "" if first is None else first[0]
        return self.texts.expand(
            f"{self.path}.{self.names.get(name, name)}{key[len(name) :]}", text
        )


def converted(path: str, raw: Any, kind: type[T], names: Mapping[str, str] | None = None) -> T:
    """A value of the file as a ``kind``. Fault: it is not one.

    ``names``: What the file calls the keys.
    """
    try:
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, OverflowError) as exc:
        what, _, where = str(exc).partition(" - at `$")
        problem = what[:1].lower() + what[1:]
        unknown = _UNKNOWN.fullmatch(what)
        if unknown is not None and not where and issubclass(kind, msgspec.Struct):
            problem += f"; {nearest(unknown[1], kind.__struct_encode_fields__)}"
        elif what.startswith("Invalid enum value"):
            problem += choices(msgspec.json.schema(kind), where.removesuffix("`"))
    # Out of the handler: as a context, the error would carry the value.
    where = where.removesuffix("`")
    key = re.match(r"\.([A-Za-z]+)", where)
    if key is not None and names is not None:
        where = f".{names.get(key[1], key[1])}{where[key.end() :]}"
    raise Fault((path + where).removeprefix("."), problem)


def join(path: str, key: str) -> str:
    """The path of a member."""
    if not _PLAIN_KEY.match(key):
        return f"{path}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{path}.{key}" if path else key


def _choice(words: Any) -> str:
    return "one of " + ", ".join(f'"{word}"' for word in words)

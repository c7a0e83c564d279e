"""A configuration file as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from wirespeed._exports import set_public_home
from wirespeed.config import shapes
from wirespeed.config.entry import EntryReader, converted, join
from wirespeed.config.servers import ServerConfig, Servers
from wirespeed.config.text import DuplicateKeys, Fault, Texts, is_there_twice, parse, twice_in
from wirespeed.contents import contents_of
from wirespeed.errors import ConfigError

T = TypeVar("T")

_OF_ONE = {"command", "args", "env", "cwd", "type"}
_MAX_WARNED = 1000
_warned: set[str] = set()


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
    ) -> None:
        self.source = source
        self._folder = os.path.abspath(os.fspath(folder) if folder is not None else ".")
        self._environ = os.environ if environ is None else environ
        try:
            self._read(parse(text, os.path.splitext(source)[1].lower()))
        except Fault as exc:
            problem = str(exc)
        else:
            self._warn()
            return
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
            data = contents_of(source, pipes=True)
        except OSError as exc:
            raise ConfigError(f"{source}: cannot read the file: {exc.strerror}") from exc
        return cls(data, source, os.path.dirname(os.path.abspath(source)), environ)

    def _read(self, document: Any) -> None:
        if not isinstance(document, dict):
            raise Fault("", 'expected an object with "mcpServers"')
        self.content = document
        self._take(*_place(document))

    def _take(self, place: shapes.Place, servers: dict[str, Any]) -> None:
        """Take the servers at a place."""
        self._key = ".".join(place.path)
        self.servers = Servers(self.source)
        self._bare = os.path.basename(self._folder) == shapes.GEMINI_FOLDER or any(
            isinstance(raw, dict) and raw.keys() & shapes.OF_GEMINI for raw in servers.values()
        )
        self._literal: list[str] = []
        for name, raw in servers.items():
            reader = EntryReader(self.place(name), self._texts(), place.unit)
            if isinstance(servers, DuplicateKeys) and servers.key == name:
                raw = DuplicateKeys(raw) if isinstance(raw, dict) else DuplicateKeys()
                raw.key = name
            self.servers[name] = reader.server(name, raw, self.source)
            self._literal += reader.literal

    def _texts(self) -> Texts:
        return Texts(self._folder, self._environ, bare=self._bare)

    def _warn(self) -> None:
        """Name what is not read, once for each file."""
        names: dict[str, list[str]] = {}
        for server in self.servers.values():
            for key in server.unread:
                names.setdefault(key, []).append(server.name)
        if names:
            listed = "; ".join(f'"{key}" of {", ".join(found)}' for key, found in names.items())
            self._warn_once(f"these keys are not read: {listed}")
        if self._literal:
            listed = ", ".join(self._literal)
            self._warn_once(f"$NAME is not read as a variable; write ${{NAME}}: {listed}")

    def _warn_once(self, text: str) -> None:
        text = f"{self.source}: {text}"
        if text not in _warned and len(_warned) < _MAX_WARNED:
            import logging

            _warned.add(text)
            logging.getLogger("wirespeed.config").warning("%s", text)

    def place(self, name: str) -> str:
        """Return the path to a server in the file."""
        return join(self._key, name)

    def convert(self, path: str, raw: Any, kind: type[T]) -> T:
        """Return a value of the file as a ``kind``. ConfigError, with ``path``: it is not one."""
        try:
            for key in twice_in(raw):
                raise Fault(path, is_there_twice(key))
            return converted(path, raw, kind)
        except Fault as exc:
            raise ConfigError(f"{self.source}: {exc}") from None

    def resolve(self, path: str) -> str:
        """Return a path of the file: a relative one is relative to the folder of the file."""
        return self._texts().resolve(path)

    def expand(self, path: str, text: str) -> str:
        """Return a text with its variables replaced. ConfigError: one is not set."""
        texts = self._texts()
        try:
            text = texts.expand(path, text)
        except Fault as exc:
            raise ConfigError(f"{self.source}: {exc}") from None
        if texts.problem:
            raise ConfigError(f"{self.source}: {texts.problem}")
        return text


class ServerDocument(Document):
    """A file with the object of one server, whose name is that of the file without its ending."""

    def _read(self, document: Any) -> None:
        if not isinstance(document, dict) or any(
            place.path and place.path[0] in document for place in shapes.PLACES
        ):
            raise Fault("", 'expected the object of one server, with "command" or "url"')
        self.content = document
        name = os.path.splitext(os.path.basename(self.source))[0]
        self._take(shapes.Place((), "a file for each server"), {name: document})


def _place(document: dict[str, Any]) -> tuple[shapes.Place, dict[str, Any]]:
    """The place of a document's servers, and these."""
    for place in shapes.PLACES:
        found: Any = document
        for key in place.path:
            if isinstance(found, DuplicateKeys) and found.key == key:
                raise Fault("", is_there_twice(key))
            if not isinstance(found, dict) or key not in found:
                break
            found = found[key]
        else:
            if not isinstance(found, dict):
                raise Fault(".".join(place.path), "expected an object")
            return place, found
    values = document.values()
    if all(one is None or isinstance(one, dict) for one in values) and any(
        one is not None and one.keys() & {*shapes.STARTS} for one in values
    ):
        return shapes.Place((), "a bare object of servers"), document
    raise Fault("", 'expected a key "mcpServers" (or "servers")')


def load(path: str | os.PathLike[str]) -> Servers:
    """Reads a file: JSON, TOML (``.toml``) or YAML (``.yaml``, ``.yml``; it needs PyYAML). Returns
    its servers by name, in the file's order, those not enabled included. The KeyError of another
    name lists the names, and `Servers.clients` makes one client of all.

    An entry with a fault is a server that cannot be used: its ``problem`` says the place and what
    is expected there. The others are as good as ever.

    Raises ConfigError, which names the file, where the file itself cannot be read or has no
    servers.
    """
    return Document.load(path).servers


def loads(
    text: str | bytes,
    *,
    source: str = "<string>",
    folder: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Servers:
    """Like :func:`load`, for text: JSON, if the name does not end in ``.toml``, ``.yaml`` or
    ``.yml``.

    ``source`` is its name in errors; ``folder`` is what relative paths start from (default:
    the current directory); ``environ`` is where variables are looked up (default:
    ``os.environ``).
    """
    return Document(text, source, folder, environ).servers


def enabled_servers(given: Mapping[str, Any]) -> dict[str, Any]:
    """The servers of a configuration that are not disabled, by name: `ServerConfig` objects and
    targets."""
    first = {place.path[0] for place in shapes.PLACES if place.path}
    if any(isinstance(given.get(key), Mapping) for key in first):
        read: dict[str, Any] = dict(loads(json.dumps(given), source="the configuration"))
    else:
        if "command" in given and given.keys() <= _OF_ONE:
            raise ValueError(
                "the keys of a server stand in an object by its name: "
                '{"mcpServers": {"a name": {"command": …}}}'
            )
        plain = {name: value for name, value in given.items() if isinstance(value, Mapping)}
        text = json.dumps({"mcpServers": plain})
        configs = loads(text, source="the configuration") if plain else {}
        read = {name: configs.get(name, value) for name, value in given.items()}
    return {
        name: server
        for name, server in read.items()
        if not isinstance(server, ServerConfig) or server.enabled
    }


set_public_home(globals())

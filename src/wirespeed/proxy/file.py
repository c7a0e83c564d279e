"""The file of a proxy: how it is read. Its keys are in `wirespeed.proxy.file_keys`."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import msgspec

from wirespeed.auth.access_token import PREFIX as PREFIX_OF_HASHES
from wirespeed.auth.access_token import hash_token
from wirespeed.config import ServerConfig
from wirespeed.config.document import Document, ServerDocument
from wirespeed.errors import ConfigError
from wirespeed.limits import Limits
from wirespeed.proxy.backend_config import (
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
    AdminConfig,
    AuditConfig,
    AuthorizationConfig,
    ClusterConfig,
    IntrospectionConfig,
    ListenConfig,
    PrincipalConfig,
    ProxyConfig,
)
from wirespeed.proxy.file_keys import (
    AuditKeys,
    AuthorizationKeys,
    BackendKeys,
    ClusterKeys,
    HookKeys,
    IdentityKeys,
    Keys,
    ListenKeys,
    PrincipalKeys,
    ProcessKeys,
    TopKeys,
)
from wirespeed.proxy.hook_config import HookConfig
from wirespeed.server.extensions import Extension
from wirespeed.tool_search import ToolSearch
from wirespeed.transport.child.command import ProcessLimits, Stdio
from wirespeed.transport.child.process import launch_faults

T = TypeVar("T")

logger = logging.getLogger("wirespeed.proxy")

CLUSTER = "WIRESPEED_CLUSTER"  # the variable that has the URL of the store

# The files of a folder that have a server each, and how many there may be.
ENDINGS = (".json", ".toml", ".yaml", ".yml")
MAX_FILES = 1000

# Keys of a server whose values are objects, and what is made of them.
_OBJECTS: dict[str, Callable[..., Any]] = {
    "breaker": BreakerConfig,
    "flow": FlowConfig,
    "health": HealthConfig,
    "recycle": RecycleConfig,
    "retry": RetryConfig,
    "tools": ToolsConfig,
    "tool_search": ToolSearch,
}


def load(
    path: str | os.PathLike[str],
    environ: Mapping[str, str] | None = None,
    *,
    on_fault: Callable[[str, ConfigError], BackendConfig | None] | None = None,
    on_missing: Callable[[str | None, str], None] | None = None,
) -> ProxyConfig:
    """Read the configuration of a proxy: JSON, or TOML if the name ends so.

    A server whose entry has a fault is left out, and the fault is logged.

    Args:
        path: The file.
        environ: Where variables are looked up (default: ``os.environ``).
        on_fault: Called with the name of such a server and its fault, in place of the log. It may
            return the configuration that the server has then.
        on_missing: Called for each command, folder and file that the configuration needs and that
            this process cannot use: with the name of the server, None for all of them, and a text
            as that of an error. By default nobody looks for these.

    Raises:
        ConfigError: The file cannot be read, what holds for all servers has a fault, or there is no
            server without one. The text names the file, the place in it and what is expected there.
    """
    document = Document.load(path, environ)
    top = document.convert("proxy", document.content.get("proxy", {}), TopKeys).given()
    entries = [_Entry(name, document) for name in document.servers]
    if "servers_folder" in top:
        folder = document.expand("proxy.serversFolder", top["servers_folder"])
        top["servers_folder"] = document.resolve(folder)
        entries += _entries_of(document, top["servers_folder"], environ)
    entries = [one for one in entries if one.document is None or one.server.enabled]
    if not entries:
        raise ConfigError(f"{document.source}: no server is enabled")
    if "listen" in top:
        top["listen"] = tuple(
            _listen(document, f"proxy.listen[{i}]", one) for i, one in enumerate(top["listen"])
        )
    if "principals" in top:
        top["principals"] = tuple(
            _principal(document, f"proxy.principals[{i}]", one)
            for i, one in enumerate(top["principals"])
        )
    if "auth" in top:
        top["auth"] = _authorization(document, "proxy.auth", top["auth"])
    if "audit" in top:
        top["audit"] = _audit(document, top["audit"])
    if "cluster" in top:
        top["cluster"] = _cluster(
            document, top["cluster"], os.environ if environ is None else environ
        )
    if "extensions" in top:
        top["extensions"] = tuple(
            _extension(document, f"proxy.extensions[{i}]", one)
            for i, one in enumerate(top["extensions"])
        )
    if "approvals" in top:
        top["approvals"] = approvals_in(document)
    if "name" in top:
        top["name"] = document.expand("proxy.name", top["name"])
    if "limits" in top:
        top["limits"] = _made(document, "proxy.limits", Limits, top["limits"].given())
    if "tool_search" in top:
        top["tool_search"] = _made(
            document, "proxy.toolSearch", ToolSearch, top["tool_search"].given()
        )
    if "rate" in top:
        top["rate"] = _made(document, "proxy.rate", RateConfig, top["rate"].given())
    if "admin" in top:
        own = {
            name: document.expand(f"proxy.admin.{name}", text)
            for name, text in top["admin"].given().items()
        }
        top["admin"] = _made(document, "proxy.admin", AdminConfig, own)
    top.setdefault("listen", ())
    top["backends"] = tuple(_backends(entries, on_fault or _left_out))
    if on_missing is not None:
        _look(document, entries, top, on_missing)
    return _made(document, "", ProxyConfig, top)


def approvals_in(document: Document) -> str | None:
    """The file of approved skills that a file names; None: it names none."""
    top = document.content.get("proxy", {})
    given = document.convert("proxy", top, TopKeys).given().get("approvals")
    return None if given is None else document.resolve(document.expand("proxy.approvals", given))


def _left_out(name: str, fault: ConfigError) -> None:
    logger.error("%s; the server %s is left out", fault, name)


class _Entry(NamedTuple):
    """The entry of a server.

    Attributes:
        document: The file that has it; None: the file cannot be read.
        fault: Why not.
    """

    name: str
    document: Document | None
    fault: ConfigError | None = None

    @property
    def server(self) -> ServerConfig:
        """The server. ConfigError: its file cannot be read."""
        if self.document is None:
            raise self.fault or ConfigError(f"{self.name} cannot be read")
        return self.document.servers[self.name]


def files_in(folder: str) -> list[str]:
    """Return the files of a folder that have a server each, by name. OSError: it cannot be read."""
    names = sorted(os.listdir(folder))
    return [
        os.path.join(folder, name)
        for name in names
        if not name.startswith(".") and name.endswith(ENDINGS)
    ]


def _entries_of(
    document: Document, folder: str, environ: Mapping[str, str] | None
) -> Iterator[_Entry]:
    """The servers of a folder. One whose file cannot be read, or whose name is taken, has a fault
    of its own. ConfigError: the folder cannot be read."""
    try:
        paths = files_in(folder)
    except OSError as exc:
        text = f"{document.source}: proxy.serversFolder: {folder}: {exc.strerror}"
        raise ConfigError(text) from exc
    if len(paths) > MAX_FILES:
        raise ConfigError(
            f"{document.source}: proxy.serversFolder: {folder} has more than {MAX_FILES} files"
        )
    taken = dict.fromkeys(document.servers, document.source)
    for path in paths:
        name = os.path.splitext(os.path.basename(path))[0]
        if name in taken:
            fault = ConfigError(f"{path}: {taken[name]} has a server {name} already")
            logger.error("%s", fault)
            continue
        taken[name] = path
        try:
            yield _Entry(name, ServerDocument.load(path, environ))
        except ConfigError as exc:
            yield _Entry(name, None, exc)


def _backends(
    entries: list[_Entry], on_fault: Callable[[str, ConfigError], BackendConfig | None]
) -> Iterator[BackendConfig]:
    """The servers, as far as their entries are right. ConfigError: none is."""
    first: ConfigError | None = None
    n_found = 0
    for entry in entries:
        try:
            found: BackendConfig | None = _backend(entry)
        except ConfigError as exc:
            first = first or exc
            if len(entries) == 1:
                raise
            found = on_fault(entry.name, exc)
        if found is not None:
            n_found += 1
            yield found
    if n_found == 0 and first is not None:
        raise first


def _look(
    document: Document,
    entries: list[_Entry],
    top: dict[str, Any],
    on_missing: Callable[[str | None, str], None],
) -> None:
    """Look for what the configuration needs of this machine. Listeners look for their files."""
    from wirespeed.proxy.access.audit import fault_of

    if (audit := top.get("audit")) is not None and (fault := fault_of(audit.to)) is not None:
        on_missing(None, f"{document.source}: proxy.audit: {fault}")
    targets = {one.name: one.target for one in top["backends"]}
    for name, of_server, _ in entries:
        target = targets.get(name)
        if isinstance(target, Stdio) and of_server is not None:
            for field, reason in launch_faults(target):
                key = "proxy.process" if field == "user" else field
                place = f"{of_server.place(name)}.{key}"
                on_missing(name, f"{of_server.source}: {place}: {reason}")


def _audit(document: Document, keys: str | AuditKeys) -> AuditConfig:
    place = "proxy.audit" if isinstance(keys, str) else "proxy.audit.to"
    given = {"to": keys} if isinstance(keys, str) else keys.given()
    to = document.expand(place, given["to"])
    given["to"] = to if to == "stderr" else document.resolve(to)
    return AuditConfig(**given)


def _cluster(document: Document, keys: ClusterKeys, environ: Mapping[str, str]) -> ClusterConfig:
    given = _expanded(document, "proxy.cluster", keys)
    if "url" not in given:
        if not environ.get(CLUSTER):
            raise ConfigError(f"{document.source}: proxy.cluster: it has no url, nor has {CLUSTER}")
        given["url"] = environ[CLUSTER]
    return _made(document, "proxy.cluster", ClusterConfig, given)


def _listen(document: Document, place: str, keys: str | ListenKeys) -> str | ListenConfig:
    if isinstance(keys, str):
        return document.expand(place, keys)
    given = _expanded(document, place, keys)
    if "token" in given and "tokens" in given:
        raise ConfigError(f'{document.source}: {place}: give either "token" or "tokens"')
    if "token" in given:
        given["tokens"] = (given.pop("token"),)
    for name in ("certfile", "keyfile"):
        if name in given:
            given[name] = document.resolve(given[name])
    return _made(document, place, ListenConfig, given)


def _principal(document: Document, place: str, keys: PrincipalKeys) -> PrincipalConfig:
    given = _expanded(document, place, keys)
    if "token" in given and "token_sha256" in given:
        raise ConfigError(f'{document.source}: {place}: give either "token" or "tokenSha256"')
    if "token" in given:
        token = given.pop("token")
        hashed = _made(document, f"{place}.token", hash_token, {"token": token})
        given["token_sha256"] = hashed.removeprefix(PREFIX_OF_HASHES)
    if "tools" in given:
        given["tools"] = ToolRules(**given["tools"].given())
    if "rate" in given:
        given["rate"] = _made(document, f"{place}.rate", RateConfig, given["rate"].given())
    return _made(document, place, PrincipalConfig, given)


def _authorization(document: Document, place: str, keys: AuthorizationKeys) -> AuthorizationConfig:
    given = _expanded(document, place, keys)
    if "introspection" in given:
        inner = f"{place}.introspection"
        found = _expanded(document, inner, given["introspection"])
        given["introspection"] = _made(document, inner, IntrospectionConfig, found)
    return _made(document, place, AuthorizationConfig, given)


def _expanded(document: Document, place: str, keys: Keys) -> dict[str, Any]:
    """The keys that are given, with variables replaced in their texts."""
    found = keys.given()
    names = {field.name: field.encode_name for field in msgspec.structs.fields(keys)}
    for name, value in found.items():
        path = f"{place}.{names[name]}"
        if isinstance(value, str):
            found[name] = document.expand(path, value)
        elif isinstance(value, tuple):
            found[name] = tuple(document.expand(f"{path}[{i}]", one) for i, one in enumerate(value))
        elif isinstance(value, dict):
            found[name] = {
                key: document.expand(f"{path}.{key}", one) if isinstance(one, str) else one
                for key, one in value.items()
            }
    return found


def _backend(entry: _Entry) -> BackendConfig:
    server = entry.server
    document = entry.document
    assert document is not None
    place = document.place(server.name)
    if server.auth is not None and server.auth.type == "oauth":
        raise ConfigError(
            f"{document.source}: {place}.auth: nobody can log in to the proxy: "
            "use client_credentials or a token"
        )
    own = document.convert(f"{place}.proxy", server.extra.get("proxy", {}), BackendKeys).given()
    for name, kind in _OBJECTS.items():
        if name in own:
            own[name] = _made(document, f"{place}.proxy.{name}", kind, own[name].given())
    if "identity" in own:
        own["identity"] = _identity(document, f"{place}.proxy.identity", own["identity"])
    if "hooks" in own:
        own["hooks"] = tuple(
            _hook(document, f"{place}.proxy.hooks[{i}]", one) for i, one in enumerate(own["hooks"])
        )
    own["target"] = server.target()
    own["urls"] = server.urls
    if "process" in own:
        own["target"] = _process(
            document, f"{place}.proxy.process", own.pop("process"), own["target"]
        )
    if server.start_timeout is not None:
        own.setdefault("start_timeout", server.start_timeout)
    own["name"] = server.name
    own["era"] = server.era
    return _made(document, place, BackendConfig, own)


def _hook(document: Document, place: str, keys: HookKeys) -> HookConfig:
    given = _expanded(document, place, keys)
    call = given.pop("call", None)
    if (call is None) == ("url" not in given):
        raise ConfigError(f'{document.source}: {place}: give either "url" or "call"')
    if call is not None:
        given["function"] = _loaded(document, f"{place}.call", call)
    return _made(document, place, HookConfig, given)


def _identity(document: Document, place: str, keys: IdentityKeys) -> IdentityConfig:
    given = _expanded(document, place, keys)
    if "credential" in given:
        given["credential"] = _loaded(document, f"{place}.credential", given["credential"])
    for name in ("folder", "file"):
        if name in given:
            given[name] = document.resolve(given[name])
    return _made(document, place, IdentityConfig, given)


def _extension(document: Document, place: str, name: str) -> Extension:
    found = _loaded(document, place, name)
    if not isinstance(found, Extension):
        raise ConfigError(f"{document.source}: {place}: {name} is not an Extension")
    return found


def _loaded(document: Document, place: str, name: str) -> Any:
    """Return the object that a file names: ``MODULE:NAME``."""
    module, _, path = name.partition(":")
    try:
        return reduce(getattr, path.split("."), importlib.import_module(module))
    except Exception as exc:
        missing = isinstance(exc, ModuleNotFoundError) and exc.name == module.partition(".")[0]
        hint = "; install it, or name its folder in PYTHONPATH" if missing else ""
        text = f"{document.source}: {place}: {name} cannot be loaded: {exc}{hint}"
        raise ConfigError(text) from None


def _process(document: Document, place: str, keys: ProcessKeys, target: Any) -> Stdio:
    if not isinstance(target, Stdio):
        raise ConfigError(f"{document.source}: {place}: the proxy does not start this server")
    given = keys.given()
    if "limits" in given:
        given["limits"] = ProcessLimits(**given["limits"].given())
    return msgspec.structs.replace(target, **given)


def _made(document: Document, place: str, kind: Callable[..., T], fields: dict[str, Any]) -> T:
    try:
        return kind(**fields)
    except (TypeError, ValueError) as exc:
        where = f"{place}: " if place else ""
        raise ConfigError(f"{document.source}: {where}{exc}") from None

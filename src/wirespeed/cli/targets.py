"""TARGET: the server that the command line names, and the client's settings for it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from wirespeed.cli.credentials import ENVIRONMENT, HOSTS, Secret
from wirespeed.cli.failures import cannot_start, complain, usage
from wirespeed.client.targets import python_file
from wirespeed.transport.address import parse
from wirespeed.transport.schemes import SCHEMES, public

if TYPE_CHECKING:
    from ssl import SSLContext

    from wirespeed import Http, Socket, Stdio, WebSocket
    from wirespeed.auth.client.session import TokenGrant
    from wirespeed.config import AuthConfig, ServerConfig

    Endpoint: TypeAlias = Stdio | Http | WebSocket | Socket
    Grants: TypeAlias = Callable[[str, AuthConfig | None], TokenGrant | None]

KINDS = "a URL, a FILE.py, an mcpServers FILE.json with #name, or -- COMMAND…"

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:unix|tcp|wss?|https?):")
_PLACE = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}(/|$)")  # a URL without its scheme
_OPEN_TIMEOUT = 10.0
FOREVER = 1e9  # seconds


@dataclass(frozen=True)
class RemoteAccess:
    """The options for connecting to a server elsewhere."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: Secret | None = None
    ca: str | None = None
    timeout: float | None = None
    """The time limit in seconds; 0 for no limit, None for the default."""
    grant: Grants | None = None
    """Gets the tokens of a server, of its URL and of what its configuration says; None
    for stored tokens."""

    def check_unused(self, why: str) -> None:
        """Failure (2): an option does not apply to the target."""
        if self.secret is not None and self.secret.from_option:
            raise usage(f"a token is for targets of HTTP and WebSocket; {why}")
        if self.headers:
            raise usage(f"--header is for targets of HTTP and WebSocket; {why}")
        if self.ca is not None:
            raise usage(f"--ca is for https:// and wss:// targets; {why}")


@dataclass(frozen=True)
class Target:
    """The endpoint to start or to connect to, with the time limit and the era that its
    configuration sets."""

    endpoint: Endpoint
    timeout: float | None = None
    era: str = "auto"


def find(
    word: str | None,
    command: Sequence[str] | None,
    *,
    stderr: Callable[[str], object] | str,
    access: RemoteAccess | None = None,
    lite: bool = False,
) -> Target:
    """Return the target of a command line: a word, or a command after ``--``.

    ``lite``: the target speaks LiteMCP. Failure (2 or 3), ConfigError: the target is wrong.
    """
    from wirespeed import Stdio

    access = access or RemoteAccess()
    if lite:
        access = replace(access, grant=_without_logins)
    if command is not None:
        if not command:
            raise usage("there is no command after --")
        if not command[0]:
            raise usage("the command after -- is empty")
        access.check_unused("a command is reached over stdio")
        # The command gets the shell's variables, as it would without wirespeed.
        return Target(Stdio(command[0], command[1:], stderr=stderr, inherit_env=True))
    assert word is not None
    if not word:
        raise usage(f"TARGET is empty; it is {KINDS}")
    if is_url(word):
        return Target(_remote(word, access))
    python = python_file(word)
    if python is not None:
        check_file(python[0])
        access.check_unused("a FILE.py is reached over stdio")
        args = ["-m", "wirespeed", "serve", *(["--lite"] if lite else []), word]
        return Target(Stdio(sys.executable, args, stderr=stderr, inherit_env=True))
    return _configured(word, stderr, access)


def is_url(word: str) -> bool:
    """Whether a word is a URL, and no file."""
    return _URL.match(word) is not None and not os.path.exists(word)


# -- servers elsewhere ----------------------------------------------------------------------------


def _remote(
    url: str,
    access: RemoteAccess,
    *,
    headers: Mapping[str, str] | None = None,
    auth: AuthConfig | None = None,
    place: str | None = None,
    shown: str = "",
) -> Http | WebSocket | Socket:
    """Return the target of a URL. ``headers``, ``auth``, ``place`` and ``shown`` are from a
    configuration."""
    from wirespeed.client.targets import TARGETS, Socket

    scheme = url.partition(":")[0].lower()
    row = SCHEMES.get(scheme)
    if row is None:
        rows = sorted(SCHEMES.values(), key=lambda one: one.speaks == "lines")
        *others, last = (f"{one.name}:" for one in rows)
        raise cannot_start(
            f"cannot connect to {place or public(url)}: this version supports "
            f"{', '.join(others)} and {last} URLs; TARGET is {KINDS}"
        )
    # A command makes one connection. The loss of its link is reported at once.
    options: dict[str, Any] = {
        "restart": False,
        "open_timeout": _OPEN_TIMEOUT if access.timeout is None else access.timeout or FOREVER,
        "shown": shown,
    }
    try:
        kind = TARGETS[row.speaks]
        if issubclass(kind, Socket):
            access.check_unused(f"{scheme}: has no handshake for credentials")
            return kind(url, **options)
        # A header of the command line replaces that of the configuration.
        typed = {name.lower() for name in access.headers}
        merged = {k: v for k, v in (headers or {}).items() if k.lower() not in typed}
        secret = access.secret
        if secret is not None and secret.from_option:
            merged = {k: v for k, v in merged.items() if k.lower() != "authorization"}
        elif place is not None or "authorization" in typed:
            secret = None  # the variable is for a TARGET of the command line, not of a file
        if secret is not None and not secret.is_for(host := parse(url).host):
            complain(
                f"{ENVIRONMENT} is not sent to {host}: set {HOSTS}={host} to send it there",
                level="note",
            )
            secret = None
        if access.ca is not None:
            if not row.secure:
                raise usage(
                    f"--ca is for https:// and wss:// targets; {scheme}:// has no certificates"
                )
            options["ssl"] = _trusting(access.ca)
        merged |= access.headers
        token = None if secret is None else secret.only
        if token is None and auth is not None and "authorization" not in typed:
            token = auth.token
        if token is None and "authorization" not in (name.lower() for name in merged):
            options["auth"] = _grant(url, access, auth)
        return kind(url, headers=merged, token=token, **options)
    except ValueError as exc:
        raise usage(f"{place or 'TARGET'}: {exc}") from None


def _grant(url: str, access: RemoteAccess, auth: AuthConfig | None) -> TokenGrant | None:
    if access.grant is not None:
        return access.grant(url, auth)
    if auth is None:
        from wirespeed.auth.client.storage import FileStorage

        if not FileStorage().folder.exists():  # then the modules of a login need not be loaded
            return None
    from wirespeed.cli.stored_login import stored

    return stored(url, auth)


def _without_logins(url: str, auth: AuthConfig | None) -> None:
    if auth is not None:
        raise usage(f'--lite: LiteMCP has no logins, and "auth" has the type "{auth.type}"')


def _trusting(path: str) -> SSLContext:
    """Return a TLS context that trusts only the authorities of a file. Failure (2): the file cannot
    be used."""
    import ssl

    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise usage(f"{path} has no certificates that --ca can trust (PEM)") from None
    except OSError as exc:
        raise usage(f"cannot read the --ca file {path}: {exc.strerror}") from None


# -- files ----------------------------------------------------------------------------------------


def check_file(path: str) -> None:
    """Raise Failure (3) unless there is a readable file at the path."""
    if not os.path.exists(path):
        raise cannot_start(f"there is no file {path}")
    if not os.path.isfile(path):
        raise cannot_start(f"{path} is not a file")
    if not os.access(path, os.R_OK):
        raise cannot_start(f"{path} is not readable; check its permissions")


def split(word: str) -> tuple[str, str | None]:
    """Split ``FILE#name``. The names of files and servers may contain #."""
    if os.path.exists(word):
        return word, None
    at = word.find("#")
    while at > 0:
        if os.path.isfile(word[:at]):
            return word[:at], word[at + 1 :]
        at = word.find("#", at + 1)
    path, sharp, name = word.partition("#")
    return path, name if sharp else None


def _configured(word: str, stderr: Any, access: RemoteAccess) -> Target:
    path, name = split(word)
    if not os.path.exists(path):
        hint = f"; for a server write http://{word}" if _PLACE.match(word) else ""
        raise cannot_start(f"there is no file {path}; TARGET is {KINDS}{hint}")
    if os.path.isfile(path) and not path.endswith((".json", ".jsonc")) and os.access(path, os.X_OK):
        raise cannot_start(f"{path} is a program; to start it write -- before it")
    from wirespeed import config

    servers = config.load(path)
    if name is None:
        enabled = [server for server in servers.values() if server.enabled]
        if not enabled:
            raise cannot_start(f"{path} has no server that is enabled")
        if len(enabled) > 1:
            names = ", ".join(server.name for server in enabled)
            raise cannot_start(f"{path} has {len(enabled)} servers, so add #name: {names}")
        server = enabled[0]
    else:
        try:
            server = servers[name]
        except KeyError as exc:
            raise cannot_start(exc.args[0]) from None
        if not server.enabled:
            raise cannot_start(f'{path}: the server "{name}" is not enabled')
    return Target(_entry(server, path, stderr, access), server.timeout, server.era)


def _entry(server: ServerConfig, path: str, stderr: Any, access: RemoteAccess) -> Endpoint:
    """Return the endpoint of an entry of a configuration."""
    from wirespeed import Stdio

    place = f'{path}: the server "{server.name}"'
    if server.transport == "stdio":
        access.check_unused("this server is started as a child")
    target = server.target(stderr=stderr)
    if isinstance(target, Stdio):
        return target
    return _remote(
        target.url,
        access,
        headers=server.headers,
        auth=server.auth,
        place=place,
        shown=target.address.shown,
    )

"""``wirespeed install`` and ``wirespeed uninstall``: a server in the file of a host."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from wirespeed.cli import credentials, modules
from wirespeed.cli.failures import (
    Exit,
    Failure,
    cannot_start,
    coloured,
    print_json,
    printable,
    usage,
)
from wirespeed.cli.hosts import files
from wirespeed.cli.hosts.known import GENERIC, HOSTS, Host, Launch, Remote
from wirespeed.cli.targets import check_file, is_url
from wirespeed.client.targets import from_file, python_file
from wirespeed.transport.address import parse

_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FILES = (".json", ".jsonc", ".toml")


class Place(NamedTuple):
    """The servers in a file of a host."""

    host: Host
    file: str
    path: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The path of the file, with ``~`` for the home directory."""
        home = os.path.expanduser("~")
        inside = self.file.startswith(home + os.sep) and home != os.sep
        return f"~{self.file[len(home) :]}" if inside else self.file


class Choices(NamedTuple):
    """The options of the commands.

    Attributes:
        key: The key of the server; None for the server's name.
        project: Whether the file is that of the project in the current directory.
        env: ``NAME=VALUE``, or a NAME of this environment, for a server that is started.
        headers: ``Name: value`` for a server at a URL.
        yes: Whether to write without a question.
        dry_run: Whether to write nothing.
        as_json: Whether to print JSON.
    """

    key: str | None = None
    project: bool = False
    env: Sequence[str] = ()
    headers: Sequence[str] = ()
    yes: bool = False
    dry_run: bool = False
    as_json: bool = False


# -- what is installed ----------------------------------------------------------------------------


def server_of(
    word: str | None, command: Sequence[str] | None, choices: Choices
) -> tuple[str, Launch | Remote]:
    """Return the key and the launch or the URL of what the command line names. Failure (2 or 3): it
    cannot be served, the URL is not one of HTTP or WebSocket, or the key is not valid."""
    key = choices.key
    if key is not None and (not key or _UNUSUAL.search(key)):
        raise usage("--key: letters, digits, - and _ only, because hosts refuse other characters")
    server: Launch | Remote
    if word is not None and is_url(word):
        if choices.env:
            raise usage("--env is for a server that the host starts")
        name, server = "server", Remote(_reached(word), credentials.headers(choices.headers))
    else:
        if choices.headers:
            raise usage("--header is for a server at a URL")
        env = dict(map(_variable, choices.env))
        if word is None:
            assert command is not None
            name, server = _program(command, env)
        else:
            name, server = _started(word, env)
    return key or _UNUSUAL.sub("-", name).strip("-") or "server", server


def _reached(url: str) -> str:
    """Check the URL of a server elsewhere. Failure (2): hosts reach no such URL."""
    try:
        address = parse(url)
    except ValueError as exc:
        raise usage(str(exc)) from None
    if not address.has_paths:
        raise usage("hosts reach servers at http://, https://, ws:// and wss:// URLs only")
    return url


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not _VARIABLE.match(name):
        raise usage("--env takes NAME=VALUE, or the NAME of a variable of this shell")
    if not equals and name not in os.environ:
        raise usage(f"--env {name}: the variable is not set here")
    return name, value if equals else os.environ[name]


def _program(command: Sequence[str], env: dict[str, str]) -> tuple[str, Launch]:
    """The name and the launch of a program. A path is made absolute, as hosts have another
    PATH."""
    if not command or not command[0]:
        raise usage("there is no command after --")
    found = shutil.which(command[0])
    if found is None:
        raise cannot_start(f"{command[0]!r} was not found on this shell's PATH")
    return os.path.basename(command[0]), Launch(os.path.abspath(found), tuple(command[1:]), env)


def _started(word: str, env: dict[str, str]) -> tuple[str, Launch]:
    """The name and the launch of the server of a file."""
    from wirespeed.transport.stdio import claimed

    path, name = python_file(word) or (word, None)
    check_file(path)
    with claimed():  # the import of the file must not write into the JSON
        module = modules.load(path)
        served = modules.pick(module, path, name)
    assert not isinstance(served, dict)
    absolute = os.path.abspath(path)
    target = from_file(absolute if name is None else f"{absolute}:{name}")
    assert target is not None
    return served.name, Launch(os.path.abspath(target.command), tuple(map(str, target.args)), env)


# -- hosts ----------------------------------------------------------------------------------------


def place_of(word: str, *, project: bool) -> Place:
    """Return the place of the servers of a host, which is named, or whose file is. Failure (2):
    there is no such host."""
    host = HOSTS.get(word)
    if host is not None:
        return _settled(host, host.file(project))
    if word.endswith(_FILES) and not word.startswith("-"):
        if project:
            raise usage("--project is for the name of a host; a file is where it is")
        return _settled(_host_of_file(word), os.path.abspath(word))
    near = difflib.get_close_matches(word, HOSTS, n=1)
    guess = f"did you mean {near[0]}?" if near else f"there are {', '.join(HOSTS)}"
    raise usage(f"there is no host {word!r}: {guess}")


def _host_of_file(file: str) -> Host:
    """The host in whose form a file is."""
    if file.endswith(".toml"):
        return HOSTS["codex"]
    with contextlib.suppress(FileNotFoundError):
        text = _text(_bytes(file))
        for name in ("vscode", "zed", "opencode"):
            if files.servers_in(text, file, HOSTS[name].path):
                return HOSTS[name]
    return GENERIC


def _settled(host: Host, file: str) -> Place:
    """The place in the file that a host has: OpenCode has two names and two forms."""
    path = host.path
    if host.name == "opencode":
        other = file.removesuffix("c") + "c"
        if not os.path.exists(file) and os.path.exists(other):
            file = other
        with contextlib.suppress(FileNotFoundError):
            if "servers" in files.servers_in(_text(_bytes(file)), file, path):
                path = (*path, "servers")
    return Place(host, file, path)


def _bytes(file: str) -> bytes:
    """Read a file. Failure (3): it cannot be read. FileNotFoundError: there is none."""
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise cannot_start(f"cannot read {file}: {exc.strerror}") from None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise cannot_start("the file of the host is not UTF-8") from None


# -- the commands ---------------------------------------------------------------------------------


def show_entry(
    host_word: str | None, word: str | None, command: Sequence[str] | None, choices: Choices
) -> int:
    """Print an entry alone, in the form of a host."""
    key, server = server_of(word, command, choices)
    place = None if host_word is None else place_of(host_word, project=choices.project)
    host = GENERIC if place is None else place.host
    path = host.path if place is None else place.path
    suffix = ".toml" if host.name == "codex" else ".json"
    sys.stdout.write(files.rendered((*path, key), host.entry(server), suffix))
    return Exit.OK


def install(
    host_word: str, word: str | None, command: Sequence[str] | None, choices: Choices
) -> int:
    """Add a server to the file of a host, after the difference was shown.

    Failure (2 or 3): the server or the file cannot be used, or the person says no.
    """
    place = place_of(host_word, project=choices.project)
    key, server = server_of(word, command, choices)
    return _change(place, key, place.host.entry(server), choices)


def uninstall(host_word: str, name: str, choices: Choices) -> int:
    """Remove a server from the file of a host: by its key, or by its file. Failure (3): the host
    has no such server."""
    place = place_of(host_word, project=choices.project)
    try:
        entries = files.servers_in(_text(_bytes(place.file)), place.file, place.path)
    except FileNotFoundError:
        raise cannot_start(f"{place.host.title} has no file {place.shown}") from None
    keys = [name] if name in entries else [key for key in entries if _starts(entries[key], name)]
    if len(keys) != 1:
        has = f"it has {', '.join(entries)}" if entries else "it has no servers"
        what = "no server" if not keys else "several servers"
        raise cannot_start(f"{place.shown} has {what} {printable(name)}; {has}")
    return _change(place, keys[0], None, choices)


def _starts(entry: Any, word: str) -> bool:
    """Whether an entry starts the server of a file."""
    found = python_file(word)
    path = os.path.abspath(found[0] if found else word)
    if not isinstance(entry, dict):
        return False
    args = entry.get("args")
    command = entry.get("command")
    words = [
        *(args if isinstance(args, list) else ()),
        *(command if isinstance(command, list) else ()),
    ]
    return any(one == path or str(one).startswith(path + ":") for one in words)


def _change(place: Place, key: str, entry: dict[str, Any] | None, choices: Choices) -> int:
    try:
        before: bytes | None = _bytes(place.file)
    except FileNotFoundError:
        before = None
    text = _text(before or b"")
    plain = text.replace("\r\n", "\n")
    new = files.edited(plain, place.file, (*place.path, key), entry)
    changed = new != plain
    report: dict[str, Any] = {
        "host": place.host.name,
        "file": place.file,
        "key": key,
        "changed": changed and not choices.dry_run,
        "backup": None,
    }
    if not changed:
        if choices.as_json:
            print_json(report)
        else:
            print(printable(f"{place.shown} has {key} already"))
        return Exit.OK
    if not choices.as_json:
        _show_difference(place, plain, new)
    if choices.dry_run:
        if choices.as_json:
            print_json(report)
        return Exit.OK
    old = files.servers_in(plain, place.file, place.path).get(key)
    _confirm(place, key, replaces=entry is not None and old is not None, choices=choices)
    if "\r\n" in text:
        new = new.replace("\n", "\r\n")
    report["backup"] = _write(place.file, before, new.encode(), private=not choices.project)
    if choices.as_json:
        print_json(report)
        return Exit.OK
    kept = f"; the file as it was: {report['backup']}" if report["backup"] else ""
    print(printable(f"wrote {place.shown}{kept}"))
    if entry is not None and place.host.then:
        print(f"next: {place.host.then}")
    return Exit.OK


def _confirm(place: Place, key: str, *, replaces: bool, choices: Choices) -> None:
    """Let the person at the terminal agree. Failure (2): the person says no; or nobody is asked,
    and another server would be lost."""
    if choices.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or choices.as_json:
        if replaces:
            raise usage(
                f"{place.shown} has another server {key}: --yes replaces it, --key KEY gives "
                "this one another key"
            )
        return
    import click

    try:
        agreed = click.confirm("Write this?", default=True, err=True)
    except click.Abort:
        raise KeyboardInterrupt from None
    if not agreed:
        raise Failure("nothing was written", Exit.USAGE, "Refused")


def _show_difference(place: Place, before: str, after: str) -> None:
    """Print what changes, with the values of secrets masked."""
    from wirespeed.transport.wire_trace import masked

    colours = {"+": "32", "-": "31", "@": "36"} if coloured(sys.stdout) else {}
    name = place.shown
    for line in difflib.unified_diff(
        before.splitlines(), after.splitlines(), name, name, lineterm=""
    ):
        colour = colours.get(line[:1])
        text = printable(line[:1] + masked(line[1:]))
        print(f"\x1b[{colour}m{text}\x1b[0m" if colour else text)


def _write(file: str, before: bytes | None, data: bytes, *, private: bool) -> str | None:
    """Replace a file as a whole, and keep a copy of it. Returns the path of the copy. Failure (3):
    the file cannot be written, or was changed meanwhile."""
    real = os.path.realpath(file)  # a link stays a link
    folder = os.path.dirname(real)
    made: list[str] = []
    try:
        os.makedirs(folder, mode=0o700 if private else 0o777, exist_ok=True)
        copy: str | None = None
        like: os.stat_result | None = None
        mode = 0o600 if private else 0o666 & ~_umask()
        try:
            if before is not None:
                like = os.stat(real)
                mode = like.st_mode & 0o7777
                copy = _free(f"{real}.{time.strftime('%Y%m%d-%H%M%S')}")
                # secrets in it are never readable by others
                into = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                made.append(copy)
                _fill(into, before, mode, like)
            into, temporary = tempfile.mkstemp(dir=folder, prefix=".wirespeed-")
            made.append(temporary)
            _fill(into, data, mode, like)
            now = None
            with contextlib.suppress(FileNotFoundError):
                now = _bytes(real)
            if now != before:
                raise cannot_start(f"{file} was changed meanwhile: run the command again")
            os.replace(temporary, real)
        except BaseException:
            for path in made:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise
    except OSError as exc:
        raise cannot_start(f"cannot write {file}: {exc.strerror}") from None
    return copy


def _fill(into: int, data: bytes, mode: int, like: os.stat_result | None) -> None:
    """Write a new file. It gets the owner of another file, if this process may set the owner."""
    with os.fdopen(into, "wb") as out:
        out.write(data)
        out.flush()
        if like is not None and (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(OSError):
                os.fchown(out.fileno(), like.st_uid, like.st_gid)
        os.fchmod(out.fileno(), mode)
        os.fsync(out.fileno())


def _free(path: str) -> str:
    """The name of a copy that there is not yet."""
    copy, number = f"{path}.bak", 1
    while os.path.lexists(copy):
        number += 1
        copy = f"{path}-{number}.bak"
    return copy


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

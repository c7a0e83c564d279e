"""The page of all limits agrees with the code, and leaves none out."""

from __future__ import annotations

import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from lab.rows import every

import wirespeed.litemcp
from wirespeed import (
    Client,
    Http,
    HttpOptions,
    Limits,
    ListenOptions,
    Server,
    Socket,
    Stdio,
    WebSocket,
)
from wirespeed.peer.http.event_store import EventLimits, LimitedEventStore
from wirespeed.server.requests.launchers import DEFAULT_QUEUE
from wirespeed.skills import SkillLimits
from wirespeed.tasks import store as stores

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "limits.md"
ROW = re.compile(r"^\| `([\w.]+)(?:\((\w+)\))?` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
CONSTANT = re.compile(r"^(MAX_[A-Z_]+) = [0-9(]", re.MULTILINE)
NUMBER = re.compile(r"(int|float)( \| None)?")

# Defaults of options whose type is a TypedDict, which has none.
ELSEWHERE = {
    "Server.add_tool(timeout)": None,
    "Server.add_tool(max_concurrency)": None,
    "Server.add_tool(queue)": DEFAULT_QUEUE,
}
# Settings that bound nothing, bounds of our own work, and copies of a row's number.
NO_LIMITS = {
    "HttpOptions.access_log_sample",
    "HttpOptions.retry",
    "ListenOptions.socket_mode",
    "Server(list_ttl_ms)",
    "client.requests.rounds.MAX_ROUNDS",  # Client(max_rounds)
    "protocol.header_values.MAX_INTEGER",  # exact integers of JSON
    "transport.net.connections.MAX_KEPT",  # what an allocator keeps of a burst
    "peer.http.http_session.MAX_DIGITS",  # of an event's number
    "server.resources.folder.MAX_FILE",  # Server.add_folder(max_size)
    "server.requests.operation.MAX_COMPARED",  # names that a suggestion is looked for in
    "server.skills.service.MAX_PAGES",  # further ones are encoded at each request
    "server.skills.service.MAX_ENTRIES",  # likewise
    "server.subscriptions.MAX_ENCLOSING",  # URIs above one URI
    "skills.model.MAX_BYTES",  # SkillLimits(size)
    "skills.model.MAX_FILES",  # SkillLimits(files)
    "tasks.store.MAX_TASKS",
    "tasks.store.MAX_TASKS_PER_OWNER",
    "tasks.store.MAX_BYTES",
}
FOLDERS = ("client", "cluster", "protocol", "server", "skills", "tasks", "transport")


def rows() -> dict[str, tuple[str, str]]:
    """Default and unit by setting."""
    found = {}
    for first, argument, default, unit in ROW.findall(PAGE.read_text(encoding="utf-8")):
        name = f"{first}({argument})" if argument else first
        assert name not in found, name
        found[name] = (default, unit)
    return found


def shown(value: float | None, unit: str) -> str:
    """A number as the page writes it."""
    if value is None:
        return "none"
    if unit.startswith("bytes"):
        for size, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size and value % size == 0:
                return f"{value // size:,} {name}"
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def default(name: str) -> Any:
    """The number in the code."""
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    called, _, argument = name.rstrip(")").partition("(")
    if called == "EventLimits":
        return inspect.signature(LimitedEventStore).parameters[argument].default
    if called == "SkillLimits":
        return inspect.signature(SkillLimits).parameters[argument].default
    if called == "StoreLimits":
        return getattr(stores, argument.upper())
    if argument:
        owner, _, method = called.partition(".")
        function = getattr(wirespeed, owner)
        function = getattr(function, method) if method else function
        return inspect.signature(function).parameters[argument].default
    owner, _, member = called.rpartition(".")
    if "." in owner or owner.islower():
        return pkgutil.resolve_name(f"wirespeed.{called}")
    struct = getattr(wirespeed, owner)
    if struct is Limits:
        return inspect.signature(struct).parameters[member].default
    defaults = struct.__struct_defaults__
    return dict(zip(struct.__struct_fields__[-len(defaults) :], defaults, strict=True))[member]


@every("name", sorted(rows()))
def test_a_default(name: str) -> None:
    written, unit = rows()[name]
    assert written == shown(default(name), unit)


def numbers(owner: type) -> set[str]:
    """The fields of a class whose annotation is a number, or a number or None."""
    return {
        f"{owner.__name__}.{name}"
        for one in owner.__mro__
        for name, annotation in vars(one).get("__annotations__", {}).items()
        if NUMBER.fullmatch(inspect.formatannotation(annotation))
    }


def arguments(function: type) -> set[str]:
    """The parameters whose annotation is a number, or a number or None."""
    return {
        f"{function.__name__}({name})"
        for name, parameter in inspect.signature(function).parameters.items()
        if NUMBER.fullmatch(str(parameter.annotation))
    }


def constants() -> set[str]:
    """The constants of the source that name the most of something."""
    package = ROOT / "src" / "wirespeed"
    return {
        ".".join((*file.relative_to(package).with_suffix("").parts, name))
        for folder in FOLDERS
        for file in (package / folder).rglob("*.py")
        for name in CONSTANT.findall(file.read_text(encoding="utf-8"))
    }


def test_no_limit_is_left_out() -> None:
    wanted = arguments(Server) | arguments(Client) | constants()
    for struct in (Limits, ListenOptions, HttpOptions, Stdio, Http, WebSocket, Socket):
        wanted |= numbers(struct)
    wanted |= {f"EventLimits({name})" for name in EventLimits.__annotations__}
    wanted |= {f"SkillLimits({name})" for name in SkillLimits.__annotations__}
    wanted |= {f"StoreLimits({name})" for name in stores.StoreLimits.__annotations__}
    assert len(wanted) > 60
    assert wanted - NO_LIMITS - set(rows()) == set()

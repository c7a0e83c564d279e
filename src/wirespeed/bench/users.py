"""The file of a load with several kinds of users (TOML): named calls of tools, and users with their
steps. docs/how-to/measure-a-server.md has all keys."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any, TypeAlias, TypeVar

from wirespeed.bench.arguments import Arguments
from wirespeed.bench.expect import read_expect
from wirespeed.bench.script import Script, Scripts, Step
from wirespeed.bench.work import Work
from wirespeed.config.text import Fault, parse
from wirespeed.contents import contents_of
from wirespeed.errors import ConfigError
from wirespeed.protocol.revisions import REQUEST_METHODS

T = TypeVar("T")

Value: TypeAlias = dict[str, Any] | list[Any]
Place: TypeAlias = str | int | None
Arrange: TypeAlias = Callable[[str, dict[str, Any], str | None], tuple[Value, Place]]

_LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resource_templates": "resources/templates/list",
    "prompts": "prompts/list",
}
# Methods that are steps of their own, or no requests of a user.
_NOT_METHODS = {
    "tools/call": 'write call = "NAME"',
    "initialize": "each connection begins with it",
    "subscriptions/listen": "its answer comes at its end",
    **{method: f'write list = "{name}"' for name, method in _LISTS.items()},
}
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s)")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MAX_USERS = 100
_MAX_TIMES = 1_000_000


class UsersFile:
    """The users of a file.

    Args:
        path: The file.
        lite: Whether the target speaks LiteMCP, which has calls alone.

    ConfigError: it cannot be read, or is wrong. The text names the file, the key, and what it can
    be.
    """

    def __init__(self, path: str | os.PathLike[str], *, lite: bool = False) -> None:
        self._source = os.fspath(path)
        self._lite = lite
        try:
            text = contents_of(path, pipes=True)
        except OSError as exc:
            raise ConfigError(f"{self._source}: cannot read the file: {exc.strerror}") from None
        self._document = self._read(lambda: parse(text, ".toml"))

    def scripts(self, seed: int | None = None, arrange: Arrange | None = None) -> Scripts:
        """Return the users, for one run.

        seed: Of the random values and choices; None for others in each run.
        arrange: Returns the arguments that are sent, and the one that is expected back, of those of
            a tool. ValueError: they do not fit.
        """
        return self._read(lambda: _Reader(seed, self._lite, arrange).document(self._document))

    def _read(self, reader: Callable[[], T]) -> T:
        try:
            return reader()
        except Fault as exc:
            problem = str(exc)
        raise ConfigError(f"{self._source}: {problem}")


class _Reader:
    """The values of a document as users."""

    def __init__(
        self,
        seed: int | None,
        lite: bool,
        arrange: Arrange | None,
    ) -> None:
        self._seed = seed
        self._lite = lite
        self._arrange = arrange
        self._calls: dict[str, Work] = {}

    def document(self, document: dict[str, Any]) -> Scripts:
        _check_keys("", document, ("call", "user"))
        calls = _table("call", document.get("call", {}))
        self._calls = {name: self._call(name, raw) for name, raw in calls.items()}
        users = document.get("user")
        if not isinstance(users, list) or not 0 < len(users) <= _MAX_USERS:
            raise Fault("user", f"expected 1 to {_MAX_USERS} tables [[user]]")
        scripts = [self._user(f"user[{n}]", raw) for n, raw in enumerate(users)]
        names = [script.name for script in scripts]
        for name in names:
            if names.count(name) > 1:
                raise Fault("user", f"two users have the name {json.dumps(name)}")
        return Scripts(scripts, self._seed)

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, name: str, raw: Any) -> Work:
        path = f"call.{name}"
        keys = ("tool", "arguments", "expect", "cancel_after", "progress")
        table = _table(path, raw, keys)
        tool = _string(f"{path}.tool", table.get("tool", name))
        cancel_after = inf
        if "cancel_after" in table:
            cancel_after = _seconds(f"{path}.cancel_after", table["cancel_after"])
        progress = _flag(f"{path}.progress", table.get("progress", False))
        if self._lite and (cancel_after < inf or progress):
            key = "progress" if progress else "cancel_after"
            raise Fault(f"{path}.{key}", "LiteMCP has neither cancellation nor progress")
        arguments = _table(f"{path}.arguments", table.get("arguments", {}))
        echo, check = self._expected(f"{path}.expect", table.get("expect", "any"), self._lite)
        value: Value = arguments
        place: Place = echo
        if self._arrange is not None:
            try:
                value, place = self._arrange(tool, arguments, echo)
            except ValueError as exc:
                raise Fault(f"{path}.arguments", str(exc)) from None
        template = self._template(f"{path}.arguments", value, place)
        return Work(tool, template, check, progress=progress, cancel_after=cancel_after)

    def _expected(self, path: str, raw: Any, whole: bool) -> tuple[str | None, Any]:
        try:
            found = read_expect(_string(path, raw), whole=whole)
        except ValueError as exc:
            raise Fault(path, str(exc)) from None
        return found.echo, found.check

    def _template(self, path: str, value: Value, echo: Place) -> Arguments:
        # each has other random values: the answer to one call is not that to another
        seed = None if self._seed is None else self._seed + len(self._calls) * 7919
        try:
            return Arguments(value, echo, seed, self._lite)
        except OSError as exc:
            raise Fault(path, f"cannot read {exc.filename}: {exc.strerror}") from None
        except (TypeError, ValueError) as exc:  # such as a date of TOML
            raise Fault(path, str(exc)) from None

    # -- users -----------------------------------------------------------------------------------

    def _user(self, path: str, raw: Any) -> Script:
        table = _table(path, raw, ("name", "weight", "steps", "own_connection"))
        name = _string(f"{path}.name", table.get("name"))
        weight = table.get("weight", 1)
        if not _is_number(weight) or not 0 < weight <= 1e6:
            raise Fault(f"{path}.weight", "expected a number above 0 and at most 1,000,000")
        steps = table.get("steps")
        if not isinstance(steps, list) or not steps:
            raise Fault(f"{path}.steps", "expected an array with a table for each step")
        found = [self._step(f"{path}.steps[{n}]", step) for n, step in enumerate(steps)]
        own = _flag(f"{path}.own_connection", table.get("own_connection", False))
        return Script(name, float(weight), found, own)

    def _step(self, path: str, raw: Any) -> Step:
        table = _table(path, raw, ("call", "list", "method", "params", "expect", "times"))
        times = table.get("times", 1)
        if type(times) is not int or not 1 <= times <= _MAX_TIMES:
            raise Fault(f"{path}.times", f"expected a whole number from 1 to {_MAX_TIMES:,}")
        kinds = table.keys() & {"call", "list", "method"}
        if len(kinds) != 1:
            raise Fault(path, "expected one of the keys call, list and method")
        kind = kinds.pop()
        for key in ("params", "expect"):
            if key in table and kind != "method":
                raise Fault(f"{path}.{key}", f"it is for a method; {_PLACES[kind][key]}")
        if kind == "call":
            return Step(self._named(f"{path}.call", table["call"]), times)
        if self._lite:
            raise Fault(f"{path}.{kind}", "LiteMCP has calls alone")
        if kind == "list":
            name = _one_of(f"{path}.list", table["list"], _LISTS)
            return Step([Work(None, None, method=_LISTS[name])], times)
        return Step([self._method(path, table)], times)

    def _named(self, path: str, raw: Any) -> list[Work]:
        names = raw if isinstance(raw, list) else [raw]
        if not names:
            raise Fault(path, "expected the name of a call, or several")
        return [self._calls[_one_of(path, name, self._calls)] for name in names]

    def _method(self, path: str, table: dict[str, Any]) -> Work:
        method = _string(f"{path}.method", table["method"])
        if method in _NOT_METHODS:
            raise Fault(f"{path}.method", f"{method} is not a step: {_NOT_METHODS[method]}")
        known = sorted(REQUEST_METHODS - _NOT_METHODS.keys())
        _one_of(f"{path}.method", method, known)
        params = None
        echo, check = self._expected(f"{path}.expect", table.get("expect", "any"), True)
        if echo is not None:
            raise Fault(f"{path}.expect", "echo is for calls")
        if "params" in table:
            value = _table(f"{path}.params", table["params"])
            if "_meta" in value:
                raise Fault(f"{path}.params", "_meta is written by the client")
            params = self._template(f"{path}.params", value, None)
        return Work(None, params, check, method=method)


_PLACES = {
    "call": {"params": "arguments stand in [call.NAME]", "expect": "it stands in [call.NAME]"},
    "list": {"params": "a list has none", "expect": "an answer to a list is always checked"},
}

# -- values ---------------------------------------------------------------------------------------


def _check_keys(path: str, table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            known = ", ".join(keys)
            raise Fault(path, f"there is no key {json.dumps(key)}; there are {known}")


def _table(path: str, raw: Any, keys: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise Fault(path, "expected a table")
    if keys is not None:
        _check_keys(path, raw, keys)
    return raw


def _string(path: str, raw: Any) -> str:
    if not isinstance(raw, str) or not raw:
        raise Fault(path, "expected a string that is not empty")
    return raw


def _flag(path: str, raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise Fault(path, "expected true or false")
    return raw


def _is_number(raw: Any) -> bool:
    return isinstance(raw, int | float) and not isinstance(raw, bool) and isfinite(raw)


def _one_of(path: str, raw: Any, names: Any) -> str:
    if not isinstance(raw, str) or raw not in names:
        known = ", ".join(names) or "none"
        raise Fault(path, f"{json.dumps(raw, default=str)} is none of those there are: {known}")
    return raw


def _seconds(path: str, raw: Any) -> float:
    match = _TIME.fullmatch(raw) if isinstance(raw, str) else None
    if match is None:
        raise Fault(path, 'expected a time such as "50ms" or "1.5s"')
    seconds = float(match[1]) * _UNITS[match[2]]
    if not 0 < seconds <= 3600:
        raise Fault(path, "expected a time above 0 and at most an hour")
    return seconds

"""The configuration in force, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.config.servers import ServerUrl
from wirespeed.transport.schemes import public

if TYPE_CHECKING:
    from wirespeed.proxy.config import ProxyConfig

HIDDEN = "…"
MAX_TEXT = 300  # characters of one text


def in_force(config: ProxyConfig) -> dict[str, Any]:
    """Return the values that differ from the defaults, as JSON. Fields that ``repr`` does not show
    are hidden, and so are the arguments and variables of commands, and the values of header
    fields."""
    return _fields(config)


def _fields(value: Any) -> dict[str, Any]:
    found = {}
    for one in fields(value):
        given = getattr(value, one.name)
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if default is MISSING or given != default:
            found[one.name] = _shown(given) if one.repr else HIDDEN
    return found


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        text = public(value) if "://" in value else value
        return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + HIDDEN
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(key): _shown(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(one) for one in value]
    if hasattr(value, "argv") and hasattr(value, "command"):  # a command: arguments may be secrets
        first = (getattr(value, "shown", None) or value.argv)[0]
        return f"{first} {HIDDEN}" if len(value.argv) > 1 else first
    if isinstance(value, ServerUrl):
        url = public(value.shown or value.url)
        return {"url": url, "weight": value.weight, "percent": value.percent}
    if hasattr(value, "url"):
        return public(getattr(value, "shown", "") or value.url).partition("?")[0]
    if hasattr(value, "__slots__") and not isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__slots__ if not name.startswith("_")}
    return getattr(value, "__qualname__", None) or type(value).__name__

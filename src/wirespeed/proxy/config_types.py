"""The check of types that all values of a proxy's configuration share."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin


def check_types(config: Any) -> None:
    """TypeError: a field of a configuration, which is a dataclass, has a value of another type than
    its annotation. Called by ``__post_init__``. Sequences are as good as tuples."""
    kind: Any = type(config)
    kinds = kinds_of(kind)
    for one in fields(config):
        value = getattr(config, one.name)
        if not _fits(value, kinds[one.name]):
            name = type(config).__name__
            found = (
                f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
            )
            raise TypeError(f"{one.name} of {name} must be {one.type}, not {found}")


@cache
def kinds_of(config: Any) -> dict[str, Any]:
    """The annotations of a class, as they mean in its module."""
    from wirespeed.client.targets import Http, Socket, WebSocket
    from wirespeed.server.extensions import Extension
    from wirespeed.server.server import Server
    from wirespeed.transport.child.command import Stdio

    named = (Extension, Http, Server, Socket, Stdio, WebSocket)
    known = {**config.__post_init__.__globals__, **{one.__name__: one for one in named}}
    return {one.name: eval(str(one.type), known) for one in fields(config)}


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union or origin is types.UnionType:
        return any(_fits(value, one) for one in inner)
    if origin is Literal:  # the class says which values there are
        return isinstance(value, tuple({type(one) for one in inner}))
    if origin is tuple:
        is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_sequence and all(_fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(one, inner[1]) for key, one in value.items()
        )
    if kind is float or kind is int:
        numbers = (int, float) if kind is float else int
        return isinstance(value, numbers) and not isinstance(value, bool)
    return isinstance(value, origin or kind)  # of a generic type its class, as of `Callable`

"""Loads on servers of LiteMCP: their clients, and the arguments of their tool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wirespeed.bench.client import LIMITS, BenchClient
from wirespeed.bench.lite_driver import LiteDriver
from wirespeed.litemcp.client import arrange
from wirespeed.litemcp.client_connection import LiteLife

if TYPE_CHECKING:
    from wirespeed.bench.driver import Driver
    from wirespeed.client.connection.lifecycle import Lifecycle
    from wirespeed.litemcp.messages import Tool


class LiteBenchClient(BenchClient):
    """One connection of LiteMCP after another."""

    def new_life(self) -> Lifecycle:
        """Return the links to the target."""
        return LiteLife(self.owner.target, LIMITS, False, lambda: None, self)

    def new_driver(self, *args: Any) -> Driver:
        """Return the calls over the connection that was opened."""
        requests: Any = self.life.live
        return LiteDriver(requests, LIMITS.output_high, *args)

    @property
    def era(self) -> str:
        """The name of the protocol in results."""
        return "lite"

    @property
    def server_info(self) -> dict[str, Any]:
        """Nothing: a server says only what its tool is."""
        return {}


def template_of(tool: Tool, value: dict[str, Any] | list[Any]) -> list[str]:
    """Return the strings of a call, with placeholders, from arguments in order or by name.

    ValueError: they do not fit the parameters of the tool, or a placeholder is inside of another
    value, which is sent as its JSON text.
    """
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list) and '"$' in json.dumps(item):
            raise ValueError("LiteMCP sends strings: a placeholder is a whole argument there")
    try:
        if isinstance(value, dict):
            return arrange(tool, (), value)
        return arrange(tool, value, {})
    except TypeError as exc:
        raise ValueError(str(exc)) from None


def place_of(tool: Tool, name: str) -> int:
    """Return the index of a parameter. ValueError: there is none."""
    names = [parameter.name for parameter in tool.parameters]
    if name not in names:
        known = ", ".join(names) or "none"
        raise ValueError(f"the tool has no parameter {name!r}; there are {known}")
    return names.index(name)

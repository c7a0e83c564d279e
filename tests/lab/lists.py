"""Kinds of entries that servers list: how a test adds, removes and uses one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lab.caller import Caller

from wirespeed import Server


class Kind(NamedTuple):
    family: str  # of notifications and capabilities
    method: str
    member: str
    key: str  # the member that entries are known by
    keys: str  # the key of the entry with a number
    add: Callable[[Server, str, Any], Any]
    remove: Callable[[Server, str], None]
    use: Callable[[str], tuple[str, dict[str, str]]]

    def fill(self, server: Server, *numbers: int, function: Any = None) -> Server:
        for n in numbers:
            self.add(server, self.keys.format(n), function or found)
        return server

    def drop(self, server: Server, n: int) -> None:
        self.remove(server, self.keys.format(n))

    def page(self, client: Caller, **params: Any) -> tuple[list[str], str | None]:
        """The keys of the entries on one page, and the cursor."""
        result = client.plain(self.method, **params)
        return [entry[self.key] for entry in result[self.member]], result.get("nextCursor")

    def named(self, *numbers: int) -> list[str]:
        return [self.keys.format(n) for n in numbers]

    def ask(self, client: Caller, n: int) -> Any:
        method, params = self.use(self.keys.format(n))
        return client.answer(method, **params)

    @property
    def changed(self) -> dict[str, str]:
        return {"jsonrpc": "2.0", "method": f"notifications/{self.family}/list_changed"}


def found(x: str = "") -> str:
    return "found"


def read(uri: str) -> tuple[str, dict[str, str]]:
    return "resources/read", {"uri": uri.replace("{x}", "1")}


KINDS = {
    "tools": Kind(
        "tools",
        "tools/list",
        "tools",
        "name",
        "tool-{}",
        lambda server, key, function: server.add_tool(function, name=key),
        lambda server, key: server.remove_tool(key),
        lambda key: ("tools/call", {"name": key}),
    ),
    "prompts": Kind(
        "prompts",
        "prompts/list",
        "prompts",
        "name",
        "prompt-{}",
        lambda server, key, function: server.add_prompt(function, name=key),
        lambda server, key: server.remove_prompt(key),
        lambda key: ("prompts/get", {"name": key}),
    ),
    "resources": Kind(
        "resources",
        "resources/list",
        "resources",
        "uri",
        "a://{}",
        lambda server, key, function: server.add_resource(key, function),
        lambda server, key: server.remove_resource(key),
        read,
    ),
    "templates": Kind(
        "resources",
        "resources/templates/list",
        "resourceTemplates",
        "uriTemplate",
        "a://{}/{{x}}",
        lambda server, key, function: server.add_resource(key, function),
        lambda server, key: server.remove_resource(key),
        read,
    ),
}

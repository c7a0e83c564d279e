"""Which requests are sent again, once, when a server that clients share ends before it answers."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend_config import RetryConfig

# What changes nothing at the server.
READS = frozenset(
    {
        "completion/complete",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
# Requests of one server that are kept at a time: each of them holds the memory that it was read
# into.
MAX_KEPT = 1000
_MAX_NAMES = 1000  # whose verdict is remembered
_MAX_NAME = 200  # characters of such a name


class Retries:
    """Knows whether a request may run twice.

    Attributes:
        learns: Whether the annotations of the tools are needed.
    """

    def __init__(self, config: RetryConfig) -> None:
        self._globs = config.tools
        self.learns = config.trust_annotations
        self._harmless: frozenset[str] = frozenset()
        self._verdicts: dict[str, bool] = {}

    @property
    def has_calls(self) -> bool:
        """Whether any call of a tool may run twice."""
        return bool(self._globs or self._harmless)

    def learn(self, tools: Iterable[Any]) -> None:
        """Take what a server says of its tools. One without annotations changes things."""
        found = set()
        for tool in tools:
            said = tool.get("annotations") if isinstance(tool, dict) else None
            if not isinstance(said, dict) or not isinstance(tool.get("name"), str):
                continue
            if said.get("readOnlyHint") is True or said.get("idempotentHint") is True:
                found.add(tool["name"])
        self._harmless = frozenset(found)
        self._verdicts.clear()

    def __call__(self, message: Message) -> bool:
        """Whether a request may be sent again."""
        method = message.method
        if method != "tools/call":
            return method in READS
        name = message.text("params.name")
        if name is None:
            return False
        verdict = self._verdicts.get(name)
        if verdict is None:
            verdict = name in self._harmless or any(fnmatchcase(name, one) for one in self._globs)
            if len(self._verdicts) < _MAX_NAMES and len(name) <= _MAX_NAME:
                self._verdicts[name] = verdict
        return verdict

"""The circuit breaker of a server that fails again and again, and the requests that are sent again,
once, when a server ends before it answers."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend_config import BreakerConfig, RetryConfig
    from wirespeed.proxy.downstream import Downstream


class CircuitBreaker:
    """Counts failures in a row. An answer of the server ends the row.

    After too many the breaker is open: nothing passes. After a pause it is half open: one request
    passes at a time, until one was answered.

    Args:
        config: How many, and how long.
        loop: The event loop.
        changed: Called when the state has changed.

    Attributes:
        state: The state.
        opened: How often it was opened.
    """

    def __init__(
        self,
        config: BreakerConfig,
        loop: asyncio.AbstractEventLoop,
        changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._loop = loop
        self._changed = changed
        self.state: Literal["closed", "open", "half open"] = "closed"
        self.opened = 0
        self._failures = 0
        self._why = ""
        self._answered = 0
        self._trial: tuple[Downstream, Message] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def failed(self, n_answered: int) -> None:
        """Count a failure. ``n_answered``: what the server has answered so far."""
        if n_answered != self._answered and self.state == "closed":
            self._failures = 0
        self._answered = n_answered
        self._failures += 1
        self._trial = None
        if self.state == "half open" or (
            self.state == "closed" and self._failures >= self._config.failures
        ):
            self.trip(f"failed {self._failures} times in a row")

    def trip(self, why: str) -> None:
        """Let nothing pass, whatever was counted. ``why``: what the server does, for clients."""
        self._why = why
        if self._timer is not None:
            self._timer.cancel()
        self.opened += 1
        self._trial = None
        self._timer = self._loop.call_later(self._config.pause, self._half)
        self._become("open")

    def _half(self) -> None:
        self._become("half open")

    def _become(self, state: Literal["closed", "open", "half open"]) -> None:
        self.state = state
        self._changed()

    def is_free(self, n_answered: int) -> bool:
        """Whether a request may pass now."""
        if self.state == "half open" and n_answered != self._answered:
            self._answered, self._failures, self._trial = n_answered, 0, None
            self._become("closed")
        if self.state != "half open":
            return self.state == "closed"
        return self._trial is None or not self._trial[0].is_open(self._trial[1])

    def passes(self, downstream: Downstream, message: Message) -> None:
        """A request passes."""
        if self.state == "half open":
            self._trial = downstream, message

    @property
    def reason(self) -> str:
        """Why requests are refused."""
        return f"it {self._why}, so it gets no requests for {self._config.pause:g} s"

    def close(self) -> None:
        """Forget all, at the end of the server."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._trial, self.state, self._failures = None, None, "closed", 0


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

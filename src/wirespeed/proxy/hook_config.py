"""The configuration of a hook, as a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from wirespeed._exports import set_public_home
from wirespeed.auth.fetch import named_url
from wirespeed.proxy.config_types import check_types
from wirespeed.transport.options import is_token

HookPhase: TypeAlias = Literal["before", "after"]


@runtime_checkable
class BeforeHook(Protocol):
    """An object that checks calls."""

    def before(self, call: Any, /) -> Any:
        """Check a `wirespeed.proxy.HookCall`."""


@runtime_checkable
class AfterHook(Protocol):
    """An object that checks results."""

    def after(self, call: Any, result: Any, /) -> Any:
        """Check the result of a `wirespeed.proxy.HookCall`, a dict."""


@dataclass(frozen=True, kw_only=True)
class HookConfig:
    """A hook, which checks the calls of some tools. Before a call it allows it, refuses it or
    edits its arguments. After the call it lets the result pass, withholds it or edits it. Calls of
    other tools are not held.

    Attributes:
        tools: Globs of the server's names of the tools.
        url: An HTTP service that is asked by POST, ``https://``, or ``http://`` at this machine.
        function: In place of the service: an object with ``before(call)``, ``after(call, result)``
            or both, or a function that is ``before``. ``call`` is a `wirespeed.proxy.HookCall`.
            Returning None lets the call or the result pass, a dict replaces the arguments or the
            result, and raising `wirespeed.proxy.HookRefusal` refuses. Coroutine functions run on
            the event loop, others in a thread.
        phases: The phases in which it is asked.
        token: The bearer token for the service.
        timeout: Seconds for its answer in each phase.
        on_failure: Whether a call is refused or passes if the hook fails or is late: ``"refuse"``
            or ``"pass"``.
    """

    tools: tuple[str, ...]
    url: str | None = None
    function: Callable[[Any], Any] | BeforeHook | AfterHook | None = field(default=None, repr=False)
    phases: tuple[HookPhase, ...] = ("before", "after")
    token: str | None = field(default=None, repr=False)
    timeout: float = 5.0
    on_failure: Literal["refuse", "pass"] = "refuse"

    def __post_init__(self) -> None:
        check_types(self)
        if not self.tools:
            raise ValueError("a hook has tools: globs of their names")
        if (self.url is None) == (self.function is None):
            raise ValueError("a hook is either a service (url) or a function")
        if self.url is not None:
            named_url(self.url)
        if self.token is not None and (self.url is None or not is_token(self.token)):
            raise ValueError("a token of printable ASCII characters goes with a url")
        if not 0 < self.timeout < math.inf:
            raise ValueError("timeout is seconds above 0")
        if not self.phases or not {"before", "after"}.issuperset(self.phases):
            raise ValueError('phases are "before" and "after"')
        if self.on_failure not in ("refuse", "pass"):
            raise ValueError(f'on_failure is "refuse" or "pass", not {self.on_failure!r}')

    def fits(self, tool: str) -> bool:
        """Whether the hook checks the calls of a tool."""
        return any(fnmatchcase(tool, glob) for glob in self.tools)


set_public_home(globals())

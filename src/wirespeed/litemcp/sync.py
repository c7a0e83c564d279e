"""The blocking LiteMCP client, for code without an event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wirespeed._exports import set_public_home
from wirespeed.client.loop_thread import Blocking, like
from wirespeed.client.timeouts import CLIENT_DEFAULT, Timeout
from wirespeed.litemcp.client import LiteClient

if TYPE_CHECKING:
    from wirespeed.litemcp.messages import CallResult, Tool

__all__ = ["SyncLiteClient"]


class SyncLiteClient(Blocking[LiteClient]):
    """A `LiteClient` whose event loop runs in a thread of its own. The arguments are those of
    `LiteClient`.

    Its methods are those of `LiteClient`, and block. Several threads may call them at once: the
    calls share one link. After an interrupt (Ctrl-C) of a call, its answer is dropped.
    """

    @like(LiteClient.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(LiteClient(*args, **options))

    def info(self, *, timeout: Timeout = CLIENT_DEFAULT) -> Tool:
        """As `LiteClient.info`."""
        return self._run(self._client.info(timeout=timeout))

    def prompt(self, *, timeout: Timeout = CLIENT_DEFAULT) -> str:
        """As `LiteClient.prompt`."""
        return self._run(self._client.prompt(timeout=timeout))

    def call(self, *args: Any, **kwargs: Any) -> CallResult:
        """As `LiteClient.call`."""
        return self._run(self._client.call(*args, **kwargs))

    def invoke(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = CLIENT_DEFAULT,
    ) -> CallResult:
        """As `LiteClient.invoke`."""
        return self._run(self._client.invoke(args, kwargs, timeout=timeout))


set_public_home(globals())

import asyncio
from asyncio import Future
from logging import Logger
from typing import Any, Protocol

from typing_extensions import disjoint_base

from wirespeed._core.envelope import Message
from wirespeed._core.session import Session
from wirespeed.proxy.side import Side

SUBSCRIPTION_OVER: bytes

class _ResultTaker(Protocol):
    def take(self, side: Any, ref: int, text: Any) -> None: ...

@disjoint_base
class DownstreamSide(Side):
    meta_tools: Any
    hooks: Any
    skills: Any
    drained: str | None
    identities: Any
    bound_to: bytes | None
    quotas: Any
    state: Any
    takers: dict[int, _ResultTaker] | None
    def __init__(
        self,
        session: Session,
        loop: asyncio.AbstractEventLoop,
        service: Any = None,
        log: Logger | None = None,
    ) -> None: ...
    def changes_state(self, message: Message) -> None: ...
    def await_rate(self, message: Message, head: Any, delay: Future[float]) -> None: ...
    def rated(self, message: Message, head: Any, delay: float) -> None: ...
    def await_quota(self, message: Message, head: Any, spending: Any) -> None: ...
    @property
    def parked(self) -> list[Any] | None: ...
    def unpark(self) -> None: ...
    def spent(self, message: Message, head: Any, spending: Any, delay: float) -> None: ...
    def instead(
        self, message: Message, method: str, params: bytes, ref: int | None = None
    ) -> Message: ...
    def give_result_to(self, message: Message, taker: _ResultTaker) -> None: ...
    def is_expanded(self, message: Message) -> bool: ...
    def forward(self, message: Message, /, *, hooked: bool = True) -> None: ...
    def subscriptions(self) -> list[Message]: ...
    def end_subscriptions(self) -> None: ...

import asyncio
from collections.abc import Callable
from typing import Any, final

from typing_extensions import disjoint_base

from wirespeed._core.envelope import Message
from wirespeed._core.session import Session
from wirespeed.proxy.isolation.choice import Choice
from wirespeed.proxy.party import Party
from wirespeed.server.requests.observer import Observer

@final
class Route:
    record: Any
    @property
    def sent(self) -> bool: ...
    @property
    def asker(self) -> Side: ...
    @property
    def ref(self) -> int: ...
    @property
    def greets(self) -> bool: ...

@disjoint_base
class Access: ...

@disjoint_base
class Admission: ...

@disjoint_base
class Translation: ...

@disjoint_base
class Side(Party):
    across: Side | None
    requests: dict[str, Callable[[Any, Message], None]]
    admits_legacy: bool
    admits_modern: bool
    choice: Choice | None
    tags: Any
    admission: Admission | None
    access: Access | None
    mirrored: Access | None
    tracer: Any
    deadline: float
    retries: Callable[[Message], bool] | None
    retries_calls: bool
    translation: Translation | None
    observer: Observer | None
    @property
    def n_passed(self) -> int: ...
    @property
    def n_answered(self) -> int: ...
    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None: ...
    def route(self, message: Message) -> Side | None: ...
    def on_data(self) -> None: ...
    def on_lost(self, exc: BaseException | None) -> None: ...
    def pass_request(
        self,
        message: Message,
        to: Side | None,
        name: bytes | None = None,
        text: bytes | None = None,
        after: Callable[[Message], Message | bytes | None] | None = None,
    ) -> None: ...

from collections.abc import Callable
from typing import Any, final

from wirespeed._core.envelope import Message
from wirespeed.proxy.side import Side, Translation

@final
class Asked:
    def __call__(self, answer: Message) -> Any: ...

@final
class Lowering(Translation):
    tracks: bool
    def __init__(
        self,
        ending: bytes,
        answered: Callable[[Message, Message], Any],
        called: Callable[[Message], Any],
    ) -> None: ...

@final
class Raising(Translation):
    decodes: bool
    def __init__(self, answered: Callable[[Message, Message], Any]) -> None: ...
    def declare(self, members: bytes) -> None: ...

def open_requests(side: Side) -> list[Message]: ...

@final
class Suspended:
    def __init__(self, side: Side, request: Message, result: bytes) -> None: ...
    @property
    def answer(self) -> Message | None: ...
    def __call__(self, answer: Message) -> None: ...
    @property
    def is_open(self) -> bool: ...
    def resume(self, request: Message) -> None: ...
    def drop(self) -> None: ...

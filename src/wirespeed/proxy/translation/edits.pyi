from collections.abc import Callable
from typing import Any, final

from wirespeed._core.envelope import Message
from wirespeed.proxy.side import Translation

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

__pyx_capi__: dict[str, object]

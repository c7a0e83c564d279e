from collections.abc import Callable
from typing import Any, TypeAlias, final

from wirespeed._core.envelope import Message
from wirespeed.proxy.side import Translation

After: TypeAlias = Callable[[Message], Any]

@final
class Lowering(Translation):
    tracks: bool
    def __init__(
        self, ending: bytes, answered: Callable[[Message, Message], Any], called: After
    ) -> None: ...

@final
class Raising(Translation):
    decodes: bool
    def __init__(self, answered: Callable[[Message, Message], Any]) -> None: ...
    def declare(self, members: bytes) -> None: ...

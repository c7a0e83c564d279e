from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from wirespeed._core.envelope import Message
from wirespeed._core.framing.http.head import HttpHead
from wirespeed.protocol.header_values import ParamField
from wirespeed.proxy.front import Front
from wirespeed.proxy.side import Access

Fields: TypeAlias = tuple[ParamField, ...]

__pyx_capi__: dict[str, object]

class Mirrored(Access):
    def __init__(
        self, ask: Callable[[Front], Coroutine[Any, Any, dict[str, Fields] | None]]
    ) -> None: ...
    def fields(self, asker: Front, name: str) -> Fields | None: ...
    def agrees(self, asker: Front, m: Message, head: HttpHead, fields: Fields) -> bool: ...
    def forget(self) -> None: ...
    async def learned(self, asker: Front, name: str) -> Fields: ...

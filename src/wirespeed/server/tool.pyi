from collections.abc import Callable
from typing import Any, final

from wirespeed.server.content import Encoded
from wirespeed.server.server import ToolEntry
from wirespeed.server.signature import ToolSpec

@final
class Tool:
    def __init__(
        self,
        entry: ToolEntry,
        spec: ToolSpec | None,
        function: Callable[..., Any],
        *,
        inline: bool,
        timeout: float | None,
        wants_context: bool = False,
        encode: Callable[[Any, str], Encoded] | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def entry(self) -> ToolEntry: ...
    @property
    def spec(self) -> ToolSpec | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def wants_context(self) -> bool: ...
    @property
    def raw(self) -> bool: ...

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, final

from wirespeed.protocol.header_values import ParamField
from wirespeed.server.catalog import ToolEntry
from wirespeed.server.requests.call import Operation
from wirespeed.server.tasks.catalog import TaskTool
from wirespeed.server.tools.results import Encoded
from wirespeed.server.tools.signature import ToolSpec

@final
class LongTexts:
    def __new__(cls, attributes: Mapping[str, str]) -> LongTexts: ...
    def decode(self, decode: Callable[[bytes], Any], data: bytes, /) -> Any: ...

@final
class Tool(Operation):
    header_params: tuple[ParamField, ...] | None
    scopes: tuple[str, ...] | None
    tasks: TaskTool | None
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
        launch: Callable[..., Coroutine[Any, Any, Any]] | None = None,
    ) -> None: ...
    def shown_as(self, entry: ToolEntry) -> Tool: ...
    @property
    def entry(self) -> ToolEntry: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def spec(self) -> ToolSpec | None: ...
    @property
    def raw(self) -> bool: ...

from collections.abc import Callable, Coroutine
from typing import Any, final

from wirespeed.protocol.revisions import Revision
from wirespeed.server.requests.call import Operation
from wirespeed.server.requests.reply import Body

@final
class Feature(Operation):
    def __init__(
        self,
        name: str,
        kind: str,
        function: Callable[..., Any],
        *,
        encode: Callable[[Any, Revision], Body],
        timeout: float | None = None,
        wants_context: bool = False,
        launch: Callable[..., Coroutine[Any, Any, Any]] | None = None,
    ) -> None: ...
    def invoke(self, values: list[Any], names: tuple[str, ...] | None = None) -> Any: ...

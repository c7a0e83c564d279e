from collections.abc import Callable
from typing import Any, final

from wirespeed.proxy.side import Translation

@final
class TaskNames(Translation): ...

@final
class TaskRequests(Translation):
    def __init__(self, after: Callable[[Any, Any], Any]) -> None: ...

from collections.abc import Callable
from typing import Any, final

from wirespeed.proxy.side import Choice, Translation

@final
class LeastLoaded(Choice):
    def take(self, servers: list[Any], clients: list[Any]) -> None: ...

@final
class TaskNames(Translation): ...

@final
class TaskRequests(Translation):
    def __init__(self, after: Callable[[Any, Any], Any]) -> None: ...

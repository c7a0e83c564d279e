from collections.abc import Callable
from typing import Any, final

from wirespeed.bench.arguments import Arguments

PAGES: dict[str, str]

@final
class Work:
    def __init__(
        self,
        tool: str | None,
        arguments: Arguments | None,
        check: Callable[[Any], bool] | None = ...,
        *,
        method: str = ...,
        progress: bool = ...,
        cancel_after: float = ...,
    ) -> None: ...
    @property
    def tool(self) -> str | None: ...
    @property
    def method(self) -> str: ...
    @property
    def arguments(self) -> Arguments | None: ...
    @property
    def check(self) -> Callable[[Any], bool] | None: ...
    @property
    def progress(self) -> bool: ...
    @property
    def cancel_after(self) -> float: ...

from collections.abc import Callable, Mapping
from typing import final

from wirespeed.proxy.side import Access

@final
class Grant:
    def __init__(
        self,
        name: str,
        servers: Callable[[str], bool],
        allows: Callable[[str], bool] | None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    def may_use(self, server: str) -> bool: ...
    def shows(self, name: str) -> bool: ...

@final
class Grants(Access):
    def __init__(self, grants: Mapping[bytes, Grant]) -> None: ...
    @property
    def n_refused(self) -> int: ...
    def adopt(self, other: Grants) -> None: ...
    def of(self, principal: bytes | None) -> Grant | None: ...

__pyx_capi__: dict[str, object]

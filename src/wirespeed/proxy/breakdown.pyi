from typing import final

from wirespeed.server.requests.observer import Series

@final
class Breakdown:
    @property
    def tools(self) -> dict[bytes, Series]: ...
    @property
    def principals(self) -> dict[bytes | None, Series]: ...
    @property
    def other_tools(self) -> Series: ...
    @property
    def other_principals(self) -> Series: ...
    def add(
        self, tool: bytes | None, principal: bytes | None, seconds: float, code: int
    ) -> None: ...

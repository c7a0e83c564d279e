from typing import Any, final

MAX_TEXT: int
SEED: int
MAX_CHOICES: int

@final
class Arguments:
    def __init__(
        self,
        value: dict[str, Any] | list[Any],
        expect: str | int | None = ...,
        seed: int | None = ...,
        strings: bool = ...,
    ) -> None: ...
    def write(self, value: Any, expect: str | int | None, texts: list[str], top: bool) -> None: ...
    def flush(self, texts: list[str]) -> None: ...
    def expect(self, item: Any, n: int) -> None: ...
    def render(self, n: int) -> tuple[bytes, str | None]: ...

def slot_of(word: str, strings: bool) -> Any: ...

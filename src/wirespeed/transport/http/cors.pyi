from collections.abc import Iterable
from typing import final

from wirespeed.transport.options import Headers

METHODS: tuple[str, ...]
PREFLIGHT_AGE: int
ALLOWED: tuple[str, ...]
EXPOSED: str

def is_preflight(headers: Headers) -> bool: ...
def preflight_fields(headers: Headers, methods: Iterable[str]) -> list[tuple[str, str]]: ...
def public_preflight_fields(methods: Iterable[str]) -> list[tuple[str, str]]: ...
def response_fields(origin: str) -> list[tuple[str, str]]: ...

@final
class PageOrigin:
    def __init__(self, origin: bytes, host: bytes | None) -> None: ...

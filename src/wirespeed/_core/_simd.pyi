from typing import Literal, NamedTuple, TypeAlias

from typing_extensions import Buffer

_Level: TypeAlias = Literal["scalar", "sse2", "avx2", "avx512", "neon"]

ABI: int
POINTS: tuple[str, ...]

class Scan(NamedTuple):
    status: Literal["ok", "empty", "syntax", "utf8", "depth"]
    value: tuple[int, int]
    end: int
    root: Literal["object", "array", "other"]
    id_kind: Literal["absent", "integer", "string", "null", "invalid"]
    duplicates: tuple[str, ...]
    error_at: int
    poi: dict[str, tuple[int, int]]

def level() -> _Level: ...
def levels() -> list[_Level]: ...
def find_newline(data: Buffer, *, level: str | None = None) -> int: ...
def utf8_valid(data: Buffer, *, level: str | None = None) -> bool: ...
def json_escape(data: Buffer, *, level: str | None = None) -> bytes: ...
def json_plain(data: Buffer, *, level: str | None = None) -> tuple[int, bool]: ...
def mask(
    data: Buffer, key: Buffer, at: int = 0, *, to: Buffer | None = None, level: str | None = None
) -> None: ...
def scan(
    data: Buffer, *, max_depth: int = 128, prefix: bool = False, level: str | None = None
) -> Scan: ...

__pyx_capi__: dict[str, object]  # what other compiled modules cimport

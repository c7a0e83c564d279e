"""Header fields by name, as applications see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


class Headers(Mapping[str, str]):
    """Header fields by name, whatever the case; several of one name are joined by ``", "``.

    ``repr`` shows names only: values may be secrets.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, str] | Sequence[tuple[str, str]] = ()) -> None:
        joined: dict[str, str] = {}
        for name, value in fields.items() if isinstance(fields, Mapping) else fields:
            name = name.lower()
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        self._fields = joined

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"<Headers {', '.join(self._fields)}>"

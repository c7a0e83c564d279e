"""One page of a list, item by item where an item of it is broken.

A broken item costs the list that item. What can mean one thing only is no fault: null for a member
that may be absent, and ``[]`` for an object without members.
"""

from __future__ import annotations

import logging
from typing import Any, Generic, TypeVar, cast

import msgspec

from wirespeed.transport.quiet import Quiet

__all__ = ["PageDecoder"]

P = TypeVar("P")

logger = logging.getLogger("wirespeed.client")

# Members of items that are objects.
_OBJECTS = frozenset({"annotations", "execution", "inputSchema", "outputSchema", "_meta"})
_SHOWN = 100  # characters of a name that the log shows

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class PageDecoder(Generic[P]):
    """Decodes the pages of one list.

    A tool without ``inputSchema`` takes any arguments. An item that cannot be used is left out. The
    log names each, once for each page.

    Args:
        method: The method of the list.
        page: The type of a page: one of its fields is a list of structs.
    """

    def __init__(self, method: str, page: type[P]) -> None:
        self._method = method
        self._decode = msgspec.json.Decoder(page).decode
        fields = {one.encode_name: one for one in msgspec.structs.fields(cast("Any", page))}
        self._items = next(name for name, one in fields.items() if one.required)
        self._item = fields[self._items].type.__args__[0]
        self._quiet = Quiet(logger)
        self._takes = {one.encode_name for one in msgspec.structs.fields(self._item)}

    def __call__(self, data: Any) -> P:
        """Return a page. msgspec.ValidationError: the page itself is broken."""
        try:
            return self._decode(data)
        except msgspec.ValidationError as exc:
            members = {
                name: text for name, text in _members(data).items() if bytes(text) != b"null"
            }
            try:
                found = _raws(members.get(self._items, b""))
            except msgspec.DecodeError:
                raise exc from None
        page = self._decode(_encode({**members, self._items: []}))
        items = getattr(page, _field_of(page, self._items))
        items += filter(None, map(self._mended, found))
        return page

    def _mended(self, text: msgspec.Raw) -> Any:
        """Return an item; None if it is to be left out."""
        given = _any(text)
        if not isinstance(given, dict):
            self._tell(f"left out an item that is no object: {bytes(text)[:_SHOWN]!r}")
            return None
        item = {
            name: {} if value == [] and name in _OBJECTS else value
            for name, value in given.items()
            if value is not None
        }
        name = item.get("name", item.get("uri", item.get("uriTemplate", "")))
        name = f"{name:.{_SHOWN}}" if isinstance(name, str) else ""
        bare = "inputSchema" in self._takes and "inputSchema" not in item
        if bare:
            item["inputSchema"] = {"type": "object"}
        try:
            mended = msgspec.convert(item, self._item)
        except msgspec.ValidationError as exc:
            self._tell(f"left out {name!r}, which is broken: {exc}")
            return None
        if bare:
            self._tell(f"the tool {name!r} has no inputSchema: it may take any arguments")
        return mended

    def _tell(self, text: str) -> None:
        self._quiet.log(logging.WARNING, "%s: %s", self._method, text)


def _field_of(page: Any, name: str) -> str:
    return next(one.name for one in msgspec.structs.fields(page) if one.encode_name == name)

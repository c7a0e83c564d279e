"""The mark of an argument that HTTP clients repeat in a header field (2026-07-28 server/tools,
"x-mcp-header")."""

import enum
import typing
from typing import Any, Literal

import msgspec

from wirespeed._exports import set_public_home

__all__ = ["HeaderParam", "note_of"]

_JSON_TYPES = {str: "string", int: "integer", bool: "boolean"}


class HeaderParam(msgspec.Struct, frozen=True):
    """Marks an argument of a tool that HTTP clients repeat in a header field, so that proxies and
    load balancers can route by its value::

        @server.tool
        async def query(sql: str, region: Annotated[str, HeaderParam("Region")]) -> str: ...

    A client of 2026-07-28 sends the argument in the body and in ``Mcp-Param-Region``. A request
    whose field is missing or has another value is refused with -32020. Other transports and older
    revisions have no such fields.

    The argument is a string, an integer or a boolean, and not None; a default makes it optional.
    Integers have at most 2**53 - 1. A field of an argument's class may have the mark, too, at any
    depth of classes. A mark in a list, a mapping, a union (``T | None``, too) or a class that
    refers to itself raises `SignatureError`. Header fields are visible to every proxy and in its
    logs: mark no secrets (2026-07-28 basic/transports/streamable-http, "Custom Headers from Tool
    Parameters").

    Attributes:
        name: What follows ``Mcp-Param-`` in the name of the field: letters, digits and
            ``!#$%&'*+-.^_`|~``. Each name occurs once in a tool, whatever its case.
    """

    name: str


def note_of(param: HeaderParam, tp: Any) -> msgspec.Meta:
    """What the schema of an argument says. The keyword needs a type, and the schemas of literals
    and enumerations have none."""
    said: dict[str, Any] = {"x-mcp-header": param.name}
    values: tuple[Any, ...] = ()
    if typing.get_origin(tp) is Literal:
        values = typing.get_args(tp)
    elif isinstance(tp, type) and issubclass(tp, enum.Enum):
        values = tuple(member.value for member in tp)
    kinds = {_JSON_TYPES.get(type(value)) for value in values}
    if len(kinds) == 1 and None not in kinds:
        said["type"] = kinds.pop()
    return msgspec.Meta(extra_json_schema=said)


set_public_home(globals())

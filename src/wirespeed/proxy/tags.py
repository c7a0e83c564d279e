"""What a server gave to a client, and the client brings back: it belongs to one server of a pool.

The ``requestState`` of a result that wants input, the cursor of a list and the id of a task are
opaque to clients. A tag before them, ``3~``, says which server they are of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.proxy.eras import params_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed._core.slab import Lease

_GIVEN = re.compile(rb'"(?:requestState|nextCursor|taskId)"')
_BROUGHT = re.compile(rb'"(?:requestState|cursor|taskId)"')
_GIVEN_NAMES = ("requestState", "nextCursor", "taskId")
_BROUGHT_NAMES = ("requestState", "cursor", "taskId")
_TAG = re.compile(r"([0-9]{1,4})~(.*)\Z", re.DOTALL)

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def tagged(text: Lease | bytes, tag: str) -> bytes | None:
    """Return a result, or the params of a notification, with tags; None: it needs none, or Python
    cannot hold it (a lone surrogate).

    ``tag``: That of the server, with its ``~``.
    """
    if _GIVEN.search(text) is None:
        return None
    members = _value(text, _object)
    if members is None:
        return None
    found = False
    for name in _GIVEN_NAMES:
        value = _value(members[name]) if name in members else None
        if isinstance(value, str):
            members[name] = msgspec.Raw(msgspec.json.encode(tag + value))
            found = True
    return msgspec.json.encode(members) if found else None


def addressed(message: Message, n_servers: int) -> tuple[int, bytes] | None:
    """Return which server a request belongs to, and its text for that server; None: to any. So does
    one that Python cannot hold: it passes as it came."""
    params = message.params
    if params is None or _BROUGHT.search(params) is None:
        return None
    members = _value(params, _object)
    if members is None:
        return None
    server: int | None = None
    for name in _BROUGHT_NAMES:
        if name not in members:
            continue
        found = _split(_value(members[name]))
        if found is not None and found[0] < n_servers:
            server, text = found
            members[name] = msgspec.Raw(msgspec.json.encode(text))
    return None if server is None else (server, whole(message.method, members))


def of_server(message: Message, server: int) -> bytes | None:
    """Return the text of a ``subscriptions/listen`` that names tasks for one server; None: it
    names none."""
    params = message.params
    if params is None or b'"taskIds"' not in bytes(params):
        return None
    members: dict[str, Any] = params_of(message)
    wanted = members.get("notifications")
    if not isinstance(wanted, dict) or not isinstance(wanted.get("taskIds"), list):
        return None
    found = [one for one in map(_split, wanted["taskIds"]) if one is not None]
    wanted["taskIds"] = [text for owner, text in found if owner == server]
    return whole(message.method, members)


def whole(method: str | None, params: object, *, id: int | None = 0) -> bytes:
    """A message as text. ``id``: None for a notification."""
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return msgspec.json.encode(message if id is None else {**message, "id": id})


def _value(text: Lease | bytes, decode: Callable[..., Any] = msgspec.json.decode) -> Any:
    """What a text says; None if Python cannot hold it: it has no tag of ours."""
    try:
        return decode(text)
    except msgspec.DecodeError:
        return None


def _split(value: object) -> tuple[int, str] | None:
    found = _TAG.match(value) if isinstance(value, str) else None
    return None if found is None else (int(found[1]), found[2])


# The last word on a subscription that the proxy ends. ``%b``: its id as the client knows it.
SUBSCRIPTION_OVER = b'{"resultType":"complete","_meta":{"%b":%%b}}' % META_SUBSCRIPTION_ID.encode()


def about_subscription(result: Lease, id: bytes) -> bytes:
    """Return the last word on a subscription, whose id stands in the result, too."""
    decoded = _value(result)
    if decoded is None:
        return SUBSCRIPTION_OVER % id
    meta = decoded.get("_meta") if isinstance(decoded, dict) else None
    if isinstance(meta, dict) and META_SUBSCRIPTION_ID in meta:
        meta[META_SUBSCRIPTION_ID] = msgspec.Raw(id)
    return msgspec.json.encode(decoded)


def replaced(
    result: Lease, tag: str | None, filter: Callable[[Lease | bytes], bytes] | None
) -> bytes | None:
    """Return a result with the tag of its server, and filtered; None: it is the same."""
    text = None if tag is None else tagged(result, tag)
    if filter is not None:
        return filter(result if text is None else text)
    return text


# What errors without a code that can be told are counted as.
OTHER_CODE = 2


def code_of(error: Lease) -> int:
    """Return the code of a server's error."""
    try:
        decoded = msgspec.json.decode(error)
    except msgspec.DecodeError:  # it is JSON, but more than Python can hold
        return OTHER_CODE
    code = decoded.get("code") if isinstance(decoded, dict) else None
    return code if is_code(code) and not 0 <= code <= OTHER_CODE else OTHER_CODE


def is_code(value: object) -> TypeGuard[int]:
    """Whether a value can be the code of an error here."""
    return type(value) is int and -(1 << 31) <= value < 1 << 31

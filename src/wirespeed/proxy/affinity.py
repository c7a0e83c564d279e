"""Affinity: what a server of a pool gave to a client goes back to that server.

The ``requestState`` of a result that wants input, the cursor of a list and the id of a task are
opaque to clients. A tag before them, ``3~``, says which server they are of. Where the proxy starts
the server and has several workers or hosts, the host and the worker stand before that, ``a.1~``:
other processes pass the request on to this one (`place_of`). The id of a task gets a seal as well,
which stands for the principal of the client: nobody gets another's task by guessing an id, and a
task needs no memory here. The key of the seals is made with the process, and forked workers have
it, too; where hosts share a store, all of them have one for servers elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import META_SUBSCRIPTION_ID
from wirespeed.proxy.own_requests import params_of
from wirespeed.tasks.views import not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from wirespeed._core.envelope import Message
    from wirespeed._core.slab import Lease
    from wirespeed.proxy.hosts.membership import Membership

_GIVEN = re.compile(rb'"(?:requestState|nextCursor|taskIds?)"')
_BROUGHT = re.compile(rb'"(?:requestState|cursor|taskId)"')
_GIVEN_NAMES = ("requestState", "nextCursor", "taskId")
_BROUGHT_NAMES = ("requestState", "cursor", "taskId")
_TAG = re.compile(r"([0-9]{1,9})~(.*)\Z", re.DOTALL)
_PLACE = re.compile(r"([A-Za-z0-9_-]{0,64}\.[0-9]{1,4})~(.*)\Z", re.DOTALL)

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Tags:
    """The marks on what one server gives.

    Args:
        tag: That of the server, with its ``~``; "" where it is the only one.
        seal: A function of the id of a task and the client that gets it; None: ids are not sealed.
        place: As of `Seals`.
    """

    def __init__(self, tag: str, seal: Callable[[str, Any], str] | None, place: str = "") -> None:
        self._tag = tag
        self._seal = seal
        self._place = place

    def marked(self, text: Lease | bytes, client: Any) -> bytes | None:
        """Return a result, or the params of a notification, with marks; None: it needs none, or
        Python cannot hold it (a lone surrogate)."""
        if _GIVEN.search(text) is None:
            return None
        members = _value(text, _object)
        if members is None:
            return None
        found = False
        for name in _GIVEN_NAMES:
            value = _value(members[name]) if name in members else None
            if isinstance(value, str):
                members[name] = msgspec.Raw(msgspec.json.encode(self._mark(name, value, client)))
                found = True
        # of the acknowledgement of a subscription
        heard = _value(members.get("notifications", b"null"))
        if isinstance(heard, dict) and isinstance(ids := heard.get("taskIds"), list):
            heard["taskIds"] = [self._mark("taskId", one, client) for one in ids]
            members["notifications"] = msgspec.Raw(msgspec.json.encode(heard))
            found = True
        return msgspec.json.encode(members) if found else None

    def _mark(self, name: str, value: Any, client: Any) -> Any:
        if not isinstance(value, str):
            return value
        if name == "taskId" and self._seal is not None:
            return self._seal(self._tag + value, client)
        return self._place + self._tag + value


def brings(text: bytes) -> bool:
    """Whether a request may have what a server gave to its client."""
    return _BROUGHT.search(text) is not None


def place_of(message: Message) -> str | None:
    """Return the process that has what a request names, as ids of its sessions begin:
    ``HOST.WORKER``; with one host, ``.WORKER``. None: the request names no process.

    A subscription names the process of its tasks, if it is for these alone.
    """
    members = _value(message.params or b"{}", _object) or {}
    brought = [_value(members[name]) for name in _BROUGHT_NAMES if name in members]
    if message.method == "subscriptions/listen":
        wanted = _value(members.get("notifications", b"{}"))
        if isinstance(wanted, dict) and isinstance(wanted.get("taskIds"), list):
            brought = wanted["taskIds"] if len(wanted) == 1 else []
    places = {_placed(one)[0] for one in brought}
    return places.pop() if len(places) == 1 else None


def _placed(value: object) -> tuple[str | None, Any]:
    """Return the process that a value names, or None, and the rest of the value."""
    found = _PLACE.match(value) if isinstance(value, str) else None
    return (None, value) if found is None else (found[1], found[2])


def addressed(
    message: Message,
    tags: Container[int] | None,
    opened: Callable[[str], str],
    *,
    placed: bool = False,
) -> tuple[int, bytes] | None:
    """Return the tag of the server that a request belongs to, and its text for that server; None:
    to any, as it came. So does one that Python cannot hold.

    ``tags``: Those of all servers; None: there is one server, and what it gives has no tags.
    ``opened``: Opens the seal of the id of a task. ``placed``: Whether what a server gives names
    its process. What another process gave, which is gone, goes to the server of the same tag here.
    ProtocolError: the client has no such task.
    """
    params = message.params
    of_task = (message.method or "").startswith("tasks/")
    has_marks = tags is not None or placed
    if not of_task and (not has_marks or params is None or _BROUGHT.search(params) is None):
        return None
    members = _value(params or b"{}", _object)
    if members is None and of_task:
        raise not_found()
    if members is None:
        return None
    server: int | None = None
    for name in _BROUGHT_NAMES:
        if name not in members:
            continue
        value = _value(members[name])
        place = None
        if of_task and name == "taskId":
            value = place = opened(value if isinstance(value, str) else "")
        elif placed:
            place, value = _placed(value)
        found = _split(value) if tags is not None else (0, value)
        if found is not None and (place is not None if tags is None else found[0] in tags):
            server, text = found
            members[name] = msgspec.Raw(msgspec.json.encode(text))
    return None if server is None else (server, whole(message.method, members))


def of_server(message: Message, tag: int | None, opened: Callable[[str], str]) -> bytes | None:
    """Return the text of a ``subscriptions/listen`` that names tasks, for one server; None: it
    names none. Tasks that the client does not have are left out. ``tag``: That of the server; None:
    it is the only one."""
    members: dict[str, Any] = params_of(message)
    wanted = members.get("notifications")
    if not isinstance(wanted, dict) or not isinstance(wanted.get("taskIds"), list):
        return None
    kept = []
    for id in wanted["taskIds"]:
        with contextlib.suppress(ProtocolError):
            task_id = opened(id if isinstance(id, str) else "")
            found = (None, task_id) if tag is None else _split(task_id)
            if found is not None and found[0] == tag:
                kept.append(found[1])
    wanted["taskIds"] = kept
    return whole(message.method, members)


def whole(method: str | None, params: object, *, id: int | None = 0) -> bytes:
    """A message as text. ``id``: None for a notification."""
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return msgspec.json.encode(message if id is None else {**message, "id": id})


def _value(text: Lease | bytes, decode: Callable[..., Any] = msgspec.json.decode) -> Any:
    """Return what a text says; None if Python cannot hold it: it has no tag of ours."""
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
    result: Lease, tags: Tags | None, client: Any, filter: Callable[[Lease | bytes], bytes] | None
) -> bytes | None:
    """Return a result with the marks of its server, and filtered; None: it is the same."""
    text = None if tags is None else tags.marked(result, client)
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


_SEAL = 22  # characters: 128 bits


class Seals:
    """The seals of one server.

    A server that the proxy starts has processes of its own in each worker and on each host, and
    may give the same id in each of them. So its seals stand for the worker, too.

    Args:
        server: Its name.
        member: The process that seals.
        is_process: Whether the proxy starts the server.

    Attributes:
        member: As above.
    """

    def __init__(self, server: str, member: Membership, *, is_process: bool) -> None:
        self._server = server.encode("utf-8", "surrogatepass")
        self.member = member
        self._is_process = is_process

    @property
    def place(self) -> str:
        """The mark of this process before what the server gives; "" where any process will do."""
        return self.member.shown if self._is_process else ""

    def seal(self, task_id: str, principal: bytes | None) -> str:
        """Return what a client gets for a server's id. ``principal``: The digest of the client's;
        None: it has none."""
        owner = b"" if principal is None else b"\x01" + principal
        key, place = self.member.own_key, self.member.place.encode()
        if not self._is_process:
            key, place = self.member.shared_key, b""
        parts = self._server, owner, place
        text = b"".join(len(one).to_bytes(4) + one for one in parts)
        digest = hmac.digest(key, text + task_id.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return self.place + base64.urlsafe_b64encode(digest).decode()[:_SEAL] + task_id

    def open(self, id: str, principal: bytes | None) -> str:
        """Return the server's id of a client's task. ProtocolError -32602: the client has no such
        task (2025-11-25 basic/utilities/tasks, "Task Isolation and Access Control")."""
        own = self.place
        where, _ = _placed(id) if own else (None, id)
        if where is not None and not id.startswith(own):
            host, _, worker = where.rpartition(".")
            text = f"worker {worker}" + (f" of the host {host}" if host else "")
            raise ProtocolError(codes.INVALID_PARAMS, f"the task is known to {text} alone")
        task_id = id[len(own) + _SEAL :]
        given = id.encode("utf-8", "surrogatepass")
        sealed = self.seal(task_id, principal).encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(sealed, given):
            raise not_found()
        return task_id

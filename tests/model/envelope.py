"""What one JSON text is as a JSON-RPC message, rule by rule."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

from model.json_text import BLANK, Fault, Reader, Value

MEMBERS = ("jsonrpc", "id", "method", "params", "result", "error")
IN_PARAMS = ("name", "uri", "arguments", "requestId", "progressToken", "_meta")
IN_META = (
    "progressToken",
    *(
        f"io.modelcontextprotocol/{name}"
        for name in (
            "protocolVersion",
            "clientCapabilities",
            "clientInfo",
            "logLevel",
            "subscriptionId",
        )
    ),
)

Kind = Literal["request", "notification", "result", "error", "batch", "invalid"]
Wrong = Literal["parse", "request", "response", "notification"]


@dataclass
class Envelope:
    kind: Kind
    fault: Wrong | None = None
    text: bytes = b""
    id: bytes | None = None  # its JSON text, when it may be echoed
    points: dict[str, bytes] = field(default_factory=dict)
    reason: str = ""
    lacks_only_id: bool = False  # it would be a result if its id were a string or an integer
    begins: str = ""  # of a text that is too deep: the member whose value does not end

    def string(self, point: str) -> str | None:
        """The string at a point of interest, decoded."""
        text = self.points.get(point, b"")
        return json.loads(text) if text.startswith(b'"') else None


def points_of(root: Value) -> tuple[dict[str, bytes], set[str]]:
    """The points of interest, and the names that stand somewhere twice."""
    points: dict[str, bytes] = {}
    twice: set[str] = set()

    def note(owner: Value | None, prefix: str, names: tuple[str, ...]) -> None:
        if owner is None or owner.kind != "object":
            return
        for name in names:
            value = owner.first(name)
            if value is not None:
                points[prefix + name] = value.text
            if owner.count(name) > 1:
                twice.add(prefix + name)

    note(root, "", MEMBERS)
    params = root.first("params")
    note(params, "params.", IN_PARAMS)
    note(params.first("_meta") if params else None, "params._meta.", IN_META)
    return points, twice


def read(text: bytes, max_depth: int) -> Envelope:
    """A whole text as one message; an array is a "batch"."""
    try:
        return classify(Reader(text, max_depth).whole())
    except Fault as fault:
        if fault.what == "depth":
            return begun(text, max_depth)
        return Envelope("invalid", "parse", text)


def begun(text: bytes, max_depth: int) -> Envelope:
    """What a text is that is too deep, or not all there: by the members before its fault."""
    message = Envelope("invalid", "request", text)
    reader = Reader(text, max_depth)
    try:
        reader.whole()
    except Fault as fault:
        if fault.what != "depth":
            return message
    known = [(name, value) for name, value in reader.begun if name in MEMBERS]
    values = dict(known)
    if len(values) != len(known):
        return message
    message.begins = next((name for name, value in known if value is None), "")
    message.points = {name: value.text for name, value in known if value is not None}
    id_value = values.get("id")
    if id_value is not None and id_value.kind in ("string", "integer"):
        message.id = id_value.text
    is_call = "method" in message.points or "params" in values
    if not is_call and values.keys() & {"result", "error"}:
        message.fault = "response"
    return message


def classify(root: Value) -> Envelope:
    if root.kind == "array":
        return Envelope("batch", text=root.text)
    if root.kind != "object":
        return Envelope("invalid", "request", root.text)
    points, twice = points_of(root)
    id_value = root.first("id")
    good_id = id_value is not None and id_value.kind in ("string", "integer")
    message = Envelope("invalid", text=root.text, points=points)
    if good_id and "id" not in twice:
        message.id = points["id"]
    found = dict(points)
    message.kind, message.fault = verdict(root, twice, good_id, points)
    if message.fault == "response" and not good_id:
        message.lacks_only_id = verdict(root, twice, True, found) == ("result", None)
    return message


def says_nothing(value: Value | None, *, arrays: bool = False) -> bool:
    """Whether a value can mean only that there is none."""
    return value is not None and (
        value.text == b"null"
        or (arrays and value.kind == "array" and not value.text[1:-1].strip(BLANK))
    )


def verdict(
    root: Value, twice: set[str], good_id: bool, points: dict[str, bytes]
) -> tuple[Kind, Wrong | None]:
    """Takes the points that count as absent out of `points`."""
    call, result, error = (root.first(name) for name in ("method", "result", "error"))
    has_id = root.first("id") is not None
    version = root.first("jsonrpc")
    version_good = (
        version is not None and version.kind == "string" and json.loads(version.text) == "2.0"
    )
    if twice.intersection(MEMBERS):
        if call is None and (result or error):
            return "invalid", "response"
        return "invalid", "request" if has_id or call is None else "notification"
    if says_nothing(error) and (call or result):
        error = None
        del points["error"]
    if says_nothing(result) and (call or error):
        result = None
        del points["result"]
    if says_nothing(call) and (result or error):
        call = None
        del points["method"]
    if call is None and result is None and error is None:
        return "invalid", "request"
    if call is not None and (result or error):
        return "invalid", "request"
    if call is None:
        if not version_good or (result and error):
            return "invalid", "response"
        if error:
            return ("error", None) if error.kind == "object" else ("invalid", "response")
        return ("result", None) if good_id else ("invalid", "response")
    if has_id and not good_id:
        return "invalid", "request"
    owed: Wrong = "request" if has_id else "notification"
    if not version_good:
        return "invalid", owed
    if call.kind != "string":
        return "invalid", "request"
    params = root.first("params")
    if says_nothing(params, arrays=True):
        del points["params"]
    elif params is not None and params.kind != "object":
        return "invalid", owed
    elif params is not None and says_nothing(params.first("arguments"), arrays=True):
        del points["params.arguments"]
    if twice:
        return "invalid", owed
    return ("request" if has_id else "notification"), None


def split(text: bytes, max_length: int, max_depth: int) -> list[Envelope] | Envelope:
    """The messages of a batch; or, when it is none, what the whole of it is."""
    try:
        Reader(text, max_depth).whole()
    except Fault as fault:
        return Envelope("invalid", "request" if fault.what == "depth" else "parse", text)
    elements: list[Envelope] = []
    reader = Reader(text, max_depth)
    reader.open(1)
    while reader.peek() != b"]":
        element = classify(reader.value(1))
        if element.kind == "batch":
            element = Envelope("invalid", "request", element.text)
        elements.append(element)
        reader.blanks()
        if reader.peek() == b",":
            reader.at += 1
            reader.blanks()
    assert not reader.text[reader.at + 1 :].strip(BLANK)
    if 1 <= len(elements) <= max_length:
        return elements
    return Envelope("invalid", "request", text)

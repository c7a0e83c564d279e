"""Listens to the sessions of the package while a test runs, and judges what they sent.

Every connection that the package makes is heard, both ways: what comes in is needed to know the
revision and what is answered, and is not judged. A test that has the package send what no revision
knows (a tool that writes its own results, say) is marked `off_schema`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import wire_check
import wire_shapes
import wire_streams
from wire_check import Side
from wire_transcripts import Transcript

from wirespeed._core.session import Session
from wirespeed._core.wire import Wire, set_tap

# Of each method, kind and revision so many messages a connection; the first ones tell most.
SAMPLE = 25
# Connections that carry more than that are heard no further, and longer texts are not looked at.
# What makes the sessions of clients; sessions of others are servers'.
CLIENTS = ("wirespeed.client", "wirespeed.proxy.upstream")
MAX_BYTES = 4 << 20
MODERN = "2026-07-28"
VERSION_KEY = wire_shapes.META + "protocolVersion"
SUBSCRIPTION_KEY = wire_shapes.META + "subscriptionId"


@dataclass
class Asked:
    """A request that waits for its answer."""

    method: str
    version: str | None


@dataclass
class Conversation:
    """One connection, from the side of the package."""

    side: Side
    problems: list[str] = field(default_factory=list)
    judged: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    version: str | None = None  # what was negotiated (legacy)
    modern: bool = False  # a modern request was heard
    answered: bool = False  # the other side has said something
    lost: bool = False  # something could not be read: what follows cannot be judged
    ours: dict[str, Asked] = field(default_factory=dict)
    theirs: dict[str, list[Asked]] = field(default_factory=dict)  # an id may come twice

    def hear(self, sent: bool, text: bytes) -> None:
        """Take in one message."""
        if self.lost:
            return
        try:
            message = json.loads(text, parse_constant=_refuse)
        except RecursionError:
            self.lost = True  # deeper than Python's reader goes: what is asked is not known
            return
        except ValueError as exc:
            if sent:
                self.problems.append(f"no JSON ({exc}): {text[:200]!r}")
            return
        for one in message if isinstance(message, list) else [message]:
            if not isinstance(one, dict):
                if sent:
                    self.problems.append(f"no object: {text[:200]!r}")
                continue
            problems = self._said(one) if sent else self._heard(one)
            self.problems += [f"{problem}\n    in {text[:600]!r}" for problem in problems]

    # -- what the other side says ----------------------------------------------------------------

    def _heard(self, message: dict[str, Any]) -> list[str]:
        self.answered = True
        method, params = message.get("method"), message.get("params")
        if isinstance(method, str):
            if "id" in message:
                version = self._version_of(method, params)
                self.theirs.setdefault(_key(message), []).append(Asked(method, version))
        elif self.side == "client":
            asked = self.ours.pop(_key(message), None)
            if asked is not None and asked.method == "initialize":
                self._negotiated(message.get("result"))
        else:
            self.ours.pop(_key(message), None)
        return []

    def _version_of(self, method: str, params: Any) -> str | None:
        """The revision that a request is in, if it is one."""
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        if method == "ping" and self.side == "client" and not self.answered:
            return None  # it asks whether a server is there that speaks either era
        # `initialize` may have the envelope of the other era beside `server/discover`
        if isinstance(meta, dict) and VERSION_KEY in meta and method != "initialize":
            self.modern = True
            named = meta[VERSION_KEY]
            return named if isinstance(named, str) and named in wire_shapes.CODES else MODERN
        if method == "initialize":
            named = params.get("protocolVersion")
            return named if isinstance(named, str) and named in wire_shapes.CODES else None
        return self.version

    def _negotiated(self, result: Any) -> None:
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        self.version = version if version in wire_shapes.CODES else None

    # -- what the package says -------------------------------------------------------------------

    def _said(self, message: dict[str, Any]) -> list[str]:
        problems = [
            f"a message has no {name!r}"
            for name in message.keys() - {"jsonrpc", "id", "method", "params", "result", "error"}
        ]
        if message.get("jsonrpc") != "2.0":
            problems.append("jsonrpc is not 2.0")
        method = message.get("method")
        if isinstance(method, str):
            return problems + self._asking(method, message)
        if ("result" in message) == ("error" in message):
            return [*problems, "either result or error"]
        return problems + self._answering(message)

    def _asking(self, method: str, message: dict[str, Any]) -> list[str]:
        params = message.get("params")
        if "params" in message and not isinstance(params, dict):
            return ["params are no object"]
        if "id" in message:
            if type(message["id"]) not in (int, str):
                return ["the id is neither integer nor string"]
            version = self._version_of(method, params)
            self.ours[_key(message)] = Asked(method, version)
            if version is None or not self._sample("request", method, version):
                return []
            return wire_check.request(self.side, method, params, version)
        version = self._version_of_notification(params)
        if version is None or not self._sample("notification", method, version):
            return []
        return wire_check.notification(self.side, method, params, version)

    def _version_of_notification(self, params: Any) -> str | None:
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict) and SUBSCRIPTION_KEY in meta:
            return MODERN
        if self.version is not None:
            return self.version
        return MODERN if self.modern else None

    def _answering(self, message: dict[str, Any]) -> list[str]:
        waiting = self.theirs.get(_key(message), [])
        # what is refused for its id came last
        asked = waiting.pop(-1 if "error" in message else 0) if waiting else None
        if "error" in message:
            version = asked.version if asked is not None else None
            problems = [] if asked is not None else self._nameless(message)
            return problems + wire_check.error(message["error"], version or self._era())
        if asked is None:
            return ["a result that nobody asked for"]
        result = message["result"]
        if asked.method == "initialize":
            self._negotiated(result)
            asked.version = self.version
        if asked.version is None or not self._sample("result", asked.method, asked.version):
            return []
        return wire_check.result(self.side, asked.method, result, asked.version)

    def _era(self) -> str:
        return self.version or (MODERN if self.modern else "2025-11-25")

    def _nameless(self, message: dict[str, Any]) -> list[str]:
        """An error whose request could not be read: null up to 2025-06-18, and no id since."""
        if message.get("id") is not None:
            return []  # the id was readable although the request was not
        late = self.modern or self.version in ("2025-11-25", MODERN)
        if "id" in message and late:
            return ["an error with the id null"]
        return []

    def _sample(self, kind: str, method: str, version: str) -> bool:
        key = kind, method, version
        self.judged[key] += 1
        return self.judged[key] <= SAMPLE


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _key(message: dict[str, Any]) -> str:
    return json.dumps(message.get("id"))


@dataclass
class _Heard:
    """The wire of one connection."""

    conversation: Conversation
    streams: dict[bool, wire_streams.Lines | wire_streams.Frames]
    size: int = 0


class Recorder:
    """Hears every connection that is made while it is on.

    Args:
        transcript: Gets what is sent.
        judges: Whether messages are judged. Else nothing of a connection is kept here.
    """

    def __init__(self, transcript: Transcript | None = None, *, judges: bool = True) -> None:
        self._transcript = transcript
        self._judges = judges
        self.conversations: list[Conversation] = []
        self._wires: dict[int, _Heard] = {}
        self._faults: list[str] = []

    def start(self) -> None:
        """Listen to connections that are made from now on."""
        set_tap(self._tapped)

    def stop(self) -> None:
        """Listen no more."""
        set_tap(None)
        self._wires.clear()

    @property
    def problems(self) -> list[str]:
        """What the package sent and should not have."""
        found = [p for conversation in self.conversations for p in conversation.problems]
        return self._faults + list(dict.fromkeys(found))

    def judged(self, version: str | None = None) -> set[tuple[str, str, str]]:
        """What was looked at, in one revision or in all: who said it ("client" or "server"), what
        kind of message it was ("request", "result" or "notification"), and its method."""
        return {
            (conversation.side, kind, method)
            for conversation in self.conversations
            for kind, method, of in conversation.judged
            if version in (None, of)
        }

    def _tapped(self, wire: Wire, what: str, data: bytes) -> None:
        try:
            if self._transcript is not None:
                self._transcript.hear(wire, what, data)
            if what == "made":
                self._made(wire)
            elif (heard := self._wires.get(id(wire))) is not None:
                heard.size += len(data)
                if heard.size > MAX_BYTES:
                    del self._wires[id(wire)]
                    return
                sent = what == "sent"
                for text in heard.streams[sent].feed(data):
                    heard.conversation.hear(sent, text)
        except Exception as exc:  # a fault of ours must not look like one of the connection
            self._faults.append(f"the recorder failed: {exc!r}")
            self._wires.pop(id(wire), None)

    def _made(self, wire: Wire) -> None:
        self._wires.pop(id(wire), None)  # the same place in memory, another wire
        if not self._judges or not isinstance(wire, Session):
            return
        # Compiled code has no frames: the one above the tap is the Python code that connects.
        maker: Any = sys._getframe(2).f_globals.get("__name__", "")
        streams = wire_streams.for_framing(type(wire.framer).__name__)
        if streams is None or not maker.startswith("wirespeed."):
            return
        side: Side = "client" if maker.startswith(CLIENTS) else "server"
        conversation = Conversation(side)
        self.conversations.append(conversation)
        self._wires[id(wire)] = _Heard(conversation, {True: streams(), False: streams()})

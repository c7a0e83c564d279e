"""A client of bytes that speaks any revision: requests by method, answers as they are."""

from __future__ import annotations

from typing import Any

from lab.raw import META, modern, request
from lab.server import LEGACY, MODERN, Peer

ALL = (*LEGACY, MODERN)


def since(version: str) -> list[str]:
    """The revisions from one on."""
    return list(ALL[ALL.index(version) :])


def before(version: str) -> list[str]:
    """The revisions before one."""
    return list(ALL[: ALL.index(version)])


class Caller:
    """A connection that asks in the form of its revision."""

    def __init__(self, peer: Peer, version: str) -> None:
        self.peer = peer
        self.version = version
        self.n = 0
        self.notes: list[Any] = []  # what came before answers

    def message(self, method: str, params: Any) -> Any:
        self.n += 1
        make = modern if self.version == MODERN else request
        return make(self.n, method, params)

    def answer(self, method: str, **params: Any) -> Any:
        message = self.message(method, params)
        self.peer.send(message)
        *notes, answer = self.peer.until(message["id"])
        self.notes += notes
        return answer

    def result(self, method: str, **params: Any) -> Any:
        """The result, without what every modern result has, which must be there."""
        answer = self.answer(method, **params)
        assert "result" in answer, answer
        result = answer["result"]
        if self.version != MODERN:
            assert not result.keys() & {"resultType", "ttlMs", "cacheScope"}
            return result
        assert result.pop("resultType") == "complete"
        meta = result["_meta"]
        assert meta.pop(META + "serverInfo")["name"]
        if not meta:
            del result["_meta"]
        return result

    def plain(self, method: str, **params: Any) -> Any:
        """The same without caching hints, which must be there where the revision has them."""
        result = self.result(method, **params)
        if self.version == MODERN:
            assert result.pop("ttlMs") >= 0
            assert result.pop("cacheScope") in ("public", "private")
        return result

    def error(self, method: str, **params: Any) -> Any:
        answer = self.answer(method, **params)
        assert "error" in answer, answer
        return answer["error"]

    def capabilities(self) -> Any:
        """What the server says to a client that comes now."""
        if self.version == MODERN:
            return self.result("server/discover")["capabilities"]
        return self.peer.handshake(self.version)["capabilities"]


def code_of_missing(version: str) -> int:
    """The code for a resource that there is not."""
    return -32602 if version == MODERN else -32002

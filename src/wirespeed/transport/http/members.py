"""Proofs by which two processes show each other that they are members of one deployment, before one
of them passes requests on to the other (`passing`).

The process that asks opens a connection by an upgrade of HTTP. Each of the two sends a nonce, and
then a proof: an HMAC of both nonces, of its role and of the name of the process that answers. So a
proof that was read on another connection is of no use, and a process with the wrong name is
refused. What follows is not signed: who can write into a connection of others
needs no proof, which is what ``https://`` is for.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed.transport.gate import NOBODY, Admission, Gate, Refused
from wirespeed.transport.http.exchange import Exchange, HttpTarget
from wirespeed.transport.http.passed import AnsweringEnd
from wirespeed.transport.http.upgrade import Opening
from wirespeed.transport.options import HttpRequest, Refusal
from wirespeed.transport.rate_limited_log import RateLimitedLog
from wirespeed.transport.service import Peer

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.transport.http.site import HttpSite
    from wirespeed.transport.link import Link
    from wirespeed.transport.taskpool import TaskPool

HOSTS_PATH = "/.wirespeed/hosts"  # where a process takes requests of others
PROTOCOL = "wirespeed-1"  # another one where the frames differ
FIELD = "Wirespeed-Member"
NONCE = 24  # random bytes

logger = logging.getLogger("wirespeed.server")
_quiet = RateLimitedLog(logger)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


class MemberProofs:
    """Makes and checks the proofs that processes are members of one deployment.

    Args:
        key: The secret of the deployment: the same bytes in all processes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def _proof(self, part: str, name: str, asked: str, answered: str) -> bytes:
        text = "\0".join(("wirespeed member 1", part, name, asked, answered))
        return hmac.digest(self._key, text.encode(), "sha256")

    def request(self, authority: str) -> tuple[bytes, str]:
        """Return the request of the process that asks, and the nonce in it."""
        nonce = _text(secrets.token_bytes(NONCE))
        head = (
            f"GET {HOSTS_PATH} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\n"
            f"Upgrade: {PROTOCOL}\r\n{FIELD}: {nonce}\r\n\r\n"
        )
        return head.encode(), nonce

    def answer(self, name: str, asked: str) -> tuple[bytes, Callable[[bytes], bool]]:
        """Return the answer of the process with a name, and the check of the proof that follows.
        ``asked``: The nonce of the request."""
        answered = _text(secrets.token_bytes(NONCE))
        proof = _text(self._proof("answers", name, asked, answered))
        awaited = self._proof("asks", name, asked, answered)
        head = (
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\n"
            f"{FIELD}: {name} {answered} {proof}\r\n\r\n"
        )
        return head.encode(), lambda given: hmac.compare_digest(given, awaited)

    def proof_of(self, name: str, asked: str, head: bytes) -> bytes:
        """Return the proof of the process that asked, after the head of an answer. ValueError: the
        process that answers is not the member with that name."""
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        said, _, rest = fields.get(FIELD, "").partition(" ")
        answered, _, proof = rest.partition(" ")
        if first.split(" ")[1:2] != ["101"]:
            raise ValueError(f"it takes no requests of other hosts ({first[:100]})")
        right = _text(self._proof("answers", said, asked, answered))
        if not hmac.compare_digest(proof.encode("latin-1"), right.encode()):
            raise ValueError("it is not a member of this deployment")
        if said != name:
            raise ValueError(f"it has the name {said}")
        return self._proof("asks", name, asked, answered)


class MembersTarget(HttpTarget):
    """Takes the connections of other processes that pass requests on to this one.

    Args:
        members: Makes and checks the proofs.
        name: Returns the name of this process.
        state: Returns the answer to a question of another process about the state of this one, or
            the number of the worker that knows it.
        site: The site that answers; None: that of the listener where the others connect.
    """

    methods = ("GET",)

    def __init__(
        self,
        members: MemberProofs,
        name: Callable[[], str],
        state: Callable[[bytes], bytes | int],
        site: HttpSite | None = None,
    ) -> None:
        self.opens = True
        self._members = members
        self._name = name
        self._state = state
        self._site = site

    def admit(self, gate: Gate, request: HttpRequest) -> Admission:
        """Let everyone prove that it is a member."""
        return NOBODY

    def take(self, exchange: Exchange, body: bytes) -> None:
        """Answer the opening of a connection. Refused: it is not one."""
        connection: Any = exchange.carrier
        asked = exchange.headers.get(FIELD, "")
        if exchange.headers.get("upgrade") != PROTOCOL or not asked:
            raise Refused(Refusal(426, "this path is for other hosts", {"Upgrade": PROTOCOL}))
        if connection.draining:
            raise Refused(Refusal(503, "the server is shutting down"))
        answer, is_proof = self._members.answer(self._name(), asked)
        peer = Peer(exchange.address)
        site = self._site or connection.site
        newcomer = _Newcomer(site, peer, is_proof, self._state)
        connection.upgrade(answer, Opening(self, newcomer, peer, NOBODY))


class _Newcomer:
    """A process that has not proved yet that it is a member."""

    def __init__(
        self,
        site: HttpSite,
        peer: Peer,
        is_proof: Callable[[bytes], bool],
        state: Callable[[bytes], bytes | int],
    ) -> None:
        self._site = site
        self._peer = peer
        self._proves = is_proof
        self._state = state

    def _is_proof(self, given: bytes) -> bool:
        if not self._proves(given):
            _quiet.log(logging.WARNING, "refused %s: it is not a member", self._peer.address)
            return False
        return True

    def connect(
        self,
        make_link: Callable[[Any], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> AnsweringEnd:
        end = AnsweringEnd(self._site, self._is_proof, self._state)
        make_link(end)
        return end

"""The skills of a server that clients see where skills must be approved (``skills="approved"``).

Each answer is judged by its own content and by the approvals at that moment, so that nothing can
change between two requests: an entry is shown if its files, their digests and its front matter are
those of an approval, and a file is passed on if its bytes are. Everything else of a skill is
answered as if it did not exist.

A file is one of a skill if its URI has the scheme ``skill``, or lies in the folder of a skill that
was once approved or shown by the server, whatever became of it (a scheme makes no skill: "URIs" of
the specification).
"""

from __future__ import annotations

import logging
import os
import re
import time
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, shortened
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import LATEST_LEGACY, LATEST_MODERN, REVISIONS
from wirespeed.proxy.own_requests import modern_version
from wirespeed.skills.approvals import ApprovalFile, SkillApproval
from wirespeed.skills.model import (
    DYNAMIC,
    GET,
    LIST,
    MAX_SEGMENTS,
    READ_DIRECTORY,
    Key,
    digest_of,
    entry_of,
    is_below,
    key_of,
)

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.downstream import Downstream

READ, LIST_RESOURCES = "resources/read", "resources/list"
ASKS = Raw(b'"input_required"')
RETRY = 1.0  # seconds after which a file with a fault is read again
MAX_HELD = 1000  # skills of one server that wait and are shown to operators
MAX_FOLDERS = (
    10_000  # of skills of one server; with more, each of its resources counts as a file of one
)

logger = logging.getLogger("wirespeed.proxy")

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_dict = msgspec.json.Decoder(dict[str, Any]).decode
_dicts = msgspec.json.Decoder(list[dict[str, Any]]).decode

Change = Callable[[dict[str, Raw]], None]

# Of the WHATWG URL standard: what parsers strip and remove, and schemes that always have a host.
_STRIPPED = "".join(map(chr, range(0x21)))
_REMOVED = dict.fromkeys(map(ord, "\t\n\r"))
_WITH_HOST = frozenset({"http", "https", "ws", "wss", "ftp"})


class HeldSkill(msgspec.Struct):
    """A skill that waits for its approval.

    Attributes:
        uri: The URI of its ``SKILL.md``.
        why: ``"new"``, ``"changed"`` since it was approved, or ``"dynamic"``: it cannot be.
        files: The number of its files.
        at: When the server has last shown it, in Unix seconds.
    """

    uri: str
    why: str
    files: int
    at: float


class ApprovedFiles(NamedTuple):
    """The approvals of one server.

    Attributes:
        skills: By the URI of the ``SKILL.md``.
        digests: Those of each file, by its key. Skills in skills share files.
        folders: Those that lead to a file.
        roots: The places of the folders of the skills, also of those that were approved before.
    """

    skills: dict[str, SkillApproval]
    digests: dict[Key, set[str]]
    folders: set[Key]
    roots: set[Key]

    @classmethod
    def of(cls, approvals: list[SkillApproval]) -> ApprovedFiles:
        """The approvals as they are looked up. ValueError: a URI is not that of a file."""
        found = cls({}, {}, set(), set())
        for one in approvals:
            found.skills[one.uri] = one
            found.roots.add(_place(one.uri)[:-1])
            for uri, digest in one.files:
                key = key_of(uri)
                found.digests.setdefault(key, set()).add(digest)
                found.folders.update(key[:n] for n in range(2, len(key)))
        return found


NONE = ApprovedFiles({}, {}, set(), set())


class SkillApprovals:
    """The approvals of all servers of a proxy, read again when their file has changed. Without the
    file, or with one that is not valid, nothing is approved.

    Args:
        path: The file.
        clock: Seconds.

    Attributes:
        path: The file.
        fault: The fault of the file; None: it is valid.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.fault: str | None = None
        self._clock = clock
        self._again_at = 0.0
        self._file = ApprovalFile(path)
        self._seen: object = ()
        self._servers: dict[str, ApprovedFiles] = {}

    def of(self, server: str) -> ApprovedFiles:
        """The approvals of a server at this moment."""
        try:
            state = os.stat(self.path)
            seen: object = state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
        except FileNotFoundError:
            seen = None
        except OSError as exc:
            seen = exc.errno
        if seen != self._seen or self._is_due():
            self._seen = seen
            self._read()
        return self._servers.get(server, NONE)

    def _is_due(self) -> bool:
        """Whether a file that looks the same is read again: its fault may have been one of the
        system that has passed, as too many open files."""
        return self.fault is not None and self._clock() >= self._again_at

    def _read(self) -> None:
        by_server: dict[str, list[SkillApproval]] = {}
        servers: dict[str, ApprovedFiles] = {}
        fault, self.fault = self.fault, None
        try:
            for (name, _), approval in self._file.load().items():
                by_server.setdefault(name, []).append(approval)
            servers = {name: ApprovedFiles.of(found) for name, found in by_server.items()}
        except ValueError as exc:
            self.fault = str(exc)
            self._again_at = self._clock() + RETRY
            if self.fault != fault:
                logger.error("no skill is approved: %s", exc)
        for name, before in self._servers.items():
            now = servers.setdefault(name, ApprovedFiles({}, {}, set(), set()))
            now.roots.update(before.roots)
        self._servers = servers


class SkillGate:
    """The gate of one server's skills: it decides which of them clients see.

    Args:
        server: The name of the server.
        approvals: Those of all servers.

    Attributes:
        held: The skills that wait, by the keys of their folders.
    """

    def __init__(self, server: str, approvals: SkillApprovals) -> None:
        self.server = server
        self.approvals = approvals
        self.held: dict[Key, HeldSkill] = {}
        self._roots: set[Key] = set()  # the places of the folders of all skills that it has shown
        self._holds_all = False

    @property
    def n_approved(self) -> int:
        """The number of skills that are approved."""
        return len(self.approvals.of(self.server).skills)

    # -- requests ----------------------------------------------------------------------------------

    def admits(self, asker: Downstream, message: Message) -> bool:
        """Whether a request may be passed on. If not, it was refused."""
        method = message.method
        if method not in (READ, READ_DIRECTORY):
            return True
        uri = message.text("params.uri")
        if uri is None:
            asker.refuse(message, codes.INVALID_PARAMS, "params.uri is not a string")
            return False
        approved, key = self.approvals.of(self.server), _key(uri)
        if method == READ:
            if key in approved.digests or not self._is_of_a_skill(uri, approved):
                return True
            modern = modern_version(message) is not None
            revision = REVISIONS[LATEST_MODERN if modern else LATEST_LEGACY]
            asker.refuse(message, revision.resource_not_found, "Resource not found", {"uri": uri})
        else:
            if key in approved.folders:
                return True
            text = f"{shortened(uri)} is not a directory resource"
            asker.refuse(message, codes.INVALID_PARAMS, text)
        return False

    def _is_of_a_skill(self, uri: str, approved: ApprovedFiles) -> bool:
        place = _place(uri)
        if self._holds_all or place[0] == "skill":
            return True
        folders = (place[:n] for n in range(1, min(len(place), MAX_SEGMENTS) + 1))
        return any(one in approved.roots or one in self._roots for one in folders)

    def _remember(self, uri: object) -> None:
        """Take note of a skill that the server shows, also of one that no client would take."""
        if not isinstance(uri, str) or self._holds_all:
            return
        root = _place(uri)[:-1]
        if root[:1] == ("skill",) or root in self._roots:
            return
        if len(root) > MAX_SEGMENTS or len(self._roots) >= MAX_FOLDERS:
            self._holds_all = True
            logger.warning(
                "%s shows more or deeper skills than the proxy remembers: all of its resources "
                "count as files of skills",
                self.server,
            )
        else:
            self._roots.add(root)

    # -- answers -----------------------------------------------------------------------------------

    def filter(
        self, before: Callable[[Any], bytes] | None, message: Message
    ) -> Callable[[Any], bytes] | None:
        """The function that replaces the text of a request's result, after ``before``."""
        change: Change
        if message.method == READ:
            change = partial(self._read, message.text("params.uri"))
        elif message.method == READ_DIRECTORY:
            change = partial(self._children, message.text("params.uri"))
        elif message.method == LIST:
            change = self._list
        elif message.method == GET:
            change = partial(self._get, message.text("params.uri"))
        elif message.method == LIST_RESOURCES:
            change = self._resources
        else:
            return before
        return partial(self._changed, before, change, message.method)

    def _changed(
        self, before: Callable[[Any], bytes] | None, change: Change, method: str, text: Any
    ) -> bytes:
        """ProtocolError: the client must not see it, or it is not valid."""
        try:
            members = _members(text if before is None else before(text))
            change(members)
        except (msgspec.DecodeError, RecursionError, TypeError, KeyError, AttributeError) as exc:
            what = f"the answer of the server {self.server} to {method} is not valid: {exc}"
            raise ProtocolError(codes.INTERNAL_ERROR, what) from None
        return _encode(members)  # also without a member that stood there twice

    def _list(self, members: dict[str, Raw]) -> None:
        approved = self.approvals.of(self.server)
        shown = []
        for given in _dicts(members.get("skills", Raw(b"[]"))):
            self._remember(given.get("uri"))
            text = _encode(given)
            if self._is_approved(text, approved):
                shown.append(Raw(text))
        members["skills"] = Raw(_encode(shown))
        members.pop("digest", None)
        _hold_for_now(members)

    def _get(self, uri: str | None, members: dict[str, Raw]) -> None:
        given = _dict(members["skill"])
        self._remember(given.get("uri"))
        text = _encode(given)
        if not self._is_approved(text, self.approvals.of(self.server)):
            what = f"No skill is served at {shortened(uri or '')}"
            raise ProtocolError(codes.INVALID_PARAMS, what)
        members["skill"] = Raw(text)
        _hold_for_now(members)

    def _is_approved(self, text: bytes, approved: ApprovedFiles) -> bool:
        """Whether an entry is approved. One that is not, and is valid, waits."""
        try:
            entry = entry_of(text)
        except ValueError:
            return False  # no client would take it
        folder = key_of(entry.uri)[:-1]
        self.held.pop(folder, None)
        approval = approved.skills.get(entry.uri)
        if approval is not None and approval.covers(self.server, entry):
            return True
        why, files = "new" if approval is None else "changed", len(entry.resources)
        if isinstance(entry.resources, str):
            why, files = DYNAMIC, 0
        if len(self.held) >= MAX_HELD:
            del self.held[next(iter(self.held))]
        self.held[folder] = HeldSkill(entry.uri, why, files, time.time())
        return False

    def _children(self, uri: str | None, members: dict[str, Raw]) -> None:
        approved, folder = self.approvals.of(self.server), _key(uri or "")
        shown = []
        for one in _dicts(members["resources"]):
            key = _key(one["uri"])
            if is_below(key, folder) and (key in approved.digests or key in approved.folders):
                shown.append(one)
        members["resources"] = Raw(_encode(shown))

    def _resources(self, members: dict[str, Raw]) -> None:
        """The list of resources has no files of skills. Clients keep it until the server says that
        it has changed, and the server does not know of approvals."""
        approved = self.approvals.of(self.server)
        listed = _dicts(members.get("resources", Raw(b"[]")))
        shown = [one for one in listed if not self._is_of_a_skill(str(one.get("uri")), approved)]
        members["resources"] = Raw(_encode(shown))
        members.pop("digest", None)  # that of the server's list

    def _read(self, uri: str | None, members: dict[str, Raw]) -> None:
        """ProtocolError: a file is not the one that was approved."""
        approved, asked = self.approvals.of(self.server), _key(uri or "")
        if "contents" not in members:  # the server asks something
            if asked in approved.digests and members.get("resultType") != ASKS:
                what = f"the server {self.server} did not return {shortened(uri or '')}"
                raise ProtocolError(codes.INTERNAL_ERROR, what)
            return
        found = _dicts(members["contents"])
        for one in found:
            key = _key(one["uri"])
            if asked in approved.digests or self._is_of_a_skill(one["uri"], approved):
                _check(one, key == asked, approved.digests.get(key, set()))
        members["contents"] = Raw(_encode(found))


def _check(content: dict[str, Any], is_asked: bool, digests: set[str]) -> None:
    """ProtocolError: the content of a file is another one than was asked for, or its bytes are not
    those that were approved."""
    uri = shortened(content["uri"])
    written: Any = content.get("text")
    blob: Any = content.get("blob")
    if not is_asked or (written is None) is (blob is None):
        text = f"the server returned something else than the file that was asked for: {uri}"
        raise ProtocolError(codes.INTERNAL_ERROR, text)
    try:
        data = b64decode(blob, validate=True) if written is None else written.encode()
    except ValueError:
        raise ProtocolError(codes.INTERNAL_ERROR, f"{uri} is not Base64") from None
    if (digest := digest_of(data)) not in digests:
        wanted = " or ".join(sorted(digests)) or "none"
        text = f"{uri} is not the file that was approved: it has {digest}; approved is {wanted}"
        raise ProtocolError(codes.INTERNAL_ERROR, text)


def _hold_for_now(members: dict[str, Raw]) -> None:
    """An approval may come or go at any time, whatever the server says."""
    if "ttlMs" in members:
        members["ttlMs"] = Raw(b"0")


def _key(uri: str) -> Key:
    """The key of a file or folder; () if the URI is not one."""
    try:
        return key_of(uri)
    except ValueError:
        return ()


def _place(uri: str) -> Key:
    """The place that a server may take a URI for, however it is written: with empty segments, dots,
    backslashes, a query, and as parsers of URLs read it (WHATWG URL, "URL parsing"): without what
    they remove, without a user and a port, the host in lower case. The first item is the scheme."""
    plain = uri.strip(_STRIPPED).translate(_REMOVED)
    scheme, _, rest = plain.partition(":")
    scheme = scheme.lower()
    slashes = len(rest) - len(rest.lstrip("/\\"))
    found = [scheme]
    parts = re.split(r"[/\\]", unquote(re.split(r"[?#]", rest, maxsplit=1)[0]))
    parts = [part for part in parts if part not in ("", ".")]
    if parts and (slashes == 2 or scheme in _WITH_HOST):
        found.append(parts.pop(0).rpartition("@")[2].partition(":")[0])
    fixed = len(found)  # ".." does not lead out of the host
    for part in parts:
        if part != "..":
            found.append(part)
        elif len(found) > fixed:
            found.pop()
    return (*found[:1], *map(str.lower, found[1:2]), *found[2:])

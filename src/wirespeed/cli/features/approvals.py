"""``wirespeed skill list``, ``diff``, ``approve`` and ``revoke``: the approvals of skills for a
proxy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, complain, print_json, printable, usage
from wirespeed.cli.session import Options, connected, run
from wirespeed.cli.targets import is_url, split
from wirespeed.client.targets import python_file
from wirespeed.contents import contents_of
from wirespeed.errors import RemoteError, Unsupported
from wirespeed.skills.approvals import ApprovalFile, SkillApproval, SkillChanges
from wirespeed.skills.model import MAX_BYTES, digest_of, excess, key_of

if TYPE_CHECKING:
    from wirespeed.types import RemoteSkill


@dataclass(frozen=True)
class Approvals:
    """The approvals of one server.

    Attributes:
        file: The file with those of all servers.
        server: The name of the server in it.
    """

    file: ApprovalFile
    server: str

    @classmethod
    def of(cls, word: str | None, file: str | None, server: str | None) -> Approvals:
        """The approvals that a command line names: by options, and by ``FILE#NAME`` of a proxy.
        Failure (2), ConfigError: it does not say which."""
        is_file = word is not None and not is_url(word) and python_file(word) is None
        if (file is None or server is None) and word is not None and is_file:
            from wirespeed.config.document import Document
            from wirespeed.proxy.file import approvals_in

            path, name = split(word)
            document = Document.load(path)
            enabled = [one.name for one in document.servers.values() if one.enabled]
            file = file or approvals_in(document)
            server = server or name or (enabled[0] if len(enabled) == 1 else None)
        if file is None:
            raise usage("say where the approvals are: --approvals FILE, or a proxy's FILE#NAME")
        if server is None:
            raise usage("say what the proxy calls the server: --server NAME, or FILE#NAME")
        return cls(ApprovalFile(file), server)

    def load(self) -> dict[str, SkillApproval]:
        """Those of the server, by URI. Failure (2): the file is not valid."""
        try:
            found = self.file.load()
        except ValueError as exc:
            raise usage(str(exc)) from None
        return {uri: one for (server, uri), one in found.items() if server == self.server}

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """Write the file. Failure (2): it cannot be written."""
        try:
            yield
        except OSError as exc:
            raise usage(f"{self.file.path} cannot be written: {exc.strerror or exc}") from None


# -- skill list ------------------------------------------------------------------------------------


def list_skills(options: Options, approvals: Approvals, *, as_json: bool) -> int:
    """Print which skills of a server are approved."""
    return run(_list(options, approvals, as_json))


async def _list(options: Options, approvals: Approvals, as_json: bool) -> int:
    kept = approvals.load()
    async with connected(options) as client:
        found = {one.uri: one for one in await client.list_skills(server=approvals.server)}
        for uri in kept.keys() - found.keys():  # not every skill is listed
            try:
                found[uri] = await client.get_skill(uri, server=approvals.server)
            except RemoteError:
                continue
    states = {uri: _state(one, kept.get(uri)) for uri, one in found.items()}
    states |= dict.fromkeys(sorted(kept.keys() - found.keys()), "gone")
    if as_json:
        print_json({"skills": [{"uri": uri, "state": state} for uri, state in states.items()]})
    else:
        for uri, state in states.items():
            print(printable(f"{state:<8}  {uri}"))
    return Exit.OK


def _state(skill: RemoteSkill, approval: SkillApproval | None) -> str:
    if skill.resources is None:
        return "dynamic"
    if approval is None:
        return "new"
    return "approved" if approval.covers(skill.server, skill.entry) else "changed"


# -- skill diff ------------------------------------------------------------------------------------


def diff(options: Options, approvals: Approvals, uri: str, *, as_json: bool) -> int:
    """Print the differences between a skill and what was approved of it."""
    return run(_diff(options, approvals, uri, as_json))


async def _diff(options: Options, approvals: Approvals, uri: str, as_json: bool) -> int:
    kept = approvals.load().get(uri)
    async with connected(options) as client:
        skill = await client.get_skill(uri, server=approvals.server)
    if skill.resources is None:
        raise Unsupported(f"{uri} is dynamic: it has no digests to compare")
    every = tuple(file.uri for file in skill.resources)
    changes = SkillChanges(added=every) if kept is None else kept.changes(skill.entry)
    now = {file.uri: file.digest for file in skill.resources}
    before = {} if kept is None else dict(kept.files)
    rows: list[dict[str, Any]] = [
        {"change": word, "uri": one, "approved": before.get(one), "now": now.get(one)}
        for word in ("added", "removed", "changed")
        for one in getattr(changes, word)
    ]
    if as_json:
        print_json(
            {"approved": kept is not None, "files": rows, "frontmatter": changes.frontmatter}
        )
    else:
        for row in rows:
            digests = " -> ".join(filter(None, (row["approved"], row["now"])))
            print(printable(f"{row['change']:<8} {row['uri']}  {digests}"))
        for name in changes.frontmatter:
            print(printable(f"changed  the field {name} of the front matter"))
        if kept is None:
            complain(printable(f"{uri} is not approved"), level="note")
    return Exit.REMOTE if changes else Exit.OK


# -- skill approve, skill revoke -------------------------------------------------------------------


def approve(
    options: Options, approvals: Approvals, uris: list[str], reviewed: str | None, *, as_json: bool
) -> int:
    """Approve skills with the files that they have now, each of which is read and verified.
    ``reviewed``: A folder with the files that somebody has looked at; others are not approved."""
    return run(_approve(options, approvals, uris, reviewed, as_json))


async def _approve(
    options: Options, approvals: Approvals, uris: list[str], reviewed: str | None, as_json: bool
) -> int:
    approvals.load()  # Failure: nothing can be added to it
    found: list[RemoteSkill] = []
    async with connected(options) as client:
        for uri in uris:
            skill = await client.get_skill(uri, server=approvals.server)
            if skill.resources is None:
                raise Unsupported(f"{uri} is dynamic: it has no digests to approve")
            if problem := excess(skill.entry):
                raise Unsupported(f"{uri}: {problem}")
            for file in skill.resources:
                await skill.read(file.uri)
            if reviewed is not None:
                _compare(skill, reviewed)
            found.append(skill)
    for skill in found:
        with approvals.written():
            approvals.file.approve(skill.approval())
        files = show.plural(len(skill.resources or ()), "file")
        complain(printable(f"approved {skill.uri} of {skill.server}: {files}"), level="note")
    if as_json:
        print_json({"approved": [skill.uri for skill in found]})
    return Exit.OK


def _compare(skill: RemoteSkill, folder: str) -> None:
    """Failure (2): a file of a skill is not in a folder with the same bytes."""
    root = len(key_of(skill.uri)) - 1
    for file in skill.resources or ():
        path = os.path.join(folder, *key_of(file.uri)[root:])
        try:
            digest = digest_of(contents_of(path, most=MAX_BYTES))
        except OSError as exc:
            raise usage(f"--reviewed {folder}: {path}: {exc.strerror or exc}") from None
        if digest != file.digest:
            raise usage(f"--reviewed {folder}: {path} is not what the server has at {file.uri}")


def revoke(approvals: Approvals, uris: list[str], *, as_json: bool) -> int:
    """Remove the approvals of skills."""
    kept = approvals.load()
    for uri in uris:
        if uri not in kept:
            raise usage(f"{uri} of {approvals.server} is not approved")
    for uri in uris:
        with approvals.written():
            approvals.file.revoke(approvals.server, uri)
        complain(printable(f"revoked {uri} of {approvals.server}"), level="note")
    if as_json:
        print_json({"revoked": uris})
    return Exit.OK

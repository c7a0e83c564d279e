"""docs/explanation/security.md says of each field of a link that many clients share why it is safe:
a new field without a row fails here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from lab.rows import every

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text()
SECTION = PAGE.partition("\n## Links that many clients share\n")[2].partition("\n## ")[0]

# The objects of the table, and where their fields are: in a file, or in a class of it.
PLACES = {
    "Session": "_core/wire.pxd _core/responder.pxd _core/session.pxd:Session",
    "DrainingConnection": "peer/connection.pxd:PeerConnection "
    "peer/connection.pxd:DrainingConnection",
    "SessionConnection": "peer/connection.pxd:SessionConnection",
    "Serving": "server/requests/call.pxd:Serving",
    "ServerConnection": "server/connection.pxd",
    "Endpoint": "transport/link.pxd",
    "SessionLink": "peer/http/sessions.pxd:SessionLink",
    "Downstream": "proxy/side.pxd:Side proxy/downstream_side.pxd:DownstreamSide "
    "proxy/downstream.py:Downstream",
    "MergedClient": "proxy/merge/client.py:MergedClient",
    "Member": "proxy/merge/member.py:Member",
    "MergedCatalog": "proxy/merge/catalog.py:MergedCatalog",
    "StreamableHttp": "peer/http/endpoint.pxd",
    "HttpConnection": "transport/http/exchange.pxd:Carrier transport/http/connection.pxd",
    "AsgiLink": "transport/http/asgi_link.pyx:AsgiLink",
    "PassedLink": "transport/http/passed.pxd:PassedLink",
    "PassingEnd": "transport/http/passing.pxd:PassingEnd",
}
_CLASS = re.compile(r"^cdef class (\w+).*:\n((?:(?:    .*)?\n)*)", re.MULTILINE)
_FIELDS = re.compile(
    r"^    cdef (?:public |readonly )?[\w ]+?[ *](\w+(?:, \w+)*)(?: *#.*)?$", re.MULTILINE
)


def declared(place: str) -> set[str]:
    """The fields of a class, or of all classes of a file."""
    path, _, name = place.partition(":")
    text = (ROOT / "src" / "wirespeed" / path).read_text()
    if path.endswith(".py"):
        body = next(one for one in ast.parse(text).body if getattr(one, "name", "") == name)
        nodes = (one for one in ast.walk(body) if isinstance(one, ast.Attribute))
        stored = (ast.unparse(one) for one in nodes if isinstance(one.ctx, ast.Store))
        return {one.removeprefix("self.") for one in stored if re.fullmatch(r"self\.\w+", one)}
    bodies = [body for one, body in _CLASS.findall(text) if name in ("", one)]
    return {one for body in bodies for names in _FIELDS.findall(body) for one in names.split(", ")}


FIELDS = {name: [declared(one) for one in places.split()] for name, places in PLACES.items()}


def rows() -> dict[str, set[str]]:
    """The names of fields in the table, by the object."""
    found: dict[str, set[str]] = {}
    name = ""
    for cells in (line.split("|") for line in SECTION.splitlines()):
        if len(cells) == 5:
            name = next(iter(re.findall(r"`(\w+)`", cells[1])), name)
            found.setdefault(name, set()).update(re.findall(r"`(\w+)`", cells[2]))
    return found


@every("name", PLACES)
def test_each_field_has_a_row(name: str) -> None:
    assert all(FIELDS[name]), "the declarations are written in another way"
    assert not set().union(*FIELDS[name]) - rows()[name]
    assert not rows()[name] - set().union(*(one for found in FIELDS.values() for one in found))

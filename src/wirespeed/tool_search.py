"""Search over tools, for servers and the proxy: the index, and the two tools with which clients
search and call where a list shows few tools (`ToolSearch`)."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Raw

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes

MAX_QUERY = 1000  # characters
MAX_FOUND = 50  # tools of one answer
MAX_WORDS = 64  # different words of a query
MAX_NODES = 1000  # of one input schema
BYTES_A_TOKEN = 4  # of JSON text; a rough mean over models

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# The members of a tool that a model needs to call it.
_SHOWN = ("name", "title", "description", "inputSchema", "annotations")

_members = msgspec.json.Decoder(dict[str, Raw]).decode


@dataclass(frozen=True, kw_only=True)
class ToolSearch:
    """A search in place of a long list of tools. Clients list the tools that are ``visible``, a
    tool that searches all tools, and a tool that calls any of them. Every tool can be called by
    its own name as well.

    A search finds the tools that the client may see. A call by ``call_tool`` is checked, limited,
    counted and logged as a call of the tool that it names.

    Attributes:
        visible: Globs of the names of tools that lists show besides.
        limit: The number of tools in one answer, 1 to 50, if the search does not give one.
        search_name: The name of the tool that searches.
        call_name: The name of the tool that calls.
    """

    visible: tuple[str, ...] = ()
    limit: int = 5
    search_name: str = "search_tools"
    call_name: str = "call_tool"

    def __post_init__(self) -> None:
        if isinstance(self.visible, str) or not all(isinstance(one, str) for one in self.visible):
            raise TypeError("visible of ToolSearch is a tuple of globs")
        object.__setattr__(self, "visible", tuple(self.visible))
        if type(self.limit) is not int or not 1 <= self.limit <= MAX_FOUND:
            raise ValueError(f"limit is 1 to {MAX_FOUND}, not {self.limit!r}")
        for name in (self.search_name, self.call_name):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(f"a tool's name has 1 to 128 letters, digits and _.-: {name!r}")
        if self.search_name == self.call_name:
            raise ValueError("search_name and call_name are two names")

    def is_own(self, name: str) -> bool:
        """Whether a name is that of one of the two tools."""
        return name in (self.search_name, self.call_name)

    def shows(self, name: str) -> bool:
        """Whether lists show a tool."""
        return self.is_own(name) or any(fnmatchcase(name, glob) for glob in self.visible)

    def entries(self) -> list[dict[str, Any]]:
        """The two tools, as ``tools/list`` shows them."""
        return [
            {
                "name": self.search_name,
                "title": "Search tools",
                "description": (
                    "Find tools by what they do. There are more tools than the list shows. Returns "
                    "the best matches with their descriptions and input schemas. Then call one by "
                    f"{self.call_name}."
                ),
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "query": {
                            "type": "string",
                            "description": "Words that say what the tool is to do, or its name.",
                        },
                        "limit": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": MAX_FOUND,
                            "default": self.limit,
                            "description": "How many tools to return at most.",
                        },
                    },
                    "required": ["query"],
                },
                "annotations": {"readOnlyHint": True, "openWorldHint": False},
            },
            {
                "name": self.call_name,
                "title": "Call a tool",
                "description": f"Call a tool that {self.search_name} has found.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "The name of the tool."},
                        "arguments": {
                            "type": "object",
                            "description": "Its arguments, as its input schema says.",
                        },
                    },
                    "required": ["name"],
                },
            },
        ]

    def called(self, params: Any) -> bytes:
        """Return the params of the call that takes the place of a call by ``call_name``. ``_meta``
        and all other members stay. ProtocolError -32602: it names no tool, or one of these two.

        ``params``: A bytes-like JSON object.
        """
        members = _members(params)
        given = members.pop("arguments", Raw(b"{}"))
        try:
            inner = _members(given)
        except msgspec.DecodeError:
            raise self._fault("takes an object with the name of a tool and its arguments") from None
        name, arguments = inner.pop("name", None), inner.pop("arguments", Raw(b"{}"))
        if inner:
            raise self._fault(f"takes name and arguments only, not {', '.join(inner)[:200]}")
        try:
            text = None if name is None else msgspec.json.decode(name, type=str)
        except msgspec.DecodeError:
            text = None
        if text is None:
            raise self._fault("needs the name of a tool, a string")
        if self.is_own(text):
            raise self._fault(f"calls other tools only, not {text}")
        kind = bytes(arguments)[:1]
        if kind == b"n":  # null
            arguments = Raw(b"{}")
        elif kind != b"{":
            raise self._fault("needs the tool's arguments as an object")
        assert name is not None
        return msgspec.json.encode({**members, "name": name, "arguments": arguments})

    def _fault(self, text: str) -> ProtocolError:
        return ProtocolError(codes.INVALID_PARAMS, f"{self.call_name} {text}")

    def asked(self, arguments: Any) -> tuple[str, int]:
        """Return the query and the limit of a search. ValueError: the arguments are wrong; the text
        is for the client.

        ``arguments``: A bytes-like JSON value; None: there are none.
        """
        try:
            found = None if arguments is None else msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            found = None
        found = found if isinstance(found, dict) else {}
        query, limit = found.get("query"), found.get("limit")
        if not isinstance(query, str) or not query.strip() or len(query) > MAX_QUERY:
            raise ValueError(f"query is a text of 1 to {MAX_QUERY} characters")
        if limit is None:
            return query, self.limit
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if not is_number or not 1 <= limit <= MAX_FOUND or limit != int(limit):
            raise ValueError(f"limit is a whole number from 1 to {MAX_FOUND}")
        return query, int(limit)


def shown_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an entry of ``tools/list`` that a search shows."""
    return {name: tool[name] for name in _SHOWN if tool.get(name) is not None}


def text_of(found: Iterable[Mapping[str, Any]]) -> str:
    """Return the found tools as the text of the result."""
    return msgspec.json.encode({"tools": [shown_of(one) for one in found]}).decode()


def tokens_of(n_bytes: int) -> int:
    """Estimate how many tokens of a model JSON text takes."""
    return math.ceil(n_bytes / BYTES_A_TOKEN)


# -- the index -------------------------------------------------------------------------------------

# The weight of a word, by the place where it stands.
_NAME_WEIGHT, _TITLE_WEIGHT, _PARAMETER_WEIGHT = 4, 3, 2
# The parameters of BM25: how soon repetitions of a word stop counting, and how much the length of
# a tool's text counts against it.
_K1, _B = 1.2, 0.75

_JOINTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text, and of names in any style in it, in small letters and without
    the ``s`` of a plural."""
    return [_singular(word) for word in _WORD.findall(_JOINTS.sub(" ", text).lower())]


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] not in "su" else word


class ToolIndex:
    """The words of tools: their names, titles, descriptions and parameters. They are ranked by
    Okapi BM25.

    Args:
        tools: Entries of ``tools/list``.
    """

    def __init__(self, tools: Iterable[Mapping[str, Any]]) -> None:
        self.tools = list(tools)
        self._found: dict[str, list[tuple[int, int]]] = {}  # tools and counts, by word
        lengths = []
        for i, tool in enumerate(self.tools):
            counted: Counter[str] = Counter()
            for text, weight in _texts(tool):
                for word in words_of(text):
                    counted[word] += weight
            lengths.append(counted.total())
            for word, n in counted.items():
                self._found.setdefault(word, []).append((i, n))
        mean = sum(lengths) / len(lengths) if any(lengths) else 1.0
        self._norms = [_K1 * (1 - _B + _B * n / mean) for n in lengths]

    def search(self, query: str, limit: int) -> list[Mapping[str, Any]]:
        """Return the tools that match a query, the best first. A tool whose name is the query
        comes first."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in list(dict.fromkeys(words_of(query)))[:MAX_WORDS]:
            found = self._found.get(word, ())
            rarity = math.log1p((len(self.tools) - len(found) + 0.5) / (len(found) + 0.5))
            for i, n in found:
                scores[i] += rarity * n * (_K1 + 1) / (n + self._norms[i])
        for i, tool in enumerate(self.tools):
            if tool.get("name") == query.strip():
                scores[i] = math.inf
        best = heapq.nsmallest(limit, scores, key=lambda i: (-scores[i], i))
        return [self.tools[i] for i in best]


def _texts(tool: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the texts of an entry, and the weight of the words in each."""
    hints = tool.get("annotations")
    of_hints = hints.get("title") if isinstance(hints, Mapping) else None
    for text, weight in (
        (tool.get("name"), _NAME_WEIGHT),
        (tool.get("title"), _TITLE_WEIGHT),
        (of_hints, _TITLE_WEIGHT),
        (tool.get("description"), 1),
    ):
        if isinstance(text, str):
            yield text, weight
    waiting, n = [tool.get("inputSchema")], 0
    while waiting and n < MAX_NODES:
        node = waiting.pop()
        n += 1
        if isinstance(node, list):
            waiting += node
        if not isinstance(node, Mapping):
            continue
        for name in ("title", "description"):
            if isinstance(node.get(name), str):
                yield node[name], 1
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            for name in properties:
                yield str(name), _PARAMETER_WEIGHT
            waiting += properties.values()
        waiting += [node.get(key) for key in ("items", "anyOf", "oneOf", "allOf")]
        values = node.get("enum")
        if isinstance(values, list):
            for value in values:
                if isinstance(value, str):
                    yield value, 1
        if isinstance(node.get("$defs"), Mapping):
            waiting += node["$defs"].values()


set_public_home(globals())

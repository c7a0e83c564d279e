"""The index of tools, and the two tools of a search."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab.rows import every

from wirespeed import ToolSearch
from wirespeed.errors import ProtocolError
from wirespeed.tool_search import MAX_QUERY, ToolIndex, text_of, tokens_of, words_of


def tool(name: str, description: str = "", **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("create_issue", "Open a new issue in a repository.", repository="Owner and name."),
    tool("listPullRequests", "All open pull requests."),
    tool("weather", "Forecast for a city.", city="Its name.", days="How many days."),
    tool("send_mail", "Send a message to people.", recipients="Addresses.", body="The text."),
    tool("delete_file", "Remove a file for good.", path="Where it is."),
    tool("read_file", "The content of a file.", path="Where it is."),
]


@every(
    "text, words",
    [
        ("createIssue", ["create", "issue"]),
        ("HTTPServer2", ["http", "server2"]),
        ("list_pull-requests", ["list", "pull", "request"]),
        ("queries of classes, bus", ["query", "of", "class", "bus"]),
        ("Größe der Straße", ["größe", "der", "straße"]),
        ("… ", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@every(
    "query, best",
    [
        ("open an issue", "create_issue"),
        ("pull request", "listPullRequests"),
        ("forecast", "weather"),
        ("recipients", "send_mail"),  # the name of a parameter
        ("remove files", "delete_file"),
        ("read_file", "read_file"),  # the name itself goes before all
    ],
)
def test_the_best(query: str, best: str) -> None:
    assert ToolIndex(TOOLS).search(query, 5)[0]["name"] == best


def test_ranks_and_bounds() -> None:
    index = ToolIndex(TOOLS)
    found = [one["name"] for one in index.search("file path", 5)]
    assert found == ["delete_file", "read_file"]
    assert len(index.search("file path", 1)) == 1
    assert index.search("unheard", 5) == []
    assert ToolIndex([]).search("anything", 5) == []
    assert ToolIndex([{"name": "bare"}]).search("bare", 5) == [{"name": "bare"}]
    # a rare word says more than a common one
    many = [tool(f"t{i}", "common words here") for i in range(20)]
    many.append(tool("one", "common words here, and a unicorn"))
    assert ToolIndex(many).search("common unicorn", 1)[0]["name"] == "one"


def test_schemas_that_are_odd() -> None:
    deep: Any = {"properties": {"leaf": {"description": "unicorn"}}}
    for _ in range(50):
        deep = {"properties": {"next": deep}}
    odd = {
        "name": "odd",
        "title": 5,
        "annotations": {"title": "Pony"},
        "inputSchema": {"anyOf": [None, {"enum": ["zebra", 1]}, deep], "properties": []},
    }
    index = ToolIndex([odd])
    for word in ("pony", "zebra", "unicorn", "next"):
        assert index.search(word, 1) == [odd]
    assert index.search("5", 1) == []


def test_what_is_shown() -> None:
    found = {**TOOLS[0], "icons": [], "outputSchema": {"type": "object"}, "_meta": {"a": 1}}
    assert json.loads(text_of([found])) == {"tools": [TOOLS[0]]}
    assert tokens_of(401) == 101


def test_a_call() -> None:
    search = ToolSearch()
    params = json.dumps(
        {
            "name": "call_tool",
            "arguments": {"name": "add", "arguments": {"a": 12345678901234567890123}},
            "_meta": {"progressToken": 7},
            "task": {},
        }
    ).encode()
    assert json.loads(search.called(params)) == {
        "name": "add",
        "arguments": {"a": 12345678901234567890123},
        "_meta": {"progressToken": 7},
        "task": {},
    }
    for arguments in (b'{"name":"add"}', b'{"name":"add","arguments":null}'):
        found = json.loads(search.called(b'{"name":"call_tool","arguments":%b}' % arguments))
        assert found == {"name": "add", "arguments": {}}


@every(
    "arguments, text",
    [
        (None, "needs the name of a tool"),
        (5, "takes an object"),
        ({"name": 5}, "needs the name of a tool"),
        ({"name": "add", "arguments": "{}"}, "arguments as an object"),
        ({"name": "add", "arguments": [1]}, "arguments as an object"),
        ({"name": "add", "a": 1}, "name and arguments only, not a"),
        ({"name": "call_tool"}, "calls other tools only"),
        ({"name": "search_tools"}, "calls other tools only"),
    ],
)
def test_calls_that_are_wrong(arguments: Any, text: str) -> None:
    params = {"name": "call_tool"} | ({} if arguments is None else {"arguments": arguments})
    with pytest.raises(ProtocolError, match=text) as refused:
        ToolSearch().called(json.dumps(params).encode())
    assert refused.value.code == -32602


def test_a_query() -> None:
    search = ToolSearch(limit=3)
    assert search.asked(b'{"query":"a"}') == ("a", 3)
    assert search.asked(b'{"query":"a","limit":50}') == ("a", 50)
    for text in (
        None,
        b"[]",
        b"{}",
        b'{"query":""}',
        b'{"query":5}',
        json.dumps({"query": "x" * (MAX_QUERY + 1)}).encode(),
        b'{"query":"a","limit":0}',
        b'{"query":"a","limit":51}',
        b'{"query":"a","limit":true}',
        b'{"query":"a","limit":1.5}',
        b'{"query":"a","limit":1e400}',
    ):
        with pytest.raises(ValueError, match=r"query|limit"):
            search.asked(text)


@every(
    "options, error",
    [
        ({"limit": 0}, ValueError),
        ({"limit": 51}, ValueError),
        ({"search_name": "a b"}, ValueError),
        ({"search_name": "call_tool"}, ValueError),
        ({"visible": "abc"}, TypeError),
    ],
)
def test_options(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ToolSearch(**options)
    assert ToolSearch(visible=["a*"]).visible == ("a*",)  # type: ignore[arg-type]

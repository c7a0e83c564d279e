"""resources/list, resources/templates/list and resources/read in every revision."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import enum
import json
import logging
import pathlib
import re
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

import msgspec
import pytest
from lab.caller import Caller, before, code_of_missing, since
from lab.raw import META, modern
from lab.server import LEGACY, MODERN
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import ProtocolError, ResourceNotFound, SignatureError
from wirespeed.types import Annotations, Icon, ResourceContents, ResourceResult

NOT_FOUND = "Resource not found"


def read(caller: Caller, uri: str) -> Any:
    """The contents of a resource."""
    result = caller.plain("resources/read", uri=uri)
    assert result.keys() == {"contents"}
    return result["contents"]


def text(caller: Caller, uri: str) -> str:
    (contents,) = read(caller, uri)
    assert contents["uri"] == uri
    value: str = contents["text"]
    return value


def missing(caller: Caller, uri: str) -> None:
    error = caller.error("resources/read", uri=uri)
    assert error == {
        "code": code_of_missing(caller.version),
        "message": NOT_FOUND,
        "data": {"uri": uri},
    }


# -- lists ----------------------------------------------------------------------------------------


def full(server: Server) -> None:
    server.add_resource(
        "file:///a.md",
        "# A",
        name="a.md",
        title="A",
        description="The first",
        mime_type="text/markdown",
        annotations=Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01"),
        icons=[Icon("https://x.example/i.png", "image/png", ["48x48"])],
        meta={"com.example/k": None},
    )

    @server.resource(
        "file:///{name}.md",
        name="pages",
        title="Pages",
        description="Them",
        mime_type="text/markdown",
        annotations={"lastModified": "2026-01-01"},
        icons=[Icon("https://x.example/i.png")],
        meta={"k": 1},
    )
    def page(name: str) -> str:
        return name


@pytest.mark.every_revision
def test_a_list_shows_what_the_revision_has(caller: Any, server: Server, version: str) -> None:
    full(server)
    client = caller()
    (entry,) = client.plain("resources/list")["resources"]
    expected: dict[str, Any] = {
        "uri": "file:///a.md",
        "name": "a.md",
        "description": "The first",
        "mimeType": "text/markdown",
        "size": 3,
        "annotations": {"audience": ["user"], "priority": 0.5},
    }
    if version in since("2025-06-18"):
        expected |= {"title": "A", "_meta": {"com.example/k": None}}
        expected["annotations"]["lastModified"] = "2026-01-01"
    if version in since("2025-11-25"):
        icon = {"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["48x48"]}
        expected["icons"] = [icon]
    assert entry == expected


@pytest.mark.every_revision
def test_templates_are_a_list_of_their_own(caller: Any, server: Server, version: str) -> None:
    full(server)
    (entry,) = caller().plain("resources/templates/list")["resourceTemplates"]
    expected: dict[str, Any] = {
        "uriTemplate": "file:///{name}.md",
        "name": "pages",
        "description": "Them",
        "mimeType": "text/markdown",
        "annotations": {},
    }
    if version in since("2025-06-18"):
        expected |= {"title": "Pages", "_meta": {"k": 1}}
        expected["annotations"]["lastModified"] = "2026-01-01"
    if version in since("2025-11-25"):
        expected["icons"] = [{"src": "https://x.example/i.png"}]
    assert entry == expected


def test_names_and_texts_come_from_the_function(caller: Any, server: Server) -> None:
    @server.resource("a://1")
    def one() -> str:
        """The one.

        Returns:
            Text.
        """
        return ""

    server.add_resource("a://b/c.txt", "x")
    server.add_resource("urn:isbn:5", b"xyz")
    server.add_resource("a://", {"k": 1})
    got = caller().plain("resources/list")["resources"]
    assert got == [
        {"uri": "a://1", "name": "one", "description": "The one."},
        {"uri": "a://b/c.txt", "name": "c.txt", "size": 1},
        {"uri": "urn:isbn:5", "name": "5", "size": 3},
        {"uri": "a://", "name": "a://"},
    ]


def test_modern_clients_are_told_of_the_updates_they_listen_to(
    modern_peer: Any, server: Server
) -> None:
    server.add_resource("a://1", "x")
    server.add_resource("a://2", "x")
    wanted = {"resourceSubscriptions": ["a://1"]}
    modern_peer.send(modern("listen", "subscriptions/listen", {"notifications": wanted}))
    assert modern_peer.recv()["params"]["notifications"] == wanted
    server.resource_updated("a://2")
    server.resource_updated("a://1")
    note = modern_peer.recv()
    assert note["method"] == "notifications/resources/updated"
    assert note["params"] == {"uri": "a://1", "_meta": {META + "subscriptionId": "listen"}}


@pytest.mark.parametrize("version", LEGACY)
def test_legacy_clients_are_told_of_updates(caller: Any, server: Server, version: str) -> None:
    server.add_resource("a://1", "x")
    client = caller()
    server.resource_updated("a://1")
    assert client.peer.fence() == []
    assert client.result("resources/subscribe", uri="a://1") == {}
    server.resource_updated("a://1")
    (note,) = client.peer.fence()
    assert note["params"] == {"uri": "a://1"}
    assert client.result("resources/unsubscribe", uri="a://1") == {}
    server.resource_updated("a://1")
    assert client.peer.fence() == []


# -- what is read ---------------------------------------------------------------------------------


class Point(msgspec.Struct):
    x: int
    y: float | None = None


@pytest.mark.parametrize(
    ("value", "mime_type", "member"),
    [
        ("hé\n", "text/plain", "hé\n"),
        ("", "text/plain", ""),
        ({"a": [1, None]}, "application/json", '{"a":[1,null]}'),
        (Point(1), "application/json", '{"x":1,"y":null}'),
        ([1, 2], "application/json", "[1,2]"),
        (["a", "b"], "application/json", '["a","b"]'),
        ([], "application/json", "[]"),
        (5, "application/json", "5"),
        (dt.date(2026, 1, 2), "application/json", '"2026-01-02"'),
        (b"\0\xff", "application/octet-stream", b"\0\xff"),
        (bytearray(b"ab"), "application/octet-stream", b"ab"),
        (memoryview(b"ab"), "application/octet-stream", b"ab"),
        (b"", "application/octet-stream", b""),
    ],
)
@pytest.mark.parametrize("how", ["function", "async", "fixed", "template"])
def test_what_a_resource_says(
    value: Any, mime_type: str, member: str | bytes, how: str, connect: Any, server: Server
) -> None:
    if how == "fixed":
        server.add_resource("a://1", value)
        server.add_resource("b://1", value, mime_type="x/y")
    elif how == "template":

        def template(n: int) -> Any:
            return value

        server.add_resource("a://{n}", template)
        server.add_resource("b://{n}", template, mime_type="x/y")
    else:

        def plain() -> Any:
            return value

        async def coroutine() -> Any:
            return value

        function = coroutine if how == "async" else plain
        server.add_resource("a://1", function)
        server.add_resource("b://1", function, mime_type="x/y")
    client = Caller(connect("2025-06-18"), "2025-06-18")
    expected: dict[str, Any] = {"uri": "a://1", "mimeType": mime_type}
    if isinstance(member, bytes):
        expected["blob"] = base64.b64encode(member).decode()
    else:
        expected["text"] = member
    assert read(client, "a://1") == [expected]
    assert read(client, "b://1") == [expected | {"uri": "b://1", "mimeType": "x/y"}]


@pytest.mark.every_revision
def test_contents_are_cut_to_the_revision(caller: Any, server: Server, version: str) -> None:
    @server.resource("a://1", mime_type="text/css")
    def one() -> list[ResourceContents | str | bytes]:
        return [
            ResourceContents("a://1/x", "text/x", text="x", meta={"k": 1}),
            ResourceContents("", text="y"),
            "z",
            b"b",
        ]

    server.add_resource("a://2", ResourceContents("", text="f", meta={"k": 1}))
    client = caller()
    first = {"uri": "a://1/x", "mimeType": "text/x", "text": "x"}
    fixed = {"uri": "a://2", "text": "f"}
    if version not in before("2025-06-18"):
        first["_meta"] = {"k": 1}  # type: ignore[assignment]
        fixed["_meta"] = {"k": 1}  # type: ignore[assignment]
    assert read(client, "a://1") == [
        first,
        {"uri": "a://1", "mimeType": "text/css", "text": "y"},
        {"uri": "a://1", "mimeType": "text/css", "text": "z"},
        {"uri": "a://1", "mimeType": "text/css", "blob": "Yg=="},
    ]
    assert read(client, "a://2") == [fixed]
    assert read(client, "a://2") == [fixed]


def test_an_annotation_tells_an_empty_list_of_contents_from_json(
    caller: Any, server: Server
) -> None:
    @server.resource("a://contents")
    def contents() -> list[ResourceContents]:
        return []

    @server.resource("a://json")
    def value() -> list[str]:
        return []

    client = caller()
    assert read(client, "a://contents") == []
    assert text(client, "a://json") == "[]"


def test_a_list_with_bytes_is_several_contents(caller: Any, server: Server) -> None:
    server.add_resource("a://1", ["x", b"y"])
    got = read(caller(), "a://1")
    assert [item.get("text") or item.get("blob") for item in got] == ["x", "eQ=="]


def test_generators_give_several_values(caller: Any, server: Server) -> None:
    @server.resource("a://1")
    async def one() -> AsyncIterator[ResourceContents]:
        yield ResourceContents("a://1/a", text="a")
        yield ResourceContents("a://1/b", text="b")

    @server.resource("a://2")
    def two() -> Iterator[int]:
        yield 1
        yield 2

    client = caller()
    assert [item["uri"] for item in read(client, "a://1")] == ["a://1/a", "a://1/b"]
    assert text(client, "a://2") == "[1,2]"


def test_every_result_says_how_long_it_may_be_kept(connect: Any) -> None:
    server = Server("hints", list_ttl_ms=1000, cache_scope="public")
    server.add_resource("a://1", "x")
    server.add_resource("a://2", "x", ttl_ms=5, cache_scope="private")

    @server.resource("a://{n}", ttl_ms=7)
    def nth(n: int) -> Any:
        if n == 4:
            return ResourceResult(contents="x", ttl_ms=9, cache_scope="private", meta={"k": n})
        return "x"

    client = Caller(connect(to=server), MODERN)

    def hints(uri: str) -> Any:
        result = client.result("resources/read", uri=uri)
        return result["ttlMs"], result["cacheScope"]

    assert hints("a://1") == (1000, "public")
    assert hints("a://2") == (5, "private")
    assert hints("a://3") == (7, "public")
    assert hints("a://4") == (9, "private")
    assert client.result("resources/read", uri="a://4")["_meta"] == {"k": 4}
    assert client.result("resources/list")["ttlMs"] == 1000
    assert client.result("resources/templates/list")["cacheScope"] == "public"


def test_a_result_that_input_went_into_is_not_to_be_kept(connect: Any) -> None:
    server = Server("hints", list_ttl_ms=1000, cache_scope="public")

    @server.resource("a://1")
    def one() -> str:
        return "x"

    client = Caller(connect(to=server), MODERN)
    result = client.result("resources/read", uri="a://1", inputResponses={"k": {"action": "x"}})
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    assert client.result("resources/read", uri="a://1")["ttlMs"] == 1000


def test_legacy_results_have_meta_too(caller: Any, server: Server) -> None:
    server.add_resource("a://1", ResourceResult(contents="x", meta={"k": 1}))
    result = caller().plain("resources/read", uri="a://1")
    assert result["_meta"] == {"k": 1}


# -- templates ------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


CASES: list[tuple[Any, str, Any]] = [
    (int, "5", 5),
    (int, "-5", -5),
    (int, "x", None),
    (int, "5x", None),
    (float, "1.5", 1.5),
    (bool, "true", True),
    (bool, "yes", None),
    (str, "a%20b", "a b"),
    (str, "a%2Fb", "a/b"),
    (Colour, "red", Colour.RED),
    (Colour, "green", None),
    (Literal["a", 1], "a", "a"),
    (Literal["a", 1], "1", 1),
    (Literal["a", 1], "b", None),
    (
        uuid.UUID,
        "12345678-1234-5678-1234-567812345678",
        uuid.UUID(int=0x12345678123456781234567812345678),
    ),
    (uuid.UUID, "5", None),
    (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
    (dt.date, "2026-13-02", None),
    (Annotated[int, msgspec.Meta(ge=3)], "3", 3),
    (Annotated[int, msgspec.Meta(ge=3)], "2", None),
    (int | None, "null", None),
    (list[int], "%5B1%2C2%5D", [1, 2]),
    (list[int], "1", None),
    (pathlib.PurePosixPath, "a", pathlib.PurePosixPath("a")),
    (pathlib.PurePosixPath, ".", None),
    (pathlib.PurePosixPath, "%5C", None),
]


@pytest.mark.parametrize(("tp", "encoded", "value"), CASES)
def test_variables_have_the_types_of_the_parameters(
    tp: Any, encoded: str, value: Any, connect: Any, server: Server
) -> None:
    got: list[Any] = []

    def keep(x: Any) -> str:
        got.append(x)
        return "kept"

    keep.__annotations__["x"] = tp
    server.add_resource("a://{x}", keep)
    client = Caller(connect("2025-06-18"), "2025-06-18")
    if value is None and tp != int | None:
        missing(client, f"a://{encoded}")
        assert got == []
    else:
        assert text(client, f"a://{encoded}") == "kept"
        assert got == [value] and type(got[0]) is type(value)


def test_a_resource_goes_before_templates_and_these_in_their_order(
    caller: Any, server: Server
) -> None:
    @server.resource("a://{n}")
    def number(n: int) -> str:
        return f"number {n}"

    @server.resource("a://{x}")
    def anything(x: str) -> str:
        return f"anything {x}"

    @server.resource("a://{+path}")
    def path(path: str) -> str:
        return f"path {path}"

    server.add_resource("a://7", "seven")
    client = caller()
    assert text(client, "a://7") == "seven"
    assert text(client, "a://8") == "number 8"
    assert text(client, "a://x") == "anything x"
    assert text(client, "a://x/y") == "path x/y"
    missing(client, "b://x")
    missing(client, "a://../x")


def test_parameters_may_be_passed_in_any_way(caller: Any, server: Server) -> None:
    @server.resource("a://{a}/{b}/{c}{#d}")
    async def one(a: str, /, ctx: Context, b: int, *, c: str, d: str = "none", e: int = 9) -> str:
        return f"{a} {b} {c} {d} {e} {ctx.protocol_version}"

    client = caller()
    assert text(client, "a://x/1/z") == f"x 1 z none 9 {client.version}"
    assert text(client, "a://x/1/z#f") == f"x 1 z f 9 {client.version}"
    missing(client, "a://x/1/")


def test_a_fragment_without_default_must_be_there(caller: Any, server: Server) -> None:
    @server.resource("a://x{#f}")
    def one(f: str) -> str:
        return f

    client = caller()
    assert text(client, "a://x#y") == "y"
    missing(client, "a://x")


def test_a_query_fills_parameters_and_the_others_have_their_defaults(
    caller: Any, server: Server
) -> None:
    @server.resource("a://{shelf}{?word,limit,tags}")
    def search(shelf: str, word: str, limit: int = 10, tags: list[str] | None = None) -> str:
        return f"{shelf} {word} {limit} {tags}"

    server.resource("b://x?lang=en{&limit}", name="more")(lambda limit=3: str(limit))
    client = caller()
    assert text(client, "a://pens?word=red%20ink") == "pens red ink 10 None"
    assert text(client, "a://pens?limit=2&word=a&tags=%5B%22x%22%5D") == "pens a 2 ['x']"
    for uri in ("a://pens", "a://pens?word=a&limit=two", "a://pens?word=a&page=2", "b://x"):
        missing(client, uri)
    assert text(client, "b://x?lang=en") == "3"
    listed = client.plain("resources/templates/list")["resourceTemplates"]
    assert listed[0]["uriTemplate"] == "a://{shelf}{?word,limit,tags}"


def test_a_query_fills_a_list(caller: Any, server: Server) -> None:
    @server.resource("a://x{?tags*,sizes*,files*}", safe=False)
    def search(
        tags: list[str],
        sizes: Annotated[set[int], msgspec.Meta(max_length=2)] | None = None,
        files: tuple[pathlib.PurePosixPath, ...] = (),
    ) -> str:
        return f"{tags} {sizes} {[str(file) for file in files]}"

    client = caller()
    assert text(client, "a://x?tags=1&sizes=1&tags=a,b&sizes=1") == "['1', 'a,b'] {1} []"
    assert text(client, "a://x?tags=&files=b/c&files=d") == "[''] None ['b/c', 'd']"
    for query in (
        "", "?sizes=1", "?tags=a&sizes=b", "?tags=a&sizes=1&sizes=2&sizes=3", "?tags=a&files=../b",
        "?tags=a&files=b&files=/etc",
    ):  # fmt: skip
        missing(client, f"a://x{query}")


def test_a_list_in_a_query_needs_a_parameter_of_such_a_type(server: Server) -> None:
    def some(tags: str = "") -> str:
        return tags

    with raises(SignatureError):
        server.add_resource("a://x{?tags*}", some)


def test_unsafe_values_where_the_author_wants_them(caller: Any, server: Server) -> None:
    def echo(x: str) -> str:
        return x

    server.add_resource("safe://{x}", echo)
    server.add_resource("grep://{x}", echo, safe=False)
    client = caller()
    missing(client, "safe://..")
    missing(client, "safe://%2Fetc%2Fpasswd")
    assert text(client, "grep://..") == ".."
    assert text(client, "grep://%2Fa.b%2F") == "/a.b/"


def test_a_path_is_always_a_plain_relative_one(caller: Any, server: Server) -> None:
    @server.resource("a://{+path}", safe=False)
    def one(path: pathlib.PurePosixPath) -> str:
        assert not path.is_absolute() and ".." not in path.parts
        return str(path)

    client = caller()
    assert text(client, "a://b/c.txt") == "b/c.txt"
    for uri in (
        "a:///etc", "a://..", "a://b/../c", "a://b/%2e%2e/c", "a://b//c", "a://b/", "a://./b",
        "a://b\\c", "a://b%5Cc", "a://b%00c", "a://%2Fetc",
    ):  # fmt: skip
        missing(client, uri)


# -- failures -------------------------------------------------------------------------------------


def test_a_missing_resource_has_the_code_of_the_revision(
    caller: Any, server: Server, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.add_resource("a://1", "x")

    @server.resource("none://1")
    def nothing() -> str | None:
        return None

    @server.resource("raised://{n}")
    async def raised(n: int) -> str:
        raise ResourceNotFound(None if n == 1 else "other://5")

    client = caller()
    for uri in ("a://2", "none://1", "raised://1", "raised://x", "", "no uri at all", "a://1/"):
        missing(client, uri)
    error = client.error("resources/read", uri="raised://2")
    assert error["code"] == code_of_missing(version) and error["data"] == {"uri": "other://5"}
    assert not caplog.records


def test_a_tool_that_misses_a_resource_says_so_in_the_revisions_code(
    caller: Any, server: Server, version: str
) -> None:
    @server.tool
    def look() -> str:
        raise ResourceNotFound("a://5")

    error = caller().error("tools/call", name="look", arguments={})
    assert error["code"] == code_of_missing(version) and error["data"] == {"uri": "a://5"}


@pytest.mark.parametrize("params", [{}, {"uri": 5}, {"uri": None}, {"uri": ["a://1"]}])
def test_a_request_without_a_uri(params: Any, caller: Any, server: Server) -> None:
    server.add_resource("a://1", "x")
    error = caller().error("resources/read", **params)
    assert error["code"] == -32602 and "uri" in error["message"]


def test_nothing_internal_leaks(
    caller: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @server.resource("a://1")
    def one() -> str:
        raise RuntimeError("the password is 1234")

    @server.resource("a://2")
    async def two() -> Any:
        return object()

    @server.resource("a://3")
    def three() -> str:
        return "\ud800"

    @server.resource("a://4")
    def four() -> str:
        raise ProtocolError(-5, "said on purpose", {"k": 1})

    client = caller()
    for uri in ("a://1", "a://2", "a://3"):
        error = client.error("resources/read", uri=uri)
        assert error == {"code": -32603, "message": "Internal error"}
    error = client.error("resources/read", uri="a://4")
    assert error == {"code": -5, "message": "said on purpose", "data": {"k": 1}}
    assert [r.levelno for r in caplog.records] == [logging.ERROR] * 3
    assert "resource one failed" in caplog.records[0].message


def test_a_timeout_ends_reading(
    caller: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @server.resource("a://1", timeout=0.001)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    error = caller().error("resources/read", uri="a://1")
    assert error["code"] == -32603 and "timed out after 0.001 s" in error["message"]


def test_plain_functions_run_in_threads_and_the_others_go_on(connect: Any, server: Server) -> None:
    gate = threading.Event()

    @server.resource("a://blocks")
    def blocks() -> str:
        assert threading.current_thread() is not threading.main_thread()
        assert gate.wait(20)
        return "done"

    @server.resource("a://opens")
    async def opens() -> str:
        gate.set()
        return "open"

    client = Caller(connect("2025-06-18"), "2025-06-18")
    client.peer.send(
        client.message("resources/read", {"uri": "a://blocks"}),
        client.message("resources/read", {"uri": "a://opens"}),
    )
    got = client.peer.answers(1, 2)
    assert got[1]["result"]["contents"][0]["text"] == "done"


def test_progress_while_reading(caller: Any, server: Server) -> None:
    @server.resource("a://1")
    async def one(ctx: Context) -> str:
        await ctx.progress(1, 2)
        return "x"

    client = caller()
    message = client.message("resources/read", {"uri": "a://1"})
    message["params"].setdefault("_meta", {})["progressToken"] = 0
    client.peer.send(message)
    note, answer = client.peer.until(1)
    assert note["params"] == {"progressToken": 0, "progress": 1, "total": 2}
    assert answer["result"]["contents"][0]["text"] == "x"


# -- registration ---------------------------------------------------------------------------------


def nothing() -> str:
    return ""


@pytest.mark.parametrize(
    ("uri", "options", "why"),
    [
        ("app", {}, "does not begin with a scheme"),
        ("a://my file", {}, "percent-encode ' ' as %20"),
        ("a://{x", {}, "has no '}'"),
        ("a://{x*}", {}, "modifier"),
        ("a://1", {"ttl_ms": -1}, "ttl_ms"),
        ("a://1", {"ttl_ms": 1.5}, "ttl_ms"),
        ("a://1", {"cache_scope": "all"}, "cache_scope"),
        ("a://1", {"timeout": 0}, "timeout"),
        ("a://1", {"annotations": {"priority": 2}}, "priority"),
        ("a://1", {"annotations": {"audience": "user"}}, "audience"),
        ("a://{x}", {"size": 5}, "no common size"),
    ],
)
def test_what_cannot_be_registered(uri: str, options: Any, why: str, server: Server) -> None:
    def some(x: str = "") -> str:
        return x

    with pytest.raises(ValueError, match=re.escape(why)):
        server.add_resource(uri, some, **options)
    assert not server.resources and not server.resource_templates
    assert not server.service.discovery.offered("resources")


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("a://1", "parameter 'x' has no default, and a://1 has no variable"),
        ("a://{y}", "has a variable 'y', but the function has no parameter"),
        ("a://{x}/{y}", "has a variable 'y', but the function has no parameter"),
        ("a://{x}{?y}", "has a variable 'y', but the function has no parameter"),
    ],
)
def test_parameters_are_the_variables(uri: str, why: str, server: Server) -> None:
    def some(x: int) -> str:
        return ""

    with pytest.raises(SignatureError) as caught:
        server.resource(uri)(some)
    assert why in str(caught.value) and "resource 'some'" in str(caught.value)


def test_a_parameter_that_no_variable_fills(server: Server) -> None:
    def some(x: int, y: int) -> str:
        return ""

    with raises(SignatureError):
        server.resource("a://{x}")(some)


def test_fixed_contents_that_cannot_be_sent_are_refused(server: Server) -> None:
    for value in (object(), "\ud800", None):
        with pytest.raises((ValueError, ProtocolError)):
            server.add_resource("a://1", value)
    assert not server.resources


def test_fixed_contents_are_those_of_the_registration(caller: Any, server: Server) -> None:
    value = {"a": 1}
    server.add_resource("a://1", value)
    value["a"] = 2
    assert text(caller(), "a://1") == '{"a":1}'


def test_the_decorator_gives_the_function_back(server: Server) -> None:
    @server.resource("a://1")
    def one() -> str:
        return "x"

    assert one() == "x"
    resource = server.resources["a://1"]
    assert resource.function is one and repr(resource) == "<Resource 'a://1'>"


def test_methods_and_partials(caller: Any, server: Server) -> None:
    class Shop:
        def item(self, n: int) -> str:
            return f"item {n}"

    server.add_resource("shop://{n}", Shop().item)
    client = caller()
    assert text(client, "shop://3") == "item 3"


@pytest.mark.parametrize(
    "key", ["com.example.mcp/x", "x", "a.b-c/y_z", "io.modelcontextprotocol/ui"]
)
def test_names_of_meta_that_are_free(key: str, caller: Any, server: Server) -> None:
    server.add_resource("a://1", "x", meta={key: 1})
    (entry,) = caller(version=MODERN).plain("resources/list")["resources"]
    assert entry["_meta"] == {key: 1}


@pytest.mark.parametrize("key", ["dev.mcp/x", "com.mcp.tools/x", "progressToken", "a b", "1a/x"])
def test_names_of_meta_that_are_not(key: str, server: Server) -> None:
    with raises(ValueError):
        server.add_resource("a://1", "x", meta={key: 1})
    with raises(ValueError):
        server.prompt(meta={key: 1})(nothing)


def test_json_of_resources_is_one_line_of_strict_json(caller: Any, server: Server) -> None:
    server.add_resource("a://1", {"a": "\u2028\x85\r\n", "b": 1.5})
    value = json.loads(text(caller(), "a://1"))
    assert value == {"a": "\u2028\x85\r\n", "b": 1.5}

"""What is refused, or warned of, where an author registers something."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from lab.caller import Caller
from lab.wording import raises

from wirespeed import Extension, HeaderParam, Server
from wirespeed.errors import SignatureError
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.server.discovery import ServerDiscovery
from wirespeed.types import Icon

LONE = "caf\udce9"  # what os.listdir makes of the bytes "caf\xe9"


class Database:
    """Has no JSON form."""


class Place(msgspec.Struct):
    """Its schema stands in "$defs"."""

    region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]


@dataclass
class Marked:
    """Its field is a header field where the class is an argument."""

    region: Annotated[str, HeaderParam("Region")]


class Within(msgspec.Struct):
    """Has the marked field at a greater depth."""

    places: Sequence[Marked]


class MarkedElement(msgspec.Struct):
    """Has a mark inside of a field."""

    regions: list[Annotated[str, HeaderParam("Region")]]


class MarkedArray(msgspec.Struct, array_like=True):
    """An array in JSON, so its fields have no names there."""

    region: Annotated[str, HeaderParam("Region")]


class MarkedTuple(NamedTuple):
    """As `MarkedArray`."""

    region: Annotated[str, HeaderParam("Region")]


class MarkedTree(TypedDict):
    """Refers to itself."""

    region: Annotated[str, HeaderParam("Region")]
    child: NotRequired[MarkedTree]


class MarkedModel(pydantic.BaseModel):
    """As `Marked`, described by pydantic."""

    region: Annotated[str, HeaderParam("Region")]


def nothing() -> None:
    pass


# -- text with a lone surrogate -------------------------------------------------------------------

AUTHORED: dict[str, Callable[[Server], Any]] = {
    r"tool 'x' (nothing): description": lambda s: s.add_tool(nothing, name="x", description=LONE),
    "tool 'x': meta": lambda s: s.add_tool(nothing, name="x", meta={"a": {"b": LONE}}),
    "tool 'x': annotations": lambda s: s.add_tool(nothing, name="x", annotations={"title": LONE}),
    "tool 'x': icons": lambda s: s.add_tool(nothing, name="x", icons=[Icon(f"file:{LONE}")]),
    "tool 'raw': title": lambda s: s.tool_raw("raw", {"type": "object"}, len, title=LONE),
    "tool 'raw': inputSchema": lambda s: s.tool_raw("raw", {"type": "object", "title": LONE}, len),
    r"prompt 'p' (nothing): title": lambda s: s.add_prompt(nothing, name="p", title=LONE),
    "prompt 'p': meta": lambda s: s.add_prompt(nothing, name="p", meta={LONE[:3]: LONE}),
    "resource 'a://b': name": lambda s: s.add_resource("a://b", "text", name=LONE),
    "resource 'a://b': meta": lambda s: s.add_resource("a://b", "text", meta={"a": [LONE]}),
    "resource template 'a://{x}': meta": lambda s: s.add_resource(
        "a://{x}", lambda x: "text", name="r", meta={"a": LONE}
    ),
    "extension com.example/x: settings": lambda s: s.add_extension(
        Extension("com.example/x", {"a": LONE})
    ),
    "server: name": lambda s: Server(LONE),
    "server: version": lambda s: Server("s", LONE),
    "server: title": lambda s: Server("s", title=LONE),
    "server: instructions": lambda s: Server("s", instructions=LONE),
    "server: description": lambda s: Server("s", description=LONE),
    "server: websiteUrl": lambda s: Server("s", website_url=LONE),
    "server: experimental": lambda s: Server("s", experimental={"a": {"b": LONE}}),
}


@pytest.mark.parametrize("field", AUTHORED)
def test_text_with_a_lone_surrogate_is_refused_where_it_is_given(
    field: str, server: Server, caller: Any
) -> None:
    with pytest.raises((ValueError, SignatureError)) as refused:
        AUTHORED[field](server)
    assert str(refused.value) == f"{field} is not valid text: it has the lone surrogate '\\udce9'"
    client: Caller = caller()
    assert client.plain("tools/list") == {"tools": []}
    assert not server.prompts
    assert not server.resources
    assert not server.resource_templates


def test_what_has_no_json_form_is_refused_where_it_is_given(server: Server) -> None:
    with raises(TypeError):
        server.add_tool(nothing, name="x", meta={"a": object()})
    with raises(TypeError):
        Server("s", experimental={"a": {"b": object()}})


# -- common mistakes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tp", "reason"),
    [
        (Annotated[str, HeaderParam("")], "is not the name of a header field"),
        (Annotated[str, HeaderParam("My Region")], "'My Region'"),
        (Annotated[str, HeaderParam("Other")], "is the name of 'region' already"),
        (Annotated[float, HeaderParam("Region")], 'needs the type "string", "integer"'),
        (Annotated[str | None, HeaderParam("Region")], 'needs the type "string", "integer"'),
        (Annotated[list[str], HeaderParam("Region")], 'needs the type "string", "integer"'),
        (list[Annotated[str, HeaderParam("Region")]], "stands outside the properties"),
        (Place, "stands outside the properties"),
    ],
)
def test_a_bad_mark_for_a_header_field_is_refused(server: Server, tp: Any, reason: str) -> None:
    def query(region: Any, other: Annotated[str, HeaderParam("other")] = "") -> None: ...

    query.__annotations__["region"] = tp
    with raises(SignatureError) as failure:
        server.add_tool(query)
    assert reason in str(failure.value)


@pytest.mark.parametrize(
    ("tp", "where", "reason"),
    [
        (list[Marked], "place", "is inside of `list`"),
        (dict[str, Marked], "place", "is inside of `dict`"),
        (tuple[int, Marked], "place", "is inside of `tuple`"),
        (Marked | None, "place", "is inside of a union"),
        (MarkedModel | None, "place", "is inside of a union"),
        (list[MarkedModel], "place", "is inside of `list`"),
        (Within, "place.places", "is inside of `Sequence`"),
        (list[Within], "place", "is inside of `list`"),
        (MarkedElement, "place.regions", "is inside of `list`"),
        (MarkedArray, "place.region", "is in `MarkedArray`, which is no object"),
        (MarkedTuple, "place.region", "is in `MarkedTuple`, which is no object"),
        (MarkedTree, "place.child", "is in `MarkedTree`, which refers to itself"),
    ],
)
def test_a_marked_field_that_header_fields_do_not_reach_is_refused(
    server: Server, tp: Any, where: str, reason: str
) -> None:
    def deliver(place: Any) -> None: ...

    deliver.__annotations__["place"] = tp
    with pytest.raises(SignatureError) as failure:
        server.add_tool(deliver)
    text = str(failure.value)
    assert text.startswith("tool 'deliver' (")
    assert f": parameter '{where}': HeaderParam('Region') {reason};" in text


def test_a_marked_field_obeys_the_rules_of_marked_arguments(server: Server) -> None:
    class Size(msgspec.Struct):
        width: Annotated[float, HeaderParam("Width")]

    def cut(size: Size) -> None: ...

    cut.__annotations__["size"] = Size
    with raises(SignatureError):
        server.add_tool(cut)

    def move(start: Marked, end: Marked) -> None: ...

    with raises(SignatureError):
        server.add_tool(move)


def test_a_bad_mark_in_the_schema_of_a_raw_tool_is_refused(server: Server) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    with raises(ValueError):
        server.tool_raw("raw", schema, len)


def test_only_arguments_of_tools_have_header_fields(server: Server) -> None:
    def ask(region: Annotated[str, HeaderParam("Region")]) -> str:
        return region

    with raises(SignatureError):
        server.add_prompt(ask)
    with raises(SignatureError):
        server.add_resource("a://{region}", ask)


def test_resource_without_parentheses_is_refused(server: Server) -> None:
    with raises(TypeError):

        @server.resource  # type: ignore[arg-type]
        def config() -> str:
            return ""


def test_completion_without_its_argument_is_refused(server: Server) -> None:
    server.add_prompt(nothing)
    for refused in (lambda: server.completion(nothing), lambda: server.completion("nothing")):
        with raises(TypeError):
            refused()


@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_two_names_are_refused(server: Server, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"@server\.{kind}\('a', name='b'\) has two names"):
        getattr(server, kind)("a", name="b")


@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_an_empty_name_is_refused(server: Server, kind: str) -> None:
    with pytest.raises(SignatureError, match=f"a {kind}'s name is a non-empty string"):
        getattr(server, kind)("")(nothing)


def test_a_class_that_nothing_provides_says_how_to_provide_it(server: Server) -> None:
    def rows(db: Database) -> int:
        return 0

    with raises(SignatureError):
        server.add_tool(rows)


def test_a_taken_name_says_how_to_free_it(server: Server) -> None:
    server.add_tool(nothing)
    server.add_prompt(nothing)
    server.add_resource("a://b", "text")
    with raises(ValueError):
        server.add_tool(nothing)
    with raises(ValueError):
        server.add_prompt(nothing)
    with raises(ValueError):
        server.add_resource("a://b", "other")


def test_mount_with_its_arguments_exchanged_says_the_order(server: Server) -> None:
    with raises(TypeError):
        server.mount(Server("other"), "other")  # type: ignore[arg-type]


def test_a_name_that_hosts_may_refuse_is_warned_of(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("my tool!", "x" * 129, "größe"):
        server.add_tool(nothing, name=name)
        assert f"tool {name!r}: clients may refuse this name" in caplog.text
        caplog.clear()
    for name in ("a", "x" * 128, "a.b-c_D9"):
        server.add_tool(nothing, name=name)
    assert not caplog.records


def test_a_misspelt_hint_is_warned_of(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    hints = {"readOnlyHint": True, "title": "T", "destructive_hint": False, "example.com/x": 1}
    server.add_tool(nothing, annotations=hints)
    assert not caplog.records
    server.add_tool(nothing, name="b", annotations={"readonlyHint": True})
    said = (
        "tool 'b': clients do not know the annotation 'readonlyHint'; did you mean 'readOnlyHint'?"
    )
    assert caplog.messages == [said]


def test_a_context_without_annotation_is_warned_of(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def one(ctx) -> None:  # type: ignore[no-untyped-def]
        pass

    def two(context: str, value: int) -> None:
        pass

    server.add_tool(two)
    assert not caplog.records
    server.add_tool(one)
    assert "parameter 'ctx' is an argument of clients; to get the Context" in caplog.text
    assert len(caplog.records) == 1


def test_an_argument_without_annotation_is_warned_of(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def take(value, other: Any = None) -> None:  # type: ignore[no-untyped-def]
        pass

    server.add_tool(take)
    (text,) = caplog.messages
    assert "parameter 'value' has no annotation, so clients may give any value" in text


def test_tools_without_description_are_named_when_the_server_starts(
    server: Server, runner: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve() -> None:
        async with server.running():
            pass

    def described() -> None:
        """Has one."""

    server.add_tool(described)
    with caplog.at_level(logging.INFO, "wirespeed.server"):
        runner.run(serve())
        assert not caplog.records
        server.add_tool(nothing)
        runner.run(serve())
    assert "1 of 2 tools have no description, by which models choose: nothing" in caplog.text


def test_an_option_that_there_is_not_names_the_nearest_one(server: Server) -> None:
    with raises(TypeError):
        server.add_tool(nothing, descripton="x")  # type: ignore[call-arg]
    with raises(TypeError):
        server.add_resource("a://b", "x", mimetype="text/plain")  # type: ignore[call-arg]
    with raises(TypeError):
        server.add_prompt(nothing, structured=True)  # type: ignore[call-arg]
    assert not server.tools
    assert not server.resources
    assert not server.prompts


# -- changes from other threads -------------------------------------------------------------------


def test_lists_are_read_while_other_threads_register(server: Server, caller: Any) -> None:
    server.add_tool(nothing, name="stays")
    client: Caller = caller()
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            for i in range(20):
                server.add_tool(nothing, name=f"t{i}")
            for i in range(20):
                server.remove_tool(f"t{i}")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(100):
            names = [tool["name"] for tool in client.plain("tools/list")["tools"]]
            assert names[0] == "stays"
            assert len(names) == len(set(names))
    finally:
        over.set()
        thread.join()


def test_only_one_of_several_threads_registers_a_name(server: Server) -> None:
    start = threading.Barrier(4)
    refused: list[str] = []

    def register() -> None:
        start.wait()
        for i in range(200):
            try:
                server.add_resource(f"a://{i}", "text")
            except ValueError as exc:
                refused.append(str(exc))

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.resources) == 200
    assert len(refused) == 600


def test_a_change_while_discovery_is_answered_is_not_lost() -> None:
    discovery = ServerDiscovery("lab", "1")
    revision = REVISIONS["2026-07-28"]
    prompts: dict[str, Any] = {}

    def offered_meanwhile() -> dict[str, Any]:
        discovery.offers["prompts"] = lambda: prompts  # as another thread does
        discovery.forget()
        return {}

    discovery.offers["tools"] = offered_meanwhile
    discovery.offers["prompts"] = lambda: None
    discovery.discover_result(revision)
    discovery.offers["tools"] = dict
    answer = msgspec.json.decode(discovery.discover_result(revision).data)
    assert "prompts" in answer["capabilities"]

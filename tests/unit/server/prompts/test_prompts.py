"""prompts/list and prompts/get in every revision."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import decimal
import enum
import logging
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from lab.caller import Caller, before, since
from lab.server import MODERN
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import ProtocolError, SignatureError
from wirespeed.types import (
    Audio,
    EmbeddedResource,
    Icon,
    Image,
    PromptMessage,
    PromptResult,
    ResourceContents,
    ResourceLink,
    Text,
)


def get(caller: Caller, name: str, **arguments: Any) -> Any:
    params = {"name": name, "arguments": arguments} if arguments else {"name": name}
    return caller.result("prompts/get", **params)


def messages(caller: Caller, name: str, **arguments: Any) -> list[tuple[str, Any]]:
    """Role and content of each message; of text, the text alone."""
    found = []
    for message in get(caller, name, **arguments)["messages"]:
        assert message.keys() == {"role", "content"}
        content = message["content"]
        plain = content.keys() == {"type", "text"} and content["type"] == "text"
        found.append((message["role"], content["text"] if plain else content))
    return found


def refused(caller: Caller, name: str, why: str, **arguments: Any) -> None:
    error = caller.error("prompts/get", name=name, arguments=arguments)
    assert error == {"code": -32602, "message": why}


# -- lists ----------------------------------------------------------------------------------------


@pytest.mark.every_revision
def test_a_list_shows_what_the_revision_has(caller: Any, server: Server, version: str) -> None:
    @server.prompt(
        title="Review",
        icons=[Icon("https://x.example/i.png")],
        meta={"com.example/k": 1},
    )
    def review(
        code: Annotated[str, msgspec.Meta(title="The code", description="What to review")],
        language: Literal["c", "python"] = "python",
        depth: int = 3,
        *,
        ctx: Context,
        tags: list[str] | None = None,
    ) -> str:
        """Review some code.

        Args:
            code: not this
            language: What it is written in.
            tags: For whom.
        """
        return ""

    @server.prompt("bare")
    def named() -> str:
        return ""

    first, second = caller().plain("prompts/list")["prompts"]
    assert second == {"name": "bare"}
    code = {"name": "code", "description": "What to review", "required": True}
    expected: dict[str, Any] = {
        "name": "review",
        "description": "Review some code.",
        "arguments": [
            code,
            {"name": "language", "description": 'What it is written in. ("c" or "python")'},
            {"name": "depth", "description": "integer"},
            {"name": "tags", "description": "For whom. (JSON: array of string or null)"},
        ],
    }
    if version in since("2025-06-18"):
        expected |= {"title": "Review", "_meta": {"com.example/k": 1}}
        code["title"] = "The code"
    if version in since("2025-11-25"):
        expected["icons"] = [{"src": "https://x.example/i.png"}]
    assert first == expected


@pytest.mark.parametrize("name", ["a b", "ünï", "x/y:z", "\n", "a" * 300, "💥", "null"])
def test_unusual_names_do_not_break_the_list(name: str, caller: Any, server: Server) -> None:
    server.add_prompt(lambda: "x", name="before")
    server.add_prompt(lambda: "found", name=name)
    client = caller()
    assert [p["name"] for p in client.plain("prompts/list")["prompts"]] == ["before", name]
    assert messages(client, name) == [("user", "found")]


# -- messages -------------------------------------------------------------------------------------

PNG = Image(b"\x89PNG", "image/png")
PNG_WIRE = {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}


@dataclasses.dataclass
class Place:
    name: str


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hi", [("user", "hi")]),
        ("", [("user", "")]),
        (Text("hi"), [("user", "hi")]),
        (PNG, [("user", PNG_WIRE)]),
        (["a", PNG, "b"], [("user", "a"), ("user", PNG_WIRE), ("user", "b")]),
        (("a", "b"), [("user", "a"), ("user", "b")]),
        ([], []),
        (PromptMessage("assistant", "hi"), [("assistant", "hi")]),
        (PromptMessage("assistant", PNG), [("assistant", PNG_WIRE)]),
        (PromptMessage("assistant", ["a", PNG]), [("assistant", "a"), ("assistant", PNG_WIRE)]),
        (["q", PromptMessage("assistant", "a")], [("user", "q"), ("assistant", "a")]),
        ({"role": "assistant", "content": "hi"}, [("assistant", "hi")]),
        (
            [{"role": "user", "content": {"type": "text", "text": "hi"}}],
            [("user", "hi")],
        ),
        ({"role": "user", "content": PNG_WIRE}, [("user", PNG_WIRE)]),
        ({"role": "user", "content": {"k": 1}}, [("user", '{"k":1}')]),
        ({"k": [1]}, [("user", '{"k":[1]}')]),
        (Place("x"), [("user", '{"name":"x"}')]),
        (5, [("user", "5")]),
        (dt.date(2026, 1, 2), [("user", "2026-01-02")]),
        (PromptResult(messages="hi"), [("user", "hi")]),
        (PromptResult(messages=["a", PromptMessage("assistant", "b")]),
         [("user", "a"), ("assistant", "b")]),
        (
            EmbeddedResource(ResourceContents("file:///a", "text/plain", text="x")),
            [("user", {"type": "resource",
                       "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "x"}})],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["thread", "async"])
def test_what_a_prompt_returns(
    value: Any, expected: Any, how: str, connect: Any, server: Server
) -> None:
    async def coroutine() -> Any:
        return value

    server.add_prompt(coroutine if how == "async" else lambda: value, name="p")
    assert messages(Caller(connect("2025-06-18"), "2025-06-18"), "p") == expected


def test_generators_give_one_message_at_a_time(caller: Any, server: Server) -> None:
    @server.prompt
    def plain() -> Iterator[str]:
        yield "a"
        yield "b"

    @server.prompt
    async def asynchronous() -> AsyncIterator[PromptMessage]:
        yield PromptMessage("assistant", "a")

    client = caller()
    assert messages(client, "plain") == [("user", "a"), ("user", "b")]
    assert messages(client, "asynchronous") == [("assistant", "a")]


def test_descriptions_and_meta(caller: Any, server: Server) -> None:
    @server.prompt(description="The prompt's own")
    def own() -> Any:
        return PromptResult(messages="x", meta={"k": 1})

    @server.prompt
    def other() -> Any:
        """The docstring's."""
        return PromptResult(messages="x", description="Its own")

    @server.prompt
    def none() -> str:
        return "x"

    client = caller()
    assert get(client, "own")["description"] == "The prompt's own"
    assert get(client, "own")["_meta"] == {"k": 1}
    assert get(client, "other")["description"] == "Its own"
    assert get(client, "none").keys() == {"messages"}


@pytest.mark.every_revision
def test_newer_content_becomes_text_for_older_clients(
    caller: Any, server: Server, version: str
) -> None:
    @server.prompt
    def p() -> Any:
        return [
            PromptMessage("assistant", Audio(b"RIFF", "audio/wav")),
            ResourceLink("file:///a", "a"),
        ]

    audio: Any = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
    link: Any = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    if version in before("2025-03-26"):
        audio = "[audio: audio/wav, 4 bytes]"
    if version in before("2025-06-18"):
        link = "[resource: a] file:///a"
    assert messages(caller(), "p") == [("assistant", audio), ("user", link)]


# -- arguments ------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 2


class Movie(TypedDict):
    title: str


class Point(msgspec.Struct):
    x: int


class Model(pydantic.BaseModel):
    n: int


CASES: list[tuple[Any, str, Any]] = [
    (str, "", ""),
    (str, "5", "5"),
    (str, " x\n", " x\n"),
    (Any, "null", "null"),
    (str | None, "null", "null"),
    (int | str, "5", "5"),
    (int, "5", 5),
    (int, " 5 ", 5),
    (int, "12345678901234567890123", 12345678901234567890123),
    (float, "1.5", 1.5),
    (float, "1", 1.0),
    (bool, "true", True),
    (bool, "False", False),
    (bool, "1", True),
    (int | None, "null", None),
    (int | None, "5", 5),
    (Colour, "red", Colour.RED),
    (Size, "2", Size.BIG),
    (Literal["a", 1], "1", 1),
    (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
    (uuid.UUID, "00000000-0000-0000-0000-000000000005", uuid.UUID(int=5)),
    (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
    (bytes, "YWI=", b"ab"),
    (list[int], "[1, 2]", [1, 2]),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (dict[str, Any], '{"a": [null]}', {"a": [None]}),
    (list[int] | None, "null", None),
    (Point, '{"x": 1}', Point(1)),
    (Place, '{"name": "x"}', Place("x")),
    (Movie, '{"title": "x"}', {"title": "x"}),
    (Model, '{"n": 1}', Model(n=1)),
    (list[Point], '[{"x": 1}]', [Point(1)]),
    (Annotated[int, msgspec.Meta(ge=3)], "3", 3),
]


@pytest.mark.parametrize(("tp", "wire", "value"), CASES)
def test_arguments_have_the_types_of_the_parameters(
    tp: Any, wire: str, value: Any, connect: Any, server: Server
) -> None:
    got: list[Any] = []

    def keep(x: Any) -> str:
        got.append(x)
        return "kept"

    keep.__annotations__["x"] = tp
    server.add_prompt(keep)
    client = Caller(connect(), MODERN)
    assert messages(client, "keep", x=wire) == [("user", "kept")]
    assert got == [value] and type(got[0]) is type(value)


@pytest.mark.parametrize(
    ("tp", "wire", "why"),
    [
        (int, "x", "argument 'x': expected integer, got 'x'"),
        (int, "", "argument 'x': expected integer, got ''"),
        (int, "1.5", "argument 'x': "),
        (bool, "yes", "argument 'x': expected boolean, got 'yes'"),
        (Colour, "blue", "argument 'x': Invalid enum value 'blue'"),
        (Literal["a", "b"], "c", "argument 'x': Invalid enum value 'c'"),
        (dt.date, "today", "argument 'x': "),
        (list[int], "1,2", "argument 'x': expected array of integer, got '1,2'"),
        (list[int], '["a"]', "argument 'x': at '[0]': Expected `int`, got `str`"),
        (list[int], "[1", "argument 'x': expected array of integer, got '[1'"),
        (Point, "{}", "argument 'x': missing required field 'x'"),
        (Model, '{"n": "a"}', "argument 'x': at 'n': Input should be"),
        (Annotated[int, msgspec.Meta(ge=3)], "2", "argument 'x': Expected `int` >= 3"),
        (int, "x" * 1000, "argument 'x': expected integer, got '" + "x" * 79),
    ],
)
def test_arguments_that_do_not_fit_are_invalid_params(
    tp: Any, wire: str, why: str, connect: Any, server: Server
) -> None:
    def never(x: Any) -> str:
        raise AssertionError

    never.__annotations__["x"] = tp
    server.add_prompt(never)
    error = Caller(connect(), MODERN).error("prompts/get", name="never", arguments={"x": wire})
    assert error["code"] == -32602
    assert error["message"].startswith(f"Prompt never: {why}")
    assert len(error["message"]) < 600 and "\n" not in error["message"]


def test_an_unknown_prompt_is_invalid_params_in_every_revision(caller: Any, server: Server) -> None:
    server.add_prompt(lambda: "", name="a")
    refused(caller(), "b", "Unknown prompt: b")


def test_missing_arguments_are_invalid_params(caller: Any, server: Server) -> None:
    @server.prompt
    def p(a: str, b: int, c: str = "c", *, d: str) -> str:
        return f"{a} {b} {c} {d}"

    client = caller()
    refused(client, "p", "Prompt p: missing arguments: a, b, d")
    refused(client, "p", "Prompt p: missing argument: b", a="", d="")
    assert client.error("prompts/get", name="p")["code"] == -32602
    assert messages(client, "p", a="1", b="2", d="4") == [("user", "1 2 c 4")]
    assert messages(client, "p", a="1", b="2", c="3", d="4", e="5") == [("user", "1 2 3 4")]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 5},
        {"name": None},
        {"name": "p", "arguments": [1]},
        {"name": "p", "arguments": "x"},
        {"name": "p", "arguments": {"a": 5}},
        {"name": "p", "arguments": {"a": ["x"]}},
    ],
)
def test_requests_of_another_shape(params: Any, caller: Any, server: Server) -> None:
    server.add_prompt(lambda a="": a, name="p")
    error = caller().error("prompts/get", **params)
    assert error["code"] == -32602 and "Invalid params" in error["message"]


def test_mutable_defaults_are_not_shared(caller: Any, server: Server) -> None:
    @server.prompt
    def p(a: list[int] = []) -> str:  # noqa: B006
        a.append(1)
        return str(a)

    client = caller()
    assert messages(client, "p") == messages(client, "p") == [("user", "[1]")]


def test_a_context_is_no_argument(caller: Any, server: Server, version: str) -> None:
    @server.prompt
    async def p(ctx: Context, a: str = "x") -> str:
        await ctx.progress(1)
        return f"{ctx.protocol_version} {a}"

    client = caller()
    (prompt,) = client.plain("prompts/list")["prompts"]
    assert [argument["name"] for argument in prompt["arguments"]] == ["a"]
    message = client.message("prompts/get", {"name": "p"})
    message["params"].setdefault("_meta", {})["progressToken"] = "t"
    client.peer.send(message)
    note, answer = client.peer.until(message["id"])
    assert note["params"] == {"progressToken": "t", "progress": 1}
    assert answer["result"]["messages"][0]["content"]["text"] == f"{version} x"


# -- failures -------------------------------------------------------------------------------------


def test_nothing_internal_leaks(
    caller: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.add_prompt(lambda: 1 // 0, name="raises")
    server.add_prompt(lambda: None, name="none")
    server.add_prompt(lambda: object(), name="object")
    server.add_prompt(lambda: b"bytes", name="bytes")
    server.add_prompt(lambda: "\ud800", name="surrogate")
    server.add_prompt(lambda: {"role": "system", "content": "x"}, name="role")
    server.add_prompt(
        lambda: {"role": "user", "content": {"type": "text", "text": 5}}, name="content"
    )
    server.add_prompt(lambda: PromptMessage("system", "x"), name="message")  # type: ignore[arg-type]
    client = caller()
    names = list(server.prompts)
    for name in names:
        error = client.error("prompts/get", name=name)
        assert error == {"code": -32603, "message": "Internal error"}, name
    assert [r.levelno for r in caplog.records] == [logging.ERROR] * len(names)
    assert [r.message for r in caplog.records] == [f"prompt {name} failed" for name in names]


def test_an_error_may_be_raised_on_purpose(caller: Any, server: Server) -> None:
    @server.prompt
    async def p() -> str:
        raise ProtocolError(-5, "not today", {"k": 1})

    error = caller().error("prompts/get", name="p")
    assert error == {"code": -5, "message": "not today", "data": {"k": 1}}


def test_a_timeout_ends_a_prompt(caller: Any, server: Server) -> None:
    @server.prompt(timeout=0.001)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    error = caller().error("prompts/get", name="slow")
    assert error == {"code": -32603, "message": "The prompt slow timed out after 0.001 s"}


# -- registration ---------------------------------------------------------------------------------


def test_what_cannot_be_a_prompt(server: Server) -> None:
    def stars(*args: str) -> str:
        return ""

    def strange(x: object, y: asyncio.Event) -> str:
        return ""

    with raises(SignatureError):
        server.prompt(stars)
    with raises(SignatureError):
        server.prompt(strange)
    with raises(SignatureError):
        server.prompt(lambda: "")
    with raises(SignatureError):
        server.prompt("x")(5)  # type: ignore[type-var]
    with raises(ValueError):
        server.add_prompt(lambda: "", name="x", timeout=-1)
    assert not server.prompts and not server.service.discovery.offered("prompts")


def test_the_decorator_gives_the_function_back(server: Server) -> None:
    @server.prompt
    def one() -> str:
        return "x"

    @server.prompt(name="other")
    def two() -> str:
        return "y"

    assert one() == "x" and two() == "y"
    prompt = server.prompts["other"]
    assert prompt.function is two and prompt.key == "other"
    assert repr(prompt) == "<Prompt 'other'>"


def test_roles() -> None:
    with raises(ValueError):
        PromptMessage("system", "x")  # type: ignore[arg-type]
